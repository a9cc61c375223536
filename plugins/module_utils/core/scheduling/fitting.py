# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Placement of one replica on one cluster with the free capacity of all its pools.

All pods of an engine run on one pool. A gang that does not fit one pool can be spread over pools of one fabric.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..devices.device import Device
from .bounds import Need, Totals
from .capacity import Demand, DeviceLedger, Ledger, NodeLedger, PodSet
from .gang_pools import GangPlacer, is_gang
from .layout import Layout
from .matching import Matcher, Resolution, Vector, device_constraints, device_requests
from .model import Cluster, Engine, Fabric, Member, Options, PlacedEngine, PlacedMember, Pool
from .packing import Packing
from .search_budget import Work
from .selector_budget import Evaluations

# Limit on combinations of claims for the members of an engine. Only artificial classes have more combinations.
MAX_FITS = 64

# Demands that a replica is charged with, by pool.
Charges = tuple[tuple[Pool, Demand], ...]


@dataclass(frozen=True)
class EngineFit:
    """Engine on a kind of node: the resolutions of the requests of its members, and the demand on the pool."""

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


@dataclass(frozen=True)
class ReplicaFit:
    """Placement of a replica on a cluster: its engines with their pools, and the charges of these pools."""

    engines: tuple[PlacedEngine, ...]
    charges: Charges


class FleetCapacity:
    """Ledgers of all pools of the fleet, and placements for replicas on the pools of one cluster."""

    def __init__(
        self, clusters: Mapping[str, Cluster], options: Options, evaluations: Evaluations | None = None
    ) -> None:
        self.options = options
        self.work = Work(options.search_budget)
        self.evaluations = evaluations or Evaluations(options.selector_budget)
        self.matcher = Matcher(options.search, self.evaluations, self.work)
        self.gang_placer = GangPlacer(self.matcher, self.ledger, self.claiming)
        self._clusters = clusters
        self._ledgers: dict[tuple[str, str], Ledger] = {}
        self._packings: dict[object, Packing] = {}
        self._versions = Counter[str]()
        # Clusters are of one kind if their pools have the same devices and fabrics in the same order.
        self._kinds: dict[object, int] = {}
        self._kind_of: dict[str, int] = {}
        self._needs: dict[object, tuple[Need, ...]] = {}
        self._totals: dict[object, Totals] = {}
        self._claiming: dict[tuple[int, int], tuple[bool, ...]] = {}
        self._fits: dict[tuple[int, int, tuple[bool, ...]], tuple[EngineFit, ...]] = {}
        self._alive: list[object] = []

    def ledger(self, cluster: str, pool: Pool) -> Ledger:
        key = (cluster, pool.name)
        ledger = self._ledgers.get(key)
        if ledger is None:
            ledger_type = NodeLedger if self.options.accounting == "Nodes" else DeviceLedger
            ledger = ledger_type(pool, self.work, self._packings, greedy=self.options.search == "Greedy")
            self._ledgers[key] = ledger
        return ledger

    def version(self, cluster: str) -> int:
        """Return a number that increases with every change of the charges on a cluster."""
        return self._versions[cluster]

    def overcommitted(self) -> list[tuple[str, str, str]]:
        """Return (cluster, pool, reason) of every pool that is charged more than its capacity."""
        entries = [(*key, ledger.overcommitted) for key, ledger in sorted(self._ledgers.items())]
        return [entry for entry in entries if entry[2]]

    def occupied(self, cluster: str, pool: Pool) -> int:
        """Return the number of nodes in a pool that the charges use."""
        return self.ledger(cluster, pool).occupied

    def free_nodes(self, cluster: str, pool: Pool) -> int:
        """Return the number of nodes in a pool with only free devices."""
        return self.ledger(cluster, pool).free_nodes

    def _kind(self, cluster: Cluster) -> int:
        """Return a number that clusters share if their pools have the same devices and fabrics in the same order."""
        kind = self._kind_of.get(cluster.name)
        if kind is None:
            pools = _pools_of(cluster)
            kind = self._kind_of[cluster.name] = self._kinds.setdefault(pools, len(self._kinds))
        return kind

    def claiming(self, engine: Engine, cluster: Cluster) -> tuple[bool, ...]:
        """Return True for each member that would claim a device on any pool, regardless of free capacity."""
        key = (id(engine), self._kind(cluster))
        claims = self._claiming.get(key)
        if claims is None:
            self._alive += [engine, cluster]
            claims = tuple(
                next(self.matcher.claimable(member, cluster.pools), None) is not None for member in engine.members
            )
            self._claiming[key] = claims
        return claims

    def fits_of(self, engine: Engine, devices: tuple[Device, ...], claiming: tuple[bool, ...]) -> tuple[EngineFit, ...]:
        """Return the ways to serve an engine on nodes with these devices, the first choice first. Empty if impossible.

        claiming: True for each member that must claim a device through DRA, because it would claim a device on some
            pool of the cluster. At least one member must claim a device, because only a claim binds the engine to a
            node.
        """
        key = (id(engine), id(devices), claiming)
        engine_fits = self._fits.get(key)
        if engine_fits is None:
            per_member = [
                self.matcher.resolve(member, devices, claiming=is_claiming)
                for member, is_claiming in zip(engine.members, claiming, strict=True)
            ]
            choices = itertools.product(*per_member)
            fits = (fit for chosen in choices if (fit := self.fit(engine, chosen)))
            engine_fits = self._fits[key] = tuple(itertools.islice(fits, MAX_FITS))
        if len(engine_fits) == MAX_FITS:
            self.work.undecided += 1
        return engine_fits

    def fit(self, engine: Engine, resolutions: Sequence[Resolution]) -> EngineFit | None:
        """Return the engine with a resolution for each member, None if no member claims a device."""
        if not any(resolution.claims for resolution in resolutions):
            return None
        pod_sets = tuple(
            PodSet(member.pods, resolution.vectors)
            for member, resolution in zip(engine.members, resolutions, strict=True)
            if resolution.claims
        )
        return EngineFit(tuple(resolutions), Demand(engine.copies, pod_sets))

    def charge(self, cluster: str, engines: Iterable[PlacedEngine]) -> None:
        """Charge an observed replica. Pools that no longer exist are skipped."""
        fleet_cluster = self._clusters.get(cluster)
        pools = {pool.name: pool for pool in fleet_cluster.pools} if fleet_cluster else {}
        for engine in engines:
            sets_by_pool: dict[str, list[PodSet]] = {}
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
                        sets_by_pool.setdefault(name, []).append(PodSet(pods, vectors))
            for name, pod_sets in sets_by_pool.items():
                self.ledger(cluster, pools[name]).add(Demand(engine.copies, tuple(pod_sets)))
        self._versions[cluster] += 1

    def least(self, engines: Sequence[Engine], cluster: Cluster) -> int:
        """Return the minimum number of devices that a replica uses on a cluster, or of nodes if pods use whole nodes.

        It is the sum of the minimum for each pod. Different pods can have their minimum on different pools."""
        needs = [need for engine in engines for need in self._needs_of(engine, cluster)]
        return sum(need.pods * min((sum(vector) for __, vector in need.options), default=0) for need in needs)

    def totals(self, engines: Sequence[Engine], cluster: Cluster) -> Totals:
        """Return the sums of the needs of engines on a cluster."""
        key = (tuple(map(id, engines)), _pools_of(cluster))
        totals = self._totals.get(key)
        if totals is None:
            needs = [self._needs_of(engine, cluster) for engine in engines]
            totals = self._totals[key] = Totals(needs, len(cluster.pools))
        return totals

    def _needs_of(self, engine: Engine, cluster: Cluster) -> tuple[Need, ...]:
        key = (id(engine), _pools_of(cluster))
        needs = self._needs.get(key)
        if needs is None:
            needs = self._needs[key] = tuple(
                Need(engine.copies * member.pods, tuple(dict.fromkeys(self._options(member, cluster))))
                for member, is_claiming in zip(engine.members, self.claiming(engine, cluster), strict=True)
                if is_claiming
            )
        return needs

    def _options(self, member: Member, cluster: Cluster) -> Iterator[tuple[int, Vector]]:
        """Yield the choices of a pod, in one pool or a spread gang: positions of pools with vectors of devices."""
        order = {pool.name: position for position, pool in enumerate(cluster.pools)}
        views = [(pool, pool.devices) for pool in cluster.pools]
        for fabric, pools in self.gang_placer.fabrics(cluster).items():
            views += self.gang_placer.views(fabric, pools)
        for pool, devices in views:
            for resolution in self.matcher.resolve(member, devices, claiming=True):
                if self.options.accounting == "Nodes":
                    yield order[pool.name], (1,)
                else:
                    yield from ((order[pool.name], vector) for vector in resolution.vectors)

    def has_room(self, cluster: str, layout: Layout) -> bool:
        """Return True if every pool of an engine has free capacity for its part."""
        return all(self.ledger(cluster, pool).fits(demand) for pool, demand in layout.demands)

    def charge_layout(self, cluster: str, layout: Layout) -> None:
        """Charge an engine on its pools, even if it does not fit."""
        for pool, demand in layout.demands:
            self.ledger(cluster, pool).add(demand)
        self._versions[cluster] += 1

    def discharge_layout(self, cluster: str, layout: Layout) -> None:
        """Undo `charge_layout`."""
        for pool, demand in layout.demands:
            self.ledger(cluster, pool).remove(demand)
        self._versions[cluster] += 1

    def charge_fit(self, cluster: str, fit: ReplicaFit) -> None:
        """Charge a replica on its pools."""
        for pool, demand in fit.charges:
            self.ledger(cluster, pool).add(demand)
        self._versions[cluster] += 1

    def discharge_fit(self, cluster: str, fit: ReplicaFit) -> None:
        """Undo `charge_fit`."""
        for pool, demand in fit.charges:
            self.ledger(cluster, pool).remove(demand)
        self._versions[cluster] += 1

    def without(self, cluster: Cluster, fits: Iterable[ReplicaFit]) -> dict[str, Ledger]:
        """Return ledgers of the pools of a cluster without these replicas, by name."""
        ledgers = {pool.name: self.ledger(cluster.name, pool).copy() for pool in cluster.pools}
        for fit in fits:
            for pool, demand in fit.charges:
                ledgers[pool.name].remove(demand)
        return ledgers

    def set_ledgers(self, cluster: str, ledgers: Mapping[str, Ledger]) -> None:
        """Replace the ledgers of a cluster."""
        self._ledgers.update({(cluster, name): ledger for name, ledger in ledgers.items()})
        self._versions[cluster] += 1

    def joint_fit(
        self, replicas: Sequence[Sequence[Engine]], cluster: Cluster, ledgers: Mapping[str, Ledger]
    ) -> list[ReplicaFit] | None:
        """Return fits for several replicas on one cluster, None if they do not fit. Nothing is charged.

        replicas: engines of each replica.
        ledgers: ledgers that replace the ledgers of the cluster's pools.

        Each engine, in order, uses the first pool that fits. `Exact` backtracks. If the replicas do not fit with one
        pool per engine, `Exact` spreads as few gangs as possible over pools of one fabric.
        """
        # Equal engines are consecutive because their placements are interchangeable.
        together: dict[int, list[Engine]] = {}
        for engine in itertools.chain.from_iterable(replicas):
            together.setdefault(id(engine), []).append(engine)
        groups = list(together.values())
        if len(replicas) > 1:
            groups.sort(key=lambda group: -self.least(group[:1], cluster))
        engines = list(itertools.chain.from_iterable(groups))
        with self.work.limited():
            for split in range(self.splittable(engines, cluster) + 1):
                assignment = _Assignment(self, engines, cluster, ledgers)
                if assignment.succeeds(split):
                    assignment.take_back()
                    return list(assignment.by_replica(replicas))
                if assignment.cut:
                    break
        return None

    def splittable(self, engines: Sequence[Engine], cluster: Cluster) -> int:
        """Return the number of engines that can be spread over pools of one fabric."""
        if self.options.search != "Exact" or not any(pool.fabrics for pool in cluster.pools):
            return 0
        return sum(map(is_gang, engines)) if self.gang_placer.fabrics(cluster) else 0


def _pools_of(cluster: Cluster) -> tuple[tuple[int, tuple[Fabric, ...]], ...]:
    """Return a key of the pools of a cluster. Pools with the same devices and fabrics have the same key."""
    return tuple((id(pool.devices), pool.fabrics) for pool in cluster.pools)


@dataclass(frozen=True)
class _Choice:
    """Engine on its pools. `rank`: position of the pool and the claim on a single pool. None for a spread engine."""

    engine: Engine
    placed: PlacedEngine
    charges: Charges
    rank: tuple[int, int] | None


class _Assignment:
    """Search for placements of engines on one cluster. Chosen placements are charged until `take_back`."""

    def __init__(
        self, capacity: FleetCapacity, engines: Sequence[Engine], cluster: Cluster, ledgers: Mapping[str, Ledger]
    ) -> None:
        self.cut = False
        self._chosen: list[_Choice] = []
        self._capacity = capacity
        self._engines = engines
        self._cluster = cluster
        self._ledgers = ledgers
        self._totals = capacity.totals(engines, cluster) if len(engines) > 1 else None
        self._failed: set[object] = set()

    def succeeds(self, split: int) -> bool:
        """Choose placements for all engines, with at most `split` spread engines. Return False, without charges, if
        this fails."""
        choices = [self._choices(split)]
        while len(self._chosen) < len(self._engines):
            choice = next(choices[-1], None)
            if choice is not None:
                self._chosen.append(choice)
                for pool, demand in choice.charges:
                    self._ledger(pool).add(demand)
                choices.append(self._choices(split))
                continue
            choices.pop()
            if choices:
                self._take_back_last()
            if not choices or self._is_over():
                while self._chosen:
                    self._take_back_last()
                return False
        return True

    def _choices(self, split: int) -> Iterator[_Choice]:
        """Yield the placements of the next engine in addition to the chosen placements."""
        if len(self._chosen) == len(self._engines) or self._is_hopeless():
            return
        engine = self._engines[len(self._chosen)]
        claiming = self._capacity.claiming(engine, self._cluster)
        least_rank = self._least_rank(engine)
        split -= sum(choice.rank is None for choice in self._chosen)
        state = self._state(least_rank, split) if self._chosen else None
        if state in self._failed:
            return
        for position, pool in enumerate(self._cluster.pools):
            for number, fit in enumerate(self._capacity.fits_of(engine, pool.devices, claiming)):
                if (position, number) >= least_rank and self._ledger(pool).fits(fit.demand):
                    yield _Choice(engine, fit.placed(engine, pool.name), ((pool, fit.demand),), (position, number))
        if is_gang(engine) and split:
            for layout in self._capacity.gang_placer.layouts(engine, self._cluster, self._ledgers):
                if all(self._ledger(pool).fits(demand) for pool, demand in layout.demands):
                    yield _Choice(engine, layout.placed(), layout.demands, None)
                elif not self._spend():
                    return
        if state:
            self._failed.add(state)

    def _state(self, least_rank: tuple[int, int], split: int) -> object:
        """Return the state that placements of the next engines depend on. Exchanged placements have the same state."""
        return len(self._chosen), least_rank, split, tuple(self._ledger(pool).state for pool in self._cluster.pools)

    def _is_hopeless(self) -> bool:
        """Return True if the remaining engines need more than the free capacity on any pools."""
        ledgers = [self._ledger(pool) for pool in self._cluster.pools]
        return self._totals is not None and self._totals.exceed(len(self._chosen), ledgers)

    def _least_rank(self, engine: Engine) -> tuple[int, int]:
        """Return the first allowed rank. The order of equal engines is irrelevant, so their ranks never decrease."""
        previous = self._chosen[-1] if self._chosen else None
        return previous.rank if previous and previous.engine is engine and previous.rank else (0, 0)

    def _is_over(self) -> bool:
        """Return True if no other choice is allowed, because `Greedy` tries only the first choice, or without steps."""
        return self._capacity.options.search == "Greedy" or not self._spend()

    def _spend(self) -> bool:
        if not self.cut and not self._capacity.work.spend():
            self.cut = True
            self._capacity.work.undecided += 1
        return not self.cut

    def take_back(self) -> None:
        """Undo the charges of the chosen placements, and keep the choice."""
        chosen = list(self._chosen)
        while self._chosen:
            self._take_back_last()
        self._chosen = chosen

    def _take_back_last(self) -> None:
        for pool, demand in self._chosen.pop().charges:
            self._ledger(pool).remove(demand)

    def by_replica(self, replicas: Sequence[Sequence[Engine]]) -> Iterator[ReplicaFit]:
        """Yield the chosen placements of each replica."""
        choices: dict[int, list[_Choice]] = {}
        for choice in reversed(self._chosen):
            choices.setdefault(id(choice.engine), []).append(choice)
        for engines in replicas:
            replica_choices = [choices[id(engine)].pop() for engine in engines]
            charges = tuple(charge for choice in replica_choices for charge in choice.charges)
            yield ReplicaFit(tuple(choice.placed for choice in replica_choices), charges)

    def _ledger(self, pool: Pool) -> Ledger:
        ledger = self._ledgers.get(pool.name)
        return self._capacity.ledger(self._cluster.name, pool) if ledger is None else ledger
