# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Clusters that are in the way, do not answer, or are emptied: step by step, each test goes on where the one before it
ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import incidents
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import LiveFleet, Run, until
from ansible_collections.modelplane.fleet.tests.e2e.observing import (
    check_placement,
    check_ways,
    contents,
    engines,
    is_ready,
    placed,
    tags,
)
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.kube.processes import Port

OLD, NEW = "v0.23.0", "v0.24.0"


def mover(replicas: int, **more: Any) -> str:
    """Deployment whose replicas restart in place after an edit."""
    spec = {"rollout": {"maxSurge": 0}, **more.pop("spec", {})}
    return fleets.deployment("mover", replicas, spec=spec, **more)


@pytest.fixture(scope="module", autouse=True)
def first(live: LiveFleet) -> Run:
    live.write("clusters.yaml", fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west"))
    live.write("models.yaml", mover(2) + fleets.service("chat", "mover"))
    return live.run("reconcile").ok()


def test_replicas_spread(live: LiveFleet, first: Run) -> None:
    assert not first.failed
    assert [entry["cluster"] for entry in placed(live, "mover")] == ["east", "west"]


def test_an_object_of_another_user_is_left_alone(live: LiveFleet) -> None:
    """It has the name of one that is desired. The host of that cluster fails, the others go on."""
    west = live.workloads["west"]
    ours = next(value for (kind, *_), value in live.ours(west).items() if kind == "Service")
    name, namespace = ours["metadata"]["name"], ours["metadata"]["namespace"]
    west.objects.delete("v1", "Service", name, namespace)
    spec = {"ports": [{"port": 1}], "selector": {"app": "of-another-user"}}
    plant = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
    (foreign,) = west.apply(plant)
    live.edit("models.yaml", OLD, NEW)
    run = live.run("reconcile")
    assert run.code != 0
    assert run.failed == {"west"}
    reported = " ".join(run.output.split())
    assert f"Service {namespace}/{name}" in reported
    assert "does not belong to the fleet" in reported
    assert "kube-tests" in reported
    assert west.get("v1", "Service", name, namespace) == foreign
    assert tags(live, "east") == {NEW}
    west.objects.delete("v1", "Service", name, namespace)
    live.run("reconcile").ok()
    assert tags(live, "west") == {NEW}
    check_ways(live, "chat", ["mover"])


def watches(live: LiveFleet) -> tuple[incidents.Watch, incidents.Watch]:
    """Return a watch of the statuses on the control cluster, and one that asks the workload clusters."""
    control = Connection("control", kubeconfig=live.control_kubeconfig)
    clusters = [
        Connection(name, kubeconfig=path, timeout=5.0, retries=0) for name, path in sorted(live.kubeconfigs.items())
    ]
    return incidents.Watch(incidents.Settings(control=control)), incidents.Watch(incidents.Settings(clusters=clusters))


def reported(watch: incidents.Watch) -> list[tuple[str, str]]:
    """Return the types and names of the new events."""
    found, problem = watch.turn()
    assert not problem
    return [(event.type, event.subject.name) for event in found]


def test_what_is_known_of_a_cluster_that_went_away_stays(live: LiveFleet, tmp_path: Path) -> None:
    """One of three is there: one went away, and one never answered. The replicas of the former may well serve: that is
    unknown, so they keep their endpoints, none is placed elsewhere, and the only one that is known to serve does not
    restart for an edit."""
    live.settings |= {"fleet_timeout": 3, "fleet_retries": 1}
    live.write("north.yaml", fleets.cluster("north"))
    endpoints = {key: value for key, value in contents(live).items() if "ModelEndpoint" in key or "HTTPRoute" in key}
    live.edit("models.yaml", NEW, OLD)
    statuses, answers = watches(live)
    assert reported(statuses) == reported(answers) == []
    live.workloads["west"].kill_api_server()
    try:
        assert reported(statuses) == []
        assert reported(answers) == [("cluster_lost", "west")]
        with no_one_there(live, tmp_path) as kubeconfig:
            live.kubeconfigs["north"] = str(kubeconfig)
            run = live.run("reconcile")
            assert reported(statuses) == [("cluster_lost", "north"), ("cluster_lost", "west")]
            again = live.run("reconcile")
    finally:
        live.workloads["west"].start_api_server()
    assert reported(statuses) == []
    assert reported(answers) == [("cluster_recovered", "west")]
    assert run.failed == {"north", "west"}
    assert (again.failed, again.changed) == ({"north", "west"}, 0), again.output
    assert run.code != 0
    assert tags(live, "east") == {NEW}
    assert not live.is_true("InferenceCluster", "north")
    after = contents(live)
    for key, value in endpoints.items():
        if key.startswith(("control: ", "west: ")):
            assert after[key] == value
    assert [entry["cluster"] for entry in placed(live, "mover")] == ["east", "west"]
    (live.manifests / "north.yaml").unlink()
    del live.kubeconfigs["north"]
    live.run("reconcile").ok()
    assert reported(statuses) == [("cluster_recovered", "west")]
    assert tags(live, "east") == {OLD}
    # Controllers connect again some time after an API server has come back, and may outlast the run's own wait.
    until(
        "the engines of west have the old tag and are ready",
        lambda: tags(live, "west") == {OLD} and all(map(is_ready, engines(live, "west"))),
    )
    check_placement(live)
    check_ways(live, "chat", ["mover"])


def test_no_schedule_steers_and_moves_nothing(live: LiveFleet) -> None:
    before = {pod["metadata"]["uid"] for pod in engines(live, "east")}
    taint = {"key": "maintenance", "effect": "NoSchedule"}
    live.edit("clusters.yaml", fleets.cluster("east"), fleets.cluster("east", taint))
    live.edit("models.yaml", mover(2, tag=OLD), mover(4, tag=OLD))
    live.run("reconcile").ok()
    assert [entry["cluster"] for entry in placed(live, "mover")] == ["east", "west", "west", "west"]
    assert {pod["metadata"]["uid"] for pod in engines(live, "east")} == before
    live.edit("clusters.yaml", fleets.cluster("east", taint), fleets.cluster("east"))


def test_a_drain_moves_replicas_and_always_serves(live: LiveFleet) -> None:
    with Watched(live, "mover") as watched:
        live.run("drain", "-e", "fleet_drain=east").ok()
    assert watched.least >= 4, watched.counts
    assert [entry["cluster"] for entry in placed(live, "mover")] == ["west"] * 4
    assert engines(live, "east") == []
    assert [key for key in contents(live) if key.startswith("east: ") and "mover" in key] == []
    check_placement(live)
    check_ways(live, "chat", ["mover"])
    again = live.run("drain", "-e", "fleet_drain=east").ok()
    assert again.changed == 0


def test_a_drain_to_nowhere_says_so_and_takes_nothing_away(live: LiveFleet) -> None:
    before = {pod["metadata"]["uid"] for pod in engines(live, "west")}
    run = live.run("drain", "-e", "fleet_drain=east,west")
    assert run.code != 0
    assert run.failed == {"west"}
    assert "4 replicas are still there" in " ".join(run.output.split())
    assert {pod["metadata"]["uid"] for pod in engines(live, "west")} == before
    check_ways(live, "chat", ["mover"])


def test_an_evicting_taint_of_a_manifest_drains_as_well(live: LiveFleet) -> None:
    taint = {"key": "broken", "effect": "NoExecute"}
    live.edit("clusters.yaml", fleets.cluster("west"), fleets.cluster("west", taint))
    with Watched(live, "mover") as watched:
        live.run("reconcile").ok()
    assert watched.least >= 4, watched.counts
    assert [entry["cluster"] for entry in placed(live, "mover")] == ["east"] * 4
    check_placement(live)
    check_ways(live, "chat", ["mover"])


def test_replicas_return_one_at_a_time_and_the_new_one_serves_first(live: LiveFleet) -> None:
    """A run has six rounds: in one the new one comes to a preferred cluster, in the next one the old one goes."""
    assert [entry["cluster"] for entry in placed(live, "mover")] == ["east"] * 4
    live.write("clusters.yaml", fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west", capacity="reserved"))
    preferences = {"terms": [{"matchLabels": {"capacity": "reserved"}}], "return": True}
    preferring = mover(4, tag=OLD, spec={"clusterPreferences": preferences})
    live.write("models.yaml", preferring + fleets.service("chat", "mover"))
    with Watched(live, "mover") as watched:
        run = live.run("reconcile").ok()
    assert watched.least >= 4, watched.counts
    assert watched.most <= 5, watched.pods
    assert [entry["cluster"] for entry in placed(live, "mover")] == ["east", "west", "west", "west"]
    assert "replicas on preferred clusters replace it" in " ".join(run.output.split())
    assert len(engines(live, "east")) == 1
    check_placement(live)
    check_ways(live, "chat", ["mover"])


def test_preempted_replicas_go_when_others_serve_and_at_once_without_another_place(live: LiveFleet) -> None:
    """Of six devices on each cluster three are taken on the preferred one, and one on the other."""
    mine = (live.manifests / "models.yaml").read_text()
    taking = fleets.deployment(
        "first",
        1,
        copies=6,
        priority="10",
        spec={"preemption": "LowerPriority"},
        clusterSelector={"matchLabels": {"capacity": "reserved"}},
    )
    live.write("models.yaml", mine + taking)
    with Watched(live, "mover") as watched:
        run = live.run("reconcile").ok()
    assert watched.least >= 4, watched.counts
    assert "preempted by team/first, which has a higher priority" in " ".join(run.output.split())
    assert [entry["cluster"] for entry in placed(live, "mover")] == ["east"] * 4
    assert live.is_true("ModelDeployment", "first", "team")
    assert not any("preempted" in str(value["metadata"]) for value in contents(live).values())
    check_placement(live)
    check_ways(live, "chat", ["mover"])
    more = fleets.deployment("second", 1, copies=6, priority="20", spec={"preemption": "LowerPriority"})
    live.write("models.yaml", mine + taking + more)
    run = live.run("reconcile").ok()
    assert "preempted by team/second, which has a higher priority" in " ".join(run.output.split())
    assert live.is_true("ModelDeployment", "second", "team")
    assert placed(live, "mover") == []
    check_placement(live)


def test_a_replica_that_finds_no_node_gets_another_place(live: LiveFleet) -> None:
    """A pod of another user has a device of one node, a replica one of the other: none has four."""
    beside = fleets.deployment("beside", 1, selector=fleets.LARGE_GPU)
    live.write("models.yaml", beside)
    live.run("reconcile").ok()
    east = live.workloads["east"]
    (there,) = engines(live, "east", "beside")
    occupy(east, next(name for name in ("large-0", "large-1") if name != there["spec"]["nodeName"]))
    live.write("models.yaml", beside + fleets.deployment("whole", 1, selector=fleets.LARGE_GPU, devices=4))
    run = live.run("reconcile", "-e", "fleet_wait=5").ok()
    assert "found no node on pool large of cluster east, so it gets another place" in " ".join(run.output.split())
    assert [entry["cluster"] for entry in placed(live, "whole")] == ["west"]
    assert live.is_true("ModelDeployment", "whole", "team")
    (still,) = engines(live, "east", "beside")
    assert still["metadata"]["uid"] == there["metadata"]["uid"]
    assert live.run("reconcile").ok().changed == 0


def occupy(plane: ControlPlane, node: str) -> None:
    """Run a pod of another user that claims a device of a node."""
    plane.create_namespace("others")
    device = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    claim = {"metadata": {"name": "one", "namespace": "others"}, "spec": {"devices": {"requests": [device]}}}
    plane.apply({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim})
    container = {"name": "job", "image": "registry.example.com/job:v1", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}],
        "containers": [container],
    }
    plane.apply({"apiVersion": "v1", "kind": "Pod", "metadata": claim["metadata"], "spec": spec})
    until("the pod has its node", lambda: plane.get("v1", "Pod", "one", "others")["spec"].get("nodeName"))


class Watched:
    """Counts of the ready pods of a deployment on all clusters together, and of all its pods, taken repeatedly while it
    is entered."""

    def __init__(self, live: LiveFleet, deployment: str) -> None:
        self._live = live
        self._deployment = deployment
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.counts: list[int] = []
        self.pods: list[int] = []

    @property
    def least(self) -> int:
        return min(self.counts)

    @property
    def most(self) -> int:
        return max(self.pods)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stopped.wait(0.3):
            found = [pod for cluster in self._live.workloads for pod in engines(self._live, cluster, self._deployment)]
            self.counts.append(sum(map(is_ready, found)))
            self.pods.append(len(found))


@contextmanager
def no_one_there(live: LiveFleet, folder: Path) -> Iterator[Path]:
    """A kubeconfig for an address on which nothing listens."""
    port = Port()
    east = live.workloads["east"]
    path = folder / "north.kubeconfig"
    path.write_text(east.kubeconfig.read_text().replace(east.server, f"https://127.0.0.1:{port}"))
    try:
        yield path
    finally:
        port.release()
