# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of room that new replicas of one priority make for each other."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Options, Schedule
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.scheduling import fleets

EAST = {"region": "east"}
WHERE = [fleets.cluster("a", fleets.pool("gpu", 1), labels=EAST), fleets.cluster("b", fleets.pool("gpu", 1))]


def places(decided: Schedule) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for placement in decided.placements:
        found.setdefault(placement.deployment, []).append(placement.cluster)
    return found


def test_an_earlier_deployment_goes_elsewhere() -> None:
    desired = [fleets.deployment("a", 1), fleets.deployment("b", 1, cluster_selector=EAST)]
    assert places(schedule(desired, WHERE, [])) == {"a": ["b"], "b": ["a"]}
    greedy = schedule(desired, WHERE, [], Options(search="Greedy"))
    assert places(greedy) == {"a": ["a"]}


def test_what_runs_and_what_has_a_higher_priority_does_not_move() -> None:
    first, second = fleets.deployment("a", 1), fleets.deployment("b", 1, cluster_selector=EAST)
    running = fleets.replicas_of(schedule([first], WHERE, []))
    assert places(schedule([first, second], WHERE, running)) == {"a": ["a"]}
    higher = fleets.deployment("a", 1, priority=1)
    assert places(schedule([higher, second], WHERE, [])) == {"a": ["a"]}


def test_an_earlier_deployment_never_gets_fewer_replicas() -> None:
    desired = [fleets.deployment("a", 2), fleets.deployment("b", 1, cluster_selector=EAST)]
    assert places(schedule(desired, WHERE, [])) == {"a": ["a", "b"]}


def test_replicas_give_way_in_a_chain() -> None:
    """`a` makes room for `c` only where `b` is, which has to go to the last cluster."""
    labels = [{"c": "yes"}, {}, {}, {}]
    fleet = [
        fleets.cluster(f"c{number}", fleets.pool("gpu", 1), labels={**labels[number], "to": f"{number < 3}"})
        for number in range(4)
    ]
    desired = [
        fleets.deployment("a", 2, cluster_selector={"to": "True"}),
        fleets.deployment("b", 1),
        fleets.deployment("c", 1, cluster_selector={"c": "yes"}),
    ]
    assert places(schedule(desired, fleet, [])) == {"a": ["c1", "c2"], "b": ["c3"], "c": ["c0"]}


def test_replicas_on_one_cluster_share_its_pools_otherwise() -> None:
    """Alone `a` takes the first pool, the only one with enough memory for `b`."""
    fleet = [
        fleets.cluster("x", fleets.pool("big", 1, fleets.gpu("80Gi")), fleets.pool("small", 1, fleets.gpu("24Gi")))
    ]
    small = fleets.deployment("a", 1, fleets.standalone(fleets.ask(1, fleets.at_least("20Gi"))))
    big = fleets.deployment("b", 1, fleets.standalone(fleets.ask(1, fleets.at_least("80Gi"))))
    decided = schedule([small, big], fleet, [])
    assert [fleets.pools_of(placement.engines) for placement in decided.placements] == [[["small"]], [["big"]]]
    running = fleets.replicas_of(schedule([small], fleet, []))
    assert places(schedule([small, big], fleet, running)) == {"a": ["x"]}


@pytest.mark.parametrize("budget", [0, 1_000_000])
def test_a_refusal_at_the_bound_says_so_and_what_to_do(budget: int) -> None:
    desired = [fleets.deployment("a", 1), fleets.deployment("b", 1, cluster_selector=EAST)]
    decided = schedule(desired, WHERE, [], Options(search_budget=budget))
    assert bool(decided.pending) == (budget == 0)
    if budget == 0:
        reasons = {refusal.reason for refusal in decided.pending[0].refusals if refusal.clusters == ("a",)}
        assert any("raise fleet_search_budget" in reason for reason in reasons)


def test_a_replica_that_gives_way_goes_to_the_next_preferred_cluster() -> None:
    """One replica leaves a, the best cluster. The order of names would put it on b."""
    tiers = {"a": "best", "b": "", "c": "good"}
    fleet = [
        fleets.cluster(name, fleets.pool("gpu", 1, fleets.gpu(count=2)), labels={"tier": tier})
        for name, tier in tiers.items()
    ]
    first = fleets.deployment("a", 2, preferences=({"tier": "best"}, {"tier": "good"}))
    second = fleets.deployment("b", 1, cluster_selector={"tier": "best"})
    assert places(schedule([first, second], fleet, [])) == {"a": ["a", "c"], "b": ["a"]}


def test_replicas_go_to_a_preferred_cluster_that_another_one_left() -> None:
    """The gang first takes a GPU of each node of a. It moves for the last pair, and a has room for two."""
    nodes = {"a": (2, 2), "b": (1, 2), "c": (2, 3)}
    fleet = [
        fleets.cluster(name, fleets.pool("gpu", count, fleets.gpu(count=gpus)), labels={"name": name})
        for name, (count, gpus) in nodes.items()
    ]
    gang = fleets.deployment("a", 1, fleets.gang(1))
    pairs = fleets.deployment("b", 4, fleets.standalone(fleets.ask(2)), preferences=({"name": "a"},))
    decided = places(schedule([gang, pairs], fleet, []))
    assert decided["a"] == ["c"]
    assert decided["b"].count("a") == 2
