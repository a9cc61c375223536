# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module eks_cluster_info: what it finds by tags, what it refuses to take for the cluster's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import eks
from ansible_collections.modelplane.fleet.plugins.modules import eks_cluster_info
from ansible_collections.modelplane.fleet.tests.aws.double import AwsDouble
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.running import good, refused

CLUSTER = yaml.safe_load((Path(__file__).parents[3] / "data" / "eks" / "cluster-efa.yaml").read_text())
PLAN = eks.plan(CLUSTER)


def specified(kind: str, **more: str) -> list[dict[str, Any]]:
    tags = {**PLAN["tags"], **more}
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}]


def test_an_empty_account(account: AwsDouble) -> None:
    found = good(eks_cluster_info, plan=PLAN)
    assert account.mutations == []
    assert (found["cluster"], found["launch_templates"], found["roles"], found["policies"]) == ({}, [], [], [])
    assert not any(found["network"].values())
    assert len(found["different"]["identity"]) == 5
    ids = [*found["subnet_ids"].values(), *found["security_group_ids"].values()]
    assert len(set(ids)) == len(ids) == 10
    assert found["role_arns"]["node"] == (
        f"arn:aws:iam::{found['account']}:role/{next(r['name'] for r in PLAN['roles'] if r['key'] == 'node')}"
    )


def test_what_carries_the_tags_is_found(account: AwsDouble) -> None:
    ec2 = account.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.32.0.0/16", TagSpecifications=specified("vpc"))["Vpc"]["VpcId"]
    ec2.create_vpc(CidrBlock="10.32.0.0/16")
    subnet = PLAN["network"]["subnets"][0]
    made = ec2.create_subnet(
        VpcId=vpc,
        CidrBlock=subnet["cidr"],
        AvailabilityZone=subnet["zone"],
        TagSpecifications=specified("subnet", Name=subnet["name"]),
    )["Subnet"]["SubnetId"]
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=specified("elastic-ip"))
    account.clear_calls()
    found = good(eks_cluster_info, plan=PLAN)
    assert (found["network"]["vpc_id"], found["network"]["vpc_cidr"]) == (vpc, "10.32.0.0/16")
    assert found["subnet_ids"][subnet["name"]] == made
    assert (found["network"]["allocation_id"], found["network"]["public_ip"]) == (
        address["AllocationId"],
        address["PublicIp"],
    )
    assert "there is no address for the NAT gateway" not in found["different"]["network"]


def test_two_of_one_thing(account: AwsDouble) -> None:
    for _ in range(2):
        account.client("ec2").allocate_address(Domain="vpc", TagSpecifications=specified("elastic-ip"))
    told = refused(eks_cluster_info, plan=PLAN)
    assert "there are 2 of Elastic IP with the tag modelplane.ai/cluster=modelplane-system.eks-frontier" in told


def test_a_role_of_somebody_else(account: AwsDouble) -> None:
    role = PLAN["roles"][0]
    account.client("iam").create_role(RoleName=role["name"], AssumeRolePolicyDocument=json.dumps(role["trust"]))
    told = refused(eks_cluster_info, plan=PLAN)
    assert f"IAM role {role['name']} is there but is not this cluster's" in told
    assert account.mutations == []


@pytest.mark.parametrize("plan", [{}, {"roles": 1}], ids=["empty", "something else"])
def test_no_plan(account: AwsDouble, plan: dict[str, Any]) -> None:
    assert "plan is none of the filter modelplane.fleet.eks_plan" in refused(eks_cluster_info, plan=plan)
    assert account.calls == []
