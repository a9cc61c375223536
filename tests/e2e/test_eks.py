# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""EKS clusters are made, changed and removed by `provision`, in an account that is acted and on real API servers.

The tests of this file are one story and run in their order: each begins with what the one before it left. Clusters are
made and removed in `make test`; with what goes wrong and what changes in `make interrupted`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import clouds, eks, eks_expected
from ansible_collections.modelplane.fleet.tests.e2e.aws_account import Client, ec2
from ansible_collections.modelplane.fleet.tests.e2e.eks import REGION, RESERVATION, SEED, World, aws_name, pool
from ansible_collections.modelplane.fleet.tests.e2e.eks_expected import Cluster, Group

FAST = "fast"
FAR = "us-east-2"
REGIONS = {SEED: REGION, FAST: FAR}
RUNS_PODS = ("kube-controller-manager", "kube-scheduler", "kwok")
NETWORK = {"vpcCidr": "10.40.0.0/16", "subnetCidrs": ["10.40.0.0/20", "10.40.16.0/20"]}
BLOCK = pool(
    "block",
    "p5.48xlarge",
    ["us-east-2a"],
    diskSizeGb=500,
    nodeCount=2,
    minNodeCount=0,
    maxNodeCount=2,
    capacityBlock={"capacityReservationId": RESERVATION},
    fabric="EFA",
)
FABRIC = pool(
    "fabric",
    "p4d.24xlarge",
    ["us-east-2a", "us-east-2b"],
    accelerator="nvidia-a100",
    nodeCount=0,
    minNodeCount=0,
    maxNodeCount=4,
    fabric="EFA",
)
PLAIN = pool("plain", "g6.2xlarge", ["us-east-2b"], accelerator="nvidia-l4", diskSizeGb=200)
DESIRED = {
    SEED: Cluster(
        SEED,
        REGION,
        public={"us-west-2a": "10.0.0.0/20", "us-west-2b": "10.0.16.0/20", "us-west-2c": "10.0.32.0/20"},
        private={"us-west-2a": "10.0.48.0/20", "us-west-2b": "10.0.64.0/20", "us-west-2c": "10.0.80.0/20"},
        groups={"gpu-l4": Group("g6.xlarge", ("us-west-2a", "us-west-2b"), (1, 4, 1), "nvidia-l4")},
    ),
    FAST: Cluster(
        FAST,
        FAR,
        public={"us-east-2a": "10.40.0.0/20", "us-east-2b": "10.40.16.0/20"},
        private={"us-east-2a": "10.40.48.0/20", "us-east-2b": "10.40.64.0/20"},
        groups={
            "block": Group(
                "p5.48xlarge", ("us-east-2a",), (0, 2, 2), "nvidia-h100", 500, cards=32, reservation=RESERVATION
            ),
            "fabric": Group("p4d.24xlarge", ("us-east-2a", "us-east-2b"), (0, 4, 0), "nvidia-a100", cards=4),
            "plain": Group("g6.2xlarge", ("us-east-2b",), (0, 8, 1), "nvidia-l4", 200),
        },
        vpc="10.40.0.0/16",
        version="1.35",
    ),
}


def fast(*pools: Mapping[str, Any], region: str = FAR, version: str = "1.35", **networking: Any) -> str:
    return eks.eks_cluster(FAST, region, *pools, kubernetesVersion=version, networking={**NETWORK, **networking})


@pytest.fixture(scope="module")
def world(kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("eks")
    with eks.world(kubernetes_programs, folder, REGIONS, components=RUNS_PODS) as started:
        for plane in started.live.workloads.values():
            plane.add_nodes("system", 1)
        make_others(started)
        _reserve(started, "active")
        started.live.write("seed.yaml", eks.seed())
        started.live.write("fast.yaml", fast(BLOCK, FABRIC, PLAIN))
        yield started


def make_others(world: World) -> None:
    """Objects of others in the account: nothing of them may ever change."""
    for cluster in REGIONS:
        client = world.client(cluster)
        vpc = client("ec2").create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        zone = f"{REGIONS[cluster]}a"
        subnets = [
            client("ec2").create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=f"{REGIONS[cluster]}{letter}")
            for cidr, letter in (("10.0.0.0/20", "a"), ("10.0.16.0/20", "b"))
        ]
        subnet_ids = [each["Subnet"]["SubnetId"] for each in subnets]
        client("ec2").allocate_address(Domain="vpc")
        client("ec2").create_security_group(GroupName="k8s-elb-theirs", Description="theirs", VpcId=vpc)
        client("ec2").create_network_interface(SubnetId=subnet_ids[0], Description="aws-K8S-theirs")
        client("ec2").create_launch_template(
            LaunchTemplateName="theirs", LaunchTemplateData={"InstanceType": "t3.nano"}
        )
        client("elbv2").create_load_balancer(Name="theirs", Subnets=subnet_ids, Type="network")
        client("elb").create_load_balancer(
            LoadBalancerName="theirs",
            AvailabilityZones=[zone],
            Listeners=[{"Protocol": "tcp", "LoadBalancerPort": 80, "InstancePort": 80}],
        )
        client("efs").create_file_system(CreationToken="theirs", Encrypted=True)
        while client("efs").describe_file_systems()["FileSystems"][0]["LifeCycleState"] != "available":
            pass
    statement = {"Effect": "Allow", "Principal": {"Service": "eks.amazonaws.com"}, "Action": "sts:AssumeRole"}
    trust = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam = world.client(SEED)("iam")
    role = iam.create_role(RoleName="theirs", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    iam.attach_role_policy(RoleName="theirs", PolicyArn="arn:aws:iam::aws:policy/AmazonEKSClusterPolicy")
    # They have a cluster too, in their own network.
    network = {"subnetIds": subnet_ids}
    theirs = world.client(FAST)("eks")
    theirs.create_cluster(name="theirs", roleArn=role, resourcesVpcConfig=network)
    theirs.get_waiter("cluster_active").wait(name="theirs", WaiterConfig={"Delay": 0, "MaxAttempts": 10})


def _reserve(world: World, state: str, identifier: str = RESERVATION) -> None:
    """A Capacity Block of two machines."""
    world.double.capacity_reservation(
        FAR,
        CapacityReservationId=identifier,
        InstanceType="p5.48xlarge",
        AvailabilityZone="us-east-2a",
        TotalInstanceCount=2,
        State=state,
    )


@pytest.fixture(scope="module")
def empty(world: World) -> dict[str, Any]:
    """The account as it was before any run."""
    return world.content()


# Before anything is made


def test_a_check_lists_what_would_be_made_and_makes_nothing(world: World, empty: Mapping[str, Any]) -> None:
    run = world.provision("--check", "--diff").ok()
    assert run.changed > 0
    assert world.changes == []
    assert world.differences(empty) == []
    for desired in DESIRED.values():
        for name in (
            desired.vpc,
            *desired.public.values(),
            *desired.private.values(),
            desired.aws_name,
            *(desired.role(role) for role in ("cluster", "node", "efs-csi", "cluster-autoscaler")),
            f"{desired.name}-efs",
            "system",
            *desired.groups,
        ):
            assert name in run.output, name
    reported = " ".join(run.output.split())
    for words in (
        "create addon aws-efs-csi-driver",
        "create pod identity association kube-system/cluster-autoscaler",
        "cluster-autoscaler is installed in the cluster",
        *(f"create EKS cluster {desired.aws_name}" for desired in DESIRED.values()),
        *(f"create VPC {desired.aws_name}" for desired in DESIRED.values()),
        *(f"create IAM role {desired.role('node')}" for desired in DESIRED.values()),
        *(f"create security group {desired.name}-efs" for desired in DESIRED.values()),
    ):
        assert words in reported, words


@pytest.mark.interrupted
def test_what_cannot_work_is_reported_before_anything_is_made(world: World, empty: Mapping[str, Any]) -> None:
    _reserve(world, "expired", "cr-07")
    block = {**BLOCK, "capacityBlock": {"capacityReservationId": "cr-07"}}
    with world.kept():
        world.live.write("fast.yaml", fast(block, PLAIN, version="1.99"))
        world.live.edit("seed.yaml", "instanceType: g6.xlarge", "instanceType: p5e.48xlarge")
        world.double.settings(quotas={"ec2": {"L-417A185B": 100.0}})
        run = world.provision()
    assert run.failed == set(REGIONS), run.output
    for words in (
        "does not offer Kubernetes 1.99",
        "It offers 1.32, 1.33, 1.34, 1.35, 1.36",
        "cr-07 is expired",
        "p5e.48xlarge is not offered in us-west-2a, us-west-2b",
        "100 vCPUs",
        "Service Quotas",
    ):
        assert words in run.output, (words, run.output)
    assert world.changes == []
    assert world.differences(empty) == []


# Making it, with what goes wrong on the way


@pytest.mark.interrupted
def test_what_aws_has_no_room_for_is_reported_with_what_to_do(world: World) -> None:
    for group, why in (
        ("gpu-l4", "InsufficientInstanceCapacity - We currently do not have sufficient g6.xlarge capacity"),
        ("plain", "VcpuLimitExceeded - You have requested more vCPU capacity than your current vCPU limit of 0 allows"),
    ):
        message = f"Could not launch On-Demand Instances. {why}. Launching EC2 instance failed."
        world.double.fail("nodegroup", group, code="AsgInstanceLaunchFailures", message=message)
    run = world.provision()
    assert run.failed == set(REGIONS), run.output
    for words in ("InsufficientInstanceCapacity", "capacityBlock", "VcpuLimitExceeded", "Service Quotas"):
        assert words in run.output, run.output


@pytest.mark.interrupted
def test_the_next_run_goes_on_from_there(world: World) -> None:
    before = world.content()
    run = world.provision().ok()
    assert run.changed > 0
    for region, kinds in world.content().items():
        # What costs was made once.
        for kind in ("vpcs", "nat_gateways", "addresses", "clusters"):
            assert _identifiers(kinds[kind]) == _identifiers(before[region][kind]), kind
        assert _identifiers(kinds["file_systems"]) >= _identifiers(before[region]["file_systems"])


@pytest.mark.usefixtures("empty")
def test_clusters_are_made(world: World) -> None:
    world.provision().ok()


def _identifiers(found: Iterable[Mapping[str, Any]]) -> set[str]:
    keys = ("NatGatewayId", "AllocationId", "FileSystemId", "arn", "VpcId")
    return {next(str(each[key]) for key in keys if key in each) for each in found}


CHECKS = (
    eks_expected.check_network,
    eks_expected.check_security_groups,
    eks_expected.check_identities,
    eks_expected.check_cluster,
    eks_expected.check_launch_templates,
    eks_expected.check_node_groups,
    eks_expected.check_addons,
    eks_expected.check_file_system,
)


@pytest.mark.parametrize("cluster", DESIRED)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_aws_has_what_was_declared(world: World, cluster: str, check: Callable[[Client, Cluster], None]) -> None:
    check(world.client(cluster), DESIRED[cluster])


@pytest.mark.parametrize("cluster", DESIRED)
def test_the_cluster_has_its_storage_class_and_releases(world: World, cluster: str) -> None:
    plane = world.live.workloads[cluster]
    eks_expected.check_storage_class(world.client(cluster), DESIRED[cluster], plane)
    autoscaler = world.values(cluster, "cluster-autoscaler")
    assert autoscaler["cloudProvider"] == "aws"
    assert autoscaler["awsRegion"] == REGIONS[cluster]
    assert autoscaler["autoDiscovery"]["clusterName"] == aws_name(cluster)
    assert autoscaler["rbac"]["serviceAccount"]["name"] == "cluster-autoscaler"
    assert autoscaler["extraArgs"] == {"balance-similar-node-groups": True}
    assert plane.get("v1", "ServiceAccount", "cluster-autoscaler", "kube-system") is not None
    if cluster == FAST:
        tolerations = world.values(cluster, "aws-dranet")["tolerations"]
        assert tolerations == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
        assert plane.get("resource.k8s.io/v1", "DeviceClass", "efa.networking.k8s.aws") is not None
    else:
        assert "aws-dranet" not in world.releases(cluster)


@pytest.mark.parametrize("cluster", DESIRED)
def test_the_kubeconfig_of_the_control_cluster_logs_in(world: World, cluster: str) -> None:
    secret = world.secret(cluster)
    assert secret is not None
    kubeconfig = base64.b64decode(secret["data"]["kubeconfig"])
    plane = world.live.workloads[cluster]
    path = world.live.folder / f"{cluster}.kubeconfig"
    path.write_bytes(kubeconfig)
    assert plane.server.encode() in kubeconfig
    assert b"k8s-aws-v1." in kubeconfig
    assert "kube-system" in clouds.namespaces(path)


def test_a_second_run_changes_nothing(world: World) -> None:
    run = world.provision().ok()
    assert (run.changed, world.changes) == (0, []), run.output


# Changes in place


@pytest.mark.interrupted
def test_all_that_aws_can_change_is_changed(world: World) -> None:
    before = world.content()
    eks_client, name = world.client(SEED)("eks"), aws_name(SEED)
    efs = world.client(SEED)("efs")
    # Changes by hand are reverted.
    eks_client.update_cluster_config(name=name, resourcesVpcConfig={"endpointPrivateAccess": False})
    world.settle(SEED)
    eks_client.update_nodegroup_config(
        clusterName=name,
        nodegroupName="gpu-l4",
        labels={"addOrUpdateLabels": {"modelplane.ai/pool": "other"}, "removeLabels": ["modelplane.ai/gpu"]},
        taints={"removeTaints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}]},
    )
    world.settle(SEED)
    identifier = eks_expected.file_system(world.client(SEED), DESIRED[SEED])["FileSystemId"]
    efs.update_file_system(FileSystemId=identifier, ThroughputMode="bursting")
    world.client(SEED)("iam").detach_role_policy(
        RoleName=DESIRED[SEED].role("node"), PolicyArn="arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy"
    )
    # And what is declared changed.
    world.live.edit("seed.yaml", "maxNodeCount: 4", "maxNodeCount: 6")
    grown = {**BLOCK, "diskSizeGb": 600}
    more = {**FABRIC, "name": "more", "zones": ["us-east-2b"]}
    fewer = {**PLAIN, "minNodeCount": 2, "maxNodeCount": 3, "gpu": {"acceleratorType": "nvidia-l4-24g"}}
    world.live.write("fast.yaml", fast(grown, more, fewer, version="1.36"))
    world.live.settings |= {
        "eks_cluster_tags": {"team": "inference"},
        "eks_cluster_addons": {"coredns": {"version": world.older_addon(SEED, "coredns")}},
    }
    run = world.provision().ok()
    assert run.changed > 0
    groups = {
        **DESIRED[FAST].groups,
        "block": replace(DESIRED[FAST].groups["block"], disk=600),
        "more": replace(DESIRED[FAST].groups["fabric"], zones=("us-east-2b",)),
        # Desired nodes are raised to the new minimum, as AWS wants.
        "plain": replace(DESIRED[FAST].groups["plain"], bounds=(2, 3, 2), accelerator="nvidia-l4-24g"),
    }
    del groups["fabric"]
    after = {
        SEED: replace(
            DESIRED[SEED],
            groups={"gpu-l4": replace(DESIRED[SEED].groups["gpu-l4"], bounds=(1, 6, 1))},
            tags={"team": "inference"},
        ),
        FAST: replace(DESIRED[FAST], groups=groups, version="1.36", tags={"team": "inference"}),
    }
    for cluster, desired in after.items():
        eks_expected.check(world.client(cluster), desired)
    account = world.content()
    for cluster, region in REGIONS.items():
        addon = world.client(cluster)("eks").describe_addon(clusterName=aws_name(cluster), addonName="coredns")
        version = world.live.settings["eks_cluster_addons"]["coredns"]["version"]
        assert addon["addon"]["addonVersion"] == version
        for kind in ("vpcs", "nat_gateways", "addresses", "clusters", "file_systems"):
            assert _identifiers(account[region][kind]) == _identifiers(before[region][kind]), kind


@pytest.mark.interrupted
def test_what_others_may_change_stays_and_nothing_but_the_token_changes(world: World) -> None:
    secrets = {cluster: world.secret(cluster) or {} for cluster in REGIONS}
    client = world.client(SEED)("eks")
    # The autoscaler.
    size = {"minSize": 1, "maxSize": 6, "desiredSize": 4}
    client.update_nodegroup_config(clusterName=aws_name(SEED), nodegroupName="gpu-l4", scalingConfig=size)
    world.settle(SEED)
    with world.kept():
        # AWS itself, with clusters whose version is too old.
        world.live.edit("fast.yaml", '"kubernetesVersion": "1.36"', '"kubernetesVersion": "1.35"')
        run = world.provision().ok()
    assert (run.changed, world.changes) == (0, []), run.output
    assert "runs Kubernetes 1.36, which cannot go back to 1.35" in run.output
    for cluster, secret in secrets.items():
        assert (world.secret(cluster) or {})["data"] != secret["data"]


@pytest.mark.interrupted
def test_what_aws_cannot_change_is_refused_before_anything_changes(world: World) -> None:
    before = world.content()
    with world.kept():
        world.live.edit("seed.yaml", "instanceType: g6.xlarge", "instanceType: g6.2xlarge")
        world.live.edit("seed.yaml", "    - us-west-2a\n", "")
        world.live.edit("fast.yaml", "10.40.0.0/16", "10.40.0.0/17")
        # Something that could be changed, and must not be as the rest cannot.
        world.live.settings["eks_cluster_tags"] = {"team": "another"}
        run = world.provision()
    assert run.failed == set(REGIONS), run.output
    for words in ("gpu-l4", "g6.2xlarge", "subnets", "10.40.0.0/17", "spec.networking.vpcCidr"):
        assert words in run.output, (words, run.output)
    assert world.changes == []
    assert world.differences(before) == []


@pytest.mark.interrupted
def test_clusters_of_another_fleet_are_left_alone(world: World) -> None:
    before = world.content()
    with world.of_host(SEED, eks_cluster_state="absent"):
        run = world.provision("-e", "fleet_name=others")
    assert run.failed == set(REGIONS), run.output
    reported = " ".join(run.output.split())
    for desired in DESIRED.values():
        owner = "has another owner: modelplane.ai/fleet=default in its tags, not others"
        assert f"VPC {desired.aws_name} exists already, and {owner}" in reported, reported
    assert world.changes == []
    assert world.differences(before) == []


# Removal


def test_a_check_of_the_removal_removes_nothing(world: World) -> None:
    for cluster in REGIONS:
        leak(world, cluster)
    before = world.content()
    run = world.remove("--check", "--limit", FAST).ok()
    world.planned_changes = run.changed
    assert world.changes == []
    assert world.differences(before) == []


def test_removal_leaves_the_account_as_it_was(world: World, empty: Mapping[str, Any]) -> None:
    run = world.remove().ok()
    assert run.recap[FAST]["changed"] == world.planned_changes > 0
    assert world.differences(empty) == []
    assert all(world.secret(cluster) is None for cluster in REGIONS)


def test_a_second_removal_changes_nothing(world: World) -> None:
    run = world.remove("--limit", FAST).ok()
    assert (run.changed, world.changes) == (0, [])


def leak(world: World, cluster: str) -> None:
    """Objects that controllers in a cluster leave behind in its network: load balancers with their target groups
    and rules, and network interfaces."""
    client, desired = world.client(cluster), DESIRED[cluster]
    vpc = eks_expected.vpc_id(client, desired)
    public = list(eks_expected.subnet_ids(client, desired, "public").values())
    owned = [{"Key": f"kubernetes.io/cluster/{aws_name(cluster)}", "Value": "owned"}]
    groups = [
        client("ec2").create_security_group(GroupName=name, Description="leaked", VpcId=vpc)["GroupId"]
        for name in (f"eks-cluster-sg-{aws_name(cluster)}-123456", "k8s-elb-abcdef")
    ]
    client("ec2").create_tags(Resources=groups, Tags=owned)
    client("elbv2").create_load_balancer(Name=f"k8s-{cluster}", Subnets=public, Type="network", Tags=owned)
    client("elbv2").create_target_group(Name=f"k8s-{cluster}", Protocol="TCP", Port=80, VpcId=vpc, Tags=owned)
    client("elb").create_load_balancer(
        LoadBalancerName=f"classic-{cluster}",
        Subnets=public,
        SecurityGroups=groups[1:],
        Listeners=[{"Protocol": "tcp", "LoadBalancerPort": 80, "InstancePort": 80}],
        Tags=owned,
    )
    private = list(eks_expected.subnet_ids(client, desired, "private").values())
    for subnet in private:
        client("ec2").create_network_interface(SubnetId=subnet, Groups=groups[:1], Description="aws-K8S-i-0123456789")
    assert len(ec2(client, "network_interfaces", vpc_id=vpc)) >= len(private)
