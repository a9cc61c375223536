# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Demand of node pools on the quotas of a project and its regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ...accounts import Account
from ...wire import Object
from ..quotas import QuotaDemand, QuotaWords
from . import node_pools, validation

Wire = Mapping[str, Any]

# The quotas that Google counts are not certain, and Google rejects a request with a clear error.
WORDS = QuotaWords(
    holder="project",
    ask="Ask for more in the Google Cloud console (IAM & Admin, Quotas & System Limits)",
    lower="nodeCount and minNodeCount",
    is_certain=False,
)
ALL_GPUS = "GPUS_ALL_REGIONS"
"""The quota for all regions of a project together."""
_CPUS, _ADDRESSES, _DISKS = "CPUS", "IN_USE_ADDRESSES", "SSD_TOTAL_GB"
_DISK_GB = 100
"""Disk size of a node without a size in the manifest, in GB."""
_ZONES = 3
"""Number of zones that GKE selects in the region for a pool without zones."""
_SHARED_CPUS = ("e2", "f1", "g1", "n1")
"""Machine families that count against CPUS. Other families have a separate quota, or only a quota of GPUs."""
_GPU_METRICS = {"nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS", "nvidia-h100-80gb": "NVIDIA_H100_GPUS"}


def zones_of(region: str, zones: Iterable[str]) -> list[str]:
    """Return the zones of a region, sorted."""
    return sorted(zone for zone in zones if zone.rpartition("-")[0] == region)


def of_pool(cluster: str, pool: Wire, account: Account, there: Mapping[str, int | None]) -> QuotaDemand:
    """Return the demand of a node pool in the format of the request.

    `cluster`: its name in messages. `account`: the project in the region. `there`: the existing pools.
    """
    zones = len(pool.get("locations") or account.zones[:_ZONES]) or _ZONES
    return QuotaDemand(
        cluster=cluster,
        pool=pool["name"],
        takes=_takes(pool, account.vcpus(machine_type(pool)), {quota.code for quota in account.quotas}),
        start=int(pool["initialNodeCount"]) * zones,
        max_nodes=int(pool["autoscaling"].get("maxNodeCount") or 0) * zones,
        is_there=pool["name"] in there,
        machine=machine_type(pool),
        zones=tuple(pool.get("locations") or ()),
    )


def of_cluster(manifest: Object, account: Account, there: Mapping[str, int | None]) -> list[QuotaDemand]:
    """Return the demands of the pools of a GKECluster (wire form). `there`: the nodes of the existing pools. Raises
    InvalidResource."""
    cluster = validation.VALIDATION.read(manifest)
    return [
        replace(
            of_pool(cluster.name, node_pools.node_pool(pool, {}, cluster.version), account, there),
            path=cluster.path(pool),
        )
        for pool in cluster.pools
    ]


def machine_type(pool: Wire) -> str:
    """Return the machine type of a pool."""
    return str(pool["config"]["machineType"])


def gpus(pool: Wire) -> list[tuple[str, int]]:
    """Return the type and number of the accelerators of a machine."""
    return [
        (str(accelerator["acceleratorType"]), int(accelerator["acceleratorCount"]))
        for accelerator in pool["config"].get("accelerators") or ()
    ]


def family(machine_type: str) -> str:
    """Return the series of a machine type, such as `g2`."""
    return machine_type.partition("-")[0]


def _takes(pool: Wire, vcpus: int, known: Collection[str]) -> Counter[str]:
    """Return the quota usage of one node, by metric. A node has an external address and an SSD. `known`: the metrics of
    the region."""
    kind = machine_type(pool)
    family_metric = f"{family(kind).upper()}_{_CPUS}"
    takes = Counter({_ADDRESSES: 1, _DISKS: int(pool["config"].get("diskSizeGb") or _DISK_GB)})
    if family_metric in known:
        takes[family_metric] += vcpus
    elif family(kind) in _SHARED_CPUS:
        takes[_CPUS] += vcpus
    for gpu, count in gpus(pool):
        takes[_gpu_metric(gpu)] += count
        takes[ALL_GPUS] += count
    return takes


def _gpu_metric(accelerator: str) -> str:
    """Return the regional quota for an accelerator type: `NVIDIA_L4_GPUS` for nvidia-l4, `NVIDIA_T4_GPUS` for
    nvidia-tesla-t4."""
    name = accelerator.replace("-tesla-", "-").replace("-", "_").upper()
    return _GPU_METRICS.get(accelerator) or f"{name}_GPUS"
