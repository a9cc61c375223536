# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""From the weights of entries to the weights of backends."""

from __future__ import annotations

from fractions import Fraction

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.weights import WEIGHT_LIMIT, reduced, split
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(1, 3)], [[1, 1, 1]]),
        ([(80, 3), (20, 1)], [[27, 27, 26], [20]]),
        ([(95, 2), (5, 1)], [[48, 47], [5]]),
        ([(90, 2), (10, 1)], [[9, 9], [2]]),
        ([(1, 2), (3, 1)], [[1, 1], [6]]),
        ([(1, 3), (1, 1)], [[1, 1, 1], [3]]),
        ([(2, 1), (2, 1)], [[1], [1]]),
        ([(80, 0), (20, 2)], [[], [1, 1]]),
        ([(1_000_000, 1), (1, 2)], [[1_000_000], [1, 1]]),
        ([(5, 0), (7, 0)], [[], []]),
        ([], []),
    ],
)
def test_table_of_the_reference_implementation(entries: list[tuple[int, int]], expected: list[list[int]]) -> None:
    assert split(entries) == expected


@given(st.lists(st.tuples(st.integers(1, 1_000_000), st.integers(0, 40)), max_size=6))
def test_shares_are_those_of_the_entries(entries: list[tuple[int, int]]) -> None:
    shares = split(entries)
    assert [len(share) for share in shares] == [count for _, count in entries]
    flat = [weight for share in shares for weight in share]
    assert all(1 <= weight <= WEIGHT_LIMIT for weight in flat)
    total = sum(weight for weight, count in entries if count)
    if flat and max(flat) < WEIGHT_LIMIT:
        for (weight, count), share in zip(entries, shares, strict=True):
            assert Fraction(sum(share), sum(flat)) == (Fraction(weight, total) if count else 0)
            assert not share or max(share) - min(share) <= 1


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=16))
def test_reduced_keeps_proportions(weights: list[int]) -> None:
    found = reduced(weights)
    assert all(1 <= weight <= WEIGHT_LIMIT for weight in found)
    largest, most = max(weights), max(found)
    for before, after in zip(weights, found, strict=True):
        assert abs(Fraction(before, largest) - Fraction(after, most)) <= Fraction(1, most)
