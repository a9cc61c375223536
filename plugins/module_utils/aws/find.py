# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Reads of objects of AWS: of one object of a plan, and of what is beside those of a plan."""

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
"""States of what is rather not chosen, and how bad they are; what is `deleted` does not exist any more."""


class Finder:
    """Reads of one account. `account_id` is part of the names of policies."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._id = ""

    def find(self, resource: Resource) -> Found | None:
        """Return an object in the form of the table of kinds; None where there is none. Raises AwsError."""
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
        """Return the answer of a call; raises AwsError."""
        client = self._account.client(service)
        with guarded(purpose):
            answer: Found = _plain(getattr(client, operation)(**parameters))
        return answer

    def read(self, resource: Resource, operation: str, **parameters: Any) -> Found:
        """Return the answer of a call that reads an object of a plan; raises AwsError."""
        return self.call(KINDS[resource["kind"]].service, operation, f"read {title(resource)}", **parameters)

    def listed(self, resource: Resource, operation: str, key: str, **parameters: Any) -> list[Found]:
        """Return all entries of an answer about an object of a plan that comes in pages; raises AwsError."""
        return self.pages(KINDS[resource["kind"]].service, operation, key, f"find {title(resource)}", **parameters)

    def pages(self, service: str, operation: str, key: str, purpose: str, **parameters: Any) -> list[Found]:
        """Return all entries of an answer that comes in pages; raises AwsError."""
        client = self._account.client(service)
        with guarded(purpose):
            if not client.can_paginate(operation):
                return list(_plain(getattr(client, operation)(**parameters).get(key)) or ())
            pages = client.get_paginator(operation).paginate(**parameters)
            return [_plain(each) for page in pages for each in page.get(key) or ()]

    def ec2(self, operation: str, key: str, purpose: str, filters: Mapping[str, str]) -> list[Found]:
        """Return what EC2 has by filters; an empty value is no filter."""
        named = [{"Name": name, "Values": [value]} for name, value in filters.items() if value]
        # The one operation of EC2 whose parameter has another name.
        parameter = "Filter" if operation == "describe_nat_gateways" else "Filters"
        return self.pages("ec2", operation, key, purpose, **{parameter: named})

    def described(self, kind: str, purpose: str, filters: Mapping[str, str]) -> list[Found]:
        """Return what EC2 has of a kind by filters, in the form of the table of kinds."""
        operation, key, _filter_of_id = _EC2[kind]
        return [_SHAPES.get(kind, form.tagged)(each) for each in self.ec2(operation, key, purpose, filters)]

    def matching(self, resource: Resource, filters: Mapping[str, str]) -> list[Found]:
        """Return the objects of EC2 that may be one of a plan."""
        return self.described(resource["kind"], f"find {title(resource)}", filters)

    def policy_arn(self, resource: Resource) -> str:
        """Return the ARN of a policy by its name."""
        if not self._id:
            self._id = str(self.call("sts", "get_caller_identity", "read the account of the credentials")["Account"])
        partition = regions.partition(self._account.region)
        return f"arn:{partition}:iam::{self._id}:policy/{resource['name']}"

    # The network

    def vpc(self, resource: Resource) -> Found | None:
        """Return the VPC of a cluster. Should there be several with its owner tags, as AWS created one although its
        answer was lost, it is the one with most subnets that have them."""
        cluster = _cluster(resource)
        searches: tuple[dict[str, str], ...] = ({_TAG: cluster}, {"tag:Name": resource["name"]})
        found = {each["VpcId"]: each for filters in searches for each in self.matching(resource, filters)}
        if not found:
            return None
        inside: Counter[str] = Counter()
        if len(found) > 1:
            inside.update(each["VpcId"] for each in self.described("subnet", "list subnets", {_TAG: cluster}))
        chosen = min(
            found.values(), key=lambda each: (not _owned(each, resource), -inside[each["VpcId"]], each["VpcId"])
        )
        for attribute in ("enableDnsSupport", "enableDnsHostnames"):
            answer = self.read(resource, "describe_vpc_attribute", VpcId=chosen["VpcId"], Attribute=attribute)
            field = f"{attribute[0].upper()}{attribute[1:]}"
            chosen[field] = bool(answer[field]["Value"])
        return chosen

    def searched(self, resource: Resource) -> Found | None:
        """Return an object of EC2 by the first of its searches that finds any."""
        for search in _SEARCHES[resource["kind"]]:
            filters = {name: _sought(resource, field) for name, field in search.items()}
            if not all(filters.values()):
                continue
            found = [each for each in self.matching(resource, filters) if each.get("State") != "deleted"]
            if found:
                return min(found, key=lambda each: _rank(each, resource))
        return None

    # Rights

    def role(self, resource: Resource) -> Found:
        named = {"RoleName": resource["name"]}
        found = self.read(resource, "get_role", **named)["Role"]
        return form.role(found, self.listed(resource, "list_attached_role_policies", "AttachedPolicies", **named))

    def policy(self, resource: Resource) -> Found:
        arn = self.policy_arn(resource)
        found = self.read(resource, "get_policy", PolicyArn=arn)["Policy"]
        versions = self.listed(resource, "list_policy_versions", "Versions", PolicyArn=arn)
        default = self.read(resource, "get_policy_version", PolicyArn=arn, VersionId=found["DefaultVersionId"])
        return form.policy(found, versions, default["PolicyVersion"]["Document"])

    # The cluster

    def cluster(self, resource: Resource) -> Found:
        return form.cluster(self.read(resource, "describe_cluster", name=resource["name"])["cluster"])

    def node_group(self, resource: Resource) -> Found:
        named = {"clusterName": in_cluster(resource), "nodegroupName": resource["name"]}
        return form.node_group(self.read(resource, "describe_nodegroup", **named)["nodegroup"])

    def addon(self, resource: Resource) -> Found:
        name = {"addonName": resource["name"]}
        found = self.read(resource, "describe_addon", clusterName=in_cluster(resource), **name)["addon"]
        if "kubernetesVersion" not in resource["body"]:
            return form.addon(found, ())
        purpose = f"list the versions of addon {resource['name']}"
        try:
            listed = self.pages("eks", "describe_addon_versions", "addons", purpose, **name)
        except AwsError as error:
            # It stays as it is.
            return {**form.addon(found, ()), "kubernetesVersions": None, "unchecked": str(error)}
        return form.addon(found, [version for each in listed for version in each["addonVersions"]])

    def pod_identity(self, resource: Resource) -> Found | None:
        cluster, account = in_cluster(resource), {key: resource["body"][key] for key in ("namespace", "serviceAccount")}
        listed = self.listed(resource, _IDENTITIES, "associations", clusterName=cluster, **account)
        if not listed:
            return None
        named = {"clusterName": cluster, "associationId": listed[0]["associationId"]}
        found: Found = self.read(resource, "describe_pod_identity_association", **named)["association"]
        return found

    def launch_template(self, resource: Resource) -> Found | None:
        found = self.matching(resource, {"launch-template-name": resource["name"]})
        if not found:
            return None
        named = {"LaunchTemplateId": found[0]["LaunchTemplateId"], "Versions": ["$Latest"]}
        answer = self.read(resource, "describe_launch_template_versions", **named)
        return form.launch_template(found[0], answer["LaunchTemplateVersions"][0])

    # Files

    def file_system(self, resource: Resource) -> Found | None:
        listed = self.listed(resource, "describe_file_systems", "FileSystems", CreationToken=resource["name"])
        found = next((each for each in listed if each["LifeCycleState"] != "deleted"), None)
        if found is None:
            return None
        identity = found["FileSystemId"]
        try:
            answer = self.read(resource, "describe_file_system_policy", FileSystemId=identity)
        except AwsError as error:
            if not error.absent:
                raise
            answer = {}
        return form.file_system(found, answer.get("Policy", ""))

    def mount_target(self, resource: Resource) -> Found | None:
        system, subnet = resource["body"]["FileSystemId"], resource["body"]["SubnetId"]
        if has_unknown(system) or has_unknown(subnet):
            return None
        found = next((each for each in self.mount_targets(system) if each["SubnetId"] == subnet), None)
        if found is None or found["LifeCycleState"] not in ("available", "updating"):
            return found
        target = found["MountTargetId"]
        groups = self.read(resource, "describe_mount_target_security_groups", MountTargetId=target)
        return {**found, "SecurityGroups": groups["SecurityGroups"]}

    def mount_targets(self, system: str) -> list[Found]:
        """Return the mount targets of a file system, but for those that are gone."""
        purpose = f"list the mount targets of {system}"
        found = self.pages("efs", "describe_mount_targets", "MountTargets", purpose, FileSystemId=system)
        return [each for each in found if each["LifeCycleState"] != "deleted"]

    def access_points(self, system: str) -> list[Found]:
        """Return the access points of a file system, which the driver in the cluster creates."""
        purpose = f"list the access points of {system}"
        return self.pages("efs", "describe_access_points", "AccessPoints", purpose, FileSystemId=system)

    # Siblings

    def siblings(self, resource: Resource) -> Iterator[tuple[Resource, Found]]:
        """Yield objects beside one of a plan that may be of its cluster too, whether the plan lists them or not."""
        if resource["kind"] == "cluster":
            yield from self._in_cluster(resource["name"])
        elif resource["kind"] == "vpc":
            yield from self._in_network(resource)
        if not KINDS[resource["kind"]].token:
            yield from self._twins(resource)

    def _in_cluster(self, cluster: str) -> Iterator[tuple[Resource, Found]]:
        for kind, operation, key in _IN_CLUSTER:
            purpose = f"list the {key} of EKS cluster {cluster}"
            for each in self.pages("eks", operation, key, purpose, clusterName=cluster):
                body = {} if isinstance(each, str) else {name: each[name] for name in ("namespace", "serviceAccount")}
                name = "/".join(body.values()) or str(each)
                sibling = bodies.resource(f"{kind} {name}", kind, name, f"clusters/{cluster}", body)
                found = self.find(sibling)
                if found:
                    yield {**sibling, "body": {**body, "tags": found.get("tags") or {}}}, found

    def _in_network(self, vpc: Resource) -> Iterator[tuple[Resource, Found]]:
        found = self.find(vpc) or {}
        for kind in _IN_NETWORK:
            yield from self._tagged(kind, vpc, str(found.get("VpcId", "")))
        yield from self._tagged("launch-template", vpc)

    def _twins(self, resource: Resource) -> Iterator[tuple[Resource, Found]]:
        """Yield what exists twice, as the answer of the call that created it was lost, and is not used."""
        kind, ours = KINDS[resource["kind"]], self.find(resource) or {}
        for twin, found in self._tagged(resource["kind"], resource):
            identity = str(found[kind.id])
            used = found.get("Attachments") or found.get("AssociationId")
            if kind is KINDS["vpc"]:
                used = self.described("subnet", f"list subnets of {identity}", {"vpc-id": identity})
            if identity != ours.get(kind.id) and not used:
                yield {**twin, "name": identity}, found

    def _tagged(self, name: str, beside: Resource, vpc: str = "") -> Iterator[tuple[Resource, Found]]:
        """Yield the objects of a kind of EC2 that have the tag of the cluster of another object."""
        kind = KINDS[name]
        for found in self.described(name, f"list {_EC2[name][1]}", {_TAG: _cluster(beside), "vpc-id": vpc}):
            if found.get("State") in ("failed", "deleting", "deleted"):
                continue
            identity = str(found[kind.id])
            candidates = (found.get("GroupName"), found.get("LaunchTemplateName"), found["Tags"].get("Name"), identity)
            body = {"Tags": found["Tags"], **({} if name == "launch-template" else {"Id": identity})}
            title, *__ = filter(None, candidates)
            # Several may have one name.
            yield bodies.resource(f"{name} {identity}", name, str(title), beside["parent"], body), found

    def by_id(self, resource: Resource) -> Found | None:
        """Return an object of EC2 by its id."""
        found = self.matching(resource, {_EC2[resource["kind"]][2]: resource["body"]["Id"]})
        return next((each for each in found if each.get("State") != "deleted"), None)


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
"""Kinds of EC2: the operation that describes them, the key of its answer, and the filter for an id; none for a kind
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
    # A subnet can have no other table.
    "route-table": ({"vpc-id": "VpcId", "tag:Name": "name"}, {"vpc-id": "VpcId", "association.subnet-id": "SubnetIds"}),
    "security-group": ({"vpc-id": "VpcId", "group-name": "name"},),
}
"""Kinds of EC2 that are found by one search, or else by the next: filters, each with what its value is (_sought)."""
_IDENTITIES = "list_pod_identity_associations"
_IN_NETWORK = ("subnet", "route-table", "security-group", "nat-gateway")
_IN_CLUSTER = (
    ("node-group", "list_nodegroups", "nodegroups"),
    ("addon", "list_addons", "addons"),
    ("pod-identity", _IDENTITIES, "associations"),
)


def _plain(value: Any) -> Any:
    """Return an answer as plain data: times as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.isoformat() if isinstance(value, datetime) else value


def _cluster(resource: Resource) -> str:
    """Return the name of the cluster of an object by its owner tags."""
    return str(resource["body"]["Tags"][names.CLUSTER_TAG])


def _owned(found: Mapping[str, Any], resource: Resource) -> bool:
    kind = KINDS[resource["kind"]]
    return OWNERS.of(kind, found) == OWNERS.of(kind, resource["body"])


def _sought(resource: Resource, field: str) -> str:
    """Return the value of a filter: the name of the object, its cluster, or a field of its body, of a list the first
    entry; empty while it is not known."""
    if field in ("name", "cluster"):
        return resource["name"] if field == "name" else _cluster(resource)
    value = resource["body"][field]
    first = next(iter(value), "") if isinstance(value, list) else value
    return "" if has_unknown(first) else str(first)


def _rank(found: Found, resource: Resource) -> tuple[bool, int, bool, str]:
    """Return the rank of an object of several that are found: those that have the owner of the plan come first, then
    those that work, then those that are in use."""
    used = found.get("AssociationId") or found.get("SubnetIds")
    state = _BAD_STATES.get(str(found.get("State")), 0)
    return not _owned(found, resource), state, not used, str(found[KINDS[resource["kind"]].id])
