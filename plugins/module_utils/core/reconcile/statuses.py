# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The status of every resource of a fleet that somebody observes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.backend import (
    endpoint_fault,
    endpoint_objects,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.gateway import backend_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Component, Observed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile import Plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.clusters import Site
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.fleet import Object
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.traffic import GATEWAY_NAME, usable
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Pending, Placement
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import READY, Status, nobody_looks
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.inference_class import inference_class
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.inference_gateway import inference_gateway
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.infrastructure import infrastructure
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_cache import model_cache
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_deployment import model_deployment
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_endpoint import model_endpoint
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_replica import (
    ReplicaState,
    model_replica,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_service import model_service
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import number, text

_UNSEEN = ReplicaState(None, None)


def statuses(plan: Plan, now: str) -> tuple[Object, ...]:
    """Every resource with its status: apiVersion, kind, name, namespace, status. `now` (RFC 3339) becomes the time of
    the conditions that changed. Empty when nobody observes."""
    observed = plan.situation.observed
    if observed is None:
        return ()
    found = []
    for kind, wire, status in _all(plan, observed):
        metadata = {key: wire["metadata"][key] for key in ("name", "namespace") if wire["metadata"].get(key)}
        ref = Ref(kind, metadata.get("namespace", ""), metadata["name"])
        generation = wire["metadata"].get("generation") or _generation(observed, ref)
        value = status.wire(plan.situation.statuses.get(ref), generation, now)
        head = {"apiVersion": wire["apiVersion"], "kind": kind, "metadata": metadata}
        found.append({**head, "status": value})
    return tuple(found)


def _generation(observed: Observed, ref: Ref) -> int | None:
    """The generation that the control cluster gave to a resource that is not read from there."""
    return number(observed.control.find(ref.kind, ref.namespace, ref.name), "metadata", "generation") or None


def _all(plan: Plan, observed: Observed) -> Iterator[tuple[str, Object, Status]]:
    fleet = plan.situation.fleet
    for resource in fleet.classes.values():
        wire = api.wire(resource)
        yield "InferenceClass", wire, inference_class(wire, previous=_before(plan, resource.ref))
    for site in plan.sites.values():
        if site.status is not None:
            yield "InferenceCluster", api.wire(site.resource), site.status
            yield from _infrastructure(plan, site)
    yield from _gateway(plan, observed)
    yield from _replicas(plan)
    endpoints = list(_endpoints(plan, observed))
    yield from endpoints
    yield from _services(plan, observed)
    yield from _caches(plan)
    yield from _deployments(plan, _unready(endpoints))


def _before(plan: Plan, ref: Ref) -> Mapping[str, Any] | None:
    return plan.situation.statuses.get(ref)


def _infrastructure(plan: Plan, site: Site) -> Iterator[tuple[str, Object, Status]]:
    """The status of what is composed for a cluster: its ServingStack, and the cloud cluster if the fleet makes it."""
    name = site.resource.name
    seen = plan.situation.seen(name)
    silent = seen is None or bool(seen.unreachable)
    declared = Component(True, nobody_looks(name)) if plan.situation.declared(name) else None
    for wire in site.objects:
        previous = _before(plan, Ref(wire["kind"], wire["metadata"].get("namespace", ""), wire["metadata"]["name"]))
        fields: dict[str, Any] = {}
        if wire["kind"] == "ServingStack":
            component = declared if silent or seen is None else seen.stack
            address = text(site.status.fields if site.status else None, "gateway", "address")
            fields = {"gateway": {"address": address}} if address else {}
        else:
            component = declared if silent or seen is None else seen.provisioned
        yield wire["kind"], wire, infrastructure(wire, component, fields, previous=previous)


def _unready(endpoints: Iterable[tuple[str, Object, Status]]) -> dict[tuple[str, str], list[str]]:
    """The composed ModelEndpoints that are not Ready, by deployment."""
    found: dict[tuple[str, str], list[str]] = {}
    for _, wire, status in endpoints:
        deployment = text(wire, "metadata", "labels", names.DEPLOYMENT_LABEL)
        ready = status.condition(READY)
        if deployment and ready is not None and ready.status == "False":
            found.setdefault((wire["metadata"]["namespace"], deployment), []).append(wire["metadata"]["name"])
    return found


def _gateway(plan: Plan, observed: Observed) -> Iterator[tuple[str, Object, Status]]:
    gateway = plan.situation.fleet.gateways.get(GATEWAY_NAME)
    if gateway:
        wire = api.wire(gateway)
        status = inference_gateway(wire, observed.seen, observed.controller, previous=_before(plan, gateway.ref))
        yield "InferenceGateway", wire, status


def _replicas(plan: Plan) -> Iterator[tuple[str, Object, Status]]:
    known = {cluster.name for cluster in plan.capacity}
    for wire in (*plan.replicas, *plan.manual, *plan.leaving):
        key = (wire["metadata"]["namespace"], wire["metadata"]["name"])
        cluster = wire["spec"]["clusterName"]
        waiting = "" if cluster in known else f"Waiting for InferenceCluster {cluster}"
        previous = _before(plan, Ref("ModelReplica", *key))
        yield "ModelReplica", wire, model_replica(wire, plan.states.get(key, _UNSEEN), previous, waiting=waiting)


def _endpoints(plan: Plan, observed: Observed) -> Iterator[tuple[str, Object, Status]]:
    situation = plan.situation
    gateway = situation.fleet.gateways.get(GATEWAY_NAME)
    backend = backend_of(api.wire(gateway) if gateway else None)
    for wire in (*plan.traffic.endpoints, *situation.fleet.external.values()):
        ref = Ref("ModelEndpoint", wire["metadata"]["namespace"], wire["metadata"]["name"])
        fault = endpoint_fault(wire)
        waiting = ""
        if not fault and not usable(situation, wire):
            secret = wire["spec"]["credential"]["apiKey"]["secretRef"]
            waiting = f"Secret {ref.namespace}/{secret['name']} is missing or has no key {secret.get('key', 'apiKey')}"
        status = model_endpoint(
            wire,
            endpoint_objects(wire, situation.composing, backend),
            observed.seen,
            fault,
            waiting=waiting,
            previous=_before(plan, ref),
        )
        yield "ModelEndpoint", wire, status


def _services(plan: Plan, observed: Observed) -> Iterator[tuple[str, Object, Status]]:
    for routed in plan.traffic.services:
        service = plan.situation.fleet.services.get((routed.namespace, routed.name))
        if service is None:
            # Its manifest has errors: it stays as it is, and so does its status.
            continue
        status = model_service(
            api.wire(service),
            routed.resolution,
            routed.objects,
            plan.traffic.address,
            observed.seen,
            previous=_before(plan, service.ref),
        )
        yield "ModelService", api.wire(service), status


def _caches(plan: Plan) -> Iterator[tuple[str, Object, Status]]:
    for staged in plan.caches:
        cache = plan.situation.fleet.caches.get((staged.namespace, staged.name))
        if cache is None:
            continue
        status = model_cache(
            api.wire(cache),
            [phase.cluster for phase in staged.phases],
            {phase.cluster: (phase.phase, phase.artifact, phase.message) for phase in staged.phases},
            staged.token_missing,
            previous=_before(plan, cache.ref),
            leaving={phase.cluster: (phase.phase, phase.artifact, phase.message) for phase in staged.leaving},
        )
        yield "ModelCache", api.wire(cache), status


def _deployments(plan: Plan, unready: Mapping[tuple[str, str], Sequence[str]]) -> Iterator[tuple[str, Object, Status]]:
    fleet = plan.situation.fleet
    placements: dict[tuple[str, str], list[Placement]] = {}
    states: dict[tuple[str, str], dict[tuple[str, int], ReplicaState]] = {}
    for placement, wire in zip(plan.schedule.placements, plan.replicas, strict=True):
        key = (placement.namespace, placement.deployment)
        placements.setdefault(key, []).append(placement)
        state = plan.states.get((placement.namespace, wire["metadata"]["name"]), _UNSEEN)
        states.setdefault(key, {})[(placement.cluster, placement.index)] = state
    pending: dict[tuple[str, str], Pending] = {
        (entry.namespace, entry.deployment): entry for entry in plan.schedule.pending
    }
    for key, deployment in fleet.deployments.items():
        short = pending.get(key)
        invalid = short.message if short and short.reason == "InvalidNodeSelector" else ""
        invalid = invalid or next((p.reason for p in placements.get(key, ()) if p.reason.startswith("Invalid")), "")
        reference = deployment.spec.template.spec.model_cache_ref
        cache: Any = "none"
        if reference:
            name = Ref("ModelCache", deployment.namespace, reference.name)
            known = (name.namespace, name.name) in fleet.caches
            cache = "resolved" if known else "unresolved" if name in fleet.held else "missing"
        wire = api.wire(deployment)
        status = model_deployment(
            wire,
            placements.get(key, ()),
            short,
            states.get(key, {}),
            cache,
            invalid,
            unready_endpoints=unready.get(key, ()),
            previous=_before(plan, deployment.ref),
        )
        yield "ModelDeployment", wire, status
