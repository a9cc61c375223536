# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Staged rollouts on GitOps clusters: each run changes as many replicas as the bounds allow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import identity

sys.path.insert(0, str(Path(__file__).parent))

from observed_fleet import Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Return a fleet with one replica on each of two GitOps clusters."""
    made = Fleet(tmp_path)
    made.declared = {"east", "west"}
    made.settle()
    return made


def engines(fleet: Fleet) -> dict[tuple[str, ...], Any]:
    return {
        identity(value): value["spec"]["template"]
        for value in fleet.objects("clusters", "Deployment")
        if not value["metadata"]["name"].endswith("-epp")
    }


def edit_image(fleet: Fleet) -> dict[str, Any]:
    fleet.edit("vllm-openai:v0.23.0", "vllm-openai:v0.24.0")
    return {}


def change_setting(_fleet: Fleet) -> dict[str, Any]:
    return {"composing": Options(stream_grace=60)}


@pytest.mark.parametrize("change", [edit_image, change_setting])
def test_each_staged_run_restarts_one_replica(fleet: Fleet, change: Callable[[Fleet], dict[str, Any]]) -> None:
    more = {**change(fleet), "staged": "step"}
    for restarted in (1, 1, 0):
        before = engines(fleet)
        outcome = fleet.run(**more)
        after = engines(fleet)
        assert after.keys() == before.keys()
        assert sum(after[key] != before[key] for key in before) == restarted
        assert bool(outcome.plan.rollouts) == bool(restarted)
        assert len(outcome.plan.edited) == restarted


def test_a_run_without_staging_restarts_all_replicas(fleet: Fleet) -> None:
    before = engines(fleet)
    fleet.run(**change_setting(fleet))
    after = engines(fleet)
    assert [after[key] != before[key] for key in before] == [True, True]


def test_a_revert_during_a_staged_rollout_restarts_one_replica(fleet: Fleet) -> None:
    first = engines(fleet)
    fleet.run(**change_setting(fleet), staged="step")
    fleet.run(staged="step")
    assert engines(fleet) == first
