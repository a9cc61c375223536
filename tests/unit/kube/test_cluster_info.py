# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module cluster_info as Ansible runs it, against a real API server and one that does not answer."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import parse
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.build import plan_only
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.fleet_inputs import Settings
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status import sightings as seen

PLANTED = "hunter2-of-the-kubeconfig"


def play(folder: Path, tasks: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Return what each task returned, and all that Ansible printed at -vvv."""
    steps: list[dict[str, Any]] = []
    for index, task in enumerate(tasks):
        result = {"content": "{{ found | to_json }}", "dest": str(folder / f"result-{index}.json"), "mode": "0600"}
        steps.append({"name": f"Read {index}", "ignore_errors": True, "register": "found", **task})
        steps.append({"name": f"Keep {index}", "ansible.builtin.copy": result, "no_log": True, "check_mode": False})
    book = folder / "play.json"
    book.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": steps}]), encoding="utf-8")
    options = ("-vvv", "-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}")
    done = ansible_run.completed("ansible-playbook", *options, str(book), XDG_CACHE_HOME=str(folder / "cache"))
    assert done.returncode == 0, done.stdout + done.stderr
    results = [json.loads((folder / f"result-{index}.json").read_text(encoding="utf-8")) for index in range(len(tasks))]
    return results, done.stdout + done.stderr


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def kubeconfig_text(server: str) -> str:
    return json.dumps(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": PLANTED}}],
        }
    )


def all_active(cluster: ControlPlane) -> bool:
    namespaces = cluster.objects.list("v1", "Namespace")
    return all(namespace["status"]["phase"] == "Active" for namespace in namespaces)


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    folder = tmp_path / "manifests"
    folder.mkdir()
    for value in (seen.CLASS, seen.EXISTING, seen.deployment(1)):
        (folder / f"{value['kind']}.json").write_text(json.dumps(value), encoding="utf-8")
    return folder


def test_one_answers_and_one_does_not(cluster: ControlPlane, manifests: Path, tmp_path: Path) -> None:
    server = f"https://127.0.0.1:{closed_port()}"
    path = tmp_path / "new" / "observed.json"
    here = {"kubeconfig": str(cluster.kubeconfig)}
    gone = {"name": "gone", "kubeconfig_text": kubeconfig_text(server)}
    arguments = {
        "clusters": [{"name": "east", **here}, gone],
        "control": here,
        "resources": [str(manifests)],
        "others": ["west", "east"],
        "path": str(path),
        "retries": 2,
        "timeout": 10,
    }
    read = {"modelplane.fleet.cluster_info": arguments}
    # What tests before this one applied goes with its namespace, and an observation changes with it.
    cluster.wait_for("removed namespaces to be gone", lambda: all_active(cluster) or None)
    since = cluster.audit_position()
    stat = {"ansible.builtin.stat": {"path": str(path)}}
    lost = {"modelplane.fleet.cluster_info": {**arguments, "control": {"server": server, "token": PLANTED}}}
    twice = {"modelplane.fleet.cluster_info": {**arguments, "clusters": [gone, gone]}}
    results, printed = play(tmp_path, [{**read, "check_mode": True}, stat, read, stat, read, stat, lost, twice])
    check, before, first, written, second, later, without_control, doubled = results

    assert before["stat"]["exists"] is False
    assert (written["stat"]["mode"], later["stat"]["mtime"]) == ("0600", written["stat"]["mtime"])
    for result in (check, first, second):
        assert not result["failed"], result["msg"]
        assert (result["changed"], result["failed_clusters"]) == (False, ["gone"])
        assert result["clusters"]["gone"]["failed"] is True
        assert server in result["clusters"]["gone"]["msg"]
        assert result["clusters"]["east"]["failed"] is False
        assert result["clusters"]["east"]["version"].startswith("1.")
        assert any(line.startswith("cluster gone: ") for line in result["warnings"])
    assert without_control["failed"] is True
    assert server in without_control["msg"]
    assert "two clusters gone" in doubled["msg"]
    assert cluster.write_requests(since) == []
    assert PLANTED not in printed
    assert "Traceback" not in printed

    document = json.loads(path.read_text(encoding="utf-8"))
    observed = parse(document)
    assert observed.clusters["west"].unreachable == "not part of this run"
    assert observed.clusters["gone"].unreachable
    assert observed.clusters["east"].unreachable == ""
    assert PLANTED not in path.read_text(encoding="utf-8")
    outcome = plan_only(Settings((str(manifests),), folder=str(tmp_path / "build"), observations=str(path)))
    assert outcome.plan.context.observed == observed
