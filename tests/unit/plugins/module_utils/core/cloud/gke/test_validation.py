# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Findings about GKEClusters: every sentence, at the place where the user wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.validation import VALIDATION
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.validation import InvalidClusterError
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import eks
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke.clusters import (
    PROJECT,
    gke,
    gpu,
    inference_class,
    inference_cluster,
    system,
)
from ansible_collections.modelplane.fleet.tests.written import cluster_objects

HERE = "GKECluster modelplane-system/gke-us-central, "
COMPOSED = "InferenceCluster gke-us-central, "


def network(**ranges: str) -> dict[str, Any]:
    return gke(networking=ranges)


def composed(*pools: dict[str, Any], of: dict[str, Any] | None = None, **block: Any) -> dict[str, Any]:
    return cluster_objects(inference_cluster(*pools, **block), {"l4": of or inference_class()})[0]


def problems(cluster: dict[str, Any], others: Sequence[dict[str, Any]] = ()) -> list[str]:
    return [str(problem) for problem in VALIDATION.problems(cluster, VALIDATION.neighbours(others))]


FINDINGS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": (gke(), []),
    "nothing of an InferenceCluster": (composed(), []),
    "the schema": (
        gke(gpu(role="Gpu")),
        [HERE + 'spec.nodePools[0].role: Must be one of System, GPU (got "Gpu"). Write GPU.'],
    ),
    "another kind": (eks(), ['kind: Must be GKECluster (got "EKSCluster").']),
    "dots": (
        gke(name="gke.us"),
        [
            "GKECluster modelplane-system/gke.us, metadata.name: Must have no dots, which the names of GKE clusters "
            'cannot have (got "gke.us"). Choose another name.'
        ],
    ),
    "a namespace with a digit": (
        gke(namespace="1st"),
        [
            "GKECluster 1st/gke-us-central, metadata.namespace: Must begin with a letter, as the names of GKE clusters "
            'do, of which it is the beginning (got "1st"). Choose another namespace.'
        ],
    ),
    "a zone as region": (
        gke(region="us-central1-a"),
        [HERE + 'spec.region: Is no name of a region of Google Cloud (got "us-central1-a"). Write us-central1.'],
    ),
    "no region": (
        composed(region="iowa"),
        [
            COMPOSED + 'spec.cluster.gke.region: Is no name of a region of Google Cloud (got "iowa"). Write a region '
            "such as us-central1."
        ],
    ),
    "a v": (
        composed(kubernetesVersion="v1.35"),
        [
            COMPOSED + 'spec.cluster.gke.kubernetesVersion: Must be a version of Kubernetes (got "v1.35"). Write it '
            'such as "1.35".'
        ],
    ),
    "the name of a project": (
        composed(project="My Project"),
        [
            COMPOSED
            + "spec.cluster.gke.project: Is no ID of a project: 6 to 30 lower-case letters, digits and hyphens, "
            'beginning with a letter (got "My Project"). Write the ID, not the name or the number.'
        ],
    ),
    "no range": (
        network(nodeCidr="10.0.0.0"),
        [HERE + 'spec.networking.nodeCidr: Must be a range of IPv4 addresses, such as 10.0.0.0/16 (got "10.0.0.0").'],
    ),
    "not its first address": (
        network(podCidr="10.1.2.0/16"),
        [
            HERE + "spec.networking.podCidr: Must begin with the first address of the range: write 10.1.0.0/16 (got "
            '"10.1.2.0/16").'
        ],
    ),
    "a small range of pods": (
        network(podCidr="10.1.0.0/25"),
        [
            HERE + "spec.networking.podCidr: Must be between /9 and /24, as Google Cloud has it (got "
            '"10.1.0.0/25"). Choose a range of another size.'
        ],
    ),
    "a large range of services": (
        network(serviceCidr="10.16.0.0/12"),
        [
            HERE + "spec.networking.serviceCidr: Must be between /16 and /27, as Google Cloud has it (got "
            '"10.16.0.0/12"). Choose a range of another size.'
        ],
    ),
    "a small range of nodes": (
        network(nodeCidr="10.0.0.0/30"),
        [
            HERE + "spec.networking.nodeCidr: Must be between /8 and /29, as Google Cloud has it (got "
            '"10.0.0.0/30"). Choose a range of another size.'
        ],
    ),
    "loopback": (
        network(podCidr="127.0.0.0/16"),
        [
            HERE + "spec.networking.podCidr: Has loopback addresses (127.0.0.0/8) (got "
            '"127.0.0.0/16"). Choose a range such as 10.0.0.0/16.'
        ],
    ),
    "addresses that only Google has": (network(podCidr="240.0.0.0/14"), []),
    "ranges that overlap": (
        network(nodeCidr="10.1.0.0/24", serviceCidr="10.1.0.0/20"),
        [
            HERE + "spec.networking.podCidr: Has addresses of spec.networking.nodeCidr (10.1.0.0/24) (got "
            "10.1.0.0/16). Choose ranges that have no addresses in common.",
            HERE + "spec.networking.serviceCidr: Has addresses of spec.networking.nodeCidr (10.1.0.0/24) (got "
            "10.1.0.0/20). Choose ranges that have no addresses in common.",
            HERE + "spec.networking.serviceCidr: Has addresses of spec.networking.podCidr (10.1.0.0/16) (got "
            "10.1.0.0/20). Choose ranges that have no addresses in common.",
        ],
    ),
    "no room for nodes": (
        gke(gpu(nodeCount=2), networking={"nodeCidr": "10.0.0.0/29"}),
        [
            HERE + "spec.networking.nodeCidr: Has room for 4 nodes, and the pools, with that of the system, have "
            "5 at the start (got 10.0.0.0/29). Choose a larger range, or fewer nodes."
        ],
    ),
    "no room for pods": (
        gke(gpu(minNodeCount=3), networking={"podCidr": "10.1.0.0/22"}),
        [
            HERE + "spec.networking.podCidr: Has room for 4 nodes, and the pools, with that of the system, have "
            "7 at the start (got 10.1.0.0/22). Choose a larger range, or fewer nodes."
        ],
    ),
    "a GPU pool named system": (
        gke(gpu("system")),
        [
            HERE + "spec.nodePools[0].name: A GPU pool cannot be named system: that is the pool of controllers that "
            "every cluster gets. Choose another name."
        ],
    ),
    "a pool with a digit": (
        gke(gpu("4x-l4")),
        [
            HERE + "spec.nodePools[0].name: Must begin with a letter, as the names of node pools of GKE do (got "
            '"4x-l4"). Choose another name.'
        ],
    ),
    "no machine type": (
        composed(of=inference_class(machine="G2 standard")),
        [
            COMPOSED + 'spec.nodePools[0].className: Is no name of a machine type (got "G2 standard"). Write one such '
            "as g2-standard-8."
        ],
    ),
    "other accelerators": (
        composed(of=inference_class("nvidia-tesla-t4")),
        [
            COMPOSED
            + 'spec.nodePools[0].className: g2-standard-48 comes with nvidia-l4 (got "nvidia-tesla-t4"). Write '
            "nvidia-l4, or take another machine type."
        ],
    ),
    "other numbers of accelerators": (
        gke(gpu(machineType="a3-highgpu-8g", gpu={"acceleratorType": "nvidia-h100-80gb"})),
        [
            HERE + "spec.nodePools[0].gpu.acceleratorCount: a3-highgpu-8g comes with 8 (got 1). Write 8, or take "
            "another machine type."
        ],
    ),
    "GPUs for controllers": (
        gke(gpu(), system(machineType="g2-standard-8")),
        [
            HERE + "spec.nodePools[1].machineType: Comes with GPUs (nvidia-l4), and role System has none (got "
            "g2-standard-8). Take one without, such as e2-standard-4, or make role GPU."
        ],
    ),
    "accelerators that are attached": (
        gke(gpu(machineType="n1-standard-8", gpu={"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": 2})),
        [],
    ),
    "no nodes for controllers": (
        gke(gpu(), system(nodeCount=0, maxNodeCount=0)),
        [
            HERE + "spec.nodePools[1].maxNodeCount: A pool of role System needs nodes, as controllers run there (got "
            "0). Set it to 1 or more."
        ],
    ),
    "no label": (
        gke(gpu(machineType="n1-standard-8", gpu={"acceleratorType": "nvidia tesla"})),
        [
            HERE + "spec.nodePools[0].gpu.acceleratorType: Must be letters, digits, '-', '_' and '.', beginning and "
            'ending with a letter or digit, as it becomes the value of a label of nodes (got "nvidia tesla").'
        ],
    ),
    "what may reach the control plane": (
        composed(masterAuthorizedNetworks=[{"cidrBlock": "10.0.0.0/24"}, {"cidrBlock": "10.0.0.1/24"}]),
        [
            COMPOSED + "spec.cluster.gke.masterAuthorizedNetworks[1].cidrBlock: Is no range of addresses (got "
            '"10.0.0.1/24"). Write the first address of a range and its length, such as 203.0.113.0/24.'
        ],
    ),
    "a key elsewhere": (
        gke(databaseEncryption={"keyName": "projects/p/locations/global/keyRings/r/cryptoKeys/k"}),
        [
            HERE + "spec.databaseEncryption.keyName: Is no key in us-central1, where the cluster is (got "
            '"projects/p/locations/global/keyRings/r/cryptoKeys/k"). Choose a key whose name has locations/us-central1.'
        ],
    ),
    "flex-start with nodes at once": (
        gke(gpu(flexStart=True, minNodeCount=1)),
        [
            HERE + "spec.nodePools[0].minNodeCount: Must be 0 with flexStart, whose nodes start when Google has free "
            "machines (got 1). Set minNodeCount to 0, and maxNodeCount to as many as it may have."
        ],
    ),
    "zones": (
        composed(
            {
                "name": "gpu",
                "className": "l4",
                "zones": ["us-central1-a", "us-central1-a", "b", "us-east1-c", "us-central1"],
            }
        ),
        [
            COMPOSED + 'spec.nodePools[0].zones[1]: Is named twice (got "us-central1-a"). Remove one.',
            COMPOSED + 'spec.nodePools[0].zones[2]: Is only a letter (got "b"). Write us-central1-b.',
            COMPOSED + "spec.nodePools[0].zones[3]: Is no zone of the region us-central1 (got "
            '"us-east1-c"). Write one such as us-central1-a, or, if the zone is right, us-east1 as the region.',
            COMPOSED + "spec.nodePools[0].zones[4]: Is no zone of the region us-central1 (got "
            '"us-central1"). Write one such as us-central1-a.',
        ],
    ),
}


@pytest.mark.parametrize(("cluster", "expected"), FINDINGS.values(), ids=FINDINGS)
def test_findings(cluster: dict[str, Any], expected: list[str]) -> None:
    assert problems(cluster) == expected
    if expected:
        with pytest.raises(InvalidClusterError) as refused:
            plan(cluster, PROJECT)
        assert str(refused.value) == "\n".join(expected)
    else:
        assert plan(cluster, PROJECT)["resources"]


def test_all_are_reported_at_once() -> None:
    cluster = gke(gpu("1"), region="texas", kubernetesVersion="35", networking={"podCidr": "10.0.0.0/8"})
    assert [line.partition(":")[0].partition(", ")[2] for line in problems(cluster)] == [
        "spec.region",
        "spec.kubernetesVersion",
        "spec.networking.podCidr",
        "spec.nodePools[0].name",
    ]


# Cut to 34 characters, with equal hashes: found by trying.
ALIKE = (1832, 3009)


def test_clusters_of_the_same_name_in_google_cloud() -> None:
    one, other = (gke(name=f"a-cluster-of-the-same-beginning-{number}") for number in ALIKE)
    assert problems(one, [one, gke(), eks()]) == []
    assert problems(one, [other]) == [
        f"GKECluster modelplane-system/{one['metadata']['name']}, metadata.name: GKECluster "
        f"modelplane-system/{other['metadata']['name']} would have the same name in Google Cloud (got "
        f'"{one["metadata"]["name"]}"). Rename one of the two.'
    ]
    for cluster, project in ((one, "project-one"), (other, "project-two")):
        cluster["spec"]["project"] = project
    assert problems(one, [other]) == []
