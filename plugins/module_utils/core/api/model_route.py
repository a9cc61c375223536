# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelRoute: route of a ModelService on a Model gateway."""

from __future__ import annotations

from typing import ClassVar

from ..._pydantic import Field
from .base import Column, Model
from .model_service import ServiceEndpoint, Timeouts
from .resource import Resource, Spec, Status

MOST_ENTRIES = 32
"""Maximum number of entries of a service on a Model gateway."""


class ModelRouteSpec(Spec):
    """Desired state of the route."""

    gateway_name: str = Field(min_length=1, max_length=253, description="InferenceGateway of the route.")
    service_name: str = Field(min_length=1, max_length=253, description="ModelService in the same namespace.")
    endpoints: list[ServiceEndpoint] = Field(
        min_length=1, max_length=MOST_ENTRIES, description="Entries of endpoints, from the ModelService."
    )
    timeouts: Timeouts | None = Field(default=None, description="Timeouts of requests, from the ModelService.")


class EndpointCounts(Model):
    """Numbers of ModelEndpoints of the service."""

    total: int = Field(ge=0, description="Number of ModelEndpoints that match the selectors.")
    ready: int = Field(ge=0, description="Number of ModelEndpoints that receive requests, directly or by failover.")


class ModelRouteStatus(Status):
    """Observed state of the route."""

    model: str | None = Field(default=None, max_length=317, description="Model name in requests.")
    address: str | None = Field(default=None, description="Address of the gateway.")
    endpoints: EndpointCounts | None = Field(default=None, description="Numbers of ModelEndpoints of the service.")


class ModelRoute(Resource):
    """Route of a ModelService on a Model gateway. The fleet creates it, and ignores it in manifests."""

    KIND: ClassVar[str] = "ModelRoute"
    PLURAL: ClassVar[str] = "modelroutes"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("mrt",)
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("GATEWAY", ".spec.gatewayName"),
        Column("SERVICE", ".spec.serviceName"),
        Column("MODEL", ".status.model"),
    )

    spec: ModelRouteSpec = Field(description="Desired state of the route.")
    status: ModelRouteStatus | None = Field(default=None, description="Observed state of the route.")
