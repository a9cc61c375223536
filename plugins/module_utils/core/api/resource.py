# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Common parts of all kinds: identity, conditions, and what Crossplane adds to objects it keeps."""

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
    "READY", '.status.conditions[?(@.type=="Ready")].status', description="Whether the object is ready."
)
AGE_COLUMN = Column("AGE", ".metadata.creationTimestamp", "date", "When the object was created.")


class Condition(Model):
    """One observation of a controller (Kubernetes API conventions, metav1.Condition)."""

    type: str = Field(min_length=1, max_length=316, description="What the condition is about, such as Ready.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether the condition holds.")
    reason: str | None = Field(default=None, max_length=1024, description="One CamelCase word for the cause.")
    message: str | None = Field(default=None, max_length=32768, description="The cause, for people.")
    last_transition_time: Annotated[str, Words(TIME_WORDS)] | None = Field(
        default=None, pattern=TIME, description="When `status` last changed."
    )
    observed_generation: int | None = Field(
        default=None, ge=0, description="The metadata.generation that this observation is about."
    )


class Spec(Model):
    """Desired state, as users write it."""

    crossplane: dict[str, Any] | None = Field(
        default=None, description="Settings of Crossplane in objects exported from it; has no effect."
    )


class Status(Model):
    """Observed state, as controllers write it."""

    conditions: Annotated[list[Condition], ListMap(("type",))] | None = Field(
        default=None, description="Observations, one for each type."
    )


def name_rule(identifier: str, *, label: bool) -> Rule:
    """The rule on names that become values of labels (63 characters), or with `label` names of Services (no dots)."""
    limit = "self.metadata.name.size() <= 63"
    no_dots = {"pattern": "^[^.]*$"} if label else {}

    def check(resource: Any) -> list[Violation]:
        name: str = resource.metadata.name
        messages = [f"must be at most 63 characters, is {len(name)}"] if len(name) > 63 else []
        if label and "." in name:
            messages.append("must not contain a dot, as Services are named after it")
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
    """A whole document. Subclasses name their kind and give `spec` and `status` their types."""

    GROUP: ClassVar[str] = GROUP_MODELS
    KIND: ClassVar[str] = ""
    PLURAL: ClassVar[str] = ""
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ()
    NAMESPACED: ClassVar[bool] = True
    COLUMNS: ClassVar[tuple[Column, ...]] = ()
    # Of the scale subresource: the paths of the desired number, of the observed number, and of the selector of what is
    # counted, without which a HorizontalPodAutoscaler does nothing.
    SCALE: ClassVar[tuple[str, str, str] | None] = None

    api_version: str = Field(description="API group and version of the kind.")
    kind: str = Field(description="Kind of the object.")
    metadata: ObjectMeta = Field(description="Name, namespace, labels and annotations.")

    @classmethod
    def group_version(cls) -> str:
        """The apiVersion that documents of this kind carry."""
        return f"{cls.GROUP}/{VERSION}"

    @property
    def name(self) -> str:
        """metadata.name"""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """metadata.namespace, empty for cluster-scoped kinds."""
        return (self.metadata.namespace or DEFAULT_NAMESPACE) if self.NAMESPACED else ""

    @property
    def labels(self) -> Mapping[str, str]:
        """metadata.labels, empty when there are none."""
        return self.metadata.labels or _NONE

    @property
    def annotations(self) -> Mapping[str, str]:
        """metadata.annotations, empty when there are none."""
        return self.metadata.annotations or _NONE

    @property
    def ref(self) -> Ref:
        """The identity of the resource."""
        return Ref(self.KIND, self.namespace, self.name)
