# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Room for one more replica, made by placing other new replicas elsewhere.

Deployments choose one after the other, so that an earlier one may take what a later one needs although it would find
as much elsewhere. Only replicas that are new in this run are placed otherwise, and all of them stay placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .capacity import Ledger
from .fitting import FleetCapacity, ReplicaFit
from .model import Cluster, Engine

# Longest chain of replicas that give way to each other; after that all distributions are searched.
_LONGEST_CHAIN = 3

# The search recurses once per deployment and cluster. With more of them it would end at its bound anyway.
_MOST_PLACES = 300

# Steps charged for each question about a cluster, beside those of its search.
_FIT_STEPS = 100

# Replicas of each deployment on a cluster: (number of the deployment, count).
_Counts = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class NewReplicas:
    """The new replicas of a deployment: its engines, the clusters that it may use, and the places by cluster.

    `allows` says whether so many new replicas by cluster may be placed; without it any may.
    """

    engines: tuple[Engine, ...]
    clusters: Mapping[str, None]
    places: dict[str, list[ReplicaFit]]
    allows: Callable[[Counter[str]], bool] | None = None


class Rearranger:
    """Places new replicas of several deployments otherwise to make room for one more."""

    def __init__(self, fleet: Mapping[str, Cluster], capacity: FleetCapacity) -> None:
        self._fleet = fleet
        self._capacity = capacity
        # By the identity of engines and clusters, which the deployments of a plan share.
        self._known_least: dict[tuple[int, int], int] = {}

    def make_room(self, deployments: Sequence[NewReplicas]) -> bool:
        """Place one more replica of the last deployment, so that every other one stays placed; False when nothing was
        found, and nothing is changed."""
        with self._capacity.work.limited():
            search = _Rearrangement(self._fleet, self._capacity, deployments, self._known_least)
            return search.succeeds()


class _Rearrangement:
    """A search for places of the new replicas of some deployments, one more of the last."""

    def __init__(
        self,
        fleet: Mapping[str, Cluster],
        capacity: FleetCapacity,
        deployments: Sequence[NewReplicas],
        known_least: dict[tuple[int, int], int],
    ) -> None:
        self._fleet = fleet
        self._capacity = capacity
        self._deployments = deployments
        self._known_least = known_least
        self._last = len(deployments) - 1
        self._cut = False
        self._before: dict[str, Counter[int]] = {}
        for number, new in enumerate(deployments):
            for name, fits in new.places.items():
                if fits:
                    self._before.setdefault(name, Counter())[number] = len(fits)
        self._ledgers: dict[str, dict[str, Ledger]] = {}
        self._alike: dict[str, object] = {}
        self._fits: dict[object, list[ReplicaFit] | None] = {}

    def succeeds(self) -> bool:
        """Search, and carry out what was found."""
        clusters, movable = self._reached()
        self._spend(len(clusters))
        own = [name for name in self._deployments[self._last].clusters if self._fit(name, Counter({self._last: 1}))]
        found = None
        if movable and own and not self._exceeds(clusters, movable):
            found = self._by_chain(own)
            if found is None and len(clusters) * (len(movable) + 1) > _MOST_PLACES:
                self._cut = True
            elif found is None:
                found = self._by_all(clusters, movable)
        if self._cut:
            self._capacity.work.undecided += 1
        if found is None:
            return False
        self._apply(found)
        return True

    def _reached(self) -> tuple[list[str], list[int]]:
        """Return the clusters on which the last deployment may take a place from another, that from a third, and so on,
        and the deployments with replicas there."""
        clusters = dict.fromkeys(self._deployments[self._last].clusters)
        movable: dict[int, None] = {}
        waiting = list(clusters)
        while waiting:
            for number in self._before.get(waiting.pop(), ()):
                if number not in movable:
                    movable[number] = None
                    more = [name for name in self._deployments[number].clusters if name not in clusters]
                    clusters.update(dict.fromkeys(more))
                    waiting += more
        return sorted(clusters), sorted(movable)

    def _exceeds(self, clusters: Sequence[str], movable: Sequence[int]) -> bool:
        """Return True when all replicas together take more than all clusters have left, wherever they are."""
        needed = sum(
            self._least(number) * sum(map(len, self._deployments[number].places.values())) for number in movable
        )
        needed += self._least(self._last)
        left = 0
        for name in clusters:
            self._kind(name)
            left += sum(ledger.left() for ledger in self._ledgers[name].values())
        return needed > left

    def _least(self, number: int) -> int:
        """Return what a replica takes at least, on any cluster of its deployment."""
        new = self._deployments[number]
        key = (id(new.engines), id(new.clusters))
        if key not in self._known_least:
            found = (self._capacity.least(new.engines, self._fleet[name]) for name in new.clusters)
            self._known_least[key] = min(found, default=0)
        return self._known_least[key]

    def _by_chain(self, own: Sequence[str]) -> dict[str, Counter[int]] | None:
        """One replica gives way to another, which makes a third give way, and so on."""
        counts = {name: Counter(found) for name, found in self._before.items()}
        tried: set[tuple[int, str, int]] = set()

        def place(number: int, names: Collection[str], left: int) -> bool:
            if not self._spend(len(names)):
                return False
            there = {name: counts.setdefault(name, Counter()) for name in names}
            ranked = sorted(names, key=lambda name: (there[name][number], name))
            for name in ranked:
                if self._fit(name, there[name] + Counter({number: 1})):
                    there[name][number] += 1
                    return True
            for name in ranked if left else ():
                for other in sorted(set(+there[name]) - {number}):
                    if (number, name, other) in tried:
                        continue
                    tried.add((number, name, other))
                    exchanged = there[name] + Counter({number: 1}) - Counter({other: 1})
                    if not self._fit(name, exchanged):
                        continue
                    kept, counts[name] = counts[name], exchanged
                    if place(other, self._deployments[other].clusters, left - 1):
                        return True
                    counts[name] = kept
            return False

        found = place(self._last, own, _LONGEST_CHAIN)
        numbers = range(len(self._deployments))
        return counts if found and all(self._allowed(number, counts) for number in numbers) else None

    def _by_all(self, clusters: Sequence[str], movable: Sequence[int]) -> dict[str, Counter[int]] | None:
        """Every way to spread all replicas over the clusters."""
        needed = {number: sum(map(len, self._deployments[number].places.values())) for number in movable}
        needed[self._last] = needed.get(self._last, 0) + 1
        places = {
            number: [name for name in self._deployments[number].clusters if name in clusters] for number in needed
        }
        order = sorted(needed, key=lambda number: (len(places[number]), number))
        counts: dict[str, Counter[int]] = {name: Counter() for name in clusters}
        failed: set[object] = set()

        def spread(position: int) -> bool:
            if position == len(order):
                return True
            state = (position, tuple(_frozen(counts[name]) for name in clusters))
            if state in failed:
                return False
            if put(position, 0, needed[order[position]], {}):
                return True
            failed.add(state)
            return False

        def put(position: int, at: int, left: int, most: Mapping[object, int]) -> bool:
            """Put the replicas of a deployment on its clusters from one on; on alike ones never more than before."""
            number = order[position]
            if not left:
                return self._allowed(number, counts) and spread(position + 1)
            if at == len(places[number]) or not self._spend():
                return False
            name = places[number][at]
            there = counts[name]
            kind = (self._kind(name), _frozen(there), self._eligible_later(name, order[position:]))
            limit = min(left, most.get(kind, left))
            fitting = 0
            while fitting < limit and self._fit(name, there + Counter({number: fitting + 1})):
                fitting += 1
            before = self._before.get(name, Counter())[number]
            for count in sorted(range(fitting + 1), key=lambda count: (abs(count - before), -count)):
                counts[name] = there + Counter({number: count})
                if put(position, at + 1, left - count, {**most, kind: count}):
                    return True
                if self._cut:
                    break
            counts[name] = there
            return False

        return counts if spread(0) else None

    def _allowed(self, number: int, counts: Mapping[str, Counter[int]]) -> bool:
        allows = self._deployments[number].allows
        return allows is None or allows(Counter({name: there[number] for name, there in counts.items()}))

    def _eligible_later(self, name: str, numbers: Sequence[int]) -> tuple[bool, ...]:
        return tuple(name in self._deployments[number].clusters for number in numbers)

    def _fit(self, name: str, counts: Counter[int]) -> list[ReplicaFit] | None:
        """Return places for so many replicas of each deployment on a cluster, in the order of the deployments' numbers;
        None when they do not fit."""
        key = (self._kind(name), _frozen(counts))
        if key not in self._fits:
            replicas = [self._deployments[number].engines for number, count in _frozen(counts) for __ in range(count)]
            self._fits[key] = (
                self._capacity.joint_fit(replicas, self._fleet[name], self._ledgers[name])
                if self._spend(_FIT_STEPS)
                else None
            )
        return self._fits[key]

    def _kind(self, name: str) -> object:
        """Return what a cluster is without the replicas that may be placed otherwise: on equal ones the same fits."""
        if name not in self._alike:
            cluster = self._fleet[name]
            mine = [fit for number in self._before.get(name, ()) for fit in self._deployments[number].places[name]]
            ledgers = self._ledgers[name] = self._capacity.without(cluster, mine)
            self._alike[name] = tuple(
                (pool.name, id(pool.devices), pool.nodes, pool.fabrics, ledgers[pool.name].state)
                for pool in cluster.pools
            )
        return self._alike[name]

    def _spend(self, steps: int = 1) -> bool:
        self._cut = self._cut or not self._capacity.work.spend(steps)
        return not self._cut

    def _apply(self, found: Mapping[str, Counter[int]]) -> None:
        for name, counts in found.items():
            if +counts == self._before.get(name, Counter()):
                continue
            fits: Iterator[ReplicaFit] = iter(self._fit(name, +counts) or ())
            for number, new in enumerate(self._deployments):
                new.places.pop(name, None)
                mine = [next(fits) for __ in range(counts[number])]
                if mine:
                    new.places[name] = mine
            self._capacity.set_ledgers(name, self._ledgers[name])
            for new in self._deployments:
                for fit in new.places.get(name, ()):
                    self._capacity.charge_fit(name, fit)


def _frozen(counts: Counter[int]) -> _Counts:
    return tuple(sorted((+counts).items()))
