# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The build folder after runs that were killed, files that were cut off, and power failures."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import (
    HEADER,
    PLAN_FILE,
    REPORT_FILE,
    STATE_HEADER,
    Changes,
    DirectoryStore,
    StoreError,
    is_state,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.observed_fleet import Fleet
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.stores.sample_builds import (
    ROOT,
    SAMPLE,
    grown,
    settings,
    tree,
)

SCRIPT = """
import sys
sys.path.insert(0, {path!r})
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build, fleet_inputs
print("ready", flush=True)
sys.stdin.readline()
build.build(fleet_inputs.Settings(({resources!r},), {folder!r}))
"""


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


def without_history(files: dict[str, str]) -> dict[str, str]:
    """Return the files without the digests of earlier plans, which are lost with the plan file."""
    plan = {key: value for key, value in json.loads(files["plan.json"]).items() if key != "replicaDigests"}
    return {**files, "plan.json": json.dumps(plan)}


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
                assert without_history(tree(again)) == without_history(desired), (count, mode)
