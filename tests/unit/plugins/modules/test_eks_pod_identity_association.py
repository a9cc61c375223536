# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Pod identity associations of EKS."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.parents import OURS, TAGS, make_cluster, make_role
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.runner import Runner

MODULE = "eks_pod_identity_association"


def pod_role(run: Runner, name: str) -> str:
    return make_role(run.aws, name, "pods.eks.amazonaws.com")


@pytest.fixture
def west(run: Runner) -> Runner:
    make_cluster(run.aws)
    return run


def wanted(*accounts: str, role: str = "", **more: Any) -> dict[str, Any]:
    listed = [{"namespace": "kube-system", "service_account": account, "role_arn": role} for account in accounts]
    return {"cluster": "west", "associations": listed, "tags": TAGS, **more}


def live(west: Runner) -> dict[str, dict[str, Any]]:
    eks = west.aws.client("eks")
    found = eks.list_pod_identity_associations(clusterName="west")["associations"]
    return {
        entry["serviceAccount"]: eks.describe_pod_identity_association(
            clusterName="west", associationId=entry["associationId"]
        )["association"]
        for entry in found
    }


def test_they_are_made_changed_in_place_and_purged(west: Runner) -> None:
    first, second = pod_role(west, "first"), pod_role(west, "second")
    done = west.all_three(MODULE, **wanted("efs-csi-controller-sa", "cluster-autoscaler", role=first))
    found = live(west)
    assert [entry["associationId"] for entry in done["associations"]] == [
        found[account]["associationId"] for account in ("efs-csi-controller-sa", "cluster-autoscaler")
    ]
    assert {(entry["namespace"], entry["roleArn"]) for entry in found.values()} == {("kube-system", first)}
    assert all(entry["tags"] == OURS for entry in found.values())
    listed = wanted("efs-csi-controller-sa", role=second, purge=True, tags={**TAGS, "team": "a"})
    changed = west.all_three(MODULE, **listed)
    assert changed["removed"] == ["kube-system/cluster-autoscaler"]
    after = live(west)
    assert list(after) == ["efs-csi-controller-sa"]
    assert after["efs-csi-controller-sa"]["associationId"] == found["efs-csi-controller-sa"]["associationId"]
    assert (after["efs-csi-controller-sa"]["roleArn"], after["efs-csi-controller-sa"]["tags"]) == (
        second,
        {**OURS, "team": "a"},
    )
    gone = west.all_three(MODULE, cluster="west", tags=TAGS, purge=True, state="absent")
    assert gone["removed"] == ["kube-system/efs-csi-controller-sa"]
    assert live(west) == {}


def test_what_is_not_ours_is_refused_unless_it_is_the_same(west: Runner) -> None:
    first, second = pod_role(west, "first"), pod_role(west, "second")
    west.aws.client("eks").create_pod_identity_association(
        clusterName="west", namespace="kube-system", serviceAccount="robot", roleArn=first
    )
    west.aws.forget_calls()
    assert west(MODULE, **wanted("robot", role=first))["changed"] is False
    assert "kube-system/robot in cluster west is there already" in west(MODULE, **wanted("robot", role=second))["msg"]
    assert "neither changed nor deleted" in west(MODULE, **wanted("robot", state="absent"))["msg"]
    assert west(MODULE, cluster="west", tags=TAGS, purge=True)["removed"] == []
    assert west.aws.calls(mutating=True) == []


def test_a_role_that_eks_does_not_know_yet_is_waited_for(west: Runner) -> None:
    role = pod_role(west, "new")
    west.aws.refuse(
        operation="CreatePodIdentityAssociation",
        code="InvalidParameterException",
        message="Role provided in the request does not exist.",
        times=2,
    )
    done = west(MODULE, **wanted("robot", role=role))
    assert not done["failed"], done["msg"]
    assert live(west)["robot"]["roleArn"] == role
    assert "EKS does not know the role yet" in done["waited"][0]


def test_a_role_that_never_comes_is_told_as_eks_says_it(west: Runner) -> None:
    role = pod_role(west, "known").replace("known", "unknown")
    failed = west(MODULE, **wanted("robot", role=role), wait_timeout=0)
    assert "create the pod identity association of kube-system/robot in cluster west: Invalid" in failed["msg"]
    assert "role" in failed["msg"].lower()
    assert live(west) == {}


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
def test_after_a_fault_nothing_is_made_twice(west: Runner, after: bool) -> None:
    role = pod_role(west, "robot")
    operation = "CreatePodIdentityAssociation"
    west.aws.refuse(operation=operation, code="ServerException", message="Lost.", status=500, after=after)
    done = west(MODULE, **wanted("robot", role=role))
    assert not done["failed"], done["msg"]
    assert list(live(west)) == ["robot"]
    assert west(MODULE, **wanted("robot", role=role))["changed"] is False


def test_in_check_mode_neither_cluster_nor_role_need_be_there(run: Runner) -> None:
    told = run(MODULE, check=True, **wanted("robot"))
    assert told["changed"]
    assert told["associations"][0]["associationId"] == ""
    assert "associations[0].role_arn: it is empty" in run(MODULE, **wanted("robot"))["msg"]
    assert "kube-system/robot is listed twice" in run(MODULE, **wanted("robot", "robot", role="arn"))["msg"]
