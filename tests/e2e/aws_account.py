# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""An AWS account as boto3 reads it: one object at a time, and all of it at once, for comparisons."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ansible_collections.modelplane.fleet.tests.e2e import contents

Object = dict[str, Any]
Client = Callable[[str], Any]
"""A function from the name of a service to its client, for one region."""

_ID = re.compile(
    r"\b(vpc|subnet|igw|nat|eipalloc|eipassoc|rtb|rtbassoc|sg|sgr|eni|eni-attach|ela-attach|lt|fs|fsmt|fsap|acl|aclassoc"
    r"|dopt|vpc-cidr-assoc)-[0-9a-f]{8,}\b"
)
_ADDRESS = re.compile(r"\b\d{1,3}(\.\d{1,3}){3}\b(?!/)")
_MAC = re.compile(r"\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b")
# Ends in what EKS makes up: the group of a cluster, its identity provider, a pod identity association.
_MADE_UP = re.compile(
    r"(eks-cluster-sg-[\w-]+?-)\d+\b|(/id/)[0-9A-F]{32}\b|\b(a-)[0-9a-z]{16,17}\b"
    # A digest of data that have identifiers in them.
    r"|(modelplane\.fleet )[0-9a-f]{16}\b"
)
_UUID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
# Differ between two accounts in which the same was made.
_FLEETING = re.compile(
    r"(?i).*(time|date|createdat|modifiedat|lastmodified|timestamp)$|^(ResponseMetadata|RoleId|PolicyId|ClientToken"
    r"|OwnershipControl|releaseVersion|platformVersion|clientRequestToken|PrivateDnsName|PublicDnsName|AvailabilityZoneId"
    r"|SizeInBytes|CreatedBy|autoScalingGroups|id|certificateAuthority|endpoint)$"
)
# States in which AWS still shows, for a while, what is no longer there.
_GONE = {"deleted", "deleting", "terminated"}


def pages(client: Any, operation: str, key: str, **parameters: Any) -> list[Any]:
    """All that an operation lists."""
    if not client.can_paginate(operation):
        return list(getattr(client, operation)(**parameters)[key])
    return [each for page in client.get_paginator(operation).paginate(**parameters) for each in page[key]]


def tags_of(found: Mapping[str, Any]) -> dict[str, str]:
    """Tags of an object, in whichever of their formats it has them."""
    tags = found.get("Tags", found.get("tags", found.get("TagSet"))) or {}
    if isinstance(tags, Mapping):
        return dict(tags)
    return {tag["Key"]: tag["Value"] for tag in tags}


def ec2(client: Client, kind: str, **filters: str) -> list[Object]:
    """Objects that EC2 lists of a kind (vpcs, subnets, nat_gateways, …); without those that are about to be gone.

    `filters` have `_` for `-`, and `__` for a dot.
    """
    operations = {"addresses": "Addresses", "security_groups": "SecurityGroups", "vpcs": "Vpcs", "subnets": "Subnets"}
    key = operations.get(kind) or "".join(part.capitalize() for part in kind.split("_"))
    given: Object = {}
    if filters:
        chosen = [
            {"Name": name.replace("__", ".").replace("_", "-"), "Values": [value]} for name, value in filters.items()
        ]
        given = {"Filter" if kind == "nat_gateways" else "Filters": chosen}
    found = pages(client("ec2"), f"describe_{kind}", key, **given)
    return [each for each in found if str(each.get("State", "")).lower() not in _GONE]


def everything(client: Client) -> dict[str, list[Object]]:
    """All objects of an account in a region that cost anything, carry rights, or stand in the way of others."""
    return {kind: list(found) for kind, found in _kinds(client)}


def comparable(account: Mapping[str, list[Object]]) -> dict[str, list[str]]:
    """An account without what differs between two in which the same was made: identifiers give way to the names of what
    they stand for."""
    names: dict[str, str] = {}
    for found in account.values():
        for each in found:
            name = tags_of(each).get("Name") or each.get("LaunchTemplateName") or each.get("GroupName")
            if name:
                own = next((value for key, value in each.items() if key.endswith("Id") and _own(key, value)), "")
                names.setdefault(own, f"<{name}>")
    return contents.comparable(account, _FLEETING, lambda text: _anonymous(text, names))


def differences(before: Mapping[str, list[Object]], after: Mapping[str, list[Object]]) -> list[str]:
    """A line for each object that is gone or new, by kind. Times are not compared."""
    return contents.differences(before, after, _FLEETING)


def _own(key: str, value: Any) -> bool:
    return isinstance(value, str) and bool(_ID.fullmatch(value)) and key not in ("VpcId", "OwnerId")


def _anonymous(text: str, names: Mapping[str, str]) -> str:
    text = _ID.sub(lambda match: names.get(match[0], f"<{match[1]}>"), text)
    text = _MADE_UP.sub(lambda match: f"{match[match.lastindex or 0]}<made up>", text)
    return _UUID.sub("<uuid>", _MAC.sub("<mac>", _ADDRESS.sub("<address>", text)))


def _kinds(client: Client) -> Iterator[tuple[str, list[Object]]]:
    for kind in (
        "vpcs",
        "subnets",
        "internet_gateways",
        "nat_gateways",
        "addresses",
        "route_tables",
        "security_groups",
        "network_interfaces",
        "launch_templates",
        "volumes",
    ):
        yield kind, ec2(client, kind)
    instances = pages(client("ec2"), "describe_instances", "Reservations")
    yield "instances", [each for one in instances for each in one["Instances"] if each["State"]["Name"] not in _GONE]
    yield "launch_template_versions", _template_versions(client)
    yield from _identities(client("iam"))
    yield from _clusters(client("eks"))
    yield from _file_systems(client("efs"))
    yield "load_balancers", pages(client("elb"), "describe_load_balancers", "LoadBalancerDescriptions")
    yield "load_balancers_v2", pages(client("elbv2"), "describe_load_balancers", "LoadBalancers")
    yield "target_groups", pages(client("elbv2"), "describe_target_groups", "TargetGroups")


def _template_versions(client: Client) -> list[Object]:
    return [
        version
        for template in ec2(client, "launch_templates")
        for version in pages(
            client("ec2"),
            "describe_launch_template_versions",
            "LaunchTemplateVersions",
            LaunchTemplateId=template["LaunchTemplateId"],
        )
    ]


def _identities(iam: Any) -> Iterator[tuple[str, list[Object]]]:
    roles = []
    for role in pages(iam, "list_roles", "Roles"):
        name = role["RoleName"]
        attached = pages(iam, "list_attached_role_policies", "AttachedPolicies", RoleName=name)
        inline = pages(iam, "list_role_policies", "PolicyNames", RoleName=name)
        roles.append({**iam.get_role(RoleName=name)["Role"], "attached": attached, "inline": inline})
    yield "roles", roles
    policies = []
    for policy in pages(iam, "list_policies", "Policies", Scope="Local"):
        arn = policy["Arn"]
        versions = pages(iam, "list_policy_versions", "Versions", PolicyArn=arn)
        default = next(each["VersionId"] for each in versions if each["IsDefaultVersion"])
        document = iam.get_policy_version(PolicyArn=arn, VersionId=default)["PolicyVersion"]["Document"]
        policies.append({**iam.get_policy(PolicyArn=arn)["Policy"], "document": document})
    yield "policies", policies
    yield "instance_profiles", pages(iam, "list_instance_profiles", "InstanceProfiles")


def _clusters(eks: Any) -> Iterator[tuple[str, list[Object]]]:
    found: dict[str, list[Object]] = {"clusters": [], "node_groups": [], "addons": [], "pod_identities": []}
    for name in pages(eks, "list_clusters", "clusters"):
        found["clusters"].append(eks.describe_cluster(name=name)["cluster"])
        for group in pages(eks, "list_nodegroups", "nodegroups", clusterName=name):
            described = eks.describe_nodegroup(clusterName=name, nodegroupName=group)["nodegroup"]
            found["node_groups"].append(described)
        for addon in pages(eks, "list_addons", "addons", clusterName=name):
            found["addons"].append(eks.describe_addon(clusterName=name, addonName=addon)["addon"])
        for each in pages(eks, "list_pod_identity_associations", "associations", clusterName=name):
            described = eks.describe_pod_identity_association(clusterName=name, associationId=each["associationId"])
            found["pod_identities"].append(described["association"])
    yield from found.items()


def _file_systems(efs: Any) -> Iterator[tuple[str, list[Object]]]:
    systems = [
        each for each in pages(efs, "describe_file_systems", "FileSystems") if each["LifeCycleState"] not in _GONE
    ]
    yield "file_systems", systems
    targets = []
    for system in systems:
        for target in efs.describe_mount_targets(FileSystemId=system["FileSystemId"])["MountTargets"]:
            groups = efs.describe_mount_target_security_groups(MountTargetId=target["MountTargetId"])
            targets.append({**target, "SecurityGroups": groups["SecurityGroups"]})
    yield "mount_targets", targets
    yield (
        "access_points",
        [
            each
            for system in systems
            for each in pages(efs, "describe_access_points", "AccessPoints", FileSystemId=system["FileSystemId"])
        ],
    )
