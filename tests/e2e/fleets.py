# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Manifests of the test fleet: two clusters with two pools each, and deployments of three kinds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ansible_collections.modelplane.fleet.tests.kube.stages import DELAY

API = "modelplane.ai/v1alpha1"
ANY_GPU = 'device.driver == "gpu.nvidia.com"'
SMALL_GPU = 'device.attributes["gpu.nvidia.com"].architecture == "Ada Lovelace"'
LARGE_GPU = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("70Gi")) >= 0'

CLASSES = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: l4-2x}
spec:
  devices:
  - name: gpu
    driver: gpu.nvidia.com
    deviceClassName: gpu.nvidia.com
    count: 2
    attributes: {architecture: {string: Ada Lovelace}}
    capacity: {memory: {value: 23034Mi}}
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: h100-4x}
spec:
  devices:
  - name: gpu
    driver: gpu.nvidia.com
    deviceClassName: gpu.nvidia.com
    count: 4
    attributes: {architecture: {string: Hopper}}
    capacity: {memory: {value: 81559Mi}}
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {name: default}
spec: {backend: Traefik, traefik: {version: 40.2.0}}
"""


def cluster(name: str, *taints: Mapping[str, str], **labels: str) -> str:
    """An InferenceCluster with the pools `gpu` (3 nodes, 2 L4 each) and `large` (2 nodes, 4 H100 each)."""
    pools = [
        {"name": "gpu", "className": "l4-2x", "nodeCount": 3},
        {"name": "large", "className": "h100-4x", "nodeCount": 2},
    ]
    source = {"secretRef": {"name": name}, "cache": {"storageClassName": "rwx"}}
    spec: dict[str, Any] = {"cluster": {"source": "Existing", "existing": source}, "nodePools": pools}
    if taints:
        spec["taints"] = list(taints)
    return _document("InferenceCluster", {"name": name, "labels": labels}, spec)


def deployment(
    name: str,
    replicas: int | None = None,
    *,
    copies: int = 1,
    tag: str = "v0.23.0",
    priority: str = "",
    spec: Mapping[str, Any] = MappingProxyType({}),
    **more: Any,
) -> str:
    """A ModelDeployment of one engine with one pod per copy. `spec`: its other fields; `more`: other fields of the
    template, and `selector` (CEL), `devices` of each pod, `delay` until a pod is ready (`2s`)."""
    only = member("Standalone", more.pop("selector", SMALL_GPU), more.pop("devices", 1), tag)
    if "delay" in more:
        only["template"]["metadata"] = {"annotations": {DELAY: more.pop("delay")}}
    engine = {"name": "main", "copies": copies, "members": [only]}
    return _deployment(name, replicas, {"engines": [engine], **more}, priority, spec)


def gang(name: str, *, tag: str = "v0.23.0", priority: str = "10") -> str:
    """A Leader and a Worker, which take four large GPUs each and thus a node of its own each."""
    members = [member("Leader", LARGE_GPU, 4, tag), {**member("Worker", LARGE_GPU, 4, tag), "worker": {"nodes": 1}}]
    return _deployment(name, 1, {"engines": [{"name": "main", "members": members}]}, priority)


def split(name: str, *, tag: str = "v0.23.0") -> str:
    """Prefill on one kind of device, decode on another."""
    engines = [
        {"name": "prefill", "phase": "Prefill", "members": [member("Standalone", LARGE_GPU, 2, tag)]},
        {"name": "decode", "phase": "Decode", "copies": 2, "members": [member("Standalone", SMALL_GPU, 1, tag)]},
    ]
    return _deployment(name, 1, {"serving": {"mode": "PrefillDecode"}, "engines": engines})


def member(role: str, selector: str, count: int, tag: str) -> dict[str, Any]:
    return {
        "role": role,
        "nodeSelector": {"devices": [{"name": "gpu", "count": count, "selectors": [{"cel": selector}]}]},
        "template": {"spec": {"containers": [{"name": "engine", "image": f"vllm/vllm-openai:{tag}"}]}},
    }


def service(name: str, *deployments: str) -> str:
    endpoints = [{"selector": {"matchLabels": {"modelplane.ai/deployment": each}}} for each in deployments]
    return _document("ModelService", {"name": name, "namespace": "team"}, {"endpoints": endpoints})


def cache(name: str, **hugging_face: Any) -> str:
    source = {"repo": "Qwen/Qwen3-8B", "sizeGiB": 40, **hugging_face}
    return _document(
        "ModelCache", {"name": name, "namespace": "team"}, {"source": "HuggingFace", "huggingFace": source}
    )


def _deployment(
    name: str,
    replicas: int | None,
    template: Mapping[str, Any],
    priority: str = "",
    spec: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    metadata: dict[str, Any] = {"name": name, "namespace": "team"}
    if priority:
        metadata["annotations"] = {"modelplane.ai/priority": priority}
    scale = {} if replicas is None else {"replicas": replicas}
    return _document("ModelDeployment", metadata, {**scale, **spec, "template": {"spec": template}})


def _document(kind: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    return f"---\n{json.dumps({'apiVersion': API, 'kind': kind, 'metadata': metadata, 'spec': spec}, indent=2)}\n"
