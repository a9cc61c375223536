# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Defaults of built objects, compared with the definitions of custom kinds. tests/unit/kube/test_gitops.py compares the
objects of Kubernetes with an API server."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.defaults import with_defaults
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.quantity import canonical_text
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import plan
from ansible_collections.modelplane.fleet.tests.schemas import definitions
from ansible_collections.modelplane.fleet.tests.unit.kube import gitops_edits

CASES = Path(__file__).parents[5] / "conformance" / "cases" / "model-gateway-cases.json"


def manifests() -> Iterator[list[dict[str, Any]]]:
    yield list(gitops_edits.first().values())
    for case in json.loads(CASES.read_text())["cases"]:
        yield case["resources"]


def missing_defaults(value: Any, schema: dict[str, Any], path: str = "", *, in_list: bool = False) -> Iterator[str]:
    """Yield the defaults of a definition that items of lists do not have."""
    if isinstance(value, dict):
        for name, part in (schema.get("properties") or {}).items():
            if name in value:
                yield from missing_defaults(value[name], part, f"{path}.{name}", in_list=in_list)
            elif in_list and "default" in part:
                yield f"{path}.{name}: {part['default']}"
        if isinstance(schema.get("additionalProperties"), dict):
            for name, part in value.items():
                yield from missing_defaults(part, schema["additionalProperties"], f"{path}.{name}", in_list=in_list)
    elif isinstance(value, list):
        for item in value:
            yield from missing_defaults(item, schema.get("items") or {}, f"{path}[]", in_list=True)


def test_custom_kinds_have_the_defaults_of_their_definitions() -> None:
    seen = set()
    for resources in manifests():
        decided = plan([api.parse(copy.deepcopy(value)) for value in resources])
        objects = [*decided.control, *(value for cluster in decided.workloads for value in decided.workloads[cluster])]
        for value in objects:
            group, __, version = value["apiVersion"].rpartition("/")
            definition = definitions().get((group, version, value["kind"]))
            if definition is not None:
                seen.add(value["kind"])
                written = with_defaults(value)
                assert list(missing_defaults(written.get("spec"), definition["schema"]["properties"]["spec"])) == []
    assert seen >= {"HTTPRoute", "LeaderWorkerSet", "Gateway", "BackendTrafficPolicy", "SecurityPolicy"}


def test_an_object_is_not_changed() -> None:
    decided = plan([api.parse(value) for value in gitops_edits.first().values()])
    for cluster in decided.workloads:
        for value in decided.workloads[cluster]:
            before = copy.deepcopy(value)
            written = with_defaults(value)
            assert value == before
            assert with_defaults(written) == written


# The canonical texts are those of an API server (Kubernetes 1.36), for requests of a container.
QUANTITIES = {
    "12288Mi": "12Gi",
    "2048Gi": "2Ti",
    "1.5Gi": "1536Mi",
    "0.5Gi": "512Mi",
    "0.5Ki": "512",
    "0.1Ki": "102400m",
    "1024Ki": "1Mi",
    "1000Mi": "1000Mi",
    "12884901888": "12884901888",
    "0.5": "500m",
    ".5": "500m",
    "5.": "5.",
    "1.500": "1.500",
    "1.50": "1500m",
    "1028Mi": "1028Mi",
    "1500Mi": "1500Mi",
    "1e-3": "1e-3",
    "1000m": "1",
    "1500m": "1500m",
    "250m": "250m",
    "1e3": "1e3",
    "1E3": "1E3",
    "12e4": "120e3",
    "1e9": "1e9",
    "64000M": "64G",
    "2000000k": "2G",
    "1500": "1500",
    "0": "0",
    "0Gi": "0",
    "0.0": "0",
    "4": "4",
    "no quantity": "no quantity",
}


def test_kubernetes_rounds_the_requests_of_containers_up() -> None:
    assert canonical_text("0.0001") == "100u"
    assert canonical_text("0.0001", 3) == "1m"
    assert canonical_text("100u", 3) == "1m"


@pytest.mark.parametrize("text", QUANTITIES)
def test_a_quantity_is_written_as_kubernetes_writes_it(text: str) -> None:
    assert canonical_text(text) == QUANTITIES[text]
    assert canonical_text(QUANTITIES[text]) == QUANTITIES[text]


@pytest.mark.parametrize(
    ("image", "policy"),
    {
        "vllm": "Always",
        "vllm:latest": "Always",
        "example.com:5000/vllm": "Always",
        "example.com:5000/vllm:v1": "IfNotPresent",
        f"vllm@sha256:{'a' * 64}": "IfNotPresent",
        f"vllm:latest@sha256:{'a' * 64}": "IfNotPresent",
    }.items(),
)
def test_the_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    pod = {"containers": [{"name": "main", "image": image}]}
    value = {"kind": "Deployment", "metadata": {"name": "a"}, "spec": {"template": {"spec": pod}}}
    assert with_defaults(value)["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] == policy
