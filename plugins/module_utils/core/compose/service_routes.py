# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The HTTPRoutes of a service on the control gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.backend import (
    backend_host,
    backend_reference,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.control import control_metadata
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.gateway import GatewayBackend
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.slices import manual_slice
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.tree import Leaf, Part, grow
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.weights import reduced
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object

_UNAVAILABLE_PORT = 80


@dataclass(frozen=True)
class Routed:
    """A ModelEndpoint that gets requests, and its weight against the others."""

    endpoint: api.ModelEndpoint
    weight: int


def service_path(service: api.ModelService) -> str:
    """Return the path below which the gateway serves a ModelService."""
    return f"/{service.namespace}/{service.name}/"


def routes(service: api.ModelService, used: Sequence[Routed], gateway: GatewayBackend) -> tuple[Object, ...]:
    """The routes to these endpoints, of which there is at least one.

    A rule takes 16 backends at most. More endpoints become a tree: the first route splits the requests over parts by
    sending them, below a longer path, to the gateway's own Service once more, where a route of each part splits on.
    The weights of a part sum up to its own weight, so the shares stay exact. A ReferenceGrant lets routes of the
    service's namespace lead to the gateway's Service.
    """
    root = grow([Leaf(routed.endpoint.name, routed.weight, routed.endpoint) for routed in used])
    parts = root.parts()
    composed = tuple(_route(service, part, gateway) for part in parts)
    return composed if len(parts) == 1 else (_grant(service, gateway), *composed)


def unavailable(service: api.ModelService, gateway: GatewayBackend) -> tuple[Object, ...]:
    """A route that answers 503 to everything.

    Its backend is a Service without any endpoint, for which Gateway API asks for 503; a rule without backends has to
    answer 500 (HTTPRouteRule.backendRefs), which tells clients that to come back later is of no use.
    """
    name = names.child_name(_prefix(service), "unavailable")
    metadata = control_metadata(service, names.SERVICE_LABEL, name)
    port = {"port": _UNAVAILABLE_PORT, "protocol": "TCP"}
    return (
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [port]}},
        manual_slice(metadata, "IPv4", _UNAVAILABLE_PORT, ()),
        _http_route(service, "", [{"name": name, "port": _UNAVAILABLE_PORT}], gateway),
    )


def _prefix(service: api.ModelService) -> str:
    return names.object_prefix(service.name)


def _part_path(service: api.ModelService, key: str) -> str:
    return f"{service_path(service)}.part-{key}/" if key else service_path(service)


def _route(service: api.ModelService, part: Part[api.ModelEndpoint], gateway: GatewayBackend) -> Object:
    shares = reduced([child.weight for child in part.children])
    references = [
        _to_part(service, child, weight, gateway)
        if isinstance(child, Part)
        else _to_endpoint(service, part, child.item, weight)
        for child, weight in zip(part.children, shares, strict=True)
    ]
    return _http_route(service, part.key, references, gateway)


def _http_route(
    service: api.ModelService, key: str, references: Sequence[Mapping[str, Any]], gateway: GatewayBackend
) -> Object:
    name = names.child_name(_prefix(service), "route", *(["part", key] if key else []))
    return {
        "apiVersion": f"{constants.GATEWAY_GROUP}/v1",
        "kind": "HTTPRoute",
        "metadata": control_metadata(service, names.SERVICE_LABEL, name),
        "spec": {
            "parentRefs": [dict(gateway.parent)],
            "rules": [
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": _part_path(service, key)}}],
                    "backendRefs": list(references),
                    # Token streams outlast any proxy default; 0s turns the timeout off.
                    "timeouts": {"request": "0s"},
                }
            ],
        },
    }


def _to_part(
    service: api.ModelService, part: Part[api.ModelEndpoint], weight: int, gateway: GatewayBackend
) -> dict[str, Any]:
    own = gateway.own_service
    return {
        "namespace": own.namespace,
        "name": own.name,
        "port": own.port,
        "weight": weight,
        "filters": [_rewrite(path=_part_path(service, part.key))],
    }


def _to_endpoint(
    service: api.ModelService, part: Part[api.ModelEndpoint], endpoint: api.ModelEndpoint, weight: int
) -> dict[str, Any]:
    """The reference to an endpoint. Below a part the path that an endpoint without `rewritePath` gets is restored."""
    name, port = backend_reference(endpoint)
    path = endpoint.spec.rewrite_path or (service_path(service) if part.key else "")
    host = backend_host(endpoint)
    reference: dict[str, Any] = {"name": name, "port": port, "weight": weight}
    if path or host:
        reference["filters"] = [_rewrite(path=path, host=host)]
    return reference


def _rewrite(*, path: str = "", host: str = "") -> dict[str, Any]:
    rewrite: dict[str, Any] = {}
    if host:
        rewrite["hostname"] = host
    if path:
        rewrite["path"] = {"type": "ReplacePrefixMatch", "replacePrefixMatch": path}
    return {"type": "URLRewrite", "urlRewrite": rewrite}


def _grant(service: api.ModelService, gateway: GatewayBackend) -> Object:
    """Every service has its own grant, so that it goes with the service."""
    own = gateway.own_service
    name = names.child_name(service.namespace, service.name.replace(".", "-"), "parts")
    return {
        "apiVersion": f"{constants.GATEWAY_GROUP}/v1beta1",
        "kind": "ReferenceGrant",
        "metadata": control_metadata(service, names.SERVICE_LABEL, name, own.namespace),
        "spec": {
            "from": [{"group": constants.GATEWAY_GROUP, "kind": "HTTPRoute", "namespace": service.namespace}],
            "to": [{"group": "", "kind": "Service", "name": own.name}],
        },
    }
