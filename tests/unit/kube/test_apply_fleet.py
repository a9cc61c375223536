# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module `apply`: a build folder onto several real API servers at once."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import socket
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import apply_results
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.apply_results import ApplyError, run
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import MANAGED_BY, MANAGED_BY_LABEL
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.lease import (
    Lease,
    acquire,
    cluster_lease_name,
    cluster_locked,
    holder_name,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.statuses import apply_statuses
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.write import Result, Sender
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import (
    HEADER,
    document_text,
    object_path,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import apply
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.kube.fleet import Fleet
from ansible_collections.modelplane.fleet.tests.unit.kube.rights import manifests

Object = dict[str, Any]

CRDS = Path(__file__).parents[3] / "roles/control_plane/files/crds"
PLANTED = "planted-secret-value"
ENCODED = base64.b64encode(PLANTED.encode()).decode()
_NUMBERS = itertools.count(1)


def thing(api_version: str, kind: str, name: str, namespace: str = "", **content: Any) -> Object:
    metadata: Object = {"name": name, "labels": {MANAGED_BY_LABEL: MANAGED_BY}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


class Folder:
    """A build folder, and the arguments to apply it."""

    def __init__(self, path: Path, fleet: Fleet) -> None:
        self.path = path
        self.fleet = fleet
        self.login = fleet.control.kubeconfig
        self.name = f"run-{os.getpid()}-{next(_NUMBERS)}"
        self.team = f"team-{self.name}"
        self.workloads = f"mp-{self.name}"
        self.plan()
        for cluster in ("east", "west"):
            self.add(f"clusters/{cluster}", thing("v1", "Namespace", self.workloads))
            self.add(f"clusters/{cluster}", thing("v1", "ConfigMap", "settings", self.workloads, data={"a": "1"}))
        self.add("control", self.replica())

    def plan(self, *copies: Object, **more: Any) -> None:
        (self.path / "plan.json").write_text(document_text({"secretCopies": list(copies), **more}))

    def add(self, top: str, value: Object) -> Path:
        path = self.path / object_path(top, value)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEADER + to_yaml(value))
        return path

    def replica(self) -> Object:
        image = {"containers": [{"name": "engine", "image": "example.com/engine:1"}]}
        claim = [{"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 1}]
        member = {"role": "Standalone", "nodePoolName": "gpu", "deviceRequests": claim, "template": {"spec": image}}
        spec = {"clusterName": "east", "engines": [{"name": "main", "members": [member]}]}
        return thing("modelplane.ai/v1alpha1", "ModelReplica", "qwen-1", self.team, spec=spec)

    def run(self, *, check_mode: bool = False, diff: bool = False, **params: Any) -> dict[str, Any]:
        result, self.warnings = run(self.arguments(**params), check_mode=check_mode, diff=diff)
        return result

    def arguments(self, **params: Any) -> dict[str, Any]:
        defaults = {
            "path": str(self.path),
            "clusters": [self.connection(plane) for plane in self.fleet.workloads.values()],
            "control": {"kubeconfig": str(self.login)},
            "folders": {},
            "state": "present",
            "fleet": self.name,
            "prune": True,
            "force": False,
            "wait": 0.0,
            "parts": ["clusters", "control"],
            "lease": None,
            "definitions": True,
            "lock_timeout": 5.0,
            "forks": 8,
            "timeout": 10.0,
            "retries": 1,
            "on_error": "fail",
        }
        return {**defaults, **params}

    @staticmethod
    def connection(plane: ControlPlane) -> dict[str, Any]:
        return {"name": plane.name, "kubeconfig": str(plane.kubeconfig)}


@pytest.fixture
def folder(tmp_path: Path, fleet: Fleet) -> Any:
    found = Folder(tmp_path, fleet)
    yield found
    found.run(state="absent", path=None)


def counts(reported: dict[str, Any]) -> str:
    return str(reported["msg"].splitlines()[0])


def test_everywhere_at_once_and_a_second_time_not_at_all(folder: Folder) -> None:
    result = folder.run()
    assert result["changed"]
    assert result["failed_clusters"] == [], result.get("msg")
    assert set(result["clusters"]) == {"east", "west"}
    control = folder.fleet.control
    assert control.get("modelplane.ai/v1alpha1", "ModelReplica", "qwen-1", folder.team)
    for plane in folder.fleet.workloads.values():
        assert plane.get("v1", "ConfigMap", "settings", folder.workloads)
    since = {plane.name: plane.audit_position() for plane in folder.fleet.all}
    second = folder.run()
    assert not second["changed"], second
    for plane in folder.fleet.all:
        assert plane.write_requests(since[plane.name]) == []
    json.dumps(result)


def test_check_mode_and_the_diff_of_a_new_fleet(folder: Folder) -> None:
    result = folder.run(check_mode=True, diff=True)
    assert result["changed"]
    assert folder.fleet.workloads["east"].get("v1", "Namespace", folder.workloads) is None
    assert not (folder.path / ".modelplane.lock").exists()
    headers = {entry["before_header"] for entry in result["diff"]}
    assert f"east: ConfigMap {folder.workloads}/settings" in headers
    assert f"control: ModelReplica {folder.team}/qwen-1" in headers


def test_one_part_at_a_time(folder: Folder) -> None:
    control, east = folder.fleet.control, folder.fleet.workloads["east"]
    first = folder.run(parts=["control"], prune=False)
    assert first["clusters"] == {}
    assert control.get("modelplane.ai/v1alpha1", "ModelReplica", "qwen-1", folder.team)
    assert east.get("v1", "Namespace", folder.workloads) is None
    second = folder.run(parts=["clusters"])
    assert "control" not in second
    assert east.get("v1", "ConfigMap", "settings", folder.workloads)
    assert not folder.run()["changed"]


def test_a_dead_cluster_costs_its_timeout_once_and_fails_alone(folder: Folder) -> None:
    with socket.socket() as silent:
        # It takes connections and never answers.
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        dead = {"name": "dead", "server": f"https://127.0.0.1:{silent.getsockname()[1]}", "token": PLANTED}
        folder.add("clusters/dead", thing("v1", "Namespace", folder.workloads))
        clusters = [dead, *folder.arguments()["clusters"]]
        result = folder.run(clusters=clusters, timeout=3.0, on_error="report")
        connections = 0
        silent.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                connections += 1
        assert connections == 1
    assert result["failed_clusters"] == ["dead"]
    assert result["clusters"]["dead"]["failed"]
    assert not result["clusters"]["east"]["failed"]
    assert result["clusters"]["east"]["changed"]
    # Its result says why; the playbooks fail its host with that.
    assert "https://127.0.0.1:" in result["clusters"]["dead"]["msg"]
    assert not any("dead" in warning for warning in folder.warnings)
    assert PLANTED not in json.dumps([result, folder.warnings])


def copy_of(folder: Folder, key: str = "HF_TOKEN") -> Object:
    return {
        "cluster": "east",
        "from": {"namespace": folder.team, "name": "hf", "key": key},
        "to": {"namespace": folder.workloads, "name": "auth", "key": key},
    }


def test_secrets_are_copied_and_their_values_are_nowhere(folder: Folder) -> None:
    folder.plan(copy_of(folder))
    control, east = folder.fleet.control, folder.fleet.workloads["east"]
    control.create_namespace(folder.team)
    held = folder.run(diff=True)
    assert any("is left as it is" in warning for warning in folder.warnings)
    assert not held["failed_clusters"]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hf", "namespace": folder.team}}
    control.apply({**secret, "data": {"HF_TOKEN": ENCODED}})
    result = folder.run(diff=True)
    assert east.get("v1", "Secret", "auth", folder.workloads)["data"] == {"HF_TOKEN": ENCODED}  # type: ignore[index]
    assert folder.fleet.workloads["west"].get("v1", "Secret", "auth", folder.workloads) is None
    assert not folder.run()["changed"]
    control.apply({**secret, "data": {"HF_TOKEN": base64.b64encode(b"planted-other").decode()}})
    changed = folder.run(diff=True)
    assert counts(changed["clusters"]["east"]).startswith("1 updated")
    assert "(changed)" in json.dumps(changed["diff"])
    # The source is gone, or cannot be read: what was copied stays.
    control.objects.delete("v1", "Secret", "hf", folder.team)
    gone = folder.run(diff=True)
    alone = folder.run(control=None, diff=True)
    assert not gone["changed"]
    assert not alone["changed"]
    assert east.get("v1", "Secret", "auth", folder.workloads)
    # It is not needed any more.
    folder.plan()
    assert counts(folder.run(diff=True)["clusters"]["east"]).startswith("1 deleted")
    for reported in (held, result, changed, gone, alone):
        text = json.dumps(reported)
        assert PLANTED not in text
        assert ENCODED not in text
        assert base64.b64encode(b"planted-other").decode() not in text


def status_of(folder: Folder, ready: str) -> Object:
    value = folder.replica()
    del value["spec"], value["metadata"]["labels"]
    condition = {
        "type": "Ready",
        "status": ready,
        "reason": "Available",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "message": "all of it",
    }
    return {**value, "status": {"conditions": [condition]}}


def test_status_is_written_where_it_differs_and_changes_nothing_else(folder: Folder) -> None:
    path = folder.add("status", status_of(folder, "False"))
    absent = status_of(folder, "True")
    absent["metadata"]["name"] = "not-there"
    folder.add("status", absent)
    control = folder.fleet.control
    result = folder.run(diff=True)
    assert not result["failed_clusters"], result
    live = control.get("modelplane.ai/v1alpha1", "ModelReplica", "qwen-1", folder.team)
    assert live
    assert live["status"]["conditions"][0]["status"] == "False"
    assert folder.run()["changed"] is False
    path.write_text(HEADER + to_yaml(status_of(folder, "True")))
    checked = folder.run(check_mode=True)
    assert checked["changed"]
    result = folder.run(diff=True)
    [entry] = [entry for entry in result["diff"] if "(status)" in entry["before_header"]]
    assert "'False'" in entry["before"] or '"False"' in entry["before"]
    assert entry["before"] != entry["after"]
    after = control.get("modelplane.ai/v1alpha1", "ModelReplica", "qwen-1", folder.team)
    assert after
    assert after["status"]["conditions"][0]["status"] == "True"
    assert after["metadata"]["generation"] == live["metadata"]["generation"]
    since = control.audit_position()
    assert not folder.run()["changed"]
    assert control.write_requests(since) == []


def test_a_status_with_an_empty_list_is_written_once(folder: Folder) -> None:
    control = folder.fleet.control
    control.install_crds(CRDS / "inferenceclusters.modelplane.ai.yaml")
    kubeconfig = {"name": f"{folder.name}-kubeconfig", "key": "kubeconfig"}
    spec = {"cluster": {"source": "Existing", "existing": {"secretRef": kubeconfig}}}
    cluster = thing("modelplane.ai/v1alpha1", "InferenceCluster", folder.name, spec=spec)
    control.objects.apply(cluster)
    del cluster["spec"]
    pools = [{"name": "gpu", "nodes": 1}]
    with connect(Connection("control", kubeconfig=str(folder.login))) as client:
        for given in ([], pools, []):
            status = {**cluster, "status": {"namespace": "modelplane-system", "gpuPools": given}}
            assert [each.action for each in apply_statuses(client, [status], check_mode=False)] == ["updated"]
            assert apply_statuses(client, [status], check_mode=False) == []
            live = control.get(cluster["apiVersion"], "InferenceCluster", folder.name)
            assert live
            assert live["status"].get("gpuPools", []) == given
    definition = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "inferenceclusters.modelplane.ai")
    control.objects.delete(*definition)
    control.wait_until_gone(lambda: control.objects.get(*definition) is None)


def test_a_cluster_that_the_build_does_not_know_is_not_emptied(folder: Folder) -> None:
    folder.run()
    east = folder.fleet.workloads["east"]
    for path in sorted((folder.path / "clusters" / "east").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (folder.path / "clusters" / "east").rmdir()
    refused = folder.run()
    assert refused["failed_clusters"] == ["east"]
    assert "knows no cluster east" in refused["msg"]
    assert east.get("v1", "ConfigMap", "settings", folder.workloads)
    stack = thing("infrastructure.modelplane.ai/v1alpha1", "ServingStack", "east-stack", "modelplane-system", spec={})
    stack["metadata"]["labels"]["modelplane.ai/cluster"] = "east"
    stack["spec"] = {"secrets": [{"type": "Kubeconfig", "name": "x", "key": "kubeconfig"}]}
    folder.add("control", stack)
    emptied = folder.run()
    assert not emptied["failed_clusters"], emptied
    assert east.get("v1", "ConfigMap", "settings", folder.workloads) is None


def test_what_is_composed_of_a_resource_with_errors_stays(folder: Folder) -> None:
    kept = thing("v1", "ConfigMap", "kept", folder.workloads, data={"a": "1"})
    kept["metadata"]["labels"] |= {"modelplane.ai/modelcache": "weights", "modelplane.ai/namespace": folder.team}
    other = thing("v1", "ConfigMap", "other", folder.workloads, data={"a": "1"})
    other["metadata"]["labels"] |= {"modelplane.ai/modelcache": "weights", "modelplane.ai/namespace": "another"}
    files = [folder.add("clusters/east", value) for value in (kept, other)]
    folder.run()
    for path in files:
        path.unlink()
    folder.plan(held=[{"kind": "ModelCache", "namespace": folder.team, "name": "weights"}])
    east = folder.fleet.workloads["east"]
    for _ in range(2):
        folder.run()
        assert east.get("v1", "ConfigMap", "kept", folder.workloads)
        assert not east.get("v1", "ConfigMap", "other", folder.workloads)
    folder.plan()
    folder.run()
    assert not east.get("v1", "ConfigMap", "kept", folder.workloads), "it is remembered all the while"


def test_absent_waits_until_everything_is_gone(folder: Folder) -> None:
    folder.run()
    result = folder.run(state="absent", path=None, wait=60)
    assert result["failed_clusters"] == []
    assert all(cluster["ready"] for cluster in result["clusters"].values())
    for plane in folder.fleet.workloads.values():
        assert plane.get("v1", "Namespace", folder.workloads) is None


def test_absent_takes_everything_away(folder: Folder) -> None:
    folder.run()
    result = folder.run(state="absent", path=None)
    assert result["failed_clusters"] == []
    for plane in folder.fleet.workloads.values():
        plane.wait_for("the namespace is gone", lambda p=plane: p.get("v1", "Namespace", folder.workloads) is None)
    assert folder.fleet.control.get("modelplane.ai/v1alpha1", "ModelReplica", "qwen-1", folder.team) is None
    assert not folder.run(state="absent", path=None)["changed"]


def test_one_server_for_two_clusters_and_the_control_cluster(folder: Folder) -> None:
    """Their records differ, so that none deletes what is another's."""
    control = folder.fleet.control
    only = thing("v1", "ConfigMap", "of-west", folder.workloads, data={"a": "1"})
    for path in (folder.path / "clusters" / "west").rglob("configmap-*"):
        path.unlink()
    folder.add("clusters/west", only)
    clusters = [{**folder.connection(control), "name": name} for name in ("east", "west")]
    for _ in range(2):
        result = folder.run(clusters=clusters)
        assert result["failed_clusters"] == [], result
    assert not result["changed"]
    assert control.get("v1", "ConfigMap", "settings", folder.workloads)
    assert control.get("v1", "ConfigMap", "of-west", folder.workloads)
    folder.run(clusters=clusters[:1], control=None, state="absent", path=None)
    assert control.get("v1", "ConfigMap", "settings", folder.workloads) is None
    assert control.get("v1", "ConfigMap", "of-west", folder.workloads)
    folder.run(clusters=clusters)
    # Both let go of the namespace at a time, and none leaves it to the other.
    folder.run(clusters=clusters, control=None, state="absent", path=None)
    control.wait_for("the namespace is gone", lambda: control.get("v1", "Namespace", folder.workloads) is None)


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no cluster at all": ({"clusters": [], "control": None}, "nothing to apply to"),
    "no build": ({"path": "/nowhere/at/all"}, "no build folder"),
    "a fleet that is no name": ({"fleet": "Not A Name"}, "fleet is"),
    "a wait that is no time": ({"wait": -1.0}, "wait is -1, and must be at least 0"),
    "a folder of a elsewhere": ({"folders": {"elsewhere": "x"}}, "folders names elsewhere, which is not in clusters"),
    "no forks": ({"forks": 0}, "forks"),
    "a decision with a record": ({"path": None, "decision": 0, "record": "own"}, "decision and record are given"),
    "two clusters of a name": (
        {"clusters": [{"name": "east", "kubeconfig": "x"}, {"name": "east", "kubeconfig": "y"}]},
        "two clusters east",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_reported(folder: Folder, name: str) -> None:
    params, message = MISTAKES[name]
    with pytest.raises(ApplyError, match=message):
        folder.run(**params)


def test_a_file_that_is_no_object_fails_its_cluster_alone(folder: Folder) -> None:
    folder.run()
    stray = folder.path / "clusters" / "east" / "stray.yaml"
    stray.write_text("just: text\n")
    result = folder.run()
    assert result["failed_clusters"] == ["east"]
    assert "is no Kubernetes object" in result["msg"]
    stray.write_text("a: [1\n")
    assert "stray.yaml" in folder.run()["msg"]
    stray.unlink()
    assert not folder.run()["changed"]


# Decisions


@pytest.fixture(scope="module")
def anchor(tmp_path_factory: pytest.TempPathFactory, fleet: Fleet) -> Any:
    """Another fleet that keeps the namespace of records, which takes seconds to go and come."""
    found = Folder(tmp_path_factory.mktemp("anchor"), fleet)
    found.run()
    yield
    found.run(state="absent", path=None)


def control(folder: Folder) -> Client:
    return connect(Connection("control", kubeconfig=str(folder.login)), write_cache=False)


def publish(folder: Folder) -> apply.Decision:
    """Apply to the control cluster and publish what is built, as a run that holds the lock of the fleet does."""
    folder.run(parts=["control"])
    settings = apply_results.settings(folder.arguments(), check_mode=False)
    holder = holder_name("decides")
    with control(folder) as client:
        lease = acquire(client, folder.name, holder, 10.0)
        try:
            return apply.decide(replace(settings, lease=(holder, 10.0)))
        finally:
            lease.release()


def from_decision(folder: Folder, *names: str, **params: Any) -> dict[str, Any]:
    """The result of a run that applies a decision to some clusters; it has no build folder."""
    clusters = [folder.connection(folder.fleet.workloads[name]) for name in names]
    given = {"path": None, "decision": 0, "parts": ["clusters"], "clusters": clusters, "on_error": "report"}
    return folder.run(**{**given, **params})


def settings_of(folder: Folder, cluster: str) -> str:
    found = folder.fleet.workloads[cluster].get("v1", "ConfigMap", "settings", folder.workloads) or {}
    return str((found.get("data") or {}).get("a", ""))


def set_all(folder: Folder, value: str) -> None:
    for cluster in ("east", "west"):
        folder.add(f"clusters/{cluster}", thing("v1", "ConfigMap", "settings", folder.workloads, data={"a": value}))


@pytest.mark.usefixtures("anchor")
def test_a_decision_is_applied_by_who_has_no_build(folder: Folder) -> None:
    assert publish(folder) == apply.Decision(1, True, ("east", "west"), {})
    assert publish(folder) == apply.Decision(1, False, (), {})
    result = from_decision(folder, "east", decision=1)
    assert (result["changed"], result["failed_clusters"]) == (True, [])
    assert result["summary"] == "1 cluster: 1 changed; 2 objects created"
    assert (settings_of(folder, "east"), settings_of(folder, "west")) == ("1", "")
    assert from_decision(folder, "west", check_mode=True)["clusters"]["west"]["changed"]
    assert settings_of(folder, "west") == ""
    from_decision(folder, "west")
    since = {plane.name: plane.audit_position() for plane in folder.fleet.all}
    assert not from_decision(folder, "east", "west")["changed"]
    for plane in folder.fleet.all:
        assert plane.write_requests(since[plane.name]) == []


@pytest.mark.usefixtures("anchor")
def test_what_was_decided_no_longer_is_removed_from_its_cluster_alone(folder: Folder) -> None:
    publish(folder)
    from_decision(folder, "east", "west")
    (folder.path / object_path("clusters/east", thing("v1", "ConfigMap", "settings", folder.workloads))).unlink()
    assert publish(folder) == apply.Decision(2, True, ("east",), {})
    assert from_decision(folder, "east", "west")["clusters"]["west"]["changed"] is False
    assert (settings_of(folder, "east"), settings_of(folder, "west")) == ("", "1")
    elsewhere = {"name": "north", "kubeconfig": str(folder.fleet.workloads["east"].kubeconfig)}
    refused = from_decision(folder, clusters=[elsewhere])
    assert "the decision has no cluster north" in refused["clusters"]["north"]["msg"]


@pytest.mark.usefixtures("anchor")
def test_a_decision_has_to_be_the_newest_and_one_for_others(folder: Folder) -> None:
    with pytest.raises(ApplyError, match="has no decision: run the playbook decide first"):
        from_decision(folder, "east")
    publish(folder)
    set_all(folder, "2")
    publish(folder)
    with pytest.raises(ApplyError, match=r"decision 1 of the fleet .* is not the newest: .*/decides published 2 at 20"):
        from_decision(folder, "east", decision=1)
    holder = holder_name("whole")
    with control(folder) as client:
        lease = acquire(client, folder.name, holder, 10.0)
        folder.run(lease={"holder": "whole", "duration": 10.0})
        lease.release()
    with pytest.raises(ApplyError, match="/whole works on all clusters of the fleet"):
        from_decision(folder, "east")
    assert publish(folder) == apply.Decision(4, True, (), {})
    assert not from_decision(folder, "east", "west")["changed"]


@pytest.mark.usefixtures("anchor")
def test_a_decision_that_is_published_while_a_cluster_is_waited_for_is_refused_there(folder: Folder) -> None:
    publish(folder)
    with control(folder) as client, ThreadPoolExecutor() as pool:
        with cluster_locked(client, folder.name, "east", holder_name("other"), 5.0):
            run = pool.submit(from_decision, folder, "east", "west", lease={"holder": None, "duration": 5.0})
            while not settings_of(folder, "west"):
                assert not run.done(), run.result()
            set_all(folder, "2")
            publish(folder)
        result = run.result()
    assert "decision 1 of the fleet" in result["clusters"]["east"]["msg"]
    assert "is not the newest" in result["clusters"]["east"]["msg"]
    assert (settings_of(folder, "east"), settings_of(folder, "west")) == ("", "1")
    from_decision(folder, "east", "west")
    assert (settings_of(folder, "east"), settings_of(folder, "west")) == ("2", "2")


@pytest.mark.usefixtures("anchor")
def test_the_lock_of_a_run_that_was_killed_ends_by_itself(folder: Folder) -> None:
    publish(folder)
    with control(folder) as client:
        name = cluster_lease_name(folder.name, "east")
        assert Lease(client, name, "modelplane-system", "killed/run", 1.0).acquire()
        result = from_decision(folder, "east", lease={"holder": None, "duration": 1.0})
        assert (result["failed_clusters"], settings_of(folder, "east")) == ([], "1")
        assert Lease(client, name, "modelplane-system", "next/run", 1.0).read_holder() == ""


def change(folder: Folder, name: str, other: str) -> None:
    """Give a ConfigMap of a decision the content of another one."""
    objects = folder.fleet.control.objects
    found = objects.get("v1", "ConfigMap", other, "modelplane-system")
    assert found is not None
    objects.patch("v1", "ConfigMap", name, {"binaryData": found["binaryData"]}, "modelplane-system")


@pytest.mark.usefixtures("anchor")
def test_a_decision_that_others_changed_is_refused(folder: Folder) -> None:
    publish(folder)
    name = f"modelplane-decision-{folder.name}"
    change(folder, f"{name}.1.east", f"{name}.index")
    result = from_decision(folder, "east", "west")
    assert "cannot be read: it was changed" in result["clusters"]["east"]["msg"]
    assert (result["failed_clusters"], settings_of(folder, "west")) == (["east"], "1")
    change(folder, f"{name}.index", f"{name}.1.west")
    with pytest.raises(ApplyError, match=r"decision 1 cannot be read: .* Run the playbook decide again"):
        from_decision(folder, "east")
    # Who decides writes all of it again.
    assert publish(folder) == apply.Decision(2, True, ("east", "west"), {})
    assert from_decision(folder, "east", "west")["failed_clusters"] == []


@pytest.mark.usefixtures("anchor")
def test_a_teardown_begins_when_no_slice_writes_any_more(folder: Folder) -> None:
    publish(folder)
    head = f"modelplane-decision-{folder.name}"
    with control(folder) as client, ThreadPoolExecutor() as pool:
        with cluster_locked(client, folder.name, "east", holder_name("other"), 5.0):
            gone = pool.submit(folder.run, state="absent", path=None, parts=["control"])
            while (client.get("v1", "ConfigMap", head, "modelplane-system") or {})["data"]["whole"] != "true":
                assert not gone.done(), gone.result()
            with pytest.raises(ApplyError, match="works on all clusters"):
                from_decision(folder, "west")
            assert not gone.done()
            assert client.get("modelplane.ai/v1alpha1", "ModelReplica", "qwen-1", folder.team)
        assert gone.result()["failed_clusters"] == []
        assert client.get("v1", "ConfigMap", head, "modelplane-system") is None
    assert settings_of(folder, "west") == ""


@pytest.mark.usefixtures("anchor")
def test_slices_leave_clusters_alone_whose_workloads_are_deleted(folder: Folder) -> None:
    publish(folder)
    from_decision(folder, "east", "west")
    with control(folder) as client:
        lease = acquire(client, folder.name, holder_name("teardown"), 10.0)
        clusters = [folder.connection(folder.fleet.workloads["east"])]
        given = {"holder": "teardown", "duration": 10.0}
        folder.run(state="absent", path=None, parts=["clusters"], clusters=clusters, lease=given)
        lease.release()
    with pytest.raises(ApplyError, match="/teardown works on all clusters"):
        from_decision(folder, "east", "west")
    assert (settings_of(folder, "east"), settings_of(folder, "west")) == ("", "1")


@pytest.mark.usefixtures("anchor")
def test_the_rights_of_the_fleet_do_for_decisions(folder: Folder) -> None:
    plane = folder.fleet.control
    publish(folder)
    rights = [value for value in manifests("control-plane") if value["kind"] != "Namespace"]
    login = plane.user_kubeconfig("decides", groups=["modelplane:control-plane"])
    plane.apply(rights)
    try:
        plane.wait_for("the authorizer knows the rights", lambda: may_decide(login))
        folder.login = login
        set_all(folder, "2")
        assert publish(folder).generation == 2
        assert from_decision(folder, "east", "west")["failed_clusters"] == []
        assert settings_of(folder, "west") == "2"
        assert not folder.run(state="absent", path=None)["failed_clusters"]
    finally:
        folder.login = plane.kubeconfig
        for value in reversed(rights):
            metadata = value["metadata"]
            plane.objects.delete(value["apiVersion"], value["kind"], metadata["name"], metadata.get("namespace", ""))
    assert plane.get("v1", "ConfigMap", f"modelplane-decision-{folder.name}", "modelplane-system") is None


def may_decide(login: Path) -> bool:
    """Return whether the fleet's account may do there what is granted last."""
    review = {"namespace": "modelplane-system", "verb": "update", "resource": "configmaps"}
    with connect(Connection("control", kubeconfig=str(login)), write_cache=False) as client:
        return client.allowed("SelfSubjectAccessReview", {"resourceAttributes": review})


@pytest.mark.usefixtures("anchor")
def test_no_value_of_a_secret_is_in_a_decision(folder: Folder) -> None:
    folder.plan(copy_of(folder))
    plane = folder.fleet.control
    plane.create_namespace(folder.team)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hf", "namespace": folder.team}}
    plane.apply({**secret, "data": {"HF_TOKEN": ENCODED}})
    publish(folder)
    for found in plane.objects.list("v1", "ConfigMap", "modelplane-system", f"modelplane.ai/fleet={folder.name}"):
        contents = [base64.b64decode(value) for value in (found.get("binaryData") or {}).values()]
        text = json.dumps(found.get("data")) + "".join(zlib.decompress(each).decode() for each in contents)
        assert PLANTED not in text
        assert ENCODED not in text
    assert from_decision(folder, "east")["failed_clusters"] == []
    copied = folder.fleet.workloads["east"].get("v1", "Secret", "auth", folder.workloads) or {}
    assert copied["data"] == {"HF_TOKEN": ENCODED}


@pytest.mark.usefixtures("anchor")
def test_a_slice_whose_lock_was_lost_writes_nothing_more(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(folder)
    send, lease = Sender.send, cluster_lease_name(folder.name, "east")

    def taken(self: Sender, value: Object, before: Object | None) -> Result:
        if value["kind"] == "ConfigMap":
            # As after a pause of the whole process that was longer than the lock.
            spec = {"holderIdentity": "other/run"}
            plane = folder.fleet.control.objects
            plane.patch("coordination.k8s.io/v1", "Lease", lease, {"spec": spec}, "modelplane-system")
            time.sleep(1.5)
        return send(self, value, before)

    monkeypatch.setattr(Sender, "send", taken)
    result = from_decision(folder, "east", lease={"holder": None, "duration": 1.0})
    assert "the lock of this run was lost" in result["clusters"]["east"]["msg"]
    assert settings_of(folder, "east") == ""
    found = folder.fleet.control.get("coordination.k8s.io/v1", "Lease", lease, "modelplane-system") or {}
    assert found["spec"]["holderIdentity"] == "other/run"
    monkeypatch.undo()
    assert from_decision(folder, "east", lease={"holder": None, "duration": 1.0})["failed_clusters"] == []
