# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What tests of the double plant in its account."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.aws.double import AwsDouble
from botocore.exceptions import ClientError


def trust(service: str, *actions: str) -> str:
    """A trust policy for a service."""
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": list(actions or ("sts:AssumeRole",))}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def role(aws: AwsDouble, name: str, service: str, *actions: str) -> str:
    """A role that a service may assume; its ARN."""
    made = aws.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=trust(service, *actions))
    return str(made["Role"]["Arn"])


def network(aws: AwsDouble, zones: str = "ab") -> tuple[str, list[str]]:
    """A VPC, and a subnet of it in each zone."""
    ec2 = aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{16 * index}.0/20", AvailabilityZone=f"us-west-2{zone}")
        for index, zone in enumerate(zones)
    ]
    return str(vpc), [str(subnet["Subnet"]["SubnetId"]) for subnet in subnets]


def cluster(aws: AwsDouble, name: str = "west", zones: str = "ab", **more: Any) -> list[str]:
    """An active cluster of EKS with a network of its own, whose subnets it returns."""
    _, subnets = network(aws, zones)
    aws.client("eks").create_cluster(
        name=name,
        roleArn=role(aws, f"{name}-cluster", "eks.amazonaws.com"),
        resourcesVpcConfig={"subnetIds": subnets},
        **{"accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"}, **more},
    )
    aws.client("eks").describe_cluster(name=name)
    return subnets


def group(aws: AwsDouble, name: str, subnets: list[str], **more: Any) -> dict[str, Any]:
    """A node group of the cluster west, looked at once."""
    eks = aws.client("eks")
    if "west-node" not in [each["RoleName"] for each in aws.client("iam").list_roles()["Roles"]]:
        role(aws, "west-node", "ec2.amazonaws.com")
    arn = aws.client("iam").get_role(RoleName="west-node")["Role"]["Arn"]
    eks.create_nodegroup(clusterName="west", nodegroupName=name, subnets=subnets, nodeRole=arn, **more)
    return dict(eks.describe_nodegroup(clusterName="west", nodegroupName=name)["nodegroup"])


def refused(code: str, call: Any, **arguments: Any) -> str:
    """The message of a call that AWS refuses with a code."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    assert caught.value.response["Error"]["Code"] == code, caught.value
    return str(caught.value.response["Error"]["Message"])
