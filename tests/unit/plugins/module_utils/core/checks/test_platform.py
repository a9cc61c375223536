# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Versions, nodes, storage and load balancers of a cluster, each as it may be."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks import Desired, Finding, Snapshot, check
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.checks.places import (
    GOOD,
    balancer,
    desired,
    inference_class,
    inference_cluster,
    node,
    pool,
    resource_slice,
    seen,
    storage_class,
    taint,
    thing,
    workload,
)

SYSTEM = node("system")


def reported(snapshot: Snapshot, want: Desired | None = None) -> list[str]:
    """Severity, place and message of each finding."""
    return [f"{each.severity} {each.where}: {each.message}" for each in check(snapshot, want or desired())]


def test_nothing_stands_in_the_way() -> None:
    assert check(GOOD, desired()) == ()


def test_every_finding_says_what_where_and_what_to_do() -> None:
    finding = check(seen(version=(1, 33)), desired())[0]
    assert finding == Finding(
        "kubernetes",
        "API server",
        "it is Kubernetes 1.33 and serves resource.k8s.io/v1",
        "Pods claim devices with Kubernetes 1.34 and newer: upgrade the cluster",
    )
    assert str(finding) == f"{finding.where}: {finding.message}. {finding.hint}"


@pytest.mark.parametrize(
    ("version", "devices", "wrong"),
    [((1, 34), True, False), ((1, 33), True, True), ((1, 34), False, True), ((2, 0), True, False)],
)
def test_versions(version: tuple[int, int], devices: bool, wrong: bool) -> None:
    found = reported(seen(version=version, devices=devices))
    assert bool([line for line in found if line.startswith("error API server")]) is wrong


NODES: dict[str, tuple[list[Any], dict[str, Any], list[str]]] = {
    "no label": (
        [SYSTEM, node("a"), node("b")],
        {},
        ["error spec.nodePools[0] (gpu): no node has the label modelplane.ai/pool=gpu, 2 or more are desired"],
    ),
    "GPUs without a label": (
        [SYSTEM, node("gpu-0", "gpu"), node("gpu-1", labels={"nvidia.com/gpu.present": "true"})],
        {"nodeCount": 1},
        ["warning Node gpu-1: devices are there, and no label modelplane.ai/pool: no replica is placed there"],
    ),
    "another pool's label": (
        [SYSTEM, node("gpu-0", "gpu"), node("gpu-1", "gpus")],
        {"nodeCount": 1},
        ["warning Node gpu-1: the label modelplane.ai/pool is gpus, and the InferenceCluster has no such pool"],
    ),
    "fewer nodes": (
        [SYSTEM, node("gpu-0", "gpu")],
        {},
        [
            "warning spec.nodePools[0] (gpu): nodeCount is 2, and 1 node is there with the label "
            "modelplane.ai/pool=gpu: replicas use only these nodes"
        ],
    ),
    "fewer than an autoscaler may make": (
        [SYSTEM, node("gpu-0", "gpu")],
        {"nodeCount": 1, "minNodeCount": 0, "maxNodeCount": 4},
        [
            "warning spec.nodePools[0] (gpu): maxNodeCount is 4, and 1 node is there: replicas might also be placed on "
            "missing nodes, and wait until your autoscaler adds nodes with the label"
        ],
    ),
    "none, which an autoscaler may leave": (
        [SYSTEM],
        {"nodeCount": 0, "minNodeCount": 0, "maxNodeCount": 1},
        [
            "warning spec.nodePools[0] (gpu): maxNodeCount is 1, and 0 nodes are there: replicas might also be placed "
            "on missing nodes, and wait until your autoscaler adds nodes with the label"
        ],
    ),
    "none, and none desired": ([SYSTEM], {"nodeCount": 0}, []),
    "more nodes": ([SYSTEM, *(node(f"gpu-{index}", "gpu") for index in range(3))], {}, []),
    "not ready": (
        [SYSTEM, node("gpu-0", "gpu"), node("gpu-1", "gpu", ready=False)],
        {},
        ["warning Node gpu-1 (pool gpu): is not Ready"],
    ),
    "cordoned": (
        [SYSTEM, node("gpu-0", "gpu"), node("gpu-1", "gpu", cordoned=True)],
        {},
        ["warning Node gpu-1 (pool gpu): is cordoned: no pod is started there"],
    ),
    "an old kubelet": (
        [SYSTEM, node("gpu-0", "gpu"), node("gpu-1", "gpu", kubelet="v1.33.4-eks-1")],
        {},
        [
            "warning Node gpu-1 (pool gpu): has a kubelet older than 1.34: pods claim devices with Kubernetes 1.34 and "
            "newer"
        ],
    ),
    "NVIDIA's taint": (
        [SYSTEM, *(node(f"gpu-{i}", "gpu", taints=[taint("nvidia.com/gpu", value="present")]) for i in range(2))],
        {},
        [],
    ),
    "NVIDIA's taint, with an effect that is not tolerated": (
        [SYSTEM, node("gpu-0", "gpu"), node("gpu-1", "gpu", taints=[taint("nvidia.com/gpu", "NoExecute")])],
        {},
        ["error Node gpu-1 (pool gpu): pods of replicas do not tolerate the taint nvidia.com/gpu:NoExecute"],
    ),
    "a taint of the site": (
        [SYSTEM, *(node(f"gpu-{i}", "gpu", taints=[taint("team", value="ml")]) for i in range(2))],
        {},
        ["error Node gpu-0, gpu-1 (pool gpu): pods of replicas do not tolerate the taint team=ml:NoSchedule"],
    ),
    "a taint that pods only avoid": (
        [SYSTEM, *(node(f"gpu-{i}", "gpu", taints=[taint("team", "PreferNoSchedule")]) for i in range(2))],
        {},
        [],
    ),
    "no room for controllers": (
        [node(f"gpu-{i}", "gpu", taints=[taint("nvidia.com/gpu")]) for i in range(2)],
        {},
        ["error nodes: every node has a taint"],
    ),
    "room for controllers on a node that is away": (
        [node("system", ready=False), *(node(f"gpu-{i}", "gpu", taints=[taint("nvidia.com/gpu")]) for i in range(2))],
        {},
        ["error nodes: none of the nodes without taints is Ready: system"],
    ),
    "no node at all": ([], {"nodeCount": 0}, ["error nodes: there is no node"]),
    "no class": (
        GOOD.nodes,
        {"className": "h200"},
        ["error spec.nodePools[0] (gpu): there is no InferenceClass h200"],
    ),
}


@pytest.mark.parametrize(("nodes", "of_pool", "expected"), NODES.values(), ids=NODES)
def test_nodes(nodes: list[Any], of_pool: dict[str, Any], expected: list[str]) -> None:
    assert reported(seen(nodes=nodes), desired(cluster=inference_cluster(pool(**of_pool)))) == expected


def test_taints_of_other_vendors_are_tolerated_where_their_devices_are_claimed() -> None:
    nodes = [SYSTEM, *(node(f"gpu-{index}", "gpu", taints=[taint("amd.com/gpu")]) for index in range(2))]
    assert [line for line in reported(seen(nodes=nodes)) if "amd.com/gpu" in line]
    amd = inference_class("mi300x", "gpu.amd.com")
    cluster = inference_cluster(pool(className="mi300x"))
    found = reported(seen(nodes=nodes), desired(amd, cluster=cluster, choices={"drivers": ["gpu.amd.com"]}))
    assert found == [
        "warning DeviceClass gpu.amd.com: InferenceClasses of the pools name it, it is not there, and the serving "
        "stack does not install it"
    ]
    there = seen(nodes=nodes, device_classes=[thing("DeviceClass", "gpu.amd.com", "resource.k8s.io/v1")])
    assert reported(there, desired(amd, cluster=cluster, choices={"drivers": ["gpu.amd.com"]})) == []


def test_a_cluster_that_no_manifest_is_about() -> None:
    want = desired()
    unknown = Desired("onprem", planned=want.planned)
    assert reported(GOOD, unknown) == [
        "warning manifests: no InferenceCluster onprem is known, so its pools were not checked"
    ]


def test_a_cluster_that_the_fleet_makes_has_a_pool_for_controllers() -> None:
    nodes = [node("system-0", "system"), *GOOD.nodes[1:]]
    assert len(reported(seen(nodes=nodes))) == 1
    assert reported(seen(nodes=nodes), desired(cluster=inference_cluster(pool(), source="EKS"))) == []


STORAGE: dict[str, tuple[str, list[Any], list[str]]] = {
    "shared": ("rwx", [storage_class("rwx", "efs.csi.aws.com")], []),
    "shared, of an operator": ("rwx", [storage_class("rwx", "openshift-storage.cephfs.csi.ceph.com")], []),
    "shared, of a provisioner with a prefix": (
        "rwx",
        [storage_class("rwx", "cluster.local/nfs-subdir-external-provisioner")],
        [],
    ),
    "missing": ("rwx", [storage_class("gp3", "ebs.csi.aws.com")], ["error {}: StorageClass rwx is not there"]),
    "none at all": ("rwx", [], ["error {}: StorageClass rwx is not there"]),
    "one node": (
        "rwx",
        [storage_class("rwx", "ebs.csi.aws.com")],
        [
            "error StorageClass rwx ({}): volumes of its provisioner ebs.csi.aws.com can be mounted on one node only, "
            "and caches are read on many"
        ],
    ),
    "static": (
        "rwx",
        [storage_class("rwx", "kubernetes.io/no-provisioner")],
        [
            "error StorageClass rwx ({}): it makes no volumes (provisioner kubernetes.io/no-provisioner), and each "
            "cache needs a new one"
        ],
    ),
    "unknown": (
        "rwx",
        [storage_class("rwx", "csi.acme.example")],
        [
            "warning StorageClass rwx ({}): it is not known here whether volumes of its provisioner csi.acme.example "
            "can be mounted on several nodes (ReadWriteMany)"
        ],
    ),
    "not set, and no cache": ("", [], []),
}


@pytest.mark.parametrize(("name", "there", "expected"), STORAGE.values(), ids=STORAGE)
def test_storage(name: str, there: list[Any], expected: list[str]) -> None:
    field = "spec.cluster.existing.cache.storageClassName"
    found = reported(seen(storage_classes=there), desired(cluster=inference_cluster(pool(), cache=name)))
    assert found == [line.format(field) for line in expected]


def test_caches_without_a_class_wait() -> None:
    cache = thing("ModelCache", "qwen", "modelplane.ai/v1alpha1", "ml-team")
    found = reported(GOOD, desired(cache, cluster=inference_cluster(pool(), cache="")))
    assert found == [
        "warning spec.cluster.existing.cache.storageClassName: it is not set, so caches on this cluster wait"
    ]


@pytest.mark.parametrize(
    ("provisioner", "parameters", "least"),
    [
        ("filestore.csi.storage.gke.io", {"tier": "enterprise"}, 1024),
        ("filestore.csi.storage.gke.io", {"tier": "premium"}, 2560),
        ("filestore.csi.storage.gke.io", {}, 1024),
        ("filestore.csi.storage.gke.io", {"tier": "enterprise", "multishare": "true"}, 100),
        ("fsx.csi.aws.com", {"deploymentType": "SCRATCH_2"}, 1200),
        ("fsx.csi.aws.com", {"storageType": "HDD", "perUnitStorageThroughput": "12"}, 6000),
        ("fsx.csi.aws.com", {"storageType": "HDD", "perUnitStorageThroughput": "40"}, 1800),
        ("fsx.openzfs.csi.aws.com", {}, 64),
        ("file.csi.azure.com", {"skuName": "Premium_LRS"}, 100),
        ("file.csi.azure.com", {"skuName": "PremiumV2_LRS"}, 32),
        ("file.csi.azure.com", {"skuName": "Standard_LRS"}, 0),
        ("efs.csi.aws.com", {}, 0),
        ("nfs.csi.k8s.io", {}, 0),
    ],
)
@pytest.mark.parametrize("asked", [5, 4000])
def test_volumes_that_are_larger_than_caches(
    provisioner: str, parameters: dict[str, str], least: int, asked: int
) -> None:
    cache = thing("ModelCache", "qwen", "modelplane.ai/v1alpha1", "ml-team")
    cache["spec"] = {"huggingFace": {"sizeGiB": asked}}
    there = {**storage_class("rwx", provisioner), "parameters": parameters}
    found = reported(seen(storage_classes=[there]), desired(cache, cluster=inference_cluster(pool(), cache="rwx")))
    assert len(found) == (asked < least)
    if asked < least:
        assert f"its volumes have {least} GiB at least" in found[0]
        assert f"asks for {asked} GiB" in found[0]


BALANCERS: dict[str, tuple[dict[str, Any], str]] = {
    "one has an address": ({"services": [balancer("web", "192.0.2.1"), balancer("other")]}, ""),
    "one waits": (
        {"services": [balancer("web")]},
        "Service web/web: no Service of type LoadBalancer has an address",
    ),
    "nothing to be seen": (
        {"services": []},
        "cluster: no controller for Services of type LoadBalancer is to be seen",
    ),
    "a cloud": ({"services": [], "nodes": [node("system", provider="aws:///us-west-2a/i-1"), *GOOD.nodes[1:]]}, ""),
    "MetalLB": (
        {
            "services": [],
            "workloads": [workload("Deployment", "metallb", "c", "mirror:5000/metallb/controller:v0.14.9")],
        },
        "",
    ),
    "another controller": (
        {"services": [], "workloads": [workload("Deployment", "shop", "c", "registry.example/shop/controller:1")]},
        "cluster: no controller for Services of type LoadBalancer is to be seen",
    ),
}


@pytest.mark.parametrize(("there", "expected"), BALANCERS.values(), ids=BALANCERS)
def test_load_balancers(there: dict[str, Any], expected: str) -> None:
    assert reported(seen(**there)) == ([f"warning {expected}"] if expected else [])


def test_a_gateway_of_others_needs_no_load_balancer_here() -> None:
    assert reported(seen(services=[]), desired(choices={"states": {"gateway": "provided"}})) == []


def test_published_devices_are_compared_where_there_are_any() -> None:
    slices = [resource_slice("gpu-0"), resource_slice("gpu-1", "40Gi")]
    assert reported(seen(slices=slices)) == [
        "warning Node gpu-1 (pool gpu): class h100 promises capacity memory 80Gi, the driver publishes 40Gi"
    ]


@pytest.mark.parametrize(
    ("root", "wrong"),
    [("", True), ("/", True), ("/home/kubernetes/bin/nvidia", False)],
    ids=["none", "default", "GKE's"],
)
def test_the_driver_of_gke_is_elsewhere(root: str, wrong: bool) -> None:
    labels = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    nodes = [SYSTEM, *(node(f"gpu-{index}", "gpu", labels=labels) for index in range(2))]
    found = reported(seen(nodes=nodes), desired(driver_root=root))
    expected = (
        "error Node gpu-0, gpu-1: GKE keeps the NVIDIA driver in /home/kubernetes/bin/nvidia, and the DRA driver "
    )
    assert found == ([f"{expected}would search it in /"] if wrong else [])


def test_the_driver_of_the_gpu_operator_is_elsewhere() -> None:
    driver = workload("DaemonSet", "gpu-operator", "nvidia-driver-daemonset-rhel", "nvcr.io/nvidia/driver:580")
    assert len(reported(seen(workloads=[driver]))) == 1
    assert reported(seen(workloads=[driver]), desired(driver_root="/run/nvidia/driver")) == []


def test_what_may_not_be_read_is_one_warning() -> None:
    unread = dict.fromkeys(["Secret", "StorageClass", "Node"], "forbidden")
    found = reported(seen(nodes=(), storage_classes=(), unread=unread))
    assert found == [
        "warning credential: it may not read Node, Secret, StorageClass, so nothing that depends on it was checked "
        "(forbidden)"
    ]
