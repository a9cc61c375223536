# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of a deployment from what the scheduler decided and what its replicas do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling import adapters
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Placement
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import Condition, Status
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_replica import ReplicaState, remember
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.workloads import EngineStall
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status import sightings as seen
from ansible_collections.modelplane.fleet.tests.written import model_deployment
from ansible_collections.modelplane.fleet.tests.written import replica_status as model_replica

NOW, LATER = "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"
SERVES = ReplicaState(True, True)


def decide(wire: dict[str, Any], *nodes: int, states: Any = SERVES, caches: Any = None, **more: Any) -> Status:
    """The status with what the scheduler decides for clusters with so many nodes of one GPU each."""
    resource: Any = api.parse(wire)
    catalogue = adapters.DeviceCatalogue()
    classes: Any = {"l4": api.parse(seen.CLASS)}
    clusters = []
    for index, count in enumerate(nodes):
        pool = {"name": "gpu-l4", "className": "l4", "nodeCount": count}
        named = {
            **seen.EXISTING,
            "metadata": {"name": f"c{index}"},
            "spec": {**seen.EXISTING["spec"], "nodePools": [pool]},
        }
        parsed: Any = api.parse(named)
        clusters.append(
            adapters.cluster(parsed, classes, catalogue, assumed_gateway=lambda name: (f"{name}.example", ""))
        )
    decided = schedule([adapters.deployment(resource, caches or {})], clusters, [])
    pending = decided.pending[0] if decided.pending else None
    known = {(placement.cluster, placement.index): states for placement in decided.placements}
    return model_deployment(wire, decided.placements, pending, known, **more)


def message(status: Status, kind: str) -> str:
    found = status.condition(kind)
    assert found is not None
    return found.message


def test_a_shortfall_is_reported_though_what_is_placed_counts_as_scheduled() -> None:
    status = decide(seen.deployment(4), 1, 2)
    assert seen.reported(status) == {
        "ReplicasScheduled": ("True", "ReplicasCreated"),
        "ReplicasReady": ("True", "AllReplicasReady"),
        "Ready": ("True", "Available"),
    }
    said = message(status, "ReplicasScheduled")
    assert said.startswith("Scheduled 3 of 4 replicas; pool gpu-l4 on c0: 0 of 1 gpu free")
    assert message(status, "Ready") == said
    assert message(status, "ReplicasReady") == "3 of 3 ready"
    assert status.fields == {"replicas": {"total": 3, "ready": 3}, "selector": "modelplane.ai/deployment=qwen3-8b"}


def test_no_capacity() -> None:
    status = decide(seen.deployment(2), 0)
    assert seen.reported(status) == {
        "ReplicasScheduled": ("False", "InsufficientCapacity"),
        "ReplicasReady": ("False", "NoReplicasScheduled"),
        "Ready": ("False", "Creating"),
    }
    assert message(status, "ReplicasScheduled").startswith(
        "0 of 2 replicas scheduled (checked 1 cluster); pool gpu-l4 on c0: "
    )


def test_no_clusters() -> None:
    assert message(decide(seen.deployment(1)), "ReplicasScheduled") == "No InferenceClusters found"
    status = decide(seen.deployment(1, selector={"region": "mars", "tier": "gold"}), 1)
    assert seen.reported(status)["ReplicasScheduled"] == ("False", "NoClusters")
    assert message(status, "ReplicasScheduled") == "No InferenceClusters found with the labels region=mars, tier=gold"


def test_d24_zero_replicas_are_all_there() -> None:
    status = decide(seen.deployment(0), 1)
    assert seen.reported(status) == {
        "ReplicasScheduled": ("True", "ScaledToZero"),
        "ReplicasReady": ("True", "ScaledToZero"),
        "Ready": ("True", "Available"),
    }
    assert status.fields == {"replicas": {"total": 0, "ready": 0}, "selector": "modelplane.ai/deployment=qwen3-8b"}


def test_an_invalid_edit_to_zero_replicas_is_reported() -> None:
    status = model_deployment(seen.deployment(0), [], None, {}, invalid="Invalid nodeSelector CEL expression: x")
    assert seen.reported(status)["ReplicasScheduled"] == ("False", "InvalidNodeSelector")


def test_d11_an_invalid_edit_keeps_the_counts_of_what_runs() -> None:
    good = seen.deployment(2)
    bad = seen.deployment(2)
    request = bad["spec"]["template"]["spec"]["engines"][0]["members"][0]["nodeSelector"]["devices"][0]
    request["selectors"] = [{"cel": "device.nonsense("}]
    status = decide(bad, 2)
    assert seen.reported(status)["ReplicasScheduled"] == ("False", "InvalidNodeSelector")
    assert message(status, "ReplicasScheduled").startswith(
        "Invalid nodeSelector CEL expression: engine main, device gpu"
    )
    resource: Any = api.parse(good)
    placements = schedule([adapters.deployment(resource, {})], [], []).placements
    assert placements == ()
    held = [seen_placement("c0"), seen_placement("c1")]
    states = {("c0", 0): SERVES, ("c1", 0): replace(SERVES, ready=False, message="starts")}
    status = model_deployment(bad, held, None, states, invalid="Invalid nodeSelector CEL expression: x")
    assert status.fields == {"replicas": {"total": 2, "ready": 1}, "selector": "modelplane.ai/deployment=qwen3-8b"}
    assert seen.reported(status) == {
        "ReplicasScheduled": ("False", "InvalidNodeSelector"),
        "ReplicasReady": ("False", "ModelStarting"),
        "Ready": ("False", "Creating"),
    }
    assert message(status, "ReplicasScheduled").endswith("; running replicas stay unchanged (2 of 2)")


def seen_placement(cluster: str) -> Placement:

    return Placement("ml-team", "qwen3-8b", cluster, 0, (), "held")


def test_a_cache_that_is_missing_holds_placement() -> None:
    status = decide(seen.deployment(2, cache="qwen"), 2, cache="missing")
    assert seen.reported(status)["ModelCacheResolved"] == ("False", "ModelCacheNotFound")
    assert message(status, "ReplicasScheduled") == "ModelCache qwen not found; holding replica placement"
    assert "ModelCacheResolved" not in seen.reported(decide(seen.deployment(2), 2))


def test_a_cache_that_is_no_longer_mounted_is_no_longer_reported() -> None:
    before = decide(seen.deployment(1, cache="qwen"), 1, cache="missing").wire(None, 1, NOW)
    after = decide(seen.deployment(1), 1).wire(before, 2, LATER)
    assert "ModelCacheResolved" not in {entry["type"] for entry in after["conditions"]}


def test_endpoints_count_too() -> None:
    status = decide(seen.deployment(1), 1, unready_endpoints=["b", "a"])
    assert seen.reported(status)["ReplicasReady"] == ("True", "AllReplicasReady")
    assert seen.reported(status)["Ready"] == ("False", "Creating")
    assert message(status, "Ready") == "Waiting for ModelEndpoint a, b"


def test_only_a_few_replicas_are_reported_by_name() -> None:
    status = decide(seen.deployment(9), 9, states=ReplicaState(True, False, "it starts"))
    said = message(status, "ReplicasReady")
    assert said.startswith("0 of 9 ready; replica 0 on c0: it starts; replica 1 on c0: it starts; replica 2 on c0: it")
    assert said.endswith("; 6 more")


@pytest.mark.parametrize("was", [SERVES, ReplicaState(True, False, "starts"), ReplicaState(False, False, "absent")])
def test_a_silent_cluster_changes_no_status_of_a_deployment(was: ReplicaState) -> None:
    wire = seen.replica()
    replica_before = model_replica(wire, was, None).wire(None, 1, NOW)
    before = decide(seen.deployment(1), 1, states=was).wire(None, 1, NOW)
    silent = remember(ReplicaState(None, None, "cluster c0 did not answer"), replica_before)
    after = decide(seen.deployment(1), 1, states=silent, previous=before).wire(before, 1, LATER)
    for one, other in zip(before["conditions"], after["conditions"], strict=True):
        for key in ("type", "status", "reason", "lastTransitionTime"):
            assert one[key] == other[key]
    assert before["replicas"] == after["replicas"]


def test_unavailable_after_it_was_available() -> None:
    before = decide(seen.deployment(1), 1).wire(None, 1, NOW)
    after = decide(seen.deployment(1), 1, states=ReplicaState(True, False, "gone"), previous=before)
    assert seen.reported(after)["Ready"] == ("False", "Unavailable")


def stalled(pod: str, time: str) -> ReplicaState:
    return ReplicaState(True, True, stalls=(EngineStall(pod, 1, time, "no response"),))


def stalls(*states: ReplicaState, **more: Any) -> Status:
    clusters = [f"c{index}" for index in range(len(states))]
    placements = [Placement("ml-team", "qwen3-8b", cluster, 0, (), "kept") for cluster in clusters]
    by_place = {(cluster, 0): state for cluster, state in zip(clusters, states, strict=True)}
    return model_deployment(seen.deployment(len(states)), placements, None, by_place, **more)


def test_a_deployment_without_restarts_has_no_condition_about_them() -> None:
    assert decide(seen.deployment(1), 1).condition("EngineStalled") is None


@pytest.mark.parametrize(
    ("time", "is_shared"),
    [("2026-01-01T10:10:00Z", True), ("2026-01-01T10:10:01Z", False), ("2026-01-01T10:00:00", True), ("?", False)],
)
def test_engines_that_hang_within_ten_minutes_might_have_one_cause(time: str, is_shared: bool) -> None:
    status = stalls(stalled("a", "2026-01-01T10:00:00Z"), stalled("b", time))
    shared = "; engines hung within 10 minutes of each other: check their logs for a request that causes the hangs"
    assert message(status, "EngineStalled").endswith(shared) is is_shared
    assert status.condition("Ready") == Condition("Ready", "True", "Available")


def test_the_latest_restarts_are_named() -> None:
    status = stalls(*(stalled(f"p{index}", f"2026-01-01T1{index}:00:00Z") for index in range(5)))
    assert message(status, "EngineStalled") == (
        "pod p4 on c4: 1 restart, last at 2026-01-01T14:00:00Z: no response; "
        "pod p3 on c3: 1 restart, last at 2026-01-01T13:00:00Z: no response; "
        "pod p2 on c2: 1 restart, last at 2026-01-01T12:00:00Z: no response; 2 more"
    )


def test_restarts_stay_known_while_a_cluster_does_not_answer() -> None:
    before = stalls(stalled("a", "2026-01-01T10:00:00Z")).wire(None, 1, NOW)
    silent = ReplicaState(True, True, "it did not answer", remembered=True)
    status = stalls(silent, previous=before)
    assert status.condition("EngineStalled") == Condition(
        "EngineStalled",
        "True",
        "EngineRestarted",
        "pod a on c0: 1 restart, last at 2026-01-01T10:00:00Z: no response",
        held=True,
    )
