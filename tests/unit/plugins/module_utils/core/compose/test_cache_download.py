# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Settings of the download of a ModelCache: patterns of files, variables, and CA certificates."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cache import artifact, volume_id
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.hydration import SCRIPT
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.compose.test_cache import (
    Machine,
    job,
    model_cache,
    pod,
)

HOSTILE = [
    "*.json; rm -rf /",
    "$(touch owned)",
    "`touch owned`",
    "a b/*",
    "'\"",
    "--local-dir=/tmp",
    "patterns",
    "\\n*",
]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def variables(cache: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in pod(cache)["containers"][0]["env"]}


def errors(**source: Any) -> str:
    with pytest.raises(api.InvalidResource) as raised:
        api.parse(model_cache(**source))
    return str(raised.value)


# Patterns


def test_a_cache_without_patterns_has_the_job_of_earlier_releases() -> None:
    """The name of an unobserved Job contains a digest of its template."""
    command = pod(model_cache())["containers"][0]["command"]
    assert command == ["/bin/sh", "-c", SCRIPT]
    assert hashlib.sha256(SCRIPT.encode()).hexdigest()[:16] == "8b53d017ed7c8ea2"
    assert {"INCLUDE", "EXCLUDE"} & set(variables(model_cache())) == set()


@pytest.mark.parametrize(
    ("source", "added"),
    [
        ({"include": ["*Q4_K_M*.gguf"]}, "@include=*Q4_K_M*.gguf"),
        ({"exclude": ["original/*", "*.bin"]}, "@exclude=*.bin,original/*"),
        ({"include": ["*.safetensors", "*.json"], "exclude": ["x"]}, "@include=*.json,*.safetensors@exclude=x"),
    ],
)
def test_patterns_are_part_of_the_artifact(source: dict[str, Any], added: str) -> None:
    """A volume that has some of the files is not that of an edit which asks for others."""
    plain, filtered = api.parse(model_cache()), api.parse(model_cache(**source))
    assert isinstance(plain, api.ModelCache)
    assert isinstance(filtered, api.ModelCache)
    assert artifact(filtered) == artifact(plain) + added
    assert volume_id(filtered) != volume_id(plain)


def test_the_order_of_patterns_does_not_matter() -> None:
    one, other = (api.parse(model_cache(include=order)) for order in (["a", "b", "a"], ["b", "a"]))
    assert isinstance(one, api.ModelCache)
    assert isinstance(other, api.ModelCache)
    assert artifact(one) == artifact(other)
    assert job(model_cache(include=["a", "b", "a"]), settled=False) == job(
        model_cache(include=["b", "a"]), settled=False
    )


@pytest.mark.integration
@pytest.mark.parametrize("layout", ["Folder", "HubCache"])
def test_hf_gets_each_pattern_as_a_word(machine: Machine, layout: str) -> None:
    source = {"layout": layout, "include": ["*.safetensors", "*.json"], "exclude": ["original/*"], "revision": "v1"}
    run = machine.run(model_cache(**source))
    assert run.returncode == 0, run.stderr
    for word in ("--include=*.safetensors", "--include=*.json", "--exclude=original/*", "--revision=v1"):
        assert word in machine.calls
    marker = machine.marker() or ""
    assert marker.endswith(f"@{layout}@include=*.json,*.safetensors@exclude=original/*")


@pytest.mark.integration
@pytest.mark.parametrize("pattern", HOSTILE)
@pytest.mark.parametrize("field", ["include", "exclude"])
def test_patterns_of_users_stay_words(machine: Machine, field: str, pattern: str) -> None:
    run = machine.run(model_cache(**{field: [pattern]}))
    assert run.returncode == 0, run.stderr
    assert f"--{field}={pattern}" in machine.calls
    assert not (machine.folder / "owned").exists()


@pytest.mark.integration
def test_an_older_hf_that_takes_one_pattern_only_is_refused(machine: Machine) -> None:
    stand_in = machine.bin / "hf"
    stand_in.write_text('#!/bin/sh\n[ "$1" = version ] && echo "huggingface_hub version: 0.36.0"\nexit 0\n')
    run = machine.run(model_cache(include=["*.json", "*.txt"]))
    assert run.returncode == 1
    assert "need huggingface_hub 1.0 or newer" in run.stderr
    assert machine.marker() is None


@pytest.mark.parametrize("pattern", ["", "a\nb", "a\tb", "x" * 257])
def test_patterns_that_are_none(pattern: str) -> None:
    assert "spec.huggingFace.include[0]" in errors(include=[pattern])


# Variables and CA certificates


def test_variables_of_users_win_over_defaults() -> None:
    env = [
        {"name": "HTTPS_PROXY", "value": "http://proxy.example.org:3128"},
        {"name": "NO_PROXY", "value": ".svc,10.0.0.0/8"},
        {"name": "HF_ENDPOINT", "value": "https://hub.example.org"},
        {"name": "HF_XET_CHUNK_CACHE_SIZE_BYTES", "value": "1000000"},
        {"name": "HF_HUB_DISABLE_XET", "value": "1"},
    ]
    names = [each["name"] for each in pod(model_cache(env=env))["containers"][0]["env"]]
    assert len(names) == len(set(names))
    assert variables(model_cache(env=env)).items() >= {each["name"]: each["value"] for each in env}.items()


def test_secrets_are_references() -> None:
    source = {"secretKeyRef": {"name": "proxy", "key": "url"}}
    found = variables(model_cache(env=[{"name": "HTTPS_PROXY", "valueFrom": source}]))
    assert found["HTTPS_PROXY"] == source


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"name": "HTTPS_PROXY", "value": "http://user:hunter22@proxy:3128"}, "Is a URL with a password"),
        ({"name": "PIP_INDEX_URL", "value": "https://me:hunter22@pypi.example.org/simple"}, "Is a URL with a password"),
        ({"name": "HUGGING_FACE_HUB_TOKEN", "value": "hunter22"}, "Of HUGGING_FACE_HUB_TOKEN is a secret"),
        ({"name": "PROXY_PASSWORD", "value": "hunter22"}, "Of PROXY_PASSWORD is a secret"),
        ({"name": "HF_TOKEN", "value": "hunter22"}, "HF_TOKEN is set by authSecret"),
        ({"name": "REPO", "value": "hunter22"}, "REPO is set by the download itself"),
        ({"name": "PATH", "value": "hunter22"}, "PATH is set by the download itself"),
    ],
)
def test_variables_that_no_download_can_have(env: dict[str, str], message: str) -> None:
    found = errors(env=[env])
    assert message in found
    assert "spec.huggingFace.env[0]" in found
    assert "hunter22" not in found


def test_a_variable_is_set_once() -> None:
    twice = [{"name": "HF_ENDPOINT", "value": "https://a"}, {"name": "HF_ENDPOINT", "value": "https://b"}]
    assert "HF_ENDPOINT" in errors(env=twice)


@pytest.mark.parametrize("key", ["", "bundle.pem"])
def test_ca_certificates_are_those_of_all_programs(key: str) -> None:
    cache = model_cache(caBundle={"name": "corporate-ca", **({"key": key} if key else {})})
    spec = pod(cache)
    (volume,) = [each for each in spec["volumes"] if each["name"] == "ca"]
    assert volume["configMap"] == {"name": "corporate-ca", "items": [{"key": key or "ca.crt", "path": "ca.crt"}]}
    (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "ca"]
    path = f"{mount['mountPath']}/ca.crt"
    assert mount["readOnly"]
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"):
        assert variables(cache)[name] == path


@pytest.mark.parametrize("more", [{"env": [{"name": "NO_PROXY", "value": "x"}]}, {"caBundle": {"name": "ca"}}])
def test_settings_of_the_download_leave_the_artifact_and_the_script(more: dict[str, Any]) -> None:
    plain, other = api.parse(model_cache()), api.parse(model_cache(**more))
    assert isinstance(plain, api.ModelCache)
    assert isinstance(other, api.ModelCache)
    assert artifact(plain) == artifact(other)
    assert pod(model_cache(**more))["containers"][0]["command"][2] == SCRIPT


@pytest.mark.integration
def test_the_script_with_patterns_is_valid() -> None:
    script = pod(model_cache(include=["*"]))["containers"][0]["command"][2]
    assert script != SCRIPT
    subprocess.run(["sh", "-n", "-c", script], check=True, timeout=30)
