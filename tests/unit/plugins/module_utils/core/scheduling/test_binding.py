# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Placements that clusters can bind as they are planned."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.selector import compile_selector
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
from ansible_collections.modelplane.fleet.tests.oracle.binding import heterogeneous, trial
from ansible_collections.modelplane.fleet.tests.oracle.binding.simulated import Simulation
from ansible_collections.modelplane.fleet.tests.oracle.placement.generator import generate
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import read
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.scheduling.fleets import (
    ask,
    at_least,
    cluster,
    deployment,
    gpu,
    pool,
    replicas_of,
    standalone,
)

SMALL, LARGE = gpu("24Gi", 4, "small"), gpu("80Gi", 4, "large")
IS_LARGE = (
    '"memory" in device.capacity["gpu.nvidia.com"] && '
    'device.capacity["gpu.nvidia.com"]["memory"].compareTo(quantity("80Gi")) >= 0'
)


def plan(
    deployments: Sequence[Deployment],
    clusters: Sequence[Cluster],
    running: Iterable[Replica] = (),
    options: Options | None = None,
) -> Schedule:
    running = list(running)
    return bind(schedule(deployments, clusters, running, options), clusters, running, options)


def ran(decided: Schedule) -> list[Replica]:
    """Return what the next run finds, under the names that it finds them by."""
    return replicas_of(decided)


def members(decided: Schedule) -> dict[str, PlacedMember]:
    return {f"{one.deployment}-{one.index}": one.engines[0].members[0] for one in decided.placements}


def selectors(member: PlacedMember) -> list[str]:
    return [selector["cel"] for selector in member.device_requests[0]["selectors"]]


def test_a_claim_for_any_device_leaves_the_one_that_another_needs() -> None:
    devices = (gpu("80Gi", 1, "large"), gpu("24Gi", 1, "small"))
    fleet = [cluster("a", pool("gpu", 1, *devices))]
    found = members(
        plan([deployment("any", 1, standalone()), deployment("big", 1, standalone(ask(1, at_least("40Gi"))))], fleet)
    )
    assert found["any-0"].device_requests[0]["device"] == "small"
    accepted = [
        device.name
        for device in devices
        if all(compile_selector(text).evaluate(device).match for text in selectors(found["any-0"]))
    ]
    assert accepted == ["small"]
    assert "device" not in found["big-0"].device_requests[0]


def test_the_next_run_charges_the_planned_kind() -> None:
    fleet = [cluster("a", pool("gpu", 1, LARGE, SMALL))]
    first = plan([deployment("any", 1, standalone(ask(4)))], fleet)
    assert members(first)["any-0"].device_requests[0]["device"] == "large"
    assert selectors(members(first)["any-0"])[-1] == IS_LARGE
    desired = [deployment("any", 1, standalone(ask(4))), deployment("big", 1, standalone(ask(1, at_least("40Gi"))))]
    second = plan(desired, fleet, ran(first))
    assert [one.deployment for one in second.placements] == ["any"]
    assert [one.deployment for one in second.pending] == ["big"]
    assert members(second)["any-0"] == members(first)["any-0"]


def test_a_claim_leaves_the_devices_of_a_replica_that_returns() -> None:
    """The replica on a has its large devices until its replacement on b serves."""
    devices = gpu("80Gi", 1, "large"), gpu("24Gi", 1, "small")
    both = [cluster("a", pool("gpu", 1, *devices)), cluster("b", pool("gpu", 1, *devices), labels={"tier": "best"})]
    large = standalone(ask(1, at_least("40Gi")))
    first = deployment("first", 1, large, preferences=({"tier": "best"},), returns=True)
    running = ran(plan([first], both[:1]))
    decided = plan([first, deployment("second", 1, cluster_selector={"modelplane.ai/cluster": "a"})], both, running)
    assert [(one.deployment, one.cluster) for one in decided.placements] == [("first", "b"), ("second", "a")]
    assert members(decided)["second-0"].device_requests[0]["device"] == "small"


def test_a_kind_that_is_gone_is_no_longer_asked_for() -> None:
    first = plan([deployment("any", 1)], [cluster("a", pool("gpu", 1, LARGE, SMALL))])
    second = plan([deployment("any", 1)], [cluster("a", pool("gpu", 1, SMALL))], ran(first))
    assert "device" not in members(second)["any-0"].device_requests[0]
    assert len(selectors(members(second)["any-0"])) == 1


def below(memory: str) -> str:
    return f'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("{memory}")) < 0'


@pytest.mark.parametrize(
    ("order", "before", "after"),
    [
        (("24Gi", "40Gi", "80Gi"), at_least("40Gi"), below("30Gi")),
        (("24Gi", "40Gi", "80Gi"), at_least("40Gi"), below("60Gi")),
        (("80Gi", "40Gi", "24Gi"), below("60Gi"), at_least("60Gi")),
        (("80Gi", "40Gi", "24Gi"), below("60Gi"), at_least("20Gi")),
    ],
)
def test_a_claim_names_a_device_that_edited_selectors_accept(order: tuple[str, ...], before: str, after: str) -> None:
    devices = {f"gpu-{memory.lower()}": gpu(memory, 4, f"gpu-{memory.lower()}") for memory in order}
    fleet = [cluster("a", pool("gpu", 1, *devices.values()))]
    first = plan([deployment("d", 1, standalone(ask(2, before)))], fleet)
    assert "device" in members(first)["d-0"].device_requests[0]
    edited = [deployment("d", 1, standalone(ask(2, after)))]
    second = plan(edited, fleet, ran(first))
    accepted = [
        name
        for name, device in devices.items()
        if all(compile_selector(text).evaluate(device).match for text in selectors(members(second)["d-0"]))
    ]
    assert len(accepted) == 1
    assert members(second)["d-0"].device_requests[0].get("device", accepted[0]) == accepted[0]
    assert plan(edited, fleet, ran(second)).placements[0].engines == second.placements[0].engines


def test_claims_for_one_kind_stay_as_they_are_written() -> None:
    decided = schedule([deployment("any", 2)], [cluster("a", pool("gpu", 2, gpu(count=8)))], ())
    assert bind(decided, [cluster("a", pool("gpu", 2, gpu(count=8)))], ()) == decided


def test_pods_that_need_several_kinds_claim_what_the_deployment_accepts() -> None:
    fleet = [cluster("a", pool("gpu", 1, LARGE, SMALL))]
    found = members(plan([deployment("any", 1, standalone(ask(4), copies=2))], fleet))
    assert "device" not in found["any-0"].device_requests[0]


def with_unavailable(clusters: Iterable[Cluster], chance: random.Random) -> tuple[Cluster, ...]:
    """Return clusters with unavailable devices on about half of their nodes."""
    return tuple(
        replace(
            one,
            pools=tuple(
                replace(
                    part,
                    unavailable=tuple(
                        tuple(chance.randint(0, count) for count in part.claimable)
                        for __ in range(chance.randint(0, part.nodes))
                    ),
                )
                for part in one.pools
            ),
        )
        for one in clusters
    )


MIXED = [deployment("one", 2, created="2025"), deployment("whole", 1, standalone(ask(8)))]
TWO_NODES = [cluster("a", pool("gpu", 2, gpu(count=8)))]


def test_small_pods_share_a_node_where_a_large_one_needs_the_other() -> None:
    found = members(plan(MIXED, TWO_NODES))
    together = PlannedNodes((1,), "Together")
    assert [found[name].planned_nodes for name in ("one-0", "one-1", "whole-0")] == [together, together, None]


@pytest.mark.parametrize(
    "unlimited",
    [
        pytest.param((MIXED[:1], TWO_NODES, Options()), id="one size"),
        pytest.param((MIXED, [cluster("a", pool("gpu", 3, gpu(count=8)))], Options()), id="enough nodes"),
        pytest.param(
            (MIXED, [cluster("a", pool("gpu", 3, gpu(count=8)))], Options(accounting="Nodes")), id="whole nodes"
        ),
    ],
)
def test_pods_go_anywhere_where_none_can_be_stranded(
    unlimited: tuple[list[Deployment], list[Cluster], Options],
) -> None:
    deployments, clusters, options = unlimited
    decided = schedule(deployments, clusters, (), options)
    assert bind(decided, clusters, (), options) == decided


def test_a_neighbour_changes_nothing_about_what_runs() -> None:
    first = plan(MIXED[:1], TWO_NODES)
    second = plan(MIXED, TWO_NODES, ran(first))
    assert {name: members(second)[name] for name in members(first)} == members(first)


def test_an_edit_that_replaces_pods_plans_them_again() -> None:
    first = plan(MIXED, TWO_NODES)
    edited = [deployment("one", 2, standalone(ask(2)), created="2025"), MIXED[1]]
    assert members(plan(edited, TWO_NODES, ran(first)))["one-0"].planned_nodes == PlannedNodes((1,), "Together")


@pytest.mark.parametrize("number", range(60))
def test_a_second_run_changes_nothing(number: int) -> None:
    fleet = read(generate(11, number))
    first = plan(fleet.deployments, fleet.clusters, fleet.running, fleet.options)
    others = [one for one in fleet.running if one.deployment not in {each.name for each in fleet.deployments}]
    again = [replace(one, name=f"new-{one.name}") for one in ran(first)]
    second = plan(fleet.deployments, fleet.clusters, [*others, *again], fleet.options)
    assert [one.engines for one in second.placements] == [one.engines for one in first.placements]


@pytest.mark.parametrize("number", range(30))
def test_what_is_added_later_changes_nothing_about_what_runs(number: int) -> None:
    fleet = read({**generate(12, number), "running": []})
    half = fleet.deployments[: len(fleet.deployments) // 2]
    first = plan(half, fleet.clusters, (), fleet.options)
    second = plan(fleet.deployments, fleet.clusters, ran(first), fleet.options)
    kept = {(one.deployment, one.cluster, one.index): one.engines for one in second.placements}
    assert all(kept[one.deployment, one.cluster, one.index] == one.engines for one in first.placements)


# Gangs on all nodes, two copies crosswise, workers of several pools, copies that take any kind.
STEERED = (50, 68, 86, 87)


@pytest.mark.parametrize("number", [*range(40), *STEERED])
def test_pods_find_a_node_in_any_order(number: int) -> None:
    tried = trial.trial(1, number, "any")
    assert not tried.may_strand or number not in STEERED
    for order in range(4 if not tried.may_strand else 0):
        assert Simulation(tried.clusters).bind(tried.loads, random.Random(order)) == []


@pytest.mark.parametrize("number", range(40))
def test_new_pods_find_a_node_beside_those_that_run(number: int) -> None:
    fleet = read({**generate(1, number), "running": []})
    before = trial.plan(replace(fleet, deployments=fleet.deployments[: len(fleet.deployments) // 2]), "any")
    running = [replace(one, name=f"running-{one.name}") for one in replicas_of(before.placements)]
    after = trial.plan(fleet, "any", running=running)
    for order in range(4 if not before.may_strand and not after.may_strand else 0):
        nodes, chance = Simulation(before.clusters), random.Random(order)
        assert nodes.bind(before.loads, chance) == []
        assert nodes.bind(after.loads, chance) == []


@pytest.mark.parametrize("number", range(60))
def test_no_search_for_devices_of_large_nodes_times_out(number: int) -> None:
    fleet = heterogeneous.large_nodes(1, number)
    first = trial.plan(replace(fleet, deployments=fleet.deployments[:1]), "any")
    grown = trial.plan(fleet, "any", running=trial.ran(first))
    at_once = trial.plan(fleet, "any")
    for order in range(4):
        if not at_once.may_strand:
            assert Simulation(at_once.clusters).bind(at_once.loads, random.Random(order)) == []
        if not first.may_strand and not grown.may_strand:
            nodes, chance = Simulation(grown.clusters), random.Random(order)
            assert nodes.bind(first.loads, chance) == []
            assert nodes.bind(grown.loads, chance) == []


@pytest.mark.parametrize("number", range(80))
def test_pods_find_a_node_beside_unavailable_devices(number: int) -> None:
    fleet = read({**generate(1, number), "running": []})
    clusters = with_unavailable(fleet.clusters, random.Random(number))
    tried = trial.plan(replace(fleet, clusters=clusters), "any")
    for order in range(6 if not tried.may_strand else 0):
        assert Simulation(tried.clusters).bind(tried.loads, random.Random(order)) == []


ONE_OF_TWO = [cluster("a", replace(pool("gpu", 2, gpu(count=8)), unavailable=((1,),)))]
ONE_OF_THREE = [cluster("a", replace(pool("gpu", 3, gpu(count=8)), unavailable=((1,),)))]


def test_a_small_pod_can_strand_a_large_one_beside_unavailable_devices() -> None:
    # The small pod goes to either of the nodes, and only one of them has room for the large pod.
    assert len(plan([deployment("one", 1), MIXED[1]], ONE_OF_TWO).may_strand) == 1
    assert plan([deployment("one", 2), deployment("two", 1)], ONE_OF_TWO).may_strand == ()


def test_planned_nodes_are_nodes_with_all_devices() -> None:
    found = plan(MIXED, ONE_OF_THREE)
    together = PlannedNodes((1,), "Together")
    assert found.may_strand == ()
    assert [members(found)[name].planned_nodes for name in ("one-0", "one-1", "whole-0")] == [together, together, None]


def test_numbers_of_running_pods_stay_beside_unavailable_devices() -> None:
    three = [cluster("a", pool("gpu", 3, gpu(count=8)))]
    tight = [deployment("four", 2, standalone(ask(4)), created="2025"), deployment("six", 2, standalone(ask(6)))]
    first = plan(tight, three)
    assert first.may_strand == ()
    tainted = [cluster("a", replace(pool("gpu", 4, gpu(count=8)), unavailable=((4,),)))]
    second = plan([*tight, deployment("one", 1)], tainted, ran(first))
    assert {name: members(second)[name] for name in members(first)} == members(first)
