# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The life of two clusters on EKS, step by step: the one of the seed, and one with EFA, a capacity block and a network
of its own. AWS is a double; every object that is built is read back through boto3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("moto", reason="moto is not installed")

from ansible_collections.modelplane.fleet.tests import packages
from ansible_collections.modelplane.fleet.tests.aws.double import AwsDouble
from ansible_collections.modelplane.fleet.tests.e2e.eks_account import BLOCK, CUSTOM, SEED, Account, Site

WEST, FRONTIER = "eks-us-west", "eks-frontier"
WEST_CLUSTER = "modelplane-system-eks-us-west-eks-03b8e"
FRONTIER_CLUSTER = "modelplane-system-eks-frontier-eks-0ee56"
WEST_ROLES = "modelplane-system-eks-us-west-"
POLICIES = "arn:aws:iam::aws:policy/"
ACCOUNT = "123456789012"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    try:
        packages.amazon_aws()
    except packages.UnavailableError as error:
        pytest.skip(str(error))
    with AwsDouble() as aws:
        made = Site(aws, tmp_path_factory.mktemp("eks"))
        made.add(WEST, *SEED)
        block = aws.reserve("p5en.48xlarge", "us-west-2d", 2)
        made.add(FRONTIER, CUSTOM, replace={BLOCK: block})
        yield made
        assert aws.invalid == []
        assert aws.defects == []


@pytest.fixture
def west(site: Site) -> Account:
    return Account(site.aws, "modelplane-system", WEST, WEST_CLUSTER)


@pytest.fixture
def frontier(site: Site) -> Account:
    return Account(site.aws, "modelplane-system", FRONTIER, FRONTIER_CLUSTER)


def test_check_mode_on_an_empty_account_lists_what_would_be_made(site: Site) -> None:
    run = site.run("--check").ok()
    assert site.aws.mutations == []
    assert {
        "eks-us-west-subnet-us-west-2a-d8789",
        "eks-us-west-private-subnet-us-west-2a-9965a",
        "eks-us-west-efs",
        "eks-frontier-efa",
        "gpu-l4",
        "gpu-h200",
        "system",
        "aws-efs-csi-driver",
        "kube-system/cluster-autoscaler",
    } <= set(run.items)
    assert run.changed[WEST] >= 10


def test_both_are_built_at_once(site: Site) -> None:
    for family in ("cluster", "nodegroup", "addon", "nat_gateway", "mount_target", "file_system"):
        site.aws.delay(family, 2)
    run = site.run().ok()
    site.aws.delay("*", 0)
    assert set(run.changed) == {WEST, FRONTIER}


def test_network_of_the_seed(west: Account) -> None:
    vpc, subnets = west.vpc(), west.subnets()
    assert (vpc["cidr"], vpc["dns"]) == ("10.0.0.0/16", [True, True])
    assert {cidr: found[1:] for cidr, found in subnets.items()} == {
        "10.0.0.0/20": ("us-west-2a", True, True),
        "10.0.16.0/20": ("us-west-2b", True, True),
        "10.0.32.0/20": ("us-west-2c", True, True),
        "10.0.48.0/20": ("us-west-2a", False, False),
        "10.0.64.0/20": ("us-west-2b", False, False),
        "10.0.80.0/20": ("us-west-2c", False, False),
    }
    public = {found[0] for found in subnets.values() if found[2]}
    assert west.routes() == {"igw": public, "nat": {found[0] for found in subnets.values()} - public}
    assert west.nat() == {"subnet": subnets["10.0.0.0/20"][0]}
    (gateway,) = west.ec2("describe_internet_gateways", "InternetGateways")
    assert [held["VpcId"] for held in gateway["Attachments"]] == [vpc["id"]]


def test_security_groups(west: Account, frontier: Account) -> None:
    efs = {
        "description": "NFS access to the ModelCache EFS mount targets",
        "in": [("tcp", 2049, "10.0.0.0/16")],
        "out": [],
    }
    groups = west.security_groups()
    assert set(groups) == {"eks-us-west-efs"}
    assert efs.items() <= groups["eks-us-west-efs"].items()
    groups = frontier.security_groups()
    assert set(groups) == {"eks-frontier-efs", "eks-frontier-efa"}
    assert groups["eks-frontier-efs"]["in"] == [("tcp", 2049, "10.32.0.0/16")]
    efa = groups["eks-frontier-efa"]
    assert efa["description"] == "EFA OS-bypass traffic between gang nodes"
    assert [rule[::2] for rule in efa["in"]] == [rule[::2] for rule in efa["out"]] == [("-1", "self")]


ROLES = {
    "cluster-80cb4": ("eks.amazonaws.com", {"sts:AssumeRole"}, {f"{POLICIES}AmazonEKSClusterPolicy"}),
    "node-6c58f": (
        "ec2.amazonaws.com",
        {"sts:AssumeRole"},
        {
            f"{POLICIES}AmazonEKSWorkerNodePolicy",
            f"{POLICIES}AmazonEKS_CNI_Policy",
            f"{POLICIES}AmazonEC2ContainerRegistryReadOnly",
        },
    ),
    "efs-csi-0efb6": (
        "pods.eks.amazonaws.com",
        {"sts:AssumeRole", "sts:TagSession"},
        {f"{POLICIES}service-role/AmazonEFSCSIDriverPolicy"},
    ),
    "cluster-autoscaler-ac5d4": (
        "pods.eks.amazonaws.com",
        {"sts:AssumeRole", "sts:TagSession"},
        {f"arn:aws:iam::{ACCOUNT}:policy/{WEST_ROLES}cluster-autoscaler-ac5d4"},
    ),
}


@pytest.mark.parametrize("name", ROLES)
def test_roles(west: Account, name: str) -> None:
    service, actions, policies = ROLES[name]
    assert west.role(WEST_ROLES + name) == {"service": service, "actions": actions, "policies": policies}


def test_policy_of_the_autoscaler(west: Account) -> None:
    document = west.policy(f"arn:aws:iam::{ACCOUNT}:policy/{WEST_ROLES}cluster-autoscaler-ac5d4")
    assert document["Version"] == "2012-10-17"
    reads, scales = document["Statement"]
    assert (len(reads["Action"]), reads["Effect"], reads["Resource"]) == (9, "Allow", ["*"])
    assert set(scales["Action"]) == {
        "autoscaling:SetDesiredCapacity",
        "autoscaling:TerminateInstanceInAutoScalingGroup",
    }


def test_clusters(west: Account, frontier: Account) -> None:
    found = west.eks()
    assert (found["status"], found["version"]) == ("ACTIVE", "1.36")
    assert found["roleArn"] == f"arn:aws:iam::{ACCOUNT}:role/{WEST_ROLES}cluster-80cb4"
    assert found["accessConfig"]["authenticationMode"] == "API_AND_CONFIG_MAP"
    network = found["resourcesVpcConfig"]
    assert (network["endpointPublicAccess"], network["endpointPrivateAccess"]) == (True, True)
    assert set(network["subnetIds"]) == {subnet[0] for subnet in west.subnets().values()}
    assert network.get("securityGroupIds", []) == []
    assert frontier.eks()["version"] == "1.35"


def test_node_groups_of_the_seed(west: Account) -> None:
    groups = west.node_groups()
    private = {cidr: found[0] for cidr, found in west.subnets().items() if not found[2]}
    assert set(groups) == {"system", "gpu-l4"}
    system, gpu = groups["system"], groups["gpu-l4"]
    assert (system["amiType"], system["instanceTypes"]) == ("AL2023_x86_64_STANDARD", ["m6i.xlarge"])
    assert system["scalingConfig"] == {"minSize": 1, "maxSize": 2, "desiredSize": 1}
    assert (system["labels"], system.get("taints", [])) == ({"modelplane.ai/pool": "system"}, [])
    assert set(system["subnets"]) == set(private.values())
    assert (gpu["amiType"], gpu["instanceTypes"]) == ("AL2023_x86_64_NVIDIA", ["g6.xlarge"])
    assert (gpu["diskSize"], gpu["scalingConfig"]) == (100, {"minSize": 1, "maxSize": 4, "desiredSize": 1})
    assert gpu["labels"] == {"modelplane.ai/pool": "gpu-l4", "modelplane.ai/gpu": "nvidia-l4"}
    assert gpu["taints"] == [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}]
    assert set(gpu["subnets"]) == {private["10.0.48.0/20"], private["10.0.64.0/20"]}
    assert {each["nodeRole"].rpartition("/")[2] for each in groups.values()} == {f"{WEST_ROLES}node-6c58f"}
    assert {each["status"] for each in groups.values()} == {"ACTIVE"}


def test_pools_with_a_fabric(frontier: Account) -> None:
    groups, security = frontier.node_groups(), frontier.security_groups()
    assert set(groups) == {"system", "gpu-h200", "gpu-a100", "gpu-l4"}
    shared = frontier.eks()["resourcesVpcConfig"]["clusterSecurityGroupId"]
    block, efa, plain = groups["gpu-h200"], groups["gpu-a100"], groups["gpu-l4"]
    assert block["capacityType"] == "CAPACITY_BLOCK"
    assert efa.get("capacityType", "ON_DEMAND") == "ON_DEMAND"
    assert plain["scalingConfig"] == {"minSize": 0, "maxSize": 8, "desiredSize": 0}
    assert "launchTemplate" not in plain
    for group, cards, disk in ((block, 16, 1000), (efa, 4, 500)):
        data = frontier.launch_template(group["launchTemplate"]["name"])
        assert group["launchTemplate"]["version"] == str(data["version"]) == "1"
        assert not group.get("instanceTypes")
        assert not group.get("diskSize")
        assert [(each["DeviceName"], each["Ebs"]["VolumeSize"]) for each in data["BlockDeviceMappings"]] == [
            ("/dev/xvda", disk)
        ]
        interfaces = data["NetworkInterfaces"]
        assert [each["NetworkCardIndex"] for each in interfaces] == list(range(cards))
        assert [each["InterfaceType"] for each in interfaces] == ["efa"] + ["efa-only"] * (cards - 1)
        assert [each["DeviceIndex"] for each in interfaces] == [0] + [1] * (cards - 1)
        assert all(set(each["Groups"]) == {security["eks-frontier-efa"]["id"], shared} for each in interfaces)
    data = frontier.launch_template(block["launchTemplate"]["name"])
    assert data["InstanceType"] == "p5en.48xlarge"
    assert data["InstanceMarketOptions"]["MarketType"] == "capacity-block"
    wanted = data["CapacityReservationSpecification"]
    assert wanted["CapacityReservationPreference"] == "capacity-reservations-only"
    assert wanted["CapacityReservationTarget"]["CapacityReservationId"].startswith("cr-")
    assert "InstanceMarketOptions" not in frontier.launch_template(efa["launchTemplate"]["name"])
    assert set(frontier.subnets()) == {
        *(f"10.32.{8 * index}.0/21" for index in range(4)),
        *(f"10.32.{48 + 8 * index}.0/21" for index in range(4)),
    }


def test_addons_identities_and_storage(west: Account) -> None:
    assert west.addons() == dict.fromkeys(
        ("vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent", "aws-efs-csi-driver"), "ACTIVE"
    )
    assert west.pod_identities() == {
        ("kube-system", "efs-csi-controller-sa"): f"{WEST_ROLES}efs-csi-0efb6",
        ("kube-system", "cluster-autoscaler"): f"{WEST_ROLES}cluster-autoscaler-ac5d4",
    }
    private = {found[0] for found in west.subnets().values() if not found[2]}
    assert west.file_system() == {
        "mode": "elastic",
        "encrypted": True,
        "subnets": private,
        "groups": {west.security_groups()["eks-us-west-efs"]["id"]},
    }


def test_a_second_run_finds_nothing_to_do(site: Site) -> None:
    run = site.run().ok()
    assert run.changed == {WEST: 0, FRONTIER: 0}
    assert site.aws.mutations == []


def test_pools_and_versions_change_in_place(site: Site, west: Account) -> None:
    site.edit(
        "inference-cluster-eks.yaml", {"maxNodeCount: 4": "maxNodeCount: 6", "minNodeCount: 1": "minNodeCount: 2"}
    )
    site.edit("cluster-efa.yaml", {'"1.35"': '"1.36"', "diskSizeGb: 500": "diskSizeGb: 600"})
    site.run().ok()
    assert west.node_groups()["gpu-l4"]["scalingConfig"] == {"minSize": 2, "maxSize": 6, "desiredSize": 2}
    frontier = Account(site.aws, "modelplane-system", FRONTIER, FRONTIER_CLUSTER)
    assert frontier.eks()["version"] == "1.36"
    template = frontier.node_groups()["gpu-a100"]["launchTemplate"]
    assert (template["version"], frontier.launch_template(template["name"])["version"]) == ("2", 2)
    assert site.run().ok().changed == {WEST: 0, FRONTIER: 0}


def test_what_somebody_changed_in_the_network_is_put_right(site: Site, west: Account) -> None:
    group = west.security_groups()["eks-us-west-efs"]["id"]
    everybody = [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    site.aws.client("ec2").authorize_security_group_ingress(GroupId=group, IpPermissions=everybody)
    run = site.run("--limit", WEST).ok()
    assert "security group eks-us-west-efs allows something else (ingress)" in run.out
    assert west.security_groups()["eks-us-west-efs"]["in"] == [("tcp", 2049, "10.0.0.0/16")]


def test_another_network_is_refused(site: Site) -> None:
    before = (site.folder / "manifests" / "cluster-efa.yaml").read_text()
    site.edit("cluster-efa.yaml", {"10.32.": "10.64."})
    run = site.run("--limit", FRONTIER)
    site.write("cluster-efa.yaml", before)
    assert "A network cannot be changed" in " ".join(run.out.split())
    assert site.aws.mutations == []


def test_delete_leaves_the_account_empty(site: Site, west: Account) -> None:
    (subnet, *_others), group = list(west.subnets().values()), west.security_groups()["eks-us-west-efs"]["id"]
    site.aws.plant_interface(subnet[0], "aws-K8S-i-0123456789abcdef0", groups=(group,))
    site.remove("--check").ok()
    assert site.aws.mutations == []
    site.remove().ok()
    assert [left for left in site.aws.leftovers() if "reservation" not in left] == []
    again = site.remove().ok()
    assert again.changed == {WEST: 0, FRONTIER: 0}
    assert site.aws.mutations == []
