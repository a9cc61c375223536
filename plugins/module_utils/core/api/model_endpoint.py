# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelEndpoint: one backend that can be reached."""

from __future__ import annotations

from typing import ClassVar

from ansible_collections.modelplane.fleet.plugins.module_utils._pydantic import Field
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.base import Column, Model
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.resource import Resource, Spec, Status


class ModelEndpointSpec(Spec):
    """Where the backend is."""

    url: str = Field(min_length=1, description="URL of the backend; its host and port are used.")
    rewrite_path: str | None = Field(
        default=None, description="Path that replaces the service's prefix; absent rewrites nothing."
    )


class EndpointRouting(Model):
    """How the gateway reaches the backend."""

    backend_name: str | None = Field(default=None, description="Service for the backend, once it can be reached.")


class ModelEndpointStatus(Status):
    """What is known of the endpoint."""

    routing: EndpointRouting | None = Field(default=None, description="How the gateway reaches the backend.")


class ModelEndpoint(Resource):
    """One backend: a replica of the fleet, or a provider outside of it."""

    KIND: ClassVar[str] = "ModelEndpoint"
    PLURAL: ClassVar[str] = "modelendpoints"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("me",)
    COLUMNS: ClassVar[tuple[Column, ...]] = (Column("URL", ".spec.url"),)

    spec: ModelEndpointSpec = Field(description="Where the backend is.")
    status: ModelEndpointStatus | None = Field(default=None, description="What is known of the endpoint.")
