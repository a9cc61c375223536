# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Findings about EKSClusters: every sentence, at the place where the user wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.validation import VALIDATION
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.validation import InvalidClusterError
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import (
    eks,
    gpu,
    inference_class,
    inference_cluster,
)
from ansible_collections.modelplane.fleet.tests.written import cluster_objects

HERE = "EKSCluster modelplane-system/eks-us-west, "
COMPOSED = "InferenceCluster eks-us-west, "
HIGHER = "48 higher in the third octet"


def network(*ranges: str, **more: str) -> dict[str, Any]:
    return eks(networking={"subnetCidrs": list(ranges), **more})


def composed(*pools: dict[str, Any], accelerator: str = "nvidia-l4", **block: Any) -> dict[str, Any]:
    return cluster_objects(inference_cluster(*pools, **block), {"l4": inference_class(accelerator=accelerator)})[0]


def problems(cluster: dict[str, Any], others: Sequence[dict[str, Any]] = ()) -> list[str]:
    return [str(problem) for problem in VALIDATION.problems(cluster, VALIDATION.neighbours(others))]


FINDINGS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": (eks(), []),
    "the schema": (
        eks(gpu(role="Gpu")),
        [
            HERE + 'spec.nodePools[0].role: Must be one of System, GPU (got "Gpu"). Write GPU.',
        ],
    ),
    "a key elsewhere": (
        eks(encryptionConfig={"keyArn": "arn:aws:kms:eu-west-1:123456789012:key/ab"}),
        [
            HERE + "spec.encryptionConfig.keyArn: Is no key in us-west-2, where the cluster is (got "
            '"arn:aws:kms:eu-west-1:123456789012:key/ab"). Choose a key of the region of the cluster.'
        ],
    ),
    "a block in two zones": (
        eks(gpu(zones=["us-west-2a", "us-west-2b"], capacityBlock={"capacityReservationId": "cr-01"})),
        [
            HERE + "spec.nodePools[0].zones: Must be one zone, as a Capacity Block is in one (got us-west-2a, "
            "us-west-2b). Set the zone that the block was bought for."
        ],
    ),
    "a pool beside the zones of the cluster": (
        eks(gpu(zones=["us-west-2c"]), networking={"zones": ["us-west-2a", "us-west-2b"]}),
        [
            HERE + "spec.nodePools[0].zones[0]: The cluster has no subnet in this zone, only in us-west-2a, us-west-2b "
            '(got "us-west-2c"). Choose one of these, or add a range to spec.networking.subnetCidrs and its zone.'
        ],
    ),
    "dots": (
        eks(name="eks.west"),
        [
            "EKSCluster modelplane-system/eks.west, metadata.name: Must have no dots, which the names of EKS clusters "
            'cannot have (got "eks.west"). Choose another name.'
        ],
    ),
    "sg-": (
        eks(name="sg-west"),
        [
            "EKSCluster modelplane-system/sg-west, metadata.name: Must not begin with sg-, as names of security groups "
            'do then, which AWS refuses (got "sg-west"). Choose another name.'
        ],
    ),
    "a zone as region": (
        eks(gpu(zones=["us-west-2a"]), region="us-west-2a"),
        [
            HERE + 'spec.region: Is no name of an AWS region (got "us-west-2a"). Write us-west-2.',
        ],
    ),
    "no region": (
        eks(gpu(zones=["oregona"]), region="oregon"),
        [HERE + 'spec.region: Is no name of an AWS region (got "oregon"). Write a region such as us-west-2.'],
    ),
    "a patch": (
        eks(kubernetesVersion="1.36.2"),
        [
            HERE + "spec.kubernetesVersion: Must be a minor version of Kubernetes, as EKS chooses the patch (got "
            '"1.36.2"). Write it such as "1.36".'
        ],
    ),
    "a v": (
        composed(kubernetesVersion="v1.36"),
        [
            COMPOSED + "spec.cluster.eks.kubernetesVersion: Must be a minor version of Kubernetes, as EKS chooses the "
            'patch (got "v1.36"). Write it such as "1.36".'
        ],
    ),
    "a twin is another's range": (
        network("10.0.0.0/20", "10.0.16.0/20", "10.0.32.0/20", "10.0.48.0/20"),
        [
            HERE
            + "spec.networking.subnetCidrs[3]: Has addresses of the private range of spec.networking.subnetCidrs[0] "
            f"(10.0.48.0/20, {HIGHER}) (got 10.0.48.0/20). Choose for example subnetCidrs: [10.0.0.0/20, 10.0.16.0/20, "
            "10.0.32.0/20, 10.0.96.0/20]."
        ],
    ),
    "overlap": (
        network("10.0.0.0/20", "10.0.8.0/21"),
        [
            HERE + "spec.networking.subnetCidrs[1]: Has addresses of spec.networking.subnetCidrs[0] (10.0.0.0/20) (got "
            "10.0.8.0/21). Choose for example subnetCidrs: [10.0.0.0/20, 10.0.16.0/20]."
        ],
    ),
    "outside": (
        network("10.1.0.0/20", "10.0.16.0/20"),
        [
            HERE + "spec.networking.subnetCidrs[0]: Is not within spec.networking.vpcCidr (10.0.0.0/16) (got "
            "10.1.0.0/20). Choose for example subnetCidrs: [10.0.0.0/20, 10.0.16.0/20]."
        ],
    ),
    "a twin outside": (
        network("10.0.0.0/24", "10.0.1.0/24", vpcCidr="10.0.0.0/19"),
        [
            HERE + f"spec.networking.subnetCidrs[{index}]: Its private range 10.0.{48 + index}.0/24 ({HIGHER}) is not "
            f"within spec.networking.vpcCidr (10.0.0.0/19) (got 10.0.{index}.0/24). Choose smaller ranges, or a larger "
            "vpcCidr."
            for index in (0, 1)
        ],
    ),
    "no twin": (
        network("10.0.0.0/20", "10.0.208.0/20"),
        [
            HERE
            + "spec.networking.subnetCidrs[1]: Has no private range: that begins 48 higher in the third octet, which "
            "would be 256 (got 10.0.208.0/20). Choose for example subnetCidrs: [10.0.0.0/20, 10.0.16.0/20]."
        ],
    ),
    "no range": (
        network("10.0.0.0/20", "10.0.16.1/20"),
        [
            HERE + "spec.networking.subnetCidrs[1]: Must begin with the first address of the range: write 10.0.16.0/20 "
            '(got "10.0.16.1/20").'
        ],
    ),
    "a VPC too large": (
        network("10.0.0.0/20", "10.0.16.0/20", vpcCidr="10.0.0.0/8"),
        [
            HERE
            + 'spec.networking.vpcCidr: Must be between /16 and /28, as AWS has it (got "10.0.0.0/8"). Choose a range '
            "of another size."
        ],
    ),
    "reserved": (
        network("127.0.0.0/20", "127.0.16.0/20", vpcCidr="127.0.0.0/16"),
        [
            HERE
            + f'spec.networking.{field}: Has loopback addresses (127.0.0.0/8) (got "{value}"). Choose a range such '
            "as 10.0.0.0/16."
            for field, value in (
                ("vpcCidr", "127.0.0.0/16"),
                ("subnetCidrs[0]", "127.0.0.0/20"),
                ("subnetCidrs[1]", "127.0.16.0/20"),
            )
        ],
    ),
    "a GPU pool named system": (
        eks(gpu("system")),
        [
            HERE
            + "spec.nodePools[0].name: A GPU pool cannot be named system: that is the pool of controllers that every "
            "cluster gets. Choose another name."
        ],
    ),
    "an accelerator that is no label": (
        eks(gpu(gpu={"acceleratorType": "NVIDIA H200"})),
        [
            HERE
            + "spec.nodePools[0].gpu.acceleratorType: Must be letters, digits, '-', '_' and '.', beginning and ending "
            'with a letter or digit, as it becomes the value of a label of nodes (got "NVIDIA H200").'
        ],
    ),
    "an accelerator of a class that is no label": (
        composed(accelerator="NVIDIA L4"),
        [
            COMPOSED + "spec.nodePools[0].className: Must be letters, digits, '-', '_' and '.', beginning and ending "
            'with a letter or digit, as it becomes the value of a label of nodes (got "NVIDIA L4").'
        ],
    ),
    "no controllers": (
        eks({"name": "s", "role": "System", "instanceType": "m6i.large", "nodeCount": 0, "maxNodeCount": 0}, gpu()),
        [
            HERE
            + "spec.nodePools[0].maxNodeCount: A pool of role System needs nodes, as controllers run there (got 0). "
            "Set it to 1 or more."
        ],
    ),
    "zones twice, of another region, a letter": (
        eks(gpu(zones=["us-west-2a", "us-west-2a", "us-east-1a", "b"])),
        [
            HERE + 'spec.nodePools[0].zones[1]: Is named twice (got "us-west-2a"). Remove one.',
            HERE
            + 'spec.nodePools[0].zones[2]: Is no zone of the region us-west-2 (got "us-east-1a"). Write one such as '
            "us-west-2a, or, if the zone is right, us-east-1 as the region.",
            HERE + 'spec.nodePools[0].zones[3]: Is only a letter (got "b"). Write us-west-2b.',
        ],
    ),
    "zones of an InferenceCluster": (
        composed(
            {"name": "one", "className": "l4", "zones": ["us-west-2a"]},
            {"name": "two", "className": "l4", "zones": ["us-west-2a", "eu-west-1a"]},
        ),
        [
            COMPOSED
            + 'spec.nodePools[1].zones[1]: Is no zone of the region us-west-2 (got "eu-west-1a"). Write one such '
            "as us-west-2a, or, if the zone is right, eu-west-1 as the region."
        ],
    ),
    "zones of the network": (
        eks(gpu(zones=["us-west-2a"]), networking={"zones": ["us-west-2a", "us-west-2a", "us-east-1a"]}),
        [
            HERE + 'spec.networking.zones[1]: Is named twice (got "us-west-2a"). Remove one.',
            HERE + 'spec.networking.zones[2]: Is no zone of the region us-west-2 (got "us-east-1a"). Write one such as '
            "us-west-2a, or, if the zone is right, us-east-1 as the region.",
        ],
    ),
    "not one zone for each range": (
        eks(
            gpu(zones=["us-west-2a"]),
            networking={
                "subnetCidrs": ["10.0.0.0/20", "10.0.16.0/20"],
                "zones": ["us-west-2a", "us-west-2b", "us-west-2c"],
            },
        ),
        [
            HERE + "spec.networking.zones: Must be as many as the ranges of spec.networking.subnetCidrs, which are 2 "
            "(got 3). Give one zone for each range."
        ],
    ),
    "more zones than ranges by default": (
        eks(gpu(zones=["us-west-2a"]), networking={"zones": [f"us-west-2{letter}" for letter in "abcd"]}),
        [
            HERE + "spec.networking.zones: Must be as many as the ranges of spec.networking.subnetCidrs, which are 3 "
            "(got 4). Give one zone for each range."
        ],
    ),
    "more zones than subnets": (
        eks(
            gpu(zones=["us-west-2a", "us-west-2b"]),
            gpu("other", zones=["us-west-2c"]),
            networking={"subnetCidrs": ["10.0.0.0/20", "10.0.16.0/20"]},
        ),
        [
            HERE + "spec.nodePools: The pools name 3 zones (us-west-2a, us-west-2b, us-west-2c), and the cluster has "
            "subnets in 2. Use fewer, or add ranges to spec.networking.subnetCidrs."
        ],
    ),
    "more zones than an InferenceCluster has": (
        composed({"name": "gpu", "className": "l4", "zones": [f"us-west-2{letter}" for letter in "abcd"]}),
        [
            COMPOSED
            + "spec.nodePools: The pools name 4 zones (us-west-2a, us-west-2b, us-west-2c, us-west-2d), and the "
            "cluster has subnets in 3. Use fewer, or write an EKSCluster of that name, which has "
            "networking.subnetCidrs, and make this source: Existing with secretRef.name: eks-us-west-kubeconfig-ef123."
        ],
    ),
}


@pytest.mark.parametrize(("cluster", "expected"), FINDINGS.values(), ids=FINDINGS)
def test_findings(cluster: dict[str, Any], expected: list[str]) -> None:
    assert problems(cluster) == expected
    if expected:
        with pytest.raises(InvalidClusterError) as refused:
            plan(cluster)
        assert str(refused.value).splitlines() == expected


def test_a_name_too_long_for_a_security_group() -> None:
    name = "a" * 252
    (message,) = problems(eks(name=name))
    assert "metadata.name: Must be at most 251 characters, as security groups are named after it" in message


BESIDE: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "itself": (eks(), eks(region="us-east-1"), []),
    "another name": (eks(), eks(name="other"), []),
    "an invalid one": (eks(), eks(name="other", region=7), []),
    "the same name in AWS": (
        eks(name="c", namespace="a-b"),
        eks(name="b-c", namespace="a", region="eu-west-1"),
        [
            'EKSCluster a-b/c, metadata.name: EKSCluster a/b-c would have the same name in AWS (got "c"). Rename one '
            "of the two."
        ],
    ),
    "the same launch template": (
        eks(gpu(fabric="EFA"), namespace="a"),
        eks(gpu(fabric="EFA"), namespace="b"),
        [
            "EKSCluster a/eks-us-west, metadata.name: EKSCluster b/eks-us-west in the same region would have the same "
            'launch template eks-us-west-lt-gpu-l4-29967 (got "eks-us-west"). Rename one of the two, or the pool in '
            "one of them."
        ],
    ),
    "the same launch template in another region": (
        eks(gpu(fabric="EFA"), namespace="a"),
        eks(gpu(fabric="EFA", zones=["eu-west-1a"]), namespace="b", region="eu-west-1"),
        [],
    ),
}


@pytest.mark.parametrize(("cluster", "other", "expected"), BESIDE.values(), ids=BESIDE)
def test_findings_beside_another(cluster: dict[str, Any], other: dict[str, Any], expected: list[str]) -> None:
    assert problems(cluster, [other]) == expected
