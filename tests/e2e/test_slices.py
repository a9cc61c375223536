# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Jobs of AWX with a slice of the inventory, each with a build folder of its own, on a fleet with a control cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.modelplane.fleet.tests import awx_jobs
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import LiveFleet
from ansible_collections.modelplane.fleet.tests.e2e.observing import check_placement, check_ways, contents, placed, tags

OLD, NEW = "v0.23.0", "v0.24.0"


def small(tag: str) -> str:
    return fleets.deployment("small", 2, tag=tag)


def test_a_slice_leaves_the_clusters_of_the_others_alone(live: LiveFleet, tmp_path: Path) -> None:
    live.write("clusters.yaml", fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west"))
    live.write("models.yaml", small(OLD) + fleets.service("chat", "small"))
    live.run("reconcile").ok()
    assert {entry["cluster"] for entry in placed(live, "small")} == {"east", "west"}
    inventory = awx_jobs.imported(live.inventory())
    kubeconfig = live.control_kubeconfig

    def launch(number: int, name: str) -> awx_jobs.Job:
        # What the credential of the control cluster injects; the container of a job begins without a build folder.
        answers: dict[str, Any] = {
            "fleet_control_kubeconfig": kubeconfig,
            "fleet_build": str(tmp_path / name / "build"),
        }
        return awx_jobs.launch(
            tmp_path / name, awx_jobs.PROJECT, "reconcile", awx_jobs.sliced(inventory, number, 2), answers
        ).ok()

    live.edit("models.yaml", OLD, NEW)
    before, position = contents(live), live.workloads["west"].audit_position()
    assert set(launch(2, "east").recap["processed"]) == {"east"}
    assert live.workloads["west"].requests(position) == []
    after = contents(live)
    assert before.keys() == after.keys()
    changed = {key for key in before if before[key] != after[key]}
    # What was decided is on the control cluster, also for clusters whose slice has yet to apply it.
    assert {key.partition(" ")[0] for key in changed} == {"east:", "control:"}
    assert not any("ModelEndpoint" in key or "HTTPRoute" in key for key in changed), changed
    assert [entry["cluster"] for entry in placed(live, "small")] == ["east", "west"]
    assert (tags(live, "east"), tags(live, "west")) == ({NEW}, {OLD})
    check_ways(live, "chat", ["small"])

    assert set(launch(1, "west").recap["processed"]) == {"west"}
    assert [tags(live, cluster) for cluster in live.workloads] == [{NEW}, {NEW}]
    assert contents(live).keys() == before.keys()
    live.run("reconcile").ok()
    check_ways(live, "chat", ["small"])
    check_placement(live)
