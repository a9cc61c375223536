# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Statuses of all resources of an observed fleet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import api, names
from ..api import resource
from ..api.inference_gateway import InferenceGatewayStatus
from ..api.model_route import ModelRouteStatus
from ..api.serving_stack import ServingStackStatus, StackGatewayStatus
from ..compose.backend import endpoint_objects, endpoint_problem
from ..compose.gateway import backend_of
from ..compose.model_gateway.routes import model_route as composed_route
from ..observation import Component, Observed
from ..pricing import budget_unit
from ..problem import Ref
from ..scheduling import adapters
from ..scheduling.model import Pending, Placement
from ..status.caller_policy import GatewayBudgets, caller_policy
from ..status.conditions import READY, Condition, Status, declared_message
from ..status.inference_class import inference_class
from ..status.inference_gateway import inference_gateway, leaving_gateway, model_gateway
from ..status.infrastructure import infrastructure
from ..status.model_cache import model_cache
from ..status.model_deployment import CacheState, model_deployment
from ..status.model_endpoint import model_endpoint
from ..status.model_replica import ReplicaState, model_replica
from ..status.model_route import model_route
from ..status.model_service import model_service
from ..status.route_policies import Contested, conflict, contested
from ..wire import Object, identity, number, text
from . import Plan
from .clusters import Platform
from .fleet import Key
from .rollout import rollout_state
from .traffic import missing_credential

_NOT_OBSERVED = ReplicaState(None, None)


def statuses(plan: Plan, timestamp: str) -> tuple[Object, ...]:
    """Return every resource with its status: apiVersion, kind, name, namespace, status.

    `timestamp` (RFC 3339) is the transition time of changed conditions. Empty when the fleet is not observed."""
    observed = plan.context.observed
    if observed is None:
        return ()
    status_objects = []
    for subject, status in _all(plan, observed):
        ref = subject.ref
        generation = subject.generation or _generation(observed, ref)
        metadata = {"name": ref.name, **({"namespace": ref.namespace} if ref.namespace else {})}
        head = {"apiVersion": subject.api_version, "kind": ref.kind, "metadata": metadata}
        status_objects.append({**head, "status": status.wire(plan.context.statuses.get(ref), generation, timestamp)})
    return tuple(status_objects)


@dataclass(frozen=True)
class _Subject:
    """Resource of a status."""

    api_version: str
    ref: Ref
    generation: int | None = None

    @classmethod
    def of(cls, subject: api.Resource) -> _Subject:
        return cls(subject.group_version(), subject.ref, subject.metadata.generation)


_Status = tuple[_Subject, Status[resource.Status]]
_RouteStatus = tuple[api.ModelRoute, Status[ModelRouteStatus]]


def _generation(observed: Observed, ref: Ref) -> int | None:
    """Return the generation on the control cluster of a resource that is read from a file."""
    return number(observed.control.find(ref.kind, ref.namespace, ref.name), "metadata", "generation") or None


def _all(plan: Plan, observed: Observed) -> Iterator[_Status]:
    for resource_class in plan.context.fleet.classes.values():
        yield _Subject.of(resource_class), inference_class(resource_class, previous=_before(plan, resource_class.ref))
    for platform in plan.platforms.values():
        if platform.status is not None:
            yield _Subject.of(platform.resource), platform.status
            yield from _infrastructure(plan, platform)
    yield from _gateway(plan, observed)
    yield from _replicas(plan)
    endpoints = list(_endpoints(plan, observed))
    yield from endpoints
    routes = list(_routes(plan))
    yield from ((_Subject.of(route), status) for route, status in routes)
    yield from _services(plan, observed, routes)
    yield from _policies(plan)
    yield from _caches(plan)
    yield from _deployments(plan, _unready(plan, endpoints))


def _before(plan: Plan, ref: Ref) -> Mapping[str, Any] | None:
    return plan.context.statuses.get(ref)


def _infrastructure(plan: Plan, platform: Platform) -> Iterator[_Status]:
    """Yield the statuses of the objects composed for a cluster: its ServingStack, and the cloud cluster if the fleet
    creates it."""
    name = platform.resource.name
    observed = plan.context.observed_cluster(name)
    silent = observed is None or bool(observed.unreachable)
    declared = Component(True, declared_message(name)) if plan.context.declared(name) else None
    for value in platform.objects:
        ref = Ref(*identity(value)[1:])
        fields: resource.Status = api.construct(resource.Status)
        if ref.kind == "ServingStack":
            component = declared if silent or observed is None else observed.stack
            gateway = platform.status.fields.gateway if platform.status else None
            if gateway:
                stack_gateway = api.construct(StackGatewayStatus, address=gateway.address)
                fields = api.construct(ServingStackStatus, gateway=stack_gateway)
        else:
            component = declared if silent or observed is None else observed.provisioned
        generation = number(value, "metadata", "generation") or None
        subject = _Subject(text(value, "apiVersion"), ref, generation)
        yield subject, infrastructure(component, fields, previous=_before(plan, ref))


def _unready(plan: Plan, endpoints: Iterable[_Status]) -> dict[Key, list[str]]:
    """Return the composed ModelEndpoints that are not Ready, by deployment."""
    deployments = {
        endpoint.ref: endpoint.labels[names.DEPLOYMENT_LABEL]
        for endpoint in (*plan.traffic.endpoints, *plan.context.fleet.external.values())
        if endpoint.labels.get(names.DEPLOYMENT_LABEL)
    }
    unready: dict[Key, list[str]] = {}
    for subject, status in endpoints:
        ready = status.condition(READY)
        if subject.ref in deployments and ready is not None and ready.status == "False":
            key = (subject.ref.namespace, deployments[subject.ref])
            unready.setdefault(key, []).append(subject.ref.name)
    return unready


def _gateway(plan: Plan, observed: Observed) -> Iterator[_Status]:
    gateway = plan.context.fleet.path_gateway
    if gateway:
        previous = _before(plan, gateway.ref)
        status = inference_gateway(gateway, observed.seen, observed.controller, previous=previous)
        yield _Subject.of(gateway), status
    for gateway in plan.context.fleet.model_gateways:
        yield _Subject.of(gateway), model_gateway_status(plan, gateway)
    for leaving in plan.models.leaving:
        subject = _Subject(api.InferenceGateway.group_version(), leaving.ref)
        earlier_status = _before(plan, leaving.ref)
        yield subject, leaving_gateway(leaving.address, leaving.certificate, leaving.message, previous=earlier_status)


def model_gateway_status(plan: Plan, gateway: api.InferenceGateway) -> Status[InferenceGatewayStatus]:
    """Return the status of a Model gateway."""
    cluster = gateway.spec.cluster_name or ""
    seen = plan.context.observed_cluster(cluster)
    return model_gateway(
        gateway,
        seen.objects if seen and not seen.unreachable else None,
        refused=plan.models.refused.get(gateway.name, ""),
        is_declared=plan.context.declared(cluster),
        previous=_before(plan, gateway.ref),
    )


def _replicas(plan: Plan) -> Iterator[_Status]:
    cluster_names = {cluster.name for cluster in plan.clusters}
    for replica in plan.composed:
        cluster = replica.spec.cluster_name
        waiting = "" if cluster in cluster_names else f"Waiting for InferenceCluster {cluster}"
        state = plan.states.get((replica.namespace, replica.name), _NOT_OBSERVED)
        yield _Subject.of(replica), model_replica(replica, state, _before(plan, replica.ref), waiting=waiting)


def _endpoints(plan: Plan, observed: Observed) -> Iterator[_Status]:
    context = plan.context
    backend = backend_of(context.fleet.path_gateway)
    has_path = context.fleet.serves_paths
    by_models = {
        (routed_model.route.service.namespace, member.endpoint.name): routed_model.problems.get(
            member.endpoint.name, ""
        )
        for routed_model in plan.models.routes
        for member in routed_model.route.resolution.members
    }
    for endpoint in (*plan.traffic.endpoints, *context.fleet.external.values()):
        finding = endpoint_problem(endpoint)
        key = (endpoint.namespace, endpoint.name)
        waiting = "" if finding else missing_credential(context, endpoint)
        status = model_endpoint(
            endpoint,
            endpoint_objects(endpoint, context.composing, backend),
            observed.seen,
            finding,
            waiting=waiting if has_path else waiting or by_models.get(key, ""),
            has_path=has_path,
            is_selected=key in by_models,
            previous=_before(plan, endpoint.ref),
        )
        yield _Subject.of(endpoint), status


def _services(plan: Plan, observed: Observed, routes: Iterable[_RouteStatus]) -> Iterator[_Status]:
    fleet = plan.context.fleet
    by_service: dict[Key, list[Condition]] = {}
    for route, routing in routes:
        key = (route.namespace, route.spec.service_name)
        by_service.setdefault(key, []).extend(
            condition for condition in routing.conditions if condition.type == "RoutingReady"
        )
    resolutions = {routed_model.route.service.ref: routed_model.route.resolution for routed_model in plan.models.routes}
    for routed in plan.traffic.services:
        service = fleet.services.get((routed.namespace, routed.name))
        if service is None:
            # Its manifest has errors: its objects and its status stay unchanged.
            continue
        status = model_service(
            service,
            # In mode Model all gateways that serve it use the same endpoints.
            routed.resolution if fleet.serves_paths else resolutions.get(service.ref, routed.resolution),
            routed.objects,
            plan.traffic.address,
            observed.seen,
            models=by_service.get((routed.namespace, routed.name), []) if fleet.model_gateways else None,
            has_path=fleet.serves_paths,
            refused=refused_gateways(plan, service),
            previous=_before(plan, service.ref),
        )
        yield _Subject.of(service), status


def refused_gateways(plan: Plan, service: api.ModelService) -> str:
    """Return the reasons for the refusal of gateways that select a service."""
    selecting = (gateway.name for gateway in plan.context.fleet.model_gateways if gateway.serves(service.labels))
    reasons = (f"{name} is not made: {plan.models.refused[name]}" for name in selecting if name in plan.models.refused)
    return "; ".join(reasons)


def _routes(plan: Plan) -> Iterator[_RouteStatus]:
    """Yield every ModelRoute with its status."""
    addresses = {
        gateway.name: model_gateway_status(plan, gateway).fields.address or ""
        for gateway in plan.context.fleet.model_gateways
    }
    contested_by_cluster: dict[str, Contested] = {}
    for routed_model in plan.models.routes:
        route, cluster = composed_route(routed_model.route), routed_model.route.gateway.spec.cluster_name or ""
        seen = plan.context.observed_cluster(cluster)
        if cluster not in contested_by_cluster:
            contested_by_cluster[cluster] = contested(seen.objects) if seen else {}
        endpoints = {member.endpoint.name: "" for member in routed_model.route.resolution.members}
        yield (
            route,
            model_route(
                route,
                cluster,
                routed_model.objects,
                seen.objects if seen and not seen.unreachable else None,
                endpoints={**endpoints, **routed_model.problems},
                address=addresses[routed_model.route.gateway.name],
                conflict=conflict(contested_by_cluster[cluster], routed_model.ai_routes),
                is_declared=plan.context.declared(cluster),
                previous=_before(plan, route.ref),
            ),
        )


def _policies(plan: Plan) -> Iterator[_Status]:
    """Yield the statuses of policies, with the budgets that gateways of their services report."""
    asking: dict[Ref, list[api.InferenceGateway]] = {}
    for routed_model in plan.models.routes:
        if routed_model.objects and routed_model.route.gateway.spec.auth:
            asking.setdefault(routed_model.route.service.ref, []).append(routed_model.route.gateway)
    for __, policy in sorted(plan.context.fleet.policies.items()):
        services = plan.context.selection.services(policy)
        gateways = {gateway.name: gateway for service in services for gateway in asking.get(service.ref, ())}
        budgets = [_at_gateway(plan, policy, gateway) for __, gateway in sorted(gateways.items())]
        yield _Subject.of(policy), caller_policy(policy, budgets, budget_unit(plan.context.catalogue))


def _at_gateway(plan: Plan, policy: api.CallerPolicy, gateway: api.InferenceGateway) -> GatewayBudgets:
    cluster = gateway.spec.cluster_name or ""
    if plan.context.declared(cluster):
        return GatewayBudgets(gateway.name, unread=f"cluster {cluster} is not observed, as its objects are files")
    seen = plan.context.observed_cluster(cluster)
    if seen is None or seen.unreachable:
        why = f": {seen.unreachable}" if seen else ""
        return GatewayBudgets(gateway.name, unread=f"cluster {cluster} has not been observed{why}")
    of_policy = (
        budget for budget in seen.budgets if (budget.namespace, budget.policy) == (policy.namespace, policy.name)
    )
    return GatewayBudgets(gateway.name, {budget.name: budget for budget in of_policy})


def _caches(plan: Plan) -> Iterator[_Status]:
    for staged in plan.caches:
        cache = plan.context.fleet.caches.get((staged.namespace, staged.name))
        if cache is None:
            continue
        status = model_cache(
            cache,
            [phase.cluster for phase in staged.phases],
            {phase.cluster: (phase.phase, phase.artifact, phase.message) for phase in staged.phases},
            staged.token_missing,
            previous=_before(plan, cache.ref),
            leaving={phase.cluster: (phase.phase, phase.artifact, phase.message) for phase in staged.leaving},
        )
        yield _Subject.of(cache), status


def _deployments(plan: Plan, unready: Mapping[Key, Sequence[str]]) -> Iterator[_Status]:
    fleet = plan.context.fleet
    placements: dict[Key, list[Placement]] = {}
    states: dict[Key, dict[tuple[str, int], ReplicaState]] = {}
    for placement, replica in zip(plan.schedule.placements, plan.replicas, strict=True):
        key = (placement.namespace, placement.deployment)
        placements.setdefault(key, []).append(placement)
        state = plan.states.get((placement.namespace, replica.name), _NOT_OBSERVED)
        states.setdefault(key, {})[(placement.cluster, placement.index)] = state
    leaving: dict[Key, list[tuple[str, int]]] = {}
    for leaver in map(adapters.replica, plan.leaving):
        key = (leaver.namespace, leaver.deployment)
        leaving.setdefault(key, []).append((leaver.cluster, leaver.index))
        state = plan.states.get((leaver.namespace, leaver.name), _NOT_OBSERVED)
        states.setdefault(key, {})[(leaver.cluster, leaver.index)] = state
    rollouts = {rollout.key: rollout_state(rollout) for rollout in plan.rollouts}
    pending: dict[Key, Pending] = {(entry.namespace, entry.deployment): entry for entry in plan.schedule.pending}
    for key, deployment in fleet.deployments.items():
        short = pending.get(key)
        invalid = short.message if short and short.reason == "InvalidNodeSelector" else ""
        invalid = invalid or next((p.reason for p in placements.get(key, ()) if p.reason.startswith("Invalid")), "")
        status = model_deployment(
            deployment,
            placements.get(key, ()),
            short,
            states.get(key, {}),
            _cache_state(plan, deployment),
            invalid,
            leaving=leaving.get(key, ()),
            rollout=rollouts.get(key),
            unready_endpoints=unready.get(key, ()),
            previous=_before(plan, deployment.ref),
        )
        yield _Subject.of(deployment), status


def _cache_state(plan: Plan, deployment: api.ModelDeployment) -> CacheState:
    reference = deployment.spec.template.spec.model_cache_ref
    if reference is None:
        return "none"
    cache = Ref("ModelCache", deployment.namespace, reference.name)
    if (cache.namespace, cache.name) in plan.context.fleet.caches:
        return "resolved"
    return "unresolved" if cache in plan.context.fleet.held else "missing"
