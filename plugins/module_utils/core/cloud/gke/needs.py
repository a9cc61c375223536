# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Requirements of node pools that a Google Cloud project might not meet.

These are reservations, Spot, flex-start, networks, and machines that require a reservation or a quota.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...api.gke_pool import SPECIFIC
from .. import pools
from ..cloud import Need
from . import machines

_QUOTAS = "IAM & Admin, Quotas & System Limits"


def needs(pool: Mapping[str, Any]) -> list[Need]:
    """Return the requirements of a pool (wire form) that not every project meets."""
    return [*_capacity(pool), *_networks(pool)]


def _capacity(pool: Mapping[str, Any]) -> Iterator[Need]:
    """Yield the capacity requirement of a pool. A selected capacity type overrides the requirement of the machine
    type."""
    machine, affinity = str(pool["machineType"]), pool.get("reservationAffinity") or {}
    zones = ", ".join(pool.get("zones") or ()) or "its zones"
    if affinity.get("consumeReservationType") == SPECIFIC:
        names = ", ".join(affinity["values"])
        yield Need(
            "reservationAffinity",
            f"the reservation {names}",
            f"Create it for {machine} in {zones}, for named use only, with as many machines as the pool may have there",
        )
    elif pool["role"] != pools.GPU:
        return
    elif pool.get("flexStart"):
        yield Need(
            "flexStart",
            f"flex-start machines of type {machine}",
            f"Ask for the quota of preemptible GPUs of {_accelerator(pool)} in {_QUOTAS}",
        )
    elif pool.get("spot"):
        yield Need(
            "spot",
            f"Spot machines of type {machine}",
            f"Ask for the quota of preemptible GPUs of {_accelerator(pool)} in {_QUOTAS}",
        )
    elif machines.is_reserved_only(machine):
        yield Need(
            "machineType",
            f"machines of type {machine}, which are not sold on demand",
            "Set reservationAffinity, flexStart or spot, and see that the project has the reservation or the quota",
        )
    elif machines.is_rare(machine):
        yield Need(
            "machineType",
            f"machines of type {machine}, whose quota is 0 in new projects",
            f"Ask for the quota of {_accelerator(pool)} in {_QUOTAS}, or set reservationAffinity, flexStart or spot",
        )


def _networks(pool: Mapping[str, Any]) -> Iterator[Need]:
    if pool.get("additionalNodeNetworkConfigs"):
        network_names = ", ".join(
            f"{node_network['network']}/{node_network['subnetwork']}"
            for node_network in pool["additionalNodeNetworkConfigs"]
        )
        yield Need(
            "additionalNodeNetworkConfigs",
            f"the networks {network_names}",
            "Create them, with subnetworks in the region of the cluster, before the pool",
        )
    if pool.get("acceleratorNetworkProfile"):
        yield Need(
            "acceleratorNetworkProfile",
            "networks that GKE creates between the GPUs",
            f"Ask for a higher quota NETWORKS in {_QUOTAS} if the project has few",
        )


def _accelerator(pool: Mapping[str, Any]) -> str:
    return str(pool["gpu"]["acceleratorType"])
