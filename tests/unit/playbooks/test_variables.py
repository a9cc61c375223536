# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Variables that playbooks share, templated as Ansible does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

# Importing Ansible's own filters looks for C libraries, with a program.
pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
HOSTVARS: dict[str, dict[str, Any]] = {
    "control": {},
    "near": {"fleet_target": "kubernetes", "fleet_kubeconfig": "near"},
    "far": {"fleet_target": "kubernetes", "fleet_kubeconfig": "far", "fleet_cluster": "away"},
    "lab": {"fleet_target": "directory", "fleet_cluster": "laboratory"},
    "edge": {},
}
GROUPS = {"control_plane": ["control"], "workload_clusters": ["near", "far", "lab", "edge"]}


def value(name: str, **variables: Any) -> Any:
    shared = yaml.safe_load((ROOT / "playbooks/vars/fleet.yml").read_text())
    plan = yaml.safe_load((ROOT / "playbooks/plan.yml").read_text())[0]["vars"]
    assert plan["_fleet_names"] == shared["_fleet_names"]
    trusted = {key: trust_as_template(text) if isinstance(text, str) else text for key, text in shared.items()}
    templar = Templar(DataLoader(), {**trusted, "hostvars": HOSTVARS, "groups": GROUPS, **variables})
    return templar.template(trusted[name])


@pytest.mark.parametrize(
    ("hosts", "others"), [(["near", "far", "lab", "edge"], []), (["near"], ["away"]), (["lab"], ["away", "near"])]
)
def test_who_is_looked_at_who_is_not_and_who_is_files(hosts: list[str], others: list[str]) -> None:
    reached = [
        {"name": HOSTVARS[host].get("fleet_cluster", host)} for host in hosts if "fleet_kubeconfig" in HOSTVARS[host]
    ]
    assert value("_fleet_names", _fleet_clusters=reached) == ["near", "away", "laboratory", "edge"]
    assert value("_fleet_declared", _fleet_clusters=reached) == ["laboratory", "edge"]
    assert sorted(value("_fleet_others", _fleet_clusters=reached)) == others


def test_a_fleet_without_an_inventory_has_no_hosts() -> None:
    for name in ("_fleet_names", "_fleet_declared", "_fleet_others"):
        assert value(name, groups={"all": ["localhost"]}, _fleet_clusters=[]) == []
