# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Replicas that leave for others on a fleet that is not read."""

from __future__ import annotations

import sys
from pathlib import Path

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, plan

sys.path.insert(0, str(Path(__file__).parent))

from asked_fleet import CLASS, cluster, deployment, planned


def places(found: Plan) -> list[tuple[str, str]]:
    return [(each.labels[names.DEPLOYMENT_LABEL], each.spec.cluster_name) for each in found.composed]


def test_each_plan_returns_one_replica_and_keeps_none_for_it() -> None:
    terms = [{"matchLabels": {names.CLUSTER_LABEL: "a"}}]
    desired = deployment("one", 2, clusterPreferences={"terms": terms, "return": True})
    found = planned(cluster("b", gpu=2), desired)
    seen = []
    for __ in range(3):
        found = plan([CLASS, cluster("a", gpu=2), cluster("b", gpu=2), desired], found.replicas)
        seen.append([where for __, where in places(found)])
    assert seen == [["a", "b"], ["a", "a"], ["a", "a"]]


def test_a_preempted_replica_goes_in_the_plan_that_places_it_elsewhere_and_the_next_plan_changes_nothing() -> None:
    low = deployment("low", 1)
    found = planned(cluster("a", gpu=1), low)
    high = deployment("high", 1, "west", priority=5, preemption="LowerPriority")
    for __ in range(2):
        found = plan([CLASS, cluster("a", gpu=1), cluster("b", "east", gpu=1), low, high], found.replicas)
        assert places(found) == [("high", "a"), ("low", "b")]
