# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Nodes that are cordoned, tainted, not Ready, unlabelled, or without devices: new replicas go where pods start, and
running replicas stay. Each test leaves the nodes as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import DRIVER, LiveFleet, Pool, device, until
from ansible_collections.modelplane.fleet.tests.e2e.observing import engines, is_ready, placed, tags

OLD, NEW = "v0.23.0", "v0.24.0"
NODES = ("gpu-0", "gpu-1", "gpu-2")


@pytest.fixture(scope="module", autouse=True)
def first(live: LiveFleet) -> None:
    live.write("clusters.yaml", fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west"))
    live.write("models.yaml", fleets.deployment("mover", 1) + fleets.service("chat", "mover"))
    live.run("reconcile").ok()
    assert clusters(live) == ["east"]


def clusters(live: LiveFleet, deployment: str = "mover") -> list[str]:
    return [entry["cluster"] for entry in placed(live, deployment)]


def scale(live: LiveFleet, old: int, new: int) -> None:
    live.edit("models.yaml", f'"replicas": {old}', f'"replicas": {new}')


def all_start(live: LiveFleet) -> bool:
    pods = [pod for cluster in ("east", "west") for pod in engines(live, cluster)]
    return len(pods) == len(placed(live, "mover")) and all(map(is_ready, pods))


@contextmanager
def cordoned(live: LiveFleet) -> Iterator[str]:
    live.kubectl("cordon", *NODES, cluster="west")
    try:
        yield "gpu-0 (cordoned)"
    finally:
        live.kubectl("uncordon", *NODES, cluster="west")


@contextmanager
def tainted(live: LiveFleet) -> Iterator[str]:
    live.kubectl("taint", "node", *NODES, "dedicated=batch:NoSchedule", cluster="west")
    try:
        yield "gpu-0 (taint dedicated=batch:NoSchedule)"
    finally:
        live.kubectl("taint", "node", *NODES, "dedicated-", cluster="west")


@contextmanager
def unlabelled(live: LiveFleet) -> Iterator[str]:
    live.kubectl("label", "node", *NODES, "modelplane.ai/pool-", cluster="west")
    try:
        yield "0 of 3 declared nodes exist"
    finally:
        live.kubectl("label", "node", *NODES, "modelplane.ai/pool=gpu", cluster="west")


@contextmanager
def renamed(live: LiveFleet) -> Iterator[str]:
    live.kubectl("label", "--overwrite", "node", *NODES, "modelplane.ai/pool=gpus", cluster="west")
    try:
        yield "Other nodes have the label modelplane.ai/pool: gpus"
    finally:
        live.kubectl("label", "--overwrite", "node", *NODES, "modelplane.ai/pool=gpu", cluster="west")


@contextmanager
def without_devices(live: LiveFleet) -> Iterator[str]:
    plane = live.workloads["west"]
    for node in NODES:
        plane.publish_devices(node, DRIVER, [])
    try:
        yield "gpu-0 (no devices of driver gpu.nvidia.com)"
    finally:
        pool = Pool("gpu")
        for node in NODES:
            plane.publish_devices(node, DRIVER, [device(pool, index) for index in range(pool.devices)])


@contextmanager
def tainted_by_rule(live: LiveFleet) -> Iterator[str]:
    rule = {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "sick"},
        "spec": {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "sick", "effect": "NoSchedule"}},
    }
    live.workloads["west"].apply(rule)
    try:
        yield "gpu-0 (device gpu-0 has the taint sick:NoSchedule)"
    finally:
        live.workloads["west"].objects.delete("resource.k8s.io/v1beta2", "DeviceTaintRule", "sick")


@pytest.mark.parametrize("loss", [cordoned, tainted, unlabelled, renamed, without_devices, tainted_by_rule])
def test_new_replicas_start_where_the_nodes_take_them(live: LiveFleet, loss: Any) -> None:
    with loss(live) as message:
        scale(live, 1, 4)
        try:
            live.run("reconcile").ok()
            assert clusters(live) == ["east"] * 4
            until("all replicas serve", lambda: all_start(live))
            scale(live, 4, 8)
            run = live.run("reconcile")
            assert clusters(live) == ["east"] * 6
            assert message in " ".join(run.output.split())
        finally:
            for old in (8, 4):
                if f'"replicas": {old}' in (live.manifests / "models.yaml").read_text():
                    scale(live, old, 1)
            live.run("reconcile").ok()
    assert clusters(live) == ["east"]


def test_a_replica_whose_pod_finds_no_node_moves(live: LiveFleet) -> None:
    """The nodes are cordoned after the pod of the replica was deleted, as an eviction does."""
    live.kubectl("cordon", *NODES, cluster="east")
    (pod,) = engines(live, "east")
    live.kubectl("delete", "pod", pod["metadata"]["name"], "-n", pod["metadata"]["namespace"], cluster="east")
    try:
        live.run("reconcile", "-e", "fleet_wait=5")
        live.run("reconcile").ok()
        assert clusters(live) == ["west"]
        until("the replica serves on west", lambda: all_start(live))
    finally:
        live.kubectl("uncordon", *NODES, cluster="east")


def test_running_replicas_stay_on_cordoned_nodes(live: LiveFleet) -> None:
    live.kubectl("cordon", *NODES, cluster="west")
    try:
        (pod,) = engines(live, "west")
        run = live.run("reconcile").ok()
        assert run.changed <= 1
        assert clusters(live) == ["west"]
        scale(live, 1, 2)
        live.run("reconcile").ok()
        assert clusters(live) == ["east", "west"]
        assert [each["metadata"]["uid"] for each in engines(live, "west")] == [pod["metadata"]["uid"]]
    finally:
        live.kubectl("uncordon", *NODES, cluster="west")


def test_an_edit_restarts_no_pod_that_would_find_no_node(live: LiveFleet) -> None:
    for cluster in ("east", "west"):
        live.kubectl("cordon", *NODES, cluster=cluster)
    live.edit("models.yaml", OLD, NEW)
    try:
        pods = {pod["metadata"]["uid"] for cluster in ("east", "west") for pod in engines(live, cluster)}
        live.run("reconcile", "-e", "fleet_wait=5")
        assert {pod["metadata"]["uid"] for cluster in ("east", "west") for pod in engines(live, cluster)} == pods
    finally:
        for cluster in ("east", "west"):
            live.kubectl("uncordon", *NODES, cluster=cluster)
    live.run("reconcile").ok()
    assert tags(live, "east") | tags(live, "west") == {NEW}
