# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Holders of an object that AWS refuses to delete, read from the double of AWS."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import plan
from ansible_collections.modelplane.fleet.plugins.modules import cloud_resources
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from ansible_collections.modelplane.fleet.tests.module_run import run_module
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import eks

Json = dict[str, Any]
KINDS = ("vpc", "subnet", "security-group", "internet-gateway")


class Network:
    """The network of a planned cluster, without the cluster."""

    def __init__(self, aws: Double) -> None:
        self.aws, self.ec2 = aws, aws.client("ec2")
        self.resources = [each for each in plan(eks())["resources"] if each["kind"] in KINDS]
        made = self.run()
        assert not made["failed"], made["msg"]
        self.found = made["resources"]
        self.subnet = str(self.found["subnet-public-us-west-2a"]["SubnetId"])

    def run(self, **more: Any) -> Json:
        given = {"provider": "eks", **self.aws.credentials, "resources": self.resources, "wait_delay": 0.0}
        return run_module(cloud_resources, {**given, "wait_timeout": 2, **more})

    def interface(self, *groups: str) -> str:
        more = {"Groups": list(groups)} if groups else {}
        made = self.ec2.create_network_interface(SubnetId=self.subnet, Description="ELB app/k8s-web/0123", **more)
        return str(made["NetworkInterface"]["NetworkInterfaceId"])

    def refused(self, *kinds: str) -> str:
        result = self.run(state="absent", kinds=list(kinds))
        assert result["failed"]
        return str(result["msg"])


@pytest.fixture
def network(aws: Double) -> Network:
    return Network(aws)


def test_a_subnet_with_the_interface_of_a_load_balancer(network: Network) -> None:
    interface = network.interface()
    said = network.refused("subnet")
    assert "DependencyViolation" in said
    assert f"is used by network interface {interface} (ELB app/k8s-web/0123" in said
    assert f"in {network.subnet}). Remove these, then run again" in said
    network.ec2.delete_network_interface(NetworkInterfaceId=interface)
    assert not network.run(state="absent")["failed"]


def test_a_security_group_that_others_use(network: Network) -> None:
    group = str(network.found["security-group-efs"]["GroupId"])
    vpc = str(network.found["vpc"]["VpcId"])
    other = network.ec2.create_security_group(GroupName="web", Description="web", VpcId=vpc)["GroupId"]
    rule = {"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80, "UserIdGroupPairs": [{"GroupId": group}]}
    network.ec2.authorize_security_group_ingress(GroupId=other, IpPermissions=[rule])
    interface = network.interface(group)
    said = network.refused("security-group")
    assert f"is used by network interface {interface} (ELB app/k8s-web/0123" in said
    assert f"rules of security group {other}" in said


def test_a_vpc_with_a_security_group_of_others(network: Network) -> None:
    vpc = str(network.found["vpc"]["VpcId"])
    other = network.ec2.create_security_group(GroupName="web", Description="web", VpcId=vpc)["GroupId"]
    said = network.refused(*KINDS)
    assert f"is used by security group {other} (web). Remove these, then run again" in said


def test_what_may_not_be_read_leaves_the_error_of_aws(network: Network) -> None:
    network.interface()
    network.aws.refuse(operation="DescribeNetworkInterfaces", code="UnauthorizedOperation", message="No.", times=99)
    said = network.refused("subnet")
    assert "DependencyViolation" in said
    assert "What uses it could not be read: list the network interfaces of" in said
