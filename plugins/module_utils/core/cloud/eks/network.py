# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The network of a cluster: one VPC, in each zone a public subnet and a private one.

Load balancers and the one NAT gateway are in public subnets, nodes and file systems in private ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network
from itertools import combinations
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.naming import Naming
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem

VPC_CIDR = "10.0.0.0/16"
SUBNET_CIDRS = ("10.0.0.0/20", "10.0.16.0/20", "10.0.32.0/20")
PUBLIC = "public"
PRIVATE = "private"

_PRIVATE_OFFSET = 48 << 8
"""Addresses between the public subnet of a zone and the private one: 48 in the third octet."""
_SHORTEST, _LONGEST = 16, 28
"""Prefix lengths of VPCs and subnets (Amazon VPC User Guide, "VPC CIDR blocks")."""
_VPC_PATH = "spec.networking.vpcCidr"
_SUBNETS_PATH = "spec.networking.subnetCidrs"


@dataclass(frozen=True)
class Subnet:
    """A subnet: `index` counts the zones, `cidr` is as it is written or follows from that."""

    index: int
    tier: str
    zone: str
    cidr: str

    def __str__(self) -> str:
        return f"the {self.tier} subnet {self.cidr} of {self.zone}"

    @property
    def path(self) -> str:
        return f"{_SUBNETS_PATH}[{self.index}]"


def vpc_cidr(spec: Mapping[str, Any]) -> str:
    """The range of the VPC of an EKSCluster (`spec`, wire form)."""
    return str((spec.get("networking") or {}).get("vpcCidr") or VPC_CIDR)


def subnet_cidrs(spec: Mapping[str, Any]) -> Sequence[str]:
    """The ranges of the public subnets."""
    return tuple((spec.get("networking") or {}).get("subnetCidrs") or SUBNET_CIDRS)


def zones(spec: Mapping[str, Any], given: Sequence[str] = ()) -> list[str]:
    """The zone of each subnet: `given`, else those with the first letters in the region."""
    count = len(subnet_cidrs(spec))
    return list(given[:count]) or [f"{spec['region']}{chr(ord('a') + index)}" for index in range(count)]


def subnets(spec: Mapping[str, Any], given: Sequence[str] = ()) -> list[Subnet]:
    """All subnets, public ones first, in the order of zones. Ranges that are none are left out."""
    found: list[Subnet] = []
    for tier in (PUBLIC, PRIVATE):
        for index, (zone, cidr) in enumerate(zip(zones(spec, given), subnet_cidrs(spec), strict=False)):
            shown = cidr if tier == PUBLIC else _private(cidr)
            if shown:
                found.append(Subnet(index, tier, zone, shown))
    return found


def network(spec: Mapping[str, Any], naming: Naming, given: Sequence[str] = ()) -> dict[str, Any]:
    """The network as plain data: `vpc`, `subnets` with their own tags, names of the gateways, and `route_tables`."""
    made = subnets(spec, given)
    return {
        "vpc": {"name": naming.cluster, "cidr": vpc_cidr(spec)},
        "subnets": [
            {
                "name": naming.subnet(subnet.tier, subnet.zone),
                "tier": subnet.tier,
                "zone": subnet.zone,
                "cidr": subnet.cidr,
                "public_ip": subnet.tier == PUBLIC,
                # Where the load balancers of Services go (EKS User Guide, "Network load balancing").
                "tags": {"kubernetes.io/role/elb": "1"} if subnet.tier == PUBLIC else {},
            }
            for subnet in made
        ],
        "internet_gateway": {"name": naming.part("igw")},
        "nat_gateway": {"name": naming.part("nat"), "subnet": naming.subnet(PUBLIC, made[0].zone)},
        "route_tables": [
            {
                "name": naming.part(f"{tier}-routes"),
                "tier": tier,
                "gateway": gateway,
                "subnets": [naming.subnet(tier, subnet.zone) for subnet in made if subnet.tier == tier],
            }
            for tier, gateway in ((PUBLIC, "internet"), (PRIVATE, "nat"))
        ],
    }


def problems(spec: Mapping[str, Any], given: Sequence[str] = ()) -> Iterator[Problem]:
    """What AWS would refuse of the network."""
    vpc = _network(vpc_cidr(spec))
    if vpc is None:
        yield _unusable(_VPC_PATH, vpc_cidr(spec))
    faulty = False
    for index, cidr in enumerate(subnet_cidrs(spec)):
        if _network(cidr) is None:
            faulty = True
            yield _unusable(f"{_SUBNETS_PATH}[{index}]", cidr)
    if given and len(given) < len(subnet_cidrs(spec)):
        yield Problem(
            f"has {len(subnet_cidrs(spec))} ranges for {len(given)} zones ({', '.join(given)})",
            _SUBNETS_PATH,
            hint="Name a zone for each range, or write fewer ranges",
        )
    if faulty or vpc is None:
        return
    made = [(subnet, ip_network(subnet.cidr)) for subnet in subnets(spec, given)]
    for subnet, inside in made:
        if not inside.subnet_of(vpc):  # type: ignore[arg-type]
            yield Problem(
                f"{subnet} is not inside the VPC {vpc}{_rule(subnet)}",
                subnet.path,
                hint="Use lower ranges, or a larger vpcCidr",
            )
    for (one, its), (other, others) in combinations(made, 2):
        if its.overlaps(others):
            yield Problem(
                f"{one} and {other} overlap{_rule(one, other)}",
                other.path,
                hint="Leave room for the private subnets, or write fewer ranges",
            )


def _network(cidr: str) -> IPv4Network | None:
    try:
        found = IPv4Network(cidr)
    except ValueError:
        return None
    return found if _SHORTEST <= found.prefixlen <= _LONGEST and "/" in cidr else None


def _private(cidr: str) -> str:
    found = _network(cidr)
    if found is None:
        return ""
    start = int(found.network_address) + _PRIVATE_OFFSET
    return str(IPv4Network((start, found.prefixlen), strict=False)) if start < 1 << 32 else ""


def _rule(*subnets: Subnet) -> str:
    """Where a private range comes from, which nobody wrote."""
    if all(subnet.tier == PUBLIC for subnet in subnets):
        return ""
    return ": a private subnet is the public one of its zone with 48 added to the third number"


def _unusable(path: str, cidr: str) -> Problem:
    return Problem(
        f"is no IPv4 network of /{_SHORTEST} to /{_LONGEST}",
        path,
        cidr,
        "Write it as 10.0.0.0/20, with zeros at the end",
    )
