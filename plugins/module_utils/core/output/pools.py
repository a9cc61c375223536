# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Use of node pools: the pods that a plan has on each, and the devices that these claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..planning import Plan
from ..scheduling.fabric import FABRIC_DRIVER
from ..scheduling.model import PlacedMember, Pool


class PoolUse(NamedTuple):
    """Devices of a node pool at its maximum size: in total, in use by existing replicas, planned for new replicas, and
    unavailable for both."""

    devices: int
    used: int
    planned: int
    unavailable: int


class PoolPods(NamedTuple):
    """Pods of a member of an engine on a pool. `devices`: how many each of them has, by name of the device."""

    namespace: str
    deployment: str
    replica: str
    engine: str
    role: str
    pods: int
    devices: Mapping[str, int]


def pool_use(plan: Plan) -> dict[tuple[str, str], PoolUse]:
    """Return the use of each pool (cluster, pool)."""
    pods = pods_by_pool(plan)
    planned = planned_replicas(plan)
    use = {}
    for cluster in plan.clusters:
        for pool in cluster.pools:
            key = (cluster.name, pool.name)
            entries = pods.get(key, ())
            planned_devices = _claimed(entry for entry in entries if (entry.namespace, entry.replica) in planned)
            per_node = _devices_per_node(pool)
            total, claimed = (pool.nodes + pool.missing) * per_node, _claimed(entries)
            unavailable = pool.missing * per_node + sum(map(sum, pool.unavailable))
            # Used devices on nodes that accept no new pods count as used.
            use[key] = PoolUse(
                total, claimed - planned_devices, planned_devices, max(0, min(unavailable, total - claimed))
            )
    return use


def planned_replicas(plan: Plan) -> frozenset[tuple[str, str]]:
    """Return the replicas (namespace, name) that do not exist yet. On an unobserved cluster, a replica exists if an
    earlier run placed it."""
    placed = zip(plan.schedule.placements, plan.replicas, strict=True)
    new = {(replica.namespace, replica.name) for placement, replica in placed if placement.state == "new"}
    manual = ((replica.namespace, replica.name) for replica in plan.manual)
    new.update(key for key in manual if key not in plan.context.fleet.manual_before)
    planned = set()
    for replica in plan.composed:
        key = (replica.namespace, replica.name)
        state = plan.states.get(key)
        is_observed = state is not None and state.accepted is not None and not state.declared
        if not (state.accepted or state.since) if state is not None and is_observed else key in new:
            planned.add(key)
    return frozenset(planned)


def _claimed(pods: Iterable[PoolPods]) -> int:
    return sum(pool_pods.pods * sum(pool_pods.devices.values()) for pool_pods in pods)


def _devices_per_node(pool: Pool) -> int:
    claimable = (device for device in pool.devices if device.claim == "DRA" and device.driver != FABRIC_DRIVER)
    return sum(device.count for device in claimable)


def pods_by_pool(plan: Plan) -> dict[tuple[str, str], list[PoolPods]]:
    """Return the pods on each pool (cluster, pool)."""
    pools = {(cluster.name, pool.name): pool for cluster in plan.clusters for pool in cluster.pools}
    occupied: dict[tuple[str, str], list[PoolPods]] = {}
    for replica in plan.running:
        for engine in replica.engines:
            for member in engine.members:
                for pool, pods in member.pods_by_pool:
                    key = (replica.cluster, pool)
                    devices = _allocated(member, pools.get(key))
                    owner = (replica.namespace, replica.deployment, replica.name, engine.name, member.role)
                    occupied.setdefault(key, []).append(PoolPods(*owner, pods * engine.copies, devices))
    return occupied


def _allocated(member: PlacedMember, pool: Pool | None) -> dict[str, int]:
    """Return the number of devices that one pod uses on its node, by name of the device.

    For several devices of one class, the first device is assumed, because Kubernetes decides about the allocation."""
    names_of: dict[str | None, str] = {}
    for device in pool.devices if pool else ():
        if device.claim == "DRA":
            names_of.setdefault(device.device_class_name, device.name)
    allocated: dict[str, int] = {}
    for request in member.device_requests:
        name = names_of.get(request["deviceClassName"], request["name"])
        allocated[name] = allocated.get(name, 0) + int(request.get("count", 1))
    return allocated
