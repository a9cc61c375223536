# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The objects of which an EKS cluster has to be made, one after the other, as AWS and the cluster itself describe it.

Written after the specification and not with what the collection knows: names and settings are spelled out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.tests.e2e.aws_account import Client, ec2, pages, tags_of
from ansible_collections.modelplane.fleet.tests.e2e.clouds import child_name
from ansible_collections.modelplane.fleet.tests.e2e.eks import aws_name
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import SYSTEM
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

Object = dict[str, Any]
_EVERYWHERE = "0.0.0.0/0"
_GPU_TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}
_MANAGED = "arn:aws:iam::aws:policy"
_CONTROLLERS = ["sts:AssumeRole", "sts:TagSession"]
_ADDONS = {"vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent", "aws-efs-csi-driver"}
_AUTOSCALER_READS = {
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:DescribeLaunchConfigurations",
    "autoscaling:DescribeScalingActivities",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:GetInstanceTypesFromInstanceRequirements",
    "eks:DescribeNodegroup",
}
_AUTOSCALER_CHANGES = {"autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"}


@dataclass(frozen=True)
class Group:
    """A node group with GPUs. `bounds`: fewest, most, and, where it was never scaled, desired nodes; `cards`: network
    cards with EFA; `reservation`: its Capacity Block."""

    instance: str
    zones: Sequence[str]
    bounds: tuple[int, int, int]
    accelerator: str
    disk: int = 100
    cards: int = 0
    reservation: str = ""

    @property
    def fixed(self) -> bool:
        """True where the launch template names the instance type."""
        return bool(self.cards or self.reservation)


@dataclass(frozen=True)
class Cluster:
    """An EKS cluster in words of the specification. `public` and `private`: ranges of the subnets, by zone."""

    name: str
    region: str
    public: Mapping[str, str]
    private: Mapping[str, str]
    groups: Mapping[str, Group]
    vpc: str = "10.0.0.0/16"
    version: str = "1.36"
    fleet: str = "default"
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def aws_name(self) -> str:
        return aws_name(self.name)

    @property
    def efa(self) -> bool:
        return any(group.cards for group in self.groups.values())

    @property
    def all_tags(self) -> Object:
        ours = {"cluster": self.aws_name, "managed-by": "modelplane.fleet", "fleet": self.fleet}
        return {**{f"modelplane.ai/{key}": value for key, value in ours.items()}, **self.tags}

    def role(self, role: str) -> str:
        return child_name(SYSTEM, self.name, role)

    def tagged(self, found: Mapping[str, Any]) -> None:
        """An object has the tags of the cluster."""
        tags = tags_of(found)
        assert {key: tags.get(key) for key in self.all_tags} == self.all_tags, found


def check(client: Client, desired: Cluster) -> None:
    """All that AWS has of a cluster."""
    check_network(client, desired)
    check_security_groups(client, desired)
    check_identities(client, desired)
    check_cluster(client, desired)
    check_launch_templates(client, desired)
    check_node_groups(client, desired)
    check_addons(client, desired)
    check_file_system(client, desired)


# The network


def vpc_id(client: Client, desired: Cluster) -> str:
    (vpc,) = [each for each in ec2(client, "vpcs") if tags_of(each).get("modelplane.ai/cluster") == desired.aws_name]
    return str(vpc["VpcId"])


def subnet_ids(client: Client, desired: Cluster, tier: str) -> dict[str, str]:
    """The subnets of a tier by zone."""
    ranges = desired.public if tier == "public" else desired.private
    found = ec2(client, "subnets", vpc_id=vpc_id(client, desired))
    return {each["AvailabilityZone"]: each["SubnetId"] for each in found if each["CidrBlock"] in ranges.values()}


def check_network(client: Client, desired: Cluster) -> None:
    identifier = vpc_id(client, desired)
    (vpc,) = ec2(client, "vpcs", vpc_id=identifier)
    assert (vpc["CidrBlock"], tags_of(vpc)["Name"]) == (desired.vpc, desired.aws_name)
    assert [each["CidrBlock"] for each in vpc["CidrBlockAssociationSet"]] == [desired.vpc]
    desired.tagged(vpc)
    for attribute in ("enableDnsHostnames", "enableDnsSupport"):
        answer = client("ec2").describe_vpc_attribute(VpcId=identifier, Attribute=attribute)
        assert answer[f"E{attribute[1:]}"]["Value"] is True, attribute
    _check_subnets(client, desired, identifier)
    (gateway,) = ec2(client, "internet_gateways", attachment__vpc_id=identifier)
    assert tags_of(gateway)["Name"] == desired.aws_name
    desired.tagged(gateway)
    (nat,) = ec2(client, "nat_gateways", vpc_id=identifier)
    assert nat["SubnetId"] == subnet_ids(client, desired, "public")[min(desired.public)]
    assert nat["State"] == "available"
    desired.tagged(nat)
    used = {each["AllocationId"] for each in nat["NatGatewayAddresses"]}
    (address,) = [each for each in ec2(client, "addresses") if each["AllocationId"] in used]
    assert address["Domain"] == "vpc"
    for tier, target in (("public", {"GatewayId": gateway["InternetGatewayId"]}), ("private", _by_nat(nat))):
        _check_routes(client, desired, tier, target)


def _by_nat(nat: Mapping[str, Any]) -> Object:
    return {"NatGatewayId": nat["NatGatewayId"]}


def _check_subnets(client: Client, desired: Cluster, vpc: str) -> None:
    found = {}
    for subnet in ec2(client, "subnets", vpc_id=vpc):
        desired.tagged(subnet)
        tags = tags_of(subnet)
        elb = {key: value for key, value in tags.items() if "elb" in key}
        found[tags["Name"]] = (subnet["CidrBlock"], subnet["AvailabilityZone"], subnet["MapPublicIpOnLaunch"], elb)
    public = {
        child_name(desired.name, f"subnet-{zone}"): (cidr, zone, True, {"kubernetes.io/role/elb": "1"})
        for zone, cidr in desired.public.items()
    }
    private = {
        child_name(desired.name, f"private-subnet-{zone}"): (cidr, zone, False, {})
        for zone, cidr in desired.private.items()
    }
    assert found == {**public, **private}


def _check_routes(client: Client, desired: Cluster, tier: str, target: Mapping[str, str]) -> None:
    """The table of a tier sends what leaves the network to `target`, and the subnets of the tier use it."""
    tables = ec2(client, "route_tables", vpc_id=vpc_id(client, desired))
    subnets = set(subnet_ids(client, desired, tier).values())
    using = [table for table in tables if subnets & {each.get("SubnetId") for each in table["Associations"]}]
    assert len(using) == 1, using
    (table,) = using
    assert {each["SubnetId"] for each in table["Associations"]} == subnets
    routes = {each["DestinationCidrBlock"]: each for each in table["Routes"]}
    assert set(routes) == {desired.vpc, _EVERYWHERE}
    assert {key: routes[_EVERYWHERE][key] for key in target} == target
    desired.tagged(table)
    # The other two are the main one, which comes with every VPC, and that of the other tier.
    assert len(tables) == 3


def check_security_groups(client: Client, desired: Cluster) -> None:
    found = {each["GroupName"]: each for each in ec2(client, "security_groups", vpc_id=vpc_id(client, desired))}
    ours = {name: each for name, each in found.items() if tags_of(each).get("modelplane.ai/cluster")}
    assert set(ours) == {f"{desired.name}-efs"} | ({f"{desired.name}-efa"} if desired.efa else set())
    efs = ours[f"{desired.name}-efs"]
    assert efs["Description"] == "NFS access to the ModelCache EFS mount targets"
    (rule,) = efs["IpPermissions"]
    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 2049, 2049)
    assert [each["CidrIp"] for each in rule["IpRanges"]] == [desired.vpc]
    assert (rule["UserIdGroupPairs"], efs["IpPermissionsEgress"]) == ([], [])
    desired.tagged(efs)
    if desired.efa:
        efa = ours[f"{desired.name}-efa"]
        assert efa["Description"] == "EFA OS-bypass traffic between gang nodes"
        for rules in (efa["IpPermissions"], efa["IpPermissionsEgress"]):
            (rule,) = rules
            assert rule["IpProtocol"] == "-1"
            assert [each["GroupId"] for each in rule["UserIdGroupPairs"]] == [efa["GroupId"]]
            assert rule["IpRanges"] == []
        desired.tagged(efa)


# Rights


def check_identities(client: Client, desired: Cluster) -> None:
    iam = client("iam")
    account = client("sts").get_caller_identity()["Account"]
    own = f"arn:aws:iam::{account}:policy/{desired.role('cluster-autoscaler')}"
    nodes = ("AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly")
    for role, service, actions, policies in (
        ("cluster", "eks.amazonaws.com", ["sts:AssumeRole"], {f"{_MANAGED}/AmazonEKSClusterPolicy"}),
        ("node", "ec2.amazonaws.com", ["sts:AssumeRole"], {f"{_MANAGED}/{policy}" for policy in nodes}),
        ("efs-csi", "pods.eks.amazonaws.com", _CONTROLLERS, {f"{_MANAGED}/service-role/AmazonEFSCSIDriverPolicy"}),
        ("cluster-autoscaler", "pods.eks.amazonaws.com", _CONTROLLERS, {own}),
    ):
        found = iam.get_role(RoleName=desired.role(role))["Role"]
        document = found["AssumeRolePolicyDocument"]
        (statement,) = document["Statement"]
        assert (document["Version"], statement["Effect"]) == ("2012-10-17", "Allow")
        assert statement["Principal"] == {"Service": service}
        assert _listed(statement["Action"]) == actions
        attached = pages(iam, "list_attached_role_policies", "AttachedPolicies", RoleName=desired.role(role))
        assert {each["PolicyArn"] for each in attached} == policies
        assert pages(iam, "list_role_policies", "PolicyNames", RoleName=desired.role(role)) == []
        desired.tagged(found)
    policy = iam.get_policy(PolicyArn=own)["Policy"]
    version = iam.get_policy_version(PolicyArn=own, VersionId=policy["DefaultVersionId"])["PolicyVersion"]
    assert version["Document"]["Version"] == "2012-10-17"
    statements = version["Document"]["Statement"]
    assert [each["Effect"] for each in statements] == ["Allow", "Allow"]
    assert [each["Resource"] for each in statements] == [["*"], ["*"]]
    assert [set(each["Action"]) for each in statements] == [_AUTOSCALER_READS, _AUTOSCALER_CHANGES]
    # EKS gives this tag to the groups of Auto Scaling of its node groups.
    own = {f"aws:ResourceTag/k8s.io/cluster-autoscaler/{desired.aws_name}": "owned"}
    assert [each.get("Condition") for each in statements] == [None, {"StringEquals": own}]
    desired.tagged(policy)
    assert pages(iam, "list_instance_profiles", "InstanceProfiles") == []


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def role_arn(client: Client, desired: Cluster, role: str) -> str:
    return str(client("iam").get_role(RoleName=desired.role(role))["Role"]["Arn"])


# EKS


def check_cluster(client: Client, desired: Cluster) -> None:
    found = client("eks").describe_cluster(name=desired.aws_name)["cluster"]
    assert (found["status"], found["version"]) == ("ACTIVE", desired.version)
    assert found["roleArn"] == role_arn(client, desired, "cluster")
    assert found["accessConfig"]["authenticationMode"] == "API_AND_CONFIG_MAP"
    network = found["resourcesVpcConfig"]
    every = {*subnet_ids(client, desired, "public").values(), *subnet_ids(client, desired, "private").values()}
    assert set(network["subnetIds"]) == every
    assert (network["endpointPublicAccess"], network["endpointPrivateAccess"]) == (True, True)
    assert not network.get("securityGroupIds")
    assert not found.get("encryptionConfig")
    assert not any(each["enabled"] for each in (found.get("logging") or {}).get("clusterLogging") or ())
    desired.tagged(found)


def check_launch_templates(client: Client, desired: Cluster) -> None:
    templates = {each["LaunchTemplateName"]: each for each in ec2(client, "launch_templates")}
    ours = {name for name, each in templates.items() if desired.all_tags.items() <= tags_of(each).items()}
    assert ours == {_template(desired, pool) for pool in ("system", *desired.groups)}
    for pool in ("system", *desired.groups):
        template = templates[_template(desired, pool)]
        assert template["DefaultVersionNumber"] == template["LatestVersionNumber"]
        _check_template(client, desired, template, desired.groups.get(pool))


def _template(desired: Cluster, pool: str) -> str:
    fixed = pool in desired.groups and desired.groups[pool].fixed
    return child_name(*(() if fixed else (SYSTEM,)), desired.name, f"lt-{pool}")


def _check_template(client: Client, desired: Cluster, template: Mapping[str, Any], group: Group | None) -> None:
    """A launch template. `group` is None for that of the controllers, whose disk has the size of the image."""
    versions = client("ec2").describe_launch_template_versions(
        LaunchTemplateId=template["LaunchTemplateId"], Versions=["$Latest"]
    )
    data = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    assert data.get("InstanceType") == (group.instance if group and group.fixed else None)
    (disk,) = data["BlockDeviceMappings"]
    assert (disk["DeviceName"], disk["Ebs"]["Encrypted"]) == ("/dev/xvda", True)
    assert disk["Ebs"].get("VolumeSize") == (group.disk if group else None)
    metadata = data["MetadataOptions"]
    assert (metadata["HttpTokens"], metadata["HttpPutResponseHopLimit"]) == ("required", 1)
    if group is None or not group.fixed:
        assert not {"InstanceMarketOptions", "CapacityReservationSpecification", "NetworkInterfaces"} & set(data)
        return
    if group.reservation:
        assert data["InstanceMarketOptions"]["MarketType"] == "capacity-block"
        wish = data["CapacityReservationSpecification"]
        assert wish["CapacityReservationPreference"] == "capacity-reservations-only"
        assert wish["CapacityReservationTarget"]["CapacityReservationId"] == group.reservation
    else:
        assert "InstanceMarketOptions" not in data
        assert "CapacityReservationSpecification" not in data
    cluster = client("eks").describe_cluster(name=desired.aws_name)["cluster"]
    (efa,) = [
        each["GroupId"]
        for each in ec2(client, "security_groups", vpc_id=vpc_id(client, desired))
        if each["GroupName"] == f"{desired.name}-efa"
    ]
    groups = {efa, cluster["resourcesVpcConfig"]["clusterSecurityGroupId"]}
    cards = data.get("NetworkInterfaces") or []
    assert [(each["NetworkCardIndex"], each["DeviceIndex"], each["InterfaceType"]) for each in cards] == [
        (card, 1 if card else 0, "efa-only" if card else "efa") for card in range(group.cards)
    ]
    assert all(set(each["Groups"]) == groups for each in cards)
    assert not any({"AssociatePublicIpAddress", "SubnetId"} & set(each) for each in cards)


def check_node_groups(client: Client, desired: Cluster) -> None:
    eks = client("eks")
    assert set(pages(eks, "list_nodegroups", "nodegroups", clusterName=desired.aws_name)) == {
        "system",
        *desired.groups,
    }
    private = subnet_ids(client, desired, "private")
    node = role_arn(client, desired, "node")
    system = eks.describe_nodegroup(clusterName=desired.aws_name, nodegroupName="system")["nodegroup"]
    assert (system["amiType"], system["instanceTypes"]) == ("AL2023_x86_64_STANDARD", ["m6i.xlarge"])
    assert (system["labels"], system.get("taints") or []) == ({"modelplane.ai/pool": "system"}, [])
    assert _bounds(system) == (1, 2, 1)
    _check_uses_template(client, desired, "system", system)
    assert set(system["subnets"]) == set(private.values())
    for group in [system, *(_described(client, desired, pool) for pool in desired.groups)]:
        assert (group["status"], group["nodeRole"]) == ("ACTIVE", node)
        desired.tagged(group)
    for pool, expected in desired.groups.items():
        found = _described(client, desired, pool)
        assert found["amiType"] == "AL2023_x86_64_NVIDIA"
        assert found["labels"] == {"modelplane.ai/gpu": expected.accelerator, "modelplane.ai/pool": pool}
        assert found["taints"] == [_GPU_TAINT]
        assert set(found["subnets"]) == {private[zone] for zone in expected.zones}
        assert _bounds(found) == expected.bounds
        assert found.get("capacityType") == ("CAPACITY_BLOCK" if expected.reservation else "ON_DEMAND")
        _check_uses_template(client, desired, pool, found)
        assert found.get("instanceTypes") == (None if expected.fixed else [expected.instance])


def _described(client: Client, desired: Cluster, pool: str) -> Object:
    found: Object = client("eks").describe_nodegroup(clusterName=desired.aws_name, nodegroupName=pool)["nodegroup"]
    return found


def _bounds(group: Mapping[str, Any]) -> tuple[int, int, int]:
    scaling = group["scalingConfig"]
    return scaling["minSize"], scaling["maxSize"], scaling["desiredSize"]


def _check_uses_template(client: Client, desired: Cluster, pool: str, found: Mapping[str, Any]) -> None:
    (template,) = [
        each for each in ec2(client, "launch_templates") if each["LaunchTemplateName"] == _template(desired, pool)
    ]
    assert found["launchTemplate"]["id"] == template["LaunchTemplateId"]
    assert found["launchTemplate"]["version"] == str(template["LatestVersionNumber"])
    # The template has it, and EKS refuses it beside one.
    assert not found.get("diskSize")


def check_addons(client: Client, desired: Cluster) -> None:
    eks = client("eks")
    assert set(pages(eks, "list_addons", "addons", clusterName=desired.aws_name)) == _ADDONS
    for name in _ADDONS:
        found = eks.describe_addon(clusterName=desired.aws_name, addonName=name)["addon"]
        assert found["status"] == "ACTIVE", found
        assert not found.get("serviceAccountRoleArn")
        desired.tagged(found)
    pairs = {}
    for each in pages(eks, "list_pod_identity_associations", "associations", clusterName=desired.aws_name):
        identifier = each["associationId"]
        found = eks.describe_pod_identity_association(clusterName=desired.aws_name, associationId=identifier)
        association = found["association"]
        pairs[association["namespace"], association["serviceAccount"]] = association["roleArn"]
        desired.tagged(association)
    assert pairs == {
        ("kube-system", "efs-csi-controller-sa"): role_arn(client, desired, "efs-csi"),
        ("kube-system", "cluster-autoscaler"): role_arn(client, desired, "cluster-autoscaler"),
    }


# Storage


def file_system(client: Client, desired: Cluster) -> Object:
    found = pages(client("efs"), "describe_file_systems", "FileSystems")
    (one,) = [each for each in found if each["CreationToken"] == desired.aws_name]
    return dict(one)


def check_file_system(client: Client, desired: Cluster) -> None:
    efs = client("efs")
    found = file_system(client, desired)
    assert (found["Encrypted"], found["ThroughputMode"]) == (True, "elastic")
    assert (found["LifeCycleState"], found["PerformanceMode"]) == ("available", "generalPurpose")
    assert found["Name"] == desired.aws_name
    desired.tagged(found)
    targets = efs.describe_mount_targets(FileSystemId=found["FileSystemId"])["MountTargets"]
    assert sorted(each["SubnetId"] for each in targets) == sorted(subnet_ids(client, desired, "private").values())
    (group,) = [
        each["GroupId"]
        for each in ec2(client, "security_groups", vpc_id=vpc_id(client, desired))
        if each["GroupName"] == f"{desired.name}-efs"
    ]
    for target in targets:
        answer = efs.describe_mount_target_security_groups(MountTargetId=target["MountTargetId"])
        assert (target["LifeCycleState"], answer["SecurityGroups"]) == ("available", [group])


# In the cluster


def check_storage_class(client: Client, desired: Cluster, plane: ControlPlane) -> None:
    found = plane.get("storage.k8s.io/v1", "StorageClass", "modelplane-rwx-efs")
    assert found is not None
    assert (found["provisioner"], found["volumeBindingMode"]) == ("efs.csi.aws.com", "Immediate")
    identifier = file_system(client, desired)["FileSystemId"]
    assert found["parameters"] == {
        "provisioningMode": "efs-ap",
        "fileSystemId": identifier,
        "directoryPerms": "700",
    }
    # Defaults of the API server.
    assert found.get("reclaimPolicy", "Delete") == "Delete"
    assert not any(key in found for key in ("allowVolumeExpansion", "mountOptions", "allowedTopologies"))
    assert "storageclass.kubernetes.io/is-default-class" not in found["metadata"].get("annotations", {})
