# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A watch of a build folder, and of clusters that do not answer."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import incidents
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import (
    HEADER,
    document_text,
    object_path,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.incidents import Settings, Watch

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
PENDING = {"namespace": "ml-team", "deployment": "qwen", "reason": "InsufficientCapacity", "message": "no room"}
SILENT = "cluster east did not answer: timed out"


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def write_plan(folder: Path, *pending: dict[str, str], written: datetime = NOON) -> None:
    path = folder / "plan.json"
    placements = [{"namespace": "ml-team", "deployment": "qwen"}]
    path.write_text(document_text({"pending": list(pending), "placements": placements}))
    os.utime(path, (written.timestamp(), written.timestamp()))


def write_status(folder: Path, status: str, message: str = "") -> None:
    condition = {"type": "Ready", "status": status, "message": message, "lastTransitionTime": "2026-11-26T11:00:00Z"}
    value = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": "east"},
        "status": {"conditions": [condition]},
    }
    path = folder / object_path("status", value)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEADER + to_yaml(value))


def watch(folder: Path, clock: Clock, **more: Any) -> Watch:
    delays = {incidents.CLUSTER_LOST: 0.0, incidents.DEPLOYMENT_PENDING: 600.0}
    return Watch(Settings(build=str(folder), delays=delays, **more), clock)


def types(watch: Watch) -> list[tuple[str, str]]:
    found, problem = watch.turn()
    assert not problem
    return [(event.type, event.since) for event in found]


def test_a_build_folder_is_watched(tmp_path: Path) -> None:
    clock = Clock()
    write_plan(tmp_path, PENDING)
    write_status(tmp_path, "Unknown", SILENT)
    with watch(tmp_path, clock) as watched:
        assert types(watched) == [("cluster_lost", "2026-11-26T11:00:00Z")]
        clock.forward(600)
        assert types(watched) == [("deployment_pending", "2026-11-26T12:00:00Z")]
        write_plan(tmp_path, written=clock.now)
        write_status(tmp_path, "True")
        assert [kind for kind, __ in types(watched)] == ["cluster_recovered", "deployment_placed"]
        assert types(watched) == []


def test_a_restart_repeats_nothing(tmp_path: Path) -> None:
    clock, state = Clock(), str(tmp_path / "incidents.json")
    build = tmp_path / "build"
    build.mkdir()
    write_plan(build, PENDING, written=NOON - timedelta(hours=1))
    for expected in ([("deployment_pending", "2026-11-26T11:00:00Z")], [], []):
        with watch(build, clock, state=state) as watched:
            assert types(watched) == expected
            watched.remember()
    with watch(build, clock) as forgetful:
        assert len(types(forgetful)) == 1


def test_an_event_that_was_not_delivered_comes_again(tmp_path: Path) -> None:
    clock, state = Clock(), str(tmp_path / "incidents.json")
    build = tmp_path / "build"
    build.mkdir()
    write_plan(build, PENDING, written=NOON - timedelta(hours=1))
    for __ in range(2):
        with watch(build, clock, state=state) as watched:
            assert len(types(watched)) == 1


def test_a_folder_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    clock = Clock()
    write_plan(tmp_path, PENDING, written=NOON - timedelta(hours=1))
    with watch(tmp_path, clock) as watched:
        assert len(types(watched)) == 1
        (tmp_path / "plan.json").write_text("{")
        found, problem = watched.turn()
        assert not found
        assert "plan.json" in problem
        write_plan(tmp_path, PENDING)
        assert types(watched) == []
    with watch(tmp_path / "none", clock) as missing:
        assert "no build folder" in missing.turn()[1]


def test_files_that_did_not_change_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plan(tmp_path)
    write_status(tmp_path, "True")
    with watch(tmp_path, Clock()) as watched:
        assert types(watched) == []
        monkeypatch.setattr("builtins.open", None)
        monkeypatch.setattr(os, "open", None)
        assert types(watched) == []


def test_a_cluster_that_does_not_answer_is_lost(tmp_path: Path) -> None:
    # Nothing listens on port 1.
    east = Connection("east", server="https://127.0.0.1:1", token="hidden-token", retries=0, timeout=5.0)
    write_plan(tmp_path)
    write_status(tmp_path, "True")
    with watch(tmp_path, Clock(), clusters=[east]) as watched:
        found, problem = watched.turn()
    assert not problem
    document = found[0].document()
    assert (document["type"], document["cluster"], document["reason"]) == ("cluster_lost", "east", "Unreachable")
    assert "refused" in document["message"]
    assert "hidden-token" not in str(document)


def test_a_control_cluster_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    control = Connection("control", server="https://127.0.0.1:1", retries=0, timeout=5.0)
    with Watch(Settings(control=control, state=str(tmp_path / "incidents.json"))) as watched:
        found, problem = watched.turn()
        watched.remember()
    assert not found
    assert "refused" in problem
    assert not (tmp_path / "incidents.json").exists()


def test_a_connection_that_cannot_be_right_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="kubeconfig"):
        Watch(Settings(clusters=[Connection("east", kubeconfig=str(tmp_path / "none"))]))
