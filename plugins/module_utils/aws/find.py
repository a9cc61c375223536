# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Reads of AWS objects: of one object of a plan, and of unlisted objects in the scopes of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from ..core.cloud import bodies
from ..core.cloud.eks import actual as form
from ..core.cloud.eks import names, regions
from ..core.cloud.eks.kinds import KINDS, OWNERS
from ..core.cloud.eks.requests import in_cluster, title
from ..core.cloud.engine.graph import has_unknown
from ..core.cloud.engine.kinds import Resource
from .errors import AwsError, guarded
from .session import Account

Found = dict[str, Any]
_TAG = f"tag:{names.CLUSTER_TAG}"
_BAD_STATES = {"pending": 1, "failed": 2, "deleting": 3}
"""Ranks of bad states, which are the last choice; a `deleted` object does not exist any more."""


class Finder:
    """Reads of one account. The account ID is part of the names of policies."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._id = ""

    def find(self, resource: Resource) -> Found | None:
        """Return an object in the form of the table of kinds; None if it does not exist. Raises AwsError."""
        if "Id" in resource["body"]:
            read: Callable[[Resource], Found | None] = self.by_id
        elif resource["kind"] in _SEARCHES:
            read = self.searched
        else:
            read = getattr(self, resource["kind"].replace("-", "_"))
        try:
            return read(resource)
        except AwsError as error:
            if not error.absent:
                raise
            return None

    def call(self, service: str, operation: str, purpose: str, **parameters: Any) -> Found:
        """Return the response of a call; raises AwsError."""
        client = self._account.client(service)
        with guarded(purpose):
            answer: Found = _plain(getattr(client, operation)(**parameters))
        return answer

    def read(self, resource: Resource, operation: str, **parameters: Any) -> Found:
        """Return the response of a call that reads an object of a plan; raises AwsError."""
        return self.call(KINDS[resource["kind"]].service, operation, f"read {title(resource)}", **parameters)

    def listed(self, resource: Resource, operation: str, key: str, **parameters: Any) -> list[Found]:
        """Return all entries of a paginated response about an object of a plan; raises AwsError."""
        return self.pages(KINDS[resource["kind"]].service, operation, key, f"find {title(resource)}", **parameters)

    def pages(self, service: str, operation: str, key: str, purpose: str, **parameters: Any) -> list[Found]:
        """Return all entries of a paginated response; raises AwsError."""
        client = self._account.client(service)
        with guarded(purpose):
            if not client.can_paginate(operation):
                return list(_plain(getattr(client, operation)(**parameters).get(key)) or ())
            pages = client.get_paginator(operation).paginate(**parameters)
            return [_plain(entry) for page in pages for entry in page.get(key) or ()]

    def ec2(self, operation: str, key: str, purpose: str, filters: Mapping[str, str]) -> list[Found]:
        """Return the entries of EC2 that match filters. Filters with an empty value are ignored."""
        filter_entries = [{"Name": name, "Values": [value]} for name, value in filters.items() if value]
        # This is the only EC2 operation with a different parameter name.
        parameter = "Filter" if operation == "describe_nat_gateways" else "Filters"
        return self.pages("ec2", operation, key, purpose, **{parameter: filter_entries})

    def described(self, kind: str, purpose: str, filters: Mapping[str, str]) -> list[Found]:
        """Return the objects of a kind that match filters, in the form of the table of kinds."""
        operation, key, _filter_of_id = _EC2[kind]
        return [
            _SHAPES.get(kind, form.tagged)(described_object)
            for described_object in self.ec2(operation, key, purpose, filters)
        ]

    def matching(self, resource: Resource, filters: Mapping[str, str]) -> list[Found]:
        """Return the EC2 objects that might be an object of a plan."""
        return self.described(resource["kind"], f"find {title(resource)}", filters)

    def policy_arn(self, resource: Resource) -> str:
        """Return the ARN of a policy by its name."""
        if not self._id:
            self._id = str(self.call("sts", "get_caller_identity", "read the account of the credentials")["Account"])
        partition = regions.partition(self._account.region)
        return f"arn:{partition}:iam::{self._id}:policy/{resource['name']}"

    # The network

    def vpc(self, resource: Resource) -> Found | None:
        """Return the VPC of a cluster.

        Several VPCs might have its owner tags, because AWS created a VPC although its response was lost. In this case,
        it is the VPC with the most subnets with these tags.
        """
        cluster = _cluster(resource)
        searches: tuple[dict[str, str], ...] = ({_TAG: cluster}, {"tag:Name": resource["name"]})
        vpcs = {network["VpcId"]: network for filters in searches for network in self.matching(resource, filters)}
        if not vpcs:
            return None
        subnet_counts: Counter[str] = Counter()
        if len(vpcs) > 1:
            subnet_counts.update(
                network["VpcId"] for network in self.described("subnet", "list subnets", {_TAG: cluster})
            )
        chosen = min(
            vpcs.values(),
            key=lambda network: (not _owned(network, resource), -subnet_counts[network["VpcId"]], network["VpcId"]),
        )
        for attribute in ("enableDnsSupport", "enableDnsHostnames"):
            answer = self.read(resource, "describe_vpc_attribute", VpcId=chosen["VpcId"], Attribute=attribute)
            field = f"{attribute[0].upper()}{attribute[1:]}"
            chosen[field] = bool(answer[field]["Value"])
        return chosen

    def searched(self, resource: Resource) -> Found | None:
        """Return an object of EC2 by its first search with a result."""
        for search in _SEARCHES[resource["kind"]]:
            filters = {name: _sought(resource, field) for name, field in search.items()}
            if not all(filters.values()):
                continue
            matches = [match for match in self.matching(resource, filters) if match.get("State") != "deleted"]
            if matches:
                return min(matches, key=lambda match: _rank(match, resource))
        return None

    # Permissions

    def role(self, resource: Resource) -> Found:
        role_name = {"RoleName": resource["name"]}
        described_role = self.read(resource, "get_role", **role_name)["Role"]
        return form.role(
            described_role, self.listed(resource, "list_attached_role_policies", "AttachedPolicies", **role_name)
        )

    def policy(self, resource: Resource) -> Found:
        arn = self.policy_arn(resource)
        described_policy = self.read(resource, "get_policy", PolicyArn=arn)["Policy"]
        versions = self.listed(resource, "list_policy_versions", "Versions", PolicyArn=arn)
        default = self.read(
            resource, "get_policy_version", PolicyArn=arn, VersionId=described_policy["DefaultVersionId"]
        )
        return form.policy(described_policy, versions, default["PolicyVersion"]["Document"])

    # The cluster

    def cluster(self, resource: Resource) -> Found:
        return form.cluster(self.read(resource, "describe_cluster", name=resource["name"])["cluster"])

    def node_group(self, resource: Resource) -> Found:
        identifiers = {"clusterName": in_cluster(resource), "nodegroupName": resource["name"]}
        return form.node_group(self.read(resource, "describe_nodegroup", **identifiers)["nodegroup"])

    def addon(self, resource: Resource) -> Found:
        name = {"addonName": resource["name"]}
        described_addon = self.read(resource, "describe_addon", clusterName=in_cluster(resource), **name)["addon"]
        if "kubernetesVersion" not in resource["body"]:
            return form.addon(described_addon, ())
        purpose = f"list the versions of addon {resource['name']}"
        try:
            offered_addons = self.pages("eks", "describe_addon_versions", "addons", purpose, **name)
        except AwsError as error:
            # Without the offered versions the addon cannot be compared, so it is left unchanged.
            return {**form.addon(described_addon, ()), "kubernetesVersions": None, "unchecked": str(error)}
        return form.addon(
            described_addon, [version for offered_addon in offered_addons for version in offered_addon["addonVersions"]]
        )

    def pod_identity(self, resource: Resource) -> Found | None:
        cluster, account = in_cluster(resource), {key: resource["body"][key] for key in ("namespace", "serviceAccount")}
        associations = self.listed(resource, _IDENTITIES, "associations", clusterName=cluster, **account)
        if not associations:
            return None
        identifiers = {"clusterName": cluster, "associationId": associations[0]["associationId"]}
        association: Found = self.read(resource, "describe_pod_identity_association", **identifiers)["association"]
        return association

    def launch_template(self, resource: Resource) -> Found | None:
        templates = self.matching(resource, {"launch-template-name": resource["name"]})
        if not templates:
            return None
        identifiers = {"LaunchTemplateId": templates[0]["LaunchTemplateId"], "Versions": ["$Latest"]}
        answer = self.read(resource, "describe_launch_template_versions", **identifiers)
        return form.launch_template(templates[0], answer["LaunchTemplateVersions"][0])

    # Files

    def file_system(self, resource: Resource) -> Found | None:
        file_systems = self.listed(resource, "describe_file_systems", "FileSystems", CreationToken=resource["name"])
        described_system = next(
            (candidate for candidate in file_systems if candidate["LifeCycleState"] != "deleted"), None
        )
        if described_system is None:
            return None
        identity = described_system["FileSystemId"]
        try:
            answer = self.read(resource, "describe_file_system_policy", FileSystemId=identity)
        except AwsError as error:
            if not error.absent:
                raise
            answer = {}
        return form.file_system(described_system, answer.get("Policy", ""))

    def mount_target(self, resource: Resource) -> Found | None:
        system, subnet = resource["body"]["FileSystemId"], resource["body"]["SubnetId"]
        if has_unknown(system) or has_unknown(subnet):
            return None
        described_target = next(
            (candidate for candidate in self.mount_targets(system) if candidate["SubnetId"] == subnet), None
        )
        if described_target is None or described_target["LifeCycleState"] not in ("available", "updating"):
            return described_target
        target = described_target["MountTargetId"]
        groups = self.read(resource, "describe_mount_target_security_groups", MountTargetId=target)
        return {**described_target, "SecurityGroups": groups["SecurityGroups"]}

    def mount_targets(self, system: str) -> list[Found]:
        """Return the mount targets of a file system, without deleted targets."""
        purpose = f"list the mount targets of {system}"
        targets = self.pages("efs", "describe_mount_targets", "MountTargets", purpose, FileSystemId=system)
        return [mount_target for mount_target in targets if mount_target["LifeCycleState"] != "deleted"]

    def access_points(self, system: str) -> list[Found]:
        """Return the access points of a file system. The driver in the cluster creates them."""
        purpose = f"list the access points of {system}"
        return self.pages("efs", "describe_access_points", "AccessPoints", purpose, FileSystemId=system)

    # Siblings

    def siblings(self, resource: Resource) -> Iterator[tuple[Resource, Found]]:
        """Yield objects in the scope of an object of a plan that might belong to its cluster. The plan may list them or
        not."""
        if resource["kind"] == "cluster":
            yield from self._in_cluster(resource["name"])
        elif resource["kind"] == "vpc":
            yield from self._in_network(resource)
        if not KINDS[resource["kind"]].token:
            yield from self._twins(resource)

    def _in_cluster(self, cluster: str) -> Iterator[tuple[Resource, Found]]:
        for kind, operation, key in _IN_CLUSTER:
            purpose = f"list the {key} of EKS cluster {cluster}"
            for listed_entry in self.pages("eks", operation, key, purpose, clusterName=cluster):
                body = (
                    {}
                    if isinstance(listed_entry, str)
                    else {name: listed_entry[name] for name in ("namespace", "serviceAccount")}
                )
                name = "/".join(body.values()) or str(listed_entry)
                sibling = bodies.resource(f"{kind} {name}", kind, name, f"clusters/{cluster}", body)
                actual = self.find(sibling)
                if actual:
                    yield {**sibling, "body": {**body, "tags": actual.get("tags") or {}}}, actual

    def _in_network(self, vpc: Resource) -> Iterator[tuple[Resource, Found]]:
        live_vpc = self.find(vpc) or {}
        for kind in _IN_NETWORK:
            yield from self._tagged(kind, vpc, str(live_vpc.get("VpcId", "")))
        yield from self._tagged("launch-template", vpc)

    def _twins(self, resource: Resource) -> Iterator[tuple[Resource, Found]]:
        """Yield unused duplicates of an object. They exist because the response to their creation was lost."""
        kind, live_object = KINDS[resource["kind"]], self.find(resource) or {}
        for twin, actual in self._tagged(resource["kind"], resource):
            identity = str(actual[kind.id])
            used = actual.get("Attachments") or actual.get("AssociationId")
            if kind is KINDS["vpc"]:
                used = self.described("subnet", f"list subnets of {identity}", {"vpc-id": identity})
            if identity != live_object.get(kind.id) and not used:
                yield {**twin, "name": identity}, actual

    def _tagged(self, name: str, beside: Resource, vpc: str = "") -> Iterator[tuple[Resource, Found]]:
        """Yield the objects of a kind of EC2 with the cluster tag of another object."""
        kind = KINDS[name]
        for actual in self.described(name, f"list {_EC2[name][1]}", {_TAG: _cluster(beside), "vpc-id": vpc}):
            if actual.get("State") in ("failed", "deleting", "deleted"):
                continue
            identity = str(actual[kind.id])
            candidates = (
                actual.get("GroupName"),
                actual.get("LaunchTemplateName"),
                actual["Tags"].get("Name"),
                identity,
            )
            body = {"Tags": actual["Tags"], **({} if name == "launch-template" else {"Id": identity})}
            title, *__ = filter(None, candidates)
            # Several objects might have the same name.
            yield bodies.resource(f"{name} {identity}", name, str(title), beside["parent"], body), actual

    def by_id(self, resource: Resource) -> Found | None:
        """Return an object of EC2 by its ID."""
        matches = self.matching(resource, {_EC2[resource["kind"]][2]: resource["body"]["Id"]})
        return next((match for match in matches if match.get("State") != "deleted"), None)


_EC2 = {
    "vpc": ("describe_vpcs", "Vpcs", "vpc-id"),
    "subnet": ("describe_subnets", "Subnets", "subnet-id"),
    "internet-gateway": ("describe_internet_gateways", "InternetGateways", "internet-gateway-id"),
    "elastic-ip": ("describe_addresses", "Addresses", "allocation-id"),
    "nat-gateway": ("describe_nat_gateways", "NatGateways", "nat-gateway-id"),
    "route-table": ("describe_route_tables", "RouteTables", "route-table-id"),
    "security-group": ("describe_security_groups", "SecurityGroups", "group-id"),
    "launch-template": ("describe_launch_templates", "LaunchTemplates", ""),
}
"""Kinds of EC2: the operation that describes them, the key of its response, and the filter for an ID; empty for a kind
that is found by its name."""
_SHAPES: Mapping[str, Callable[[Mapping[str, Any]], Found]] = {
    "internet-gateway": form.internet_gateway,
    "route-table": form.route_table,
    "security-group": form.security_group,
}
_SEARCHES: Mapping[str, tuple[Mapping[str, str], ...]] = {
    "subnet": ({"vpc-id": "VpcId", "tag:Name": "name"}, {"vpc-id": "VpcId", "cidr-block": "CidrBlock"}),
    "internet-gateway": ({"attachment.vpc-id": "VpcId"}, {_TAG: "cluster"}),
    "elastic-ip": ({_TAG: "cluster"},),
    "nat-gateway": ({_TAG: "cluster"}, {"subnet-id": "SubnetId", "tag:Name": "name"}),
    # A subnet can only have one table.
    "route-table": ({"vpc-id": "VpcId", "tag:Name": "name"}, {"vpc-id": "VpcId", "association.subnet-id": "SubnetIds"}),
    "security-group": ({"vpc-id": "VpcId", "group-name": "name"},),
}
"""Searches for kinds of EC2. The first search with a result is used. Filters have the source of their value
(_sought)."""
_IDENTITIES = "list_pod_identity_associations"
_IN_NETWORK = ("subnet", "route-table", "security-group", "nat-gateway")
_IN_CLUSTER = (
    ("node-group", "list_nodegroups", "nodegroups"),
    ("addon", "list_addons", "addons"),
    ("pod-identity", _IDENTITIES, "associations"),
)


def _plain(value: Any) -> Any:
    """Return a response as plain data: times as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(element) for key, element in value.items()}
    if isinstance(value, list):
        return [_plain(element) for element in value]
    return value.isoformat() if isinstance(value, datetime) else value


def _cluster(resource: Resource) -> str:
    """Return the name of the cluster of an object by its owner tags."""
    return str(resource["body"]["Tags"][names.CLUSTER_TAG])


def _owned(found: Mapping[str, Any], resource: Resource) -> bool:
    kind = KINDS[resource["kind"]]
    return OWNERS.of(kind, found) == OWNERS.of(kind, resource["body"])


def _sought(resource: Resource, field: str) -> str:
    """Return the value of a filter: the name of the object, its cluster, or a field of its body. Empty while it is
    unknown.

    For a list, the value is its first entry.
    """
    if field in ("name", "cluster"):
        return resource["name"] if field == "name" else _cluster(resource)
    value = resource["body"][field]
    filter_value = next(iter(value), "") if isinstance(value, list) else value
    return "" if has_unknown(filter_value) else str(filter_value)


def _rank(found: Found, resource: Resource) -> tuple[bool, int, bool, str]:
    """Return the rank of a matching object. Objects with the owner of the plan are first, then working objects, then
    objects in use."""
    used = found.get("AssociationId") or found.get("SubnetIds")
    state = _BAD_STATES.get(str(found.get("State")), 0)
    return not _owned(found, resource), state, not used, str(found[KINDS[resource["kind"]].id])
