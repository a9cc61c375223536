# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelService: one URL over many endpoints."""

from __future__ import annotations

from typing import ClassVar

from ansible_collections.modelplane.fleet.plugins.module_utils._pydantic import Field
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.base import Column, Model
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.resource import Resource, Spec, Status


class EndpointSelector(Model):
    """Which ModelEndpoints are meant, by their labels."""

    match_labels: dict[str, str] = Field(description="Labels an endpoint must have, all of them with these values.")


class ServiceEndpoint(Model):
    """Endpoints that share a part of the traffic."""

    weight: int = Field(default=1, ge=1, le=1_000_000, description="Share of the traffic against the other entries.")
    selector: EndpointSelector = Field(description="Which ModelEndpoints.")


class ModelServiceSpec(Spec):
    """Which endpoints the URL leads to."""

    endpoints: list[ServiceEndpoint] = Field(min_length=1, description="Endpoints behind the URL.")


class ModelServiceStatus(Status):
    """What is known of the service."""

    address: str | None = Field(default=None, description="URL of the service.")


class ModelService(Resource):
    """One URL over many endpoints."""

    KIND: ClassVar[str] = "ModelService"
    PLURAL: ClassVar[str] = "modelservices"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("ms",)
    COLUMNS: ClassVar[tuple[Column, ...]] = (Column("ADDRESS", ".status.address"),)

    spec: ModelServiceSpec = Field(description="Which endpoints the URL leads to.")
    status: ModelServiceStatus | None = Field(default=None, description="What is known of the service.")
