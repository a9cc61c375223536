# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Node pools of all clouds: the labels and taints of their nodes, and the additional pool for controllers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from .. import api
from ..api.inference_cluster import SYSTEM_POOL
from ..names import POOL_LABEL

GPU_LABEL = "modelplane.ai/gpu"
GPU_TAINT = ("nvidia.com/gpu", "true")
"""Key and value. The taint excludes pods that do not claim a GPU; its effect in Kubernetes is NoSchedule."""
GPU = "GPU"
SYSTEM = "System"
_REPLICAS_OF_A_NODE = 12
"""ModelReplicas that fit on one node of the system pool, in addition to controllers and gateway: each has two endpoint
pickers with 100m and 256Mi, and a node has 4 CPUs and 16 GiB."""
_LEAST_SYSTEM_NODES, _MOST_SYSTEM_NODES = 2, 256


def labels(pool: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of the nodes of a pool (wire form)."""
    node_labels = {POOL_LABEL: str(pool["name"])}
    if pool["role"] == GPU:
        node_labels[GPU_LABEL] = str(pool["gpu"]["acceleratorType"])
    return node_labels


def emptiable(cluster: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the GPU pools of a cluster (wire form, with defaults) that can scale from zero nodes."""
    return tuple(
        str(pool["name"])
        for pool in cluster["spec"]["nodePools"]
        if pool["role"] == GPU and pool.get("minNodeCount") == 0 < (pool.get("maxNodeCount") or 0)
    )


def system_nodes(gpus: int) -> int:
    """Return the maximum size of a system pool for a number of GPUs. Each GPU might be a ModelReplica.

    The size is doubled in steps, so a change of a pool rarely changes it. The autoscaler adds a node only for
    unschedulable pods.
    """
    node_count = _LEAST_SYSTEM_NODES
    while node_count < min(gpus / _REPLICAS_OF_A_NODE, _MOST_SYSTEM_NODES):
        node_count *= 2
    return node_count


def with_system_pool(kind: str, node_pools: Sequence[Mapping[str, Any]], gpus: int = 0) -> list[dict[str, Any]]:
    """Return the node pools (wire form) of a cloud cluster with a system pool before them, unless one exists.

    `gpus` is the number of GPUs of all pools at their maximum size, because the fleet may place replicas on them. Some
    clouds count for each zone.
    """
    pools = [deepcopy(dict(pool)) for pool in node_pools]
    if any(pool.get("role") == "System" for pool in pools):
        return pools
    used_names = {pool["name"] for pool in pools}
    numbered = (f"{SYSTEM_POOL}-{number}" for number in range(2, len(used_names) + 3))
    model = api.KINDS[kind]
    machine = model.SYSTEM_MACHINE if issubclass(model, api.CloudCluster) else {}
    system = {
        "name": next(free for free in (SYSTEM_POOL, *numbered) if free not in used_names),
        "role": "System",
        **machine,
        "nodeCount": 1,
        "minNodeCount": 1,
        "maxNodeCount": system_nodes(gpus),
    }
    return [system, *pools]
