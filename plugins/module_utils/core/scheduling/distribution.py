# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Distribution of a deployment's replicas over clusters: order of clusters, constraints of spread and minimum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping

from ..text import some
from .model import Cluster, Deployment

# Sort key of a cluster. The first cluster receives the next replica.
Rank = tuple[object, ...]


def topology_domain(cluster: Cluster, key: str) -> str:
    """Return the value of a label of a cluster, empty without the label."""
    return cluster.all_labels.get(key, "")


class Distribution:
    """Constraints and order for the distribution of a deployment's replicas over its eligible clusters.

    Counts are replicas by cluster, and include clusters that the deployment must no longer use. Replicas from earlier
    runs can violate a constraint, but new replicas must not make the violation worse.
    """

    def __init__(
        self, deployment: Deployment, fleet: Mapping[str, Cluster], clusters: Iterable[str], kept_counts: Counter[str]
    ) -> None:
        self._deployment = deployment
        self._fleet = fleet
        self._kept = kept_counts
        self._preferences = {name: preference(deployment, fleet[name]) for name in clusters}
        keys = _keys(deployment)
        self._domains = {key: sorted({topology_domain(fleet[name], key) for name in clusters} - {""}) for key in keys}
        self._most_with_minimum = max(deployment.replicas, self._with_minimum(kept_counts))

    def rank(self, name: str, counts: Counter[str]) -> Rank:
        """Return the sort key of a cluster: first clusters that need replicas for a minimum, then preferred clusters,
        then label values with few replicas, then clusters with few replicas."""
        cluster = self._fleet[name]
        totals = tuple(
            self._totals(counts, entry.topology_key)[topology_domain(cluster, entry.topology_key)]
            if topology_domain(cluster, entry.topology_key)
            else self._deployment.replicas + 1
            for entry in self._deployment.spread
        )
        return (*self.precedence(name, counts), totals, counts[name], name)

    def precedence(self, name: str, counts: Counter[str]) -> tuple[bool, int]:
        """Return the first part of the rank: False if a minimum lacks replicas on the cluster, then its preference."""
        cluster = self._fleet[name]
        lacks = any(
            self._lacking(counts, entry.topology_key, entry.replicas).get(topology_domain(cluster, entry.topology_key))
            for entry in self._deployment.minimum
            if entry.topology_key
        )
        return not lacks, self._preferences[name]

    def allows(self, counts: Counter[str]) -> bool:
        """Return True if no label value has too many replicas, and enough replicas remain for each minimum."""
        return self._with_minimum(counts) <= self._most_with_minimum and not any(
            self._excess(counts, entry.topology_key, entry.max_skew)
            for entry in self._deployment.spread
            if entry.required
        )

    def excess(self, counts: Counter[str]) -> int:
        """Return the number of replicas in excess of the maximum skew of required spreads."""
        return sum(
            self._totals(counts, entry.topology_key)[value] - (fewest + entry.max_skew if value else 0)
            for entry in self._deployment.spread
            if entry.required
            for value, (__, fewest) in self._excess(counts, entry.topology_key, entry.max_skew).items()
        )

    def refusal(self, name: str, counts: Counter[str]) -> str:
        """Return the reason why a cluster must not have one more replica, even with free capacity. Empty if it can."""
        cluster = self._fleet[name]
        new_counts = counts + Counter({name: 1})
        for entry in self._deployment.spread:
            key, value = entry.topology_key, topology_domain(cluster, entry.topology_key)
            if not entry.required:
                continue
            if not value:
                return f"has no label {key}, over which spread distributes the replicas"
            excess = self._excess(new_counts, key, entry.max_skew)
            if value in excess:
                least_domain, fewest = excess[value]
                return (
                    f"{key} {value} would have {self._totals(new_counts, key)[value]} replicas and {least_domain} has "
                    f"{fewest}, which is over maxSkew {entry.max_skew} of spread"
                )
        if self._with_minimum(new_counts) > self._most_with_minimum:
            lacking = [
                f"{value} of {entry.topology_key} has {entry.replicas - missing} of {entry.replicas}"
                for entry in self._deployment.minimum
                if entry.topology_key
                for value, missing in self._lacking(counts, entry.topology_key, entry.replicas).items()
            ]
            return f"the replicas that are left are kept for minAvailable: {some(lacking, 3)}"
        return ""

    def _totals(self, counts: Counter[str], key: str) -> Counter[str]:
        totals = Counter[str]()
        for name, count in counts.items():
            cluster = self._fleet.get(name)
            if cluster is not None:
                totals[topology_domain(cluster, key)] += count
        return totals

    def _lacking(self, counts: Counter[str], key: str, replicas: int) -> dict[str, int]:
        """Return the number of missing replicas of each label value that lacks replicas."""
        totals = self._totals(counts, key)
        return {value: replicas - totals[value] for value in self._domains[key] if totals[value] < replicas}

    def _with_minimum(self, counts: Counter[str]) -> int:
        """Return the number of replicas, including the missing replicas of the minimum that lacks most."""
        lacking = [
            sum(self._lacking(counts, entry.topology_key, entry.replicas).values())
            for entry in self._deployment.minimum
            if entry.topology_key
        ]
        return sum(counts.values()) + max(lacking, default=0)

    def _excess(self, counts: Counter[str], key: str, max_skew: int) -> dict[str, tuple[str, int]]:
        """Return the label values with too many replicas, with the value that has fewest replicas and its count."""
        totals, kept_totals = self._totals(counts, key), self._totals(self._kept, key)
        least_domain = min(self._domains[key], key=lambda value: (totals[value], value), default="")
        limit = totals[least_domain] + max_skew
        return {
            value: (least_domain, totals[least_domain])
            for value, total in totals.items()
            if total > max(limit if value else 0, kept_totals[value])
        }


def _keys(deployment: Deployment) -> set[str]:
    """Return the cluster labels that a deployment distributes its replicas over."""
    spread = {entry.topology_key for entry in deployment.spread}
    return spread | {entry.topology_key for entry in deployment.minimum if entry.topology_key}


def preference(deployment: Deployment, cluster: Cluster) -> int:
    """Return the position of the first preference that a cluster meets, or the number of preferences if none."""
    for position, labels in enumerate(deployment.preferences):
        if meets(cluster, labels):
            return position
    return len(deployment.preferences)


def meets(cluster: Cluster, labels: Mapping[str, str]) -> bool:
    """Return True if a cluster has all of these labels."""
    return labels.items() <= cluster.all_labels.items()


def surplus(
    deployment: Deployment,
    fleet: Mapping[str, Cluster],
    placed: Iterable[tuple[str, int]],
    eligible: Iterable[str],
    desired: int,
    broken: Container[tuple[str, int]] = (),
) -> list[tuple[str, int]]:
    """Return the replicas to remove as (cluster, index) if `desired` replicas remain, in this order:

    1. replicas in `broken`, because they do not serve
    2. replicas that no minimum requires
    3. replicas with a removal that leaves the smallest skew of a required spread over the `eligible` clusters
    4. replicas on the least preferred clusters
    5. replicas of the label value with the most replicas
    6. replicas on the cluster with the most replicas
    7. replicas on the cluster with the last name, and within a cluster the replica with the highest index"""
    remaining = list(placed)
    counts = Counter(name for name, __ in remaining)
    victims = []
    is_spread = any(entry.required for entry in deployment.spread)
    distribution = Distribution(deployment, fleet, eligible, Counter()) if is_spread else None

    def rank(entry: tuple[str, int]) -> Rank:
        name, index = entry
        cluster = fleet.get(name)
        if cluster is None:
            return (entry in broken, True, 0, 0, (), counts[name], name, index)
        totals = {key: Counter[str]() for key in _keys(deployment)}
        for cluster_name, count in counts.items():
            for key, total in totals.items():
                if cluster_name in fleet:
                    total[topology_domain(fleet[cluster_name], key)] += count
        values = [(minimum, topology_domain(cluster, minimum.topology_key)) for minimum in deployment.minimum]
        spare = all(not value or totals[minimum.topology_key][value] > minimum.replicas for minimum, value in values)
        over = tuple(
            totals[spread.topology_key][topology_domain(cluster, spread.topology_key)] for spread in deployment.spread
        )
        excess = distribution.excess(counts - Counter({name: 1})) if distribution else 0
        return (entry in broken, spare, -excess, preference(deployment, cluster), over, counts[name], name, index)

    while len(remaining) > desired:
        victim = max(remaining, key=rank)
        remaining.remove(victim)
        counts[victim[0]] -= 1
        victims.append(victim)
    return victims
