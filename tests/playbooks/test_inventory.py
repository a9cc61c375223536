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


def refused(name: str, folder: Path, inventory: object, manifests: str = "") -> str:
    """Return the output of a failed run, in one line. The manifests are those of the quick start and more."""
    (folder / "hosts.yml").write_text(json.dumps(inventory))
    (folder / "more.yaml").write_text(manifests)
    output = " ".join(
        "".join(run("ansible-playbook", f"modelplane.fleet.{name}", "-i", str(folder / "hosts.yml"))).split()
    )
    assert re.search(r"failed=[1-9]", output), output
    assert "Undefined" not in output
    return output


@pytest.mark.parametrize("groups", [{}, {"control_plane": {"hosts": {}}}])
@pytest.mark.parametrize("name", ["validate", "plan"])
def test_settings_of_a_group_that_no_playbook_reads_say_where_they_belong(
    tmp_path: Path, name: str, groups: dict[str, object]
) -> None:
    settings = {"fleet_resources": ["more.yaml"], "fleet_build": "build"}
    clusters = {"vars": settings, "hosts": {"east": {"fleet_target": "directory"}}}
    output = refused(name, tmp_path, {"all": {"children": {"workload_clusters": clusters, **groups}}})
    assert "localhost: fleet_resources is not set: set it to the manifests of the fleet" in output
    assert "in group_vars/all, or for a host in control_plane" in output


GATEWAY = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {name: edge}
spec:
  mode: Model
  clusterName: eks-us-west
  auth: {method: APIKey, apiKey: {secretSelector: {matchLabels: {modelplane.ai/keys: callers}}}}
"""
STACK = """
apiVersion: infrastructure.modelplane.ai/v1alpha1
kind: ServingStack
metadata: {name: west, namespace: modelplane-system, labels: {modelplane.ai/cluster: eks-us-west}}
spec:
  secrets: [{type: Kubeconfig, name: west, key: kubeconfig}]
  versions: {envoyGateway: v1.7.2}
"""
OLD = {
    "variable": (
        {"ai-gateway": "v1.1.0"},
        GATEWAY,
        "ai-gateway: version v1.1.0 is too old because its controller crashes",
    ),
    "CRDs": ({"ai-gateway-crds": "v0.7.0"}, GATEWAY, "ai-gateway-crds: version v0.7.0 is too old"),
    "pair": (
        {"envoy-gateway": "v1.8.1"},
        GATEWAY,
        "envoy-gateway: version v1.8.1 is too old because Envoy AI Gateway v1.2 does not support it",
    ),
    "without a gateway": ({"envoy-gateway": "v1.7.9"}, "", "envoy-gateway: version v1.7.9 is too old"),
    "ServingStack": ({}, STACK, "envoy-gateway: version v1.7.2 is too old, it has to be v1.8.0 or newer"),
}


@pytest.mark.parametrize(("versions", "manifests", "problem"), OLD.values(), ids=OLD)
def test_validation_refuses_versions_that_the_stack_does_not_work_with(
    tmp_path: Path, versions: dict[str, str], manifests: str, problem: str
) -> None:
    folder = ROOT / "inventories/quickstart/manifests"
    files = [folder / "classes.yaml", folder / "clusters.yaml", tmp_path / "more.yaml"]
    settings = {"fleet_resources": list(map(str, files))}
    west = {"fleet_target": "kubernetes", "serving_stack_versions": versions} if versions else {}
    clusters = {"hosts": {"eks-us-west": west, "byo-us-east": {}}}
    inventory = {"all": {"vars": settings, "children": {"workload_clusters": clusters}}}
    output = refused("validate", tmp_path, inventory, manifests)
    assert f"eks-us-west: {problem}" in output
    assert "filter plugin" not in output
