# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""EFS, IAM, quotas, Auto Scaling and STS where moto lacks something, or is laxer than AWS."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.modelplane.fleet.tests.cloud.control import Answer
from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal

from .eks import Cluster
from .hooks import Forward, hook, keeper, served
from .node_groups import NodeGroup
from .wire import Call
from .world import ACCOUNT, QUOTAS, Changing, Json, World, of_region

# --- EFS


class FileCourse(Changing):
    """The course of a file system or a mount target."""


def _course(world: World, identifier: str) -> Changing:
    return world.changing.setdefault(identifier, FileCourse())


def _file_system(world: World, call: Call, identifier: str, at_rest: bool = True) -> Any:
    found = world.efs(call.region).file_systems_by_id.get(identifier)
    if found is None:
        raise Refusal("FileSystemNotFound", f"File system '{identifier}' does not exist.", 404)
    if at_rest and found.life_cycle_state != "available":
        message = f"File system '{identifier}' is in state {found.life_cycle_state}"
        raise Refusal("IncorrectFileSystemLifeCycleState", message, 409)
    return found


@hook("efs", "CreateFileSystem")
def create_file_system(world: World, call: Call, _forward: Forward) -> Json:
    asked, backend = call.parameters, world.efs(call.region)
    for have in backend.file_systems_by_id.values():
        if have.creation_token == asked["CreationToken"]:
            message = f"File system '{have.file_system_id}' already exists with creation token '{have.creation_token}'"
            raise Refusal("FileSystemAlreadyExists", message, 409, FileSystemId=have.file_system_id)
    if asked.get("KmsKeyId") and not asked.get("Encrypted"):
        raise Refusal("BadRequest", "KmsKeyId needs Encrypted", 400)
    if (asked.get("ThroughputMode") == "provisioned") != ("ProvisionedThroughputInMibps" in asked):
        raise Refusal("BadRequest", "ProvisionedThroughputInMibps goes with the throughput mode provisioned", 400)
    made = backend.create_file_system(
        asked["CreationToken"],
        asked.get("PerformanceMode"),
        asked.get("Encrypted", False),
        asked.get("KmsKeyId"),
        asked.get("ThroughputMode"),
        asked.get("ProvisionedThroughputInMibps", 0),
        asked.get("AvailabilityZoneName"),
        asked.get("Backup", False),
        asked.get("Tags", []),
    )
    made.life_cycle_state = "creating"

    def done() -> None:
        failure = world.failure("file system", asked["CreationToken"])
        made.life_cycle_state = "error" if failure else "available"

    world.after_phases(_course(world, made.file_system_id), done)
    return _file_system_wire(made)


def _file_system_wire(one: Any) -> Json:
    message = one.info_json()
    # Where these are to be absent moto answers null.
    for name in ("KmsKeyId", "AvailabilityZoneName", "AvailabilityZoneId", "Name"):
        if not message.get(name):
            message.pop(name, None)
    if not message.get("ProvisionedThroughputInMibps"):
        message.pop("ProvisionedThroughputInMibps", None)
    message["FileSystemProtection"] = {"ReplicationOverwriteProtection": "ENABLED"}
    return {name: value for name, value in message.items() if name not in ("LifecyclePolicies", "FileSystemPolicy")}


@hook("efs", "DescribeFileSystems")
def describe_file_systems(world: World, call: Call, _forward: Forward) -> Json:
    asked, backend = call.parameters, world.efs(call.region)
    if asked.get("FileSystemId"):
        _file_system(world, call, asked["FileSystemId"], at_rest=False)
    for one in list(backend.file_systems_by_id.values()):
        if _meets(asked, one):
            _course(world, one.file_system_id).observe()
    if asked.get("FileSystemId"):
        _file_system(world, call, asked["FileSystemId"], at_rest=False)
    return _page(
        asked,
        "FileSystems",
        [_file_system_wire(one) for one in backend.file_systems_by_id.values() if _meets(asked, one)],
    )


def _meets(asked: Json, one: Any) -> bool:
    same_id = asked.get("FileSystemId") in (None, one.file_system_id)
    return same_id and asked.get("CreationToken") in (None, one.creation_token)


def _page(asked: Json, key: str, message: list[Json]) -> Json:
    start = int(asked.get("Marker") or 0)
    end = start + int(asked.get("MaxItems") or 100)
    return {key: message[start:end], **({"NextMarker": str(end)} if end < len(message) else {})}


@hook("efs", "UpdateFileSystem")
def update_file_system(world: World, call: Call, _forward: Forward) -> Json:
    asked = call.parameters
    found = _file_system(world, call, asked["FileSystemId"])
    mode = asked.get("ThroughputMode", found.throughput_mode)
    if (mode == "provisioned") != ("ProvisionedThroughputInMibps" in asked):
        raise Refusal("BadRequest", "ProvisionedThroughputInMibps goes with the throughput mode provisioned", 400)
    found.life_cycle_state = "updating"
    found.throughput_mode, found.provisioned_throughput_in_mibps = mode, asked.get("ProvisionedThroughputInMibps", 0)

    def done() -> None:
        found.life_cycle_state = "available"

    world.after_phases(_course(world, found.file_system_id), done)
    return _file_system_wire(found)


@hook("efs", "DeleteFileSystem")
def delete_file_system(world: World, call: Call, _forward: Forward) -> Json:
    backend, identifier = world.efs(call.region), call.parameters["FileSystemId"]
    found = _file_system(world, call, identifier, at_rest=False)
    if found.life_cycle_state in ("creating", "updating"):
        _file_system(world, call, identifier)
    # A deletion that is sent again and again takes as much time as reading does.
    for target in [one for one in backend.mount_targets_by_id.values() if one.file_system_id == identifier]:
        _course(world, target.mount_target_id).observe()
    points = [one for one in backend.access_points.values() if one.file_system_id == identifier]
    if found.number_of_mount_targets or points:
        message = "mount targets" if found.number_of_mount_targets else "access points"
        raise Refusal("FileSystemInUse", f"The file system '{identifier}' has {message} and cannot be deleted", 409)
    if found.life_cycle_state != "deleting":
        found.life_cycle_state = "deleting"
        world.after_phases(_course(world, identifier), lambda: backend.delete_file_system(identifier))
    return {}


@hook("efs", "DescribeFileSystemPolicy")
def describe_file_system_policy(world: World, call: Call, _forward: Forward) -> Json:
    found = _file_system(world, call, call.parameters["FileSystemId"], at_rest=False)
    if not found.file_system_policy:
        raise Refusal("PolicyNotFound", "There is no policy for the file system", 404)
    return {"FileSystemId": found.file_system_id, "Policy": found.file_system_policy}


@hook("efs", "PutFileSystemPolicy")
def put_file_system_policy(world: World, call: Call, _forward: Forward) -> Json:
    """A policy is a document with statements that say who may do what (EFS API reference, PutFileSystemPolicy)."""
    found = _file_system(world, call, call.parameters["FileSystemId"])
    try:
        statements = json.loads(call.parameters["Policy"])["Statement"]
    except (ValueError, KeyError, TypeError):
        raise Refusal("InvalidPolicyException", "The policy is malformed", 400) from None
    if not all({"Effect", "Principal", "Action"} <= set(each) for each in statements):
        raise Refusal("InvalidPolicyException", "Each statement needs Effect, Principal and Action", 400)
    found.file_system_policy = call.parameters["Policy"]
    return {"FileSystemId": found.file_system_id, "Policy": found.file_system_policy}


@hook("efs", "DescribeTags")
def describe_tags(world: World, call: Call, _forward: Forward) -> Json:
    found = _file_system(world, call, call.parameters["FileSystemId"], at_rest=False)
    return {"Tags": world.efs(call.region).list_tags_for_resource(found.file_system_id)}


@hook("efs", "CreateMountTarget")
def create_mount_target(world: World, call: Call, forward: Forward) -> Answer | Json:
    asked, backend = call.parameters, world.efs(call.region)
    found = _file_system(world, call, asked["FileSystemId"])
    before = set(backend.mount_targets_by_id)
    for group in asked.get("SecurityGroups", []):
        if world.ec2(call.region).get_security_group_from_id(group) is None:
            raise Refusal("SecurityGroupNotFound", f"Security group '{group}' does not exist.", 400)
    given = forward()
    if not served(given):
        return given
    target = backend.mount_targets_by_id[(set(backend.mount_targets_by_id) - before).pop()]
    target.life_cycle_state = "creating"
    interface = world.ec2(call.region).enis[target.network_interface_id]
    interface.description = f"EFS mount target for {found.file_system_id} ({target.mount_target_id})"
    interface.status, interface.requester_managed = "in-use", True

    def done() -> None:
        target.life_cycle_state = "available"

    world.after_phases(_course(world, target.mount_target_id), done)
    return _target_wire(target)


def _target_wire(target: Any) -> Json:
    message = {name: value for name, value in target.info_json().items() if name != "SecurityGroups"}
    return {name: value for name, value in message.items() if value is not None}


def _target(world: World, call: Call) -> Any:
    identifier = call.parameters["MountTargetId"]
    found = world.efs(call.region).mount_targets_by_id.get(identifier)
    if found is None:
        raise Refusal("MountTargetNotFound", f"Mount target '{identifier}' does not exist.", 404)
    return found


@hook("efs", "DescribeMountTargets")
def describe_mount_targets(world: World, call: Call, _forward: Forward) -> Json:
    asked, backend = call.parameters, world.efs(call.region)
    if sum(name in asked for name in ("FileSystemId", "MountTargetId", "AccessPointId")) != 1:
        raise Refusal("BadRequest", "Must specify exactly one mutually exclusive parameter.", 400)
    file_system = asked.get("FileSystemId")
    if "AccessPointId" in asked:
        point = backend.access_points.get(asked["AccessPointId"])
        if point is None:
            raise Refusal("AccessPointNotFound", f"Access Point {asked['AccessPointId']} does not exist.", 404)
        file_system = point.file_system_id
    if "MountTargetId" in asked:
        _target(world, call)
    else:
        _file_system(world, call, file_system, at_rest=False)

    def meets(one: Any) -> bool:
        return bool(one.mount_target_id == asked.get("MountTargetId") or one.file_system_id == file_system)

    for one in [one for one in backend.mount_targets_by_id.values() if meets(one)]:
        _course(world, one.mount_target_id).observe()
    if "MountTargetId" in asked:
        _target(world, call)
    message = [_target_wire(one) for one in backend.mount_targets_by_id.values() if meets(one)]
    return _page(asked, "MountTargets", message)


@hook("efs", "DescribeMountTargetSecurityGroups")
def describe_mount_target_security_groups(world: World, call: Call, forward: Forward) -> Answer:
    _target_that_stays(world, call)
    return forward()


@hook("efs", "ModifyMountTargetSecurityGroups")
def modify_mount_target_security_groups(world: World, call: Call, forward: Forward) -> Answer:
    _target_that_stays(world, call)
    for group in call.parameters.get("SecurityGroups", []):
        if world.ec2(call.region).get_security_group_from_id(group) is None:
            raise Refusal("SecurityGroupNotFound", f"Security group '{group}' does not exist.", 400)
    return forward()


def _target_that_stays(world: World, call: Call) -> None:
    target = _target(world, call)
    if target.life_cycle_state == "deleting":
        message = f"Mount target '{target.mount_target_id}' is in state {target.life_cycle_state}"
        raise Refusal("IncorrectMountTargetState", message, 409)


@hook("efs", "DeleteMountTarget")
def delete_mount_target(world: World, call: Call, _forward: Forward) -> Json:
    target, backend = _target(world, call), world.efs(call.region)
    if target.life_cycle_state != "deleting":
        target.life_cycle_state = "deleting"
        identifier = target.mount_target_id
        world.after_phases(_course(world, identifier), lambda: backend.delete_mount_target(identifier))
    return {}


# --- IAM


@hook("iam", "CreateRole", "UpdateAssumeRolePolicy")
def check_trust(world: World, call: Call, forward: Forward) -> Answer:
    text = call.parameters.get("AssumeRolePolicyDocument") or call.parameters.get("PolicyDocument", "")
    _check_document(text, "Principal")
    world.load_policies(call.partition)
    return forward()


@hook("iam", "CreatePolicy", "CreatePolicyVersion")
def check_policy(_world: World, call: Call, forward: Forward) -> Answer:
    _check_document(call.parameters["PolicyDocument"], "Resource")
    return forward()


def _check_document(text: str, needed: str) -> None:
    try:
        document = json.loads(text)
        statements = document["Statement"]
        statements = statements if isinstance(statements, list) else [statements]
        right = document.get("Version") in ("2012-10-17", "2008-10-17") and statements
        right = right and all(
            one.get("Effect") in ("Allow", "Deny") and needed in one and ("Action" in one or "NotAction" in one)
            for one in statements
        )
    except (ValueError, KeyError, AttributeError, TypeError):
        right = False
    if not right:
        raise Refusal("MalformedPolicyDocument", "The policy document is malformed or otherwise invalid.", 400)


@hook("iam", "ListPolicies", "GetPolicy", "ListAttachedRolePolicies")
def with_policies(world: World, call: Call, forward: Forward) -> Answer:
    world.load_policies(call.partition)
    return forward()


@hook("iam", "AttachRolePolicy")
def attach_role_policy(world: World, call: Call, forward: Forward) -> Answer:
    """moto counts a policy that is attached already once more."""
    world.load_policies(call.partition)
    iam = world.iam(call.partition)
    arn = call.parameters["PolicyArn"]
    role = next((role for role in iam.roles.values() if role.name == call.parameters["RoleName"]), None)
    if role is not None and arn in role.managed_policies:
        iam.managed_policies[arn].attachment_count -= 1
    return forward()


@keeper("iam", "DeletePolicy")
def delete_policy(world: World, call: Call, forward: Forward) -> Answer:
    arn = call.parameters["PolicyArn"]
    iam = world.iam(call.partition)
    policy = iam.managed_policies.get(arn)
    if policy is not None and any(arn in role.managed_policies for role in iam.roles.values()):
        raise Refusal("DeleteConflict", "Cannot delete a policy attached to entities.", 409)
    if policy is not None and len(policy.versions) > 1:
        message = (
            "This policy has more than one version. Before you delete a policy, you must delete the policy's versions."
        )
        raise Refusal("DeleteConflict", message, 409)
    return forward()


# --- quotas


@hook("service-quotas", "GetServiceQuota", "GetAWSDefaultServiceQuota")
def get_service_quota(world: World, call: Call, _forward: Forward) -> Json:
    service, quota = call.parameters["ServiceCode"], call.parameters["QuotaCode"]
    value = _quotas(world, service).get(quota)
    if value is None:
        raise Refusal("NoSuchResourceException", "The request failed because the specified quota does not exist.", 400)
    return {"Quota": _quota(call, service, quota, value)}


def _quotas(world: World, service: str) -> dict[str, float]:
    return QUOTAS.get(service, {}) | world.settings.quotas.get(service, {})


def _quota(call: Call, service: str, quota: str, value: float) -> Json:
    return {
        "ServiceCode": service,
        "QuotaCode": quota,
        "QuotaArn": f"arn:{call.partition}:servicequotas:{call.region}:{ACCOUNT}:{service}/{quota}",
        "Value": float(value),
        "Adjustable": True,
        "GlobalQuota": False,
    }


@hook("service-quotas", "ListServiceQuotas")
def list_service_quotas(world: World, call: Call, _forward: Forward) -> Json:
    service = call.parameters["ServiceCode"]
    held = _quotas(world, service)
    return {"Quotas": [_quota(call, service, quota, value) for quota, value in held.items()]}


# --- Auto Scaling: a group for each node group


def _groups(world: World, region: str) -> list[tuple[Cluster, NodeGroup]]:
    return [
        (cluster, group)
        for cluster in of_region(world, region)
        for group in cluster.node_groups.values()
        if group.status != "CREATING"
    ]


def _scaling_tags(cluster: Cluster, group: NodeGroup) -> dict[str, str]:
    return {
        "eks:cluster-name": cluster.name,
        "eks:nodegroup-name": group.name,
        f"k8s.io/cluster-autoscaler/{cluster.name}": "owned",
        "k8s.io/cluster-autoscaler/enabled": "true",
        f"kubernetes.io/cluster/{cluster.name}": "owned",
        **group.scaling_tags,
    }


def _tag_wire(group: NodeGroup, key: str, value: str) -> Json:
    return {
        "ResourceId": group.scaling_group,
        "ResourceType": "auto-scaling-group",
        "Key": key,
        "Value": value,
        "PropagateAtLaunch": True,
    }


@hook("autoscaling", "DescribeAutoScalingGroups")
def describe_auto_scaling_groups(world: World, call: Call, _forward: Forward) -> Json:
    names = call.parameters.get("AutoScalingGroupNames", [])
    message = []
    for cluster, group in _groups(world, call.region):
        tags = _scaling_tags(cluster, group)
        if (names and group.scaling_group not in names) or not _tagged(call.parameters.get("Filters", []), tags):
            continue
        ec2 = world.ec2(call.region)
        message.append(
            {
                "AutoScalingGroupName": group.scaling_group,
                "AutoScalingGroupARN": f"arn:{call.partition}:autoscaling:{call.region}:{ACCOUNT}:autoScalingGroup:"
                f"{group.id}:autoScalingGroupName/{group.scaling_group}",
                "MinSize": group.scaling["minSize"],
                "MaxSize": group.scaling["maxSize"],
                "DesiredCapacity": group.scaling["desiredSize"],
                "DefaultCooldown": 300,
                "AvailabilityZones": sorted({ec2.get_subnet(subnet).availability_zone for subnet in group.subnets}),
                "HealthCheckType": "EC2",
                "CreatedTime": group.created,
                "VPCZoneIdentifier": ",".join(group.subnets),
                "Tags": [_tag_wire(group, key, value) for key, value in tags.items()],
            }
        )
    return {"AutoScalingGroups": message}


def _tagged(filters: list[Json], tags: dict[str, str]) -> bool:
    for one in filters:
        values = one.get("Values", [])
        if one["Name"].startswith("tag:"):
            right = tags.get(one["Name"][4:]) in values
        else:
            have = {"tag-key": list(tags), "tag-value": list(tags.values())}.get(one["Name"], [])
            right = any(value in have for value in values)
        if not right:
            return False
    return True


@hook("autoscaling", "DescribeTags")
def describe_scaling_tags(world: World, call: Call, _forward: Forward) -> Json:
    message = [
        _tag_wire(group, key, value)
        for cluster, group in _groups(world, call.region)
        for key, value in _scaling_tags(cluster, group).items()
    ]
    members = {"auto-scaling-group": "ResourceId", "key": "Key", "value": "Value"}
    for one in call.parameters.get("Filters", []):
        member = members.get(one["Name"])
        message = [tag for tag in message if member is None or tag[member] in one.get("Values", [])]
    return {"Tags": message}


def _scaling_group(world: World, call: Call, name: str) -> NodeGroup:
    for _, group in _groups(world, call.region):
        if group.scaling_group == name:
            return group
    raise Refusal("ValidationError", f"AutoScalingGroup name not found - AutoScalingGroup {name} not found", 400)


@hook("autoscaling", "CreateOrUpdateTags", "DeleteTags")
def change_scaling_tags(world: World, call: Call, _forward: Forward) -> Json:
    for tag in call.parameters["Tags"]:
        group = _scaling_group(world, call, tag["ResourceId"])
        if call.operation == "DeleteTags":
            group.scaling_tags.pop(tag["Key"], None)
        else:
            group.scaling_tags[tag["Key"]] = tag.get("Value", "")
    return {}


@hook("autoscaling", "SetDesiredCapacity")
def set_desired_capacity(world: World, call: Call, _forward: Forward) -> Json:
    group, desired = (
        _scaling_group(world, call, call.parameters["AutoScalingGroupName"]),
        call.parameters["DesiredCapacity"],
    )
    if not group.scaling["minSize"] <= desired <= group.scaling["maxSize"]:
        raise Refusal(
            "ValidationError", f"New SetDesiredCapacity value {desired} is outside the bounds of the group", 400
        )
    group.scaling["desiredSize"] = desired
    return {}


# --- STS


@hook("sts", "GetCallerIdentity")
def get_caller_identity(world: World, call: Call, forward: Forward) -> Answer | Json:
    if call.access_key.startswith("ASIA"):
        return forward()
    return {"Account": ACCOUNT, "UserId": "AKIAIOSFODNN7EXAMPLE", "Arn": world.principal(call.partition)}
