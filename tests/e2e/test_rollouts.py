# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Edits on their way through a fleet whose devices are all taken, step by step: each test goes on where the one before
it ended."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import LiveFleet
from ansible_collections.modelplane.fleet.tests.e2e.observing import (
    RESOURCE,
    allocated,
    became_ready,
    check_placement,
    check_ways,
    contents,
    created,
    engines,
    placed,
    tags,
)

OLD, NEW, NEWEST = "v0.23.0", "v0.24.0", "v0.25.0"


def small(tag: str) -> str:
    return fleets.deployment("small", 2, copies=2, tag=tag)


def elastic(replicas: int, tag: str) -> str:
    return fleets.deployment("elastic", replicas, copies=2, tag=tag)


@pytest.fixture(scope="module", autouse=True)
def first(live: LiveFleet) -> None:
    live.write("clusters.yaml", fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west"))
    models = (small(OLD), elastic(3, OLD), fleets.gang("big"), fleets.split("pair"))
    live.write("models.yaml", "".join(models) + fleets.service("chat", "small", "elastic"))
    live.run("reconcile").ok()


def test_an_edit_rolls_over_full_pools_cluster_by_cluster(live: LiveFleet) -> None:
    for cluster, plane in live.workloads.items():
        devices = [device for claim in plane.objects.list(RESOURCE, "ResourceClaim") for device in allocated(claim)]
        taken = Counter(device["pool"].rpartition("-")[0] for device in devices)
        assert taken["gpu"] == 6, f"{taken} on {cluster}"
    live.edit("models.yaml", OLD, NEW)
    live.run("reconcile").ok()
    for name in ("big", "elastic", "pair", "small"):
        assert live.is_true("ModelDeployment", name, "team")
    assert [tags(live, cluster) for cluster in live.workloads] == [{NEW}, {NEW}]
    check_placement(live)
    for name in ("elastic", "small"):
        spans = []
        for cluster in live.workloads:
            pods = engines(live, cluster, name)
            spans.append((min(map(created, pods)), max(map(became_ready, pods)), cluster))
        # Times are whole seconds.
        assert all(one[1] <= other[0] for one, other in pairwise(sorted(spans))), f"{name}: {spans}"


def test_a_bad_edit_stops_at_the_first_cluster(live: LiveFleet) -> None:
    live.settings["fleet_wait"] = 15
    live.edit("models.yaml", small(NEW), small("missing"))
    shown = {"ANSIBLE_CALLBACKS_ENABLED": "modelplane.fleet.progress", "MODELPLANE_FLEET_PROGRESS_INTERVAL": "1"}
    run = live.run("reconcile", **shown)
    (spoilt,) = [cluster for cluster in live.workloads if "missing" in tags(live, cluster, "small")]
    (replica,) = [entry["replica"] for entry in placed(live, "small") if entry["cluster"] == spoilt]
    conditions = live.resource("ModelReplica", replica, "team")["status"]["conditions"]
    assert "ImagePullBackOff" in str(conditions), conditions
    assert "ImagePullBackOff" in run.output
    assert re.search(rf"{spoilt}: \d+ s \(usually .* size of the model\): waiting for .*; last seen: ", run.output)
    # One pod at a time is replaced, so the other one goes on, and both clusters answer.
    check_ways(live, "chat", ["small", "elastic"])
    live.edit("models.yaml", small("missing"), small(NEW))
    live.settings["fleet_wait"] = 60
    live.run("reconcile").ok()
    assert live.is_true("ModelDeployment", "small", "team")
    check_placement(live)


def test_a_limit_to_one_cluster_leaves_the_others_alone(live: LiveFleet) -> None:
    live.edit("models.yaml", NEW, NEWEST)
    live.edit("models.yaml", elastic(3, NEWEST), elastic(1, NEWEST))
    there = {entry["replica"] for entry in live.plan()["placements"] if entry["cluster"] == "east"}
    before = contents(live)
    position = live.workloads["east"].audit_position()
    run = live.run("reconcile", "--limit", "west").ok()
    assert set(run.recap) == {"west"}
    assert live.workloads["east"].requests(position) == []
    after = contents(live)
    for name in there:
        for kind in ("ModelReplica", "ModelEndpoint"):
            key = f"control: {kind} team/{name}"
            assert before[key] == after.get(key), key
    assert {entry["replica"] for entry in live.plan()["placements"] if entry["cluster"] == "east"} == there
    assert {key for key in before if key.startswith("east: ")} == {key for key in after if key.startswith("east: ")}
    # A replica on west that might be the last serving replica of its deployment waits.
    assert NEWEST in tags(live, "west")
    assert tags(live, "east") == {NEW}
    live.run("reconcile").ok()
    assert len(placed(live, "elastic")) == 1
    check_placement(live)
