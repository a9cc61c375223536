# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Search for the cheapest placements that the cost limits of a deployment allow."""

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
"""Maximum number of pools of a cluster for a search in all orders of its pools."""
_MOST_REASONS = 4


@dataclass(frozen=True)
class Offer:
    """Allowed placement on a cluster, and its cost per hour. The cost is None if unknown."""

    fit: ReplicaFit
    cost: Fraction | None

    @property
    def rank(self) -> tuple[bool, Fraction]:
        """Return the sort key: the cheapest offer first, unknown costs last."""
        return self.cost is None, self.cost or Fraction(0)


class CheapestPlaces:
    """Placements for more replicas of a deployment, valid while no other deployment is placed."""

    def __init__(self, state: State, limits: CostLimits, fleet: Mapping[str, Cluster], capacity: FleetCapacity) -> None:
        self._state = state
        self._limits = limits
        self._fleet = fleet
        self._capacity = capacity
        self._fits: dict[str, list[ReplicaFit]] = {}
        self._spent = self._spent_without("")

    def offer(self, name: str) -> Offer | str:
        """Return the cheapest allowed placement on a cluster, or the reasons why no placement is allowed.

        The reasons name the pool if the cluster has several pools. They are empty if the cluster has no free capacity.
        """
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
        cluster has no free capacity or a limit refuses a replica.

        A different order of replicas with one engine creates no free capacity, so their placements do not change."""
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
        """Return the reasons why clusters with free capacity accept no more replicas."""
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
        """Return the placements on a cluster in each searched subset of its pools, the cheapest pools first."""
        if name not in self._fits:
            cluster = self._fleet[name]
            for engine in self._state.engines:
                # The choice of members that must claim a device depends on all pools of the cluster.
                self._capacity.claiming(engine, cluster)
            self._fits[name] = [
                fit
                for pool_order in self._some_pools(cluster)
                for fit in self._capacity.joint_fit([self._state.engines], replace(cluster, pools=pool_order), {}) or ()
            ]
        return self._fits[name]

    def _some_pools(self, cluster: Cluster) -> Iterable[tuple[Pool, ...]]:
        """Return the ordered subsets of the pools to search: each pool, all pools, and all pools without spot nodes.

        A search of single pools is required because device prices do not determine the price of a replica that claims
        only some devices. Placements of several engines exclude each other, so all orders of a few pools are added."""
        pools = price_order(cluster)
        lasting = tuple(pool for pool in pools if not pool.spot)
        single_pools: Iterator[tuple[Pool, ...]] = ((pool,) for pool in pools)
        orders: Iterable[tuple[Pool, ...]] = ()
        if len(self._state.engines) > 1 and len(pools) <= _MOST_ORDERED:
            orders = itertools.chain(itertools.permutations(pools), itertools.permutations(lasting))
        return dict.fromkeys(pool_order for pool_order in (*single_pools, pools, lasting, *orders) if pool_order)
