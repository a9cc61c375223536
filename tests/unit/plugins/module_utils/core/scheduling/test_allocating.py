# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Searches for devices of which kube-scheduler gives up the pod."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling import allocating
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.allocating import slow_searches
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.binding import bind
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Options,
    PlacedMember,
    PlannedNodes,
    Replica,
    Schedule,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.stranding import Pods
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.scheduling.fleets import (
    ask,
    cluster,
    deployment,
    gpu,
    pool,
    replicas_of,
    standalone,
)

ALONE = PlannedNodes((1,), "OnePerNode")
TOGETHER = PlannedNodes((1,), "Together")


def pods(name: str, *requests: tuple[int, int], kinds: int = 1, copies: int = 1) -> Pods:
    """Return pods with requests for (count, kind)."""
    vector = tuple(sum(count for count, of in requests if of == kind) for kind in range(kinds))
    desired = tuple((count, frozenset((kind,))) for count, kind in requests)
    return Pods(name, copies, 1, (vector,), requests=desired)


def _tried(free: Sequence[int], requests: Sequence[int]) -> int:
    """Return the assignments that an exhaustive search of a device for each of these kinds tries, in all orders."""
    if not requests:
        raise AssertionError("the search has a result")
    return sum(
        1 + _tried([*free[:at], *free[at + 1 :]], requests[1:]) for at, kind in enumerate(free) if kind == requests[0]
    )


@pytest.mark.parametrize("number", range(60))
def test_steps_are_those_of_an_exhaustive_search(number: int) -> None:
    chance = random.Random(number)
    requests = [(chance.randint(1, 3), chance.randint(0, 1)) for _ in range(chance.randint(1, 3))]
    pod = pods("a", *requests, kinds=2)
    short = chance.choice([kind for kind, need in enumerate(pod.most) if need])
    free = [chance.randint(0, 4), chance.randint(0, 4)]
    free[short] = min(free[short], pod.most[short] - 1)
    devices = [kind for kind, count in enumerate(free) for _ in range(count)]
    desired = [kind for count, kind in requests for _ in range(count)]
    assert allocating._steps(tuple(free), pod) == _tried(devices, desired)


def test_nine_free_devices_are_searched_in_time() -> None:
    assert allocating._steps((allocating.FEW_DEVICES,), pods("a", (64, 0))) == 986_409 <= allocating.MAX_STEPS
    assert allocating._steps((allocating.FEW_DEVICES + 1,), pods("a", (64, 0))) > allocating.MAX_STEPS


@pytest.mark.parametrize(
    ("node", "load", "slow"),
    [
        ((32,), [pods("a", (8, 0)), pods("b", (32, 0))], {1}),
        ((32,), [pods("a", (23, 0)), pods("b", (32, 0))], set()),
        ((32,), [pods("a", (22, 0)), pods("b", (32, 0))], {1}),
        ((64,), [pods("a", (32, 0)), pods("b", (32, 0)), pods("c", (64, 0))], {2}),
        ((64,), [pods("a", (32, 0)), pods("b", (32, 0))], set()),
        ((64,), [pods("a", (20, 0), copies=3)], set()),
        ((64,), [pods("a", (22, 0), copies=3)], {0}),
        ((8, 32), [pods("a", (1, 0), (4, 1), kinds=2), pods("b", (8, 0), (32, 1), kinds=2)], set()),
        ((8, 32), [pods("a", (4, 1), kinds=2), pods("b", (8, 0), (32, 1), kinds=2)], {1}),
        ((8, 32), [pods("a", (1, 0), (4, 1), kinds=2), pods("b", (32, 1), (8, 0), kinds=2)], {1}),
        ((32,), [pods("b", (32, 0)), Pods("", 1, 1, ((1,),), is_open=False, unavailable=True)], {0}),
        ((32,), [pods("b", (32, 0)), Pods("", 1, 1, ((32,),), is_open=False, unavailable=True)], set()),
    ],
)
def test_searches_are_slow_with_too_few_but_many_free_devices(
    node: tuple[int, ...], load: list[Pods], slow: set[int]
) -> None:
    assert slow_searches(node, load, [None] * len(load)) == slow


@pytest.mark.parametrize(
    ("small", "large", "slow"),
    [
        (None, None, {1}),
        (None, ALONE, set()),
        (TOGETHER, None, set()),
        (PlannedNodes((), "Any"), ALONE, {1}),
        (PlannedNodes((), "Any"), PlannedNodes((), "Any"), {1}),
    ],
)
def test_affinity_excludes_nodes_from_the_search(
    small: PlannedNodes | None, large: PlannedNodes | None, slow: set[int]
) -> None:
    assert slow_searches((32,), [pods("a", (8, 0)), pods("b", (32, 0))], [small, large]) == slow


def test_unconstrained_devices_of_a_charged_node_stay_free() -> None:
    """A pod is charged all devices because of a constraint, and uses 16."""
    load = [replace(pods(name, (16, 1), (1, 0), kinds=2), vectors=((1, 32),)) for name in "ab"]
    assert slow_searches((1, 32), load, [None, None]) == {0, 1}


def plan(
    deployments: Sequence[Deployment],
    clusters: Sequence[Cluster],
    running: Sequence[Replica] = (),
    options: Options | None = None,
) -> Schedule:
    return bind(schedule(deployments, clusters, running, options), clusters, running, options)


def planned(decided: Schedule) -> dict[str, PlannedNodes | None]:
    def member(engines: Sequence[object]) -> PlacedMember:
        return engines[0].members[0]  # type: ignore[attr-defined,no-any-return]

    return {f"{one.deployment}-{one.index}": member(one.engines).planned_nodes for one in decided.placements}


SMALL, WHOLE = deployment("small", 1, standalone(ask(8))), deployment("whole", 1, standalone(ask(32)))


@pytest.mark.parametrize("accounting", ["Devices", "Nodes"])
def test_a_pod_that_takes_a_whole_large_node_avoids_used_nodes(accounting: str) -> None:
    options = Options("Nodes" if accounting == "Nodes" else "Devices")
    decided = plan([SMALL, WHOLE], [cluster("a", pool("gpu", 2, gpu(count=32)))], options=options)
    assert planned(decided) == {"small-0": None, "whole-0": ALONE}
    assert decided.may_strand == ()


def test_running_pods_keep_their_templates() -> None:
    fleet = [cluster("a", pool("gpu", 2, gpu(count=32)))]
    running = replicas_of(plan([SMALL], fleet))
    decided = plan([SMALL, WHOLE], fleet, running)
    assert planned(decided) == {"small-0": None, "whole-0": ALONE}
    assert planned(plan([SMALL, WHOLE], fleet, replicas_of(decided))) == planned(decided)
    # Pods that a release without these numbers placed stay without them.
    before = replicas_of(bind_nothing([SMALL, WHOLE], fleet))
    assert planned(plan([SMALL, WHOLE], fleet, before)) == {"small-0": None, "whole-0": None}


def bind_nothing(deployments: Sequence[Deployment], clusters: Sequence[Cluster]) -> Schedule:
    return schedule(deployments, clusters, ())


def test_a_plan_warns_if_no_number_excludes_a_node() -> None:
    """The node with an unavailable device has 31 free devices."""
    fleet = [cluster("a", replace(pool("gpu", 2, gpu(count=32)), unavailable=((1,),)))]
    (warning,) = plan([WHOLE], fleet).may_strand
    assert "kube-scheduler might search for devices longer than 10 seconds" in str(warning)
    assert "pool gpu on a" in str(warning)
    half = [deployment("half", 1, standalone(ask(16)))]
    assert plan(half, fleet).may_strand == ()


def test_a_plan_warns_if_running_pods_might_be_on_any_node() -> None:
    fleet = [cluster("a", pool("gpu", 3, gpu(count=64)))]
    small = deployment("small", 5, standalone(ask(8)))
    decided = plan([small, deployment("half", 1, standalone(ask(32)))], fleet, replicas_of(plan([small], fleet)))
    (warning,) = decided.may_strand
    assert "longer than 10 seconds" in str(warning)
