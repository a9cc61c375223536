# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module eks_nodegroup against the double of AWS."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.parents import OURS, TAGS, Parents
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.runner import Runner

MODULE = "eks_nodegroup"
UNKNOWN_ROLE = (
    "Following required service principals [ec2.amazonaws.com] were not found in the trust relationships of nodeRole"
)


@pytest.fixture
def cluster(run: Runner, parents: Parents) -> Parents:
    """The same, with an active cluster of version 1.35."""
    run.made("eks_cluster", **parents.cluster())
    run.aws.forget_calls()
    return parents


def asked(run: Runner, operation: str) -> list[dict[str, Any]]:
    calls = [call["parameters"] for call in run.aws.calls(mutating=True) if call["operation"] == operation]
    return [{key: value for key, value in call.items() if key != "clientRequestToken"} for call in calls]


def template(run: Runner, disk: int, name: str = "templated") -> int:
    """The number of a new version of a launch template."""
    ec2 = run.aws.client("ec2")
    data = {
        "InstanceType": "g6.xlarge",
        "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": disk}}],
    }
    if not ec2.describe_launch_templates(Filters=[{"Name": "launch-template-name", "Values": [name]}])[
        "LaunchTemplates"
    ]:
        ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
        return 1
    version = ec2.create_launch_template_version(LaunchTemplateName=name, LaunchTemplateData=data)
    return int(version["LaunchTemplateVersion"]["VersionNumber"])


def templated(cluster: Parents, version: int) -> dict[str, Any]:
    return cluster.gpu(
        instance_types=[], disk_size=None, launch_template={"name": "templated", "version": str(version)}
    )


def test_made_at_once_and_the_second_run_changes_nothing(run: Runner, cluster: Parents) -> None:
    arguments = cluster.groups(cluster.system(), cluster.gpu())
    checked = run(MODULE, check=True, **arguments)
    assert checked["changed"]
    assert sorted(checked["node_groups"]) == ["gpu", "system"]
    assert run.mutations() == []
    result = run.made(MODULE, **arguments)
    assert result["changed"]
    assert result["diff"] == checked["diff"]
    assert {name: group["status"] for name, group in result["node_groups"].items()} == {
        "gpu": "ACTIVE",
        "system": "ACTIVE",
    }
    gpu = next(call for call in asked(run, "CreateNodegroup") if call["nodegroupName"] == "gpu")
    assert gpu == {
        "clusterName": "west",
        "nodegroupName": "gpu",
        "scalingConfig": {"minSize": 0, "maxSize": 8, "desiredSize": 1},
        "subnets": cluster.subnets[:1],
        "nodeRole": cluster.node_role,
        "amiType": "AL2023_x86_64_NVIDIA",
        "instanceTypes": ["g6.xlarge"],
        "diskSize": 100,
        "labels": {"modelplane.ai/pool": "gpu", "modelplane.ai/gpu": "L4"},
        "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
        "tags": OURS,
    }
    system = next(call for call in asked(run, "CreateNodegroup") if call["nodegroupName"] == "system")
    assert not {"diskSize", "capacityType", "launchTemplate", "version"} & set(system)
    run.unchanged(MODULE, **arguments)
    assert not run(MODULE, check=True, **arguments)["changed"]


def test_groups_do_not_wait_for_each_other(run: Runner, cluster: Parents) -> None:
    run.aws.settings(phases=1_000_000)
    result = run(MODULE, **cluster.groups(cluster.system(), cluster.gpu(), wait_timeout=2))
    assert result["failed"]
    assert result["msg"].count("WaitTimeout") == 2
    names = [(call["operation"], call["parameters"].get("nodegroupName")) for call in run.aws.calls()]
    last_made = max(names.index(("CreateNodegroup", name)) for name in ("system", "gpu"))
    assert {name for operation, name in names[last_made:] if operation == "DescribeNodegroup"} == {"system", "gpu"}


def test_without_a_cluster(run: Runner, parents: Parents) -> None:
    arguments = parents.groups(parents.system(node_role_arn="", subnet_ids=["", ""]))
    checked = run(MODULE, check=True, **arguments)
    assert checked["changed"]
    assert not checked["failed"]
    result = run(MODULE, **arguments)
    assert result["failed"]
    assert "there is no such cluster" in result["msg"]
    assert not run.made(MODULE, **arguments, state="absent", purge=True)["changed"]
    assert run.mutations() == []


def test_what_is_missing_is_told(run: Runner, cluster: Parents) -> None:
    group = cluster.gpu(node_role_arn="", subnet_ids=[], launch_template={"name": ""})
    result = run(MODULE, **cluster.groups(group))
    assert result["failed"]
    assert "empty: node_role_arn, subnet_ids, launch_template" in result["msg"]


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ([{"name": "a"}, {"name": "a"}], "a is listed twice"),
        ([{"name": "a", "max_size": 0}], "min_size is 0 and max_size 0"),
        ([{"name": "a", "min_size": 3, "max_size": 2}], "min_size is 3 and max_size 2"),
        ([{"name": "a", "min_size": -1}], "min_size is -1"),
        ([{"name": "a", "launch_template": {"name": "x", "version": "$Latest"}}], "the number of a version"),
    ],
)
def test_wrong_arguments(run: Runner, cluster: Parents, groups: list[dict[str, Any]], told: str) -> None:
    result = run(MODULE, **cluster.groups(*groups))
    assert result["failed"]
    assert told in result["msg"]
    assert run.aws.calls() == []


def test_a_role_that_is_not_known_everywhere_yet(run: Runner, cluster: Parents) -> None:
    run.aws.refuse(
        operation="CreateNodegroup", code="InvalidParameterException", message=UNKNOWN_ROLE, status=400, times=2
    )
    result = run.made(MODULE, **cluster.groups(cluster.system()))
    assert result["node_groups"]["system"]["status"] == "ACTIVE"
    assert any("does not know the role yet" in line for line in result["waited"])


def test_another_run_makes_it_meanwhile(run: Runner, cluster: Parents) -> None:
    run.aws.refuse(operation="CreateNodegroup", code="ResourceInUseException", status=409, effect=True)
    result = run.made(MODULE, **cluster.groups(cluster.system()))
    assert result["node_groups"]["system"]["status"] == "ACTIVE"
    assert any("another run made it meanwhile" in line for line in result["waited"])


def test_a_group_that_could_not_be_made_is_made_anew_by_the_next_run(run: Runner, cluster: Parents) -> None:
    run.aws.fail(
        "nodegroup",
        "gpu",
        code="AsgInstanceLaunchFailures",
        message="Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have "
        "sufficient g6.xlarge capacity in the Availability Zone you requested.",
    )
    arguments = cluster.groups(cluster.system(), cluster.gpu())
    first = run(MODULE, **arguments)
    assert first["failed"]
    assert "node group gpu of EKS cluster west" in first["msg"]
    assert "AsgInstanceLaunchFailures: Could not launch On-Demand Instances" in first["msg"]
    assert "add zones to the pool" in first["msg"]
    assert "The next run deletes it and makes it anew, as nothing runs on it" in first["msg"]
    # The other one is there, and told.
    assert first["changed"]
    assert first["node_groups"]["system"]["status"] == "ACTIVE"
    checked = run(MODULE, check=True, **arguments)
    assert checked["changed"]
    run.aws.forget_calls()
    second = run.made(MODULE, **arguments)
    assert second["changed"]
    assert "is CREATE_FAILED" in second["warnings"][0]
    assert "deleted and made anew" in second["warnings"][0]
    assert run.mutations() == ["DeleteNodegroup", "CreateNodegroup"]
    run.unchanged(MODULE, **arguments)


def test_one_that_is_still_being_made_is_waited_for(run: Runner, cluster: Parents) -> None:
    run.aws.settings(phases=5)
    arguments = cluster.groups(cluster.system())
    assert run.made(MODULE, **arguments, wait=False)["node_groups"]["system"]["status"] == "CREATING"
    assert run.unchanged(MODULE, **arguments)["node_groups"]["system"]["status"] == "ACTIVE"


def test_one_that_goes_is_made_anew(run: Runner, cluster: Parents) -> None:
    arguments = cluster.groups(cluster.system())
    run.made(MODULE, **arguments)
    run.aws.settings(phases=5)
    run.made(MODULE, **arguments, state="absent", wait=False)
    result = run.made(MODULE, **arguments)
    assert result["changed"]
    assert result["node_groups"]["system"]["status"] == "ACTIVE"


def test_size_labels_taints_and_tags_in_place(run: Runner, cluster: Parents) -> None:
    run.made(MODULE, **cluster.groups(cluster.gpu()))
    group = run.aws.client("eks").describe_nodegroup(clusterName="west", nodegroupName="gpu")["nodegroup"]
    run.aws.client("eks").tag_resource(resourceArn=group["nodegroupArn"], tags={"team": "them"})
    run.aws.forget_calls()
    changed = cluster.gpu(
        max_size=4,
        labels={"modelplane.ai/pool": "gpu", "tier": "hot"},
        taints=[
            {"key": "nvidia.com/gpu", "value": "yes", "effect": "NO_SCHEDULE"},
            {"key": "other", "effect": "NO_EXECUTE"},
        ],
        tags={"cost": "7"},
    )
    arguments = cluster.groups(changed)
    checked = run(MODULE, check=True, **arguments)
    assert run.mutations() == []
    result = run.made(MODULE, **arguments)
    assert result["diff"] == checked["diff"]
    assert run.mutations() == ["TagResource", "UpdateNodegroupConfig"]
    (config,) = asked(run, "UpdateNodegroupConfig")
    # The autoscaler has the desired size.
    assert config["scalingConfig"] == {"minSize": 0, "maxSize": 4}
    assert config["labels"] == {"addOrUpdateLabels": {"tier": "hot"}, "removeLabels": ["modelplane.ai/gpu"]}
    assert "removeTaints" not in config["taints"]
    assert result["node_groups"]["gpu"]["tags"] == {**OURS, "team": "them", "cost": "7"}
    run.unchanged(MODULE, **arguments)
    less = cluster.groups(cluster.gpu(max_size=4, tags={"cost": "7"}))
    run.made(MODULE, **less)
    assert asked(run, "UpdateNodegroupConfig")[0]["taints"]["removeTaints"] == [
        {"key": "other", "value": "", "effect": "NO_EXECUTE"}
    ]
    run.unchanged(MODULE, **less)


@pytest.mark.parametrize(("least", "most", "desired"), [(0, 8, 3), (0, 2, 2), (4, 8, 4)])
def test_the_desired_size_is_the_autoscalers_within_bounds(
    run: Runner, cluster: Parents, least: int, most: int, desired: int
) -> None:
    run.made(MODULE, **cluster.groups(cluster.gpu()))
    run.aws.client("eks").update_nodegroup_config(
        clusterName="west", nodegroupName="gpu", scalingConfig={"minSize": 0, "maxSize": 8, "desiredSize": 3}
    )
    arguments = cluster.groups(cluster.gpu(min_size=least, max_size=most))
    assert run.made(MODULE, **arguments)["node_groups"]["gpu"]["scalingConfig"] == {
        "minSize": least,
        "maxSize": most,
        "desiredSize": desired,
    }
    run.unchanged(MODULE, **arguments)


def test_nodes_follow_the_cluster(run: Runner, cluster: Parents) -> None:
    arguments = cluster.groups(cluster.system(version="1.36"), cluster.gpu(version="1.36"))
    assert run.made(MODULE, **arguments)["node_groups"]["gpu"]["version"] == "1.35"
    # In check mode the cluster would be there by now; otherwise nodes go no further than it.
    assert run(MODULE, check=True, **arguments)["changed"]
    run.unchanged(MODULE, **arguments)
    run.made("eks_cluster", **cluster.cluster(version="1.36"))
    run.aws.forget_calls()
    result = run.made(MODULE, **cluster.groups(cluster.system(), cluster.gpu()))
    assert {group["version"] for group in result["node_groups"].values()} == {"1.36"}
    assert run.mutations() == ["UpdateNodegroupVersion"] * 2
    run.unchanged(MODULE, **cluster.groups(cluster.system(version="1.35"), cluster.gpu()))


def test_versions_of_a_launch_template_are_numbers(run: Runner, cluster: Parents) -> None:
    first = template(run, 100)
    group = templated(cluster, first)
    result = run.made(MODULE, **cluster.groups(group))
    assert asked(run, "CreateNodegroup")[0]["launchTemplate"] == {"name": "templated", "version": "1"}
    assert result["node_groups"]["gpu"]["launchTemplate"]["version"] == "1"
    run.unchanged(MODULE, **cluster.groups(group))
    second = template(run, 200)
    identity = result["node_groups"]["gpu"]["launchTemplate"]["id"]
    newer = cluster.groups({**group, "launch_template": {"id": identity, "version": str(second)}})
    run.aws.forget_calls()
    assert run(MODULE, check=True, **newer)["changed"]
    result = run.made(MODULE, **newer)
    assert asked(run, "UpdateNodegroupVersion") == [
        {"clusterName": "west", "nodegroupName": "gpu", "launchTemplate": {"id": identity, "version": "2"}}
    ]
    assert result["node_groups"]["gpu"]["launchTemplate"]["version"] == "2"
    run.unchanged(MODULE, **newer)
    # A template that is not there yet, in check mode, is not compared.
    nothing = {**group, "launch_template": {"id": "", "version": ""}}
    assert not run(MODULE, check=True, **cluster.groups(nothing))["changed"]


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("instance_types", ["g6.2xlarge"], "instanceTypes is g6.xlarge and should be g6.2xlarge"),
        ("disk_size", 200, "diskSize is 100 and should be 200"),
        ("ami_type", "AL2023_x86_64_STANDARD", "amiType is AL2023_x86_64_NVIDIA and should be"),
        ("capacity_type", "SPOT", "capacityType is ON_DEMAND and should be SPOT"),
        ("launch_template", {"name": "templated", "version": "1"}, "launchTemplate is none and should be templated"),
    ],
)
def test_what_no_group_can_change(run: Runner, cluster: Parents, field: str, value: Any, told: str) -> None:
    run.made(MODULE, **cluster.groups(cluster.system(), cluster.gpu()))
    run.aws.forget_calls()
    arguments = cluster.groups(cluster.system(max_size=3), cluster.gpu(**{field: value}))
    for check_mode in (True, False):
        result = run(MODULE, check=check_mode, **arguments)
        assert result["failed"]
        assert told in result["msg"]
        assert "Give the pool another name" in result["msg"]
        # The other group is changed all the same.
        assert result["changed"]
    assert run.mutations() == ["UpdateNodegroupConfig"]


def test_other_subnets_are_told(run: Runner, cluster: Parents) -> None:
    run.made(MODULE, **cluster.groups(cluster.gpu()))
    result = run(MODULE, **cluster.groups(cluster.gpu(subnet_ids=cluster.subnets[1:])))
    assert f"subnets is {cluster.subnets[0]} and should be" in result["msg"]


def test_an_update_that_fails(run: Runner, cluster: Parents) -> None:
    run.made(MODULE, **cluster.groups(cluster.system()))
    run.aws.fail(
        "update", "system", code="PodEvictionFailure", message="Reached max retries while trying to evict pods."
    )
    arguments = cluster.groups(cluster.system(max_size=5))
    result = run(MODULE, **arguments)
    assert result["failed"]
    assert "PodEvictionFailure: Reached max retries" in result["msg"]
    assert "PodDisruptionBudgets" in result["msg"]
    assert run.made(MODULE, **arguments)["changed"]


def test_another_update_is_under_way(run: Runner, cluster: Parents) -> None:
    run.made(MODULE, **cluster.groups(cluster.system()))
    run.aws.refuse(operation="UpdateNodegroupConfig", code="ResourceInUseException", status=409, effect=True)
    arguments = cluster.groups(cluster.system(max_size=5))
    assert run.made(MODULE, **arguments)["node_groups"]["system"]["scalingConfig"]["maxSize"] == 5
    run.unchanged(MODULE, **arguments)


def test_ours_that_are_not_listed_are_removed_with_purge(run: Runner, cluster: Parents) -> None:
    run.made(MODULE, **cluster.groups(cluster.system(), cluster.gpu()))
    eks = run.aws.client("eks")
    for name, tags in (("theirs", {}), ("elsewhere", {**OURS, "modelplane.ai/fleet": "other"})):
        eks.create_nodegroup(
            clusterName="west", nodegroupName=name, subnets=cluster.subnets, nodeRole=cluster.node_role, tags=tags
        )
    kept = cluster.groups(cluster.system())
    run.unchanged(MODULE, **kept)
    assert run(MODULE, check=True, **kept, purge=True)["removed"] == ["gpu"]
    assert run.mutations() == []
    result = run.made(MODULE, **kept, purge=True)
    assert result["removed"] == ["gpu"]
    assert result["diff"]["before"].keys() - result["diff"]["after"].keys() == {"gpu"}
    assert eks.list_nodegroups(clusterName="west")["nodegroups"] == ["elsewhere", "system", "theirs"]
    run.unchanged(MODULE, **kept, purge=True)


def test_all_of_ours_are_removed(run: Runner, cluster: Parents) -> None:
    run.made(MODULE, **cluster.groups(cluster.system(), cluster.gpu()))
    nothing = cluster.groups(state="absent")
    run.unchanged(MODULE, **nothing)
    one = cluster.groups({"name": "gpu"}, state="absent")
    assert run.made(MODULE, **one)["removed"] == ["gpu"]
    run.unchanged(MODULE, **one)
    assert run.made(MODULE, **nothing, purge=True)["removed"] == ["system"]
    run.unchanged(MODULE, **nothing, purge=True)


def test_a_deletion_that_fails(run: Runner, cluster: Parents) -> None:
    run.made(MODULE, **cluster.groups(cluster.system()))
    run.aws.fail(
        "delete nodegroup", "system", code="Ec2SecurityGroupDeletionFailure", message="resource sg-1 has a dependency"
    )
    arguments = cluster.groups(state="absent", purge=True)
    result = run(MODULE, **arguments)
    assert result["failed"]
    assert "it could not be deleted: Ec2SecurityGroupDeletionFailure: resource sg-1 has a dependency" in result["msg"]
    assert run.made(MODULE, **arguments)["removed"] == ["system"]


@pytest.mark.parametrize("have", [{}, {**OURS, "modelplane.ai/fleet": "other"}, {**OURS, "modelplane.ai/cluster": "x"}])
@pytest.mark.parametrize("state", ["present", "absent"])
def test_what_is_not_ours_is_left_alone(run: Runner, cluster: Parents, have: dict[str, str], state: str) -> None:
    run.aws.client("eks").create_nodegroup(
        clusterName="west", nodegroupName="system", subnets=cluster.subnets, nodeRole=cluster.node_role, tags=have
    )
    run.aws.forget_calls()
    result = run(MODULE, **cluster.groups(cluster.system(max_size=7), state=state))
    assert result["failed"]
    assert "neither changed nor deleted" in result["msg"]
    assert run.mutations() == []


def test_a_cluster_that_is_not_ours_gets_no_nodes(run: Runner, parents: Parents) -> None:
    run.aws.client("eks").create_cluster(
        name="west", roleArn=parents.cluster_role, resourcesVpcConfig={"subnetIds": parents.subnets}
    )
    run.aws.forget_calls()
    result = run(MODULE, **parents.groups(parents.system()))
    assert "EKS cluster west is there already and was not made by modelplane.fleet" in result["msg"]
    assert run.mutations() == []


def test_a_run_that_ends_anywhere_is_gone_on_with(run: Runner, cluster: Parents) -> None:
    run.made(MODULE, **cluster.groups(cluster.gpu(), {**cluster.gpu(), "name": "old"}))
    wanted = cluster.groups(cluster.system(), cluster.gpu(max_size=3), purge=True, tags={**TAGS, "cost": "7"})
    run.through_refusals(MODULE, **wanted)
