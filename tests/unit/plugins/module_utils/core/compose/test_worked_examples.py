# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whole deployments and all that becomes of them, object for object and field for field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import PlacedEngine, PlacedMember
from ansible_collections.modelplane.fleet.tests.written import model_endpoint, model_replica, replica_objects

Documents = list[dict[str, Any]]
Expected = Callable[[str], Documents]

MEMORY = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20Gi")) >= 0'


def gpus(count: int) -> dict[str, Any]:
    return {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": count}


def written(role: str, **container: Any) -> dict[str, Any]:
    member: dict[str, Any] = {
        "role": role,
        "nodeSelector": {"devices": [{"name": "gpu", "count": 1, "selectors": [{"cel": MEMORY}]}]},
        "template": {"spec": {"containers": [{"name": "engine", "image": "vllm/vllm-openai:v0.23.0", **container}]}},
    }
    if role == "Worker":
        member["worker"] = {"nodes": 1}
    return member


def deployment(name: str, *engines: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": "ml-team"},
        "spec": {"replicas": 1, "template": {"spec": {**spec, "engines": list(engines)}}},
    }


def without_scripts(value: Any) -> Any:
    """A value with a word for each script in it."""
    if isinstance(value, dict):
        return {key: without_scripts(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(without_scripts, value))
    return "SCRIPT" if isinstance(value, str) and value.startswith("import ") else value


def composed(replica: dict[str, Any]) -> Documents:
    """The objects of a replica as people would write them: without annotations and scripts."""
    objects = list(map(without_scripts, replica_objects(replica)))
    for each in objects:
        if each["kind"] in ("Deployment", "LeaderWorkerSet", "Namespace"):
            del each["metadata"]["annotations"]
    return objects


def beyond(objects: Documents, expected: Documents) -> Documents:
    """Those of the objects that have the kind and name of an expected one, and the expected ones that are missing."""
    names = {(each["kind"], each["metadata"]["name"]) for each in expected}
    return [each for each in objects if (each["kind"], each["metadata"]["name"]) in names]


def test_single_gpu(expected: Expected) -> None:
    source = deployment(
        "qwen3-8b", {"name": "main", "members": [written("Standalone", args=["--model=Qwen/Qwen3-8B"])]}
    )
    request = {**gpus(1), "selectors": [{"cel": MEMORY}]}
    replica = model_replica(source, "gpu-us-east", 0, [PlacedEngine("main", (PlacedMember("gpu-l4", (request,)),))])
    assert [replica, model_endpoint(replica, "http://203.0.113.10"), *composed(replica)] == expected("single-gpu")


def test_two_node_gang_with_a_cache(expected: Expected) -> None:
    serve = "vllm serve /mnt/models --nnodes=2 --node-rank=$(MODELPLANE_RANK)"
    source = deployment(
        "qwen3-coder",
        {
            "name": "main",
            "members": [
                written("Leader", command=["/bin/sh", "-c", f"{serve} --port=8000"]),
                written("Worker", command=["/bin/sh", "-c", f"{serve} --headless"]),
            ],
        },
        modelCacheRef={"name": "qwen3-coder"},
    )
    placed = PlacedMember("gpu-h200", (gpus(8),))
    replica = model_replica(source, "gpu-us-east", 0, [PlacedEngine("main", (placed, placed))])
    want = expected("gang-with-cache")
    assert replica["spec"]["modelCacheRef"] == {"name": "qwen3-coder"}
    assert beyond(composed(replica), want) == want


def test_prefill_and_decode(expected: Expected) -> None:
    model = "--model=meta-llama/Llama-3.1-8B"
    source = deployment(
        "llama-pd",
        {"name": "prefill", "copies": 3, "phase": "Prefill", "members": [written("Standalone", args=[model])]},
        {
            "name": "decode",
            "copies": 2,
            "phase": "Decode",
            "members": [written("Standalone", args=[model, "--port=8001", "--block-size=64"])],
        },
        serving={"mode": "PrefillDecode"},
    )
    engines = [
        PlacedEngine("decode", (PlacedMember("gpu-large", (gpus(2),)),)),
        PlacedEngine("prefill", (PlacedMember("gpu-small", (gpus(1),)),)),
    ]
    replica = model_replica(source, "gpu-us-east", 0, engines)
    want = expected("prefill-decode")
    assert [engine["name"] for engine in replica["spec"]["engines"]] == ["prefill", "decode"]
    assert beyond(composed(replica), want) == want


@pytest.mark.parametrize("count", [1, 2, 8])
def test_inventory(make_replica: Callable[..., dict[str, Any]], gang: dict[str, Any], count: int) -> None:
    """One workload with its NetworkPolicy and one claim template a member for every engine; the rest once."""
    engines = [{**gang, "name": f"engine-{number}"} for number in range(count)]
    kinds = [each["kind"] for each in replica_objects(make_replica(*engines))]
    assert kinds == [
        "Namespace",
        *["ResourceClaimTemplate"] * (2 * count),
        *["LeaderWorkerSet"] * count,
        "InferencePool",
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "ConfigMap",
        "Deployment",
        "Service",
        *["NetworkPolicy"] * (2 + count),
        "HTTPRoute",
    ]
