# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The objects of a plan in an account of the double of AWS: created, kept, updated, deleted, and failures of each."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import Options, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.references import UNKNOWN
from ansible_collections.modelplane.fleet.plugins.modules import cloud_resources
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from ansible_collections.modelplane.fleet.tests.module_run import run_module
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import eks, gpu

Json = dict[str, Any]
NETWORKING = {"subnetCidrs": ["10.0.0.0/20", "10.0.16.0/20"]}
OPTIONS = Options(tags={"team": "ml"})
VOLATILE = ("modifiedAt", "OtherVersions", "DefaultVersionId", "Associations", "health", "IpPermissions", "SizeInBytes")
ROLE_MISSING = "Role provided in the request does not exist."
UNTRUSTED = (
    "Following required service principals [ec2.amazonaws.com] were not found in the trust relationships of nodeRole"
)
NO_SUCH_ROLE = "The role could not be assumed because it does not exist or the trusted entity is not correct"


class Cluster:
    """An EKSCluster whose plan the module applies to the account of the double."""

    def __init__(self, aws: Double) -> None:
        self.aws = aws
        self.ec2, self.eks, self.iam, self.efs = (aws.client(name) for name in ("ec2", "eks", "iam", "efs"))
        self.found: Json = {}
        self.become()

    def become(self, *pools: Json, fleet: str = "default", options: Options = OPTIONS, **spec: Any) -> None:
        """Set another plan, by default for two zones."""
        self.plan = plan(eks(*pools, **{"networking": NETWORKING, **spec}), fleet, options)

    @property
    def name(self) -> str:
        return str(self.plan["name"])

    def entry(self, key: str) -> Json:
        found: Json = next(each for each in self.plan["resources"] if each["key"] == key)
        return found

    def id(self, key: str, field: str) -> str:
        return str(self.found[key][field])

    def live(self, key: str) -> Json:
        """Return an object as the module finds it."""
        found: Json = self.run(check=True)["resources"][key]
        return found

    def run(self, *, check: bool = False, **more: Any) -> Json:
        arguments = {"resources": self.plan["resources"], "wait_delay": 0.0, "wait_timeout": 60}
        given = {"provider": "eks", **self.aws.credentials, **arguments, **more}
        return run_module(cloud_resources, given, check_mode=check)

    def apply(self, **more: Any) -> Json:
        result = self.run(**more)
        assert not result["failed"], result["msg"]
        self.found = result.get("resources", self.found)
        return result

    def unchanged(self, **more: Any) -> Json:
        """Run it, and assert that it changes nothing and sends nothing that would."""
        self.sent()
        result = self.apply(**more)
        assert (result["changed"], result["actions"], self.sent()) == (False, [], [])
        return result

    def converge(self, turns: int = 80, **more: Any) -> int:
        """Run until nothing fails, and return how often something did."""
        for failed in range(turns):
            result = self.run(**more)
            if not result["failed"]:
                self.found = result.get("resources", self.found)
                return failed
        raise AssertionError(result["msg"])

    def sent(self) -> list[str]:
        """Return the mutating operations since the last time, without those that were refused."""
        return [call["operation"] for call in self.requests()]

    def requests(self, operation: str = "") -> list[Json]:
        found = [call for call in self.aws.calls(mutating=True) if not call["error"]]
        self.aws.forget_calls()
        return [call for call in found if operation in ("", call["operation"])]

    def parameters(self, calls: list[Json], operation: str) -> list[Json]:
        given = [call["parameters"] for call in calls if call["operation"] == operation]
        return [{key: value for key, value in each.items() if key != "clientRequestToken"} for each in given]

    def settle(self, describe: Callable[[], str], *states: str) -> None:
        """Read until a change by hand is over."""
        for _ in range(20):
            if describe() in (states or ("ACTIVE", "available")):
                return
        raise AssertionError("it never settles")

    def cluster_status(self) -> str:
        return str(self.eks.describe_cluster(name=self.name)["cluster"]["status"])

    def group(self, name: str = "gpu-l4") -> Json:
        found: Json = self.eks.describe_nodegroup(clusterName=self.name, nodegroupName=name)["nodegroup"]
        return found

    def addon(self, name: str) -> Json:
        found: Json = self.eks.describe_addon(clusterName=self.name, addonName=name)["addon"]
        return found

    def configure(self, **config: Any) -> None:
        """Change the cluster by hand."""
        self.eks.update_cluster_config(name=self.name, **config)
        self.settle(self.cluster_status)

    def configure_group(self, name: str = "gpu-l4", **config: Any) -> None:
        """Change a node group by hand."""
        self.eks.update_nodegroup_config(clusterName=self.name, nodegroupName=name, **config)
        self.settle(lambda: str(self.group(name)["status"]))

    def account(self) -> list[str]:
        """Return what there is in the account, without what AWS provides."""
        ec2, eks, region = self.ec2, self.eks, {"Name": "tag-key", "Values": [names.CLUSTER_TAG]}
        found = [f"vpc {len(each['Tags'])}" for each in ec2.describe_vpcs(Filters=[region])["Vpcs"]]
        found += [f"subnet {each['CidrBlock']}" for each in ec2.describe_subnets(Filters=[region])["Subnets"]]
        for gateway in ec2.describe_internet_gateways(Filters=[region])["InternetGateways"]:
            found.append(f"internet gateway {len(gateway['Attachments'])}")
        found += ["address" for _ in ec2.describe_addresses()["Addresses"]]
        found += [
            f"nat {each['State']}" for each in ec2.describe_nat_gateways()["NatGateways"] if each["State"] != "deleted"
        ]
        for table in ec2.describe_route_tables(Filters=[region])["RouteTables"]:
            found.append(f"route table {len(table['Associations'])} {len(table['Routes'])}")
        groups = ec2.describe_security_groups(Filters=[region])["SecurityGroups"]
        found += [f"group {each['GroupName']} {len(each['IpPermissions'])}" for each in groups]
        templates = ec2.describe_launch_templates()["LaunchTemplates"]
        found += [f"template {each['LaunchTemplateName']}" for each in templates]
        for role in self.iam.list_roles()["Roles"]:
            attached = self.iam.list_attached_role_policies(RoleName=role["RoleName"])["AttachedPolicies"]
            found.append(f"role {role['RoleName']} {len(attached)}")
        found += [f"policy {each['PolicyName']}" for each in self.iam.list_policies(Scope="Local")["Policies"]]
        for system in self.efs.describe_file_systems()["FileSystems"]:
            found.append(f"file system {system['CreationToken']} {system['NumberOfMountTargets']}")
        for cluster in eks.list_clusters()["clusters"]:
            found.append(f"cluster {cluster}")
            found += [f"node group {each}" for each in eks.list_nodegroups(clusterName=cluster)["nodegroups"]]
            found += [f"addon {each}" for each in eks.list_addons(clusterName=cluster)["addons"]]
            identities = eks.list_pod_identity_associations(clusterName=cluster)["associations"]
            found += [f"pod identity {each['serviceAccount']}" for each in identities]
        return sorted(found)


@pytest.fixture
def cluster(aws: Double) -> Cluster:
    """An empty account, in which nothing takes time unless a test says so."""
    aws.settings(phases=0)
    return Cluster(aws)


@pytest.fixture
def made(cluster: Cluster) -> Cluster:
    cluster.apply()
    cluster.sent()
    return cluster


def block(cluster: Cluster, name: str = "gpu-h200", **more: Any) -> Json:
    """Return a pool with EFA on a Capacity Block that the account has."""
    reservation = cluster.aws.capacity_reservation(InstanceType="p5en.48xlarge", TotalInstanceCount=2)
    return gpu(
        name,
        instanceType="p5en.48xlarge",
        gpu={"acceleratorType": "nvidia-h200-141gb"},
        nodeCount=2,
        minNodeCount=0,
        maxNodeCount=2,
        fabric="EFA",
        capacityBlock={"capacityReservationId": reservation["CapacityReservationId"]},
        **more,
    )


def changed_keys(result: Json) -> set[str]:
    return {*result["diff"]["before"], *result["diff"]["after"]}


def same_but_unknown(expected: Any, actual: Any) -> bool:
    """Compare values of which check mode may not know some."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return set(expected) == set(actual) and all(same_but_unknown(expected[key], actual[key]) for key in expected)
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(same_but_unknown, expected, actual))
    return bool(expected in (actual, UNKNOWN))


def steady(resources: Json) -> Json:
    """Return actual states without what a change and its reversal leave behind."""
    return {
        key: {
            field: sorted(value) if field == "SubnetIds" else value
            for field, value in each.items()
            if field not in VOLATILE
        }
        for key, each in resources.items()
    }


# From nothing


def test_all_objects_are_created_once_and_check_mode_foresees_them(cluster: Cluster) -> None:
    cluster.aws.settings(phases=1)
    cluster.become(gpu(), block(cluster))
    before = cluster.account()
    checked = cluster.run(check=True, purge=True)
    assert (checked["failed"], checked["changed"], cluster.sent()) == (False, True, [])
    assert checked["resources"] == {each["key"]: {} for each in cluster.plan["resources"]}
    assert cluster.account() == before == []

    done = cluster.apply(purge=True)
    assert same_but_unknown(checked["diff"], done["diff"])
    assert sorted(done["actions"]) == sorted(checked["actions"])
    assert all(line.startswith("create ") for line in done["actions"])
    # Objects are waited for side by side, for as long as the machine takes.
    assert sorted(done["waited"]) == sorted(done["logged"])
    assert any(line.startswith(f"EKS cluster {cluster.name} is ACTIVE (after ") for line in done["waited"])
    assert (done["pending"], done["warnings"]) == ([], [])
    calls = cluster.requests()
    (sent,) = cluster.parameters(calls, "CreateCluster")
    assert sent == {
        "name": cluster.name,
        "version": "1.36",
        "roleArn": cluster.id("role-cluster", "Arn"),
        "resourcesVpcConfig": {
            "subnetIds": [
                cluster.id(f"subnet-{tier}-us-west-2{zone}", "SubnetId")
                for tier in ("public", "private")
                for zone in "ab"
            ],
            "endpointPrivateAccess": True,
            "endpointPublicAccess": True,
        },
        "accessConfig": {
            "authenticationMode": "API_AND_CONFIG_MAP",
            "bootstrapClusterCreatorAdminPermissions": True,
        },
        "tags": cluster.plan["tags"],
    }
    groups = {each["nodegroupName"]: each for each in cluster.parameters(calls, "CreateNodegroup")}
    assert groups["gpu-l4"] == {
        "clusterName": cluster.name,
        "nodegroupName": "gpu-l4",
        "scalingConfig": {"minSize": 0, "maxSize": 8, "desiredSize": 1},
        "updateConfig": {"maxUnavailable": 1, "updateStrategy": "MINIMAL"},
        "subnets": [cluster.id("subnet-private-us-west-2a", "SubnetId")],
        "nodeRole": cluster.id("role-node", "Arn"),
        "amiType": "AL2023_x86_64_NVIDIA",
        "capacityType": "ON_DEMAND",
        "instanceTypes": ["g6.12xlarge"],
        "launchTemplate": {"id": cluster.id("launch-template-gpu-l4", "LaunchTemplateId"), "version": "1"},
        "labels": {"modelplane.ai/pool": "gpu-l4", "modelplane.ai/gpu": "nvidia-l4"},
        "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
        "tags": cluster.plan["tags"],
    }
    template = cluster.found["launch-template-gpu-h200"]
    assert groups["gpu-h200"]["launchTemplate"] == {"id": template["LaunchTemplateId"], "version": "1"}
    assert not {"instanceTypes", "diskSize", "version"} & set(groups["gpu-h200"])
    interfaces = template["Latest"]["data"]["NetworkInterfaces"]
    network = cluster.found["cluster"]["resourcesVpcConfig"]
    assert interfaces[0]["Groups"] == [cluster.id("security-group-efa", "GroupId"), network["clusterSecurityGroupId"]]
    for addon in cluster.parameters(calls, "CreateAddon"):
        # What EKS puts into a cluster by itself becomes an addon.
        assert addon["resolveConflicts"] == "OVERWRITE"
        assert not {"addonVersion", "configurationValues"} & set(addon)
    cluster.unchanged(purge=True)
    checked = cluster.run(check=True, purge=True)
    assert (checked["failed"], checked["changed"], cluster.sent()) == (False, False, [])


def test_kinds_that_are_not_named_are_only_read(cluster: Cluster) -> None:
    rights = {"role", "policy"}
    checked = cluster.run(check=True, kinds=[*rights])
    done = cluster.apply(kinds=[*rights], purge=True)
    assert same_but_unknown(checked["diff"], done["diff"])
    assert {cluster.entry(key)["kind"] for key in changed_keys(done)} == rights
    assert {line.split()[0] for line in cluster.account()} == {"role", "policy"}
    assert set(cluster.apply(state="absent", kinds=["policy", "role"])["removed"]) == changed_keys(done)
    assert cluster.account() == []
    assert "there is no kind nodegroup. Did you mean node-group?" in cluster.run(kinds=["nodegroup"])["msg"]


# What is changed by hand


def _retag(service: str, arn: str, key: str) -> Callable[[Cluster], Any]:
    """Return a change of our tag `team`, and one more tag."""
    tags = {"team": "others", "cost": "7"}
    wire = [{"Key": name, "Value": value} for name, value in tags.items()]
    calls: dict[str, Callable[[Cluster, str], Any]] = {
        "ec2": lambda cluster, name: cluster.ec2.create_tags(Resources=[name], Tags=wire),
        "eks": lambda cluster, name: cluster.eks.tag_resource(resourceArn=name, tags=tags),
        "efs": lambda cluster, name: cluster.efs.tag_resource(ResourceId=name, Tags=wire),
        "role": lambda cluster, name: cluster.iam.tag_role(RoleName=name, Tags=wire),
        "policy": lambda cluster, name: cluster.iam.tag_policy(PolicyArn=name, Tags=wire),
    }
    return lambda cluster: calls[service](cluster, cluster.id(key, arn))


def _attribute(name: str) -> Callable[[Cluster], Any]:
    def change(cluster: Cluster) -> None:
        cluster.ec2.modify_vpc_attribute(VpcId=cluster.id("vpc", "VpcId"), **{name: {"Value": False}})

    return change


def _public_addresses(key: str, value: bool) -> Callable[[Cluster], Any]:
    def change(cluster: Cluster) -> None:
        subnet = cluster.id(key, "SubnetId")
        cluster.ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": value})

    return change


def _delete_route(cluster: Cluster) -> None:
    table = cluster.id("route-table-public", "RouteTableId")
    cluster.ec2.delete_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0")


def _other_route(cluster: Cluster) -> None:
    cluster.ec2.replace_route(
        RouteTableId=cluster.id("route-table-private", "RouteTableId"),
        DestinationCidrBlock="0.0.0.0/0",
        GatewayId=cluster.id("internet-gateway", "InternetGatewayId"),
    )


def _disassociate(cluster: Cluster) -> None:
    association = cluster.found["route-table-private"]["Associations"][0]["RouteTableAssociationId"]
    cluster.ec2.disassociate_route_table(AssociationId=association)


def _rules(cluster: Cluster) -> None:
    group = cluster.id("security-group-efs", "GroupId")

    def tcp(port: int, cidr: str) -> list[Json]:
        return [{"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "IpRanges": [{"CidrIp": cidr}]}]

    cluster.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=tcp(22, "192.0.2.0/24"))
    cluster.ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=tcp(2049, "10.0.0.0/16"))
    cluster.ec2.authorize_security_group_egress(GroupId=group, IpPermissions=tcp(443, "0.0.0.0/0"))


def _policies(cluster: Cluster) -> None:
    role, policies = cluster.id("role-node", "RoleName"), "arn:aws:iam::aws:policy"
    cluster.iam.detach_role_policy(RoleName=role, PolicyArn=f"{policies}/AmazonEKS_CNI_Policy")
    cluster.iam.attach_role_policy(RoleName=role, PolicyArn=f"{policies}/AmazonSSMManagedInstanceCore")


def _trust(cluster: Cluster) -> None:
    document = deepcopy(cluster.found["role-node"]["AssumeRolePolicyDocument"])
    document["Statement"][0]["Principal"]["Service"] = ["ec2.amazonaws.com", "lambda.amazonaws.com"]
    cluster.iam.update_assume_role_policy(
        RoleName=cluster.id("role-node", "RoleName"), PolicyDocument=json.dumps(document)
    )


def _document(cluster: Cluster) -> None:
    """Write versions of the policy until no more fit."""
    arn = cluster.id("policy-autoscaler", "Arn")
    for action in ("s3:GetObject", "s3:PutObject", "s3:ListBucket", "s3:DeleteObject"):
        statement = {"Effect": "Allow", "Action": action, "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        cluster.iam.create_policy_version(PolicyArn=arn, PolicyDocument=document, SetAsDefault=True)


def _endpoints(cluster: Cluster) -> None:
    cluster.configure(resourcesVpcConfig={"endpointPublicAccess": False, "endpointPrivateAccess": True})


def _group_config(cluster: Cluster) -> None:
    cluster.configure_group(
        scalingConfig={"minSize": 1, "maxSize": 20, "desiredSize": 9},
        labels={"addOrUpdateLabels": {"modelplane.ai/gpu": "other", "tier": "hot"}},
        taints={
            "addOrUpdateTaints": [{"key": "team", "value": "vision", "effect": "NO_EXECUTE"}],
            "removeTaints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
        },
        updateConfig={"maxUnavailable": 3},
    )


def _throughput(cluster: Cluster) -> None:
    cluster.efs.update_file_system(FileSystemId=cluster.id("file-system", "FileSystemId"), ThroughputMode="bursting")


def _target_groups(cluster: Cluster) -> None:
    vpc = [{"Name": "vpc-id", "Values": [cluster.id("vpc", "VpcId")]}, {"Name": "group-name", "Values": ["default"]}]
    (group,) = cluster.ec2.describe_security_groups(Filters=vpc)["SecurityGroups"]
    cluster.efs.modify_mount_target_security_groups(
        MountTargetId=cluster.id("mount-target-us-west-2b", "MountTargetId"), SecurityGroups=[group["GroupId"]]
    )


def _identity(cluster: Cluster) -> None:
    cluster.eks.update_pod_identity_association(
        clusterName=cluster.name,
        associationId=cluster.id("pod-identity-cluster-autoscaler", "associationId"),
        roleArn=cluster.id("role-efs-csi", "Arn"),
    )


def _configuration(cluster: Cluster) -> None:
    cluster.eks.update_addon(clusterName=cluster.name, addonName="coredns", configurationValues="replicaCount: 9\n")
    cluster.settle(lambda: str(cluster.addon("coredns")["status"]))


BY_HAND: list[tuple[str, Callable[[Cluster], Any], list[str]]] = [
    ("vpc", _attribute("EnableDnsHostnames"), ["EnableDnsHostnames"]),
    ("vpc", _attribute("EnableDnsSupport"), ["EnableDnsSupport"]),
    ("vpc", _retag("ec2", "VpcId", "vpc"), ["Tags"]),
    ("subnet-public-us-west-2a", _public_addresses("subnet-public-us-west-2a", False), ["MapPublicIpOnLaunch"]),
    ("subnet-private-us-west-2a", _public_addresses("subnet-private-us-west-2a", True), ["MapPublicIpOnLaunch"]),
    ("subnet-private-us-west-2a", _retag("ec2", "SubnetId", "subnet-private-us-west-2a"), ["Tags"]),
    ("internet-gateway", _retag("ec2", "InternetGatewayId", "internet-gateway"), ["Tags"]),
    ("elastic-ip", _retag("ec2", "AllocationId", "elastic-ip"), ["Tags"]),
    ("nat-gateway", _retag("ec2", "NatGatewayId", "nat-gateway"), ["Tags"]),
    ("route-table-public", _delete_route, ["Routes"]),
    ("route-table-private", _other_route, ["Routes"]),
    ("route-table-private", _disassociate, ["SubnetIds"]),
    ("route-table-private", _retag("ec2", "RouteTableId", "route-table-private"), ["Tags"]),
    ("security-group-efs", _rules, ["Ingress", "Egress"]),
    ("security-group-efs", _retag("ec2", "GroupId", "security-group-efs"), ["Tags"]),
    ("role-node", _policies, ["PolicyArns"]),
    ("role-node", _trust, ["AssumeRolePolicyDocument"]),
    ("role-node", _retag("role", "RoleName", "role-node"), ["Tags"]),
    ("policy-autoscaler", _document, ["Document"]),
    ("policy-autoscaler", _retag("policy", "Arn", "policy-autoscaler"), ["Tags"]),
    ("cluster", _endpoints, ["resourcesVpcConfig.endpointPublicAccess"]),
    ("cluster", _retag("eks", "arn", "cluster"), ["tags"]),
    ("node-group-gpu-l4", _group_config, ["scalingConfig", "updateConfig", "labels", "taints"]),
    ("node-group-gpu-l4", _retag("eks", "nodegroupArn", "node-group-gpu-l4"), ["tags"]),
    ("addon-coredns", _configuration, ["configurationValues"]),
    ("addon-coredns", _retag("eks", "addonArn", "addon-coredns"), ["tags"]),
    ("pod-identity-cluster-autoscaler", _identity, ["roleArn"]),
    (
        "pod-identity-cluster-autoscaler",
        _retag("eks", "associationArn", "pod-identity-cluster-autoscaler"),
        ["tags"],
    ),
    ("file-system", _throughput, ["ThroughputMode"]),
    ("file-system", _retag("efs", "FileSystemId", "file-system"), ["Tags"]),
    ("mount-target-us-west-2b", _target_groups, ["SecurityGroups"]),
]


def test_what_is_changed_by_hand_is_put_right_and_tags_of_others_stay(made: Cluster) -> None:
    before = made.apply()["resources"]
    expected: dict[str, set[str]] = {}
    for key, change, fields in BY_HAND:
        change(made)
        expected.setdefault(key, set()).update(fields)
    made.sent()
    checked = made.run(check=True, purge=True)
    assert (checked["failed"], made.sent()) == (False, [])
    assert {key: set(fields) for key, fields in checked["diff"]["after"].items()} == expected
    done = made.apply(purge=True)
    assert done["diff"] == checked["diff"]
    assert sorted(done["actions"]) == sorted(checked["actions"])
    calls = made.requests()
    (config,) = made.parameters(calls, "UpdateNodegroupConfig")
    assert config["labels"] == {"addOrUpdateLabels": {"modelplane.ai/gpu": "nvidia-l4"}, "removeLabels": ["tier"]}
    assert config["taints"]["removeTaints"] == [{"key": "team", "value": "vision", "effect": "NO_EXECUTE"}]
    # It was outside of the bounds.
    assert config["scalingConfig"] == {"minSize": 0, "maxSize": 8, "desiredSize": 8}
    after = made.unchanged(purge=True)["resources"]
    group = {**after["node-group-gpu-l4"]["scalingConfig"], "desiredSize": 1}
    after["node-group-gpu-l4"]["scalingConfig"] = group
    for key, _, _ in BY_HAND:
        tags = next((each for each in ("Tags", "tags") if each in after[key]), "")
        if tags and after[key][tags].pop("cost", ""):
            assert after[key][tags]["team"] == "ml"
    coredns = after["addon-coredns"].pop("configurationValues")
    assert coredns == "{}"
    assert steady(after) == steady(before)


def test_what_others_may_change_stays(cluster: Cluster) -> None:
    cluster.become(kubernetesVersion="1.35")
    cluster.apply()
    cluster.configure_group(scalingConfig={"minSize": 0, "maxSize": 8, "desiredSize": 3})
    cluster.configure(accessConfig={"authenticationMode": "API"})
    cluster.configure(logging={"clusterLogging": [{"types": ["api", "audit"], "enabled": True}]})
    cidrs = ["192.0.2.0/24"]
    cluster.configure(resourcesVpcConfig={"publicAccessCidrs": cidrs, "endpointPublicAccess": True})
    cluster.eks.update_cluster_version(name=cluster.name, version="1.36")
    cluster.settle(cluster.cluster_status)
    # Nodes and addons follow the cluster, whoever updates it.
    result = cluster.apply()
    assert changed_keys(result) == {"node-group-system", "node-group-gpu-l4", "addon-kube-proxy"}
    assert cluster.addon("kube-proxy")["addonVersion"] == "v1.36.0-eksbuild.2"
    subnet = cluster.id("subnet-private-us-west-2b", "SubnetId")
    role = cluster.id("role-node", "Arn")
    for name, tags in (("theirs", {}), ("elsewhere", {**cluster.plan["tags"], "modelplane.ai/fleet": "other"})):
        cluster.eks.create_nodegroup(
            clusterName=cluster.name, nodegroupName=name, subnets=[subnet], nodeRole=role, tags=tags
        )
    cluster.eks.create_addon(clusterName=cluster.name, addonName="metrics-server")
    cluster.ec2.create_route(
        RouteTableId=cluster.id("route-table-public", "RouteTableId"),
        DestinationCidrBlock="198.51.100.0/24",
        GatewayId=cluster.id("internet-gateway", "InternetGatewayId"),
    )
    result = cluster.unchanged(purge=True)
    version, mode = result["warnings"]
    assert version == (
        f"EKS cluster {cluster.name} runs Kubernetes 1.36, which cannot go back to 1.35: set kubernetesVersion to "
        "1.36, or create a new cluster"
    )
    assert (
        mode
        == f"EKS cluster {cluster.name} has the authentication mode API, which cannot go back to API_AND_CONFIG_MAP"
    )
    assert cluster.group()["scalingConfig"]["desiredSize"] == 3
    assert cluster.run(check=True)["warnings"] == [version, mode]
    # What is asked for is compared: the same ranges in another form, and other logs.
    body = cluster.entry("cluster")["body"]
    body["resourcesVpcConfig"]["publicAccessCidrs"] = ["192.0.2.7/24"]
    cluster.unchanged()
    body["logs"] = ["audit", "scheduler"]
    cluster.sent()
    assert cluster.apply()["diff"]["before"] == {"cluster": {"logs": ["api", "audit"]}}
    (config,) = cluster.requests("UpdateClusterConfig")
    assert config["parameters"]["logging"]["clusterLogging"] == [
        {"types": ["audit", "scheduler"], "enabled": True},
        {"types": ["api"], "enabled": False},
    ]


def test_a_nat_gateway_that_was_deleted_is_created_again_and_the_routes_follow(made: Cluster) -> None:
    address = made.id("elastic-ip", "AllocationId")
    made.aws.settings(phases=1)
    made.ec2.delete_nat_gateway(NatGatewayId=made.id("nat-gateway", "NatGatewayId"))
    checked = made.run(check=True)
    assert changed_keys(checked) == {"nat-gateway", "route-table-private"}
    made.sent()
    done = made.apply()
    assert changed_keys(done) == changed_keys(checked)
    assert made.sent() == ["CreateNatGateway", "ReplaceRoute"]
    assert made.found["nat-gateway"]["NatGatewayAddresses"][0]["AllocationId"] == address
    made.unchanged(purge=True)


def test_a_subnet_that_was_renamed_is_the_same_subnet(made: Cluster) -> None:
    """It is tagged again, and not deleted as one that the plan does not list; the same of a route table."""
    for key, field in (("subnet-public-us-west-2b", "SubnetId"), ("route-table-public", "RouteTableId")):
        made.ec2.create_tags(Resources=[made.id(key, field)], Tags=[{"Key": "Name", "Value": "renamed"}])
    checked = made.run(check=True, purge=True)
    assert {key: list(fields) for key, fields in checked["diff"]["before"].items()} == {
        "subnet-public-us-west-2b": ["Tags"],
        "route-table-public": ["Tags"],
    }
    done = made.apply(purge=True)
    assert done["diff"] == checked["diff"]
    assert made.sent() == ["CreateTags"] * 4
    made.unchanged(purge=True)


# Launch templates and Capacity Blocks


def template_versions(cluster: Cluster) -> list[tuple[int, bool]]:
    found = cluster.ec2.describe_launch_template_versions(
        LaunchTemplateId=cluster.id("launch-template-gpu-h200", "LaunchTemplateId")
    )
    return sorted((each["VersionNumber"], each["DefaultVersion"]) for each in found["LaunchTemplateVersions"])


def test_a_new_version_of_a_launch_template_replaces_the_nodes_of_a_capacity_block(cluster: Cluster) -> None:
    first = block(cluster)
    cluster.become(first)
    cluster.apply()
    key = "launch-template-gpu-h200"
    template = {"LaunchTemplateId": cluster.id(key, "LaunchTemplateId")}
    # The autoscaler removed a node.
    cluster.configure_group("gpu-h200", scalingConfig={"desiredSize": 1})
    cluster.become({**first, "diskSizeGb": 900})
    cluster.sent()
    checked = cluster.run(check=True)
    assert checked["diff"]["after"]["node-group-gpu-h200"] == {"launchTemplate.version": UNKNOWN}
    assert "update node group gpu-h200: launchTemplate.version; all its nodes are replaced" in checked["actions"]
    done = cluster.apply()
    assert done["actions"] == checked["actions"]
    assert same_but_unknown(checked["diff"], done["diff"])
    calls = cluster.requests()
    assert [call["operation"] for call in calls] == [
        "CreateLaunchTemplateVersion",
        "ModifyLaunchTemplate",
        "UpdateNodegroupConfig",
        "UpdateNodegroupVersion",
        "UpdateNodegroupConfig",
    ]
    # There is no room for new nodes beside the old ones.
    sizes = [each["scalingConfig"] for each in cluster.parameters(calls, "UpdateNodegroupConfig")]
    assert sizes == [{"minSize": 0, "maxSize": 2, "desiredSize": size} for size in (0, 1)]
    assert cluster.parameters(calls, "UpdateNodegroupVersion")[0]["launchTemplate"]["version"] == "2"
    assert template_versions(cluster) == [(1, False), (2, True)]
    cluster.unchanged(purge=True)

    # A version by hand, and a default version that is not the latest one.
    cluster.ec2.create_launch_template_version(**template, LaunchTemplateData={"InstanceType": "p5en.48xlarge"})
    cluster.apply()
    assert template_versions(cluster)[-1] == (4, True)
    cluster.ec2.modify_launch_template(**template, DefaultVersion="1")
    cluster.sent()
    cluster.apply()
    assert (template_versions(cluster)[-1], cluster.sent()) == ((4, True), ["ModifyLaunchTemplate"])
    cluster.unchanged(purge=True)

    # A pool goes: its template after it.
    cluster.become()
    cluster.sent()
    checked = cluster.run(check=True, purge=True)
    done = cluster.apply(purge=True)
    calls = cluster.sent()
    assert calls.index("DeleteNodegroup") < calls.index("DeleteLaunchTemplate")
    assert same_but_unknown(checked["diff"], done["diff"])
    assert "delete node group gpu-h200" in done["actions"]
    assert "delete security group eks-us-west-efa" in done["actions"]
    assert "node-group-gpu-l4" in changed_keys(done)
    cluster.unchanged(purge=True)


# Versions


def test_a_cluster_goes_through_the_minor_versions_and_its_nodes_and_addons_follow(cluster: Cluster) -> None:
    cluster.become(kubernetesVersion="1.32")
    cluster.apply()
    cluster.sent()
    cluster.become(kubernetesVersion="1.36")
    for check in (True, False):
        result = cluster.run(check=check)
        assert result["failed"]
        assert (
            f"EKS cluster {cluster.name}: cannot change version from 1.32 to 1.36. Nodes may be 3 minor versions "
            "behind at most: go to a version between first, and on when the nodes have it"
        ) in result["msg"]
    cluster.become(kubernetesVersion="1.35")
    checked = cluster.run(check=True)
    assert (checked["failed"], cluster.sent()) == (False, [])
    followers = ("node-group-system", "node-group-gpu-l4")
    assert checked["diff"]["after"] == {
        "cluster": {"version": "1.35"},
        "addon-kube-proxy": {"kubernetesVersion": "1.35"},
        **{key: {"version": "1.35"} for key in followers},
    }
    done = cluster.apply()
    assert done["diff"] == checked["diff"]
    calls = cluster.requests()
    versions = [each["version"] for each in cluster.parameters(calls, "UpdateClusterVersion")]
    assert versions == ["1.33", "1.34", "1.35"]
    assert {cluster.group(name)["version"] for name in ("system", "gpu-l4")} == {"1.35"}
    assert cluster.addon("kube-proxy")["addonVersion"] == "v1.35.0-eksbuild.2"
    cluster.unchanged(purge=True)


def test_versions_and_configurations_of_addons(made: Cluster) -> None:
    addons = {"coredns": {"version": "v1.12.4-eksbuild.1", "configuration": {"replicaCount": 3, "a": {"b": 1}}}}
    made.become(options=Options(tags=OPTIONS.tags, addons={**addons, "metrics-server": {}}))
    result = made.apply()
    assert changed_keys(result) == {"addon-coredns", "addon-metrics-server"}
    found = made.addon("coredns")
    assert (found["addonVersion"], json.loads(found["configurationValues"])) == (
        "v1.12.4-eksbuild.1",
        addons["coredns"]["configuration"],
    )
    same = '{"a":{"b":1},"replicaCount":3}'
    made.eks.update_addon(clusterName=made.name, addonName="coredns", configurationValues=same)
    made.settle(lambda: str(made.addon("coredns")["status"]))
    made.unchanged()
    # Without a version, the one that it has stays while it is for the cluster.
    made.become()
    result = made.apply(purge=True)
    assert "delete addon metrics-server" in result["actions"]
    assert made.addon("coredns")["addonVersion"] == "v1.12.4-eksbuild.1"
    made.aws.refuse(operation="DescribeAddonVersions", code="AccessDeniedException", message="No.", times=99)
    result = made.unchanged()
    assert len(result["warnings"]) == 5
    assert "addon coredns may have a version that is too old for its cluster" in " ".join(result["warnings"])


# What cannot be changed, and what has another owner


def test_a_group_that_exists_without_a_launch_template_is_never_replaced(cluster: Cluster) -> None:
    old = Options(tags={"team": "ml"}, plain_groups=("system", "gpu-l4"))
    cluster.become(options=old)
    cluster.apply(purge=True)
    assert [line for line in cluster.account() if line.startswith("template")] == []
    assert cluster.group()["diskSize"] == 100
    cluster.unchanged(purge=True)
    for check in (True, False):
        cluster.become()
        result = cluster.run(check=check, purge=True)
        assert (result["failed"], result["changed"], cluster.sent()) == (True, False, [])
        assert "node group gpu-l4: cannot change templated from false to true. EKS cannot change it" in result["msg"]
    cluster.become(gpu(), gpu("more"), options=old)
    result = cluster.apply(purge=True)
    assert sorted(result["actions"]) == [
        f"create launch template {cluster.entry('launch-template-more')['name']}",
        "create node group more",
    ]
    cluster.unchanged(purge=True)
    # Removed without asking which groups are without.
    cluster.become()
    cluster.apply(state="absent", purge=True)
    assert cluster.account() == []


@pytest.mark.parametrize("check", [True, False], ids=["check mode", "run"])
def test_nothing_is_begun_when_a_field_cannot_be_changed(made: Cluster, check: bool) -> None:
    immutable: list[tuple[Json, list[Json], list[str]]] = [
        (
            {"networking": {"vpcCidr": "10.9.0.0/16", "subnetCidrs": ["10.9.0.0/20", "10.9.16.0/20"]}},
            [],
            [
                f"VPC {made.name}: cannot change CidrBlock from 10.0.0.0/16 to 10.9.0.0/16",
                "set spec.networking.vpcCidr back to 10.0.0.0/16, or remove the cluster and provision it again",
            ],
        ),
        (
            {"networking": {"subnetCidrs": ["10.0.0.0/20", "10.0.32.0/20"]}},
            [],
            ["cannot change CidrBlock from 10.0.16.0/20 to 10.0.32.0/20. AWS cannot change it: set spec.networking"],
        ),
        (
            {},
            [gpu(instanceType="g6.xlarge", diskSizeGb=300, zones=["us-west-2b"])],
            [
                "node group gpu-l4: cannot change instanceTypes from g6.12xlarge to g6.xlarge. EKS cannot change it",
                f"node group gpu-l4: cannot change subnets from {made.id('subnet-private-us-west-2a', 'SubnetId')} to",
            ],
        ),
        ({}, [gpu(fabric="EFA")], ["node group gpu-l4: cannot change machineInTemplate from false to true"]),
    ]
    for spec, pools, messages in immutable:
        made.become(*pools, kubernetesVersion="1.36", **spec)
        result = made.run(check=check)
        assert (result["failed"], result["changed"], made.sent()) == (True, False, [])
        for message in messages:
            assert message in result["msg"]
    made.become()
    made.entry("cluster")["body"]["roleArn"] = made.id("role-node", "Arn")
    made.entry("node-group-gpu-l4")["body"]["nodeRole"] = made.id("role-cluster", "Arn")
    made.entry("file-system")["body"]["Encrypted"] = False
    result = made.run(check=check)
    assert f"EKS cluster {made.name}: cannot change roleArn from" in result["msg"]
    assert "node group gpu-l4: cannot change nodeRole from" in result["msg"]
    assert f"EFS file system {made.name}: cannot change Encrypted from true to false" in result["msg"]
    assert made.sent() == []


def _plant_vpc(cluster: Cluster, tags: Json) -> None:
    tags = {**tags, "Name": cluster.name}
    wire = [{"Key": key, "Value": value} for key, value in tags.items()]
    specification = [{"ResourceType": "vpc", "Tags": wire}]
    cluster.ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=specification)


def _plant_role(cluster: Cluster, tags: Json) -> None:
    body = cluster.entry("role-node")["body"]
    wire = [{"Key": key, "Value": value} for key, value in tags.items()]
    trust = json.dumps(body["AssumeRolePolicyDocument"])
    cluster.iam.create_role(RoleName=cluster.entry("role-node")["name"], AssumeRolePolicyDocument=trust, Tags=wire)


def _plant_file_system(cluster: Cluster, tags: Json) -> None:
    wire = [{"Key": key, "Value": value} for key, value in tags.items()]
    cluster.efs.create_file_system(CreationToken=cluster.name, Encrypted=True, Tags=wire)


@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize("plant", [_plant_vpc, _plant_role, _plant_file_system], ids=["vpc", "role", "file system"])
def test_objects_of_others_are_refused(cluster: Cluster, plant: Callable[[Cluster, Json], None], state: str) -> None:
    owners = {
        "was not created by this collection: it has no modelplane.ai/managed-by=modelplane.fleet in its tags": {},
        "has another owner: modelplane.ai/fleet=other in its tags, not default": {
            **cluster.plan["tags"],
            "modelplane.ai/fleet": "other",
        },
    }
    for message, tags in owners.items():
        cluster.aws.reset()
        cluster.aws.settings(phases=0)
        plant(cluster, tags)
        cluster.aws.forget_calls()
        for check in (True, False):
            result = cluster.run(check=check, state=state)
            assert (result["failed"], result["changed"]) == (True, False)
            assert message in result["msg"]
            assert cluster.sent() == []


def test_roles_of_a_cluster_in_another_region_are_refused(cluster: Cluster) -> None:
    _plant_role(cluster, {**cluster.plan["tags"], "modelplane.ai/region": "eu-central-1"})
    cluster.sent()
    for state in ("present", "absent"):
        result = cluster.run(state=state)
        assert "belongs to the cluster of this name in eu-central-1 (tag modelplane.ai/region)" in result["msg"]
        assert "Set spec.region back to eu-central-1 and delete that cluster first" in result["msg"]
        assert cluster.sent() == []


def test_objects_in_the_cluster_of_others_and_a_cluster_in_another_vpc_are_refused(made: Cluster) -> None:
    arns = {"node-group-gpu-l4": "nodegroupArn", "addon-coredns": "addonArn", "cluster": "arn"}
    for key, field in arns.items():
        made.eks.untag_resource(resourceArn=made.id(key, field), tagKeys=["modelplane.ai/managed-by"])
    template = made.id("vpc", "VpcId")
    made.ec2.create_tags(Resources=[template], Tags=[{"Key": "modelplane.ai/cluster", "Value": "east"}])
    made.ec2.create_tags(Resources=[template], Tags=[{"Key": "Name", "Value": "east"}])
    made.sent()
    for check in (True, False):
        result = made.run(check=check)
        assert f"EKS cluster {made.name} exists already, and was not created by this collection" in result["msg"]
        assert "node group gpu-l4 exists already" in result["msg"]
        assert "addon coredns exists already" in result["msg"]
        assert (result["changed"], made.sent()) == (False, [])
    made.eks.tag_resource(resourceArn=made.id("cluster", "arn"), tags=made.plan["tags"])
    result = made.run()
    assert f"EKS cluster {made.name} is in the VPC {template}, which does not have the owner tags" in result["msg"]


def test_a_plan_of_another_region_is_refused(cluster: Cluster) -> None:
    result = cluster.run(region="eu-central-1")
    assert "resources[0].parent: us-west-2 is not the region eu-central-1. Give the region of the plan" in result["msg"]


# Objects that exist twice, as the answer of the call that created one was lost


def test_twins_are_used_or_deleted(made: Cluster) -> None:
    """The one in use is kept; the others go with `purge`."""
    tags = [{"Key": key, "Value": value} for key, value in {**made.plan["tags"], "Name": made.name}.items()]

    def tagged(kind: str) -> list[Json]:
        return [{"ResourceType": kind, "Tags": tags}]

    before = made.account()
    for _ in range(2):
        made.ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tagged("vpc"))
        made.ec2.create_internet_gateway(TagSpecifications=tagged("internet-gateway"))
        made.ec2.allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip"))
    theirs = [{**each, "Value": "other"} if each["Key"] == "modelplane.ai/fleet" else each for each in tags]
    kept = made.ec2.allocate_address(Domain="vpc", TagSpecifications=[{"ResourceType": "elastic-ip", "Tags": theirs}])
    made.unchanged()
    checked = made.run(check=True, purge=True)
    done = made.apply(purge=True)
    assert done["diff"] == checked["diff"]
    assert (len(done["diff"]["before"]), done["diff"]["after"]) == (6, {})
    made.unchanged(purge=True)
    made.ec2.release_address(AllocationId=kept["AllocationId"])
    assert made.account() == before


def test_a_lost_answer_creates_no_twin(cluster: Cluster) -> None:
    for operation in ("CreateVpc", "CreateInternetGateway", "AllocateAddress"):
        cluster.aws.refuse(operation=operation, code="InternalError", status=500, after=True)
    cluster.apply()
    calls = cluster.sent()
    assert [calls.count(each) for each in ("CreateVpc", "CreateInternetGateway", "AllocateAddress")] == [1, 1, 1]
    cluster.unchanged(purge=True)


# Failures


def test_objects_that_could_not_be_created_are_created_again(cluster: Cluster) -> None:
    aws = cluster.aws
    aws.fail("cluster", code="InsufficientFreeAddresses", message="No free addresses in subnet-1.")
    result = cluster.run()
    assert (
        f"EKS cluster {cluster.name} is FAILED: InsufficientFreeAddresses: No free addresses in subnet-1"
        in result["msg"]
    )
    assert "subnetCidrs" in result["msg"]
    assert "addon-coredns was not begun, as it needs cluster" in result["msg"]
    aws.fail(
        "nodegroup",
        "gpu-l4",
        code="AsgInstanceLaunchFailures",
        message="Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have "
        "sufficient g6.12xlarge capacity in the Availability Zone you requested.",
    )
    aws.fail("addon", "coredns", code="ConfigurationConflict", message="Conflicts found: Deployment coredns.")
    cluster.sent()
    result = cluster.run()
    assert cluster.sent()[:2] == ["DeleteCluster", "CreateCluster"]
    assert "node group gpu-l4 is CREATE_FAILED: AsgInstanceLaunchFailures: Could not launch On-Demand" in result["msg"]
    assert "add zones to the pool" in result["msg"]
    assert "addon coredns is CREATE_FAILED: ConfigurationConflict: Conflicts found" in result["msg"]
    # What was done is in the result, and what else could be done is.
    assert {"cluster", "node-group-system", "node-group-gpu-l4", "addon-aws-efs-csi-driver"} <= changed_keys(result)
    checked = cluster.run(check=True)
    assert changed_keys(checked) == {"node-group-gpu-l4", "addon-coredns"}
    result = cluster.apply()
    assert same_but_unknown(checked["diff"], result["diff"])
    assert sorted(cluster.sent()) == ["CreateAddon", "CreateNodegroup", "DeleteAddon", "DeleteNodegroup"]
    assert any(line.endswith("it is deleted and created again") for line in result["waited"])
    cluster.unchanged(purge=True)


def test_updates_that_fail_are_reported_with_the_reason_and_made_by_the_next_run(made: Cluster) -> None:
    failures = {
        made.name: ("InsufficientFreeAddresses", "No addresses left.", "subnetCidrs"),
        "system": ("PodEvictionFailure", "Reached max retries while trying to evict pods.", "PodDisruptionBudgets"),
        "coredns": ("ConfigurationConflict", "Conflicts found: Deployment coredns.", ""),
    }
    made.become(kubernetesVersion="1.35")
    made.run(state="absent")
    made.apply()
    for name, (code, message, _) in failures.items():
        made.aws.fail("update", name, code=code, message=message)
    options = Options(tags=OPTIONS.tags, addons={"coredns": {"configuration": {"replicaCount": 3}}})
    made.become(kubernetesVersion="1.36", options=options)
    messages = []
    while (result := made.run())["failed"]:
        messages.append(result["msg"])
        assert len(messages) < 4
    text = "\n".join(messages)
    assert f"set the version 1.36 of EKS cluster {made.name}: the update is Failed: InsufficientFree" in text
    assert "set version of node group system: the update is Failed: PodEvictionFailure: Reached max retries" in text
    assert "set configurationValues of addon coredns: the update is Failed: ConfigurationConflict" in text
    assert all(hint in text for *_, hint in failures.values())
    made.unchanged()


def test_an_addon_without_nodes_is_a_warning(made: Cluster) -> None:
    keys = ("cluster", "addon-coredns")
    made.run(state="absent", kinds=["node-group"])
    listed = [{**made.entry("addon-coredns"), "needs": ["cluster"]}]
    listed += [
        each for each in made.plan["resources"] if each["kind"] in ("vpc", "subnet", "policy", "role", "cluster")
    ]
    result = made.unchanged(resources=listed)
    (warning,) = result["warnings"]
    assert warning.startswith("addon coredns is DEGRADED: InsufficientNumberOfReplicas: The add-on is unhealthy")
    assert "system node group" in warning
    assert made.run(check=True, resources=listed)["warnings"] == [warning]
    made.aws.fail("update", "coredns", code="InsufficientNumberOfReplicas", message="No replicas.")
    listed[0]["body"]["configurationValues"] = '{"replicaCount": 3}'
    assert changed_keys(made.apply(resources=listed)) == {keys[1]}


def test_deletions_that_fail_are_reported_and_sent_again_by_the_next_run(made: Cluster) -> None:
    message = "resource sg-1 has a dependent object"
    made.aws.settings(phases=1)
    for _ in range(2):
        made.aws.fail("delete nodegroup", "system", code="Ec2SecurityGroupDeletionFailure", message=message)
        result = made.run(state="absent")
        assert (
            f"it could not be deleted: node group system is DELETE_FAILED: Ec2SecurityGroupDeletionFailure: {message}"
        ) in result["msg"]
    made.apply(state="absent")
    assert made.account() == []


# While something else goes on


def test_new_roles_are_not_known_everywhere_at_once(cluster: Cluster) -> None:
    refused = {
        "CreateCluster": NO_SUCH_ROLE,
        "CreateNodegroup": UNTRUSTED,
        "CreatePodIdentityAssociation": ROLE_MISSING,
    }
    for operation, message in refused.items():
        cluster.aws.refuse(operation=operation, code="InvalidParameterException", message=message, status=400, times=2)
    done = cluster.apply()
    assert sum("waits for its role to be known everywhere" in line for line in done["waited"]) >= 3
    cluster.unchanged(purge=True)


def test_a_call_that_stays_wrong_fails_with_the_message_of_aws(cluster: Cluster) -> None:
    cluster.aws.refuse(
        operation="CreateCluster", code="InvalidParameterException", message=NO_SUCH_ROLE, status=400, times=999
    )
    result = cluster.run(wait_timeout=1)
    assert "could not be assumed because it does not exist" in result["msg"]
    assert "trust policy" in result["msg"]
    cluster.aws.reset()
    cluster.aws.settings(versions=["1.30", "1.31"])
    result = cluster.run()
    assert "InvalidParameterException: unsupported Kubernetes version" in result["msg"]
    assert "describe-cluster-versions" in result["msg"]
    assert cluster.sent().count("CreateCluster") == 0


def test_one_update_at_a_time(made: Cluster) -> None:
    """Updates that others began are waited for, and what they changed is put right."""
    made.aws.settings(phases=6)
    made.eks.update_cluster_config(name=made.name, resourcesVpcConfig={"endpointPrivateAccess": False})
    made.eks.update_nodegroup_config(clusterName=made.name, nodegroupName="gpu-l4", scalingConfig={"maxSize": 9})
    made.eks.update_addon(clusterName=made.name, addonName="coredns", configurationValues='{"replicaCount": 9}')
    options = Options(tags=OPTIONS.tags, addons={"coredns": {"configuration": {"replicaCount": 3}}})
    made.become(gpu(maxNodeCount=4), options=options)
    made.entry("cluster")["body"]["resourcesVpcConfig"]["publicAccessCidrs"] = ["192.0.2.0/24"]
    result = made.apply()
    assert any("waits for another change" in line for line in result["waited"]), result["waited"]
    made.aws.settings(phases=0)
    made.apply()
    made.unchanged()
    network = made.live("cluster")["resourcesVpcConfig"]
    assert (network["endpointPrivateAccess"], network["publicAccessCidrs"]) == (True, ["192.0.2.0/24"])
    assert made.group()["scalingConfig"]["maxSize"] == 4


def test_another_run_does_the_same(cluster: Cluster) -> None:
    """Each call of this run comes second."""
    created = ("CreateCluster", "CreateNodegroup", "CreateAddon", "CreatePodIdentityAssociation")
    for operation in created:
        cluster.aws.refuse(operation=operation, code="ResourceInUseException", status=409, effect=True)
    for operation, code in {
        "CreateRole": "EntityAlreadyExists",
        "CreatePolicy": "EntityAlreadyExists",
        "CreateSecurityGroup": "InvalidGroup.Duplicate",
        "CreateSubnet": "InvalidSubnet.Conflict",
        "CreateFileSystem": "FileSystemAlreadyExists",
        "CreateMountTarget": "MountTargetConflict",
        "AttachInternetGateway": "Resource.AlreadyAssociated",
        "AssociateRouteTable": "Resource.AlreadyAssociated",
        "CreateRoute": "RouteAlreadyExists",
        "AuthorizeSecurityGroupIngress": "InvalidPermission.Duplicate",
        "UpdateNodegroupConfig": "ResourceInUseException",
    }.items():
        cluster.aws.refuse(operation=operation, code=code, status=409, effect=True)
    cluster.apply()
    cluster.become(gpu(maxNodeCount=3))
    cluster.apply()
    assert cluster.aws.refusals() == []
    cluster.unchanged(purge=True)


# Each call, refused or with its answer lost


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
def test_every_call_may_fail_once(cluster: Cluster, after: bool) -> None:
    """The account is the same in the end, and in it everything can be changed and deleted in the same way."""
    lost = {"after": True, "code": "ServiceUnavailable", "status": 503}
    failure: Json = lost if after else {"code": "AccessDenied", "message": "Not authorized.", "status": 403}
    before = [gpu(), block(cluster)]
    after_it = [gpu(maxNodeCount=3), {**before[1], "diskSizeGb": 900}]
    plans = [({"kubernetesVersion": "1.35"}, before), ({"kubernetesVersion": "1.36"}, after_it)]
    calm = []
    for spec, pools in plans:
        cluster.become(*pools, **spec)
        cluster.apply(purge=True)
        calm.append(cluster.account())
    cluster.apply(state="absent", purge=True)
    assert cluster.account() == []
    for (spec, pools), expected in zip(plans, calm, strict=True):
        cluster.become(*pools, **spec)
        cluster.aws.refuse_each_once(**failure)
        failed = cluster.converge(purge=True)
        cluster.aws.refuse_each_once(enabled=False)
        assert after or failed > 1
        cluster.apply(purge=True)
        assert cluster.account() == expected
        cluster.unchanged(purge=True)
    cluster.aws.refuse_each_once(**failure)
    cluster.converge(state="absent", purge=True)
    assert cluster.account() == []


# Without waiting


def test_without_waiting_each_run_goes_on_where_the_last_one_ended(cluster: Cluster) -> None:
    def until_done(**more: Any) -> list[list[str]]:
        pending = []
        for _ in range(60):
            pending.append(cluster.apply(wait=False, **more)["pending"])
            if not pending[-1]:
                return pending
        raise AssertionError(pending[-1])

    cluster.aws.settings(phases=1)
    first, *_ = until_done()
    assert "node group gpu-l4 comes once addon-vpc-cni is done: run again" in first or first
    assert all(line.endswith(": run again") for line in first)
    cluster.unchanged()
    first, *_ = until_done(state="absent")
    assert any("is being deleted: run again" in line for line in first)
    assert cluster.account() == []


# Deleting


def test_everything_is_deleted_with_what_is_in_the_way(made: Cluster) -> None:
    made.aws.settings(phases=1)
    system = made.id("file-system", "FileSystemId")
    made.efs.create_access_point(FileSystemId=system, ClientToken="volume")
    made.efs.create_file_system(CreationToken="another")
    _document(made)
    _policies(made)
    made.become(gpu(maxNodeCount=3))
    made.sent()
    checked = made.run(check=True, state="absent", purge=True)
    assert (checked["failed"], checked["changed"], made.sent()) == (False, True, [])
    done = made.apply(state="absent", purge=True)
    assert done["diff"] == checked["diff"]
    assert sorted(done["removed"]) == sorted(checked["removed"])
    # Addons and pod identities go with the cluster.
    inside = {each["key"] for each in made.plan["resources"] if each["kind"] in ("addon", "pod-identity")}
    assert set(done["removed"]) == {each["key"] for each in made.plan["resources"]} - inside
    assert all(line.startswith("delete ") for line in done["actions"])
    calls = made.sent()
    assert calls.count("DeletePolicyVersion") == 4
    assert not {"DeleteAddon", "DeletePodIdentityAssociation"} & set(calls)
    order = ["DeleteNodegroup", "DeleteCluster", "DeleteVpc"]
    assert sorted(order, key=calls.index) == order
    assert made.account() == ["file system another 0"]
    again = made.unchanged(state="absent", purge=True)
    assert again["removed"] == []


def test_a_cluster_with_node_groups_of_others_is_not_deleted(made: Cluster) -> None:
    subnet, role = made.id("subnet-private-us-west-2a", "SubnetId"), made.id("role-node", "Arn")
    made.eks.create_nodegroup(clusterName=made.name, nodegroupName="theirs", subnets=[subnet], nodeRole=role)
    result = made.run(state="absent", wait_timeout=1)
    assert result["failed"]
    assert "Cluster has nodegroups attached" in result["msg"]
    assert f"cluster {made.name}" in made.account()


def test_a_detached_internet_gateway_is_attached_again_or_deleted(cluster: Cluster) -> None:
    keys = ("vpc", "internet-gateway")
    listed = [cluster.entry(key) for key in keys]
    cluster.apply(resources=listed)
    gateway = {"InternetGatewayId": cluster.id(keys[1], "InternetGatewayId"), "VpcId": cluster.id("vpc", "VpcId")}
    cluster.ec2.detach_internet_gateway(**gateway)
    assert cluster.apply(resources=listed)["diff"]["before"] == {"internet-gateway": {"VpcId": ""}}
    cluster.ec2.detach_internet_gateway(**gateway)
    assert cluster.apply(resources=listed, state="absent")["removed"] == list(keys)
    assert cluster.account() == []


def test_secrets_are_not_in_results(cluster: Cluster) -> None:
    cluster.aws.settings(access_keys=["AKIAANOTHERKEY"])
    secrets = {"secret_key": "s3cr3t-of-the-account", "session_token": "t0k3n-of-the-session"}
    result = cluster.run(**secrets)
    assert result["failed"]
    text = json.dumps(result)
    assert not any(value in text for value in (*secrets.values(), cluster.aws.credentials["access_key"]))
    assert "access key" in result["msg"]
