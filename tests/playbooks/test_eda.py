# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The rulebooks under ansible-rulebook: a signed push plans, and what the plan shows leads to the other playbooks."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import file_text, object_path
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.ansible_run import LONGEST_RUN, ROOT
from ansible_collections.modelplane.fleet.tests.kube.processes import free_port

RULEBOOKS = ROOT / "extensions" / "eda" / "rulebooks"
SECRET = "the-key-of-the-sender"
LOST = "eks-us-west"
PUSH = {"ref": "refs/heads/main"}
PUSHED = ("Pull the manifests", "Plan the fleet")
RECOVERED = ("Show the state of the fleet", "Reconcile the fleet", "Report the changes of the control cluster")
NOTIFIED = ("Send a notification about an event",)

pytestmark = pytest.mark.skipif(not shutil.which("java"), reason="ansible-rulebook needs Java")


class Hook(HTTPServer):
    """A webhook, and what was posted to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posted: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.url = f"http://127.0.0.1:{self.server_port}/the-secret-of-the-hook"


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        self.server.posted.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Rulebooks:
    """Both rulebooks in one run of ansible-rulebook, whose start takes longer than all else. Its windows are short."""

    def __init__(self, folder: Path, variables: dict[str, Any], **secrets: str) -> None:
        texts = [(RULEBOOKS / name).read_text().removeprefix("---\n") for name in ("push.yml", "watch.yml")]
        (folder / "rulebook.yml").write_text(re.sub(r"once_after: \d+ seconds", "once_after: 1 second", "".join(texts)))
        (folder / "variables.yml").write_text(yaml.safe_dump(variables))
        options = ("-i", "hosts.yml", "-r", "rulebook.yml", "-e", "variables.yml", "-E", ",".join(secrets))
        programs = Path(ansible_run.path("ansible-rulebook")).parent
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self._process = ansible_run.start("ansible-rulebook", *options, cwd=folder, PATH=path, **secrets)
        self.output = ""

    def __enter__(self) -> Rulebooks:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate(timeout=LONGEST_RUN)

    def read_to(self, text: str, times: int = 1) -> None:
        """Read the output until this is in it so many more times. Fails when it ends before."""
        assert self._process.stdout
        for line in self._process.stdout:
            self.output += line
            times -= text in line
            if not times:
                return
        pytest.fail(f"it ended without {text}:\n{self.output}")

    def plays(self) -> list[str]:
        return re.findall(r"^PLAY \[(.+)\]", self.output, re.MULTILINE)


def post(port: int, body: dict[str, Any], secret: str = SECRET) -> int:
    """Post a signed request as soon as the webhook takes it; return the status of the answer."""
    data = json.dumps(body).encode()
    signature = hmac.new(secret.encode(), data, hashlib.sha256).hexdigest()
    headers = {"Content-Type": "application/json", "X-Hub-Signature-256": f"sha256={signature}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", data, headers)
    deadline = time.monotonic() + LONGEST_RUN
    while True:
        try:
            with urllib.request.urlopen(request) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except urllib.error.URLError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def write_inventory(folder: Path) -> None:
    variables = {
        "fleet_resources": [str(folder / "checkout")],
        "fleet_build": str(folder / "build"),
        "pull_repository": str(folder / "repository"),
        "pull_checkout": str(folder / "checkout"),
        # Evaluates all that a rulebook passes on, as a playbook might: a template in it would be run.
        "fleet_table_width": "{{ 72 + (ansible_eda | to_json | length) * 0 }}",
    }
    hosts: dict[str, None] = dict.fromkeys(["byo-us-east", LOST, "gke-us-central"])
    groups = {"control_plane": {"hosts": {"control": None}}, "workload_clusters": {"hosts": hosts}}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"vars": variables, "children": groups}}))


def write_repository(folder: Path) -> None:
    repository = folder / "repository"
    shutil.copytree(ROOT / "inventories" / "quickstart" / "manifests", repository)
    author = ("-c", "user.name=ml-team", "-c", "user.email=ml-team@example.com", "-c", "commit.gpgsign=false")
    for command in (("init", "-q", "-b", "main"), ("add", "."), (*author, "commit", "-q", "-m", "Add the fleet")):
        subprocess.run(["git", *command], cwd=repository, check=True)


def write_status(folder: Path) -> None:
    """Write the status of a cluster that did not answer in the last run."""
    ready = {"type": "Ready", "status": "Unknown", "reason": "NotObserved"}
    ready |= {"message": f"cluster {LOST} did not answer: timed out", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"apiVersion": "modelplane.ai/v1alpha1", "kind": "InferenceCluster", "metadata": {"name": LOST}}
    status["status"] = {"conditions": [ready]}
    name = object_path("status", status)
    path = folder / "build" / name
    path.parent.mkdir(parents=True)
    path.write_text(file_text(name, to_yaml(status)))


def test_a_push_is_planned_and_its_results_are_reported(tmp_path: Path, hook: Hook) -> None:
    write_inventory(tmp_path)
    write_repository(tmp_path)
    write_status(tmp_path)
    port = free_port()
    variables = {"push_ref": PUSH["ref"], "push_port": port, "watch_build": str(tmp_path / "build")}
    variables |= {"watch_interval": 1, "watch_lost_after": 0, "watch_pending_after": 0}
    injected = {"note": f"{{{{ lookup('ansible.builtin.pipe', 'touch {tmp_path / 'injected'}') }}}}"}
    with Rulebooks(tmp_path, variables, push_secret=SECRET, notify_url=hook.url) as rulebooks:
        assert post(port, PUSH, secret="another-key") == 401
        assert post(port, {"ref": "refs/heads/other"}) == 200
        assert post(port, {**PUSH, **injected}) == 200
        rulebooks.read_to("PLAY RECAP", times=3)
        document = hook.posted.get(timeout=LONGEST_RUN)
        since = document["event"].pop("since")
        assert document["event"] == {
            "type": "deployment_pending",
            "cluster": "",
            "namespace": "research",
            "deployment": "kimi-k2",
            "reason": "InsufficientCapacity",
            "message": "0 of 1 replicas scheduled (checked 3 clusters)",
        }
        assert document["events"] == ["pending"]
        assert document["text"] == (
            "Fleet default: deployment pending. deployment research/kimi-k2: InsufficientCapacity: "
            "0 of 1 replicas scheduled (checked 3 clusters)"
        )
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", since)
        # What the source says of it comes after all events of the turns before.
        (tmp_path / "build" / "plan.json").unlink()
        rulebooks.read_to("there is no plan.json in it")
    assert sorted(rulebooks.plays()) == sorted([*PUSHED, *NOTIFIED, *RECOVERED])
    assert hook.posted.empty()
    assert not (tmp_path / "injected").exists()
    assert "failed=1" not in rulebooks.output
    assert SECRET not in rulebooks.output
    assert hook.url not in rulebooks.output
