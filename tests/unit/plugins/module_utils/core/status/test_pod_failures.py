# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what keeps pods from running, in words that a person can act on."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.projection import trim, with_events
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.workloads import (
    availability,
    failures,
    unsettled,
)

PREEMPTION = " preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."


def pod(**status: Any) -> dict[str, Any]:
    metadata = {"name": "p", "namespace": "mp-x"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": "Pending", **status}}


def unscheduled(message: str, reason: str = "Unschedulable") -> dict[str, Any]:
    return pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}])


def container(**status: Any) -> dict[str, Any]:
    return pod(phase="Running", containerStatuses=[{"name": "engine", "ready": False, **status}])


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return container(state={"waiting": {"reason": reason, "message": message}})


CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "claims": (
        unscheduled(f"0/3 nodes are available: 3 cannot allocate all claims. still not schedulable,{PREEMPTION}"),
        [
            "Unschedulable: 0/3 nodes are available: 3 cannot allocate all claims: no node has enough free devices of "
            "the kind that its ResourceClaim requests; compare the ResourceSlices of the nodes with their "
            "InferenceClass, and check which ResourceClaims hold devices"
        ],
    ),
    "no device class": (
        unscheduled("0/2 nodes are available: request gpu: device class gpu.nvidia.com does not exist." + PREEMPTION),
        [
            "Unschedulable: 0/2 nodes are available: request gpu: device class gpu.nvidia.com does not exist: "
            "install the DRA driver that provides DeviceClass gpu.nvidia.com"
        ],
    ),
    "no label": (
        unscheduled("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector." + PREEMPTION),
        [
            "Unschedulable: 0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector: "
            "no node has the labels that it selects; nodes of a pool need the label modelplane.ai/pool"
        ],
    ),
    "labels of some": (
        unscheduled(
            "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match Pod's node affinity/selector."
        ),
        [
            "Unschedulable: 0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match Pod's node "
            "affinity/selector: less cpu is free than it requests; lower the request or use larger nodes"
        ],
    ),
    "an extended resource": (
        unscheduled("0/1 nodes are available: 1 Insufficient nvidia.com/gpu." + PREEMPTION),
        [
            "Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu: less nvidia.com/gpu is free than "
            "it requests; lower the request or use larger nodes"
        ],
    ),
    "no volume": (
        unscheduled('0/1 nodes are available: persistentvolumeclaim "weights" not found.' + PREEMPTION),
        [
            'Unschedulable: 0/1 nodes are available: persistentvolumeclaim "weights" not found: its volume is not '
            "bound; check the events of the PersistentVolumeClaim"
        ],
    ),
    "something new": (unscheduled("the moon is full"), ["Unschedulable: the moon is full"]),
    "no words": (unscheduled(""), ["Unschedulable"]),
    "an error of the scheduler": (
        unscheduled("node n1: timed out trying to allocate devices", "SchedulerError"),
        ["SchedulerError: node n1: timed out trying to allocate devices"],
    ),
    "gated": (unscheduled("", "SchedulingGated"), ["SchedulingGated: its scheduling gates have to be removed"]),
    "evicted": (
        pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory."),
        ["Evicted: The node was low on resource: memory."],
    ),
    "no image": (
        waiting("ImagePullBackOff", 'Back-off pulling image "vllm:nope"'),
        ['container engine: ImagePullBackOff: Back-off pulling image "vllm:nope"'],
    ),
    "crashing": (
        container(
            state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}},
            lastState={"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}},
        ),
        ["container engine: CrashLoopBackOff: exit code 3"],
    ),
    "between crashes": (
        container(
            state={"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            lastState={"terminated": {"exitCode": 3, "reason": "Error"}},
        ),
        ["container engine: it terminated with exit code 3: check its logs"],
    ),
    "killed": (
        container(state={"running": {}}, lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
        ["container engine: OOMKilled: it needs more memory than its limit"],
    ),
    "an init container that is done": (
        pod(initContainerStatuses=[{"name": "init", "ready": True, "state": {"terminated": {"exitCode": 0}}}]),
        [],
    ),
    "a sidecar that recovered": (
        pod(
            phase="Running",
            containerStatuses=[{"name": "picker", "ready": True, "lastState": {"terminated": {"exitCode": 1}}}],
        ),
        [],
    ),
    "starting": (container(state={"running": {}}), []),
    "ready": (pod(phase="Running", conditions=[{"type": "Ready", "status": "True"}]), []),
}


@pytest.mark.parametrize("name", CASES)
def test_reasons(name: str) -> None:
    seen, reasons = CASES[name]
    assert list(map(str, failures(seen))) == reasons


@pytest.mark.parametrize("name", CASES)
def test_what_is_left_of_a_pod_says_the_same(name: str) -> None:
    seen, reasons = CASES[name]
    assert list(map(str, failures(trim(seen)))) == reasons


def event(reason: str, message: str, time: str, kind: str = "Warning") -> dict[str, Any]:
    return {"type": kind, "reason": reason, "message": message, "lastTimestamp": time, "metadata": {"name": time}}


def test_the_latest_event_with_a_message() -> None:
    events = [
        event("FailedMount", 'secret "old" not found', "2026-01-01T00:00:00Z"),
        event(
            "FailedMount", 'MountVolume.SetUp failed for volume "ca" : secret "ca" not found', "2026-01-01T00:02:00Z"
        ),
        event("BackOff", "Back-off restarting failed container", "2026-01-01T00:03:00Z"),
        event("FailedMount", "not a warning", "2026-01-01T00:04:00Z", "Normal"),
    ]
    seen = with_events(trim(pod()), events)
    assert list(map(str, failures(seen))) == [
        'FailedMount: MountVolume.SetUp failed for volume "ca" : secret "ca" not found'
    ]
    assert with_events(trim(pod()), events[2:]) == trim(pod())


def test_an_event_without_a_text_as_its_reason_is_not_relevant() -> None:
    malformed = event("FailedMount", "slow", "2026-01-01T00:00:00Z") | {"reason": ["FailedMount"]}
    assert with_events(trim(pod()), [malformed]) == trim(pod())


def test_what_is_known_of_a_container_wins_over_events() -> None:
    seen = with_events(waiting("ErrImagePull"), [event("FailedMount", "slow", "2026-01-01T00:00:00Z")])
    assert list(map(str, failures(seen))) == ["container engine: ErrImagePull"]


def workload(kind: str = "Deployment", copies: int = 2, generation: int = 1, **status: Any) -> dict[str, Any]:
    counts = {"replicas": copies, "readyReplicas": copies, "updatedReplicas": copies, "observedGeneration": 1}
    metadata = {"name": "w", "generation": generation}
    return {"kind": kind, "metadata": metadata, "spec": {"replicas": copies}, "status": {**counts, **status}}


@pytest.mark.parametrize(
    ("seen", "unrest"),
    [
        (workload(), False),
        (workload(copies=0, replicas=0), False),
        (workload(readyReplicas=1), True),
        (workload(updatedReplicas=1), True),
        (workload(replicas=3), True),
        (workload(generation=2), True),
        (workload("LeaderWorkerSet", 1), False),
        (workload("LeaderWorkerSet", 1, readyReplicas=0), True),
        ({"kind": "Job", "status": {"conditions": [{"type": "Complete", "status": "True"}]}}, False),
        ({"kind": "Job", "status": {"active": 1}}, True),
    ],
)
def test_whose_pods_are_worth_an_observation(seen: dict[str, Any], unrest: bool) -> None:
    assert unsettled(seen) is unrest
    assert unsettled(trim(seen)) is unrest


def test_a_gang_that_no_one_observed() -> None:
    desired = {"kind": "LeaderWorkerSet", "metadata": {"name": "g"}, "spec": {"replicas": 1}}
    found = availability(desired, desired)
    assert found.message == (
        "LeaderWorkerSet g: 0 of 1 available; the LeaderWorkerSet controller has not processed it: is it running?"
    )
