# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What a cluster at EKS needs, made in the double: subnets and roles. And the cluster, for what is in one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.tests.aws.double import Double

TAGS = {"modelplane.ai/fleet": "default", "modelplane.ai/cluster": "west"}
OURS = {**TAGS, "modelplane.ai/managed-by": "modelplane.fleet"}
_NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly")


@dataclass(frozen=True)
class Parents:
    subnets: list[str]
    cluster_role: str
    node_role: str

    def cluster(self, **more: Any) -> dict[str, Any]:
        """Arguments of eks_cluster."""
        own = {"name": "west", "version": "1.35", "role_arn": self.cluster_role, "subnet_ids": self.subnets}
        return {**own, "tags": TAGS, **more}

    def groups(self, *groups: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Arguments of eks_nodegroup."""
        return {"cluster": "west", "node_groups": list(groups), "tags": TAGS, **more}

    def system(self, **more: Any) -> dict[str, Any]:
        return {
            "name": "system",
            "node_role_arn": self.node_role,
            "subnet_ids": self.subnets,
            "ami_type": "AL2023_x86_64_STANDARD",
            "instance_types": ["m6i.xlarge"],
            "min_size": 1,
            "max_size": 2,
            "desired_size": 1,
            "labels": {"modelplane.ai/pool": "system"},
            **more,
        }

    def gpu(self, **more: Any) -> dict[str, Any]:
        return {
            "name": "gpu",
            "node_role_arn": self.node_role,
            "subnet_ids": self.subnets[:1],
            "ami_type": "AL2023_x86_64_NVIDIA",
            "instance_types": ["g6.xlarge"],
            "disk_size": 100,
            "max_size": 8,
            "desired_size": 1,
            "labels": {"modelplane.ai/pool": "gpu", "modelplane.ai/gpu": "L4"},
            "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
            **more,
        }


def make_parents(aws: Double, cidr: str = "10.0") -> Parents:
    ec2 = aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock=f"{cidr}.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"{cidr}.{16 * i}.0/20", AvailabilityZone=f"us-west-2{zone}")
        for i, zone in enumerate("abc")
    ]
    return Parents(
        [subnet["Subnet"]["SubnetId"] for subnet in subnets],
        make_role(aws, "cluster", "eks.amazonaws.com", "AmazonEKSClusterPolicy"),
        make_role(aws, "node", "ec2.amazonaws.com", *_NODE_POLICIES),
    )


def make_cluster(aws: Double, version: str = "1.36") -> None:
    """An active cluster that nobody has tagged."""
    parents, eks = make_parents(aws), aws.client("eks")
    eks.create_cluster(
        name="west",
        version=version,
        roleArn=parents.cluster_role,
        resourcesVpcConfig={"subnetIds": parents.subnets},
    )
    while eks.describe_cluster(name="west")["cluster"]["status"] != "ACTIVE":
        pass


def make_role(aws: Double, name: str, service: str, *policies: str) -> str:
    iam = aws.client("iam")
    actions = ["sts:AssumeRole", *(["sts:TagSession"] if service.startswith("pods.") else [])]
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": actions}
    trust = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    arn: str = iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    for policy in policies:
        iam.attach_role_policy(RoleName=name, PolicyArn=f"arn:aws:iam::aws:policy/{policy}")
    return arn
