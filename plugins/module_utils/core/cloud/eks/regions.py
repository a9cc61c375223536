# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What follows from the name of a region of AWS."""

from __future__ import annotations

import re
from collections.abc import Sequence

REGION = re.compile(r"[a-z]{2,5}(-[a-z]+)+-[0-9]{1,2}")

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
    """The zone of that number, from 0, if the region's zones have the letters a, b, c and so on."""
    return f"{region}{chr(ord('a') + index)}"


def zones_for(region: str, count: int, available: Sequence[str]) -> list[str]:
    """`count` zones, one for each subnet: those with the first letters, unless one of them is not among the
    `available` ones of the region (empty: not known); then the first of these. Fewer when there are not so many."""
    guess = [zone_name(region, index) for index in range(count)]
    own = re.compile(re.escape(region) + "[a-z]")
    # A region's list can name local zones too, which no control plane can be in.
    known = sorted({zone for zone in available if own.fullmatch(zone)})
    if not known or set(guess) <= set(known):
        return guess
    return known[:count]
