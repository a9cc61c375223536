# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""AWS calls that create, update and delete an object.

Building a call changes nothing: the sender waits for its update (EKS) before the next call. The creation of an object
is one call. Settings that this call does not support (attributes of a VPC, routes, rules, attached policies) are
updates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..bodies import merged
from ..engine.compare import minors
from ..engine.diff import Change
from ..engine.kinds import Actual, Resource
from . import compare
from .kinds import KINDS
from .node_groups import CAPACITY_BLOCK

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """A call of a service. `operation`: the method of the SDK client. `purpose`: its effect in messages."""

    service: str
    operation: str
    parameters: Mapping[str, Any]
    purpose: str


def title(resource: Resource) -> str:
    """Return the name of an object in messages."""
    return f"{KINDS[resource['kind']].title} {resource['name']}"


def in_cluster(resource: Resource) -> str:
    """Return the name of the cluster of an object."""
    return resource["parent"].removeprefix("clusters/")


def _named(resource: Resource, actual: Actual) -> dict[str, str]:
    """Return the parameters that identify an object in calls."""
    kind = KINDS[resource["kind"]]
    return {key: actual[key] for key in kind.named or (kind.id,)}


def create(resource: Resource) -> Call:
    """Return the call that creates an object."""
    kind = KINDS[resource["kind"]]
    body = merged(resource["body"], resource.get("initial") or {})
    operation, parameters = _CREATE[resource["kind"]](resource, body)
    if kind.service == "ec2":
        # EC2 has no hyphen in the type of a NAT gateway.
        tagged = resource["kind"].replace("nat-", "nat")
        parameters["TagSpecifications"] = [{"ResourceType": tagged, "Tags": tag_list(body["Tags"])}]
    elif "Tags" in body:
        parameters["Tags"] = tag_list(body["Tags"])
    return Call(kind.service, operation, parameters, f"create {title(resource)}")


def updates(resource: Resource, actual: Actual, changes: Sequence[Change]) -> Iterator[Call]:
    """Return the calls that update an object to its desired state, in the order of the table of kinds."""
    kind = KINDS[resource["kind"]]
    for update in dict.fromkeys(change.update for change in changes if change.update):
        fields = {change.field for change in changes if change.update == update}
        if update == "tags":
            yield _tag(resource, actual)
            continue
        for operation, parameters, purpose in _UPDATES[resource["kind"], update](resource, actual, fields):
            yield Call(kind.service, operation, parameters, f"{purpose} of {title(resource)}")


def delete(resource: Resource, actual: Actual) -> Iterator[Call]:
    """Return the calls that delete an object, in order."""
    name, kind = resource["kind"], KINDS[resource["kind"]]
    for operation, parameters in _BEFORE[name](actual) if name in _BEFORE else ():
        yield Call(kind.service, operation, parameters, f"delete {title(resource)}")
    operation, extra_parameters = _DELETE.get(name) or (f"delete_{name.replace('-', '_')}", {})
    yield Call(kind.service, operation, {**_named(resource, actual), **extra_parameters}, f"delete {title(resource)}")


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags in the format of EC2, IAM and EFS."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


# Creation: returns the operation and its parameters for an object and its body with initial values.

_Creation = Callable[[Resource, dict[str, Any]], tuple[str, dict[str, Any]]]


def _cluster(resource: Resource, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    sent = {key: body[key] for key in ("version", "roleArn", "resourcesVpcConfig", "accessConfig", "tags")}
    if body.get("logs"):
        sent["logging"] = {"clusterLogging": [{"types": list(body["logs"]), "enabled": True}]}
    if body.get("encryptionKey"):
        sent["encryptionConfig"] = _encryption(body)
    return "create_cluster", {"name": resource["name"], **sent}


def _encryption(body: Body) -> list[dict[str, Any]]:
    return [{"resources": ["secrets"], "provider": {"keyArn": body["encryptionKey"]}}]


_COMPARED_ONLY = ("version", "hasLaunchTemplate", "machineInTemplate")


def _node_group(resource: Resource, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the creation of a node group. EKS only accepts the version of the cluster."""
    sent = {key: value for key, value in body.items() if key not in _COMPARED_ONLY}
    if "launchTemplate" in sent:
        sent["launchTemplate"] = _template_version(body)
    return "create_nodegroup", {"clusterName": in_cluster(resource), "nodegroupName": resource["name"], **sent}


def _template_version(body: Body) -> dict[str, str]:
    return {"id": body["launchTemplate"]["id"], "version": str(body["launchTemplate"]["version"])}


def _addon(resource: Resource, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the creation of an addon.

    EKS installs some components in a new cluster without an addon in its API. An addon with the same name adopts them.
    """
    sent = {"resolveConflicts": "OVERWRITE", "tags": body["tags"]}
    if body.get("addonVersion"):
        sent["addonVersion"] = body["addonVersion"]
    if body.get("configurationValues", "{}") != "{}":
        sent["configurationValues"] = body["configurationValues"]
    return "create_addon", {"clusterName": in_cluster(resource), "addonName": resource["name"], **sent}


def _pod_identity(resource: Resource, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "create_pod_identity_association", {"clusterName": in_cluster(resource), **body}


def _with(operation: str, *fields: str, name: str = "") -> _Creation:
    """Return the creation from fields of the body. `name`: the parameter for the name."""

    def creation(resource: Resource, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return operation, {**({name: resource["name"]} if name else {}), **{field: body[field] for field in fields}}

    return creation


_CREATE: dict[str, _Creation] = {
    "vpc": _with("create_vpc", "CidrBlock"),
    "subnet": _with("create_subnet", "VpcId", "CidrBlock", "AvailabilityZone"),
    "internet-gateway": _with("create_internet_gateway"),
    "elastic-ip": lambda _resource, _body: ("allocate_address", {"Domain": "vpc"}),
    "nat-gateway": _with("create_nat_gateway", "SubnetId", "AllocationId"),
    "route-table": _with("create_route_table", "VpcId"),
    "security-group": _with("create_security_group", "Description", "VpcId", name="GroupName"),
    "policy": lambda resource, body: (
        "create_policy",
        {"PolicyName": resource["name"], "PolicyDocument": json.dumps(body["Document"])},
    ),
    "role": lambda resource, body: (
        "create_role",
        {"RoleName": resource["name"], "AssumeRolePolicyDocument": json.dumps(body["AssumeRolePolicyDocument"])},
    ),
    "cluster": _cluster,
    "launch-template": lambda resource, body: (
        "create_launch_template",
        {
            "LaunchTemplateName": resource["name"],
            "LaunchTemplateData": body["Data"],
            "VersionDescription": compare.template_description(body["Data"]),
        },
    ),
    "node-group": _node_group,
    "addon": _addon,
    "pod-identity": _pod_identity,
    "file-system": _with("create_file_system", "Encrypted", "ThroughputMode", name="CreationToken"),
    "mount-target": _with("create_mount_target", "FileSystemId", "SubnetId", "SecurityGroups"),
}


# Updates: yields calls with their effects for an object, its actual state and the different fields.

_Step = tuple[str, dict[str, Any], str]
_Update = Callable[[Resource, Actual, set[str]], Iterator[_Step]]


_TAGGING = {
    "ec2": ("create_tags", "Resources"),
    "efs": ("tag_resource", "ResourceId"),
    "eks": ("tag_resource", "resourceArn"),
    "policy": ("tag_policy", "PolicyArn"),
    "role": ("tag_role", "RoleName"),
}
"""By service or kind: the operation that sets tags, and the parameter for the ID of the object."""


def _tag(resource: Resource, actual: Actual) -> Call:
    """Set the different tags; tags of other owners are left unchanged."""
    kind = KINDS[resource["kind"]]
    current_tags, desired = actual.get(kind.owner) or {}, resource["body"][kind.owner]
    tags = {name: value for name, value in desired.items() if current_tags.get(name) != value}
    operation, parameter = _TAGGING.get(resource["kind"]) or _TAGGING[kind.service]
    tagged = [actual[kind.id]] if kind.service == "ec2" else actual[kind.id]
    sent = tags if kind.service == "eks" else tag_list(tags)
    return Call(kind.service, operation, {parameter: tagged, kind.owner: sent}, f"tag {title(resource)}")


def _set(
    operation: str, field: str, purpose: str, sent: Callable[[Any], Any] = lambda value: value, name: str = ""
) -> _Update:
    """Return the update that sends one field of the body.

    `purpose`: its effect, with {} for the value. `sent`: converts the value for the call. `name`: the parameter for the
    value.
    """

    def update(resource: Resource, actual: Actual, _fields: set[str]) -> Iterator[_Step]:
        value = resource["body"][field]
        yield operation, {**_named(resource, actual), name or field: sent(value)}, purpose.format(value)

    return update


def _value(value: Any) -> dict[str, Any]:
    return {"Value": value}


def _routes(resource: Resource, actual: Actual, _fields: set[str]) -> Iterator[_Step]:
    table = {"RouteTableId": actual["RouteTableId"]}
    for cidr, target in resource["body"]["Routes"].items():
        if actual["Routes"].get(cidr) == target:
            continue
        exists = cidr in actual["Routes"] or cidr in actual["Blackholes"]
        target_field = {"NatGatewayId" if target.startswith("nat-") else "GatewayId": target}
        route = {**table, "DestinationCidrBlock": cidr, **target_field}
        yield "replace_route" if exists else "create_route", route, f"set the route to {cidr}"


def _subnets_of_routes(resource: Resource, actual: Actual, _fields: set[str]) -> Iterator[_Step]:
    for subnet in resource["body"]["SubnetIds"]:
        if subnet not in actual["SubnetIds"]:
            association = {"RouteTableId": actual["RouteTableId"], "SubnetId": subnet}
            yield "associate_route_table", association, f"add {subnet} to the subnets"


def _rules(side: str) -> _Update:
    def update(resource: Resource, actual: Actual, _fields: set[str]) -> Iterator[_Step]:
        group, name = actual["GroupId"], f"security_group_{side.lower()}"
        current_rules, desired = set(actual[side]), set(resource["body"][side])
        for verb, lines, action in (
            ("authorize", desired - current_rules, "add"),
            ("revoke", current_rules - desired, "remove"),
        ):
            if lines:
                permissions = [compare.permission(line, group) for line in sorted(lines)]
                yield (
                    f"{verb}_{name}",
                    {"GroupId": group, "IpPermissions": permissions},
                    f"{action} rules ({'; '.join(sorted(lines))})",
                )

    return update


def _document(resource: Resource, actual: Actual, _fields: set[str]) -> Iterator[_Step]:
    """Yield the update of a policy document. Other versions are deleted first, because a policy has at most five
    versions."""
    policy = {"PolicyArn": actual["Arn"]}
    for version in actual["OtherVersions"]:
        yield "delete_policy_version", {**policy, "VersionId": version}, f"delete version {version}"
    document = json.dumps(resource["body"]["Document"])
    yield "create_policy_version", {**policy, "PolicyDocument": document, "SetAsDefault": True}, "set the document"


def _policies(resource: Resource, actual: Actual, _fields: set[str]) -> Iterator[_Step]:
    attached_policies, desired = set(actual["PolicyArns"]), set(resource["body"]["PolicyArns"])
    for operation, arns, action in (
        ("attach_role_policy", desired - attached_policies, "attach"),
        ("detach_role_policy", attached_policies - desired, "detach"),
    ):
        for arn in sorted(arns):
            yield operation, {"RoleName": actual["RoleName"], "PolicyArn": arn}, f"{action} the policy {arn}"


def _network_config(purpose: str, *fields: str) -> _Update:
    """Return the update of network fields of a cluster."""

    def update(resource: Resource, _actual: Actual, _fields: set[str]) -> Iterator[_Step]:
        network = resource["body"]["resourcesVpcConfig"]
        sent = {key: network[key] for key in fields if key in network}
        yield "update_cluster_config", {"name": resource["name"], "resourcesVpcConfig": sent}, purpose

    return update


def _logs(resource: Resource, actual: Actual, _fields: set[str]) -> Iterator[_Step]:
    desired = set(resource["body"]["logs"])
    sides = ((sorted(desired), True), (sorted(set(actual["logs"]) - desired), False))
    setup = [{"types": types, "enabled": enabled} for types, enabled in sides if types]
    yield "update_cluster_config", {"name": resource["name"], "logging": {"clusterLogging": setup}}, "set the logs"


def _encrypt(resource: Resource, _actual: Actual, _fields: set[str]) -> Iterator[_Step]:
    config = {"clusterName": resource["name"], "encryptionConfig": _encryption(resource["body"])}
    yield "associate_encryption_config", config, "encrypt the Secrets"


def _mode(resource: Resource, actual: Actual, _fields: set[str]) -> Iterator[_Step]:
    """Yield the updates of the authentication mode. Each mode can only be set from the previous mode."""
    current_mode = (actual.get("accessConfig") or {}).get("authenticationMode") or compare.MODES[0]
    desired = resource["body"]["accessConfig"]["authenticationMode"]
    for mode in compare.MODES[compare.rank(current_mode) + 1 : compare.rank(desired) + 1]:
        config = {"name": resource["name"], "accessConfig": {"authenticationMode": mode}}
        yield "update_cluster_config", config, f"set the authentication mode {mode}"


def _cluster_version(resource: Resource, actual: Actual, _fields: set[str]) -> Iterator[_Step]:
    for version in minors(actual["version"], resource["body"]["version"]):
        yield "update_cluster_version", {"name": resource["name"], "version": version}, f"set the version {version}"


def _template_data(resource: Resource, actual: Actual, _fields: set[str]) -> Iterator[_Step]:
    """Yield the update of a launch template. The latest version becomes the default version in consoles.

    An earlier run might have stopped before this step.
    """
    data, template = resource["body"]["Data"], {"LaunchTemplateId": actual["LaunchTemplateId"]}
    latest = str(actual["LatestVersionNumber"])
    if not compare.template_data(actual["Latest"], data):
        description = compare.template_description(data)
        version_request = {**template, "LaunchTemplateData": data, "VersionDescription": description}
        yield "create_launch_template_version", version_request, "write a version"
        latest = str(int(latest) + 1)
    yield "modify_launch_template", {**template, "DefaultVersion": latest}, f"make version {latest} the default"


def _node_group_config(resource: Resource, actual: Actual, fields: set[str]) -> Iterator[_Step]:
    body, config = resource["body"], {}
    if "scalingConfig" in fields:
        bounds, size = dict(body["scalingConfig"]), actual["scalingConfig"].get("desiredSize", 0)
        bounded_size = min(max(size, bounds["minSize"]), bounds["maxSize"])
        config["scalingConfig"] = {**bounds, **({"desiredSize": bounded_size} if bounded_size != size else {})}
    if "updateConfig" in fields:
        config["updateConfig"] = dict(body["updateConfig"])
    if "labels" in fields:
        config["labels"] = _label_changes(actual.get("labels") or {}, body["labels"])
    if "taints" in fields:
        config["taints"] = _taint_changes(actual.get("taints"), body["taints"])
    yield "update_nodegroup_config", {**_named(resource, actual), **config}, f"set {', '.join(sorted(fields))}"


def _label_changes(there: Body, desired: Body) -> dict[str, Any]:
    changes = {
        "addOrUpdateLabels": {key: value for key, value in desired.items() if there.get(key) != value},
        "removeLabels": sorted(set(there) - set(desired)),
    }
    return {key: value for key, value in changes.items() if value}


def _taint_changes(actual: Any, desired: Any) -> dict[str, Any]:
    current_taints, desired_taints = compare.normal_taints(actual), compare.normal_taints(desired)
    desired_keys = {(taint["key"], taint["effect"]) for taint in desired_taints}
    changes = {
        "addOrUpdateTaints": [taint for taint in desired_taints if taint not in current_taints],
        "removeTaints": [taint for taint in current_taints if (taint["key"], taint["effect"]) not in desired_keys],
    }
    return {key: value for key, value in changes.items() if value}


def _node_group_version(resource: Resource, actual: Actual, fields: set[str]) -> Iterator[_Step]:
    """Yield the update of the version of a node group.

    The nodes of a Capacity Block are removed before the update and started again afterwards, because the block has no
    capacity for additional nodes. The user guide of EKS sets the desired size to 0, too ("Use Capacity Blocks with
    managed node groups").
    """
    body, group, size = resource["body"], _named(resource, actual), actual["scalingConfig"].get("desiredSize", 0)
    version: dict[str, Any] = {}
    if "launchTemplate.version" in fields:
        version["launchTemplate"] = _template_version(body)
    if "version" in fields:
        version["version"] = body["version"]
    emptied = size > 0 and actual.get("capacityType") == CAPACITY_BLOCK
    bounds = {key: body["scalingConfig"][key] for key in ("minSize", "maxSize")}
    if emptied:
        none = {**bounds, "minSize": 0, "desiredSize": 0}
        yield "update_nodegroup_config", {**group, "scalingConfig": none}, "remove the nodes"
    yield "update_nodegroup_version", {**group, **version}, f"set {', '.join(sorted(fields))}"
    if emptied:
        bounded_size = min(max(size, bounds["minSize"]), bounds["maxSize"])
        yield (
            "update_nodegroup_config",
            {**group, "scalingConfig": {**bounds, "desiredSize": bounded_size}},
            "start the nodes",
        )


def _addon_config(resource: Resource, actual: Actual, fields: set[str]) -> Iterator[_Step]:
    body = resource["body"]
    config: dict[str, Any] = {"configurationValues": body["configurationValues"]}
    version = body.get("addonVersion") or (
        actual["defaults"].get(body["kubernetesVersion"]) if "kubernetesVersion" in fields else ""
    )
    if version:
        config["addonVersion"] = version
    addon = {**_named(resource, actual), "resolveConflicts": "OVERWRITE"}
    yield "update_addon", {**addon, **config}, f"set {', '.join(sorted(fields))}"


_UPDATES: dict[tuple[str, str], _Update] = {
    ("vpc", "dns support"): _set("modify_vpc_attribute", "EnableDnsSupport", "set EnableDnsSupport", _value),
    ("vpc", "dns host names"): _set("modify_vpc_attribute", "EnableDnsHostnames", "set EnableDnsHostnames", _value),
    ("subnet", "public addresses"): _set(
        "modify_subnet_attribute", "MapPublicIpOnLaunch", "set public addresses", _value
    ),
    ("internet-gateway", "attach"): _set("attach_internet_gateway", "VpcId", "set the VPC"),
    ("route-table", "routes"): _routes,
    ("route-table", "subnets"): _subnets_of_routes,
    ("security-group", "ingress"): _rules("Ingress"),
    ("security-group", "egress"): _rules("Egress"),
    ("policy", "document"): _document,
    ("role", "trust"): _set(
        "update_assume_role_policy", "AssumeRolePolicyDocument", "set the trust policy", json.dumps, "PolicyDocument"
    ),
    ("role", "policies"): _policies,
    ("cluster", "subnets"): _network_config("set the subnets", "subnetIds"),
    ("cluster", "endpoints"): _network_config(
        "set the endpoints", "endpointPrivateAccess", "endpointPublicAccess", "publicAccessCidrs"
    ),
    ("cluster", "authentication mode"): _mode,
    ("cluster", "logs"): _logs,
    ("cluster", "encryption"): _encrypt,
    ("cluster", "version"): _cluster_version,
    ("launch-template", "data"): _template_data,
    ("node-group", "config"): _node_group_config,
    ("node-group", "version"): _node_group_version,
    ("addon", "addon"): _addon_config,
    ("pod-identity", "role"): _set("update_pod_identity_association", "roleArn", "set the role"),
    ("file-system", "throughput mode"): _set("update_file_system", "ThroughputMode", "set the throughput mode {}"),
    ("file-system", "policy"): _set("put_file_system_policy", "Policy", "set the policy", json.dumps),
    ("mount-target", "security groups"): _set(
        "modify_mount_target_security_groups", "SecurityGroups", "set the security groups", list
    ),
}


# Deletion: yields the calls before the deletion of an object, from its actual state.

_Deletions = Iterator[tuple[str, dict[str, Any]]]


def _detach(actual: Actual) -> _Deletions:
    if actual["VpcId"]:
        yield "detach_internet_gateway", {key: actual[key] for key in ("InternetGatewayId", "VpcId")}


def _disassociate(actual: Actual) -> _Deletions:
    for association in actual.get("Associations") or ():
        if association.get("SubnetId"):
            yield "disassociate_route_table", {"AssociationId": association["RouteTableAssociationId"]}


def _delete_versions(actual: Actual) -> _Deletions:
    for version in actual["OtherVersions"]:
        yield "delete_policy_version", {"PolicyArn": actual["Arn"], "VersionId": version}


def _detach_policies(actual: Actual) -> _Deletions:
    for arn in actual["PolicyArns"]:
        yield "detach_role_policy", {"RoleName": actual["RoleName"], "PolicyArn": arn}


_BEFORE: dict[str, Callable[[Actual], _Deletions]] = {
    "internet-gateway": _detach,
    "route-table": _disassociate,
    "policy": _delete_versions,
    "role": _detach_policies,
}
_DELETE: dict[str, tuple[str, dict[str, Any]]] = {
    "elastic-ip": ("release_address", {}),
    "node-group": ("delete_nodegroup", {}),
    "addon": ("delete_addon", {"preserve": False}),
    "pod-identity": ("delete_pod_identity_association", {}),
}
"""Operations with a name that differs from the kind, or with additional parameters."""
