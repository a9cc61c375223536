# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Traffic split of a service: from the weights of its entries to integer weights of their endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd

WEIGHT_LIMIT = 1_000_000
"""Maximum weight of a backend of a route (Gateway API reference, BackendRef)."""


def split(entries: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the weights of the endpoints of each entry, given as (weight of the entry, number of usable endpoints).

    The endpoints of an entry share its weight evenly. The remainder is added to the first endpoints, one each, so that
    the sum stays exact. Other entries get the share of an entry without endpoints. The results equal the results of the
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
    base, remainder = divmod(total, count)
    return [base + 1] * remainder + [base] * (count - remainder)


def reduced(weights: Sequence[int]) -> list[int]:
    """Reduce weights to the smallest integers with the same proportions.

    Weights above the limit are scaled down to it and rounded, half to even, to at least 1: an error of at most one
    millionth of the largest.
    """
    divisor = gcd(*weights) or 1
    weights = [weight // divisor for weight in weights]
    largest = max(weights, default=0)
    if largest <= WEIGHT_LIMIT:
        return weights
    return [max(1, round(Fraction(weight * WEIGHT_LIMIT, largest))) for weight in weights]
