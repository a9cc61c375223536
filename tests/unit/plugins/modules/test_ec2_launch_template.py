# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Launch templates, with all that EFA and Capacity Blocks need."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.launch_templates import same_data
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.parents import OURS, TAGS
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.runner import Runner

MODULE = "ec2_launch_template"
DATA: dict[str, Any] = {
    "InstanceType": "p5en.48xlarge",
    "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 500}}],
    "InstanceMarketOptions": {"MarketType": "capacity-block"},
    "CapacityReservationSpecification": {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": "cr-0123456789abcdef0"},
    },
    "NetworkInterfaces": [
        {
            "NetworkCardIndex": card,
            "DeviceIndex": 1 if card else 0,
            "InterfaceType": "efa-only" if card else "efa",
            "Groups": ["sg-0000000000000000a", "sg-0000000000000000b"],
        }
        for card in range(16)
    ],
}


def changed(**values: Any) -> dict[str, Any]:
    return {**copy.deepcopy(DATA), **values}


def versions(run: Runner, identity: str) -> list[dict[str, Any]]:
    client = run.aws.client("ec2")
    found = client.describe_launch_template_versions(LaunchTemplateId=identity)["LaunchTemplateVersions"]
    return sorted(found, key=lambda version: int(version["VersionNumber"]))


def templates(run: Runner) -> dict[str, dict[str, Any]]:
    return {
        each["LaunchTemplateName"]: each
        for each in run.aws.client("ec2").describe_launch_templates()["LaunchTemplates"]
    }


def test_a_template_is_made_once_with_all_of_its_data(run: Runner) -> None:
    made = run.all_three(MODULE, templates=[{"name": "gpu", "data": DATA}], tags=TAGS)["templates"]["gpu"]
    (version,) = versions(run, made["id"])
    assert version["LaunchTemplateData"] == DATA
    assert made == {"id": templates(run)["gpu"]["LaunchTemplateId"], "version": 1, "default_version": 1}
    tags = {tag["Key"]: tag["Value"] for tag in templates(run)["gpu"]["Tags"]}
    assert tags == {**OURS, "Name": "gpu"}


def test_other_data_are_a_new_version_that_is_the_default_one(run: Runner) -> None:
    first = run(MODULE, templates=[{"name": "gpu", "data": DATA}], tags=TAGS)["templates"]["gpu"]
    wanted = changed(InstanceType="p5e.48xlarge")
    done = run.all_three(MODULE, templates=[{"name": "gpu", "data": wanted}], tags=TAGS)
    assert done["templates"]["gpu"] == {"id": first["id"], "version": 2, "default_version": 2}
    assert done["diff"]["before"]["gpu"]["data"]["InstanceType"] == "p5en.48xlarge"
    assert [version["LaunchTemplateData"] for version in versions(run, first["id"])] == [DATA, wanted]
    # Going back is a version more, as none is ever changed.
    assert (
        run.all_three(MODULE, templates=[{"name": "gpu", "data": DATA}], tags=TAGS)["templates"]["gpu"]["version"] == 3
    )


def test_a_version_of_somebody_else_and_a_lost_default_are_set_right(run: Runner) -> None:
    identity = run(MODULE, templates=[{"name": "gpu", "data": DATA}], tags=TAGS)["templates"]["gpu"]["id"]
    client = run.aws.client("ec2")
    client.create_launch_template_version(LaunchTemplateId=identity, LaunchTemplateData={"InstanceType": "m5.large"})
    done = run.all_three(MODULE, templates=[{"name": "gpu", "data": DATA}], tags=TAGS)
    assert done["templates"]["gpu"] == {"id": identity, "version": 3, "default_version": 3}
    client.modify_launch_template(LaunchTemplateId=identity, DefaultVersion="1")
    run.all_three(MODULE, templates=[{"name": "gpu", "data": DATA}], tags=TAGS)
    assert (templates(run)["gpu"]["DefaultVersionNumber"], len(versions(run, identity))) == (3, 3)


def test_tags_follow_and_those_of_others_stay(run: Runner) -> None:
    identity = run(MODULE, templates=[{"name": "gpu", "data": DATA}], tags={**TAGS, "team": "a"})["templates"]["gpu"][
        "id"
    ]
    run.aws.client("ec2").create_tags(
        Resources=[identity], Tags=[{"Key": "cost", "Value": "7"}, {"Key": "modelplane.ai/old", "Value": "x"}]
    )
    run.all_three(MODULE, templates=[{"name": "gpu", "data": DATA}], tags={**TAGS, "team": "b"})
    tags = {tag["Key"]: tag["Value"] for tag in templates(run)["gpu"]["Tags"]}
    assert tags == {**OURS, "Name": "gpu", "team": "b", "cost": "7"}


@pytest.mark.parametrize(
    ("tags", "told"),
    [
        ({}, "was not made by modelplane.fleet"),
        ({**OURS, "modelplane.ai/cluster": "east"}, "belongs to another cluster"),
        ({**OURS, "modelplane.ai/fleet": "other"}, "belongs to another fleet"),
    ],
)
@pytest.mark.parametrize("state", ["present", "absent"])
def test_what_is_not_ours_is_refused(run: Runner, tags: dict[str, str], told: str, state: str) -> None:
    spec = [{"ResourceType": "launch-template", "Tags": [{"Key": key, "Value": tags[key]} for key in tags]}]
    run.aws.client("ec2").create_launch_template(
        LaunchTemplateName="gpu",
        LaunchTemplateData={"InstanceType": "m5.large"},
        **({"TagSpecifications": spec} if tags else {}),
    )
    run.aws.forget_calls()
    listed = [{"name": "a-new-one", "data": DATA}, {"name": "gpu", "data": DATA}]
    done = run(MODULE, templates=listed, tags=TAGS, state=state)
    assert done["failed"]
    assert "launch template gpu" in done["msg"]
    assert told in done["msg"]
    assert run.aws.calls(mutating=True) == []


def test_only_templates_of_the_cluster_are_purged(run: Runner) -> None:
    for name in ("one", "two", "three"):
        run(MODULE, templates=[{"name": name, "data": DATA}], tags=TAGS)
    run(MODULE, templates=[{"name": "of-east", "data": DATA}], tags={**TAGS, "modelplane.ai/cluster": "east"})
    done = run.all_three(MODULE, templates=[{"name": "two", "data": DATA}], tags=TAGS, purge=True)
    assert done["removed"] == ["one", "three"]
    assert sorted(templates(run)) == ["of-east", "two"]
    assert run.all_three(MODULE, tags=TAGS, purge=True, state="absent")["removed"] == ["two"]
    assert sorted(templates(run)) == ["of-east"]
    assert "tags has no modelplane.ai/cluster" in run(MODULE, tags={}, purge=True)["msg"]


@pytest.mark.parametrize("operation", ["CreateLaunchTemplate", "CreateLaunchTemplateVersion", "ModifyLaunchTemplate"])
def test_after_a_failure_the_next_run_goes_on(run: Runner, operation: str) -> None:
    if operation != "CreateLaunchTemplate":
        run(MODULE, templates=[{"name": "gpu", "data": changed(InstanceType="p5e.48xlarge")}], tags=TAGS)
    run.aws.refuse(operation=operation, code="UnauthorizedOperation", message="Not now.")
    failed = run(MODULE, templates=[{"name": "gpu", "data": DATA}], tags=TAGS)
    assert "launch template gpu" in failed["msg"]
    assert "UnauthorizedOperation: Not now" in failed["msg"]
    # What was done before the failure is told with it.
    assert failed["changed"] == (operation == "ModifyLaunchTemplate")
    run(MODULE, templates=[{"name": "gpu", "data": DATA}], tags=TAGS)
    assert run(MODULE, templates=[{"name": "gpu", "data": DATA}], tags=TAGS)["changed"] is False
    template = templates(run)["gpu"]
    assert template["DefaultVersionNumber"] == template["LatestVersionNumber"]
    assert template["LatestVersionNumber"] == (1 if operation == "CreateLaunchTemplate" else 2)


def test_one_that_was_made_although_nobody_heard_of_it_is_taken(run: Runner) -> None:
    run.aws.refuse(operation="CreateLaunchTemplate", code="InternalError", message="Lost.", status=500, after=True)
    done = run(MODULE, templates=[{"name": "gpu", "data": DATA}], tags=TAGS)
    assert done["templates"]["gpu"] == {
        "id": templates(run)["gpu"]["LaunchTemplateId"],
        "version": 1,
        "default_version": 1,
    }
    assert run(MODULE, templates=[{"name": "gpu", "data": DATA}], tags=TAGS)["changed"] is False


def test_two_entries_of_one_name_are_refused(run: Runner) -> None:
    entry = {"name": "gpu", "data": DATA}
    assert "gpu is listed twice" in run(MODULE, templates=[entry, entry], tags=TAGS)["msg"]


@pytest.mark.parametrize(
    ("live", "same"),
    [
        (changed(NetworkInterfaces=list(reversed(DATA["NetworkInterfaces"]))), True),
        (changed(UserData="", TagSpecifications=[]), True),
        (changed(NetworkInterfaces=[{**DATA["NetworkInterfaces"][0], "Groups": ["sg-0000000000000000b"]}]), False),
        (changed(BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 501}}]), False),
        (changed(UserData="IyEvYmluL3No"), False),
    ],
    ids=["order", "empty", "groups", "disk", "user data"],
)
def test_order_and_empty_fields_mean_nothing(live: dict[str, Any], same: bool) -> None:
    assert same_data(live, DATA) is same


def test_what_ec2_adds_to_a_version_of_ours_means_nothing(run: Runner) -> None:
    made = run(MODULE, templates=[{"name": "gpu", "data": DATA}], tags=TAGS)["templates"]["gpu"]
    (version,) = versions(run, made["id"])
    live = copy.deepcopy(version["LaunchTemplateData"])
    live["BlockDeviceMappings"][0]["Ebs"]["DeleteOnTermination"] = True
    assert same_data(live, DATA, version["VersionDescription"])
    assert not same_data(live, DATA)
    assert not same_data(live, changed(InstanceType="p5.48xlarge"), version["VersionDescription"])
