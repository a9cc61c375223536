# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module eks_node_group against a double of AWS."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.modules import ec2_launch_template, eks_cluster, eks_node_group
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.running import OURS, TAGS, good, refused
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.site import CLUSTER, Site

SUBJECT = "node group gpu of cluster west"
ABSENT = {"cluster": CLUSTER, "name": "gpu", "state": "absent", "tags": TAGS}
TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}


def described(site: Site) -> dict[str, Any]:
    return dict(site.aws.client("eks").describe_nodegroup(clusterName=CLUSTER, nodegroupName="gpu")["nodegroup"])


def with_template(site: Site, **data: Any) -> dict[str, Any]:
    """A launch template, and the arguments of a node group that uses it."""
    given = {"InstanceType": "p5.48xlarge", **data}
    good(ec2_launch_template, name="west-gpu", data=given, tags=TAGS)
    left_out = ("instance_types", "disk_size", "desired_size")
    arguments = {key: value for key, value in site.group_of_nodes.items() if key not in left_out}
    return {**arguments, "launch_template": {"name": "west-gpu"}}


def test_made_as_asked_and_then_left_alone(site: Site) -> None:
    site.with_cluster()
    site.aws.delay("nodegroup", 3)
    first = good(eks_node_group, **site.group_of_nodes)
    assert first["changed"]
    assert site.sent() == ["CreateNodegroup"]
    found = described(site)
    expected = {
        "status": "ACTIVE",
        "amiType": "AL2023_x86_64_NVIDIA",
        "instanceTypes": ["g6.2xlarge"],
        "diskSize": 200,
        "scalingConfig": {"minSize": 0, "maxSize": 4, "desiredSize": 2},
        "subnets": list(site.subnets[:2]),
        "nodeRole": site.node_role,
        "labels": {"modelplane.ai/pool": "gpu"},
        "taints": [TAINT],
        "tags": OURS,
    }
    assert {key: found[key] for key in expected} == expected
    assert first["arn"] == first["node_group"]["arn"] == found["nodegroupArn"]
    assert first["node_group"]["autoscaling_groups"] == [
        group["name"] for group in found["resources"]["autoScalingGroups"]
    ]
    second = good(eks_node_group, **site.group_of_nodes)
    assert not second["changed"]
    assert second["diff"]["before"] == second["diff"]["after"]
    assert second["node_group"] == first["node_group"]
    assert site.sent() == []


def test_check_mode_works_before_there_is_a_cluster(site: Site) -> None:
    result = good(eks_node_group, check=True, **site.group_of_nodes)
    assert (result["changed"], result["steps"]) == (True, [f"{SUBJECT}: create"])
    assert result["diff"]["after"]["desired_size"] == 2
    later = {**site.group_of_nodes, "launch_template": {"name": "not-yet"}, "instance_types": None, "disk_size": None}
    assert good(eks_node_group, check=True, **later)["changed"]
    assert site.sent() == []


UPDATES: dict[str, tuple[dict[str, Any], list[str], dict[str, Any]]] = {
    "more nodes at most": (
        {"max_size": 9},
        ["UpdateNodegroupConfig"],
        {"scalingConfig": {"minSize": 0, "maxSize": 9, "desiredSize": 2}},
    ),
    "more nodes at least": (
        {"min_size": 3, "desired_size": None},
        ["UpdateNodegroupConfig"],
        {"scalingConfig": {"minSize": 3, "maxSize": 4, "desiredSize": 3}},
    ),
    "fewer nodes at most": (
        {"max_size": 1, "desired_size": None},
        ["UpdateNodegroupConfig"],
        {"scalingConfig": {"minSize": 0, "maxSize": 1, "desiredSize": 1}},
    ),
    "labels": (
        {"labels": {"modelplane.ai/pool": "other", "a": "b"}},
        ["UpdateNodegroupConfig"],
        {"labels": {"modelplane.ai/pool": "other", "a": "b"}},
    ),
    "no labels": ({"labels": {}}, ["UpdateNodegroupConfig"], {"labels": {}}),
    "a taint's value": (
        {"taints": [{**TAINT, "value": "false"}]},
        ["UpdateNodegroupConfig"],
        {"taints": [{**TAINT, "value": "false"}]},
    ),
    "another taint": (
        {"taints": [{"key": "a", "effect": "NO_EXECUTE"}]},
        ["UpdateNodegroupConfig"],
        {"taints": [{"key": "a", "effect": "NO_EXECUTE"}]},
    ),
    "tags": ({"tags": {**TAGS, "team": "ml"}}, ["TagResource"], {"tags": {**OURS, "team": "ml"}}),
    "all at once": (
        {"max_size": 9, "labels": {"a": "b"}, "taints": [], "tags": {**TAGS, "team": "ml"}},
        ["TagResource", "UpdateNodegroupConfig"],
        {"labels": {"a": "b"}},
    ),
}


@pytest.mark.parametrize("name", UPDATES)
def test_changed_in_place(site: Site, name: str) -> None:
    change, operations, expected = UPDATES[name]
    site.with_nodes()
    site.aws.delay("update", 2)
    arguments = {**site.group_of_nodes, **change}
    checked = good(eks_node_group, check=True, **arguments)
    assert checked["changed"]
    assert site.sent() == []
    done = good(eks_node_group, **arguments)
    assert (done["changed"], done["steps"], done["diff"]) == (True, checked["steps"], checked["diff"])
    assert site.sent() == operations
    found = described(site)
    assert {key: found[key] for key in expected} == expected
    assert not good(eks_node_group, **arguments)["changed"]
    assert site.sent() == []


def test_the_number_of_nodes_is_the_autoscalers(site: Site) -> None:
    site.with_nodes()
    eks = site.aws.client("eks")
    eks.update_nodegroup_config(clusterName=CLUSTER, nodegroupName="gpu", scalingConfig={"desiredSize": 4})
    assert not good(eks_node_group, **site.group_of_nodes)["changed"]
    assert good(eks_node_group, **{**site.group_of_nodes, "max_size": 8})["changed"]
    assert described(site)["scalingConfig"] == {"minSize": 0, "maxSize": 8, "desiredSize": 4}


def test_a_newer_version_replaces_the_nodes(site: Site) -> None:
    site.with_nodes()
    good(eks_cluster, **{**site.cluster, "version": "1.36"})
    assert described(site)["version"] == "1.34"
    assert not good(eks_node_group, **site.group_of_nodes)["changed"]
    site.sent()
    newer = {**site.group_of_nodes, "version": "1.36"}
    assert good(eks_node_group, **newer)["steps"] == [f"{SUBJECT}: version: 1.34 -> 1.36"]
    assert site.sent() == ["UpdateNodegroupVersion"]
    assert described(site)["version"] == "1.36"
    assert not good(eks_node_group, **newer)["changed"]
    assert "cannot take a cluster to an older" in refused(eks_node_group, **{**newer, "version": "1.35"})


def test_a_new_version_of_the_template_is_taken(site: Site) -> None:
    site.with_cluster()
    arguments = with_template(site)
    made = good(eks_node_group, **arguments)["node_group"]
    assert made["launch_template"] == {"name": "west-gpu", "id": made["launch_template"]["id"], "version": "1"}
    assert (made["instance_types"], made["disk_size"]) == ([], None)
    assert not good(eks_node_group, **arguments)["changed"]
    by_id = {**arguments, "launch_template": {"id": made["launch_template"]["id"], "version": "1"}}
    assert not good(eks_node_group, **by_id)["changed"]
    with_template(site, KeyName="other")
    site.sent()
    assert good(eks_node_group, check=True, **arguments)["steps"] == [f"{SUBJECT}: launch_template_version: 1 -> 2"]
    assert good(eks_node_group, **arguments)["changed"]
    assert site.sent() == ["UpdateNodegroupVersion"]
    assert described(site)["launchTemplate"]["version"] == "2"
    assert not good(eks_node_group, **arguments)["changed"]
    assert not good(
        eks_node_group, **{**by_id, "launch_template": {**by_id["launch_template"], "version": "$Default"}}
    )["changed"]


REFUSED = {
    "another type": (
        {"instance_types": ["g6.4xlarge"]},
        'instance_types is ["g6.2xlarge"] and should be ["g6.4xlarge"]',
    ),
    "another disk": ({"disk_size": 300}, "disk_size is 200 and should be 300"),
    "other subnets": ({"subnet_ids": ["subnet-0a"]}, "subnet_ids is"),
    "another image": ({"ami_type": "AL2023_x86_64_STANDARD"}, "ami_type is AL2023_x86_64_NVIDIA and should be"),
    "another role": ({"node_role_arn": "arn:aws:iam::123456789012:role/x"}, "node_role_arn is"),
    "bought otherwise": ({"capacity_type": "SPOT"}, "capacity_type is ON_DEMAND and should be SPOT"),
    "turned bounds": ({"min_size": 5}, "min_size is 5 and max_size 4"),
    "no nodes ever": ({"max_size": 0, "desired_size": None}, "max_size is 0, and AWS wants at least 1"),
    "too many at first": ({"desired_size": 5}, "desired_size is 5, which is not between 0 and 4"),
    "another cluster's": ({"tags": {"modelplane.ai/cluster": "a.b"}}, "is not this cluster's"),
    "two templates": ({"launch_template": {"name": "a", "id": "b"}}, "launch_template needs either id or name"),
    "no template": ({"launch_template": {"name": "not-there"}}, "launch template not-there is not there"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_without_a_change(site: Site, name: str) -> None:
    change, text = REFUSED[name]
    site.with_nodes()
    message = refused(eks_node_group, **{**site.group_of_nodes, **change})
    assert text in message
    assert site.sent() == []


def test_a_template_cannot_be_put_in_or_changed(site: Site) -> None:
    site.with_nodes()
    arguments = with_template(site)
    site.sent()
    assert "launch_template is {} and should be" in refused(eks_node_group, **arguments)
    assert good(eks_node_group, **ABSENT)["changed"]
    good(eks_node_group, **arguments)
    good(ec2_launch_template, name="west-other", data={"InstanceType": "p5.48xlarge"}, tags=TAGS)
    site.sent()
    other = {**arguments, "launch_template": {"name": "west-other"}}
    assert 'should be {"name": "west-other"}. AWS cannot change that in place' in refused(eks_node_group, **other)
    without = {key: value for key, value in arguments.items() if key != "launch_template"}
    assert "should be {}" in refused(eks_node_group, **without)
    assert site.sent() == []


def test_removed_and_then_left_alone(site: Site) -> None:
    site.with_nodes()
    site.aws.delay("nodegroup", 3)
    assert good(eks_node_group, check=True, **ABSENT)["changed"]
    assert site.sent() == []
    assert good(eks_node_group, **ABSENT)["node_group"] == {}
    assert site.sent() == ["DeleteNodegroup"]
    assert not good(eks_node_group, **ABSENT)["changed"]
    assert site.sent() == []


ISSUES = {
    "no machines": (
        "AsgInstanceLaunchFailures",
        "Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have sufficient "
        "g6.2xlarge capacity in the Availability Zone you requested",
        "AWS has no such machines left",
    ),
    "quota": (
        "AsgInstanceLaunchFailures",
        "Could not launch On-Demand Instances. VcpuLimitExceeded - You have requested more vCPU capacity than your "
        "current vCPU limit of 0 allows",
        "Ask for a higher quota",
    ),
    "block": (
        "AsgInstanceLaunchFailures",
        "Could not launch. InvalidCapacityReservationState - The Capacity Block is scheduled and not active",
        "only while its capacity block is active",
    ),
    "zone": (
        "AsgInstanceLaunchFailures",
        "Unsupported - Your requested instance type (p5.48xlarge) is not supported in your requested Availability Zone",
        "Choose a zone that offers the instance type",
    ),
    "not joined": ("NodeCreationFailure", "Instances failed to join the kubernetes cluster", "run but do not join"),
}


@pytest.mark.parametrize("name", ISSUES)
def test_a_failed_creation_is_told_and_made_again_by_the_next_run(site: Site, name: str) -> None:
    code, said, hint = ISSUES[name]
    site.with_cluster()
    site.aws.delay("nodegroup", 1)
    site.aws.end("nodegroup", "gpu", "CREATE_FAILED", {"code": code, "message": said})
    message = refused(eks_node_group, **site.group_of_nodes)
    assert f"{SUBJECT} is CREATE_FAILED: {code}: {said}" in message
    assert hint in message
    site.sent()
    assert good(eks_node_group, check=True, **site.group_of_nodes)["steps"] == [
        f"{SUBJECT}: delete",
        f"{SUBJECT}: create",
    ]
    assert site.sent() == []
    again = good(eks_node_group, **site.group_of_nodes)
    assert again["node_group"]["status"] == "ACTIVE"
    assert site.sent() == ["DeleteNodegroup", "CreateNodegroup"]
    assert any("It is made again" in warning for warning in again["warnings"])


def test_a_block_that_is_not_active_is_told_with_what_to_do(site: Site) -> None:
    site.with_cluster()
    reservation = site.aws.reserve("p5.48xlarge", "us-west-2a", 2, state="scheduled")
    arguments = with_template(
        site,
        InstanceMarketOptions={"MarketType": "capacity-block"},
        CapacityReservationSpecification={
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": reservation},
        },
    )
    arguments |= {"capacity_type": "CAPACITY_BLOCK", "subnet_ids": [site.subnets[0]], "desired_size": 1}
    assert "only while its capacity block is active" in refused(eks_node_group, **arguments)
    site.aws.set_reservation(reservation, State="active", AvailableInstanceCount=2)
    assert good(eks_node_group, **arguments)["node_group"]["status"] == "ACTIVE"


def test_a_group_in_trouble_is_warned_of_and_still_changed(site: Site) -> None:
    site.with_nodes()
    site.aws.delay("update", 1)
    issue = {"code": "NodeCreationFailure", "message": "no node came up"}
    site.aws.end("update", "gpu", "Failed", issue)
    more = {**site.group_of_nodes, "max_size": 9}
    assert "update ConfigUpdate Failed: NodeCreationFailure: no node came up" in refused(eks_node_group, **more)
    same = good(eks_node_group, **site.group_of_nodes)
    assert not same["changed"]
    assert any("is DEGRADED: NodeCreationFailure" in warning for warning in same["warnings"])
    assert good(eks_node_group, **more)["node_group"]["max_size"] == 9


def test_a_deletion_that_fails_is_told_and_done_again(site: Site) -> None:
    site.with_nodes()
    site.aws.delay("nodegroup", 1)
    site.aws.end("nodegroup", "gpu", "DELETE_FAILED", {"code": "Ec2SecurityGroupDeletionFailure", "message": "in use"})
    assert "is DELETE_FAILED: Ec2SecurityGroupDeletionFailure: in use" in refused(eks_node_group, **ABSENT)
    assert "is DELETE_FAILED" in refused(eks_node_group, **site.group_of_nodes)
    assert good(eks_node_group, **ABSENT)["changed"]


@pytest.mark.parametrize("operation", ["CreateNodegroup", "UpdateNodegroupConfig", "DeleteNodegroup"])
def test_a_lost_answer_does_nothing_twice(site: Site, operation: str) -> None:
    site.with_cluster()
    site.aws.fail(operation, after=True)
    good(eks_node_group, **site.group_of_nodes)
    good(eks_node_group, **{**site.group_of_nodes, "max_size": 7})
    assert described(site)["scalingConfig"]["maxSize"] == 7
    assert site.aws.client("eks").list_nodegroups(clusterName=CLUSTER)["nodegroups"] == ["gpu"]
    good(eks_node_group, **ABSENT)
    assert site.aws.failed
    assert site.aws.client("eks").list_nodegroups(clusterName=CLUSTER)["nodegroups"] == []


def test_what_is_busy_is_waited_for(site: Site) -> None:
    site.with_nodes()
    site.aws.delay("update", 3)
    more = {**site.group_of_nodes, "max_size": 9}
    good(eks_node_group, **more, wait=False)
    assert good(eks_node_group, **{**more, "labels": {"a": "b"}})["node_group"]["labels"] == {"a": "b"}
    site.aws.delay("update", 3)
    good(eks_node_group, **{**more, "labels": {}}, wait=False)
    assert good(eks_node_group, **ABSENT)["changed"]


def test_what_is_not_ours_is_neither_changed_nor_deleted(site: Site) -> None:
    site.with_cluster()
    site.aws.client("eks").create_nodegroup(
        clusterName=CLUSTER, nodegroupName="gpu", nodeRole=site.node_role, subnets=[site.subnets[0]]
    )
    for arguments in (site.group_of_nodes, ABSENT):
        assert f"{SUBJECT} is there but is not this cluster's" in refused(eks_node_group, **arguments)
    assert site.sent() == []
