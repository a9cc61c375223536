# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelRoute: one service on one gateway in mode Model."""

from __future__ import annotations

from typing import ClassVar

from ..._pydantic import Field
from .base import Column, Model
from .model_service import ServiceEndpoint, Timeouts
from .resource import Resource, Spec, Status

MOST_ENTRIES = 32
"""Entries of a service that a gateway in mode Model can take."""


class ModelRouteSpec(Spec):
    """Service and gateway, with what the service says of its endpoints."""

    gateway_name: str = Field(min_length=1, max_length=253, description="InferenceGateway that serves the service.")
    service_name: str = Field(min_length=1, max_length=253, description="ModelService of the same namespace.")
    endpoints: list[ServiceEndpoint] = Field(
        min_length=1, max_length=MOST_ENTRIES, description="Endpoints of the service, as it has them."
    )
    timeouts: Timeouts | None = Field(default=None, description="Limits on the time that requests take.")


class EndpointCounts(Model):
    """Endpoints that the service selects."""

    total: int = Field(ge=0, description="How many its selectors match.")
    ready: int = Field(ge=0, description="How many of them get requests, or can get them when others fail.")


class ModelRouteStatus(Status):
    """Observed state of the route."""

    model: str | None = Field(default=None, max_length=317, description="Name of the model in requests.")
    address: str | None = Field(default=None, description="Address of the gateway.")
    endpoints: EndpointCounts | None = Field(default=None, description="Endpoints that the service selects.")


class ModelRoute(Resource):
    """One service on one gateway in mode Model. The fleet makes it, users write none."""

    KIND: ClassVar[str] = "ModelRoute"
    PLURAL: ClassVar[str] = "modelroutes"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("mrt",)
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("GATEWAY", ".spec.gatewayName"),
        Column("SERVICE", ".spec.serviceName"),
        Column("MODEL", ".status.model"),
    )

    spec: ModelRouteSpec = Field(description="Which service, on which gateway.")
    status: ModelRouteStatus | None = Field(default=None, description="What is known of the route.")
