# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Edits of a simulated fleet, carried out step by step: services keep their endpoints, and rollouts end."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.steps import rollout_steps
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import forecast
from ansible_collections.modelplane.fleet.tests.e2e.chaos_edits import Desired, Model

sys.path.insert(0, str(Path(__file__).parent))

from simulated_fleet import SimulatedFleet, resources


def started(desired: Desired) -> SimulatedFleet:
    """Return a fleet on which everything serves."""
    fleet = SimulatedFleet([])
    apply(fleet, desired)
    return fleet


def apply(fleet: SimulatedFleet, desired: Desired) -> dict[str, int]:
    """Carry out a run, and return the smallest number of serving endpoints of each service meanwhile."""
    fleet.resources = resources(desired.clusters_text() + desired.models_text())
    least = {name: len(endpoints) for name, endpoints in fleet.services().items()}
    for __ in fleet.run(Random(1)):
        for name, endpoints in fleet.services().items():
            least[name] = min(least.get(name, len(endpoints)), len(endpoints))
    return least


def chat(replicas: int = 3, **more: str) -> Desired:
    return Desired({"chat": Model("chat", replicas, **more)}, {"chat": ("chat",)})  # type: ignore[arg-type]


def images(fleet: SimulatedFleet) -> set[str]:
    return {
        engine.template["spec"]["containers"][0]["image"].rpartition(":")[2]
        for engines in fleet.engines.values()
        for engine in engines.values()
        if engine.template["spec"].get("resourceClaims")
    }


def test_a_new_replica_does_not_take_the_name_of_one_that_leaves() -> None:
    desired = chat()
    fleet = started(desired)
    desired.models["chat"].tag = "v1"
    least = apply(fleet, desired)
    assert least["chat"] == 3, fleet.log
    assert images(fleet) == {"v1"}, fleet.log
    assert not fleet.plan().rollouts


@pytest.mark.parametrize("pace", [{"maxUnavailable": 0, "maxSurge": 1}, {"maxUnavailable": 1, "maxSurge": 0}])
def test_a_forecast_has_all_steps_of_a_setting_that_changes_pods(pace: dict[str, int]) -> None:
    desired = chat()
    desired.models["chat"].bounds = pace
    fleet = started(desired)
    fleet.composing = replace(fleet.composing, stream_grace=200)
    decided = fleet.plan()
    (rollout,) = rollout_steps(decided, forecast(decided))
    before = fleet.serving()
    apply(fleet, desired)
    changed = {change.replica for step in rollout.steps for change in step if change.action != "create"}
    assert changed == before
    assert not fleet.plan().rollouts


@pytest.mark.parametrize("number", range(3))
def test_fewer_replicas_remove_those_that_do_not_serve(number: int) -> None:
    desired = chat()
    fleet = started(desired)
    serves = sorted(fleet.serving())[number]
    fleet.broken = fleet.serving() - {serves}
    fleet.settle()
    desired.models["chat"].replicas = 2
    apply(fleet, desired)
    assert fleet.serving() == {serves}, fleet.log


def test_deployments_of_one_service_do_not_restart_their_only_replicas_at_once() -> None:
    desired = Desired(
        {name: Model(name, 1, cluster=name, devices=2) for name in ("east", "west")},
        {"both": ("east", "west")},
    )
    # Without free devices for surge replicas.
    desired.pools = {name: [("gpu", 1), ("large", 0)] for name in desired.models}
    fleet = SimulatedFleet([], nodes={"gpu": 1, "large": 0})
    apply(fleet, desired)
    for model in desired.models.values():
        model.tag = "v1"
    least = apply(fleet, desired)
    assert least["both"] == 1, fleet.log[-4:]
    assert images(fleet) == {"v1"}, fleet.log
