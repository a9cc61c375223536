# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The build folder: what it changes, what it never touches, and what a lock or a killed run leaves."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils import build
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import (
    HEADER,
    LOCK_FILE,
    REPORT_FILE,
    Changes,
    DirectoryStore,
    StoreError,
    object_path,
)

ROOT = Path(__file__).parents[5]
SAMPLE = ROOT / "inventories/quickstart/manifests"
SCRIPT = """
import sys
sys.path.insert(0, {path!r})
from ansible_collections.modelplane.fleet.plugins.module_utils import build
print("ready", flush=True)
sys.stdin.readline()
build.build(build.Settings(({resources!r},), {folder!r}))
"""


def tree(folder: Path) -> dict[str, str]:
    """All files of a build but the picture, which tells what the last run changed."""
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (LOCK_FILE, REPORT_FILE)
    }


def settings(folder: Path, resources: Path = SAMPLE, **more: object) -> build.Settings:
    return build.Settings((str(resources),), str(folder), **more)  # type: ignore[arg-type]


def grown(tmp_path: Path) -> Path:
    """The sample with more replicas here, fewer there, and a deployment less: additions, changes and removals."""
    folder = tmp_path / "grown"
    shutil.copytree(SAMPLE, folder)
    models = folder / "models.yaml"
    documents = models.read_text().split("\n---\n")
    kept = [
        text.replace("replicas: 2", "replicas: 4") for text in documents if "name: qwen3-8b\n  namespace" not in text
    ]
    assert len(kept) == len(documents) - 1
    models.write_text("\n---\n".join(kept))
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build folder of the sample. To be copied, not changed."""
    folder = tmp_path_factory.mktemp("built") / "build"
    build.build(settings(folder))
    return folder


def test_a_build_from_nothing_and_again(tmp_path: Path) -> None:
    first = build.build(settings(tmp_path / "build"))
    assert first.changes.added
    assert not first.changes.changed
    assert tree(tmp_path / "build").keys() == set(first.changes.added) - {REPORT_FILE}
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "build").rglob("*.yaml")}
    assert not build.build(settings(tmp_path / "build")).changes
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "build").rglob("*.yaml")}


def test_check_mode_tells_and_touches_nothing(tmp_path: Path) -> None:
    told = build.build(settings(tmp_path / "build", check_mode=True))
    assert not (tmp_path / "build").exists()
    assert told.changes == build.build(settings(tmp_path / "build")).changes


def test_a_namespace_comes_before_what_is_in_it() -> None:
    namespace = object_path("clusters/a", {"kind": "Namespace", "metadata": {"name": "n"}})
    inside = object_path("clusters/a", {"kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}})
    assert sorted([inside, namespace]) == [namespace, inside]


def test_what_is_not_ours_is_refused_and_left(tmp_path: Path) -> None:
    build.build(settings(tmp_path))
    foreign = tmp_path / "clusters" / "byo-us-east" / "mine.yaml"
    foreign.write_text("kind: ConfigMap\n")
    with pytest.raises(StoreError, match="was not written by modelplane"):
        build.build(settings(tmp_path))
    assert foreign.read_text() == "kind: ConfigMap\n"


@pytest.mark.parametrize("name", ["README.md", "clusters/.keep", ".git/config", "other/x.yaml"])
def test_files_beside_ours_stay(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    build.build(settings(tmp_path))
    assert path.read_text() == "mine"


PLACES = (
    LOCK_FILE,
    "plan.json",
    REPORT_FILE,
    "control",
    "clusters",
    "status",
    "control/namespaces",
    "control/namespaces/more.yaml",
    "clusters/byo-us-east",
    "control/cluster-scoped/inferencecluster-byo-us-east.yaml",
)


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        *(("link", place) for place in PLACES),
        *((kind, place) for kind in ("link to nowhere", "FIFO", "socket") for place in (LOCK_FILE, *PLACES[-1:])),
        *(("link to a folder", place) for place in ("plan.json", "control", "clusters/byo-us-east")),
    ],
)
def test_what_a_build_never_makes_is_refused_by_name(built: Path, tmp_path: Path, kind: str, place: str) -> None:
    folder, outside = tmp_path / "build", tmp_path / "outside"
    shutil.copytree(built, folder)
    outside.mkdir()
    (outside / "victim").write_text("mine")
    path = folder / place
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, 0o600 | stat.S_IFSOCK)
    else:
        path.symlink_to({"link": outside / "victim", "link to a folder": outside}.get(kind, outside / "nowhere"))
    before = tree(folder)
    with pytest.raises(StoreError, match=re.escape(f"{path} is a {kind.split()[0]}")):
        build.build(settings(folder))
    assert (outside / "victim").read_text() == "mine"
    assert sorted(each.name for each in outside.iterdir()) == ["victim"]
    assert tree(folder) == before


@pytest.mark.parametrize("name", [".plan.json.modelplane-tmp", f".{REPORT_FILE}.modelplane-tmp"])
def test_nothing_is_written_through_names_of_files_that_are_half_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "build" / name).symlink_to(tmp_path / "victim")
    build.build(settings(tmp_path / "build"))
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (tmp_path / "build" / name).is_symlink()


def test_a_build_folder_inside_the_manifests_is_refused(tmp_path: Path) -> None:
    shutil.copytree(SAMPLE, tmp_path / "manifests")
    with pytest.raises(StoreError, match="lies inside the manifests folder"):
        build.build(settings(tmp_path / "manifests" / "build", tmp_path / "manifests"))


def test_a_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "build").write_text("")
    with pytest.raises(StoreError, match="needs a folder"):
        build.build(settings(tmp_path / "build"))


def test_a_replica_that_was_edited_by_hand_is_an_error(tmp_path: Path) -> None:
    build.build(settings(tmp_path))
    replica = next((tmp_path / "control").rglob("modelreplica-*.yaml"))
    replica.write_text(HEADER + "kind: [")
    with pytest.raises(StoreError, match="no longer what was written there"):
        build.build(settings(tmp_path))


def test_a_held_lock_stops_the_second_run_with_the_name_of_the_first(tmp_path: Path) -> None:
    with DirectoryStore(str(tmp_path)).lock(0), pytest.raises(StoreError, match=f"in use by process {os.getpid()} on"):
        build.build(settings(tmp_path, lock_timeout=0.2))


@pytest.mark.integration
def test_two_runs_at_once_both_end_well(tmp_path: Path) -> None:
    runs = [start(tmp_path / "build", SAMPLE) for _ in range(2)]
    for run in runs:
        run.stdin.write("go\n")
        run.stdin.flush()
    assert [run.wait(timeout=60) for run in runs] == [0, 0]
    assert not build.build(settings(tmp_path / "build")).changes


def start(folder: Path, resources: Path) -> subprocess.Popen[str]:
    script = SCRIPT.format(path=str(ROOT / ".collections"), resources=str(resources), folder=str(folder))
    run = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "ready\n"
    return run


@pytest.mark.integration
def test_a_run_that_is_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    """Killed at many moments while it changes a fleet: the next run ends where an undisturbed one does."""
    resources = grown(tmp_path)
    build.build(settings(tmp_path / "start"))
    shutil.copytree(tmp_path / "start", tmp_path / "undisturbed")
    build.build(settings(tmp_path / "undisturbed", resources))
    wanted = tree(tmp_path / "undisturbed")
    told = build.build(settings(tmp_path / "start", resources, check_mode=True))
    first = next(name for name in DirectoryStore.order(told.changes) if name in told.changes.added)
    partial = attempt = 0
    # On a busy machine a run may be over before the signal arrives, so there may be more attempts than wanted.
    while attempt < 12 or (not partial and attempt < 60):
        folder = tmp_path / f"killed-{attempt}"
        shutil.copytree(tmp_path / "start", folder)
        run = start(folder, resources)
        run.stdin.write("go\n")
        run.stdin.flush()
        # The whole write takes milliseconds: wait until its first new file is there, then a little.
        deadline = time.monotonic() + 20
        while run.poll() is None and not (folder / first).exists() and time.monotonic() < deadline:
            pass
        time.sleep(attempt % 12 * 0.0004)
        run.send_signal(signal.SIGKILL)
        run.wait()
        partial += tree(folder) not in (tree(tmp_path / "start"), wanted)
        build.build(settings(folder, resources))
        assert tree(folder) == wanted
        attempt += 1
    assert partial, "no run was killed half-way, so nothing was tested"


def test_every_half_written_state_leads_to_the_same_end(tmp_path: Path) -> None:
    """The same without luck: after each single file of the change."""
    resources = grown(tmp_path)
    build.build(settings(tmp_path / "start"))
    told = build.build(settings(tmp_path / "start", resources, check_mode=True))
    shutil.copytree(tmp_path / "start", tmp_path / "undisturbed")
    build.build(settings(tmp_path / "undisturbed", resources))
    wanted = tree(tmp_path / "undisturbed")
    # Check mode draws no picture.
    everything = [name for name in DirectoryStore.order(told.changes) if name != REPORT_FILE]
    assert len(everything) > 20
    for count in range(0, len(everything), 3):
        folder = tmp_path / "half"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "start", folder)
        done = set(everything[:count])
        part = Changes(*(tuple(name for name in names if name in done) for names in vars(told.changes).values()))
        DirectoryStore(str(folder)).write(told.after, part)
        build.build(settings(folder, resources))
        assert tree(folder) == wanted, f"after {count} files"


def test_text_that_some_reader_takes_for_something_else_is_quoted() -> None:
    ambiguous = [
        "1e3",
        "0o17",
        "0x1f",
        "12:30",
        "2026-01-01",
        "y",
        "No",
        "~",
        "null",
        "1_000",
        ".5",
        "+1",
        "-",
        "=",
        "",
    ]
    written = to_yaml({"values": ambiguous})
    for line, text in zip(written.splitlines()[1:], ambiguous, strict=True):
        assert line in (f'- "{text}"', f"- '{text}'"), line
