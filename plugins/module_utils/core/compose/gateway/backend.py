# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Interface of a proxy that runs the control gateway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ... import api
from ...wire import Object


@dataclass(frozen=True)
class HelmRelease:
    """Helm release on the control cluster. `name` is that of the release, `repository` a URL."""

    name: str
    chart: str
    repository: str
    version: str
    namespace: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ServicePort:
    """Port of a Service."""

    namespace: str
    name: str
    port: int


def gateway_listener(listener: Mapping[str, Any]) -> Object:
    """Return a listener of a Gateway for routes of all namespaces, from a listener of this API in its wire format."""
    composed = {**listener, "allowedRoutes": {"namespaces": {"from": "All"}}}
    if listener.get("tls"):
        references = [{"group": "", "kind": "Secret", **reference} for reference in listener["tls"]["certificateRefs"]]
        composed["tls"] = {"mode": "Terminate", "certificateRefs": references}
    return composed


class GatewayBackend(Protocol):
    """Proxy that runs the control gateway. It has to support rewriting of paths and hosts per backend of a route
    (extended features of Gateway API) and BackendTLSPolicy."""

    @property
    def namespace(self) -> str:
        """Namespace of the proxy's pods."""

    @property
    def parent(self) -> Mapping[str, str]:
        """ParentRef that attaches routes to the gateway."""

    @property
    def own_service(self) -> ServicePort:
        """Service of the gateway's listener inside the cluster."""

    def objects(self, gateway: api.InferenceGateway) -> tuple[Object, ...]:
        """Return the objects of an InferenceGateway. They can be applied once `releases` are installed."""

    def releases(self, gateway: api.InferenceGateway) -> tuple[HelmRelease, ...]:
        """Return the Helm releases that it needs, in the order of installation."""
