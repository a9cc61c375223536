# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""InferenceGateway: the front door of the fleet, on the control cluster."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from ansible_collections.modelplane.fleet.plugins.module_utils._pydantic import Field
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.base import (
    CHART_VERSION,
    CHART_VERSION_WORDS,
    Column,
    Model,
    Rule,
    Words,
    requires,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.resource import Resource, Spec, Status


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


class InferenceGatewaySpec(Spec):
    """What runs the gateway."""

    RULES: ClassVar[tuple[Rule, ...]] = (requires(("IG-1",), "backend", "Traefik", "traefik"),)

    backend: Literal["Traefik"] = Field(description="Proxy that runs the gateway.")
    traefik: Traefik | None = Field(default=None, description="Settings of the Traefik backend.")


class InferenceGatewayStatus(Status):
    """What is known of the gateway."""

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
