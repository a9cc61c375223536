# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Events of a fleet: lost clusters, pending deployments, and the ends of these incidents.

A periodic reader of a fleet passes each reading to `advance`, together with the memory of the previous reading. An
incident that lasts long enough causes one event, and its end causes another event. The state of unread subjects is
kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter

from .observation import NOT_THIS_RUN
from .status.inference_cluster import no_answer
from .text import cut, without_templates
from .wire import Object, condition_entry, entries, fields, number, text

CLUSTER_LOST = "cluster_lost"
CLUSTER_RECOVERED = "cluster_recovered"
DEPLOYMENT_PENDING = "deployment_pending"
DEPLOYMENT_PLACED = "deployment_placed"
ENDS = {CLUSTER_LOST: CLUSTER_RECOVERED, DEPLOYMENT_PENDING: DEPLOYMENT_PLACED}
"""Types of incidents, with the types of the events of their ends."""

UNREACHABLE = "Unreachable"
TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, order=True)
class Subject:
    """Subject of an incident: a cluster without a namespace, or a deployment."""

    type: str
    namespace: str
    name: str


@dataclass(frozen=True)
class Incident:
    """Problem of a cluster or a deployment."""

    subject: Subject
    reason: str
    message: str
    since: str = ""
    """Start time (RFC 3339), empty if unknown."""


@dataclass(frozen=True)
class Reading:
    """Result of reading a fleet: the incidents and the subjects."""

    incidents: tuple[Incident, ...] = ()
    subjects: frozenset[Subject] = frozenset()
    """All subjects that were read."""
    unknown: frozenset[Subject] = frozenset()
    """Subjects with an unreadable state."""
    complete: frozenset[str] = frozenset()
    """Types of incidents with a complete list of subjects. A missing subject of these types no longer exists."""

    def __add__(self, other: Reading) -> Reading:
        """Combine two readings. For a subject of both, the first one counts."""
        additional = [incident for incident in other.incidents if incident.subject not in self.subjects]
        subjects = self.subjects | other.subjects
        unknown = (self.unknown | other.unknown) - subjects
        return Reading((*self.incidents, *additional), subjects, unknown, self.complete | other.complete)


@dataclass(frozen=True)
class Remembered:
    """Incident that lasts: its start time, and a flag for a reported event."""

    since: str
    reported: bool = False


Memory = Mapping[Subject, Remembered]


@dataclass(frozen=True)
class Event:
    """Event in the format of rulebooks."""

    subject: Subject
    type: str
    reason: str
    message: str
    since: str

    def document(self) -> dict[str, str]:
        """Return the event for a rulebook. Every event has the same keys."""
        of_cluster = self.subject.type == CLUSTER_LOST
        values = {
            "type": self.type,
            "cluster": self.subject.name if of_cluster else "",
            "namespace": self.subject.namespace,
            "deployment": "" if of_cluster else self.subject.name,
            "reason": self.reason,
            "message": self.message,
            "since": self.since,
        }
        document: dict[str, str] = without_templates({key: cut(value) for key, value in values.items()})
        return document


@dataclass(frozen=True)
class Turn:
    """Events of a reading, and the memory for the next one."""

    memory: Memory = field(default_factory=dict)
    events: tuple[Event, ...] = ()


def advance(memory: Memory, reading: Reading, now: datetime, delays: Mapping[str, float]) -> Turn:
    """Return the events of a reading. `delays`: minimum seconds of an incident before its event, by type."""
    events: list[Event] = []
    memories: dict[Subject, Remembered] = {}
    incidents = {incident.subject: incident for incident in reading.incidents}
    for subject, incident in sorted(incidents.items(), key=itemgetter(0)):
        remembered = memory.get(subject)
        since = remembered.since if remembered else _valid(incident.since, now)
        reported = remembered is not None and remembered.reported
        if not reported and (now - _moment(since)).total_seconds() >= delays.get(subject.type, 0.0):
            events.append(Event(subject, subject.type, incident.reason, incident.message, since))
            reported = True
        memories[subject] = Remembered(since, reported)
    for subject, remembered in sorted(memory.items(), key=itemgetter(0)):
        if subject in incidents:
            continue
        if subject in reading.subjects:
            events += [_end(subject, remembered, now)] if remembered.reported else []
        elif subject in reading.unknown or subject.type not in reading.complete:
            memories[subject] = remembered
    return Turn(memories, tuple(events))


def _end(subject: Subject, remembered: Remembered, now: datetime) -> Event:
    if subject.type == CLUSTER_LOST:
        message = f"Cluster {subject.name} is ready; it was lost since {remembered.since}"
        return Event(subject, CLUSTER_RECOVERED, "Ready", message, now.strftime(TIME))
    name = f"{subject.namespace}/{subject.name}"
    message = f"All replicas of ModelDeployment {name} are placed; some were pending since {remembered.since}"
    return Event(subject, DEPLOYMENT_PLACED, "Placed", message, now.strftime(TIME))


def _valid(since: str, now: datetime) -> str:
    """Return the time if it is valid and in the past, and the current time otherwise."""
    try:
        return since if _moment(since) <= now else now.strftime(TIME)
    except (ValueError, TypeError):
        return now.strftime(TIME)


def _moment(since: str) -> datetime:
    moment = datetime.fromisoformat(since)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# Readings


def of_clusters(resources: Iterable[Object]) -> Reading:
    """Return a reading of all InferenceClusters with their status.

    The state of a cluster is unknown if it has no status, or was not part of the last run.
    """
    incidents: list[Incident] = []
    subjects: set[Subject] = set()
    skipped: set[Subject] = set()
    for resource in resources:
        name = text(resource, "metadata", "name")
        ready = condition_entry(resource, "Ready")
        why = no_answer(name, text(ready, "message"))
        unknown = text(ready, "status") not in ("True", "False")
        subject = Subject(CLUSTER_LOST, "", name)
        if (unknown and not why) or why == NOT_THIS_RUN:
            skipped.add(subject)
            continue
        subjects.add(subject)
        since = text(ready, "lastTransitionTime")
        if unknown:
            incidents.append(Incident(subject, UNREACHABLE, why, since))
        elif text(ready, "status") == "False" and text(ready, "reason") == "Unavailable":
            incidents.append(Incident(subject, "Unavailable", text(ready, "message"), since))
    return Reading(tuple(incidents), frozenset(subjects), frozenset(skipped), frozenset({CLUSTER_LOST}))


def of_deployments(resources: Iterable[Object]) -> Reading:
    """Return a reading of all ModelDeployments with their status. Without a status, the state is unknown."""
    incidents: list[Incident] = []
    subjects: set[Subject] = set()
    skipped: set[Subject] = set()
    for resource in resources:
        subject = Subject(
            DEPLOYMENT_PENDING, text(resource, "metadata", "namespace"), text(resource, "metadata", "name")
        )
        if "replicas" not in fields(resource, "status"):
            skipped.add(subject)
            continue
        subjects.add(subject)
        scheduled = condition_entry(resource, "ReplicasScheduled")
        failed = text(scheduled, "status") == "False"
        total, leaving = (number(resource, "status", "replicas", name) for name in ("total", "leaving"))
        if total - leaving < number(resource, "spec", "replicas", default=1):
            reason = text(scheduled, "reason") if failed else "InsufficientCapacity"
            since = text(scheduled, "lastTransitionTime") if failed else ""
            incidents.append(Incident(subject, reason, text(scheduled, "message"), since))
    return Reading(tuple(incidents), frozenset(subjects), frozenset(skipped), frozenset({DEPLOYMENT_PENDING}))


def of_plan(plan: Object, planned_at: datetime) -> Reading:
    """Return a reading of the deployments in a plan.json. `planned_at`: the time of the plan."""
    incidents: dict[Subject, Incident] = {}
    for entry in entries(plan, "pending"):
        subject = _of_entry(entry)
        incidents[subject] = Incident(subject, text(entry, "reason"), text(entry, "message"), planned_at.strftime(TIME))
    placed = {_of_entry(entry) for entry in entries(plan, "placements") if text(entry, "deployment")}
    subjects = frozenset(placed | incidents.keys())
    return Reading(tuple(incidents.values()), subjects, complete=frozenset({DEPLOYMENT_PENDING}))


def of_answers(answers: Mapping[str, str]) -> Reading:
    """Return a reading of clusters that were asked: why each of them did not answer, "" when it did."""
    subjects = {name: Subject(CLUSTER_LOST, "", name) for name in answers}
    incidents = (Incident(subjects[name], UNREACHABLE, why) for name, why in sorted(answers.items()) if why)
    return Reading(tuple(incidents), frozenset(subjects.values()))


def _of_entry(entry: Object) -> Subject:
    return Subject(DEPLOYMENT_PENDING, text(entry, "namespace"), text(entry, "deployment"))
