# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Snapshot of all clusters of a run: an observation of the fleet (`core/observation.py`), and notes for users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.compose.model_gateway.callers import KeySecret
from ..core.observation import NOT_THIS_RUN
from ..core.status.expected import ExpectedCluster, expected
from ..core.wire import Object
from .client import Client
from .connection import Connection, connect
from .errors import ApiError
from .fanout import fan_out
from .observe import ClusterSnapshot, observe_cluster, unreachable
from .observe_budgets import with_budgets
from .observe_control import ControlSnapshot, no_control, observe_control


@dataclass(frozen=True)
class FleetSnapshot:
    """Snapshot of a fleet."""

    control: ControlSnapshot
    clusters: Mapping[str, ClusterSnapshot]
    others: Sequence[str] = ()
    """Clusters of the fleet outside this run."""
    declared: Sequence[str] = ()
    """File-based clusters, which are not read."""

    @property
    def requests(self) -> int:
        """Number of requests that were sent."""
        return self.control.requests + sum(snapshot.requests for snapshot in self.clusters.values())

    def document(self) -> dict[str, Any]:
        """Return the observation in the format of `core.observation.parse`."""
        entries: dict[str, dict[str, Any]] = {name: dict(unreachable(NOT_THIS_RUN).entry) for name in self.others}
        entries |= {name: {"declared": True} for name in self.declared}
        entries |= {name: dict(snapshot.entry) for name, snapshot in self.clusters.items()}
        return {"control": dict(self.control.entry), "clusters": dict(sorted(entries.items()))}


def observe_fleet(
    connections: Sequence[Connection],
    control: Connection | None,
    resources: Sequence[Object],
    before: FleetSnapshot | None = None,
    *,
    others: Iterable[str] = (),
    declared: Iterable[str] = (),
    width: int = 32,
    write_cache: bool = True,
    fleet: str = "",
) -> FleetSnapshot:
    """Read the control cluster, and then all other clusters in parallel.

    `resources` (wire form) and the resources on the control cluster determine the objects to read. `resources` take
    precedence. With `before`, only the control cluster is read, and other clusters are copied from that snapshot. The
    snapshot contains the error of each unreadable cluster. Raise ApiError if the control cluster cannot be read,
    because all its objects would count as deleted. `fleet`: name of the fleet with the inventories to read, empty for
    none.
    """
    names = {connection.name for connection in connections}
    files = sorted(set(declared) - names)
    skipped = sorted(set(others) - names - set(files))
    if control is None:
        desired = expected(resources)
        return FleetSnapshot(
            no_control(), _snapshots(connections, desired.cluster, None, width, write_cache, fleet), skipped, files
        )
    with connect(control, write_cache=write_cache) as client:
        seen = observe_control(client, expected(resources), fleet)
        if before is not None:
            return replace(before, control=seen)
        desired = expected([*seen.resources, *resources], _key_secrets(seen.entry["secrets"]))
        snapshots = _snapshots(connections, desired.cluster, client, width, write_cache, fleet)
        return FleetSnapshot(seen, snapshots, skipped, files)


def _key_secrets(entries: Iterable[Mapping[str, Any]]) -> list[KeySecret]:
    """Return the Secrets with API keys in an observation. Only these Secrets are listed with labels."""
    return [KeySecret(entry["labels"], tuple(entry["keys"])) for entry in entries if "labels" in entry]


def _snapshots(
    connections: Iterable[Connection],
    desired: Callable[[str], ExpectedCluster],
    control: Client | None,
    width: int,
    write_cache: bool,
    fleet: str,
) -> dict[str, ClusterSnapshot]:
    def snapshot(connection: Connection) -> ClusterSnapshot:
        with connect(connection, control, write_cache=write_cache) as client:
            expected_cluster = desired(connection.name)
            return with_budgets(observe_cluster(client, expected_cluster, fleet), client, expected_cluster.callers)

    outcomes = fan_out({member.name: lambda member=member: snapshot(member) for member in connections}, width)  # type: ignore[misc]
    return {
        name: unreachable(outcome) if isinstance(outcome, ApiError) else outcome for name, outcome in outcomes.items()
    }
