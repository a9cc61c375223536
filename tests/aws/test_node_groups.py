# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Node groups of EKS, their machines and what they need to come up."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.tests.aws.account import TEMPLATE, Account, Json, refused
from ansible_collections.modelplane.fleet.tests.aws.double import Double


def test_a_node_group_comes_and_goes(account: Account) -> None:
    account.cluster()
    made = account.eks.create_nodegroup(
        clusterName="one", nodegroupName="system", nodeRole=account.roles["node"], subnets=account.subnets
    )["nodegroup"]
    assert made["status"] == "CREATING"
    assert made["scalingConfig"] == {"minSize": 1, "maxSize": 2, "desiredSize": 2}
    assert (made["instanceTypes"], made["diskSize"], made["amiType"]) == (["t3.medium"], 20, "AL2023_x86_64_STANDARD")
    assert made["updateConfig"] == {"maxUnavailable": 1}
    assert made["version"] == "1.35"
    assert [account.describe("nodegroup", "system")["status"] for _ in range(2)] == ["CREATING", "ACTIVE"]
    name = account.describe("nodegroup", "system")["resources"]["autoScalingGroups"][0]["name"]
    scaling = account.aws.client("autoscaling")
    group = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"][0]
    assert (group["MinSize"], group["MaxSize"], group["DesiredCapacity"]) == (1, 2, 2)
    tags = {tag["Key"]: tag["Value"] for tag in group["Tags"]}
    assert tags["k8s.io/cluster-autoscaler/one"] == "owned"
    assert tags["k8s.io/cluster-autoscaler/enabled"] == "true"
    assert tags["eks:nodegroup-name"] == "system"
    found = scaling.describe_auto_scaling_groups(Filters=[{"Name": "tag:eks:cluster-name", "Values": ["two"]}])
    assert found["AutoScalingGroups"] == []
    assert len(scaling.describe_tags(Filters=[{"Name": "auto-scaling-group", "Values": [name]}])["Tags"]) == 5
    scaling.create_or_update_tags(
        Tags=[
            {
                "ResourceId": name,
                "ResourceType": "auto-scaling-group",
                "Key": "k",
                "Value": "v",
                "PropagateAtLaunch": True,
            }
        ]
    )
    assert len(scaling.describe_tags()["Tags"]) == 6
    scaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=1)
    assert account.describe("nodegroup", "system")["scalingConfig"]["desiredSize"] == 1
    with refused("ResourceInUseException", "Cluster has nodegroups attached"):
        account.eks.delete_cluster(name="one")
    assert account.eks.list_nodegroups(clusterName="one")["nodegroups"] == ["system"]
    assert account.eks.delete_nodegroup(clusterName="one", nodegroupName="system")["nodegroup"]["status"] == "DELETING"
    assert account.describe("nodegroup", "system")["status"] == "DELETING"
    with refused("ResourceInUseException"):
        account.eks.delete_cluster(name="one")
    with refused("ResourceNotFoundException"):
        account.describe("nodegroup", "system")
    account.eks.delete_cluster(name="one")


@pytest.mark.parametrize(
    ("change", "code", "reported"),
    [
        ({"subnets": ["subnet-0"]}, "InvalidParameterException", "does not exist"),
        ({"nodeRole": "arn:aws:iam::123456789012:role/none"}, "InvalidParameterException", "could not be assumed"),
        ({"nodeRole": "arn:aws:iam::123456789012:role/cluster"}, "InvalidParameterException", "trusted entity"),
        ({"instanceTypes": ["p9.huge"]}, "InvalidParameterException", "do not exist: [p9.huge]"),
        (
            {"amiType": "AL2023_x86_64_NVIDIA", "instanceTypes": ["m6i.xlarge"]},
            "InvalidRequestException",
            "not a valid",
        ),
        (
            {"amiType": "AL2023_x86_64_STANDARD", "instanceTypes": ["m6g.large"]},
            "InvalidRequestException",
            "not a valid",
        ),
        (
            {"scalingConfig": {"minSize": 3, "maxSize": 4, "desiredSize": 2}},
            "InvalidParameterException",
            "Minimum capacity 3",
        ),
        ({"scalingConfig": {"minSize": 1, "maxSize": 2, "desiredSize": 3}}, "InvalidParameterException", "max size 2"),
        ({"labels": {"eks.amazonaws.com/x": "y"}}, "InvalidParameterException", "reserved prefix"),
        ({"version": "1.36"}, "InvalidParameterException", "cannot be newer"),
        ({"launchTemplate": {"name": "none"}}, "InvalidParameterException", "none not found"),
        ({"launchTemplate": {"name": "gpu", "version": "7"}}, "InvalidParameterException", "has no version 7"),
        ({"launchTemplate": {"name": "gpu"}, "diskSize": 20}, "InvalidParameterException", "Disk size must be"),
        (
            {"launchTemplate": {"name": "gpu"}, "instanceTypes": ["p5.48xlarge"]},
            "InvalidParameterException",
            "Cannot specify instance types",
        ),
        ({"capacityType": "CAPACITY_BLOCK"}, "InvalidParameterException", "needs a launch template"),
        (
            {"capacityType": "CAPACITY_BLOCK", "launchTemplate": {"name": "gpu"}},
            "InvalidParameterException",
            "market type capacity-block",
        ),
        ({"launchTemplate": {"name": "block"}}, "InvalidParameterException", "market type capacity-block"),
    ],
)
def test_what_a_node_group_cannot_be(account: Account, change: Json, code: str, reported: str) -> None:
    account.cluster()
    account.ec2.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData=TEMPLATE)
    block = TEMPLATE | {"InstanceMarketOptions": {"MarketType": "capacity-block"}}
    account.ec2.create_launch_template(LaunchTemplateName="block", LaunchTemplateData=block)
    asked = {"nodeRole": account.roles["node"], "subnets": account.subnets} | change
    with refused(code, reported):
        account.eks.create_nodegroup(clusterName="one", nodegroupName="gpu", **asked)
    assert account.eks.list_nodegroups(clusterName="one")["nodegroups"] == []


def test_node_groups_need_a_cluster_at_rest(account: Account) -> None:
    account.network()
    role = account.role("cluster", "eks.amazonaws.com", "AmazonEKSClusterPolicy")
    asked = {"nodegroupName": "a", "nodeRole": role, "subnets": account.subnets}
    with refused("ResourceNotFoundException", "No cluster found for name: one."):
        account.eks.create_nodegroup(clusterName="one", **asked)
    account.eks.create_cluster(name="one", roleArn=role, resourcesVpcConfig={"subnetIds": account.subnets})
    with refused("InvalidRequestException", "not in ACTIVE status"):
        account.eks.create_nodegroup(clusterName="one", **asked)
    with refused("InvalidRequestException", "not in ACTIVE status"):
        account.eks.create_addon(clusterName="one", addonName="vpc-cni")


def test_changes_of_a_node_group(account: Account) -> None:
    account.cluster()
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}
    account.nodes(labels={"a": "1", "b": "2"}, taints=[taint])
    with refused("InvalidParameterException", "Minimum capacity 2 can't be greater than desired size 1"):
        account.eks.update_nodegroup_config(
            clusterName="one", nodegroupName="system", scalingConfig={"minSize": 2, "maxSize": 4}
        )
    other = {"key": "x", "effect": "NO_EXECUTE"}
    update = account.eks.update_nodegroup_config(
        clusterName="one",
        nodegroupName="system",
        scalingConfig={"minSize": 0, "maxSize": 4},
        labels={"addOrUpdateLabels": {"b": "3"}, "removeLabels": ["a"]},
        taints={"addOrUpdateTaints": [other], "removeTaints": [taint]},
        updateConfig={"maxUnavailable": 2},
    )["update"]
    with refused("ResourceInUseException"):
        account.eks.update_nodegroup_config(clusterName="one", nodegroupName="system", scalingConfig={"maxSize": 5})
    with refused("ResourceInUseException"):
        account.eks.delete_nodegroup(clusterName="one", nodegroupName="system")
    assert account.describe("nodegroup", "system")["status"] == "UPDATING"
    assert account.updated(update, nodegroupName="system") == "Successful"
    group = account.describe("nodegroup", "system")
    assert group["scalingConfig"] == {"minSize": 0, "maxSize": 4, "desiredSize": 1}
    assert (group["labels"], group["taints"], group["updateConfig"]) == ({"b": "3"}, [other], {"maxUnavailable": 2})
    with refused("ResourceNotFoundException"):
        account.eks.describe_update(name="one", updateId=update["id"])


def test_versions_of_a_node_group(account: Account) -> None:
    account.cluster(version="1.35")
    account.ec2.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData=TEMPLATE)
    account.ec2.create_launch_template(LaunchTemplateName="other", LaunchTemplateData=TEMPLATE)
    gpu = account.nodes(
        "gpu", launchTemplate={"name": "gpu", "version": "$Latest"}, amiType="AL2023_x86_64_NVIDIA", version="1.34"
    )
    assert gpu["launchTemplate"]["version"] == "1"
    assert gpu["launchTemplate"]["id"].startswith("lt-")
    assert "instanceTypes" not in gpu
    assert "diskSize" not in gpu
    account.nodes()
    new = TEMPLATE | {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 300}}]}
    account.ec2.create_launch_template_version(LaunchTemplateName="gpu", LaunchTemplateData=new)
    with refused("InvalidParameterException", "made without one"):
        account.eks.update_nodegroup_version(clusterName="one", nodegroupName="system", launchTemplate={"name": "gpu"})
    with refused("InvalidParameterException", "cannot be changed to another one"):
        account.eks.update_nodegroup_version(clusterName="one", nodegroupName="gpu", launchTemplate={"name": "other"})
    with refused("InvalidParameterException", "cannot be newer"):
        account.eks.update_nodegroup_version(clusterName="one", nodegroupName="gpu", version="1.36")
    update = account.eks.update_nodegroup_version(
        clusterName="one", nodegroupName="gpu", launchTemplate={"name": "gpu", "version": "2"}
    )["update"]
    assert account.updated(update, nodegroupName="gpu") == "Successful"
    assert account.describe("nodegroup", "gpu")["launchTemplate"]["version"] == "2"
    assert account.describe("nodegroup", "gpu")["version"] == "1.34"
    update = account.eks.update_nodegroup_version(clusterName="one", nodegroupName="gpu")["update"]
    assert account.updated(update, nodegroupName="gpu") == "Successful"
    assert account.describe("nodegroup", "gpu")["version"] == "1.35"


def test_node_groups_can_fail(aws: Double, account: Account) -> None:
    account.cluster()
    aws.fail("nodegroup", "gpu", code="Ec2InstanceTypeDoesNotExist", message="No such type here.")
    account.nodes("system")
    group = account.nodes("gpu", until="CREATE_FAILED")
    assert group["health"]["issues"][0]["code"] == "Ec2InstanceTypeDoesNotExist"
    account.eks.delete_nodegroup(clusterName="one", nodegroupName="gpu")


@pytest.mark.parametrize(
    ("reservation", "reported"),
    [
        ({}, ""),
        ({"State": "expired"}, "not an active Capacity Block"),
        ({"ReservationType": "default"}, "not an active Capacity Block"),
        ({"InstanceType": "p4d.24xlarge"}, "does not match"),
        ({"AvailabilityZone": "us-west-2d"}, "does not match"),
        ({"TotalInstanceCount": 1}, "does not have sufficient capacity"),
        (None, "does not exist"),
    ],
)
def test_capacity_blocks(aws: Double, account: Account, reservation: Json | None, reported: str) -> None:
    account.cluster()
    held = {"CapacityReservationId": "cr-0"}
    if reservation is not None:
        held = aws.capacity_reservation(**({"InstanceType": "p5.48xlarge", "TotalInstanceCount": 2} | reservation))
        found = account.ec2.describe_capacity_reservations(CapacityReservationIds=[held["CapacityReservationId"]])
        assert found["CapacityReservations"][0]["AvailabilityZone"] == held["AvailabilityZone"]
    data = TEMPLATE | {
        "InstanceMarketOptions": {"MarketType": "capacity-block"},
        "CapacityReservationSpecification": {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": held["CapacityReservationId"]},
        },
    }
    account.ec2.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData=data)
    group = account.nodes(
        "gpu",
        until="CREATE_FAILED" if reported else "ACTIVE",
        launchTemplate={"name": "gpu", "version": "1"},
        capacityType="CAPACITY_BLOCK",
        amiType="AL2023_x86_64_NVIDIA",
        scalingConfig={"minSize": 0, "maxSize": 2, "desiredSize": 2},
    )
    assert reported in " ".join(issue["message"] for issue in group["health"]["issues"])


def test_unknown_reservations(aws: Double, account: Account) -> None:
    with refused("InvalidCapacityReservationId.NotFound"):
        account.ec2.describe_capacity_reservations(CapacityReservationIds=["cr-0"])
    aws.capacity_reservation(State="scheduled")
    active = [{"Name": "state", "Values": ["active"]}]
    assert account.ec2.describe_capacity_reservations(Filters=active)["CapacityReservations"] == []
    with refused("InvalidParameterValue"):
        account.ec2.describe_capacity_reservations(Filters=[{"Name": "colour", "Values": ["red"]}])


def test_leaked_interfaces(aws: Double, account: Account) -> None:
    cluster = account.cluster()
    aws.settings(leaked_interfaces=1)
    account.nodes()
    account.eks.delete_nodegroup(clusterName="one", nodegroupName="system")
    account.describe("nodegroup", "system")
    with refused("ResourceNotFoundException"):
        account.describe("nodegroup", "system")
    desired = [{"Name": "description", "Values": ["aws-K8S-*"]}, {"Name": "status", "Values": ["available"]}]
    found = account.ec2.describe_network_interfaces(Filters=desired)["NetworkInterfaces"]
    assert len(found) == 1
    account.eks.delete_cluster(name="one")
    account.describe("cluster")
    with refused("ResourceNotFoundException"):
        account.describe("cluster")
    group = cluster["resourcesVpcConfig"]["clusterSecurityGroupId"]
    with refused("DependencyViolation"):
        account.ec2.delete_security_group(GroupId=group)
    account.ec2.delete_network_interface(NetworkInterfaceId=found[0]["NetworkInterfaceId"])
    account.ec2.delete_security_group(GroupId=group)
