# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of a replica from what its cluster shows."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_replica import ReplicaState, remember
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.workloads import EngineStall
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status import sightings as seen
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status.sightings import (
    available,
    conditions,
    showing,
)
from ansible_collections.modelplane.fleet.tests.written import replica_objects, replica_state
from ansible_collections.modelplane.fleet.tests.written import replica_status as model_replica

ENGINE = "Deployment qwen3-8b-6e732e38e8-main-"
PARTS = seen.parts(seen.replica())
GANG = seen.parts(seen.replica(gang=True, copies=2))
THREE = seen.parts(seen.replica(copies=3))


def state(*objects: Any, gang: bool = False, copies: int = 1) -> ReplicaState:
    wire = seen.replica(gang=gang, copies=copies)
    return replica_state(wire, replica_objects(wire), seen.cluster(*objects))


def changed(value: Any, **status: Any) -> Any:
    """A workload whose controller has not processed its latest change yet, or says something else."""
    return {**value, "metadata": {**value["metadata"], "generation": 2}, "status": {**value["status"], **status}}


def rollout(up: int = 0, **more: Any) -> Any:
    """A Deployment of one pod in a rollout: Available, as that pod may be unavailable."""
    return showing(
        PARTS["engine"],
        observedGeneration=1,
        replicas=1,
        **({"availableReplicas": up} if up else {}),
        conditions=conditions(Available="True", **more),
    )


UP = available(PARTS["engine"])
PICKER = available(PARTS["picker"])

# accepted, ready, serving, a part of the message
STATES: dict[str, tuple[ReplicaState, tuple[bool, bool, bool], str]] = {
    "nothing is there": (state(), (False, False, False), ENGINE),
    "the picker alone": (state(PICKER), (False, False, False), "does not exist yet"),
    "no status yet": (state(PARTS["engine"], PICKER), (True, False, False), "0 of 1 available"),
    "all up": (state(UP, PICKER), (True, True, True), ""),
    "H4: no picker": (state(UP), (True, False, False), "Deployment qwen3-8b-6e732e38e8-epp does not exist yet"),
    "H4: no picker is up": (state(UP, available(PARTS["picker"], 0)), (True, False, False), "-epp: 0 of 1 available"),
    "H4: changed picker": (state(UP, changed(PICKER)), (True, False, True), "-epp: its controller has not processed"),
    "Available without a pod": (state(rollout(), PICKER), (True, False, False), "0 of 1 available"),
    "changed and not processed": (state(changed(UP), PICKER), (True, False, True), "its controller has not processed"),
    "two of three": (
        state(available(THREE["engine"], 2), PICKER, copies=3),
        (True, False, True),
        "2 of 3 available",
    ),
    "two of three, as many as have to be": (
        state(
            showing(
                THREE["engine"], availableReplicas=2, observedGeneration=1, conditions=conditions(Available="True")
            ),
            PICKER,
            copies=3,
        ),
        (True, True, True),
        "",
    ),
    "gang": (state(available(GANG["engine"]), PICKER, gang=True, copies=2), (True, True, True), ""),
    "gang in a rollout": (
        state(available(GANG["engine"], 1), PICKER, gang=True, copies=2),
        (True, False, True),
        "LeaderWorkerSet qwen3-8b-6e732e38e8-main-",
    ),
    "quota": (
        state(rollout(ReplicaFailure="True"), PICKER),
        (True, False, False),
        "0 of 1 available; ReplicaFailure is True",
    ),
    "no progress": (state(rollout(Progressing="False"), PICKER), (True, False, False), "Progressing is False"),
    "refused route": (
        state(
            UP,
            PICKER,
            showing(PARTS["route"], parents=[{"conditions": conditions(Accepted="False")}]),
        ),
        (True, False, False),
        "HTTPRoute qwen3-8b-6e732e38e8 was rejected by its gateway: Accepted is False",
    ),
    "route that one of two gateways takes": (
        state(
            UP,
            PICKER,
            showing(PARTS["route"], parents=[{"conditions": conditions(Accepted=said)} for said in ("False", "True")]),
        ),
        (True, True, True),
        "",
    ),
    "of another group": (state({**UP, "apiVersion": "other/v1"}, PICKER), (False, False, False), "does not exist yet"),
}


@pytest.mark.parametrize("name", STATES)
def test_state(name: str) -> None:
    found, (accepted, ready, serving), message = STATES[name]
    assert (found.accepted, found.ready, found.serving) == (accepted, ready, serving)
    assert message in found.message
    assert bool(found.message) is not ready


def pod(name: str, **status: Any) -> dict[str, Any]:
    labels = {"modelplane.ai/replica": "qwen3-8b-6e732e38e8"}
    metadata = {"name": name, "namespace": seen.WORKLOADS, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status}


def waiting(reason: str, message: str = "", /, **last: Any) -> dict[str, Any]:
    container = {"name": "engine", "state": {"waiting": {"reason": reason, "message": message}}}
    return {"containerStatuses": [{**container, **({"lastState": {"terminated": last}} if last else {})}]}


VERDICT = "modelplane: the engine hangs: no response within 20 s\n"


def hung(
    time: str = "2026-01-01T10:00:00Z", *, exit_code: int = 0, reason: str = "Completed", **more: Any
) -> dict[str, Any]:
    """Status of a pod whose engine exited after the stall probe had failed."""
    last = {"exitCode": exit_code, "reason": reason, "message": VERDICT, "finishedAt": time}
    container = {"name": "engine", "ready": "conditions" in more, "restartCount": 2, "state": {"running": {}}}
    return {"containerStatuses": [{**container, "lastState": {"terminated": last}}], **more}


UNSCHEDULABLE = [
    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
]
FAILURES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "image": (
        [pod("a", **waiting("ErrImagePull", "not found"))],
        "pod a: container engine: ErrImagePull: not found",
    ),
    "image, later": (
        [pod("a", **waiting("ImagePullBackOff", "Back-off"))],
        "pod a: container engine: ImagePullBackOff: Back-off",
    ),
    "unschedulable": ([pod("a", conditions=UNSCHEDULABLE)], "pod a: Unschedulable: 0/3 nodes are available"),
    "killed": (
        [pod("a", **waiting("CrashLoopBackOff", "back-off 10s", reason="OOMKilled", exitCode=137))],
        "pod a: container engine: OOMKilled: it needs more memory than its limit",
    ),
    "crashes": (
        [pod("a", **waiting("CrashLoopBackOff", "back-off 10s", reason="Error", exitCode=2))],
        "pod a: container engine: CrashLoopBackOff: exit code 2",
    ),
    "hung": (
        [pod("a", **hung())],
        "pod a: container engine: the engine stopped responding and was restarted: no response within 20 s",
    ),
    "hung and serves again": ([pod("a", **hung(conditions=conditions(Ready="True")))], ""),
    "alike": (
        [pod(name, **waiting("CrashLoopBackOff")) for name in "cab"],
        "pod a and 2 more: container engine: CrashLoopBackOff",
    ),
    "init container": (
        [pod("a", initContainerStatuses=waiting("InvalidImageName")["containerStatuses"])],
        "pod a: container engine: InvalidImageName",
    ),
    "starting": ([pod("a", **waiting("ContainerCreating"))], ""),
    "ready again": ([pod("a", conditions=conditions(Ready="True"), **waiting("CrashLoopBackOff"))], ""),
    "going": (
        [{**pod("a", **waiting("CrashLoopBackOff")), "metadata": {**pod("a")["metadata"], "deletionTimestamp": "t"}}],
        "",
    ),
    "of another replica": (
        [{**pod("a", **waiting("CrashLoopBackOff")), "metadata": {"name": "a", "namespace": "x"}}],
        "",
    ),
    "of many kinds": (
        [pod(name, **waiting("ErrImagePull", name)) for name in "abcde"],
        "pod c: container engine: ErrImagePull: c; 2 other failures",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_of_pods_are_reported(name: str) -> None:
    pods, said = FAILURES[name]
    objects = [available(PARTS["engine"], 0), PICKER]
    bare = state(*objects)
    found = state(*pods, *objects)
    assert (found.message == bare.message) is (not said)
    assert said in found.message
    reported = model_replica(seen.replica(), found, None).condition("ModelReady")
    assert reported is not None
    assert (reported.reason, reported.message) == ("ModelStarting", found.message)


def test_pods_that_fail_are_reported_of_a_replica_that_serves_as_well() -> None:
    found = state(UP, PICKER, pod("a", **waiting("CrashLoopBackOff")))
    assert (found.ready, found.message) == (True, "pod a: container engine: CrashLoopBackOff")


@pytest.mark.parametrize(
    ("exit_code", "reason", "failure"),
    [
        (143, "Error", "EngineStalled"),
        (137, "Error", "EngineStalled"),
        (137, "OOMKilled", "OOMKilled"),
        (1, "Error", "Error"),
    ],
)
def test_only_a_container_that_the_kubelet_stopped_is_a_stall(exit_code: int, reason: str, failure: str) -> None:
    found = state(available(PARTS["engine"], 0), PICKER, pod("a", **hung(exit_code=exit_code, reason=reason)))
    assert found.failure is not None
    assert found.failure.reason == failure
    assert bool(found.stalls) is (failure == "EngineStalled")


def test_an_engine_that_hangs_fails_its_replica_until_it_serves_again() -> None:
    found = state(available(PARTS["engine"], 0), PICKER, pod("a", **hung()))
    assert (found.failed, found.failure and found.failure.reason) == (True, "EngineStalled")
    recovered = state(UP, PICKER, pod("a", **hung(conditions=conditions(Ready="True"))))
    assert (recovered.failed, recovered.ready, recovered.message) == (False, True, "")
    assert found.stalls == recovered.stalls == (EngineStall("a", 2, "2026-01-01T10:00:00Z", "no response within 20 s"),)


def test_a_pod_that_never_hung_or_that_terminates_has_no_stalls() -> None:
    gone = pod("b", **hung())
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T10:00:00Z"
    crashed = pod("a", **waiting("CrashLoopBackOff", "", exitCode=1, message="modelplane: error"))
    assert state(UP, PICKER, crashed, gone).stalls == ()


NOW = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize("observed", [None, seen.silent()])
@pytest.mark.parametrize(
    "was", [ReplicaState(True, True), ReplicaState(True, False, "starting"), ReplicaState(False, False)]
)
def test_a_cluster_that_is_not_seen_changes_nothing(observed: Any, was: ReplicaState) -> None:
    wire = seen.replica()
    before = model_replica(wire, was, None).wire(None, 1, NOW)
    unseen = replica_state(wire, replica_objects(wire), observed)
    assert (unseen.accepted, unseen.ready, unseen.serving) == (None, None, None)
    assert "cluster east" in unseen.message
    assert model_replica(wire, unseen, before).wire(before, 2, "2027-01-01T00:00:00Z") == before
    remembered = remember(unseen, before)
    assert (remembered.accepted, remembered.ready) == (was.accepted, was.ready)
    assert remembered.serving is (True if was.ready else None)
    assert model_replica(wire, remembered, before).wire(before, 2, "2027-01-01T00:00:00Z") == before
    assert remember(was, {}) is was


def test_what_was_never_seen_is_not_remembered() -> None:
    unseen = ReplicaState(None, None, "cluster east did not answer")
    never = model_replica(seen.replica(), unseen, None).wire(None, 1, NOW)
    for before in (None, {}, never):
        remembered = remember(unseen, before)
        assert (remembered.accepted, remembered.ready, remembered.serving) == (None, None, None)
        assert model_replica(seen.replica(), remembered, before).wire(before, 1, NOW) == never


def test_nothing_composed_is_not_accepted() -> None:
    assert replica_state(seen.replica(), [], seen.cluster()).accepted is False


def test_unavailable_only_after_it_served() -> None:
    wire = seen.replica()
    served = model_replica(wire, ReplicaState(True, True), None).wire(None, 1, NOW)
    lost = model_replica(wire, ReplicaState(True, False, "gone"), served).wire(served, 1, "2026-01-02T00:00:00Z")
    ready = next(entry for entry in lost["conditions"] if entry["type"] == "Ready")
    assert (ready["status"], ready["reason"], ready["lastTransitionTime"]) == (
        "False",
        "Unavailable",
        "2026-01-02T00:00:00Z",
    )
    accepted = next(entry for entry in lost["conditions"] if entry["type"] == "ModelAccepted")
    assert accepted["lastTransitionTime"] == NOW
