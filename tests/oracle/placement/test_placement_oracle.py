# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The scheduler beside the solver on random fleets, and answers with planted errors, each of which has to be found."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Pending,
    Refusal,
    Schedule,
)
from ansible_collections.modelplane.fleet.tests.oracle.placement.comparison import Outcome, by_the_scheduler, compare
from ansible_collections.modelplane.fleet.tests.oracle.placement.generator import generate
from ansible_collections.modelplane.fleet.tests.oracle.placement.rules import Composition
from ansible_collections.modelplane.fleet.tests.oracle.placement.shrinking import shrink
from ansible_collections.modelplane.fleet.tests.oracle.placement.solver import Nodes, fits
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import Fleet, Written, read, text

FLEETS = 300
SEED = 11
"""One whose fleets need little search: one fleet in a hundred takes the scheduler seconds."""


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    total = Outcome()
    for number in range(FLEETS):
        found = compare(read(generate(SEED, number)))
        total.figures.update(found.figures)
        for finding in found.findings:
            total.add(finding.kind, [f"fleet {number}: {finding.text}"])
    return total


@pytest.mark.parametrize(
    "kind",
    [
        "over capacity",
        "against the rules",
        "moves",
        "false rejects",
        "worse counts",
        "false reasons",
        "changes of a second run",
    ],
)
def test_the_scheduler_agrees_with_the_solver(outcome: Outcome, kind: str) -> None:
    assert [finding.text for finding in outcome.findings if finding.kind == kind] == []


@pytest.mark.parametrize(("seed", "number"), [(3, 1545), (3, 5455), (3, 6013), (12, 18)])
def test_what_takes_a_long_search_is_found_by_sums(seed: int, number: int) -> None:
    """No search of these fleets ends at its bound, as sums show what has no room."""
    found = compare(read(generate(seed, number)))
    assert (found.findings, found.figures["reasons that name the bound"]) == ([], 0)


def test_the_fleets_ask_something(outcome: Outcome) -> None:
    """Much is placed and much is refused, and the solver knows every answer."""
    assert outcome.figures["fleets"] == FLEETS
    assert outcome.figures["new"] > FLEETS / 2
    assert outcome.figures["kept"] > FLEETS / 4
    assert outcome.figures["pending"] > FLEETS / 2
    assert outcome.figures["undecided"] == 0


FLEET: Written = yaml.safe_load("""
clusters:
- name: a
  pools: [{name: x, nodes: 1, devices: [{name: gpu, count: 8}]}]
- name: b
  labels: {region: east}
  pools: [{name: x, nodes: 1, devices: [{name: gpu, count: 8}]}]
deployments:
- name: any
  replicas: 1
  engines: [{name: one, members: [{role: Standalone, requests: {gpu: [5, gpu]}}]}]
- name: east
  replicas: 2
  selector: {region: east}
  engines: [{name: one, members: [{role: Standalone, requests: {gpu: [4, gpu]}}]}]
""")
"""East takes both nodes of its size only when any is not there."""


def kinds(fleet: Fleet, change: Callable[[Schedule], Schedule]) -> set[str]:
    """The kinds of findings when an answer is changed, and is the answer of a second run too."""
    return {finding.kind for finding in planted(fleet, change).findings}


def planted(fleet: Fleet, change: Callable[[Schedule], Schedule]) -> Outcome:
    answer = change(by_the_scheduler(fleet))
    again = replace(answer, placements=tuple(replace(one, state="kept") for one in answer.placements))
    answers = iter((answer, again))
    return compare(fleet, lambda _: next(answers))


def test_a_good_answer_has_no_findings() -> None:
    assert kinds(read(FLEET), lambda answer: answer) == set()


def without(answer: Schedule, deployment: str) -> Schedule:
    """The answer without the last replica of a deployment."""
    gone = [one for one in answer.placements if one.deployment == deployment][-1]
    pending = Pending(gone.namespace, deployment, 1, "InsufficientCapacity", "", (Refusal("no room", "", ("a", "b")),))
    return replace(answer, placements=tuple(one for one in answer.placements if one != gone), pending=(pending,))


def test_a_replica_that_is_refused_although_there_is_room_is_found() -> None:
    assert kinds(read(FLEET), lambda answer: without(answer, "east")) == {"false rejects", "worse counts"}


def test_a_place_that_a_later_deployment_needs_is_found() -> None:
    """Nothing more fits beside it, so it is no false reject."""

    def worse(answer: Schedule) -> Schedule:
        answer = without(answer, "east")
        first, second = answer.placements
        assert (first.deployment, first.cluster, second.cluster) == ("any", "a", "b")
        return replace(
            answer, placements=(replace(first, cluster="b"),), pending=(replace(answer.pending[0], count=2),)
        )

    assert kinds(read(FLEET), worse) == {"worse counts"}


def test_what_is_new_of_a_higher_priority_stays_where_it_is() -> None:
    """The later deployment has what is best beside it, although it is not the best of both at once."""
    first = {**FLEET["deployments"][0], "priority": 1}
    fleet = read({**FLEET, "deployments": [first, FLEET["deployments"][1]]})

    def worse(answer: Schedule) -> Schedule:
        one, *_ = answer.placements
        pending = Pending(one.namespace, "east", 2, "InsufficientCapacity", "", ())
        return replace(answer, placements=(replace(one, cluster="b"),), pending=(pending,))

    found = planted(fleet, worse)
    assert not found.findings
    assert found.figures["best of all priorities at once"] == 0


def test_a_pool_with_more_than_it_has_is_found() -> None:
    def double(answer: Schedule) -> Schedule:
        more = replace(answer.placements[0], index=1)
        return replace(answer, placements=(*answer.placements, more))

    assert kinds(read(FLEET), double) == {"over capacity"}


def test_devices_on_two_nodes_are_not_enough() -> None:
    """Of two nodes with eight devices, 5 and 5 leave none with four."""
    devices = [{"name": "gpu", "count": 8}]
    cluster = {"name": "a", "pools": [{"name": "x", "nodes": 2, "devices": devices}]}
    sizes = {"first": (5, 2), "second": (4, 1)}
    deployments = [
        {
            "name": name,
            "replicas": count,
            "engines": [{"name": "one", "members": [{"role": "Standalone", "requests": {"gpu": [size, "gpu"]}}]}],
        }
        for name, (size, count) in sizes.items()
    ]
    fleet = read({"clusters": [cluster], "deployments": deployments})
    assert kinds(fleet, lambda answer: answer) == set()

    def more(answer: Schedule) -> Schedule:
        (member,) = answer.placements[0].engines[0].members
        smaller = replace(member, device_requests=({**member.device_requests[0], "count": 4},))
        engine = replace(answer.placements[0].engines[0], members=(smaller,))
        one = replace(answer.placements[0], deployment="second", engines=(engine,))
        return replace(answer, placements=(*answer.placements, one), pending=())

    assert kinds(fleet, more) == {"over capacity"}


RUNNING: Written = {
    **FLEET,
    "running": [
        {
            "deployment": "any",
            "cluster": "b",
            "index": 0,
            "engines": [
                {
                    "name": "one",
                    "members": [
                        {"role": "Standalone", "pods": {"x": 1}, "claims": {"gpu": [5, "gpu", "gpu.nvidia.com"]}}
                    ],
                }
            ],
        }
    ],
}
"""Any runs where both of east would have been."""


def test_what_runs_stays_although_another_place_would_be_better() -> None:
    assert kinds(read(RUNNING), lambda answer: answer) == set()
    assert [one.count for one in by_the_scheduler(read(RUNNING)).pending] == [2]


def test_a_replica_that_moves_is_found() -> None:
    def moved(answer: Schedule) -> Schedule:
        (one,) = answer.placements
        return replace(answer, placements=(replace(one, cluster="a", state="new"),))

    assert "moves" in kinds(read(RUNNING), moved)


def test_a_replica_on_a_cluster_that_takes_none_is_found() -> None:
    stopped = {**FLEET, "clusters": [{**FLEET["clusters"][0], "ready": False}, FLEET["clusters"][1]]}
    good = by_the_scheduler(read(FLEET))

    def elsewhere(answer: Schedule) -> Schedule:
        return replace(answer, placements=good.placements[:1], pending=())

    assert "against the rules" in kinds(read(stopped), elsewhere)


@pytest.mark.parametrize(
    ("pool", "reason", "is_true"),
    [
        ("x", "3 of 8 gpu free, at most 3 on one node, engine needs 1 pod with 4 gpu", True),
        ("x", "3 of 8 gpu free, at most 2 on one node, engine needs 1 pod with 4 gpu", False),
        ("x", "2 of 8 gpu free, at most 3 on one node, engine needs 1 pod with 4 gpu", False),
        ("x", "device gpu matches, but a node has 8, request gpu needs 9", False),
        ("", "taint busy:NoSchedule is not tolerated", False),
    ],
)
def test_false_reasons_are_found(pool: str, reason: str, is_true: bool) -> None:
    assert kinds(read(RUNNING), stating(pool, reason)) == (set() if is_true else {"false reasons"})


def stating(pool: str, reason: str) -> Callable[[Schedule], Schedule]:
    def stated(answer: Schedule) -> Schedule:
        refusal = Refusal(reason, pool, ("b",), bool(pool))
        return replace(answer, pending=(replace(answer.pending[0], refusals=(refusal,)),))

    return stated


def gang(name: str, size: int, workers: int) -> Written:
    requests = {"gpu": [size, "gpu"]}
    members = [{"role": "Leader", "requests": requests}, {"role": "Worker", "requests": requests, "pods": workers}]
    return {"name": name, "members": members}


def pools(*nodes: int, fabric: str = "rail") -> list[Written]:
    """Clusters with pools of eight GPUs a node on one fabric."""
    devices = [{"name": "gpu", "count": 8}]
    named = [
        {"name": f"p{place}", "nodes": count, "devices": devices, "fabric": fabric} for place, count in enumerate(nodes)
    ]
    return [{"name": "b", "pools": named}]


@pytest.mark.parametrize(
    ("fabric", "engines", "reason", "is_true"),
    [
        (
            "rail",
            [gang("one", 8, 3)],
            "pools p0 and p1 of fabric EFA rail together take 3 of the 4 pods of the engine",
            True,
        ),
        (
            "rail",
            [gang("one", 8, 3)],
            "pools p0 and p1 of fabric EFA rail together take 2 of the 4 pods of the engine",
            False,
        ),
        (
            "rail",
            [gang("one", 8, 4)],
            "pools p0 and p1 of fabric EFA rail together take 4 of the 5 pods of the engine",
            False,
        ),
        ("", [gang("one", 8, 2)], "pools p0 and p1 would take it together if they named the same fabric", True),
        ("", [gang("one", 8, 3)], "pools p0 and p1 would take it together if they named the same fabric", False),
        ("", [gang("one", 8, 1), gang("two", 8, 1)], "each of the engines one, two fits alone, not all together", True),
        (
            "",
            [gang("one", 4, 1), gang("two", 4, 2)],
            "each of the engines one, two fits alone, not all together",
            False,
        ),
        (
            "rail",
            [gang("one", 8, 1), gang("two", 8, 1)],
            "each of the engines one, two fits alone, not all together",
            True,
        ),
    ],
)
def test_false_reasons_of_gangs_are_found(fabric: str, engines: list[Written], reason: str, is_true: bool) -> None:
    deployments = [{"name": "m", "replicas": 1, "engines": engines}]
    fleet = read({"clusters": pools(2, 1, fabric=fabric), "deployments": deployments})
    assert kinds(fleet, stating("", reason)) == (set() if is_true else {"false reasons"})


def test_a_pool_that_has_room_for_an_engine_is_no_reason() -> None:
    engines = [gang("one", 8, 1), gang("two", 8, 1)]
    fleet = read({"clusters": pools(2), "deployments": [{"name": "m", "replicas": 1, "engines": engines}]})
    assert kinds(fleet, stating("p0", "engine two: 16 of 16 gpu free, at most 8 on one node")) == {"false reasons"}


def test_wrong_counts_in_a_message_are_found() -> None:
    def stated(answer: Schedule) -> Schedule:
        return replace(answer, pending=(replace(answer.pending[0], message="1 of 2 replicas scheduled"),))

    assert kinds(read(RUNNING), stated) == {"false reasons"}


def test_a_pool_that_is_called_overcommitted_and_is_not_is_found() -> None:
    def stated(answer: Schedule) -> Schedule:
        return replace(answer, overcommitted=(Refusal("its replicas do not fit", "x", ("b",)),))

    assert kinds(read(RUNNING), stated) == {"false reasons"}


def test_a_second_run_that_differs_is_found() -> None:
    answers = iter([by_the_scheduler(read(FLEET)), without(by_the_scheduler(read(FLEET)), "east")])
    assert {one.kind for one in compare(read(FLEET), lambda _: next(answers)).findings} == {"changes of a second run"}


def test_a_fleet_with_a_finding_is_cut_down() -> None:
    def refuses_all(fleet: Fleet) -> Schedule:
        answer = by_the_scheduler(fleet)
        return replace(
            answer,
            placements=(),
            pending=tuple(
                Pending(one.namespace, one.name, one.replicas, "InsufficientCapacity", "") for one in fleet.deployments
            ),
        )

    assert yaml.safe_load(
        text(shrink(FLEET, "false rejects", partial(compare, scheduler=refuses_all)))
    ) == yaml.safe_load("""
    clusters:
    - name: b
      pools: [{name: x, nodes: 1, devices: [{name: gpu, count: 1}]}]
    deployments:
    - name: any
      replicas: 1
      engines: [{name: one, members: [{role: Standalone, requests: {gpu: [1, gpu]}}]}]
    """)


def by_hand(nodes: Nodes, copies: list[Composition]) -> bool:
    """Return whether all copies fit: every pod of each, on every node that has none of its copy, is tried."""
    pods = [(number, charges) for number, copy in enumerate(copies) for charges, count in copy for _ in range(count)]
    failed: set[Any] = set()

    def place(position: int, free: tuple[tuple[tuple[int, ...], frozenset[int]], ...]) -> bool:
        if position == len(pods):
            return True
        state = (position, tuple(sorted((have, tuple(sorted(there))) for have, there in free)))
        if state in failed:
            return False
        number, charges = pods[position]
        for (node, (have, there)), vector in itertools.product(enumerate(free), charges):
            left = tuple(count - need for count, need in zip(have, vector, strict=True))
            if number not in there and min(left) >= 0:
                after = (*free[:node], (left, there | {number}), *free[node + 1 :])
                if place(position + 1, after):
                    return True
        failed.add(state)
        return False

    return place(0, tuple((nodes.devices, frozenset()) for _ in range(nodes.count)))


def test_the_solver_counts_copies_as_if_each_was_named() -> None:
    chance = random.Random(7)
    answers: Counter[bool] = Counter()
    for _ in range(300):
        nodes = Nodes(chance.randint(2, 3), (chance.randint(2, 5), chance.randint(0, 2)))
        vectors = [(1, 0), (2, 0), (0, 1), (1, 1), (3, 0)]
        kinds = [tuple(sorted(chance.sample(vectors, chance.choice((1, 1, 2))))) for _ in range(2)]
        shapes: list[Composition] = [
            tuple(
                (charges, chance.randint(1, 2)) for charges in dict.fromkeys(chance.sample(kinds, chance.randint(1, 2)))
            )
            for _ in range(2)
        ]
        copies = [shape for shape in dict.fromkeys(shapes) for _ in range(chance.randint(1, 3))]
        expected = by_hand(nodes, copies)
        answers[expected] += 1
        assert fits(nodes, Counter(copies), "Devices") is expected, (nodes, copies)
    assert min(answers.values()) > 30


def test_figures_are_those_of_the_answer() -> None:
    found = compare(read(FLEET))
    assert [found.figures[name] for name in ("replicas", "new", "pending", "classes", "best")] == [3, 3, 0, 1, 3]
