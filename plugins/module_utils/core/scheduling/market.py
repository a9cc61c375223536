# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The cheapest places that the limits on the cost of a deployment allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.cost import (
    Spent,
    price_order,
    refusal,
    replica_cost,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.fitting import FleetCapacity, ReplicaFit
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    CostLimits,
    PlacedEngine,
    Pool,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.retaining import State


@dataclass(frozen=True)
class Offer:
    """A place on a cluster that is allowed, and its cost for an hour; None where that is not known."""

    fit: ReplicaFit
    cost: Fraction | None

    @property
    def rank(self) -> tuple[bool, Fraction]:
        """Return where it comes in the order: the cheapest first, unknown costs last."""
        return self.cost is None, self.cost or Fraction(0)


class Market:
    """Places for more replicas of a deployment while nothing else is placed."""

    def __init__(self, state: State, limits: CostLimits, fleet: Mapping[str, Cluster], capacity: FleetCapacity) -> None:
        self._state = state
        self._limits = limits
        self._fleet = fleet
        self._capacity = capacity
        self._fits: dict[str, list[ReplicaFit]] = {}
        self._spent = Spent()
        for kept in state.kept:
            self._spend(kept.placement.cluster, kept.placement.engines)
        for name, fits in state.new.items():
            for fit in fits:
                self._spend(name, fit.engines)

    def offer(self, name: str) -> Offer | str:
        """Return the cheapest place on a cluster that is allowed, or why none is; empty when there is no room."""
        pools = self._pools(name)
        offers, why = [], ""
        for fit in self._fits_on(name):
            refused = refusal(self._limits, self._state.deployment.replicas, self._spent, fit.engines, pools)
            if refused:
                why = why or refused
            else:
                offers.append(Offer(fit, replica_cost(fit.engines, pools)))
        return min(offers, key=lambda offer: offer.rank, default=None) or why

    def take(self, name: str, offer: Offer) -> None:
        """Place a replica."""
        self._capacity.charge_fit(name, offer.fit)
        self._state.new.setdefault(name, []).append(offer.fit)
        self._spend(name, offer.fit.engines)
        self._fits.pop(name, None)

    def refusals(self, names: Iterable[str]) -> dict[str, str]:
        """Return why clusters that have room take no more replicas."""
        found = {name: self.offer(name) for name in names}
        return {name: reason for name, reason in found.items() if isinstance(reason, str) and reason}

    def _spend(self, name: str, engines: Iterable[PlacedEngine]) -> None:
        self._spent = self._spent.with_replica(engines, self._pools(name))

    def _pools(self, name: str) -> Mapping[str, Pool]:
        cluster = self._fleet.get(name)
        return {pool.name: pool for pool in cluster.pools} if cluster else {}

    def _fits_on(self, name: str) -> list[ReplicaFit]:
        """Return places on a cluster, its cheapest pools first: on all its pools, and without those of spot nodes."""
        if name not in self._fits:
            cluster = self._fleet[name]
            for engine in self._state.engines:
                # All pools decide on the members that have to claim a device.
                self._capacity.claiming(engine, cluster)
            pools = price_order(cluster)
            lasting = tuple(pool for pool in pools if not pool.spot)
            self._fits[name] = [
                fit
                for each in dict.fromkeys((pools, lasting))
                for fit in self._capacity.joint_fit([self._state.engines], replace(cluster, pools=each), {}) or ()
            ]
        return self._fits[name]
