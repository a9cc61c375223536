# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of new replicas in the place of running ones of lower priority."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Engine,
    Schedule,
    Spread,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.scheduling import fleets


def names(decided: Schedule) -> list[tuple[str, str]]:
    return [(placement.deployment, placement.cluster) for placement in decided.placements]


def preempted(decided: Schedule) -> list[tuple[str, str, str]]:
    entries = [entry for entry in decided.dropped if entry.preempted_by]
    return [(entry.replica.deployment, entry.replica.cluster, entry.reason) for entry in entries]


def one_gpu(*names: str) -> list[Cluster]:
    return [fleets.cluster(name, fleets.pool("gpu", 1)) for name in names]


def test_nothing_is_preempted_unless_the_deployment_asks_for_it() -> None:
    fleet = one_gpu("a")
    running = fleets.replicas_of(schedule([fleets.deployment("low", 1)], fleet, []))
    decided = schedule([fleets.deployment("low", 1), fleets.deployment("high", 1, priority=10)], fleet, running)
    assert names(decided) == [("low", "a")]


def test_a_new_replica_takes_the_place_of_one_of_lower_priority() -> None:
    fleet = one_gpu("a")
    low = fleets.deployment("low", 1)
    running = fleets.replicas_of(schedule([low], fleet, []))
    high = fleets.deployment("high", 1, priority=10, preempts=True)
    decided = schedule([low, high], fleet, running)
    assert names(decided) == [("high", "a")]
    assert preempted(decided) == [("low", "a", "preempted by ml-team/high, which has a higher priority")]
    assert [(pending.deployment, pending.count) for pending in decided.pending] == [("low", 1)]
    again = schedule([low, high], fleet, fleets.replicas_of(decided))
    assert names(again) == [("high", "a")]
    assert not again.dropped


def test_a_replica_stays_if_the_preferred_one_that_it_leaves_for_is_preempted() -> None:
    """Both replicas of low run, because the one on b stays until the one on a serves."""
    fleet = one_gpu("a", "b")
    low = fleets.deployment("low", 2, preferences=({"modelplane.ai/cluster": "a"},), returns=True)
    running = fleets.replicas_of(schedule([low], fleet, []))
    high = fleets.deployment("high", 1, priority=10, preempts=True, cluster_selector={"modelplane.ai/cluster": "a"})
    decided = schedule([replace(low, replicas=1), high], fleet, running)
    assert names(decided) == [("high", "a"), ("low", "b")]
    assert [placement.state for placement in decided.placements] == ["new", "kept"]


def test_a_preempted_replica_stays_if_its_deployment_preempts_on_the_same_cluster() -> None:
    """High first takes a from low, and b from middle. Low then stays on b, where middle preempts it."""
    a, b = (fleets.cluster(name, fleets.pool("gpu", nodes)) for name, nodes in (("a", 1), ("b", 3)))
    low = fleets.deployment("low", 2, preferences=({"modelplane.ai/cluster": "a"},), returns=True)
    middle = fleets.deployment("middle", 1, fleets.gang(1), priority=5, preempts=True)
    running = fleets.replicas_of(schedule([low, middle], [a, b], []))
    high = fleets.deployment("high", 2, priority=10, preempts=True)
    decided = schedule([replace(low, replicas=1), middle, high], [a, b], running)
    assert names(decided) == [("high", "a"), ("high", "b"), ("middle", "b")]
    assert [placement.state for placement in decided.placements] == ["new", "new", "kept"]


def test_equal_priority_is_never_preempted() -> None:
    fleet = one_gpu("a")
    low = fleets.deployment("low", 1, priority=10)
    running = fleets.replicas_of(schedule([low], fleet, []))
    decided = schedule([low, fleets.deployment("high", 1, priority=10, preempts=True)], fleet, running)
    assert names(decided) == [("low", "a")]


def test_a_free_place_comes_first_and_the_preempted_replica_finds_another() -> None:
    fleet = [*one_gpu("a"), fleets.cluster("b", fleets.pool("gpu", 1), labels={"slow": "yes"})]
    low = fleets.deployment("low", 1)
    running = fleets.replicas_of(schedule([low], fleet, []))
    anywhere = fleets.deployment("high", 1, priority=10, preempts=True)
    decided = schedule([low, anywhere], fleet, running)
    assert names(decided) == [("high", "b"), ("low", "a")]
    fleet[0] = fleets.cluster("a", fleets.pool("gpu", 1), labels={"slow": "no"})
    picky = fleets.deployment("high", 1, priority=10, preempts=True, cluster_selector={"slow": "no"})
    decided = schedule([low, picky], fleet, running)
    assert names(decided) == [("high", "a"), ("low", "b")]
    assert [entry.preempted_by for entry in decided.dropped] == ["ml-team/high"]


def test_what_is_preempted_goes_also_when_a_later_run_finds_it_still_there() -> None:
    """Neither the other one, which serves soon, goes in its stead, nor is it counted beside the one that has its
    devices."""
    fleet = [fleets.cluster("a", fleets.pool("gpu", 1), labels={"slow": "no"}), *one_gpu("b")]
    low = fleets.deployment("low", 1)
    running = fleets.replicas_of(schedule([low], fleet, []))
    high = fleets.deployment("high", 1, priority=10, preempts=True, cluster_selector={"slow": "no"})
    first = schedule([low, high], fleet, running)
    still = [replace(entry.replica, preempted_by=entry.preempted_by) for entry in first.dropped]
    second = schedule([low, high], fleet, [*fleets.replicas_of(first), *still])
    assert names(second) == names(first) == [("high", "a"), ("low", "b")]
    assert preempted(second) == preempted(first)
    assert not second.overcommitted


def test_victims_are_as_few_and_as_unimportant_as_can_be() -> None:
    fleet = [fleets.cluster(name, fleets.pool("gpu", 1, fleets.gpu(count=4))) for name in ("a", "b")]
    two = fleets.standalone(fleets.ask(2))
    lows = [
        fleets.deployment("small", 2, fleets.standalone(), priority=1, cluster_selector={}),
        fleets.deployment("other", 1, two, priority=2),
    ]
    running = fleets.replicas_of(schedule(lows, fleet, []))
    high = fleets.deployment("high", 1, fleets.standalone(fleets.ask(4)), priority=9, preempts=True)
    decided = schedule([*lows, high], fleet, running)
    assert [entry[0] for entry in preempted(decided)] == ["small"]
    assert ("high", "b") in names(decided)


def test_among_equal_victims_those_on_a_preferred_cluster_are_preempted() -> None:
    fleet = one_gpu("a", "b", "c")
    low = fleets.deployment("low", 3)
    running = fleets.replicas_of(schedule([low], fleet, []))
    high = fleets.deployment(
        "high", 1, priority=10, preempts=True, preferences=({"modelplane.ai/cluster": "b"},), returns=True
    )
    decided = schedule([low, high], fleet, running)
    assert [cluster for __, cluster, __ in preempted(decided)] == ["b"]
    assert ("high", "b") in names(decided)


def test_replicas_on_a_silent_cluster_are_no_victims() -> None:
    fleet = [fleets.cluster("a", fleets.pool("gpu", 1), silent=True)]
    low = fleets.deployment("low", 1)
    running = fleets.replicas_of(schedule([low], fleet, []))
    decided = schedule([low, fleets.deployment("high", 1, priority=1, preempts=True)], fleet, running)
    assert names(decided) == [("low", "a")]


def gpus(count: int) -> Engine:
    return fleets.standalone(fleets.ask(count))


def one_node(count: int) -> list[Cluster]:
    return [fleets.cluster("a", fleets.pool("gpu", 1, fleets.gpu(count=count)))]


def decide(lows: list[Deployment], others: list[Deployment], fleet: list[Cluster]) -> Schedule:
    """Return the schedule of all deployments when replicas of the first ones are running. A second run has to agree."""
    running = fleets.replicas_of(schedule(lows, fleet, []))
    decided = schedule([*lows, *others], fleet, running)
    again = schedule([*lows, *others], fleet, fleets.replicas_of(decided))
    assert fleets.where(again) == fleets.where(decided)
    assert not again.dropped
    return decided


def test_devices_that_a_victim_leaves_free_take_more_replicas_without_a_victim() -> None:
    lows = [fleets.deployment("six", 1, gpus(6)), fleets.deployment("two", 1, gpus(2))]
    high = fleets.deployment("high", 2, gpus(3), priority=9, preempts=True)
    decided = decide(lows, [high], one_node(8))
    assert names(decided) == [("high", "a"), ("high", "a"), ("two", "a")]
    assert [entry[0] for entry in preempted(decided)] == ["six"]


def test_a_cluster_that_refused_a_replica_is_asked_again_after_a_preemption() -> None:
    high = fleets.deployment("high", 2, fleets.standalone(fleets.ask(1), copies=2), priority=5, preempts=True)
    decided = decide([fleets.deployment("low", 1, gpus(3))], [high], one_node(4))
    assert names(decided) == [("high", "a"), ("high", "a")]


def test_a_victim_gets_no_place_that_the_next_run_takes_back() -> None:
    """The first preemption evens out the regions, so that the spread allows one more replica where devices are free."""
    node = fleets.gpu(count=7)
    fleet = [
        fleets.cluster("c1", fleets.pool("gpu", 2, node), labels={"region": "us"}),
        fleets.cluster("c2", fleets.pool("gpu", 4, node), labels={"region": "eu"}),
    ]
    low = fleets.deployment("d0", 1, fleets.gang(1, fleets.ask(7)), priority=-5)
    gang = fleets.gang(1, fleets.ask(5))
    high = fleets.deployment("high", 3, gang, priority=9, preempts=True, spread=(Spread("region"),))
    decided = decide([low], [high], fleet)
    assert names(decided) == [("high", "c1"), ("high", "c2"), ("high", "c2")]
    assert [pending.deployment for pending in decided.pending] == ["d0"]


def test_a_deployment_of_higher_priority_gets_devices_that_a_victim_leaves_free() -> None:
    """It asks for no preemption itself, and a preemption lets it preempt nothing in the next run either."""
    top = fleets.deployment("top", 1, gpus(2), priority=10)
    high = fleets.deployment("high", 1, gpus(2), priority=9, preempts=True)
    small = fleets.deployment("small", 1, gpus(2), created="2025")
    decided = decide([fleets.deployment("low", 1, gpus(4))], [top, high, small], one_node(4))
    assert names(decided) == [("high", "a"), ("top", "a")]


def test_surge_replicas_preempt_nothing() -> None:
    high = fleets.deployment("high", 2, gpus(1), priority=9, preempts=True, surge=1)
    decided = decide([fleets.deployment("low", 2, gpus(1))], [high], one_node(2))
    assert names(decided) == [("high", "a"), ("low", "a")]


def test_a_replica_stays_if_a_later_preemption_leaves_its_devices_free() -> None:
    """The first preemption takes the only node that both fit on; the larger one then leaves three devices."""
    lows = [
        fleets.deployment("small", 1, gpus(2)),
        fleets.deployment("large", 1, gpus(6), priority=1),
    ]
    first = fleets.deployment("first", 1, gpus(1), priority=9, created="2025", preempts=True)
    second = fleets.deployment("second", 1, gpus(4), priority=9, created="2026", preempts=True)
    decided = decide(lows, [first, second], one_node(8))
    assert names(decided) == [("first", "a"), ("second", "a"), ("small", "a")]
    assert [entry[0] for entry in preempted(decided)] == ["large"]
