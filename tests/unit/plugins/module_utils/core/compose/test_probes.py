# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of the probes of engines: who has them, on which port, and whose own replace them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.written import replica_objects

Make = Callable[..., dict[str, Any]]
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def containers(replica: dict[str, Any]) -> list[dict[str, Any]]:
    """The containers of engines, leaders before their workers."""
    specs = []
    for each in replica_objects(replica):
        if each["kind"] == "LeaderWorkerSet":
            group = each["spec"]["leaderWorkerTemplate"]
            specs += [group["leaderTemplate"]["spec"], group["workerTemplate"]["spec"]]
        elif each["kind"] == "Deployment" and not each["metadata"]["name"].endswith("-epp"):
            specs.append(each["spec"]["template"]["spec"])
    return [spec["containers"][0] for spec in specs]


def health(port: int, **fields: int) -> dict[str, Any]:
    return {"httpGet": {"path": "/health", "port": port}, "periodSeconds": 10, "timeoutSeconds": 5, **fields}


@pytest.mark.parametrize(
    ("fields", "threshold"), [({}, 360), ({"startupMinutes": 1}, 6), ({"startupMinutes": 1440}, 8640)]
)
def test_an_engine_may_take_long_to_start_and_is_ready_at_once(
    make_replica: Make, make_member: Make, make_engine: Make, fields: dict[str, Any], threshold: int
) -> None:
    (container,) = containers(make_replica(make_engine("main", make_member(), **fields)))
    expected = health(8000, failureThreshold=threshold, terminationGracePeriodSeconds=30)
    assert container["startupProbe"] == expected
    assert container["readinessProbe"] == health(8000)


def test_probes_are_sent_to_the_port_of_the_engine(make_replica: Make, make_member: Make, make_engine: Make) -> None:
    prefill = make_engine("prefill", make_member(), phase="Prefill")
    decode = make_engine("decode", make_member(args=["--port=8005"]), phase="Decode")
    found = containers(make_replica(prefill, decode, serving={"mode": "PrefillDecode"}))
    for container, port in zip(found, (8000, 8005), strict=True):
        assert container["startupProbe"]["httpGet"]["port"] == port
        assert container["readinessProbe"]["httpGet"]["port"] == port
        assert container["livenessProbe"]["exec"]["command"][5] == str(port)


def test_workers_of_a_gang_have_their_own_probes_only(make_replica: Make, make_member: Make, make_engine: Make) -> None:
    own = {"tcpSocket": {"port": 29500}}
    engine = make_engine("main", make_member("Leader"), make_member("Worker", livenessProbe=own))
    leader, worker = containers(make_replica(engine))
    assert set(PROBES) <= set(leader)
    assert {field: worker[field] for field in PROBES if field in worker} == {"livenessProbe": own}


def test_probes_of_users_replace_the_composed_ones(make_replica: Make) -> None:
    own = {
        "livenessProbe": {"exec": {"command": ["healthy", "$(X)"]}, "periodSeconds": 60, "failureThreshold": 5},
        "startupProbe": {"httpGet": {"path": "/ready", "port": 8000}, "failureThreshold": 720},
    }
    (container,) = containers(make_replica(container=own))
    assert {field: container[field] for field in own} == own
    assert container["readinessProbe"] == health(8000)


@pytest.mark.parametrize(
    ("stall", "seconds", "action", "threshold"),
    [
        (None, "300", "Report", 2**31 - 1),
        ({"seconds": 3600}, "3600", "Report", 2**31 - 1),
        ({"action": "Restart"}, "300", "Restart", 3),
    ],
)
def test_only_restart_can_restart_an_engine(
    make_replica: Make,
    make_member: Make,
    make_engine: Make,
    stall: dict[str, Any] | None,
    seconds: str,
    action: str,
    threshold: int,
) -> None:
    """The kubelet counts a command that takes too long as failed, whatever it would have returned."""
    fields = {"stall": stall} if stall else {}
    (container,) = containers(make_replica(make_engine("main", make_member(), **fields)))
    probe = container["livenessProbe"]
    assert (probe["exec"]["command"][6], probe["exec"]["command"][8]) == (seconds, action)
    assert probe["failureThreshold"] == threshold
    assert float(probe["exec"]["command"][7]) < probe["timeoutSeconds"] < probe["periodSeconds"]
    assert probe["terminationGracePeriodSeconds"] == 30
