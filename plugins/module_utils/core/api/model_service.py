# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelService: URL and model name for a set of ModelEndpoints."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from ..._pydantic import Field
from .base import Column, DNSLabel, Model, Rule, Violation, Words
from .resource import Resource, Spec, Status


class EndpointSelector(Model):
    """Selector of ModelEndpoints by label."""

    match_labels: dict[str, str] = Field(
        description="Map of label keys and values. A ModelEndpoint must match all entries."
    )


class ServiceEndpoint(Model):
    """Entry of ModelEndpoints that share traffic."""

    name: DNSLabel | None = Field(
        default=None, description="Name of the entry. Defaults to `endpoint-` and the index of the entry."
    )
    weight: int = Field(
        default=1,
        ge=1,
        le=1_000_000,
        description="Proportion of requests for the entry, relative to other entries with the same priority. Defaults "
        "to 1.",
    )
    priority: int = Field(
        default=0,
        ge=0,
        le=63,
        description="Priority of the entry. Lower values have precedence: an entry receives requests only while no "
        "endpoint with a lower value is usable. Defaults to 0.",
    )
    selector: EndpointSelector = Field(description="Selector of the ModelEndpoints.")


DURATION = "^([0-9]{1,5}(h|m|s|ms)){1,4}$"
DURATION_WORDS = "must be a duration such as 90s, 1h30m or 500ms: at most four numbers, each of at most five digits"


class Timeouts(Model):
    """Timeouts of requests through Model gateways."""

    request: Annotated[str, Words(DURATION_WORDS)] | None = Field(
        default=None,
        min_length=2,
        max_length=28,
        pattern=DURATION,
        description="Timeout of a request, including retries. `0s` disables the timeout. Defaults to 300s.",
    )
    idle: Annotated[str, Words(DURATION_WORDS)] | None = Field(
        default=None,
        min_length=2,
        max_length=28,
        pattern=DURATION,
        description="Idle timeout of a response. Before the first byte, the request is retried. After the first byte, "
        "the response is aborted. `0s` disables the timeout. If unset, there is no idle timeout.",
    )


def _entry_names(spec: Any) -> list[Violation]:
    indexes: dict[str, int] = {}
    violations = []
    for index, entry in enumerate(spec.endpoints):
        if entry.name is not None and indexes.setdefault(entry.name, index) != index:
            message = f"name must be unique in the list: item {indexes[entry.name]} has the same"
            violations.append(Violation(("endpoints", index, "name"), message, entry.name))
    return violations


class Survival(Model):
    """Requirement that the service survives the loss of clusters."""

    clusters: int = Field(
        default=1,
        ge=1,
        le=2,
        description="Number of clusters that can be lost at the same time, in any combination. Defaults to 1.",
    )
    when_unsatisfiable: Literal["Fail", "Warn"] = Field(
        default="Fail",
        description="Result of `plan` and `status` if the service does not survive a loss. Fail fails the run at its "
        "end, and Warn logs a warning. Defaults to Fail.",
    )


class ModelServiceSpec(Spec):
    """Desired state of the service."""

    # The list cannot have x-kubernetes-list-type: map, because names are optional.
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

    endpoints: list[ServiceEndpoint] = Field(
        min_length=1, max_length=64, description="Entries of ModelEndpoints that receive the requests."
    )
    timeouts: Timeouts | None = Field(
        default=None, description="Timeouts of requests through Model gateways. If unset, the defaults apply."
    )
    survive: Survival | None = Field(
        default=None,
        description="Requirement that an endpoint remains usable after the loss of clusters, when replicas are "
        "rescheduled. If unset, `fleet_survive` applies.",
    )


class RouteCounts(Model):
    """Numbers of Model gateways with a route for the service."""

    total: int = Field(ge=0, description="Number of Model gateways that serve the service.")
    ready: int = Field(ge=0, description="Number of Model gateways that route requests to an endpoint.")


class ModelServiceStatus(Status):
    """Observed state of the service."""

    address: str | None = Field(default=None, description="URL of the service at the Path gateway.")
    model: str | None = Field(
        default=None, max_length=317, description="Model name in requests through Model gateways."
    )
    routes: RouteCounts | None = Field(
        default=None, description="Numbers of Model gateways with a route for the service."
    )


class ModelService(Resource):
    """URL and model name for a set of ModelEndpoints."""

    KIND: ClassVar[str] = "ModelService"
    PLURAL: ClassVar[str] = "modelservices"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("ms",)
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("ADDRESS", ".status.address"),
        Column("MODEL", ".status.model"),
    )

    spec: ModelServiceSpec = Field(description="Desired state of the service.")
    status: ModelServiceStatus | None = Field(default=None, description="Observed state of the service.")

    @property
    def model_name(self) -> str:
        """Model name in requests through Model gateways."""
        return f"{self.namespace}/{self.name}"
