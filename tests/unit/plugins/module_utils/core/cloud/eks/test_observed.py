# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import differences
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.described import rules
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.observed import Answers, observe
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.whole_cloud import (
    ACCOUNT,
    VPC,
    Cloud,
    planned,
    set_tag,
)

CLUSTER, MANAGED, FLEET = "modelplane.ai/cluster", "modelplane.ai/managed-by", "modelplane.ai/fleet"


def test_the_ids_of_a_whole_cluster() -> None:
    cloud = Cloud(planned(efa=True))
    names = [one["name"] for one in cloud.plan["subnets"]]
    found = observe(cloud.plan, cloud.answers())
    assert found.ids == {
        "account": ACCOUNT,
        "vpc": VPC,
        "subnets": {name: f"subnet-{index}" for index, name in enumerate(names)},
        "public_subnets": ["subnet-0", "subnet-1"],
        "private_subnets": {"us-west-2a": "subnet-2", "us-west-2b": "subnet-3"},
        "internet_gateway": "igw-1",
        "nat_gateway": "nat-1",
        "eip": "eipalloc-1",
        "route_tables": {"public": "rtb-public", "private": "rtb-private"},
        "security_groups": {"efs": "sg-efs", "efa": "sg-efa"},
        "cluster_security_group": "sg-eks",
        "roles": {one["key"]: f"arn:aws:iam::{ACCOUNT}:role/{one['name']}" for one in cloud.plan["roles"]},
        "policies": {one["key"]: f"arn:aws:iam::{ACCOUNT}:policy/{one['name']}" for one in cloud.plan["policies"]},
        "file_system": "fs-1",
        "launch_templates": {cloud.plan["launch_templates"][0]["name"]: "lt-0"},
        "cluster": cloud.cluster["arn"],
        "cluster_status": "ACTIVE",
        "endpoint": "https://eks.example",
        "certificate_authority": "LS0t",
    }
    assert (found.foreign, found.unplanned) == ([], {})
    assert found.found["node_groups"] == ["gpu", "system"]


def test_the_ids_of_nothing_are_empty_and_arns_are_known_in_advance() -> None:
    plan = planned()
    found = observe(plan, Answers(account=ACCOUNT))
    assert found.ids["subnets"] == {one["name"]: "" for one in plan["subnets"]}
    assert found.ids["public_subnets"] == ["", ""]
    assert found.ids["private_subnets"] == {"us-west-2a": "", "us-west-2b": ""}
    assert found.ids["roles"]["node"].startswith(f"arn:aws:iam::{ACCOUNT}:role/modelplane-system-west-node-")
    assert found.ids["policies"]["autoscaler"].startswith(f"arn:aws:iam::{ACCOUNT}:policy/modelplane-system-west-")
    empty = {key for key, value in found.ids.items() if value == ""}
    assert {"vpc", "nat_gateway", "eip", "file_system", "cluster", "endpoint", "cluster_security_group"} <= empty
    assert (found.foreign, found.left, found.unplanned) == ([], [], {})


def test_the_partition_is_in_the_arns() -> None:
    plan = {**planned(), "partition": "aws-cn"}
    assert observe(plan, Answers(account=ACCOUNT)).ids["roles"]["node"].startswith("arn:aws-cn:iam::")


def test_a_gateway_that_is_going_has_no_id() -> None:
    cloud = Cloud(planned())
    cloud.nat_gateways[0]["State"] = "deleting"
    assert observe(cloud.plan, cloud.answers()).ids["nat_gateway"] == ""


def test_a_new_gateway_is_seen_beside_one_that_failed() -> None:
    cloud = Cloud(planned())
    cloud.nat_gateways.insert(0, {**cloud.nat_gateways[0], "NatGatewayId": "nat-0", "State": "failed"})
    found = observe(cloud.plan, cloud.answers())
    assert found.ids["nat_gateway"] == "nat-1"
    assert found.unplanned == {}


def test_the_order_of_answers_does_not_matter() -> None:
    cloud = Cloud(planned(efa=True))
    cloud.subnets.append({**cloud.subnets[0], "SubnetId": "subnet-9"})
    cloud.vpcs.append({**cloud.vpcs[0], "VpcId": "vpc-9"})
    first = observe(cloud.plan, cloud.answers())
    shuffler = random.Random(1)
    for _ in range(5):
        for value in vars(cloud).values():
            if isinstance(value, list):
                shuffler.shuffle(value)
        assert observe(cloud.plan, cloud.answers()) == first


# What is not ours


def strip(tags: list[dict[str, str]]) -> list[dict[str, str]]:
    return [tag for tag in tags if not tag["Key"].startswith("modelplane.ai/")]


def without_tags(kind: str) -> Callable[[Cloud], Any]:
    def damage(cloud: Cloud) -> None:
        one = getattr(cloud, kind)[0]
        one["Tags"] = strip(one["Tags"])

    return damage


def of_fleet(kind: str) -> Callable[[Cloud], Any]:
    return lambda cloud: set_tag(getattr(cloud, kind)[0], FLEET, "other")


def role(key: str, value: str | None) -> Callable[[Cloud], Any]:
    return lambda cloud: set_tag(cloud.roles["node"]["Role"], key, value)


FOREIGN: dict[str, tuple[Callable[[Cloud], Any], str]] = {
    "vpc": (without_tags("vpcs"), "VPC vpc-1 (modelplane-system-west-eks-"),
    "subnet": (without_tags("subnets"), "Subnet subnet-0 (10.0.0.0/20) stands where the plan has one"),
    "gateway": (without_tags("internet_gateways"), "Internet gateway igw-1 stands where the plan has one"),
    "nat": (without_tags("nat_gateways"), "NAT gateway nat-1 stands where"),
    "table": (without_tags("route_tables"), "Route table rtb-public"),
    "group": (without_tags("security_groups"), "Security group sg-efs (west-efs) stands where"),
    "template": (without_tags("launch_templates"), "Launch template west-lt-gpu-"),
    "file system": (without_tags("file_systems"), "EFS file system fs-1"),
    "vpc of another fleet": (of_fleet("vpcs"), "belongs to the fleet other (tag modelplane.ai/fleet)"),
    "subnet of another fleet": (of_fleet("subnets"), "Subnet subnet-0 (10.0.0.0/20) belongs to the fleet other"),
    "managed by hand": (
        lambda cloud: set_tag(cloud.vpcs[0], MANAGED, None),
        "but not modelplane.ai/managed-by=modelplane.fleet",
    ),
    "role of nobody": (
        lambda cloud: cloud.roles["node"]["Role"].update(Tags=[]),
        "but has no tag modelplane.ai/cluster, and is not touched",
    ),
    "role of another cluster": (role(CLUSTER, "east"), "belongs to the cluster east (tag modelplane.ai/cluster)"),
    "role of another fleet": (role(FLEET, "other"), "belongs to the fleet other"),
    "policy": (lambda cloud: cloud.policies["autoscaler"]["Policy"].pop("Tags"), "IAM policy modelplane-system-west-"),
    "cluster": (lambda cloud: cloud.cluster.update(tags={}), "EKS cluster modelplane-system-west-eks-"),
    "cluster in another vpc": (
        lambda cloud: cloud.cluster["resourcesVpcConfig"].update(vpcId="vpc-7"),
        "is in the VPC vpc-7, not in vpc-1, which is the VPC of the plan",
    ),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_what_is_not_ours_is_told_and_not_found(case: str) -> None:
    damage, words = FOREIGN[case]
    cloud = Cloud(planned(efa=True))
    before = observe(cloud.plan, cloud.answers())
    damage(cloud)
    found = observe(cloud.plan, cloud.answers())
    assert any(words in line for line in found.foreign), found.foreign
    assert all(line.endswith(".") for line in found.foreign)
    assert found.left != before.left or "in another vpc" in case


def test_others_in_our_vpc_are_nobodys_business() -> None:
    cloud = Cloud(planned())
    cloud.subnets.append({**cloud.subnets[0], "SubnetId": "subnet-x", "CidrBlock": "10.0.240.0/24", "Tags": []})
    cloud.route_tables.append({"RouteTableId": "rtb-main", "VpcId": VPC, "Tags": []})
    cloud.security_groups.append({"GroupId": "sg-d", "GroupName": "default", "VpcId": VPC, "Tags": []})
    found = observe(cloud.plan, cloud.answers())
    assert (found.foreign, found.unplanned) == ([], {})
    assert differences.differences(cloud.plan, found) == []


def test_a_range_that_a_foreign_subnet_takes_is_told() -> None:
    cloud = Cloud(planned())
    cloud.subnets.append({**cloud.subnets[0], "SubnetId": "subnet-x", "CidrBlock": "10.0.1.0/24", "Tags": []})
    [line] = observe(cloud.plan, cloud.answers()).foreign
    assert "Subnet subnet-x (10.0.1.0/24)" in line


def test_a_missing_fleet_tag_is_ours_and_a_difference() -> None:
    cloud = Cloud(planned())
    set_tag(cloud.vpcs[0], FLEET, None)
    assert observe(cloud.plan, cloud.answers()).ids["vpc"] == VPC


def test_roles_of_the_cluster_in_another_region_are_not_ours() -> None:
    """IAM counts in all regions: who removes or makes the cluster here would take them from the one that is there."""
    cloud = Cloud(planned())
    here = {**cloud.plan, "region": "us-east-1"}
    found = observe(here, Answers(account=ACCOUNT, roles=cloud.roles, policies=cloud.policies))
    assert len(found.foreign) == len(cloud.roles) + len(cloud.policies)
    assert all("belongs to the cluster of this name in us-west-2" in line for line in found.foreign)
    assert (found.left, found.found["roles"], found.found["policies"]) == ([], {}, {})


# What is left


def test_all_that_is_ours_is_left_in_the_order_of_removal() -> None:
    cloud = Cloud(planned(efa=True))
    kinds = [one["kind"] for one in observe(cloud.plan, cloud.answers()).left]
    assert kinds == [
        *["node_group"] * 2,
        "mount_target",
        "file_system",
        "launch_template",
        "cluster",
        *["security_group"] * 2,
        "nat_gateway",
        "elastic_ip",
        *["route_table"] * 2,
        *["subnet"] * 4,
        "internet_gateway",
        "vpc",
        *["role"] * 4,
        "policy",
    ]


def test_what_the_plan_no_longer_has_is_left_too() -> None:
    cloud = Cloud(planned(efa=True, subnets=3))
    left = observe(planned(), cloud.answers()).left
    assert {"kind": "security_group", "id": "sg-efa", "name": "west-efa"} in left
    assert len([one for one in left if one["kind"] == "subnet"]) == 6
    assert [one["id"] for one in left if one["kind"] == "launch_template"] == ["lt-0"]


def test_an_address_without_a_gateway_is_left() -> None:
    cloud = Cloud(planned())
    cloud.nat_gateways.clear()
    cloud.addresses = [{"AllocationId": "eipalloc-2", "PublicIp": "192.0.2.2", "Tags": cloud.tags("ip")}]
    left = observe(cloud.plan, cloud.answers()).left
    assert {"kind": "elastic_ip", "id": "eipalloc-2", "name": "ip"} in left


def test_what_is_not_ours_is_not_left() -> None:
    cloud = Cloud(planned())
    for one in (*cloud.vpcs, *cloud.file_systems, cloud.roles["node"]["Role"]):
        one["Tags"] = []
    cloud.cluster["tags"] = {}
    left = {one["kind"] for one in observe(cloud.plan, cloud.answers()).left}
    assert not left & {"vpc", "file_system", "mount_target", "cluster", "node_group"}


def test_rules_of_all_kinds_are_read() -> None:
    permissions = [
        {
            "IpProtocol": "tcp",
            "FromPort": 80,
            "ToPort": 81,
            "IpRanges": [{"CidrIp": "10.0.0.0/8"}],
            "Ipv6Ranges": [{"CidrIpv6": "::/0"}],
            "PrefixListIds": [{"PrefixListId": "pl-1"}],
            "UserIdGroupPairs": [{"GroupId": "sg-1"}, {"GroupId": "sg-2"}],
        },
        {"IpProtocol": "-1", "FromPort": -1, "ToPort": -1, "UserIdGroupPairs": [{"GroupId": "sg-1"}]},
    ]
    peers = [("tcp", 80, 81, peer) for peer in ("10.0.0.0/8", "::/0", "pl-1", "self", "sg-2")]
    assert sorted(rules(permissions, "sg-1"), key=str) == sorted([*peers, ("-1", None, None, "self")], key=str)
