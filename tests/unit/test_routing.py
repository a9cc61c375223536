# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""One action plugin runs every module: by what meta/runtime.yml says, and by what Ansible makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MODULES = sorted(path.stem for path in (ROOT / "plugins/modules").glob("*.py"))
ACTION = "modelplane.fleet.in_process"


@pytest.fixture(scope="module")
def runtime() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "meta/runtime.yml").read_text(encoding="utf-8")))


def test_every_module_has_the_one_action(runtime: dict[str, Any]) -> None:
    routed = runtime["plugin_routing"]["modules"]
    assert routed == {module: {"action_plugin": ACTION} for module in MODULES}


def test_no_module_has_an_action_of_its_own() -> None:
    assert [path.stem for path in (ROOT / "plugins/action").glob("[!_]*.py")] == ["in_process"]


def test_every_module_is_in_the_group_for_defaults(runtime: dict[str, Any]) -> None:
    assert runtime["action_groups"]["fleet"] == MODULES
