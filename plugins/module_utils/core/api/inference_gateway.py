# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""InferenceGateway: the front door of the fleet, on the control cluster."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from ansible_collections.modelplane.fleet.plugins.module_utils._pydantic import Field
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.base import (
    CHART_VERSION,
    CHART_VERSION_WORDS,
    DNS_LABEL,
    DNS_LABEL_WORDS,
    Column,
    ListMap,
    Model,
    Rule,
    Words,
    other_than,
    requires,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.listener import Hostname, ListenerTLS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.resource import Resource, Spec, Status

WEB = "web"
"""Name of the listener for HTTP, which every gateway has: parts of large services are reached by it too."""


class MetalLB(Model):
    """Addresses for load balancers where no cloud gives any."""

    address_pool: str = Field(description="Range first-last of addresses in the cluster's network.")


class Traefik(Model):
    """Settings of the Traefik backend."""

    RULES: ClassVar[tuple[Rule, ...]] = (requires(("IG-2",), "loadBalancer", "MetalLB", "metallb", optional=True),)

    version: Annotated[str, Words(CHART_VERSION_WORDS)] = Field(
        pattern=CHART_VERSION, description="Version of the Traefik chart, such as 40.2.0."
    )
    load_balancer: Literal["MetalLB"] | None = Field(
        default=None, description="What assigns the address; absent where the cloud does."
    )
    metallb: MetalLB | None = Field(default=None, description="Settings for MetalLB.")


class GatewayListener(Model):
    """A port that the gateway listens on beside port 80."""

    name: Annotated[str, Words(DNS_LABEL_WORDS)] = Field(
        min_length=1, max_length=63, pattern=DNS_LABEL, description="Name of the listener."
    )
    port: int = Field(default=443, ge=1, le=65535, description="Port.")
    protocol: Literal["HTTPS"] = Field(description="Protocol.")
    hostname: Hostname | None = Field(default=None, description="Name by which clients ask for it; absent is any.")
    tls: ListenerTLS = Field(description="Its certificates.")


class InferenceGatewaySpec(Spec):
    """Implementation of the gateway."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        requires(("IG-1",), "backend", "Traefik", "traefik"),
        Rule(
            ids=("IG-3",),
            message="listeners must be of one port",
            cel="!has(self.listeners) || self.listeners.all(l, l.port == self.listeners[0].port)",
            check=lambda spec: len({listener.port for listener in spec.listeners or ()}) <= 1,
            hint="Give each listener for HTTPS a hostname of its own",
        ),
        Rule(
            ids=("IG-4",),
            message="listeners must not be one for port 80, or named web: that one is always there",
            cel=f"!has(self.listeners) || self.listeners.all(l, l.name != '{WEB}' && l.port != 80)",
            check=lambda spec: all(each.name != WEB and each.port != 80 for each in spec.listeners or ()),
            schema={
                "properties": {
                    "listeners": {"items": {"properties": {"name": other_than(WEB), "port": {"not": {"enum": [80]}}}}}
                }
            },
        ),
    )

    backend: Literal["Traefik"] = Field(description="Proxy that runs the gateway.")
    traefik: Traefik | None = Field(default=None, description="Settings of the Traefik backend.")
    listeners: Annotated[list[GatewayListener], ListMap(("name",))] | None = Field(
        default=None, max_length=8, description="Listeners beside that for HTTP on port 80, which is always there."
    )


class InferenceGatewayStatus(Status):
    """Observed state of the gateway."""

    address: str | None = Field(default=None, description="Address that clients reach; the host of every service URL.")


class InferenceGateway(Resource):
    """Front door of the fleet: one gateway on the control cluster, named default."""

    KIND: ClassVar[str] = "InferenceGateway"
    PLURAL: ClassVar[str] = "inferencegateways"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("ig",)
    NAMESPACED: ClassVar[bool] = False
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("GATEWAY", ".spec.backend"),
        Column("ADDRESS", ".status.address"),
    )

    spec: InferenceGatewaySpec = Field(description="What runs the gateway.")
    status: InferenceGatewayStatus | None = Field(default=None, description="What is known of the gateway.")
