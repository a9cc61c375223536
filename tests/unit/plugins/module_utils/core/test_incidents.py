# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Events of a fleet: which readings lead to which ones."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, incidents
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import ObservedCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.inference_cluster import inference_cluster
from hypothesis import given
from hypothesis import strategies as st

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
DELAYS = {incidents.CLUSTER_LOST: 60.0, incidents.DEPLOYMENT_PENDING: 600.0}
EAST = incidents.Subject(incidents.CLUSTER_LOST, "", "east")
QWEN = incidents.Subject(incidents.DEPLOYMENT_PENDING, "ml-team", "qwen")
LOST = incidents.Incident(EAST, "Unreachable", "connection refused")
PENDING = incidents.Incident(QWEN, "InsufficientCapacity", "0 of 1 replicas scheduled")


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def stamp(seconds: float) -> str:
    return at(seconds).strftime(incidents.TIME)


def reading(*found: incidents.Incident, healthy: tuple[incidents.Subject, ...] = (), **more: Any) -> incidents.Reading:
    subjects = frozenset((*(incident.subject for incident in found), *healthy))
    return incidents.Reading(found, subjects, **more)


def run(*readings: tuple[float, incidents.Reading]) -> list[tuple[float, str, str]]:
    """Return the events of readings at these seconds: second, type and name."""
    memory: incidents.Memory = {}
    found = []
    for seconds, one in readings:
        turn = incidents.advance(memory, one, at(seconds), DELAYS)
        memory = turn.memory
        found += [(seconds, event.type, event.subject.name) for event in turn.events]
    return found


def test_an_incident_is_reported_once_it_lasts_and_its_end_once() -> None:
    well = reading(healthy=(EAST,))
    lost = reading(LOST)
    assert run((0, lost), (30, lost), (60, lost), (90, lost), (120, well), (150, well), (180, lost), (240, lost)) == [
        (60, "cluster_lost", "east"),
        (120, "cluster_recovered", "east"),
        (240, "cluster_lost", "east"),
    ]


def test_an_incident_that_ends_in_time_is_no_event() -> None:
    assert run((0, reading(LOST)), (30, reading(healthy=(EAST,))), (70, reading(LOST))) == []


def test_the_time_of_a_status_counts_before_the_first_reading() -> None:
    since = incidents.Incident(QWEN, "NoClusters", "", stamp(-900))
    turn = incidents.advance({}, reading(since), at(0), DELAYS)
    assert [event.since for event in turn.events] == [stamp(-900)]


@pytest.mark.parametrize("since", ["", "yesterday", stamp(3600)])
def test_a_time_that_is_none_or_to_come_counts_from_the_reading(since: str) -> None:
    turn = incidents.advance({}, reading(incidents.Incident(QWEN, "NoClusters", "", since)), at(0), DELAYS)
    assert turn.memory[QWEN].since == stamp(0)
    assert not turn.events


def test_what_was_not_read_stays() -> None:
    lost, blind = reading(LOST), incidents.Reading()
    assert run((0, lost), (60, lost), (90, blind), (120, lost)) == [(60, "cluster_lost", "east")]
    unknown = incidents.Reading(unknown=frozenset({EAST}), complete=frozenset({incidents.CLUSTER_LOST}))
    assert run((0, lost), (60, lost), (90, unknown), (120, lost)) == [(60, "cluster_lost", "east")]


def test_what_is_gone_is_forgotten_without_an_event() -> None:
    gone = incidents.Reading(complete=frozenset({incidents.CLUSTER_LOST}))
    turn = incidents.advance({EAST: incidents.Remembered(stamp(0), True)}, gone, at(90), DELAYS)
    assert turn == incidents.Turn({}, ())


def test_the_first_of_two_readings_counts() -> None:
    answers = incidents.of_answers({"east": "", "west": "timed out"})
    statuses = reading(
        LOST, incidents.Incident(incidents.Subject(incidents.CLUSTER_LOST, "", "north"), "Unreachable", "")
    )
    both = answers + statuses
    assert [incident.subject.name for incident in both.incidents] == ["west", "north"]
    assert {subject.name for subject in both.subjects} == {"east", "west", "north"}


def test_every_event_has_the_same_keys() -> None:
    old = {EAST: incidents.Remembered(stamp(-99), True), QWEN: incidents.Remembered(stamp(-999), True)}
    started = incidents.advance({}, reading(LOST, PENDING), at(0), {}).events
    ended = incidents.advance(old, reading(healthy=(EAST, QWEN)), at(0), {}).events
    documents = [event.document() for event in (*started, *ended)]
    assert documents[0] == {
        "type": "cluster_lost",
        "cluster": "east",
        "namespace": "",
        "deployment": "",
        "reason": "Unreachable",
        "message": "connection refused",
        "since": stamp(0),
    }
    assert documents[3] == {
        "type": "deployment_placed",
        "cluster": "",
        "namespace": "ml-team",
        "deployment": "qwen",
        "reason": "Placed",
        "message": f"All replicas of ModelDeployment ml-team/qwen are placed; some were pending since {stamp(-999)}",
        "since": stamp(0),
    }
    assert {frozenset(document) for document in documents} == {frozenset(documents[0])}


def test_a_message_has_no_secret_and_no_template() -> None:
    message = "Authorization: Bearer abcdefgh12345678 {{ lookup('ansible.builtin.pipe', 'id') }}{% if 1 %}{# note #}"
    event = incidents.Event(EAST, incidents.CLUSTER_LOST, "Unreachable", message, stamp(0))
    shown = event.document()["message"]
    assert "abcdefgh12345678" not in shown
    assert "lookup" in shown
    assert not any(opening in shown for opening in ("{{", "{%", "{#"))


@given(st.text("{%#} a", max_size=12))
def test_no_text_opens_a_template(message: str) -> None:
    shown = incidents.without_templates(message)
    assert not any(opening in shown for opening in ("{{", "{%", "{#"))
    assert shown.replace(" ", "") == message.replace(" ", "")


# Readings


def cluster(name: str, status: str, reason: str = "", message: str = "") -> Mapping[str, Any]:
    ready = {"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": stamp(-5)}
    return {"kind": "InferenceCluster", "metadata": {"name": name}, "status": {"conditions": [ready]}}


def test_the_statuses_of_clusters() -> None:
    found = incidents.of_clusters(
        [
            cluster("answers", "True", "Available"),
            cluster("declared", "True", "Declared"),
            cluster("installing", "False", "Creating", "Waiting for the serving stack"),
            cluster("no-gateway", "False", "Unavailable", "Waiting for an address"),
            cluster("silent", "Unknown", "NotObserved", "cluster silent did not answer: timed out"),
            cluster("left-out", "Unknown", "NotObserved", "cluster left-out did not answer: not part of this run"),
            cluster("new", "Unknown", "NotObserved", "cluster new has not been observed"),
            {"kind": "InferenceCluster", "metadata": {"name": "none"}},
        ]
    )
    assert [(incident.subject.name, incident.reason, incident.message) for incident in found.incidents] == [
        ("no-gateway", "Unavailable", "Waiting for an address"),
        ("silent", "Unreachable", "timed out"),
    ]
    assert {incident.since for incident in found.incidents} == {stamp(-5)}
    assert {subject.name for subject in found.unknown} == {"left-out", "new", "none"}
    assert {subject.name for subject in found.subjects} == {"answers", "declared", "installing", "no-gateway", "silent"}


def test_a_status_as_a_run_writes_it() -> None:
    manifest = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": "east"},
        "spec": {"cluster": {"source": "Existing", "existing": {"secretRef": {"name": "east"}}}},
    }
    resource = api.parse(manifest)
    assert isinstance(resource, api.InferenceCluster)
    status = inference_cluster(resource, observed=ObservedCluster(unreachable="connection refused"))
    found = incidents.of_clusters([{**manifest, "status": status.wire(now=stamp(0))}])
    assert found.incidents == (incidents.Incident(EAST, "Unreachable", "connection refused", stamp(0)),)


def deployment(name: str, desired: int, total: int | None, **scheduled: str) -> Mapping[str, Any]:
    status = {} if total is None else {"replicas": {"total": total}}
    conditions = [{"type": "ReplicasScheduled", "lastTransitionTime": stamp(-5), **scheduled}] if scheduled else []
    return {
        "kind": "ModelDeployment",
        "metadata": {"namespace": "ml-team", "name": name},
        "spec": {"replicas": desired},
        "status": {**status, "conditions": conditions},
    }


def test_the_statuses_of_deployments() -> None:
    found = incidents.of_deployments(
        [
            deployment("placed", 2, 2, status="True", reason="ReplicasCreated"),
            deployment("starting", 1, 1, status="False", reason="Scheduling"),
            deployment("half", 2, 1, status="True", reason="ReplicasCreated", message="Scheduled 1 of 2 replicas"),
            deployment("none", 1, 0, status="False", reason="NoClusters", message="No InferenceClusters found"),
            deployment("zero", 0, 0, status="True", reason="ScaledToZero"),
            deployment("new", 1, None),
        ]
    )
    assert [(one.subject.name, one.reason, one.message, one.since) for one in found.incidents] == [
        ("half", "InsufficientCapacity", "Scheduled 1 of 2 replicas", ""),
        ("none", "NoClusters", "No InferenceClusters found", stamp(-5)),
    ]
    assert {subject.name for subject in found.unknown} == {"new"}
    assert len(found.subjects) == 5


def test_a_plan() -> None:
    plan = {
        "pending": [{"namespace": "ml-team", "deployment": "qwen", "reason": "NoClusters", "message": "none fit"}],
        "placements": [
            {"namespace": "ml-team", "deployment": "qwen"},
            {"namespace": "ml-team", "deployment": "llama"},
            {"namespace": "ml-team", "deployment": "", "replica": "manual"},
        ],
    }
    found = incidents.of_plan(plan, at(-10))
    assert found.incidents == (incidents.Incident(QWEN, "NoClusters", "none fit", stamp(-10)),)
    assert {subject.name for subject in found.subjects} == {"qwen", "llama"}
