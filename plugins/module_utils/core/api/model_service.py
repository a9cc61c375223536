# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelService: one URL over many endpoints."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from ..._pydantic import Field
from .base import Column, DNSLabel, Model, Rule, Violation, Words
from .resource import Resource, Spec, Status


class EndpointSelector(Model):
    """Selector of ModelEndpoints by their labels."""

    match_labels: dict[str, str] = Field(description="Labels an endpoint must have, all of them with these values.")


class ServiceEndpoint(Model):
    """Endpoints that share a part of the traffic."""

    name: DNSLabel | None = Field(default=None, description="Name of the entry. Defaults to `endpoint-` and its index.")
    weight: int = Field(default=1, ge=1, le=1_000_000, description="Share of the traffic against the other entries.")
    priority: int = Field(
        default=0,
        ge=0,
        le=63,
        description="Lower comes first: an entry is used only while no endpoint of a lower priority is usable.",
    )
    selector: EndpointSelector = Field(description="Which ModelEndpoints.")


DURATION = "^([0-9]{1,5}(h|m|s|ms)){1,4}$"
DURATION_WORDS = "must be a duration such as 90s, 1h30m or 500ms: at most four numbers, each of at most five digits"


class Timeouts(Model):
    """Limits on the time that requests take, through gateways in mode Model."""

    request: Annotated[str, Words(DURATION_WORDS)] | None = Field(
        default=None,
        min_length=2,
        max_length=28,
        pattern=DURATION,
        description="Time for a whole request, with its repetitions; `0s` is no limit, absent is that of the gateway.",
    )
    idle: Annotated[str, Words(DURATION_WORDS)] | None = Field(
        default=None,
        min_length=2,
        max_length=28,
        pattern=DURATION,
        description="Time without a byte: before the first one the request is tried again, after it the answer is cut "
        "off. `0s` is no limit, absent is that of the gateway.",
    )


def _entry_names(spec: Any) -> list[Violation]:
    first: dict[str, int] = {}
    violations = []
    for index, entry in enumerate(spec.endpoints):
        if entry.name is not None and first.setdefault(entry.name, index) != index:
            message = f"name must be unique in the list: item {first[entry.name]} has the same"
            violations.append(Violation(("endpoints", index, "name"), message, entry.name))
    return violations


class Survival(Model):
    """Losses of clusters after which requests are answered still."""

    clusters: int = Field(
        default=1, ge=1, le=2, description="How many clusters may be lost at once, whichever they are."
    )
    when_unsatisfiable: Literal["Fail", "Warn"] = Field(
        default="Fail",
        description="Fail makes `plan` and `status` fail after a loss is found that is not survived; Warn makes it a "
        "warning. What the run does is the same.",
    )


class ModelServiceSpec(Spec):
    """Endpoints that the URL leads to."""

    # No x-kubernetes-list-type: map, as names need not be given.
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("MS-1",),
            message="names of endpoints must be unique",
            cel=(
                "self.endpoints.all(e, !has(e.name) || "
                "self.endpoints.exists_one(other, has(other.name) && other.name == e.name))"
            ),
            check=_entry_names,
            hint="Rename one of them",
        ),
    )

    endpoints: list[ServiceEndpoint] = Field(min_length=1, max_length=64, description="Endpoints behind the URL.")
    timeouts: Timeouts | None = Field(default=None, description="Limits on the time that requests take.")
    survive: Survival | None = Field(
        default=None,
        description="Losses of clusters after which an endpoint has to be usable still, once what can be placed "
        "again was.",
    )


class RouteCounts(Model):
    """Gateways in mode Model that the service has a route on."""

    total: int = Field(ge=0, description="How many serve it.")
    ready: int = Field(ge=0, description="How many of them route requests to an endpoint.")


class ModelServiceStatus(Status):
    """Observed state of the service."""

    address: str | None = Field(default=None, description="URL of the service, through the gateway in mode Path.")
    model: str | None = Field(
        default=None, max_length=317, description="Name of the model in requests through gateways in mode Model."
    )
    routes: RouteCounts | None = Field(default=None, description="Gateways in mode Model that serve it.")


class ModelService(Resource):
    """One URL over many endpoints."""

    KIND: ClassVar[str] = "ModelService"
    PLURAL: ClassVar[str] = "modelservices"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("ms",)
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("ADDRESS", ".status.address"),
        Column("MODEL", ".status.model"),
    )

    spec: ModelServiceSpec = Field(description="Which endpoints the URL leads to.")
    status: ModelServiceStatus | None = Field(default=None, description="What is known of the service.")

    @property
    def model_name(self) -> str:
        """The name of the model in requests through gateways in mode Model."""
        return f"{self.namespace}/{self.name}"
