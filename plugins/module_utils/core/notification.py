# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Notifications about a run or an event: a document of the result, and messages for services."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .text import count, cut, first_lines, without_templates

SCHEMA = "modelplane.ai/notification/v1"
"""Version of the document. Fields can be added to it, but no field is removed or changes its meaning."""
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
"""Events of the event source by type, with their events for a hook."""
_MOST = 20
_IN_TEXT = 3
_REASON = 300


@dataclass(frozen=True)
class Trouble:
    """Problem of a run."""

    event: Event
    """Event of the run because of the problem."""
    subject: str
    """Affected part of the fleet, such as `cluster west`."""
    reason: str = ""

    @property
    def document(self) -> dict[str, str]:
        return {"event": self.event, "subject": self.subject, "reason": self.reason}

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}" if self.reason else self.subject


@dataclass(frozen=True)
class Notification:
    """Message about the result of a run."""

    fleet: str
    run: Mapping[str, str]
    """Values that describe the run, by name."""
    changed: bool
    wrong: Sequence[Trouble] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """Numbers of clusters, replicas, and objects."""

    def events(self, before: Collection[str]) -> list[Event]:
        """Return the events of the run. `before`: the subjects of problems in the last run."""
        happened: set[Event] = {trouble.event for trouble in self.wrong}
        if before and not self.wrong:
            happened.add("recovered")
        if self.changed:
            happened.add("changed")
        return [event for event in EVENTS if event in happened]

    @property
    def subjects(self) -> list[str]:
        """Return the subjects of all problems, without reasons, because reasons differ in each run (counts, times)."""
        return sorted({f"{trouble.event}: {trouble.subject}" for trouble in self.wrong})


def of_run(
    fleet: str,
    run: Mapping[str, str],
    result: Mapping[str, Any],
    *,
    left_out: Sequence[str] = (),
) -> Notification:
    """Return the notification about a run from the result of the module reconcile.

    `left_out`: clusters that failed before, so that they are not part of the run.
    """
    wrong: list[Trouble] = []
    clusters = {name: report for name, report in _mapping(result, "clusters").items() if isinstance(report, Mapping)}
    failed = [name for name, report in sorted(clusters.items()) if report.get("failed")]
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
        "clusters_failed": sum(trouble.subject.startswith("cluster ") for trouble in wrong),
        "clusters_changed": sum(bool(report.get("changed")) for report in clusters.values()),
        "replicas_placed": _number(summary, "placed"),
        "replicas_pending": _number(_mapping(read, "replicas"), "pending"),
        "unready": sum(trouble.event == "unready" for trouble in wrong),
        "objects": _number(summary, "objects"),
    }
    return Notification(fleet, run, _has_changed(result), wrong, counts)


def _has_changed(result: Mapping[str, Any]) -> bool:
    """Return True if a run changed something.

    Playbooks clear `changed` of tasks that report changes by host."""
    return any(result.get(name) for name in ("changed", "control_changed", "changed_clusters"))


def of_event(fleet: str, event: Mapping[str, Any], time: str) -> dict[str, Any]:
    """Return the document of a notification about an event of the event source. `time`: when it is posted."""
    kind = INCIDENTS[event["type"]]
    deployment = f"deployment {event.get('namespace')}/{event.get('deployment')}"
    subject = f"cluster {event['cluster']}" if event.get("cluster") else deployment
    reason = ": ".join(str(event[key]) for key in ("reason", "message") if event.get(key))
    trouble = Trouble(kind, subject, _cut(reason))
    notification = Notification(fleet, {}, changed=False, wrong=[trouble] if kind in BAD else [])
    line_ = f"Fleet {fleet}: {event['type'].replace('_', ' ')}. {trouble}"
    return {**document(notification, [kind], time), "event": dict(event), "text": line_}


def document(notification: Notification, events: Sequence[Event], time: str) -> dict[str, Any]:
    """Return the document of a notification. `time`: when the run ended, by RFC 3339."""
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "fleet": notification.fleet,
        "run": dict(notification.run),
        "time": time,
        "outcome": events[0] if events else "unchanged",
        "events": list(events),
        "counts": dict(notification.counts),
        "wrong": [trouble.document for trouble in notification.wrong[:_MOST]],
        "wrong_more": max(0, len(notification.wrong) - _MOST),
        "text": line(notification, events),
    }
    # A rulebook that receives it passes it on as variables.
    document_: dict[str, Any] = without_templates(content)
    return document_


def line(notification: Notification, events: Sequence[Event]) -> str:
    """Return a notification in one line."""
    counts = notification.counts
    phrases = []
    if any(trouble.subject == "the run" for trouble in notification.wrong):
        phrases.append("the run failed")
    if counts.get("clusters_failed"):
        phrases.append(f"{counts['clusters_failed']} of {count(_clusters(counts), 'cluster')} failed")
    if counts.get("unready"):
        phrases.append(f"{counts['unready']} not ready")
    if counts.get("replicas_pending"):
        phrases.append(f"{count(counts['replicas_pending'], 'replica')} pending")
    if "recovered" in events:
        phrases.append("what was wrong is well again")
    if not phrases:
        phrases.append("changed" if notification.changed else "unchanged")
    reasons = first_lines(map(str, notification.wrong), _IN_TEXT)
    return ". ".join([f"Fleet {notification.fleet}: {', '.join(phrases)}", *reasons])


def slack(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as a message for incoming webhooks of Slack. Mattermost and Rocket.Chat accept it too."""
    head, __, __ = str(content["text"]).partition(". ")
    lines = [f"*{_escaped(head)}*"]
    lines += [
        "• " + _escaped(": ".join(filter(None, (trouble["subject"], trouble["reason"]))))
        for trouble in content["wrong"]
    ]
    if content["wrong_more"]:
        lines.append(f"and {content['wrong_more']} more")
    return {"text": "\n".join(lines)}


def _escaped(value: str) -> str:
    """Return text with escapes for Slack, without links and mentions."""
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _failure(result: Mapping[str, Any]) -> str:
    """Return the reason for the failure of a module. `msg` contains only the number of errors in manifests."""
    errors = result.get("errors")
    why = " ".join(map(str, errors)) if isinstance(errors, list) else ""
    return _cut(": ".join(filter(None, (str(result.get("msg") or ""), why))))


def _findings(read: Mapping[str, Any], kind: str) -> Iterator[tuple[str, str]]:
    """Yield the subject and the reason of each finding of a kind from the document of the outcome."""
    finding_lines = _mapping(read, "findings").get(kind)
    for line_ in finding_lines if isinstance(finding_lines, list) else ():
        subject, __, reason = str(line_).partition(": ")
        yield subject, _cut(reason)


def _clusters(counts: Mapping[str, int]) -> int:
    return max(counts.get("clusters", 0), counts.get("clusters_failed", 0))


def _mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    entry = value.get(name)
    return entry if isinstance(entry, Mapping) else {}


def _number(value: Mapping[str, Any], name: str) -> int:
    entry = value.get(name)
    return entry if isinstance(entry, int) else 0


def _cut(value: Any) -> str:
    return cut(str(value or ""), _REASON)
