# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Values of the HTML report of a plan."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from .. import names
from ..compose.model_gateway.backends import served_model
from ..compose.service import MatchedEndpoint
from ..devices.device import Device
from ..output import cost as cost_output
from ..output import plan as plan_output
from ..output import what_if as what_if_output
from ..output.changes import Changes
from ..output.distribution import distributions
from ..output.findings import Finding, findings
from ..output.outcome import replica_counts
from ..output.pools import PoolPods, pods_by_pool
from ..output.serving import ServedService, hosted_gateways, served_services
from ..output.status import ClusterStatus, FleetStatus, PoolStatus, ServiceStatus
from ..output.unusable import UnusableEndpoints, provider_warnings, unusable_endpoints
from ..planning import Plan
from ..planning.survival import Shortfall, Survey
from ..planning.what_if import Answer
from ..scheduling import adapters
from ..scheduling.fabric import FABRIC_DRIVER
from ..scheduling.memory import memory_fits
from ..scheduling.model import Pool
from ..status.inference_cluster import assumed_address
from .views import (
    ClusterView,
    CostView,
    DeviceView,
    EndpointView,
    PoolView,
    ReplicaView,
    Report,
    ServiceView,
    WhatIfView,
)

_MAX_FACTS = 4
_OBJECT_DIRECTORIES = ("control/", "clusters/")


def report_of(
    plan: Plan,
    changes: Changes,
    status: FleetStatus,
    now: str,
    commit: str,
    *,
    answer: Answer | None = None,
    survey: Survey | None = None,
    cost_before: cost_output.Before | None = None,
) -> Report:
    """Return the values of the HTML report.

    now: time of the plan (RFC 3339).
    commit: Git commit of the manifests, empty if unknown.
    answer: answer to a what-if query, if there is one.
    survey: checked losses.
    cost_before: cost of the last plan.
    """
    cost = cost_output.fleet_cost(plan)
    shortfalls = survey.shortfalls if survey else ()
    services = list(zip(served_services(plan), status.services, strict=True))
    return Report(
        time=now,
        commit=commit,
        is_observed=status.observed_at is not None,
        has_path_gateways=plan.context.fleet.serves_paths,
        objects=plan_output.summary(plan).objects,
        replica_counts=replica_counts(status),
        findings=[*findings(status), *(_finding(each) for each in shortfalls if each.requirement.is_fatal)],
        unusable=_unusable(plan, services),
        sent_outside=provider_warnings(plan),
        clusters=_clusters(plan, status.clusters),
        replicas=_replicas(plan, status),
        services=_services(plan, services),
        gateways=status.gateways or (),
        caches=status.caches,
        policies=status.policies,
        pending=plan_output.pending(plan),
        removed=[row for row in status.next_run.replicas if row.action == "removed"],
        object_changes=status.next_run.objects,
        files={
            "created": _object_files(changes.added),
            "changed": _object_files(changes.changed),
            "removed": _object_files(changes.removed),
        },
        distributions=distributions(plan),
        what_if=_what_if(answer) if answer else None,
        survey=survey or Survey(),
        cost=_cost(cost, cost_before, _limit_notes(plan)) if cost else None,
        memory=memory_fits(plan.deployments, plan.clusters, plan.schedule.placements),
    )


def _unusable(plan: Plan, services: Iterable[tuple[ServedService, ServiceStatus]]) -> list[UnusableEndpoints]:
    """Return the unusable endpoints, except for services without a gateway that have a finding."""
    shown = [served for served, row in services if served.is_path or served.gateways or row.status != "Unavailable"]
    return unusable_endpoints(plan, shown)


def _finding(shortfall: Shortfall) -> Finding:
    """Return a loss that the fleet does not survive as a finding."""
    requirement = shortfall.requirement
    subject: Literal["service", "deployment"] = "deployment" if requirement.kind == "deployment" else "service"
    message = ". ".join([shortfall.what, *shortfall.why])
    return Finding("survival", subject, *requirement.key, "", "", message, shortfall.fixes)


def _limit_notes(plan: Plan) -> Mapping[str, tuple[str, ...]]:
    replicas = [adapters.replica(resource) for resource in plan.replicas]
    return cost_output.limit_notes(plan.deployments, plan.clusters, replicas)


def _cost(
    cost: cost_output.FleetCost, before: cost_output.Before | None, limit_notes: Mapping[str, tuple[str, ...]]
) -> CostView:
    """Return the cost of a plan. `limit_notes`: notes on deployments, by `namespace/name`."""
    total = cost_output.fleet_line(cost, before)
    oldest = cost_output.oldest(cost)
    return CostView(
        currency=cost.currency,
        hours=cost.hours_per_month,
        oldest_price=f"The oldest price is of {oldest}." if oldest else "",
        clusters=[*cost_output.cluster_lines(cost, before), replace(total, notes=())],
        deployments=[
            replace(line, notes=(*line.notes, *limit_notes.get(line.name, ())))
            for line in cost_output.deployment_lines(cost, before)
        ],
        notes=total.notes,
    )


def _what_if(answer: Answer) -> WhatIfView:
    costs = what_if_output.costs(answer)
    after = answer.after
    limit_notes = cost_output.limit_notes(after.deployments, after.clusters, after.running)
    return WhatIfView(
        question=answer.question.parts,
        document=what_if_output.document(answer),
        lost_gateways=what_if_output.gateway_rows(answer),
        over_ceiling=list(map(str, answer.over)),
        cost=_cost(costs.after, costs.compared, limit_notes) if costs.after else None,
    )


def _object_files(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if path.startswith(_OBJECT_DIRECTORIES)]


def _clusters(plan: Plan, rows: Sequence[ClusterStatus]) -> list[ClusterView]:
    occupied = pods_by_pool(plan)
    overcommitted = {
        (name, refusal.pool): refusal.reason for refusal in plan.schedule.overcommitted for name in refusal.clusters
    }
    gateways = hosted_gateways(plan)
    clusters = []
    for cluster, row in zip(plan.clusters, rows, strict=True):
        platform = plan.platforms.get(cluster.name)
        spec = platform.resource.spec if platform else None
        classes = {pool.name: pool.class_name for pool in (spec.node_pools if spec else None) or ()}
        source = spec.cluster if spec else None
        block = getattr(source, source.source.lower()) if source else None
        pools = []
        for pool, status in zip(cluster.pools, row.pools, strict=True):
            key = (cluster.name, pool.name)
            class_name = classes.get(pool.name, "")
            pools.append(_pool(pool, status, class_name, occupied.get(key, ()), overcommitted.get(key, "")))
        # Model gateways do not use the assumed address of a cluster.
        has_address = plan.context.fleet.serves_paths or row.gateway != assumed_address(row.name)
        clusters.append(
            ClusterView(
                status=row,
                source=source.source if source else "",
                region=str(getattr(block, "region", None) or getattr(block, "location", None) or ""),
                reason=cluster.unknown or cluster.not_ready,
                address=row.gateway if has_address else "",
                labels=cluster.labels,
                taints=[str(taint) for taint in cluster.taints],
                gateways=gateways.get(cluster.name, ()),
                pools=pools,
            )
        )
    return clusters


def _pool(
    pool: Pool, status: PoolStatus, class_name: str, occupied: Sequence[PoolPods], overcommitted: str
) -> PoolView:
    return PoolView(
        status=status,
        class_name=class_name,
        fabric=_fabric(pool),
        # The fabric of a pool is a separate field, so its Synthetic device contains no further information.
        devices=[_device(device) for device in pool.devices if device.driver != FABRIC_DRIVER],
        occupied=occupied,
        overcommitted=overcommitted,
    )


def _fabric(pool: Pool) -> str:
    """Return the type and name of the fabric of a pool, empty without a fabric."""
    for device in pool.devices:
        if device.driver == FABRIC_DRIVER:
            facts = {str(key).rpartition("/")[2]: value for key, value in device.attributes.items()}
            return " ".join(str(facts[name]) for name in ("type", "name") if name in facts)
    return ""


def _device(device: Device) -> DeviceView:
    facts = [str(value) for value in (*device.attributes.values(), *device.capacity.values())]
    return DeviceView(device.name, device.count, device.claim, " ".join([device.driver, *facts[:_MAX_FACTS]]))


def _replicas(plan: Plan, status: FleetStatus) -> list[ReplicaView]:
    rows = {(deployment.namespace, row.name): row for deployment in status.deployments for row in deployment.replicas}
    changes = {(row.namespace, row.replica): row for row in status.next_run.replicas}
    placements = {
        (placement.namespace, replica.name): placement
        for placement, replica in zip(plan.schedule.placements, plan.replicas, strict=True)
    }
    replicas = []
    for resource, replica in zip(plan.composed, plan.running, strict=True):
        key = (replica.namespace, replica.name)
        placement, change = placements.get(key), changes.get(key)
        state = change.action if change else placement.state if placement else "manual"
        reason = (change.reason if change else "") or (placement.reason if placement else "")
        if key in plan.waiting:
            reason = "waits until other clusters have the edit"
        phases = {engine.name: engine.phase or "" for engine in resource.spec.engines}
        replicas.append(ReplicaView(replica, rows[key], state, reason, phases))
    return replicas


def _services(plan: Plan, services: Iterable[tuple[ServedService, ServiceStatus]]) -> list[ServiceView]:
    composed = frozenset((endpoint.namespace, endpoint.name) for endpoint in plan.traffic.endpoints)
    return [
        ServiceView(
            status=row,
            lacks_address=bool(served.routed.path) and not served.routed.address,
            gateways_text=served.place,
            tier=served.routed.resolution.tier,
            endpoints=[_endpoint(member, served, composed) for member in served.routed.resolution.members],
        )
        for served, row in services
    ]


def _endpoint(member: MatchedEndpoint, served: ServedService, composed: Container[tuple[str, str]]) -> EndpointView:
    """Return an endpoint of a service. `composed`: endpoints of the fleet, by namespace and name."""
    endpoint = member.endpoint
    is_internal = (endpoint.namespace, endpoint.name) in composed
    entries = served.service.spec.endpoints if served.service else []
    return EndpointView(
        name=endpoint.name,
        entry=member.entry,
        priority=entries[member.entry].priority,
        weight=member.weight,
        is_usable=member.usable,
        unused=served.unused.get(endpoint.name, ""),
        # The URL of a replica is the URL of path-based gateways. The query can have keys, and gateways do not send it.
        url=re.split("[?#]", endpoint.spec.backend_url)[0] if served.is_path or not is_internal else "",
        model=served_model(endpoint) if is_internal and not served.is_path else endpoint.spec.model or "",
        is_external=not is_internal,
        replica=endpoint.labels.get(names.REPLICA_LABEL, "") if is_internal else "",
    )
