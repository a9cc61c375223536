# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Costs of replicas by the rules of docs/cost.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Placement,
    Pool,
    Replica,
)
from ansible_collections.modelplane.fleet.tests.oracle.placement import rules

Claims = Sequence[tuple[str, int]]
"""DeviceClass and number of devices of each claimed request of a pod."""


def cost(one: Replica | Placement, cluster: Cluster) -> Fraction | None:
    """Return the cost of a replica for an hour; None with a claim on a node without a price."""
    pools = {pool.name: pool for pool in cluster.pools}
    pods = [
        (
            pools[name],
            [(str(entry["deviceClassName"]), int(entry["count"])) for entry in member.device_requests],
            number,
        )
        for engine in one.engines
        for member in engine.members
        for name, share in member.pods_by_pool
        for number in [share * engine.copies]
    ]
    return _total(pods)


def most(deployment: Deployment, cluster: Cluster, pool: Pool) -> Fraction | None:
    """Return the highest cost of a replica whose engine is on one pool, over all claims that it may have there.

    None without a price, and if the pool never serves the engine."""
    (engine,) = deployment.engines
    costs = []
    for layout in rules.layouts_of(engine, cluster):
        if layout.pools == {pool.name}:
            pods = []
            for member, (shares, classes) in zip(engine.members, layout.members, strict=True):
                claims = [
                    (device_class, request.count)
                    for request, device_class in zip(member.requests, classes, strict=True)
                    if device_class
                ]
                pods.append((pool, claims, sum(number for __, number in shares) * engine.copies))
            costs.append(_total(pods))
    known = [found for found in costs if found is not None]
    return max(known) if known and len(known) == len(costs) else None


def _total(pods: Iterable[tuple[Pool, Claims, int]]) -> Fraction | None:
    total = Fraction(0)
    for pool, claims, number in pods:
        part = _part(pool, claims)
        if part and pool.price is None:
            return None
        total += part * number * Fraction(pool.price or 0)
    return total


def _part(pool: Pool, claims: Claims) -> Fraction:
    """Return the part of a node's devices that a pod claims; with several classes the largest part."""
    claimed, devices = Counter[str](), Counter[str]()
    for device_class, count in claims:
        claimed[device_class] += count
    for device in pool.devices:
        if device.claim == "DRA":
            devices[device.device_class_name or ""] += device.count
    return max((Fraction(count, devices[name]) for name, count in claimed.items()), default=Fraction(0))
