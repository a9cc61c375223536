# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Notifications about a run or an event: what became of a fleet, as a document, and as messages of services."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .text import count, cut, first_lines, without_templates

SCHEMA = "modelplane.ai/notification/v1"
"""Version of the document. Fields may be added to it, and none is removed or gets another meaning."""
Event = Literal["failed", "unready", "pending", "recovered", "changed"]
EVENTS: tuple[Event, ...] = ("failed", "unready", "pending", "recovered", "changed")
"""The worst first."""
BAD: frozenset[Event] = frozenset({"failed", "unready", "pending"})
USUAL_EVENTS: tuple[Event, ...] = ("failed", "unready", "pending", "recovered")
FORMATS = ("json", "slack")
INCIDENTS: Mapping[str, Event] = {
    "cluster_lost": "failed",
    "cluster_recovered": "recovered",
    "deployment_pending": "pending",
    "deployment_placed": "recovered",
}
"""Events of the event source, by their types, with what they are to a hook."""
_MOST = 20
_IN_TEXT = 3
_REASON = 300


@dataclass(frozen=True)
class Trouble:
    """One thing that is wrong. `event`: what it makes of the run; `subject`: what it is, such as `cluster west`."""

    event: Event
    subject: str
    reason: str = ""

    @property
    def document(self) -> dict[str, str]:
        return {"event": self.event, "subject": self.subject, "reason": self.reason}

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}" if self.reason else self.subject


@dataclass(frozen=True)
class Notification:
    """Message about what became of a run. `run`: what it was, by name. `counts`: of clusters, replicas and objects."""

    fleet: str
    run: Mapping[str, str]
    changed: bool
    wrong: Sequence[Trouble] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    def events(self, before: Collection[str]) -> list[Event]:
        """Return what happened. `before`: the subjects that were wrong in the last run."""
        found: set[Event] = {each.event for each in self.wrong}
        if before and not self.wrong:
            found.add("recovered")
        if self.changed:
            found.add("changed")
        return [event for event in EVENTS if event in found]

    @property
    def subjects(self) -> list[str]:
        """The subjects of all that is wrong; reasons have counts and times, and say it differently in each run."""
        return sorted({f"{each.event}: {each.subject}" for each in self.wrong})


def of_run(
    fleet: str,
    run: Mapping[str, str],
    result: Mapping[str, Any],
    *,
    left_out: Sequence[str] = (),
) -> Notification:
    """Return the notification about a run, by the result of the module reconcile.

    `left_out`: clusters that failed before, so that they are no part of the run.
    """
    wrong: list[Trouble] = []
    clusters = {name: found for name, found in _mapping(result, "clusters").items() if isinstance(found, Mapping)}
    failed = [name for name, found in sorted(clusters.items()) if found.get("failed")]
    if result.get("failed") and not failed:
        # Its hosts have all failed with it.
        return Notification(fleet, run, _has_changed(result), [Trouble("failed", "the run", _failure(result))])
    wrong += [Trouble("failed", f"cluster {name}", _cut(clusters[name].get("msg"))) for name in failed]
    wrong += [Trouble("failed", f"cluster {name}", "an earlier step failed") for name in left_out if name not in failed]
    read = _mapping(result, "outcome")
    wrong += [Trouble("unready", subject, reason) for subject, reason in _findings(read, "unready")]
    wrong += [Trouble("pending", f"deployment {name}", reason) for name, reason in _findings(read, "pending")]
    summary = _mapping(result, "summary")
    counts = {
        "clusters": _number(summary, "clusters"),
        "clusters_failed": sum(each.subject.startswith("cluster ") for each in wrong),
        "clusters_changed": sum(bool(found.get("changed")) for found in clusters.values()),
        "replicas_placed": _number(summary, "placed"),
        "replicas_pending": _number(_mapping(read, "replicas"), "pending"),
        "unready": sum(each.event == "unready" for each in wrong),
        "objects": _number(summary, "objects"),
    }
    return Notification(fleet, run, _has_changed(result), wrong, counts)


def _has_changed(result: Mapping[str, Any]) -> bool:
    """Return whether a run changed something. Playbooks clear `changed` of a task whose changes they report by host."""
    return any(result.get(name) for name in ("changed", "control_changed", "changed_clusters"))


def of_event(fleet: str, event: Mapping[str, Any], time: str) -> dict[str, Any]:
    """Return the document of a notification about an event of the event source. `time`: when it is posted."""
    kind = INCIDENTS[event["type"]]
    deployment = f"deployment {event.get('namespace')}/{event.get('deployment')}"
    subject = f"cluster {event['cluster']}" if event.get("cluster") else deployment
    reason = ": ".join(str(event[key]) for key in ("reason", "message") if event.get(key))
    trouble = Trouble(kind, subject, _cut(reason))
    found = Notification(fleet, {}, changed=False, wrong=[trouble] if kind in BAD else [])
    line_ = f"Fleet {fleet}: {event['type'].replace('_', ' ')}. {trouble}"
    return {**document(found, [kind], time), "event": dict(event), "text": line_}


def document(found: Notification, events: Sequence[Event], time: str) -> dict[str, Any]:
    """Return the document of a notification. `time`: when the run ended, by RFC 3339."""
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "fleet": found.fleet,
        "run": dict(found.run),
        "time": time,
        "outcome": events[0] if events else "unchanged",
        "events": list(events),
        "counts": dict(found.counts),
        "wrong": [each.document for each in found.wrong[:_MOST]],
        "wrong_more": max(0, len(found.wrong) - _MOST),
        "text": line(found, events),
    }
    # A rulebook that receives it passes it on as variables.
    document_: dict[str, Any] = without_templates(content)
    return document_


def line(found: Notification, events: Sequence[Event]) -> str:
    """Return a notification in one line."""
    counts = found.counts
    parts = []
    if any(each.subject == "the run" for each in found.wrong):
        parts.append("the run failed")
    if counts.get("clusters_failed"):
        parts.append(f"{counts['clusters_failed']} of {count(_clusters(counts), 'cluster')} failed")
    if counts.get("unready"):
        parts.append(f"{counts['unready']} not ready")
    if counts.get("replicas_pending"):
        parts.append(f"{count(counts['replicas_pending'], 'replica')} pending")
    if "recovered" in events:
        parts.append("what was wrong is well again")
    if not parts:
        parts.append("changed" if found.changed else "unchanged")
    reasons = first_lines(map(str, found.wrong), _IN_TEXT)
    return ". ".join([f"Fleet {found.fleet}: {', '.join(parts)}", *reasons])


def slack(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as a message for incoming webhooks of Slack, which Mattermost and Rocket.Chat take as well."""
    head, __, __ = str(content["text"]).partition(". ")
    lines = [f"*{_escaped(head)}*"]
    lines += ["• " + _escaped(": ".join(filter(None, (each["subject"], each["reason"])))) for each in content["wrong"]]
    if content["wrong_more"]:
        lines.append(f"and {content['wrong_more']} more")
    return {"text": "\n".join(lines)}


def _escaped(value: str) -> str:
    """Return text as Slack takes it, in which nothing is a link or a mention."""
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _failure(result: Mapping[str, Any]) -> str:
    """Return why a module failed; `msg` says only how many errors manifests have."""
    errors = result.get("errors")
    why = " ".join(map(str, errors)) if isinstance(errors, list) else ""
    return _cut(": ".join(filter(None, (str(result.get("msg") or ""), why))))


def _findings(read: Mapping[str, Any], kind: str) -> Iterator[tuple[str, str]]:
    """Yield the subject and the reason of each finding of a kind, which are a line in the document of the outcome."""
    found = _mapping(read, "findings").get(kind)
    for line_ in found if isinstance(found, list) else ():
        subject, __, reason = str(line_).partition(": ")
        yield subject, _cut(reason)


def _clusters(counts: Mapping[str, int]) -> int:
    return max(counts.get("clusters", 0), counts.get("clusters_failed", 0))


def _mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, Mapping) else {}


def _number(value: Mapping[str, Any], name: str) -> int:
    found = value.get(name)
    return found if isinstance(found, int) else 0


def _cut(value: Any) -> str:
    return cut(str(value or ""), _REASON)
