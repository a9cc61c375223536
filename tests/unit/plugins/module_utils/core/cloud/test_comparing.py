# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What is told to differ from a plan: nothing where all is as planned, and each thing that is not."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import eks
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.comparing import (
    SeenNetwork,
    SeenRole,
    identity_differences,
    network_differences,
)

sys.path.insert(0, str(Path(__file__).parent))

import eks_samples

ACCOUNT = "111122223333"
PLAN = eks.plan(eks_samples.efa())


def named(name: str, **more: Any) -> dict[str, Any]:
    tags = {"Name": name, **more.pop("tags", {})}
    return {"Tags": [{"Key": key, "Value": value} for key, value in tags.items()], **more}


def as_planned() -> dict[str, Any]:
    """Descriptions of a network that is just as planned."""
    network = PLAN["network"]
    ids = {subnet["name"]: f"subnet-{index}" for index, subnet in enumerate(network["subnets"])}
    gateways = {"internet": {"GatewayId": "igw-0"}, "nat": {"NatGatewayId": "nat-0"}}
    everywhere = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-efa"}]}
    nfs = {"IpProtocol": "tcp", "FromPort": 2049, "ToPort": 2049, "IpRanges": [{"CidrIp": "10.32.0.0/16"}]}
    return {
        "vpcs": [named("vpc", VpcId="vpc-0", CidrBlock="10.32.0.0/16")],
        "dns": True,
        "subnets": [
            named(
                subnet["name"],
                tags=subnet["tags"],
                SubnetId=ids[subnet["name"]],
                MapPublicIpOnLaunch=subnet["public_ip"],
            )
            for subnet in network["subnets"]
        ],
        "internet_gateways": [{"InternetGatewayId": "igw-0", "Attachments": [{"VpcId": "vpc-0"}]}],
        "addresses": [{"AllocationId": "eipalloc-0"}],
        "nat_gateways": [{"NatGatewayId": "nat-0", "State": "available"}],
        "route_tables": [
            named(
                table["name"],
                Routes=[
                    {"DestinationCidrBlock": "10.32.0.0/16", "GatewayId": "local"},
                    {"DestinationCidrBlock": "0.0.0.0/0", **gateways[table["gateway"]]},
                ],
                Associations=[{"SubnetId": ids[name]} for name in table["subnets"]],
            )
            for table in network["route_tables"]
        ],
        "security_groups": [
            {
                "GroupName": "eks-frontier-efa",
                "GroupId": "sg-efa",
                "IpPermissions": [everywhere],
                "IpPermissionsEgress": [everywhere],
            },
            {
                "GroupName": "eks-frontier-efs",
                "GroupId": "sg-efs",
                "IpPermissions": [nfs],
                "IpPermissionsEgress": [],
            },
        ],
    }


def test_nothing_differs() -> None:
    assert network_differences(PLAN, SeenNetwork(**as_planned())) == []


def test_everything_is_missing() -> None:
    told = network_differences(PLAN, SeenNetwork())
    assert len(told) == 1 + 8 + 3 + 2 + 2
    assert told[0].startswith("VPC modelplane-system-eks-frontier-eks-")


def _remove(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda seen: seen[key].pop()


def _set(key: str, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda seen: seen[key][0].update(values)


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no names": (lambda seen: seen.update(dns=False), "does not resolve or give names"),
    "no subnet": (_remove("subnets"), "is not there"),
    "no public addresses": (_set("subnets", MapPublicIpOnLaunch=False), "has nodes with public addresses, or none"),
    "detached": (_set("internet_gateways", Attachments=[]), "there is no internet gateway at the VPC"),
    "no address": (_remove("addresses"), "there is no address for the NAT gateway"),
    "NAT pending": (_set("nat_gateways", State="pending"), "there is no NAT gateway that works"),
    "no way out": (lambda seen: seen["route_tables"][0]["Routes"].pop(), "leads elsewhere"),
    "another way out": (
        lambda seen: seen["route_tables"][1]["Routes"][1].update(NatGatewayId="nat-9"),
        "leads elsewhere",
    ),
    "black hole": (
        lambda seen: seen["route_tables"][0]["Routes"][1].update(GatewayId="igw-9"),
        "leads elsewhere",
    ),
    "not associated": (lambda seen: seen["route_tables"][0]["Associations"].pop(), "is not that of all its subnets"),
    "no group": (_remove("security_groups"), "security group eks-frontier-efs is not there"),
    "open to all": (
        lambda seen: seen["security_groups"][1]["IpPermissionsEgress"].append(
            {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
        ),
        "eks-frontier-efs allows something else (egress)",
    ),
    "other port": (
        lambda seen: seen["security_groups"][1]["IpPermissions"][0].update(ToPort=2050),
        "eks-frontier-efs allows something else (ingress)",
    ),
    "no tag for load balancers": (
        lambda seen: seen["subnets"][0].update(Tags=seen["subnets"][0]["Tags"][:1]),
        "lacks tags",
    ),
}


@pytest.mark.parametrize(("change", "words"), CHANGES.values(), ids=CHANGES)
def test_each_difference_is_told(change: Callable[[dict[str, Any]], Any], words: str) -> None:
    seen = copy.deepcopy(as_planned())
    change(seen)
    assert any(words in text for text in network_differences(PLAN, SeenNetwork(**seen)))


def roles() -> dict[str, SeenRole]:
    own = {policy["key"]: f"arn:aws:iam::{ACCOUNT}:policy/{policy['name']}" for policy in PLAN["policies"]}
    return {
        role["name"]: SeenRole(
            # IAM tells lists of one as the one.
            {**role["trust"], "Statement": role["trust"]["Statement"][0]},
            frozenset({*role["managed_policies"], *(own[key] for key in role["policies"])}),
        )
        for role in PLAN["roles"]
    }


def documents() -> dict[str, Any]:
    return {policy["name"]: policy["document"] for policy in PLAN["policies"]}


def test_identity() -> None:
    assert identity_differences(PLAN, ACCOUNT, roles(), documents()) == []
    assert len(identity_differences(PLAN, ACCOUNT, {}, {})) == 5
    name = PLAN["roles"][0]["name"]
    more = {**roles(), name: SeenRole(roles()[name].trust, frozenset({*roles()[name].policies, "arn:aws:iam::aws:x"}))}
    assert identity_differences(PLAN, ACCOUNT, more, documents()) == [
        f"role {name} has others who take it, or other policies"
    ]
    assert identity_differences(PLAN, ACCOUNT, roles(), {key: {} for key in documents()}) == [
        f"policy {PLAN['policies'][0]['name']} says something else"
    ]
