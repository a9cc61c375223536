# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Free capacity for one more replica by moving other new replicas.

Deployments are placed one after the other. An earlier deployment might use the devices that a later deployment needs,
although it could use other devices. Only new replicas of this run move, and all of them remain placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .capacity import Ledger
from .fitting import FleetCapacity, ReplicaFit
from .model import Cluster, Engine

# Longest chain of displaced replicas. After that all distributions are searched.
_LONGEST_CHAIN = 3

# The search recurses once for each deployment and cluster. A larger search would reach its limit anyway.
_MOST_PLACES = 300

# Steps charged for each query of a cluster, in addition to the steps of its search.
_FIT_STEPS = 100

# Replicas of each deployment on a cluster: (number of the deployment, count).
_Counts = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class NewReplicas:
    """New replicas of a deployment.

    engines: engines of the deployment.
    clusters: eligible clusters of the deployment.
    fits_by_cluster: placements by cluster.
    allows: function that returns True if these numbers of new replicas by cluster are allowed. If unset, all numbers
        are allowed.
    """

    engines: tuple[Engine, ...]
    clusters: Mapping[str, None]
    fits_by_cluster: dict[str, list[ReplicaFit]]
    allows: Callable[[Counter[str]], bool] | None = None


class Rearranger:
    """Search for other placements of new replicas that allow one more replica."""

    def __init__(self, fleet: Mapping[str, Cluster], capacity: FleetCapacity) -> None:
        self._fleet = fleet
        self._capacity = capacity
        # Keys are the id() of engines and of clusters. The deployments of a plan share these objects.
        self._known_least: dict[tuple[int, int], int] = {}

    def make_room(self, deployments: Sequence[NewReplicas]) -> bool:
        """Place one more replica of the last deployment, and keep all other replicas placed. Return False, without
        changes, if the search finds no placements."""
        with self._capacity.work.limited():
            search = _Rearrangement(self._fleet, self._capacity, deployments, self._known_least)
            return search.succeeds()


class _Rearrangement:
    """Search for placements of the new replicas of some deployments, and of one more replica of the last deployment."""

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
            for name, fits in new.fits_by_cluster.items():
                if fits:
                    self._before.setdefault(name, Counter())[number] = len(fits)
        self._ledgers: dict[str, dict[str, Ledger]] = {}
        self._alike: dict[str, object] = {}
        self._fits: dict[object, list[ReplicaFit] | None] = {}

    def succeeds(self) -> bool:
        """Search for new placements, and apply them. Return True if the search found placements."""
        clusters, movable = self._reached()
        self._spend(len(clusters))
        candidates = [
            name for name in self._deployments[self._last].clusters if self._fit(name, Counter({self._last: 1}))
        ]
        assignment = None
        if movable and candidates and not self._exceeds(clusters, movable):
            assignment = self._by_chain(candidates)
            if assignment is None and len(clusters) * (len(movable) + 1) > _MOST_PLACES:
                self._cut = True
            elif assignment is None:
                assignment = self._by_all(clusters, movable)
        if self._cut:
            self._capacity.work.undecided += 1
        if assignment is None:
            return False
        self._apply(assignment)
        return True

    def _reached(self) -> tuple[list[str], list[int]]:
        """Return the clusters that a chain of displaced replicas can reach from the last deployment, and the
        deployments with new replicas on them."""
        clusters = dict.fromkeys(self._deployments[self._last].clusters)
        movable: dict[int, None] = {}
        waiting = list(clusters)
        while waiting:
            for number in self._before.get(waiting.pop(), ()):
                if number not in movable:
                    movable[number] = None
                    new_clusters = [name for name in self._deployments[number].clusters if name not in clusters]
                    clusters.update(dict.fromkeys(new_clusters))
                    waiting += new_clusters
        return sorted(clusters), sorted(movable)

    def _exceeds(self, clusters: Sequence[str], movable: Sequence[int]) -> bool:
        """Return True if all replicas together need more devices than all clusters have free, on any clusters."""
        required = sum(
            self._least(number) * sum(map(len, self._deployments[number].fits_by_cluster.values()))
            for number in movable
        )
        required += self._least(self._last)
        available = 0
        for name in clusters:
            self._kind(name)
            available += sum(ledger.left() for ledger in self._ledgers[name].values())
        return required > available

    def _least(self, number: int) -> int:
        """Return the minimum number of devices of a replica, on any cluster of its deployment."""
        new = self._deployments[number]
        key = (id(new.engines), id(new.clusters))
        if key not in self._known_least:
            counts = (self._capacity.least(new.engines, self._fleet[name]) for name in new.clusters)
            self._known_least[key] = min(counts, default=0)
        return self._known_least[key]

    def _by_chain(self, candidates: Sequence[str]) -> dict[str, Counter[int]] | None:
        """Search for a chain of displaced replicas: one replica displaces another replica, this displaces a third
        replica, and so on."""
        counts = {name: Counter(cluster_counts) for name, cluster_counts in self._before.items()}
        tried_exchanges: set[tuple[int, str, int]] = set()

        def place(number: int, names: Collection[str], remaining_exchanges: int) -> bool:
            if not self._spend(len(names)):
                return False
            cluster_counts = {name: counts.setdefault(name, Counter()) for name in names}
            ranked = sorted(names, key=lambda name: (cluster_counts[name][number], name))
            for name in ranked:
                if self._fit(name, cluster_counts[name] + Counter({number: 1})):
                    cluster_counts[name][number] += 1
                    return True
            for name in ranked if remaining_exchanges else ():
                for displaced in sorted(set(+cluster_counts[name]) - {number}):
                    if (number, name, displaced) in tried_exchanges:
                        continue
                    tried_exchanges.add((number, name, displaced))
                    exchanged = cluster_counts[name] + Counter({number: 1}) - Counter({displaced: 1})
                    if not self._fit(name, exchanged):
                        continue
                    previous, counts[name] = counts[name], exchanged
                    if place(displaced, self._deployments[displaced].clusters, remaining_exchanges - 1):
                        return True
                    counts[name] = previous
            return False

        is_placed = place(self._last, candidates, _LONGEST_CHAIN)
        numbers = range(len(self._deployments))
        return counts if is_placed and all(self._allowed(number, counts) for number in numbers) else None

    def _by_all(self, clusters: Sequence[str], movable: Sequence[int]) -> dict[str, Counter[int]] | None:
        """Search all distributions of all replicas over the clusters."""
        replica_counts = {
            number: sum(map(len, self._deployments[number].fits_by_cluster.values())) for number in movable
        }
        replica_counts[self._last] = replica_counts.get(self._last, 0) + 1
        eligible_clusters = {
            number: [name for name in self._deployments[number].clusters if name in clusters]
            for number in replica_counts
        }
        order = sorted(replica_counts, key=lambda number: (len(eligible_clusters[number]), number))
        counts: dict[str, Counter[int]] = {name: Counter() for name in clusters}
        failed: set[object] = set()

        def spread(position: int) -> bool:
            if position == len(order):
                return True
            state = (position, tuple(_frozen(counts[name]) for name in clusters))
            if state in failed:
                return False
            if put(position, 0, replica_counts[order[position]], {}):
                return True
            failed.add(state)
            return False

        def put(position: int, index: int, remaining: int, limits: Mapping[object, int]) -> bool:
            """Place the replicas of a deployment on its clusters from an index on. A cluster receives at most the
            number of replicas of the previous equal cluster."""
            number = order[position]
            if not remaining:
                return self._allowed(number, counts) and spread(position + 1)
            if index == len(eligible_clusters[number]) or not self._spend():
                return False
            name = eligible_clusters[number][index]
            cluster_counts = counts[name]
            kind = (self._kind(name), _frozen(cluster_counts), self._eligible_later(name, order[position:]))
            limit = min(remaining, limits.get(kind, remaining))
            fitting = 0
            while fitting < limit and self._fit(name, cluster_counts + Counter({number: fitting + 1})):
                fitting += 1
            previous_count = self._before.get(name, Counter())[number]
            for count in sorted(range(fitting + 1), key=lambda count: (abs(count - previous_count), -count)):
                counts[name] = cluster_counts + Counter({number: count})
                if put(position, index + 1, remaining - count, {**limits, kind: count}):
                    return True
                if self._cut:
                    break
            counts[name] = cluster_counts
            return False

        return counts if spread(0) else None

    def _allowed(self, number: int, counts: Mapping[str, Counter[int]]) -> bool:
        allows = self._deployments[number].allows
        return allows is None or allows(
            Counter({name: cluster_counts[number] for name, cluster_counts in counts.items()})
        )

    def _eligible_later(self, name: str, numbers: Sequence[int]) -> tuple[bool, ...]:
        return tuple(name in self._deployments[number].clusters for number in numbers)

    def _fit(self, name: str, counts: Counter[int]) -> list[ReplicaFit] | None:
        """Return placements for these numbers of replicas on a cluster, in the order of the numbers of the deployments.
        None if they do not fit."""
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
        """Return a key of the state of a cluster without the replicas that can move. The same replicas fit on clusters
        with equal keys."""
        if name not in self._alike:
            cluster = self._fleet[name]
            movable_fits = [
                fit for number in self._before.get(name, ()) for fit in self._deployments[number].fits_by_cluster[name]
            ]
            ledgers = self._ledgers[name] = self._capacity.without(cluster, movable_fits)
            self._alike[name] = tuple(
                (pool.name, id(pool.devices), pool.nodes, pool.fabrics, ledgers[pool.name].state)
                for pool in cluster.pools
            )
        return self._alike[name]

    def _spend(self, steps: int = 1) -> bool:
        self._cut = self._cut or not self._capacity.work.spend(steps)
        return not self._cut

    def _apply(self, assignment: Mapping[str, Counter[int]]) -> None:
        for name, counts in assignment.items():
            if +counts == self._before.get(name, Counter()):
                continue
            fits: Iterator[ReplicaFit] = iter(self._fit(name, +counts) or ())
            for number, new in enumerate(self._deployments):
                new.fits_by_cluster.pop(name, None)
                cluster_fits = [next(fits) for __ in range(counts[number])]
                if cluster_fits:
                    new.fits_by_cluster[name] = cluster_fits
            self._capacity.set_ledgers(name, self._ledgers[name])
            for new in self._deployments:
                for fit in new.fits_by_cluster.get(name, ()):
                    self._capacity.charge_fit(name, fit)


def _frozen(counts: Counter[int]) -> _Counts:
    return tuple(sorted((+counts).items()))
