# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module efs_file_system against a double of AWS."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.modules import efs_file_system
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.running import OURS, TAGS, good, refused
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.site import Site

TOKEN = "modelplane-system-west-eks-03b8e"
BARE = {"creation_token": TOKEN, "tags": TAGS}
ABSENT = {**BARE, "state": "absent"}


def arguments(site: Site, *subnets: int, group: str = "") -> dict[str, Any]:
    targets = [{"subnet_id": site.subnets[each], "security_group_ids": [group or site.group]} for each in subnets]
    return {**BARE, "mount_targets": targets}


def described(site: Site) -> list[dict[str, Any]]:
    return list(site.aws.client("efs").describe_file_systems(CreationToken=TOKEN)["FileSystems"])


def targets(site: Site) -> dict[str, list[str]]:
    """Security groups by subnet."""
    efs = site.aws.client("efs")
    found = efs.describe_mount_targets(FileSystemId=described(site)[0]["FileSystemId"])["MountTargets"]
    return {
        each["SubnetId"]: efs.describe_mount_target_security_groups(MountTargetId=each["MountTargetId"])[
            "SecurityGroups"
        ]
        for each in found
    }


def test_made_as_asked_and_then_left_alone(site: Site) -> None:
    site.aws.delay("file_system", 2)
    site.aws.delay("mount_target", 2)
    given = arguments(site, 0, 1)
    checked = good(efs_file_system, check=True, **given)
    assert (checked["changed"], site.sent()) == (True, [])
    first = good(efs_file_system, **given)
    assert (first["changed"], first["steps"]) == (True, checked["steps"])
    assert site.sent() == ["CreateFileSystem", "CreateMountTarget", "CreateMountTarget"]
    (found,) = described(site)
    assert (found["LifeCycleState"], found["ThroughputMode"], found["Encrypted"]) == ("available", "elastic", True)
    assert {tag["Key"]: tag["Value"] for tag in found["Tags"]} == OURS
    assert targets(site) == {site.subnets[0]: [site.group], site.subnets[1]: [site.group]}
    assert (first["id"], first["arn"]) == (found["FileSystemId"], found["FileSystemArn"])
    assert [target["life_cycle_state"] for target in first["file_system"]["mount_targets"]] == ["available"] * 2
    second = good(efs_file_system, **given)
    assert (second["changed"], second["file_system"]) == (False, first["file_system"])
    assert second["diff"]["before"] == second["diff"]["after"]
    assert not good(efs_file_system, **BARE)["changed"]
    assert site.sent() == []


UPDATES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "throughput": ({"throughput_mode": "bursting"}, ["UpdateFileSystem"]),
    "tags": ({"tags": {**TAGS, "Name": "west-efs"}}, ["TagResource"]),
    "one target more": ({"subnets": (0, 1, 2)}, ["CreateMountTarget"]),
    "one target less": ({"subnets": (0,)}, ["DeleteMountTarget"]),
    "another target": ({"subnets": (0, 2)}, ["DeleteMountTarget", "CreateMountTarget"]),
    "no target": ({"subnets": ()}, ["DeleteMountTarget", "DeleteMountTarget"]),
}


@pytest.mark.parametrize("name", UPDATES)
def test_changed_in_place(site: Site, name: str) -> None:
    change, operations = UPDATES[name]
    good(efs_file_system, **arguments(site, 0, 1))
    site.sent()
    site.aws.delay("file_system", 2)
    site.aws.delay("mount_target", 2)
    subnets = change.get("subnets", (0, 1))
    given = {**arguments(site, *subnets), **{key: value for key, value in change.items() if key != "subnets"}}
    checked = good(efs_file_system, check=True, **given)
    assert (checked["changed"], site.sent()) == (True, [])
    done = good(efs_file_system, **given)
    assert (done["steps"], done["diff"]) == (checked["steps"], checked["diff"])
    assert site.sent() == operations
    assert set(targets(site)) == {site.subnets[each] for each in subnets}
    assert not good(efs_file_system, **given)["changed"]
    assert site.sent() == []


def test_security_groups_change_in_place(site: Site) -> None:
    good(efs_file_system, **arguments(site, 0, 1))
    ec2 = site.aws.client("ec2")
    other = ec2.create_security_group(VpcId=site.vpc, GroupName="other", Description="NFS")["GroupId"]
    site.sent()
    assert good(efs_file_system, **arguments(site, 0, 1, group=other))["changed"]
    assert site.sent() == ["ModifyMountTargetSecurityGroups"] * 2
    assert targets(site) == {site.subnets[0]: [other], site.subnets[1]: [other]}
    assert not good(efs_file_system, **arguments(site, 0, 1, group=other))["changed"]


def test_removed_and_then_left_alone(site: Site) -> None:
    good(efs_file_system, **arguments(site, 0, 1))
    site.aws.delay("file_system", 2)
    site.aws.delay("mount_target", 2)
    site.sent()
    assert len(good(efs_file_system, check=True, **ABSENT)["steps"]) == 3
    assert site.sent() == []
    assert good(efs_file_system, **ABSENT)["file_system"] == {}
    assert site.sent() == ["DeleteMountTarget", "DeleteMountTarget", "DeleteFileSystem"]
    assert not good(efs_file_system, **ABSENT)["changed"]
    assert described(site) == []


def test_without_waiting_each_run_does_what_can_be_done(site: Site) -> None:
    site.aws.delay("file_system", 3)
    site.aws.delay("mount_target", 3)
    given = {**arguments(site, 0, 1), "wait": False}
    assert good(efs_file_system, **given)["steps"] == [f"file system {TOKEN}: create"]
    for _ in range(6):
        good(efs_file_system, **given)
    assert len(targets(site)) == 2
    assert not good(efs_file_system, **given)["changed"]
    first = good(efs_file_system, **ABSENT, wait=False)
    assert len(first["steps"]) == 2
    assert any("run again" in warning for warning in first["warnings"])
    for _ in range(8):
        good(efs_file_system, **ABSENT, wait=False)
    assert described(site) == []


@pytest.mark.parametrize("mine", [True, False], ids=["ours", "not ours"])
def test_one_that_is_being_deleted_is_made_again(site: Site, mine: bool) -> None:
    good(efs_file_system, **BARE)
    site.aws.delay("file_system", 3)
    good(efs_file_system, **ABSENT, wait=False)
    if mine:
        assert "is being deleted" in refused(efs_file_system, **BARE, wait=False)
        assert good(efs_file_system, check=True, **BARE)["changed"]
        assert good(efs_file_system, **BARE)["file_system"]["life_cycle_state"] == "available"
    else:
        other = {"modelplane.ai/cluster": "a.b"}
        assert "is not this cluster's" in refused(efs_file_system, creation_token=TOKEN, tags=other)


REFUSED = {
    "encryption": ({"encrypted": False}, "encrypted is true and should be false"),
    "twice": ({"twice": True}, "twice"),
    "another cluster's": ({"tags": {"modelplane.ai/cluster": "a.b"}}, "is not this cluster's"),
    "absent, another cluster's": ({"tags": {"modelplane.ai/cluster": "a.b"}, "state": "absent"}, "is not this"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_without_a_change(site: Site, name: str) -> None:
    change, text = REFUSED[name]
    good(efs_file_system, **arguments(site, 0))
    site.sent()
    given = arguments(site, 0, 0) if change.pop("twice", False) else arguments(site, 0)
    assert text in refused(efs_file_system, **{**given, **change})
    assert site.sent() == []


@pytest.mark.parametrize(
    "operation", ["CreateFileSystem", "CreateMountTarget", "DeleteMountTarget", "DeleteFileSystem", "UpdateFileSystem"]
)
def test_a_lost_answer_does_nothing_twice(site: Site, operation: str) -> None:
    site.aws.fail(operation, after=True)
    good(efs_file_system, **arguments(site, 0))
    good(efs_file_system, **arguments(site, 0), throughput_mode="bursting")
    assert len(described(site)) == len(targets(site)) == 1
    good(efs_file_system, **ABSENT)
    assert site.aws.failed
    assert described(site) == []


def test_states_of_failure_end_the_wait(site: Site) -> None:
    site.aws.delay("file_system", 1)
    site.aws.end("file_system", TOKEN, "error")
    assert f"file system {TOKEN} is in the state error" in refused(efs_file_system, **BARE)
    good(efs_file_system, **ABSENT)
    site.aws.delay("mount_target", 1)
    site.aws.end("mount_target", site.subnets[0], "error")
    assert "is in the state error" in refused(efs_file_system, **arguments(site, 0))
