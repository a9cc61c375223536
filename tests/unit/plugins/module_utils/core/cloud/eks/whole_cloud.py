# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A plan, and what AWS answers once all of it is there, in AWS' own form, for tests to take something away or add."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.observed import Answers
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import plan

ACCOUNT = "123456789012"
VPC = "vpc-1"


def planned(*, efa: bool = False, subnets: int = 2, name: str = "west", fleet: str = "default") -> dict[str, Any]:
    """The plan of a cluster with one pool of GPUs."""
    gpu = {
        "name": "gpu",
        "role": "GPU",
        "instanceType": "p5.48xlarge",
        "gpu": {"acceleratorType": "nvidia-h100"},
        "zones": ["us-west-2a"],
        **({"fabric": "EFA"} if efa else {}),
    }
    cidrs = [f"10.0.{index * 16}.0/20" for index in range(subnets)]
    cluster = {
        "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
        "kind": "EKSCluster",
        "metadata": {"namespace": "modelplane-system", "name": name},
        "spec": {"region": "us-west-2", "networking": {"subnetCidrs": cidrs}, "nodePools": [gpu]},
    }
    return plan(cluster, fleet)


def wire_tags(tags: dict[str, str], name: str = "") -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in {**tags, **({"Name": name} if name else {})}.items()]


class Cloud:
    """All answers as plain lists and dicts."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.subnets = [self._subnet(index, subnet) for index, subnet in enumerate(plan["subnets"])]
        tiers: dict[str, list[str]] = {"public": [], "private": []}
        for one, subnet in zip(self.subnets, plan["subnets"], strict=True):
            tiers[subnet["tier"]].append(one["SubnetId"])
        self._network(plan, tiers)
        self._identities(plan)
        self._cluster(plan)
        self._files(plan, tiers)

    def _network(self, plan: dict[str, Any], tiers: dict[str, list[str]]) -> None:
        self.vpcs = [
            {
                "VpcId": VPC,
                "CidrBlock": plan["vpc"]["cidr"],
                "State": "available",
                "Tags": self.tags(plan["vpc"]["name"]),
            }
        ]
        self.dns = {"support": True, "hostnames": True}
        self.internet_gateways = [
            {
                "InternetGatewayId": "igw-1",
                "Attachments": [{"State": "available", "VpcId": VPC}],
                "Tags": self.tags(plan["internet_gateway"]["name"]),
            }
        ]
        self.nat_gateways = [
            {
                "NatGatewayId": "nat-1",
                "VpcId": VPC,
                "SubnetId": tiers["public"][0],
                "State": "available",
                "NatGatewayAddresses": [{"AllocationId": "eipalloc-1", "PublicIp": "192.0.2.1"}],
                "Tags": self.tags(plan["nat_gateway"]["name"]),
            }
        ]
        self.addresses = [{"AllocationId": "eipalloc-1", "PublicIp": "192.0.2.1", "AssociationId": "eipassoc-1"}]
        gateways = {"public": {"GatewayId": "igw-1"}, "private": {"NatGatewayId": "nat-1"}}
        self.route_tables = [
            {
                "RouteTableId": f"rtb-{table['tier']}",
                "VpcId": VPC,
                "Routes": [
                    {"DestinationCidrBlock": plan["vpc"]["cidr"], "GatewayId": "local", "State": "active"},
                    {"DestinationCidrBlock": "0.0.0.0/0", **gateways[table["tier"]], "State": "active"},
                ],
                "Associations": [
                    {"SubnetId": subnet, "RouteTableAssociationId": f"rtbassoc-{subnet}", "Main": False}
                    for subnet in tiers[table["tier"]]
                ],
                "Tags": self.tags(table["name"]),
            }
            for table in plan["route_tables"]
        ]
        # The group that EKS makes is in the VPC too, and is not ours.
        self.security_groups = [self.group(one["key"]) for one in plan["security_groups"]] + [
            {"GroupId": "sg-eks", "GroupName": f"eks-cluster-sg-{plan['name']}-1", "VpcId": VPC, "Tags": []}
        ]

    def _cluster(self, plan: dict[str, Any]) -> None:
        self.launch_templates = [
            {
                "LaunchTemplateId": f"lt-{index}",
                "LaunchTemplateName": one["name"],
                "LatestVersionNumber": 1,
                "Tags": self.tags(one["name"]),
            }
            for index, one in enumerate(plan["launch_templates"])
        ]
        self.cluster: dict[str, Any] = {
            "name": plan["name"],
            "arn": f"arn:aws:eks:us-west-2:{ACCOUNT}:cluster/{plan['name']}",
            "status": "ACTIVE",
            "endpoint": "https://eks.example",
            "certificateAuthority": {"data": "LS0t"},
            "resourcesVpcConfig": {"vpcId": VPC, "clusterSecurityGroupId": "sg-eks"},
            "tags": dict(plan["tags"]),
        }
        self.node_groups = ["system", "gpu"]

    def _files(self, plan: dict[str, Any], tiers: dict[str, list[str]]) -> None:
        self.file_systems = [
            {
                "FileSystemId": "fs-1",
                "CreationToken": plan["file_system"]["creation_token"],
                "Name": plan["file_system"]["name"],
                "LifeCycleState": "available",
                "Encrypted": True,
                "ThroughputMode": "elastic",
                "Tags": self.tags(plan["file_system"]["name"]),
            }
        ]
        self.mount_targets = [{"MountTargetId": "fsmt-1", "SubnetId": tiers["private"][0]}]

    def _identities(self, plan: dict[str, Any]) -> None:
        own = f"arn:aws:iam::{ACCOUNT}"
        identities = [*self.tags(), {"Key": "modelplane.ai/region", "Value": plan["region"]}]
        policies = {one["key"]: f"{own}:policy/{one['name']}" for one in plan["policies"]}
        self.roles = {
            one["key"]: {
                "Role": {
                    "RoleName": one["name"],
                    "Arn": f"{own}:role/{one['name']}",
                    "AssumeRolePolicyDocument": json.loads(json.dumps(one["trust"])),
                    "Tags": list(identities),
                },
                "Attached": [*one["managed_policies"], *([policies[one["policy"]]] if one["policy"] else [])],
            }
            for one in plan["roles"]
        }
        self.policies = {
            one["key"]: {
                "Policy": {"PolicyName": one["name"], "Arn": policies[one["key"]], "Tags": list(identities)},
                "Document": quote(json.dumps(one["document"])),
            }
            for one in plan["policies"]
        }

    def answers(self) -> Answers:
        return Answers(account=ACCOUNT, **{key: value for key, value in vars(self).items() if key != "plan"})

    def tags(self, name: str = "") -> list[dict[str, str]]:
        return wire_tags(self.plan["tags"], name)

    def _subnet(self, index: int, subnet: dict[str, Any]) -> dict[str, Any]:
        return {
            "SubnetId": f"subnet-{index}",
            "VpcId": VPC,
            "CidrBlock": subnet["cidr"],
            "AvailabilityZone": subnet["zone"],
            "MapPublicIpOnLaunch": subnet["map_public"],
            "Tags": wire_tags({**self.plan["tags"], **subnet["tags"]}, subnet["name"]),
        }

    def group(self, key: str) -> dict[str, Any]:
        """A security group as it is planned for a cluster with EFA."""
        name = self.plan["security_groups"][0]["name"].removesuffix("efs") + key
        itself = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": f"sg-{key}", "UserId": ACCOUNT}]}
        nfs = {
            "IpProtocol": "tcp",
            "FromPort": 2049,
            "ToPort": 2049,
            "IpRanges": [{"CidrIp": self.plan["vpc"]["cidr"]}],
        }
        return {
            "GroupId": f"sg-{key}",
            "GroupName": name,
            "VpcId": VPC,
            "Description": "",
            "IpPermissions": [itself if key == "efa" else nfs],
            "IpPermissionsEgress": [itself] if key == "efa" else [],
            "Tags": self.tags(name),
        }


def set_tag(one: dict[str, Any], key: str, value: str | None) -> None:
    """Give an object a tag, or take it away with None."""
    one["Tags"] = [tag for tag in one["Tags"] if tag["Key"] != key]
    if value is not None:
        one["Tags"].append({"Key": key, "Value": value})
