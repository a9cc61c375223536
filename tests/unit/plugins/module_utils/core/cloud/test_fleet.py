# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Clusters that are to be provisioned, and the resources of a fleet that they come from."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.fleet import clusters, problems
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import plan as gke_plan
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.control_cluster import published_copy
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import (
    Object,
    eks,
    gpu,
    inference_class,
    inference_cluster,
)
from ansible_collections.modelplane.fleet.tests.written import cluster_objects

CLASS = inference_class()
AWS_NAME = "modelplane-system-eks-us-west-eks-03b8e"
SECRET = "eks-us-west-kubeconfig-ef123"


def existing(secret: str = SECRET, name: str = "eks-us-west") -> Object:
    found = inference_cluster(name=name)
    found["spec"] = {"cluster": {"source": "Existing", "existing": {"secretRef": {"name": secret}}}}
    return found


def made(cluster: Object | None = None) -> Object:
    """The object that an InferenceCluster became, as it is on a control cluster."""
    found = deepcopy(cluster_objects(cluster or inference_cluster(), {"l4": CLASS})[0])
    found["metadata"].update(uid="1f", managedFields=[{}])
    return {**found, "status": {"conditions": []}}


def gke(name: str = "gke") -> Object:
    pool = {"name": "gpu", "role": "GPU", "machineType": "g2-standard-8", "zones": ["us-central1-a"]}
    return {
        "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
        "kind": "GKECluster",
        "metadata": {"name": name, "namespace": "modelplane-system"},
        "spec": {"region": "us-central1", "nodePools": [{**pool, "gpu": {"acceleratorType": "nvidia-l4"}}]},
    }


def replica(name: str, cluster: str) -> Object:
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelReplica",
        "metadata": {"name": name, "namespace": "ml-team", "labels": {"modelplane.ai/cluster": cluster}},
    }


def test_an_inference_cluster() -> None:
    found = clusters([], [CLASS, inference_cluster()])
    assert list(found) == ["eks-us-west"]
    entry = found["eks-us-west"]
    assert entry["object"]["metadata"] == {
        "name": "eks-us-west",
        "namespace": "modelplane-system",
        "labels": {"app.kubernetes.io/managed-by": "modelplane.fleet", "modelplane.ai/cluster": "eks-us-west"},
    }
    assert plan(entry.pop("object"))["name"] == AWS_NAME
    assert entry == {
        "source": "EKS",
        "provider": "eks",
        "replicas": 0,
        "problems": [],
        "cloud_name": AWS_NAME,
        "project": "",
    }


POOLS: dict[str, tuple[dict[str, int], tuple[int, int, int]]] = {
    "fixed": ({"nodeCount": 3}, (3, 3, 3)),
    "fixed at none": ({"nodeCount": 0}, (0, 1, 0)),
    "bounded": ({"nodeCount": 1, "minNodeCount": 0, "maxNodeCount": 4}, (0, 4, 1)),
    "at least": ({"nodeCount": 2, "minNodeCount": 1}, (1, 2, 2)),
    "at most": ({"nodeCount": 2, "maxNodeCount": 4}, (2, 4, 2)),
}


@pytest.mark.parametrize(("numbers", "sizes"), POOLS.values(), ids=POOLS)
def test_pools_without_bounds_are_fixed(numbers: dict[str, int], sizes: tuple[int, int, int]) -> None:
    pool = {"name": "gpu-l4", "className": "l4", "zones": ["us-west-2a"], **numbers}
    found = clusters([], [CLASS, inference_cluster(pool)])
    group = plan(found["eks-us-west"]["object"])["node_groups"][1]
    assert (group["min_size"], group["max_size"], group["desired_size"]) == sizes


def test_one_that_a_user_wrote() -> None:
    written = {**eks(), "status": {"conditions": []}}
    written["metadata"].update(annotations={"a": "b"})
    found = clusters([], [written])
    assert found["eks-us-west"] == {
        "source": "EKS",
        "provider": "eks",
        "object": eks(),
        "replicas": 0,
        "problems": [],
        "cloud_name": AWS_NAME,
        "project": "",
    }


def test_the_namespace_that_a_manifest_leaves_out() -> None:
    written = api.parse({**eks(), "metadata": {"name": "eks-us-west"}})
    found = clusters([], [api.wire(written, set_only=True)])
    assert found["eks-us-west"]["object"]["metadata"] == {"name": "eks-us-west", "namespace": "default"}
    assert found["eks-us-west"]["cloud_name"].startswith("default-eks-us-west-eks-")


def google(*pools: Object, **block: Any) -> Object:
    """An InferenceCluster with source GKE."""
    found = inference_cluster(*pools, name="gke")
    found["spec"]["cluster"] = {"source": "GKE", "gke": {"region": "us-central1", **block}}
    return found


GKE_NAME = "modelplane-system-gke-gke-bfac1"


def test_a_gke_cluster_that_a_user_wrote() -> None:
    assert clusters([], [gke()])["gke"] == {
        "source": "GKE",
        "provider": "gke",
        "object": gke(),
        "replicas": 0,
        "problems": [],
        "cloud_name": GKE_NAME,
        "project": "",
    }
    written = gke()
    written["spec"]["project"] = "my-project"
    entry = clusters([], [existing("gke-kubeconfig-58c47", name="gke"), written])["gke"]
    assert (entry["source"], entry["problems"], entry["project"]) == ("Existing", [], "my-project")


@pytest.mark.parametrize("project", ["", "my-project"])
def test_an_inference_cluster_with_source_gke(project: str) -> None:
    pool = {"name": "gpu-l4", "className": "l4", "zones": ["us-central1-a"]}
    source = google(pool, **({"project": project} if project else {}))
    entry = clusters([], [source, inference_class(provider="GKE")])["gke"]
    assert (entry["source"], entry["provider"], entry["problems"]) == ("GKE", "gke", [])
    assert (entry["cloud_name"], entry["project"]) == (GKE_NAME, project)
    made = gke_plan(entry["object"], "of-credentials")
    assert (made["name"], made["project"]) == (GKE_NAME, project or "of-credentials")


def test_what_is_wrong_with_a_gke_cluster() -> None:
    pool = {"name": "gpu-l4", "className": "l4", "zones": ["us-west-2a"]}
    entry = clusters([], [google(pool), inference_class(provider="GKE"), eks()])["gke"]
    assert entry["problems"] == [
        "InferenceCluster gke, spec.nodePools[0].zones[0]: Is no zone of the region us-central1 (got "
        '"us-west-2a"). Write one such as us-central1-a.'
    ]


def test_clusters_of_other_clouds_and_of_ones_own() -> None:
    other = inference_cluster(name="other")
    other["spec"]["cluster"] = {"source": "Vultr", "vultr": {"region": "ewr"}}
    found = clusters([], [other, existing("x", name="mine")])
    nothing = {"provider": "", "object": {}, "replicas": 0, "problems": [], "cloud_name": "", "project": ""}
    assert found == {"mine": {"source": "Existing", **nothing}, "other": {"source": "Vultr", **nothing}}


def test_what_is_made_already_is_no_second_cluster() -> None:
    """And the manifest counts, not what an older one became."""
    newer = inference_cluster(kubernetesVersion="1.37")
    found = clusters([inference_cluster(), CLASS, made()], [newer])
    assert found["eks-us-west"]["object"]["spec"]["kubernetesVersion"] == "1.37"
    assert found["eks-us-west"]["problems"] == []


def test_the_copy_of_a_manifest_is_no_second_cluster() -> None:
    copy = {**published_copy(api.parse(eks())), "status": {"conditions": []}}
    assert clusters([copy], [eks()])["eks-us-west"] == clusters([], [eks()])["eks-us-west"]
    alone = clusters([copy], [])["eks-us-west"]
    assert alone["problems"] == []
    assert plan(alone["object"]) == plan(eks())


def test_both_under_one_name() -> None:
    found = clusters([], [CLASS, inference_cluster(), eks()])["eks-us-west"]
    assert found["problems"] == [
        "InferenceCluster eks-us-west, spec.cluster.source: Becomes EKSCluster modelplane-system/eks-us-west, and "
        "EKSCluster modelplane-system/eks-us-west is written beside it. Remove one of the two: without the "
        "InferenceCluster, or with its source Existing and secretRef.name eks-us-west-kubeconfig-ef123, the cluster is "
        "made as it is written there."
    ]


def test_one_that_a_user_wrote_as_a_cluster_of_the_fleet() -> None:
    found = clusters([], [existing(), eks()])["eks-us-west"]
    assert found == {**clusters([], [eks()])["eks-us-west"], "source": "Existing"}


UNJOINED = {
    "another Secret": (existing("mine"), eks(), "modelplane-system"),
    "another namespace": (existing(), eks(namespace="infra"), "infra"),
}


@pytest.mark.parametrize(("cluster", "beside", "namespace"), UNJOINED.values(), ids=UNJOINED)
def test_another_cluster_of_the_same_name(cluster: Object, beside: Object, namespace: str) -> None:
    assert clusters([], [cluster, beside])["eks-us-west"]["problems"] == [
        f"InferenceCluster eks-us-west, spec.cluster: Is another cluster than EKSCluster {namespace}/eks-us-west, "
        "which is written beside it under its name. Rename one of the two; to make them one, write source: Existing "
        f"with secretRef.name {SECRET}, and put the EKSCluster into the namespace modelplane-system."
    ]


def test_two_that_a_user_wrote() -> None:
    found = clusters([], [eks(namespace="infra"), eks(), gke("eks-us-west")])["eks-us-west"]
    assert found["object"] == eks()
    assert found["problems"] == [
        f"EKSCluster modelplane-system/eks-us-west, metadata.name: {other} has the same name, which has to be that of "
        "one cluster in the fleet. Rename one of the two."
        for other in ("GKECluster modelplane-system/eks-us-west", "EKSCluster infra/eks-us-west")
    ]


def test_what_was_made_for_an_inference_cluster_that_is_no_more() -> None:
    """It is not created again, and can be removed: a plan of it lists what exists."""
    found = clusters([made()], [CLASS])["eks-us-west"]
    assert found["problems"] == [
        "EKSCluster modelplane-system/eks-us-west: Was made for an InferenceCluster that no longer exists. Write that "
        "InferenceCluster again to keep the cluster, or remove the cluster with modelplane.fleet.teardown."
    ]
    assert plan(found["object"]) == plan(made())


def test_every_impossible_pool_is_reported() -> None:
    pools: list[Any] = [
        {"name": "good", "className": "l4", "zones": ["us-west-2a"]},
        {"name": "none", "className": "h100", "zones": ["us-west-2a"]},
        {"name": "google", "className": "gke-l4", "zones": ["us-west-2a"]},
        {"name": "nowhere", "className": "l4"},
    ]
    other = inference_class("gke-l4", provider="GKE")
    found = clusters([], [CLASS, other, inference_cluster(*pools)])["eks-us-west"]
    assert found["object"] == {}
    assert found["cloud_name"] == AWS_NAME
    assert found["problems"][:2] == [
        "InferenceCluster eks-us-west, spec.nodePools[1]: InferenceClass h100 does not exist.",
        "InferenceCluster eks-us-west, spec.nodePools[2]: InferenceClass gke-l4 has no EKS provisioning block.",
    ]
    assert found["problems"][2].startswith("InferenceCluster eks-us-west, spec.nodePools[3].zones: Must not be empty.")
    assert len(found["problems"]) == 3


def test_errors_of_a_plan_are_reported_with_their_place() -> None:
    pool = {"name": "gpu", "className": "l4", "zones": ["us-east-1a"]}
    found = clusters([], [CLASS, inference_cluster(pool, region="us-west-2a"), eks(name="a.b")])
    assert found["eks-us-west"]["problems"] == [
        'InferenceCluster eks-us-west, spec.cluster.eks.region: Is no name of an AWS region (got "us-west-2a"). Write '
        "us-west-2."
    ]
    assert found["a.b"]["problems"][0].startswith("EKSCluster modelplane-system/a.b, metadata.name: Must have no dots")


def test_an_inference_cluster_of_the_control_cluster_that_is_invalid() -> None:
    broken = inference_cluster()
    broken["spec"]["nodePools"][0]["nodeCount"] = -1
    found = clusters([broken, CLASS], [])["eks-us-west"]
    assert found["object"] == {}
    assert "spec.nodePools[0].nodeCount" in found["problems"][0]


def test_replicas() -> None:
    live = [replica("a", "eks-us-west"), replica("b", "eks-us-west"), replica("c", "other")]
    assert clusters(live, [CLASS, inference_cluster()])["eks-us-west"]["replicas"] == 2


def test_the_same_in_any_order() -> None:
    resources = [CLASS, inference_cluster(), eks(name="one"), eks(gpu(), name="two"), gke(), existing("x", name="mine")]
    first = clusters([], resources)
    for seed in range(5):
        random.Random(seed).shuffle(resources)
        assert clusters([], resources) == first
    assert list(first) == sorted(first)


def test_clouds_refuse_clusters_of_resources_that_are_valid() -> None:
    pool = {"name": "gpu-l4", "className": "l4", "zones": ["us-west-2a", "us-east-1a"]}
    elsewhere = inference_cluster(pool)
    of_cluster, of_kind = problems([CLASS, elsewhere, eks(gpu(zones=["us-west-2"]), name="own")])
    assert (str(of_cluster.ref), of_cluster.path) == ("InferenceCluster eks-us-west", "spec.nodePools[0].zones[1]")
    assert of_kind.path == "spec.nodePools[0].zones[0]"
    pool = {"className": "l4", "zones": ["us-west-2a"]}
    large, nowhere = ({**pool, "name": "a", "maxNodeCount": 2000}, {**pool, "name": "b", "zones": []})
    (found,) = problems([CLASS, inference_cluster(large)])
    assert (found.path, found.value) == ("spec.nodePools[0].maxNodeCount", "2000")
    (found,) = problems([CLASS, inference_cluster(nowhere)])
    assert (found.path, found.hint) == ("spec.nodePools[0].zones", "Name the zones of its nodes")
    # What is reported otherwise, or was not written by a user.
    assert problems([elsewhere]) == []
    assert problems([CLASS, made(elsewhere)]) == []
