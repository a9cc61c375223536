# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Network interfaces of services, in moto's EC2: they hold subnets and groups, and some outlive what had them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moto.ec2.utils import random_public_ip
from moto.elb.models import elb_backends
from moto.elbv2.models import elbv2_backends

from .account import ACCOUNT, OPERATIONS, Account, Region, Staged
from .wire import Asked


def make(region: Region, subnet_id: str, description: str, groups: Sequence[str], ip: str | None = None) -> Any:
    """An interface that a service has in a subnet. Without groups it has the default one of the VPC."""
    made = region.ec2.create_network_interface(
        region.subnet(subnet_id), ip or [], group_ids=list(groups), description=description
    )
    made.status, made.requester_managed = "in-use", True
    return made


def remove(account: Account, region: Region, interfaces: Sequence[str]) -> None:
    """The service lets go of interfaces: at once, or after some looks at the interfaces of the region (`delay`)."""
    looks = account.looks("interface")
    if not looks:
        for interface in interfaces:
            region.ec2.enis.pop(interface, None)
        return
    stage = Staged()
    region.lingering.append(stage)

    def finish() -> None:
        region.lingering.remove(stage)
        for interface in interfaces:
            region.ec2.enis.pop(interface, None)

    stage.begin(looks, finish)


@OPERATIONS.before("ec2", "DescribeNetworkInterfaces")
def look(account: Account, asked: Asked) -> None:
    for stage in list(account.region(asked.region).lingering):
        stage.look()


def holds_group(region: Region, group_id: str) -> bool:
    """Whether a security group is used by an interface or by a rule of another group."""
    if any(group_id in [each.id for each in interface.group_set] for interface in region.ec2.enis.values()):
        return True
    others = (each for groups in region.ec2.groups.values() for each in groups.values() if each.id != group_id)
    rules = (rule for other in others for rule in (*other.ingress_rules, *other.egress_rules))
    return any(rule.source_group.get("GroupId") == group_id for rule in rules)


# Load balancers, which moto gives no interfaces.


@OPERATIONS.after("elb", "CreateLoadBalancer")
def create_classic(account: Account, asked: Asked) -> None:
    made = elb_backends[ACCOUNT][asked.region].load_balancers[asked.parameters["LoadBalancerName"]]
    _place(account.region(asked.region), f"ELB {made.name}", made)


@OPERATIONS.after("elbv2", "CreateLoadBalancer")
def create_second(account: Account, asked: Asked) -> None:
    balancers = elbv2_backends[ACCOUNT][asked.region].load_balancers.values()
    made = next(each for each in balancers if each.name == asked.parameters["Name"])
    _place(account.region(asked.region), f"ELB {made.arn.partition(':loadbalancer/')[2]}", made)


def _place(region: Region, description: str, balancer: Any) -> None:
    for place in balancer.subnets:
        interface = make(region, getattr(place, "id", place), description, balancer.security_groups or [])
        if balancer.scheme != "internal":
            interface.public_ip = random_public_ip()


@OPERATIONS.after("elb", "DeleteLoadBalancer")
def delete_classic(account: Account, asked: Asked) -> None:
    _vacate(account, asked, f"ELB {asked.parameters['LoadBalancerName']}")


@OPERATIONS.after("elbv2", "DeleteLoadBalancer")
def delete_second(account: Account, asked: Asked) -> None:
    _vacate(account, asked, f"ELB {asked.parameters['LoadBalancerArn'].partition(':loadbalancer/')[2]}")


def _vacate(account: Account, asked: Asked, description: str) -> None:
    region = account.region(asked.region)
    remove(account, region, [each.id for each in region.ec2.enis.values() if each.description == description])
