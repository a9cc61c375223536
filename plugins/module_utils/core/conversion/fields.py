# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conversion of renamed or restructured fields of InferenceCluster, InferenceClass, ModelEndpoint, and ModelReplica."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .notes import Notes, given_entries


def inference_cluster(spec: dict[str, Any], notes: Notes) -> dict[str, Any]:
    if spec.get("scheduler") is not None:
        notes.error("spec.scheduler", "is a field of an earlier design", hint="Remove it: the fleet schedules.")
    pools = spec.get("nodePools")
    if not isinstance(pools, list):
        return spec
    return {**spec, "nodePools": [_pool(pool, f"spec.nodePools[{i}]", notes) for i, pool in enumerate(pools)]}


def _pool(pool: Any, path: str, notes: Notes) -> Any:
    if not isinstance(pool, dict):
        return pool
    pool = _renamed(_renamed(pool, "class", "className", path, notes), "maxNodes", "maxNodeCount", path, notes)
    if isinstance(pool.get("fabric"), str):
        notes.older(f"{path}.fabric", f"{path}.fabric.type")
        notes.origin[f"{path}.fabric.type"] = f"{path}.fabric"
        pool = {**pool, "fabric": {"type": pool["fabric"]}}
    return pool


def _renamed(mapping: dict[str, Any], former: str, name: str, path: str, notes: Notes) -> dict[str, Any]:
    """Return the mapping with the key `former` renamed to `name`, in the same position."""
    if former not in mapping:
        return mapping
    if mapping[former] is None:
        return {key: value for key, value in mapping.items() if key != former}
    if mapping.get(name) is not None:
        notes.error(f"{path}.{former}", f"is an earlier spelling of {name}, and both are given", hint=f"Keep {name}.")
        return mapping
    notes.older(f"{path}.{former}", f"{path}.{name}")
    notes.origin[f"{path}.{name}"] = f"{path}.{former}"
    return {name if key == former else key: value for key, value in mapping.items() if key != name}


def inference_class(spec: dict[str, Any], notes: Notes) -> dict[str, Any]:
    for name in ("attributes", "capacity"):
        if spec.get(name) is not None:
            notes.error(
                f"spec.{name}",
                "describes a whole node, but devices are now listed by kind",
                hint="Write spec.devices[]: name, driver, deviceClassName, count, attributes and capacity.",
            )
    if "resources" not in spec:
        return spec
    resources = spec["resources"]
    other_fields = {key: value for key, value in spec.items() if key != "resources"}
    if resources is None:
        return other_fields
    if spec.get("devices") is not None:
        notes.error(
            "spec.resources", "is an earlier spelling of spec.devices, and both are given", hint="Keep devices."
        )
        return spec
    gpu = resources.get("gpu") if isinstance(resources, dict) else None
    if not isinstance(gpu, dict):
        hint = "Write spec.devices[]: name, driver, deviceClassName, count, attributes and capacity."
        notes.error("spec.resources", "must hold gpu {count, memory}", hint=hint)
        return spec
    for block, path, known_fields in (
        (resources, "spec.resources", ("gpu",)),
        (gpu, "spec.resources.gpu", ("count", "memory")),
    ):
        for name in block:
            if name not in known_fields:
                notes.unknown(path, name, known_fields)
    return {**other_fields, "devices": [_gpu_device(given_entries(gpu), notes)]}


def _gpu_device(gpu: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    notes.older("spec.resources.gpu", "spec.devices")
    device: dict[str, Any] = {"name": "gpu", "driver": "gpu.nvidia.com", "deviceClassName": "gpu.nvidia.com"}
    if "count" in gpu:
        device["count"] = gpu["count"]
    if "memory" in gpu:
        device["capacity"] = {"memory": {"value": gpu["memory"]}}
    notes.origin["spec.devices"] = "spec.resources.gpu"
    notes.origin["spec.devices[0]"] = "spec.resources.gpu"
    for path in (".capacity", ".capacity.memory", ".capacity.memory.value"):
        notes.origin[f"spec.devices[0]{path}"] = "spec.resources.gpu.memory"
    return device


def model_endpoint(spec: dict[str, Any], notes: Notes) -> dict[str, Any]:
    if isinstance(spec.get("api", {}), dict):
        return spec
    if spec["api"] is not None:
        notes.warn("spec.api", "is of an earlier design, and ignored", "Leave it out, or write spec.api.schema.")
    return {key: value for key, value in spec.items() if key != "api"}


def model_replica(spec: dict[str, Any], notes: Notes) -> dict[str, Any]:
    if spec.get("inferenceClusterRef") is not None:
        hint = "Write spec.clusterName: the name of the cluster."
        notes.error("spec.inferenceClusterRef", "is a field of an earlier design", hint=hint)
    return spec
