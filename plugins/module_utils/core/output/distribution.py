# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Planned distribution of replicas over clusters, for deployments with constraints on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..planning import Plan
from ..scheduling.distribution import preference, topology_domain
from ..scheduling.eligibility import cluster_refusal
from ..scheduling.model import Cluster, Deployment, Dropped, Minimum, Spread


@dataclass(frozen=True)
class Place:
    """Cluster with its number of replicas of the deployment."""

    cluster: str
    replicas: int


@dataclass(frozen=True)
class LabelValue:
    """Value of a cluster label, with its replicas."""

    value: str
    replicas: int
    takes_new: bool
    """True if a cluster with this value accepts new replicas."""
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Topology:
    """Cluster label that a deployment uses in `spread` or `minAvailable`."""

    key: str
    values: tuple[LabelValue, ...]
    minimum: int | None
    """Minimum number of replicas for each value. None without `minAvailable`."""
    max_skew: int | None
    most: int | None
    """Maximum that `max_skew` currently allows, relative to the value `fewest`. None without a spread. It only orders
    clusters unless `required` is set."""
    fewest: str
    """Value with the fewest replicas, "" without a spread."""
    required: bool


@dataclass(frozen=True)
class Tier:
    """Clusters of one term of `clusterPreferences`. Without labels, all other clusters."""

    labels: Mapping[str, str]
    replicas: int
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Leaving:
    """Replica that another replica replaces: it returns to preferred clusters, or is preempted."""

    namespace: str
    deployment: str
    replica: str
    cluster: str
    stays: bool
    reason: str


@dataclass(frozen=True)
class Distribution:
    """Replicas of a deployment."""

    namespace: str
    deployment: str
    replicas: int
    desired: int
    minimum: int | None
    topologies: tuple[Topology, ...]
    tiers: tuple[Tier, ...]
    returns: bool
    preempts: bool
    leaving: tuple[Leaving, ...]
    """Leaving replicas of this deployment."""
    preempted: tuple[Leaving, ...]
    """Replicas of other deployments that it preempts."""


def distributions(plan: Plan) -> list[Distribution]:
    """Return the distribution of each deployment with a spread, preferences, a minimum, or preemption, by name."""
    asking = sorted(
        (deployment for deployment in plan.deployments if deployment.is_distributed or deployment.preempts),
        key=lambda deployment: deployment.key,
    )
    counts: dict[tuple[str, str], Counter[str]] = {deployment.key: Counter() for deployment in asking}
    for placement in plan.schedule.placements:
        if (placement.namespace, placement.deployment) in counts:
            counts[placement.namespace, placement.deployment][placement.cluster] += 1
    stay = {(replica.namespace, replica.name) for replica in plan.leaving}
    return [_distribution(deployment, plan, counts[deployment.key], stay) for deployment in asking]


def _distribution(deployment: Deployment, plan: Plan, counts: Counter[str], stay: set[tuple[str, str]]) -> Distribution:
    eligible = {cluster.name for cluster in plan.clusters if not cluster_refusal(deployment, cluster)}
    clusters = [cluster for cluster in plan.clusters if cluster.name in eligible or counts[cluster.name]]
    spread = {entry.topology_key: entry for entry in deployment.spread}
    minimum = {entry.topology_key: entry for entry in deployment.minimum}
    dropped = plan.schedule.dropped
    own_drops = [entry for entry in dropped if (entry.replica.namespace, entry.replica.deployment) == deployment.key]
    name = "/".join(deployment.key)
    return Distribution(
        deployment.namespace,
        deployment.name,
        replicas=counts.total(),
        desired=deployment.replicas,
        minimum=minimum[""].replicas if "" in minimum else None,
        topologies=tuple(
            _topology(key, spread.get(key), minimum.get(key), clusters, eligible, counts)
            for key in dict.fromkeys((*spread, *minimum))
            if key
        ),
        tiers=_tiers(deployment, clusters, counts),
        returns=deployment.returns,
        preempts=deployment.preempts,
        leaving=tuple(_leaving(entry, stay) for entry in own_drops if entry.may_stay),
        preempted=tuple(_leaving(entry, stay) for entry in dropped if entry.preempted_by == name and not entry.evicted),
    )


def _topology(
    key: str,
    spread: Spread | None,
    minimum: Minimum | None,
    clusters: Sequence[Cluster],
    eligible: set[str],
    counts: Counter[str],
) -> Topology:
    by_value: dict[str, list[Cluster]] = {}
    for cluster in clusters:
        by_value.setdefault(topology_domain(cluster, key), []).append(cluster)
    values = tuple(
        LabelValue(
            value,
            sum(counts[cluster.name] for cluster in members),
            any(cluster.name in eligible for cluster in members),
            _places(members, counts),
        )
        for value, members in sorted(by_value.items())
    )
    fewest = min(
        (domain for domain in values if domain.value and domain.takes_new),
        key=lambda domain: (domain.replicas, domain.value),
        default=None,
    )
    return Topology(
        key,
        values,
        minimum=minimum.replicas if minimum else None,
        max_skew=spread.max_skew if spread else None,
        most=fewest.replicas + spread.max_skew if spread and fewest else None,
        fewest=fewest.value if fewest else "",
        required=bool(spread and spread.required),
    )


def _tiers(deployment: Deployment, clusters: Sequence[Cluster], counts: Counter[str]) -> tuple[Tier, ...]:
    if not deployment.preferences:
        return ()
    members: list[list[Cluster]] = [[] for __ in range(len(deployment.preferences) + 1)]
    for cluster in clusters:
        members[preference(deployment, cluster)].append(cluster)
    return tuple(
        Tier(dict(labels), sum(counts[cluster.name] for cluster in group), _places(group, counts))
        for labels, group in zip((*deployment.preferences, {}), members, strict=True)
    )


def _places(clusters: Sequence[Cluster], counts: Counter[str]) -> tuple[Place, ...]:
    return tuple(Place(cluster.name, counts[cluster.name]) for cluster in clusters)


def _leaving(entry: Dropped, stay: set[tuple[str, str]]) -> Leaving:
    replica = entry.replica
    return Leaving(
        replica.namespace,
        replica.deployment,
        replica.name,
        replica.cluster,
        stays=(replica.namespace, replica.name) in stay,
        reason=entry.reason,
    )
