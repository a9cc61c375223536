# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Addons of EKS: brought to versions and configurations together, with or without nodes to run on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.parents import OURS, TAGS, make_cluster
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.runner import Runner

MODULE = "eks_addon"
ALL = ["vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent", "aws-efs-csi-driver"]


@pytest.fixture
def west(run: Runner) -> Runner:
    """A cluster whose addons do not mind that it has no nodes."""
    run.aws.settings(phases=1, addons_need_nodes=False)
    make_cluster(run.aws)
    return run


def addon(run: Runner, name: str) -> dict[str, Any]:
    found: dict[str, Any] = run.aws.client("eks").describe_addon(clusterName="west", addonName=name)["addon"]
    return found


def names(run: Runner) -> list[str]:
    found: list[str] = run.aws.client("eks").list_addons(clusterName="west")["addons"]
    return found


def wanted(*entries: dict[str, Any] | str, **more: Any) -> dict[str, Any]:
    listed = [{"name": entry} if isinstance(entry, str) else entry for entry in entries]
    return {"cluster": "west", "addons": listed, "tags": TAGS, **more}


def test_all_are_made_together_and_waited_for(west: Runner) -> None:
    done = west.all_three(MODULE, **wanted(*ALL))
    assert {name: found["status"] for name, found in done["addons"].items()} == dict.fromkeys(ALL, "ACTIVE")
    assert sorted(names(west)) == sorted(ALL)
    for name in ALL:
        assert addon(west, name)["tags"] == OURS
    west.aws.forget_calls()
    creations = [call for call in west.aws.calls() if call["operation"] == "CreateAddon"]
    assert creations == []


def test_they_take_over_what_eks_put_there_itself(west: Runner) -> None:
    west.aws.forget_calls()
    west(MODULE, **wanted("coredns"))
    (call,) = west.aws.calls(mutating=True)
    assert (call["operation"], call["parameters"]["resolveConflicts"]) == ("CreateAddon", "OVERWRITE")
    assert "addonVersion" not in call["parameters"]
    assert "configurationValues" not in call["parameters"]


def test_version_configuration_and_tags_follow(west: Runner) -> None:
    west(MODULE, **wanted("vpc-cni", {"name": "coredns", "version": "v1.12.4-eksbuild.1"}))
    west.aws.client("eks").tag_resource(resourceArn=addon(west, "coredns")["addonArn"], tags={"cost": "7"})
    entry = {"name": "coredns", "version": "v1.13.1-eksbuild.1", "configuration": {"replicaCount": 3}}
    done = west.all_three(MODULE, **wanted("vpc-cni", entry, tags={**TAGS, "team": "a"}))
    found = addon(west, "coredns")
    assert found["addonVersion"] == "v1.13.1-eksbuild.1"
    assert json.loads(found["configurationValues"]) == {"replicaCount": 3}
    assert found["tags"] == {**OURS, "team": "a", "cost": "7"}
    assert done["diff"]["before"]["coredns"]["version"] == "v1.12.4-eksbuild.1"
    assert done["diff"]["after"]["coredns"]["configuration"] == {"replicaCount": 3}
    west.all_three(MODULE, **wanted("vpc-cni", "coredns", tags={**TAGS, "team": "a"}))
    found = addon(west, "coredns")
    assert json.loads(found["configurationValues"]) == {}
    # No version is wanted now, so that the one that is there stays.
    assert found["addonVersion"] == "v1.13.1-eksbuild.1"


def test_a_configuration_by_hand_is_replaced_and_the_same_in_another_order_is_not(west: Runner) -> None:
    entry = {"name": "coredns", "configuration": {"replicaCount": 3, "resources": {"limits": {"cpu": "1"}}}}
    west(MODULE, **wanted(entry))
    west.aws.client("eks").update_addon(
        clusterName="west",
        addonName="coredns",
        configurationValues='{"resources":{"limits":{"cpu":"1"}},"replicaCount":3}',
    )
    while addon(west, "coredns")["status"] == "UPDATING":
        pass
    assert west(MODULE, **wanted(entry))["changed"] is False
    west.aws.client("eks").update_addon(
        clusterName="west", addonName="coredns", configurationValues="replicaCount: 9\n"
    )
    # The update is under way, and is waited for before ours.
    assert west(MODULE, **wanted(entry))["changed"]
    assert json.loads(addon(west, "coredns")["configurationValues"])["replicaCount"] == 3


def test_an_addon_without_nodes_is_a_warning(west: Runner) -> None:
    west.aws.settings(addons_need_nodes=True)
    done = west(MODULE, **wanted(*ALL))
    assert not done["failed"], done["msg"]
    assert done["addons"]["coredns"]["status"] == "DEGRADED"
    assert done["addons"]["vpc-cni"]["status"] == "ACTIVE"
    told = "\n".join(done["warnings"])
    assert "addon coredns of cluster west is DEGRADED: InsufficientNumberOfReplicas" in told
    assert "system node group" in told
    assert west(MODULE, **wanted(*ALL))["changed"] is False


def test_one_that_could_not_be_made_is_told_and_made_anew(west: Runner) -> None:
    west.aws.fail("addon", "coredns", code="ConfigurationConflict", message="Conflicts found: Deployment coredns.")
    failed = west(MODULE, **wanted("vpc-cni", "coredns"))
    assert "addon coredns could not be made: ConfigurationConflict: Conflicts found" in failed["msg"]
    assert "The next run makes it anew" in failed["msg"]
    assert failed["changed"]
    west.all_three(MODULE, **wanted("vpc-cni", "coredns"))
    assert addon(west, "coredns")["status"] == "ACTIVE"


def test_an_update_that_fails_is_told_with_its_errors(west: Runner) -> None:
    west(MODULE, **wanted("coredns"))
    west.aws.fail("update", "coredns", code="ConfigurationConflict", message="Conflicts found: Deployment coredns.")
    entry = {"name": "coredns", "configuration": {"replicaCount": 3}}
    failed = west(MODULE, **wanted(entry))
    assert "update addon coredns of cluster west: the update is Failed: ConfigurationConflict" in failed["msg"]
    west.all_three(MODULE, **wanted(entry))
    assert json.loads(addon(west, "coredns")["configurationValues"]) == {"replicaCount": 3}


def test_what_is_not_ours_stays_and_is_told_where_it_differs(west: Runner) -> None:
    eks = west.aws.client("eks")
    eks.create_addon(clusterName="west", addonName="coredns", addonVersion="v1.12.4-eksbuild.1")
    while addon(west, "coredns")["status"] != "ACTIVE":
        pass
    west.aws.forget_calls()
    same = west(MODULE, **wanted("coredns"))
    assert (same["changed"], same["problems"]) == (False, [])
    other = west(MODULE, **wanted({"name": "coredns", "version": "v1.13.1-eksbuild.1"}))
    assert not other["failed"]
    assert other["changed"] is False
    assert "addon coredns of cluster west is there already" in other["problems"][0]
    assert "version v1.12.4-eksbuild.1, not v1.13.1-eksbuild.1" in other["problems"][0]
    assert "neither changed nor deleted" in west(MODULE, **wanted("coredns", state="absent"))["msg"]
    assert west(MODULE, **wanted(state="absent", purge=True))["removed"] == []
    assert west.aws.calls(mutating=True) == []


def test_those_of_ours_that_are_no_longer_listed_are_purged(west: Runner) -> None:
    west.aws.client("eks").create_addon(clusterName="west", addonName="metrics-server")
    west(MODULE, **wanted(*ALL))
    done = west.all_three(MODULE, **wanted("vpc-cni", "coredns", purge=True))
    assert done["removed"] == ["aws-efs-csi-driver", "eks-pod-identity-agent", "kube-proxy"]
    assert sorted(names(west)) == ["coredns", "metrics-server", "vpc-cni"]
    assert west.all_three(MODULE, **wanted("coredns", state="absent"))["removed"] == ["coredns"]
    assert west.all_three(MODULE, **wanted(state="absent", purge=True))["removed"] == ["vpc-cni"]
    assert names(west) == ["metrics-server"]


def test_one_that_is_being_made_is_deleted_once_it_is(west: Runner) -> None:
    west.aws.settings(phases=3)
    west(MODULE, **wanted("coredns", wait=False))
    assert west(MODULE, **wanted("coredns", state="absent"))["removed"] == ["coredns"]
    assert names(west) == []


def test_an_addon_that_the_cluster_has_outgrown_takes_the_default_version(run: Runner) -> None:
    run.aws.settings(addons_need_nodes=False)
    make_cluster(run.aws, "1.35")
    run(MODULE, **wanted("kube-proxy", "vpc-cni"))
    old = addon(run, "kube-proxy")["addonVersion"]
    eks = run.aws.client("eks")
    eks.update_cluster_version(name="west", version="1.36")
    while eks.describe_cluster(name="west")["cluster"]["status"] != "ACTIVE":
        pass
    done = run.all_three(MODULE, **wanted("kube-proxy", "vpc-cni"))
    assert list(done["diff"]["after"]) == ["kube-proxy"]
    assert done["diff"]["before"]["kube-proxy"]["version"] == old
    assert addon(run, "kube-proxy")["addonVersion"] == "v1.36.0-eksbuild.2"


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
def test_after_a_fault_nothing_is_made_twice(west: Runner, after: bool) -> None:
    west.aws.refuse(operation="CreateAddon", code="ServerException", message="Lost.", status=500, after=after)
    done = west(MODULE, **wanted("coredns"))
    assert not done["failed"], done["msg"]
    assert done["addons"]["coredns"]["status"] == "ACTIVE"
    assert west(MODULE, **wanted("coredns"))["changed"] is False


def test_of_a_cluster_that_is_not_there_only_check_mode_tells(run: Runner) -> None:
    told = run(MODULE, check=True, **wanted(*ALL))
    assert told["changed"]
    assert list(told["diff"]["after"]) == ALL
    assert "ResourceNotFoundException" in run(MODULE, **wanted(*ALL))["msg"]
