# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""View model of the report page of a plan (`core/report`)."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from .. import api, names
from ..compose.model_gateway.backends import served_model
from ..devices.device import Device
from ..output import cost as cost_output
from ..output import plan as plan_output
from ..output import what_if as what_if_output
from ..output.changes import Changes
from ..output.distribution import distributions
from ..output.findings import findings
from ..output.outcome import replica_counts
from ..output.pools import PoolPods, pods_by_pool
from ..output.serving import ServedService, hosted_gateways, served_services
from ..output.status import ClusterStatus, FleetStatus, ReplicaStatus, ServiceStatus
from ..output.unusable import provider_warnings, unusable_endpoints
from ..planning import Plan
from ..planning.survival import Requirement, Shortfall, Survey
from ..planning.what_if import Answer
from ..scheduling import adapters
from ..scheduling.fabric import FABRIC_DRIVER
from ..scheduling.memory import MemoryFit, gib, memory_fits
from ..scheduling.model import Cluster, PlacedEngine, Pool, Replica
from ..status.inference_cluster import assumed_address

_MOST_FACTS = 4
_OBJECTS = ("control/", "clusters/")


def model(
    plan: Plan,
    changes: Changes,
    found: FleetStatus,
    now: str,
    commit: str,
    *,
    answer: Answer | None = None,
    survey: Survey | None = None,
    cost_before: cost_output.Before | None = None,
) -> dict[str, Any]:
    """Return all values of the page as plain data: the rows of the status, with what the plan has beyond it, the answer
    to a question, and losses that were tried. `cost_before`: what the last plan cost."""
    shortfalls = survey.shortfalls if survey else ()
    cost = cost_output.fleet_cost(plan)
    counts = replica_counts(found)
    composed = frozenset((endpoint.namespace, endpoint.name) for endpoint in plan.traffic.endpoints)
    rows = {(each.namespace, row.name): row for each in found.deployments for row in each.replicas}
    services = list(zip(served_services(plan), found.services, strict=True))
    return {
        "time": now,
        "is_observed": found.observed_at is not None,
        "commit": commit,
        "counts": {
            "services": len(found.services),
            "clusters": len(found.clusters),
            "objects": plan_output.summary(plan).objects,
            "desired": counts.desired,
            "placed": counts.placed,
            "pending": counts.pending,
            "serving": counts.serving,
        },
        "findings": [
            *(each._asdict() for each in findings(found)),
            *(_not_survived(each) for each in shortfalls if each.requirement.is_fatal),
        ],
        "unusable": _unusable(plan, services),
        "sent_outside": provider_warnings(plan),
        "serves_paths": plan.context.fleet.serves_paths,
        "services": [_service(served, row, composed) for served, row in services],
        "gateways": [api.wire(each) for each in found.gateways or ()],
        "clusters": _clusters(plan, found.clusters),
        "replicas": _replicas(plan, found, rows),
        "caches": [api.wire(cache) for cache in found.caches],
        "policies": [api.wire(policy) for policy in found.policies],
        "pending": [
            {
                "namespace": entry.namespace,
                "deployment": entry.deployment,
                "refusals": [
                    {"clusters": each.clusters, "pool": each.pool or "", "reason": each.reason}
                    for each in entry.refusals
                ],
            }
            for entry in plan_output.pending(plan)
        ],
        "removed": [api.wire(row) for row in found.next_run.replicas if row.action == "removed"],
        "objects": [api.wire(row) for row in found.next_run.objects],
        "files": {
            "created": _objects(changes.added),
            "changed": _objects(changes.changed),
            "removed": _objects(changes.removed),
        },
        "distributions": [asdict(each) for each in distributions(plan)],
        "what_if": _what_if(answer) if answer else {},
        "survival": _survival(survey or Survey()),
        "cost": _cost(cost, cost_before, _limits(plan)) if cost else {},
        "memory": [_memory(each) for each in memory_fits(plan.deployments, plan.clusters, plan.schedule.placements)],
    }


def _unusable(plan: Plan, services: Sequence[tuple[ServedService, ServiceStatus]]) -> list[dict[str, Any]]:
    """Return the endpoints that are not usable, without those of services that no gateway serves where a finding says
    so."""
    shown = [each for each, row in services if each.is_path or each.gateways or row.status != "Unavailable"]
    return [
        {
            "reason": each.reason,
            "hint": each.hint,
            "of_models": each.of_models,
            "is_step": each.is_step,
            "services": [
                {"namespace": namespace, "name": name, "endpoints": endpoints}
                for (namespace, name), endpoints in each.services.items()
            ],
        }
        for each in unusable_endpoints(plan, shown)
    ]


def _memory(each: MemoryFit) -> dict[str, Any]:
    return {
        **{key: getattr(each, key) for key in ("namespace", "deployment", "engine", "pool", "device")},
        "clusters": list(each.clusters),
        "weights": gib(each.weights),
        "cache": f"{gib(each.cache)} for {each.tokens:,} tokens" if each.cache else "not known",
        "usable": gib(each.usable),
        # In MiB, as a drawing has no use for bytes.
        "taken": (each.weights + each.cache) >> 20,
        "whole": each.usable >> 20,
        "fits_weights": each.weights <= each.usable,
    }


def _limits(plan: Plan) -> dict[str, tuple[str, ...]]:
    replicas = [adapters.replica(resource) for resource in plan.replicas]
    return cost_output.limit_notes(plan.deployments, plan.clusters, replicas)


def _cost(
    found: cost_output.FleetCost, before: cost_output.Before | None, limits: Mapping[str, tuple[str, ...]]
) -> dict[str, Any]:
    """Return what the page has of a cost. `limits`: of deployments, by `namespace/name`."""
    total = cost_output.fleet_line(found, before)
    oldest = cost_output.oldest(found)
    return {
        "currency": found.currency,
        "hours": found.hours_per_month,
        "as_of": f"The oldest price is of {oldest}." if oldest else "",
        "clusters": [asdict(each) for each in (*cost_output.cluster_lines(found, before), replace(total, notes=()))],
        "deployments": [
            asdict(replace(each, notes=(*each.notes, *limits.get(each.name, ()))))
            for each in cost_output.deployment_lines(found, before)
        ],
        "notes": list(total.notes),
    }


def _limits_then(answer: Answer) -> dict[str, tuple[str, ...]]:
    return cost_output.limit_notes(answer.after.deployments, answer.after.clusters, answer.after.running)


def _what_if(answer: Answer) -> dict[str, Any]:
    cost = what_if_output.costs(answer)
    return {
        **api.wire(what_if_output.document(answer)),
        "asked": answer.question.parts,
        "over": list(map(str, answer.over)),
        "gateways": [
            {"name": name, "cluster": cluster, "services": services}
            for (name, cluster, __), services in what_if_output.gateway_rows(answer)
        ],
        "costs": _cost(cost.after, cost.compared, _limits_then(answer)) if cost.after else {},
    }


def _not_survived(shortfall: Shortfall) -> dict[str, str]:
    requirement = shortfall.requirement
    subject = {
        "kind": "survival",
        "subject": "service" if requirement.kind == "gateway" else requirement.kind,
        "namespace": requirement.namespace,
        "name": requirement.name,
        "cluster": "",
    }
    message = ". ".join([shortfall.what, *shortfall.why])
    return {**subject, "status": "", "message": message, "hint": shortfall.fixes, "command": ""}


def _survival(survey: Survey) -> dict[str, Any]:
    shortfalls = {each.requirement.subject: each for each in survey.shortfalls}
    return {
        "losses": survey.losses,
        "tried": survey.tried,
        "needs": [_need(each, shortfalls.get(each.subject)) for each in survey.requirements],
    }


def _need(requirement: Requirement, shortfall: Shortfall | None) -> dict[str, Any]:
    return {
        "kind": requirement.kind,
        "namespace": requirement.namespace,
        "name": requirement.name,
        "label": requirement.label,
        "clusters": requirement.clusters,
        "is_fatal": requirement.is_fatal,
        "places": [{"cluster": cluster, "number": number} for cluster, number in sorted(requirement.places.items())],
        "what": shortfall.what if shortfall else "",
        "why": shortfall.why if shortfall else [],
        "fixes": shortfall.fixes if shortfall else "",
    }


def _objects(files: Sequence[str]) -> list[str]:
    return [name for name in files if name.startswith(_OBJECTS)]


def _clusters(plan: Plan, rows: Sequence[ClusterStatus]) -> list[dict[str, Any]]:
    occupied = pods_by_pool(plan)
    overcommitted = {
        (name, refusal.pool): refusal.reason for refusal in plan.schedule.overcommitted for name in refusal.clusters
    }
    hosted = hosted_gateways(plan)
    return [
        _cluster(plan, cluster, row, occupied, overcommitted) | {"gateways": hosted.get(cluster.name, [])}
        for cluster, row in zip(plan.clusters, rows, strict=True)
    ]


def _cluster(
    plan: Plan,
    cluster: Cluster,
    row: ClusterStatus,
    occupied: Mapping[tuple[str, str], Sequence[PoolPods]],
    overcommitted: Mapping[tuple[str, str], str],
) -> dict[str, Any]:
    is_path = plan.context.fleet.serves_paths
    platform = plan.platforms.get(cluster.name)
    source = platform.resource.spec.cluster if platform else None
    block = getattr(source, source.source.lower()) if source else None
    classes = {pool.name: pool.class_name for pool in (platform.resource.spec.node_pools if platform else None) or ()}
    return {
        "name": row.name,
        "state": row.state,
        "message": row.message,
        "version": row.version or "",
        "last_seen": row.last_seen or "",
        "source": source.source if source else "",
        "region": str(getattr(block, "region", None) or getattr(block, "location", None) or ""),
        "reason": cluster.unknown or cluster.not_ready,
        # Gateways in mode Model do not use the address that is assumed of a cluster.
        "address": row.gateway if is_path or row.gateway != assumed_address(row.name) else "",
        "labels": dict(cluster.labels),
        "taints": [str(taint) for taint in cluster.taints],
        "pools": [
            {
                "name": status.name,
                "nodes": status.nodes,
                "schedulable_nodes": status.schedulable_nodes,
                "unavailable_nodes": [f"{node.name} ({node.reason})" for node in status.unavailable_nodes],
                "unavailable": status.unavailable_devices,
                "total": status.devices,
                "used": status.used_devices,
                "planned": status.planned_devices,
                "class": classes.get(pool.name, ""),
                "fabric": _fabric(pool),
                # The fabric of a pool is a separate field; its synthetic device adds nothing.
                "devices": [_device(device) for device in pool.devices if device.driver != FABRIC_DRIVER],
                "occupied": [each._asdict() for each in occupied.get((cluster.name, pool.name), ())],
                "overcommitted": overcommitted.get((cluster.name, pool.name), ""),
            }
            for pool, status in zip(cluster.pools, row.pools, strict=True)
        ],
    }


def _fabric(pool: Pool) -> str:
    for device in pool.devices:
        if device.driver == FABRIC_DRIVER:
            return " ".join(str(value) for __, value in sorted(_facts(device, "type", "name")))
    return ""


def _facts(device: Device, *attributes: str) -> list[tuple[int, Any]]:
    facts = []
    for key, value in device.attributes.items():
        name = key.rpartition("/")[2] if isinstance(key, str) else str(key)
        if name in attributes:
            facts.append((attributes.index(name), value))
    return facts


def _device(device: Device) -> dict[str, Any]:
    facts = [str(value) for value in device.attributes.values()] + [str(value) for value in device.capacity.values()]
    return {
        "name": device.name,
        "count": device.count,
        "claim": device.claim,
        "what": " ".join([device.driver, *facts[:_MOST_FACTS]]),
    }


def _replicas(plan: Plan, found: FleetStatus, rows: Mapping[tuple[str, str], ReplicaStatus]) -> list[dict[str, Any]]:
    changes = {(row.namespace, row.replica): row for row in found.next_run.replicas}
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
        replicas.append(_replica(resource, replica, rows[key], state, reason))
    return replicas


def _replica(
    resource: api.ModelReplica, replica: Replica, row: ReplicaStatus, state: str, reason: str
) -> dict[str, Any]:
    phases = {engine.name: engine.phase or "" for engine in resource.spec.engines}
    return {
        "namespace": replica.namespace,
        "deployment": replica.deployment,
        "replica": replica.name,
        "cluster": replica.cluster,
        "index": replica.index,
        "state": state,
        "reason": reason,
        "status": row.status,
        "message": row.message,
        "engines": [_engine(engine, phases.get(engine.name, "")) for engine in replica.engines],
    }


def _engine(engine: PlacedEngine, phase: str) -> dict[str, Any]:
    return {
        "name": engine.name,
        "copies": engine.copies,
        "phase": phase,
        "members": [
            {
                "role": member.role,
                "pools": [{"name": pool, "pods": pods} for pool, pods in member.pods_by_pool],
                "pods": member.pods,
                "devices": dict(plan_output.requested(member)),
            }
            for member in engine.members
        ],
    }


def _service(served: ServedService, row: ServiceStatus, composed: Container[tuple[str, str]]) -> dict[str, Any]:
    """Return a service. `composed`: the endpoints of the fleet, by namespace and name."""
    routed = served.routed
    entries = served.service.spec.endpoints if served.service else []
    endpoints = []
    for member in routed.resolution.members:
        endpoint = member.endpoint
        ours = (endpoint.namespace, endpoint.name) in composed
        endpoints.append(
            {
                "name": endpoint.name,
                "entry": member.entry,
                "priority": entries[member.entry].priority,
                "weight": member.weight,
                "usable": member.usable,
                "unused": served.unused.get(endpoint.name, ""),
                # The URL of a replica is that of gateways in mode Path. No query, which no gateway sends either: keys
                # may be in it.
                "url": re.split("[?#]", endpoint.spec.backend_url)[0] if served.is_path or not ours else "",
                "model": served_model(endpoint) if ours and not served.is_path else endpoint.spec.model or "",
                "external": not ours,
                "replica": endpoint.labels.get(names.REPLICA_LABEL, "") if ours else "",
            }
        )
    return {
        "namespace": routed.namespace,
        "name": routed.name,
        "path": routed.path,
        "address": routed.address,
        "at": served.place,
        "tier": routed.resolution.tier,
        "status": row.status,
        "message": row.message,
        "desired": row.desired,
        "endpoints": endpoints,
    }
