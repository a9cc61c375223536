# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rollouts of fleets with unreachable clusters, restarting pods, and deployments that compete for devices."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan
from ansible_collections.modelplane.fleet.tests.e2e.chaos_edits import Desired, Model
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.planning.simulated_fleet import (
    SimulatedFleet,
)

Edit = Callable[[dict[str, Any]], None]


def unchanged(_document: dict[str, Any]) -> None:
    pass


def rename_engine(document: dict[str, Any]) -> None:
    """Rename an engine, so that the replicas of the deployment no longer fit."""
    document["spec"]["template"]["spec"]["engines"][0]["name"] = "renamed"


def write(fleet: SimulatedFleet, desired: Desired, edits: dict[str, Edit] | None = None) -> None:
    documents = [
        document for document in yaml.safe_load_all(desired.clusters_text() + desired.models_text()) if document
    ]
    for document in documents:
        if document["kind"] == "ModelDeployment":
            (edits or {}).get(document["metadata"]["name"], unchanged)(document)
    fleet.resources = [api.parse(document) for document in documents]


def run(fleet: SimulatedFleet) -> int:
    """Run the fleet, and return the minimum number of serving replicas during the run."""
    return min([len(fleet.serving()) for __ in fleet.run(Random(1))], default=len(fleet.serving()))


def started(desired: Desired, nodes: int, edits: dict[str, Edit] | None = None) -> SimulatedFleet:
    """Return a fleet after its first run."""
    fleet = SimulatedFleet([], nodes={"gpu": nodes, "large": 0})
    write(fleet, desired, edits)
    run(fleet)
    return fleet


def one_round(fleet: SimulatedFleet) -> Plan:
    """Apply and return one plan. No pod has started yet."""
    decided = fleet.plan()
    fleet.apply_control(decided)
    for cluster in fleet.clusters:
        fleet.apply_cluster(decided, cluster)
    return decided


def pause(fleet: SimulatedFleet, replicas: set[str]) -> None:
    """Make the pods of replicas temporarily not ready."""
    fleet.broken = replicas
    fleet.settle()
    fleet.broken = set()


def single_gpu(*clusters: str, nodes: int = 1) -> dict[str, list[tuple[str, int]]]:
    return {name: [("gpu", nodes), ("large", 0)] for name in clusters}


@pytest.mark.parametrize("starts", [True, False])
def test_a_replica_serves_until_its_replacement_on_an_unreachable_cluster_serves(starts: bool) -> None:
    desired = Desired({"chat": Model("chat", 1, devices=2)}, {"chat": ("chat",)}, pools=single_gpu("east", "west"))
    fleet = started(desired, 1)
    serving = fleet.serving()
    desired.models["chat"].tag = "v1"
    write(fleet, desired)
    one_round(fleet)
    (new,) = [replica for replica in fleet.replicas.values() if names.label_value(replica.name) not in serving]
    fleet.silent = {new.spec.cluster_name}
    fleet.broken = set() if starts else {names.label_value(new.name)}
    run(fleet)
    assert serving <= fleet.serving(), fleet.log
    (rollout,) = fleet.plan().rollouts
    assert "might not serve" in " ".join(rollout.updating.waiting.values())
    fleet.silent, fleet.broken = set(), set()
    run(fleet)
    assert fleet.serving() == {names.label_value(new.name)}, fleet.log


def test_a_stopped_rollout_does_not_replace_old_replicas_that_restart() -> None:
    desired = Desired({"chat": Model("chat", 3, cluster="east")}, {"chat": ("chat",)})
    fleet = started(desired, 3)
    old = fleet.serving()
    desired.models["chat"].tag = "missing"
    write(fleet, desired)
    run(fleet)
    assert old == fleet.serving(), fleet.log
    pause(fleet, old)
    one_round(fleet)
    fleet.settle()
    run(fleet)
    assert old == fleet.serving(), fleet.log


def test_a_replica_that_no_longer_fits_stays_while_its_pod_restarts() -> None:
    desired = Desired({"chat": Model("chat", 2)}, {"chat": ("chat",)})
    fleet = started(desired, 3)
    old = fleet.serving()
    desired.models["chat"].selector = "unfit"
    write(fleet, desired)
    run(fleet)
    pause(fleet, old)
    one_round(fleet)
    fleet.settle()
    assert old == fleet.serving(), fleet.log


def preempting(document: dict[str, Any]) -> None:
    document["metadata"].setdefault("annotations", {})["modelplane.ai/priority"] = "100"
    document["spec"]["preemption"] = "LowerPriority"


def test_a_surge_replica_preempts_no_replica() -> None:
    models = {"high": Model("high", 4, cluster="east", devices=2), "low": Model("low", 1, cluster="east", devices=2)}
    desired = Desired(models, {name: (name,) for name in models}, pools=single_gpu("east", "west", nodes=5))
    fleet = started(desired, 5, {"high": preempting})
    assert len(fleet.serving()) == 5
    desired.models["high"].tag = "v1"
    write(fleet, desired, {"high": preempting})
    for decided in fleet.run(Random(1)):
        assert fleet.services()["low"], fleet.log
        assert not [entry for entry in decided.schedule.dropped if entry.preempted_by]
    assert not fleet.plan().rollouts


def test_a_surge_replica_uses_no_devices_that_a_missing_replica_requires() -> None:
    models = {name: Model(name, 1, cluster="east", devices=2) for name in ("first", "second")}
    desired = Desired(models, {name: (name,) for name in models}, pools=single_gpu("east", "west"))
    fleet = started(desired, 1)
    assert len(fleet.serving()) == 1
    (serving,) = [name for name, endpoints in fleet.services().items() if endpoints]
    (pending,) = set(models) - {serving}
    desired.pools = single_gpu("east", "west", nodes=2)
    fleet.nodes = {"gpu": 2, "large": 0}
    desired.models[serving].tag = "missing"
    write(fleet, desired)
    run(fleet)
    assert fleet.services()[pending], fleet.log


def test_fewer_replicas_are_removed_while_a_cluster_of_the_rollout_is_unreachable() -> None:
    model = Model("chat", 5, devices=2, bounds={"maxUnavailable": 2})
    pools = {"east": [("gpu", 1), ("large", 0)], "west": [("gpu", 4), ("large", 0)]}
    desired = Desired({"chat": model}, {"chat": ("chat",)}, pools=pools)
    fleet = started(desired, 4)
    fleet.silent = {"east"}
    desired.models["chat"].tag = "v1"
    for replicas in (5, 2):
        desired.models["chat"].replicas = replicas
        write(fleet, desired)
        for __ in range(6):
            run(fleet)
    west = [replica for replica in fleet.replicas.values() if replica.spec.cluster_name == "west"]
    assert len(west) == 2, fleet.log


def test_deployments_take_turns_with_replacements_in_place() -> None:
    first = Model("first", 8, cluster="east", bounds={"maxSurge": 1, "maxUnavailable": 1})
    desired = Desired(
        {"first": first, "second": Model("second", 2, cluster="west", devices=2)},
        {"first": ("first",), "second": ("second",)},
        pools={"east": [("gpu", 4), ("large", 0)], "west": [("gpu", 2), ("large", 0)]},
    )
    fleet = started(desired, 8)
    desired.models["first"].devices = 2
    edits = {"first": rename_engine, "second": rename_engine}
    for __ in range(4):
        write(fleet, desired, edits)
        run(fleet)
    assert [rollout.key[1] for rollout in fleet.plan().rollouts] == ["first"], fleet.log


def shared() -> Desired:
    """Return two deployments of one ModelService. Each deployment fills its cluster."""
    models = {name: Model(name, 1, cluster=name, devices=2) for name in ("east", "west")}
    return Desired(models, {"both": ("east", "west")}, pools=single_gpu("east", "west"))


def test_deployments_of_a_service_are_replaced_in_place_one_after_the_other() -> None:
    desired = shared()
    fleet = started(desired, 1)
    write(fleet, desired, {"east": rename_engine, "west": rename_engine})
    for __ in range(3):
        assert run(fleet) >= 1, fleet.log
    assert not [line for line in fleet.log if line.startswith("refused")]
    assert not fleet.plan().rollouts


@pytest.mark.parametrize("edit", ["deleted", "scaled to zero"])
def test_an_edit_beside_a_removed_deployment_is_no_outage(edit: str) -> None:
    desired = shared()
    fleet = started(desired, 1)
    desired.models["west"].tag = "v1"
    desired.models["east"].replicas = 0
    if edit == "deleted":
        del desired.models["east"]
    write(fleet, desired)
    run(fleet)
    assert not [line for line in fleet.log if line.startswith("refused")]
    assert len(fleet.serving()) == 1
    assert not fleet.plan().rollouts


def test_a_replica_with_copies_serves_during_a_restart_in_place() -> None:
    model = Model("chat", 1, cluster="east", copies=2, devices=2)
    desired = Desired({"chat": model}, {"chat": ("chat",)}, pools=single_gpu("east", "west", nodes=2))
    fleet = started(desired, 2)
    desired.models["chat"].tag = "v1"
    write(fleet, desired)
    (warning,) = [line for line in fleet.plan().warnings if "in place" in line]
    assert "Other engine copies serve during the restart" in warning
    assert run(fleet) == 1


def test_a_restart_in_place_beside_a_preempted_replica_is_an_outage() -> None:
    desired = shared()
    fleet = started(desired, 1)
    desired.models["high"] = Model("high", 1, cluster="east", devices=2)
    desired.models["west"].tag = "v1"
    write(fleet, desired, {"high": preempting})
    for decided in fleet.run(Random(1)):
        assert fleet.services()["both"], (decided.outages, fleet.log)


def important(document: dict[str, Any]) -> None:
    document["metadata"].setdefault("annotations", {})["modelplane.ai/priority"] = "100"


@pytest.mark.parametrize("edit", [important, preempting])
def test_a_replica_that_moves_is_placed_before_replicas_of_lower_priority(edit: Edit) -> None:
    pools = {"east": [("gpu", 3), ("large", 1)], "west": [("gpu", 0), ("large", 0)]}
    desired = Desired({"first": Model("first", 1, cluster="east", devices=2)}, {"first": ("first",)}, pools=pools)
    fleet = SimulatedFleet([], nodes={"gpu": 3, "large": 1})
    write(fleet, desired, {"first": edit})
    run(fleet)
    desired.models["first"].selector = "large"
    desired.models["first"].devices = 4
    desired.models["other"] = Model("other", 1, "large", cluster="east", devices=4)
    for __ in range(2):
        write(fleet, desired, {"first": edit})
        run(fleet)
    assert fleet.services()["first"], fleet.log
    assert not fleet.plan().rollouts, fleet.log


def test_a_pending_replica_does_not_prevent_replacements_in_place() -> None:
    models = {
        "first": Model("first", 2, cluster="east", devices=2),
        "other": Model("other", 1, cluster="east", devices=2),
    }
    desired = Desired(models, {"first": ("first",)}, pools=single_gpu("east", "west", nodes=2))
    fleet = started(desired, 2)
    for __ in range(2):
        write(fleet, desired, {"first": rename_engine})
        run(fleet)
    assert not fleet.plan().rollouts, fleet.log
    assert len(fleet.services()["first"]) == 2


def test_without_surge_a_replica_that_cannot_start_is_replaced() -> None:
    model = Model("chat", 3, bounds={"maxSurge": 0, "maxUnavailable": 1})
    desired = Desired({"chat": model}, {"chat": ("chat",)}, pools=single_gpu("east", "west"))
    fleet = started(desired, 1)
    desired.pools["west"] = [("new", 2), ("large", 0)]
    fleet.nodes = {"gpu": 1, "new": 2, "large": 0}
    fleet.pools = ("gpu", "new", "large")
    # The nodes of the previous pool no longer exist, so its pods are pending.
    gone = {
        names.label_value(replica.name) for replica in fleet.replicas.values() if replica.spec.cluster_name == "west"
    }
    fleet.broken = gone
    fleet.settle()
    desired.models["chat"].tag = "v1"
    for __ in range(3):
        write(fleet, desired)
        run(fleet)
    assert not fleet.plan().rollouts, fleet.log
    assert len(fleet.serving()) == 3
