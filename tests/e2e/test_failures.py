# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whatever breaks while a run is at work, one run that nothing disturbs ends where a run without the failure ends.

The fleet goes from stage to stage. `course.desired` has what undisturbed runs make of each stage; every test breaks
something on the way to a stage, lets one run follow, and compares all objects. Where each cluster of a fleet alone
fails is in unit/kube as well, so most of this is in `make interrupted`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.modules import apply, cluster_info
from ansible_collections.modelplane.fleet.tests import sick
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.failing_proxy import REFUSED, SILENT, FailingProxy, Odds
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import LiveFleet, Run
from ansible_collections.modelplane.fleet.tests.e2e.snapshots import Snapshot, differences, serving, snapshot
from ansible_collections.modelplane.fleet.tests.kube.client import PASSING
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.kube.fleet import Fleet
from ansible_collections.modelplane.fleet.tests.module_run import run_module

SEED = 20
KILLS = 20
# Of so many kills one hits ansible-playbook alone: what it has started works on for a while.
ALONE = 4
# Controllers, not runs, delete what is owned by something that went.
SETTLE_SECONDS = 300.0
TOKEN = "proxy-token-3f1c"
# Beginnings of the lines that a run with -v prints as it begins a task, and the steps of the module reconcile.
STEPS = ("TASK [", "Observe ", "Plan the ", "Compare ", "Acquire the lock", "Apply to ")

_DRAINED = {"key": "test", "effect": "NoExecute"}
_BASE = fleets.CLASSES + fleets.cluster("west", region="west")
_EAST = fleets.cluster("east", region="east")
_CACHED = {"modelCacheRef": {"name": "weights"}}
_AROUND = fleets.cache("weights") + fleets.service("chat", "chat")
_ONE = fleets.deployment("chat", 2, **_CACHED) + _AROUND
# Long enough without a pod to be noticed when both clusters are.
_EDITED = fleets.deployment("chat", 2, tag="v0.24.0", delay="2s", **_CACHED) + _AROUND
_WEST = {"matchLabels": {"region": "west"}}
_CODE = fleets.deployment("code", 1, clusterSelector=_WEST) + fleets.service("code", "code")

EMPTY = "empty"
"""The stage that can be reached from any other one."""
STAGES = {
    "one": _BASE + _EAST + _ONE,
    "two": _BASE + _EAST + _ONE + _CODE,
    "edited": _BASE + _EAST + _EDITED + _CODE,
    "drained": _BASE + fleets.cluster("east", _DRAINED, region="east") + _EDITED + _CODE,
    EMPTY: _BASE + _EAST,
}
# How many pods of `chat` serve at any time on the way to a stage. Rollouts have no surge, and go cluster by cluster.
FLOORS = {"two": 2, "edited": 1, "drained": 2}
# Where no pod that serves has a reason to go.
ADDING = ("one", "two")


@dataclass
class Course:
    """The fleet on its way through the stages, again and again."""

    live: LiveFleet
    stage: str = EMPTY
    desired: dict[str, Snapshot] = field(default_factory=dict)
    timelines: dict[str, list[float]] = field(default_factory=dict)
    """Seconds from the start of an undisturbed run to each of its steps, and to its end."""

    def declare(self, stage: str) -> None:
        self.live.write("fleet.yaml", STAGES[stage])

    def run(self, **variables: object) -> Run:
        given = [f"-e{json.dumps(variables)}"] if variables else []
        return self.live.run("reconcile", "-v", *given)

    def next(self) -> str:
        return _between(self.stage, "")[0]

    def measure(self, stage: str) -> None:
        """Go to a stage undisturbed, and note what it is like there and how long it took."""
        self.declare(stage)
        with Sentinel(self.live) as sentinel:
            watched = Watched(self.live.start("reconcile"))
            watched.process.wait(1800)
            watched.end()
        self.timelines[stage] = [*watched.steps, time.monotonic() - watched.began]
        assert watched.process.returncode == 0, watched.output()
        assert sentinel.fewest >= FLOORS.get(stage, 0), f"on the way to {stage}, {sentinel.fewest} pods served"
        time.sleep(3)
        self.desired[stage] = snapshot(self.live)
        self.stage = stage

    def arrive(self, stage: str) -> None:
        """Undisturbed, unless the fleet is there."""
        for each in _between(self.stage, stage):
            if each not in self.desired:
                self.measure(each)
                continue
            self.declare(each)
            self.run().ok()
            self.stage = each

    def judge(self, sentinel: Sentinel, stage: str, reported: str) -> None:
        """After one undisturbed run, the fleet is where it would be without the failure, and nothing was lost.
        Of pods that came and went unobserved, the rest of the comparison shows."""
        assert sentinel.fewest >= FLOORS.get(stage, 0), f"at a time {sentinel.fewest} pods served; {reported}"
        if stage in ADDING:
            assert not sentinel.gone, f"pods that served went; {reported}"
        self.compare(stage, reported)

    def compare(self, stage: str, reported: str) -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while (found := differences(self.desired[stage], snapshot(self.live))) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert not found, f"{found}\n{reported}"
        self.stage = stage


@dataclass
class Watched:
    """A run whose steps are noticed as they begin."""

    process: subprocess.Popen[str]
    began: float = field(default_factory=time.monotonic)
    steps: list[float] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.append(line)
            if line.startswith(STEPS):
                self.steps.append(time.monotonic() - self.began)

    def wait_for(self, ready: Callable[[], bool]) -> bool:
        """Return whether it was so before the run ended."""
        while not ready():
            if self.process.poll() is not None:
                return False
            time.sleep(0.01)
        return True

    def wait_for_step(self, name: str) -> bool:
        return self.wait_for(lambda: any(name in line for line in self.lines))

    def end(self) -> int:
        code = self.process.wait(1800)
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
        self.fewest = _of_chat(self._now)
        self.gone: set[str] = set()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Sentinel:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._observe()

    def _watch(self) -> None:
        while not self._stopped.wait(0.3):
            self._observe()

    def _observe(self) -> None:
        self._ask()
        if _of_chat(self._now) < self.fewest:
            # Clusters are asked one after the other: what two snapshots agree on was so at the time between them.
            first = dict(self._now)
            self._ask()
            if first == self._now:
                self.fewest = _of_chat(first)

    def _ask(self) -> None:
        for name, plane in self._live.workloads.items():
            # Pods serve on while their API server is away.
            with contextlib.suppress(*PASSING):
                found = serving(plane)
                self.gone |= set(self._now[name]) - set(found)
                self._now[name] = found


def _of_chat(pods: Mapping[str, Mapping[str, str]]) -> int:
    return sum(deployment == "chat" for of_cluster in pods.values() for deployment in of_cluster.values())


@pytest.fixture(scope="module")
def course(live: LiveFleet) -> Course:
    live.settings |= {"fleet_wait": 60, "fleet_lease": 12, "fleet_timeout": 20, "fleet_allow_empty": True}
    return Course(live)


@pytest.fixture(scope="module")
def every_stage(course: Course) -> None:
    """Learn what undisturbed runs make of every stage."""
    for stage in [each for each in STAGES if each not in course.desired]:
        course.arrive(stage)


@pytest.fixture
def proxies(fleet: Fleet, tmp_path: Path, live: LiveFleet) -> Iterator[dict[str, FailingProxy]]:
    """Every cluster is reached through a proxy of its own."""
    before = (dict(live.kubeconfigs), live.control_kubeconfig)
    with contextlib.ExitStack() as stack:
        made = {
            plane.name: stack.enter_context(FailingProxy(plane, tmp_path / plane.name, TOKEN, SEED + number))
            for number, plane in enumerate(fleet.all)
        }
        live.kubeconfigs = {name: str(made[name].kubeconfig) for name in live.kubeconfigs}
        live.control_kubeconfig = str(made["control"].kubeconfig)
        yield made
    live.kubeconfigs, live.control_kubeconfig = before


def _killed_in_the_middle(course: Course, plane: ControlPlane, stage: str) -> None:
    course.declare(stage)
    since = plane.audit_position()
    with Sentinel(course.live) as sentinel:
        watched = Watched(course.live.start("reconcile", "-v"))
        assert watched.wait_for(lambda: _written(plane, since) >= 2), watched.output()
        plane.kill_api_server()
        try:
            time.sleep(1)
        finally:
            plane.start_api_server()
        code = watched.end()
        assert "Traceback" not in watched.output()
        course.run().ok()
    course.judge(sentinel, stage, f"the disturbed run ended with {code}:\n{watched.output()}")


def _written(plane: ControlPlane, since: int) -> int:
    """Return how many requests of the run have changed something."""
    return sum(
        each.code in (200, 201) and "dryRun" not in each.uri and each.resource != "leases"
        for each in plane.write_requests(since)
    )


def interrupted(test: Any) -> Any:
    """Mark a test of `make interrupted` that knows every stage."""
    return pytest.mark.interrupted(pytest.mark.usefixtures("every_stage")(test))


# The tests go through the stages in this order, so that each finds the fleet where it wants it.


@interrupted
def test_the_api_server_of_a_cluster_is_killed_in_the_middle_of_an_apply(course: Course, fleet: Fleet) -> None:
    course.arrive("one")
    course.arrive(EMPTY)
    _killed_in_the_middle(course, fleet.workloads["west"], "one")


@interrupted
def test_a_cluster_is_silent_all_the_time(course: Course, proxies: dict[str, FailingProxy]) -> None:
    """Runs without a cluster that refuses connections are in test_moves."""
    course.arrive("one")
    course.declare("two")
    with Sentinel(course.live) as sentinel:
        with proxies["east"].unreachable(SILENT):
            before = proxies["east"].connections
            first = course.run(fleet_timeout=5)
            assert first.failed == {"east"}, first.output
            # Each observation costs the timeout once.
            assert proxies["east"].connections - before <= first.output.count("Observe every cluster"), first.output
            here = {key: value for key, value in snapshot(course.live).items() if key.startswith("west:")}
            there = {key: value for key, value in course.desired["two"].items() if key.startswith("west:")}
            assert not differences(there, here)
            second = course.run(fleet_timeout=5, fleet_retries=1)
            assert (second.failed, second.changed) == ({"east"}, 0), second.output
        course.run().ok()
    course.judge(sentinel, "two", first.output)


def test_clusters_that_answer_nonsense_fail_alone(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is silent does: each with an error that names it, while the others are observed and worked on."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    west = {"name": "west", "kubeconfig": str(fleet.workloads["west"].kubeconfig)}
    common = {"timeout": 3, "retries": 0, "on_error": "report"}
    desired = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sick-tests", "namespace": "default"}}
    applying = {**common, "record": "sick-tests", "objects": [desired]}
    alone = run_module(cluster_info, {**common, "clusters": [west]})["clusters"]["west"]
    with contextlib.ExitStack() as stack:
        others = []
        for mode in sick.MODES:
            proxy = stack.enter_context(FailingProxy(fleet.workloads["east"], tmp_path / mode, TOKEN))
            proxy.sick = mode
            others.append({"name": mode.lower(), "kubeconfig": str(proxy.kubeconfig)})
        names = sorted(each["name"] for each in others)
        observed = run_module(cluster_info, {**common, "clusters": [*others, west]})
        applied = run_module(apply, {**applying, "clusters": [*others, west]})
    run_module(apply, {**applying, "objects": [], "state": "absent", "clusters": [west]})
    # Namespaces of earlier tests may still be terminating.
    assert {**observed["clusters"]["west"], "warnings": []} == {**alone, "warnings": []}
    assert not applied["clusters"]["west"]["failed"]
    assert applied["clusters"]["west"]["changed"]
    assert sorted(observed["failed_clusters"]) == sorted(applied["failed_clusters"]) == names
    for name in names:
        assert any(line.startswith(f"cluster {name}: ") for line in observed["warnings"])
        assert f"cluster {name}: " in applied["clusters"][name]["msg"]
    assert TOKEN not in str([observed, applied])


@interrupted
def test_servers_that_answer_with_errors_at_random(course: Course, proxies: dict[str, FailingProxy]) -> None:
    course.arrive("two")
    course.declare("edited")
    with Sentinel(course.live) as sentinel:
        for proxy in proxies.values():
            proxy.odds = Odds(busy=0.04, unavailable=0.04, internal=0.04, cut=0.04)
        # What is renewed late is lost, and errors take their time.
        disturbed = course.run(fleet_lease=30)
        met: Counter[str] = Counter()
        for proxy in proxies.values():
            proxy.odds = Odds()
            met += proxy.met
        assert set(met) == {"busy", "unavailable", "internal", "cut"}
        assert disturbed.code == 0, disturbed.output
        course.run().ok()
    course.judge(sentinel, "edited", disturbed.output)


@interrupted
def test_the_api_server_of_the_control_cluster_is_killed_in_the_middle_of_an_apply(
    course: Course, fleet: Fleet
) -> None:
    course.arrive("edited")
    _killed_in_the_middle(course, fleet.control, "drained")


@interrupted
@pytest.mark.parametrize("name", ["west", "control"])
def test_a_connection_is_refused_and_comes_back(course: Course, proxies: dict[str, FailingProxy], name: str) -> None:
    """Within the repetitions of a request, so that this run is the one that ends where it should."""
    stage = course.next()
    course.declare(stage)
    with Sentinel(course.live) as sentinel:
        with proxies[name].unreachable(REFUSED):
            watched = Watched(course.live.start("reconcile", "-v"))
            assert watched.wait_for_step("Observe every cluster"), watched.output()
            time.sleep(3)
        assert watched.end() == 0, watched.output()
    course.judge(sentinel, stage, watched.output())


@interrupted
def test_the_run_is_killed_before_a_cluster_has_its_edit(course: Course) -> None:
    course.arrive("two")
    course.declare("edited")
    with Sentinel(course.live) as sentinel:
        watched = Watched(course.live.start("reconcile", "-v"))
        assert watched.wait_for_step("Apply to every cluster"), watched.output()
        _kill_tree(watched.process.pid)
        watched.end()
        follow = course.run()
    reported = f"{watched.output()}\nthen:\n{follow.output}"
    assert follow.code == 0, reported
    course.judge(sentinel, "edited", reported)


@interrupted
def test_the_run_is_killed_at_random_moments(course: Course) -> None:
    moments = random.Random(SEED)
    killed = tried = 0
    while killed < KILLS:
        stage = course.next()
        # Spread over the run: of five stages and four parts, a stage is hit in another part each time round.
        part = tried % 4
        fraction = 0.05 + 0.9 * (part + moments.random()) / 4
        tried += 1
        assert tried < 2 * KILLS, "runs end before they are killed"
        course.declare(stage)
        with Sentinel(course.live) as sentinel:
            watched = Watched(course.live.start("reconcile", "-v"))
            hit = _kill_at(watched, fraction, course.timelines[stage], alone=tried % ALONE == 0)
            killed += hit
            follow = course.run()
        reported = (
            f"killed on the way to {stage} at {fraction:.0%} ({hit}):\n{watched.output()}\nthen:\n{follow.output}"
        )
        print(f"{stage} at {fraction:.0%}, hit {hit}: {_last_step(watched)}", flush=True)
        assert follow.code == 0, reported
        course.judge(sentinel, stage, reported)


def _between(now: str, stage: str) -> list[str]:
    """The stages to go through, in their order; from the last one it goes on with the first. To "", all others."""
    if stage == EMPTY != now:
        return [EMPTY]
    order = list(STAGES)
    start = order.index(now) + 1
    ahead = order[start:] + order[:start]
    return ahead[: (ahead.index(stage) + 1) % len(order)] if stage else ahead


def _kill_at(watched: Watched, fraction: float, timeline: list[float], *, alone: bool) -> bool:
    """Kill a run at a part of the time that an undisturbed one takes: within the same step, as far as it had come.
    Whether it was still at work."""
    moment = fraction * timeline[-1]
    step = sum(begin <= moment for begin in timeline[:-1])
    reached = watched.wait_for(lambda: len(watched.steps) >= step)
    if reached:
        began = watched.steps[step - 1] if step else 0.0
        rest = moment - (timeline[step - 1] if step else 0.0)
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
    unseen = [process]
    while unseen:
        current = unseen.pop()
        # Stopped, it starts nothing more.
        with contextlib.suppress(ProcessLookupError):
            os.kill(current, signal.SIGSTOP)
            found.append(current)
            unseen += _children(current)
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


def _last_step(watched: Watched) -> str:
    return next((line.strip(" *\n") for line in reversed(watched.lines) if line.startswith(STEPS)), "no step")
