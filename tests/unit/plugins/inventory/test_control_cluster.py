# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The inventory plugin on a real API server that knows the clusters of the fleet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.tests.ansible_run import ROOT, inventory
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

CRDS = ROOT / "roles/control_plane/files/crds"
READER = [{"apiGroups": ["modelplane.ai"], "resources": ["inferenceclusters"], "verbs": ["list"]}]
MANAGED = {"app.kubernetes.io/managed-by": "modelplane.fleet"}


def cluster(name: str, region: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": name, "labels": labels},
        "spec": {"cluster": {"source": "EKS", "eks": {"region": region}}},
    }


def existing(name: str) -> dict[str, Any]:
    source = {"source": "Existing", "existing": {"secretRef": {"name": f"{name}-kubeconfig"}}}
    return {**cluster(name, ""), "spec": {"cluster": source}}


@pytest.fixture(scope="module")
def control(
    kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A control cluster with four clusters in it; `copied` was put there by this collection."""
    folder = tmp_path_factory.mktemp("control")
    with ControlPlane(kubernetes_programs, "control", folder, components=()) as started:
        started.install_crds(CRDS)
        started.apply(
            [
                cluster("west", "us-west-2", tier="gold"),
                cluster("east", "us-east-1"),
                cluster("copied", "us-east-1", **MANAGED),
                existing("mine"),
            ]
        )
        yield started


def listed(folder: Path, text: str, **environment: str) -> tuple[dict[str, Any], str]:
    """Return what --list prints of an inventory file, and what goes to stderr."""
    (folder / "fleet.yml").write_text(f"plugin: modelplane.fleet.fleet\n{text}")
    return inventory(folder / "fleet.yml", XDG_CACHE_HOME=str(folder / "xdg"), **environment)


def manifests(folder: Path, *objects: dict[str, Any]) -> None:
    (folder / "clusters.yaml").write_text(yaml.safe_dump_all(objects))


def test_the_clusters_of_the_control_cluster(control: ControlPlane, tmp_path: Path) -> None:
    """By a user who may list InferenceClusters and nothing else."""
    kubeconfig = control.user_kubeconfig("inventory", rules=READER)
    (tmp_path / "control.yaml").symlink_to(kubeconfig)
    found, reported = listed(tmp_path, "control: {kubeconfig: control.yaml}\n")
    assert reported == ""
    assert found["workload_clusters"]["hosts"] == ["copied", "east", "mine", "west"]
    assert found["label_tier_gold"]["hosts"] == ["west"]
    assert found["target_kubernetes"]["hosts"] == ["copied", "east", "mine", "west"]
    variables = found["_meta"]["hostvars"]
    assert variables["control"]["fleet_control"] == {"kubeconfig": str(tmp_path / "control.yaml")}
    assert variables["mine"]["fleet_connection"]["secret"]["name"] == "mine-kubeconfig"
    assert variables["copied"]["fleet_labels"] == {}
    assert control.kubeconfig.read_text() not in json.dumps(found)


def test_manifests_and_the_control_cluster(control: ControlPlane, tmp_path: Path) -> None:
    """The manifest counts where the control cluster says the same or has our copy; another text is an error."""
    both = f"resources: [clusters.yaml]\ncontrol: {{kubeconfig: {control.kubeconfig}}}\n"
    same, moved, new = cluster("west", "us-west-2", tier="gold"), cluster("copied", "eu-west-1"), cluster("new", "x-1")
    manifests(tmp_path, same, moved, new)
    found, reported = listed(tmp_path, both)
    assert reported == ""
    assert found["workload_clusters"]["hosts"] == ["copied", "east", "mine", "new", "west"]
    assert found["_meta"]["hostvars"]["copied"]["fleet_region"] == "eu-west-1"
    manifests(tmp_path, cluster("west", "us-west-1", tier="gold"), cluster("east", "us-east-1", tier="tin"))
    found, reported = listed(tmp_path, both)
    assert found["_meta"]["hostvars"] == {}
    for name in ("east", "west"):
        assert f"InferenceCluster {name}: Is on the control cluster too, where it differs" in reported


def test_a_control_cluster_that_cannot_be_read(control: ControlPlane, tmp_path: Path) -> None:
    """One sentence names the cause, and there is no half of an inventory."""
    outsider = control.user_kubeconfig("outsider")
    for kubeconfig, words in ((outsider, "inferenceclusters"), (tmp_path / "missing.yaml", "missing.yaml")):
        found, reported = listed(tmp_path, f"control: {{kubeconfig: {kubeconfig}}}\n")
        assert found["_meta"]["hostvars"] == {}
        assert "cluster control" in reported
        assert words in reported


def test_a_cached_inventory_asks_no_one(control: ControlPlane, tmp_path: Path) -> None:
    kubeconfig = control.user_kubeconfig("cached", rules=READER)
    text = "control: {kubeconfig: \"{{ lookup('env', 'FLEET_CONTROL') }}\"}\ncache: true\n"
    settings = {
        "FLEET_CONTROL": str(kubeconfig),
        "ANSIBLE_INVENTORY_CACHE_CONNECTION": str(tmp_path / "cache"),
        "ANSIBLE_INVENTORY_CACHE_PLUGIN": "jsonfile",
    }
    first, _ = listed(tmp_path, text, **settings)
    position = control.audit_position()
    second, _ = listed(tmp_path, text, **settings)
    assert second == first
    assert first["workload_clusters"]["hosts"]
    assert control.requests(position, users={"cached"}) == []
    (entry,) = (tmp_path / "cache").glob("*")
    secrets = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    for secret in map(str, secrets.values()):
        assert secret not in entry.read_text()


def test_clusters_of_a_cloud_on_the_control_cluster(control: ControlPlane, tmp_path: Path) -> None:
    """Those that users created there; not what an InferenceCluster became."""
    pool = {"name": "g", "role": "GPU", "instanceType": "g6.xlarge", "zones": ["eu-west-1a"]}
    written = {
        "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
        "kind": "EKSCluster",
        "metadata": {"name": "own", "namespace": "default"},
        "spec": {"region": "eu-west-1", "nodePools": [{**pool, "gpu": {"acceleratorType": "l4"}}]},
    }
    labels = {**MANAGED, "modelplane.ai/cluster": "gone"}
    composed = {**written, "metadata": {"name": "gone", "namespace": "default", "labels": labels}}
    control.apply([written, composed])
    (tmp_path / "control.yaml").symlink_to(control.kubeconfig)
    found, reported = listed(tmp_path, "control: {kubeconfig: control.yaml}\n")
    assert reported == ""
    assert found["workload_clusters"]["hosts"] == ["copied", "east", "mine", "own", "west"]
    assert found["_meta"]["hostvars"]["own"]["fleet_connection"] == {
        "eks": {"cluster": "default-own-eks-61b85", "region": "eu-west-1"}
    }


def test_a_new_control_cluster_has_no_clusters_yet(control: ControlPlane, tmp_path: Path) -> None:
    """The first run installs the definitions there. With nothing else to read, that would be an empty fleet."""
    (tmp_path / "control.yaml").symlink_to(control.kubeconfig)
    manifests(tmp_path, cluster("west", "us-west-2"))
    for path in CRDS.glob("*.yaml"):
        name = path.name.partition(".")[0]
        group = yaml.safe_load(path.read_text())["spec"]["group"]
        control.objects.delete("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{name}.{group}")
    served = ("modelplane.ai/v1alpha1", "InferenceCluster")
    control.wait_for("the definitions to be gone", lambda: not control.objects.knows(*served))
    found, reported = listed(tmp_path, "resources: [clusters.yaml]\ncontrol: {kubeconfig: control.yaml}\n")
    assert (found["workload_clusters"]["hosts"], reported) == (["west"], "")
    found, reported = listed(tmp_path, "control: {kubeconfig: control.yaml}\n")
    assert "the server serves no InferenceCluster" in reported
    assert "workload_clusters" not in found
