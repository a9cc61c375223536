# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A plan as a table for terminals, and as the document plan.json for programs."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cache import SecretCopy
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.service import MatchedEndpoint
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.traffic import RoutedService
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling import adapters
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Pending,
    PlacedEngine,
    PlacedMember,
    Placement,
    Refusal,
    Replica,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import first_lines, printable, some

_TITLES = ("DEPLOYMENT", "REPLICA", "CLUSTER", "POOL", "DEVICES", "STATE")
_SERVICE_TITLES = ("SERVICE", "URL", "IN USE")
_LEAST = 10
_NO_BREAK = "\u00a0"
# Limit on the reasons of a pending deployment in the table; plan.json has all of them.
_MOST_REASONS = 12


def table(plan: Plan, width: int = 72) -> list[str]:
    """Return the table of replicas: a row per replica, and below each deployment with missing replicas the reasons.

    No line is longer than `width`, which is at least 60."""
    return _lines(_TITLES, _rows(plan), width) or ["No replicas are desired or running."]


def services_table(plan: Plan, width: int = 72) -> list[str]:
    """Return the table of services: a row per service, and below it its endpoints with requests, with their weights,
    those without, and notes. Empty for a fleet without services."""
    rows = []
    for routed in plan.traffic.services:
        members = routed.resolution.members
        used = [member for member in members if member.weight]
        # While the gateway has no address, only the path is known.
        cells = (
            f"{routed.namespace}/{routed.name}",
            routed.address or routed.path,
            f"{len(used)} of {len(members)}",
        )
        reasons = [
            f"{label}: {_listed(names)}"
            for label, names in (
                ("to", [f"{_name(member)}{_NO_BREAK}(weight{_NO_BREAK}{member.weight})" for member in used]),
                ("on standby", [_name(member) for member in members if member.usable and not member.weight]),
                ("not usable", [_name(member) for member in members if not member.usable]),
            )
            if names
        ]
        note = service_note(routed)
        rows.append((cells, [*reasons, *([note] if note else [])]))
    return _lines(_SERVICE_TITLES, rows, width)


def _name(member: MatchedEndpoint) -> str:
    return member.endpoint.name


def _listed(names: Sequence[str]) -> str:
    return some(names, _MOST_REASONS) + (" (plan.json has all of them)" if len(names) > _MOST_REASONS else "")


def _lines(titles: Sequence[str], rows: Sequence[tuple[Sequence[str], list[str]]], width: int) -> list[str]:
    """Return the titles, and each row followed by its indented reasons; empty without rows."""
    width = max(width, 60)
    widths = _widths(titles, [cells for cells, __ in rows], width)
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= width else 1
    lines = [_line(titles, widths, gap)]
    for cells, reasons in rows:
        lines.append(_line(cells, widths, gap))
        for reason in reasons:
            wrapped = textwrap.wrap(
                reason, width, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False
            )
            lines += [line.replace(_NO_BREAK, " ") for line in wrapped]
    return [printable(line) for line in lines] if rows else []


def _rows(plan: Plan) -> list[tuple[Sequence[str], list[str]]]:
    rows: list[tuple[tuple[str, str, int], Sequence[str], list[str]]] = []
    cells: Sequence[str]
    gone = {(entry["namespace"], entry["replica"]): entry for entry in removed(plan)}
    for placement, desired in zip(plan.schedule.placements, plan.replicas, strict=True):
        name = desired.name
        before = gone.pop((placement.namespace, name), None)
        reasons = [f"was: {before['reason']}"] if before else _held(placement)
        cells = (
            f"{placement.namespace}/{placement.deployment}",
            _own_part(name, placement.deployment),
            placement.cluster,
            _pools(placement.engines),
            devices(placement.engines),
            "replaced" if before else "changed" if (placement.namespace, name) in plan.edited else placement.state,
        )
        rows.append(((placement.namespace, placement.deployment, 0), cells, reasons))
    for manual in plan.manual:
        replica = adapters.replica(manual)
        cells = (f"{replica.namespace}/-", replica.name, replica.cluster, _pools(replica.engines))
        cells = (*cells, devices(replica.engines), "manual")
        rows.append(((replica.namespace, "", 0), cells, []))
    for pending in plan.schedule.pending:
        cells = (f"{pending.namespace}/{pending.deployment}", f"{pending.count} missing", "-", "-", "-", "pending")
        rows.append(((pending.namespace, pending.deployment, 1), cells, _reasons(pending)))
    left = [(entry, "removed", entry["reason"]) for entry in gone.values()]
    left += [(entry, "leaving", f"{entry['reason']}; stays until another serves") for entry in leaving(plan)]
    for entry, state, reason in left:
        cells = (
            f"{entry['namespace']}/{entry['deployment']}",
            _own_part(entry["replica"], entry["deployment"]),
            entry["cluster"],
            "-",
            "-",
            state,
        )
        rows.append(((entry["namespace"], entry["deployment"], 2), cells, [reason]))
    return [(cells, reasons) for __, cells, reasons in sorted(rows, key=lambda row: row[0])]


def _pools(engines: Sequence[PlacedEngine]) -> str:
    return ", ".join(
        dict.fromkeys(pool for engine in engines for member in engine.members for pool, __ in member.pods_by_pool)
    )


def _own_part(replica: str, deployment: str) -> str:
    """Return the name of a replica without the prefix of its deployment, which is in the previous column."""
    prefix = f"{deployment}-"
    return f"…{replica.removeprefix(prefix)}" if deployment and replica.startswith(prefix) else replica


def _held(placement: Placement) -> list[str]:
    return [f"held: {placement.reason}"] if placement.state == "held" else []


def _reasons(pending: Pending) -> list[str]:
    reasons = [f"{pending.reason}: {pending.message}"]
    more = "and {} more reasons (plan.json has all of them)"
    return [*reasons, *first_lines(map(str, pending.refusals), _MOST_REASONS, more)]


def devices(engines: Sequence[PlacedEngine]) -> str:
    """Return the claimed devices of a replica by request: `16 gpu`."""
    total = Counter[str]()
    for engine in engines:
        for member in engine.members:
            for request in member.device_requests:
                total[request["name"]] += request.get("count", 1) * member.pods * engine.copies
    return ", ".join(f"{count} {name}" for name, count in sorted(total.items())) or "-"


def _widths(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return column widths that fit; the widest column is shortened first."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    while sum(widths) + len(widths) - 1 > width:
        widest = max(range(len(widths)), key=lambda position: widths[position])
        if widths[widest] <= _LEAST:
            break
        widths[widest] -= 1
    return widths


def _line(cells: Sequence[str], widths: Sequence[int], gap: int) -> str:
    shown = [_shortened(cell, width).ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return (" " * gap).join(shown).rstrip()


def _shortened(text: str, width: int) -> str:
    """Shorten a text in the middle: names of replicas differ at the end, names of deployments at the start."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def document(plan: Plan) -> dict[str, Any]:
    """Return the plan for programs, the content of plan.json.

    It contains the desired state of the fleet, not the changes of a run: the document of an unchanged fleet is the same
    in every run.
    """
    placements = [
        {
            "namespace": placement.namespace,
            "deployment": placement.deployment,
            "replica": replica.name,
            "cluster": placement.cluster,
            "index": placement.index,
            "gatewayAddress": placement.gateway_address,
            "engines": [_engine(engine) for engine in placement.engines],
        }
        for placement, replica in zip(plan.schedule.placements, plan.replicas, strict=True)
    ]
    placements += [_manual(replica) for replica in plan.manual]
    pending = [
        {
            "namespace": entry.namespace,
            "deployment": entry.deployment,
            "replicas": entry.count,
            "reason": entry.reason,
            "message": entry.message,
            "refusals": [_refusal(refusal) for refusal in entry.refusals],
        }
        for entry in plan.schedule.pending
    ]
    return {
        "placements": placements,
        "pending": pending,
        "overcommitted": [_refusal(refusal) for refusal in plan.schedule.overcommitted],
        "clusters": sorted(plan.clusters),
        "held": [asdict(ref) for ref in sorted(plan.context.fleet.held)],
        "leaving": leaving(plan),
        "services": [_service(routed) for routed in plan.traffic.services],
        "releases": [asdict(release) for release in plan.traffic.releases],
        "secretCopies": [
            {"cluster": cluster, **_secret_copy(copy)}
            for staged in plan.caches
            for cluster, copy in sorted(staged.copies.items())
        ],
        "summary": {
            "clusters": len(plan.clusters),
            "placed": len(placements),
            "pending": sum(entry.count for entry in plan.schedule.pending),
            "services": len(plan.traffic.services),
            "objects": len(plan.control) + sum(len(objects) for objects in plan.clusters.values()),
        },
    }


def _engine(engine: PlacedEngine) -> dict[str, Any]:
    return {
        "name": engine.name,
        "copies": engine.copies,
        "members": [_member(member) for member in engine.members],
    }


def _member(member: PlacedMember) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "role": member.role,
        "pool": member.pool,
        "pods": member.pods,
        "deviceRequests": [dict(request) for request in member.device_requests],
    }
    if member.device_constraints:
        entry["deviceConstraints"] = [dict(constraint) for constraint in member.device_constraints]
    if member.shares:
        entry["pools"] = [{"name": pool, "pods": pods} for pool, pods in member.shares]
    return entry


def _manual(resource: api.ModelReplica) -> dict[str, Any]:
    replica = adapters.replica(resource)
    return {
        "namespace": replica.namespace,
        "deployment": "",
        "replica": replica.name,
        "cluster": replica.cluster,
        "index": replica.index,
        "gatewayAddress": "",
        "engines": [_engine(engine) for engine in replica.engines],
    }


def service_note(routed: RoutedService) -> str:
    """Return a note about a service that does not route to its endpoints as usual; "" otherwise."""
    if routed.held:
        return "unchanged: a manifest has errors"
    if routed.resolution.tier is not None:
        return ""
    reason = "none of its endpoints is usable" if routed.resolution.members else "it has no endpoint"
    return f"answers 503: {reason}" if routed.objects else f"withheld until an endpoint is usable: {reason}"


def _service(routed: RoutedService) -> dict[str, Any]:
    return {
        "namespace": routed.namespace,
        "name": routed.name,
        "path": routed.path,
        "address": routed.address,
        "tier": routed.resolution.tier,
        "note": service_note(routed),
        "endpoints": [
            {"name": member.endpoint.name, "weight": member.weight, "usable": member.usable}
            for member in routed.resolution.members
        ],
    }


def _secret_copy(copy: SecretCopy) -> dict[str, Any]:
    return {
        "from": {"namespace": copy.source_namespace, "name": copy.source_name, "key": copy.source_key},
        "to": {"namespace": copy.namespace, "name": copy.name, "key": copy.key},
    }


def _refusal(refusal: Refusal) -> dict[str, Any]:
    entry: dict[str, Any] = {"clusters": list(refusal.clusters), "reason": refusal.reason}
    if refusal.pool:
        entry["pool"] = refusal.pool
    return entry


def leaving(plan: Plan) -> list[dict[str, Any]]:
    """Return the replicas that are removed once others serve in their place, with the reasons."""
    stay = {(replica.namespace, replica.name) for replica in plan.leaving}
    dropped = plan.schedule.dropped
    return _removals((e.replica, e.reason) for e in dropped if (e.replica.namespace, e.replica.name) in stay)


def removed(plan: Plan) -> list[dict[str, Any]]:
    """Return the existing replicas that are removed, with the reasons."""
    stay = {(replica.namespace, replica.name) for replica in plan.leaving}
    gone = [
        (entry.replica, entry.reason)
        for entry in plan.schedule.dropped
        if (entry.replica.namespace, entry.replica.name) not in stay
    ]
    gone += [(replica, "its deployment was deleted") for replica in plan.unplanned]
    return _removals(gone)


def _removals(gone: Iterable[tuple[Replica, str]]) -> list[dict[str, Any]]:
    return [
        {
            "namespace": replica.namespace,
            "deployment": replica.deployment,
            "replica": replica.name,
            "cluster": replica.cluster,
            "reason": reason,
        }
        for replica, reason in sorted(gone, key=lambda entry: (entry[0].namespace, entry[0].name))
    ]
