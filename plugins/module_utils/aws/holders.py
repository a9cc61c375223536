# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Reads of the users of an object. AWS refuses to delete an object in use, and does not name its users."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.cloud.eks import orphans
from ..core.cloud.engine.kinds import Actual, Resource
from .find import Finder


class Holders:
    """Reads of one account. The methods raise AwsError."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder

    def of(self, resource: Resource, actual: Actual) -> Iterator[str]:
        """Yield the users of an object; nothing for kinds with errors that name the users."""
        kind = resource["kind"]
        if kind == "vpc":
            yield from self._interfaces("vpc-id", actual["VpcId"])
            yield from self._inside(actual["VpcId"])
        elif kind == "subnet":
            yield from self._interfaces("subnet-id", actual["SubnetId"])
        elif kind == "security-group":
            yield from self._interfaces("group-id", actual["GroupId"])
            yield from self._rules(actual["GroupId"], actual["VpcId"])
        elif kind == "internet-gateway" and actual.get("VpcId"):
            yield from self._interfaces("vpc-id", actual["VpcId"], public=True)
        elif kind == "elastic-ip" and actual.get("NetworkInterfaceId"):
            yield from self._interfaces("network-interface-id", actual["NetworkInterfaceId"])
        elif kind == "cluster":
            purpose = f"list the node groups of EKS cluster {resource['name']}"
            node_groups = self._finder.pages(
                "eks", "list_nodegroups", "nodegroups", purpose, clusterName=resource["name"]
            )
            yield from (f"node group {name}" for name in sorted(map(str, node_groups)))
        elif kind == "file-system":
            for target in self._finder.mount_targets(str(actual["FileSystemId"])):
                yield f"mount target {target['MountTargetId']} in {target.get('SubnetId')}"

    def _interfaces(self, by: str, value: str, *, public: bool = False) -> Iterator[str]:
        purpose = f"list the network interfaces of {value}"
        interfaces = self._finder.ec2("describe_network_interfaces", "NetworkInterfaces", purpose, {by: value})
        for interface in sorted(interfaces, key=lambda interface: str(interface["NetworkInterfaceId"])):
            if not public or (interface.get("Association") or {}).get("PublicIp"):
                yield orphans.interface_holding(interface)

    def _inside(self, vpc: str) -> Iterator[str]:
        """Yield subnets and security groups of a VPC, except the default group. AWS deletes the default group with the
        VPC."""
        for holder in self._finder.ec2("describe_subnets", "Subnets", f"list the subnets of {vpc}", {"vpc-id": vpc}):
            yield f"subnet {holder['SubnetId']} ({holder['CidrBlock']})"
        purpose = f"list the security groups of {vpc}"
        for holder in self._finder.ec2("describe_security_groups", "SecurityGroups", purpose, {"vpc-id": vpc}):
            if holder["GroupName"] != "default":
                yield f"security group {holder['GroupId']} ({holder['GroupName']})"

    def _rules(self, group: str, vpc: str) -> Iterator[str]:
        """Yield the other security groups of a VPC with rules that refer to a group."""
        purpose = f"list the security groups of {vpc}"
        security_groups = self._finder.ec2("describe_security_groups", "SecurityGroups", purpose, {"vpc-id": vpc})
        for name in sorted({holder for holder, _direction, _rule in orphans.references(security_groups, group)}):
            yield f"rules of security group {name}"
