# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Gateway of an inference cluster: the objects for Envoy Gateway, and the Route that exposes the gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from typing import Any

from .. import api
from ..wire import Object, identity
from . import constants
from .availability import spread_over_nodes
from .gateway.backend import gateway_listener
from .model_gateway import proxies
from .openshift import ROUTE
from .stack import merged

_CONTROLLER = "gateway.envoyproxy.io/gatewayclass-controller"
_METADATA = {"name": constants.WORKLOAD_GATEWAY, "namespace": constants.WORKLOAD_GATEWAY_NAMESPACE}
_PODS = {
    "gateway.envoyproxy.io/owning-gateway-name": constants.WORKLOAD_GATEWAY,
    "gateway.envoyproxy.io/owning-gateway-namespace": constants.WORKLOAD_GATEWAY_NAMESPACE,
}
"""Labels of the pods that Envoy Gateway creates for it."""
_DRAIN_SECONDS = 600
_MIN_DRAIN_SECONDS = 15
"""Time that a terminating pod accepts new connections: load balancers need a moment to drop it."""
_LOAD_BALANCER = "LoadBalancer"
_EXPOSURES = (_LOAD_BALANCER, ROUTE[1])
_ROUTER = "haproxy.router.openshift.io"
_ROUTE_TIMEOUT = "1h"
"""Idle timeout of OpenShift's router for a response. Its default of 30 seconds can be too short for a long prompt."""


@dataclass(frozen=True)
class GatewayChoices:
    """Settings of a gateway from the variables of a cluster and its ServingStack.

    `listeners`: in the format of the ServingStack.
    `drain_timeout`: seconds that a terminating pod waits for streams. Envoy Gateway adds 300 seconds to the grace
    period. None is 600, and 300 for Gateways that Model gateways use.
    `proxy`: `spec` of the EnvoyProxy, merged over the composed EnvoyProxy.
    `exposure`: `LoadBalancer`, or `Route` on OpenShift, with `annotations` and `source_ranges` on it.
    `route`: `spec` of the Route, merged over the composed Route.
    `image_registry`: mirror of docker.io, if any.
    `endpoint_hosts`: internal hosts that endpoints may use. Proxies of a Model gateway reach the CIDRs among them.
    `model_gateway`: True if the cluster has a Model gateway. It replaces the workload gateway and has its name.
    `certificates`: True if Model gateways send requests to the cluster.
    `keepalive`: True if policies make Envoy probe silent connections of the Gateway.
    """

    class_name: str = "envoy"
    listeners: Sequence[Mapping[str, Any]] = ()
    replicas: int = 2
    drain_timeout: int | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    source_ranges: Sequence[str] = ()
    proxy: Mapping[str, Any] = field(default_factory=dict)
    image_registry: str = ""
    image_pull_secrets: Sequence[str] = ()
    exposure: str = _LOAD_BALANCER
    route: Mapping[str, Any] = field(default_factory=dict)
    endpoint_hosts: Sequence[str] = ()
    model_gateway: bool = False
    certificates: bool = False
    keepalive: bool = False


def gateway_objects(choices: GatewayChoices) -> tuple[Object, ...]:
    """Return the EnvoyProxy, the GatewayClass, the Gateway, and the Route if a Route exposes the gateway.

    For a Model gateway, return its GatewayClass and the objects that its Gateways need but the fleet may not write.
    Raises api.InvalidResource for invalid listeners, ValueError for other choices.
    """
    if choices.exposure not in _EXPOSURES:
        raise ValueError(f"exposure is {choices.exposure}, and must be one of {', '.join(_EXPOSURES)}")
    if choices.model_gateway:
        return _of_model_gateway(replace(choices, exposure=_LOAD_BALANCER))
    listeners = _listeners(choices)
    metadata = dict(_METADATA)
    is_routed = choices.exposure == ROUTE[1]
    annotations = {"annotations": {constants.EXPOSURE_ANNOTATION: ROUTE[1]}} if is_routed else {}
    return (
        *_proxied_class(choices, choices.class_name, constants.WORKLOAD_GATEWAY),
        {
            "apiVersion": f"{constants.GATEWAY_GROUP}/v1",
            "kind": "Gateway",
            "metadata": {**metadata, **annotations},
            "spec": {
                "gatewayClassName": choices.class_name,
                "listeners": [gateway_listener(listener) for listener in listeners],
            },
        },
        *([_route(choices, listeners)] if is_routed else ()),
        *([_class(constants.MODEL_GATEWAY_CLASS)] if _needs_another_class(choices) else ()),
        *([_as_chosen(proxies.cluster_gateway_proxy(), choices)] if choices.certificates else ()),
    )


def traffic_policies(choices: GatewayChoices) -> tuple[Object, ...]:
    """Return the policies for connections of clients and of backends. A Gateway has one policy of each kind.
    For a Model gateway, the fleet composes them."""
    if choices.model_gateway or not choices.keepalive:
        return ()
    target = {"group": constants.GATEWAY_GROUP, "kind": "Gateway", "name": constants.WORKLOAD_GATEWAY}
    spec = {"targetRefs": [target], "tcpKeepalive": constants.TCP_KEEPALIVE}
    return tuple(
        {"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": kind, "metadata": dict(_METADATA), "spec": dict(spec)}
        for kind in ("ClientTrafficPolicy", "BackendTrafficPolicy")
    )


def _of_model_gateway(choices: GatewayChoices) -> tuple[Object, ...]:
    name = constants.MODEL_GATEWAY_CLASS
    hosted = proxies.host_objects(choices.endpoint_hosts)
    return *_proxied_class(choices, name, name), *(_as_chosen(host_object, choices) for host_object in hosted)


def _as_chosen(proxy: Object, choices: GatewayChoices) -> Object:
    """Return an object for Model gateways.

    An EnvoyProxy of a Gateway hides some choices in the EnvoyProxy of its class.
    """
    if identity(proxy)[1] != "EnvoyProxy":
        return proxy
    proxy_spec: dict[str, Any] = {"provider": {"kubernetes": {"envoyDeployment": {"replicas": choices.replicas}}}}
    if choices.drain_timeout is not None:
        proxy_spec["shutdown"] = {"drainTimeout": f"{choices.drain_timeout}s"}
    return {**proxy, "spec": merged(merged(proxy["spec"], proxy_spec), choices.proxy)}


def _proxied_class(choices: GatewayChoices, name: str, proxy: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a GatewayClass with its EnvoyProxy."""
    metadata = {"name": proxy, "namespace": constants.WORKLOAD_GATEWAY_NAMESPACE}
    return (
        {
            "apiVersion": "gateway.envoyproxy.io/v1alpha1",
            "kind": "EnvoyProxy",
            "metadata": metadata,
            "spec": merged(_proxy(choices), choices.proxy),
        },
        _class(name, parametersRef={"group": "gateway.envoyproxy.io", "kind": "EnvoyProxy", **metadata}),
    )


def _needs_another_class(choices: GatewayChoices) -> bool:
    """Return True if the Gateway for Model gateways needs a class other than the class of the workload gateway."""
    return choices.certificates and choices.class_name != constants.MODEL_GATEWAY_CLASS


def _class(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{constants.GATEWAY_GROUP}/v1",
        "kind": "GatewayClass",
        "metadata": {"name": name},
        "spec": {"controllerName": _CONTROLLER, **spec},
    }


def _route(choices: GatewayChoices, listeners: Sequence[Object]) -> dict[str, Any]:
    """Return the Route to the Service of Envoy. OpenShift chooses its host, unless `route` does."""
    match choices.route:
        case {"tls": {"key": _}}:
            raise ValueError("route.tls.key is a private key: name a Secret in route.tls.externalCertificate instead")
    # The router ignores the whole list, and takes all requests, where one entry is invalid.
    allowed = [str(ip_network(cidr, strict=False)) for cidr in choices.source_ranges]
    annotations = {f"{_ROUTER}/timeout": _ROUTE_TIMEOUT}
    if allowed:
        annotations[f"{_ROUTER}/ip_allowlist"] = " ".join(allowed)
    api_version, kind = ROUTE
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": constants.WORKLOAD_GATEWAY,
            "namespace": constants.ENVOY_NAMESPACE,
            "annotations": {**annotations, **choices.annotations},
        },
        "spec": merged(
            {
                "to": {"kind": "Service", "name": constants.WORKLOAD_GATEWAY, "weight": 100},
                "wildcardPolicy": "None",
                **_routed_listener(listeners),
            },
            choices.route,
        ),
    }


def _routed_listener(listeners: Sequence[Object]) -> dict[str, Any]:
    """Return the fields of a Route for the listener that endpoints use (`endpoint.gateway_url`).

    The listener is plain HTTP, or else HTTPS. The router passes HTTPS through unchanged. Envoy Gateway names ports of
    the Service by protocol and number.
    """
    several = len(listeners) > 1
    for listener in listeners:
        match listener:
            case {"protocol": "HTTP", "hostname": str()}:
                continue
            case {"protocol": "HTTP", "port": number}:
                return {"port": {"targetPort": f"http-{number}"}} if several else {}
    for listener in listeners:
        match listener:
            case {"protocol": "HTTPS", "port": number, "hostname": host}:
                port = {"port": {"targetPort": f"https-{number}"}} if several else {}
                return {**port, "host": host, "tls": {"termination": "passthrough"}}
    return {}


def _listeners(choices: GatewayChoices) -> list[Object]:
    """Return the listeners in their wire format, validated in the same way as listeners of a ServingStack."""
    if not choices.listeners:
        return [{"name": "http", "protocol": "HTTP", "port": 80}]
    stack = {
        "apiVersion": f"{api.GROUP_INFRASTRUCTURE}/{api.VERSION}",
        "kind": "ServingStack",
        "metadata": dict(_METADATA),
        "spec": {
            "secrets": [{"type": "Kubeconfig", "name": "none", "key": "kubeconfig"}],
            "gateway": {"listeners": [_with_number(listener) for listener in choices.listeners]},
        },
    }
    listeners: list[Object] = api.wire(api.parse(stack))["spec"]["gateway"]["listeners"]
    return listeners


def _with_number(listener: Mapping[str, Any]) -> Object:
    """Return the listener with its port as a number: templates turn it into a string."""
    port = str(listener.get("port"))
    return {**listener, "port": int(port)} if port.isdecimal() else dict(listener)


def _proxy(choices: GatewayChoices) -> Object:
    drain_timeout = _DRAIN_SECONDS if choices.drain_timeout is None else choices.drain_timeout
    pod: dict[str, Any] = {"topologySpreadConstraints": [spread_over_nodes(_PODS)]}
    if choices.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in choices.image_pull_secrets]
    deployment: dict[str, Any] = {"replicas": choices.replicas, "pod": pod}
    if choices.image_registry:
        deployment["container"] = {"imageRepository": f"{choices.image_registry}/envoyproxy/envoy"}
    return {
        "provider": {
            "type": "Kubernetes",
            "kubernetes": {
                "envoyService": _service(choices),
                "envoyDeployment": deployment,
                "envoyPDB": {"maxUnavailable": 1},
            },
        },
        "shutdown": {
            "drainTimeout": f"{drain_timeout}s",
            "minDrainDuration": f"{min(_MIN_DRAIN_SECONDS, drain_timeout)}s",
        },
    }


def _service(choices: GatewayChoices) -> Object:
    if choices.exposure == ROUTE[1]:
        return {"type": "ClusterIP", "name": constants.WORKLOAD_GATEWAY}
    # Some clouds refuse Local, the default of Envoy Gateway; addresses of clients are not needed.
    service: dict[str, Any] = {"externalTrafficPolicy": "Cluster"}
    if choices.annotations:
        service["annotations"] = dict(choices.annotations)
    if choices.source_ranges:
        service["loadBalancerSourceRanges"] = list(choices.source_ranges)
    return service
