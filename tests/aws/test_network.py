# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""EC2 and load balancers: what takes time, and what holds what."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.tests.aws.account import TEMPLATE, Account, Json, refused
from ansible_collections.modelplane.fleet.tests.aws.double import Double


def _nat(account: Account) -> tuple[str, str]:
    gateway = account.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    account.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=account.vpc)
    address = account.ec2.allocate_address(Domain="vpc")["AllocationId"]
    return gateway, address


def test_a_nat_gateway_comes_and_goes(account: Account) -> None:
    account.network()
    gateway, address = _nat(account)
    tags = [{"ResourceType": "natgateway", "Tags": [{"Key": "Name", "Value": "nat"}]}]
    asked = {"SubnetId": account.subnets[0], "AllocationId": address, "ClientToken": "t", "TagSpecifications": tags}
    nat = account.ec2.create_nat_gateway(**asked)["NatGateway"]
    assert nat["State"] == "pending"
    assert account.ec2.create_nat_gateway(**asked)["NatGateway"]["NatGatewayId"] == nat["NatGatewayId"]
    with refused("Resource.AlreadyAssociated"):
        account.ec2.create_nat_gateway(**asked | {"ClientToken": "u"})
    with refused("IdempotentParameterMismatch"):
        account.ec2.create_nat_gateway(**asked | {"SubnetId": account.subnets[1]})
    by_tag = [{"Name": "tag:Name", "Values": ["nat"]}, {"Name": "state", "Values": ["pending", "available"]}]

    def states() -> list[str]:
        found = account.ec2.describe_nat_gateways(Filter=by_tag[:1])["NatGateways"]
        return [str(one["State"]) for one in found]

    assert [states() for _ in range(2)] == [["pending"], ["available"]]
    found = account.ec2.describe_nat_gateways(Filter=by_tag)["NatGateways"][0]
    assert found["NatGatewayAddresses"][0]["AllocationId"] == address
    table = account.ec2.create_route_table(VpcId=account.vpc)["RouteTable"]["RouteTableId"]
    account.ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=nat["NatGatewayId"])
    with refused("InvalidIPAddress.InUse"):
        account.ec2.release_address(AllocationId=address)
    with refused("DependencyViolation", "mapped public address"):
        account.ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=account.vpc)
    with refused("DependencyViolation"):
        account.ec2.delete_subnet(SubnetId=account.subnets[0])
    account.ec2.delete_nat_gateway(NatGatewayId=nat["NatGatewayId"])
    assert [states() for _ in range(2)] == [["deleting"], ["deleted"]]
    routes = account.ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"][0]["Routes"]
    assert [route["State"] for route in routes if route.get("NatGatewayId")] == ["blackhole"]
    account.ec2.delete_route_table(RouteTableId=table)
    assert account.ec2.describe_nat_gateways(Filter=by_tag)["NatGateways"] == []
    account.ec2.release_address(AllocationId=address)
    with refused("DependencyViolation"):
        account.ec2.delete_internet_gateway(InternetGatewayId=gateway)
    with refused("DependencyViolation"):
        account.ec2.delete_vpc(VpcId=account.vpc)
    account.ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=account.vpc)
    account.ec2.delete_internet_gateway(InternetGatewayId=gateway)
    for subnet in account.subnets:
        account.ec2.delete_subnet(SubnetId=subnet)
    account.ec2.delete_vpc(VpcId=account.vpc)
    with refused("NatGatewayNotFound"):
        account.ec2.delete_nat_gateway(NatGatewayId="nat-0")
    with refused("NatGatewayNotFound"):
        account.ec2.describe_nat_gateways(NatGatewayIds=["nat-0"])


def test_a_nat_gateway_needs_an_internet_gateway(account: Account) -> None:
    account.network()
    address = account.ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = account.ec2.create_nat_gateway(SubnetId=account.subnets[0], AllocationId=address)["NatGateway"][
        "NatGatewayId"
    ]
    for _ in range(2):
        found = account.ec2.describe_nat_gateways(NatGatewayIds=[nat])["NatGateways"][0]
    assert (found["State"], found["FailureCode"]) == ("failed", "Gateway.NotAttached")
    account.ec2.release_address(AllocationId=address)


def test_types_of_tags(account: Account) -> None:
    account.network()
    _, address = _nat(account)
    nat = account.ec2.create_nat_gateway(SubnetId=account.subnets[0], AllocationId=address)["NatGateway"][
        "NatGatewayId"
    ]
    account.ec2.create_tags(Resources=[nat, address], Tags=[{"Key": "Name", "Value": "x"}])
    with refused("InvalidParameterValue", "reserved for internal use"):
        account.ec2.create_tags(Resources=[nat], Tags=[{"Key": "aws:x", "Value": "x"}])
    for kind, identifier in (("natgateway", nat), ("elastic-ip", address)):
        found = account.ec2.describe_tags(Filters=[{"Name": "resource-type", "Values": [kind]}])["Tags"]
        assert [(tag["ResourceId"], tag["ResourceType"]) for tag in found] == [(identifier, kind)]


def test_route_tables(account: Account) -> None:
    account.network()
    first, second = (account.ec2.create_route_table(VpcId=account.vpc)["RouteTable"]["RouteTableId"] for _ in range(2))
    asked = {"RouteTableId": first, "SubnetId": account.subnets[0]}
    association = account.ec2.associate_route_table(**asked)["AssociationId"]
    assert account.ec2.associate_route_table(**asked)["AssociationId"] == association
    with refused("Resource.AlreadyAssociated"):
        account.ec2.associate_route_table(**asked | {"RouteTableId": second})
    account.ec2.replace_route_table_association(AssociationId=association, RouteTableId=second)


def test_security_groups_in_use(account: Account) -> None:
    account.network()
    one, two = (
        account.ec2.create_security_group(GroupName=name, Description="d", VpcId=account.vpc)["GroupId"]
        for name in ("one", "two")
    )
    rule = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": one}]}
    account.ec2.authorize_security_group_ingress(GroupId=one, IpPermissions=[rule])
    account.ec2.authorize_security_group_ingress(GroupId=two, IpPermissions=[rule])
    with refused("DependencyViolation"):
        account.ec2.delete_security_group(GroupId=one)
    account.ec2.delete_security_group(GroupId=two)
    interface = account.ec2.create_network_interface(SubnetId=account.subnets[0], Groups=[one])["NetworkInterface"]
    with refused("DependencyViolation", f"resource {one} has a dependent object"):
        account.ec2.delete_security_group(GroupId=one)
    with refused("DependencyViolation"):
        account.ec2.delete_subnet(SubnetId=account.subnets[0])
    account.ec2.delete_network_interface(NetworkInterfaceId=interface["NetworkInterfaceId"])
    account.ec2.delete_security_group(GroupId=one)
    groups = account.ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [account.vpc]}])
    with refused("CannotDelete"):
        account.ec2.delete_security_group(GroupId=groups["SecurityGroups"][0]["GroupId"])


@pytest.mark.parametrize("service", ["elbv2", "elb"])
def test_load_balancers_hold_the_network(aws: Double, account: Account, service: str) -> None:
    account.network()
    _nat(account)
    client = aws.client(service)
    if service == "elbv2":
        made = client.create_load_balancer(Name="lb", Subnets=account.subnets[:2])["LoadBalancers"][0]
        deletion = {"LoadBalancerArn": made["LoadBalancerArn"]}
    else:
        listeners = [{"Protocol": "TCP", "LoadBalancerPort": 80, "InstancePort": 80}]
        client.create_load_balancer(LoadBalancerName="lb", Subnets=account.subnets[:2], Listeners=listeners)
        deletion = {"LoadBalancerName": "lb"}
    found = account.ec2.describe_network_interfaces()["NetworkInterfaces"]
    assert [one["Status"] for one in found] == ["in-use", "in-use"]
    with refused("DependencyViolation"):
        account.ec2.delete_subnet(SubnetId=account.subnets[0])
    client.delete_load_balancer(**deletion)
    assert len(account.ec2.describe_network_interfaces()["NetworkInterfaces"]) == 2
    assert account.ec2.describe_network_interfaces()["NetworkInterfaces"] == []
    account.ec2.delete_subnet(SubnetId=account.subnets[0])


def test_launch_templates(account: Account) -> None:
    interfaces = [
        {"NetworkCardIndex": card, "DeviceIndex": min(card, 1), "InterfaceType": kind, "Groups": ["sg-1", "sg-2"]}
        for card, kind in enumerate(["efa", "efa-only", "efa-only"])
    ]
    data = TEMPLATE | {"NetworkInterfaces": interfaces}
    tags = [{"ResourceType": "launch-template", "Tags": [{"Key": "a", "Value": "b"}]}]
    account.ec2.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData=data, TagSpecifications=tags)

    def latest() -> Json:
        found = account.ec2.describe_launch_template_versions(LaunchTemplateName="gpu", Versions=["$Latest"])
        return dict(found["LaunchTemplateVersions"][0]["LaunchTemplateData"])

    assert latest() == data
    account.ec2.create_launch_template_version(
        LaunchTemplateName="gpu", SourceVersion="1", LaunchTemplateData={"InstanceType": "p5en.48xlarge"}
    )
    assert latest() == data | {"InstanceType": "p5en.48xlarge"}
    account.ec2.create_launch_template_version(LaunchTemplateName="gpu", LaunchTemplateData=TEMPLATE)
    assert latest() == TEMPLATE
    with refused("InvalidParameterCombination"):
        account.ec2.create_launch_template(
            LaunchTemplateName="x", LaunchTemplateData=data | {"SecurityGroupIds": ["sg-1"]}
        )
    with refused("InvalidLaunchTemplateName.NotFoundException"):
        account.ec2.describe_launch_templates(LaunchTemplateNames=["none"])
