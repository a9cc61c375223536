# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module ec2_launch_template against a double of AWS."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import launch_templates
from ansible_collections.modelplane.fleet.plugins.modules import ec2_launch_template
from ansible_collections.modelplane.fleet.tests.aws.double import AwsDouble
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.running import OURS, TAGS, good, refused
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.site import Site

NAME = "west-lt-gpu-99b1f"
ABSENT = {"name": NAME, "state": "absent", "tags": TAGS}
DATA: dict[str, Any] = {
    "InstanceType": "p5en.48xlarge",
    "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 500}}],
    "InstanceMarketOptions": {"MarketType": "capacity-block"},
    "CapacityReservationSpecification": {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": "cr-0123456789abcdef0"},
    },
    "NetworkInterfaces": [
        {"NetworkCardIndex": 0, "DeviceIndex": 0, "InterfaceType": "efa", "Groups": ["sg-0b", "sg-0a"]},
        {"NetworkCardIndex": 1, "DeviceIndex": 1, "InterfaceType": "efa-only", "Groups": ["sg-0b", "sg-0a"]},
    ],
}
GIVEN = {"name": NAME, "data": DATA, "tags": TAGS}


def changed(*path: str | int, to: Any = None) -> dict[str, Any]:
    """DATA with another value at a path, or without it."""
    data = copy.deepcopy(DATA)
    place: Any = data
    for key in path[:-1]:
        place = place[key]
    if to is None:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return data


def versions(aws: AwsDouble) -> list[dict[str, Any]]:
    found = aws.client("ec2").describe_launch_template_versions(LaunchTemplateName=NAME)["LaunchTemplateVersions"]
    return sorted(found, key=lambda version: version["VersionNumber"])


def sent(aws: AwsDouble) -> list[str]:
    found = [call.operation for call in aws.mutations]
    aws.clear_calls()
    return found


def test_made_as_asked_and_then_left_alone(account: AwsDouble) -> None:
    checked = good(ec2_launch_template, check=True, **GIVEN)
    assert (checked["changed"], checked["template"]["version"], sent(account)) == (True, 1, [])
    first = good(ec2_launch_template, **GIVEN)
    assert sent(account) == ["CreateLaunchTemplate"]
    (version,) = versions(account)
    assert version["LaunchTemplateData"] == DATA
    (template,) = account.client("ec2").describe_launch_templates()["LaunchTemplates"]
    assert {tag["Key"]: tag["Value"] for tag in template["Tags"]} == OURS
    assert first["template"] == {"id": template["LaunchTemplateId"], "name": NAME, "version": 1, "tags": OURS}
    second = good(ec2_launch_template, **GIVEN)
    assert (second["changed"], second["template"]) == (False, first["template"])
    assert second["diff"]["before"] == second["diff"]["after"]
    assert sent(account) == []


OTHER = {
    "type": changed("InstanceType", to="p5.48xlarge"),
    "disk": changed("BlockDeviceMappings", 0, "Ebs", "VolumeSize", to=501),
    "no disk": changed("BlockDeviceMappings"),
    "no market": changed("InstanceMarketOptions"),
    "one card less": changed("NetworkInterfaces", 1),
    "another group": changed("NetworkInterfaces", 1, "Groups", 0, to="sg-0c"),
    "something within": changed("BlockDeviceMappings", 0, "Ebs", "VolumeType", to="gp3"),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_data_are_a_new_version(account: AwsDouble, name: str) -> None:
    good(ec2_launch_template, **GIVEN)
    sent(account)
    given = {**GIVEN, "data": OTHER[name]}
    checked = good(ec2_launch_template, check=True, **given)
    assert (checked["changed"], checked["template"]["version"], sent(account)) == (True, 2, [])
    done = good(ec2_launch_template, **given)
    assert (done["steps"], done["template"]["version"]) == (checked["steps"], 2)
    assert (done["diff"]["before"]["data"], done["diff"]["after"]["data"]) == (DATA, OTHER[name])
    assert sent(account) == ["CreateLaunchTemplateVersion", "ModifyLaunchTemplate"]
    found = versions(account)
    assert [(version["VersionNumber"], version["DefaultVersion"]) for version in found] == [(1, False), (2, True)]
    assert found[1]["LaunchTemplateData"] == OTHER[name]
    assert not good(ec2_launch_template, **given)["changed"]
    # Back again is a third version: versions never change.
    assert good(ec2_launch_template, **GIVEN)["template"]["version"] == 3


SAME = {
    "groups in another order": changed("NetworkInterfaces", 0, "Groups", to=["sg-0a", "sg-0b"]),
    "a number as text": changed("BlockDeviceMappings", 0, "Ebs", "VolumeSize", to="500"),
    "something empty": {**DATA, "KeyName": "", "TagSpecifications": []},
}


@pytest.mark.parametrize("name", SAME)
def test_data_that_mean_the_same_are_no_new_version(name: str) -> None:
    made = {"VersionDescription": launch_templates.description(DATA), "LaunchTemplateData": {"Other": 1}}
    assert launch_templates.is_made_of(made, SAME[name])
    described = {"LaunchTemplateData": changed("BlockDeviceMappings", 0, "Ebs", "Encrypted", to=False)}
    assert launch_templates.is_made_of(described, SAME[name])


def test_of_a_version_that_somebody_else_made_the_data_are_compared(account: AwsDouble) -> None:
    good(ec2_launch_template, **GIVEN)
    ec2 = account.client("ec2")
    ec2.create_launch_template_version(LaunchTemplateName=NAME, LaunchTemplateData=DATA)
    sent(account)
    same = good(ec2_launch_template, **GIVEN)
    assert same["steps"] == [f"launch template {NAME}: default version 2"]
    assert sent(account) == ["ModifyLaunchTemplate"]
    ec2.create_launch_template_version(LaunchTemplateName=NAME, LaunchTemplateData=OTHER["disk"])
    assert good(ec2_launch_template, **GIVEN)["template"]["version"] == 4
    assert versions(account)[3]["LaunchTemplateData"] == DATA


def test_tags_are_put_right(account: AwsDouble) -> None:
    good(ec2_launch_template, **GIVEN)
    sent(account)
    given = {**GIVEN, "tags": {**TAGS, "team": "ml"}}
    assert good(ec2_launch_template, **given)["template"]["tags"] == {**OURS, "team": "ml"}
    assert sent(account) == ["CreateTags"]
    assert not good(ec2_launch_template, **given)["changed"]
    assert not good(ec2_launch_template, **GIVEN)["changed"]


def test_removed_and_then_left_alone(account: AwsDouble) -> None:
    good(ec2_launch_template, **GIVEN)
    good(ec2_launch_template, **{**GIVEN, "data": OTHER["disk"]})
    sent(account)
    assert good(ec2_launch_template, check=True, **ABSENT)["changed"]
    assert sent(account) == []
    assert good(ec2_launch_template, **ABSENT)["template"] == {}
    assert sent(account) == ["DeleteLaunchTemplate"]
    assert not good(ec2_launch_template, **ABSENT)["changed"]
    assert account.client("ec2").describe_launch_templates()["LaunchTemplates"] == []


@pytest.mark.parametrize(
    "operation",
    ["CreateLaunchTemplate", "CreateLaunchTemplateVersion", "ModifyLaunchTemplate", "DeleteLaunchTemplate"],
)
def test_a_lost_answer_does_nothing_twice(account: AwsDouble, operation: str) -> None:
    account.fail(operation, after=True)
    good(ec2_launch_template, **GIVEN)
    good(ec2_launch_template, **{**GIVEN, "data": OTHER["disk"]})
    assert [version["DefaultVersion"] for version in versions(account)] == [False, True]
    good(ec2_launch_template, **ABSENT)
    assert account.failed
    assert account.client("ec2").describe_launch_templates()["LaunchTemplates"] == []


def test_a_run_that_was_stopped_between_is_gone_on_with(account: AwsDouble) -> None:
    good(ec2_launch_template, **GIVEN)
    account.fail("ModifyLaunchTemplate", "UnauthorizedOperation", "not you")
    given = {**GIVEN, "data": OTHER["disk"]}
    message = refused(ec2_launch_template, **given)
    assert "ec2 ModifyLaunchTemplate of launch template" in message
    assert "lack the right" in message
    sent(account)
    assert good(ec2_launch_template, **given)["changed"]
    assert sent(account) == ["ModifyLaunchTemplate"]


def test_what_is_not_ours_is_neither_changed_nor_deleted(account: AwsDouble) -> None:
    account.client("ec2").create_launch_template(LaunchTemplateName=NAME, LaunchTemplateData=DATA)
    for given in (GIVEN, ABSENT):
        assert "is there but is not this cluster's" in refused(ec2_launch_template, **given)
    assert sent(account) == []


def test_data_that_ec2_does_not_know_are_told(site: Site) -> None:
    message = refused(ec2_launch_template, **{**GIVEN, "data": {"InstanceTyp": "p5.48xlarge"}})
    assert 'Unknown parameter in LaunchTemplateData: "InstanceTyp"' in message
    assert site.sent() == []
