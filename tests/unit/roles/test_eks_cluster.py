# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The role eks_cluster: its variables, its components, and the classes of nodes that come with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import Choices, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Source, load

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "roles" / "eks_cluster"
DEFAULTS = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
SPECS = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]
COMPONENTS = DEFAULTS["eks_cluster_components"]
CLASSES = sorted((ROOT / "playbooks" / "files" / "classes").rglob("*.yaml"))
MEMORY = {
    "l4": "23034Mi",
    "l40s": "46068Mi",
    "a100": "40960Mi",
    "a100-80gb": "81920Mi",
    "h100": "81559Mi",
    "h200": "143771Mi",
    "b200": "183359Mi",
    "mi300x": "196592Mi",
}
"""What drivers report of each GPU."""


def test_every_variable_is_described() -> None:
    for entry in SPECS.values():
        assert set(entry["options"]) == set(DEFAULTS)
        given = {name: option["default"] for name, option in entry["options"].items() if "default" in option}
        assert {name: DEFAULTS[name] for name in given} == given


def test_states_name_the_components() -> None:
    assert set(SPECS["main"]["options"]["eks_cluster_states"]["options"]) == {each["key"] for each in COMPONENTS}


def test_releases_are_those_of_the_reference() -> None:
    planned = {
        entry["release"]: (entry["version"], entry["namespace"], entry["repository"])
        for entry in plan([each for each in COMPONENTS if "chart" in each], Choices())
    }
    assert planned == {
        "mp-cluster-autoscaler": ("9.57.0", "kube-system", "https://kubernetes.github.io/autoscaler"),
        "mp-aws-dranet": ("1.0.0", "kube-system", "https://aws.github.io/eks-charts"),
    }


@pytest.mark.parametrize("path", CLASSES, ids=lambda path: path.stem)
def test_a_class_is_valid_and_promises_what_drivers_report(path: Path) -> None:
    loaded = load([Source(str(path), path.read_bytes())])
    assert loaded.problems == ()
    (found,) = loaded.resources
    assert found.name == path.stem
    value = yaml.safe_load(path.read_text())
    gpu = value["spec"]["devices"][0]
    kind = re.sub(r"^(eks|gke|byo)-|-\d+x.*$", "", path.stem)
    assert gpu["capacity"]["memory"]["value"] == MEMORY[kind]
    (count,) = re.findall(r"-(\d+)x", path.stem)
    assert gpu["count"] == int(count)
    provisioning = value["spec"].get("provisioning") or {}
    assert provisioning.get("provider", "existing").lower() == path.parent.name
    for block in (provisioning.get("eks"), provisioning.get("gke")):
        assert block is None or block["accelerator"]["count"] == int(count)


def test_the_classes_are_in_the_documentation() -> None:
    page = (ROOT / "docs" / "eks.md").read_text()
    assert [
        path.stem for path in CLASSES if re.sub(r"-\d+x-", "-1x-", path.stem) not in page and path.stem not in page
    ] == []
