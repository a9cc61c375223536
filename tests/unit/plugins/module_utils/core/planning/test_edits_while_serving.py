# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Edits of a simulated fleet: services keep their endpoints after each step, and rollouts end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.steps import rollout_steps
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import forecast
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.statuses import statuses
from ansible_collections.modelplane.fleet.tests.e2e import chaos_edits
from ansible_collections.modelplane.fleet.tests.e2e.chaos_edits import Desired, Model
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.planning.simulated_fleet import (
    NeverEndsError,
    SimulatedFleet,
    resources,
)


def started(desired: Desired) -> SimulatedFleet:
    """Return a fleet whose replicas all serve."""
    fleet = SimulatedFleet([])
    apply(fleet, desired)
    return fleet


def apply(fleet: SimulatedFleet, desired: Desired) -> dict[str, int]:
    """Run, and return the minimum number of serving endpoints of each service."""
    fleet.resources = resources(desired.clusters_text() + desired.models_text())
    minimum = {name: len(endpoints) for name, endpoints in fleet.services().items()}
    for __ in fleet.run(Random(1)):
        for name, endpoints in fleet.services().items():
            minimum[name] = min(minimum.get(name, len(endpoints)), len(endpoints))
    return minimum


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
    minimum = apply(fleet, desired)
    assert minimum["chat"] == 3, fleet.log
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


@pytest.mark.parametrize("replicas", [2, 4])
@pytest.mark.parametrize("bounds", [{}, {"maxSurge": "100%"}, {"maxUnavailable": 1, "maxSurge": 1}])
def test_a_rollout_distributes_replicas_as_before(replicas: int, bounds: dict[str, int | str]) -> None:
    desired = chat(replicas)
    desired.models["chat"].bounds = bounds
    fleet = started(desired)
    for tag in ("v1", "v2", "v3"):
        desired.models["chat"].tag = tag
        # A run can end while replicas start.
        while images(fleet) != {tag} or fleet.plan().rollouts:
            apply(fleet, desired)
        clusters = Counter(replica.spec.cluster_name for replica in fleet.plan().composed)
        assert clusters == dict.fromkeys(("east", "west"), replicas // 2), fleet.log


def test_a_forecast_does_not_continue_a_stopped_rollout() -> None:
    desired = chat()
    fleet = started(desired)
    desired.models["chat"].tag = chaos_edits.BAD_TAG
    apply(fleet, desired)
    decided = fleet.plan()
    steps = forecast(decided)
    (rollout,) = rollout_steps(decided, steps)
    assert rollout.stopped
    assert not rollout.steps
    assert {tuple(map(str, plan.traffic.endpoints)) for plan in (decided, *steps)} == {
        tuple(map(str, decided.traffic.endpoints))
    }
    desired.models["chat"].tag = "v1"
    fleet.resources = resources(desired.clusters_text() + desired.models_text())
    decided = fleet.plan()
    (rollout,) = rollout_steps(decided, forecast(decided))
    assert rollout.steps, "the next edit replaces the failed replica"
    assert len(forecast(decided)[-1].composed) == 3


def test_an_engine_that_hangs_stops_the_rollout_of_its_revision() -> None:
    """Its process exits without an error."""
    desired = chat()
    fleet = started(desired)
    terminated = {
        "exitCode": 0,
        "message": "modelplane: the engine hangs: no response within 20 s\n",
        "finishedAt": "2026-01-01T10:00:00Z",
    }
    fleet.failure = {"restartCount": 1, "state": {"running": {}}, "lastState": {"terminated": terminated}}
    desired.models["chat"].tag = chaos_edits.BAD_TAG
    apply(fleet, desired)
    decided = fleet.plan()
    (rollout,) = rollout_steps(decided, forecast(decided))
    assert "the engine stopped responding and was restarted: no response within 20 s" in rollout.stopped
    (deployment,) = (value for value in statuses(decided, "") if value["kind"] == "ModelDeployment")
    reasons = {entry["type"]: entry["reason"] for entry in deployment["status"]["conditions"]}
    assert (reasons["RolloutComplete"], reasons["EngineStalled"]) == ("RolloutStopped", "EngineRestarted")


def test_an_outdated_replica_without_surge_waits() -> None:
    desired = chat(1, bounds={"maxSurge": 0})
    fleet = started(desired)
    (replica,) = fleet.plan().composed
    desired.pools[replica.spec.cluster_name] = [("renamed", 3), ("large", 2)]
    minimum = apply(fleet, desired)
    assert minimum["chat"] == 1, fleet.log
    (rollout,) = fleet.plan().rollouts
    assert set(rollout.updating.waiting.values()) == {
        "it no longer matches its deployment, and maxSurge is 0, so that no replacement starts"
    }


def test_a_renamed_pool_that_no_node_has_the_label_of_is_named() -> None:
    desired = chat(1)
    fleet = started(desired)
    desired.pools["east"] = [("gpu", 3), ("renamed", 2)]
    fleet.resources = resources(desired.clusters_text() + desired.models_text())
    (warning,) = [line for line in fleet.plan().warnings if "modelplane.ai/pool" in line]
    assert warning.startswith("InferenceCluster east: spec.nodePools[1] (renamed): no node has the label ")
    assert "Other nodes have the label modelplane.ai/pool: large." in warning
    fleet.silent = {"east"}
    assert not [line for line in fleet.plan().warnings if "modelplane.ai/pool" in line]


def test_a_renamed_pool_that_may_have_no_nodes_is_named() -> None:
    desired = chat(1)
    fleet = started(desired)
    desired.pools["east"] = [("gpu", 3), ("renamed", 2)]
    pool = '"name": "renamed",'
    text = desired.clusters_text().replace(pool, f'{pool} "minNodeCount": 0, "maxNodeCount": 2,')
    assert "minNodeCount" in text
    fleet.resources = resources(text + desired.models_text())
    (warning,) = [line for line in fleet.plan().warnings if "modelplane.ai/pool" in line]
    assert "Other nodes have the label modelplane.ai/pool: large." in warning


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
    minimum = apply(fleet, desired)
    assert minimum["both"] == 1, fleet.log[-4:]
    assert images(fleet) == {"v1"}, fleet.log


def test_the_only_replica_does_not_restart_for_devices_that_are_not_free() -> None:
    desired = Desired(
        {"solo": Model("solo", 1, cluster="east"), "other": Model("other", 1, cluster="east")}, {"solo": ("solo",)}
    )
    desired.pools["east"] = [("gpu", 1), ("large", 0)]
    fleet = SimulatedFleet([], nodes={"gpu": 1, "large": 0})
    apply(fleet, desired)
    desired.models["solo"].devices, desired.models["solo"].tag = 2, "v1"
    assert apply(fleet, desired) == {"solo": 1}
    assert "with more devices than are free" in fleet.log[-1]
    del desired.models["other"]
    apply(fleet, desired)
    assert images(fleet) == {"v1"}, fleet.log


class Chaos:
    """Random edits, broken engines, aborted runs and unreachable clusters. `violations`: services that lost their last
    endpoint although at least two replicas were desired, and runs that never ended."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.desired = chaos_edits.first()
        self.fleet = SimulatedFleet([])
        if self.random.random() < 0.6:
            self._tighten()
        self.violations: list[str] = []
        self._serving: dict[str, int] = {}
        self._excused: set[str] = set()
        self._run()

    def _tighten(self) -> None:
        """Reduce free devices, and create services with several deployments of one replica."""
        nodes = {"gpu": self.random.randint(1, 2), "large": 1}
        models = (
            Model("chat", 2, devices=self.random.choice((1, 2))),
            Model("code", 1, cluster="west"),
            Model("large", 2, "large", devices=2),
            Model("solo", 1, cluster="east"),
        )
        services = {"chat": ("chat",), "both": ("code", "solo"), "all": ("chat", "large"), "mixed": ("solo", "large")}
        pools = {name: list(nodes.items()) for name in ("east", "west")}
        self.desired = Desired({model.name: model for model in models}, services, pools=pools)
        self.fleet.nodes = nodes

    def step(self) -> None:
        """Make an edit, and run twice. The first run might be aborted, or a cluster might be unreachable."""
        before = self._edit()
        self._break_engines()
        killed_after = self.random.randint(0, 6) if self.random.random() < 0.3 else None
        self.fleet.silent = {self.random.choice(("east", "west"))} if self.random.random() < 0.1 else set()
        self._run(killed_after)
        self.fleet.silent = set()
        if self._run() and self.random.random() < 0.7:
            self.desired = before
        self._excused = chaos_edits.asked(self.desired, self.desired)

    def _edit(self) -> Desired:
        """Make an edit, and return the previous desired state."""
        before = self.desired.copy()
        self.fleet.log.append(f"EDIT {chaos_edits.edit(self.random, self.desired)}")
        self._excused |= chaos_edits.asked(before, self.desired)
        if self.random.random() < 0.1:
            grace = self.random.randint(100, 300)
            self.fleet.composing = replace(self.fleet.composing, stream_grace=grace)
        return before

    def compare(self) -> None:
        """Make an edit, and compare the forecast with the changes of the run."""
        before = self._edit()
        self.fleet.resources = resources(self.desired.clusters_text() + self.desired.models_text())
        decided = self.fleet.plan()
        plans = [decided, *forecast(decided)]
        steps = [change for rollout in rollout_steps(decided, plans[1:]) for step in rollout.steps for change in step]
        changes = {change.replica for change in steps if change.action != "create"}
        changes |= {entry.replica.name for plan in plans for entry in plan.schedule.dropped}
        changes |= {name for plan in plans for __, name in plan.edited} | {
            replica.name for replica in decided.unplanned
        }
        serving, revisions = self.fleet.serving(), self.fleet.revisions()
        if self._run():
            self.desired = before
            return
        after = self.fleet.revisions()
        stopped = {name for name in serving if after.get(name) != revisions[name]}
        self.violations += [f"replica {name} stopped, which no forecast had" for name in sorted(stopped - changes)]

    def _break_engines(self) -> None:
        self.fleet.broken = set()
        serving = sorted(self.fleet.serving())
        if len(serving) > 1 and self.random.random() < 0.15:
            self.fleet.broken = set(self.random.sample(serving, self.random.randint(1, min(3, len(serving) - 1))))
        self.fleet.settle()
        self._serving = {name: len(endpoints) for name, endpoints in self.fleet.services().items()}

    def _run(self, killed_after: int | None = None) -> bool:
        """Run, and return whether the run was refused."""
        self.fleet.resources = resources(self.desired.clusters_text() + self.desired.models_text())
        try:
            for number, __ in enumerate(self.fleet.run(self.random)):
                self._watch()
                if number == killed_after:
                    break
        except NeverEndsError:
            self.violations.append("a run never ends")
        self._watch()
        return self.fleet.log[-1].startswith("refused")

    def _watch(self) -> None:
        serving = {name: len(endpoints) for name, endpoints in self.fleet.services().items()}
        lost = {name for name, number in serving.items() if not number and self._serving.get(name)} - self._excused
        self.violations += [f"service {name} lost its last endpoint" for name in sorted(lost)]
        self._serving = serving


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.interrupted) for seed in range(3, 30))])
def test_random_edits_leave_services_an_endpoint(seed: int) -> None:
    chaos = Chaos(seed)
    for __ in range(8 if seed < 3 else 20):
        chaos.step()
    assert not chaos.violations, "\n".join(chaos.fleet.log)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.interrupted) for seed in range(2, 12))])
def test_forecasts_have_each_replica_that_a_run_stops(seed: int) -> None:
    chaos = Chaos(seed)
    for __ in range(8):
        chaos.compare()
    assert not [violation for violation in chaos.violations if "forecast" in violation], "\n".join(chaos.fleet.log)
