# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""File systems of EFS with their mount targets and access points, as the API reference of EFS has them.

A mount target has a real network interface in moto's EC2, so that subnets and security groups are in use by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from . import interfaces
from .account import ACCOUNT, OPERATIONS, Account, Region, Staged, hexadecimal, now
from .wire import Asked, AwsError


@dataclass
class MountTarget(Staged):
    file_system: FileSystem
    subnet_id: str
    interface: str
    ip: str
    groups: list[str]
    status: str = "creating"
    id: str = field(default_factory=lambda: f"fsmt-{hexadecimal(17)}")

    def describe(self) -> dict[str, Any]:
        subnet = self.file_system.region.subnet(self.subnet_id)
        return {
            "OwnerId": ACCOUNT,
            "MountTargetId": self.id,
            "FileSystemId": self.file_system.id,
            "SubnetId": self.subnet_id,
            "LifeCycleState": self.status,
            "IpAddress": self.ip,
            "NetworkInterfaceId": self.interface,
            "AvailabilityZoneId": subnet.availability_zone_id,
            "AvailabilityZoneName": subnet.availability_zone,
            "VpcId": subnet.vpc_id,
        }


@dataclass
class FileSystem(Staged):
    region: Region
    token: str
    performance: str
    throughput: str
    provisioned: float | None
    encrypted: bool
    key: str | None
    tags: dict[str, str]
    status: str = "creating"
    id: str = field(default_factory=lambda: f"fs-{hexadecimal(17)}")
    created: Any = field(default_factory=now)
    targets: dict[str, MountTarget] = field(default_factory=dict)
    access_points: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        return f"arn:aws:elasticfilesystem:{self.region.name}:{ACCOUNT}:file-system/{self.id}"

    def describe(self) -> dict[str, Any]:
        described = {
            "OwnerId": ACCOUNT,
            "CreationToken": self.token,
            "FileSystemId": self.id,
            "FileSystemArn": self.arn,
            "CreationTime": self.created,
            "LifeCycleState": self.status,
            "NumberOfMountTargets": len(self.targets),
            "SizeInBytes": {"Value": 6144},
            "PerformanceMode": self.performance,
            "ThroughputMode": self.throughput,
            "Encrypted": self.encrypted,
            "Tags": _pairs(self.tags),
            "FileSystemProtection": {"ReplicationOverwriteProtection": "ENABLED"},
        }
        if "Name" in self.tags:
            described["Name"] = self.tags["Name"]
        if self.encrypted:
            described["KmsKeyId"] = (
                self.key or f"arn:aws:kms:{self.region.name}:{ACCOUNT}:key/00000000-0000-4000-8000-000000000001"
            )
        if self.provisioned is not None:
            described["ProvisionedThroughputInMibps"] = self.provisioned
        return described


def _pairs(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _tags(pairs: list[dict[str, str]] | None) -> dict[str, str]:
    return {pair["Key"]: pair["Value"] for pair in pairs or []}


def _find(account: Account, asked: Asked, id_: str) -> FileSystem:
    found = account.region(asked.region).file_systems.get(id_.rpartition("/")[2])
    if found is None:
        raise AwsError("FileSystemNotFound", f"File system '{id_}' does not exist.")
    return found


def _target(account: Account, asked: Asked) -> MountTarget:
    wanted = asked.parameters["MountTargetId"]
    for system in account.region(asked.region).file_systems.values():
        if wanted in system.targets:
            return system.targets[wanted]
    raise AwsError("MountTargetNotFound", f"Mount target '{wanted}' does not exist.")


def _check_throughput(mode: str, provisioned: float | None) -> None:
    if (mode == "provisioned") != (provisioned is not None):
        raise AwsError("BadRequest", "Throughput mode provisioned, and only it, needs ProvisionedThroughputInMibps.")


@OPERATIONS.answers("efs", "CreateFileSystem")
def create_file_system(account: Account, asked: Asked) -> dict[str, Any]:
    given = asked.parameters
    region = account.region(asked.region)
    twin = next((each for each in region.file_systems.values() if each.token == given["CreationToken"]), None)
    if twin is not None:
        raise AwsError(
            "FileSystemAlreadyExists",
            f"File system '{twin.id}' already exists with creation token '{twin.token}'",
            FileSystemId=twin.id,
        )
    mode, provisioned = given.get("ThroughputMode", "bursting"), given.get("ProvisionedThroughputInMibps")
    _check_throughput(mode, provisioned)
    performance = given.get("PerformanceMode", "generalPurpose")
    if performance == "maxIO" and mode == "elastic":
        raise AwsError("BadRequest", "Performance mode maxIO does not go with throughput mode elastic.")
    if given.get("KmsKeyId") and not given.get("Encrypted"):
        raise AwsError("BadRequest", "KmsKeyId needs Encrypted.")
    made = FileSystem(
        region=region,
        token=given["CreationToken"],
        performance=performance,
        throughput=mode,
        provisioned=provisioned,
        encrypted=given.get("Encrypted", False),
        key=given.get("KmsKeyId"),
        tags=_tags(given.get("Tags")),
    )
    region.file_systems[made.id] = made
    made.begin(account.looks("file_system"), lambda: _created(account, made, made.token, "file_system"))
    return made.describe()


def _created(account: Account, made: FileSystem | MountTarget, name: str, family: str) -> None:
    ending = account.ending(family, name)
    made.status = ending.status if ending else "available"


@OPERATIONS.answers("efs", "DescribeFileSystems")
def describe_file_systems(account: Account, asked: Asked) -> dict[str, Any]:
    given = asked.parameters
    region = account.region(asked.region)
    for system in list(region.file_systems.values()):
        system.look()
    if given.get("FileSystemId"):
        return {"FileSystems": [_find(account, asked, given["FileSystemId"]).describe()]}
    token = given.get("CreationToken")
    found = [each.describe() for each in region.file_systems.values() if token in (None, each.token)]
    return _page(asked, "FileSystems", found)


def _page(asked: Asked, key: str, items: list[Any]) -> dict[str, Any]:
    start = int(asked.parameters.get("Marker") or 0)
    end = start + int(asked.parameters.get("MaxItems") or 100)
    page: dict[str, Any] = {key: items[start:end]}
    if end < len(items):
        page["NextMarker"] = str(end)
    return page


@OPERATIONS.answers("efs", "UpdateFileSystem")
def update_file_system(account: Account, asked: Asked) -> dict[str, Any]:
    given = asked.parameters
    system = _find(account, asked, given["FileSystemId"])
    if system.status != "available":
        raise AwsError("IncorrectFileSystemLifeCycleState", f"File system '{system.id}' is {system.status}.")
    mode = given.get("ThroughputMode", system.throughput)
    provisioned = given.get("ProvisionedThroughputInMibps", system.provisioned if mode == "provisioned" else None)
    _check_throughput(mode, provisioned)
    system.throughput, system.provisioned, system.status = mode, provisioned, "updating"
    system.begin(account.looks("file_system"), lambda: setattr(system, "status", "available"))
    return system.describe()


@OPERATIONS.answers("efs", "DeleteFileSystem")
def delete_file_system(account: Account, asked: Asked) -> dict[str, Any]:
    system = _find(account, asked, asked.parameters["FileSystemId"])
    if system.targets:
        raise AwsError("FileSystemInUse", f"File system '{system.id}' has mount targets created in it.")
    if system.status in ("creating", "updating"):
        raise AwsError("IncorrectFileSystemLifeCycleState", f"File system '{system.id}' is {system.status}.")
    system.status = "deleting"
    system.begin(account.looks("file_system"), lambda: system.region.file_systems.pop(system.id))
    return {}


@OPERATIONS.answers("efs", "CreateMountTarget")
def create_mount_target(account: Account, asked: Asked) -> dict[str, Any]:
    given = asked.parameters
    system = _find(account, asked, given["FileSystemId"])
    region = system.region
    if system.status != "available":
        raise AwsError("IncorrectFileSystemLifeCycleState", f"File system '{system.id}' is {system.status}.")
    subnet = region.subnet(given["SubnetId"])
    if subnet is None:
        raise AwsError("SubnetNotFound", f"The subnet ID '{given['SubnetId']}' does not exist")
    for target in system.targets.values():
        other = region.subnet(target.subnet_id)
        if other.vpc_id != subnet.vpc_id:
            raise AwsError(
                "MountTargetConflict", "requested subnet for new mount target is not in the same VPC as others"
            )
        if other.availability_zone == subnet.availability_zone:
            raise AwsError("MountTargetConflict", "mount target already exists in this AZ")
    groups = given.get("SecurityGroups") or [region.ec2.get_default_security_group(subnet.vpc_id).id]
    _check_groups(region, subnet.vpc_id, groups)
    interface = interfaces.make(region, subnet.id, f"EFS mount target for {system.id}", groups, given.get("IpAddress"))
    made = MountTarget(system, subnet.id, interface.id, interface.private_ip_address, list(groups))
    interface.description += f" ({made.id})"
    system.targets[made.id] = made
    made.begin(account.looks("mount_target"), lambda: _created(account, made, subnet.id, "mount_target"))
    return made.describe()


def _check_groups(region: Region, vpc_id: str, groups: list[str]) -> None:
    for group_id in groups:
        group = region.ec2.get_security_group_from_id(group_id)
        if group is None or group.vpc_id != vpc_id:
            raise AwsError("SecurityGroupNotFound", f"The security group ID '{group_id}' does not exist in the VPC")


@OPERATIONS.answers("efs", "DescribeMountTargets")
def describe_mount_targets(account: Account, asked: Asked) -> dict[str, Any]:
    given = asked.parameters
    if given.get("MountTargetId"):
        _target(account, asked).look()
        return {"MountTargets": [_target(account, asked).describe()]}
    if not given.get("FileSystemId"):
        raise AwsError("BadRequest", "One of FileSystemId, MountTargetId and AccessPointId is needed.")
    system = _find(account, asked, given["FileSystemId"])
    for target in list(system.targets.values()):
        target.look()
    return _page(asked, "MountTargets", [each.describe() for each in system.targets.values()])


@OPERATIONS.answers("efs", "DescribeMountTargetSecurityGroups")
def describe_mount_target_security_groups(account: Account, asked: Asked) -> dict[str, Any]:
    return {"SecurityGroups": _target(account, asked).groups}


@OPERATIONS.answers("efs", "ModifyMountTargetSecurityGroups")
def modify_mount_target_security_groups(account: Account, asked: Asked) -> dict[str, Any]:
    target = _target(account, asked)
    region = target.file_system.region
    vpc_id = region.subnet(target.subnet_id).vpc_id
    groups = asked.parameters.get("SecurityGroups") or [region.ec2.get_default_security_group(vpc_id).id]
    _check_groups(region, vpc_id, groups)
    target.groups = list(groups)
    region.ec2.enis[target.interface]._group_set = [region.ec2.get_security_group_from_id(group) for group in groups]
    return {}


@OPERATIONS.answers("efs", "DeleteMountTarget")
def delete_mount_target(account: Account, asked: Asked) -> dict[str, Any]:
    target = _target(account, asked)
    target.status = "deleting"

    def finish() -> None:
        target.file_system.region.ec2.delete_network_interface(target.interface)
        del target.file_system.targets[target.id]

    target.begin(account.looks("mount_target"), finish)
    return {}


@OPERATIONS.answers("efs", "CreateAccessPoint")
def create_access_point(account: Account, asked: Asked) -> dict[str, Any]:
    given = asked.parameters
    system = _find(account, asked, given["FileSystemId"])
    id_ = f"fsap-{hexadecimal(17)}"
    made = {
        "ClientToken": given["ClientToken"],
        "Tags": given.get("Tags", []),
        "AccessPointId": id_,
        "AccessPointArn": f"arn:aws:elasticfilesystem:{system.region.name}:{ACCOUNT}:access-point/{id_}",
        "FileSystemId": system.id,
        "RootDirectory": given.get("RootDirectory", {"Path": "/"}),
        "OwnerId": ACCOUNT,
        "LifeCycleState": "available",
    }
    if "PosixUser" in given:
        made["PosixUser"] = given["PosixUser"]
    system.access_points[id_] = made
    return made


@OPERATIONS.answers("efs", "DescribeAccessPoints")
def describe_access_points(account: Account, asked: Asked) -> dict[str, Any]:
    given = asked.parameters
    systems = account.region(asked.region).file_systems.values()
    wanted = [_find(account, asked, given["FileSystemId"])] if given.get("FileSystemId") else systems
    found = [point for system in wanted for point in system.access_points.values()]
    if given.get("AccessPointId"):
        found = [point for point in found if point["AccessPointId"] == given["AccessPointId"]]
        if not found:
            raise AwsError("AccessPointNotFound", f"Access point {given['AccessPointId']} does not exist.")
    return {"AccessPoints": found}


@OPERATIONS.answers("efs", "DeleteAccessPoint")
def delete_access_point(account: Account, asked: Asked) -> dict[str, Any]:
    wanted = asked.parameters["AccessPointId"]
    for system in account.region(asked.region).file_systems.values():
        if system.access_points.pop(wanted, None):
            return {}
    raise AwsError("AccessPointNotFound", f"Access point {wanted} does not exist.")


@OPERATIONS.answers("efs", "TagResource")
def tag_resource(account: Account, asked: Asked) -> dict[str, Any]:
    _find(account, asked, asked.parameters["ResourceId"]).tags.update(_tags(asked.parameters["Tags"]))
    return {}


@OPERATIONS.answers("efs", "UntagResource")
def untag_resource(account: Account, asked: Asked) -> dict[str, Any]:
    system = _find(account, asked, asked.parameters["ResourceId"])
    for key in asked.parameters["TagKeys"]:
        system.tags.pop(key, None)
    return {}


@OPERATIONS.answers("efs", "ListTagsForResource")
def list_tags_for_resource(account: Account, asked: Asked) -> dict[str, Any]:
    return {"Tags": _pairs(_find(account, asked, asked.parameters["ResourceId"]).tags)}


@OPERATIONS.answers("efs", "DescribeTags")
def describe_tags(account: Account, asked: Asked) -> dict[str, Any]:
    return {"Tags": _pairs(_find(account, asked, asked.parameters["FileSystemId"]).tags)}
