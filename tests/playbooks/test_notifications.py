# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Webhooks that hear what became of runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.modules import notification
from ansible_collections.modelplane.fleet.tests.module_run import run_module
from ansible_collections.modelplane.fleet.tests.playbooks.test_playbooks import QUICKSTART, play

SECRET = "hunter2"


class Hooks:
    """A server of webhooks. `codes`: its next answers, 200 after these. `got`: path, document and authorization."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.got: list[tuple[str, dict[str, Any], str]] = []
        hooks = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                hooks.got.append((self.path, body, self.headers.get("authorization", "")))
                self.send_response(hooks.codes.pop(0) if hooks.codes else 200)
                self.send_header("location", "/elsewhere")
                self.send_header("retry-after", "0")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self.url = f"{self.address}/{SECRET}?token={SECRET}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def take(self) -> list[dict[str, Any]]:
        """Return the documents since the last call."""
        found, self.got = self.got, []
        return [body for __, body, __ in found]


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    found = Hooks()
    yield found
    found.server.shutdown()
    found.server.server_close()


FAILED = {"failed": True, "msg": "manifests/a.yaml:3: wrong"}
CHANGED = {"changed": True, "summary": {"clusters": 2, "placed": 3, "pending": 0, "objects": 9}, "clusters": {}}


def notify(
    result: Mapping[str, Any], *hooks: Mapping[str, Any], check_mode: bool = False, **more: Any
) -> dict[str, Any]:
    found = run_module(notification, {"hooks": list(hooks), "result": result, **more}, check_mode=check_mode)
    assert not found["failed"], found
    assert SECRET not in json.dumps(found)
    return found


def test_a_hook_gets_what_it_asks_for(hooks: Hooks) -> None:
    headers = {"Authorization": f"Bearer {SECRET}"}
    found = notify(
        CHANGED,
        {"url": hooks.url},
        {"url": hooks.url, "events": ["changed"], "headers": headers},
        {"url": hooks.url, "events": ["changed"], "format": "slack"},
        run={"play": "Reconcile"},
    )
    assert (found["sent"], found["failed_hooks"], found["changed"]) == (2, [], False)
    assert [authorization for __, __, authorization in hooks.got] == [f"Bearer {SECRET}", ""]
    document, message = hooks.take()
    assert document == found["notification"]
    assert (document["outcome"], document["run"]) == ("changed", {"play": "Reconcile"})
    assert message == {"text": "*Fleet default: changed*"}


def test_an_event_of_the_event_source_is_posted_and_not_kept(hooks: Hooks, tmp_path: Path) -> None:
    memory = tmp_path / "notified.json"
    event = {"type": "cluster_lost", "cluster": "west", "reason": "Unreachable", "message": "timed out"}
    arguments = {"hooks": [{"url": hooks.url}, {"url": hooks.url, "events": ["pending"]}], "event": event}
    found = run_module(notification, {**arguments, "memory": str(memory)})
    (document,) = hooks.take()
    assert document == found["notification"]
    assert document["text"] == "Fleet default: cluster lost. cluster west: Unreachable: timed out"
    assert not memory.exists()
    hooks.codes = [403]
    refused = run_module(notification, arguments)
    assert refused["failed_hooks"] == [f"hook 1: {hooks.address} answers with HTTP 403"]
    assert "warnings" not in refused or refused["warnings"] == []
    for wrong in ({"hooks": []}, {**arguments, "result": {}}, {**arguments, "event": {**event, "type": "x"}}):
        assert run_module(notification, wrong)["failed"]


def test_check_mode_posts_nothing(hooks: Hooks) -> None:
    found = notify(FAILED, {"url": hooks.url}, check_mode=True)
    assert (found["sent"], hooks.got) == (1, [])


@pytest.mark.parametrize(
    ("codes", "posts", "why"),
    [
        ([503, 429], 3, ""),
        ([500, 500, 500], 3, "answers with HTTP 500"),
        ([403], 1, "answers with HTTP 403"),
        ([302], 1, "answers with HTTP 302"),
    ],
)
def test_a_server_that_is_busy_is_asked_again(hooks: Hooks, codes: list[int], posts: int, why: str) -> None:
    hooks.codes = [*codes]
    found = notify(FAILED, {"url": hooks.url})
    assert len(hooks.got) == posts
    assert found["failed_hooks"] == ([f"hook 1: {hooks.address} {why}"] if why else [])
    assert bool(found["warnings"]) == bool(why)


def test_a_server_that_is_out_of_reach_is_a_warning(hooks: Hooks) -> None:
    closed = Hooks()
    closed.server.shutdown()
    closed.server.server_close()
    found = notify(FAILED, {"url": closed.url}, {"url": hooks.url}, retries=0)
    assert (found["sent"], len(hooks.take())) == (1, 1)
    (warning,) = found["warnings"]
    assert warning.startswith(f"fleet_notify: hook 1: no connection to {closed.address}: ")


def test_what_stays_wrong_is_posted_once_and_that_it_is_well_again(hooks: Hooks, tmp_path: Path) -> None:
    hook = {"url": hooks.url, "events": ["failed", "recovered"]}
    memory = str(tmp_path / "notified.json")
    hooks.codes = [403]
    outcomes = []
    for result in (FAILED, FAILED, FAILED, CHANGED, CHANGED):
        notify(result, hook, memory=memory)
        outcomes.append([body["outcome"] for body in hooks.take()])
    # The first one was refused.
    assert outcomes == [["failed"], ["failed"], [], ["recovered"], []]
    missing = notify(FAILED, hook, memory=str(tmp_path / "no/folder/notified.json"))
    assert "posts again what stays wrong" in missing["warnings"][0]


def test_playbooks_post_what_is_pending_and_why_a_run_fails(hooks: Hooks, tmp_path: Path) -> None:
    fleet = {"fleet_build": str(tmp_path / "build"), "fleet_resources": str(QUICKSTART), "fleet_name": "prod"}
    notify_hook = [{"url": hooks.url}, {"url": f"{hooks.address}/refused", "events": ["failed"]}]
    first = play("reconcile", **fleet, fleet_notify=notify_hook)
    (document,) = hooks.take()
    assert (document["fleet"], document["events"]) == ("prod", ["pending", "changed"])
    assert document["wrong"][0]["subject"] == "deployment research/kimi-k2"
    assert document["run"] == {"play": "Reconcile the fleet"}
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("kind: ModelDeployment\n")
    hooks.codes = [403, 403]
    failing = play("reconcile", **{**fleet, "fleet_resources": str(wrong)}, fleet_notify=notify_hook, awx_job_id=4711)
    bodies = hooks.take()
    assert {body["outcome"] for body in bodies} == {"failed"}
    assert bodies[0]["wrong"][0]["reason"].startswith(f"1 error in the manifests: {wrong}:1, document 1, apiVersion: ")
    assert f"fleet_notify: hook 2: {hooks.address} answers with HTTP 403" in " ".join(failing.split())
    assert "failed=1" in failing
    assert "failed=0" in first
    assert SECRET not in first + failing
    checked = play("reconcile", "--check", **{**fleet, "fleet_resources": str(wrong)}, fleet_notify=notify_hook)
    assert "Check mode: 2 webhooks would get: Fleet prod: the run failed. the run: " in " ".join(checked.split())
    assert hooks.take() == []
