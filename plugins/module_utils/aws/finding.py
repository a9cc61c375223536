# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What there is of a cluster in AWS, found by its tags where it has any, and by name where that is all there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, CallError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.tags import (
    CLUSTER_TAG,
    MANAGED_BY_TAG,
    as_dict,
    need_ours,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.comparing import (
    SeenNetwork,
    SeenRole,
    by_name,
)

Found = dict[str, Any]

_NO_ENTITY = "NoSuchEntity"
_NAT_STATES = ("pending", "available")
_ID_DIGITS = 17


def _filters(tags: Mapping[str, str]) -> list[Found]:
    return [{"Name": f"tag:{key}", "Values": [tags[key]]} for key in (CLUSTER_TAG, MANAGED_BY_TAG)]


def network(ec2: Client, tags: Mapping[str, str]) -> SeenNetwork:
    """The network as EC2 describes it; of NAT gateways those that are not gone. Raises AwsError where there are two of
    what there is one of."""
    filters, place = _filters(tags), f"network of {tags[CLUSTER_TAG]}"

    def tagged(operation: str, key: str, **more: Any) -> list[Found]:
        return ec2.pages(operation, key, place, **(more or {"Filters": filters}))

    nat = tagged("describe_nat_gateways", "NatGateways", Filter=filters)
    seen = SeenNetwork(
        vpcs=tagged("describe_vpcs", "Vpcs"),
        subnets=tagged("describe_subnets", "Subnets"),
        internet_gateways=tagged("describe_internet_gateways", "InternetGateways"),
        addresses=tagged("describe_addresses", "Addresses"),
        nat_gateways=[entry for entry in nat if entry.get("State") in (*_NAT_STATES, "deleting")],
        route_tables=tagged("describe_route_tables", "RouteTables"),
        security_groups=tagged("describe_security_groups", "SecurityGroups"),
    )
    for what, key, entries in (
        ("VPC", "VpcId", seen.vpcs),
        ("internet gateway", "InternetGatewayId", seen.internet_gateways),
        ("Elastic IP", "AllocationId", seen.addresses),
        ("NAT gateway", "NatGatewayId", _alive(seen)),
    ):
        _need_one(what, sorted(entry[key] for entry in entries), tags)
    return seen if not seen.vpcs else SeenNetwork(**{**vars(seen), "dns": _dns(ec2, seen.vpcs[0]["VpcId"])})


def network_ids(seen: SeenNetwork) -> Found:
    """Ids of a network, empty where something is not there; what there are several of by name."""
    alive = _alive(seen)

    def one(entries: Sequence[Mapping[str, Any]], key: str) -> str:
        return str(entries[0][key]) if entries else ""

    return {
        "vpc_id": one(seen.vpcs, "VpcId"),
        "vpc_cidr": one(seen.vpcs, "CidrBlock"),
        "internet_gateway_id": one(seen.internet_gateways, "InternetGatewayId"),
        "allocation_id": one(seen.addresses, "AllocationId"),
        "public_ip": one(seen.addresses, "PublicIp"),
        "nat_gateway_id": one(alive, "NatGatewayId"),
        "nat_gateway_state": one(alive, "State"),
        "nat_gateways_deleting": [
            entry["NatGatewayId"] for entry in seen.nat_gateways if entry.get("State") == "deleting"
        ],
        "subnets": {
            name: {"id": entry["SubnetId"], "cidr": entry["CidrBlock"], "zone": entry["AvailabilityZone"]}
            for name, entry in by_name(seen.subnets).items()
        },
        "route_tables": {name: entry["RouteTableId"] for name, entry in by_name(seen.route_tables).items()},
        "security_groups": {entry["GroupName"]: entry["GroupId"] for entry in seen.security_groups},
    }


def made_up(prefix: str, name: str) -> str:
    """An id for what is not there yet, so that a run in check mode can go on: nothing has it."""
    return f"{prefix}-{sha256(name.encode()).hexdigest()[:_ID_DIGITS]}"


def launch_templates(ec2: Client, tags: Mapping[str, str]) -> list[str]:
    """The names of the launch templates."""
    subject = f"launch templates of {tags[CLUSTER_TAG]}"
    found = ec2.pages("describe_launch_templates", "LaunchTemplates", subject, Filters=_filters(tags))
    return sorted(entry["LaunchTemplateName"] for entry in found)


def cluster(eks: Client, name: str, tags: Mapping[str, str]) -> Found:
    """The cluster with the names of its node groups and addons; empty when there is none. Raises AwsError when it is
    not ours."""
    subject = f"cluster {name}"
    answer = eks.find("describe_cluster", subject, name=name)
    if answer is None:
        return {}
    found = answer["cluster"]
    need_ours(subject, found.get("tags") or {}, tags)
    return {
        "name": name,
        "status": str(found.get("status") or ""),
        "version": str(found.get("version") or ""),
        "endpoint": str(found.get("endpoint") or ""),
        "security_group_id": str((found.get("resourcesVpcConfig") or {}).get("clusterSecurityGroupId") or ""),
        "node_groups": sorted(eks.pages("list_nodegroups", "nodegroups", subject, clusterName=name)),
        "addons": sorted(eks.pages("list_addons", "addons", subject, clusterName=name)),
    }


def roles(iam: Client, names: Sequence[str], tags: Mapping[str, str]) -> dict[str, SeenRole]:
    """Those of these roles that are there. Raises AwsError when one is not ours: names in IAM are those of the whole
    account."""
    found = {}
    for name in names:
        role = _entity(iam, "get_role", "Role", f"role {name}", RoleName=name)
        if role is not None:
            need_ours(f"IAM role {name}", as_dict(role.get("Tags")), tags)
            attached = iam.pages("list_attached_role_policies", "AttachedPolicies", f"role {name}", RoleName=name)
            policies = frozenset(entry["PolicyArn"] for entry in attached)
            found[name] = SeenRole(role.get("AssumeRolePolicyDocument"), policies)
    return found


def policies(iam: Client, arns: Sequence[str], tags: Mapping[str, str]) -> dict[str, Any]:
    """The documents of those of these policies that are there, by name. Raises AwsError when one is not ours."""
    found = {}
    for arn in arns:
        policy = _entity(iam, "get_policy", "Policy", f"policy {arn}", PolicyArn=arn)
        if policy is not None:
            need_ours(f"IAM policy {arn}", as_dict(policy.get("Tags")), tags)
            version = {"PolicyArn": arn, "VersionId": policy["DefaultVersionId"]}
            answer = iam.call("get_policy_version", f"policy {arn}", **version)
            found[str(policy["PolicyName"])] = answer["PolicyVersion"]["Document"]
    return found


def _alive(seen: SeenNetwork) -> list[Mapping[str, Any]]:
    return [entry for entry in seen.nat_gateways if entry.get("State") in _NAT_STATES]


def _dns(ec2: Client, vpc: str) -> bool:
    """Whether both attributes are on."""
    asked = (("enableDnsSupport", "EnableDnsSupport"), ("enableDnsHostnames", "EnableDnsHostnames"))
    return all(
        ec2.call("describe_vpc_attribute", f"VPC {vpc}", VpcId=vpc, Attribute=name)[key]["Value"] for name, key in asked
    )


def _entity(iam: Client, operation: str, key: str, subject: str, **parameters: str) -> Found | None:
    try:
        return dict(iam.call(operation, subject, **parameters)[key])
    except CallError as error:
        if error.code != _NO_ENTITY:
            raise
        return None


def _need_one(what: str, ids: Sequence[str], tags: Mapping[str, str]) -> None:
    if len(ids) > 1:
        raise AwsError(
            f"there are {len(ids)} of {what} with the tag {CLUSTER_TAG}={tags[CLUSTER_TAG]}: {', '.join(ids)}",
            "Remove the ones that nothing uses, or take the tag off them",
        )
