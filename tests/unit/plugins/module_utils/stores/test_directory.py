# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The build folder: what it changes, what it never touches, and what a lock keeps out."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Seen
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import (
    HEADER,
    LOCK_FILE,
    PLAN_FILE,
    REPORT_FILE,
    Changes,
    DirectoryStore,
    StoreError,
    is_state,
    object_path,
    write_report,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.stores.sample_builds import (
    SAMPLE,
    settings,
    tree,
)


def test_a_build_from_nothing_and_again(tmp_path: Path) -> None:
    first = build.build(settings(tmp_path / "build"))
    assert first.changes.added
    assert not first.changes.changed
    assert tree(tmp_path / "build").keys() == set(first.changes.added) - {REPORT_FILE}
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "build").rglob("*.yaml")}
    assert not build.build(settings(tmp_path / "build")).changes
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "build").rglob("*.yaml")}


def test_check_mode_reports_and_touches_nothing(tmp_path: Path) -> None:
    reported = build.build(settings(tmp_path / "build", check_mode=True))
    assert not (tmp_path / "build").exists()
    assert reported.changes == build.build(settings(tmp_path / "build")).changes


def test_a_namespace_comes_before_what_is_in_it() -> None:
    namespace = object_path("clusters/a", {"kind": "Namespace", "metadata": {"name": "n"}})
    inside = object_path("clusters/a", {"kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}})
    assert sorted([inside, namespace]) == [namespace, inside]


def test_an_object_with_the_longest_name_has_a_file(tmp_path: Path) -> None:
    names = ["a" * length for length in (234, 235, 252, 253)] + ["a" * 252 + "b"]
    files = [object_path("control", {"kind": "AIGatewayRoute", "metadata": {"name": name}}) for name in names]
    assert files[0] == f"control/cluster-scoped/aigatewayroute-{names[0]}.yaml"
    assert files[1] == f"control/cluster-scoped/aigatewayroute-{names[1]}.yaml"
    assert len(set(files)) == len(names)
    (tmp_path / "control/cluster-scoped").mkdir(parents=True)
    for file in files:
        (tmp_path / file).touch()
    assert is_state(object_path("control", {"kind": "ModelEndpoint", "metadata": {"name": names[-1]}}))


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
    with pytest.raises(StoreError, match="is inside the manifests folder"):
        build.build(settings(tmp_path / "manifests" / "build", tmp_path / "manifests"))


def test_a_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "build").write_text("")
    with pytest.raises(StoreError, match="needs a folder"):
        build.build(settings(tmp_path / "build"))


def test_a_replica_that_was_edited_by_hand_is_an_error(tmp_path: Path) -> None:
    build.build(settings(tmp_path))
    replica = next((tmp_path / "control").rglob("modelreplica-*.yaml"))
    replica.write_text(HEADER + "kind: [")
    with pytest.raises(StoreError, match="was modified"):
        build.build(settings(tmp_path))


def test_a_held_lock_stops_the_second_run_with_the_name_of_the_first(tmp_path: Path) -> None:
    with DirectoryStore(str(tmp_path)).lock(0), pytest.raises(StoreError, match=f"in use by process {os.getpid()} on"):
        build.build(settings(tmp_path, lock_timeout=0.2))


def test_who_waits_for_the_folder_sees_who_holds_it_and_since_when(tmp_path: Path) -> None:
    holder = DirectoryStore(str(tmp_path)).lock(0)
    holder.__enter__()
    shown: list[str] = []

    @contextlib.contextmanager
    def progress(*awaited: str) -> Iterator[Seen]:
        shown.append("|".join(awaited))

        def seen(text: str) -> None:
            shown.append(text)
            holder.__exit__(None, None, None)

        yield seen
        shown.append("over")

    with DirectoryStore(str(tmp_path)).lock(3600, progress):
        begun, text, over = shown
    assert (begun, over) == (f"|the lock of the build folder {tmp_path}|", "over")
    now = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    assert re.fullmatch(rf"held by process {os.getpid()} on {re.escape(os.uname().nodename)} since {now}", text)
    with DirectoryStore(str(tmp_path)).lock(0, progress):
        assert len(shown) == 3


@contextlib.contextmanager
def rights_of_no_one() -> Iterator[None]:
    """Root may write everything, whatever its mode says."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_may_only_be_read_is_enough_for_a_run_that_changes_nothing() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        folder, manifests = Path(place, "build"), Path(place, "manifests")
        shutil.copytree(SAMPLE, manifests)
        build.build(settings(folder, manifests))
        folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
        for path in folders:
            path.chmod(0o555)
        try:
            with rights_of_no_one():
                with pytest.raises(PermissionError):
                    (folder / "file").write_text("")
                assert not build.build(settings(folder, manifests)).changes
                models = manifests / "models.yaml"
            models.write_text(models.read_text().replace("replicas: 2", "replicas: 1"))
            before = tree(folder)
            with rights_of_no_one(), pytest.raises(StoreError, match=f"{folder} cannot be written: Permission denied"):
                build.build(settings(folder, manifests))
            assert tree(folder) == before
        finally:
            for path in folders:
                path.chmod(0o755)


def test_who_may_only_read_waits_for_who_writes() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        folder = Path(place, "build")
        with DirectoryStore(str(folder)).lock(0):
            folder.chmod(0o555)
            (folder / LOCK_FILE).chmod(0o444)
            try:
                with (
                    rights_of_no_one(),
                    pytest.raises(StoreError, match=f"in use by process {os.getpid()} on"),
                    DirectoryStore(str(folder)).lock(0.2),
                ):
                    pass
            finally:
                folder.chmod(0o755)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("control/x.yaml", "kind: ConfigMap\n"),
        ("control/cluster-scoped/x.yaml", "- a\n"),
        ("control/namespaces/x.yaml", "modelplane.ai/endpoint: x\n"),
        ("clusters/x.yaml", "kind: [\n"),
        ("status/x.yaml", "kind: Service\n"),
        ("status/namespaces/team/modeldeployment-x.yaml", "kind: ModelDeployment\nmetadata: {name: x}\n"),
        ("status/namespaces/team/modeldeployment-y.yaml", "metadata: []\nstatus: {}\n"),
        ("status/namespaces/team/modeldeployment-z.yaml", "a: 1\n---\nb: 2\n"),
    ],
)
def test_what_a_user_wrote_by_hand_with_our_first_line_goes(built: Path, tmp_path: Path, name: str, text: str) -> None:
    shutil.copytree(built, tmp_path / "build")
    path = tmp_path / "build" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEADER + text)
    reported = build.build(settings(tmp_path / "build"))
    assert reported.changes.removed == (name,)
    assert tree(tmp_path / "build") == tree(built)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("control/namespaces/team/modelreplica-x.yaml", "{}\n"),
        ("control/namespaces/team/modelreplica-x.yaml", "---\n"),
        ("control/namespaces/team/modelreplica-x.yaml", "kind: ConfigMap\napiVersion: v1\nmetadata: {name: x}\n"),
        ("status/cluster-scoped/inferencecluster-x.yaml", "kind: InferenceCluster\nmetadata: {name: x}\n"),
        ("status/cluster-scoped/inferencecluster-x.yaml", "kind: InferenceCluster\nstatus: {}\n"),
    ],
)
def test_state_that_a_user_wrote_by_hand_is_named(built: Path, tmp_path: Path, name: str, text: str) -> None:
    shutil.copytree(built, tmp_path / "build")
    path = tmp_path / "build" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEADER + text)
    with pytest.raises(StoreError, match=re.escape(f"{path} was modified")):
        build.build(settings(tmp_path / "build"))


def test_a_link_that_appears_while_a_run_writes_is_not_followed(built: Path, tmp_path: Path) -> None:
    folder, outside = tmp_path / "build", tmp_path / "outside"
    shutil.copytree(built, folder)
    outside.mkdir()
    store = DirectoryStore(str(folder))
    before = store.read()
    name = next(name for name in before if name.startswith("clusters/") and "/namespaces/" in name)
    there = folder / name
    shutil.rmtree(there.parent)
    there.parent.symlink_to(outside)
    for changes in (Changes((name,), (), ()), Changes((), (), (name,))):
        (outside / there.name).write_text("mine")
        with pytest.raises(StoreError, match=re.escape(f"{there.parent} is a link")):
            store.write(before, changes)
        assert {path.name: path.read_text() for path in outside.iterdir()} == {there.name: "mine"}


def test_the_build_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "build").symlink_to(tmp_path / "volume")
    build.build(settings(tmp_path / "build"))
    assert (tmp_path / "volume" / PLAN_FILE).is_file()
    assert not build.build(settings(tmp_path / "build")).changes


def test_kubernetes_readers_take_the_end_of_state_for_the_end(built: Path) -> None:
    replica = next((built / "control").rglob("modelreplica-*.yaml"))
    assert replica.read_text().endswith("\n...\n")
    assert yaml_load(replica.read_text())["kind"] == "ModelReplica"


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


def test_a_page_elsewhere_replaces_a_page_alone(built: Path, tmp_path: Path) -> None:
    page, path = (built / "report.html").read_text(), tmp_path / "fleet.html"
    for _ in range(2):
        write_report(str(path), page)
        assert path.read_text() == page
    (tmp_path / "own.json").write_text("{}")
    for taken in (tmp_path / "own.json", tmp_path, tmp_path / "nowhere" / "fleet.html"):
        before = taken.read_bytes() if taken.is_file() else b""
        with pytest.raises(StoreError, match="fleet_report"):
            write_report(str(taken), page)
        assert (taken.read_bytes() if taken.is_file() else b"") == before
