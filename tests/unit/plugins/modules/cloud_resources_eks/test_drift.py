# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Changes that others made in the account: which are put right, and which stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.cloud_resources_eks.eks_account import (
    Cluster,
    Json,
    change_document,
    change_policies,
    changed_keys,
    steady,
)


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


def _trust(cluster: Cluster) -> None:
    document = deepcopy(cluster.found["role-node"]["AssumeRolePolicyDocument"])
    document["Statement"][0]["Principal"]["Service"] = ["ec2.amazonaws.com", "lambda.amazonaws.com"]
    cluster.iam.update_assume_role_policy(
        RoleName=cluster.id("role-node", "RoleName"), PolicyDocument=json.dumps(document)
    )


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
    ("role-node", change_policies, ["PolicyArns"]),
    ("role-node", _trust, ["AssumeRolePolicyDocument"]),
    ("role-node", _retag("role", "RoleName", "role-node"), ["Tags"]),
    ("policy-autoscaler", change_document, ["Document"]),
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
