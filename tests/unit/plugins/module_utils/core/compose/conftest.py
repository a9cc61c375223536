# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelReplicas to compose from, and the objects that are expected of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

EXPECTED = Path(__file__).parent / "expected"

GPU = {
    "name": "gpu",
    "deviceClassName": "gpu.nvidia.com",
    "count": 1,
    "selectors": [{"cel": 'device.driver == "gpu.nvidia.com"'}],
}

Replica = dict[str, Any]


def member(role: str = "Standalone", **container: Any) -> dict[str, Any]:
    """A member with one GPU; keywords are fields of its container."""
    wire: dict[str, Any] = {
        "role": role,
        "nodePoolName": "gpu-l4",
        "deviceRequests": [dict(GPU)],
        "template": {"spec": {"containers": [{"name": "engine", "image": "vllm/vllm-openai:v0.23.0", **container}]}},
    }
    if role == "Worker":
        wire["worker"] = {"nodes": 1}
    return wire


def engine(name: str, *members: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": name, "copies": 1, **fields, "members": list(members)}


@pytest.fixture
def make_replica() -> Callable[..., Replica]:
    """Builds a ModelReplica; without engines it has one Standalone engine `main` made of the keywords `container`."""

    def build(
        *engines: Mapping[str, Any],
        name: str = "qwen3-8b-6e732e38e8",
        namespace: str = "ml-team",
        container: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> Replica:
        return {
            "apiVersion": "modelplane.ai/v1alpha1",
            "kind": "ModelReplica",
            "metadata": {"name": name, "namespace": namespace, "labels": {"modelplane.ai/deployment": "qwen3-8b"}},
            "spec": {
                "clusterName": "gpu-us-east",
                **spec,
                "engines": list(engines) or [engine("main", member(**(container or {})))],
            },
        }

    return build


@pytest.fixture
def make_member() -> Callable[..., dict[str, Any]]:
    return member


@pytest.fixture
def make_engine() -> Callable[..., dict[str, Any]]:
    return engine


@pytest.fixture
def gang() -> dict[str, Any]:
    return engine("main", member("Leader"), member("Worker"))


@pytest.fixture
def pair() -> tuple[dict[str, Any], dict[str, Any]]:
    """The engines of a PrefillDecode replica; their names say the wrong thing on purpose, their phases count."""
    return (
        engine("decode", member(args=["--block-size=32"]), phase="Prefill"),
        engine("prefill", member(args=["--port=8001", "--block-size=64"]), phase="Decode"),
    )


@pytest.fixture
def expected() -> Callable[[str], list[dict[str, Any]]]:
    """Reads the documents of a file of expected objects."""

    def read(name: str) -> list[dict[str, Any]]:
        return list(yaml.safe_load_all((EXPECTED / f"{name}.yaml").read_text()))

    return read


@pytest.fixture
def pick() -> Callable[..., dict[str, Any]]:
    """The one object of a kind (and, where there are more, of a name's ending) among composed objects."""

    def find(objects: Sequence[Mapping[str, Any]], kind: str, ending: str = "") -> dict[str, Any]:
        found = [each for each in objects if each["kind"] == kind and each["metadata"]["name"].endswith(ending)]
        assert len(found) == 1, [each["metadata"]["name"] for each in found]
        return dict(found[0])

    return find
