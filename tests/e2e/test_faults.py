# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whatever breaks while a run is at work, one run that nothing disturbs ends where a run without the fault ends.

The fleet goes from stage to stage. `course.wanted` has what undisturbed runs make of each stage; every test breaks
something on the way to a stage, lets one run follow, and compares all objects.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.faulty_proxy import REFUSED, SILENT, FaultyProxy, Odds
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import LiveFleet, Run
from ansible_collections.modelplane.fleet.tests.e2e.snapshots import Snapshot, differences, serving, snapshot
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.kube.fleet import Fleet
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

SEED = 20
KILLS = 20
# Of so many kills one hits ansible-playbook alone: what it has started works on for a while.
ALONE = 4
# Controllers, not runs, delete what is owned by something that went.
SETTLE_SECONDS = 60.0
TOKEN = "proxy-token-3f1c"

_DRAINED = {"key": "test", "effect": "NoExecute"}
_BASE = fleets.CLASSES + fleets.cluster("west", region="west")
_EAST = fleets.cluster("east", region="east")
_CACHED = {"modelCacheRef": {"name": "weights"}}
_ONE = fleets.cache("weights") + fleets.deployment("chat", 2, **_CACHED) + fleets.service("chat", "chat")
_WEST = {"matchLabels": {"region": "west"}}
_CODE = fleets.deployment("code", 1, clusterSelector=_WEST) + fleets.service("code", "code")

STAGES = {
    "one": _BASE + _EAST + _ONE,
    "two": _BASE + _EAST + _ONE + _CODE,
    "edited": _BASE + _EAST + _ONE.replace("v0.23.0", "v0.24.0") + _CODE,
    "drained": _BASE + fleets.cluster("east", _DRAINED, region="east") + _ONE.replace("v0.23.0", "v0.24.0") + _CODE,
    "empty": _BASE + _EAST,
}
# How many pods of `chat` serve at any time on the way to a stage. Rollouts have no surge, and go cluster by cluster.
FLOORS = {"two": 2, "edited": 1, "drained": 2}
# Where no pod that serves has a reason to go.
ADDING = ("one", "two")


@dataclass
class Course:
    """The fleet on its way through the stages, again and again."""

    live: LiveFleet
    stage: str = ""
    wanted: dict[str, Snapshot] = field(default_factory=dict)
    timelines: dict[str, list[float]] = field(default_factory=dict)
    """Seconds from the start of an undisturbed run to each of its tasks, and to its end."""

    def declare(self, stage: str) -> None:
        self.live.write("fleet.yaml", STAGES[stage])

    def run(self) -> Run:
        return self.live.run("reconcile")

    def measured(self, stage: str) -> Run:
        self.declare(stage)
        watched = Watched(self.live.start("reconcile"))
        watched.process.wait(600)
        watched.end()
        self.timelines[stage] = [*watched.tasks, time.monotonic() - watched.began]
        assert watched.process.returncode == 0, watched.output()
        self.stage = stage
        return Run(0, {}, watched.output())

    def arrive(self, stage: str) -> None:
        """Undisturbed, unless the fleet is there."""
        for each in _between(self.stage, stage):
            self.declare(each)
            self.run().ok()
            self.stage = each

    def compare(self, stage: str, told: str = "") -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while (found := differences(self.wanted[stage], snapshot(self.live))) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert not found, f"{found}\n{told}"
        self.stage = stage


@dataclass
class Watched:
    """A run whose tasks are noticed as they begin."""

    process: subprocess.Popen[str]
    began: float = field(default_factory=time.monotonic)
    tasks: list[float] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.append(line)
            if line.startswith("TASK ["):
                self.tasks.append(time.monotonic() - self.began)

    def wait_for(self, ready: Callable[[], bool]) -> bool:
        """Whether it was so before the run ended."""
        while not ready():
            if self.process.poll() is not None:
                return False
            time.sleep(0.01)
        return True

    def wait_for_task(self, name: str) -> bool:
        return self.wait_for(lambda: any(name in line for line in self.lines))

    def end(self) -> int:
        code = self.process.wait(600)
        self._reader.join(10)
        return code

    def output(self) -> str:
        return "".join(self.lines)


class Sentinel:
    """Watches pods that serve: how few of `chat` there were at a time, and which of them went."""

    def __init__(self, live: LiveFleet) -> None:
        self._live = live
        self._stopped = threading.Event()
        self._now: dict[str, dict[str, str]] = {name: serving(plane) for name, plane in live.workloads.items()}
        self.before = self._all()
        self.fewest = self._count()
        self.gone: set[str] = set()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Sentinel:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._stopped.wait(0.2):
            self._look()

    def _look(self) -> None:
        for name, plane in self._live.workloads.items():
            # Pods serve on while their API server is away.
            with contextlib.suppress(ApiException, HTTPError, OSError):
                found = serving(plane)
                self.gone |= set(self._now[name]) - set(found)
                self._now[name] = found
        self.fewest = min(self.fewest, self._count())

    def _all(self) -> dict[str, str]:
        return {uid: deployment for pods in self._now.values() for uid, deployment in pods.items()}

    def _count(self) -> int:
        return sum(deployment == "chat" for deployment in self._all().values())


@pytest.fixture(scope="module")
def course(live: LiveFleet) -> Course:
    """What undisturbed runs make of every stage, and how long they take."""
    live.settings |= {"fleet_wait": 60, "fleet_lease": 4, "fleet_timeout": 20}
    found = Course(live)
    for stage in STAGES:
        with Sentinel(live) as sentinel:
            found.measured(stage)
        assert sentinel.fewest >= FLOORS.get(stage, 0), f"on the way to {stage}, {sentinel.fewest} pods served"
        time.sleep(3)
        found.wanted[stage] = snapshot(live)
    return found


@pytest.fixture
def proxies(fleet: Fleet, tmp_path: Path, live: LiveFleet) -> Iterator[dict[str, FaultyProxy]]:
    """Every cluster is reached through a proxy of its own."""
    before = (dict(live.kubeconfigs), live.control_kubeconfig)
    with contextlib.ExitStack() as stack:
        made = {
            plane.name: stack.enter_context(FaultyProxy(plane, tmp_path / plane.name, TOKEN, SEED + number))
            for number, plane in enumerate(fleet.all)
        }
        live.kubeconfigs = {name: str(made[name].kubeconfig) for name in live.kubeconfigs}
        live.control_kubeconfig = str(made["control"].kubeconfig)
        yield made
    live.kubeconfigs, live.control_kubeconfig = before


def test_undisturbed_runs_end_in_the_same_place(course: Course) -> None:
    """Else no comparison would tell anything."""
    for stage in ("one", "two", "edited", "drained", "empty"):
        course.declare(stage)
        course.run().ok()
        course.compare(stage)
        again = course.run().ok()
        assert again.changed == 0, again.output


@pytest.mark.parametrize("name", ["west", "control"])
def test_an_api_server_is_killed_in_the_middle_of_an_apply(course: Course, fleet: Fleet, name: str) -> None:
    plane = fleet.control if name == "control" else fleet.workloads[name]
    course.arrive("empty")
    since = plane.audit_position()
    course.declare("one")
    watched = Watched(course.live.start("reconcile"))
    assert watched.wait_for(lambda: _written(plane, since) >= 4), watched.output()
    plane.kill_api_server()
    time.sleep(1)
    plane.start_api_server()
    code = watched.end()
    assert "Traceback" not in watched.output()
    with Sentinel(course.live) as sentinel:
        course.run().ok()
    assert not sentinel.gone
    course.compare("one", f"the disturbed run ended with {code}:\n{watched.output()}")


@pytest.mark.parametrize("how", [REFUSED, SILENT])
def test_a_cluster_is_unreachable_all_the_time(course: Course, proxies: dict[str, FaultyProxy], how: str) -> None:
    course.arrive("one")
    course.live.settings["fleet_timeout"] = 5
    course.declare("two")
    with Sentinel(course.live) as sentinel:
        with proxies["east"].unreachable(how):
            first = course.run()
            assert first.failed == {"east"}, first.output
            second = course.run()
            assert (second.failed, second.changed) == ({"east"}, 0), second.output
            here = {key: value for key, value in snapshot(course.live).items() if key.startswith("west:")}
            there = {key: value for key, value in course.wanted["two"].items() if key.startswith("west:")}
            assert not differences(there, here)
        course.live.settings["fleet_timeout"] = 20
        course.run().ok()
    assert not sentinel.gone
    course.compare("two", first.output)


def test_a_connection_is_refused_and_comes_back(course: Course, proxies: dict[str, FaultyProxy]) -> None:
    course.arrive("empty")
    course.declare("one")
    for name in ("west", "control"):
        with proxies[name].unreachable(REFUSED):
            watched = Watched(course.live.start("reconcile"))
            assert watched.wait_for_task("Look at every cluster"), watched.output()
            time.sleep(2)
        assert watched.end() == 0, watched.output()
        course.compare("one", watched.output())
        course.arrive("empty")
        course.declare("one")


def test_servers_that_answer_with_errors_at_random(course: Course, proxies: dict[str, FaultyProxy]) -> None:
    course.arrive("empty")
    for proxy in proxies.values():
        proxy.odds = Odds(busy=0.04, unavailable=0.04, internal=0.04, cut=0.04)
    for stage in ("one", "two"):
        course.declare(stage)
        with Sentinel(course.live) as sentinel:
            disturbed = course.run()
        assert not sentinel.gone
        assert sentinel.fewest >= FLOORS.get(stage, 0)
    met = sum((proxy.met for proxy in proxies.values()), start=type(proxies["east"].met)())
    assert min(met[name] for name in ("busy", "unavailable", "internal", "cut")) > 0, met
    for proxy in proxies.values():
        proxy.odds = Odds()
    with Sentinel(course.live) as sentinel:
        course.run().ok()
    assert not sentinel.gone
    course.compare("two", disturbed.output)


def test_the_run_is_killed_at_twenty_random_moments(course: Course) -> None:
    course.arrive("empty")
    moments = random.Random(SEED)
    killed = tried = 0
    while killed < KILLS:
        stage = tuple(STAGES)[tried % len(STAGES)]
        # Spread over the run: each visit to a stage takes another one of four parts of it.
        part = (tried // len(STAGES)) % 4
        fraction = 0.05 + 0.9 * (part + moments.random()) / 4
        tried += 1
        assert tried < 2 * KILLS, "runs end before they are killed"
        course.declare(stage)
        with Sentinel(course.live) as sentinel:
            watched = Watched(course.live.start("reconcile"))
            hit = _kill_at(watched, fraction, course.timelines[stage], alone=tried % ALONE == 0)
            killed += hit
            follow = course.run()
        told = f"killed on the way to {stage} at {fraction:.0%} ({hit}):\n{watched.output()}\nthen:\n{follow.output}"
        print(f"{stage} at {fraction:.0%}, hit {hit}: {_last_task(watched)}", flush=True)
        assert follow.code == 0, told
        assert sentinel.fewest >= FLOORS.get(stage, 0), f"{sentinel.fewest} pods served; {told}"
        if stage in ADDING:
            assert not sentinel.gone, told
        course.compare(stage, told)


def _between(now: str, stage: str) -> list[str]:
    """The stages to go through; from the last one it goes on with the first."""
    order = list(STAGES)
    if now == stage:
        return []
    start, end = order.index(now), order.index(stage)
    return order[start + 1 : end + 1] if start < end else order[start + 1 :] + order[: end + 1]


def _written(plane: ControlPlane, since: int) -> int:
    """How many requests of the run have changed something."""
    return sum(
        each.code in (200, 201) and "dryRun" not in each.uri and each.resource != "leases"
        for each in plane.write_requests(since)
    )


def _kill_at(watched: Watched, fraction: float, timeline: list[float], *, alone: bool) -> bool:
    """Kill a run at a part of the time that an undisturbed one takes: within the same task, as far as it had come.
    Whether it was still at work."""
    moment = fraction * timeline[-1]
    task = sum(begin <= moment for begin in timeline[:-1])
    reached = watched.wait_for(lambda: len(watched.tasks) >= task)
    if reached:
        began = watched.tasks[task - 1] if task else 0.0
        rest = moment - (timeline[task - 1] if task else 0.0)
        reached = watched.wait_for(lambda: time.monotonic() - watched.began >= began + rest)
    if alone:
        os.killpg(watched.process.pid, signal.SIGKILL) if reached else None
    else:
        _kill_tree(watched.process.pid)
    watched.process.wait(60)
    return reached and watched.process.returncode == -signal.SIGKILL


def _kill_tree(process: int) -> None:
    """A process and all that it started, the workers of Ansible in sessions of their own among them, at once."""
    found: list[int] = []
    todo = [process]
    while todo:
        current = todo.pop()
        # Stopped, it starts nothing more.
        with contextlib.suppress(ProcessLookupError):
            os.kill(current, signal.SIGSTOP)
            found.append(current)
            todo += _children(current)
    for each in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def _children(process: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == process:
                found.append(int(path.parent.name))
    return found


def _last_task(watched: Watched) -> str:
    return next((line.strip(" *\n") for line in reversed(watched.lines) if line.startswith("TASK [")), "no task")
