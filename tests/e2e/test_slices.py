# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Jobs of AWX with a slice of the inventory, each with a build folder of its own, on a fleet with a control cluster."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ansible_collections.modelplane.fleet.tests import awx_jobs
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import LiveFleet
from ansible_collections.modelplane.fleet.tests.e2e.observing import (
    Writes,
    check_placement,
    check_ways,
    contents,
    placed,
    tags,
)

OLD, NEW, NEWER = "v0.23.0", "v0.24.0", "v0.25.0"


def small(tag: str) -> str:
    return fleets.deployment("small", 2, tag=tag, spec={"rollout": {"maxSurge": 0, "maxUnavailable": 2}})


def launch(live: LiveFleet, folder: Path, playbook: str, number: int, **answers: Any) -> awx_jobs.Job:
    """Run one of two slices of a job."""
    # What the credential of the control cluster injects; the container of a job begins without a build folder.
    given = {"fleet_control_kubeconfig": live.control_kubeconfig, "fleet_build": str(folder / "build"), **answers}
    inventory = awx_jobs.sliced(awx_jobs.imported(live.inventory()), number, 2)
    return awx_jobs.launch(folder, awx_jobs.PROJECT, playbook, inventory, given)


def test_a_slice_leaves_the_clusters_of_the_others_alone(live: LiveFleet, tmp_path: Path) -> None:
    live.write("clusters.yaml", fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west"))
    live.write("models.yaml", small(OLD) + fleets.service("chat", "small"))
    live.run("reconcile").ok()
    assert {entry["cluster"] for entry in placed(live, "small")} == {"east", "west"}
    live.edit("models.yaml", OLD, NEW)
    before, position = contents(live), live.workloads["west"].audit_position()
    assert set(launch(live, tmp_path / "east", "reconcile", 2).ok().recap["processed"]) - {"localhost", "control"} == {
        "east"
    }
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

    assert set(launch(live, tmp_path / "west", "reconcile", 1).ok().recap["processed"]) - {"localhost", "control"} == {
        "west"
    }
    assert [tags(live, cluster) for cluster in live.workloads] == [{NEW}, {NEW}]
    assert contents(live).keys() == before.keys()
    live.run("reconcile").ok()
    check_ways(live, "chat", ["small"])
    check_placement(live)


def test_slices_apply_one_decision_at_the_same_time(live: LiveFleet, tmp_path: Path) -> None:
    live.settings["fleet_rollout"] = 2
    live.edit("models.yaml", NEW, NEWER)
    before, positions = contents(live), {name: plane.audit_position() for name, plane in live.workloads.items()}
    decided = live.run("decide").ok()
    assert "decision 1 was published: it differs for 2 clusters" in decided.output
    changed = {host: counts["changed"] for host, counts in decided.recap.items()}
    assert changed == {"control": 1, "east": 0, "west": 0}, decided.output
    after = contents(live)
    assert {key.partition(" ")[0] for key in after if before.get(key) != after[key]} == {"control:"}
    assert all(
        request.verb in ("get", "list")
        for name in positions
        for request in live.workloads[name].requests(positions[name])
    )

    with ThreadPoolExecutor() as pool:
        jobs = list(pool.map(lambda number: launch(live, tmp_path / str(number), "apply", number), (1, 2)))
    assert [set(job.ok().recap["processed"]) - {"localhost", "control"} for job in jobs] == [{"west"}, {"east"}]
    assert [tags(live, cluster) for cluster in live.workloads] == [{NEWER}, {NEWER}]
    routed = live.run("decide").ok()
    check_ways(live, "chat", ["small"])
    check_placement(live)
    assert "decision 1 is the newest" in routed.output

    with Writes(live) as writes:
        assert live.run("apply").ok().changed == 0
        assert live.run("decide").ok().changed == 0
    assert writes.all == []


def test_a_decision_that_is_not_the_newest_is_refused(live: LiveFleet, tmp_path: Path) -> None:
    live.edit("models.yaml", NEWER, NEW)
    assert "decision 2 was published" in live.run("decide").ok().output
    before = contents(live)
    refused = launch(live, tmp_path / "old", "apply", 1, fleet_outcome={"decision": 1})
    assert (refused.code, refused.status) == (2, "failed")
    assert "decision 1 of the fleet default is not the newest" in refused.output
    assert contents(live) == before
    launch(live, tmp_path / "new", "apply", 1, fleet_outcome={"decision": 2}).ok()
    assert (tags(live, "east"), tags(live, "west")) == ({NEWER}, {NEW})


def test_a_run_over_all_clusters_leaves_nothing_to_slices(live: LiveFleet) -> None:
    live.run("reconcile").ok()
    assert [tags(live, cluster) for cluster in live.workloads] == [{NEW}, {NEW}]
    refused = live.run("apply")
    assert refused.code == 2
    assert "works on all clusters of the fleet default by itself" in refused.output
    assert "decision 4 was published: it differs for 0 clusters" in live.run("decide").ok().output
    assert live.run("apply").ok().changed == 0


def test_a_teardown_in_a_slice_leaves_the_state_of_the_others(live: LiveFleet, tmp_path: Path) -> None:
    gone = launch(live, tmp_path / "gone", "teardown", 2).ok()
    assert "The state and the routes of the fleet are kept" in gone.messages("Explain why the fleet state is kept")
    assert not [key for key in contents(live) if key.startswith("east: ")]
    assert "works on all clusters of the fleet default by itself" in live.run("apply").output
    assert [entry["cluster"] for entry in placed(live, "small")] == ["east", "west"]
    assert {name for kind, _, name in live.ours(live.control) if kind == "ModelReplica"}
    assert tags(live, "west") == {NEW}


def test_a_teardown_removes_decisions(live: LiveFleet) -> None:
    live.run("teardown").ok()
    assert not [name for _, _, name in live.ours(live.control) if name.startswith("modelplane-decision")]
