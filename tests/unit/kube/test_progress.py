# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The callback `progress`, in runs of Ansible that wait for real API servers: on a terminal, and without one."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils import progress
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.unit.kube.places import Place, deployment

CALLBACK = {"ANSIBLE_CALLBACKS_ENABLED": "modelplane.fleet.progress"}
_ERASE = re.compile(r"\x1b\[(\d+)A\r\x1b\[J")
_SEEN = r"\d+ s \(usually up to 2 min\): waiting for Deployment web to be ready; last seen: 0 of 1 ready; Deployment"
_WAIT = re.compile(rf"(?P<cluster>east|west|north): {_SEEN} [\w/-]+: 0 of 1 pods available")


def play(folder: Path, *tasks: dict[str, Any]) -> Path:
    """Write a playbook that runs these tasks."""
    path = folder / "play.json"
    variables = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    path.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": tasks}]))
    return path


def wait_task(place: Place, *clusters: str, **more: Any) -> dict[str, Any]:
    """Return a task that waits until a Deployment is ready, on clusters that are all the same one."""
    arguments = {
        "clusters": [{"name": name, "kubeconfig": str(place.plane.kubeconfig)} for name in clusters],
        "objects": [deployment("web", place.namespace)],
        "wait": 3000,
    }
    return {"name": "Wait", "modelplane.fleet.wait_ready": arguments, **more}


@pytest.fixture
def waiting(place: Place) -> Place:
    place.plane.add_nodes(f"pool-{place.fleet}", 1)
    objects = place.objects()
    objects[3] = deployment("web", place.namespace, fate="never-ready")
    place.apply(objects)
    return place


def output(path: Path, place: Place, clusters: set[str], *, terminal: bool = False, **variables: str) -> str:
    """Run a playbook to its end, and return what it writes: to a terminal, or to a pipe. Once it has a line for each of
    the clusters, what they wait for becomes ready."""
    command = [ansible_run.path("ansible-playbook"), str(path)]
    environment = ansible_run.environ(**{progress.INTERVAL: "0.5", **variables})
    ours, theirs = pty.openpty() if terminal else os.pipe()
    written = b""
    with subprocess.Popen(command, stdin=theirs if terminal else None, stdout=theirs, stderr=theirs, env=environment):
        os.close(theirs)
        while True:
            ready, __, __ = select.select([ours], [], [], ansible_run.LONGEST_RUN)
            assert ready, written
            try:
                data = os.read(ours, 65536)
            except OSError:
                # Linux says so where a terminal has no other end.
                data = b""
            if not data:
                break
            written += data
            if (
                clusters
                and {found["cluster"] for found in _WAIT.finditer(written.decode(errors="replace"))} >= clusters
            ):
                place.apply(place.objects())
                clusters = set()
    os.close(ours)
    found = written.decode().replace("\r\n", "\n")
    assert not clusters, found
    assert "failed=0" in found, found
    return found


def left(written: str) -> str:
    """Return what a terminal shows in the end: the output without what was erased."""
    while erased := _ERASE.search(written):
        lines = written[: erased.start()].split("\n")
        assert lines[-1] == "", written
        written = "\n".join([*lines[: -int(erased[1]) - 1], ""]) + written[erased.end() :]
    return written


def test_a_terminal_has_a_line_for_each_cluster_while_it_waits(waiting: Place, tmp_path: Path) -> None:
    path = play(tmp_path, wait_task(waiting, "east", "west"))
    # The path of a socket has 107 characters at most, and folders of tests have long names.
    with tempfile.TemporaryDirectory() as temporary:
        # This may be CI.
        variables = {"TERM": "xterm", "CI": "", "COLUMNS": "200", "LINES": "24", "TMPDIR": temporary, **CALLBACK}
        shown = left(output(path, waiting, {"east", "west"}, terminal=True, **variables))
        assert not list(Path(temporary).glob("modelplane-*"))
    assert "ok: [localhost]" in shown
    assert not re.search(r"waiting for|\x1b", shown), shown


def test_elsewhere_lines_come_while_a_module_waits_in_a_process_of_its_own(waiting: Place, tmp_path: Path) -> None:
    path = play(tmp_path, wait_task(waiting, "north", **{"async": 3600, "poll": 1}))
    assert "\x1b" not in output(path, waiting, {"north"}, **CALLBACK)


def test_without_the_callback_lines_come_as_well(waiting: Place, tmp_path: Path) -> None:
    assert "\x1b" not in output(play(tmp_path, wait_task(waiting, "east", "west")), waiting, {"east", "west"})
