# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conditions: what is said of a resource now, merged with what was said before (Kubernetes API conventions)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ansible_collections.modelplane.fleet.plugins.module_utils.core.secrets import masked
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import entries, fields, stated, text
from ansible_collections.modelplane.fleet.plugins.module_utils.core.words import printable

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
        "ModelAccepted",
        "ModelCacheResolved",
        "ModelReady",
        "Ready",
        "ReplicasReady",
        "ReplicasScheduled",
        "RoutingReady",
    }
)
"""The types that this collection writes: one of them that no longer applies goes, types of others stay."""

NOT_OBSERVED = "NotObserved"
DECLARED = "Declared"
"""The reason for what is said of a cluster whose objects are files, and of what runs there: nobody looks at it."""
READY = "Ready"

_LONGEST = 400
_MOST_CHARACTERS = 4000


@dataclass(frozen=True)
class Condition:
    """One condition, without times. `held`: it was not judged now but stays as it was, generation and time included."""

    type: str
    status: Truth
    reason: str
    message: str = ""
    held: bool = False


@dataclass(frozen=True)
class Status:
    """The status of a resource: conditions and its other fields (wire names)."""

    conditions: tuple[Condition, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)

    def condition(self, kind: str) -> Condition | None:
        """The condition of a type."""
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def wire(
        self, previous: Mapping[str, Any] | None = None, generation: int | None = None, now: str = ""
    ) -> dict[str, Any]:
        """The written form. `previous` is the status of before; `generation` and `now` as for `merge`."""
        return {
            "conditions": merge(self.conditions, entries(previous, "conditions"), generation, now),
            **self.fields,
        }


def merge(
    new: Sequence[Condition], previous: Sequence[Mapping[str, Any]] | None, generation: int | None, now: str
) -> list[dict[str, Any]]:
    """The conditions (wire form) that follow `previous` ones, sorted by type.

    lastTransitionTime moves to `now` (RFC 3339) only when the status of a type changed; a condition that says what it
    said is the previous one as it stands, and so is one that is held. Conditions of types that are not OWNED stay.
    `generation` is the metadata.generation that `new` is about, None where resources have none. Without `now` a
    condition whose status changed has no time.
    """
    before: dict[str, Mapping[str, Any]] = {}
    for entry in entries(previous):
        if text(entry, "type"):
            before.setdefault(entry["type"], entry)
    merged = {kind: dict(entry) for kind, entry in before.items() if kind not in OWNED}
    for condition in new:
        merged[condition.type] = _merged(condition, before.get(condition.type), generation, now)
    return [merged[kind] for kind in sorted(merged)]


def _merged(condition: Condition, before: Mapping[str, Any] | None, generation: int | None, now: str) -> dict[str, Any]:
    if before is not None and condition.held:
        return dict(before)
    entry: dict[str, Any] = {"type": condition.type, "status": condition.status, "reason": condition.reason}
    if condition.message:
        entry["message"] = cut(condition.message, _MOST_CHARACTERS)
    stays = before is not None and before.get("status") == condition.status
    since = (text(before, "lastTransitionTime") if stays else "") or now
    if since:
        entry["lastTransitionTime"] = since
    if generation is not None:
        entry["observedGeneration"] = generation
    return dict(before) if before is not None and dict(before) == entry else entry


def hold(kind: str, previous: Mapping[str, Any] | None, otherwise: Condition) -> Condition:
    """The condition of a type as the status of before has it; `otherwise` when that does not know either."""
    for entry in entries(previous, "conditions"):
        status = entry.get("status")
        if entry.get("type") == kind and status in ("True", "False"):
            return Condition(kind, status, text(entry, "reason"), text(entry, "message"), held=True)
    return otherwise


def truth(value: bool) -> Truth:
    return "True" if value else "False"


def declared(kind: str, cluster: str) -> Condition:
    """What is said of a cluster that nobody looks at, and of what runs there."""
    return Condition(kind, "True", DECLARED, nobody_looks(cluster))


def nobody_looks(cluster: str) -> str:
    """Why a cluster, or what runs there, counts as declared."""
    return f"Nobody looks at cluster {cluster}, whose objects are files: it counts as declared"


def unknown(kind: str, message: str) -> Condition:
    """What is said of something that nobody has seen."""
    return Condition(kind, "Unknown", NOT_OBSERVED, message)


def ready(value: bool | None, previous: Mapping[str, Any] | None, message: str = "") -> Condition:
    """The Ready condition: Available, or why not. None: nobody can tell.

    What is not ready is Creating until it was ready once, Unavailable from then on.
    """
    if value is None:
        return unknown(READY, message)
    if value:
        return Condition(READY, "True", "Available", message)
    was = hold(READY, previous, unknown(READY, ""))
    lost = was.status == "True" or was.reason == "Unavailable"
    return Condition(READY, "False", "Unavailable" if lost else "Creating", message)


def known(previous: Mapping[str, Any] | None, kind: str) -> bool | None:
    """What the status of before says of a type; None when it does not tell."""
    return {"True": True, "False": False}.get(stated(entries(previous, "conditions"), kind))


def earlier(resource: Mapping[str, Any], previous: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The status of before: as given, else what the resource itself carries."""
    return fields(previous) if previous is not None else fields(resource, "status")


def joined(*parts: str) -> str:
    """What is told, one after the other, each once: a message of before may hold some of them."""
    text = ""
    for part in parts:
        if part and part not in text:
            text = f"{text}; {part}" if text else part
    return text


def listed(names: Iterable[str], limit: int = 3) -> str:
    """Names for people: the first few, sorted, and how many more there are."""
    found = sorted(set(names))
    more = len(found) - limit
    return f"{', '.join(found[:limit])} and {more} more" if more > 0 else ", ".join(found)


def cut(message: str, limit: int = _LONGEST) -> str:
    """A text that somebody else wrote, in one line of at most `limit` characters, without secrets."""
    line = printable(" ".join(masked(message[: 8 * limit]).split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"
