# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""InferenceClusters: the cloud's cluster, the serving stack, and what is published of pools."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.pools import system_nodes, with_system_pool
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cluster import (
    InvalidPool,
    provider_config_name,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling import adapters
from ansible_collections.modelplane.fleet.tests.written import cluster_objects, published_pools, storage_class

GPU: dict[str, Any] = {
    "name": "gpu",
    "claim": "DRA",
    "driver": "gpu.nvidia.com",
    "deviceClassName": "gpu.nvidia.com",
    "count": 8,
    "attributes": {"architecture": {"string": "Hopper"}},
    "capacity": {"memory": {"value": "81559Mi"}},
}
BLOCKS: dict[str, Any] = {
    "eks": {"instanceType": "p5.48xlarge", "diskSizeGb": 500, "accelerator": {"type": "nvidia-h100", "count": 8}},
    "gke": {"machineType": "a3-highgpu-8g", "accelerator": {"type": "nvidia-h100-80gb", "count": 8}},
}
SOURCES: dict[str, Any] = {
    "EKS": {"eks": {"region": "us-west-2"}},
    "GKE": {"gke": {"region": "us-west1"}},
    "AKS": {"aks": {"location": "westeurope"}},
    "Nebius": {"nebius": {}},
    "Vultr": {"vultr": {"region": "ewr"}},
    "Existing": {"existing": {"secretRef": {"name": "my-kubeconfig"}}},
}
SYSTEM_COUNTS = {"nodeCount": 1, "minNodeCount": 1, "maxNodeCount": 2}
LABELS = {"app.kubernetes.io/managed-by": "modelplane.fleet", "modelplane.ai/cluster": "eks-us-west"}


def inference_class(name: str = "h100", **blocks: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"devices": [deepcopy(GPU)]}
    if blocks:
        spec["provisioning"] = {"provider": next(iter(blocks)).upper(), **deepcopy(blocks)}
    document = {"apiVersion": "modelplane.ai/v1alpha1", "kind": "InferenceClass", "metadata": {"name": name}}
    return api.wire(api.parse({**document, "spec": spec}))


CLASSES = {"h100": inference_class(**BLOCKS), "byo": inference_class("byo")}


def cluster(source: str, *pools: dict[str, Any], name: str = "eks-us-west", **block: Any) -> dict[str, Any]:
    """An InferenceCluster as the loader gives it; keywords are fields of the source's block."""
    blocks = deepcopy(SOURCES[source])
    next(iter(blocks.values())).update(block)
    spec: dict[str, Any] = {"cluster": {"source": source, **blocks}}
    if pools:
        spec["nodePools"] = list(pools)
    document = {"apiVersion": "modelplane.ai/v1alpha1", "kind": "InferenceCluster", "metadata": {"name": name}}
    return api.wire(api.parse({**document, "spec": spec}))


def pool(**fields: Any) -> dict[str, Any]:
    return {"name": "gpu", "className": "h100", "zones": ["us-west-2a", "us-west-2b"], **fields}


def built(wire: dict[str, Any]) -> dict[str, Any]:
    """The cloud's cluster of an InferenceCluster."""
    return cluster_objects(wire, CLASSES)[0]


def gpu_pool(source: str, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = built(cluster(source, pool(**fields)))["spec"]["nodePools"][1]
    return found


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("eks-us-west", "eks-us-west-cluster-kubeconfig-b96c5"),
        ("test-cluster", "test-cluster-cluster-kubeconfig-d0f89"),
    ],
)
def test_provider_config_names_are_those_of_the_reference_implementation(name: str, config: str) -> None:
    assert provider_config_name(name) == config


def test_eks() -> None:
    cloud, stack = cluster_objects(cluster("EKS", pool(nodeCount=4)), CLASSES)
    assert cloud == {
        "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
        "kind": "EKSCluster",
        "metadata": {"name": "eks-us-west", "namespace": "modelplane-system", "labels": LABELS},
        "spec": {
            "region": "us-west-2",
            "kubernetesVersion": "1.36",
            "nodePools": [
                {"name": "system", "role": "System", "instanceType": "m6i.xlarge", **SYSTEM_COUNTS, "maxNodeCount": 4},
                {
                    "name": "gpu",
                    "role": "GPU",
                    "instanceType": "p5.48xlarge",
                    "diskSizeGb": 500,
                    "nodeCount": 4,
                    "minNodeCount": 4,
                    "maxNodeCount": 4,
                    "gpu": {"acceleratorType": "nvidia-h100"},
                    "zones": ["us-west-2a", "us-west-2b"],
                },
            ],
        },
    }
    assert stack == {
        "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
        "kind": "ServingStack",
        "metadata": {"name": "eks-us-west-serving-stack-47ebf", "namespace": "modelplane-system", "labels": LABELS},
        "spec": {
            "secrets": [{"type": "Kubeconfig", "name": "eks-us-west-kubeconfig-ef123", "key": "kubeconfig"}],
        },
    }


def test_settings_of_eks() -> None:
    spot = pool(eks={"capacityType": "SPOT"})
    cloud, _stack = cluster_objects(cluster("EKS", spot, logging={"types": ["api"]}), CLASSES)
    assert cloud["spec"]["logging"] == {"types": ["api"]}
    assert "encryptionConfig" not in cloud["spec"]
    assert cloud["spec"]["nodePools"][1]["capacityType"] == "SPOT"


def test_gke() -> None:
    cloud, stack = cluster_objects(cluster("GKE", pool(), name="gke-us-central", project="my-project"), CLASSES)
    system, gpu = cloud["spec"]["nodePools"]
    assert cloud["kind"] == "GKECluster"
    assert list(cloud["spec"]) == ["region", "project", "kubernetesVersion", "nodePools"]
    assert (cloud["spec"]["project"], cloud["spec"]["kubernetesVersion"]) == ("my-project", "1.35")
    assert system == {"name": "system", "role": "System", "machineType": "e2-standard-4", **SYSTEM_COUNTS}
    assert gpu["machineType"] == "a3-highgpu-8g"
    assert gpu["diskSizeGb"] == 100
    assert gpu["gpu"] == {"acceleratorType": "nvidia-h100-80gb", "acceleratorCount": 8}
    assert stack["spec"] == {
        "secrets": [
            {"type": "Kubeconfig", "name": "gke-us-central-kubeconfig-5d074", "key": "kubeconfig"},
            {"type": "GoogleApplicationCredentials", "name": "gke-us-central-sa-key-ccbc7", "key": "private_key"},
        ],
        "nvidiaDriverRoot": "/home/kubernetes/bin/nvidia",
    }


@pytest.mark.parametrize(
    ("block", "secrets"),
    [
        ({}, [{"type": "Kubeconfig", "name": "my-kubeconfig", "key": "kubeconfig"}]),
        (
            {
                "secretRef": {"name": "k", "key": "config"},
                "identitySecretRef": {"name": "i", "key": "id", "type": "AWSWebIdentityCredentials"},
            },
            [
                {"type": "Kubeconfig", "name": "k", "key": "config"},
                {"type": "AWSWebIdentityCredentials", "name": "i", "key": "id"},
            ],
        ),
        (
            {"identitySecretRef": {"name": "i"}},
            [
                {"type": "Kubeconfig", "name": "my-kubeconfig", "key": "kubeconfig"},
                {"type": "GoogleApplicationCredentials", "name": "i", "key": "private_key"},
            ],
        ),
    ],
)
def test_existing(block: dict[str, Any], secrets: list[dict[str, str]]) -> None:
    """Whatever its classes are: nothing is built for it."""
    (stack,) = cluster_objects(cluster("Existing", pool(className="byo"), pool(name="b", className="no"), **block), {})
    assert stack["kind"] == "ServingStack"
    assert stack["spec"] == {"secrets": secrets}


@pytest.mark.parametrize("source", ["AKS", "Nebius", "Vultr"])
def test_what_is_not_built_here_has_no_objects(source: str) -> None:
    assert cluster_objects(cluster(source, pool()), CLASSES) == ()


@pytest.mark.parametrize("source", ["EKS", "GKE"])
def test_credentials_are_copied_only_if_given(source: str) -> None:
    given = {"type": "ProviderConfig", "name": "team"}
    assert "credentials" not in built(cluster(source))["spec"]
    assert built(cluster(source, credentials=given))["spec"]["credentials"] == given


@pytest.mark.parametrize("source", ["EKS", "GKE"])
def test_a_cluster_without_pools_has_the_system_pool(source: str) -> None:
    (only,) = built(cluster(source))["spec"]["nodePools"]
    assert only["name"] == "system"


@pytest.mark.parametrize("source", ["EKS", "GKE"])
def test_eight_pools_and_the_system_pool(source: str) -> None:
    pools = [pool(name=f"gpu-{number}") for number in range(8)]
    assert len(built(cluster(source, *pools))["spec"]["nodePools"]) == 9


@pytest.mark.parametrize("source", ["EKS", "GKE"])
@pytest.mark.parametrize(
    ("written", "counts"),
    [
        ({}, (1, 1, 1)),
        ({"nodeCount": 4}, (4, 4, 4)),
        ({"nodeCount": 0}, (0, 0, 0)),
        ({"nodeCount": 2, "minNodeCount": 0, "maxNodeCount": 8}, (2, 0, 8)),
        ({"nodeCount": 2, "maxNodeCount": 8}, (2, 2, 8)),
        ({"nodeCount": 0, "maxNodeCount": 8}, (0, 0, 8)),
        ({"nodeCount": 4, "minNodeCount": 1}, (4, 1, 4)),
        ({"minNodeCount": 3}, (3, 3, 3)),
        ({"minNodeCount": 3, "maxNodeCount": 5}, (3, 3, 5)),
    ],
)
def test_d5_numbers_of_nodes(source: str, written: dict[str, int], counts: tuple[int, ...]) -> None:
    """Start, minimum, maximum; a pool without limits has one size."""
    found = gpu_pool(source, **written)
    assert (found["nodeCount"], found["minNodeCount"], found["maxNodeCount"]) == counts
    # Replicas are placed on as many nodes as the cloud may have.
    planned = api.parse(cluster(source, pool(**{**written, "zones": ["us-west-2a"]})))
    assert isinstance(planned, api.InferenceCluster)
    assert adapters.capacity(planned, (planned.spec.node_pools or ())[0]) == counts[2]


def test_a_capacity_block_and_efa_are_for_eks() -> None:
    block = {"capacityReservationId": "cr-0a1b"}
    fields = {"capacityBlock": block, "fabric": {"type": "EFA", "name": "one"}}
    eks, gke = gpu_pool("EKS", **fields), gpu_pool("GKE", **fields)
    assert (eks["capacityBlock"], eks["fabric"]) == (block, "EFA")
    assert not {"capacityBlock", "fabric"} & set(gke)


@pytest.mark.parametrize("fabric", [{"type": "None"}, {"type": "InfiniBand"}, {"type": "NVLink", "name": "a"}])
def test_other_fabrics_are_not_built_on_eks(fabric: dict[str, str]) -> None:
    assert "fabric" not in gpu_pool("EKS", fabric=fabric)


@pytest.mark.parametrize(
    ("source", "fields", "message"),
    [
        ("EKS", {"className": "byo"}, "InferenceClass byo has no EKS provisioning block"),
        ("GKE", {"className": "byo"}, "InferenceClass byo has no GKE provisioning block"),
        ("EKS", {"className": "none"}, "InferenceClass none does not exist"),
        ("EKS", {"zones": []}, "EKSCluster cannot be composed: node pool gpu: zones "),
        ("GKE", {"nodeCount": 2000}, "GKECluster cannot be composed: node pool gpu: "),
    ],
)
def test_pools_that_cannot_be_built(source: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPool) as caught:
        cluster_objects(cluster(source, pool(**fields)), CLASSES)
    assert str(caught.value).startswith(message)


def test_a_version_that_no_cloud_has_is_reported_by_its_field() -> None:
    with pytest.raises(InvalidPool, match=r"^EKSCluster cannot be composed: spec\.kubernetesVersion "):
        cluster_objects(cluster("EKS", kubernetesVersion="1" * 17), CLASSES)


@pytest.mark.parametrize("source", SOURCES)
def test_everything_can_be_loaded(source: str) -> None:
    for each in cluster_objects(cluster(source, pool(fabric={"type": "EFA"}), name="c" * 63), CLASSES):
        resource = api.parse(each)
        assert (resource.kind, resource.namespace) == (each["kind"], "modelplane-system")


# A cluster that is described directly.


@pytest.mark.parametrize(("kind", "machine"), [("EKSCluster", "instanceType"), ("GKECluster", "machineType")])
def test_a_system_pool_is_added_once(kind: str, machine: str) -> None:
    written = [{"name": "gpu", "role": "GPU"}]
    first = with_system_pool(kind, written)
    assert [(each["name"], each["role"]) for each in first] == [("system", "System"), ("gpu", "GPU")]
    assert machine in first[0]
    assert with_system_pool(kind, first) == first
    assert written == [{"name": "gpu", "role": "GPU"}]


@pytest.mark.parametrize(
    ("gpus", "nodes"),
    [(0, 2), (1, 2), (24, 2), (25, 4), (48, 4), (49, 8), (256, 32), (1000, 128), (100_000, 256), (10**9, 256)],
)
def test_a_system_pool_grows_with_the_replicas_that_there_may_be(gpus: int, nodes: int) -> None:
    assert system_nodes(gpus) == nodes
    assert system_nodes(gpus) <= system_nodes(gpus + 1)


@pytest.mark.parametrize(
    ("fields", "nodes"), [({"nodeCount": 3}, 2), ({"nodeCount": 4}, 4), ({"nodeCount": 0, "maxNodeCount": 16}, 16)]
)
@pytest.mark.parametrize("source", ["EKS", "GKE"])
def test_the_largest_size_of_the_system_pool_follows_from_those_of_the_pools(
    source: str, fields: dict[str, int], nodes: int
) -> None:
    """The machines of the class have eight GPUs."""
    system = built(cluster(source, pool(minNodeCount=0, **{"maxNodeCount": fields["nodeCount"], **fields})))
    assert system["spec"]["nodePools"][0]["maxNodeCount"] == nodes
    assert system["spec"]["nodePools"][0]["nodeCount"] == 1


def test_a_system_pool_of_the_users_own_is_enough() -> None:
    written = [{"name": "gpu", "role": "GPU"}, {"name": "control", "role": "System", "maxNodeCount": 5}]
    assert with_system_pool("EKSCluster", written) == written


def test_a_system_pool_takes_no_name_that_is_taken() -> None:
    written = [{"name": "system", "role": "GPU"}, {"name": "system-2", "role": "GPU"}]
    assert with_system_pool("EKSCluster", written)[0]["name"] == "system-3"


# Storage classes.


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("EKS", "modelplane-rwx-efs"),
        ("GKE", "modelplane-rwx"),
        ("AKS", "modelplane-rwx-fs"),
        ("Nebius", "modelplane-rwx-fs"),
        ("Vultr", ""),
        ("Existing", ""),
    ],
)
def test_storage_classes(source: str, expected: str) -> None:
    wire = cluster(source)
    assert storage_class(wire) == expected
    assert storage_class({**wire, "status": {"cache": {}}}) == expected
    assert storage_class({**wire, "status": {"cache": {"storageClassName": "seen"}}}) == "seen"


def test_the_storage_class_of_ones_own_cluster_is_the_one_of_the_manifest() -> None:
    wire = cluster("Existing", cache={"storageClassName": "mine"})
    assert storage_class(wire) == "mine"
    assert storage_class({**wire, "status": {"cache": {"storageClassName": "of an older manifest"}}}) == "mine"


# Published pools.


def test_published_pools() -> None:
    assert published_pools(cluster("EKS", pool(nodeCount=2, maxNodeCount=4)), CLASSES, {"gpu": 3, "x": 9}) == [
        {"name": "gpu", "nodes": 4, "observedNodes": 3, "devices": [GPU]}
    ]


@pytest.mark.parametrize(("observed", "expected"), [(None, None), ({}, 0), ({"gpu": 2}, 2)])
def test_observed_nodes(observed: dict[str, int] | None, expected: int | None) -> None:
    (found,) = published_pools(cluster("Existing", pool()), CLASSES, observed)
    assert found.get("observedNodes") == expected


@pytest.mark.parametrize(
    ("source", "fields", "nodes"),
    [
        ("EKS", {"nodeCount": 3}, 3),
        ("EKS", {"nodeCount": 0, "minNodeCount": 0, "maxNodeCount": 6}, 6),
        ("GKE", {"nodeCount": 3}, 6),
        ("GKE", {"maxNodeCount": 4, "zones": ["a", "b", "c"]}, 12),
        ("Existing", {"nodeCount": 3}, 3),
    ],
)
def test_d6_nodes_are_what_a_pool_may_grow_to(source: str, fields: dict[str, Any], nodes: int) -> None:
    """GKE counts nodes in each zone; `pool` has two zones."""
    (found,) = published_pools(cluster(source, pool(**fields)), CLASSES, None)
    assert found["nodes"] == nodes


@pytest.mark.parametrize(
    ("fabric", "published", "attributes"),
    [
        (None, None, None),
        ({"type": "None"}, None, None),
        ({"type": "EFA"}, {"type": "EFA"}, {"type": {"string": "EFA"}}),
        (
            {"type": "NVLink", "name": "rack-1"},
            {"type": "NVLink", "name": "rack-1"},
            {"type": {"string": "NVLink"}, "name": {"string": "rack-1"}},
        ),
        (
            {"type": "InfiniBand", "infiniband": {"fabric": "fabric-2"}},
            {"type": "InfiniBand", "name": "fabric-2"},
            {"type": {"string": "InfiniBand"}, "name": {"string": "fabric-2"}},
        ),
    ],
)
def test_fabrics_are_published_twice(fabric: Any, published: Any, attributes: Any) -> None:
    fields = {"fabric": fabric} if fabric else {}
    (found,) = published_pools(cluster("Existing", pool(**fields)), CLASSES, None)
    assert found.get("fabric") == published
    devices = {each["name"]: each for each in found["devices"]}
    assert devices.pop("gpu") == GPU
    assert (devices.get("fabric") or {}).get("attributes") == attributes


def test_a_pool_whose_class_is_missing_keeps_what_was_published() -> None:
    """D11: what cannot be read now is not known to have changed."""
    wire = cluster("EKS", pool(), pool(name="other", className="gone"), pool(name="new", className="gone"))
    before = [{"name": "other", "nodes": 7, "devices": [GPU]}, {"name": "gpu", "nodes": 9, "devices": []}]
    found = published_pools({**wire, "status": {"gpuPools": before}}, CLASSES, None)
    assert found == [{"name": "gpu", "nodes": 1, "devices": [GPU]}, before[0]]
    assert published_pools(wire, CLASSES, None) == found[:1]


def test_devices_are_published_without_nulls() -> None:
    classes = deepcopy(CLASSES)
    classes["h100"]["spec"]["devices"][0]["attributes"]["architecture"] = {"string": "Hopper", "int": None}
    (found,) = published_pools(cluster("EKS", pool()), classes, None)
    assert found["devices"] == [GPU]


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_published_is_what_the_scheduler_would_have_read(source: str) -> None:
    """A cluster's pools are the same to the scheduler before and after its status is written."""
    zones = {"zones": ["a", "b"], "nodeCount": 2}
    fabric = {"type": "InfiniBand", "infiniband": {"fabric": "f"}}
    wire = cluster(source, pool(**zones), pool(name="fast", fabric=fabric, **zones))
    published = {**wire, "status": {"gpuPools": published_pools(wire, CLASSES, {"gpu": 1})}}
    catalogue = adapters.DeviceCatalogue()
    classes: Any = {name: api.parse(document) for name, document in CLASSES.items()}
    first, second = (adapters.cluster(api.parse(each), classes, catalogue) for each in (wire, published))
    assert first.pools == second.pools


def test_nothing_is_changed_and_nothing_is_shared() -> None:
    wire = cluster("EKS", pool(fabric={"type": "EFA"}, capacityBlock={"capacityReservationId": "cr-1"}))
    classes = deepcopy(CLASSES)
    before = deepcopy((wire, classes))
    for each in cluster_objects(wire, classes):
        each["spec"].clear()
        each["metadata"]["labels"].clear()
    published = published_pools(wire, classes, None)
    published[0]["devices"][0]["attributes"].clear()
    assert (wire, classes) == before


def test_h12_nothing_on_the_control_cluster_waits_for_a_cluster_that_is_gone() -> None:
    for source in SOURCES:
        for each in cluster_objects(cluster(source, pool()), CLASSES):
            assert not {"finalizers", "ownerReferences"} & set(each["metadata"])
