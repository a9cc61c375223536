# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conditions of a resource, merged with its previous conditions (Kubernetes API conventions)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from .. import api
from ..api import resource
from ..text import cut
from ..wire import entries, fields, stated, text

Fields_co = TypeVar("Fields_co", bound=resource.Status, covariant=True)

Truth = Literal["True", "False", "Unknown"]

OWNED = frozenset(
    {
        "Accepted",
        "ArtifactReady",
        "BackendReady",
        "ClusterReady",
        "ClustersMatched",
        "ControllerReady",
        "EndpointsResolved",
        "EngineStalled",
        "ModelAccepted",
        "ModelCacheResolved",
        "RolloutComplete",
        "ModelReady",
        "Ready",
        "ReplicasReady",
        "ReplicasScheduled",
        "RoutingReady",
        "UsageKnown",
    }
)
"""Types that this collection writes. It removes obsolete conditions of these types, and keeps other types."""

NOT_OBSERVED = "NotObserved"
DECLARED = "Declared"
"""Reason in conditions of a file-based cluster, which is unobserved, and of its replicas and caches."""
READY = "Ready"

_MOST_CHARACTERS = 4000


@dataclass(frozen=True)
class Condition:
    """Condition without times. `held`: it was not evaluated and keeps its previous value, generation and time."""

    type: str
    status: Truth
    reason: str
    message: str = ""
    held: bool = False


@dataclass(frozen=True)
class Status(Generic[Fields_co]):
    """Status of a resource: conditions without times, and its other fields."""

    conditions: tuple[Condition, ...]
    fields: Fields_co

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of a type."""
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def wire(
        self, previous: Mapping[str, Any] | None = None, generation: int | None = None, now: str = ""
    ) -> dict[str, Any]:
        """Return the wire format. `previous`: previous status. `generation`, `now`: see `merge`."""
        return {
            "conditions": merge(self.conditions, entries(previous, "conditions"), generation, now),
            **api.wire(self.fields),
        }


def merge(
    new: Sequence[Condition], previous: Sequence[Mapping[str, Any]] | None, generation: int | None, now: str
) -> list[dict[str, Any]]:
    """Merge new conditions with the previous ones (wire format), sorted by type.

    lastTransitionTime changes to `now` (RFC 3339) only when the status of a type changes. Unchanged and held conditions
    equal the previous conditions. Conditions of types outside OWNED are kept. `generation`: the metadata.generation
    that `new` was computed from, None for resources without one. Without `now`, a condition with a changed status has
    no time.
    """
    previous_conditions: dict[str, Mapping[str, Any]] = {}
    for entry in entries(previous):
        if text(entry, "type"):
            previous_conditions.setdefault(entry["type"], entry)
    merged = {kind: dict(entry) for kind, entry in previous_conditions.items() if kind not in OWNED}
    for condition in new:
        merged[condition.type] = _merged(condition, previous_conditions.get(condition.type), generation, now)
    return [merged[kind] for kind in sorted(merged)]


def _merged(
    condition: Condition, previous_condition: Mapping[str, Any] | None, generation: int | None, now: str
) -> dict[str, Any]:
    if previous_condition is not None and condition.held:
        return dict(previous_condition)
    entry: dict[str, Any] = {"type": condition.type, "status": condition.status, "reason": condition.reason}
    if condition.message:
        entry["message"] = cut(condition.message, _MOST_CHARACTERS)
    is_unchanged = previous_condition is not None and previous_condition.get("status") == condition.status
    since = (text(previous_condition, "lastTransitionTime") if is_unchanged else "") or now
    if since:
        entry["lastTransitionTime"] = since
    if generation is not None:
        entry["observedGeneration"] = generation
    return dict(previous_condition) if previous_condition is not None and dict(previous_condition) == entry else entry


def written(conditions: Sequence[Mapping[str, Any]]) -> dict[str, Condition]:
    """Return conditions in the wire format by their type."""
    conditions_by_type = {}
    for entry in conditions:
        status = entry.get("status")
        if status in ("True", "False", "Unknown"):
            kind, reason, message = (text(entry, key) for key in ("type", "reason", "message"))
            conditions_by_type[kind] = Condition(kind, status, reason, message)
    return conditions_by_type


def hold(kind: str, previous: Mapping[str, Any] | None, otherwise: Condition) -> Condition:
    """Return the condition of a type from the previous status, or `otherwise` without one."""
    for entry in entries(previous, "conditions"):
        status = entry.get("status")
        if entry.get("type") == kind and status in ("True", "False"):
            return Condition(kind, status, text(entry, "reason"), text(entry, "message"), held=True)
    return otherwise


def truth(value: bool) -> Truth:
    return "True" if value else "False"


def declared(kind: str, cluster: str) -> Condition:
    """Return a condition of a cluster that is not observed, or of an object on it."""
    return Condition(kind, "True", DECLARED, declared_message(cluster))


def declared_message(cluster: str) -> str:
    """Return the message for a cluster, or an object on it, that is assumed to be as declared."""
    return f"Cluster {cluster} is not observed, as its objects are files: it is assumed to be as declared"


def unknown(kind: str, message: str) -> Condition:
    """Return the condition of something that was not observed."""
    return Condition(kind, "Unknown", NOT_OBSERVED, message)


def ready(value: bool | None, previous: Mapping[str, Any] | None, message: str = "") -> Condition:
    """Return the Ready condition. None: the readiness is unknown.

    The reason for False is Creating until the resource was ready once, and Unavailable afterwards.
    """
    if value is None:
        return unknown(READY, message)
    if value:
        return Condition(READY, "True", "Available", message)
    was = hold(READY, previous, unknown(READY, ""))
    lost = was.status == "True" or was.reason == "Unavailable"
    return Condition(READY, "False", "Unavailable" if lost else "Creating", message)


def known(previous: Mapping[str, Any] | None, kind: str) -> bool | None:
    """Return the value of a condition in the previous status, or None if it is missing or Unknown."""
    return {"True": True, "False": False}.get(stated(entries(previous, "conditions"), kind))


def earlier(status: resource.Status | None, previous: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the previous status: `previous`, or the status of the resource."""
    if previous is not None:
        return fields(previous)
    return api.wire(status) if status else {}
