# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects of a ModelEndpoint: the Service that connects the control gateway to a backend, its EndpointSlice, and its
TLS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import api, names
from ..api.model_endpoint import ANTHROPIC, AUTHORIZATION, BEARER, X_API_KEY, EndpointTLS
from ..wire import Object
from . import constants
from .control import control_metadata
from .egress import EGRESS_PORT, egress_name, egress_objects
from .endpoint_slices import manual_slice
from .endpoint_url import HTTP, InvalidUrl, Target, parse_url
from .gateway import GatewayBackend, backend_of
from .options import Options

_HTTPS_PORT = 443


def endpoint_problem(endpoint: api.ModelEndpoint) -> str:
    """Return the reason why requests cannot be sent to a ModelEndpoint; "" without a problem."""
    tls = endpoint.spec.tls
    try:
        target = parse_url(endpoint.spec.backend_url)
    except InvalidUrl as error:
        return str(error)
    if target.tls and not target.named and not (tls and tls.server_name):
        return (
            f"the url is https to the address {target.host}, and certificates are checked by name: "
            "write the name in the backend's certificate into tls.serverName"
        )
    return ""


@dataclass(frozen=True)
class Obstacle:
    """Reason why Model gateways cannot use an endpoint, and the affected field below `spec`."""

    field: str
    reason: str


def model_mode_obstacle(endpoint: api.ModelEndpoint) -> Obstacle | None:
    """Return the reason why Model gateways cannot send requests to an endpoint outside of the fleet; None without a
    problem."""
    spec = endpoint.spec
    try:
        target = parse_url(spec.backend_url)
    except InvalidUrl as error:
        return Obstacle(spec.backend_field, str(error))
    if not target.named:
        reason = "gateways in mode Model reach backends by DNS name only: write one in origin in place of the url"
        return Obstacle(spec.backend_field, reason)
    if spec.tls and spec.tls.ca_certificate_ref:
        reason = "gateways in mode Model trust only certificates that the system trusts: remove tls.caCertificateRef"
        return Obstacle("tls.caCertificateRef", reason)
    usual = (X_API_KEY, "") if spec.schema_name == ANTHROPIC else (AUTHORIZATION, BEARER)
    if spec.credential and (spec.key_header.lower(), spec.key_prefix) != (usual[0].lower(), usual[1]):
        prefix = f"with the prefix '{usual[1]}'" if usual[1] else "without a prefix"
        reason = (
            f"gateways in mode Model send the key of a backend that speaks {spec.schema_name} in {usual[0]} {prefix}: "
            "leave header and prefix out of credential.apiKey"
        )
        return Obstacle("credential.apiKey", reason)
    return None


def backend_name(name: str, *, egress: bool = False) -> str:
    """Return the name of the Service that connects the gateway to the ModelEndpoint of this name.

    `egress` selects the Service of an endpoint with a credential. It has another name, so that a route switches from
    one Service to the other in a single update.
    """
    return egress_name(name) if egress else names.child_name(names.object_prefix(name), "endpoint")


def backend_reference(endpoint: api.ModelEndpoint) -> tuple[str, int]:
    """Return name and port of the Service of a valid ModelEndpoint."""
    if endpoint.spec.credential:
        return backend_name(endpoint.name, egress=True), EGRESS_PORT
    return backend_name(endpoint.name), parse_url(endpoint.spec.backend_url).port


def backend_host(endpoint: api.ModelEndpoint) -> str:
    """Return the Host that the gateway writes into requests; "" to keep the Host of the client.

    Providers serve many names at one address and reject others. An egress proxy sets the Host itself.
    """
    target = parse_url(endpoint.spec.backend_url)
    return target.host if target.named and not endpoint.spec.credential else ""


def endpoint_objects(
    endpoint: api.ModelEndpoint, options: Options, gateway: GatewayBackend | None = None
) -> tuple[Object, ...]:
    """Return the objects of a ModelEndpoint; empty if the endpoint is not valid.

    The objects put a DNS name into an EndpointSlice, because gateways reject Services of type ExternalName.

    `gateway`: the proxy that uses the objects. Defaults to the default proxy.
    """
    if endpoint_problem(endpoint):
        return ()
    target = parse_url(endpoint.spec.backend_url)
    if endpoint.spec.credential:
        namespace = (gateway or backend_of(None)).namespace
        return egress_objects(endpoint, endpoint.spec.credential.api_key, target, options, namespace)
    metadata = control_metadata(endpoint, names.ENDPOINT_LABEL, backend_name(endpoint.name))
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"ports": [_service_port(target)]},
    }
    slices = manual_slice(metadata, target.address_type, target.port, [target.host])
    return (service, slices, _tls_policy(endpoint.spec.tls, target, metadata)) if target.tls else (service, slices)


def _service_port(target: Target) -> dict[str, Any]:
    port: dict[str, Any] = {"port": target.port, "protocol": "TCP"}
    if target.scheme == HTTP and target.port == _HTTPS_PORT:
        # Otherwise gateways assume TLS on port 443.
        port["appProtocol"] = HTTP
    return port


def _tls_policy(tls: EndpointTLS | None, target: Target, metadata: Mapping[str, Any]) -> Object:
    """Return the policy for TLS from the gateway to the Service: the name is sent as SNI and has to be in the
    certificate."""
    validation: dict[str, Any] = {"hostname": (tls.server_name if tls else None) or target.host}
    if tls and tls.ca_certificate_ref:
        validation["caCertificateRefs"] = [
            {"group": "", "kind": "ConfigMap", "name": tls.ca_certificate_ref.name},
        ]
    else:
        validation["wellKnownCACertificates"] = "System"
    return {
        "apiVersion": f"{constants.GATEWAY_GROUP}/v1",
        "kind": "BackendTLSPolicy",
        "metadata": dict(metadata),
        "spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": metadata["name"]}],
            "validation": validation,
        },
    }


__all__ = [
    "Obstacle",
    "backend_host",
    "backend_name",
    "backend_reference",
    "endpoint_objects",
    "endpoint_problem",
    "model_mode_obstacle",
]
