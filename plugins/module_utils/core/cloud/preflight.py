# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Report on a planned cluster before anything is created, for all clouds."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..accounts import Account
from .quotas import QuotaDemand, QuotaWords, limits, message, remediation, shortage


@dataclass(frozen=True)
class Verdict:
    """Lines of a report: problems that must be fixed first, and warnings."""

    problems: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Line:
    """A line of a report: a problem or a warning."""

    text: str
    problem: bool = True


def verdict(lines: Iterable[Line]) -> Verdict:
    """Return the lines in order, without duplicates."""
    all_lines = list(lines)
    return Verdict(
        tuple(dict.fromkeys(line.text for line in all_lines if line.problem)),
        tuple(dict.fromkeys(line.text for line in all_lines if not line.problem)),
    )


def of_limits(account: Account, demands: Sequence[QuotaDemand], words: QuotaWords) -> Iterator[Line]:
    """Return the problems of quotas and reservations of an account for pools. A limit on growth is a warning."""
    for limit in limits(account, words):
        short = shortage(limit, demands)
        if short is not None:
            yield Line(f"{message(short)}. {remediation(short, words)}", problem=short.starts and limit.is_certain)


def meeting(name: str, ranges: Iterable[str], others: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the other clusters with addresses in these ranges, as `name (ranges, region)`, sorted.

    `name` is the name of the cluster itself. `others` are entries with name, region and cidr, one for each range of a
    cluster.
    """
    own_ranges = [ipaddress.ip_network(network, strict=False) for network in ranges]
    meeting_ranges: dict[tuple[str, str], list[str]] = {}
    for other_range in others:
        if other_range["name"] != name and any(_overlap(network, other_range["cidr"]) for network in own_ranges):
            meeting_ranges.setdefault((str(other_range["name"]), str(other_range["region"])), []).append(
                str(other_range["cidr"])
            )
    return [f"{theirs} ({', '.join(cidrs)}, {region})" for (theirs, region), cidrs in sorted(meeting_ranges.items())]


def _overlap(own: ipaddress.IPv4Network | ipaddress.IPv6Network, cidr: str) -> bool:
    try:
        other_network = ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return False
    return own.version == other_network.version and own.overlaps(other_network)
