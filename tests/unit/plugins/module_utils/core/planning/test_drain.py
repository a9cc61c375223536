# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Replicas that leave for others on a fleet that is not read."""

from __future__ import annotations

from random import Random

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Observed, ObservedCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, plan
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.planning.asked_fleet import (
    CLASS,
    cluster,
    deployment,
    planned,
    service,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.planning.simulated_fleet import (
    SimulatedFleet,
)


def places(found: Plan) -> list[tuple[str, str]]:
    return [(each.labels[names.DEPLOYMENT_LABEL], each.spec.cluster_name) for each in found.composed]


def drained(cluster: api.Resource) -> api.Resource:
    wire = api.wire(cluster, set_only=True)
    return api.parse({**wire, "spec": {**wire["spec"], "taints": [{"key": names.DRAIN_TAINT, "effect": "NoExecute"}]}})


def test_each_plan_returns_one_replica_and_keeps_none_for_it() -> None:
    terms = [{"matchLabels": {names.CLUSTER_LABEL: "a"}}]
    desired = deployment("one", 2, clusterPreferences={"terms": terms, "return": True})
    found = planned(cluster("b", gpu=2), desired)
    seen = []
    for __ in range(3):
        found = plan([CLASS, cluster("a", gpu=2), cluster("b", gpu=2), desired], found.replicas)
        seen.append([where for __, where in places(found)])
    assert seen == [["a", "b"], ["a", "a"], ["a", "a"]]


def test_a_replica_that_returns_while_another_one_is_pending_serves_until_the_new_one_does() -> None:
    """Spread holds back the second replica, because the other region is full."""
    terms = [{"matchLabels": {names.CLUSTER_LABEL: "a"}}]
    spread = [{"topologyKey": "region", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    desired = deployment("one", 2, clusterPreferences={"terms": terms, "return": True}, spread=spread)
    other = deployment("other", 1, "east", priority=1)
    resources = [CLASS, cluster("b", gpu=1), cluster("c", "east", gpu=1), desired, other, service("one", "one")]
    fleet = SimulatedFleet(resources)
    list(fleet.run(Random(1)))
    assert places(fleet.plan()) == [("one", "b"), ("other", "c")]
    fleet.resources = [*resources, cluster("a", gpu=1)]
    annotations = set()
    for found in fleet.run(Random(1)):
        assert fleet.services()["one"]
        assert not found.blocked_clusters
        annotations |= {replica.annotations.get(names.PREEMPTED_ANNOTATION, "") for replica in found.composed}
    assert annotations == {"", "team/one"}
    assert places(fleet.plan()) == [("one", "a"), ("other", "c")]
    assert [entry.count for entry in fleet.plan().schedule.pending] == [1]


def test_a_preempted_replica_goes_in_the_plan_that_places_it_elsewhere_and_the_next_plan_changes_nothing() -> None:
    low = deployment("low", 1)
    found = planned(cluster("a", gpu=1), low)
    high = deployment("high", 1, "west", priority=5, preemption="LowerPriority")
    for __ in range(2):
        found = plan([CLASS, cluster("a", gpu=1), cluster("b", "east", gpu=1), low, high], found.replicas)
        assert places(found) == [("high", "a"), ("low", "b")]


@pytest.mark.parametrize(
    ("room", "desired", "placed"),
    [(0, 3, "0 of 2"), (1, 3, "1 of 2"), (2, 3, ""), (0, 4, "0 of 2"), (1, 2, ""), (1, 5, "1 of 2"), (0, 1, "")],
)
def test_a_plan_that_reads_nothing_names_replicas_that_leave_without_another_place(
    room: int, desired: int, placed: str
) -> None:
    before = planned(cluster("a", gpu=1), cluster("b", gpu=2), deployment("one", 3))
    resources = [CLASS, cluster("a", gpu=1 + room), drained(cluster("b", gpu=2)), deployment("one", desired)]
    found = plan(resources, before.replicas)
    assert set(places(found)) == {("one", "a")}
    assert [each.partition(" replicas leaving b found a place elsewhere ")[0] for each in found.warnings] == (
        [f"team/one: {placed}"] if placed else []
    )
    gone = sorted(each.name for each in before.replicas if each.spec.cluster_name == "b")
    assert all(f"({', '.join(gone)}). " in each for each in found.warnings)
    assert plan(resources, found.replicas).warnings == (), "they are gone"


def test_replicas_that_find_no_other_place_stay_on_a_cluster_of_files_beside_a_cluster_that_is_read() -> None:
    before = planned(cluster("b", gpu=2), deployment("one", 2))
    observed = Observed(clusters={"b": ObservedCluster(declared=True)})
    found = plan([CLASS, drained(cluster("b", gpu=2)), deployment("one", 2)], before.replicas, observed=observed)
    assert places(found) == [("one", "b")] * 2
    assert len(found.leaving) == 2
    assert found.warnings == ()


def test_a_plan_warns_of_no_replica_whose_cluster_left_the_fleet() -> None:
    before = planned(cluster("a", gpu=1), cluster("b", gpu=1), deployment("one", 2))
    found = plan([CLASS, cluster("a", gpu=1), deployment("one", 2)], before.replicas)
    assert len(found.schedule.dropped) == found.schedule.pending[0].count == 1
    assert found.warnings == ()
