# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What is not as a plan says, of the network and the roles that were seen, so that nothing has to be asked of AWS where
all is well. What was seen is in the form of the APIs of EC2 and IAM."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Seen = Mapping[str, Any]

_EVERYWHERE = "0.0.0.0/0"


@dataclass(frozen=True)
class SeenNetwork:
    """Descriptions of EC2, all of one cluster. `dns` tells whether the VPC resolves and gives names."""

    vpcs: Sequence[Seen] = ()
    dns: bool = False
    subnets: Sequence[Seen] = ()
    internet_gateways: Sequence[Seen] = ()
    addresses: Sequence[Seen] = ()
    nat_gateways: Sequence[Seen] = ()
    route_tables: Sequence[Seen] = ()
    security_groups: Sequence[Seen] = ()


@dataclass(frozen=True)
class SeenRole:
    """A role of IAM: who may take it, and the ARNs of its policies."""

    trust: Any = None
    policies: frozenset[str] = field(default_factory=frozenset)


def tags_of(entry: Seen) -> dict[str, str]:
    return {tag["Key"]: tag.get("Value", "") for tag in entry.get("Tags") or ()}


def by_name(entries: Sequence[Seen]) -> dict[str, Seen]:
    """Descriptions by their tag Name."""
    return {tags_of(entry).get("Name", ""): entry for entry in entries}


def network_differences(plan: Seen, seen: SeenNetwork) -> list[str]:
    """What is missing or otherwise in the network of a plan, one text each; empty where it is as planned."""
    return [*_vpc(plan, seen), *_subnets(plan, seen), *_gateways(seen), *_routes(plan, seen), *_groups(plan, seen)]


def identity_differences(
    plan: Seen, account: str, roles: Mapping[str, SeenRole], policies: Mapping[str, Any]
) -> list[str]:
    """What is missing or otherwise in the roles and policies (documents) by name; `account` is its number."""
    own = f"arn:{plan['partition']}:iam::{account}:policy/"
    names = {policy["key"]: policy["name"] for policy in plan["policies"]}
    found = []
    for policy in plan["policies"]:
        if policy["name"] not in policies:
            found.append(f"policy {policy['name']} is not there")
        elif not _same(policies[policy["name"]], policy["document"]):
            found.append(f"policy {policy['name']} says something else")
    for role in plan["roles"]:
        there = roles.get(role["name"])
        wanted = {*role["managed_policies"], *(own + names[key] for key in role["policies"])}
        if there is None:
            found.append(f"role {role['name']} is not there")
        elif not _same(there.trust, role["trust"]) or there.policies != wanted:
            found.append(f"role {role['name']} has others who take it, or other policies")
    return found


def _vpc(plan: Seen, seen: SeenNetwork) -> Iterator[str]:
    name = plan["network"]["vpc"]["name"]
    if not seen.vpcs:
        yield f"VPC {name} is not there"
    elif not seen.dns:
        yield f"VPC {name} does not resolve or give names"


def _subnets(plan: Seen, seen: SeenNetwork) -> Iterator[str]:
    there = by_name(seen.subnets)
    for subnet in plan["network"]["subnets"]:
        found = there.get(subnet["name"])
        if found is None:
            yield f"subnet {subnet['name']} is not there"
        elif bool(found.get("MapPublicIpOnLaunch")) != subnet["public_ip"]:
            yield f"subnet {subnet['name']} has nodes with public addresses, or none, and should not"
        elif not subnet["tags"].items() <= tags_of(found).items():
            yield f"subnet {subnet['name']} lacks tags"


def _gateways(seen: SeenNetwork) -> Iterator[str]:
    vpc = seen.vpcs[0]["VpcId"] if seen.vpcs else ""
    attached = [held.get("VpcId") for gateway in seen.internet_gateways for held in gateway.get("Attachments") or ()]
    if vpc not in attached:
        yield "there is no internet gateway at the VPC"
    if not seen.addresses:
        yield "there is no address for the NAT gateway"
    if not any(gateway.get("State") == "available" for gateway in seen.nat_gateways):
        yield "there is no NAT gateway that works"


def _routes(plan: Seen, seen: SeenNetwork) -> Iterator[str]:
    there, subnets = by_name(seen.route_tables), by_name(seen.subnets)
    gateways = {
        "internet": {gateway["InternetGatewayId"] for gateway in seen.internet_gateways},
        "nat": {gateway["NatGatewayId"] for gateway in seen.nat_gateways},
    }
    for table in plan["network"]["route_tables"]:
        found = there.get(table["name"], {})
        leads = {
            route.get("GatewayId") or route.get("NatGatewayId")
            for route in found.get("Routes") or ()
            if route.get("DestinationCidrBlock") == _EVERYWHERE
        }
        associated = {entry.get("SubnetId") for entry in found.get("Associations") or ()}
        wanted = {subnets[name]["SubnetId"] for name in table["subnets"] if name in subnets}
        if not found:
            yield f"route table {table['name']} is not there"
        elif not leads or not leads <= gateways[table["gateway"]]:
            yield f"route table {table['name']} leads elsewhere"
        elif not wanted <= associated or len(wanted) < len(table["subnets"]):
            yield f"route table {table['name']} is not that of all its subnets"


def _groups(plan: Seen, seen: SeenNetwork) -> Iterator[str]:
    there = {group["GroupName"]: group for group in seen.security_groups}
    for group in plan["security_groups"]:
        found = there.get(group["name"])
        if found is None:
            yield f"security group {group['name']} is not there"
            continue
        ids = {group["name"]: found["GroupId"]}
        for rules, allowed in (("ingress", "IpPermissions"), ("egress", "IpPermissionsEgress")):
            wanted = {permission for rule in group[rules] for permission in _wanted_permissions(rule, ids)}
            if wanted != {permission for entry in found.get(allowed) or () for permission in _permissions(entry)}:
                yield f"security group {group['name']} allows something else ({rules})"


def _wanted_permissions(rule: Seen, ids: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
    protocol = "-1" if rule["proto"] == "all" else rule["proto"]
    targets = [*rule.get("cidr_ip", ()), *(ids[name] for name in rule.get("group_name", ()))]
    for target in targets:
        for port in rule.get("ports") or [None]:
            yield protocol, port, target


def _permissions(entry: Seen) -> Iterator[tuple[str, Any, str]]:
    """What a permission allows; a range of ports is none of ours, and differs."""
    first, last = entry.get("FromPort"), entry.get("ToPort")
    ports = None if entry["IpProtocol"] == "-1" else first if first == last else (first, last)
    targets = [
        *(held["CidrIp"] for held in entry.get("IpRanges") or ()),
        *(held["CidrIpv6"] for held in entry.get("Ipv6Ranges") or ()),
        *(held["PrefixListId"] for held in entry.get("PrefixListIds") or ()),
        *(held["GroupId"] for held in entry.get("UserIdGroupPairs") or ()),
    ]
    for target in targets:
        yield entry["IpProtocol"], ports, target


def _same(one: Any, other: Any) -> bool:
    """Whether two policy documents say the same; of a list with one entry, the entry will do (IAM, "Grammar")."""
    return _canonical(one) == _canonical(other)


def _canonical(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps({key: _canonical(entry) for key, entry in value.items()}, sort_keys=True)
    if isinstance(value, (list, tuple)):
        entries = sorted(_canonical(entry) for entry in value)
        return entries[0] if len(entries) == 1 else json.dumps(entries)
    return json.dumps(value)
