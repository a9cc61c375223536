# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Summary of a teardown: objects that are removed from each cluster, and services that lose endpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import NAMESPACE_LABEL, REPLICA_LABEL
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import count, some
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, entries, text

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
        """Return the replicas whose objects are removed."""
        replicas = {
            (text(value, "metadata", "labels", NAMESPACE_LABEL), text(value, "metadata", "labels", REPLICA_LABEL))
            for value in self.objects
        }
        return [f"{namespace}/{name}" for namespace, name in sorted(replicas) if name]


def removal_lines(removals: Iterable[ClusterRemoval], plan: Mapping[str, Any]) -> list[str]:
    """Return a line for each cluster, and a line for each service of the last plan that loses endpoints."""
    removals = list(removals)
    emptied = {removal.cluster for removal in removals if removal.cluster and not removal.error}
    return [*map(_cluster_line, removals), *_service_lines(plan, emptied)]


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
            total = len(endpoints)
            number = f"{lost} of {count(total, 'endpoint')}" if lost < total else f"all {count(total, 'endpoint')}"
            lines.append(f"service {namespace}/{text(service, 'name')}: loses {number}")
    return lines
