# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Links between the elements of the HTML report, and the requests from services to replicas.

IDs of elements are positions (`c0`, `r0`, `s0`), because an ID must not contain names from users.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..output.plan import PlannedRefusal
from ..scheduling.model import pools_of
from . import words
from .views import ClusterView, PoolView, ReplicaView, Report

Key = tuple[str, str]
K = TypeVar("K")

COLORS = 10
"""Number of colors. If a fleet has more deployments, deployments share colors. Numbers and names distinguish them."""

# In larger fleets, drawings of nodes would be most of the page. The report then draws each pool as one bar.
_MAX_DRAWN_CLUSTERS = 100


@dataclass(frozen=True)
class Sender:
    """Service that sends requests to a replica.

    service_id: ID of the element of the service.
    share: share of the requests of the service, as text.
    """

    service_id: str
    name: str
    share: str


@dataclass(frozen=True)
class Target:
    """Replica behind an endpoint of a service. IDs are empty without an element.

    cluster_state: empty for a cluster that is not in the fleet.
    """

    cluster_name: str
    cluster_id: str
    cluster_state: str
    replica_id: str
    replica_status: str
    pools: Sequence[PoolView]


class Ids(dict[K, str]):
    """IDs of elements. Empty for names without an element."""

    def __missing__(self, _name: K) -> str:
        return ""


@dataclass(frozen=True)
class Links:
    """IDs of elements, and rows of the report.

    cluster_ids: by cluster name.
    service_ids: by namespace and name.
    replica_ids: by namespace and name.
    clusters: by name.
    replicas: by namespace and name.
    targets: by namespace and name of the replica.
    senders: by namespace and name of the replica.
    refusals: by namespace and name of the deployment.
    colors: by namespace and name of the deployment.
    is_drawn: True if the report draws pools as nodes.
    """

    cluster_ids: Ids[str]
    service_ids: Ids[Key]
    replica_ids: Ids[Key]
    clusters: Mapping[str, ClusterView]
    replicas: Mapping[Key, ReplicaView]
    targets: Mapping[Key, Target]
    senders: Mapping[Key, list[Sender]]
    refusals: Mapping[Key, Sequence[PlannedRefusal]]
    colors: Mapping[Key, int]
    is_drawn: bool

    def subject_id(self, subject: str, key: Key) -> str:
        """Return the ID of the element of the subject of a finding, empty without an element."""
        if subject == "service":
            return self.service_ids[key]
        return self.replica_ids[key] if subject == "replica" else ""

    def are_all_clusters(self, names: Collection[str]) -> bool:
        """Return True if these names include all clusters of the fleet."""
        return len(names) >= len(self.cluster_ids) and set(names) >= set(self.cluster_ids)

    @property
    def has_distinct_colors(self) -> bool:
        """Return True if there are deployments, and all of them have different colors."""
        return 0 < len(self.colors) <= COLORS


def link_index(report: Report) -> Links:
    """Return the links of a report. If replicas share a name in a namespace, links point to the first replica."""
    replicas: dict[Key, ReplicaView] = {}
    replica_ids: Ids[Key] = Ids()
    for position, replica in enumerate(report.replicas):
        replicas.setdefault(replica.key, replica)
        replica_ids.setdefault(replica.key, f"r{position}")
    clusters = {cluster.name: cluster for cluster in report.clusters}
    cluster_ids = Ids((cluster.name, f"c{position}") for position, cluster in enumerate(report.clusters))
    return Links(
        cluster_ids=cluster_ids,
        service_ids=Ids((service.key, f"s{position}") for position, service in enumerate(report.services)),
        replica_ids=replica_ids,
        clusters=clusters,
        replicas=replicas,
        targets={
            key: _target(replica, replica_ids[key], clusters.get(replica.placement.cluster), cluster_ids)
            for key, replica in replicas.items()
        },
        senders=_senders(report),
        refusals={(row.namespace, row.deployment): row.refusals for row in report.pending},
        colors={key: position % COLORS for position, key in enumerate(_deployments(report))},
        is_drawn=len(report.clusters) <= _MAX_DRAWN_CLUSTERS,
    )


def _target(replica: ReplicaView, replica_id: str, cluster: ClusterView | None, cluster_ids: Ids[str]) -> Target:
    name = replica.placement.cluster
    pool_names = pools_of(replica.placement.engines)
    return Target(
        cluster_name=name,
        cluster_id=cluster_ids[name],
        cluster_state=cluster.status.state if cluster else "",
        replica_id=replica_id,
        replica_status=replica.status.status,
        pools=[pool for pool in cluster.pools if pool.status.name in pool_names] if cluster else (),
    )


def _senders(report: Report) -> dict[Key, list[Sender]]:
    senders: dict[Key, list[Sender]] = {}
    for position, service in enumerate(report.services):
        total_weight = service.total_weight
        for endpoint in service.active_endpoints:
            if endpoint.replica:
                sender = Sender(f"s{position}", service.name, words.percent(endpoint.weight, total_weight))
                senders.setdefault((service.status.namespace, endpoint.replica), []).append(sender)
    return senders


def _deployments(report: Report) -> list[Key]:
    keys = {(replica.placement.namespace, replica.placement.deployment) for replica in report.replicas}
    for cluster in report.clusters:
        for pool in cluster.pools:
            keys.update((pods.namespace, pods.deployment) for pods in pool.occupied)
    return sorted(keys)
