# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A run with lost or outdated state adopts running replicas, or stops."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from ansible_collections.modelplane.fleet.plugins.modules import apply, cluster_info
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import LiveFleet, until
from ansible_collections.modelplane.fleet.tests.e2e.observing import engines
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.module_run import run_module

WEST, EAST = ({"matchLabels": {"region": region}} for region in ("west", "east"))
CLUSTERS = fleets.CLASSES + fleets.cluster("west", region="west") + fleets.cluster("east", region="east")
SOLO = fleets.deployment("solo", 1)
BOTH = SOLO + fleets.deployment("left", 1, clusterSelector=EAST) + fleets.service("chat", "solo", "left")


def uids(live: LiveFleet) -> dict[str, str]:
    """Return the UID of each running engine pod, by cluster and name."""
    return {
        f"{cluster}/{pod['metadata']['name']}": pod["metadata"]["uid"]
        for cluster in live.kubeconfigs
        for pod in engines(live, cluster)
    }


def observed(live: LiveFleet) -> list[str]:
    """Return arguments of `plan` with observations of the clusters."""
    path = live.folder / "observed.json"
    clusters = [{"name": name, "kubeconfig": kubeconfig} for name, kubeconfig in live.kubeconfigs.items()]
    run_module(cluster_info, {"clusters": clusters, "resources": [str(live.manifests)], "path": str(path)})
    return ["-e", f"fleet_observations={path}"]


def namespaces(plane: ControlPlane) -> list[str]:
    """Return the namespaces of replicas on a cluster."""
    names = [namespace["metadata"]["name"] for namespace in plane.objects.list("v1", "Namespace")]
    return [name for name in names if name.startswith("mp-")]


def lose(live: LiveFleet) -> None:
    shutil.rmtree(live.folder / "build")


@pytest.fixture(autouse=True)
def one(live: LiveFleet) -> Iterator[None]:
    """A fleet without a control cluster, with the deployment `solo` on west, and `left` on east, which joined later."""
    live.control_kubeconfig = ""
    live.settings["fleet_wait"] = 60
    known = dict(live.kubeconfigs)
    live.kubeconfigs = {"west": known["west"]}
    live.write("fleet.yaml", fleets.CLASSES + fleets.cluster("west", region="west") + SOLO)
    live.run("reconcile").ok()
    live.kubeconfigs = known
    yield
    live.kubeconfigs = known
    live.run("teardown").ok()
    shutil.rmtree(live.folder / "build", ignore_errors=True)


def test_a_fresh_checkout_after_another_cluster_joined_adopts_what_serves(live: LiveFleet) -> None:
    before = uids(live)
    assert len(before) == 1
    live.write("fleet.yaml", CLUSTERS + SOLO)
    lose(live)
    checked = live.run("reconcile", "--check").ok()
    assert "adopted" in checked.output
    planned = live.run("plan", "--check", *observed(live)).ok()
    assert "adopted" in planned.output
    done = live.run("reconcile").ok()
    assert uids(live) == before
    assert "deployment solo, serving" in done.output
    again = live.run("reconcile").ok()
    assert (again.changed, "adopted" in again.output) == (0, False)


def test_a_moved_build_folder_adopts_with_the_specification_that_runs(live: LiveFleet) -> None:
    live.write("fleet.yaml", CLUSTERS + SOLO)
    live.run("reconcile").ok()
    before = uids(live)
    live.settings["fleet_build"] = str(live.folder / "moved")
    try:
        unchanged = live.run("reconcile").ok()
        assert uids(live) == before
        assert "adopted" in unchanged.output
        assert unchanged.recap["west"]["changed"] == 0
    finally:
        del live.settings["fleet_build"]
        shutil.rmtree(live.folder / "moved", ignore_errors=True)


def test_an_unknown_deployment_stops_the_run_with_a_list(live: LiveFleet) -> None:
    live.write("fleet.yaml", CLUSTERS + BOTH)
    live.run("reconcile").ok()
    before = uids(live)
    assert len(before) == 2
    live.write("fleet.yaml", CLUSTERS + SOLO)
    lose(live)
    runs = (("plan", tuple(observed(live))), ("reconcile", ("--check",)), ("reconcile", ()))
    for playbook, arguments in runs:
        stopped = live.run(playbook, *arguments)
        assert stopped.code != 0
        assert "cluster east, namespace team, replica left-" in stopped.output
        assert "deployment left, serving" in stopped.output
        assert "fleet_remove_unknown" in stopped.output
        assert uids(live) == before
    assert not (live.folder / "build/plan.json").exists()
    shown = live.run("status").ok()
    assert "deployment left, serving" in shown.output
    live.run("reconcile", "-e", "fleet_remove_unknown=true").ok()
    kept = {name: uid for name, uid in before.items() if name.startswith("west/")}
    until("the unknown replica is gone", lambda: uids(live) == kept, 60)
    assert live.run("reconcile").ok().changed == 0


def test_an_unreachable_cluster_is_not_an_empty_one(live: LiveFleet) -> None:
    live.write("fleet.yaml", CLUSTERS + BOTH)
    live.run("reconcile").ok()
    before = uids(live)
    lose(live)
    live.workloads["east"].kill_api_server()
    try:
        stopped = live.run("reconcile")
        assert stopped.code != 0
        assert "east was not observed" in stopped.output
    finally:
        live.workloads["east"].start_api_server()
    live.run("reconcile").ok()
    assert uids(live) == before


def test_a_deployment_that_is_deleted_while_its_cluster_is_away_is_removed_later(live: LiveFleet) -> None:
    live.write("fleet.yaml", CLUSTERS + BOTH)
    live.run("reconcile").ok()
    before = uids(live)
    live.write("fleet.yaml", CLUSTERS + SOLO)
    live.workloads["east"].kill_api_server()
    try:
        live.run("reconcile")
    finally:
        live.workloads["east"].start_api_server()
    assert uids(live) == before
    live.run("reconcile").ok()
    kept = {name: uid for name, uid in before.items() if name.startswith("west/")}
    until("the deleted deployment is gone", lambda: uids(live) == kept, 60)


def test_an_old_build_folder_does_not_remove_what_runs(live: LiveFleet) -> None:
    shutil.copytree(live.folder / "build", live.folder / "old")
    live.write("fleet.yaml", CLUSTERS + fleets.deployment("solo", 3, clusterSelector=WEST) + BOTH[len(SOLO) :])
    live.run("reconcile").ok()
    before = uids(live)
    assert len(before) == 4
    lose(live)
    shutil.move(live.folder / "old", live.folder / "build")
    west = {"name": "west", "kubeconfig": live.kubeconfigs["west"]}
    given = {"path": str(live.folder / "build"), "clusters": [west], "wait": 0.0}
    for check_mode in (True, False):
        refused = run_module(apply, given, check_mode=check_mode)
        assert refused["failed"]
        assert "cluster west is newer than this build" in str(refused)
    assert uids(live) == before
    adopted = live.run("reconcile").ok()
    assert "adopted" in adopted.output
    assert uids(live) == before


def test_a_rebuilt_cluster_of_the_same_name_gets_its_replicas_again(live: LiveFleet) -> None:
    live.write("fleet.yaml", CLUSTERS + SOLO)
    for lost in (False, True):
        west = live.workloads["west"]
        for name in namespaces(west):
            west.objects.delete("v1", "Namespace", name)
        until("west is empty", lambda west=west: not namespaces(west), 120)
        for record in west.objects.list("v1", "ConfigMap", "modelplane-system", labels="modelplane.ai/record"):
            west.objects.delete("v1", "ConfigMap", record["metadata"]["name"], "modelplane-system")
        if lost:
            lose(live)
        live.run("reconcile").ok()
        placed = until("the replica runs again", lambda: uids(live), 60)
        assert len(placed) == 1


def test_the_replicas_of_another_fleet_are_not_adopted(live: LiveFleet) -> None:
    other = live.folder / "other"
    other.mkdir()
    (other / "fleet.yaml").write_text(
        (CLUSTERS + SOLO).replace('"namespace": "team"', '"namespace": "others"').replace('"solo"', '"theirs"')
    )
    variables = {
        "fleet_resources": [str(other)],
        "fleet_build": str(live.folder / "theirs"),
        "fleet_name": "theirs",
    }
    mine = [f"-e{json.dumps(variables)}"]
    live.run("reconcile", *mine).ok()
    try:
        before = uids(live)
        assert len(before) == 2
        live.write("fleet.yaml", CLUSTERS + SOLO)
        lose(live)
        done = live.run("reconcile").ok()
        assert "theirs" not in done.output
        assert uids(live) == before
    finally:
        live.run("teardown", *mine).ok()
