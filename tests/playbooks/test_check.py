# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The playbook check on clusters that answer as set up: one report for all of them, and nothing is written."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.checks import places
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.scripted import (
    Reply,
    Request,
    Server,
    status,
)

API = "modelplane.ai/v1alpha1"
TOKEN = "planted-token-of-a-cluster"
KINDS = {
    "v1": ("Node", "Service", "Secret", "Namespace", "ConfigMap"),
    "apps/v1": ("Deployment", "DaemonSet"),
    "storage.k8s.io/v1": ("StorageClass",),
    "resource.k8s.io/v1": ("ResourceClaim", "ResourceSlice", "DeviceClass"),
    "apiextensions.k8s.io/v1": ("CustomResourceDefinition",),
    "admissionregistration.k8s.io/v1": ("ValidatingAdmissionPolicy",),
    "authorization.k8s.io/v1": ("SelfSubjectAccessReview", "SubjectAccessReview"),
}
PLURALS = {"StorageClass": "storageclasses", "DeviceClass": "deviceclasses"}
PLURALS["ValidatingAdmissionPolicy"] = "validatingadmissionpolicies"


def plural(kind: str) -> str:
    return PLURALS.get(kind) or f"{kind.lower()}s"


class Cluster:
    """An API server with these objects, which are read-only."""

    def __init__(self, folder: Path, objects: Sequence[Any]) -> None:
        self.server = Server(None, folder)
        self._objects = objects
        for api_version, kinds in KINDS.items():
            root = "apis" if "/" in api_version else "api"
            served = [{"name": plural(kind), "kind": kind, "namespaced": False, "verbs": ["list"]} for kind in kinds]
            answer = {"kind": "APIResourceList", "groupVersion": api_version, "resources": served}
            self.server.served[f"/{root}/{api_version}"] = answer
        self.server.served["/version"] = {"major": "1", "minor": "36"}
        self.server.always = self._answer

    def _answer(self, request: Request) -> Reply:
        if request.path.endswith("accessreviews"):
            return Reply(201, {**request.body, "status": {"allowed": True}})
        for kinds in KINDS.values():
            for kind in kinds:
                if request.method == "GET" and request.path.endswith(f"/{plural(kind)}"):
                    return Reply(200, {"metadata": {}, "items": [v for v in self._objects if v["kind"] == kind]})
        return Reply(404, status(404, "NotFound"))

    @property
    def written(self) -> list[str]:
        methods = [request for request in self.server.seen if request.method != "GET"]
        return [request.path for request in methods if not request.path.endswith("accessreviews")]


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[dict[str, Cluster]]:
    """`good`, on which nothing stands in the way, and `bad`, whose nodes have no label."""
    good = [*places.GOOD.nodes, *places.GOOD.storage_classes, *places.GOOD.services]
    found = {
        "good": Cluster(tmp_path / "good", good),
        "bad": Cluster(tmp_path / "bad", [places.node("gpu-0")]),
    }
    yield found
    for cluster in found.values():
        cluster.server.stop()


def written(folder: Path, clusters: dict[str, Cluster], **variables: Any) -> Path:
    """An inventory and manifests."""
    manifests = folder / "manifests"
    manifests.mkdir()
    values = [places.inference_class()]
    for name in clusters:
        value = places.inference_cluster(places.pool())
        values.append({**value, "metadata": {"name": name}})
    for value in values:
        value["metadata"] = {"name": value["metadata"]["name"]}
    (manifests / "fleet.yaml").write_text(yaml.safe_dump_all(values))
    hosts = {
        name: {"fleet_target": "kubernetes", "fleet_connection": {"server": cluster.server.url, "token": TOKEN}}
        for name, cluster in clusters.items()
    }
    common = {"fleet_resources": [str(manifests)], "ansible_python_interpreter": sys.executable, **variables}
    groups = {"control_plane": {"hosts": {"control": {}}}, "workload_clusters": {"hosts": hosts}}
    path = folder / "hosts.json"
    path.write_text(json.dumps({"all": {"vars": common, "children": groups}}))
    return path


def check(folder: Path, inventory: Path, *arguments: str, playbook: str = "check") -> str:
    out, message = ansible_run.run(
        "ansible-playbook",
        f"modelplane.fleet.{playbook}",
        "-i",
        str(inventory),
        *arguments,
        XDG_CACHE_HOME=str(folder / "cache"),
        ANSIBLE_CALLBACK_RESULT_FORMAT="yaml",
    )
    assert TOKEN not in out + message
    return out + message


def recap(output: str, host: str) -> dict[str, int]:
    (line,) = [line for line in output.partition("PLAY RECAP")[2].splitlines() if line.startswith(f"{host} ")]
    return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line)}


def test_one_report_for_all_clusters(tmp_path: Path, clusters: dict[str, Cluster]) -> None:
    inventory = written(tmp_path, clusters)
    output = check(tmp_path, inventory)
    report = output.partition("TASK [modelplane.fleet.existing_cluster : Show the report of all clusters]")[2]
    report = " ".join(report.partition("TASK [")[0].split())
    assert "good: nothing stands in the way" in report
    assert "bad: 2 errors, 1 warning" in report
    assert "no node has the label modelplane.ai/pool=gpu, 2 or more are desired" in report
    assert "StorageClass rwx is not there" in report
    assert "no controller for Services of type LoadBalancer is to be seen" in report
    assert (recap(output, "good")["failed"], recap(output, "bad")["failed"]) == (0, 1)
    assert [cluster.written for cluster in clusters.values()] == [[], []]


@pytest.mark.parametrize("text", ["", " "])
def test_a_blank_state_is_unset(tmp_path: Path, clusters: dict[str, Cluster], text: str) -> None:
    output = check(tmp_path, written(tmp_path, clusters), "-e", json.dumps({"existing_cluster_state": text}))
    assert "good: nothing stands in the way" in " ".join(output.split())


def test_nothing_is_contacted_before_it_is_known_what_to_do(tmp_path: Path, clusters: dict[str, Cluster]) -> None:
    output = check(tmp_path, written(tmp_path, clusters), "-e", "existing_cluster_state=presnt")
    assert "existing_cluster_state is presnt, and must be one of checked, present, absent." in output
    assert [cluster.server.seen for cluster in clusters.values()] == [[], []]


@pytest.mark.parametrize(
    ("playbook", "variables", "message"),
    [
        (
            "serving_stack",
            {"serving_stack_state": "absnet"},
            "absnet, and must be one of present, absent",
        ),
        ("serving_stack", {"serving_stack_stats": {}}, "Did you mean serving_stack_states?"),
        (
            "serving_stack",
            {"serving_stack_ca_file": "/nowhere.pem"},
            "is /nowhere.pem, and there is no such file.",
        ),
        ("serving_stack", {"serving_stack_charts_dir": "/nowhere"}, "is /nowhere, and there is no such folder."),
        ("serving_stack", {"serving_stack_image_pull_config": __file__}, "serving_stack_image_pull_secrets is empty"),
        ("serving_stack", {"fleet_target": "directory"}, "No host of the play has the target kubernetes"),
        ("check", {"serving_stack_stuck_after": "soon"}, "'serving_stack_stuck_after' is of type"),
        ("site", {"fleet_biuld": "x", "fleet_build": "y"}, "Did you mean fleet_build?"),
    ],
)
def test_no_cluster_is_asked_with_a_wrong_variable(
    tmp_path: Path, clusters: dict[str, Cluster], playbook: str, variables: dict[str, Any], message: str
) -> None:
    inventory = written(tmp_path, clusters)
    output = check(tmp_path, inventory, "-e", json.dumps(variables), playbook=playbook)
    assert message in " ".join(output.split())
    assert [cluster.server.seen for cluster in clusters.values()] == [[], []]


def test_a_cluster_whose_manifest_has_errors_keeps_its_stack(tmp_path: Path, clusters: dict[str, Cluster]) -> None:
    inventory = written(tmp_path, clusters, fleet_retries=0)
    manifests = tmp_path / "manifests" / "fleet.yaml"
    values = list(yaml.safe_load_all(manifests.read_text()))
    values[-1]["spec"]["cluster"]["source"] = "Moon"
    manifests.write_text(yaml.safe_dump_all(values))
    asked = {name: cluster.server.seen for name, cluster in clusters.items()}

    refused = check(tmp_path, inventory, "--check", playbook="serving_stack")
    assert "Moon" in refused
    assert asked == {"good": [], "bad": []}

    hold = ("--check", "-e", "fleet_invalid=hold")
    held = check(tmp_path, inventory, *hold, playbook="serving_stack")
    assert "Moon" in held
    assert recap(held, "bad")["failed"] == 0
    assert asked["good"]
    assert asked["bad"] == []

    granted = check(tmp_path, inventory, *hold, "-e", "existing_cluster_state=present")
    assert recap(granted, "bad")["failed"] == 0
    assert asked["bad"] == []

    # Reading is allowed.
    observed = check(tmp_path, inventory, *hold)
    assert "no InferenceCluster bad is known, so its pools were not checked" in " ".join(observed.split())
    assert [cluster.written for cluster in clusters.values()] == [[], []]


def test_a_cluster_that_does_not_answer_and_wrong_variables_are_in_the_report(
    tmp_path: Path, clusters: dict[str, Cluster]
) -> None:
    clusters["bad"].server.stop()
    inventory = written(tmp_path, clusters, fleet_retries=0, serving_stack_states={"prometeus": "provided"})
    output = check(tmp_path, inventory, "--check")
    assert "bad: it could not be checked" in output
    assert "serving_stack_states.prometeus is not a component. Did you mean prometheus?" in " ".join(output.split())
    assert all(recap(output, name)["failed"] == 1 for name in clusters)


def test_the_module_by_itself(tmp_path: Path, clusters: dict[str, Cluster]) -> None:
    inventory = written(tmp_path, clusters)
    connections = [{"name": name, "server": cluster.server.url, "token": TOKEN} for name, cluster in clusters.items()]
    usual = {"clusters": connections, "resources": [str(tmp_path / "manifests")], "retries": 0}
    tasks = {
        "all": usual,
        "unknown choice": {**usual, "choices": {"driver": ["gpu.nvidia.com"]}},
        "no control cluster": {**usual, "control": {"server": "http://127.0.0.1:1", "token": TOKEN}},
        "a component without a wave": {**usual, "components": [{"key": "lws"}]},
    }
    steps: list[Any] = []
    for index, (name, arguments) in enumerate(tasks.items()):
        content = {"content": "{{ found | to_json }}", "dest": str(tmp_path / f"{index}.json"), "mode": "0600"}
        steps.append({"name": name, "modelplane.fleet.cluster_check": arguments, "register": "found"})
        steps[-1]["ignore_errors"] = True
        steps.append({"name": f"Keep {name}", "ansible.builtin.copy": content})
    book = tmp_path / "play.json"
    book.write_text(json.dumps([{"hosts": "control", "connection": "local", "gather_facts": False, "tasks": steps}]))
    ansible_run.run("ansible-playbook", "-i", str(inventory), str(book), XDG_CACHE_HOME=str(tmp_path / "cache"))
    found = [json.loads((tmp_path / f"{index}.json").read_text()) for index in range(len(tasks))]
    every, unknown, no_control, no_wave = found

    assert (every["failed"], every["changed"], every["failed_clusters"]) == (True, False, ["bad"])
    assert every["clusters"]["good"]["report"] == [
        "good: 1 warning",
        "  warning: DeviceClass gpu.nvidia.com: InferenceClasses of the pools name it, it is not there, and the "
        "serving stack does not install it",
        "    Install the DRA driver that defines it",
    ]
    bad = every["clusters"]["bad"]
    assert {finding["severity"] for finding in bad["findings"]} == {"error", "warning"}
    assert every["msg"].startswith("bad: spec.nodePools[0] (gpu): no node has the label")
    assert bad["msg"].count("\n") + 1 == sum(finding["severity"] == "error" for finding in bad["findings"])
    assert "components or choices cannot be used" in unknown["msg"]
    assert "driver" in unknown["msg"]
    assert "127.0.0.1:1" in no_control["msg"]
    assert "components: one has no wave, which is required" in no_wave["msg"]
