# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Fields that cannot be changed, objects of other owners, and objects that exist twice."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import Options
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import gpu
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.cloud_resources_eks.eks_account import (
    Cluster,
    Json,
)


def test_a_group_that_exists_without_a_launch_template_is_never_replaced(cluster: Cluster) -> None:
    old = Options(tags={"team": "ml"}, groups_without_template=("system", "gpu-l4"))
    cluster.become(options=old)
    cluster.apply(purge=True)
    assert [line for line in cluster.account() if line.startswith("template")] == []
    assert cluster.group()["diskSize"] == 100
    cluster.unchanged(purge=True)
    for check in (True, False):
        cluster.become()
        result = cluster.run(check=check, purge=True)
        assert (result["failed"], result["changed"], cluster.sent()) == (True, False, [])
        assert (
            "node group gpu-l4: cannot change hasLaunchTemplate from false to true. EKS cannot change it"
            in result["msg"]
        )
    cluster.become(gpu(), gpu("more"), options=old)
    result = cluster.apply(purge=True)
    assert sorted(result["actions"]) == [
        f"create launch template {cluster.entry('launch-template-more')['name']}",
        "create node group more",
    ]
    cluster.unchanged(purge=True)
    # Removed without asking which groups are without.
    cluster.become()
    cluster.apply(state="absent", purge=True)
    assert cluster.account() == []


@pytest.mark.parametrize("check", [True, False], ids=["check mode", "run"])
def test_nothing_is_begun_when_a_field_cannot_be_changed(made: Cluster, check: bool) -> None:
    immutable: list[tuple[Json, list[Json], list[str]]] = [
        (
            {"networking": {"vpcCidr": "10.9.0.0/16", "subnetCidrs": ["10.9.0.0/20", "10.9.16.0/20"]}},
            [],
            [
                f"VPC {made.name}: cannot change CidrBlock from 10.0.0.0/16 to 10.9.0.0/16",
                "set spec.networking.vpcCidr back to 10.0.0.0/16, or remove the cluster and provision it again",
            ],
        ),
        (
            {"networking": {"subnetCidrs": ["10.0.0.0/20", "10.0.32.0/20"]}},
            [],
            ["cannot change CidrBlock from 10.0.16.0/20 to 10.0.32.0/20. AWS cannot change it: set spec.networking"],
        ),
        (
            {},
            [gpu(instanceType="g6.xlarge", diskSizeGb=300, zones=["us-west-2b"])],
            [
                "node group gpu-l4: cannot change instanceTypes from g6.12xlarge to g6.xlarge. EKS cannot change it",
                f"node group gpu-l4: cannot change subnets from {made.id('subnet-private-us-west-2a', 'SubnetId')} to",
            ],
        ),
        ({}, [gpu(fabric="EFA")], ["node group gpu-l4: cannot change machineInTemplate from false to true"]),
    ]
    for spec, pools, messages in immutable:
        made.become(*pools, kubernetesVersion="1.36", **spec)
        result = made.run(check=check)
        assert (result["failed"], result["changed"], made.sent()) == (True, False, [])
        for message in messages:
            assert message in result["msg"]
    made.become()
    made.entry("cluster")["body"]["roleArn"] = made.id("role-node", "Arn")
    made.entry("node-group-gpu-l4")["body"]["nodeRole"] = made.id("role-cluster", "Arn")
    made.entry("file-system")["body"]["Encrypted"] = False
    result = made.run(check=check)
    assert f"EKS cluster {made.name}: cannot change roleArn from" in result["msg"]
    assert "node group gpu-l4: cannot change nodeRole from" in result["msg"]
    assert f"EFS file system {made.name}: cannot change Encrypted from true to false" in result["msg"]
    assert made.sent() == []


def _plant_vpc(cluster: Cluster, tags: Json) -> None:
    tags = {**tags, "Name": cluster.name}
    wire = [{"Key": key, "Value": value} for key, value in tags.items()]
    specification = [{"ResourceType": "vpc", "Tags": wire}]
    cluster.ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=specification)


def _plant_role(cluster: Cluster, tags: Json) -> None:
    body = cluster.entry("role-node")["body"]
    wire = [{"Key": key, "Value": value} for key, value in tags.items()]
    trust = json.dumps(body["AssumeRolePolicyDocument"])
    cluster.iam.create_role(RoleName=cluster.entry("role-node")["name"], AssumeRolePolicyDocument=trust, Tags=wire)


def _plant_file_system(cluster: Cluster, tags: Json) -> None:
    wire = [{"Key": key, "Value": value} for key, value in tags.items()]
    cluster.efs.create_file_system(CreationToken=cluster.name, Encrypted=True, Tags=wire)


@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize("plant", [_plant_vpc, _plant_role, _plant_file_system], ids=["vpc", "role", "file system"])
def test_objects_of_others_are_refused(cluster: Cluster, plant: Callable[[Cluster, Json], None], state: str) -> None:
    owners = {
        "was not created by this collection: it has no modelplane.ai/managed-by=modelplane.fleet in its tags": {},
        "has another owner: modelplane.ai/fleet=other in its tags, not default": {
            **cluster.plan["tags"],
            "modelplane.ai/fleet": "other",
        },
    }
    for message, tags in owners.items():
        cluster.aws.reset()
        cluster.aws.settings(phases=0)
        plant(cluster, tags)
        cluster.aws.forget_calls()
        for check in (True, False):
            result = cluster.run(check=check, state=state)
            assert (result["failed"], result["changed"]) == (True, False)
            assert message in result["msg"]
            assert cluster.sent() == []


def test_roles_of_a_cluster_in_another_region_are_refused(cluster: Cluster) -> None:
    _plant_role(cluster, {**cluster.plan["tags"], "modelplane.ai/region": "eu-central-1"})
    cluster.sent()
    for state in ("present", "absent"):
        result = cluster.run(state=state)
        assert "belongs to the cluster of this name in eu-central-1 (tag modelplane.ai/region)" in result["msg"]
        assert "Set spec.region back to eu-central-1 and delete that cluster first" in result["msg"]
        assert cluster.sent() == []


def test_objects_in_the_cluster_of_others_and_a_cluster_in_another_vpc_are_refused(made: Cluster) -> None:
    arns = {"node-group-gpu-l4": "nodegroupArn", "addon-coredns": "addonArn", "cluster": "arn"}
    for key, field in arns.items():
        made.eks.untag_resource(resourceArn=made.id(key, field), tagKeys=["modelplane.ai/managed-by"])
    template = made.id("vpc", "VpcId")
    made.ec2.create_tags(Resources=[template], Tags=[{"Key": "modelplane.ai/cluster", "Value": "east"}])
    made.ec2.create_tags(Resources=[template], Tags=[{"Key": "Name", "Value": "east"}])
    made.sent()
    for check in (True, False):
        result = made.run(check=check)
        assert f"EKS cluster {made.name} exists already, and was not created by this collection" in result["msg"]
        assert "node group gpu-l4 exists already" in result["msg"]
        assert "addon coredns exists already" in result["msg"]
        assert (result["changed"], made.sent()) == (False, [])
    made.eks.tag_resource(resourceArn=made.id("cluster", "arn"), tags=made.plan["tags"])
    result = made.run()
    assert f"EKS cluster {made.name} is in the VPC {template}, which does not have the owner tags" in result["msg"]


def test_a_plan_of_another_region_is_refused(cluster: Cluster) -> None:
    result = cluster.run(region="eu-central-1")
    assert "resources[0].parent: us-west-2 is not the region eu-central-1. Give the region of the plan" in result["msg"]


# Objects that exist twice, as the answer of the call that created one was lost


def test_twins_are_used_or_deleted(made: Cluster) -> None:
    """The one in use is kept; the others go with `purge`."""
    tags = [{"Key": key, "Value": value} for key, value in {**made.plan["tags"], "Name": made.name}.items()]

    def tagged(kind: str) -> list[Json]:
        return [{"ResourceType": kind, "Tags": tags}]

    before = made.account()
    for _ in range(2):
        made.ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tagged("vpc"))
        made.ec2.create_internet_gateway(TagSpecifications=tagged("internet-gateway"))
        made.ec2.allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip"))
    theirs = [{**each, "Value": "other"} if each["Key"] == "modelplane.ai/fleet" else each for each in tags]
    kept = made.ec2.allocate_address(Domain="vpc", TagSpecifications=[{"ResourceType": "elastic-ip", "Tags": theirs}])
    made.unchanged()
    checked = made.run(check=True, purge=True)
    done = made.apply(purge=True)
    assert done["diff"] == checked["diff"]
    assert (len(done["diff"]["before"]), done["diff"]["after"]) == (6, {})
    made.unchanged(purge=True)
    made.ec2.release_address(AllocationId=kept["AllocationId"])
    assert made.account() == before


def test_a_lost_answer_creates_no_twin(cluster: Cluster) -> None:
    for operation in ("CreateVpc", "CreateInternetGateway", "AllocateAddress"):
        cluster.aws.refuse(operation=operation, code="InternalError", status=500, after=True)
    cluster.apply()
    calls = cluster.sent()
    assert [calls.count(each) for each in ("CreateVpc", "CreateInternetGateway", "AllocateAddress")] == [1, 1, 1]
    cluster.unchanged(purge=True)
