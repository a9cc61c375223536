# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The role existing_cluster: its variables, and that it knows the components of the stack as their role does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks import components
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.openshift import (
    ENGINES,
    NON_ROOT,
    PRIVILEGED,
)
from ansible_collections.modelplane.fleet.plugins.modules import cluster_check

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "roles" / "existing_cluster"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_every_variable_is_documented_for_every_entry_point() -> None:
    defaults = read(ROLE / "defaults/main.yml")
    specs = read(ROLE / "meta/argument_specs.yml")["argument_specs"]
    assert set(specs) == {path.stem for path in (ROLE / "tasks").glob("*.yml")}
    for spec in specs.values():
        assert set(spec["options"]) == set(defaults)
        assert all(option["description"] for option in spec["options"].values())


def test_the_module_does_by_default_what_the_role_does() -> None:
    options = cluster_check.ARGUMENTS["argument_spec"]
    assert (
        options["engine_constraint"]["default"]
        == read(ROLE / "defaults/main.yml")["existing_cluster_engine_constraint"]
    )
    stack = read(ROOT / "roles/serving_stack/defaults/main.yml")
    assert options["stuck_after"]["default"] == stack["serving_stack_stuck_after"]
    assert options["gateway_api_crds"]["default"] == stack["serving_stack_gateway_api_crds"]


def test_controllers_are_reported_by_images_of_components_that_there_are() -> None:
    known = {
        each["key"]: each for each in read(ROOT / "roles/serving_stack/defaults/main.yml")["serving_stack_components"]
    }
    assert set(components.IMAGES) <= set(known)
    # Where the chart's own values name the image, it is one of those that are searched.
    for key, images in components.IMAGES.items():
        named = [image for image in known[key].get("images", {}).values() if "/" in image]
        if named:
            assert any(f"/{image}".endswith(f"/{each}") for image in named for each in images), key


def test_the_page_names_what_pods_may_use_on_openshift() -> None:
    page = (ROOT / "docs/openshift.md").read_text()
    for name in (ENGINES, NON_ROOT, PRIVILEGED):
        assert f"`{name}`" in page
