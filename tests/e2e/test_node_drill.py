# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Random changes of nodes and devices under a serving fleet: no new replica is placed where its pods do not start, and
no replica is reported as serving without a ready pod.

Environment variables set the duration (NODE_DRILL_MINUTES) and the seed (NODE_DRILL_SEED). The file drill.log in the
fleet directory contains all changes and the output of each run."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import DRIVER, LiveFleet, Object, Pool, device
from ansible_collections.modelplane.fleet.tests.e2e.observing import REPLICA_LABEL, engines, is_ready
from ansible_collections.modelplane.fleet.tests.kube import workers
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

pytestmark = pytest.mark.interrupted

POOL = Pool("gpu", 3)
CHANGES = (1, 4)
"""Fewest and most changes between two runs."""
PATIENCE = 60
"""Seconds until kube-scheduler has assigned the pods of a new replica to nodes."""
RULES = "resource.k8s.io/v1beta2"
Replica = tuple[str, str]
"""Cluster and name."""


@dataclass
class Node:
    """A node and its differences from a node that takes pods."""

    plane: ControlPlane
    number: int
    exists: bool = True
    cordoned: bool = False
    label: str = POOL.name
    taint: bool = False
    devices: int = POOL.devices
    ruled: bool = False

    @property
    def name(self) -> str:
        return f"{POOL.name}-{self.number}"

    def __str__(self) -> str:
        return f"{self.plane.name}/{self.name}"

    @property
    def losses(self) -> list[Callable[[], str]]:
        return [self.remove, self.cordon, self.relabel, self.add_taint, self.publish, self.add_rule]

    @property
    def repairs(self) -> list[Callable[[], str]]:
        """Return what makes a node that takes no pods, or has fewer devices, as it was."""
        if not self.exists:
            return [self.remove]
        lost = (self.cordoned, not self.label, self.taint, self.devices < POOL.devices, self.ruled)
        return [repair for repair, is_lost in zip(self.losses[1:], lost, strict=True) if is_lost]

    def cordon(self) -> str:
        self.cordoned = not self.cordoned
        self._patch({"spec": {"unschedulable": self.cordoned or None}})
        return f"{self}: {'cordoned' if self.cordoned else 'uncordoned'}"

    def relabel(self) -> str:
        self.label = "" if self.label else POOL.name
        self._patch({"metadata": {"labels": {"modelplane.ai/pool": self.label or None}}})
        return f"{self}: {'labelled' if self.label else 'label removed'}"

    def add_taint(self) -> str:
        self.taint = not self.taint
        taints = [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}] if self.taint else None
        self._patch({"spec": {"taints": taints}})
        return f"{self}: {'tainted' if self.taint else 'taint removed'}"

    def publish(self) -> str:
        self.devices = (self.devices + 1) % (POOL.devices + 1)
        self._publish()
        return f"{self}: publishes {self.devices} devices"

    def add_rule(self) -> str:
        self.ruled = not self.ruled
        if self.ruled:
            selector = {"driver": DRIVER, "pool": self.name, "device": "gpu-0"}
            rule = {"deviceSelector": selector, "taint": {"key": "sick", "effect": "NoSchedule"}}
            self.plane.apply(
                {"apiVersion": RULES, "kind": "DeviceTaintRule", "metadata": {"name": self.name}, "spec": rule}
            )
        else:
            self.plane.objects.delete(RULES, "DeviceTaintRule", self.name)
        return f"{self}: DeviceTaintRule {'created' if self.ruled else 'deleted'}"

    def remove(self) -> str:
        if not self.exists:
            labels = {"modelplane.ai/pool": POOL.name}
            self.plane.apply(workers.nodes(POOL.name, POOL.nodes, labels=labels, taints=(), capacity={})[self.number])
            self.exists, self.cordoned, self.taint, self.label = True, False, False, POOL.name
            self.devices = POOL.devices
            self._publish()
            return f"{self}: added"
        self.exists = False
        for value in self.plane.objects.list("resource.k8s.io/v1", "ResourceSlice"):
            if value["spec"].get("nodeName") == self.name:
                self.plane.objects.delete("resource.k8s.io/v1", "ResourceSlice", value["metadata"]["name"])
        self.plane.objects.delete("v1", "Node", self.name)
        return f"{self}: removed"

    def _publish(self) -> None:
        self.plane.publish_devices(self.name, DRIVER, [device(POOL, index) for index in range(self.devices)])

    def _patch(self, change: Object) -> None:
        self.plane.objects.patch("v1", "Node", self.name, change)


@dataclass
class Drill:
    """A serving fleet whose nodes change."""

    live: LiveFleet
    random: Random
    nodes: list[Node]
    replicas: int = 4
    changes: Counter[str] = field(default_factory=Counter)
    placed: int = 0
    runs: int = 0
    violations: list[str] = field(default_factory=list)

    def log(self, text: str) -> None:
        with (self.live.folder / "drill.log").open("a") as log:
            log.write(f"[{datetime.now(UTC):%H:%M:%S}] {text}\n")

    def violate(self, message: str) -> None:
        self.violations.append(message)
        self.log(f"VIOLATION: {message}")

    def write(self) -> None:
        self.live.write(
            "models.yaml", fleets.deployment("chat", self.replicas, devices=1) + fleets.service("chat", "chat")
        )

    def step(self) -> None:
        """Change nodes, run, and check the new replicas and the report."""
        for __ in range(self.random.randint(*CHANGES)):
            self.change()
        if self.random.random() < 0.5:
            self.replicas = self.random.randint(2, 6)
            self.log(f"{self.replicas} replicas")
            self.write()
        before = self.existing()
        run = self.live.run("reconcile", "-e", "fleet_wait=10")
        self.runs += 1
        self.log(f"reconcile: {run.code}, changed {run.changed}\n{run.output}")
        if run.code not in (0, 2):
            self.violate(f"exit code {run.code}")
        self.check_new_replicas(self.existing() - before)
        self.check_report()

    def change(self) -> None:
        node = self.random.choice(self.nodes)
        action = self.random.choice(node.repairs or node.losses)
        self.log(action())
        self.changes[action.__name__] += 1

    def existing(self) -> set[Replica]:
        return {(entry["cluster"], entry["replica"]) for entry in self.live.plan()["placements"]}

    def pods(self, replica: Replica) -> list[Object]:
        cluster, name = replica
        return [pod for pod in engines(self.live, cluster) if pod["metadata"]["labels"][REPLICA_LABEL] == name]

    def check_new_replicas(self, new: set[Replica]) -> None:
        """Check that each new replica has a pod with a node."""
        self.placed += len(new)
        deadline = time.monotonic() + PATIENCE
        while waiting := [
            replica for replica in sorted(new) if not any(pod["spec"].get("nodeName") for pod in self.pods(replica))
        ]:
            if time.monotonic() > deadline:
                states = [pod["status"].get("conditions") for replica in waiting for pod in self.pods(replica)]
                self.violate(f"new replicas without a node: {waiting}: {states}")
                return
            time.sleep(1)

    def check_report(self) -> None:
        """Check that each replica that is reported as serving has a ready pod, before or after the report."""
        path = self.live.folder / "status.json"
        ready = self.ready()
        self.live.run("status", "-e", f"fleet_report={path}").ok()
        ready |= self.ready()
        document: Any = json.loads(path.read_text())
        for deployment in document["deployments"]:
            for replica in deployment["replicas"]:
                if replica["status"] == "Serving" and (replica["cluster"], replica["name"]) not in ready:
                    self.violate(f"{replica['name']} on {replica['cluster']} serves on paper only")

    def ready(self) -> set[Replica]:
        return {
            (cluster, pod["metadata"]["labels"][REPLICA_LABEL])
            for cluster in self.live.workloads
            for pod in engines(self.live, cluster)
            if is_ready(pod)
        }


def test_new_replicas_start_while_nodes_come_and_go(live: LiveFleet) -> None:
    minutes = float(os.environ.get("NODE_DRILL_MINUTES", "5"))
    seed = int(os.environ.get("NODE_DRILL_SEED", "1"))
    live.write("clusters.yaml", fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west"))
    nodes = [Node(plane, number) for plane in live.workloads.values() for number in range(POOL.nodes)]
    drill = Drill(live, Random(seed), nodes)
    drill.write()
    live.run("reconcile").ok()
    deadline = time.monotonic() + 60 * minutes
    while time.monotonic() < deadline:
        drill.step()
    print(
        f"seed {seed}: {dict(drill.changes)} changes, {drill.runs} runs, {drill.placed} new replicas, "
        f"{len(drill.violations)} violations in {minutes:g} minutes"
    )
    assert drill.placed, drill.changes
    assert not drill.violations, drill.violations
