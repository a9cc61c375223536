# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Traffic through the control cluster: its endpoints, and the services that route to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

from .. import api
from ..api.inference_gateway import CONTROL_CLUSTER_GATEWAY
from ..compose import model_endpoint
from ..compose.backend import backend_name, endpoint_objects, endpoint_problem
from ..compose.gateway import GatewayBackend, HelmRelease, backend_of
from ..compose.label_index import LabelIndex
from ..compose.service import Resolution, resolve, service_objects
from ..problem import Ref
from ..status.inference_gateway import gateway_address
from ..wire import Object, entries, text
from .context import Context
from .fleet import Key


@dataclass(frozen=True)
class RoutedService:
    """ModelService with its resolved endpoints and its objects.

    `address`: its URL, "" while the gateway has no address.
    `held`: True if the objects are from earlier runs.
    """

    namespace: str
    name: str
    resolution: Resolution
    objects: tuple[Object, ...]
    path: str
    address: str = ""
    held: bool = False


@dataclass(frozen=True)
class Traffic:
    """Objects of the control cluster in the path of requests, and the endpoints of each service."""

    endpoints: tuple[api.ModelEndpoint, ...]
    objects: tuple[Object, ...]
    services: tuple[RoutedService, ...]
    releases: tuple[HelmRelease, ...]
    address: str = ""


def composed_endpoints(
    context: Context,
    replicas: Iterable[api.ModelReplica],
    urls: Mapping[str, str],
    serving: Mapping[Key, bool | None],
) -> tuple[api.ModelEndpoint, ...]:
    """Return the ModelEndpoint of every serving replica behind a gateway with an address.

    Endpoints with an unknown state are left unchanged.

    `urls`: the known URLs by cluster, "" for a gateway without a URL.
    `serving`: True for a serving replica, None if this is unknown.
    """
    endpoints = []
    for replica in replicas:
        key = (replica.namespace, replica.name)
        cluster = replica.spec.cluster_name
        existing = context.fleet.endpoints.get(key)
        serves = serving.get(key)
        if serves is None and context.observed is not None:
            serves = existing is not None
        if serves is False:
            continue
        if cluster not in urls:
            endpoints += [existing] if existing else []
        elif urls[cluster]:
            endpoints.append(model_endpoint(replica, urls[cluster], context.fleet.clusters.get(cluster)))
    return tuple(endpoints)


def traffic(context: Context, composed: Sequence[api.ModelEndpoint]) -> Traffic:
    """Return the traffic of the fleet with these composed ModelEndpoints."""
    fleet = context.fleet
    gateway = fleet.path_gateway
    backend = backend_of(gateway)
    objects: list[Object] = list(_gateway(context, backend, gateway))
    endpoints = [*composed, *fleet.external.values()]
    for endpoint in endpoints if fleet.serves_paths else ():
        objects += endpoint_objects(endpoint, context.composing, backend)
    broken = _broken(context)
    for ref in sorted(broken):
        objects += context.kept(ref, "")
    address = _address(context, gateway)
    routed = _services(context, backend, endpoints, address, _service_names(objects), broken)
    objects += [value for service in routed for value in service.objects]
    releases = backend.releases(gateway) if gateway else ()
    return Traffic(tuple(composed), tuple(objects), routed, tuple(releases), address)


def _gateway(context: Context, backend: GatewayBackend, gateway: api.InferenceGateway | None) -> Sequence[Object]:
    ref = Ref("InferenceGateway", "", CONTROL_CLUSTER_GATEWAY)
    if ref in context.fleet.held:
        return context.kept(ref, "")
    return backend.objects(gateway) if gateway else ()


def _address(context: Context, gateway: api.InferenceGateway | None) -> str:
    """Return the address of the gateway: the observed one, else the last known one."""
    if gateway is None and CONTROL_CLUSTER_GATEWAY in context.fleet.gateways:
        return ""
    manifest_address = (gateway.status.address if gateway and gateway.status else None) or ""
    earlier = text(context.statuses.get(Ref("InferenceGateway", "", CONTROL_CLUSTER_GATEWAY)), "address")
    if context.observed is None:
        return manifest_address or earlier
    return gateway_address(context.observed.control, context.observed.controller, earlier or manifest_address)


def usable(context: Context, endpoint: api.ModelEndpoint) -> bool:
    """Return True when requests can be sent to an endpoint."""
    return not path_problem(context, endpoint)


def path_problem(context: Context, endpoint: api.ModelEndpoint) -> str:
    """Return the reason why a path-based gateway sends no requests to an endpoint; "" if the endpoint is usable.

    The reasons are an invalid URL and a missing credential.
    """
    return endpoint_problem(endpoint) or missing_credential(context, endpoint)


def missing_credential(context: Context, endpoint: api.ModelEndpoint) -> str:
    """Return that the credential of an endpoint is not there; "" when it is, or when that is not known."""
    credential = endpoint.spec.credential
    if context.observed is None or credential is None:
        return ""
    secret = credential.api_key.secret_ref
    if not context.observed.lacks(endpoint.namespace, secret.name, secret.key):
        return ""
    return f"Secret {endpoint.namespace}/{secret.name} is missing or has no key {secret.key}"


def _services(
    context: Context,
    backend: GatewayBackend,
    endpoints: Sequence[api.ModelEndpoint],
    address: str,
    backends: frozenset[Key],
    broken: Iterable[Ref],
) -> tuple[RoutedService, ...]:
    fleet = context.fleet
    index = LabelIndex(endpoints)
    unreadable = frozenset(
        (ref.namespace, backend_name(ref.name, egress=egress)) for ref in broken for egress in (False, True)
    )
    blind = {namespace for namespace, __ in unreadable}
    routed = []
    for key, service in sorted(fleet.services.items()):
        resolution = resolve(service, index, lambda endpoint: usable(context, endpoint))
        path = f"/{service.namespace}/{service.name}/"
        url = f"http://{address}{path.rstrip('/')}" if address else ""
        earlier_objects = context.kept(service.ref, "") if service.namespace in blind or resolution.tier is None else []
        if any(_refers_to(value, unreadable) for value in earlier_objects):
            objects = _held(earlier_objects, backends)
            routed.append(RoutedService(*key, resolution, objects, path, url, held=True))
            continue
        existed = any(value["kind"] == "HTTPRoute" for value in earlier_objects)
        objects = service_objects(service, resolution, backend, existed) if fleet.serves_paths else ()
        routed.append(RoutedService(*key, resolution, objects, path, url))
    for ref in sorted(ref for ref in fleet.held if ref.kind == "ModelService"):
        objects = _held(context.kept(ref, ""), backends)
        path = f"/{ref.namespace}/{ref.name}/"
        routed.append(RoutedService(ref.namespace, ref.name, Resolution((), None), objects, path, held=True))
    return tuple(sorted(routed, key=lambda service: (service.namespace, service.name)))


def _broken(context: Context) -> frozenset[Ref]:
    """Return the hand-written ModelEndpoints with invalid manifests; the objects composed for them stay."""
    fleet = context.fleet
    invalid = (endpoint.ref for endpoint in fleet.external.values() if endpoint_problem(endpoint))
    return frozenset([*(ref for ref in fleet.held if ref.kind == "ModelEndpoint"), *invalid])


def _service_names(objects: Iterable[Object]) -> frozenset[Key]:
    return frozenset(
        (value["metadata"]["namespace"], value["metadata"]["name"]) for value in objects if value["kind"] == "Service"
    )


def _references(route: Object) -> Iterable[Object]:
    """Yield every reference of an HTTPRoute to a Service of the same namespace."""
    # A route whose fields are all owned by another manager has no specification here.
    for rule in entries(route, "spec", "rules") if route["kind"] == "HTTPRoute" else ():
        yield from (reference for reference in rule.get("backendRefs") or () if not reference.get("namespace"))


def _refers_to(route: Object, backends: frozenset[Key]) -> bool:
    namespace = route["metadata"].get("namespace", "")
    return any((namespace, reference["name"]) in backends for reference in _references(route))


def _held(earlier_objects: Sequence[Object], backends: frozenset[Key]) -> tuple[Object, ...]:
    """Return the unchanged objects of a service, without references to backends that no longer exist."""
    existing = backends | _service_names(earlier_objects)
    return tuple(_without_missing(value, existing) for value in earlier_objects)


def _without_missing(route: Object, backends: frozenset[Key]) -> Object:
    """Return a kept route without missing backends, because their share of requests would fail with 500."""
    namespace = route["metadata"].get("namespace", "")
    if all((namespace, reference["name"]) in backends for reference in _references(route)):
        return route
    pruned_route = deepcopy(dict(route))
    for rule in pruned_route["spec"]["rules"]:
        remaining_backends = [
            reference
            for reference in rule.get("backendRefs") or ()
            if reference.get("namespace") or (namespace, reference["name"]) in backends
        ]
        if remaining_backends:
            rule["backendRefs"] = remaining_backends
    return pruned_route
