# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Groups and orders of the rows of the HTML report."""

from __future__ import annotations

from collections.abc import Sequence

from ..output.changes import ObjectChanges
from ..output.status import CacheStatus
from . import words
from .links import Links
from .views import ClusterView, ReplicaView, Report, ServiceView

_STATES = ("new", "changed", "replaced", "held", "kept", "leaving", "manual")


def by_state(replicas: Sequence[ReplicaView]) -> list[tuple[str, list[tuple[str, ReplicaView]]]]:
    """Return replicas by state with the IDs of their elements, without empty groups."""
    groups: dict[str, list[tuple[str, ReplicaView]]] = {state: [] for state in _STATES}
    for position, replica in enumerate(replicas):
        groups.setdefault(replica.state, []).append((f"r{position}", replica))
    return [(state, rows) for state, rows in groups.items() if rows]


def by_directory(paths: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the names of files by directory, sorted by path."""
    directories: dict[str, list[str]] = {}
    for path in sorted(paths):
        directory, __, name = path.rpartition("/")
        directories.setdefault(directory, []).append(name)
    return list(directories.items())


def by_phase(cache: CacheStatus) -> list[tuple[str, str, list[str]]]:
    """Return the phases of a cache with message and clusters, sorted."""
    phases: dict[tuple[str, str], list[str]] = {}
    for row in cache.clusters:
        phases.setdefault((row.phase, row.message), []).append(row.cluster)
    return [(phase, message, phases[phase, message]) for phase, message in sorted(phases)]


def object_counts(changes: Sequence[ObjectChanges]) -> str:
    """Return the number of changed objects of all clusters: `2 created, 1 removed`."""
    counts = {kind: sum(getattr(row, kind) for row in changes) for kind in ("created", "changed", "removed")}
    return ", ".join(f"{number:,} {kind}" for kind, number in counts.items() if number)


def unrouted_clusters(report: Report, links: Links) -> list[ClusterView]:
    """Return the clusters without endpoints of services, except clusters that only run a gateway."""
    keys = {
        (service.status.namespace, endpoint.replica) for service in report.services for endpoint in service.endpoints
    }
    routed = {links.replicas[key].placement.cluster for key in keys if key in links.replicas}
    return [
        cluster for cluster in report.clusters if cluster.name not in routed and (cluster.pools or not cluster.gateways)
    ]


def ordered_services(services: Sequence[ServiceView], few: int) -> list[tuple[str, ServiceView]]:
    """Return services with the IDs of their elements. If there are more than `few`, the worst services are first."""
    rows = [(f"s{position}", service) for position, service in enumerate(services)]
    return rows if len(rows) <= few else sorted(rows, key=lambda row: words.health_rank(row[1].status.status))
