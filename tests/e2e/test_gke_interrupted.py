# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Wherever the making or the removal of a GKE cluster stops, the next run goes on: a walk over all calls that change
something, each of which fails once, and over all operations, each of which ends in an error once.

Takes a run of Ansible for almost every one of them, and is no part of `make test`: `make interrupted`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import gke, gke_expected
from ansible_collections.modelplane.fleet.tests.e2e.clouds import child_name
from ansible_collections.modelplane.fleet.tests.e2e.gke import World, gke_name, pool
from ansible_collections.modelplane.fleet.tests.e2e.gke_expected import Cluster, NodePool
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import SYSTEM, Run

pytestmark = pytest.mark.interrupted

NAME = "walked"
REGION = "us-central1"
POOL = pool("l4", "g2-standard-8", "nvidia-l4", 1, ["us-central1-a"])
DESIRED = Cluster(
    NAME,
    REGION,
    ["us-central1-a", "us-central1-b", "us-central1-c"],
    {"l4": NodePool("g2-standard-8", (0, 8, 1), ["us-central1-a"], "nvidia-l4")},
    version="1.34",
)
# What is changed in place, by a call each.
CHANGED = replace(
    DESIRED,
    pools={"l4": NodePool("g2-standard-16", (2, 2, 1), ["us-central1-a", "us-central1-b"], "nvidia-l4", disk=200)},
    nodes="10.0.0.0/23",
    version="1.35",
    labels={"team": "inference"},
)


@pytest.fixture(scope="module")
def world(kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with gke.world(kubernetes_programs, tmp_path_factory.mktemp("walk"), {NAME: REGION}) as started:
        declare(started)
        yield started


def declare(world: World) -> None:
    world.live.write("cluster.yaml", gke.gke_cluster(NAME, REGION, POOL, kubernetesVersion="1.34"))


def declare_changed(world: World) -> None:
    """The cluster as CHANGED has it."""
    changed = {
        **POOL,
        "machineType": "g2-standard-16",
        "diskSizeGb": 200,
        "zones": ["us-central1-a", "us-central1-b"],
        "minNodeCount": 2,
        "maxNodeCount": 2,
    }
    text = gke.gke_cluster(NAME, REGION, changed, kubernetesVersion="1.35", networking={"nodeCidr": "10.0.0.0/23"})
    world.live.write("cluster.yaml", text)
    world.live.settings["gke_cluster_labels"] = {"team": "inference"}


@pytest.fixture(scope="module")
def undisturbed(world: World) -> Mapping[str, Any]:
    """The project without the cluster, and with it when nothing fails. The first time an API is enabled, which stays
    so."""
    empty = world.comparable()
    world.provision().ok()
    gke_expected.check(world, DESIRED)
    made = world.comparable()
    assert world.provision().ok().changed == 0
    world.remove().ok()
    world.forget(NAME)
    assert world.unlike(empty) == []
    return {"empty": empty, "made": made}


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
def test_each_call_fails_once(world: World, undisturbed: Mapping[str, Any], after: bool) -> None:
    world.double.disable_service("file.googleapis.com")
    world.double.refuse_each_once(after=after)
    runs = world.converge(world.provision)
    world.double.refuse_each_once(enabled=False)
    # Nothing is left to do, nothing is there twice, and nothing is missing.
    assert world.provision().ok().changed == 0
    gke_expected.check(world, DESIRED)
    assert world.unlike(undisturbed["made"]) == []
    assert world.secret(NAME)
    assert world.live.control.get("v1", "Secret", child_name(NAME, "sa-key"), SYSTEM)
    leak(world)
    world.double.refuse_each_once(after=after)
    removals = world.converge(world.remove)
    world.double.refuse_each_once(enabled=False)
    world.forget(NAME)
    assert world.unlike(undisturbed["empty"]) == []
    assert world.secret(NAME) is None
    if not after:
        # Otherwise the walk has not been one: what does not need each other is tried in the same run.
        assert min(runs, removals) > 3, (runs, removals)


def leak(world: World) -> None:
    """Objects that controllers in the cluster leave behind."""
    world.double.load_balancer(gke_name(NAME))
    world.double.load_balancer(gke_name(NAME), "team/inside", internal=True)
    world.double.volume(gke_name(NAME))


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
def test_each_change_in_place_fails_once(world: World, undisturbed: Mapping[str, Any], after: bool) -> None:
    with world.kept():
        world.provision().ok()
        declare_changed(world)
        world.double.refuse_each_once(after=after)
        runs = world.converge(world.provision)
        world.double.refuse_each_once(enabled=False)
        assert world.provision().ok().changed == 0
        gke_expected.check(world, CHANGED)
        world.remove().ok()
    assert world.unlike(undisturbed["empty"]) == []
    if not after:
        assert runs > 5, runs


MAKING = ("network", "subnetwork", "enable service", "cluster", "node pool")
REMOVING = ("delete cluster", "delete subnetwork", "delete network")


def test_each_operation_ends_in_an_error_once(world: World, undisturbed: Mapping[str, Any]) -> None:
    world.double.disable_service("file.googleapis.com")
    for kind in MAKING:
        world.double.fail(kind, code="INTERNAL", message=f"The {kind} broke.")
    reported = fail_until_well(world.provision, len(MAKING))
    for kind in MAKING:
        assert f"The {kind} broke." in reported, (kind, reported)
    assert world.provision().ok().changed == 0
    gke_expected.check(world, DESIRED)
    assert world.unlike(undisturbed["made"]) == []
    for kind in REMOVING:
        world.double.fail(kind, code="INTERNAL", message=f"To {kind} broke.")
    reported = fail_until_well(world.remove, len(REMOVING))
    for kind in REMOVING:
        assert f"To {kind} broke." in reported, (kind, reported)
    assert world.unlike(undisturbed["empty"]) == []


def fail_until_well(run_once: Callable[[], Run], most: int) -> str:
    """Run until a run succeeds, after so many failures at most; return the output."""
    reported = []
    for _ in range(most + 1):
        run = run_once()
        reported.append(run.output)
        if run.code == 0:
            return "\n".join(reported)
    raise AssertionError(run.output)


@pytest.mark.parametrize(
    ("code", "message", "reported"),
    [
        ("GCE_STOCKOUT", "Current errors: [GCE_STOCKOUT]: Instance creation failed.", "add zones to the pool"),
        (
            "GCE_QUOTA_EXCEEDED",
            "Current errors: [GCE_QUOTA_EXCEEDED]: Instance creation failed: Quota 'NVIDIA_L4_GPUS' exceeded.",
            "request a higher quota",
        ),
    ],
    ids=["stockout", "quota"],
)
def test_a_pool_without_machines_is_created_again(
    world: World, undisturbed: Mapping[str, Any], code: str, message: str, reported: str
) -> None:
    world.double.fail("node pool", "l4", code=code, message=message)
    run = world.provision()
    assert run.failed == {NAME}, run.output
    assert reported in run.output
    world.provision().ok()
    assert world.unlike(undisturbed["made"]) == []
    world.remove().ok()
    assert world.unlike(undisturbed["empty"]) == []


def test_a_cluster_whose_making_stops_half_way_can_be_removed(world: World, undisturbed: Mapping[str, Any]) -> None:
    for operation in (
        "subnetworks.insert",
        "clusters.create",
        "nodePools.create",
        "serviceAccounts.create",
        "setIamPolicy",
        "keys.create",
    ):
        world.double.refuse(operation=operation)
        assert world.provision().code != 0, operation
        world.remove().ok()
        assert world.unlike(undisturbed["empty"]) == [], operation
