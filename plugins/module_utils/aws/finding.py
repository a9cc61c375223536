# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What there is of a cluster in AWS, found by its tags where it has any, and by name where that is all there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.tags import (
    CLUSTER_TAG,
    MANAGED_BY_TAG,
    as_dict,
    need_ours,
)

Found = dict[str, Any]

_NO_ENTITY = "NoSuchEntity"
_NAT_STATES = ("pending", "available")


def tag_filters(tags: Mapping[str, str]) -> list[Found]:
    """The filter of EC2 for what is of one cluster."""
    return [{"Name": f"tag:{key}", "Values": [tags[key]]} for key in (CLUSTER_TAG, MANAGED_BY_TAG)]


def network(ec2: Client, tags: Mapping[str, str]) -> Found:
    """The network: ids of what there is one of (empty where there is none), subnets and groups by name. Raises AwsError
    where there are two of something, which no run of ours makes."""
    filters = tag_filters(tags)
    place = f"network of {tags[CLUSTER_TAG]}"

    def tagged(operation: str, key: str, **more: Any) -> list[Found]:
        return ec2.pages(operation, key, place, **({"Filters": filters} | more))

    vpcs = tagged("describe_vpcs", "Vpcs")
    gateways = tagged("describe_internet_gateways", "InternetGateways")
    addresses = tagged("describe_addresses", "Addresses")
    nat = tagged("describe_nat_gateways", "NatGateways", Filters=None, Filter=filters)
    alive = [entry for entry in nat if entry.get("State") in _NAT_STATES]
    return {
        "vpc_id": _one("VPC", [entry["VpcId"] for entry in vpcs], tags),
        "vpc_cidr": str(vpcs[0]["CidrBlock"]) if vpcs else "",
        "internet_gateway_id": _one("internet gateway", [entry["InternetGatewayId"] for entry in gateways], tags),
        "allocation_id": _one("Elastic IP", [entry["AllocationId"] for entry in addresses], tags),
        "public_ip": str(addresses[0]["PublicIp"]) if addresses else "",
        "nat_gateway_id": _one("NAT gateway", [entry["NatGatewayId"] for entry in alive], tags),
        "nat_gateway_state": str(alive[0]["State"]) if alive else "",
        "nat_gateways_deleting": [entry["NatGatewayId"] for entry in nat if entry.get("State") == "deleting"],
        "subnets": {
            _name(entry): {"id": entry["SubnetId"], "cidr": entry["CidrBlock"], "zone": entry["AvailabilityZone"]}
            for entry in tagged("describe_subnets", "Subnets")
        },
        "route_tables": {
            _name(entry): entry["RouteTableId"] for entry in tagged("describe_route_tables", "RouteTables")
        },
        "security_groups": {
            entry["GroupName"]: entry["GroupId"] for entry in tagged("describe_security_groups", "SecurityGroups")
        },
    }


def launch_templates(ec2: Client, tags: Mapping[str, str]) -> list[str]:
    """The names of the launch templates."""
    subject = f"launch templates of {tags[CLUSTER_TAG]}"
    found = ec2.pages("describe_launch_templates", "LaunchTemplates", subject, Filters=tag_filters(tags))
    return sorted(entry["LaunchTemplateName"] for entry in found)


def cluster(eks: Client, name: str, tags: Mapping[str, str]) -> Found:
    """The cluster with its node groups, addons and bound service accounts; empty when there is none. Raises AwsError
    when it is not ours."""
    subject = f"cluster {name}"
    answer = eks.find("describe_cluster", subject, name=name)
    if answer is None:
        return {}
    found = answer["cluster"]
    need_ours(subject, found.get("tags") or {}, tags)
    network_config = found.get("resourcesVpcConfig") or {}
    return {
        "name": name,
        "status": str(found.get("status") or ""),
        "version": str(found.get("version") or ""),
        "endpoint": str(found.get("endpoint") or ""),
        "security_group_id": str(network_config.get("clusterSecurityGroupId") or ""),
        "node_groups": sorted(eks.pages("list_nodegroups", "nodegroups", subject, clusterName=name)),
        "addons": sorted(eks.pages("list_addons", "addons", subject, clusterName=name)),
        "pod_identities": [
            {"namespace": entry["namespace"], "service_account": entry["serviceAccount"]}
            for entry in eks.pages("list_pod_identity_associations", "associations", subject, clusterName=name)
        ],
    }


def need_our_names(iam: Client, roles: Sequence[str], policies: Sequence[str], tags: Mapping[str, str]) -> Found:
    """Which of these roles and policies (ARNs) there are, by their names. Raises AwsError when one is not ours: names
    in IAM are those of the whole account."""
    found: Found = {"roles": [], "policies": []}
    for kind, operation, key, parameter, name in (
        *(("role", "get_role", "Role", "RoleName", role) for role in roles),
        *(("policy", "get_policy", "Policy", "PolicyArn", policy) for policy in policies),
    ):
        for entry in _entity(iam, operation, key, f"{kind} {name}", **{parameter: name}):
            need_ours(f"IAM {kind} {name}", as_dict(entry.get("Tags")), tags)
            found["roles" if kind == "role" else "policies"].append(entry[f"{key}Name"])
    return found


def _name(entry: Mapping[str, Any]) -> str:
    """What its tag says."""
    return as_dict(entry.get("Tags")).get("Name", "")


def _entity(iam: Client, operation: str, key: str, subject: str, **parameters: str) -> Iterator[Found]:
    try:
        yield dict(iam.call(operation, subject, **parameters)[key])
    except AwsError as error:
        if getattr(error, "code", "") != _NO_ENTITY:
            raise


def _one(what: str, ids: Sequence[str], tags: Mapping[str, str]) -> str:
    if len(ids) > 1:
        raise AwsError(
            f"there are {len(ids)} of {what} with the tag {CLUSTER_TAG}={tags[CLUSTER_TAG]}: {', '.join(sorted(ids))}",
            "Remove the ones that nothing uses, or take the tag off them",
        )
    return ids[0] if ids else ""
