# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Report on a planned cluster before anything is created, in whichever cloud."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..accounts import Account
from .quotas import QuotaDemand, QuotaWords, limits, message, remediation, shortage


@dataclass(frozen=True)
class Verdict:
    """Lines for people: what has to be put right first, and what one should know."""

    problems: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Line:
    """A line for people, of a problem or a warning."""

    text: str
    problem: bool = True


def verdict(lines: Iterable[Line]) -> Verdict:
    """Lines as they came, each once."""
    listed = list(lines)
    return Verdict(
        tuple(dict.fromkeys(line.text for line in listed if line.problem)),
        tuple(dict.fromkeys(line.text for line in listed if not line.problem)),
    )


def of_limits(account: Account, demands: Sequence[QuotaDemand], words: QuotaWords) -> Iterator[Line]:
    """Return what is wrong with the quotas and reservations of an account for pools. Growth is a warning."""
    for limit in limits(account, words):
        short = shortage(limit, demands)
        if short is not None:
            yield Line(f"{message(short)}. {remediation(short, words)}", problem=short.starts and limit.is_certain)


def meeting(name: str, ranges: Iterable[str], others: Iterable[Mapping[str, Any]]) -> list[str]:
    """The other clusters that have addresses of these ranges, as `name (ranges, region)`, sorted. `name` is that of the
    cluster itself, `others` are entries with name, region and cidr: one for each range of a cluster."""
    own = [ipaddress.ip_network(each, strict=False) for each in ranges]
    found: dict[tuple[str, str], list[str]] = {}
    for other in others:
        if other["name"] != name and any(_overlap(each, other["cidr"]) for each in own):
            found.setdefault((str(other["name"]), str(other["region"])), []).append(str(other["cidr"]))
    return [f"{theirs} ({', '.join(cidrs)}, {region})" for (theirs, region), cidrs in sorted(found.items())]


def _overlap(own: ipaddress.IPv4Network | ipaddress.IPv6Network, cidr: str) -> bool:
    try:
        other = ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return False
    return own.version == other.version and own.overlaps(other)
