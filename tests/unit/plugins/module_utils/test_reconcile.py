# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rounds of a run: who is applied to when, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.apply import Applied
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.write import Result
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import apply, build, reconcile

NAMES = ("east", "west")


def outcome(changed: bool = False, failed: bool = False, sent: int = 0) -> Applied:
    action = "failed" if failed else "created" if changed else "unchanged"
    return Applied((Result("", "ConfigMap", "", "it", action),), requests={"dry-run": sent})


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
        monkeypatch.setattr(build, "build", self._build)
        monkeypatch.setattr(build, "touched", lambda _outcome: list(self.rebuilt))
        monkeypatch.setattr(apply, "run", self._apply)

    def run(self, **more: Any) -> reconcile.Run:
        done = reconcile.Run()
        given = replace(self.settings(), **more)
        reconcile.run(given, done)
        return done

    def settings(self) -> reconcile.Settings:
        targets = [apply.Target(name, lambda _control: None) for name in NAMES]  # type: ignore[arg-type,return-value]
        return reconcile.Settings(
            build.Settings(("manifests",), str(self.folder)), self._observe, apply.Settings("", targets)
        )

    def _observe(self) -> Any:
        seen = {name: SimpleNamespace(unreachable="silent" if name in self.unreachable else "") for name in NAMES}
        return SimpleNamespace(clusters=seen, document=dict)

    def _build(self, given: build.Settings) -> Any:
        self.modes.append(given.check_mode)
        return SimpleNamespace(changes=())

    def _apply(self, settings: apply.Settings) -> apply.Outcomes:
        names = tuple(target.name for target in settings.targets)
        if settings.options.check_mode:
            return apply.Outcomes({name: outcome(sent=int(self.differs)) for name in names})
        self.applied.append(names)
        return apply.Outcomes({name: self._outcome(name) for name in names})

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
