# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""EC2 where moto is laxer than AWS: what something depends on cannot be deleted, and NAT gateways take a while."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from typing import Any

from ansible_collections.modelplane.fleet.tests.cloud.control import Answer
from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal
from moto.ec2 import utils as ec2_utils
from moto.ec2.models.internet_gateways import InternetGateway
from moto.ec2.models.route_tables import Route

from .eks import group_ids
from .hooks import Forward, hook, keeper, served
from .wire import Call
from .world import ACCOUNT, Changing, Json, World

# moto has other names than AWS for these types of tags.
ec2_utils.EC2_PREFIX_TO_RESOURCE.update(eipalloc="elastic-ip", nat="natgateway")


def _state(route: Any) -> str:
    """The state of a route: what it leads to may be gone."""
    if route.nat_gateway is not None and route.nat_gateway.state in ("deleted", "failed"):
        return "blackhole"
    gateway = route.gateway
    lost = isinstance(gateway, InternetGateway) and gateway.vpc is None
    return "blackhole" if lost else "active"


# Nor does it say that a route leads nowhere.
Route.state = property(_state)  # type: ignore[assignment, method-assign]


def interfaces(world: World, region: str) -> list[Any]:
    return list(world.ec2(region).enis.values())


def _depends(kind: str, identifier: str) -> Refusal:
    return Refusal("DependencyViolation", f"The {kind} '{identifier}' has dependencies and cannot be deleted.", 400)


def _matches(filters: Iterable[Json], values: dict[str, list[str]], tags: dict[str, str]) -> bool:
    """Return whether an object with these values of filters, and these tags, passes the filters of a request."""
    for one in filters:
        name = one["Name"]
        if name.startswith("tag:"):
            have = [tags[name[4:]]] if name[4:] in tags else []
        elif name == "tag-key":
            have = list(tags)
        elif name in values:
            have = values[name]
        else:
            raise Refusal("InvalidParameterValue", f"The filter '{name}' is invalid", 400)
        if not any(fnmatch.fnmatchcase(value, pattern) for value in have for pattern in one.get("Values", [])):
            return False
    return True


@keeper("ec2", "DeleteSubnet")
def delete_subnet(world: World, call: Call, forward: Forward) -> Answer:
    subnet = call.parameters["SubnetId"]
    if any(one.subnet.id == subnet for one in interfaces(world, call.region)):
        raise _depends("subnet", subnet)
    return forward()


@keeper("ec2", "DeleteSecurityGroup")
def delete_security_group(world: World, call: Call, forward: Forward) -> Answer:
    identifier = call.parameters.get("GroupId", "")
    ec2 = world.ec2(call.region)
    group = ec2.get_security_group_from_id(identifier)
    if group is not None and group.name == "default":
        raise Refusal(
            "CannotDelete", f'the specified group: "{identifier}" name: "default" cannot be deleted by a user', 400
        )
    used = any(identifier in group_ids(one) for one in interfaces(world, call.region))
    others = [one for groups in ec2.groups.values() for one in groups.values() if one.id != identifier]
    if group is not None and (used or any(identifier in _referenced(one) for one in others)):
        raise Refusal("DependencyViolation", f"resource {identifier} has a dependent object", 400)
    return forward()


def _referenced(group: Any) -> set[str]:
    rules = [*group.ingress_rules, *group.egress_rules]
    return {str(rule.source_group.get("GroupId")) for rule in rules}


@keeper("ec2", "DeleteVpc")
def delete_vpc(world: World, call: Call, forward: Forward) -> Answer:
    vpc, ec2 = call.parameters["VpcId"], world.ec2(call.region)
    gateways = [one for one in ec2.internet_gateways.values() if one.vpc and one.vpc.id == vpc]
    groups = [one for one in ec2.groups.get(vpc, {}).values() if one.name != "default"]
    if gateways or groups:
        raise _depends("vpc", vpc)
    return forward()


@keeper("ec2", "DetachInternetGateway")
def detach_internet_gateway(world: World, call: Call, forward: Forward) -> Answer:
    vpc = call.parameters["VpcId"]
    if any(one.public_ip and one.subnet.vpc_id == vpc for one in interfaces(world, call.region)):
        message = (
            f"Network {vpc} has some mapped public address(es). Please unmap those public address(es) before detaching"
        )
        raise Refusal("DependencyViolation", f"{message} the gateway.", 400)
    return forward()


@keeper("ec2", "DeleteInternetGateway")
def delete_internet_gateway(world: World, call: Call, forward: Forward) -> Answer:
    identifier = call.parameters["InternetGatewayId"]
    gateway = world.ec2(call.region).internet_gateways.get(identifier)
    if gateway is not None and gateway.vpc is not None:
        raise _depends("internetGateway", identifier)
    return forward()


@keeper("ec2", "DeleteNetworkInterface", "DetachNetworkInterface")
def delete_network_interface(world: World, call: Call, forward: Forward) -> Answer:
    identifier = call.parameters.get("NetworkInterfaceId", "")
    interface = world.ec2(call.region).enis.get(identifier)
    if interface is not None and interface.requester_managed:
        raise Refusal("AuthFailure", "You do not have permission to access the specified resource.", 400)
    if interface is not None and interface.status == "in-use":
        raise Refusal("InvalidParameterValue", f"Network interface '{identifier}' is currently in use.", 400)
    return forward()


@hook("ec2", "AssociateRouteTable")
def associate_route_table(world: World, call: Call, forward: Forward) -> Answer:
    subnet, desired = call.parameters.get("SubnetId"), call.parameters["RouteTableId"]
    for table in world.ec2(call.region).route_tables.values():
        if subnet and table.id != desired and subnet in table._associations.values():
            message = f"the specified association for route table {desired} conflicts with an existing association"
            raise Refusal("Resource.AlreadyAssociated", message, 400)
    return forward()


@hook("ec2", "CreateTags", "DeleteTags")
def change_tags(_world: World, call: Call, forward: Forward) -> Answer:
    for tag in call.parameters.get("Tags", []):
        if tag["Key"].startswith("aws:"):
            message = f"Tag keys starting with 'aws:' are reserved for internal use: {tag['Key']}"
            raise Refusal("InvalidParameterValue", message, 400)
    return forward()


# --- addresses and NAT gateways


def _address(world: World, call: Call) -> Any:
    asked = call.parameters
    for address in world.ec2(call.region).addresses:
        if address.allocation_id and address.allocation_id == asked.get("AllocationId"):
            return address
        if asked.get("PublicIp") == address.public_ip:
            return address
        if address.association_id and address.association_id == asked.get("AssociationId"):
            return address
    return None


@keeper("ec2", "ReleaseAddress")
def release_address(world: World, call: Call, forward: Forward) -> Answer:
    address = _address(world, call)
    if address is not None and address.association_id:
        raise Refusal("InvalidIPAddress.InUse", f"Address {address.public_ip} is in use.", 400)
    return forward()


@keeper("ec2", "DisassociateAddress")
def disassociate_address(world: World, call: Call, forward: Forward) -> Answer:
    address = _address(world, call)
    if address is not None and address.eni is not None and address.eni.requester_managed:
        raise Refusal("AuthFailure", "You do not have permission to access the specified resource.", 400)
    return forward()


class NatCourse(Changing):
    """The course of a NAT gateway."""

    def __init__(self, world: World, region: str, gateway: Any) -> None:
        self.world, self.region, self.gateway = world, region, gateway

    def start(self) -> None:
        ec2, gateway = self.world.ec2(self.region), self.gateway
        gateway.state = "pending"
        own = gateway._eni
        own.description, own.status, own.requester_managed = f"Interface for NAT Gateway {gateway.id}", "in-use", True
        own.interface_type = "nat_gateway"

        def done() -> None:
            attached = any(one.vpc and one.vpc.id == gateway.vpc_id for one in ec2.internet_gateways.values())
            gateway.state = "available" if attached else "failed"
            if not attached:
                gateway.failure_code = "Gateway.NotAttached"
                gateway.failure_message = f"Network {gateway.vpc_id} has no Internet gateway attached"
                self._let_go()

        self.world.after_phases(self, done)

    def delete(self) -> None:
        self.gateway.state = "deleting"

        def done() -> None:
            self.gateway.state = "deleted"
            self._let_go()

        self.world.after_phases(self, done)

    def _let_go(self) -> None:
        ec2 = self.world.ec2(self.region)
        for address in ec2.addresses:
            if address.eni is self.gateway._eni:
                address.eni = address.association_id = None
        ec2.enis.pop(self.gateway._eni.id, None)


@hook("ec2", "CreateNatGateway")
def create_nat_gateway(world: World, call: Call, _forward: Forward) -> Json:
    asked, ec2 = call.parameters, world.ec2(call.region)
    token = asked.get("ClientToken", "")
    known = {subnet.id for zone in ec2.subnets.values() for subnet in zone.values()}
    if asked["SubnetId"] not in known:
        raise Refusal("InvalidSubnetID.NotFound", f"The subnet ID '{asked['SubnetId']}' does not exist", 400)
    kind = asked.get("ConnectivityType", "public")
    address = _address(world, call)
    if kind == "public" and not asked.get("AllocationId"):
        raise Refusal("MissingParameter", "The request must include the AllocationId parameter.", 400)
    if kind == "public" and address is None:
        message = f"Elastic IP address {asked['AllocationId']} does not exist"
        raise Refusal("InvalidAllocationID.NotFound", message, 400)
    if address is not None and address.association_id:
        message = f"resource {address.allocation_id} is already associated with associate-id {address.association_id}"
        raise Refusal("Resource.AlreadyAssociated", message, 400)
    tags = {
        tag["Key"]: tag.get("Value", "")
        for specification in asked.get("TagSpecifications", [])
        if specification.get("ResourceType") == "natgateway"
        for tag in specification.get("Tags", [])
    }
    gateway = ec2.create_nat_gateway(asked["SubnetId"], asked.get("AllocationId"), tags, kind)
    course = NatCourse(world, call.region, gateway)
    course.start()
    world.changing[gateway.id] = course
    return {"NatGateway": _nat(gateway, ec2), **({"ClientToken": token} if token else {})}


def _nat(gateway: Any, ec2: Any) -> Json:
    addresses = [
        {
            "AllocationId": one.get("allocationId"),
            "NetworkInterfaceId": one["networkInterfaceId"],
            "PrivateIp": one["privateIp"],
            "PublicIp": one.get("publicIp"),
            "AssociationId": one.get("associationId"),
            "IsPrimary": True,
            "Status": "succeeded",
        }
        for one in gateway.address_set
    ]
    message = {
        "CreateTime": gateway._created_at,
        "NatGatewayAddresses": [{name: value for name, value in one.items() if value is not None} for one in addresses],
        "NatGatewayId": gateway.id,
        "State": gateway.state,
        "SubnetId": gateway.subnet_id,
        "VpcId": gateway.vpc_id,
        "ConnectivityType": gateway.connectivity_type,
        "Tags": [{"Key": key, "Value": value} for key, value in ec2.tags.get(gateway.id, {}).items()],
    }
    if gateway.state == "failed":
        message |= {"FailureCode": gateway.failure_code, "FailureMessage": gateway.failure_message}
    return message


@hook("ec2", "DescribeNatGateways")
def describe_nat_gateways(world: World, call: Call, _forward: Forward) -> Json:
    asked, ec2 = call.parameters, world.ec2(call.region)
    ids = asked.get("NatGatewayIds", [])
    for identifier in ids:
        if identifier not in ec2.nat_gateways:
            raise Refusal("NatGatewayNotFound", f"NAT gateway {identifier} was not found", 400)
    message = []
    # A gateway is observed if it passes all filters but that of its state: a caller that waits for a state has that.
    stateless = [one for one in asked.get("Filter", []) if one["Name"] != "state"]
    for gateway in ec2.nat_gateways.values():
        values = {
            "nat-gateway-id": [gateway.id],
            "subnet-id": [gateway.subnet_id],
            "vpc-id": [gateway.vpc_id],
        }
        tags = ec2.tags.get(gateway.id, {})
        if (ids and gateway.id not in ids) or not _matches(stateless, values, tags):
            continue
        if gateway.id in world.changing:
            world.changing[gateway.id].observe()
        if _matches(asked.get("Filter", []), values | {"state": [gateway.state]}, tags):
            message.append(_nat(gateway, ec2))
    return {"NatGateways": message}


@hook("ec2", "DeleteNatGateway")
def delete_nat_gateway(world: World, call: Call, _forward: Forward) -> Json:
    identifier = call.parameters["NatGatewayId"]
    gateway = world.ec2(call.region).nat_gateways.get(identifier)
    if gateway is None or gateway.state == "deleted":
        raise Refusal("NatGatewayNotFound", f"The Nat Gateway {identifier} was not found", 400)
    if gateway.state != "deleting":
        world.changing[identifier].delete()  # type: ignore[attr-defined]
    return {"NatGatewayId": identifier}


# --- launch templates


def _template(world: World, call: Call) -> Any:
    for template in world.ec2(call.region).launch_templates.values():
        if call.parameters.get("LaunchTemplateId") == template.id:
            return template
        if call.parameters.get("LaunchTemplateName") == template.name:
            return template
    return None


@hook("ec2", "CreateLaunchTemplate", "CreateLaunchTemplateVersion")
def create_launch_template(world: World, call: Call, forward: Forward) -> Answer:
    """moto puts the tags of the template into its data, and makes nothing of a version that another one is based on."""
    asked, before = call.parameters, _template(world, call)
    base = None
    if before is not None and asked.get("SourceVersion"):
        base = before.get_version(asked["SourceVersion"]).data
    _check_template(asked["LaunchTemplateData"])
    given = forward()
    template = _template(world, call)
    if served(given) and template is not None:
        data = template.versions[-1].data
        if "TagSpecifications" in asked["LaunchTemplateData"]:
            data["TagSpecifications"] = asked["LaunchTemplateData"]["TagSpecifications"]
        elif "TagSpecifications" in data:
            del data["TagSpecifications"]
        for name, value in dict(base or {}).items():
            if name not in data:
                data[name] = value
    return given


@hook("ec2", "DescribeLaunchTemplates")
def describe_launch_templates(world: World, call: Call, forward: Forward) -> Answer:
    """Describe templates with the tags they have now; moto has those that a template was made with."""
    for template in world.ec2(call.region).launch_templates.values():
        template.tags = template.get_tags()
    return forward()


def _check_template(data: Json) -> None:
    cards = [one.get("NetworkCardIndex", 0) for one in data.get("NetworkInterfaces", [])]
    if data.get("NetworkInterfaces") and (data.get("SecurityGroupIds") or data.get("SecurityGroups")):
        message = "Network interfaces and an instance-level security groups may not be specified on the same request"
        raise Refusal("InvalidParameterCombination", message, 400)
    if len(cards) > 1 and any("AssociatePublicIpAddress" in one for one in data["NetworkInterfaces"]):
        message = "The associatePublicIPAddress parameter cannot be specified with multiple network interfaces."
        raise Refusal("InvalidParameterCombination", message, 400)
    pairs = [(one.get("NetworkCardIndex", 0), one.get("DeviceIndex")) for one in data.get("NetworkInterfaces", [])]
    if len(set(pairs)) != len(pairs):
        raise Refusal("InvalidParameterValue", "Each network interface requires a unique device index.", 400)


# --- what there is in the region


def add_reservation(world: World, region: str, given: Json) -> Json:
    """A capacity reservation: what a test says of it, and defaults."""
    total = given.get("TotalInstanceCount", 1)
    reservation = {
        "CapacityReservationId": f"cr-{world.token(17, '0123456789abcdef')}",
        "OwnerId": ACCOUNT,
        "InstanceType": "p5.48xlarge",
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": f"{region}a",
        "Tenancy": "default",
        "TotalInstanceCount": total,
        "AvailableInstanceCount": total,
        "State": "active",
        "InstanceMatchCriteria": "targeted",
        "EndDateType": "limited",
        "ReservationType": "capacity-block",
        **given,
    }
    world.reservations.setdefault(region, []).append(reservation)
    return reservation


@hook("ec2", "DescribeCapacityReservations")
def describe_capacity_reservations(world: World, call: Call, _forward: Forward) -> Json:
    held, ids = world.reservations.get(call.region, []), call.parameters.get("CapacityReservationIds", [])
    for identifier in ids:
        if identifier not in [one["CapacityReservationId"] for one in held]:
            message = f"The capacity reservation '{identifier}' does not exist"
            raise Refusal("InvalidCapacityReservationId.NotFound", message, 400)

    def values(one: Json) -> dict[str, list[str]]:
        return {
            "state": [one["State"]],
            "instance-type": [one["InstanceType"]],
            "availability-zone": [one["AvailabilityZone"]],
            "owner-id": [one["OwnerId"]],
            "tenancy": [one["Tenancy"]],
            "instance-match-criteria": [one["InstanceMatchCriteria"]],
        }

    matching = [
        one
        for one in held
        if (not ids or one["CapacityReservationId"] in ids)
        and _matches(call.parameters.get("Filters", []), values(one), {})
    ]
    return {"CapacityReservations": matching}


@hook("ec2", "DescribeRegions")
def describe_regions(world: World, call: Call, _forward: Forward) -> Json:
    disabled, message = world.settings.disabled_regions, []
    known = {region.name: region for region in world.ec2(call.region).describe_regions()}
    for name in call.parameters.get("RegionNames", []):
        if name not in known:
            raise Refusal("InvalidParameterValue", f"Invalid region provided: {name}", 400)
    for name, region in known.items():
        enabled = name not in disabled
        if name in call.parameters.get("RegionNames", [name]) and (enabled or call.parameters.get("AllRegions")):
            status = region.opt_in_status if enabled else "not-opted-in"
            message.append({"RegionName": name, "Endpoint": f"ec2.{name}.amazonaws.com", "OptInStatus": status})
    return {"Regions": message}


# --- load balancers, with interfaces in their subnets


class BalancerCourse(Changing):
    """Interfaces of a load balancer that has been deleted. They stay for a while."""

    def __init__(self, world: World, region: str, ids: list[str]) -> None:
        self.world, self.region, self.ids = world, region, ids

        def done() -> None:
            for identifier in ids:
                world.ec2(region).enis.pop(identifier, None)

        world.after_phases(self, done)


def _balancers(world: World, call: Call) -> dict[str, Any]:
    if call.service == "elbv2":
        return dict(world.elbv2(call.region).load_balancers)
    return dict(world.elb(call.region).load_balancers)


def _description(service: str, name: str, balancer: Any) -> str:
    return f"ELB {name}" if service == "elb" else f"ELB {balancer.arn.split(':loadbalancer/')[1]}"


@hook("elbv2", "CreateLoadBalancer")
@hook("elb", "CreateLoadBalancer")
def create_load_balancer(world: World, call: Call, forward: Forward) -> Answer:
    before = set(_balancers(world, call))
    given = forward()
    ec2 = world.ec2(call.region)
    for name, balancer in _balancers(world, call).items():
        if name in before:
            continue
        mapped = [one.get("SubnetId") for one in call.parameters.get("SubnetMappings", [])]
        for subnet in [*call.parameters.get("Subnets", []), *mapped]:
            groups = call.parameters.get("SecurityGroups")
            interface = ec2.create_network_interface(
                ec2.get_subnet(subnet), None, group_ids=groups, description=_description(call.service, name, balancer)
            )
            interface.status, interface.requester_managed = "in-use", True
            if call.parameters.get("Scheme", "internet-facing") == "internet-facing":
                interface.public_ip = f"203.0.113.{world.number() % 250 + 1}"
    return given


@hook("elbv2", "DeleteLoadBalancer")
@hook("elb", "DeleteLoadBalancer")
def delete_load_balancer(world: World, call: Call, forward: Forward) -> Answer:
    before = _balancers(world, call)
    given = forward()
    for name in set(before) - set(_balancers(world, call)):
        message = _description(call.service, name, before[name])
        ids = [one.id for one in interfaces(world, call.region) if one.description == message]
        world.changing[f"balancer {name}"] = BalancerCourse(world, call.region, ids)
    return given


@hook("ec2", "DescribeNetworkInterfaces")
def describe_network_interfaces(world: World, call: Call, forward: Forward) -> Answer:
    for course in list(world.changing.values()):
        if isinstance(course, BalancerCourse) and course.region == call.region:
            course.observe()
    return forward()
