# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of an InferenceGateway: the readiness of its controller and of the gateway, and its address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import api, names
from ..api.inference_gateway import InferenceGatewayStatus
from ..compose import constants
from ..compose.endpoint import url_host
from ..compose.model_gateway.gateway import HEALTH
from ..observation import Component
from ..text import cut
from ..wire import Object, Objects, entries, first_address, is_true, label, number, text
from .conditions import READY, Condition, Status, declared_message, earlier, hold, ready, unknown
from .route_policies import conflict, contested

_CONTROLLER = "ControllerReady"
_ANY_ROUTE: Object = {
    "metadata": {"name": HEALTH, "namespace": constants.SYSTEM_NAMESPACE},
    "spec": {"parentRefs": [{"name": constants.MODEL_GATEWAY}]},
}
"""Route of a Model gateway that counts all policies of all its listeners."""
_NODE_ADDRESSES = ("ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS", "Hostname")
"""Types of node addresses (Kubernetes API reference, NodeAddress), most widely reachable first."""


def inference_gateway(
    gateway: api.InferenceGateway,
    control: Objects | None,
    controller: Component,
    *,
    previous: Mapping[str, Any] | None = None,
) -> Status[InferenceGatewayStatus]:
    """Return the status of an InferenceGateway.

    `control`: observed objects of the control cluster, None without an observation. `controller`: state of the
    installed components of the gateway. A known address is kept until the gateway has another address.
    """
    previous_status = earlier(gateway.status, previous)
    address = gateway_address(control, controller, text(previous_status, "address"))
    fields = api.construct(InferenceGatewayStatus, address=address or None)
    if control is None:
        message = "the control cluster has not been observed"
        return Status(
            tuple(hold(kind, previous_status, unknown(kind, message)) for kind in (_CONTROLLER, "Ready")), fields
        )
    if not controller.ready:
        message = cut(controller.message) or "Waiting for the controller of the gateway"
        return Status(
            (Condition(_CONTROLLER, "False", "Installing", message), ready(False, previous_status, message)), fields
        )
    healthy = Condition(_CONTROLLER, "True", "ControllerHealthy", cut(controller.message))
    missing = _missing(control, _gateway(control))
    return Status((healthy, ready(not missing, previous_status, "; ".join(missing))), fields)


def model_gateway(
    gateway: api.InferenceGateway,
    observed: Objects | None,
    *,
    refused: str = "",
    is_declared: bool = False,
    previous: Mapping[str, Any] | None = None,
) -> Status[InferenceGatewayStatus]:
    """Return the status of a Model gateway.

    `observed`: objects of its cluster, None if the cluster did not respond. `refused`: reason for a gateway that is not
    composed. `is_declared`: the cluster is unobserved, and its declared state is assumed.
    """
    previous_status = earlier(gateway.status, previous)
    if refused:
        # Another gateway now uses the previous address.
        return Status((ready(False, previous_status, refused),), api.construct(InferenceGatewayStatus))
    namespace = constants.SYSTEM_NAMESPACE
    seen = observed.find("Gateway", namespace, constants.MODEL_GATEWAY) if observed else None
    if label(seen, names.GATEWAY_LABEL) != names.label_value(gateway.name):
        # The Gateway of the serving stack has the same name until a Model gateway replaces it.
        seen = None
    authority = observed.find("ConfigMap", namespace, constants.MODEL_GATEWAY_CA) if observed else None
    address = first_address(seen) or text(previous_status, "address")
    scheme = "https" if gateway.spec.tls else "http"
    base = f"{scheme}://{url_host(address)}"
    certificate = text(authority, "data", constants.CA_KEY) or text(previous_status, "clientCACertificate")
    endpoints = {"openAI": f"{base}/v1", "anthropic": f"{base}/anthropic"} if address else None
    wire = {"address": address, "endpoints": endpoints, "clientCACertificate": certificate}
    fields = InferenceGatewayStatus.model_validate({key: value for key, value in wire.items() if value})
    cluster = gateway.spec.cluster_name or ""
    if is_declared:
        return Status((ready(True, previous_status, declared_message(cluster)),), fields)
    if observed is None:
        return Status(
            (hold("Ready", previous_status, unknown("Ready", f"cluster {cluster} has not been observed")),), fields
        )
    name = f"Gateway {namespace}/{constants.MODEL_GATEWAY}"
    if seen is None:
        return Status((ready(False, previous_status, f"{name} does not exist yet"),), fields)
    if not is_true(seen, "Programmed"):
        return Status((ready(False, previous_status, f"{name} is not programmed yet"),), fields)
    if why := conflict(contested(observed), [_ANY_ROUTE]):
        return Status((Condition(READY, "False", "PolicyConflict", why),), fields)
    return Status((ready(True, previous_status),), fields)


def leaving_gateway(
    address: str, certificate: str, message: str, previous: Mapping[str, Any] | None = None
) -> Status[InferenceGatewayStatus]:
    """Return the status of an InferenceGateway that is no longer in the manifests and serves until another one serves.

    Later runs recognize the gateway by this status. `certificate`: the CA certificate (PEM) that clusters trust for it.
    """
    wire = {"address": address, "clientCACertificate": certificate}
    fields = InferenceGatewayStatus.model_validate({key: value for key, value in wire.items() if value})
    return Status((hold("Ready", earlier(None, previous), unknown("Ready", message)),), fields)


def removed_gateway(previous: Mapping[str, Any] | None) -> Status[InferenceGatewayStatus]:
    """Return the status of an InferenceGateway after its gateway was uninstalled, without an address."""
    previous_status = earlier(None, previous)
    message = "The gateway was removed"
    conditions = (Condition(_CONTROLLER, "False", "Installing", message), ready(False, previous_status, message))
    return Status(conditions, api.construct(InferenceGatewayStatus))


def gateway_address(control: Objects | None, controller: Component, known: str) -> str:
    """Return the address of the control gateway: from its status, otherwise from its controller, otherwise `known`.

    A `known` address is kept while the controller has it or the address cannot be checked."""
    current = first_address(_gateway(control))
    if current or known in controller.addresses:
        return current or known
    return controller.addresses[0] if controller.addresses else known


def node_addresses(service: Object | None, nodes: Iterable[Object], port: int) -> tuple[str, ...]:
    """Return the addresses of a Service of type NodePort, HOST:PORT of each ready node, in order of preference.

    Return no addresses for other types of Services. `port`: port of the Service."""
    if text(service, "spec", "type") != "NodePort":
        return ()
    opened = [number(entry, "nodePort") for entry in entries(service, "spec", "ports") if number(entry, "port") == port]
    if not opened or not opened[0]:
        return ()
    ranked_addresses = []
    for node in nodes:
        by_type = {text(entry, "type"): text(entry, "address") for entry in entries(node, "status", "addresses")}
        rank = next((rank for rank, kind in enumerate(_NODE_ADDRESSES) if by_type.get(kind)), None)
        if rank is not None and is_true(node, "Ready"):
            ranked_addresses.append((rank, text(node, "metadata", "name"), by_type[_NODE_ADDRESSES[rank]]))
    return tuple(f"{url_host(address)}:{opened[0]}" for *__, address in sorted(ranked_addresses))


def _gateway(control: Objects | None) -> Object | None:
    return control.find("Gateway", constants.SYSTEM_NAMESPACE, constants.CONTROL_GATEWAY) if control else None


def _missing(control: Objects, gateway: Object | None) -> list[str]:
    """Return a message for each object that the controller has not accepted yet."""
    missing = [
        f"CustomResourceDefinition {text(crd, 'metadata', 'name')} is not established yet"
        for crd in control.of_kind("CustomResourceDefinition")
        if text(crd, "spec", "group") == constants.GATEWAY_GROUP and not is_true(crd, "Established")
    ]
    name = f"{constants.SYSTEM_NAMESPACE}/{constants.CONTROL_GATEWAY}"
    if gateway is None:
        return [*missing, f"Gateway {name} does not exist yet"]
    class_name = text(gateway, "spec", "gatewayClassName")
    if not is_true(control.find("GatewayClass", "", class_name), "Accepted"):
        missing.append(f"GatewayClass {class_name} is not accepted yet")
    if not is_true(gateway, "Accepted"):
        missing.append(f"Gateway {name} is not accepted yet")
    return missing
