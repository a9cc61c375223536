# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Planned nodes: a scheduler that takes nodes by chance, in any order, binds every pod."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import PlannedNodes
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.nodes import plan_pool
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.search_budget import Work
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.stranding import Pods, may_strand
from hypothesis import given
from hypothesis import strategies as st


@dataclass(frozen=True)
class Pod:
    pods: Pods
    copy: int
    worker: bool = False

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.pods.planned.numbers if self.pods.planned else ()

    @property
    def sharing(self) -> str:
        return self.pods.planned.sharing if self.pods.planned else ""

    @property
    def follows(self) -> bool:
        """True for a worker that waits for its leader."""
        return self.worker and self.sharing in ("Any", "Apart")


@dataclass
class Node:
    free: tuple[int, ...]
    pods: list[Pod] = field(default_factory=list)

    def takes(self, pod: Pod, nodes: Sequence[Node]) -> bool:
        """Check that what is composed for a pod and for those on this node lets it be here."""
        need = pod.pods.vectors[0]
        if any(have < asked for have, asked in zip(self.free, need, strict=True)):
            return False
        if any((other.pods.engine, other.copy) == (pod.pods.engine, pod.copy) for other in self.pods):
            return False
        if not all(_go_together(pod, other) for other in self.pods):
            return False
        if pod.follows and not any(
            other.pods.leads and (other.pods.engine, other.copy) == (pod.pods.engine, pod.copy)
            for node in nodes
            for other in node.pods
        ):
            return False
        if pod.sharing == "Together":
            started = [node for node in nodes if any(other.numbers == pod.numbers for other in node.pods)]
            return not started or any(node is self for node in started)
        if len(pod.numbers) > 1:
            return any(other.numbers == pod.numbers[:-1] for other in self.pods)
        return True


def _go_together(pod: Pod, other: Pod) -> bool:
    if "Apart" in (pod.sharing, other.sharing) and pod.pods.engine == other.pods.engine:
        return False
    if {"Any", "Apart"} & {pod.sharing, other.sharing}:
        return True
    if bool(pod.numbers) != bool(other.numbers):
        return False
    if any(mine != its for mine, its in zip(pod.numbers, other.numbers, strict=False)):
        return False
    return not (pod.sharing == "OnePerNode" and other.numbers == pod.numbers)


def stranded(node: tuple[int, ...], count: int, load: Sequence[Pods], chance: random.Random) -> list[Pod]:
    """The pods that find no node when each takes a node of chance, in an order of chance."""
    nodes = [Node(node) for _ in range(count)]
    led = {pods.engine for pods in load if pods.leads}
    waiting = [
        Pod(pods, copy, worker=not pods.leads and pods.engine in led)
        for pods in load
        for copy in range(pods.copies)
        for _ in range(pods.pods)
    ]
    chance.shuffle(waiting)
    while True:
        placed = False
        for pod in list(waiting):
            possible = [one for one in nodes if one.takes(pod, nodes)]
            if pod.sharing == "Alone":
                # What is preferred comes first.
                started = [one for one in possible if any(other.numbers == pod.numbers for other in one.pods)]
                possible = started or possible
            if possible:
                chosen = chance.choice(possible)
                chosen.free = tuple(have - need for have, need in zip(chosen.free, pod.pods.vectors[0], strict=True))
                chosen.pods.append(pod)
                waiting.remove(pod)
                placed = True
        if not placed:
            return waiting


def singles(*sizes: int) -> list[Pods]:
    return [Pods(number, 1, 1, ((size,),)) for number, size in enumerate(sizes)]


def gang(copies: int, leader: tuple[int, ...], worker: tuple[int, ...], workers: int = 2) -> list[Pods]:
    engine = object()
    return [Pods(engine, copies, 1, (leader,), leads=True), Pods(engine, copies, workers, (worker,))]


@pytest.mark.parametrize(
    ("nodes", "load", "expected"),
    [
        (2, singles(1, 1, 8), True),
        (3, singles(1, 1, 8), False),
        (2, singles(2, 2, 2, 2, 2, 2, 2, 2), False),
        (2, singles(3, 3, 3, 3), False),
        (2, singles(5, 5, 3, 3), True),
        (2, singles(4, 4, 3, 5), True),
        (4, singles(8, 8, 8, 8), False),
        (2, [Pods("gang", 1, 2, ((8,),))], False),
        (2, [Pods("gang", 1, 2, ((5,),)), *singles(3, 3)], True),
        (2, [Pods("gang", 1, 2, ((5,),)), *singles(2, 1, 2, 1)], True),
    ],
)
def test_whether_pods_may_be_stranded(nodes: int, load: list[Pods], expected: bool) -> None:
    assert may_strand((8,), nodes, load) is expected
    if not expected:
        assert not any(stranded((8,), nodes, load, random.Random(seed)) for seed in range(50))
    else:
        assert any(stranded((8,), nodes, load, random.Random(seed)) for seed in range(200))


SIZES = st.sampled_from([1, 1, 2, 2, 3, 4, 5, 8])
VECTORS = st.one_of(
    st.tuples(SIZES, st.just(0)), st.tuples(SIZES, st.integers(0, 2)), st.tuples(st.just(0), st.integers(1, 4))
)
ENGINES = st.tuples(
    VECTORS, st.sampled_from([1, 1, 1, 2, 3]), st.sampled_from([1, 1, 1, 2, 3]), st.one_of(st.none(), VECTORS)
)


def _load(engines: Sequence[tuple[tuple[int, int], int, int, tuple[int, int] | None]]) -> list[Pods]:
    """Pods of engines: so many copies of so many pods, or of a leader with so many workers."""
    load = []
    for number, (vector, copies, pods, leader) in enumerate(engines):
        if leader:
            load.append(Pods(number, copies, 1, (leader,), leads=True))
        load.append(Pods(number, copies, pods, (vector,)))
    return load


LOADS = st.lists(ENGINES, min_size=1, max_size=7).map(_load)


@given(LOADS, st.integers(1, 6), st.integers(0, 999))
def test_what_cannot_strand_binds_in_any_order(load: list[Pods], nodes: int, seed: int) -> None:
    if not may_strand((8, 4), nodes, load):
        assert not stranded((8, 4), nodes, load, random.Random(seed))


@given(LOADS, st.integers(1, 6), st.integers(0, 999))
def test_what_is_planned_binds_in_any_order(load: list[Pods], nodes: int, seed: int) -> None:
    planned = plan_pool((8, 4), nodes, load, (), Work(20_000))
    if planned is not None and all(pods.pods + pods.leads <= nodes for pods in load):
        numbered = [replace(pods, planned=one) for pods, one in zip(load, planned, strict=True)]
        assert not stranded((8, 4), nodes, numbered, random.Random(seed))


@pytest.mark.parametrize(
    ("node", "nodes", "load", "expected"),
    [
        # Each copy has a pod on each node, whatever the order.
        ((8, 0), 3, [gang(2, (2, 0), (2, 0)), gang(2, (2, 0), (2, 0))], False),
        ((7, 0), 3, [gang(2, (2, 0), (2, 0)), gang(2, (2, 0), (2, 0))], True),
        # Three pods of two on each node, whichever kind each takes.
        ((2, 4), 2, [[Pods("any", 6, 1, ((2, 0), (0, 2)))]], False),
        ((2, 4), 2, [[Pods("any", 6, 1, ((2, 0), (0, 2)), mixes=True)]], False),
        # One of each kind leaves no room for two of one kind.
        ((2, 2), 1, [[Pods("any", 1, 1, ((2, 0), (0, 2)), mixes=True), Pods("one", 1, 1, ((2, 0),))]], True),
        # Three workers of four are planned for this pool; more may come.
        ((8, 0), 4, [[Pods("wide", 1, 3, ((8, 0),), at_most=3)], singles(8)], False),
        ((8, 0), 4, [[Pods("wide", 1, 3, ((8, 0),), at_most=4)], singles(8)], True),
    ],
)
def test_more_on_whether_pods_may_be_stranded(
    node: tuple[int, ...], nodes: int, load: list[list[Pods]], expected: bool
) -> None:
    assert may_strand(node, nodes, [pods for part in load for pods in part]) is expected


def plan(nodes: int, load: Sequence[Pods], taken: Sequence[int] = ()) -> list[PlannedNodes | None] | None:
    return plan_pool((8,), nodes, load, taken, Work())


def test_small_pods_share_a_node_and_leave_one_for_a_large_one() -> None:
    assert plan(2, singles(1, 1, 8)) == [PlannedNodes((1,), "Together"), PlannedNodes((1,), "Together"), None]


def test_pods_go_beside_pods_of_a_gang() -> None:
    gang = Pods("gang", 1, 2, ((5,),))
    assert plan(2, [gang, *singles(3, 2)]) == [
        PlannedNodes((1,), "OnePerNode"),
        PlannedNodes((1, 2), "OnePerNode"),
        PlannedNodes((1, 3), "OnePerNode"),
    ]


def test_what_runs_keeps_its_numbers_and_new_pods_join() -> None:
    running = replace(singles(5)[0], planned=PlannedNodes((7,), "Together"), is_open=False)
    assert plan(2, [running, *[replace(pods, engine="new") for pods in singles(3)], Pods("big", 1, 1, ((8,),))]) == [
        PlannedNodes((7,), "Together"),
        PlannedNodes((7,), "Together"),
        None,
    ]


def test_a_number_that_leaves_is_not_given_again() -> None:
    assert plan(2, singles(1, 8), taken=[1]) == [PlannedNodes((2,), "Together"), None]


def test_pods_that_run_without_a_number_have_nodes_of_their_own() -> None:
    running = replace(singles(2)[0], is_open=False)
    assert plan(1, [running, *singles(3)]) is None
    assert plan(2, [running, *singles(3)]) == [None, PlannedNodes((1,), "Together")]


def test_pods_that_do_not_compete_go_anywhere() -> None:
    other = Pods("other", 3, 1, ((0, 2),))
    small = [Pods(number, 1, 1, ((size, 0),)) for number, size in enumerate((1, 1, 8))]
    planned = plan_pool((8, 4), 2, [*small, other], (), Work())
    assert planned is not None
    assert planned[3] == PlannedNodes((), "Any")


def test_pods_go_anywhere_where_what_they_have_at_most_is_left_on_each_node() -> None:
    """Each of two copies puts two on each node, so that four are left on each."""
    assert plan(3, [*gang(2, (2,), (2,)), *singles(4, 4, 3)]) == [
        PlannedNodes((), "Any"),
        PlannedNodes((), "Any"),
        PlannedNodes((1,), "Together"),
        PlannedNodes((2,), "Together"),
        PlannedNodes((3,), "Together"),
    ]


def test_copies_on_nodes_of_their_own_are_reserved_once() -> None:
    """Numbers would form paths of five."""
    sizes = {"a": (3, 3), "b": (3, 1), "c": (3, 1), "d": (2, 2)}
    copies = [Pods(name, count, 1, ((size,),)) for name, (count, size) in sizes.items()]
    planned = plan(3, [*copies, *singles(3, 1)])
    assert planned is not None
    assert PlannedNodes((), "Apart") in planned


def test_two_copies_on_two_nodes_go_crosswise() -> None:
    leader, worker = gang(2, (5,), (3,), workers=1)
    assert plan(2, [leader, worker]) == [PlannedNodes((1,), "OnePerNode"), PlannedNodes((1, 2), "OnePerNode")]


def test_running_pods_without_a_number_may_be_on_one_node() -> None:
    running = [replace(pods, is_open=False) for pods in singles(3, 2)]
    assert plan(2, [*running, *gang(1, (4,), (4,), workers=1)]) is None
