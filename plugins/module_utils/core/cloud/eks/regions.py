# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Properties of AWS regions that follow from their names."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

REGION = re.compile(r"[a-z]{2,5}(-[a-z]+)+-[0-9]{1,2}")
WITHOUT_CONTROL_PLANE = ("use1-az3", "usw1-az2", "cac1-az3")
"""IDs of the zones that do not support subnets of an EKS control plane (Amazon EKS User Guide, "Amazon EKS networking
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
"""Names of the EC2 service in trust policies that differ from the name in the commercial regions."""


def partition(region: str) -> str:
    """Return the AWS partition of a region, the second part of each ARN in the region."""
    return next((name for prefix, name in _PARTITIONS if region.startswith(prefix)), "aws")


def ec2_service(region: str) -> str:
    """Return the name of the EC2 service in trust policies."""
    return _EC2_SERVICES.get(partition(region), "ec2.amazonaws.com")


def zone_name(region: str, index: int) -> str:
    """Return the zone with this number, from 0, if the zones of the region have the letters a, b, c and so on."""
    return f"{region}{chr(ord('a') + index)}"


def holds_control_plane(zone_id: str) -> bool:
    """Return True if EKS supports control planes in a zone. The name of a zone differs between accounts; its ID does
    not."""
    return zone_id not in WITHOUT_CONTROL_PLANE


def choose_zones(region: str, held: Sequence[str], available: Sequence[str], pools: Collection[str]) -> list[str]:
    """Return the zone of each subnet range. The list is shorter than the ranges if the region has too few zones.

    `held`: the zones of existing subnets, empty for a range without a subnet; these zones are kept. The other ranges
    get the zones of the pools (`pools`), then the first other zones of `available`, in alphabetical order. If
    `available` is empty, the zones are unknown, and the zones with the first letters are used.
    """
    used_zones = {zone for zone in held if zone}
    missing = sum(not zone for zone in held)
    zone_pattern = re.compile(re.escape(region) + "[a-z]")
    # The list of a region can contain local zones, and they do not support a control plane.
    region_zones = {zone for zone in available if zone_pattern.fullmatch(zone)}
    candidates = region_zones or {zone_name(region, index) for index in range(len(held) + len(used_zones))} | set(pools)
    free = sorted(candidates - used_zones, key=lambda zone: (zone not in pools, zone))
    chosen = iter(sorted(free[:missing]))
    return [zone for zone in (held_zone or next(chosen, "") for held_zone in held) if zone]
