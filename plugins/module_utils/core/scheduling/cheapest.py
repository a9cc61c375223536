# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The cheapest places that the limits on the cost of a deployment allow."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from ..text import first_lines
from .cost import Spent, price_order, refusal, replica_cost, spent
from .fitting import FleetCapacity, ReplicaFit
from .model import Cluster, CostLimits, PlacedEngine, Pool, pools_of
from .retaining import State

_MOST_ORDERED = 4
"""Limit on the pools of a cluster of which all orders are tried."""
_MOST_REASONS = 4


@dataclass(frozen=True)
class Offer:
    """A place on a cluster that is allowed, and its cost for an hour; None where that is not known."""

    fit: ReplicaFit
    cost: Fraction | None

    @property
    def rank(self) -> tuple[bool, Fraction]:
        """Return where it comes in the order: the cheapest first, unknown costs last."""
        return self.cost is None, self.cost or Fraction(0)


class CheapestPlaces:
    """Places for more replicas of a deployment while nothing else is placed."""

    def __init__(self, state: State, limits: CostLimits, fleet: Mapping[str, Cluster], capacity: FleetCapacity) -> None:
        self._state = state
        self._limits = limits
        self._fleet = fleet
        self._capacity = capacity
        self._fits: dict[str, list[ReplicaFit]] = {}
        self._spent = self._spent_without("")

    def offer(self, name: str) -> Offer | str:
        """Return the cheapest place on a cluster that is allowed, or why none is, by pool where it has several; empty
        when there is no room."""
        pools = self._pools(name)
        offers: list[Offer] = []
        why: dict[str, None] = {}
        for fit in self._fits_on(name):
            refused = refusal(self._limits, self._state.deployment.replicas, self._spent, fit.engines, pools)
            if refused:
                prefix = f"pool {', '.join(sorted(pools_of(fit.engines)))}: " if len(pools) > 1 else ""
                why[f"{prefix}{refused}"] = None
            else:
                offers.append(Offer(fit, replica_cost(fit.engines, pools)))
        return min(offers, key=lambda offer: offer.rank, default=None) or "; ".join(first_lines(why, _MOST_REASONS))

    def take(self, name: str, offer: Offer) -> None:
        """Place a replica."""
        self._capacity.charge_fit(name, offer.fit)
        self._state.new.setdefault(name, []).append(offer.fit)
        self._spend(name, offer.fit.engines)
        self._fits.pop(name, None)

    def repack(self, name: str) -> bool:
        """Place one more replica on a cluster by placing its new replicas again. Return False, without changes, if the
        cluster has no room or a limit refuses a replica.

        Replicas of one engine leave each other no more room however they are placed."""
        new = self._state.new.get(name)
        if not new or len(self._state.engines) == 1 or self._capacity.options.search != "Exact":
            return False
        cluster, pools = self._fleet[name], self._pools(name)
        engines = [self._state.engines] * (len(new) + 1)
        for pool_order in self._some_pools(cluster):
            ledgers = self._capacity.without(cluster, new)
            fits = self._capacity.joint_fit(engines, replace(cluster, pools=pool_order), ledgers)
            total = self._spent_without(name)
            for fit in fits or ():
                if refusal(self._limits, self._state.deployment.replicas, total, fit.engines, pools):
                    break
                total = total.with_replica(fit.engines, pools)
            else:
                if fits:
                    self._capacity.set_ledgers(name, self._capacity.without(cluster, new))
                    for fit in fits:
                        self._capacity.charge_fit(name, fit)
                    self._state.new[name] = fits
                    self._spent = total
                    self._fits.pop(name, None)
                    return True
        return False

    def refusals(self, names: Iterable[str]) -> dict[str, str]:
        """Return why clusters that have room take no more replicas."""
        offers = {name: self.offer(name) for name in names}
        return {name: reason for name, reason in offers.items() if isinstance(reason, str) and reason}

    def _spend(self, name: str, engines: Iterable[PlacedEngine]) -> None:
        self._spent = self._spent.with_replica(engines, self._pools(name))

    def _spent_without(self, left_out: str) -> Spent:
        """Return the cost of all replicas except the new replicas on a cluster."""
        placed = [(entry.placement.cluster, entry.placement.engines) for entry in self._state.kept]
        placed += [(name, fit.engines) for name, fits in self._state.new.items() if name != left_out for fit in fits]
        return spent(placed, self._pools)

    def _pools(self, name: str) -> Mapping[str, Pool]:
        cluster = self._fleet.get(name)
        return {pool.name: pool for pool in cluster.pools} if cluster else {}

    def _fits_on(self, name: str) -> list[ReplicaFit]:
        """Return the places on a cluster in each subset of its pools, the cheapest pools first."""
        if name not in self._fits:
            cluster = self._fleet[name]
            for engine in self._state.engines:
                # All pools decide on the members that have to claim a device.
                self._capacity.claiming(engine, cluster)
            self._fits[name] = [
                fit
                for pool_order in self._some_pools(cluster)
                for fit in self._capacity.joint_fit([self._state.engines], replace(cluster, pools=pool_order), {}) or ()
            ]
        return self._fits[name]

    def _some_pools(self, cluster: Cluster) -> Iterable[tuple[Pool, ...]]:
        """Return pools of a cluster to search for places: each alone, as prices of devices do not say what a replica
        costs that claims only some of them, all, and those without spot nodes; of several engines, whose places exclude
        each other, all orders of a few pools."""
        pools = price_order(cluster)
        lasting = tuple(pool for pool in pools if not pool.spot)
        single_pools: Iterator[tuple[Pool, ...]] = ((pool,) for pool in pools)
        orders: Iterable[tuple[Pool, ...]] = ()
        if len(self._state.engines) > 1 and len(pools) <= _MOST_ORDERED:
            orders = itertools.chain(itertools.permutations(pools), itertools.permutations(lasting))
        return dict.fromkeys(pool_order for pool_order in (*single_pools, pools, lasting, *orders) if pool_order)
