# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.modelplane.fleet.plugins.modules import schedule
from ansible_collections.modelplane.fleet.tests.module_run import run_module

SAMPLE = Path(__file__).parents[4] / "inventories" / "quickstart" / "manifests"


def run(**more: Any) -> dict[str, Any]:
    return run_module(schedule, {"resources": [SAMPLE.name], "chdir": str(SAMPLE.parent), **more})


def test_the_budget_of_selectors_is_that_of_the_argument() -> None:
    assert not run()["failed"]
    found = run(selector_budget=5)
    assert not found["failed"]
    assert {pending["reason"] for pending in found["pending"]} == {"SelectorBudgetExceeded"}
