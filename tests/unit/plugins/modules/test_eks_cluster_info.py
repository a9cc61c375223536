# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module against the double of AWS: nothing, everything, each drift, and what is somebody else's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.modules import eks_cluster_info
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from ansible_collections.modelplane.fleet.tests.module_run import run_module
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.whole_cloud import planned
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.made_cluster import ANYWHERE, Made, tags

FLEET = "modelplane.ai/fleet"
# A policy of AWS that the double knows, and that only one of the roles has.
SURPLUS = "arn:aws:iam::aws:policy/service-role/AmazonEFSCSIDriverPolicy"


def look(aws: Double, plan: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What the module tells; it may only read."""
    aws.forget_calls()
    result = run_module(eks_cluster_info, {**aws.credentials, "plan": plan, **more}, check_mode=True)
    assert aws.calls(mutating=True) == []
    assert result["changed"] is False
    return result


def actions(result: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted({(one["part"], one["action"]) for one in result["differences"]})


def test_an_empty_account_has_nothing(aws: Double) -> None:
    plan = planned(efa=True)
    result = look(aws, plan, everything=True)
    assert {one["action"] for one in result["differences"]} == {"make"}
    assert result["parts"] == [
        *("vpc", "subnets", "internet_gateway", "nat_gateway", "route_tables", "security_groups", "policies", "roles")
    ]
    assert (result["foreign"], result["left"], result["unplanned"]) == ([], [], {})
    assert result["ids"]["vpc"] == ""
    assert result["ids"]["roles"]["node"].startswith("arn:aws:iam::123456789012:role/modelplane-system-west-node-")
    assert result["found"]["cluster"] == {}
    assert len(result["diff"]) == len(result["differences"])


@pytest.mark.parametrize("efa", [False, True])
def test_what_is_there_is_found_and_as_planned(aws: Double, efa: bool) -> None:
    plan = planned(efa=efa)
    made = Made(aws, plan)
    result = look(aws, plan, everything=True)
    assert result["differences"] == []
    assert (result["parts"], result["foreign"], result["unplanned"], result["diff"]) == ([], [], {}, [])
    ids = result["ids"]
    assert ids["subnets"] == made.subnets
    assert ids["private_subnets"] == {
        one["zone"]: made.subnets[one["name"]] for one in plan["subnets"] if one["tier"] == "private"
    }
    assert ids["security_groups"] == {key: made.ids[key] for key in ("efs", *(["efa"] if efa else []))}
    assert ids["route_tables"] == {tier: made.ids[f"{tier} table"] for tier in ("public", "private")}
    assert (ids["vpc"], ids["internet_gateway"], ids["nat_gateway"], ids["eip"], ids["file_system"]) == tuple(
        made.ids[key] for key in ("vpc", "igw", "nat", "eip", "fs")
    )
    assert ids["roles"]["node"] == made.role_arn("node")
    cluster = made.eks.describe_cluster(name=plan["name"])["cluster"]
    assert ids["cluster_security_group"] == cluster["resourcesVpcConfig"]["clusterSecurityGroupId"]
    assert (ids["cluster_status"], ids["endpoint"]) == ("ACTIVE", cluster["endpoint"])
    assert result["found"]["node_groups"] == ["system"]
    kinds = [one["kind"] for one in result["left"]]
    assert kinds.count("subnet") == len(plan["subnets"])
    assert {"node_group", "mount_target", "file_system", "cluster", "elastic_ip", "vpc", "role"} <= set(kinds)
    assert ("launch_template" in kinds) is efa


def test_a_look_takes_a_handful_of_calls(aws: Double) -> None:
    plan = planned()
    Made(aws, plan)
    look(aws, plan)
    assert len(aws.calls()) <= 35


# Drift, made by boto3, and the differences that follow


def default_route(made: Made, tier: str, **target: str) -> None:
    made.ec2.replace_route(RouteTableId=made.ids[f"{tier} table"], DestinationCidrBlock=ANYWHERE, **target)


def untag(made: Made, key: str, *names: str) -> None:
    made.ec2.delete_tags(Resources=[made.ids[key]], Tags=[{"Key": name} for name in names])


def no_association(made: Made) -> None:
    [table] = made.ec2.describe_route_tables(RouteTableIds=[made.ids["public table"]])["RouteTables"]
    first = next(one for one in table["Associations"] if one.get("SubnetId"))
    made.ec2.disassociate_route_table(AssociationId=first["RouteTableAssociationId"])


def open_ssh(made: Made) -> None:
    made.ec2.authorize_security_group_ingress(
        GroupId=made.ids["efs"],
        IpPermissions=[{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": ANYWHERE}]}],
    )


def more_rights(made: Made) -> None:
    made.iam.attach_role_policy(RoleName=made.role("node"), PolicyArn=SURPLUS)


def other_trust(made: Made) -> None:
    trust = json.dumps(made.plan["roles"][0]["trust"]).replace("eks.amazonaws", "lambda.amazonaws")
    made.iam.update_assume_role_policy(RoleName=made.role("cluster"), PolicyDocument=trust)


def other_document(made: Made) -> None:
    arn = f"arn:aws:iam::123456789012:policy/{made.plan['policies'][0]['name']}"
    document = {**made.plan["policies"][0]["document"]}
    document["Statement"] = [{**document["Statement"][0], "Action": "*"}]
    made.iam.create_policy_version(PolicyArn=arn, PolicyDocument=json.dumps(document), SetAsDefault=True)


DRIFTS: list[tuple[Callable[[Made], Any], str, str]] = [
    (
        lambda made: made.ec2.modify_vpc_attribute(VpcId=made.ids["vpc"], EnableDnsHostnames={"Value": False}),
        "vpc",
        "DNS host names from false to true",
    ),
    (lambda made: untag(made, "vpc", FLEET), "vpc", "tags modelplane.ai/fleet=default"),
    (
        lambda made: made.ec2.modify_subnet_attribute(
            SubnetId=next(iter(made.subnets.values())), MapPublicIpOnLaunch={"Value": False}
        ),
        "subnets",
        "public addresses at launch from false to true",
    ),
    (
        lambda made: made.ec2.delete_tags(
            Resources=list(made.subnets.values())[:2], Tags=[{"Key": "kubernetes.io/role/elb"}, {"Key": "Name"}]
        ),
        "subnets",
        "kubernetes.io/role/elb=1",
    ),
    (lambda made: untag(made, "nat", FLEET), "nat_gateway", "tags modelplane.ai/fleet=default"),
    (
        lambda made: made.ec2.delete_route(RouteTableId=made.ids["public table"], DestinationCidrBlock=ANYWHERE),
        "route_tables",
        "as there is none",
    ),
    (no_association, "route_tables", "subnets adds west-subnet-"),
    (
        lambda made: default_route(made, "private", GatewayId=made.ids["igw"]),
        "route_tables",
        "instead of igw-",
    ),
    (open_ssh, "security_groups", "ingress removes tcp 22 0.0.0.0/0"),
    (
        lambda made: made.ec2.authorize_security_group_egress(
            GroupId=made.ids["efs"], IpPermissions=[{"IpProtocol": "-1", "IpRanges": [{"CidrIp": ANYWHERE}]}]
        ),
        "security_groups",
        "egress removes all 0.0.0.0/0",
    ),
    (other_document, "policies", "document is not that of the plan"),
    (more_rights, "roles", f"attached policies removes {SURPLUS}"),
    (
        lambda made: made.iam.detach_role_policy(
            RoleName=made.role("cluster"), PolicyArn="arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"
        ),
        "roles",
        "attached policies adds arn:aws:iam::aws:policy/AmazonEKSClusterPolicy",
    ),
    (other_trust, "roles", "who may assume it is not as in the plan"),
    (
        lambda made: made.iam.untag_role(RoleName=made.role("node"), TagKeys=[FLEET]),
        "roles",
        "tags modelplane.ai/fleet=default",
    ),
]


def test_each_drift_is_told(aws: Double) -> None:
    plan = planned()
    made = Made(aws, plan)
    for drift, _part, _words in DRIFTS:
        drift(made)
    result = look(aws, plan)
    assert {one["action"] for one in result["differences"]} == {"change"}
    for _drift, part, words in DRIFTS:
        assert any(words in one["told"] for one in result["differences"] if one["part"] == part), (part, words)
    assert result["foreign"] == []
    assert result["parts"] == list(dict.fromkeys(part for _drift, part, _words in DRIFTS))


def test_a_gateway_that_is_attached_to_nothing(aws: Double) -> None:
    plan = planned()
    made = Made(aws, plan)
    # AWS keeps a gateway that addresses are mapped through; somebody else's tools may have taken it with these.
    aws.settings(strict=False)
    made.ec2.detach_internet_gateway(InternetGatewayId=made.ids["igw"], VpcId=made.ids["vpc"])
    result = look(aws, plan)
    assert actions(result) == [("internet_gateway", "change"), ("route_tables", "change")]
    told = [one["told"] for one in result["differences"]]
    assert "attached to the VPC vpc-" in told[0]
    assert "as there is none" in told[1], "the route through it leads nowhere"


def test_what_was_deleted_is_made_anew(aws: Double) -> None:
    plan = planned(efa=True)
    made = Made(aws, plan)
    made.ec2.delete_nat_gateway(NatGatewayId=made.ids["nat"])
    made.ec2.delete_security_group(GroupId=made.ids["efa"])
    role = made.role("efs_csi")
    made.iam.detach_role_policy(RoleName=role, PolicyArn=SURPLUS)
    made.iam.delete_role(RoleName=role)
    result = look(aws, plan)
    assert actions(result) == [
        ("nat_gateway", "make"),
        ("roles", "make"),
        ("route_tables", "change"),
        ("security_groups", "make"),
    ]
    assert (result["ids"]["nat_gateway"], result["ids"]["security_groups"]["efa"]) == ("", "")


def test_another_plan_of_the_same_cluster_is_refused(aws: Double) -> None:
    plan = planned(efa=True)
    Made(aws, plan)
    wanted = planned(efa=False)
    wanted["vpc"]["cidr"] = "10.0.0.0/8"
    result = look(aws, wanted)
    assert actions(result) == [("security_groups", "remove"), ("vpc", "refuse")]
    assert result["parts"] == ["security_groups"]


# What is somebody else's


def test_what_others_own_is_told(aws: Double) -> None:
    plan = planned()
    ec2, iam = aws.client("ec2"), aws.client("iam")
    named = [{"Key": "Name", "Value": plan["vpc"]["name"]}]
    vpc = ec2.create_vpc(CidrBlock=plan["vpc"]["cidr"], TagSpecifications=[{"ResourceType": "vpc", "Tags": named}])[
        "Vpc"
    ]["VpcId"]
    role = plan["roles"][1]["name"]
    iam.create_role(
        RoleName=role,
        AssumeRolePolicyDocument=json.dumps(plan["roles"][1]["trust"]),
        Tags=tags(plan, **{"modelplane.ai/cluster": "another"}),
    )
    result = look(aws, plan, everything=True)
    assert [line.split(" stands ")[0] for line in result["foreign"]] == [
        f"IAM role {role}",
        f"VPC {vpc} ({plan['vpc']['name']})",
    ]
    assert result["left"] == []
    assert result["ids"]["vpc"] == ""


def test_the_cluster_of_another_fleet_is_not_ours(aws: Double) -> None:
    Made(aws, planned(fleet="other"))
    result = look(aws, planned(), everything=True)
    assert result["left"] == []
    assert result["foreign"]
    assert all("belongs to the fleet other" in line for line in result["foreign"])


def test_a_cluster_in_another_region_keeps_its_roles(aws: Double) -> None:
    plan = planned()
    Made(aws, plan)
    moved = {**plan, "region": "eu-west-1"}
    given = {**aws.credentials, "region": "eu-west-1", "plan": moved, "everything": True}
    result = run_module(eks_cluster_info, given)
    assert any("belongs to the cluster of this name in us-west-2" in line for line in result["foreign"])
    assert result["left"] == []


# What goes wrong


def test_what_is_refused_is_told_once_each(aws: Double) -> None:
    for operation in ("DescribeVpcs", "GetRole"):
        aws.refuse(operation=operation, code="AccessDenied", message="not allowed", times=50)
    result = run_module(eks_cluster_info, {**aws.credentials, "plan": planned()})
    assert result["failed"]
    assert "list VPCs in us-west-2: AccessDenied: not allowed" in result["msg"]
    assert "read IAM role modelplane-system-west-node-" in result["msg"]
    assert "Traceback" not in result["msg"]


def test_a_plan_for_another_region_is_refused(aws: Double) -> None:
    result = run_module(eks_cluster_info, {**aws.credentials, "region": "eu-west-1", "plan": planned()})
    assert result["msg"] == "region: is eu-west-1, and the plan is for us-west-2. Give the region of the plan"


def test_something_that_is_no_plan_is_refused(aws: Double) -> None:
    result = run_module(eks_cluster_info, {**aws.credentials, "plan": {"region": "us-west-2"}})
    assert result["msg"].startswith("plan: has no name, partition, tags")


def test_in_a_task(aws: Double) -> None:
    arguments = json.dumps({**aws.credentials, "plan": planned()})
    out, errors = ansible_run.run("ansible", "localhost", "-m", "modelplane.fleet.eks_cluster_info", "-a", arguments)
    assert "SUCCESS" in out, out + errors
    assert "VPC modelplane-system-west-eks-" in out
