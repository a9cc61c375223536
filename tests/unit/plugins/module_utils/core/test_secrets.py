# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Secrets do not show, and the rest does."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.secrets import MASK, masked

SECRET = "s3cr3t-value-0123"


def container(**fields: object) -> str:
    return to_yaml({"spec": {"containers": [{"name": "engine", "image": "vllm/vllm-openai:v0.23.0", **fields}]}})


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "OPENAI_KEY", "DB_PASS", "MY_PASSPHRASE", "AWS_SECRET_ACCESS_KEY", "hf_token", "SENTRY_DSN"]
)
@pytest.mark.parametrize("value", [SECRET, f"line\n{SECRET}\n", f"'{SECRET}'", f"  {SECRET}: x", "1234567890"])
def test_variables_by_name(name: str, value: str) -> None:
    text = container(env=[{"name": name, "value": value}, {"name": "PLAIN", "value": "shown"}])
    shown = masked(text)
    assert SECRET not in shown
    assert "1234567890" not in shown
    assert MASK in shown
    assert "shown" in shown
    assert name in shown


@pytest.mark.parametrize(
    "args",
    [
        [f"--api-key={SECRET}"],
        ["--api-key", SECRET, "--port=8000"],
        [f"--database=postgres://user:{SECRET}@db/x"],
        [f"exec vllm serve --api-key {SECRET} --port 8000"],
        ["--header=hf_" + "a" * 20 + SECRET],
    ],
)
def test_arguments(args: list[str]) -> None:
    shown = masked(container(args=args, command=["/bin/sh", "-c", *args]))
    assert SECRET not in shown
    assert "vllm/vllm-openai:v0.23.0" in shown


def test_what_is_no_secret_stays() -> None:
    text = container(
        args=["--model=Qwen/Qwen3-8B", "--port=8000"],
        env=[{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}],
    )
    assert masked(text) == text
