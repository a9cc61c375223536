# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Limits of Kubernetes, and claims within them."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices import limits
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.limits import (
    joined_requests,
    oversized,
    split,
)

DATA = next(parent for parent in Path(__file__).resolve().parents if parent.name == "tests") / "data/kubernetes"


def test_the_limits_are_the_constants_of_kubernetes() -> None:
    text = (DATA / "resource-limits.go.txt").read_text(encoding="utf-8")
    constants = dict(re.findall(r"^(\w+) = (.+)$", text, re.MULTILINE))
    named = dict(
        re.findall(r'^(MAX_\w+) = .+\n"""(\w+):', Path(str(limits.__file__)).read_text(encoding="utf-8"), re.M)
    )
    assert len(named) >= 8
    for name, constant in named.items():
        value = constants[constant]
        while not re.fullmatch(r"[\d *]+", value):
            value = constants[value]
        product = 1
        for factor in value.split("*"):
            product *= int(factor)
        assert getattr(limits, name) == product, constant


@pytest.mark.parametrize(
    ("counts", "claims"),
    [
        ([32], [[(0, 32)]]),
        ([33], [[(0, 32)], [(0, 1)]]),
        ([64], [[(0, 32)], [(0, 32)]]),
        ([8, 24], [[(0, 8), (1, 24)]]),
        ([8, 32], [[(0, 8)], [(1, 32)]]),
        ([8, 40], [[(0, 8), (1, 8)], [(1, 32)]]),
        ([16, 20, 16], [[(0, 16), (2, 16)], [(1, 20)]]),
        ([1] * 33, [[(at, 1) for at in range(32)], [(32, 1)]]),
    ],
)
def test_a_pod_has_as_many_claims_as_its_devices_need(counts: list[int], claims: list[list[tuple[int, int]]]) -> None:
    found = split([(f"r{at}", count) for at, count in enumerate(counts)], [])
    assert sorted(sorted(map(tuple, claim)) for claim in found) == sorted(claims)


def test_requests_under_a_constraint_are_in_one_claim() -> None:
    chance = random.Random(3)
    for _ in range(300):
        requests = [(f"r{at}", chance.choice((1, 2, 8, 16, 32, 40))) for at in range(chance.randint(1, 8))]
        names = [name for name, __ in requests]
        constraints = [chance.sample(names, min(len(names), 2)) for _ in range(chance.randint(0, 3))]
        if oversized(requests, constraints):
            continue
        claims = split(requests, constraints)
        assert all(sum(part.devices for part in claim) <= limits.MAX_RESULTS for claim in claims)
        for at, (__, count) in enumerate(requests):
            assert sum(part.devices for claim in claims for part in claim if part.request == at) == count
        for together in constraints:
            in_claims = [
                number for number, claim in enumerate(claims) if any(names[part.request] in together for part in claim)
            ]
            assert len(in_claims) == 1
        assert all(len({part.request for part in claim}) == len(claim) for claim in claims)


@pytest.mark.parametrize(
    ("counts", "constraints", "found"),
    [
        ([16, 16], [["r0", "r1"]], []),
        ([16, 17], [["r0", "r1"]], [0, 1]),
        ([16, 17], [["r0"], ["r1"]], []),
        ([16, 17], [[]], [0, 1]),
        ([33], [["r0"]], [0]),
        ([40, 1], [["r1"]], []),
        ([12, 12, 12], [["r0", "r1"], ["r1", "r2"]], [0, 1, 2]),
    ],
)
def test_constraints_that_no_claim_can_meet(counts: list[int], constraints: list[list[str]], found: list[int]) -> None:
    assert oversized([(f"r{at}", count) for at, count in enumerate(counts)], constraints) == found


def test_constraints_join_requests_by_others() -> None:
    assert joined_requests(["a", "b", "c", "d"], [["a", "c"], ["c", "d"]]) == [[0, 2, 3]]
    assert joined_requests(["a", "b", "c", "d"], [["a", "b"], ["c", "d"], ["b", "c"]]) == [[0, 1, 2, 3]]
    assert joined_requests(["a", "b"], []) == []
    assert joined_requests(["a", "b"], [[]]) == [[0, 1]]
