# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The playbooks on an inventory that the plugin makes of the manifests."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.tests.ansible_run import ROOT, run


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """The sample fleet as an inventory of the plugin, its clusters as folders."""
    path = tmp_path / "fleet.yml"
    manifests = json.dumps([str(ROOT / "inventories/quickstart/manifests")])
    path.write_text(f"plugin: modelplane.fleet.fleet\nresources: {manifests}\nbuild: build\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/workload_clusters.yml").write_text("fleet_target: directory\n")
    return path


def recap(output: str) -> dict[str, str]:
    """The numbers of each host, as they are printed."""
    lines = output.partition("PLAY RECAP")[2].splitlines()[1:]
    found = {name.strip(): " ".join(rest.split()) for name, _, rest in (line.partition(":") for line in lines) if rest}
    assert found, output
    return found


def test_site_hands_over_to_every_cluster_of_the_manifests(fleet: Path) -> None:
    output, reported = run("ansible-playbook", "modelplane.fleet.site", "-i", str(fleet))
    assert "inventory" not in reported
    found = recap(output)
    assert set(found) == {"control", "byo-us-east", "eks-us-west", "gke-us-central"}
    assert [name for name, numbers in found.items() if not re.search("unreachable=0 failed=0", numbers)] == []
    build = fleet.parent / "build"
    assert (build / "plan.json").is_file()
    assert str(build / "clusters" / "eks-us-west") in output


def test_groups_of_the_manifests_limit_a_play(fleet: Path) -> None:
    output, _ = run("ansible", "source_eks:region_us_central1", "-i", str(fleet), "--list-hosts")
    assert output.split()[2:] == ["eks-us-west", "gke-us-central"]
