# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Clients of one region for the tests of the double, and what a cluster needs, made by them."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.modelplane.fleet.tests.aws.double import Double
from botocore.exceptions import ClientError

Json = dict[str, Any]
TEMPLATE = {
    "InstanceType": "p5.48xlarge",
    "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 200}}],
}


class refused:  # noqa: N801 it is used as a word
    """Expects an error of AWS by its code. `message` is what the message has to contain."""

    def __init__(self, code: str, message: str = "") -> None:
        self.code, self.message = code, message
        self.response: Json = {}

    def __enter__(self) -> refused:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        assert isinstance(error, ClientError), f"{self.code} was expected, not {error!r}"
        self.response = error.response  # type: ignore[assignment]
        assert error.response["Error"]["Code"] == self.code, error
        assert self.message in error.response["Error"]["Message"], error
        return True


class Account:
    """An account with what tests need: a network, roles, and a cluster in it."""

    def __init__(self, aws: Double) -> None:
        self.aws = aws
        self.ec2, self.eks, self.iam, self.efs = (aws.client(name) for name in ("ec2", "eks", "iam", "efs"))
        self.vpc = ""
        self.subnets: list[str] = []
        self.roles: dict[str, str] = {}

    def network(self) -> None:
        self.vpc = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        self.subnets = [
            self.ec2.create_subnet(
                VpcId=self.vpc, CidrBlock=f"10.0.{16 * i}.0/20", AvailabilityZone=f"us-west-2{zone}"
            )["Subnet"]["SubnetId"]
            for i, zone in enumerate("abc")
        ]

    def role(self, name: str, service: str, *policies: str) -> str:
        document = {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}],
        }
        made = self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(document))
        for policy in policies:
            self.iam.attach_role_policy(RoleName=name, PolicyArn=f"arn:aws:iam::aws:policy/{policy}")
        self.roles[name] = made["Role"]["Arn"]
        return self.roles[name]

    def cluster(self, **more: Any) -> Json:
        self.network()
        self.role("cluster", "eks.amazonaws.com", "AmazonEKSClusterPolicy")
        self.role("node", "ec2.amazonaws.com", "AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy")
        self.role("pod", "pods.eks.amazonaws.com", "service-role/AmazonEFSCSIDriverPolicy")
        asked = {"name": "one", "version": "1.35", "roleArn": self.roles["cluster"]} | more
        asked.setdefault("resourcesVpcConfig", {"subnetIds": self.subnets})
        self.eks.create_cluster(**asked)
        return self.describe("cluster", until="ACTIVE")

    def nodes(self, name: str = "system", until: str = "ACTIVE", **more: Any) -> Json:
        asked = {
            "nodeRole": self.roles["node"],
            "subnets": self.subnets,
            "scalingConfig": {"minSize": 1, "maxSize": 3, "desiredSize": 1},
        } | more
        self.eks.create_nodegroup(clusterName="one", nodegroupName=name, **asked)
        return self.describe("nodegroup", name, until=until)

    def describe(self, kind: str, name: str = "", until: str = "") -> Json:
        """Describes something until it is in a state, or just once."""
        for _ in range(5):
            if kind == "cluster":
                found = self.eks.describe_cluster(name=name or "one")["cluster"]
            else:
                method = getattr(self.eks, f"describe_{kind}")
                found = method(clusterName="one", **{f"{kind}Name": name})[kind]
            if not until or found["status"] == until:
                return dict(found)
        raise AssertionError(f"{kind} {name} is {found['status']}: {found.get('health')}")

    def updated(self, update: Json, **more: str) -> str:
        """Wait for an update, and return its status."""
        for _ in range(5):
            found = self.eks.describe_update(name="one", updateId=update["id"], **more)["update"]
            if found["status"] != "InProgress":
                return str(found["status"])
        raise AssertionError(found)
