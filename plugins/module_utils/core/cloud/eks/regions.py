# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Properties of regions of AWS that follow from their names."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

REGION = re.compile(r"[a-z]{2,5}(-[a-z]+)+-[0-9]{1,2}")
WITHOUT_CONTROL_PLANE = ("use1-az3", "usw1-az2", "cac1-az3")
"""Ids of the zones in which EKS takes no subnets for a control plane (Amazon EKS User Guide, "Amazon EKS networking
requirements for VPC and subnets")."""

_PARTITIONS = (
    ("cn-", "aws-cn"),
    ("us-gov-", "aws-us-gov"),
    ("us-iso-", "aws-iso"),
    ("us-isob-", "aws-iso-b"),
    ("eu-isoe-", "aws-iso-e"),
    ("us-isof-", "aws-iso-f"),
    ("eusc-", "aws-eusc"),
)
_EC2_SERVICES = {"aws-cn": "ec2.amazonaws.com.cn", "aws-iso": "ec2.c2s.ic.gov", "aws-iso-b": "ec2.sc2s.sgov.gov"}
"""Names of the service EC2 where it has another one in trust policies than in the commercial regions."""


def partition(region: str) -> str:
    """The part of AWS that a region is in, the second part of each ARN there."""
    return next((name for prefix, name in _PARTITIONS if region.startswith(prefix)), "aws")


def ec2_service(region: str) -> str:
    """The service EC2 as trust policies name it."""
    return _EC2_SERVICES.get(partition(region), "ec2.amazonaws.com")


def zone_name(region: str, index: int) -> str:
    """Return the zone of that number, from 0, if the region's zones have the letters a, b, c and so on."""
    return f"{region}{chr(ord('a') + index)}"


def holds_control_plane(zone_id: str) -> bool:
    """Return whether EKS puts control planes into a zone. Its name differs per account; its id does not."""
    return zone_id not in WITHOUT_CONTROL_PLANE


def choose_zones(region: str, held: Sequence[str], available: Sequence[str], pools: Collection[str]) -> list[str]:
    """Return the zone of each range of subnets. Fewer when there are not so many.

    `held`: the zones that subnets have already, empty for a range without one; these stay. The other ranges get the
    zones that pools ask for (`pools`), then the first others of the `available` ones (empty: not known, then those with
    the first letters), in alphabetical order.
    """
    used_zones = {zone for zone in held if zone}
    missing = sum(not zone for zone in held)
    zone_pattern = re.compile(re.escape(region) + "[a-z]")
    # The list of a region can have local zones, too, which no control plane can be in.
    region_zones = {zone for zone in available if zone_pattern.fullmatch(zone)}
    candidates = region_zones or {zone_name(region, index) for index in range(len(held) + len(used_zones))} | set(pools)
    free = sorted(candidates - used_zones, key=lambda zone: (zone not in pools, zone))
    chosen = iter(sorted(free[:missing]))
    return [zone for zone in (held_zone or next(chosen, "") for held_zone in held) if zone]
