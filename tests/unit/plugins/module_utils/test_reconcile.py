# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rounds of a run: who is applied to when, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.apply import Applied
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.write import Result
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import Changes
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import (
    apply,
    build,
    fleet_inputs,
    pool_sizes,
    reconcile,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.pool_sizes import Resize

NAMES = ("east", "west")


@dataclass(frozen=True)
class Built:
    """Outcome of a build of an empty fleet."""

    changes: Changes = field(default_factory=lambda: Changes((), (), ()))
    plan: Any = field(default_factory=lambda: SimpleNamespace(rollouts=()))
    loaded: Any = field(default_factory=lambda: SimpleNamespace(resources=()))
    objects: Any = None


def outcome(changed: bool = False, failed: bool = False, sent: int = 0) -> Applied:
    action = "failed" if failed else "created" if changed else "unchanged"
    return Applied((Result("", "ConfigMap", "", "it", action),), requests={"dry-run": sent}, differs=bool(sent))


class Fleet:
    """Scripted clusters, in place of the calls that contact them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.applied: list[tuple[str, ...]] = []
        self.differs = True
        self.changes: dict[str, int] = {"east": 1, "west": 1}
        """Number of times that applying to a cluster still changes it."""
        self.broken: set[str] = set()
        self.unreachable: set[str] = set()
        self.rebuilt: Sequence[str] = ()
        self.modes: list[bool] = []
        self.waits: list[float] = []
        monkeypatch.setattr(build, "build", self._build)
        monkeypatch.setattr(build, "touched", lambda _outcome: list(self.rebuilt))
        monkeypatch.setattr(apply, "run", self._apply)
        monkeypatch.setattr(apply, "decide", self._decide)
        self.decided = True
        """State of the newest decision: it is as it should be."""
        self.due: list[Resize] = []
        """Changes of sizes of pools that are due, until they are sent."""
        monkeypatch.setattr(pool_sizes.Resizer, "changes", lambda _resizer, *_: list(self.due))
        monkeypatch.setattr(pool_sizes.Resizer, "send", lambda resizer, *_: self._resize(resizer))

    def run(self, **more: Any) -> reconcile.Run:
        done = reconcile.Run()
        given = replace(self.settings(), **more)
        reconcile.run(given, done)
        return done

    def settings(self) -> reconcile.Settings:
        targets = [apply.Target(name, lambda _control: None) for name in NAMES]  # type: ignore[arg-type,return-value]
        return reconcile.Settings(
            fleet_inputs.Settings(("manifests",), str(self.folder)), self._observe, apply.Settings("", targets)
        )

    def _observe(self, _before: Any) -> Any:
        seen = {name: SimpleNamespace(unreachable="silent" if name in self.unreachable else "") for name in NAMES}
        return SimpleNamespace(clusters=seen, document=dict, control=SimpleNamespace(entry=len(self.applied)))

    def _build(self, given: fleet_inputs.Settings) -> Any:
        self.modes.append(given.check_mode)
        return Built()

    def _apply(self, settings: apply.Settings) -> apply.Outcomes:
        names = tuple(target.name for target in settings.targets)
        self.waits.append(settings.options.wait)
        if settings.options.check_mode:
            return apply.Outcomes({name: outcome(sent=int(self.differs)) for name in names})
        self.applied.append(names)
        return apply.Outcomes({name: self._outcome(name) for name in names})

    def _decide(self, _settings: apply.Settings, _known: object) -> apply.Decision:
        return apply.Decision(2, not self.decided, ("east",), {"north": apply.Failure("it is no cluster of the fleet")})

    def _resize(self, resizer: pool_sizes.Resizer) -> None:
        if self.due:
            self.applied.append(tuple(f"{each.cluster}/{each.pool}" for each in self.due))
        resizer.sizes.resized += self.due
        self.due = []

    def _outcome(self, name: str) -> Applied:
        self.changes[name] -= 1
        return outcome(changed=self.changes[name] >= 0, failed=name in self.broken)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    return Fleet(tmp_path, monkeypatch)


def test_nothing_is_applied_while_everything_is_as_it_should_be(fleet: Fleet) -> None:
    fleet.differs = False
    done = fleet.run()
    assert (fleet.applied, done.applied, set(done.clusters)) == ([], [], set(NAMES))


@pytest.mark.parametrize("more", [{"state": "planned"}, {"state": "built"}])
def test_a_run_ends_where_it_is_asked_to(fleet: Fleet, more: dict[str, Any]) -> None:
    fleet.run(**more)
    assert fleet.applied == []
    assert fleet.modes == [more["state"] == "planned"]


def test_check_mode_only_compares(fleet: Fleet) -> None:
    given = fleet.settings()
    done = fleet.run(building=replace(given.building, check_mode=True))
    assert (fleet.applied, fleet.modes, len(done.applied)) == ([], [True], 1)


def test_rounds_go_on_with_clusters_that_were_built_again_until_nothing_changes(fleet: Fleet) -> None:
    fleet.changes, fleet.rebuilt = {"east": 3, "west": 1}, ["east"]
    fleet.run()
    assert fleet.applied == [NAMES, ("east",), ("east",), ("east",)]


def test_rounds_end_when_there_were_enough(fleet: Fleet) -> None:
    fleet.changes, fleet.rebuilt = {"east": 9, "west": 9}, NAMES
    fleet.run(rounds=2)
    assert fleet.applied == [NAMES, NAMES]


def test_a_cluster_that_failed_is_tried_again_and_one_that_is_silent_is_not(fleet: Fleet) -> None:
    fleet.broken = {"west"}
    done = fleet.run()
    assert fleet.applied == [NAMES, ("west",)]
    assert [name for name, each in done.clusters.items() if apply.is_failed(each)] == ["west"]
    fleet.applied.clear()
    fleet.changes, fleet.unreachable = {"east": 1, "west": 1}, {"west"}
    assert set(fleet.run().clusters) == {"east"}
    assert fleet.applied == [("east",)]


def test_nodes_are_started_before_what_needs_them_is_applied(fleet: Fleet) -> None:
    fleet.due = [Resize("east", "gpu", 0, 2)]
    done = fleet.run()
    assert fleet.applied[:2] == [("east/gpu",), NAMES]
    assert done.sizes.resized == [Resize("east", "gpu", 0, 2)]


@pytest.mark.parametrize(("after", "wait"), [(2, 60.0), (0, 0.0)])
def test_a_run_that_has_nothing_else_to_do_waits_for_nodes_that_start_only(
    fleet: Fleet, after: int, wait: float
) -> None:
    fleet.differs, fleet.changes = False, {"east": 0, "west": 0}
    fleet.due = [Resize("east", "gpu", 1, after)]
    fleet.run(wait=60.0)
    assert (fleet.applied, fleet.waits[1:]) == ([("east/gpu",), NAMES], [wait])


@pytest.mark.parametrize("differs", [True, False])
def test_check_mode_reports_which_sizes_would_change(fleet: Fleet, differs: bool) -> None:
    fleet.differs, fleet.due = differs, [Resize("east", "gpu", 0, 2)]
    done = fleet.run(building=replace(fleet.settings().building, check_mode=True))
    assert (fleet.applied, done.sizes.resized) == ([], [Resize("east", "gpu", 0, 2)])


def test_a_plan_asks_no_cloud(fleet: Fleet) -> None:
    fleet.due = [Resize("east", "gpu", 0, 2)]
    assert fleet.run(state="planned").sizes.resized == []


@pytest.mark.parametrize("is_new", [True, False])
def test_a_run_that_decides_applies_to_no_workload_cluster(fleet: Fleet, is_new: bool) -> None:
    fleet.differs, fleet.decided = False, not is_new
    done = fleet.run(state="decided")
    assert fleet.applied == [()] * is_new
    assert done.decision == apply.Decision(2, is_new, ("east",), done.decision.failures if done.decision else {})
    assert [name for name, each in done.clusters.items() if apply.is_failed(each)] == ["north"]
