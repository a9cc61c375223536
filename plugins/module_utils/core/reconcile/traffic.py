# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The way of requests through the control cluster: which endpoints there are, and which services lead to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import model_endpoint
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.backend import (
    backend_name,
    endpoint_fault,
    endpoint_objects,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.gateway import (
    GatewayBackend,
    HelmRelease,
    backend_of,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.service import (
    EndpointIndex,
    Resolution,
    resolve,
    service_objects,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.context import Situation
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.fleet import Key, Object
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.inference_gateway import gateway_address
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import entries

GATEWAY_NAME = "default"
"""The one InferenceGateway of a fleet."""


@dataclass(frozen=True)
class Routed:
    """A ModelService, the endpoints it leads to, and its objects. `address` is its URL, "" while the gateway has no
    address; `held` says that the objects are those of earlier runs."""

    namespace: str
    name: str
    resolution: Resolution
    objects: tuple[Object, ...]
    path: str
    address: str = ""
    held: bool = False


@dataclass(frozen=True)
class Traffic:
    """All objects of the control cluster that requests pass, and what is behind each service."""

    endpoints: tuple[Object, ...]
    objects: tuple[Object, ...]
    services: tuple[Routed, ...]
    releases: tuple[HelmRelease, ...]
    address: str = ""


def composed_endpoints(
    situation: Situation,
    replicas: Iterable[Object],
    urls: Mapping[str, str],
    serving: Mapping[Key, bool | None],
) -> tuple[Object, ...]:
    """The ModelEndpoint of every replica that serves behind a gateway that has an address.

    `urls` are those that can be told, by cluster, "" where there is known to be none; `serving` tells of each
    replica whether it serves, None when nobody can tell now. What cannot be told stays what it was.
    """
    objects = []
    for wire in replicas:
        key = (wire["metadata"]["namespace"], wire["metadata"]["name"])
        cluster = wire["spec"]["clusterName"]
        there = situation.fleet.endpoints.get(key)
        serves = serving.get(key)
        if serves is None and situation.observed is not None:
            serves = there is not None
        if serves is False:
            continue
        if cluster not in urls:
            objects += [there] if there else []
        elif urls[cluster]:
            objects.append(model_endpoint(wire, urls[cluster]))
    return tuple(objects)


def traffic(situation: Situation, composed: Sequence[Object]) -> Traffic:
    """All of it, for these composed ModelEndpoints."""
    fleet = situation.fleet
    gateway = fleet.gateways.get(GATEWAY_NAME)
    gateway_wire = api.wire(gateway) if gateway else None
    backend = backend_of(gateway_wire)
    objects: list[Object] = list(_gateway(situation, backend, gateway_wire))
    endpoints = [*composed, *fleet.external.values()]
    for endpoint in endpoints:
        objects += endpoint_objects(endpoint, situation.composing, backend)
    broken = _broken(situation)
    for ref in sorted(broken):
        objects += situation.kept(ref, "")
    address = _address(situation, gateway_wire)
    routed = _services(situation, backend, endpoints, address, _service_names(objects), broken)
    objects += [value for service in routed for value in service.objects]
    releases = backend.releases(gateway_wire) if gateway_wire else ()
    return Traffic(tuple(composed), tuple(objects), routed, tuple(releases), address)


def _gateway(situation: Situation, backend: GatewayBackend, gateway: Mapping[str, Any] | None) -> Sequence[Object]:
    ref = Ref("InferenceGateway", "", GATEWAY_NAME)
    if ref in situation.fleet.held:
        return situation.kept(ref, "")
    return backend.objects(gateway) if gateway else ()


def _address(situation: Situation, gateway: Mapping[str, Any] | None) -> str:
    """The address of the gateway: as observed, else the one that is known."""
    known = str(((gateway or {}).get("status") or {}).get("address") or "")
    earlier = str((situation.statuses.get(Ref("InferenceGateway", "", GATEWAY_NAME)) or {}).get("address") or "")
    if situation.observed is None:
        return known or earlier
    return gateway_address(situation.observed.control, situation.observed.controller, earlier or known)


def usable(situation: Situation, endpoint: Mapping[str, Any]) -> bool:
    """Whether requests can be sent to an endpoint: its URL is one, and its credential, if it needs one, is there."""
    spec = endpoint["spec"]
    if endpoint_fault(endpoint):
        return False
    if situation.observed is None or not spec.get("credential"):
        return True
    reference = spec["credential"]["apiKey"]["secretRef"]
    namespace, name = endpoint["metadata"]["namespace"], reference["name"]
    return not situation.observed.lacks(namespace, name, reference.get("key", "apiKey"))


def _services(
    situation: Situation,
    backend: GatewayBackend,
    endpoints: Sequence[Object],
    address: str,
    backends: frozenset[Key],
    broken: Iterable[Ref],
) -> tuple[Routed, ...]:
    fleet = situation.fleet
    index = EndpointIndex(endpoints)
    unreadable = frozenset(
        (ref.namespace, backend_name(ref.name, egress=egress)) for ref in broken for egress in (False, True)
    )
    blind = {namespace for namespace, _ in unreadable}
    found = []
    for key, service in sorted(fleet.services.items()):
        wire = api.wire(service)
        resolution = resolve(wire, index, lambda endpoint: usable(situation, endpoint))
        path = f"/{service.namespace}/{service.name}/"
        url = f"http://{address}{path.rstrip('/')}" if address else ""
        kept = situation.kept(service.ref, "") if service.namespace in blind or resolution.tier is None else []
        if any(_leads_to(value, unreadable) for value in kept):
            objects = _still(kept, backends)
            found.append(Routed(*key, resolution, objects, path, url, held=True))
            continue
        existed = any(value["kind"] == "HTTPRoute" for value in kept)
        found.append(Routed(*key, resolution, service_objects(wire, resolution, backend, existed), path, url))
    for ref in sorted(ref for ref in fleet.held if ref.kind == "ModelService"):
        objects = _still(situation.kept(ref, ""), backends)
        path = f"/{ref.namespace}/{ref.name}/"
        found.append(Routed(ref.namespace, ref.name, Resolution((), None), objects, path, held=True))
    return tuple(sorted(found, key=lambda service: (service.namespace, service.name)))


def _broken(situation: Situation) -> frozenset[Ref]:
    """The hand-written ModelEndpoints whose manifests cannot be used; what was made of them stays."""
    fleet = situation.fleet
    faulty = (Ref("ModelEndpoint", *key) for key, wire in fleet.external.items() if endpoint_fault(wire))
    return frozenset([*(ref for ref in fleet.held if ref.kind == "ModelEndpoint"), *faulty])


def _service_names(objects: Iterable[Object]) -> frozenset[Key]:
    return frozenset(
        (value["metadata"]["namespace"], value["metadata"]["name"]) for value in objects if value["kind"] == "Service"
    )


def _references(route: Object) -> Iterable[Object]:
    """Every reference of an HTTPRoute to a Service of its own namespace."""
    # A route of which another manager took everything has no specification of ours.
    for rule in entries(route, "spec", "rules") if route["kind"] == "HTTPRoute" else ():
        yield from (reference for reference in rule.get("backendRefs") or () if not reference.get("namespace"))


def _leads_to(route: Object, backends: frozenset[Key]) -> bool:
    namespace = route["metadata"].get("namespace", "")
    return any((namespace, reference["name"]) in backends for reference in _references(route))


def _still(kept: Sequence[Object], backends: frozenset[Key]) -> tuple[Object, ...]:
    """The objects of a service that stay as they are, as far as what they lead to is still there."""
    there = backends | _service_names(kept)
    return tuple(_without_gone(value, there) for value in kept)


def _without_gone(route: Object, backends: frozenset[Key]) -> Object:
    """A route that is kept, without the backends that are gone: each would answer its share of requests with 500."""
    namespace = route["metadata"].get("namespace", "")
    if all((namespace, reference["name"]) in backends for reference in _references(route)):
        return route
    route = deepcopy(route)
    for rule in route["spec"]["rules"]:
        left = [
            reference
            for reference in rule.get("backendRefs") or ()
            if reference.get("namespace") or (namespace, reference["name"]) in backends
        ]
        if left:
            rule["backendRefs"] = left
    return route
