# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What an EKSCluster is in AWS: names, settings, what AWS would refuse."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from ipaddress import IPv4Network
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.connections import eks_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import eks
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import network, nodes
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.naming import Naming, partition
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cluster import storage_class
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

import eks_samples


def planned(cluster: Mapping[str, Any], *zones: str) -> dict[str, Any]:
    api.parse(dict(cluster))
    assert [str(problem) for problem in eks.problems(cluster, zones) if problem.severity == "error"] == []
    return eks.plan(cluster, zones)


def group(plan: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(value for value in plan["node_groups"] if value["name"] == name)
    return found


NAMES = {
    ("modelplane-system", "eks-us-west"): "modelplane-system-eks-us-west-eks-03b8e",
    ("modelplane-system", "test-cluster"): "modelplane-system-test-cluster-eks-0865f",
    (
        "modelplane-system",
        "a-cluster-name-that-is-much-longer-than-the-limit-allows-x",
    ): "modelplane-system-a-cluster-name-that-is-much-longer-than-f388f",
}
"""Names of the reference implementation."""


@pytest.mark.parametrize(("place", "name"), NAMES.items(), ids=[name for _, name in NAMES])
def test_clusters_have_the_names_that_the_rest_of_the_collection_expects(place: tuple[str, str], name: str) -> None:
    assert Naming(*place).cluster == name == eks_name(place[1])


def test_names_of_parts() -> None:
    naming = Naming("modelplane-system", "eks-us-west")
    assert naming.kubeconfig == "eks-us-west-kubeconfig-ef123"
    assert naming.subnet("public", "us-west-2a") == "eks-us-west-subnet-us-west-2a-d8789"
    assert naming.subnet("private", "us-west-2a") == "eks-us-west-private-subnet-us-west-2a-9965a"
    assert naming.launch_template("gpu-h200") == "eks-us-west-lt-gpu-h200-99b1f"
    assert naming.security_group("efa") == "eks-us-west-efa"
    assert naming.tags == {
        "modelplane.ai/cluster": "modelplane-system.eks-us-west",
        "modelplane.ai/managed-by": "modelplane.fleet",
    }


def test_the_seed() -> None:
    fleet = eks.plans(eks_samples.seed())
    assert fleet.problems == ()
    plan = fleet.plans["eks-us-west"]
    assert plan["network"]["vpc"] == {"name": "modelplane-system-eks-us-west-eks-03b8e", "cidr": "10.0.0.0/16"}
    assert [(each["tier"], each["zone"], each["cidr"]) for each in plan["network"]["subnets"]] == [
        ("public", "us-west-2a", "10.0.0.0/20"),
        ("public", "us-west-2b", "10.0.16.0/20"),
        ("public", "us-west-2c", "10.0.32.0/20"),
        ("private", "us-west-2a", "10.0.48.0/20"),
        ("private", "us-west-2b", "10.0.64.0/20"),
        ("private", "us-west-2c", "10.0.80.0/20"),
    ]
    assert {each["public_ip"] for each in plan["network"]["subnets"] if each["tier"] == "private"} == {False}
    assert {tuple(each["tags"]) for each in plan["network"]["subnets"] if each["tier"] == "private"} == {()}
    assert plan["network"]["nat_gateway"]["subnet"] == plan["network"]["subnets"][0]["name"]
    assert plan["cluster"]["version"] == "1.36"
    assert plan["launch_templates"] == []
    assert [each["key"] for each in plan["security_groups"]] == ["efs"]
    assert plan["kubeconfig_secret"]["name"] == "eks-us-west-kubeconfig-ef123"
    assert not plan["efa"]


def test_node_groups_of_the_seed() -> None:
    plan = eks.plans(eks_samples.seed()).plans["eks-us-west"]
    assert [each["name"] for each in plan["node_groups"]] == ["system", "gpu-l4"]
    assert group(plan, "system") == {
        "name": "system",
        "role": "System",
        "ami_type": "AL2023_x86_64_STANDARD",
        "instance_types": ["m6i.xlarge"],
        "zones": [],
        "min_size": 1,
        "max_size": 2,
        "desired_size": 1,
        "labels": {"modelplane.ai/pool": "system"},
        "taints": [],
        "launch_template": "",
    }
    assert group(plan, "gpu-l4") == {
        "name": "gpu-l4",
        "role": "GPU",
        "ami_type": "AL2023_x86_64_NVIDIA",
        "instance_types": ["g6.xlarge"],
        "disk_size": 100,
        "zones": ["us-west-2a", "us-west-2b"],
        "min_size": 1,
        "max_size": 4,
        "desired_size": 1,
        "labels": {"modelplane.ai/pool": "gpu-l4", "modelplane.ai/gpu": "nvidia-l4"},
        "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
        "launch_template": "",
    }


def test_efa_and_a_capacity_block() -> None:
    plan = planned(eks_samples.efa())
    block = group(plan, "gpu-h200")
    assert block["capacity_type"] == "CAPACITY_BLOCK"
    assert not {"instance_types", "disk_size"} & set(block)
    template = next(each for each in plan["launch_templates"] if each["pool"] == "gpu-h200")
    assert template["name"] == block["launch_template"]
    data = template["data"]
    assert data["InstanceType"] == "p5en.48xlarge"
    assert data["BlockDeviceMappings"] == [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 1000}}]
    assert data["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    assert data["CapacityReservationSpecification"] == {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": "cr-0123456789abcdef0"},
    }
    cards = data["NetworkInterfaces"]
    assert [each["NetworkCardIndex"] for each in cards] == list(range(16))
    assert [each["InterfaceType"] for each in cards] == ["efa"] + ["efa-only"] * 15
    assert [each["DeviceIndex"] for each in cards] == [0] + [1] * 15
    assert not {key for each in cards for key in each} & {"AssociatePublicIpAddress", "SubnetId"}
    efa = plan["security_groups"][0]
    assert (efa["name"], efa["ingress"], efa["egress"]) == (
        "eks-frontier-efa",
        [{"proto": "all", "group_name": ["eks-frontier-efa"]}],
        [{"proto": "all", "group_name": ["eks-frontier-efa"]}],
    )


def test_efa_alone_is_bought_on_demand() -> None:
    plan = planned(eks_samples.efa())
    assert "capacity_type" not in group(plan, "gpu-a100")
    data = next(each for each in plan["launch_templates"] if each["pool"] == "gpu-a100")["data"]
    assert not {"InstanceMarketOptions", "CapacityReservationSpecification"} & set(data)
    assert len(data["NetworkInterfaces"]) == 4


CARDS = {"p5.48xlarge": 32, "p5e.48xlarge": 32, "p5en.48xlarge": 16, "p4d.24xlarge": 4, "p4de.24xlarge": 4}


@pytest.mark.parametrize(("instance", "cards"), [*CARDS.items(), ("g6.48xlarge", 1)])
def test_network_cards(instance: str, cards: int) -> None:
    assert nodes.network_cards(instance) == cards


SIZES = {
    "defaults": ({}, (0, 8, 1)),
    "start below the minimum": ({"nodeCount": 1, "minNodeCount": 3}, (3, 8, 3)),
    "scaled to zero": ({"nodeCount": 0, "maxNodeCount": 2}, (0, 2, 0)),
    "fixed": ({"nodeCount": 2, "minNodeCount": 2, "maxNodeCount": 2}, (2, 2, 2)),
}


@pytest.mark.parametrize(("written", "sizes"), SIZES.values(), ids=SIZES)
def test_sizes(written: dict[str, int], sizes: tuple[int, int, int]) -> None:
    found = group(planned(eks_samples.cluster(eks_samples.pool(**written))), "gpu")
    assert (found["min_size"], found["max_size"], found["desired_size"]) == sizes


def test_a_system_pool_that_is_written_takes_the_place_of_ours() -> None:
    system = {"name": "controllers", "role": "System", "instanceType": "m7i.xlarge", "maxNodeCount": 3}
    plan = planned(eks_samples.cluster(system, eks_samples.pool()))
    assert [each["name"] for each in plan["node_groups"]] == ["controllers", "gpu"]
    found = group(plan, "controllers")
    assert (found["ami_type"], found["taints"]) == ("AL2023_x86_64_STANDARD", [])
    assert found["labels"] == {"modelplane.ai/pool": "controllers"}


def test_defaults_are_those_of_the_kind() -> None:
    api_spec = api.wire(api.parse(eks_samples.cluster(networking={})))["spec"]
    model: Any = api.KINDS["EKSCluster"].model_fields["spec"].annotation
    written = model.model_validate(api_spec)
    plan = planned(eks_samples.cluster())
    assert plan["cluster"]["version"] == written.kubernetes_version
    assert written.networking.vpc_cidr == network.VPC_CIDR
    assert list(network.SUBNET_CIDRS) == written.networking.subnet_cidrs
    pool, found = written.node_pools[0], group(plan, "gpu")
    assert (found["min_size"], found["max_size"]) == (pool.min_node_count, pool.max_node_count)
    assert found["disk_size"] == pool.disk_size_gb


def test_storage_class_is_the_one_that_is_published() -> None:
    assert planned(eks_samples.cluster())["storage_class"] == storage_class(eks_samples.seed()[1])


REGIONS = {"us-west-2": "aws", "cn-north-1": "aws-cn", "us-gov-west-1": "aws-us-gov", "eusc-de-east-1": "aws-eusc"}


@pytest.mark.parametrize(("region", "expected"), REGIONS.items())
def test_partitions(region: str, expected: str) -> None:
    assert partition(region) == expected
    plan = planned(eks_samples.cluster(eks_samples.pool(zones=[f"{region}a"]), region=region))
    arns = [arn for role in plan["roles"] for arn in role["managed_policies"]]
    assert {arn.split(":")[1] for arn in arns} == {expected}


def test_roles() -> None:
    roles = {role["key"]: role for role in planned(eks_samples.cluster())["roles"]}
    assert {key: role["trust"]["Statement"][0]["Principal"]["Service"] for key, role in roles.items()} == {
        "cluster": "eks.amazonaws.com",
        "node": "ec2.amazonaws.com",
        "efs-csi": "pods.eks.amazonaws.com",
        "cluster-autoscaler": "pods.eks.amazonaws.com",
    }
    assert {arn.rpartition("/")[2] for arn in roles["node"]["managed_policies"]} == {
        "AmazonEKSWorkerNodePolicy",
        "AmazonEKS_CNI_Policy",
        "AmazonEC2ContainerRegistryReadOnly",
    }
    assert roles["efs-csi"]["trust"]["Statement"][0]["Action"] == ["sts:AssumeRole", "sts:TagSession"]
    assert roles["efs-csi"]["managed_policies"] == ["arn:aws:iam::aws:policy/service-role/AmazonEFSCSIDriverPolicy"]
    assert len({role["name"] for role in roles.values()}) == 4


FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "four default ranges": (
        {"networking": {"subnetCidrs": [f"10.0.{16 * index}.0/20" for index in range(4)]}},
        "spec.networking.subnetCidrs[0]",
        "the public subnet 10.0.48.0/20 of us-west-2d and the private subnet 10.0.48.0/20 of us-west-2a overlap",
    ),
    "outside the VPC": (
        {"networking": {"vpcCidr": "10.1.0.0/16"}},
        "spec.networking.subnetCidrs[0]",
        "the public subnet 10.0.0.0/20 of us-west-2a is not inside the VPC 10.1.0.0/16",
    ),
    "beyond the VPC": (
        {"networking": {"subnetCidrs": ["10.0.208.0/20", "10.0.0.0/20"]}},
        "spec.networking.subnetCidrs[0]",
        "the private subnet 10.1.0.0/20 of us-west-2a is not inside the VPC",
    ),
    "large ranges": (
        {"networking": {"subnetCidrs": ["10.0.0.0/18", "10.0.128.0/18"]}},
        "spec.networking.subnetCidrs[0]",
        "overlap",
    ),
    "bits of a host": (
        {"networking": {"subnetCidrs": ["10.0.0.1/20", "10.0.16.0/20"]}},
        "spec.networking.subnetCidrs[0]",
        "is no IPv4 network of /16 to /28",
    ),
    "no mask": ({"networking": {"vpcCidr": "10.0.0.0"}}, "spec.networking.vpcCidr", "is no IPv4 network"),
    "too small": (
        {"networking": {"subnetCidrs": ["10.0.0.0/29", "10.0.16.0/20"]}},
        "spec.networking.subnetCidrs[0]",
        "is no IPv4 network",
    ),
    "zone without a subnet": (
        {"nodePools": [eks_samples.pool(zones=["us-west-2a", "us-west-2d"])]},
        "spec.nodePools[0].zones[1]",
        "pool gpu is in a zone without a subnet",
    ),
    "capacity block in two zones": (
        {
            "nodePools": [
                eks_samples.pool(
                    zones=["us-west-2a", "us-west-2b"], capacityBlock={"capacityReservationId": "cr-0123456789abcdef0"}
                )
            ]
        },
        "spec.nodePools[0].zones",
        "pool gpu takes its nodes from cr-0123456789abcdef0 and is in 2 zones",
    ),
    "no node ever": (
        {"nodePools": [eks_samples.pool(nodeCount=0, maxNodeCount=0)]},
        "spec.nodePools[0].maxNodeCount",
        "EKS takes no group that stays empty",
    ),
    "no label": (
        {"nodePools": [eks_samples.pool(gpu={"acceleratorType": "NVIDIA L4"})]},
        "spec.nodePools[0].gpu.acceleratorType",
        "is no value of a label",
    ),
    "old": ({"kubernetesVersion": "1.33"}, "spec.kubernetesVersion", "Kubernetes 1.34 and newer"),
    "patch version": ({"kubernetesVersion": "1.36.1"}, "spec.kubernetesVersion", "is no version of EKS"),
}


@pytest.mark.parametrize(("spec", "path", "words"), FAULTS.values(), ids=FAULTS)
def test_what_aws_would_refuse(spec: dict[str, Any], path: str, words: str) -> None:
    cluster = eks_samples.cluster(**spec)
    api.parse(cluster)
    errors = [problem for problem in eks.problems(cluster) if problem.severity == "error"]
    assert [problem for problem in errors if problem.path == path and words in problem.message], list(map(str, errors))
    assert all(problem.hint and str(problem.ref) == "EKSCluster modelplane-system/west" for problem in errors)
    assert "west" not in eks.plans([cluster]).plans


def test_a_name_with_a_dot() -> None:
    (problem,) = eks.problems(eks_samples.cluster(name="us.west"))
    assert (problem.path, problem.value) == ("metadata.name", "us.west")


WARNINGS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "EFA over zones": (
        [eks_samples.pool(fabric="EFA", zones=["us-west-2a", "us-west-2b"])],
        "EFA reaches no other zone",
    ),
    "called system": ([eks_samples.pool("system")], "is called system"),
    "one block twice": (
        [
            eks_samples.pool("one", capacityBlock={"capacityReservationId": "cr-0a"}),
            eks_samples.pool("two", capacityBlock={"capacityReservationId": "cr-0a"}),
        ],
        "takes nodes from cr-0a, as pool one does",
    ),
}


@pytest.mark.parametrize(("pools", "words"), WARNINGS.values(), ids=WARNINGS)
def test_what_may_be_meant(pools: list[dict[str, Any]], words: str) -> None:
    (problem,) = eks.problems(eks_samples.cluster(*pools))
    assert problem.severity == "warning"
    assert words in problem.message
    assert "west" in eks.plans([eks_samples.cluster(*pools)]).plans


def test_zones_of_ones_own() -> None:
    zones = ("us-west-2b", "us-west-2c", "us-west-2d")
    cluster = eks_samples.cluster(eks_samples.pool(zones=["us-west-2d"]))
    plan = planned(cluster, *zones)
    assert [each["zone"] for each in plan["network"]["subnets"]] == [*zones, *zones]
    assert plan["preflight"]["zones"] == list(zones)
    problem = next(iter(eks.problems(cluster, zones[:2])))
    assert "has 3 ranges for 2 zones" in problem.message


def test_preflight() -> None:
    assert planned(eks_samples.efa())["preflight"] == {
        "name": "eks-frontier",
        "region": "us-west-2",
        "version": "1.35",
        "vpc_cidr": "10.32.0.0/16",
        "zones": ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"],
        "instance_types": {
            "us-west-2a": ["g6.xlarge", "m6i.xlarge", "p4d.24xlarge"],
            "us-west-2b": ["g6.xlarge", "m6i.xlarge"],
            "us-west-2c": ["m6i.xlarge"],
            "us-west-2d": ["m6i.xlarge", "p5en.48xlarge"],
        },
        "efa": {"p5en.48xlarge": 16, "p4d.24xlarge": 4},
        "capacity_reservations": [
            {"id": "cr-0123456789abcdef0", "instance_type": "p5en.48xlarge", "zones": ["us-west-2d"], "count": 2}
        ],
    }


def test_clusters_whose_networks_could_not_be_connected() -> None:
    fleet = eks.plans([*eks_samples.seed(), eks_samples.cluster(), eks_samples.efa()])
    assert set(fleet.plans) == {"eks-us-west", "west", "eks-frontier"}
    ((name, problem),) = fleet.problems
    assert (name, problem.severity) == ("eks-us-west", "warning")
    assert "the VPC has addresses of those of west" in problem.message


def test_two_clusters_of_one_name() -> None:
    composed = eks_samples.cluster(name="eks-us-west")
    fleet = eks.plans([*eks_samples.seed(), composed, eks_samples.cluster(namespace="team")])
    assert set(fleet.plans) == {"west"}
    ((name, problem),) = [entry for entry in fleet.problems if entry[1].severity == "error"]
    assert name == "eks-us-west"
    assert "InferenceCluster eks-us-west becomes EKSCluster modelplane-system/eks-us-west" in problem.message


def test_an_inference_cluster_without_its_class() -> None:
    fleet = eks.plans([eks_samples.seed()[1]])
    ((name, problem),) = fleet.problems
    assert (name, str(problem.ref)) == ("eks-us-west", "InferenceCluster eks-us-west")
    assert "InferenceClass eks-l4-1x-g6 does not exist" in problem.message
    assert fleet.plans == {}


def test_others_are_left_alone() -> None:
    others = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}
    existing = {"kind": "InferenceCluster", "metadata": {"name": "x"}, "spec": {"cluster": {"source": "Existing"}}}
    assert eks.plans([others, existing]) == eks.Fleet()


CIDRS = st.tuples(st.integers(0, 255), st.integers(16, 28)).map(
    lambda entry: str(IPv4Network(((10 << 24) + (entry[0] << 8), entry[1]), strict=False))
)


@given(st.lists(CIDRS, min_size=2, max_size=6))
def test_a_network_without_problems_can_be_made(cidrs: list[str]) -> None:
    spec = {"region": "us-west-2", "networking": {"subnetCidrs": cidrs}}
    told = list(network.problems(spec))
    made = [IPv4Network(subnet.cidr) for subnet in network.subnets(spec)]
    fits = all(subnet.subnet_of(IPv4Network("10.0.0.0/16")) for subnet in made) and not any(
        one.overlaps(other) for one, other in combinations(made, 2)
    )
    assert bool(told) is not fits
