# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The double of AWS itself: that it refuses what AWS refuses and shows what AWS shows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.aws.double import AwsDouble
from botocore.exceptions import ClientError


def role(aws: AwsDouble, name: str, service: str, *actions: str) -> str:
    """A role that a service may assume; its ARN."""
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": list(actions or ("sts:AssumeRole",))}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    made = aws.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=document)
    return str(made["Role"]["Arn"])


def network(aws: AwsDouble, zones: str = "ab") -> tuple[str, list[str]]:
    """A VPC, and a subnet of it in each zone."""
    ec2 = aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{16 * index}.0/20", AvailabilityZone=f"us-west-2{zone}")
        for index, zone in enumerate(zones)
    ]
    return vpc, [subnet["Subnet"]["SubnetId"] for subnet in subnets]


def refused(code: str, call: Any, **arguments: Any) -> str:
    """The message of a call that AWS refuses with a code."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    assert caught.value.response["Error"]["Code"] == code, caught.value
    return str(caught.value.response["Error"]["Message"])


def test_a_cluster_is_active_when_it_was_looked_at(aws: AwsDouble) -> None:
    _, subnets = network(aws)
    eks = aws.client("eks")
    arn = role(aws, "cluster", "eks.amazonaws.com")
    made = eks.create_cluster(name="west", roleArn=arn, resourcesVpcConfig={"subnetIds": subnets})["cluster"]
    assert (made["status"], "endpoint" in made) == ("CREATING", False)
    seen = eks.describe_cluster(name="west")["cluster"]
    assert (seen["status"], "endpoint" in seen) == ("ACTIVE", True)
