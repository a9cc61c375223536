# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The double of AWS: EC2, EFS, IAM, load balancers and quotas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.aws.double import AwsDouble
from ansible_collections.modelplane.fleet.tests.unit.aws.account import cluster, group, network, refused, role, trust


def gateway(aws: AwsDouble, vpc: str) -> str:
    """An internet gateway of a VPC."""
    ec2 = aws.client("ec2")
    made = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=made, VpcId=vpc)
    return str(made)


def nat(aws: AwsDouble, subnet: str, **more: Any) -> tuple[str, str]:
    """A NAT gateway, and the address that it has."""
    ec2 = aws.client("ec2")
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    made = ec2.create_nat_gateway(SubnetId=subnet, AllocationId=address, **more)["NatGateway"]
    assert made["State"] == "pending"
    return str(made["NatGatewayId"]), str(address)


def state(aws: AwsDouble, gateway_id: str) -> str:
    return str(aws.client("ec2").describe_nat_gateways(NatGatewayIds=[gateway_id])["NatGateways"][0]["State"])


def test_a_nat_gateway_goes_through_its_phases(aws: AwsDouble) -> None:
    aws.delay("nat_gateway", 1)
    vpc, subnets = network(aws)
    gateway(aws, vpc)
    made, _ = nat(aws, subnets[0])
    assert [state(aws, made) for _ in range(2)] == ["pending", "available"]
    aws.client("ec2").delete_nat_gateway(NatGatewayId=made)
    assert [state(aws, made) for _ in range(3)] == ["deleting", "deleted", "deleted"]
    refused("NatGatewayNotFound", aws.client("ec2").delete_nat_gateway, NatGatewayId=made)


def test_a_nat_gateway_needs_an_internet_gateway_and_a_free_address(aws: AwsDouble) -> None:
    vpc, subnets = network(aws)
    ec2 = aws.client("ec2")
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    create = ec2.create_nat_gateway
    refused("Gateway.NotAttached", create, SubnetId=subnets[0], AllocationId=address)
    gateway(aws, vpc)
    create(SubnetId=subnets[0], AllocationId=address)
    refused("Resource.AlreadyAssociated", create, SubnetId=subnets[0], AllocationId=address)
    refused("MissingParameter", create, SubnetId=subnets[0])


def test_one_client_token_makes_one_nat_gateway(aws: AwsDouble) -> None:
    vpc, subnets = network(aws)
    gateway(aws, vpc)
    ec2 = aws.client("ec2")
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    wanted = {"SubnetId": subnets[0], "AllocationId": address, "ClientToken": "a"}
    made = [ec2.create_nat_gateway(**wanted)["NatGateway"]["NatGatewayId"] for _ in range(2)]
    assert made[0] == made[1]
    refused("IdempotentParameterMismatch", ec2.create_nat_gateway, **{**wanted, "SubnetId": subnets[1]})


def test_tags_are_found_by_the_types_of_aws(aws: AwsDouble) -> None:
    vpc, subnets = network(aws)
    gateway(aws, vpc)
    tags = [{"ResourceType": "natgateway", "Tags": [{"Key": "Name", "Value": "nat"}]}]
    made, address = nat(aws, subnets[0], TagSpecifications=tags)
    ec2 = aws.client("ec2")
    ec2.create_tags(Resources=[address], Tags=[{"Key": "Name", "Value": "eip"}])
    for kind, resource in (("natgateway", made), ("elastic-ip", address)):
        found = ec2.describe_tags(Filters=[{"Name": "resource-type", "Values": [kind]}])["Tags"]
        assert [tag["ResourceId"] for tag in found] == [resource]
    found = ec2.describe_nat_gateways(Filters=[{"Name": "tag:Name", "Values": ["n*"]}])["NatGateways"]
    assert [each["NatGatewayId"] for each in found] == [made]


def test_what_a_nat_gateway_holds_stays(aws: AwsDouble) -> None:
    vpc, subnets = network(aws)
    internet = gateway(aws, vpc)
    made, address = nat(aws, subnets[0])
    ec2 = aws.client("ec2")
    aws.delay("nat_gateway", 0)

    def all_refused() -> None:
        refused("InvalidIPAddress.InUse", ec2.release_address, AllocationId=address)
        refused("DependencyViolation", ec2.delete_subnet, SubnetId=subnets[0])
        told = refused("DependencyViolation", ec2.detach_internet_gateway, InternetGatewayId=internet, VpcId=vpc)
        assert "mapped public address" in told

    all_refused()
    ec2.delete_nat_gateway(NatGatewayId=made)
    all_refused()
    assert state(aws, made) == "deleted"
    ec2.release_address(AllocationId=address)
    refused("DependencyViolation", ec2.delete_internet_gateway, InternetGatewayId=internet)
    ec2.detach_internet_gateway(InternetGatewayId=internet, VpcId=vpc)
    ec2.delete_internet_gateway(InternetGatewayId=internet)
    refused("DependencyViolation", ec2.delete_vpc, VpcId=vpc)
    for subnet in subnets:
        ec2.delete_subnet(SubnetId=subnet)
    ec2.delete_vpc(VpcId=vpc)
    assert aws.leftovers() == []


def test_a_security_group_in_use_stays(aws: AwsDouble) -> None:
    vpc, subnets = network(aws)
    ec2 = aws.client("ec2")
    one, other = (
        ec2.create_security_group(GroupName=name, Description="d", VpcId=vpc)["GroupId"] for name in ("one", "other")
    )
    permission = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": one}]}
    ec2.authorize_security_group_ingress(GroupId=other, IpPermissions=[permission])
    refused("DependencyViolation", ec2.delete_security_group, GroupId=one)
    ec2.revoke_security_group_ingress(GroupId=other, IpPermissions=[permission])
    # A rule of its own does not hold a group.
    ec2.authorize_security_group_ingress(GroupId=one, IpPermissions=[permission])
    interface = ec2.create_network_interface(SubnetId=subnets[0], Groups=[one])["NetworkInterface"][
        "NetworkInterfaceId"
    ]
    refused("DependencyViolation", ec2.delete_security_group, GroupId=one)
    refused("DependencyViolation", ec2.delete_subnet, SubnetId=subnets[0])
    ec2.delete_network_interface(NetworkInterfaceId=interface)
    ec2.delete_security_group(GroupId=one)
    refused("DependencyViolation", ec2.delete_vpc, VpcId=vpc)


def test_interfaces_of_services_are_theirs(aws: AwsDouble) -> None:
    subnets = cluster(aws)
    ec2 = aws.client("ec2")
    own = ec2.describe_network_interfaces(Filters=[{"Name": "description", "Values": ["Amazon EKS *"]}])
    refused(
        "OperationNotPermitted",
        ec2.delete_network_interface,
        NetworkInterfaceId=own["NetworkInterfaces"][0]["NetworkInterfaceId"],
    )
    used = aws.plant_interface(subnets[0], "aws-K8S-i-1", status="in-use")
    refused("InvalidParameterValue", ec2.delete_network_interface, NetworkInterfaceId=used)
    leaked = aws.plant_interface(subnets[0], "aws-K8S-i-2")
    wanted = [{"Name": "description", "Values": ["aws-K8S-*"]}, {"Name": "status", "Values": ["available"]}]
    found = ec2.describe_network_interfaces(Filters=wanted)["NetworkInterfaces"]
    assert [each["NetworkInterfaceId"] for each in found] == [leaked]
    ec2.delete_network_interface(NetworkInterfaceId=leaked)


def test_node_groups_and_clusters_hold_their_subnets(aws: AwsDouble) -> None:
    subnets = cluster(aws, zones="abc")
    group(aws, "system", subnets[2:])
    for subnet in subnets:
        refused("DependencyViolation", aws.client("ec2").delete_subnet, SubnetId=subnet)


@pytest.mark.parametrize("kind", ["elb", "elbv2"])
def test_load_balancers_hold_their_network(aws: AwsDouble, kind: str) -> None:
    vpc, subnets = network(aws)
    internet = gateway(aws, vpc)
    ec2, balancers = aws.client("ec2"), aws.client(kind)
    own = ec2.create_security_group(GroupName="k8s-elb-a", Description="d", VpcId=vpc)["GroupId"]
    if kind == "elb":
        listener = {"Protocol": "TCP", "LoadBalancerPort": 80, "InstancePort": 80}
        balancers.create_load_balancer(
            LoadBalancerName="a", Listeners=[listener], Subnets=subnets, SecurityGroups=[own]
        )
        end: Any = {"LoadBalancerName": "a"}
    else:
        made = balancers.create_load_balancer(Name="a", Subnets=subnets, SecurityGroups=[own])["LoadBalancers"][0]
        end = {"LoadBalancerArn": made["LoadBalancerArn"]}
    refused("DependencyViolation", ec2.delete_subnet, SubnetId=subnets[0])
    refused("DependencyViolation", ec2.delete_security_group, GroupId=own)
    refused("DependencyViolation", ec2.detach_internet_gateway, InternetGatewayId=internet, VpcId=vpc)
    assert any("load balancer a" in each for each in aws.leftovers())
    balancers.delete_load_balancer(**end)
    ec2.delete_security_group(GroupId=own)
    ec2.delete_subnet(SubnetId=subnets[0])


def test_interfaces_of_a_load_balancer_outlive_it(aws: AwsDouble) -> None:
    _, subnets = network(aws)
    aws.delay("interface", 1)
    ec2, balancers = aws.client("ec2"), aws.client("elbv2")
    made = balancers.create_load_balancer(Name="a", Type="network", Scheme="internal", Subnets=subnets)
    wanted = [{"Name": "description", "Values": ["ELB *"]}]
    assert len(ec2.describe_network_interfaces(Filters=wanted)["NetworkInterfaces"]) == 2
    balancers.delete_load_balancer(LoadBalancerArn=made["LoadBalancers"][0]["LoadBalancerArn"])
    assert len(ec2.describe_network_interfaces(Filters=wanted)["NetworkInterfaces"]) == 2
    refused("DependencyViolation", ec2.delete_subnet, SubnetId=subnets[0])
    assert ec2.describe_network_interfaces(Filters=wanted)["NetworkInterfaces"] == []
    ec2.delete_subnet(SubnetId=subnets[0])


def test_the_group_of_a_cluster_stays_where_others_use_it(aws: AwsDouble) -> None:
    subnets = cluster(aws)
    eks, ec2 = aws.client("eks"), aws.client("ec2")
    wanted = eks.describe_cluster(name="west")["cluster"]["resourcesVpcConfig"]
    leaked = aws.plant_interface(subnets[0], "aws-K8S-i-1", groups=(wanted["clusterSecurityGroupId"],))
    aws.delay("interface", 1)
    eks.delete_cluster(name="west")
    refused("ResourceNotFoundException", eks.describe_cluster, name="west")
    own = [{"Name": "description", "Values": ["Amazon EKS west"]}]
    assert [len(ec2.describe_network_interfaces(Filters=own)["NetworkInterfaces"]) for _ in range(2)] == [2, 0]
    left = {"GroupId": wanted["clusterSecurityGroupId"]}
    refused("DependencyViolation", ec2.delete_security_group, **left)
    ec2.delete_network_interface(NetworkInterfaceId=leaked)
    ec2.delete_security_group(**left)


def test_a_subnet_has_one_route_table(aws: AwsDouble) -> None:
    vpc, subnets = network(aws)
    ec2 = aws.client("ec2")
    one, other = (ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"] for _ in range(2))
    first = ec2.associate_route_table(RouteTableId=one, SubnetId=subnets[0])["AssociationId"]
    assert ec2.associate_route_table(RouteTableId=one, SubnetId=subnets[0])["AssociationId"] == first
    refused("Resource.AlreadyAssociated", ec2.associate_route_table, RouteTableId=other, SubnetId=subnets[0])


def test_the_data_of_a_launch_template_are_those_that_were_sent(aws: AwsDouble) -> None:
    ec2 = aws.client("ec2")
    data = {
        "InstanceType": "p5en.48xlarge",
        "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 500}}],
        "NetworkInterfaces": [
            {"DeviceIndex": 0, "NetworkCardIndex": 0, "InterfaceType": "efa", "Groups": ["sg-1", "sg-2"]},
            {"DeviceIndex": 1, "NetworkCardIndex": 1, "InterfaceType": "efa-only", "Groups": ["sg-1", "sg-2"]},
        ],
        "InstanceMarketOptions": {"MarketType": "capacity-block"},
        "CapacityReservationSpecification": {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": "cr-1"},
        },
    }
    tags = [{"ResourceType": "launch-template", "Tags": [{"Key": "a", "Value": "b"}]}]
    ec2.create_launch_template(LaunchTemplateName="gpu-lt", LaunchTemplateData=data, TagSpecifications=tags)
    where = {"LaunchTemplateName": "gpu-lt", "Versions": ["$Latest"]}
    assert ec2.describe_launch_template_versions(**where)["LaunchTemplateVersions"][0]["LaunchTemplateData"] == data
    assert (
        ec2.describe_launch_templates(LaunchTemplateNames=["gpu-lt"])["LaunchTemplates"][0]["Tags"] == tags[0]["Tags"]
    )


def test_a_launch_template_tells_the_tags_of_today(aws: AwsDouble) -> None:
    ec2 = aws.client("ec2")
    data = {"InstanceType": "g6.xlarge"}
    made = ec2.create_launch_template(LaunchTemplateName="gpu-lt", LaunchTemplateData=data)["LaunchTemplate"]
    tags = [{"Key": "a", "Value": "b"}]
    ec2.create_tags(Resources=[made["LaunchTemplateId"]], Tags=tags)
    assert ec2.describe_launch_templates()["LaunchTemplates"][0]["Tags"] == tags
    ec2.delete_tags(Resources=[made["LaunchTemplateId"]], Tags=tags)
    assert not ec2.describe_launch_templates()["LaunchTemplates"][0].get("Tags")


def test_versions_of_launch_templates_go_but_for_the_default(aws: AwsDouble) -> None:
    ec2 = aws.client("ec2")
    ec2.create_launch_template(LaunchTemplateName="gpu-lt", LaunchTemplateData={"InstanceType": "g6.xlarge"})
    for _ in range(2):
        ec2.create_launch_template_version(
            LaunchTemplateName="gpu-lt", LaunchTemplateData={"InstanceType": "g6.2xlarge"}
        )
    done = ec2.delete_launch_template_versions(LaunchTemplateName="gpu-lt", Versions=["1", "2", "9"])
    assert [each["VersionNumber"] for each in done["SuccessfullyDeletedLaunchTemplateVersions"]] == [2]
    assert [each["VersionNumber"] for each in done["UnsuccessfullyDeletedLaunchTemplateVersions"]] == [1, 9]
    left = ec2.describe_launch_template_versions(LaunchTemplateName="gpu-lt")["LaunchTemplateVersions"]
    assert sorted(each["VersionNumber"] for each in left) == [1, 3]
    refused("InvalidLaunchTemplateName.NotFoundException", ec2.delete_launch_template, LaunchTemplateName="none-lt")


BAD_TEMPLATES = {
    "nothing": ({}, "MissingParameter"),
    "groups twice": (
        {"NetworkInterfaces": [{"DeviceIndex": 0}], "SecurityGroupIds": ["sg-1"]},
        "InvalidParameterCombination",
    ),
    "one card twice": ({"NetworkInterfaces": [{"DeviceIndex": 0}, {"DeviceIndex": 0}]}, "InvalidParameterValue"),
    "a public address for two": (
        {"NetworkInterfaces": [{"DeviceIndex": 0, "AssociatePublicIpAddress": False}, {"DeviceIndex": 1}]},
        "InvalidParameterCombination",
    ),
}


@pytest.mark.parametrize(("data", "code"), BAD_TEMPLATES.values(), ids=BAD_TEMPLATES)
def test_a_launch_template_that_aws_does_not_take(aws: AwsDouble, data: dict[str, Any], code: str) -> None:
    refused(code, aws.client("ec2").create_launch_template, LaunchTemplateName="gpu-lt", LaunchTemplateData=data)


def test_capacity_blocks_are_described(aws: AwsDouble) -> None:
    block = aws.reserve("p5.48xlarge", "us-west-2a", 4, state="scheduled", tags={"a": "b"})
    ec2 = aws.client("ec2")
    seen = ec2.describe_capacity_reservations(CapacityReservationIds=[block])["CapacityReservations"][0]
    assert (seen["ReservationType"], seen["State"], seen["TotalInstanceCount"], seen["AvailabilityZone"]) == (
        "capacity-block",
        "scheduled",
        4,
        "us-west-2a",
    )
    assert seen["EndDate"] > seen["StartDate"]
    aws.set_reservation(block, State="active", AvailableInstanceCount=4)
    active = ec2.describe_capacity_reservations(Filters=[{"Name": "state", "Values": ["active"]}])
    assert [each["CapacityReservationId"] for each in active["CapacityReservations"]] == [block]
    refused(
        "InvalidCapacityReservationId.NotFound", ec2.describe_capacity_reservations, CapacityReservationIds=["cr-0"]
    )
    refused("OperationNotPermitted", ec2.cancel_capacity_reservation, CapacityReservationId=block)
    offer = ec2.describe_capacity_block_offerings(InstanceType="p5.48xlarge", InstanceCount=2, CapacityDurationHours=24)
    bought = ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offer["CapacityBlockOfferings"][0]["CapacityBlockOfferingId"],
        InstancePlatform="Linux/UNIX",
    )
    assert bought["CapacityReservation"]["State"] == "payment-pending"
    assert aws.leftovers() == []


def test_offerings_of_instance_types(aws: AwsDouble) -> None:
    aws.not_offered("g6.12xlarge", "us-west-2a")
    found = aws.client("ec2").describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["g6.12xlarge"]}]
    )
    assert sorted(each["Location"] for each in found["InstanceTypeOfferings"]) == [
        "us-west-2b",
        "us-west-2c",
        "us-west-2d",
    ]


def test_quotas_are_told_and_held_to(aws: AwsDouble) -> None:
    aws.quota("vpc", "L-F678F1CE", 2)
    quotas = aws.client("service-quotas")
    told = quotas.get_service_quota(ServiceCode="vpc", QuotaCode="L-F678F1CE")["Quota"]
    assert (told["Value"], told["QuotaName"]) == (2.0, "VPCs per Region")
    assert quotas.get_aws_default_service_quota(ServiceCode="vpc", QuotaCode="L-F678F1CE")["Quota"]["Value"] == 5.0
    refused("NoSuchResourceException", quotas.get_service_quota, ServiceCode="vpc", QuotaCode="L-00000000")
    network(aws)
    refused("VpcLimitExceeded", aws.client("ec2").create_vpc, CidrBlock="10.1.0.0/16")
    aws.quota("ec2", "L-0263D0A3", 0)
    refused("AddressLimitExceeded", aws.client("ec2").allocate_address, Domain="vpc")


def test_a_dry_run_changes_nothing(aws: AwsDouble) -> None:
    block = aws.reserve("p5.48xlarge", "us-west-2a", 1, block=False)
    ec2 = aws.client("ec2", recorded=True)
    refused("DryRunOperation", ec2.cancel_capacity_reservation, CapacityReservationId=block, DryRun=True)
    refused("DryRunOperation", ec2.create_vpc, CidrBlock="10.0.0.0/16", DryRun=True)
    assert (aws.mutations, aws.leftovers()) == ([], [])


# EFS


def file_system(aws: AwsDouble, **more: Any) -> str:
    efs = aws.client("efs")
    made = efs.create_file_system(CreationToken="west", **{"ThroughputMode": "elastic", "Encrypted": True, **more})
    assert made["LifeCycleState"] == "creating"
    efs.describe_file_systems(CreationToken="west")
    return str(made["FileSystemId"])


def test_a_file_system_is_made_once_for_a_token(aws: AwsDouble) -> None:
    made = file_system(aws, Tags=[{"Key": "Name", "Value": "cache"}])
    efs = aws.client("efs")
    with pytest.raises(efs.exceptions.FileSystemAlreadyExists) as caught:
        efs.create_file_system(CreationToken="west")
    assert caught.value.response["FileSystemId"] == made
    seen = efs.describe_file_systems(CreationToken="west")["FileSystems"][0]
    assert (
        seen["LifeCycleState"],
        seen["ThroughputMode"],
        seen["Encrypted"],
        seen["PerformanceMode"],
        seen["Name"],
    ) == (
        "available",
        "elastic",
        True,
        "generalPurpose",
        "cache",
    )
    refused("FileSystemNotFound", efs.describe_file_systems, FileSystemId="fs-00000000")


def test_a_file_system_waits_and_changes(aws: AwsDouble) -> None:
    aws.delay("file_system", 2)
    _, subnets = network(aws)
    made = file_system(aws)
    efs = aws.client("efs")
    refused("IncorrectFileSystemLifeCycleState", efs.create_mount_target, FileSystemId=made, SubnetId=subnets[0])
    states = [efs.describe_file_systems(FileSystemId=made)["FileSystems"][0]["LifeCycleState"] for _ in range(2)]
    assert states == ["creating", "available"]
    assert efs.update_file_system(FileSystemId=made, ThroughputMode="bursting")["LifeCycleState"] == "updating"
    refused("BadRequest", efs.create_file_system, CreationToken="b", ThroughputMode="provisioned")
    efs.tag_resource(ResourceId=made, Tags=[{"Key": "a", "Value": "b"}])
    assert efs.list_tags_for_resource(ResourceId=made)["Tags"] == [{"Key": "a", "Value": "b"}]


def test_mount_targets_hold_what_they_use(aws: AwsDouble) -> None:
    vpc, subnets = network(aws)
    made = file_system(aws)
    ec2, efs = aws.client("ec2"), aws.client("efs")
    own = ec2.create_security_group(GroupName="efs", Description="d", VpcId=vpc)["GroupId"]
    target = efs.create_mount_target(FileSystemId=made, SubnetId=subnets[0], SecurityGroups=[own])
    assert target["LifeCycleState"] == "creating"
    for code, subnet in (("MountTargetConflict", subnets[0]), ("SubnetNotFound", "subnet-00000000")):
        refused(code, efs.create_mount_target, FileSystemId=made, SubnetId=subnet)
    refused("FileSystemInUse", efs.delete_file_system, FileSystemId=made)
    refused("DependencyViolation", ec2.delete_subnet, SubnetId=subnets[0])
    refused("DependencyViolation", ec2.delete_security_group, GroupId=own)
    seen = efs.describe_mount_targets(FileSystemId=made)["MountTargets"][0]
    assert (seen["LifeCycleState"], seen["VpcId"], seen["AvailabilityZoneName"]) == ("available", vpc, "us-west-2a")
    groups = {"MountTargetId": target["MountTargetId"]}
    assert efs.describe_mount_target_security_groups(**groups)["SecurityGroups"] == [own]
    efs.modify_mount_target_security_groups(**groups, SecurityGroups=[])
    ec2.delete_security_group(GroupId=own)
    aws.delay("mount_target", 1)
    efs.delete_mount_target(**groups)
    assert efs.describe_mount_targets(FileSystemId=made)["MountTargets"][0]["LifeCycleState"] == "deleting"
    assert efs.describe_mount_targets(FileSystemId=made)["MountTargets"] == []
    efs.delete_file_system(FileSystemId=made)
    refused("FileSystemNotFound", efs.describe_file_systems, FileSystemId=made)
    ec2.delete_subnet(SubnetId=subnets[0])


def test_access_points(aws: AwsDouble) -> None:
    made = file_system(aws)
    efs = aws.client("efs")
    point = efs.create_access_point(FileSystemId=made, ClientToken="a")["AccessPointId"]
    assert [each["AccessPointId"] for each in efs.describe_access_points(FileSystemId=made)["AccessPoints"]] == [point]
    assert any(point in each for each in aws.leftovers())
    efs.delete_access_point(AccessPointId=point)
    refused("AccessPointNotFound", efs.delete_access_point, AccessPointId=point)


# IAM


@pytest.mark.parametrize(
    "name",
    [
        "AmazonEKSClusterPolicy",
        "AmazonEKSWorkerNodePolicy",
        "AmazonEKS_CNI_Policy",
        "AmazonEC2ContainerRegistryReadOnly",
        "service-role/AmazonEFSCSIDriverPolicy",
    ],
)
def test_the_policies_of_aws_can_be_attached(aws: AwsDouble, name: str) -> None:
    role(aws, "a", "ec2.amazonaws.com")
    iam = aws.client("iam")
    iam.attach_role_policy(RoleName="a", PolicyArn=f"arn:aws:iam::aws:policy/{name}")
    refused("NoSuchEntity", iam.attach_role_policy, RoleName="a", PolicyArn=f"arn:aws:iam::aws:policy/{name}2")
    refused("DeleteConflict", iam.delete_role, RoleName="a")
    assert aws.leftovers() == ["global: role a"]


def test_a_policy_in_use_stays(aws: AwsDouble) -> None:
    role(aws, "a", "ec2.amazonaws.com")
    iam = aws.client("iam")
    document = json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Action": ["ec2:DescribeImages"], "Resource": ["*"]}],
        }
    )
    arn = iam.create_policy(PolicyName="p", PolicyDocument=document)["Policy"]["Arn"]
    iam.attach_role_policy(RoleName="a", PolicyArn=arn)
    refused("DeleteConflict", iam.delete_policy, PolicyArn=arn)
    iam.detach_role_policy(RoleName="a", PolicyArn=arn)
    iam.create_policy_version(PolicyArn=arn, PolicyDocument=document, SetAsDefault=True)
    refused("DeleteConflict", iam.delete_policy, PolicyArn=arn)
    iam.delete_policy_version(PolicyArn=arn, VersionId="v1")
    iam.delete_policy(PolicyArn=arn)
    iam.delete_role(RoleName="a")
    assert aws.leftovers() == []


BAD_TRUST = {
    "no JSON": "{",
    "no version": json.dumps({"Statement": []}),
    "no principal": trust("ec2.amazonaws.com").replace("Principal", "Principle"),
    "another action": trust("ec2.amazonaws.com", "ec2:RunInstances"),
    "a resource": trust("ec2.amazonaws.com").replace('"Effect"', '"Resource": "*", "Effect"'),
    "no service": trust("pods.eks"),
}


@pytest.mark.parametrize("document", BAD_TRUST.values(), ids=BAD_TRUST)
def test_a_trust_policy_that_aws_does_not_take(aws: AwsDouble, document: str) -> None:
    refused("MalformedPolicyDocument", aws.client("iam").create_role, RoleName="a", AssumeRolePolicyDocument=document)
