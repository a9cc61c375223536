# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tables of the status of a fleet for terminals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from ..text import count, first_lines, printable, some
from .changes import changes_text, place_of
from .plan import devices_text
from .serving import GATEWAY_TITLES, gateway_rows, serving_place
from .status import FleetStatus, PoolStatus, ReplicaStatus, ServiceStatus
from .text_table import Row, lines, wrapped

# Maximum number of reasons in a terminal. The document contains all reasons.
_MOST_REASONS = 3
# Maximum number of callers of a budget in a terminal. The document contains more.
_MOST_CALLERS = 5

_SERVICES = ("SERVICE", "READY", "ADDRESS", "STATUS")
_DEPLOYMENTS = ("DEPLOYMENT", "READY", "CLUSTER", "POOL", "DEVICES", "AGE", "STATUS")
_CLUSTERS = ("CLUSTER", "STATE", "NODES", "DEVICES", "STACK", "SEEN", "VERSION")
_CACHES = ("CACHE", "READY", "CLUSTERS")
_BUDGETS = ("POLICY", "BUDGET", "CALLER", "USED", "OF", "LEFT")
_SECRETS = ("SECRET", "CLUSTER", "STATUS")
_GATEWAY = "GATEWAY"
_WHY = "WHY"
_NEXT = "NEXT RUN"


def tables(status: FleetStatus, now: str, width: int = 72) -> list[str]:
    """Return the tables of a status, with an empty line between tables.

    No line is longer than `width`. Clusters show schedulable nodes and used devices. Ages are relative to `now`.
    """
    sections = [
        lines(_SERVICES, _service_rows(status), width, _WHY),
        lines(GATEWAY_TITLES, gateway_rows(status.gateways or ()), width, _WHY),
        lines(_DEPLOYMENTS, _deployment_rows(status, now), width, _WHY) or ["No replicas are desired or running."],
        lines(_cluster_titles(status), _cluster_rows(status, now), width, _WHY),
        lines(_CACHES, _cache_rows(status), width, _WHY),
        lines(_SECRETS, _secret_rows(status), width, _WHY),
        _budget_lines(status, now, width),
        [_NEXT, *_next_lines(status, width)],
    ]
    return [line for section in sections if section for line in ("", *section)][1:]


def _service_rows(status: FleetStatus) -> list[Row]:
    return [
        (
            (
                f"{service.namespace}/{service.name}",
                f"{service.ready}/{service.desired}",
                service.address or f"model {service.model}",
                service.status,
            ),
            _service_lines(service),
        )
        for service in status.services
    ]


def _service_lines(service: ServiceStatus) -> list[str]:
    location = serving_place(service.model or "", service.gateways or (), is_path=bool(service.address))
    # Without a message, an empty one leaves the column for it empty.
    return [service.message, location] if service.message or location else []


def _deployment_rows(status: FleetStatus, now: str) -> list[Row]:
    rows: list[Row] = []
    for deployment in status.deployments:
        label = f"{deployment.namespace}/{deployment.name or '-'}"
        for group in _alike(deployment.replicas):
            replica = group[0]
            ready = f"{sum(row.ready is True for row in group)}/{len(group)}"
            since = min((row.since for row in group if row.since), default="")
            location = (replica.cluster, ", ".join(replica.pools), devices_text(replica.devices))
            cells = (label, ready, *location, age(since, now), replica.status)
            rows.append((cells, [line for line in (replica.message, replica.command) if line]))
        if rollout := deployment.rollout:
            state = "Stopped" if rollout.stopped else "Outdated" if rollout.outdated else "RollingOut"
            cells = (label, "-", "-", "-", "-", "-", state)
            counts = (
                f"{count(rollout.updated, 'replica')} with the current revision, {rollout.old} with an old revision"
            )
            rows.append((cells, [": ".join(filter(None, (counts, rollout.stopped or rollout.outdated)))]))
        if deployment.stalls:
            rows.append(((label, "-", "-", "-", "-", "-", "EngineStalled"), [deployment.stalls]))
        if pending := deployment.pending:
            cells = (label, f"0/{pending.count}", "-", "-", "-", "-", "Pending")
            reasons = [f"{pending.reason}: {pending.message}"]
            reasons += [*first_lines(pending.refusals, _MOST_REASONS, "and {} more reasons"), pending.hint]
            rows.append((cells, reasons))
        elif not deployment.replicas:
            rows.append(((label, f"0/{deployment.desired}", "-", "-", "-", "-", "-"), []))
    return rows


def _alike(replicas: Iterable[ReplicaStatus]) -> list[list[ReplicaStatus]]:
    """Group replicas that differ only in their names and ages, in their order."""
    groups: dict[tuple[Any, ...], list[ReplicaStatus]] = {}
    for row in replicas:
        key = (row.cluster, tuple(row.pools), tuple(row.devices.items()), row.status)
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def _device_columns(status: FleetStatus) -> dict[str, Callable[[PoolStatus], int]]:
    """Return the columns for planned and unavailable devices, each if there are any."""
    columns: dict[str, Callable[[PoolStatus], int]] = {
        "PLANNED": lambda pool: pool.planned_devices,
        "UNAVAILABLE": lambda pool: pool.unavailable_devices,
    }
    pools = [pool for cluster in status.clusters for pool in cluster.pools]
    return {title: devices for title, devices in columns.items() if any(map(devices, pools))}


def _cluster_titles(status: FleetStatus) -> tuple[str, ...]:
    """Return the titles, with the columns for planned and unavailable devices if there are any."""
    devices = _CLUSTERS.index("DEVICES") + 1
    return *_CLUSTERS[:devices], *_device_columns(status), *_CLUSTERS[devices:]


def _cluster_rows(status: FleetStatus, now: str) -> list[Row]:
    rows: list[Row] = []
    for cluster in status.clusters:
        pools = cluster.pools
        ready = [pool.schedulable_nodes for pool in pools if pool.schedulable_nodes is not None]
        nodes = sum(pool.nodes for pool in pools)
        cells = (
            cluster.name,
            cluster.state,
            f"{sum(ready)}/{nodes}" if ready else f"-/{nodes}",
            f"{sum(pool.used_devices for pool in pools)}/{sum(pool.devices for pool in pools)}",
            *(str(sum(map(devices, pools))) for devices in _device_columns(status).values()),
            {True: "ready", False: "incomplete", None: "-"}[cluster.stack_ready],
            age(cluster.last_seen or "", now),
            cluster.version or "-",
        )
        rows.append((cells, [cluster.message] if cluster.message else []))
    return rows


def _cache_rows(status: FleetStatus) -> list[Row]:
    rows: list[Row] = []
    for cache in status.caches:
        waiting = [
            f"{phase.cluster}: {phase.phase}{f': {phase.message}' if phase.message else ''}"
            for phase in cache.clusters
            if phase.phase != "Ready"
        ]
        clusters = some((phase.cluster for phase in cache.clusters), 3) or "-"
        cells = (f"{cache.namespace}/{cache.name}", f"{cache.ready}/{len(cache.clusters)}", clusters)
        rows.append((cells, first_lines(waiting, _MOST_REASONS, "and {} more clusters")))
    return rows


def _secret_rows(status: FleetStatus) -> list[Row]:
    return [
        (
            (
                f"{secret.namespace}/{secret.name}",
                secret.cluster or "control cluster",
                "KeyMissing" if secret.exists else "Missing",
            ),
            [f"{some(secret.users, 3)} needs it", secret.command],
        )
        for secret in status.missing_secrets
    ]


def _budget_lines(status: FleetStatus, now: str, width: int) -> list[str]:
    """Return the table of budgets, with a column for gateways if there are several."""
    gateways = {use.gateway for policy in status.policies for budget in policy.budgets for use in budget.use}
    several = len(gateways) > 1
    rows: list[Row] = []
    for policy in status.policies:
        for budget in policy.budgets:
            label = (f"{policy.namespace}/{policy.name}", budget.name)
            limit = f"{budget.amount} {budget.currency}" if budget.amount else f"{budget.limit} {budget.unit}"
            end = (f"{limit}/{budget.per}", age(now, budget.resets_at or ""))
            uses = [
                (use.caller or "all", use.spent or str(use.used), use.gateway) for use in budget.use[:_MOST_CALLERS]
            ]
            for caller, used, gateway in uses or [("-", "-", "-")]:
                rows.append(((*label, caller, used, *end, *([gateway] if several else [])), []))
            if omitted := len(budget.use) - len(uses) + (budget.more_callers or 0):
                rows[-1][1].append(f"{count(omitted, 'caller')} used less")
        if policy.message:
            rows[-1][1].append(policy.message)
    return lines((*_BUDGETS, *([_GATEWAY] if several else [])), rows, width, _WHY)


def _next_lines(status: FleetStatus, width: int) -> list[str]:
    next_run = status.next_run
    changes = [
        f"{change.cluster}: {change.namespace}/{change.replica} {change.action}"
        f"{f': {change.reason}' if change.reason else ''}"
        for change in next_run.replicas
    ]
    changes += [f"{place_of(change)}: {changes_text(change)}" for change in next_run.objects]
    rows = [row for deployment in status.deployments for row in deployment.replicas]
    removes_on_control = any(change.removed and not change.cluster for change in next_run.objects)
    if removes_on_control and any(row.ready is False for row in rows):
        changes.append("control cluster: removed endpoint objects are created again when their replicas serve")
    return [printable(line) for line in wrapped(changes or ["nothing changes"], width)]


def age(since: str, now: str) -> str:
    """Return the time between two times (RFC 3339) as in kubectl: `45s`, `5m`, `3h`, `12d`, or `-` if unknown."""
    try:
        seconds = int((datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds())
    except (TypeError, ValueError):
        return "-"
    for unit, size, limit in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172800)):
        if seconds < limit:
            return f"{max(seconds, 0) // size}{unit}"
    return f"{seconds // 86400}d"
