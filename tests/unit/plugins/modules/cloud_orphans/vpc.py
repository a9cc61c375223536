# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A VPC of an EKS cluster, and what controllers and people put into it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import plan as eks_plan
from ansible_collections.modelplane.fleet.plugins.modules import cloud_orphans
from ansible_collections.modelplane.fleet.tests.aws.double import Double as Aws
from ansible_collections.modelplane.fleet.tests.module_run import run_module
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import eks

Json = dict[str, Any]

PLAN = eks_plan(eks())
NAME = PLAN["name"]
OWNED = f"kubernetes.io/cluster/{NAME}"


@dataclass
class Vpc:
    """A VPC with two subnets, and what tests put into it."""

    aws: Aws
    id: str
    subnets: list[str]

    def group(self, name: str, **tags: str) -> str:
        ec2 = self.aws.client("ec2")
        identifier: str = ec2.create_security_group(GroupName=name, Description="x", VpcId=self.id)["GroupId"]
        if tags:
            ec2.create_tags(Resources=[identifier], Tags=wire(tags))
        return identifier

    def interface(self, description: str, subnet: int = 0, **tags: str) -> str:
        made = self.aws.client("ec2").create_network_interface(
            SubnetId=self.subnets[subnet],
            Description=description,
            **({"TagSpecifications": [{"ResourceType": "network-interface", "Tags": wire(tags)}]} if tags else {}),
        )
        identifier: str = made["NetworkInterface"]["NetworkInterfaceId"]
        return identifier

    def classic(self, name: str, **tags: str) -> str:
        self.aws.client("elb").create_load_balancer(
            LoadBalancerName=name,
            Listeners=[{"Protocol": "TCP", "LoadBalancerPort": 80, "InstancePort": 30080}],
            Subnets=self.subnets,
            # Without one, a group is made, as for a load balancer that a person makes.
            SecurityGroups=[self.default_group()],
            **({"Tags": wire(tags)} if tags else {}),
        )
        return name

    def default_group(self) -> str:
        groups = self.aws.client("ec2").describe_security_groups(
            Filters=[{"Name": "vpc-id", "Values": [self.id]}, {"Name": "group-name", "Values": ["default"]}]
        )
        identifier: str = groups["SecurityGroups"][0]["GroupId"]
        return identifier

    def modern(self, name: str, kind: str = "network", **tags: str) -> str:
        made = self.aws.client("elbv2").create_load_balancer(
            Name=name, Type=kind, Subnets=self.subnets, **({"Tags": wire(tags)} if tags else {})
        )
        arn: str = made["LoadBalancers"][0]["LoadBalancerArn"]
        return arn

    def target_group(self, name: str, balancer: str = "", **tags: str) -> str:
        elbv2 = self.aws.client("elbv2")
        made = elbv2.create_target_group(
            Name=name, Protocol="TCP", Port=80, VpcId=self.id, **({"Tags": wire(tags)} if tags else {})
        )
        arn: str = made["TargetGroups"][0]["TargetGroupArn"]
        if balancer:
            elbv2.create_listener(
                LoadBalancerArn=balancer,
                Protocol="TCP",
                Port=80,
                DefaultActions=[{"Type": "forward", "TargetGroupArn": arn}],
            )
        return arn

    def sweep(self, *, check: bool = False, **more: Any) -> Json:
        self.aws.forget_calls()
        given = {
            "provider": "eks",
            **self.aws.credentials,
            "plan": PLAN,
            "wait_delay": 0.01,
            "wait_timeout": 60,
            **more,
        }
        return run_module(cloud_orphans, {**given, **more}, check_mode=check)

    def did(self) -> list[str]:
        """Return the mutating calls since the last time."""
        found = [call["operation"] for call in self.aws.calls(mutating=True)]
        self.aws.forget_calls()
        return found

    def left(self) -> dict[str, set[str]]:
        """Names and ids of what there is."""
        ec2, elbv2 = self.aws.client("ec2"), self.aws.client("elbv2")
        classic = self.aws.client("elb").describe_load_balancers()["LoadBalancerDescriptions"]
        return {
            "balancers": {each["LoadBalancerName"] for each in classic}
            | {each["LoadBalancerName"] for each in elbv2.describe_load_balancers()["LoadBalancers"]},
            "target groups": {each["TargetGroupName"] for each in elbv2.describe_target_groups()["TargetGroups"]},
            "interfaces": {
                each["NetworkInterfaceId"] for each in ec2.describe_network_interfaces()["NetworkInterfaces"]
            },
            "groups": {
                each["GroupId"] for each in ec2.describe_security_groups()["SecurityGroups"] if each["VpcId"] == self.id
            },
        }


def wire(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def network(aws: Aws, cidr: str = "10.0.0.0/16", **tags: str) -> Vpc:
    ec2 = aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock=cidr)["Vpc"]["VpcId"]
    ec2.create_tags(Resources=[vpc], Tags=wire({**PLAN["tags"], "Name": NAME, **tags}))
    head = cidr.split(".")[1]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.{head}.{16 * index}.0/20", AvailabilityZone=f"us-west-2{zone}")[
            "Subnet"
        ]["SubnetId"]
        for index, zone in enumerate("ab")
    ]
    return Vpc(aws, vpc, subnets)


def create_cluster(vpc: Vpc) -> None:
    """An EKS cluster in the VPC."""
    iam, eks = vpc.aws.client("iam"), vpc.aws.client("eks")
    allowed = {"Effect": "Allow", "Principal": {"Service": "eks.amazonaws.com"}, "Action": "sts:AssumeRole"}
    trust = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    role = iam.create_role(RoleName="cluster", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    iam.attach_role_policy(RoleName="cluster", PolicyArn="arn:aws:iam::aws:policy/AmazonEKSClusterPolicy")
    eks.create_cluster(name=NAME, version="1.36", roleArn=role, resourcesVpcConfig={"subnetIds": vpc.subnets})
