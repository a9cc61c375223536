# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what all selectors of a plan may cost together."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
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
    SelectorBudgetError,
)

sys.path.insert(0, str(Path(__file__).parent))

from fleets import ask, at_least, cluster, deployment, gpu, pool, replicas_of, standalone

# A few hundred thousand units on each device.
DEAR = "lists.range(9000).map(x, x * 2).exists(x, x == -1) || true"
PATH = "spec.template.spec.engines[0].members[0].nodeSelector.devices[0].selectors"


def cost(expression: str, *devices: object) -> int:
    evaluations = Evaluations()
    for device in devices or (gpu(),):
        evaluations.matches(expression, device)  # type: ignore[arg-type]
    return evaluations.costs[expression]


def test_beyond_the_budget_the_error_names_the_selectors_that_cost_most() -> None:
    desired = [
        deployment("cheap", 1),
        deployment("dear", 1, standalone(ask(1, at_least("40Gi"), DEAR))),
        deployment("other", 1, standalone(ask(1, DEAR))),
    ]
    budget = cost(DEAR) * 3 // 2
    with pytest.raises(SelectorBudgetError) as raised:
        schedule(desired, [cluster("a", pool("gpu", 9))], [], Options(selector_budget=budget))
    first, dearest, *_others, remediation = str(raised.value).splitlines()
    assert first.startswith(f"the selectors of the fleet cost more than {budget:,} units together")
    assert dearest == f"ModelDeployment ml-team/dear, {PATH}[1].cel and 1 more: {2 * cost(DEAR):,} units"
    assert "raise fleet_selector_budget" in remediation


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
    with pytest.raises(SelectorBudgetError, match="ModelDeployment ml-team/m"):
        schedule(desired, fleet, [], Options(selector_budget=cost(never)))
    placed = schedule([deployment("m", 1, standalone(ask(1, DEAR)))], fleet, [])
    others = [replace(replica, deployment="") for replica in replicas_of(placed)]
    with pytest.raises(SelectorBudgetError, match=r"ModelReplica ml-team/m-a-0, spec\.engines\[0\]"):
        schedule([], fleet, others, Options(selector_budget=cost(DEAR) - 1))


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
