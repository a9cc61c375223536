# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A place for one replica on one cluster: every engine whole on one pool, with what all pools have left."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.capacity import (
    Demand,
    DeviceLedger,
    Free,
    NodeLedger,
    PodSet,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.matching import (
    MAX_VECTORS,
    Matcher,
    Resolution,
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

Ledger = NodeLedger | DeviceLedger


@dataclass(frozen=True)
class EngineFit:
    """An engine on a kind of node: how each member's requests resolve, and what that takes from the pool."""

    resolutions: tuple[Resolution, ...]
    demand: Demand

    def placed(self, engine: Engine, pools: Sequence[str]) -> PlacedEngine:
        members = tuple(
            PlacedMember(pool, device_requests(member, resolution), member.role, member.pods)
            for member, resolution, pool in zip(engine.members, self.resolutions, pools, strict=True)
        )
        return PlacedEngine(engine.name, members, engine.copies)


class FleetCapacity:
    """The ledgers of all pools of the fleet, and what fits where."""

    def __init__(self, clusters: Mapping[str, Cluster], options: Options) -> None:
        self.options = options
        self.matcher = Matcher(options.search)
        self._clusters = clusters
        self._ledgers: dict[tuple[str, str], Ledger] = {}
        self._packings: dict[object, Free | None] = {}
        self._versions: dict[str, int] = dict.fromkeys(clusters, 0)
        self._fits: dict[tuple[int, int], tuple[EngineFit, ...]] = {}
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
        """Grows whenever a replica is charged to the cluster."""
        return self._versions[cluster]

    def overcommitted(self) -> list[tuple[str, str, str]]:
        """(cluster, pool, why) of every pool that is charged more than it has."""
        found = [(*key, ledger.overcommitted) for key, ledger in sorted(self._ledgers.items())]
        return [entry for entry in found if entry[2]]

    def fits_of(self, engine: Engine, devices: tuple[Device, ...]) -> tuple[EngineFit, ...]:
        """How an engine can be served by nodes with these devices, first choice first; empty when it cannot be.

        At least one member has to claim a device through DRA: without a claim nothing binds the engine to a node.
        """
        key = (id(engine), id(devices))
        found = self._fits.get(key)
        if found is None:
            self._alive += [engine, devices]
            per_member = [self.matcher.resolve(member.requests, devices) for member in engine.members]
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
                pool = pools.get(member.pool)
                if pool is None or not member.device_requests:
                    continue
                vectors = self.matcher.observed(member.device_requests, pool.devices)
                if vectors or self.options.accounting == "Nodes":
                    taken.setdefault(member.pool, []).append(PodSet(member.pods, vectors))
            for name, pod_sets in taken.items():
                self.ledger(cluster, pools[name]).add(Demand(engine.copies, tuple(pod_sets)))
                self._versions[cluster] += 1

    def charge_members(self, cluster: Cluster, engine: Engine, fit: EngineFit, pools: Sequence[Pool]) -> None:
        """Charge an engine whose members may be pinned to different pools."""
        for pool in {pool.name: pool for pool in pools}.values():
            pod_sets = tuple(
                PodSet(member.pods, resolution.vectors)
                for member, resolution, pinned in zip(engine.members, fit.resolutions, pools, strict=True)
                if pinned.name == pool.name and resolution.claims
            )
            if pod_sets:
                self.ledger(cluster.name, pool).add(Demand(engine.copies, pod_sets))
                self._versions[cluster.name] += 1

    def place(self, engines: Sequence[Engine], cluster: Cluster) -> tuple[PlacedEngine, ...] | None:
        """Place and charge a replica on a cluster; None, and nothing charged, when it does not fit.

        Engines in order, each on the first pool that fits. `Exact` takes choices back, at most `pool_attempts` times.
        """
        attempts = self.options.pool_attempts if self.options.search == "Exact" else 0
        chosen: list[PlacedEngine] = []

        def descend(position: int) -> bool:
            nonlocal attempts
            if position == len(engines):
                return True
            engine = engines[position]
            for pool in cluster.pools:
                ledger = self.ledger(cluster.name, pool)
                for fit in self.fits_of(engine, pool.devices):
                    if not ledger.fits(fit.demand):
                        continue
                    ledger.add(fit.demand)
                    chosen.append(fit.placed(engine, [pool.name] * len(engine.members)))
                    if descend(position + 1):
                        return True
                    chosen.pop()
                    ledger.remove(fit.demand)
                    attempts -= 1
                    if attempts < 0:
                        return False
            return False

        if not descend(0):
            return None
        self._versions[cluster.name] += 1
        return tuple(chosen)
