# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""File systems and their mount targets."""

from __future__ import annotations

from ansible_collections.modelplane.fleet.tests.aws.account import Account, refused


def test_a_file_system_comes_and_goes(account: Account) -> None:
    account.network()
    group = account.ec2.create_security_group(GroupName="efs", Description="d", VpcId=account.vpc)["GroupId"]
    asked = {
        "CreationToken": "t",
        "Encrypted": True,
        "ThroughputMode": "elastic",
        "Tags": [{"Key": "Name", "Value": "n"}],
    }
    made = account.efs.create_file_system(**asked)
    assert (made["LifeCycleState"], made["ThroughputMode"], made["Name"]) == ("creating", "elastic", "n")
    identifier = made["FileSystemId"]
    with refused("FileSystemAlreadyExists") as got:
        account.efs.create_file_system(**asked)
    assert got.response["FileSystemId"] == identifier
    with refused("IncorrectFileSystemLifeCycleState"):
        account.efs.create_mount_target(FileSystemId=identifier, SubnetId=account.subnets[0])
    with refused("IncorrectFileSystemLifeCycleState"):
        account.efs.delete_file_system(FileSystemId=identifier)

    def state() -> str:
        return str(account.efs.describe_file_systems(CreationToken="t")["FileSystems"][0]["LifeCycleState"])

    assert [state() for _ in range(2)] == ["creating", "available"]
    assert account.efs.describe_tags(FileSystemId=identifier)["Tags"] == asked["Tags"]
    changed = account.efs.update_file_system(FileSystemId=identifier, ThroughputMode="bursting")
    assert (changed["LifeCycleState"], changed["ThroughputMode"]) == ("updating", "bursting")
    assert [state() for _ in range(2)] == ["updating", "available"]
    with refused("SecurityGroupNotFound"):
        account.efs.create_mount_target(
            FileSystemId=identifier, SubnetId=account.subnets[0], SecurityGroups=["sg-00000000"]
        )
    target = account.efs.create_mount_target(
        FileSystemId=identifier, SubnetId=account.subnets[0], SecurityGroups=[group]
    )
    assert target["LifeCycleState"] == "creating"
    key = {"MountTargetId": target["MountTargetId"]}

    def target_states() -> list[str]:
        found = account.efs.describe_mount_targets(FileSystemId=identifier)["MountTargets"]
        return [str(one["LifeCycleState"]) for one in found]

    assert [target_states() for _ in range(2)] == [["creating"], ["available"]]
    assert account.efs.describe_mount_target_security_groups(**key)["SecurityGroups"] == [group]
    with refused("MountTargetConflict"):
        account.efs.create_mount_target(FileSystemId=identifier, SubnetId=account.subnets[0])
    with refused("DependencyViolation"):
        account.ec2.delete_security_group(GroupId=group)
    with refused("DependencyViolation"):
        account.ec2.delete_subnet(SubnetId=account.subnets[0])
    with refused("FileSystemInUse"):
        account.efs.delete_file_system(FileSystemId=identifier)
    account.efs.delete_mount_target(**key)
    with refused("IncorrectMountTargetState"):
        account.efs.describe_mount_target_security_groups(**key)
    assert [target_states() for _ in range(2)] == [["deleting"], []]
    with refused("MountTargetNotFound"):
        account.efs.describe_mount_targets(**key)
    account.ec2.delete_security_group(GroupId=group)
    point = account.efs.create_access_point(ClientToken="c", FileSystemId=identifier)["AccessPointId"]
    with refused("FileSystemInUse", "access points"):
        account.efs.delete_file_system(FileSystemId=identifier)
    account.efs.delete_access_point(AccessPointId=point)
    account.efs.delete_file_system(FileSystemId=identifier)
    assert state() == "deleting"
    assert account.efs.describe_file_systems(CreationToken="t")["FileSystems"] == []
    with refused("FileSystemNotFound"):
        account.efs.describe_file_systems(FileSystemId=identifier)
    account.efs.create_file_system(**asked)
