# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Observations of a fleet for modules: their arguments, results and warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core import api
from ..core.text import first_lines
from ..kubernetes.observe import ClusterSnapshot
from ..kubernetes.observe_fleet import FleetSnapshot, observe_fleet
from ..usecases.fleet_inputs import read_manifests
from .cluster_options import connections, control_connection, forks

UNREAD: dict[str, Any] = {name: {"type": "list", "elements": "str", "default": []} for name in ("others", "declared")}
"""Arguments that name the clusters of the fleet that the module does not read."""
# A person reads some; all of them are in the result.
_MOST_WARNINGS = 20


def observe(params: Mapping[str, Any], before: FleetSnapshot | None = None, *, write_cache: bool) -> FleetSnapshot:
    """Observe the clusters in the arguments. Raise ApiError and ArgumentsError.

    `before`: an earlier snapshot. Its observations of inference clusters are kept."""
    return observe_fleet(
        list(connections(params).values()),
        control_connection(params),
        [api.wire(resource) for resource in read_manifests(params["resources"]).resources],
        before,
        others=params["others"],
        declared=params["declared"],
        width=forks(params),
        write_cache=write_cache,
        fleet=params.get("fleet") or "",
    )


def warnings(fleet: FleetSnapshot) -> list[str]:
    """Return a line for each warning of clusters that responded."""
    lines = [f"control cluster: {line}" for line in fleet.control.warnings]
    lines += [f"cluster {name}: {line}" for name, seen in fleet.clusters.items() for line in seen.warnings]
    return _some(lines)


def silent(fleet: FleetSnapshot) -> list[str]:
    """Return a line for each cluster that did not answer."""
    return _some([f"cluster {name}: {seen.unreachable}" for name, seen in fleet.clusters.items() if seen.unreachable])


def _some(lines: Sequence[str]) -> list[str]:
    return first_lines(lines, _MOST_WARNINGS, "and {} more, which are in the result")


def clusters(fleet: FleetSnapshot) -> dict[str, dict[str, Any]]:
    """Return the result for each cluster by its name."""
    return {name: _cluster(seen) for name, seen in fleet.clusters.items()}


def _cluster(seen: ClusterSnapshot) -> dict[str, Any]:
    if seen.unreachable:
        return {"changed": False, "failed": True, "unreachable": True, "msg": seen.unreachable}
    return {
        "changed": False,
        "failed": False,
        "unreachable": False,
        "msg": seen.summary,
        "version": seen.version,
        "nodes": {
            pool: {"ready": nodes.ready, "total": nodes.total, "cordoned": list(nodes.cordoned)}
            for pool, nodes in seen.nodes.items()
        },
        "gateway": seen.gateway,
        "stack": seen.entry["stack"],
        "workloads": list(seen.workloads),
        "failing_pods": list(seen.failing_pods),
        "warnings": list(seen.warnings),
    }
