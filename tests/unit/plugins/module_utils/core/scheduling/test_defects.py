# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of deployments that the planner fails on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Deployment, Member, Request
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.scheduling import fleets


def defective(deployment: Deployment) -> Deployment:
    """Return a deployment with a value that no manifest can have, so that the planner fails."""
    request = Request("gpu", None, (fleets.ANY,))  # type: ignore[arg-type]
    engine = replace(deployment.engines[0], members=(Member("Standalone", 1, (request,)),))
    return replace(deployment, engines=(engine,))


def test_a_defect_leaves_one_deployment_as_it_is_and_everything_else_is_decided() -> None:
    fleet = [fleets.cluster("a", fleets.pool("gpu", 3))]
    broken, other = fleets.deployment("broken", 1), fleets.deployment("other", 1)
    running = fleets.replicas_of(schedule([broken], fleet, []))
    grown = defective(replace(broken, replicas=2))
    decided = schedule([grown, other], fleet, running)
    assert [(one.deployment, one.state) for one in decided.placements] == [("broken", "held"), ("other", "new")]
    assert not decided.dropped
    [pending] = decided.pending
    assert (pending.deployment, pending.count, pending.reason) == ("broken", 1, "PlanningFailed")
    [excluded] = decided.excluded
    text = str(excluded)
    assert text.startswith("ModelDeployment ml-team/broken: the planner failed with TypeError in ")
    for part in (".py:", "a defect of modelplane.fleet", "plan.json", "Its replicas are left unchanged"):
        assert part in text


def test_an_error_outside_a_deployment_is_no_decision() -> None:
    other = replace(
        fleets.replicas_of(schedule([fleets.deployment("d", 1)], [fleets.cluster("a")], []))[0], engines=None
    )  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        schedule([], [fleets.cluster("a")], [other])
