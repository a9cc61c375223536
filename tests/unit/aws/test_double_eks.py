# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The double of AWS: EKS."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.aws.double import AwsDouble
from ansible_collections.modelplane.fleet.tests.unit.aws.account import cluster, group, network, refused, role
from botocore.exceptions import WaiterError
from cryptography import x509

USER = "arn:aws:iam::123456789012:user/provisioner"


def test_a_cluster_is_active_when_it_was_looked_at(aws: AwsDouble) -> None:
    _, subnets = network(aws)
    eks = aws.client("eks")
    arn = role(aws, "cluster", "eks.amazonaws.com")
    made = eks.create_cluster(name="west", roleArn=arn, resourcesVpcConfig={"subnetIds": subnets})["cluster"]
    assert (made["status"], "endpoint" in made) == ("CREATING", False)
    seen = eks.describe_cluster(name="west")["cluster"]
    assert (seen["status"], "endpoint" in seen) == ("ACTIVE", True)


def test_an_active_cluster_has_what_others_need_of_it(aws: AwsDouble) -> None:
    subnets = cluster(aws)
    seen = aws.client("eks").describe_cluster(name="west")["cluster"]
    wanted = seen["resourcesVpcConfig"]
    ec2 = aws.client("ec2")
    own = ec2.describe_security_groups(GroupIds=[wanted["clusterSecurityGroupId"]])["SecurityGroups"][0]
    assert own["GroupName"].startswith("eks-cluster-sg-west-")
    assert {"Key": "kubernetes.io/cluster/west", "Value": "owned"} in own["Tags"]
    assert own["IpPermissions"][0]["UserIdGroupPairs"][0]["GroupId"] == own["GroupId"]
    assert wanted["vpcId"] == ec2.describe_subnets(SubnetIds=subnets)["Subnets"][0]["VpcId"]
    authority = x509.load_pem_x509_certificate(base64.b64decode(seen["certificateAuthority"]["data"], validate=True))
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert seen["accessConfig"] == {
        "authenticationMode": "API_AND_CONFIG_MAP",
        "bootstrapClusterCreatorAdminPermissions": True,
    }
    interfaces = ec2.describe_network_interfaces(Filters=[{"Name": "description", "Values": ["Amazon EKS west"]}])
    assert {each["Status"] for each in interfaces["NetworkInterfaces"]} == {"in-use"}


def test_phases_last_as_long_as_they_are_told_to(aws: AwsDouble) -> None:
    aws.delay("cluster", 2)
    cluster(aws)
    eks = aws.client("eks")
    assert [eks.describe_cluster(name="west")["cluster"]["status"] for _ in range(3)] == [
        "CREATING",
        "ACTIVE",
        "ACTIVE",
    ]
    assert eks.delete_cluster(name="west")["cluster"]["status"] == "DELETING"
    assert [eks.describe_cluster(name="west")["cluster"]["status"] for _ in range(2)] == ["DELETING"] * 2
    refused("ResourceNotFoundException", eks.describe_cluster, name="west")


def test_a_cluster_may_end_in_failure_with_the_reason(aws: AwsDouble) -> None:
    aws.end("cluster", "west", "FAILED", {"code": "Ec2SubnetNotFound", "message": "no subnet", "resourceIds": []})
    cluster(aws)
    seen = aws.client("eks").describe_cluster(name="west")["cluster"]
    assert (seen["status"], seen["health"]["issues"][0]["message"]) == ("FAILED", "no subnet")


def test_a_cluster_is_served_by_whom_the_test_says(aws: AwsDouble) -> None:
    aws.serve_cluster("west", "https://127.0.0.1:6443", "PEM")
    cluster(aws)
    seen = aws.client("eks").describe_cluster(name="west")["cluster"]
    assert (seen["endpoint"], base64.b64decode(seen["certificateAuthority"]["data"])) == (
        "https://127.0.0.1:6443",
        b"PEM",
    )


BAD_CLUSTERS = {
    "one zone": ({"zones": "a"}, "at least two"),
    "no such role": ({"roleArn": "arn:aws:iam::123456789012:role/none"}, "could not be assumed"),
    "a role of others": ({"service": "ec2.amazonaws.com"}, "could not be assumed"),
    "no such version": ({"version": "9.99"}, "unsupported Kubernetes version"),
    "no such subnet": ({"resourcesVpcConfig": {"subnetIds": ["subnet-0", "subnet-1"]}}, "subnet-0"),
    "no endpoint": ({"access": {"endpointPublicAccess": False, "endpointPrivateAccess": False}}, "cannot be false"),
}


@pytest.mark.parametrize(("given", "told"), BAD_CLUSTERS.values(), ids=BAD_CLUSTERS)
def test_a_cluster_that_aws_does_not_take(aws: AwsDouble, given: dict[str, Any], told: str) -> None:
    _, subnets = network(aws, given.pop("zones", "ab"))
    arguments: dict[str, Any] = {
        "name": "west",
        "roleArn": role(aws, "cluster", given.pop("service", "eks.amazonaws.com")),
        "resourcesVpcConfig": {"subnetIds": subnets, **given.pop("access", {})},
        **given,
    }
    assert told in refused("InvalidParameterException", aws.client("eks").create_cluster, **arguments)
    assert aws.client("eks").list_clusters()["clusters"] == []


def test_a_zone_without_control_planes_is_told_with_those_that_have_them(aws: AwsDouble) -> None:
    ec2 = aws.client("ec2", "us-east-1")
    zones = {each["ZoneId"]: each["ZoneName"] for each in ec2.describe_availability_zones()["AvailabilityZones"]}
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{index}.0/24", AvailabilityZone=zones[zone])["Subnet"]["SubnetId"]
        for index, zone in enumerate(("use1-az1", "use1-az3"))
    ]
    arn = role(aws, "cluster", "eks.amazonaws.com")
    create = aws.client("eks", "us-east-1").create_cluster
    told = refused(
        "UnsupportedAvailabilityZoneException", create, name="e", roleArn=arn, resourcesVpcConfig={"subnetIds": subnets}
    )
    assert zones["use1-az3"] in told.split(",")[0]
    assert zones["use1-az2"] in told


def test_a_fresh_role_is_not_known_everywhere_at_once(aws: AwsDouble) -> None:
    _, subnets = network(aws)
    arn = role(aws, "cluster", "eks.amazonaws.com")
    aws.delay("role", 2)
    wanted: dict[str, Any] = {"name": "west", "roleArn": arn, "resourcesVpcConfig": {"subnetIds": subnets}}
    for _ in range(2):
        told = refused("InvalidParameterException", aws.client("eks").create_cluster, **wanted)
        assert "could not be assumed" in told
    aws.client("eks").create_cluster(**wanted)


def test_versions_go_up_by_one_minor(aws: AwsDouble) -> None:
    cluster(aws, version="1.33")
    eks = aws.client("eks")
    for version, told in (("1.35", "from 1.33 to 1.35"), ("1.32", "from 1.33 to 1.32"), ("1.33", "already at")):
        assert told in refused("InvalidParameterException", eks.update_cluster_version, name="west", version=version)
    update = eks.update_cluster_version(name="west", version="1.34")["update"]
    refused("ResourceInUseException", eks.update_cluster_version, name="west", version="1.35")
    assert (update["status"], update["type"]) == ("InProgress", "VersionUpdate")
    assert eks.describe_update(name="west", updateId=update["id"])["update"]["status"] == "Successful"
    seen = eks.describe_cluster(name="west")["cluster"]
    assert (seen["status"], seen["version"]) == ("ACTIVE", "1.34")
    assert eks.list_updates(name="west")["updateIds"] == [update["id"]]


def test_an_update_may_fail(aws: AwsDouble) -> None:
    cluster(aws, version="1.35")
    eks = aws.client("eks")
    aws.end("update", "west", "Failed", {"code": "SecurityGroupNotFound", "message": "gone", "resourceIds": ["sg-1"]})
    update = eks.update_cluster_version(name="west", version="1.36")["update"]
    seen = eks.describe_update(name="west", updateId=update["id"])["update"]
    assert (seen["status"], seen["errors"][0]["errorMessage"]) == ("Failed", "gone")
    assert eks.describe_cluster(name="west")["cluster"]["version"] == "1.35"


def test_a_change_of_the_endpoint_leaves_the_rest_of_the_network(aws: AwsDouble) -> None:
    subnets = cluster(aws)
    eks = aws.client("eks")
    before = eks.describe_cluster(name="west")["cluster"]["resourcesVpcConfig"]
    change = {"endpointPrivateAccess": True, "publicAccessCidrs": ["203.0.113.0/24"]}
    assert eks.update_cluster_config(name="west", resourcesVpcConfig=change)["update"]["type"] == "EndpointAccessUpdate"
    seen = eks.describe_cluster(name="west")["cluster"]["resourcesVpcConfig"]
    assert seen == {**before, **change}
    assert seen["subnetIds"] == subnets
    assert "already" in refused(
        "InvalidParameterException", eks.update_cluster_config, name="west", resourcesVpcConfig=change
    )


def test_subnets_are_changed_within_the_network(aws: AwsDouble) -> None:
    subnets = cluster(aws, zones="abc")
    eks = aws.client("eks")
    _, elsewhere = network(aws)
    change = eks.update_cluster_config
    refused("InvalidParameterException", change, name="west", resourcesVpcConfig={"subnetIds": elsewhere})
    refused("InvalidParameterException", change, name="west", resourcesVpcConfig={"subnetIds": subnets[:1]})
    update = change(name="west", resourcesVpcConfig={"subnetIds": subnets[:2]})["update"]
    assert (update["type"], update["params"][0]["type"]) == ("VpcConfigUpdate", "Subnets")
    assert eks.describe_cluster(name="west")["cluster"]["resourcesVpcConfig"]["subnetIds"] == subnets[:2]


def test_one_kind_of_change_at_a_time(aws: AwsDouble) -> None:
    cluster(aws)
    update = aws.client("eks").update_cluster_config
    access, ends = {"authenticationMode": "API"}, {"endpointPrivateAccess": True}
    assert "one type" in refused(
        "InvalidParameterException", update, name="west", accessConfig=access, resourcesVpcConfig=ends
    )
    refused("InvalidParameterException", update, name="west", accessConfig={"authenticationMode": "CONFIG_MAP"})
    update(name="west", accessConfig=access)
    aws.client("eks").describe_cluster(name="west")
    refused("InvalidParameterException", update, name="west", accessConfig={"authenticationMode": "API_AND_CONFIG_MAP"})


def test_the_versions_on_offer(aws: AwsDouble) -> None:
    offered = aws.client("eks").describe_cluster_versions()["clusterVersions"]
    assert [each["clusterVersion"] for each in offered][:2] == ["1.36", "1.35"]
    assert [each["clusterVersion"] for each in offered if each["defaultVersion"]] == ["1.36"]


def test_a_cluster_with_node_groups_stays(aws: AwsDouble) -> None:
    subnets = cluster(aws)
    group(aws, "system", subnets)
    eks = aws.client("eks")
    aws.delay("nodegroup", 1)
    refused("ResourceInUseException", eks.delete_cluster, name="west")
    eks.delete_nodegroup(clusterName="west", nodegroupName="system")
    refused("ResourceInUseException", eks.delete_cluster, name="west")
    eks.describe_nodegroup(clusterName="west", nodegroupName="system")
    refused("ResourceNotFoundException", eks.describe_nodegroup, clusterName="west", nodegroupName="system")
    eks.delete_cluster(name="west")
    refused("ResourceNotFoundException", eks.describe_cluster, name="west")
    assert not [each for each in aws.leftovers() if "interface" in each or "security group" in each]


def test_tags(aws: AwsDouble) -> None:
    subnets = cluster(aws)
    made = group(aws, "system", subnets, tags={"a": "b"})
    eks = aws.client("eks")
    for arn in (made["nodegroupArn"], eks.describe_cluster(name="west")["cluster"]["arn"]):
        eks.tag_resource(resourceArn=arn, tags={"a": "1", "c": "2"})
        eks.untag_resource(resourceArn=arn, tagKeys=["a"])
        assert eks.list_tags_for_resource(resourceArn=arn)["tags"] == {"c": "2"}
    refused("NotFoundException", eks.tag_resource, resourceArn=f"{made['nodegroupArn']}x", tags={"a": "b"})


# Node groups


def test_a_node_group_shows_what_it_was_given(aws: AwsDouble) -> None:
    subnets = cluster(aws)
    given = {
        "amiType": "AL2023_x86_64_NVIDIA",
        "instanceTypes": ["g6.12xlarge"],
        "diskSize": 200,
        "scalingConfig": {"minSize": 0, "maxSize": 4, "desiredSize": 1},
        "labels": {"modelplane.ai/pool": "gpu"},
        "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
        "updateConfig": {"maxUnavailablePercentage": 50},
        "tags": {"a": "b"},
    }
    seen = group(aws, "gpu", subnets, **given)
    assert {name: seen[name] for name in given} == given
    assert (seen["status"], seen["capacityType"], seen["health"]) == ("ACTIVE", "ON_DEMAND", {"issues": []})


def test_the_scaling_group_is_there_with_the_tags_of_the_autoscaler(aws: AwsDouble) -> None:
    subnets = cluster(aws)
    seen = group(aws, "gpu", subnets, scalingConfig={"minSize": 0, "maxSize": 3, "desiredSize": 2})
    name = seen["resources"]["autoScalingGroups"][0]["name"]
    scaling = aws.client("autoscaling")
    found = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"][0]
    assert (found["MinSize"], found["MaxSize"], found["DesiredCapacity"], len(found["Instances"])) == (0, 3, 2, 2)
    tagged = scaling.describe_tags(Filters=[{"Name": "key", "Values": ["k8s.io/cluster-autoscaler/west"]}])["Tags"]
    assert [(tag["ResourceId"], tag["Value"]) for tag in tagged] == [(name, "owned")]


def template(aws: AwsDouble, **data: Any) -> dict[str, str]:
    data = {"InstanceType": "p5.48xlarge", **data}
    aws.client("ec2").create_launch_template(LaunchTemplateName="gpu-lt", LaunchTemplateData=data)
    return {"name": "gpu-lt", "version": "$Latest"}


def test_a_launch_template_takes_the_place_of_type_and_disk(aws: AwsDouble) -> None:
    subnets = cluster(aws)
    seen = group(aws, "gpu", subnets, launchTemplate=template(aws), amiType="AL2023_x86_64_NVIDIA")
    assert (seen["launchTemplate"]["version"], seen["launchTemplate"]["id"][:3]) == ("1", "lt-")
    assert "instanceTypes" not in seen
    assert "diskSize" not in seen


BAD_GROUPS = {
    "a disk beside a template": ({"launchTemplate": {"name": "gpu-lt"}, "diskSize": 100}, "Disk size"),
    "types beside a template": (
        {"launchTemplate": {"name": "gpu-lt"}, "instanceTypes": ["g6.xlarge"]},
        "instance types",
    ),
    "no such template": ({"launchTemplate": {"name": "none"}}, "does not exist"),
    "no such version of it": ({"launchTemplate": {"name": "gpu-lt", "version": "7"}}, "no version 7"),
    "name and id of a template": ({"launchTemplate": {"name": "gpu-lt", "id": "lt-0"}}, "not both"),
    "a block without a template": ({"capacityType": "CAPACITY_BLOCK"}, "launch template"),
    "a block without the market": ({"capacityType": "CAPACITY_BLOCK", "launchTemplate": {"name": "gpu-lt"}}, "market"),
    "no such type": ({"instanceTypes": ["g66.xlarge"]}, "do not exist"),
    "less than the least": ({"scalingConfig": {"minSize": 2, "maxSize": 3, "desiredSize": 1}}, "desired size 1"),
    "more than the most": ({"scalingConfig": {"minSize": 0, "maxSize": 3, "desiredSize": 4}}, "max size 3"),
    "a newer version": ({"version": "1.36"}, "not supported"),
    "a subnet from elsewhere": ({"elsewhere": True}, "same VPC"),
    "no such subnet": ({"subnets": ["subnet-0"]}, "subnet-0"),
    "a role of others": ({"service": "eks.amazonaws.com"}, "EC2"),
}


@pytest.mark.parametrize(("given", "told"), BAD_GROUPS.values(), ids=BAD_GROUPS)
def test_a_node_group_that_aws_does_not_take(aws: AwsDouble, given: dict[str, Any], told: str) -> None:
    given = dict(given)
    subnets = cluster(aws, version="1.35")
    template(aws)
    if given.pop("elsewhere", False):
        given["subnets"] = network(aws)[1]
    arguments: dict[str, Any] = {
        "clusterName": "west",
        "nodegroupName": "gpu",
        "subnets": subnets,
        "nodeRole": role(aws, "node", given.pop("service", "ec2.amazonaws.com")),
        **given,
    }
    assert told in refused("InvalidParameterException", aws.client("eks").create_nodegroup, **arguments)


def test_a_node_group_waits_for_its_cluster(aws: AwsDouble) -> None:
    aws.delay("cluster", 5)
    subnets = cluster(aws)
    arn = role(aws, "node", "ec2.amazonaws.com")
    create = aws.client("eks").create_nodegroup
    refused("InvalidRequestException", create, clusterName="west", nodegroupName="a", subnets=subnets, nodeRole=arn)


NICS = [
    {"NetworkCardIndex": card, "DeviceIndex": min(card, 1), "InterfaceType": "efa-only" if card else "efa"}
    for card in range(3)
]
LAUNCHES: dict[str, tuple[dict[str, Any], str]] = {
    "the type is not offered in the zone": ({"instanceTypes": ["p5en.48xlarge"], "zones": "b"}, "us-west-2b"),
    "the block is not active yet": ({"state": "scheduled"}, "scheduled and not active"),
    "the block is over": ({"state": "expired"}, "expired"),
    "the block is too small": ({"count": 1}, "Insufficient capacity in the Capacity Block"),
    "the block is elsewhere": ({"zone": "us-west-2c"}, "Availability Zone"),
    "the quota is used up": ({"instanceTypes": ["g6.48xlarge"], "quota": ("L-DB2E81BA", 192.0)}, "VcpuLimitExceeded"),
    "more cards than the type has": (
        {"data": {"NetworkInterfaces": NICS, "InstanceType": "g6.12xlarge"}},
        "card index 1",
    ),
    "EFA where there is none": ({"data": {"NetworkInterfaces": NICS[:1], "InstanceType": "m6i.xlarge"}}, "EFA"),
    "nodes without the cluster's group": ({"data": {"NetworkInterfaces": NICS}}, "failed to join"),
    "no way out": ({"instanceTypes": ["m6i.xlarge"], "routes": True}, "failed to join"),
}


@pytest.mark.parametrize(("given", "told"), LAUNCHES.values(), ids=LAUNCHES)
def test_a_node_group_whose_nodes_do_not_come_up(aws: AwsDouble, given: dict[str, Any], told: str) -> None:
    given = dict(given)
    subnets = cluster(aws)
    if "quota" in given:
        aws.quota("ec2", *given["quota"])
    if given.get("routes"):
        aws.need_routes()
    more: dict[str, Any] = {"instanceTypes": given["instanceTypes"]} if "instanceTypes" in given else {}
    if not more and "data" not in given:
        block = aws.reserve(
            "p5.48xlarge", given.get("zone", "us-west-2a"), given.get("count", 2), state=given.get("state", "active")
        )
        target = {"CapacityReservationTarget": {"CapacityReservationId": block}}
        market = {"MarketType": "capacity-block"}
        named = template(aws, InstanceMarketOptions=market, CapacityReservationSpecification=target)
        more = {"launchTemplate": named, "capacityType": "CAPACITY_BLOCK"}
    elif "data" in given:
        more = {"launchTemplate": template(aws, **given["data"])}
    places = subnets[1:] if given.get("zones") == "b" else subnets
    seen = group(aws, "gpu", places, scalingConfig={"minSize": 0, "maxSize": 4, "desiredSize": 2}, **more)
    assert seen["status"] == "CREATE_FAILED"
    assert told in seen["health"]["issues"][0]["message"]
    with pytest.raises(WaiterError, match="CREATE_FAILED"):
        aws.client("eks").get_waiter("nodegroup_active").wait(clusterName="west", nodegroupName="gpu")


def test_a_capacity_block_that_is_active_is_used(aws: AwsDouble) -> None:
    subnets = cluster(aws)
    block = aws.reserve("p5.48xlarge", "us-west-2a", 2)
    own = aws.client("eks").describe_cluster(name="west")["cluster"]["resourcesVpcConfig"]["clusterSecurityGroupId"]
    named = template(
        aws,
        InstanceMarketOptions={"MarketType": "capacity-block"},
        CapacityReservationSpecification={"CapacityReservationTarget": {"CapacityReservationId": block}},
        NetworkInterfaces=[{**interface, "Groups": [own]} for interface in NICS],
    )
    seen = group(aws, "gpu", subnets, launchTemplate=named, capacityType="CAPACITY_BLOCK")
    assert (seen["status"], seen["capacityType"]) == ("ACTIVE", "CAPACITY_BLOCK")


def test_updates_of_a_node_group_in_place(aws: AwsDouble) -> None:
    subnets = cluster(aws)
    group(
        aws, "gpu", subnets, labels={"a": "1", "b": "2"}, scalingConfig={"minSize": 1, "maxSize": 2, "desiredSize": 1}
    )
    eks = aws.client("eks")
    where = {"clusterName": "west", "nodegroupName": "gpu"}
    update = eks.update_nodegroup_config
    assert "desired size 1" in refused("InvalidParameterException", update, **where, scalingConfig={"minSize": 2})
    refused("InvalidParameterException", update, **where, labels={"removeLabels": ["none"]})
    taint = {"key": "k", "value": "v", "effect": "NO_SCHEDULE"}
    made = update(
        **where,
        scalingConfig={"maxSize": 5},
        labels={"addOrUpdateLabels": {"a": "3"}, "removeLabels": ["b"]},
        taints={"addOrUpdateTaints": [taint]},
    )["update"]
    refused("ResourceInUseException", update, **where, scalingConfig={"maxSize": 6})
    told = eks.describe_update(name="west", nodegroupName="gpu", updateId=made["id"])["update"]
    assert told["status"] == "Successful"
    seen = eks.describe_nodegroup(**where)["nodegroup"]
    assert seen["scalingConfig"] == {"minSize": 1, "maxSize": 5, "desiredSize": 1}
    assert (seen["labels"], seen["taints"], seen["status"]) == ({"a": "3"}, [taint], "ACTIVE")


def test_versions_of_node_groups_and_their_templates(aws: AwsDouble) -> None:
    subnets = cluster(aws, version="1.35")
    group(aws, "gpu", subnets, launchTemplate=template(aws))
    group(aws, "plain", subnets)
    eks, ec2 = aws.client("eks"), aws.client("ec2")
    update = eks.update_nodegroup_version
    refused("InvalidParameterException", update, clusterName="west", nodegroupName="plain", version="1.36")
    refused(
        "InvalidParameterException",
        update,
        clusterName="west",
        nodegroupName="plain",
        launchTemplate={"name": "gpu-lt"},
    )
    ec2.create_launch_template_version(
        LaunchTemplateName="gpu-lt", SourceVersion="1", LaunchTemplateData={"ImageId": "ami-12345678"}
    )
    update(clusterName="west", nodegroupName="gpu", launchTemplate={"name": "gpu-lt", "version": "2"})
    seen = eks.describe_nodegroup(clusterName="west", nodegroupName="gpu")["nodegroup"]
    assert seen["launchTemplate"]["version"] == "2"
    data = ec2.describe_launch_template_versions(LaunchTemplateName="gpu-lt", Versions=["2"])["LaunchTemplateVersions"][
        0
    ]
    assert data["LaunchTemplateData"] == {"InstanceType": "p5.48xlarge", "ImageId": "ami-12345678"}


# Addons


def test_addons_with_a_deployment_are_degraded_until_a_node_takes_them(aws: AwsDouble) -> None:
    subnets = cluster(aws)
    eks = aws.client("eks")
    for name in ("coredns", "vpc-cni"):
        assert eks.create_addon(clusterName="west", addonName=name)["addon"]["status"] == "CREATING"
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}
    group(aws, "gpu", subnets, taints=[taint])
    seen = eks.describe_addon(clusterName="west", addonName="coredns")["addon"]
    assert (seen["status"], seen["health"]["issues"][0]["code"]) == ("DEGRADED", "InsufficientNumberOfReplicas")
    assert eks.describe_addon(clusterName="west", addonName="vpc-cni")["addon"]["status"] == "ACTIVE"
    group(aws, "system", subnets)
    eks.get_waiter("addon_active").wait(clusterName="west", addonName="coredns")
    assert eks.list_addons(clusterName="west")["addons"] == ["coredns", "vpc-cni"]


def test_an_addon_is_changed_and_goes(aws: AwsDouble) -> None:
    cluster(aws)
    eks = aws.client("eks")
    where = {"clusterName": "west", "addonName": "vpc-cni"}
    known = eks.describe_addon_versions(addonName="vpc-cni", kubernetesVersion="1.36")["addons"][0]["addonVersions"]
    newest, oldest = known[0]["addonVersion"], known[-1]["addonVersion"]
    made = eks.create_addon(**where, addonVersion=oldest, configurationValues='{"env": {"A": "1"}}')["addon"]
    assert (made["addonVersion"], made["configurationValues"]) == (oldest, '{"env": {"A": "1"}}')
    eks.describe_addon(**where)
    eks.update_addon(**where, addonVersion=newest, resolveConflicts="OVERWRITE")
    assert eks.describe_addon(**where)["addon"]["addonVersion"] == newest
    eks.delete_addon(**where)
    refused("ResourceNotFoundException", eks.describe_addon, **where)


BAD_ADDONS = {
    "no such addon": {"addonName": "vpc-dni"},
    "no such version": {"addonVersion": "v0.0.1-eksbuild.1"},
    "no object": {"configurationValues": "[1]"},
    "no JSON": {"configurationValues": '{"a": '},
    "no such role": {"serviceAccountRoleArn": "arn:aws:iam::123456789012:role/none"},
}


@pytest.mark.parametrize("given", BAD_ADDONS.values(), ids=BAD_ADDONS)
def test_an_addon_that_aws_does_not_take(aws: AwsDouble, given: dict[str, Any]) -> None:
    cluster(aws)
    refused(
        "InvalidParameterException",
        aws.client("eks").create_addon,
        **{"clusterName": "west", "addonName": "vpc-cni", **given},
    )


def test_an_addon_that_fails_says_why(aws: AwsDouble) -> None:
    cluster(aws)
    issue = {"code": "ConfigurationConflict", "message": "conflicts found", "resourceIds": []}
    aws.end("addon", "vpc-cni", "CREATE_FAILED", issue)
    eks = aws.client("eks")
    eks.create_addon(clusterName="west", addonName="vpc-cni")
    seen = eks.describe_addon(clusterName="west", addonName="vpc-cni")["addon"]
    assert (seen["status"], seen["health"]["issues"]) == ("CREATE_FAILED", [issue])


# Access


def test_pod_identity_associations(aws: AwsDouble) -> None:
    cluster(aws)
    eks = aws.client("eks")
    bad = role(aws, "half", "pods.eks.amazonaws.com", "sts:AssumeRole")
    good = role(aws, "csi", "pods.eks.amazonaws.com", "sts:AssumeRole", "sts:TagSession")
    other = role(aws, "other", "pods.eks.amazonaws.com", "sts:AssumeRole", "sts:TagSession")
    where = {"clusterName": "west", "namespace": "kube-system", "serviceAccount": "efs"}
    refused("InvalidParameterException", eks.create_pod_identity_association, **where, roleArn=bad)
    made = eks.create_pod_identity_association(**where, roleArn=good, tags={"a": "b"})["association"]
    refused("ResourceInUseException", eks.create_pod_identity_association, **where, roleArn=good)
    listed = eks.list_pod_identity_associations(**where)["associations"]
    assert [each["associationId"] for each in listed] == [made["associationId"]]
    assert not eks.list_pod_identity_associations(clusterName="west", namespace="default")["associations"]
    one = {"clusterName": "west", "associationId": made["associationId"]}
    eks.update_pod_identity_association(**one, roleArn=other)
    seen = eks.describe_pod_identity_association(**one)["association"]
    assert (seen["roleArn"], seen["tags"]) == (other, {"a": "b"})
    eks.delete_pod_identity_association(**one)
    refused("ResourceNotFoundException", eks.describe_pod_identity_association, **one)


def test_access_entries(aws: AwsDouble) -> None:
    subnets = cluster(aws)
    group(aws, "system", subnets)
    eks = aws.client("eks")
    node = aws.client("iam").get_role(RoleName="west-node")["Role"]["Arn"]
    assert eks.list_access_entries(clusterName="west")["accessEntries"] == sorted([USER, node])
    assert eks.describe_access_entry(clusterName="west", principalArn=node)["accessEntry"]["type"] == "EC2_LINUX"
    policies = eks.list_associated_access_policies(clusterName="west", principalArn=USER)["associatedAccessPolicies"]
    assert [each["policyArn"].rpartition("/")[2] for each in policies] == ["AmazonEKSClusterAdminPolicy"]
    ops = role(aws, "ops", "ec2.amazonaws.com")
    where = {"clusterName": "west", "principalArn": ops}
    eks.create_access_entry(**where)
    refused("ResourceInUseException", eks.create_access_entry, **where)
    policy = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"
    refused(
        "InvalidParameterException",
        eks.associate_access_policy,
        **where,
        policyArn=f"{policy}2",
        accessScope={"type": "cluster"},
    )
    eks.associate_access_policy(**where, policyArn=policy, accessScope={"type": "cluster"})
    assert eks.list_access_entries(clusterName="west", associatedPolicyArn=policy)["accessEntries"] == [ops]
    eks.update_access_entry(**where, kubernetesGroups=["viewers"])
    assert eks.describe_access_entry(**where)["accessEntry"]["kubernetesGroups"] == ["viewers"]
    eks.delete_access_entry(**where)
    refused("ResourceNotFoundException", eks.describe_access_entry, **where)


def test_without_the_api_mode_there_are_no_access_entries(aws: AwsDouble) -> None:
    cluster(aws, accessConfig={"authenticationMode": "CONFIG_MAP"})
    refused("InvalidRequestException", aws.client("eks").list_access_entries, clusterName="west")
