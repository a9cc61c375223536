# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The build folder: what it changes, what it never touches, and what a lock or a killed run leaves."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
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
    STATE_HEADER,
    Changes,
    DirectoryStore,
    StoreError,
    is_state,
    object_path,
    write_report,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build

sys.path.insert(0, str(Path(__file__).parents[1]))

from observed_fleet import Fleet

ROOT = Path(__file__).parents[5]
SAMPLE = ROOT / "inventories/quickstart/manifests"
SCRIPT = """
import sys
sys.path.insert(0, {path!r})
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build
print("ready", flush=True)
sys.stdin.readline()
build.build(build.Settings(({resources!r},), {folder!r}))
"""


def tree(folder: Path) -> dict[str, str]:
    """All files of a build but the report, which has what the last run changed."""
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
    desired = tree(tmp_path / "undisturbed")
    reported = build.build(settings(tmp_path / "start", resources, check_mode=True))
    first = next(name for name in DirectoryStore.order(reported.changes) if name in reported.changes.added)
    partial = attempt = 0
    # On a busy machine a run may be over before the signal arrives, so there may be more attempts than desired.
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
        partial += tree(folder) not in (tree(tmp_path / "start"), desired)
        build.build(settings(folder, resources))
        assert tree(folder) == desired
        attempt += 1
    assert partial, "no run was killed half-way, so nothing was tested"


def test_every_half_written_state_leads_to_the_same_end(tmp_path: Path) -> None:
    """The same without luck: after each single file of the change."""
    resources = grown(tmp_path)
    build.build(settings(tmp_path / "start"))
    reported = build.build(settings(tmp_path / "start", resources, check_mode=True))
    shutil.copytree(tmp_path / "start", tmp_path / "undisturbed")
    build.build(settings(tmp_path / "undisturbed", resources))
    desired = tree(tmp_path / "undisturbed")
    # Check mode draws no picture.
    everything = [name for name in DirectoryStore.order(reported.changes) if name != REPORT_FILE]
    assert len(everything) > 20
    for count in range(0, len(everything), 3):
        folder = tmp_path / "half"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "start", folder)
        done = set(everything[:count])
        part = Changes(*(tuple(name for name in names if name in done) for names in vars(reported.changes).values()))
        DirectoryStore(str(folder)).write(reported.after, part)
        build.build(settings(folder, resources))
        assert tree(folder) == desired, f"after {count} files"


def cuts(text: str) -> list[str]:
    """The text cut at nothing, one character, half, before its last character, and after each line."""
    lines = text.splitlines(keepends=True)
    after_lines = ["".join(lines[:count]) for count in range(1, len(lines))]
    found = dict.fromkeys(["", text[:1], text[: len(text) // 2], text[:-1], *after_lines])
    return [cut for cut in found if cut != text]


def files(folder: Path) -> dict[str, str]:
    """All files but the picture, without the times since when a status holds: they are forgotten with it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != REPORT_FILE)
    return without_times({path.relative_to(folder).as_posix(): path.read_text() for path in paths})


def without_times(texts: Mapping[str, str]) -> dict[str, str]:
    return {
        name: re.sub("lastTransitionTime: .*", "lastTransitionTime: then", text)
        for name, text in texts.items()
        if name != REPORT_FILE
    }


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """A fleet with caches that was observed, so that all sorts of files are there. To be left as it is."""
    fleet = Fleet(tmp_path_factory.mktemp("settled"))
    fleet.declared = {"west"}
    fleet.settle()
    # What is on the clusters is whole, whatever becomes of files.
    there = fleet.observations()
    fleet.observations = lambda: there  # type: ignore[method-assign]
    return fleet


def test_state_that_was_cut_off_is_named_and_never_counts_as_absent(settled: Fleet) -> None:
    """As after a power failure."""
    state = {name: text for name, text in DirectoryStore(str(settled.built)).read().items() if is_state(name)}
    kinds = {name.rpartition("/")[2].partition("-")[0] for name in state}
    assert kinds == {"modelreplica", "modelendpoint", "persistentvolumeclaim", "job", "inferencecluster", "modelcache"}
    before = files(settled.built)
    for name, text in state.items():
        path = settled.built / name
        reported = re.escape(f"{path} was modified")
        for cut in cuts(text):
            path.write_text(cut)
            with pytest.raises(StoreError, match=reported):
                DirectoryStore(str(settled.built)).read()
        for run in (settled.run, settled.run_unseen):
            path.write_text(text.splitlines(keepends=True)[0])
            with pytest.raises(StoreError, match=reported):
                run()
            assert files(settled.built) == {**before, name: path.read_text()}
        path.write_text(text)


@pytest.mark.parametrize("observes", [True, False])
def test_what_is_made_of_state_is_made_again_wherever_it_was_cut(settled: Fleet, observes: bool) -> None:
    run = settled.run if observes else settled.run_unseen
    run()
    run()
    desired = files(settled.built)
    if not observes:
        # The state of what is not observed is unknown.
        desired = {name: text for name, text in desired.items() if is_state(name) or not name.startswith("status/")}
    whole = DirectoryStore(str(settled.built)).read()
    parts = {name: cuts(text) for name, text in whole.items() if not is_state(name) and name != REPORT_FILE}
    # After each line of short files, and of long ones after so many of their lines.
    parts = {name: [*found[:4], *found[4 :: len(found) // 40 + 1], found[-1]] for name, found in parts.items()}
    for number in range(max(map(len, parts.values()))):
        for name, found in parts.items():
            (settled.built / name).write_text(found[number % len(found)])
        reported = without_times(run(check_mode=True).after)
        assert {name: reported.get(name) for name in desired} == desired, number
        assert set(reported) == set(desired) or not observes
    run()
    left = files(settled.built)
    assert {name: left.get(name) for name in desired} == desired
    assert "" not in left.values()


def test_the_page_is_drawn_again_wherever_it_was_cut(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "build"
    shutil.copytree(built, folder)
    page = folder / REPORT_FILE
    text = page.read_text()
    head = text.index("<style>")
    for length in (*range(0, 70, 9), *range(70, head, 60), head, len(text) - 1):
        page.write_text(text[:length])
        build.build(settings(folder))
        assert page.read_text().endswith("</html>\n"), length
    foreign = "<!DOCTYPE html>\n<html><head></head></html>\n"
    page.write_text(foreign)
    with pytest.raises(StoreError, match="was not written by modelplane"):
        build.build(settings(folder))
    (folder / PLAN_FILE).write_text('{"mine": true}')
    page.unlink()
    with pytest.raises(StoreError, match="was not written by modelplane"):
        build.build(settings(folder))


def test_state_of_earlier_releases_has_no_end_and_is_read(built: Path, tmp_path: Path) -> None:
    shutil.copytree(built, tmp_path / "build")
    replicas = {path: path.read_text() for path in (tmp_path / "build/control").rglob("modelreplica-*.yaml")}
    for path, text in replicas.items():
        assert text.startswith(STATE_HEADER)
        path.write_text(text.replace(STATE_HEADER, HEADER).removesuffix("...\n"))
    reported = build.build(settings(tmp_path / "build"))
    assert {path.name for path in replicas} <= {name.rpartition("/")[2] for name in reported.changes.changed}
    assert not reported.changes.added
    assert replicas == {path: path.read_text() for path in replicas}
    for path, text in replicas.items():
        for cut in (HEADER, text.replace(STATE_HEADER, HEADER)[:-8]):
            path.write_text(cut)
            with pytest.raises(StoreError, match=re.escape(str(path))):
                build.build(settings(tmp_path / "build"))
        path.write_text(text)


def test_nothing_is_lost_of_what_cannot_be_made_again(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.settle()
    (route,) = (fleet.built / "control").rglob("httproute-*.yaml")
    text = route.read_text()
    fleet.edit("name: chat, namespace: team}\nspec:", "name: chat, namespace: team}\nspec: []\nmore:")
    fleet.run(invalid="hold")
    assert route.read_text() == text
    there = fleet.observations()
    fleet.observations = lambda: there  # type: ignore[method-assign]
    route.write_text("")
    with pytest.raises(StoreError, match=re.escape(f"{route} was modified")):
        fleet.run(invalid="hold")


class Disk:
    """Calls that change a folder, of which some are on the disk when the power fails."""

    def __init__(self, folder: Path, start: Mapping[str, str]) -> None:
        self.folder = folder
        self.start = start
        self.calls: list[tuple[str, str]] = []
        self.texts: dict[str, str] = {}

    def record(self, patch: pytest.MonkeyPatch) -> None:
        """Note writes, removals, and what is synced, in their order."""
        opened: dict[int, str] = {}
        original = {name: getattr(os, name) for name in ("open", "replace", "unlink", "fsync")}

        def place(name: str, folder: int | None) -> str:
            there = Path(os.readlink(f"/proc/self/fd/{folder}")) / name if folder is not None else Path(name)
            return os.path.relpath(there, self.folder)

        def record_open(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            descriptor = int(original["open"](path, flags, mode, dir_fd=dir_fd))
            opened[descriptor] = place(path, dir_fd)
            return descriptor

        def replace(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
            original["replace"](source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            name = place(target, dst_dir_fd)
            self.texts[name] = (self.folder / name).read_text()
            self.calls.append(("replace", name))
            synced = ("fsync", place(source, src_dir_fd))
            if synced in self.calls:
                self.calls[self.calls.index(synced)] = ("content", name)

        def unlink(name: str, *, dir_fd: int | None = None) -> None:
            original["unlink"](name, dir_fd=dir_fd)
            self.calls.append(("unlink", place(name, dir_fd)))

        def fsync(descriptor: int) -> None:
            original["fsync"](descriptor)
            self.calls.append(("fsync", opened[descriptor]))

        for name, call in (("open", record_open), ("replace", replace), ("unlink", unlink), ("fsync", fsync)):
            patch.setattr(os, name, call)

    def after(self, count: int, reached: Callable[[str, str], bool]) -> dict[str, str]:
        """The files when the power fails after so many calls. Of those calls that were not synced, these `reached` the
        disk, in whatever order they were made; content that was not synced is gone."""
        found = dict(self.start)
        contents = set()
        waiting: list[tuple[str, str]] = []

        def settle(calls: list[tuple[str, str]]) -> None:
            for call, name in calls:
                if call == "unlink":
                    found.pop(name, None)
                else:
                    found[name] = self.texts[name] if name in contents else ""

        for call, name in self.calls[:count]:
            if call == "content":
                contents.add(name)
            elif call == "fsync":
                settle([each for each in waiting if os.path.dirname(each[1]) == name.removeprefix("./")])
                waiting = [each for each in waiting if os.path.dirname(each[1]) != name.removeprefix("./")]
            else:
                waiting.append((call, name))
        settle([each for each in waiting if reached(*each)])
        return found


REACHED: dict[str, Callable[[str, str], bool]] = {
    "nothing": lambda _call, _name: False,
    "everything": lambda _call, _name: True,
    "removals": lambda call, _name: call == "unlink",
    "what is made of state": lambda _call, name: not is_state(name),
}


def test_every_power_failure_leaves_the_old_truth_or_the_new_one(tmp_path: Path) -> None:
    resources = grown(tmp_path)
    folder = tmp_path / "build"
    build.build(settings(folder))
    shutil.copytree(folder, tmp_path / "undisturbed")
    build.build(settings(tmp_path / "undisturbed", resources))
    desired = tree(tmp_path / "undisturbed")
    disk = Disk(folder, tree(folder))
    with pytest.MonkeyPatch.context() as patch:
        disk.record(patch)
        build.build(settings(folder, resources))
    assert tree(folder) == desired
    state = [(call, name) for call, name in disk.calls if is_state(name)]
    assert {"content", "replace", "unlink"} <= {call for call, _ in state}
    for count in range(len(disk.calls) + 1):
        for mode, reached in REACHED.items():
            left = disk.after(count, reached)
            there = {name for name in left if is_state(name)}
            assert all(left[name] in (disk.start.get(name), desired.get(name)) for name in there)
            assert set(filter(is_state, disk.start)) <= there or set(filter(is_state, desired)) <= there
            made = {name for name in left if not is_state(name)} - disk.start.keys()
            assert not made or set(filter(is_state, desired)) <= there, "state is there before what is made of it"
            if count % 29 == 0:
                again = tmp_path / f"again-{count}-{mode}"
                for name, text in left.items():
                    (again / name).parent.mkdir(parents=True, exist_ok=True)
                    (again / name).write_text(text)
                build.build(settings(again, resources))
                assert tree(again) == desired, (count, mode)


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
