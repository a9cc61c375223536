# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Wherever the making or the removal of an EKS cluster stops, the next run goes on: a walk over all calls that
change something, each of which fails once.

Takes a run of Ansible for almost every one of them, and is no part of `make test`: `make interrupted`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import eks, eks_expected
from ansible_collections.modelplane.fleet.tests.e2e.eks import World, pool
from ansible_collections.modelplane.fleet.tests.e2e.eks_expected import Cluster, Group

pytestmark = pytest.mark.interrupted

NAME = "walked"
REGION = "us-east-2"
DESIRED = Cluster(
    NAME,
    REGION,
    public={"us-east-2a": "10.0.0.0/20", "us-east-2b": "10.0.16.0/20"},
    private={"us-east-2a": "10.0.48.0/20", "us-east-2b": "10.0.64.0/20"},
    groups={"fast": Group("p4d.24xlarge", ("us-east-2a",), (0, 8, 1), "nvidia-a100", cards=4)},
)


@pytest.fixture(scope="module")
def world(kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with eks.world(kubernetes_programs, tmp_path_factory.mktemp("walk"), {NAME: REGION}) as started:
        # What runs in the cluster is made by others; here it would need nodes and pods.
        started.live.settings["eks_cluster_states"] = dict.fromkeys(("cluster-autoscaler", "efa-driver"), "provided")
        fast = pool("fast", "p4d.24xlarge", ["us-east-2a"], accelerator="nvidia-a100", fabric="EFA")
        networking = {"subnetCidrs": list(DESIRED.public.values())}
        started.live.write("cluster.yaml", eks.eks_cluster(NAME, REGION, fast, networking=networking))
        yield started


@pytest.fixture(scope="module")
def undisturbed(world: World) -> Mapping[str, Any]:
    """The account without the cluster, and with it when nothing fails."""
    empty = world.comparable()
    world.provision().ok()
    eks_expected.check(world.client(NAME), DESIRED)
    made = world.comparable()
    assert world.provision().ok().changed == 0
    world.remove().ok()
    world.forget(NAME)
    assert world.unlike(empty) == []
    return {"empty": empty, "made": made}


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
def test_each_call_fails_once(world: World, undisturbed: Mapping[str, Any], after: bool) -> None:
    world.double.refuse_each_once(after=after)
    runs = world.converge(world.provision)
    world.double.refuse_each_once(enabled=False)
    if after:
        # Objects that were created twice, as an answer was lost, are deleted by the next run.
        world.provision().ok()
    # Nothing is left to do, nothing is there twice, and nothing is missing.
    assert world.provision().ok().changed == 0
    eks_expected.check(world.client(NAME), DESIRED)
    assert world.unlike(undisturbed["made"]) == []
    assert world.secret(NAME)
    world.double.refuse_each_once(after=after)
    removals = world.converge(world.remove)
    world.double.refuse_each_once(enabled=False)
    world.forget(NAME)
    assert world.unlike(undisturbed["empty"]) == []
    if not after:
        # Otherwise the walk has not been one.
        assert min(runs, removals) > 10, (runs, removals)


def test_a_cluster_whose_making_stops_half_way_can_be_removed(world: World, undisturbed: Mapping[str, Any]) -> None:
    for operation in ("CreateSubnet", "CreateNatGateway", "CreateRole", "CreateCluster", "CreateNodegroup"):
        world.double.refuse(operation=operation)
        assert world.provision().code != 0, operation
        world.remove().ok()
        assert world.unlike(undisturbed["empty"]) == [], operation
