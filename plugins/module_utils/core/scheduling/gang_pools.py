# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Placement of a gang over several pools of one fabric, if no single pool fits the gang.

All copies of the engine have the same distribution, because one workload describes all copies: the leader on one pool,
and a fixed number of workers on each pool. All pods of a member share a claim template. Therefore, a member uses only
pools that resolve its requests to the same DeviceClasses.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from ..devices.device import Device
from .capacity import Demand, Ledger, PodSet
from .fabric import FabricViews, shared_fabrics
from .layout import Layout, Part
from .matching import Matcher, Resolution
from .model import Cluster, Engine, Fabric, Member, Pool

# Resolutions of the requests of the leader and of a worker on a pool.
Asked = tuple[tuple[Resolution, ...], tuple[Resolution, ...]]

# A pool with its ledger, and the resolutions of the requests on it.
_Room = tuple[Pool, Ledger, Asked]

# Default: the ledgers of the fleet.
_OWN: Mapping[str, Ledger] = MappingProxyType({})

# A pool of a fabric, with the devices that pods on this fabric may use.
View = tuple[Pool, tuple[Device, ...]]

# Limit on choices of pool and claim for the leader, and of claim for workers. Only artificial classes have more
# choices.
MAX_OPTIONS = 64


def is_gang(engine: Engine) -> bool:
    """Return True for an engine of one Leader and its Workers. Its pods can be on several pools of one fabric."""
    return sorted(member.role for member in engine.members) == ["Leader", "Worker"] and (
        member(engine, "Leader").pods == 1
    )


def member(engine: Engine, role: str) -> Member:
    """Return the member of a gang with this role."""
    return next(member for member in engine.members if member.role == role)


@dataclass(frozen=True)
class Option:
    """Pool and claim for the leader, claim for the workers, and the maximum number of workers of a copy next to it.

    rooms: for each pool that fits workers, the maximum number of workers, limited to the workers of the engine. The
        pool of the leader comes first, then the pools with the most workers.
    """

    leader: Part
    rooms: tuple[Part, ...]

    @cached_property
    def pods(self) -> int:
        """Return the number of pods of a copy that fit, including the leader. Can exceed the pods of the copy."""
        return 1 + sum(room.pods for room in self.rooms)

    def layouts(self, engine: Engine) -> Iterator[Layout]:
        """Yield every distribution of the gang over at least two pools.

        The distribution with all workers on one pool comes first, then distributions over few pools. Pods of a member
        on one pool are bound to it, but a cluster might spread pods on several pools differently than planned.
        """
        pods = member(engine, "Worker").pods
        for room in self.rooms:
            if room.pods >= pods and room.pool.name != self.leader.pool.name:
                yield self._layout(engine, (room,))
        for shares in _distributions([room.pods for room in self.rooms], pods):
            if len(shares) - shares.count(0) > 1:
                workers = (replace(room, pods=pods) for room, pods in zip(self.rooms, shares, strict=True) if pods)
                yield self._layout(engine, tuple(workers))

    def _layout(self, engine: Engine, workers: tuple[Part, ...]) -> Layout:
        parts_by_role = {"Leader": (self.leader,), "Worker": workers}
        return Layout(engine, tuple(parts_by_role[engine_member.role] for engine_member in engine.members))


class GangPlacer:
    """Search for placements in the free capacity of pools. It charges nothing."""

    def __init__(
        self,
        matcher: Matcher,
        ledger: Callable[[str, Pool], Ledger],
        claiming: Callable[[Engine, Cluster], tuple[bool, ...]],
    ) -> None:
        """`claiming` returns True for each member of an engine that would claim a device on some pool of a cluster."""
        self._claiming = claiming
        self._matcher = matcher
        self._ledger = ledger
        self._views = FabricViews()
        self._shared: dict[object, dict[Fabric, tuple[Pool, ...]]] = {}
        # Results of `options`, with the state of the ledgers that they are valid for.
        self._known: dict[object, tuple[object, tuple[Option, ...]]] = {}

    def fabrics(self, cluster: Cluster) -> dict[Fabric, tuple[Pool, ...]]:
        """Return the fabrics that several pools of a cluster share."""
        key = (cluster.name, *(pool.name for pool in cluster.pools))
        fabrics = self._shared.get(key)
        if fabrics is None:
            fabrics = self._shared[key] = shared_fabrics(cluster)
        return fabrics

    def devices(self, fabric: Fabric, pool: Pool) -> tuple[Device, ...]:
        """Return the devices of a pool for pods that communicate over a fabric."""
        return self._views.on(fabric, pool.devices)

    def views(self, fabric: Fabric, pools: Sequence[Pool]) -> list[View]:
        """Return the pools of a fabric with the result of `devices`."""
        return [(pool, self.devices(fabric, pool)) for pool in pools]

    def layouts(self, engine: Engine, cluster: Cluster, ledgers: Mapping[str, Ledger] = _OWN) -> Iterator[Layout]:
        """Yield placements for a gang over pools of one fabric. `ledgers` replace the ledgers of the pools of the
        cluster.

        The fewest pools come first, then placements without spread members, then the first pool for the leader. A
        placement is likely to fit, but only the ledgers can decide this for the complete placement.
        """
        order = {pool.name: position for position, pool in enumerate(cluster.pools)}
        ranked: list[tuple[tuple[int, int, int], Layout, Iterator[Layout]]] = []
        for fabric, pools in self.fabrics(cluster).items():
            for option in self.options(engine, cluster, self.views(fabric, pools), ledgers):
                if option.pods < engine.pods:
                    continue
                stream = option.layouts(engine)
                first_layout = next(stream, None)
                if first_layout:
                    part_count = sum(map(len, first_layout.members))
                    ranked.append(
                        ((len(first_layout.pools), part_count, order[option.leader.pool.name]), first_layout, stream)
                    )
        ranked.sort(key=lambda entry: entry[0])
        yield from (first_layout for _rank, first_layout, _stream in ranked)
        for _rank, _first, stream in ranked:
            yield from stream

    def options(
        self, engine: Engine, cluster: Cluster, views: Sequence[View], ledgers: Mapping[str, Ledger] = _OWN
    ) -> tuple[Option, ...]:
        """Return the choices for a gang on these pools of a cluster, in order, even if not all workers fit.

        A member that would claim a device on some pool of the cluster must claim a device on each of its pools. Engines
        with the same requests on the pools share one result as long as the charges do not change.
        """
        leader, worker = member(engine, "Leader"), member(engine, "Worker")
        pools = tuple(pool for pool, __ in views)
        resolve = self._matcher.resolve
        claiming_by_role = dict(
            zip((engine_member.role for engine_member in engine.members), self._claiming(engine, cluster), strict=True)
        )
        leader_claims, worker_claims = claiming_by_role["Leader"], claiming_by_role["Worker"]
        resolutions = tuple(
            (resolve(leader, devices, claiming=leader_claims), resolve(worker, devices, claiming=worker_claims))
            for __, devices in views
        )
        room = [ledgers.get(pool.name) or self._ledger(cluster.name, pool) for pool in pools]
        key = (cluster.name, tuple(pool.name for pool in pools), resolutions, engine.copies, worker.pods)
        state = tuple(ledger.state for ledger in room)
        cached = self._known.get(key)
        if cached is None or cached[0] != state:
            options = self._options(list(zip(pools, room, resolutions, strict=True)), engine.copies, worker.pods)
            cached = self._known[key] = state, tuple(itertools.islice(options, MAX_OPTIONS))
        if len(cached[1]) == MAX_OPTIONS:
            self._matcher.work.undecided += 1
        return cached[1]

    def most(self, cluster: str, copies: int, member_part: Part, neighbors: tuple[PodSet, ...]) -> int:
        """Return the number of pods of a part that fit on its pool in every copy, next to other pods of the copy."""
        return self._most(self._ledger(cluster, member_part.pool), copies, member_part, neighbors)

    @staticmethod
    def _most(ledger: Ledger, copies: int, member_part: Part, neighbors: tuple[PodSet, ...]) -> int:
        if not member_part.resolution.claims:
            return member_part.pods

        def fits(count: int) -> bool:
            return ledger.fits(Demand(copies, (*neighbors, PodSet(count, member_part.resolution.vectors))))

        # Each pod of a copy is on a separate node.
        high = min(member_part.pods, member_part.pool.nodes - sum(pod_set.pods for pod_set in neighbors))
        if high <= 0 or not fits(1):
            return 0
        if fits(high):
            return high
        low = 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def _options(self, pools: Sequence[_Room], copies: int, workers: int) -> Iterator[Option]:
        on_pools = [
            {resolution.device_classes: resolution for resolution in for_worker}
            for _pool, _ledger, (_leader, for_worker) in pools
        ]
        for classes in dict.fromkeys(classes for resolutions in on_pools for classes in resolutions):
            rooms = []
            for (pool, ledger, _asked), resolutions in zip(pools, on_pools, strict=True):
                if classes in resolutions:
                    worker_part = Part(pool, workers, resolutions[classes])
                    rooms.append(replace(worker_part, pods=self._most(ledger, copies, worker_part, ())))
            rooms.sort(key=lambda room: -room.pods)
            for pool, ledger, (for_leader, _worker) in pools:
                for resolution in for_leader:
                    option = self._option(ledger, copies, Part(pool, 1, resolution), rooms)
                    if option:
                        yield option

    def _option(self, ledger: Ledger, copies: int, leader: Part, rooms: Sequence[Part]) -> Option | None:
        """Return the rooms of the workers next to a leader. None if the leader does not fit, or if no pod claims a
        device."""
        leader_room = next((room for room in rooms if room.pool.name == leader.pool.name), None)
        if leader.resolution.claims:
            leader_pods = (PodSet(1, leader.resolution.vectors),)
            if not ledger.fits(Demand(copies, leader_pods)):
                return None
            if leader_room and leader_room.pods:
                leader_room = replace(leader_room, pods=self._most(ledger, copies, leader_room, leader_pods))
        elif not any(room.resolution.claims for room in rooms):
            return None
        other_rooms = [room for room in rooms if room.pool.name != leader.pool.name]
        return Option(leader, tuple(room for room in ([leader_room] if leader_room else []) + other_rooms if room.pods))


def _distributions(limits: Sequence[int], pods: int) -> Iterator[tuple[int, ...]]:
    """Yield every distribution of pods over pools with these limits. The first pools are filled first."""
    if not limits:
        if pods == 0:
            yield ()
        return
    remaining = sum(limits[1:])
    for count in range(min(limits[0], pods), max(0, pods - remaining) - 1, -1):
        for other_counts in _distributions(limits[1:], pods - count):
            yield (count, *other_counts)
