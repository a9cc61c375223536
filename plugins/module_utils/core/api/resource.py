# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Common fields of all kinds: identity, conditions, and Crossplane settings."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from ..._pydantic import Field
from ..problem import Ref
from .base import GROUP_MODELS, VERSION, Column, ListMap, Model, Rule, Violation, Words
from .meta import TIME, TIME_WORDS, ObjectMeta

DEFAULT_NAMESPACE = "default"
_NONE: Mapping[str, str] = MappingProxyType({})

READY_COLUMN = Column(
    "READY", '.status.conditions[?(@.type=="Ready")].status', description="Status of the condition Ready."
)
AGE_COLUMN = Column("AGE", ".metadata.creationTimestamp", "date", "Time since the creation of the object.")


class Condition(Model):
    """Observation of one aspect of the object, as in other Kubernetes APIs (metav1.Condition)."""

    type: str = Field(min_length=1, max_length=316, description="Type of the condition, such as Ready.")
    status: Literal["True", "False", "Unknown"] = Field(description="Status of the condition.")
    reason: str | None = Field(
        default=None, max_length=1024, description="Machine-readable reason for the last transition, in CamelCase."
    )
    message: str | None = Field(default=None, max_length=32768, description="Human-readable details.")
    last_transition_time: Annotated[str, Words(TIME_WORDS)] | None = Field(
        default=None, pattern=TIME, description="Time of the last change of `status`."
    )
    observed_generation: int | None = Field(
        default=None, ge=0, description="Value of `metadata.generation` that the condition is based on."
    )


class Spec(Model):
    """Desired state of the object."""

    crossplane: dict[str, Any] | None = Field(
        default=None, description="Crossplane settings of an exported object. Has no effect."
    )


class Status(Model):
    """Observed state of the object."""

    conditions: Annotated[list[Condition], ListMap(("type",))] | None = Field(
        default=None, description="Conditions of the object, one per type."
    )


def name_rule(identifier: str, *, label: bool) -> Rule:
    """Return the rule for names that are label values (63 characters), or with `label` Service names (no dots)."""
    limit = "self.metadata.name.size() <= 63"
    no_dots = {"pattern": "^[^.]*$"} if label else {}

    def check(resource: Any) -> list[Violation]:
        name: str = resource.metadata.name
        messages = [f"must be at most 63 characters, is {len(name)}"] if len(name) > 63 else []
        if label and "." in name:
            messages.append("must not contain a dot, because Services have the same name")
        return [Violation(("metadata", "name"), message, name) for message in messages]

    return Rule(
        ids=(identifier,),
        message="the name must be at most 63 characters" + (" and have no dots" if label else ""),
        cel=f"{limit} && !self.metadata.name.contains('.')" if label else limit,
        check=check,
        hint="Choose another name",
        schema={"properties": {"metadata": {"properties": {"name": {"maxLength": 63, **no_dots}}}}},
    )


class Resource(Model):
    """Resource of the fleet. Subclasses declare the kind, `spec` and `status`."""

    GROUP: ClassVar[str] = GROUP_MODELS
    KIND: ClassVar[str] = ""
    PLURAL: ClassVar[str] = ""
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ()
    NAMESPACED: ClassVar[bool] = True
    COLUMNS: ClassVar[tuple[Column, ...]] = ()
    # Paths of the scale subresource: desired replicas, observed replicas, and selector. A HorizontalPodAutoscaler
    # requires the selector.
    SCALE: ClassVar[tuple[str, str, str] | None] = None

    api_version: str = Field(description="API group and version of the object.")
    kind: str = Field(description="Kind of the object.")
    metadata: ObjectMeta = Field(description="Name, namespace, labels and annotations.")

    @classmethod
    def group_version(cls) -> str:
        """Return the apiVersion of the kind."""
        return f"{cls.GROUP}/{VERSION}"

    @property
    def name(self) -> str:
        """metadata.name"""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """metadata.namespace. Empty for cluster-scoped kinds."""
        return (self.metadata.namespace or DEFAULT_NAMESPACE) if self.NAMESPACED else ""

    @property
    def labels(self) -> Mapping[str, str]:
        """metadata.labels. Empty if unset."""
        return self.metadata.labels or _NONE

    @property
    def annotations(self) -> Mapping[str, str]:
        """metadata.annotations. Empty if unset."""
        return self.metadata.annotations or _NONE

    @property
    def ref(self) -> Ref:
        """Reference to the resource."""
        return Ref(self.KIND, self.namespace, self.name)
