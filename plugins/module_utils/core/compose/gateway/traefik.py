# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Traefik as the control gateway: chart, GatewayClass, Gateway, and MetalLB where no cloud assigns addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ... import api, names
from ...api.inference_gateway import GatewayListener
from ...wire import Object
from .. import constants
from ..control import control_labels, kept_namespace, system_namespace
from .backend import HelmRelease, ServicePort, gateway_listener

NAMESPACE = "traefik-system"
_SERVICE = "traefik"
_RELEASE = "mp-traefik"
_CLASS = "traefik"
_CONTROLLER = "traefik.io/gateway-controller"
_WEB = "web"
_WEB_PORT = 8000
"""Port of Traefik's entry point `web`, which listeners have to name instead of the port of the Service."""
_SECURE = "websecure"
_SECURE_PORT = 8443
"""Port of the entry point for HTTPS listeners."""

STREAM_GRACE_SECONDS = 600
"""Time that a terminating pod waits for token streams. The default of Traefik is 10 seconds."""
_STOP_SECONDS = STREAM_GRACE_SECONDS + 30

_METALLB = "metallb"
_METALLB_NAMESPACE = "metallb-system"
_METALLB_VERSION = "0.14.9"
_POOL = "modelplane"


@dataclass(frozen=True)
class Traefik:
    """Traefik 3.6 or newer (charts from 38 on)."""

    namespace: str = NAMESPACE
    parent: Mapping[str, str] = field(
        default_factory=lambda: {"name": constants.CONTROL_GATEWAY, "namespace": constants.SYSTEM_NAMESPACE}
    )
    own_service: ServicePort = field(default_factory=lambda: ServicePort(NAMESPACE, _SERVICE, 80))

    def objects(self, gateway: api.InferenceGateway) -> tuple[Object, ...]:
        labels = control_labels(gateway, names.GATEWAY_LABEL)
        addresses = _address_pool(gateway)
        return (
            system_namespace(),
            *(_metallb_objects(addresses, labels) if addresses else ()),
            _gateway_class(labels),
            _gateway(gateway, labels),
        )

    def releases(self, gateway: api.InferenceGateway) -> tuple[HelmRelease, ...]:
        settings = gateway.spec.traefik
        traefik = HelmRelease(
            _RELEASE,
            "traefik",
            "https://traefik.github.io/charts",
            settings.version if settings else "",
            NAMESPACE,
            traefik_values(gateway.spec.listeners or ()),
        )
        if not _address_pool(gateway):
            return (traefik,)
        metallb = HelmRelease(
            "mp-metallb", _METALLB, "https://metallb.github.io/metallb", _METALLB_VERSION, _METALLB_NAMESPACE
        )
        return metallb, traefik


TRAEFIK = Traefik()


def traefik_values(listeners: Sequence[GatewayListener] = ()) -> dict[str, Any]:
    """Return the values of the Traefik chart.

    Two pods run on two nodes. Only one pod at a time can be evicted, and streams finish before a pod terminates. The
    timeouts of Traefik keep their defaults. The timeout for reading a request (60 seconds) ends with the request's body
    and never cuts a response. The traffic tests stream for longer than that. Writing a response has no timeout.

    `listeners`: the listeners for HTTPS. They share one port.
    """
    ports: dict[str, Any] = {_WEB: _entry_point()}
    if listeners:
        ports[_SECURE] = {"exposedPort": listeners[0].port, **_entry_point()}
    return {
        "providers": {
            "kubernetesGateway": {
                "enabled": True,
                "statusAddress": {"service": {"namespace": NAMESPACE, "name": _SERVICE}},
            },
            "kubernetesIngress": {"enabled": False},
        },
        "service": {"nameOverride": _SERVICE},
        "gateway": {"enabled": False},
        "gatewayClass": {"enabled": False},
        "deployment": {"replicas": 2, "terminationGracePeriodSeconds": _STOP_SECONDS},
        "podDisruptionBudget": {"enabled": True, "maxUnavailable": 1},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": constants.HOSTNAME_LABEL,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {
                    "matchLabels": {
                        "app.kubernetes.io/name": "traefik",
                        "app.kubernetes.io/instance": f"{_RELEASE}-{NAMESPACE}",
                    }
                },
            }
        ],
        "ports": ports,
    }


def _entry_point() -> dict[str, Any]:
    # Load balancers need a moment to drop a terminating pod.
    life = {"requestAcceptGraceTimeout": "10s", "graceTimeOut": f"{STREAM_GRACE_SECONDS}s"}
    return {"transport": {"lifeCycle": life}}


def _address_pool(gateway: api.InferenceGateway) -> str:
    """Return the addresses that MetalLB assigns, or "" where a cloud does."""
    settings = gateway.spec.traefik
    if settings is None or settings.load_balancer != "MetalLB" or settings.metallb is None:
        return ""
    return settings.metallb.address_pool


def _metallb_objects(addresses: str, labels: Mapping[str, str]) -> tuple[Object, ...]:
    # Its speaker pods use the network of their node (Pod Security Standards).
    namespace = kept_namespace(_METALLB_NAMESPACE, {**labels, "pod-security.kubernetes.io/enforce": "privileged"})
    metadata = {"name": _POOL, "namespace": _METALLB_NAMESPACE, "labels": dict(labels)}
    return (
        namespace,
        {
            "apiVersion": "metallb.io/v1beta1",
            "kind": "IPAddressPool",
            "metadata": metadata,
            "spec": {"addresses": [addresses]},
        },
        {
            "apiVersion": "metallb.io/v1beta1",
            "kind": "L2Advertisement",
            "metadata": metadata,
            "spec": {"ipAddressPools": [_POOL]},
        },
    )


def _gateway_class(labels: Mapping[str, str]) -> Object:
    return {
        "apiVersion": f"{constants.GATEWAY_GROUP}/v1",
        "kind": "GatewayClass",
        "metadata": {"name": _CLASS, "labels": dict(labels)},
        "spec": {"controllerName": _CONTROLLER},
    }


def _gateway(gateway: api.InferenceGateway, labels: Mapping[str, str]) -> Object:
    web = {"name": _WEB, "protocol": "HTTP", "port": _WEB_PORT}
    secure = [{**api.wire(listener), "port": _SECURE_PORT} for listener in gateway.spec.listeners or ()]
    return {
        "apiVersion": f"{constants.GATEWAY_GROUP}/v1",
        "kind": "Gateway",
        "metadata": {
            "name": constants.CONTROL_GATEWAY,
            "namespace": constants.SYSTEM_NAMESPACE,
            "labels": dict(labels),
        },
        "spec": {"gatewayClassName": _CLASS, "listeners": [gateway_listener(listener) for listener in (web, *secure)]},
    }
