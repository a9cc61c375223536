# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Runs that stop half-way: AWS refuses each change in turn, and all that the run asks afterwards; the next run goes on
from there."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

pytest.importorskip("moto", reason="moto is not installed")

from ansible_collections.modelplane.fleet.tests import packages
from ansible_collections.modelplane.fleet.tests.aws.double import AwsDouble
from ansible_collections.modelplane.fleet.tests.e2e.eks_account import BLOCK, CUSTOM, Site

FRONTIER = "eks-frontier"
# How many changes a run makes before it dies; with 1, each change is refused once.
STEP = int(os.environ.get("MODELPLANE_TEST_STEP", "1"))
MAKES = (
    "CreateVpc",
    "CreateSubnet",
    "CreateInternetGateway",
    "AllocateAddress",
    "CreateNatGateway",
    "CreateRouteTable",
    "CreateSecurityGroup",
    "CreatePolicy",
    "CreateRole",
    "CreateCluster",
    "CreateNodegroup",
    "CreateAddon",
    "CreatePodIdentityAssociation",
    "CreateFileSystem",
    "CreateMountTarget",
    "CreateLaunchTemplate",
)
ONCE = {
    **dict.fromkeys(MAKES, 1),
    "CreateSubnet": 8,
    "CreateRouteTable": 2,
    "CreateSecurityGroup": 2,
    "CreateRole": 4,
    "CreateNodegroup": 4,
    "CreateAddon": 5,
    "CreatePodIdentityAssociation": 2,
    "CreateMountTarget": 4,
    "CreateLaunchTemplate": 2,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    try:
        packages.amazon_aws()
    except packages.UnavailableError as error:
        pytest.skip(str(error))
    with AwsDouble() as aws:
        made = Site(aws, tmp_path_factory.mktemp("eks"))
        made.add(FRONTIER, CUSTOM, replace={BLOCK: aws.reserve("p5en.48xlarge", "us-west-2d", 2)})
        yield made
        assert aws.invalid == []
        assert aws.defects == []


def test_a_cluster_is_built_though_every_change_is_refused_once(site: Site) -> None:
    made: Counter[str] = Counter()
    for _ in range(200):
        site.aws.fail(STEP, halt=True)
        run = site.run()
        made.update(call.operation for call in site.aws.mutations if not call.code)
        stopped = site.aws.failed
        site.aws.resume()
        assert "Traceback" not in run.out
        if not stopped:
            run.ok()
            break
        assert run.failed == {FRONTIER: 1}
    else:
        raise AssertionError("it does not come to an end")
    assert {name: made[name] for name in MAKES} == ONCE
    assert site.run().ok().changed == {FRONTIER: 0}


def test_it_is_removed_though_every_change_is_refused_once(site: Site) -> None:
    for _ in range(200):
        site.aws.fail(STEP, halt=True)
        run = site.remove()
        stopped = site.aws.failed
        site.aws.resume()
        if not stopped:
            run.ok()
            break
        assert run.failed == {FRONTIER: 1}
    else:
        raise AssertionError("it does not come to an end")
    assert [left for left in site.aws.leftovers() if "reservation" not in left] == []


def test_answers_that_are_lost_make_nothing_twice(site: Site) -> None:
    """AWS does what it is asked for, and nobody hears of it."""
    for operation in MAKES:
        site.aws.fail(operation, after=True)
    made: Counter[str] = Counter()
    for _ in range(len(MAKES)):
        run = site.run()
        made.update(call.operation for call in site.aws.mutations if call.code in ("", "lost"))
        if not any(run.failed.values()):
            break
    assert site.aws.failed
    assert site.run().ok().changed == {FRONTIER: 0}
    assert (made["AllocateAddress"], made["CreateVpc"]) == (1, 1)
    assert len(site.aws.client("ec2").describe_nat_gateways()["NatGateways"]) == 1
    assert len(site.aws.client("ec2").describe_addresses()["Addresses"]) == 1
    assert len(site.aws.client("efs").describe_file_systems()["FileSystems"]) == 1
