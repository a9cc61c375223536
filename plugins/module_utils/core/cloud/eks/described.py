# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects as AWS describes them, reduced to what is compared: one function each, from wire form to a plain dict."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

Wire = Mapping[str, Any]
Rule = tuple[str, int | None, int | None, str]


def plain_tags(wire: Any) -> dict[str, str]:
    """The tags of an object as a dict, from either of the two forms that AWS has."""
    if isinstance(wire, Mapping):
        return {str(key): str(value) for key, value in sorted(wire.items())}
    return {tag["Key"]: tag["Value"] for tag in sorted(wire or (), key=lambda tag: str(tag["Key"]))}


def document(text: Any) -> dict[str, Any]:
    """A policy document as data. IAM hands it out URL-encoded; botocore decodes that in most answers."""
    if isinstance(text, str):
        text = json.loads(unquote(text) if text.lstrip()[:1] == "%" else text)
    return dict(text)


def rules(permissions: Iterable[Wire], group_id: str) -> list[Rule]:
    """The rules of a security group as AWS describes them: (protocol, first port, last port, whom), one per peer.

    Whom is a CIDR, `self`, or the id of another group or prefix list. All ports are None.
    """
    result: set[Rule] = set()
    for permission in permissions:
        protocol = str(permission["IpProtocol"])
        ports = (None, None) if protocol == "-1" else (permission.get("FromPort"), permission.get("ToPort"))
        peers = [one["CidrIp"] for one in permission.get("IpRanges", ())]
        peers += [one["CidrIpv6"] for one in permission.get("Ipv6Ranges", ())]
        peers += [one["PrefixListId"] for one in permission.get("PrefixListIds", ())]
        for pair in permission.get("UserIdGroupPairs", ()):
            peers.append("self" if pair.get("GroupId") == group_id else pair.get("GroupId", pair.get("GroupName", "")))
        result |= {(protocol, *ports, str(peer)) for peer in peers}
    return sorted(result, key=str)


def name_of(one: Wire) -> str:
    """The name that the tag Name gives; "" without one."""
    return plain_tags(one.get("Tags")).get("Name", "")


def subnet(one: Wire) -> dict[str, Any]:
    """A subnet."""
    return {
        "id": one["SubnetId"],
        "name": name_of(one),
        "vpc": one["VpcId"],
        "cidr": one["CidrBlock"],
        "zone": one["AvailabilityZone"],
        "map_public": bool(one.get("MapPublicIpOnLaunch")),
        "tags": plain_tags(one.get("Tags")),
    }


def nat_gateway(one: Wire) -> dict[str, Any]:
    """A NAT gateway, with the one address that ours have, and why it failed."""
    address: Wire = next(iter(one.get("NatGatewayAddresses") or ()), {})
    return {
        "id": one["NatGatewayId"],
        "name": name_of(one),
        "vpc": one.get("VpcId", ""),
        "subnet": one.get("SubnetId", ""),
        "state": one["State"],
        "reason": ": ".join(text for text in (one.get("FailureCode"), one.get("FailureMessage")) if text),
        "allocation": address.get("AllocationId", ""),
        "public_ip": address.get("PublicIp", ""),
        "tags": plain_tags(one.get("Tags")),
    }


def route_table(one: Wire) -> dict[str, Any]:
    """A route table: targets by IPv4 CIDR without those that lead nowhere, associations by subnet."""
    return {
        "id": one["RouteTableId"],
        "name": name_of(one),
        "vpc": one["VpcId"],
        "routes": {
            route["DestinationCidrBlock"]: next(
                (
                    route[key]
                    for key in ("GatewayId", "NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "InstanceId")
                    if route.get(key)
                ),
                "",
            )
            for route in one.get("Routes", ())
            if route.get("DestinationCidrBlock") and route.get("State") != "blackhole"
        },
        "associations": {
            found["SubnetId"]: found["RouteTableAssociationId"]
            for found in one.get("Associations", ())
            if found.get("SubnetId")
        },
        "tags": plain_tags(one.get("Tags")),
    }


def security_group(one: Wire) -> dict[str, Any]:
    """A security group with its rules as `rules` gives them."""
    return {
        "id": one["GroupId"],
        "name": one["GroupName"],
        "vpc": one.get("VpcId", ""),
        "description": one.get("Description", ""),
        "ingress": [list(rule) for rule in rules(one.get("IpPermissions", ()), one["GroupId"])],
        "egress": [list(rule) for rule in rules(one.get("IpPermissionsEgress", ()), one["GroupId"])],
        "tags": plain_tags(one.get("Tags")),
    }


def mount_target(one: Wire) -> dict[str, str]:
    """A mount target, by the name of its subnet."""
    return {"id": one["MountTargetId"], "name": one.get("SubnetId", "")}
