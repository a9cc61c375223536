# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""File systems of EFS: made once, with a mount target in each subnet, and removed with all that is theirs."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.parents import OURS, TAGS
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.runner import Runner

MODULE = "efs_file_system"
TOKEN = "modelplane-system-west-eks-12345"


class Network:
    """Three subnets, each in a zone of its own, and two security groups."""

    def __init__(self, run: Runner) -> None:
        ec2 = run.aws.client("ec2")
        self.vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        self.subnets = [
            ec2.create_subnet(VpcId=self.vpc, CidrBlock=f"10.0.{index}.0/24", AvailabilityZone=f"us-west-2{zone}")[
                "Subnet"
            ]["SubnetId"]
            for index, zone in enumerate("abc")
        ]
        self.groups = [
            ec2.create_security_group(GroupName=name, Description=name, VpcId=self.vpc)["GroupId"]
            for name in ("one", "two")
        ]

    def targets(self, group: int = 0) -> list[dict[str, Any]]:
        return [{"subnet_id": subnet, "security_group_ids": [self.groups[group]]} for subnet in self.subnets]


@pytest.fixture
def network(run: Runner) -> Network:
    return Network(run)


def wanted(network: Network, **more: Any) -> dict[str, Any]:
    return {"creation_token": TOKEN, "name": "west", "tags": TAGS, "mount_targets": network.targets(), **more}


def systems(run: Runner) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run.aws.client("efs").describe_file_systems()["FileSystems"]
    return found


def targets(run: Runner, identity: str) -> dict[str, dict[str, Any]]:
    found = run.aws.client("efs").describe_mount_targets(FileSystemId=identity)["MountTargets"]
    return {target["SubnetId"]: target for target in found}


def groups(run: Runner, identity: str) -> dict[str, list[str]]:
    client = run.aws.client("efs")
    return {
        subnet: client.describe_mount_target_security_groups(MountTargetId=target["MountTargetId"])["SecurityGroups"]
        for subnet, target in targets(run, identity).items()
    }


def test_it_is_made_with_a_mount_target_in_each_subnet(run: Runner, network: Network) -> None:
    done = run.all_three(MODULE, **wanted(network))
    (live,) = systems(run)
    assert done["file_system"]["FileSystemId"] == live["FileSystemId"]
    assert (live["CreationToken"], live["Name"]) == (TOKEN, "west")
    assert (live["Encrypted"], live["ThroughputMode"], live["LifeCycleState"]) == (True, "elastic", "available")
    assert {tag["Key"]: tag["Value"] for tag in live["Tags"]} == {**OURS, "Name": "west"}
    assert groups(run, live["FileSystemId"]) == dict.fromkeys(network.subnets, network.groups[:1])
    assert set(done["mount_targets"]) == set(network.subnets)


def test_what_is_created_and_removed_is_waited_for(run: Runner, network: Network) -> None:
    run.aws.settings(phases=2)
    done = run(MODULE, **wanted(network))
    assert not done["failed"], done["msg"]
    assert done["file_system"]["LifeCycleState"] == "available"
    assert {target["LifeCycleState"] for target in done["mount_targets"].values()} == {"available"}
    assert done["waited"]
    run.aws.settings(phases=2)
    gone = run(MODULE, creation_token=TOKEN, tags=TAGS, state="absent")
    assert not gone["failed"], gone["msg"]
    assert systems(run) == []


def test_mount_targets_that_another_run_is_making_get_their_groups(run: Runner, network: Network) -> None:
    run.aws.settings(phases=3)
    run(MODULE, **wanted(network, wait=False))
    done = run(MODULE, **wanted(network, mount_targets=network.targets(1), wait=False))
    assert not done["failed"], done["msg"]
    assert set(done["diff"]["before"]) == {f"mount target in {subnet}" for subnet in network.subnets}
    (live,) = systems(run)
    assert groups(run, live["FileSystemId"]) == dict.fromkeys(network.subnets, network.groups[1:])


def test_throughput_security_groups_and_tags_follow(run: Runner, network: Network) -> None:
    run(MODULE, **wanted(network, tags={**TAGS, "team": "a"}))
    (live,) = systems(run)
    identity = live["FileSystemId"]
    run.aws.client("efs").tag_resource(
        ResourceId=identity, Tags=[{"Key": "cost", "Value": "7"}, {"Key": "modelplane.ai/old", "Value": "x"}]
    )
    done = run.all_three(
        MODULE,
        **wanted(network, throughput_mode="bursting", mount_targets=network.targets(1), tags={**TAGS, "team": "b"}),
    )
    assert done["diff"]["before"]["west"]["throughput_mode"] == "elastic"
    (live,) = systems(run)
    assert (live["FileSystemId"], live["ThroughputMode"]) == (identity, "bursting")
    tags = {tag["Key"]: tag["Value"] for tag in live["Tags"]}
    assert tags == {**OURS, "Name": "west", "team": "b", "cost": "7"}
    assert groups(run, identity) == dict.fromkeys(network.subnets, network.groups[1:])


def test_a_subnet_more_is_a_mount_target_more(run: Runner, network: Network) -> None:
    run(MODULE, **wanted(network, mount_targets=network.targets()[:1]))
    done = run.all_three(MODULE, **wanted(network))
    assert len(done["diff"]["after"]) == 2
    assert done["diff"]["before"] == {}
    (live,) = systems(run)
    assert set(targets(run, live["FileSystemId"])) == set(network.subnets)


def test_encryption_cannot_change_and_that_is_told(run: Runner, network: Network) -> None:
    run(MODULE, **wanted(network, encrypted=False))
    failed = run(MODULE, **wanted(network, throughput_mode="bursting"))
    assert "is not encrypted and has to be encrypted, which EFS cannot change" in failed["msg"]
    assert failed["changed"] is False
    (live,) = systems(run)
    assert live["ThroughputMode"] == "elastic"


@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize(
    "tags", [{}, {**OURS, "modelplane.ai/cluster": "east"}], ids=["nobody's", "of another cluster"]
)
def test_what_is_not_ours_is_refused(run: Runner, network: Network, tags: dict[str, str], state: str) -> None:
    run.aws.client("efs").create_file_system(
        CreationToken=TOKEN, Tags=[{"Key": key, "Value": value} for key, value in tags.items()]
    )
    run.aws.forget_calls()
    failed = run(MODULE, **wanted(network, state=state))
    assert failed["failed"]
    assert "neither changed nor deleted" in failed["msg"]
    assert run.aws.calls(mutating=True) == []


def test_a_zone_that_another_subnet_has_is_told(run: Runner, network: Network) -> None:
    ec2 = run.aws.client("ec2")
    run(MODULE, **wanted(network, mount_targets=network.targets()[:1]))
    other = ec2.create_subnet(VpcId=network.vpc, CidrBlock="10.0.9.0/24", AvailabilityZone="us-west-2a")
    subnet = other["Subnet"]["SubnetId"]
    failed = run(
        MODULE, **wanted(network, mount_targets=[{"subnet_id": subnet, "security_group_ids": network.groups[:1]}])
    )
    assert f"in subnet {subnet}" in failed["msg"]
    assert network.subnets[0] in failed["msg"]
    assert "Remove the mount target of the other subnet" in failed["msg"]


@pytest.mark.parametrize("operation", ["CreateFileSystem", "CreateMountTarget"])
def test_one_that_was_made_although_nobody_heard_of_it_is_taken(run: Runner, network: Network, operation: str) -> None:
    run.aws.refuse(operation=operation, code="InternalServerError", message="Lost.", status=500, after=True)
    done = run(MODULE, **wanted(network))
    assert not done["failed"], done["msg"]
    (live,) = systems(run)
    assert set(targets(run, live["FileSystemId"])) == set(network.subnets)
    assert run(MODULE, **wanted(network))["changed"] is False


@pytest.mark.parametrize("operation", ["CreateFileSystem", "CreateMountTarget"])
def test_after_a_failure_the_next_run_goes_on(run: Runner, network: Network, operation: str) -> None:
    run.aws.refuse(operation=operation, code="AccessDeniedException", message="Not now.")
    failed = run(MODULE, **wanted(network))
    assert "AccessDeniedException: Not now" in failed["msg"]
    assert failed["changed"] == (operation != "CreateFileSystem")
    assert run(MODULE, **wanted(network))["changed"]
    assert len(systems(run)) == 1
    assert run(MODULE, **wanted(network))["changed"] is False


def test_it_goes_with_its_access_points_and_mount_targets(run: Runner, network: Network) -> None:
    identity = run(MODULE, **wanted(network))["file_system"]["FileSystemId"]
    run.aws.client("efs").create_access_point(FileSystemId=identity, ClientToken="volume")
    run.aws.client("efs").create_file_system(CreationToken="another")
    done = run.all_three(MODULE, creation_token=TOKEN, tags=TAGS, state="absent")
    assert done["file_system"] == {"FileSystemId": identity}
    assert [live["CreationToken"] for live in systems(run)] == ["another"]


@pytest.mark.parametrize("operation", ["DeleteAccessPoint", "DeleteMountTarget", "DeleteFileSystem"])
def test_a_removal_that_stopped_goes_on(run: Runner, network: Network, operation: str) -> None:
    identity = run(MODULE, **wanted(network))["file_system"]["FileSystemId"]
    run.aws.client("efs").create_access_point(FileSystemId=identity, ClientToken="volume")
    run.aws.refuse(operation=operation, code="AccessDeniedException", message="Not now.")
    failed = run(MODULE, creation_token=TOKEN, tags=TAGS, state="absent")
    assert "AccessDeniedException" in failed["msg"]
    assert not run(MODULE, creation_token=TOKEN, tags=TAGS, state="absent")["failed"]
    assert systems(run) == []


def test_in_check_mode_subnets_need_not_be_there(run: Runner) -> None:
    listed = [{"subnet_id": "", "security_group_ids": []}, {"subnet_id": "", "security_group_ids": []}]
    told = run(MODULE, check=True, creation_token=TOKEN, tags=TAGS, mount_targets=listed)
    assert told["changed"]
    assert told["file_system"]["FileSystemId"] == ""
    assert "mount_targets[0].subnet_id: it is empty" in run(MODULE, creation_token=TOKEN, mount_targets=listed)["msg"]
