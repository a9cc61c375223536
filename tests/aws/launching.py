# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whether the nodes of a node group come up: what EC2 says to an Auto Scaling group, and whether a node can join."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

from . import quotas
from .account import Account, Region

if TYPE_CHECKING:
    from .eks_nodegroups import NodeGroup

Issue = tuple[str, str]
"""A code and a message of the health of a node group (EKS API reference, "Issue")."""


def hindrance(account: Account, group: NodeGroup, wanted: int) -> Issue | None:
    """Why a group cannot have so many nodes; None if it can."""
    if not wanted:
        return None
    refusal = next(_refusals(account, group, wanted), None)
    if refusal:
        told = f"Could not launch On-Demand Instances. {refusal}. Launching EC2 instance failed."
        return "AsgInstanceLaunchFailures", told
    return _lost(account, group)


def _refusals(account: Account, group: NodeGroup, wanted: int) -> Iterator[str]:
    """What EC2 says against instances of the group."""
    region = group.cluster.region
    template, kind = group.described_template(), group.instance_type()
    zones = {region.subnet(subnet).availability_zone for subnet in group.subnets}
    if not zones & _offering(region, kind):
        yield (
            f"Unsupported - Your requested instance type ({kind}) is not supported in your requested Availability Zone "
            f"({', '.join(sorted(zones))})"
        )
        return
    yield from _cards(kind, template.get("NetworkInterfaces", []))
    target = template.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget")
    if target:
        yield from _reserved(group, target.get("CapacityReservationId", ""), zones, kind, wanted)
    else:
        yield from _beyond_quota(account, group, kind, wanted)


def _offering(region: Region, kind: str) -> set[str]:
    """The zones of a region that offer an instance type."""
    offers = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region.name, [])
    offering = {offer["Location"] for offer in offers if offer["InstanceType"] == kind}
    return offering - {zone for zone, absent in region.not_offered if absent == kind}


def _cards(kind: str, interfaces: list[Mapping[str, Any]]) -> Iterator[str]:
    network = INSTANCE_TYPES[kind]["NetworkInfo"]
    cards = network.get("MaximumNetworkCards", 1)
    for interface in interfaces:
        if interface.get("NetworkCardIndex", 0) >= cards:
            index = interface["NetworkCardIndex"]
            yield f"InvalidParameterValue - Network card index {index} exceeds the limit for {kind}"
        if interface.get("InterfaceType", "").startswith("efa") and not network.get("EfaSupported"):
            yield f"Unsupported - EFA interfaces are not supported on {kind}"


def _reserved(group: NodeGroup, id_: str, zones: set[str], kind: str, wanted: int) -> Iterator[str]:
    reservation = group.cluster.region.reservations.get(id_)
    if reservation is None:
        yield f"InvalidCapacityReservationId.NotFound - The capacity reservation ID '{id_}' does not exist"
    elif reservation["State"] != "active":
        yield f"InvalidCapacityReservationState - The Capacity Block '{id_}' is {reservation['State']} and not active"
    elif reservation["InstanceType"] != kind or reservation["AvailabilityZone"] not in zones:
        yield "ReservationCapacityExceeded - The Capacity Block has another instance type or Availability Zone"
    elif reservation["AvailableInstanceCount"] + group.nodes < wanted:
        yield "ReservationCapacityExceeded - Insufficient capacity in the Capacity Block"


def _beyond_quota(account: Account, group: NodeGroup, kind: str, wanted: int) -> Iterator[str]:
    """Whether the vCPUs of the region are used up; those of capacity reservations of blocks do not count."""
    code = quotas.vcpu_quota(kind)
    if code is None:
        return
    limit = quotas.value(account, "ec2", code)
    used = INSTANCE_TYPES[kind]["VCpuInfo"]["DefaultVCpus"] * wanted
    for cluster in group.cluster.region.clusters.values():
        for other in cluster.node_groups.values():
            counts = other is not group and other.nodes and other.capacity_type != "CAPACITY_BLOCK"
            if counts and quotas.vcpu_quota(other.instance_type()) == code:
                used += INSTANCE_TYPES[other.instance_type()]["VCpuInfo"]["DefaultVCpus"] * other.nodes
    if used > limit:
        yield (
            f"VcpuLimitExceeded - You have requested more vCPU capacity than your current vCPU limit of {limit:.0f} "
            "allows for the instance bucket that the specified instance type belongs to"
        )


def _lost(account: Account, group: NodeGroup) -> Issue | None:
    """Why nodes that started cannot join the cluster; None if they can."""
    told = "Instances failed to join the kubernetes cluster"
    interfaces = group.described_template().get("NetworkInterfaces", [])
    if interfaces and not all(group.cluster.own_group in each.get("Groups", []) for each in interfaces):
        return "NodeCreationFailure", told
    if account.routes_matter and not all(_has_way_out(group.cluster.region, subnet) for subnet in group.subnets):
        return "NodeCreationFailure", told
    return None


def _has_way_out(region: Region, subnet_id: str) -> bool:
    """Whether the route table of a subnet leads to a NAT gateway, or to an internet gateway with public addresses."""
    subnet = region.subnet(subnet_id)
    tables = region.ec2.route_tables.values()
    own = [table for table in tables if subnet_id in table._associations.values()]
    table = (own or [each for each in tables if each.vpc_id == subnet.vpc_id and each.main_association_id])[0]
    for route in table.routes:
        if route.destination_cidr_block == "0.0.0.0/0":
            open_ = route.nat_gateway is not None and route.nat_gateway.state == "available"
            return open_ or (route.gateway is not None and str(subnet.map_public_ip_on_launch).lower() == "true")
    return False
