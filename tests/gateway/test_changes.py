# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Random changes of endpoints, priorities, provider keys and budgets under load: no request fails, and at most one of
1,000 uses the provider of the last priority.

Environment variables set the number of changes (GATEWAY_DRILL_CHANGES), the longest duration (GATEWAY_DRILL_MINUTES),
the seed (GATEWAY_DRILL_SEED), and how many busy loops run next to the drill (GATEWAY_DRILL_LOOPS).

Each run of the fleet applies several changes. The processors read their configuration ten times as often as the
original does, and runs wait a tenth of the time for them, because 1,000 changes would otherwise take hours;
GATEWAY_DRILL_REAL=1 keeps the original times."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes import conditions
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.executor import Executor
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

from . import equipment
from .clients import CALLERS, Clients
from .composed import SYSTEM, ComposedFleet
from .equipment import COMPONENTS, GatewayCluster

CHANGES = int(os.environ.get("GATEWAY_DRILL_CHANGES", "1000"))
SEED = int(os.environ.get("GATEWAY_DRILL_SEED", "1"))
LOOPS = int(os.environ.get("GATEWAY_DRILL_LOOPS", "0"))
MINUTES = float(os.environ.get("GATEWAY_DRILL_MINUTES", "inf"))
SCALE = 1 if os.environ.get("GATEWAY_DRILL_REAL") else 10
SERVICES = ("red", "green", "blue")
ENGINES = tuple(f"e{number}" for number in range(6))
PAID = "paid"
MOST = 16
"""Most changes in a run."""
API = "modelplane.ai/v1alpha1"


class KilledError(Exception):
    """The run was aborted."""


@pytest.fixture(scope="module")
def gateway_cluster(
    kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayCluster]:
    """A cluster whose processors read their configuration more often."""
    folder = tmp_path_factory.mktemp("gateway")
    objects = equipment.ai_gateway_objects(read_interval=f"{5000 // SCALE}ms")
    with (
        ControlPlane(
            kubernetes_programs, "drill", folder / "cluster", components=COMPONENTS, egress=folder / "egress"
        ) as cluster,
        GatewayCluster(cluster, folder, ai_gateway=objects) as running,
    ):
        running.network.proxy(folder / "egress")
        yield running


@pytest.fixture(scope="module")
def left_out() -> frozenset[str]:
    """A run with the services of the other tests takes several times as long."""
    return frozenset({"ModelService", "CallerPolicy"})


class Drill:
    """Services of a fleet that change at random, and the load on them.

    Each service has one to four engines in its first priorities and the provider in the last one."""

    def __init__(self, cluster: GatewayCluster, fleet: ComposedFleet, clients: Clients, chance: Random) -> None:
        self.cluster, self.fleet, self.clients, self.chance = cluster, fleet, clients, chance
        self.stopped = threading.Event()
        self.answers: Counter[tuple[int, bool]] = Counter()
        self.failures: list[str] = []
        self.changes = 0
        self.label = ""
        self._lock = threading.Lock()
        self.members = {name: dict.fromkeys(chance.sample(ENGINES, 3), 0) for name in SERVICES}
        # An earlier drill on the same cluster has resources of the same names.
        names = {*ENGINES, *SERVICES, *(f"drill-{name}" for name in SERVICES)}
        fleet.resources = [each for each in fleet.resources if each["metadata"]["name"] not in names]
        for name in ENGINES:
            cluster.engine(name, f"{name}.example")
            fleet.resources.append(
                _resource("ModelEndpoint", name, {"origin": f"http://{name}.example:8000"}, engine=name)
            )
        for name in SERVICES:
            fleet.resources.append(_resource("ModelService", name, {"endpoints": []}, drill=name))
            budget = {"name": "ample", "unit": "Requests", "limit": 100_000_000, "per": "Day"}
            spec = {"services": {"matchLabels": {"drill": name}}, "callers": [{"name": "*"}], "budgets": [budget]}
            fleet.resources.append(_resource("CallerPolicy", f"drill-{name}", spec))
            self.write(name)

    def write(self, service: str) -> None:
        """Write the endpoints of a service into its manifest."""
        members = sorted(self.members[service].items())
        entries = [{"priority": rank, "selector": {"matchLabels": {"engine": name}}} for name, rank in members]
        entries.append({"priority": 9, "selector": {"matchLabels": {"engine": PAID}}})
        self.fleet.resource("ModelService", service)["spec"]["endpoints"] = entries

    def change(self) -> str:
        """Make one random change. Return a description."""
        chance, service = self.chance, self.chance.choice(SERVICES)
        members = self.members[service]
        kind = chance.choice(["add", "remove", "replace", "replace", "rank", "key", "budget"])
        absent = sorted(set(ENGINES) - set(members))
        if kind == "add" and len(members) < 4:
            members[chance.choice(absent)] = chance.randrange(2)
        elif kind == "remove" and len(members) > 1:
            del members[chance.choice(sorted(members))]
        elif kind == "rank":
            members[chance.choice(sorted(members))] = chance.randrange(2)
        elif kind == "key":
            value = base64.b64encode(f"key-{chance.random()}".encode()).decode()
            self.cluster.cluster.objects.patch("v1", "Secret", "paid-key", {"data": {"token": value}}, "ml-team")
        elif kind == "budget":
            spec = self.fleet.resource("CallerPolicy", f"drill-{service}")["spec"]
            budget = {"name": "ample", "unit": "Requests", "limit": 100_000_000, "per": "Day"}
            spec["budgets"] = chance.choice([[budget], [{**budget, "whenSpent": "Overflow"}], []])
        else:
            kind = "replace"
            del members[chance.choice(sorted(members))]
            members[chance.choice(absent)] = chance.randrange(2)
        self.write(service)
        self.changes += 1
        return f"{kind} {service} {members}"

    def change_all_budgets(self) -> str:
        """Remove the budgets of all services, or add them again. Return a description."""
        for name in SERVICES:
            spec = self.fleet.resource("CallerPolicy", f"drill-{name}")["spec"]
            budget = {"name": "ample", "unit": "Requests", "limit": 100_000_000, "per": "Day"}
            spec["budgets"] = [] if self.changes % 2 == 0 else [budget]
        self.changes += 1
        return f"budgets {self.changes % 2 == 0}"

    def ask(self, number: int) -> None:
        """Send requests to a service until the drill stops."""
        service = SERVICES[number % len(SERVICES)]
        connection = self.clients.gateway.connection()
        while not self.stopped.is_set():
            try:
                answer = self.clients.ask(service, CALLERS[0], over=connection)
                status, body = answer.status, answer.body
            except OSError as error:
                connection.close()
                connection, status, body = self.clients.gateway.connection(), 0, str(error).encode()
            is_paid = status == 200 and b"from paid" in body
            with self._lock:
                self.answers[status, is_paid] += 1
                if status != 200 or is_paid:
                    self.failures.append(f"{time.time():.1f} {service} {status} {body[:80]!r} during {self.label}")
            time.sleep(0.01)

    def run_each(self, changes: int, change: Callable[[Drill], str]) -> None:
        """Make each change in a run of its own."""
        for _ in range(changes):
            self.label = change(self)
            self.install()
            time.sleep(1)

    def run(self, changes: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make changes; some runs are killed and run again."""
        end = time.monotonic() + 60 * MINUTES
        while self.changes < changes and time.monotonic() < end:
            batch = self.chance.randint(1, MOST)
            self.label = "; ".join([self.change() for _ in range(min(batch, changes - self.changes))])
            if self.chance.random() < 0.2:
                with monkeypatch.context() as patched:
                    patched.setattr(Executor, "_write", _killing(self.chance.randrange(12)))
                    try:
                        self.fleet.install()
                    except KilledError:
                        self.label = f"killed: {self.label}"
                    except AssertionError as error:
                        self.label = f"{error} after {self.label}"
            self.install()

    def install(self) -> None:
        """Apply the fleet, again where gateways took longer than a run waits, which asks for that in its message."""
        for _ in range(9):
            try:
                return self.fleet.install()
            except AssertionError as error:
                if "and run again" not in str(error):
                    raise
        raise AssertionError(f"runs do not end: {self.label}")


def _killing(writes: int) -> Any:
    """Return a write of the executor that aborts the run after some writes of routes."""
    original, left = Executor._write, [writes]

    def write(executor: Executor, step: Any) -> Any:
        if step.key.kind == "AIGatewayRoute":
            left[0] -= 1
            if left[0] < 0:
                raise KilledError
        return original(executor, step)

    return write


def _resource(kind: str, name: str, spec: Mapping[str, Any], **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ml-team", "labels": labels}
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": dict(spec)}


def drilled(
    cluster: GatewayCluster,
    fleet: ComposedFleet,
    changes: int,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Drill], str] | None = None,
) -> Drill:
    """Return the drill after its changes."""
    monkeypatch.setattr(conditions, "READ_SECONDS", 12.0 / SCALE)
    clients = Clients(cluster.gateway("inference-gateway", SYSTEM))
    fleet.know_cluster(cluster.gateway("cluster-gateway", SYSTEM).address)
    drill = Drill(cluster, fleet, clients, Random(SEED))
    fleet.install()
    for name in SERVICES:
        cluster.wait_for(f"{name} answers", lambda name=name: clients.everywhere(name, CALLERS[0], 200))
    time.sleep(6.0 / SCALE + 3)
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LOOPS)]
    threads = [threading.Thread(target=drill.ask, args=(number,), daemon=True) for number in range(2 * len(SERVICES))]
    try:
        for thread in threads:
            thread.start()
        if change:
            drill.run_each(changes, change)
        else:
            drill.run(changes, monkeypatch)
        time.sleep(3)
    finally:
        drill.stopped.set()
        for thread in threads:
            thread.join()
        for loop in loops:
            loop.kill()
            loop.wait()
        (fleet.folder.parent / "drill.log").write_text("\n".join(drill.failures), encoding="utf-8")
        print(f"seed {SEED}, {drill.changes} changes, {LOOPS} loops: {dict(drill.answers)}, {fleet.folder.parent}")
    return drill


def check(drill: Drill) -> None:
    """Check that no request failed, and that few requests used the provider."""
    total = sum(drill.answers.values())
    assert total > 20 * len(SERVICES)
    assert {status for status, __ in drill.answers} == {200}, drill.failures[:20]
    assert drill.answers[200, True] <= total / 1000, drill.failures[:20]


def test_changes_lose_no_request(
    gateway_cluster: GatewayCluster, fleet: ComposedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(drilled(gateway_cluster, fleet, min(CHANGES, 16), monkeypatch))


def test_first_and_last_budgets_lose_no_request(
    gateway_cluster: GatewayCluster, fleet: ComposedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Envoy Gateway has the rate limit service in its configuration only while a route has a limit."""
    check(drilled(gateway_cluster, fleet, 4, monkeypatch, Drill.change_all_budgets))


@pytest.mark.interrupted
def test_many_changes_lose_no_request(
    gateway_cluster: GatewayCluster, fleet: ComposedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(drilled(gateway_cluster, fleet, CHANGES, monkeypatch))
