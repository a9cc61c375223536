# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Groups and orders of the rows of the HTML report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..output.changes import ObjectChanges
from ..output.status import CacheStatus
from . import words
from .links import Links
from .views import ClusterView, ReplicaView, Report, ServiceView

_MEANINGS = {
    "new": "placed by this plan",
    "changed": "in place, with another template",
    "replaced": "what ran goes, and another one comes in its place",
    "held": "left exactly as it is, because something about it cannot be read or decided",
    "kept": "nothing changes",
    "leaving": "running until others serve instead",
    "manual": "written by hand; counts against capacity and is left alone",
}
_MAX_OPEN_ROWS = 25
# The first build of a large fleet writes tens of thousands of files. Then only directories are listed.
_MAX_FILES = 3_000
_MAX_DIRECTORIES = 1_000


@dataclass(frozen=True)
class StateGroup:
    """Replicas of a state, with the IDs of their elements."""

    state: str
    meaning: str
    rows: Sequence[tuple[str, ReplicaView]]

    @property
    def is_open(self) -> bool:
        return self.state not in ("kept", "manual") and len(self.rows) <= _MAX_OPEN_ROWS


def by_state(replicas: Sequence[ReplicaView]) -> list[StateGroup]:
    """Return replicas by state, without empty groups."""
    groups: dict[str, list[tuple[str, ReplicaView]]] = {state: [] for state in _MEANINGS}
    for position, replica in enumerate(replicas):
        groups.setdefault(replica.state, []).append((f"r{position}", replica))
    return [StateGroup(state, _MEANINGS.get(state, state), rows) for state, rows in groups.items() if rows]


@dataclass(frozen=True)
class Directories:
    """Paths by directory.

    listed: directories with the names of their files.
    has_names: whether the report lists names of files.
    omitted: number of directories that the report does not list.
    """

    listed: Sequence[tuple[str, Sequence[str]]]
    has_names: bool
    omitted: int


def by_directory(paths: Sequence[str]) -> Directories:
    """Return paths by directory, sorted."""
    directories: dict[str, list[str]] = {}
    for path in sorted(paths):
        directory, __, name = path.rpartition("/")
        directories.setdefault(directory, []).append(name)
    listed = list(directories.items())[:_MAX_DIRECTORIES]
    return Directories(listed, len(paths) <= _MAX_FILES, len(directories) - len(listed))


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
    """Return the clusters without endpoints of services, except those that only run a gateway."""
    keys = {
        (service.status.namespace, endpoint.replica) for service in report.services for endpoint in service.endpoints
    }
    routed = {links.replicas[key].placement.cluster for key in keys if key in links.replicas}
    return [
        cluster for cluster in report.clusters if cluster.name not in routed and (cluster.pools or not cluster.gateways)
    ]


def ordered_services(report: Report) -> list[tuple[str, ServiceView]]:
    """Return services with the IDs of their elements. If there are many, the worst are first."""
    rows = [(f"s{position}", service) for position, service in enumerate(report.services)]
    return rows if report.has_few_services else sorted(rows, key=lambda row: words.health_rank(row[1].status.status))
