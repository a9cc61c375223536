# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""HTTPRoutes of a ModelService on the control gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import api, names
from ..wire import Object
from . import constants
from .backend import backend_host, backend_reference
from .control import control_metadata
from .endpoint_slices import manual_slice
from .gateway import GatewayBackend
from .route_tree import Leaf, Part, build_tree
from .weights import reduced

_UNAVAILABLE_PORT = 80


@dataclass(frozen=True)
class WeightedEndpoint:
    """ModelEndpoint that gets requests, and its weight."""

    endpoint: api.ModelEndpoint
    weight: int


def service_path(service: api.ModelService) -> str:
    """Return the path prefix of a ModelService on the gateway."""
    return f"/{service.namespace}/{service.name}/"


def routes(service: api.ModelService, used: Sequence[WeightedEndpoint], gateway: GatewayBackend) -> tuple[Object, ...]:
    """Return the routes to these endpoints. At least one endpoint is required.

    A rule allows at most 16 backends. More endpoints form a tree. The first route splits requests over parts: it sends
    them, with a longer path, to the gateway's own Service. There, a route of each part splits them further. The weight
    of a part is the sum of the weights in it, so the shares stay exact. A ReferenceGrant allows routes of the service's
    namespace to refer to the gateway's Service.
    """
    root = build_tree([Leaf(endpoint.endpoint.name, endpoint.weight, endpoint.endpoint) for endpoint in used])
    nodes = root.parts()
    composed = tuple(_route(service, node, gateway) for node in nodes)
    return composed if len(nodes) == 1 else (_grant(service, gateway), *composed)


def unavailable(service: api.ModelService, gateway: GatewayBackend) -> tuple[Object, ...]:
    """Return a route that responds to all requests with 503.

    Its backend is a Service without endpoints, and Gateway API requires 503 for such a Service. A rule without backends
    would respond with 500 (HTTPRouteRule.backendRefs), and clients do not retry 500.
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


def _route(service: api.ModelService, node: Part[api.ModelEndpoint], gateway: GatewayBackend) -> Object:
    shares = reduced([child.weight for child in node.children])
    references = [
        _to_part(service, child, weight, gateway)
        if isinstance(child, Part)
        else _to_endpoint(service, node, child.item, weight)
        for child, weight in zip(node.children, shares, strict=True)
    ]
    return _http_route(service, node.key, references, gateway)


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
    service: api.ModelService, node: Part[api.ModelEndpoint], weight: int, gateway: GatewayBackend
) -> dict[str, Any]:
    gateway_service = gateway.own_service
    return {
        "namespace": gateway_service.namespace,
        "name": gateway_service.name,
        "port": gateway_service.port,
        "weight": weight,
        "filters": [_rewrite(path=_part_path(service, node.key))],
    }


def _to_endpoint(
    service: api.ModelService, node: Part[api.ModelEndpoint], endpoint: api.ModelEndpoint, weight: int
) -> dict[str, Any]:
    """Return the reference to an endpoint. Within a part, an endpoint without `rewritePath` gets the original path."""
    name, port = backend_reference(endpoint)
    path = endpoint.spec.path or (service_path(service) if node.key else "")
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
    """Return the ReferenceGrant of a service. Each service has a separate ReferenceGrant, to prune both together."""
    gateway_service = gateway.own_service
    name = names.child_name(service.namespace, service.name.replace(".", "-"), "parts")
    return {
        "apiVersion": f"{constants.GATEWAY_GROUP}/v1beta1",
        "kind": "ReferenceGrant",
        "metadata": control_metadata(service, names.SERVICE_LABEL, name, gateway_service.namespace),
        "spec": {
            "from": [{"group": constants.GATEWAY_GROUP, "kind": "HTTPRoute", "namespace": service.namespace}],
            "to": [{"group": "", "kind": "Service", "name": gateway_service.name}],
        },
    }
