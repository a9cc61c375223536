# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The network of an EKSCluster: subnets, gateways, routes, and security groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..addresses import network, private_twin
from . import names

ELB_TAG = "kubernetes.io/role/elb"
"""Tag of the subnets for internet-facing load balancers."""
PUBLIC = "public"
PRIVATE = "private"
NFS_PORT = 2049

_EFS_DESCRIPTION = "NFS access to the ModelCache EFS mount targets"
_EFA_DESCRIPTION = "EFA OS-bypass traffic between gang nodes"


def subnets(name: str, zones: Sequence[str], cidrs: Sequence[str]) -> list[dict[str, Any]]:
    """Return a public subnet in each zone, then a private subnet in each zone, in the order of the zones. Raises
    AddressError."""
    tiers = {PUBLIC: list(cidrs), PRIVATE: [str(private_twin(network(cidr))) for cidr in cidrs]}
    return [
        {
            "name": names.subnet_name(name, tier, zone),
            "tier": tier,
            "zone": zone,
            "cidr": cidr,
            "map_public": tier == PUBLIC,
            "tags": {ELB_TAG: "1"} if tier == PUBLIC else {},
        }
        for tier, ranges in tiers.items()
        for zone, cidr in zip(zones, ranges, strict=True)
    ]


def security_groups(name: str, vpc_cidr: str, *, efa: bool) -> list[dict[str, Any]]:
    """Return the security groups. They deny all traffic without a rule: the EFS group allows no outbound traffic.

    EFA bypasses the operating system. It requires rules for both directions within its own group.
    """
    groups = [_group("efs", name, _EFS_DESCRIPTION, [f"tcp {NFS_PORT} {vpc_cidr}"], [])]
    if efa:
        groups.append(_group("efa", name, _EFA_DESCRIPTION, ["all self"], ["all self"]))
    return groups


def _group(key: str, name: str, description: str, ingress: list[str], egress: list[str]) -> dict[str, Any]:
    return {
        "key": key,
        "name": f"{name}-{key}",
        "description": description,
        "ingress": ingress,
        "egress": egress,
    }
