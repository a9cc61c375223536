# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What has to be in an account before the modules have anything to do, made without them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.modules import eks_cluster, eks_node_group
from ansible_collections.modelplane.fleet.tests.aws.double import REGION, AwsDouble
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.running import OURS, TAGS, good

CLUSTER = "west"


@dataclass(frozen=True)
class Site:
    """A VPC with a subnet in each of three zones, roles, a security group."""

    aws: AwsDouble
    vpc: str
    subnets: tuple[str, ...]
    group: str
    cluster_role: str
    node_role: str
    pod_role: str

    @classmethod
    def make(cls, aws: AwsDouble) -> Site:
        ec2 = aws.client("ec2")
        tags = [{"ResourceType": "vpc", "Tags": [{"Key": key, "Value": value} for key, value in OURS.items()]}]
        vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tags)["Vpc"]["VpcId"]
        subnets = [
            ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{16 * index}.0/20", AvailabilityZone=REGION + zone)["Subnet"][
                "SubnetId"
            ]
            for index, zone in enumerate("abc")
        ]
        group = ec2.create_security_group(VpcId=vpc, GroupName="west-efs", Description="NFS")["GroupId"]
        return cls(
            aws,
            vpc,
            tuple(subnets),
            group,
            _role(aws, "west-cluster", "eks.amazonaws.com"),
            _role(aws, "west-node", "ec2.amazonaws.com"),
            _role(aws, "west-pod", "pods.eks.amazonaws.com"),
        )

    def other_pod_role(self) -> str:
        return _role(self.aws, "west-other-pod", "pods.eks.amazonaws.com")

    @property
    def cluster(self) -> dict[str, Any]:
        """Arguments of eks_cluster."""
        return {
            "name": CLUSTER,
            "version": "1.34",
            "cluster_role_arn": self.cluster_role,
            "subnet_ids": list(self.subnets),
            "tags": TAGS,
        }

    @property
    def group_of_nodes(self) -> dict[str, Any]:
        """Arguments of eks_node_group."""
        return {
            "cluster": CLUSTER,
            "name": "gpu",
            "node_role_arn": self.node_role,
            "subnet_ids": list(self.subnets[:2]),
            "ami_type": "AL2023_x86_64_NVIDIA",
            "instance_types": ["g6.2xlarge"],
            "disk_size": 200,
            "min_size": 0,
            "max_size": 4,
            "desired_size": 2,
            "labels": {"modelplane.ai/pool": "gpu"},
            "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
            "tags": TAGS,
        }

    def sent(self) -> list[str]:
        """The operations that change something and came since the last look."""
        found = [call.operation for call in self.aws.mutations]
        self.aws.clear_calls()
        return found

    def with_cluster(self, **more: Any) -> None:
        good(eks_cluster, **{**self.cluster, **more})
        self.aws.clear_calls()

    def with_nodes(self, **more: Any) -> None:
        self.with_cluster()
        good(eks_node_group, **{**self.group_of_nodes, **more})
        self.aws.clear_calls()


def _role(aws: AwsDouble, name: str, principal: str) -> str:
    actions = ["sts:AssumeRole", "sts:TagSession"] if principal.startswith("pods") else ["sts:AssumeRole"]
    trust = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": principal}, "Action": actions}],
    }
    made = aws.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))
    return str(made["Role"]["Arn"])
