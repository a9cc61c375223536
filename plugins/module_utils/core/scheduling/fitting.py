# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A place for one replica on one cluster, with what all its pools have left.

Every engine goes whole onto one pool; a gang that no pool takes may be spread over pools of one fabric.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.budget import Evaluations
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.capacity import (
    Demand,
    DeviceLedger,
    Free,
    NodeLedger,
    PodSet,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.layout import Layout
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.matching import (
    MAX_VECTORS,
    Matcher,
    Resolution,
    device_constraints,
    device_requests,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Engine,
    Options,
    PlacedEngine,
    PlacedMember,
    Pool,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.spread import Ledger, Spreader, is_gang


@dataclass(frozen=True)
class EngineFit:
    """An engine on a kind of node: how each member's requests resolve, and what that takes from the pool."""

    resolutions: tuple[Resolution, ...]
    demand: Demand

    def placed(self, engine: Engine, pool: str) -> PlacedEngine:
        members = tuple(
            PlacedMember(
                pool,
                device_requests(member, resolution),
                member.role,
                member.pods,
                device_constraints=device_constraints(member, resolution),
            )
            for member, resolution in zip(engine.members, self.resolutions, strict=True)
        )
        return PlacedEngine(engine.name, members, engine.copies)


class FleetCapacity:
    """The ledgers of all pools of the fleet; `place` puts a replica on the pools of one cluster."""

    def __init__(self, clusters: Mapping[str, Cluster], options: Options) -> None:
        self.options = options
        self.evaluations = Evaluations(options.selector_budget)
        self.matcher = Matcher(options.search, self.evaluations)
        self.spreader = Spreader(self.matcher, self.ledger, self.claiming)
        self._clusters = clusters
        self._ledgers: dict[tuple[str, str], Ledger] = {}
        self._packings: dict[object, Free | None] = {}
        self._versions: dict[str, int] = dict.fromkeys(clusters, 0)
        # Clusters whose pools have the same devices in the same order are of one kind.
        self._kinds: dict[tuple[int, ...], int] = {}
        self._kind_of: dict[str, int] = {}
        self._claiming: dict[tuple[int, int], tuple[bool, ...]] = {}
        self._fits: dict[tuple[int, int, tuple[bool, ...]], tuple[EngineFit, ...]] = {}
        self._alive: list[object] = []

    def ledger(self, cluster: str, pool: Pool) -> Ledger:
        key = (cluster, pool.name)
        found = self._ledgers.get(key)
        if found is None:
            if self.options.accounting == "Nodes":
                found = NodeLedger(pool)
            else:
                found = DeviceLedger(pool, self.options, self._packings)
            self._ledgers[key] = found
        return found

    def version(self, cluster: str) -> int:
        """Grows whenever `place` puts a replica on the cluster."""
        return self._versions[cluster]

    def overcommitted(self) -> list[tuple[str, str, str]]:
        """(cluster, pool, why) of every pool that is charged more than it has."""
        found = [(*key, ledger.overcommitted) for key, ledger in sorted(self._ledgers.items())]
        return [entry for entry in found if entry[2]]

    def occupied(self, cluster: str, pool: Pool) -> int:
        """Return how many nodes of a pool what is charged takes."""
        return self.ledger(cluster, pool).occupied

    def _kind(self, cluster: Cluster) -> int:
        """A number that clusters share whose pools have the same devices in the same order."""
        found = self._kind_of.get(cluster.name)
        if found is None:
            ids = tuple(id(pool.devices) for pool in cluster.pools)
            found = self._kind_of[cluster.name] = self._kinds.setdefault(ids, len(self._kinds))
        return found

    def claiming(self, engine: Engine, cluster: Cluster) -> tuple[bool, ...]:
        """Return which members of an engine would claim a device on some pool of the cluster, whatever room it has."""
        key = (id(engine), self._kind(cluster))
        found = self._claiming.get(key)
        if found is None:
            self._alive += [engine, cluster]
            found = tuple(
                next(self.matcher.claimable(member, cluster.pools), None) is not None for member in engine.members
            )
            self._claiming[key] = found
        return found

    def fits_of(self, engine: Engine, devices: tuple[Device, ...], claiming: tuple[bool, ...]) -> tuple[EngineFit, ...]:
        """Return how an engine can be served by nodes with these devices, first choice first; empty when it cannot be.

        `claiming` says of each member whether it has to claim a device through DRA, as it would on some pool of the
        cluster. At least one has to: without a claim nothing binds the engine to a node.
        """
        key = (id(engine), id(devices), claiming)
        found = self._fits.get(key)
        if found is None:
            per_member = [
                self.matcher.resolve(member, devices, claiming=needed)
                for member, needed in zip(engine.members, claiming, strict=True)
            ]
            choices = itertools.islice(itertools.product(*per_member), MAX_VECTORS)
            found = self._fits[key] = tuple(fit for chosen in choices if (fit := self.fit(engine, chosen)))
        return found

    def fit(self, engine: Engine, resolutions: Sequence[Resolution]) -> EngineFit | None:
        """The engine with this resolution per member; None when no member claims a device."""
        if not any(resolution.claims for resolution in resolutions):
            return None
        pod_sets = tuple(
            PodSet(member.pods, resolution.vectors)
            for member, resolution in zip(engine.members, resolutions, strict=True)
            if resolution.claims
        )
        return EngineFit(tuple(resolutions), Demand(engine.copies, pod_sets))

    def charge(self, cluster: str, engines: Iterable[PlacedEngine]) -> None:
        """Charge a replica as it was observed. Pools that no longer exist are passed over."""
        known = self._clusters.get(cluster)
        pools = {pool.name: pool for pool in known.pools} if known else {}
        for engine in engines:
            taken: dict[str, list[PodSet]] = {}
            for member in engine.members:
                if not member.device_requests:
                    continue
                for name, pods in member.pods_by_pool:
                    if name not in pools:
                        continue
                    vectors = self.matcher.observed(
                        member.device_requests, member.device_constraints, pools[name].devices
                    )
                    if vectors or self.options.accounting == "Nodes":
                        taken.setdefault(name, []).append(PodSet(pods, vectors))
            for name, pod_sets in taken.items():
                self.ledger(cluster, pools[name]).add(Demand(engine.copies, tuple(pod_sets)))

    def has_room(self, cluster: str, layout: Layout) -> bool:
        """Return whether every pool of an engine takes its part."""
        return all(self.ledger(cluster, pool).fits(demand) for pool, demand in layout.demands)

    def charge_layout(self, cluster: str, layout: Layout) -> None:
        """Charge an engine on its pools, whether it fits or not."""
        for pool, demand in layout.demands:
            self.ledger(cluster, pool).add(demand)

    def discharge_layout(self, cluster: str, layout: Layout) -> None:
        """Take back what `charge_layout` charged."""
        for pool, demand in layout.demands:
            self.ledger(cluster, pool).remove(demand)

    def place(self, engines: Sequence[Engine], cluster: Cluster) -> tuple[PlacedEngine, ...] | None:
        """Place and charge a replica on a cluster; None, and nothing charged, when it does not fit.

        Engines in order, each on the first pool that fits. `Exact` takes choices back, at most `pool_attempts` times,
        and when every choice of one pool per engine fails it spreads gangs over pools of one fabric, as few as it can.
        """
        for spread in range(self.spreadable(engines, cluster) + 1):
            assignment = _Assignment(self, engines, cluster)
            if assignment.complete(spread):
                self._versions[cluster.name] += 1
                return tuple(assignment.chosen)
        return None

    def spreadable(self, engines: Sequence[Engine], cluster: Cluster) -> int:
        """Return how many of the engines may be spread over pools of one fabric."""
        if self.options.search != "Exact" or not any(pool.fabrics for pool in cluster.pools):
            return 0
        return sum(map(is_gang, engines)) if self.spreader.fabrics(cluster) else 0


class _Assignment:
    """The search for places for all engines of a replica on one cluster. What it chose is charged."""

    def __init__(self, capacity: FleetCapacity, engines: Sequence[Engine], cluster: Cluster) -> None:
        options = capacity.options
        self.chosen: list[PlacedEngine] = []
        self._attempts = options.pool_attempts if options.search == "Exact" else 0
        self._capacity = capacity
        self._engines = engines
        self._cluster = cluster

    def complete(self, spread: int) -> bool:
        """Choose places for the engines that have none, at most `spread` of them over several pools; False, and
        nothing charged, when that fails or the attempts are used up."""
        if len(self.chosen) == len(self._engines):
            return True
        engine = self._engines[len(self.chosen)]
        claiming = self._capacity.claiming(engine, self._cluster)
        for pool in self._cluster.pools:
            ledger = self._capacity.ledger(self._cluster.name, pool)
            for fit in self._capacity.fits_of(engine, pool.devices, claiming):
                if not ledger.fits(fit.demand):
                    continue
                ledger.add(fit.demand)
                self.chosen.append(fit.placed(engine, pool.name))
                if self.complete(spread):
                    return True
                self.chosen.pop()
                ledger.remove(fit.demand)
                self._attempts -= 1
                if self._attempts < 0:
                    return False
        return spread > 0 and is_gang(engine) and self._complete_spread(engine, spread)

    def _complete_spread(self, engine: Engine, spread: int) -> bool:
        for layout in self._capacity.spreader.layouts(engine, self._cluster):
            if self._capacity.has_room(self._cluster.name, layout):
                self._capacity.charge_layout(self._cluster.name, layout)
                self.chosen.append(layout.placed())
                if self.complete(spread - 1):
                    return True
                self.chosen.pop()
                self._capacity.discharge_layout(self._cluster.name, layout)
            self._attempts -= 1
            if self._attempts < 0:
                return False
        return False
