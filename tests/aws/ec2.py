# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Where EC2 is stricter than moto or has more than moto: deletes of what is in use, phases, capacity reservations."""

from __future__ import annotations

import datetime
import fnmatch
from collections.abc import Iterator
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS

from . import interfaces
from .account import ACCOUNT, OPERATIONS, Account, Region, Staged, hexadecimal, now
from .wire import Asked, AwsError

_TAG_TYPES = {"vpc-elastic-ip": "elastic-ip", "nat-gateway": "natgateway"}


def _in_use(message: str) -> AwsError:
    return AwsError("DependencyViolation", message)


def _nat_gateways(region: Region) -> list[Any]:
    """The NAT gateways that still hold what they were made of."""
    return [each for each in region.ec2.nat_gateways.values() if each.state != "deleted"]


@OPERATIONS.before("ec2", "DeleteSubnet")
def delete_subnet(account: Account, asked: Asked) -> None:
    region = account.region(asked.region)
    subnet = asked.parameters["SubnetId"]
    used = [eni.id for eni in region.ec2.enis.values() if eni.subnet.id == subnet]
    used += [nat.id for nat in _nat_gateways(region) if nat.subnet_id == subnet]
    used += [
        group.name
        for cluster in region.clusters.values()
        for group in cluster.node_groups.values()
        if subnet in group.subnets
    ]
    if used:
        raise _in_use(f"The subnet '{subnet}' has dependencies and cannot be deleted.")


@OPERATIONS.before("ec2", "DeleteSecurityGroup")
def delete_security_group(account: Account, asked: Asked) -> None:
    region = account.region(asked.region)
    wanted = asked.parameters.get("GroupId")
    group = region.ec2.get_security_group_from_id(wanted) if wanted else None
    if group is None:
        return
    if group.is_default:
        raise AwsError("CannotDelete", f'the specified group: "{group.id}" name: "default" cannot be deleted by a user')
    used = interfaces.holds_group(region, group.id)
    used |= any(group.id in template_groups for template_groups in _groups_of_nodes(region))
    if used:
        raise _in_use(f"resource {group.id} has a dependent object")


def _groups_of_nodes(region: Region) -> Iterator[list[str]]:
    """The security groups of the nodes of each node group, which moto does not run."""
    for cluster in region.clusters.values():
        for group in cluster.node_groups.values():
            for interface in group.described_template().get("NetworkInterfaces", []) if group.nodes else []:
                yield list(interface.get("Groups", []))


@OPERATIONS.before("ec2", "DetachInternetGateway")
def detach_internet_gateway(account: Account, asked: Asked) -> None:
    region = account.region(asked.region)
    vpc = asked.parameters["VpcId"]
    public = any(nat.vpc_id == vpc and nat.connectivity_type == "public" for nat in _nat_gateways(region))
    public |= any(eni.vpc_id == vpc and eni.public_ip for eni in region.ec2.enis.values())
    if public:
        raise _in_use(
            f"Network {vpc} has some mapped public address(es). Please unmap those public address(es) before detaching "
            "the gateway."
        )


@OPERATIONS.before("ec2", "DeleteInternetGateway")
def delete_internet_gateway(account: Account, asked: Asked) -> None:
    wanted = asked.parameters["InternetGatewayId"]
    gateway = account.region(asked.region).ec2.internet_gateways.get(wanted)
    if gateway is not None and gateway.vpc is not None:
        raise _in_use(f"The internetGateway '{wanted}' has dependencies and cannot be deleted.")


@OPERATIONS.before("ec2", "ReleaseAddress")
def release_address(account: Account, asked: Asked) -> None:
    region = account.region(asked.region)
    wanted = asked.parameters.get("AllocationId")
    held = {
        address.get("allocationId", address.get("AllocationId"))
        for nat in _nat_gateways(region)
        for address in nat.address_set
    }
    associated = any(each.allocation_id == wanted and each.association_id for each in region.ec2.addresses)
    if wanted in held or (wanted and associated):
        raise AwsError("InvalidIPAddress.InUse", f"The address '{wanted}' is in use.")


@OPERATIONS.before("ec2", "DeleteNetworkInterface")
def delete_network_interface(account: Account, asked: Asked) -> None:
    wanted = asked.parameters["NetworkInterfaceId"]
    interface = account.region(asked.region).ec2.enis.get(wanted)
    if interface is None:
        return
    if interface.requester_managed:
        raise AwsError("OperationNotPermitted", f"You are not allowed to manage '{wanted}': it belongs to a service.")
    if interface.status == "in-use":
        raise AwsError("InvalidParameterValue", f"Network interface '{wanted}' is currently in use.")


@OPERATIONS.before("ec2", "DeleteVpc")
def delete_vpc(account: Account, asked: Asked) -> None:
    region = account.region(asked.region)
    vpc = asked.parameters["VpcId"]
    used = any(subnet.vpc_id == vpc for zone in region.ec2.subnets.values() for subnet in zone.values())
    used |= any(gateway.vpc and gateway.vpc.id == vpc for gateway in region.ec2.internet_gateways.values())
    used |= any(not group.is_default for group in region.ec2.groups.get(vpc, {}).values())
    used |= any(eni.vpc_id == vpc for eni in region.ec2.enis.values())
    if used:
        raise _in_use(f"The vpc '{vpc}' has dependencies and cannot be deleted.")


@OPERATIONS.before("ec2", "AssociateRouteTable")
def associate_route_table(account: Account, asked: Asked) -> None:
    subnet = asked.parameters.get("SubnetId")
    wanted = asked.parameters["RouteTableId"]
    for table in account.region(asked.region).ec2.route_tables.values():
        if table.id != wanted and subnet in table._associations.values():
            raise AwsError(
                "Resource.AlreadyAssociated",
                f"the specified association for route table {table.id} conflicts: {subnet}",
            )


# NAT gateways: their phases, and what they hold while they last.


def _nat_gateway(gateway: Any, tags: dict[str, str]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "NatGatewayId": gateway.id,
        "SubnetId": gateway.subnet_id,
        "VpcId": gateway.vpc_id,
        "State": gateway.state,
        "ConnectivityType": gateway.connectivity_type,
        "CreateTime": gateway.create_time,
        "NatGatewayAddresses": [
            {
                "AllocationId": address.get("allocationId"),
                "AssociationId": address.get("associationId"),
                "NetworkInterfaceId": address["networkInterfaceId"],
                "PrivateIp": address["privateIp"],
                "PublicIp": address.get("publicIp"),
                "IsPrimary": True,
                "Status": "succeeded",
            }
            for address in gateway.address_set
        ],
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
    for address in described["NatGatewayAddresses"]:
        for name in [name for name, value in address.items() if value is None]:
            del address[name]
    if gateway.state == "failed":
        described |= {"FailureCode": "InternalError", "FailureMessage": "Network interface could not be made"}
    return described


@OPERATIONS.answers("ec2", "CreateNatGateway")
def create_nat_gateway(account: Account, asked: Asked) -> dict[str, Any]:
    given = asked.parameters
    region = account.region(asked.region)
    if region.subnet(given["SubnetId"]) is None:
        raise AwsError("InvalidSubnetID.NotFound", f"The subnet ID '{given['SubnetId']}' does not exist")
    kind = given.get("ConnectivityType", "public")
    if kind == "public":
        _check_public(region, given)
    tags = {tag["Key"]: tag["Value"] for said in given.get("TagSpecifications", []) for tag in said.get("Tags", [])}
    gateway = region.ec2.create_nat_gateway(given["SubnetId"], given.get("AllocationId"), tags, kind)
    gateway._eni.status, gateway._eni.requester_managed = "in-use", True
    gateway._eni.description = f"Interface for NAT Gateway {gateway.id}"
    gateway.state = "pending"
    stage = region.nat_gateways[gateway.id] = Staged()

    def finish() -> None:
        ending = account.ending("nat_gateway", gateway.id)
        gateway.state = ending.status if ending else "available"

    stage.begin(account.looks("nat_gateway"), finish)
    return {"NatGateway": _nat_gateway(gateway, tags), "ClientToken": given.get("ClientToken", "")}


def _check_public(region: Region, given: dict[str, Any]) -> None:
    """What a public NAT gateway needs: a free address, and an internet gateway in the VPC."""
    if not given.get("AllocationId"):
        raise AwsError("MissingParameter", "The request must include the AllocationId parameter.")
    address = region.ec2.address_by_allocation([given["AllocationId"]])[0]
    if address.association_id:
        raise AwsError("Resource.AlreadyAssociated", f"resource {address.allocation_id} is already associated")
    vpc = region.subnet(given["SubnetId"]).vpc_id
    if not any(gateway.vpc and gateway.vpc.id == vpc for gateway in region.ec2.internet_gateways.values()):
        raise AwsError("Gateway.NotAttached", f"Network {vpc} has no Internet gateway attached")


@OPERATIONS.answers("ec2", "DescribeNatGateways")
def describe_nat_gateways(account: Account, asked: Asked) -> dict[str, Any]:
    region = account.region(asked.region)
    for stage in list(region.nat_gateways.values()):
        stage.look()
    wanted = asked.parameters.get("NatGatewayIds")
    missing = [each for each in wanted or [] if each not in region.ec2.nat_gateways]
    if missing:
        raise AwsError("NatGatewayNotFound", f"NAT gateway {missing[0]} was not found")
    found = [
        _nat_gateway(gateway, {tag["key"]: tag["value"] for tag in gateway.get_tags()})
        for gateway in region.ec2.nat_gateways.values()
        if not wanted or gateway.id in wanted
    ]
    members = {"vpc-id": "VpcId", "subnet-id": "SubnetId", "state": "State", "nat-gateway-id": "NatGatewayId"}
    for condition in asked.parameters.get("Filter", []):
        found = [each for each in found if _passes(each, condition, members)]
    return {"NatGateways": found}


def _passes(described: dict[str, Any], condition: dict[str, Any], members: dict[str, str]) -> bool:
    """Whether an object passes one filter of a Describe operation."""
    name = condition["Name"]
    tags = {tag["Key"]: tag["Value"] for tag in described.get("Tags", [])}
    if name == "tag-key":
        given = list(tags)
    elif name.startswith("tag:"):
        given = [tags[key] for key in [name.removeprefix("tag:")] if key in tags]
    elif name in members:
        given = [str(described[members[name]])]
    else:
        raise AwsError("InvalidParameterValue", f"The filter '{name}' is invalid")
    return any(fnmatch.fnmatchcase(each, value) for each in given for value in condition["Values"])


@OPERATIONS.answers("ec2", "DeleteNatGateway")
def delete_nat_gateway(account: Account, asked: Asked) -> dict[str, Any]:
    region = account.region(asked.region)
    wanted = asked.parameters["NatGatewayId"]
    gateway = region.ec2.nat_gateways.get(wanted)
    if gateway is None or gateway.state == "deleted":
        raise AwsError("NatGatewayNotFound", f"NAT gateway {wanted} was not found")
    gateway.state = "deleting"
    stage = region.nat_gateways.setdefault(gateway.id, Staged())

    def finish() -> None:
        gateway.state = "deleted"
        region.ec2.enis.pop(gateway._eni.id, None)
        for address in region.ec2.addresses:
            if address.eni is gateway._eni:
                address.eni = address.association_id = None

    stage.begin(account.looks("nat_gateway"), finish)
    return {"NatGatewayId": gateway.id}


# Launch templates: what a new version inherits, and what moto cannot delete.


@OPERATIONS.after("ec2", "CreateLaunchTemplate", "CreateLaunchTemplateVersion")
def keep_launch_template_data(account: Account, asked: Asked) -> None:
    """The data as they were sent: moto mixes the tags of the template itself into them."""
    template = _launch_template(account.region(asked.region), asked)
    source = asked.parameters.get("SourceVersion")
    inherited = template.get_version(source).data if source else {}
    template.versions[-1].data = {**inherited, **asked.parameters["LaunchTemplateData"]}


@OPERATIONS.before("ec2", "CreateLaunchTemplate", "CreateLaunchTemplateVersion")
def check_launch_template_data(_account: Account, asked: Asked) -> None:
    data = asked.parameters.get("LaunchTemplateData")
    if not data:
        raise AwsError("MissingParameter", "The request must contain the parameter LaunchTemplateData")
    interfaces = data.get("NetworkInterfaces", [])
    if interfaces and (data.get("SecurityGroupIds") or data.get("SecurityGroups")):
        raise AwsError(
            "InvalidParameterCombination",
            "Network interfaces and security groups may not be specified on the same request",
        )
    cards = [(each.get("NetworkCardIndex", 0), each.get("DeviceIndex")) for each in interfaces]
    if len(set(cards)) < len(cards):
        raise AwsError(
            "InvalidParameterValue", "Each network interface requires a unique device index on its network card."
        )
    if len(interfaces) > 1 and any("AssociatePublicIpAddress" in each for each in interfaces):
        raise AwsError(
            "InvalidParameterCombination",
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple interfaces.",
        )


@OPERATIONS.after("ec2", "CreateTags", "DeleteTags")
def tag_launch_templates(account: Account, asked: Asked) -> None:
    """What describes a template has its tags of today: moto keeps those of its creation."""
    for template in account.region(asked.region).ec2.launch_templates.values():
        template.tags = template.get_tags()


def _launch_template(region: Region, asked: Asked) -> Any:
    name, id_ = asked.parameters.get("LaunchTemplateName"), asked.parameters.get("LaunchTemplateId")
    return region.ec2.get_launch_template_by_name(name) if name else region.ec2.get_launch_template(id_)


@OPERATIONS.before("ec2", "DeleteLaunchTemplate")
def delete_launch_template(account: Account, asked: Asked) -> None:
    region = account.region(asked.region)
    name, id_ = asked.parameters.get("LaunchTemplateName"), asked.parameters.get("LaunchTemplateId")
    if name and name not in region.ec2.launch_template_name_to_ids:
        raise AwsError(
            "InvalidLaunchTemplateName.NotFoundException",
            f"The specified launch template, with template name {name}, does not exist.",
        )
    if id_ and id_ not in region.ec2.launch_templates:
        raise AwsError(
            "InvalidLaunchTemplateId.NotFound",
            f"The specified launch template, with template ID {id_}, does not exist.",
        )


@OPERATIONS.answers("ec2", "DeleteLaunchTemplateVersions")
def delete_launch_template_versions(account: Account, asked: Asked) -> dict[str, Any]:
    template = _launch_template(account.region(asked.region), asked)
    deleted, refused = [], []
    for wanted in asked.parameters["Versions"]:
        said = {"LaunchTemplateId": template.id, "LaunchTemplateName": template.name, "VersionNumber": int(wanted)}
        if int(wanted) == template.default_version_number:
            told = {"Code": "unexpectedError", "Message": "The default version cannot be deleted"}
            refused.append({**said, "ResponseError": told})
        elif int(wanted) not in [version.number for version in template.versions]:
            told = {"Code": "launchTemplateVersionDoesNotExist", "Message": "There is no such version"}
            refused.append({**said, "ResponseError": told})
        else:
            template.versions = [version for version in template.versions if version.number != int(wanted)]
            deleted.append(said)
    return {
        "SuccessfullyDeletedLaunchTemplateVersions": deleted,
        "UnsuccessfullyDeletedLaunchTemplateVersions": refused,
    }


@OPERATIONS.answers("ec2", "DescribeTags")
def describe_tags(account: Account, asked: Asked) -> dict[str, Any]:
    found = []
    for tag in account.region(asked.region).ec2.describe_tags():
        kind = _TAG_TYPES.get(tag["resource_type"], tag["resource_type"])
        found.append({"ResourceId": tag["resource_id"], "ResourceType": kind, "Key": tag["key"], "Value": tag["value"]})
    members = {"resource-id": "ResourceId", "resource-type": "ResourceType", "key": "Key", "value": "Value"}
    for condition in asked.parameters.get("Filters", []):
        name = condition["Name"]
        member = "Value" if name.startswith("tag:") else members[name]
        found = [
            tag
            for tag in found
            if (not name.startswith("tag:") or tag["Key"] == name.removeprefix("tag:"))
            and any(fnmatch.fnmatchcase(tag[member], wanted) for wanted in condition["Values"])
        ]
    return {"Tags": found}


# Capacity reservations and Capacity Blocks.


def reservation(
    region: Region,
    instance_type: str,
    zone: str,
    count: int,
    *,
    block: bool,
    state: str = "active",
    tags: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Put a capacity reservation (a Capacity Block if `block`) into a region."""
    id_ = f"cr-{hexadecimal(17)}"
    start = now() + datetime.timedelta(days=1 if state in ("scheduled", "payment-pending") else -1)
    made: dict[str, Any] = {
        "CapacityReservationId": id_,
        "OwnerId": ACCOUNT,
        "CapacityReservationArn": f"arn:aws:ec2:{region.name}:{ACCOUNT}:capacity-reservation/{id_}",
        "InstanceType": instance_type,
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": zone,
        "Tenancy": "default",
        "TotalInstanceCount": count,
        "AvailableInstanceCount": count if state == "active" else 0,
        "EbsOptimized": True,
        "EphemeralStorage": False,
        "State": state,
        "StartDate": start,
        "CreateDate": now(),
        "InstanceMatchCriteria": "targeted" if block else "open",
        "Tags": [{"Key": key, "Value": value} for key, value in (tags or {}).items()],
        "ReservationType": "capacity-block" if block else "default",
    }
    if block:
        made["EndDate"] = start + datetime.timedelta(days=7 if state != "expired" else 0)
        made["EndDateType"] = "limited"
    region.reservations[id_] = made
    return made


@OPERATIONS.answers("ec2", "DescribeCapacityReservations")
def describe_capacity_reservations(account: Account, asked: Asked) -> dict[str, Any]:
    known = account.region(asked.region).reservations
    wanted = asked.parameters.get("CapacityReservationIds") or list(known)
    missing = [each for each in wanted if each not in known]
    if missing:
        raise AwsError(
            "InvalidCapacityReservationId.NotFound", f"The capacity reservation ID '{missing[0]}' does not exist"
        )
    found = [known[each] for each in wanted]
    members = {"instance-type": "InstanceType", "state": "State", "availability-zone": "AvailabilityZone"}
    for condition in asked.parameters.get("Filters", []):
        found = [each for each in found if _passes(each, condition, members)]
    return {"CapacityReservations": found}


@OPERATIONS.answers("ec2", "CreateCapacityReservation")
def create_capacity_reservation(account: Account, asked: Asked) -> dict[str, Any]:
    given = asked.parameters
    made = reservation(
        account.region(asked.region),
        given["InstanceType"],
        given["AvailabilityZone"],
        given["InstanceCount"],
        block=False,
    )
    return {"CapacityReservation": made}


@OPERATIONS.answers("ec2", "CancelCapacityReservation")
def cancel_capacity_reservation(account: Account, asked: Asked) -> dict[str, Any]:
    known = account.region(asked.region).reservations
    wanted = asked.parameters["CapacityReservationId"]
    if wanted not in known:
        raise AwsError(
            "InvalidCapacityReservationId.NotFound", f"The capacity reservation ID '{wanted}' does not exist"
        )
    if known[wanted]["ReservationType"] == "capacity-block":
        raise AwsError("OperationNotPermitted", "Capacity Blocks cannot be cancelled.")
    known[wanted]["State"] = "cancelled"
    return {"Return": True}


@OPERATIONS.answers("ec2", "DescribeCapacityBlockOfferings")
def describe_capacity_block_offerings(account: Account, asked: Asked) -> dict[str, Any]:
    given = asked.parameters
    zones = sorted(zone.name for zone in account.region(asked.region).ec2.describe_availability_zones())
    start = now() + datetime.timedelta(days=1)
    hours = given["CapacityDurationHours"]
    offer = {
        "CapacityBlockOfferingId": f"cbo-{given['InstanceType']}_{zones[0]}_{given.get('InstanceCount', 1)}",
        "InstanceType": given["InstanceType"],
        "AvailabilityZone": zones[0],
        "InstanceCount": given.get("InstanceCount", 1),
        "StartDate": start,
        "EndDate": start + datetime.timedelta(hours=hours),
        "CapacityBlockDurationHours": hours,
        "UpfrontFee": "100.00",
        "CurrencyCode": "USD",
        "Tenancy": "default",
    }
    return {"CapacityBlockOfferings": [offer]}


@OPERATIONS.answers("ec2", "PurchaseCapacityBlock")
def purchase_capacity_block(account: Account, asked: Asked) -> dict[str, Any]:
    wanted = asked.parameters["CapacityBlockOfferingId"]
    kind, zone, count = wanted.removeprefix("cbo-").split("_")
    made = reservation(account.region(asked.region), kind, zone, int(count), block=True, state="payment-pending")
    return {"CapacityReservation": made}


@OPERATIONS.answers("ec2", "DescribeInstanceTypeOfferings")
def describe_instance_type_offerings(account: Account, asked: Asked) -> dict[str, Any]:
    """The offerings of AWS that moto knows, without those that a test took out."""
    region = account.region(asked.region)
    kind = asked.parameters.get("LocationType", "region")
    found = [
        {name: offer[name] for name in ("InstanceType", "LocationType", "Location")}
        for offer in INSTANCE_TYPE_OFFERINGS[kind].get(region.name, [])
        if (offer["Location"], offer["InstanceType"]) not in region.not_offered
    ]
    members = {"instance-type": "InstanceType", "location": "Location"}
    for condition in asked.parameters.get("Filters", []):
        found = [each for each in found if _passes(each, condition, members)]
    start = int(asked.parameters.get("NextToken") or 0)
    end = start + int(asked.parameters.get("MaxResults") or 1000)
    page: dict[str, Any] = {"InstanceTypeOfferings": found[start:end]}
    if end < len(found):
        page["NextToken"] = str(end)
    return page
