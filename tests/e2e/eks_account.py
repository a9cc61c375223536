# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Runs of `provision` against the double of AWS, and what is in its account afterwards, in few words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.tests import ansible_run, packages
from ansible_collections.modelplane.fleet.tests.aws.cluster import EksControlPlane
from ansible_collections.modelplane.fleet.tests.aws.double import AwsDouble

ROOT = ansible_run.ROOT
DATA = ROOT / "tests" / "data"
SEED = ("manifests/concepts/inference-class-eks-l4.yaml", "manifests/seeds/inference-cluster-eks.yaml")
CUSTOM = "eks/cluster-efa.yaml"
BLOCK = "cr-0123456789abcdef0"
_RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=\d+\s+failed=(\d+)", re.MULTILINE)
_ITEM = re.compile(r"^changed: \[\S+\](?: => \(item=(.*)\))?$", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """What a run of a playbook said. `changed` and `failed` are the numbers of its recap by host."""

    out: str
    told: str
    changed: Mapping[str, int]
    failed: Mapping[str, int]

    def ok(self) -> Run:
        assert self.failed, self.out[-6000:] + self.told[-2000:]
        assert not any(self.failed.values()), self.out[-6000:] + self.told[-2000:]
        return self

    @property
    def items(self) -> list[str]:
        """The items of loops that were, or would be, changed."""
        return [item for item in _ITEM.findall(self.out) if item]


class Site:
    """An inventory with clusters on EKS, and the account that they are built in."""

    def __init__(self, aws: AwsDouble, folder: Path, *collections: Path) -> None:
        """`collections` are folders with collections, amazon.aws by default."""
        self.aws = aws
        self.plane: EksControlPlane | None = None
        self._collections = collections or (packages.amazon_aws(),)
        self.folder = folder
        self.settings: dict[str, Any] = {
            "fleet_resources": [str(folder / "manifests")],
            "eks_cluster_interval": 0.1,
            # What is brought into the clusters has tests of its own: these have no API server.
            "eks_cluster_components": [],
            "eks_cluster_force": True,
        }
        self.hosts: dict[str, dict[str, Any]] = {}
        (folder / "manifests").mkdir(parents=True)
        aws.quota("ec2", "L-DB2E81BA", 512)
        aws.quota("ec2", "L-417A185B", 512)

    def add(self, host: str, *manifests: str, replace: Mapping[str, str] | None = None) -> None:
        """A host, and the manifests that say what it is."""
        self.hosts[host] = {}
        for name in manifests:
            self.write(Path(name).name, (DATA / name).read_text(), replace)

    def write(self, name: str, text: str, replace: Mapping[str, str] | None = None) -> None:
        for old, new in (replace or {}).items():
            assert old in text
            text = text.replace(old, new)
        (self.folder / "manifests" / name).write_text(text)

    def edit(self, name: str, replace: Mapping[str, str]) -> None:
        """Write a manifest anew."""
        self.write(name, (self.folder / "manifests" / name).read_text(), replace)

    def run(self, *arguments: str, playbook: str = "provision") -> Run:
        inventory = self.folder / "hosts.yml"
        children = {"workload_clusters": {"hosts": self.hosts}}
        inventory.write_text(yaml.safe_dump({"all": {"vars": self.settings, "children": children}}))
        self.aws.clear_calls()
        out, told = ansible_run.run(
            "ansible-playbook",
            f"modelplane.fleet.{playbook}",
            "-i",
            str(inventory),
            *arguments,
            timeout=3600,
            ANSIBLE_COLLECTIONS_PATH=":".join(map(str, (ROOT / ".collections", *self._collections))),
            ANSIBLE_DEPRECATION_WARNINGS="0",
            **self.aws.environment,
        )
        found = _RECAP.findall(out)
        return Run(
            out,
            told,
            {host: int(changed) for host, changed, _failed in found},
            {host: int(failed) for host, _changed, failed in found},
        )

    def remove(self, *arguments: str) -> Run:
        return self.run("-e", "provision_state=absent", *arguments)


class Account:
    """What is in the account for one cluster, read back through boto3."""

    def __init__(self, aws: AwsDouble, namespace: str, name: str, cluster: str) -> None:
        self._aws = aws
        self.cluster = cluster
        self._tags = {"modelplane.ai/cluster": f"{namespace}.{name}", "modelplane.ai/managed-by": "modelplane.fleet"}
        self._filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in self._tags.items()]

    def ec2(self, operation: str, key: str, **more: Any) -> list[dict[str, Any]]:
        """What EC2 lists with the tags of the cluster."""
        found: list[dict[str, Any]] = getattr(self._aws.client("ec2"), operation)(
            **(more or {"Filters": self._filters})
        )[key]
        return found

    def vpc(self) -> dict[str, Any]:
        (vpc,) = self.ec2("describe_vpcs", "Vpcs")
        client = self._aws.client("ec2")
        asked = (("enableDnsSupport", "EnableDnsSupport"), ("enableDnsHostnames", "EnableDnsHostnames"))
        dns = [
            client.describe_vpc_attribute(VpcId=vpc["VpcId"], Attribute=attribute)[key]["Value"]
            for attribute, key in asked
        ]
        return {"id": vpc["VpcId"], "cidr": vpc["CidrBlock"], "dns": dns}

    def subnets(self) -> dict[str, tuple[str, str, bool, bool]]:
        """Range -> id, zone, whether nodes get public addresses, whether load balancers go there."""
        return {
            subnet["CidrBlock"]: (
                subnet["SubnetId"],
                subnet["AvailabilityZone"],
                subnet["MapPublicIpOnLaunch"],
                tags(subnet).get("kubernetes.io/role/elb") == "1",
            )
            for subnet in self.ec2("describe_subnets", "Subnets")
        }

    def routes(self) -> dict[str, set[str]]:
        """What the way out is of each kind (igw, nat) -> the subnets that take it."""
        found: dict[str, set[str]] = {}
        for table in self.ec2("describe_route_tables", "RouteTables"):
            (way,) = [route for route in table["Routes"] if route.get("DestinationCidrBlock") == "0.0.0.0/0"]
            gateway = way.get("NatGatewayId") or way["GatewayId"]
            found[gateway.split("-")[0]] = {entry["SubnetId"] for entry in table["Associations"]}
        return found

    def nat(self) -> dict[str, Any]:
        nat = self.ec2("describe_nat_gateways", "NatGateways", Filter=self._filters)
        (gateway,) = [each for each in nat if each["State"] == "available"]
        (address,) = self.ec2("describe_addresses", "Addresses")
        (held,) = gateway["NatGatewayAddresses"]
        assert held["AllocationId"] == address["AllocationId"]
        assert address["Domain"] == "vpc"
        return {"subnet": gateway["SubnetId"]}

    def security_groups(self) -> dict[str, dict[str, Any]]:
        """Group -> id, description, and what it lets in and out: (protocol, port, range or `self`)."""
        found = {}
        for group in self.ec2("describe_security_groups", "SecurityGroups"):
            found[group["GroupName"]] = {
                "id": group["GroupId"],
                "description": group["Description"],
                "in": _rules(group, "IpPermissions"),
                "out": _rules(group, "IpPermissionsEgress"),
            }
        return found

    def role(self, name: str) -> dict[str, Any]:
        iam = self._aws.client("iam")
        role = iam.get_role(RoleName=name)["Role"]
        assert self._tags.items() <= tags(role).items()
        (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
        attached = iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]
        actions = statement["Action"]
        return {
            "service": statement["Principal"]["Service"],
            "actions": set([actions] if isinstance(actions, str) else actions),
            "policies": {policy["PolicyArn"] for policy in attached},
        }

    def policy(self, arn: str) -> Any:
        iam = self._aws.client("iam")
        policy = iam.get_policy(PolicyArn=arn)["Policy"]
        version = iam.get_policy_version(PolicyArn=arn, VersionId=policy["DefaultVersionId"])["PolicyVersion"]
        return version["Document"]

    def eks(self) -> dict[str, Any]:
        found: dict[str, Any] = self._aws.client("eks").describe_cluster(name=self.cluster)["cluster"]
        assert self._tags.items() <= found["tags"].items()
        return found

    def node_groups(self) -> dict[str, dict[str, Any]]:
        client = self._aws.client("eks")
        names = client.list_nodegroups(clusterName=self.cluster)["nodegroups"]
        return {
            name: client.describe_nodegroup(clusterName=self.cluster, nodegroupName=name)["nodegroup"] for name in names
        }

    def addons(self) -> dict[str, str]:
        client = self._aws.client("eks")
        names = client.list_addons(clusterName=self.cluster)["addons"]
        return {
            name: client.describe_addon(clusterName=self.cluster, addonName=name)["addon"]["status"] for name in names
        }

    def pod_identities(self) -> dict[tuple[str, str], str]:
        client = self._aws.client("eks")
        found = {}
        for entry in client.list_pod_identity_associations(clusterName=self.cluster)["associations"]:
            answer = client.describe_pod_identity_association(
                clusterName=self.cluster, associationId=entry["associationId"]
            )["association"]
            found[answer["namespace"], answer["serviceAccount"]] = answer["roleArn"].rpartition("/")[2]
        return found

    def launch_template(self, name: str) -> dict[str, Any]:
        (version,) = self._aws.client("ec2").describe_launch_template_versions(
            LaunchTemplateName=name, Versions=["$Default"]
        )["LaunchTemplateVersions"]
        return {"version": version["VersionNumber"], **version["LaunchTemplateData"]}

    def file_system(self) -> dict[str, Any]:
        client = self._aws.client("efs")
        (system,) = client.describe_file_systems(CreationToken=self.cluster)["FileSystems"]
        targets = client.describe_mount_targets(FileSystemId=system["FileSystemId"])["MountTargets"]
        groups = {
            group
            for target in targets
            for group in client.describe_mount_target_security_groups(MountTargetId=target["MountTargetId"])[
                "SecurityGroups"
            ]
        }
        return {
            "mode": system["ThroughputMode"],
            "encrypted": system["Encrypted"],
            "subnets": {target["SubnetId"] for target in targets},
            "groups": groups,
        }


def tags(entry: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in entry.get("Tags") or ()}


def _rules(group: Mapping[str, Any], key: str) -> list[tuple[str, Any, str]]:
    found = []
    for permission in group[key]:
        for held in permission.get("IpRanges") or ():
            found.append((permission["IpProtocol"], permission.get("FromPort"), held["CidrIp"]))
        for held in permission.get("UserIdGroupPairs") or ():
            target = "self" if held["GroupId"] == group["GroupId"] else held["GroupId"]
            found.append((permission["IpProtocol"], permission.get("FromPort"), target))
    return sorted(found, key=json.dumps)
