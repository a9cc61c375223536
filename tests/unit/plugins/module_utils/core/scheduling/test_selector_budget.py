# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what all selectors of a plan may cost together."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.matching import Matcher
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    SELECTOR_BUDGET,
    Member,
    Options,
    Request,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.selector_budget import (
    Evaluations,
)
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

# A few hundred thousand units on each device.
DEAR = "lists.range(9000).map(x, x * 2).exists(x, x == -1) || true"
PATH = "spec.template.spec.engines[0].members[0].nodeSelector.devices[0].selectors"


def cost(expression: str, *devices: object) -> int:
    evaluations = Evaluations()
    for device in devices or (gpu(),):
        evaluations.matches(expression, device)  # type: ignore[arg-type]
    return evaluations.costs[expression]


def test_beyond_the_budget_everything_else_is_decided() -> None:
    """Two namespaces have equal shares, and the dear selectors of one exceed that of their deployments."""
    dear = [deployment(f"dear-{number}", 1, standalone(ask(1, f"{DEAR} || {number} > 0"))) for number in range(5)]
    cheap = [deployment("cheap", 1, standalone(ask(1, at_least("40Gi"))), namespace="other")]
    budget = cost(DEAR) * 3
    decided = schedule([*dear, *cheap], [cluster("a", pool("gpu", 9))], [], Options(selector_budget=budget))
    assert [placement.deployment for placement in decided.placements if placement.namespace == "other"] == ["cheap"]
    assert decided.excluded
    for pending, excluded in zip(decided.pending, decided.excluded, strict=True):
        assert pending.deployment == excluded.deployment
        assert (pending.count, pending.reason) == (1, "SelectorBudgetExceeded")
        assert pending.message.startswith("its selectors cost more than its share of fleet_selector_budget (")
        assert f" of {budget:,} units); {PATH}[0].cel: over " in pending.message
        assert pending.message.endswith("or raise fleet_selector_budget")


def test_what_cheap_selectors_leave_of_their_shares_goes_to_others() -> None:
    dear = deployment("dear", 1, standalone(ask(1, at_least("40Gi"), DEAR)))
    cheap = [deployment(f"cheap-{number}", 1) for number in range(9)]
    rejected = deployment("rejected", 1, standalone(ask(1, f"({DEAR}) && ({DEAR}) && ({DEAR})")))
    fleet = [cluster("a", pool("gpu", 20))]
    decided = schedule([dear, *cheap, rejected], fleet, [], Options(selector_budget=cost(DEAR) * 5 // 2))
    assert [excluded.deployment for excluded in decided.excluded] == ["rejected"]
    assert len(decided.placements) == 10
    assert [pending.deployment for pending in decided.pending] == ["rejected"]


def test_running_replicas_stay_as_they_are_beyond_the_budget() -> None:
    before, fleet = deployment("dear", 1, standalone(ask(1, DEAR))), [cluster("a", pool("gpu", 2))]
    running = replicas_of(schedule([before], fleet, []))
    edited = deployment("dear", 2, standalone(ask(1, f"{DEAR} || {DEAR}")))
    decided = schedule([edited, deployment("cheap", 2)], fleet, running, Options(selector_budget=cost(DEAR) // 2))
    assert [(one.deployment, one.state) for one in decided.placements] == [("cheap", "new"), ("dear", "held")]
    assert decided.placements[1].engines == running[0].engines
    assert [(one.deployment, one.reason) for one in decided.pending] == [
        ("cheap", "InsufficientCapacity"),
        ("dear", "SelectorBudgetExceeded"),
    ]
    assert not decided.dropped


def test_a_budget_that_is_enough_changes_nothing() -> None:
    desired, fleet = [deployment("dear", 1, standalone(ask(1, DEAR)))], [cluster("a", pool("gpu", 9))]
    assert schedule(desired, fleet, [], Options(selector_budget=cost(DEAR))) == schedule(desired, fleet, [])


def test_what_is_known_of_a_kind_of_device_costs_nothing_again() -> None:
    devices = (gpu(), gpu("24Gi", name="small"))
    fleet = [cluster(f"c{number}", pool("x", 9, *devices), pool("y", 9, *devices)) for number in range(50)]
    fleet = [replace(one, pools=tuple(replace(pool, devices=devices) for pool in one.pools)) for one in fleet]
    desired = [deployment(f"m{number}", 3, standalone(ask(1, DEAR))) for number in range(20)]
    decided = schedule(desired, fleet, [], Options(selector_budget=cost(DEAR, *devices)))
    assert len(decided.placements) == 60


def test_reasons_and_what_runs_already_are_paid_for_too() -> None:
    never = f"({DEAR}) && false"
    desired, fleet = [deployment("m", 1, standalone(ask(1, never)))], [cluster("a")]
    assert schedule(desired, fleet, [], Options(selector_budget=cost(never) - 1)).excluded
    placed = schedule([deployment("m", 1, standalone(ask(1, DEAR)))], fleet, [])
    others = [replace(replica, deployment="") for replica in replicas_of(placed)]
    decided = schedule([deployment("other", 1)], fleet, others, Options(selector_budget=cost(DEAR) - 1))
    assert [(one.deployment, one.reason) for one in decided.pending] == [("other", "InsufficientCapacity")]


def test_usual_selectors_of_a_thousand_deployments_are_not_noticed() -> None:
    """Not even when each of 5,000 pools of 1,000 clusters has devices that no other has."""
    usual = 'device.driver == "gpu.nvidia.com" && ' + at_least("40Gi")
    assert cost(usual) * 1_000 * 5_000 <= SELECTOR_BUDGET
    # As it is: a score of classes.
    evaluations = Evaluations()
    matcher = Matcher("Exact", evaluations)
    classes = [(gpu(f"{20 + number}Gi"),) for number in range(20)]
    for number in range(1_000):
        member = Member("Standalone", 1, (Request("gpu", 1, (usual.replace("40Gi", f"{number}Gi"),)),))
        for devices in classes:
            matcher.resolve(member, devices)
    assert sum(evaluations.costs.values()) <= SELECTOR_BUDGET // 100
