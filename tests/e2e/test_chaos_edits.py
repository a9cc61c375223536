# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Random edits, killed runs and killed API servers: services with at least two replicas never lose all endpoints.

Environment variables set the number of edits (CHAOS_EDITS), the seed (CHAOS_SEED) and the maximum duration
(CHAOS_MINUTES). A failure prints the seed and all edits. The file chaos.log in the fleet directory contains the output
of each run."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Self

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import chaos_edits
from ansible_collections.modelplane.fleet.tests.e2e.chaos_edits import Desired
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import MANAGED, LiveFleet, Object, Run
from ansible_collections.modelplane.fleet.tests.e2e.observing import (
    DEPLOYMENT_LABEL,
    GATEWAY,
    REPLICA_LABEL,
    engines,
    is_ready,
)
from ansible_collections.modelplane.fleet.tests.kube.client import PASSING
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

pytestmark = pytest.mark.interrupted

KILLED_RUNS, KILLED_SERVERS, SILENT_SERVERS, TWO_EDITS = 0.12, 0.08, 0.06, 0.25
"""Shares of killed runs, runs with a killed API server, runs without the API server of an inference cluster, and runs
for two edits."""
LOST_STATE, HELD_DELETIONS = 0.05, 0.05
"""Shares of runs after the build directory was lost, and after an object with a finalizer was deleted."""
ALLOWED, REVERTED = 0.25, 0.6
"""Shares of refused edits that are allowed and reverted. All other refused edits remain."""


@dataclass(frozen=True)
class Violation:
    """Violation of an invariant."""

    edit: int
    at: datetime
    message: str

    def __str__(self) -> str:
        return f"edit {self.edit}, {self.at:%H:%M:%S}: {self.message}"


def ready_pods(live: LiveFleet) -> dict[str, tuple[str, str]]:
    """Return the cluster and replica of each ready engine pod by UID."""
    return {
        pod["metadata"]["uid"]: (cluster, pod["metadata"]["labels"][REPLICA_LABEL])
        for cluster in live.workloads
        for pod in engines(live, cluster)
        if is_ready(pod)
    }


def existing(live: LiveFleet) -> set[tuple[str, str]]:
    """Return the cluster and replica of each Deployment. The garbage collector might delete pods much later."""
    return {
        (cluster, deployment["metadata"]["labels"][REPLICA_LABEL])
        for cluster, plane in live.workloads.items()
        for deployment in plane.objects.list("apps/v1", "Deployment", labels=REPLICA_LABEL)
        if "deletionTimestamp" not in deployment["metadata"]
    }


def endpoints(live: LiveFleet) -> dict[str, set[tuple[str, str]]]:
    """Return the cluster and replica of each endpoint in the routes of the control gateway, by ModelService."""
    clusters = {address: name for name, address in live.addresses.items()}
    addresses = {}
    for endpoint_slice in live.control.objects.list("discovery.k8s.io/v1", "EndpointSlice", labels=MANAGED):
        service = endpoint_slice["metadata"]["labels"]["kubernetes.io/service-name"]
        addresses[service] = {
            address for endpoint in endpoint_slice["endpoints"] or () for address in endpoint["addresses"]
        }
    replicas: dict[str, set[tuple[str, str]]] = {}
    for route in live.control.objects.list(GATEWAY, "HTTPRoute", labels=MANAGED):
        rules = route["spec"]["rules"]
        service = _prefix(rules[0]).removeprefix("/team/").strip("/")
        replicas[service] = set()
        for reference in (reference for rule in rules for reference in rule.get("backendRefs") or ()):
            if reference.get("weight", 1):
                replica = _replica(reference)
                replicas[service] |= {
                    (clusters[address], replica)
                    for address in addresses.get(reference["name"], ())
                    if address in clusters
                }
    return replicas


def _prefix(rule: Object) -> str:
    return str(rule["matches"][0]["path"]["value"])


def _replica(reference: Object) -> str:
    """Return the replica of a route backend, from its path on the cluster gateway."""
    for entry in reference.get("filters") or ():
        if entry["type"] == "URLRewrite":
            return str(entry["urlRewrite"]["path"]["replacePrefixMatch"]).removeprefix("/team/").strip("/")
    return ""


class Probe:
    """Watch of the number of ready endpoints of each ModelService."""

    def __init__(self, live: LiveFleet) -> None:
        self._live = live
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._serving: dict[str, int] = {}
        self.excused: set[str] = set()
        self.edit = 0
        self.samples = 0
        self.violations: list[Violation] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(0.2):
            # Pods keep serving while an API server is down.
            with contextlib.suppress(*PASSING):
                self._take_sample()

    def _take_sample(self) -> None:
        before, pods = endpoints(self._live), set(ready_pods(self._live).values())
        if endpoints(self._live) != before:
            # The routes have changed, so these pods might not be their backends.
            return
        self.samples += 1
        for service in sorted({*before, *self._serving}):
            routed = before.get(service, set())
            serving = len(routed & pods)
            if not serving and self._serving.get(service) and service not in self.excused:
                message = f"service {service} lost its last endpoint; routes to {sorted(routed)}, ready: {sorted(pods)}"
                self.violations.append(Violation(self.edit, datetime.now(UTC), message))
            self._serving[service] = serving


@dataclass
class Chaos:
    """A fleet under random edits."""

    live: LiveFleet
    random: Random
    probe: Probe
    desired: Desired = field(default_factory=chaos_edits.first)
    edits: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    runs: int = 0
    seconds: float = 20.0
    """Duration of the last run with changes."""

    def write(self, before: Desired) -> None:
        """Write the manifests and settings, and cordon nodes."""
        self.live.write("clusters.yaml", self.desired.clusters_text())
        self.live.write("models.yaml", self.desired.models_text())
        self.live.settings |= self.desired.settings
        for cluster, node in before.cordoned ^ self.desired.cordoned:
            change = {"spec": {"unschedulable": (cluster, node) in self.desired.cordoned or None}}
            self.live.workloads[cluster].objects.patch("v1", "Node", node, change)

    def log(self, text: str) -> None:
        with (self.live.folder / "chaos.log").open("a") as log:
            log.write(f"[{datetime.now(UTC):%H:%M:%S}] {text}\n")

    def violate(self, message: str) -> None:
        self.violations.append(Violation(len(self.edits), datetime.now(UTC), message))
        self.log(f"VIOLATION: {message}")

    def run(self, *arguments: str) -> Run:
        began = time.monotonic()
        run = self.live.run("reconcile", *arguments)
        taken = time.monotonic() - began
        self.runs += 1
        self.log(f"reconcile {' '.join(arguments)}: {run.code}, changed {run.changed}, {taken:.0f} s\n{run.output}")
        if run.code not in (0, 2):
            self.violate(f"exit code {run.code}")
        if run.changed and not arguments:
            self.seconds = taken
        return run

    def step(self) -> None:
        """Make edits, then check and run until a run is not interrupted."""
        before = self.desired.copy()
        for __ in range(1 + (self.random.random() < TWO_EDITS)):
            self.edits.append(chaos_edits.edit(self.random, self.desired))
            self.log(f"EDIT {len(self.edits)}: {self.edits[-1]}")
        self.write(before)
        self.probe.edit = len(self.edits)
        self.probe.excused |= chaos_edits.asked(before, self.desired)
        self.log(f"services that may lose all endpoints: {sorted(self.probe.excused)}")
        if self.random.random() < LOST_STATE:
            self.edits.append("the build directory is lost")
            shutil.rmtree(self.live.folder / "build")
        if self.random.random() < HELD_DELETIONS:
            self.hold_in_deletion()
        disturbance = self.random.random()
        if disturbance < KILLED_RUNS:
            self.kill_run()
        elif disturbance < KILLED_RUNS + KILLED_SERVERS:
            self.kill_server_during_run()
        elif disturbance < KILLED_RUNS + KILLED_SERVERS + SILENT_SERVERS:
            self.run_without_server()
        checked = self.run("--check")
        replicas = existing(self.live)
        pods = {uid: place for uid, place in ready_pods(self.live).items() if place in replicas}
        run = self.run()
        self.compare(checked, run, pods)
        if is_refused(run):
            run = self.answer_refusal(before)
        if run.code == 0:
            self.probe.excused = chaos_edits.asked(self.desired, self.desired)
            self.check_second_run()

    def hold_in_deletion(self) -> None:
        """Delete a Deployment with a finalizer, and check that a run reports the Deployment of a replica that stays."""
        plane = self.random.choice(list(self.live.workloads.values()))
        deployments = plane.objects.list("apps/v1", "Deployment", labels=REPLICA_LABEL)
        if not deployments:
            return
        metadata = self.random.choice(deployments)["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        self.edits.append(f"Deployment {name} on {plane.name} is deleted and held by a finalizer")
        self.log(self.edits[-1])
        self.probe.excused = set(self.desired.services)
        held: Object = {"metadata": {"finalizers": ["test.modelplane.ai/held"]}}
        plane.objects.patch("apps/v1", "Deployment", name, held, namespace)
        plane.objects.delete("apps/v1", "Deployment", name, namespace)
        run = self.run()
        replicas = {(entry["replica"], entry["cluster"]) for entry in self.live.plan()["placements"]}
        stays = (metadata["labels"][REPLICA_LABEL], plane.name) in replicas
        if stays and (run.code != 2 or name not in run.output):
            self.violate(f"a run did not report Deployment {name}, which a finalizer keeps (exit code {run.code})")
        plane.objects.patch("apps/v1", "Deployment", name, {"metadata": {"finalizers": None}}, namespace)

    def answer_refusal(self, before: Desired) -> Run:
        """Allow a refused edit, revert it, or leave it to later edits."""
        draw = self.random.random()
        if draw < ALLOWED:
            self.log("the outage is allowed")
            self.probe.excused = set(self.desired.services)
            return self.run("-e", '{"fleet_allow_outage": true}')
        if draw < ALLOWED + REVERTED:
            self.edits.append("the last edit is reverted")
            self.log(self.edits[-1])
            before, self.desired = self.desired, before
            self.write(before)
        return self.run()

    def compare(self, checked: Run, run: Run, before: Mapping[str, tuple[str, str]]) -> None:
        """Compare the output of `--check` with the changes of the run."""
        if is_refused(checked) != is_refused(run):
            self.violate(f"--check {'refused' if is_refused(checked) else 'did not refuse'} the edits, unlike the run")
        gone = {place for uid, place in before.items() if uid not in ready_pods(self.live)}
        for cluster, replica in sorted(gone):
            if not is_listed(checked, replica):
                self.violate(f"--check did not list replica {replica} on {cluster}, which the run restarted or removed")

    def check_second_run(self) -> None:
        """Check that a run changes nothing after all replicas serve."""
        if not self.is_settled():
            return
        second = self.run()
        if second.changed:
            self.violate(f"a second run changed something (exit code {second.code})")

    def is_settled(self) -> bool:
        """Return whether all desired pods are ready, and no other pods exist."""
        pods = [pod for cluster in self.live.workloads for pod in engines(self.live, cluster)]
        counts = Counter(pod["metadata"]["labels"][DEPLOYMENT_LABEL] for pod in pods)
        models = self.desired.models.values()
        desired = Counter({model.name: model.replicas * model.copies for model in models})
        tags = {pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in pods}
        return counts == desired and all(map(is_ready, pods)) and tags <= {model.tag for model in models}

    def kill_run(self) -> None:
        """Start a run, and kill all its processes at a random moment."""
        seconds = self.random.uniform(0.2, 1.0) * self.seconds
        process = self.live.start("reconcile")
        output: str | None = ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        output, __ = process.communicate()
        self.runs += 1
        self.log(f"the run was killed after {seconds:.0f} s: {output}")

    def run_without_server(self) -> None:
        """Run while the API server of an inference cluster is down, and start the API server again."""
        plane = self.random.choice(list(self.live.workloads.values()))
        self.edits.append(f"the API server of {plane.name} is away")
        self.log(self.edits[-1])
        plane.kill_api_server()
        try:
            self.run()
        finally:
            plane.start_api_server()

    def kill_server_during_run(self) -> None:
        """Kill an API server at a random moment of a run, and start it again."""
        planes = [self.live.control, *self.live.workloads.values()]
        plane = self.random.choice(planes)
        self.edits.append(f"the API server of {plane.name} is killed during the run")
        self.log(self.edits[-1])
        with _killed(plane, self.random.uniform(0.0, 1.0) * self.seconds, self.random.uniform(0.5, 4.0)):
            self.run()


@contextlib.contextmanager
def _killed(plane: ControlPlane, after: float, seconds: float) -> Iterator[None]:
    """Kill an API server after a delay. At the end of the context, the API server is ready again."""

    def kill() -> None:
        time.sleep(after)
        plane.kill_api_server()
        time.sleep(seconds)
        plane.start_api_server()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def is_refused(run: Run) -> bool:
    """Return whether a run changed nothing because of an outage."""
    return "fleet_allow_outage" in run.output


def is_listed(checked: Run, replica: str) -> bool:
    """Return whether the output of a run lists a change of a replica. Tables contain only the digest of the replica."""
    digest = replica.rpartition("-")[2]
    row = rf"…{digest} .*\b(changed|replaced|removed|leaving|waiting)\b"
    step = rf"\b(restart|remove) {replica} on\b"
    return bool(re.search(row, checked.output) or re.search(step, " ".join(checked.output.split())))


def _times() -> Callable[[], float]:
    began = time.monotonic()
    return lambda: (time.monotonic() - began) / 60


def test_services_with_two_replicas_keep_an_endpoint(live: LiveFleet, capsys: pytest.CaptureFixture[str]) -> None:
    edits, seed = int(os.environ.get("CHAOS_EDITS", "200")), int(os.environ.get("CHAOS_SEED", "1"))
    longest, minutes = float(os.environ.get("CHAOS_MINUTES", "inf")), _times()
    live.settings |= {"fleet_wait": 20, "fleet_allow_empty": True}
    with Probe(live) as probe:
        chaos = Chaos(live, Random(seed), probe)
        chaos.write(chaos.desired)
        chaos.run().ok()
        while len(chaos.edits) < edits and minutes() < longest:
            chaos.step()
        _end(chaos)
    violations = sorted([*chaos.violations, *probe.violations], key=lambda violation: violation.at)
    sequence = "\n".join(f"{number}. {text}" for number, text in enumerate(chaos.edits, 1))
    figures = (
        f"chaos: seed {seed}, {len(chaos.edits)} edits, {chaos.runs} runs, {minutes():.1f} minutes, "
        f"{probe.samples} samples, {len(violations)} violations"
    )
    with capsys.disabled():
        print(f"\n{figures}")
    assert not violations, "\n".join([figures, *map(str, violations), sequence])


def _end(chaos: Chaos) -> None:
    """Restore the first manifests, and check that the fleet reaches the desired state."""
    before, chaos.desired = chaos.desired, chaos_edits.first()
    chaos.write(before)
    chaos.log("END: the first manifests")
    chaos.probe.excused = set(chaos.desired.services)
    for __ in range(3):
        run = chaos.run("-e", '{"fleet_allow_outage": true}')
        if run.code == 0 and chaos.is_settled():
            break
    else:
        chaos.violate(f"the fleet does not become what its manifests ask for (exit code {run.code})")
        return
    chaos.check_second_run()
