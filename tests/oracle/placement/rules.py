# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The rules of docs/scheduling.md and docs/contributing/scheduling.md for pods, engines, and running replicas.

Every possibility is enumerated, so only fleets of a few pools, kinds of devices and pods are meant.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.selector import compile_selector
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Constraint,
    Deployment,
    Engine,
    Fabric,
    Member,
    PlacedEngine,
    PlacedMember,
    Pool,
    Replica,
    Request,
)

Vector = tuple[int, ...]
"""Devices of a node, by the position of their kind in the pool."""
Classes = tuple[str | None, ...]
"""DeviceClass of each request of a member; None for one that is not claimed."""
Charges = tuple[Vector, ...]
"""Devices that a pod may take from its node: one of these vectors."""
Composition = tuple[tuple[Charges, int], ...]
"""The claiming pods that one copy of an engine has on a pool: what each may take, and how many are alike."""
PoolKey = tuple[str, str]
"""Cluster and pool."""


@dataclass(frozen=True)
class Layout:
    """One way to put an engine on a cluster: pods per copy and DeviceClasses of each member, and what it takes."""

    members: tuple[tuple[tuple[tuple[str, int], ...], Classes], ...]
    charged: tuple[tuple[PoolKey, Composition], ...]

    @property
    def pools(self) -> set[str]:
        return {pool for shares, _ in self.members for pool, _ in shares}


@functools.lru_cache(maxsize=10_000)
def satisfies(device: Device, selectors: tuple[str, ...]) -> bool:
    return all(compile_selector(text).evaluate(device).match for text in selectors)


@functools.lru_cache(maxsize=10_000)
def ways(
    requests: tuple[Request, ...], constraints: tuple[Constraint, ...], devices: tuple[Device, ...]
) -> Mapping[Classes, Charges]:
    """Return what a pod may take from a node, by the DeviceClasses of its requests; empty when nothing serves it."""
    found: dict[Classes, set[Vector]] = defaultdict(set)
    kinds = [
        [
            place
            for place, device in enumerate(devices)
            if device.count >= one.count and satisfies(device, one.selectors)
        ]
        for one in requests
    ]
    for chosen in itertools.product(*kinds):
        asked: Counter[int] = Counter()
        for request, place in zip(requests, chosen, strict=True):
            asked[place] += request.count
        if any(count > devices[place].count for place, count in asked.items()):
            continue
        claimed = [(one, at) for one, at in zip(requests, chosen, strict=True) if devices[at].claim == "DRA"]
        whole = _whole(claimed, constraints, devices)
        if whole is None:
            continue
        places = {place for _, place in claimed}
        vector = tuple(
            (device.count if place in whole else asked[place]) if place in places else 0
            for place, device in enumerate(devices)
        )
        classes = tuple(devices[at].device_class_name if devices[at].claim == "DRA" else None for at in chosen)
        found[classes].add(vector)
    return {classes: smallest(vectors) for classes, vectors in found.items()}


def _whole(
    claimed: Sequence[tuple[Request, int]], constraints: tuple[Constraint, ...], devices: tuple[Device, ...]
) -> set[int] | None:
    """Return the kinds that a pod is charged with all devices of; None when its devices do not meet the constraints.

    An attribute that no one publishes is up to the node, unless it is one device alone that has to agree with itself.
    """
    whole: set[int] = set()
    for constraint in constraints:
        covered = [(request, place) for request, place in claimed if constraint.covers(request.name)]
        attributes = [devices[place].attributes.get(constraint.match_attribute) for _, place in covered]
        values = {None if value is None else (type(value), str(value)) for value in attributes}
        if len(values) > 1:
            return None
        if values == {None} and sum(request.count for request, _ in covered) > 1:
            whole |= {place for _, place in covered}
    return whole


def smallest(vectors: Iterable[Vector]) -> Charges:
    """Return the vectors without those that take all that another one takes, and more."""
    distinct = sorted(set(vectors))
    return tuple(
        one
        for one in distinct
        if not any(
            other != one and all(least <= most for least, most in zip(other, one, strict=True)) for other in distinct
        )
    )


def on_fabric(pool: Pool, fabric: Fabric | None) -> tuple[Device, ...]:
    """Return the devices of a node as a gang sees them that is spread over a fabric: those of other fabrics do not
    join its pods."""
    if fabric is None:
        return pool.devices
    return tuple(device for device in pool.devices if _fabric(device) in (None, (fabric.type, fabric.name)))


def _fabric(device: Device) -> tuple[str, str] | None:
    if device.claim != "Synthetic" or device.driver != "fabric.modelplane.ai":
        return None
    values = [device.attributes.get(f"{device.driver}/{key}", "") for key in ("type", "name")]
    return str(values[0]), str(values[1])


def can_claim(member: Member, cluster: Cluster) -> bool:
    """Return whether some pool of the cluster has a device that the member would claim."""
    return any(
        any(classes) for pool in cluster.pools for classes in ways(member.requests, member.constraints, pool.devices)
    )


def ineligible(deployment: Deployment, cluster: Cluster) -> bool:
    """Return whether a cluster takes no new replica of a deployment, whatever is free there."""
    return bool(
        cluster.not_ready
        or not cluster.gateway_address
        or any(cluster.labels.get(key) != value for key, value in deployment.cluster_selector.items())
        or any(not any(one.covers(taint) for one in deployment.tolerations) for taint in cluster.taints)
    )


def layouts_of(engine: Engine, cluster: Cluster) -> tuple[Layout, ...]:
    """Return every way to put an engine on a cluster, whatever is free there."""
    return _layouts_of(engine, cluster.name, cluster.pools)


@functools.lru_cache(maxsize=1000)
def _layouts_of(engine: Engine, cluster: str, pools: tuple[Pool, ...]) -> tuple[Layout, ...]:
    return tuple(dict.fromkeys(_layouts(engine, Cluster(cluster, pools))))


def _layouts(engine: Engine, cluster: Cluster) -> Iterator[Layout]:
    must = [can_claim(member, cluster) for member in engine.members]
    for pool in cluster.pools:
        shares = [((pool.name, member.pods),) for member in engine.members]
        yield from _with_classes(engine, cluster, must, shares, None)
    if {member.role for member in engine.members} != {"Leader", "Worker"}:
        return
    for fabric in sorted({fabric for pool in cluster.pools for fabric in pool.fabrics}):
        pools = [pool.name for pool in cluster.pools if fabric in pool.fabrics]
        for spread in itertools.product(*(_shares(member.pods, pools) for member in engine.members)):
            if len({pool for shares in spread for pool, _ in shares}) > 1:
                yield from _with_classes(engine, cluster, must, spread, fabric)


def _shares(pods: int, pools: Sequence[str]) -> Iterator[tuple[tuple[str, int], ...]]:
    """Yield every way to distribute pods over pools."""
    for counts in itertools.product(range(pods + 1), repeat=len(pools)):
        if sum(counts) == pods:
            yield tuple((pool, count) for pool, count in zip(pools, counts, strict=True) if count)


def _with_classes(
    engine: Engine,
    cluster: Cluster,
    must_claim: Sequence[bool],
    spread: Sequence[tuple[tuple[str, int], ...]],
    fabric: Fabric | None,
) -> Iterator[Layout]:
    """Yield the layouts of an engine whose pods are on given pools: every member claims alike on all of them."""
    devices = {pool.name: on_fabric(pool, fabric) for pool in cluster.pools}
    possible = [
        [ways(member.requests, member.constraints, devices[pool]) for pool, _ in shares]
        for member, shares in zip(engine.members, spread, strict=True)
    ]
    common = [sorted(set.intersection(*map(set, one)), key=repr) for one in possible]
    for classes in itertools.product(*common):
        claims = [any(one) for one in classes]
        if not any(claims) or any(must and not does for must, does in zip(must_claim, claims, strict=True)):
            continue
        charged: dict[str, Counter[Charges]] = defaultdict(Counter)
        for shares, by_pool, chosen, does in zip(spread, possible, classes, claims, strict=True):
            for (pool, pods), found in zip(shares, by_pool, strict=True):
                if does:
                    charged[pool][_padded(found[chosen], cluster, pool, devices[pool])] += pods
        yield Layout(
            tuple(zip(spread, classes, strict=True)),
            tuple(((cluster.name, pool), composition(pods)) for pool, pods in sorted(charged.items())),
        )


def _padded(charges: Charges, cluster: Cluster, pool: str, seen: tuple[Device, ...]) -> Charges:
    """The charges by position in the pool's own devices; those that are hidden are Synthetic and never charged."""
    devices = next(one.devices for one in cluster.pools if one.name == pool)
    if devices == seen:
        return charges
    places = {id(device): place for place, device in enumerate(seen)}
    return tuple(
        tuple(vector[places[id(device)]] if id(device) in places else 0 for device in devices) for vector in charges
    )


def composition(pods: Mapping[Charges, int]) -> Composition:
    return tuple(sorted(pods.items()))


def placed_charges(engines: Iterable[PlacedEngine], cluster: Cluster) -> Iterator[tuple[PoolKey, Composition, int]]:
    """Yield (pool, claiming pods of a copy there, copies) of a replica that has its place, by its claims.

    Claims that nothing serves take a vector that no node has.
    """
    pools = {pool.name: pool for pool in cluster.pools}
    for engine in engines:
        charged: dict[str, Counter[Charges]] = defaultdict(Counter)
        for member in engine.members:
            for name, pods in member.pods_by_pool:
                if member.device_requests and name in pools:
                    charged[name][_claimed(member, pools[name])] += pods
        for name, pods_there in sorted(charged.items()):
            yield (cluster.name, name), composition(pods_there), engine.copies


def _claimed(member: PlacedMember, pool: Pool) -> Charges:
    requests, constraints, classes = claims_of(member)
    impossible = tuple(device.count * pool.nodes + 1 for device in pool.devices)
    return ways(requests, constraints, pool.devices).get(classes, (impossible,))


def claims_of(member: PlacedMember) -> tuple[tuple[Request, ...], tuple[Constraint, ...], Classes]:
    requests = tuple(
        Request(one["name"], one["count"], tuple(selector["cel"] for selector in one["selectors"]))
        for one in member.device_requests
    )
    constraints = tuple(
        Constraint(one["matchAttribute"], tuple(one.get("requests", ()))) for one in member.device_constraints
    )
    return requests, constraints, tuple(one["deviceClassName"] for one in member.device_requests)


def stays(replica: Replica, deployment: Deployment, cluster: Cluster | None) -> bool:
    """Return whether a replica of a deployment may stay where it is, however many are desired."""
    if cluster is None:
        return False
    evicted = any(
        taint.effect == "NoExecute" and not any(one.covers(taint) for one in deployment.tolerations)
        for taint in cluster.taints
    )
    desired = {engine.name: engine for engine in deployment.engines}
    if evicted or {engine.name for engine in replica.engines} != set(desired):
        return False
    return all(_engine_stays(placed, desired[placed.name], cluster) for placed in replica.engines)


def _engine_stays(placed: PlacedEngine, engine: Engine, cluster: Cluster) -> bool:
    pools = {pool.name: pool for pool in cluster.pools}
    there = {member.role: [name for name, _ in member.pods_by_pool] for member in placed.members}
    if {member.role for member in engine.members} != set(there) or len(engine.members) != len(placed.members):
        return False
    used = {name for names in there.values() for name in names}
    if not used <= set(pools):
        return False
    fabrics: Iterable[Fabric | None] = (None,)
    if len(used) > 1:
        fabrics = [one for one in pools[min(used)].fabrics if all(one in pools[name].fabrics for name in used)]
    return any(
        _serves(engine, {role: [on_fabric(pools[name], fabric) for name in names] for role, names in there.items()})
        for fabric in fabrics
    )


def _serves(engine: Engine, devices: Mapping[str, Sequence[tuple[Device, ...]]]) -> bool:
    claims = False
    for member in engine.members:
        found = [set(ways(member.requests, member.constraints, one)) for one in devices[member.role]]
        common = set.intersection(*found)
        if not common:
            return False
        claims = claims or any(map(any, common))
    return claims


def surplus(running: Sequence[Replica], desired: int) -> list[Replica]:
    """Return the replicas of a deployment that are removed when so many are desired: those on the cluster with the most
    first, then on the later cluster name, then with the highest index."""
    left, removed = list(running), []
    while len(left) > desired:
        load = Counter(replica.cluster for replica in left)
        ranked = [(load[replica.cluster], replica.cluster, replica.index, replica) for replica in left]
        victim = max(ranked, key=lambda rank: rank[:3])[3]
        left.remove(victim)
        removed.append(victim)
    return removed


def has_claims(member: PlacedMember, pool: Pool) -> bool:
    """Return whether some devices of a node serve the claims of a member."""
    requests, constraints, classes = claims_of(member)
    return classes in ways(requests, constraints, pool.devices)
