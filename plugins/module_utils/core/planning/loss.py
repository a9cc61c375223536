# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Losses of clusters and node pools, and the replicas that no longer run after a loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..scheduling.model import Cluster, Pool, Replica
from ..scheduling.placement import schedule
from ..text import nearest_name
from .question import WHAT_IF, Lost, Question, QuestionError
from .scenario import Scenario

PoolKey = tuple[str, str]
"""Names of a cluster and of a node pool on it."""


@dataclass(frozen=True)
class Loss:
    """Clusters that are lost, and how many nodes of pools of other clusters."""

    clusters: frozenset[str] = frozenset()
    nodes: Mapping[PoolKey, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Displaced:
    """A replica that runs no longer where it did, and why."""

    replica: Replica
    reason: str


def loss_of(scenario: Scenario, question: Question) -> Loss:
    """Return the clusters and nodes that a query removes. Raises QuestionError for all names in the query that the
    fleet does not have."""
    deployments = {f"{deployment.namespace}/{deployment.name}" for deployment in scenario.deployments}
    problems = question.unknown(deployments, scenario.context.fleet.classes)
    clusters: set[str] = set()
    zones: dict[PoolKey, set[str]] = {}
    for index, entry in enumerate(question.lose or ()):
        selection = _Entry(scenario, entry, f"{WHAT_IF}.lose[{index}]")
        try:
            if entry.pool is None and entry.zone is None:
                clusters |= {cluster.name for cluster in selection.clusters()}
            else:
                for key, lost in selection.pools().items():
                    zones.setdefault(key, set()).update(lost)
        except QuestionError as error:
            problems += error.problems
    if problems:
        raise QuestionError(problems)
    pools = {(cluster.name, pool.name): pool for cluster in scenario.clusters for pool in cluster.pools}
    nodes = {
        key: _lost_nodes(pools[key], lost, _zones(scenario, key))
        for key, lost in sorted(zones.items())
        if key[0] not in clusters
    }
    return Loss(frozenset(clusters), nodes)


class _Entry:
    """Entry of a query, and the clusters and node pools that the entry selects."""

    def __init__(self, scenario: Scenario, entry: Lost, path: str) -> None:
        self._scenario, self._entry, self._path = scenario, entry, path

    def clusters(self) -> list[Cluster]:
        entry, fleet_clusters = self._entry, self._scenario.clusters
        matches = [cluster for cluster in fleet_clusters if entry.cluster in (None, cluster.name)]
        if not matches:
            names = [cluster.name for cluster in fleet_clusters]
            raise self._error("cluster", f"the fleet has no cluster {entry.cluster}", entry.cluster or "", names)
        for key, value in sorted((entry.match_labels or {}).items()):
            values = sorted({cluster.all_labels[key] for cluster in matches if key in cluster.all_labels})
            if not values:
                keys = sorted({name for cluster in fleet_clusters for name in cluster.all_labels})
                raise self._error("matchLabels", f"no such cluster has a label {key}", key, keys)
            if value not in values:
                raise self._error("matchLabels", f"no such cluster has the label {key}={value}", value, values)
            matches = [cluster for cluster in matches if cluster.all_labels.get(key) == value]
        return matches

    def pools(self) -> dict[PoolKey, frozenset[str]]:
        """Return the zones that each node pool loses: the named zone, or "" for all zones."""
        entry = self._entry
        pool_keys = [(cluster.name, pool.name) for cluster in self.clusters() for pool in cluster.pools]
        if entry.pool is not None:
            names = sorted({pool for __, pool in pool_keys})
            pool_keys = [key for key in pool_keys if key[1] == entry.pool]
            if not pool_keys:
                raise self._error("pool", f"no such cluster has a node pool {entry.pool}", entry.pool, names)
        if entry.zone is None:
            return {key: frozenset([""]) for key in pool_keys}
        zones = sorted({zone for key in pool_keys for zone in _zones(self._scenario, key)})
        pool_keys = [key for key in pool_keys if entry.zone in _zones(self._scenario, key)]
        if not pool_keys:
            raise self._error("zone", f"no such node pool is in the zone {entry.zone}", entry.zone, zones)
        return {key: frozenset([entry.zone]) for key in pool_keys}

    def _error(self, key: str, message: str, name: str, candidates: Iterable[str]) -> QuestionError:
        names = list(candidates)
        hint = nearest_name(name, names).replace("The fleet has", "There is") if names else "There is none."
        return QuestionError([f"{self._path}.{key}: {message}. {hint}"])


def _zones(scenario: Scenario, key: PoolKey) -> frozenset[str]:
    """Return the zones of a pool; empty if the pool names no zone."""
    cluster = scenario.context.fleet.clusters.get(key[0])
    pools = (cluster.spec.node_pools if cluster else None) or ()
    return frozenset(zone for pool in pools if pool.name == key[1] for zone in pool.zones or ())


def _lost_nodes(pool: Pool, lost: Iterable[str], zones: frozenset[str]) -> int:
    """Return the number of nodes that a pool loses with zones ("": all of them). The nodes are spread evenly over the
    zones, and the lost zones have the larger shares."""
    lost_zones = set(lost)
    if "" in lost_zones or lost_zones >= zones:
        return pool.nodes
    return -(-pool.nodes * len(lost_zones) // len(zones))


def without(scenario: Scenario, lost: Loss) -> tuple[Scenario, tuple[Displaced, ...]]:
    """Return a fleet after a loss and before rescheduling, and the replicas that the loss displaced."""
    clusters = tuple(_left(cluster, lost) for cluster in scenario.clusters if cluster.name not in lost.clusters)
    lost_pools = {(cluster, pool) for (cluster, pool) in lost.nodes if pool not in _pools(clusters, cluster)}
    displaced = [
        Displaced(replica, reason)
        for replica in scenario.running
        if (reason := _reason(replica, lost.clusters, lost_pools))
    ]
    running = _others(scenario.running, displaced)
    for key in sorted(set(lost.nodes) - lost_pools):
        cluster = next(candidate for candidate in clusters if candidate.name == key[0])
        crowded = _crowded(scenario, running, cluster, key[1])
        displaced += [Displaced(replica, f"pool {key[1]} on {key[0]} has fewer nodes") for replica in crowded]
        running = _others(running, displaced)
    running_keys = {(replica.namespace, replica.name) for replica in running}
    resources = {key: resource for key, resource in scenario.resources.items() if key in running_keys}
    remaining_scenario = replace(scenario, clusters=clusters, running=tuple(running), resources=resources)
    return remaining_scenario, tuple(displaced)


def _others(running: Iterable[Replica], displaced: Iterable[Displaced]) -> list[Replica]:
    keys = {(entry.replica.namespace, entry.replica.name) for entry in displaced}
    return [replica for replica in running if (replica.namespace, replica.name) not in keys]


def _left(cluster: Cluster, lost: Loss) -> Cluster:
    """Return a cluster with the nodes that it still has; a pool without any is gone."""
    if not any(name == cluster.name for name, __ in lost.nodes):
        return cluster
    pools = [
        pool.with_nodes(pool.nodes - lost.nodes.get((cluster.name, pool.name), 0))
        for pool in cluster.pools
        if lost.nodes.get((cluster.name, pool.name), -1) < pool.nodes
    ]
    return replace(cluster, pools=tuple(pools))


def _pools(clusters: Iterable[Cluster], name: str) -> set[str]:
    return {pool.name for cluster in clusters if cluster.name == name for pool in cluster.pools}


def _reason(replica: Replica, clusters: frozenset[str], pools: set[PoolKey]) -> str:
    if replica.cluster in clusters:
        return f"cluster {replica.cluster} is lost"
    used = sorted(name for name in pools_of(replica) if (replica.cluster, name) in pools)
    return f"pool {used[0]} on {replica.cluster} is lost" if used else ""


def pools_of(replica: Replica) -> dict[str, None]:
    """Return the node pools of a replica, each once."""
    members = (member for engine in replica.engines for member in engine.members)
    return dict.fromkeys(pool for member in members for pool, __ in member.pods_by_pool)


def _crowded(scenario: Scenario, running: Sequence[Replica], cluster: Cluster, pool: str) -> list[Replica]:
    """Return the replicas that exceed the remaining capacity of a node pool with lost nodes.

    The replicas on the lost nodes are unknown. Therefore, the replicas that the scheduler places last are displaced
    first.
    """
    order = {deployment.key: deployment.order for deployment in scenario.deployments}

    def rank(replica: Replica) -> tuple[bool, object]:
        # Hand-written replicas are not placed again, so they are displaced last.
        key = (replica.namespace, replica.deployment)
        return bool(replica.deployment), (order.get(key, (0, "", *key)), replica.index, replica.name)

    cluster_replicas = [replica for replica in running if replica.cluster == cluster.name]
    users = sorted((replica for replica in cluster_replicas if pool in pools_of(replica)), key=rank)
    other_replicas = [replica for replica in cluster_replicas if pool not in pools_of(replica)]

    def fits(number: int) -> bool:
        decided = schedule((), (cluster,), [*other_replicas, *users[:number]], scenario.options)
        return not any(refusal.pool == pool for refusal in decided.overcommitted)

    return users[_most(len(users), fits) :]


def _most(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to a limit that fits, if all smaller numbers fit too."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
