# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""View model of the report page of a plan (`core/report`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import plan as plan_output
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.pools import pods_by_pool
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.traffic import RoutedService
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling import adapters
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.fabric import FABRIC_DRIVER
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    PlacedEngine,
    PlacedMember,
    Pool,
)

_MOST_FACTS = 4


class Changes(Protocol):
    """Files that a run adds, changes and removes."""

    @property
    def added(self) -> Sequence[str]: ...
    @property
    def changed(self) -> Sequence[str]: ...
    @property
    def removed(self) -> Sequence[str]: ...


def model(plan: Plan, changes: Changes) -> dict[str, Any]:
    """Return all values of the page as plain data."""
    document = api.wire(plan_output.document(plan))
    occupied = pods_by_pool(plan)
    overcommitted = {
        (name, refusal.pool): refusal.reason for refusal in plan.schedule.overcommitted for name in refusal.clusters
    }
    return {
        "summary": document["summary"],
        "clusters": [_cluster(plan, cluster, occupied, overcommitted) for cluster in plan.capacity],
        "replicas": _replicas(plan),
        "services": [_service(plan, service) for service in plan.traffic.services],
        "caches": [
            {
                "namespace": staged.namespace,
                "name": staged.name,
                "artifact": staged.artifact,
                "clusters": [{"name": phase.cluster, "phase": phase.phase} for phase in staged.phases],
            }
            for staged in plan.caches
        ],
        "pending": [
            {**entry, "refusals": [{"pool": "", **refusal} for refusal in entry["refusals"]]}
            for entry in document["pending"]
        ],
        "removed": plan_output.removed(plan),
        "files": {
            "added": list(changes.added),
            "changed": list(changes.changed),
            "removed": list(changes.removed),
        },
    }


def _cluster(
    plan: Plan,
    cluster: Cluster,
    occupied: Mapping[tuple[str, str], list[dict[str, Any]]],
    overcommitted: Mapping[tuple[str, str], str],
) -> dict[str, Any]:
    platform = plan.platforms.get(cluster.name)
    source = platform.resource.spec.cluster if platform else None
    block = getattr(source, source.source.lower()) if source else None
    classes = {pool.name: pool.class_name for pool in (platform.resource.spec.node_pools if platform else None) or ()}
    return {
        "name": cluster.name,
        "source": source.source if source else "",
        "region": str(getattr(block, "region", None) or getattr(block, "location", None) or ""),
        "reason": cluster.unknown or cluster.not_ready,
        "address": cluster.gateway_address,
        "labels": dict(cluster.labels),
        "taints": [str(taint) for taint in cluster.taints],
        "pools": [
            {
                "name": pool.name,
                "nodes": pool.nodes,
                "class": classes.get(pool.name, ""),
                "fabric": _fabric(pool),
                # The fabric of a pool is a separate field; its synthetic device adds nothing.
                "devices": [_device(device) for device in pool.devices if device.driver != FABRIC_DRIVER],
                "occupied": occupied.get((cluster.name, pool.name), []),
                "overcommitted": overcommitted.get((cluster.name, pool.name), ""),
            }
            for pool in cluster.pools
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


def _claims(member: PlacedMember) -> dict[str, int]:
    claims: dict[str, int] = {}
    for request in member.device_requests:
        claims[request["name"]] = claims.get(request["name"], 0) + int(request.get("count", 1))
    return claims


def _replicas(plan: Plan) -> list[dict[str, Any]]:
    gone = {(entry["namespace"], entry["replica"]): entry["reason"] for entry in plan_output.removed(plan)}
    replicas = []
    for placement, replica in zip(plan.schedule.placements, plan.replicas, strict=True):
        key = (placement.namespace, replica.name)
        state = "replaced" if key in gone else "changed" if key in plan.edited else placement.state
        reason = gone.get(key, placement.reason)
        if key in plan.waiting:
            reason = "waits until other clusters have the edit"
        replicas.append(_replica(replica, state, reason))
    replicas += [_replica(replica, "manual", "") for replica in plan.manual]
    reasons = {(entry["namespace"], entry["replica"]): entry["reason"] for entry in plan_output.leaving(plan)}
    for replica in plan.leaving:
        reason = f"{reasons[replica.namespace, replica.name]}; stays until another serves"
        replicas.append(_replica(replica, "leaving", reason))
    return replicas


def _replica(resource: api.ModelReplica, state: str, reason: str) -> dict[str, Any]:
    replica = adapters.replica(resource)
    phases = {engine.name: engine.phase or "" for engine in resource.spec.engines}
    return {
        "namespace": replica.namespace,
        "deployment": replica.deployment,
        "replica": replica.name,
        "cluster": replica.cluster,
        "index": replica.index,
        "state": state,
        "reason": reason,
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
                "devices": _claims(member),
            }
            for member in engine.members
        ],
    }


def _service(plan: Plan, routed: RoutedService) -> dict[str, Any]:
    service = plan.context.fleet.services.get((routed.namespace, routed.name))
    entries = service.spec.endpoints if service else []
    composed = {(endpoint.namespace, endpoint.name) for endpoint in plan.traffic.endpoints}
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
                "url": endpoint.spec.url,
                "external": not ours,
                "replica": endpoint.labels.get(names.REPLICA_LABEL, "") if ours else "",
            }
        )
    return {
        "namespace": routed.namespace,
        "name": routed.name,
        "path": routed.path,
        "address": routed.address,
        "tier": routed.resolution.tier,
        "note": plan_output.service_note(routed),
        "endpoints": endpoints,
    }
