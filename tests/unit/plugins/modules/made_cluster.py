# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""All objects of a plan, made in the double of AWS with plain calls of boto3."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.modelplane.fleet.tests.aws.double import Double

ANYWHERE = "0.0.0.0/0"


def tags(plan: dict[str, Any], name: str = "", **more: str) -> list[dict[str, str]]:
    every = {**plan["tags"], **more, **({"Name": name} if name else {})}
    return [{"Key": key, "Value": value} for key, value in every.items()]


class Made:
    """A network with its gateways, groups, roles, cluster, node group and file system; `ids` by what they are."""

    def __init__(self, aws: Double, plan: dict[str, Any]) -> None:
        self.aws, self.plan = aws, plan
        self.ec2, self.iam, self.eks, self.efs = (aws.client(name) for name in ("ec2", "iam", "eks", "efs"))
        self.ids: dict[str, str] = {}
        self.subnets: dict[str, str] = {}
        self.network()
        self.groups()
        self.access()
        self.cluster()

    def _specification(self, kind: str, name: str, **more: str) -> list[dict[str, Any]]:
        return [{"ResourceType": kind, "Tags": tags(self.plan, name, **more)}]

    def network(self) -> None:
        ec2, plan = self.ec2, self.plan
        vpc = ec2.create_vpc(
            CidrBlock=plan["vpc"]["cidr"], TagSpecifications=self._specification("vpc", plan["vpc"]["name"])
        )["Vpc"]["VpcId"]
        for attribute in ("EnableDnsSupport", "EnableDnsHostnames"):
            ec2.modify_vpc_attribute(VpcId=vpc, **{attribute: {"Value": True}})
        for one in plan["subnets"]:
            subnet = ec2.create_subnet(
                VpcId=vpc,
                CidrBlock=one["cidr"],
                AvailabilityZone=one["zone"],
                TagSpecifications=self._specification("subnet", one["name"], **one["tags"]),
            )["Subnet"]["SubnetId"]
            ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": one["map_public"]})
            self.subnets[one["name"]] = subnet
        igw = ec2.create_internet_gateway(
            TagSpecifications=self._specification("internet-gateway", plan["internet_gateway"]["name"])
        )["InternetGateway"]["InternetGatewayId"]
        ec2.attach_internet_gateway(InternetGatewayId=igw, VpcId=vpc)
        self.ids |= {"vpc": vpc, "igw": igw}
        self.nat_gateway()
        for table in plan["route_tables"]:
            self.route_table(table)

    def nat_gateway(self) -> None:
        plan = self.plan
        eip = self.ec2.allocate_address(Domain="vpc")["AllocationId"]
        self.ids["eip"] = eip
        self.ids["nat"] = self.ec2.create_nat_gateway(
            SubnetId=self.subnets[plan["nat_gateway"]["subnet"]],
            AllocationId=eip,
            TagSpecifications=self._specification("natgateway", plan["nat_gateway"]["name"]),
        )["NatGateway"]["NatGatewayId"]
        self.ec2.get_waiter("nat_gateway_available").wait(
            NatGatewayIds=[self.ids["nat"]], WaiterConfig={"Delay": 0, "MaxAttempts": 20}
        )

    def route_table(self, table: dict[str, str]) -> None:
        made = self.ec2.create_route_table(
            VpcId=self.ids["vpc"], TagSpecifications=self._specification("route-table", table["name"])
        )["RouteTable"]["RouteTableId"]
        gateway = {"GatewayId": self.ids["igw"]} if table["tier"] == "public" else {"NatGatewayId": self.ids["nat"]}
        self.ec2.create_route(RouteTableId=made, DestinationCidrBlock=ANYWHERE, **gateway)
        for one in self.plan["subnets"]:
            if one["tier"] == table["tier"]:
                self.ec2.associate_route_table(RouteTableId=made, SubnetId=self.subnets[one["name"]])
        self.ids[f"{table['tier']} table"] = made

    def groups(self) -> None:
        for group in self.plan["security_groups"]:
            made = self.ec2.create_security_group(
                GroupName=group["name"],
                Description=group["description"],
                VpcId=self.ids["vpc"],
                TagSpecifications=self._specification("security-group", group["name"]),
            )["GroupId"]
            everywhere = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": ANYWHERE}]}]
            self.ec2.revoke_security_group_egress(GroupId=made, IpPermissions=everywhere)
            for side in ("ingress", "egress"):
                rules = [self._permission(rule, made) for rule in group[side]]
                if rules:
                    getattr(self.ec2, f"authorize_security_group_{side}")(GroupId=made, IpPermissions=rules)
            self.ids[group["key"]] = made

    def _permission(self, rule: dict[str, Any], group: str) -> dict[str, Any]:
        ports = {"FromPort": rule["ports"][0], "ToPort": rule["ports"][1]} if rule["ports"] else {}
        peer = {"UserIdGroupPairs": [{"GroupId": group}]} if rule.get("self") else {}
        ranges = {"IpRanges": [{"CidrIp": rule["cidr_ip"]}]} if "cidr_ip" in rule else {}
        return {"IpProtocol": rule["proto"], **ports, **peer, **ranges}

    def access(self) -> None:
        arns = {}
        identities = [*tags(self.plan), {"Key": "modelplane.ai/region", "Value": self.plan["region"]}]
        for policy in self.plan["policies"]:
            arns[policy["key"]] = self.iam.create_policy(
                PolicyName=policy["name"], PolicyDocument=json.dumps(policy["document"]), Tags=identities
            )["Policy"]["Arn"]
        for role in self.plan["roles"]:
            self.iam.create_role(
                RoleName=role["name"], AssumeRolePolicyDocument=json.dumps(role["trust"]), Tags=identities
            )
            for arn in [*role["managed_policies"], *([arns[role["policy"]]] if role["policy"] else [])]:
                self.iam.attach_role_policy(RoleName=role["name"], PolicyArn=arn)

    def role(self, key: str) -> str:
        """The name of a role."""
        return next(str(one["name"]) for one in self.plan["roles"] if one["key"] == key)

    def role_arn(self, key: str) -> str:
        return str(self.iam.get_role(RoleName=self.role(key))["Role"]["Arn"])

    def cluster(self) -> None:
        plan, name = self.plan, self.plan["name"]
        quick = {"Delay": 0, "MaxAttempts": 20}
        self.eks.create_cluster(
            name=name,
            version=plan["version"],
            roleArn=self.role_arn("cluster"),
            resourcesVpcConfig={"subnetIds": list(self.subnets.values())},
            tags=plan["tags"],
        )
        self.eks.get_waiter("cluster_active").wait(name=name, WaiterConfig=quick)
        private = [self.subnets[one["name"]] for one in plan["subnets"] if one["tier"] == "private"]
        self.eks.create_nodegroup(
            clusterName=name,
            nodegroupName="system",
            subnets=private,
            nodeRole=self.role_arn("node"),
            amiType="AL2023_x86_64_STANDARD",
            tags=plan["tags"],
        )
        self.eks.get_waiter("nodegroup_active").wait(clusterName=name, nodegroupName="system", WaiterConfig=quick)
        self.ids["fs"] = self.efs.create_file_system(
            CreationToken=plan["file_system"]["creation_token"],
            Encrypted=True,
            ThroughputMode="elastic",
            Tags=tags(plan, plan["file_system"]["name"]),
        )["FileSystemId"]
        while self.efs.describe_file_systems(FileSystemId=self.ids["fs"])["FileSystems"][0]["LifeCycleState"] != (
            "available"
        ):
            pass
        self.efs.create_mount_target(FileSystemId=self.ids["fs"], SubnetId=private[0], SecurityGroups=[self.ids["efs"]])
        for one in plan["launch_templates"]:
            self.ec2.create_launch_template(
                LaunchTemplateName=one["name"],
                LaunchTemplateData=one["data"],
                TagSpecifications=self._specification("launch-template", one["name"]),
            )
