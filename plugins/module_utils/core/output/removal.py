# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Summary of a teardown: objects that are removed from each cluster, and deployments and services that stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..names import DEPLOYMENT_LABEL, NAMESPACE_LABEL, REPLICA_LABEL, label_value
from ..text import count, some
from ..wire import Object, entries, label, text

_MOST_NAMES = 5


@dataclass(frozen=True)
class ClusterRemoval:
    """Objects that a teardown removes from one cluster.

    `cluster`: name of the cluster, empty for the control cluster.
    `objects`: live objects that are removed.
    `kept`: number of objects that are not removed.
    `error`: reason why the cluster could not be compared.
    """

    cluster: str
    objects: Sequence[Object] = ()
    kept: int = 0
    error: str = ""

    @property
    def replicas(self) -> list[str]:
        """Return the replicas of the removed objects."""
        return [f"{namespace}/{name}" for namespace, name in sorted(self.deployments)]

    @property
    def deployments(self) -> dict[tuple[str, str], str]:
        """Return the deployment of each replica with removed objects, or "" for a replica that a user wrote."""
        return {
            (label(value, NAMESPACE_LABEL), label(value, REPLICA_LABEL)): label(value, DEPLOYMENT_LABEL)
            for value in self.objects
            if label(value, REPLICA_LABEL)
        }


def removal_lines(removals: Iterable[ClusterRemoval], plan: Mapping[str, Any]) -> list[str]:
    """Return a line for each cluster, and for each deployment and service of the last plan that loses replicas."""
    removals = list(removals)
    emptied = {removal.cluster for removal in removals if removal.cluster and not removal.error}
    return [*map(_cluster_line, removals), *_deployment_lines(plan, removals), *_service_lines(plan, emptied)]


def _cluster_line(removal: ClusterRemoval) -> str:
    cluster = f"cluster {removal.cluster}" if removal.cluster else "control cluster"
    if removal.error:
        return f"{cluster}: {removal.error}"
    if not removal.objects:
        return f"{cluster}: nothing to remove"
    counts = []
    if removal.cluster:
        replicas = removal.replicas
        names = f" ({some(replicas, _MOST_NAMES)})" if replicas else ""
        counts.append(f"{count(len(replicas), 'replica')}{names}")
    kinds = Counter(text(value, "kind") for value in removal.objects)
    by_kind = ", ".join(
        f"{number} {kind}" for kind, number in sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    )
    counts.append(f"{count(len(removal.objects), 'object')}: {by_kind}")
    if removal.kept:
        counts.append(f"{removal.kept} kept")
    return f"{cluster}: {'; '.join(counts)}"


def _deployment_lines(plan: Mapping[str, Any], removals: Iterable[ClusterRemoval]) -> list[str]:
    """Return a line for each deployment with replicas on clusters that are emptied."""
    lost = {replica: owner for removal in removals if removal.cluster for replica, owner in removal.deployments.items()}
    planned = {
        (label_value(text(entry, "namespace")), label_value(text(entry, "replica"))): text(entry, "deployment")
        for entry in entries(plan, "placements")
    }
    owners = {replica: (replica[0], label_value(owner)) for replica, owner in {**planned, **lost}.items() if owner}
    planned_counts = Counter(owners.values())
    lost_counts = Counter(owners[replica] for replica in lost if replica in owners)
    if not planned:
        # Other clusters might have more replicas.
        return [
            f"deployment {'/'.join(owner)}: loses {count(lost_counts[owner], 'replica')}"
            for owner in sorted(lost_counts)
        ]
    return [
        f"deployment {'/'.join(owner)}: loses {_part(lost_counts[owner], planned_counts[owner], 'replica')}"
        for owner in sorted(lost_counts)
    ]


def _part(lost_count: int, total: int, noun: str) -> str:
    if lost_count < total:
        return f"{lost_count} of {count(total, noun)}"
    return f"all {count(lost_count, noun)}" if lost_count > 1 else f"the only {noun}"


def _service_lines(plan: Mapping[str, Any], emptied: set[str]) -> list[str]:
    """Return a line for each service that has endpoints on emptied clusters."""
    lost_replicas = {
        (text(entry, "namespace"), text(entry, "replica"))
        for entry in entries(plan, "placements")
        if text(entry, "cluster") in emptied
    }
    lines = []
    for service in entries(plan, "services"):
        namespace = text(service, "namespace")
        endpoints = [text(endpoint, "name") for endpoint in entries(service, "endpoints")]
        lost = sum((namespace, name) in lost_replicas for name in endpoints)
        if lost:
            number = _part(lost, len(endpoints), "endpoint")
            lines.append(f"service {namespace}/{text(service, 'name')}: loses {number}")
    return lines
