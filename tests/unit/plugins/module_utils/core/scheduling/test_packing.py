# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of packing pods onto nodes: what is found, and what is proven to be impossible."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.capacity import Demand, PodSet
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.packing import Load, pack
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.search_budget import Work
from hypothesis import given
from hypothesis import strategies as st

Vector = tuple[int, ...]


def load_of(*groups: tuple[int, Sequence[Sequence[Vector]]]) -> Load:
    """Return a load of (copies, pods of a copy as their alternatives)."""
    demands = [Demand(copies, tuple(PodSet(1, tuple(pod)) for pod in pods)) for copies, pods in groups]
    counts: dict[object, int] = {}
    for demand in demands:
        counts[demand.group] = counts.get(demand.group, 0) + demand.copies
    return tuple(sorted(counts.items()))  # type: ignore[arg-type]


def singles(*needs: int) -> Load:
    return load_of(*((1, [[(need,)]]) for need in needs))


def possible(node: Vector, nodes: int, groups: list[list[list[Vector]]]) -> bool:
    """Return whether any assignment of pods to nodes and of alternatives to pods works: all are tried."""
    pods = [(number, pod) for number, group in enumerate(groups) for pod in group]
    for places in itertools.product(range(nodes), repeat=len(pods)):
        taken = [(number, place) for (number, __), place in zip(pods, places, strict=True)]
        if len(set(taken)) < len(taken):
            continue
        for vectors in itertools.product(*(pod for __, pod in pods)):
            free = [list(node) for __ in range(nodes)]
            for place, vector in zip(places, vectors, strict=True):
                for at, need in enumerate(vector):
                    free[place][at] -= need
            if all(left >= 0 for one in free for left in one):
                return True
    return not pods


VECTORS = st.tuples(st.integers(0, 4), st.integers(0, 2)).filter(any)
PODS = st.lists(VECTORS, min_size=1, max_size=2, unique=True)
GROUPS = st.lists(st.lists(PODS, min_size=1, max_size=3), min_size=1, max_size=4)


@given(node=st.tuples(st.integers(1, 4), st.integers(0, 2)), nodes=st.integers(0, 3), groups=GROUPS)
def test_a_packing_is_found_whenever_there_is_one(node: Vector, nodes: int, groups: list[list[list[Vector]]]) -> None:
    groups = [group for group in groups if len(group) <= 3][:3]
    if sum(map(len, groups)) > 6:
        groups = groups[:2]
    packed = pack(node, nodes, load_of(*((1, group) for group in groups)), Work())
    assert packed.proven
    assert (packed.free is not None) == possible(node, nodes, groups)


@pytest.mark.parametrize(
    ("needs", "nodes"),
    [
        ((3,) * 5, 2),
        ((5, 5, 5), 2),
        ((6, 6, 3), 2),
        ((3,) * 2001, 1000),
        ((5,) * 1001, 1000),
    ],
)
def test_bounds_prove_what_totals_do_not(needs: tuple[int, ...], nodes: int) -> None:
    """All of these leave devices free, and take no step of search."""
    assert sum(needs) <= 8 * nodes
    packed = pack((8,), nodes, singles(*needs), Work(0))
    assert packed.free is None
    assert packed.proven


def test_other_choices_are_tried_when_the_first_fit_fails() -> None:
    """Largest first, 4+3 go on one node, and 4+2+2 and 3+3+2 are left."""
    needs = singles(4, 3, 3, 2, 2, 2)
    assert pack((8,), 2, needs, None).free is None
    assert pack((8,), 2, needs, Work()).free is not None


@pytest.mark.parametrize(("needs", "fits"), [((4, 3, 3, 2, 2, 2), True), ((7, 6, 6, 6, 5), False)])
def test_a_search_that_ends_at_its_bound_proves_nothing(needs: tuple[int, ...], fits: bool) -> None:
    node = (8,) if fits else (16,)
    assert pack(node, 2, singles(*needs), Work(0)) == pack(node, 2, singles(*needs), Work(3))
    assert not pack(node, 2, singles(*needs), Work(3)).proven
    whole = pack(node, 2, singles(*needs), Work())
    assert whole.proven
    assert (whole.free is not None) == fits


def test_pods_of_a_copy_are_on_nodes_of_their_own() -> None:
    assert pack((8,), 2, load_of((1, [[(1,)], [(1,)], [(1,)]])), Work()).free is None
    free = pack((8,), 2, load_of((8, [[(1,)], [(1,)]])), Work()).free
    assert {node: nodes for node, nodes in (free or {}).items() if nodes} == {(0,): 2}
    assert pack((8,), 2, load_of((9, [[(1,)], [(1,)]])), Work()).free is None
