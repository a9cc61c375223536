# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The interface of a proxy that runs the control gateway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object


@dataclass(frozen=True)
class HelmRelease:
    """A Helm chart to install on the control cluster; `name` is that of the release, `repository` a URL."""

    name: str
    chart: str
    repository: str
    version: str
    namespace: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ServicePort:
    """A port of a Service."""

    namespace: str
    name: str
    port: int


def gateway_listener(listener: Mapping[str, Any]) -> Object:
    """A listener of a Gateway for routes of all namespaces, from one of ours in its wire form."""
    found = {**listener, "allowedRoutes": {"namespaces": {"from": "All"}}}
    if listener.get("tls"):
        references = [{"group": "", "kind": "Secret", **each} for each in listener["tls"]["certificateRefs"]]
        found["tls"] = {"mode": "Terminate", "certificateRefs": references}
    return found


class GatewayBackend(Protocol):
    """A proxy that runs the control gateway. It has to rewrite paths and hosts per backend of a route (extended
    features of Gateway API) and to originate TLS by BackendTLSPolicy."""

    @property
    def namespace(self) -> str:
        """Where the proxy's pods run."""

    @property
    def parent(self) -> Mapping[str, str]:
        """The parentRef by which routes attach to the gateway."""

    @property
    def own_service(self) -> ServicePort:
        """The Service by which the gateway's listener is reached inside of the cluster."""

    def objects(self, gateway: api.InferenceGateway) -> tuple[Object, ...]:
        """Return the objects of an InferenceGateway. All are good to apply once `releases` are installed."""

    def releases(self, gateway: api.InferenceGateway) -> tuple[HelmRelease, ...]:
        """Return what has to be installed for it, in this order."""
