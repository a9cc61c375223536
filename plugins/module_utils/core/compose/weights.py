# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""How the traffic of a service is split: from the shares of entries to whole weights of their endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd

WEIGHT_LIMIT = 1_000_000
"""Largest weight of a backend of a route (Gateway API reference, BackendRef)."""


def split(entries: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The weights of the endpoints of every entry, given as (weight of the entry, number of its usable endpoints).

    An entry's endpoints share its weight evenly; what does not divide goes to the first of them, one each, so that
    the whole stays exact. An entry without endpoints leaves its share to the others. The results equal those of the
    reference implementation.
    """
    used = [(weight, count) for weight, count in entries if count]
    scale = max((-(-count // weight) for weight, count in used), default=1)
    shares = [_share(weight * scale, count) for weight, count in entries]
    flat = iter(reduced([weight for share in shares for weight in share]))
    return [[next(flat) for __ in share] for share in shares]


def _share(total: int, count: int) -> list[int]:
    if not count:
        return []
    base, rest = divmod(total, count)
    return [base + 1] * rest + [base] * (count - rest)


def reduced(weights: Sequence[int]) -> list[int]:
    """The same proportions in the smallest whole numbers.

    Beyond the limit they are scaled down to it and rounded, half to even, to no less than 1: an error of at most one
    in a million of the largest.
    """
    divisor = gcd(*weights) or 1
    weights = [weight // divisor for weight in weights]
    largest = max(weights, default=0)
    if largest <= WEIGHT_LIMIT:
        return weights
    return [max(1, round(Fraction(weight * WEIGHT_LIMIT, largest))) for weight in weights]
