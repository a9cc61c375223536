# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module cloud_cluster_info: which resources it tells, and which it leaves out."""

from __future__ import annotations

from pathlib import Path

import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cluster import cluster_objects
from ansible_collections.modelplane.fleet.plugins.modules import cloud_cluster_info
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.running import good, refused

DATA = Path(__file__).parents[3] / "data"


def test_clusters_and_their_classes() -> None:
    found = good(cloud_cluster_info, resources=[str(DATA / "eks"), str(DATA / "manifests/concepts")])
    kinds = {value["kind"] for value in found["resources"]}
    assert kinds == {"EKSCluster", "InferenceCluster", "InferenceClass"}
    assert all(set(value) == {"apiVersion", "kind", "metadata", "spec"} for value in found["resources"])
    assert found["replicas"] == {}


def test_what_was_composed_is_left_out(tmp_path: Path) -> None:
    classes = DATA / "manifests/concepts/inference-class-eks-l4.yaml"
    cluster = DATA / "manifests/seeds/inference-cluster-eks.yaml"
    read = {path: yaml.safe_load(path.read_text()) for path in (classes, cluster)}
    name = read[classes]["metadata"]["name"]
    (composed, _stack) = cluster_objects(read[cluster], {name: read[classes]})
    (tmp_path / "composed.yaml").write_text(yaml.safe_dump(composed))
    found = good(cloud_cluster_info, resources=[str(tmp_path), str(classes), str(cluster)])
    assert [value["kind"] for value in found["resources"]] == ["InferenceClass", "InferenceCluster"]


def test_faulty_manifests(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("apiVersion: modelplane.ai/v1alpha1\nkind: InferenceCluster\n")
    assert "2 errors in the manifests" in refused(cloud_cluster_info, resources=[str(tmp_path)])
