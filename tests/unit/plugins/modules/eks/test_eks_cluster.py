# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module eks_cluster against the double of AWS."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.modules import eks_cluster
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from ansible_collections.modelplane.fleet.tests.aws.module_run import run_module
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.eks.parents import (
    OURS,
    TAGS,
    Parents,
    make_role,
    mutations,
)

UNKNOWN_ROLE = "The role could not be assumed because it does not exist or the trusted entity is not correct"


def run(arguments: dict[str, Any], check_mode: bool = False) -> dict[str, Any]:
    return run_module(eks_cluster, arguments, check_mode=check_mode)


def made(arguments: dict[str, Any]) -> dict[str, Any]:
    result = run(arguments)
    assert not result["failed"], result["msg"]
    return result


def unchanged(aws: Double, arguments: dict[str, Any]) -> dict[str, Any]:
    """The result of a run that changes nothing and sends nothing that would."""
    aws.forget_calls()
    result = made(arguments)
    assert not result["changed"]
    assert mutations(aws) == []
    return result


def test_made_and_the_second_run_changes_nothing(aws: Double, parents: Parents) -> None:
    arguments = parents.cluster(aws)
    result = made(arguments)
    assert result["changed"]
    cluster = result["cluster"]
    assert (cluster["status"], cluster["version"]) == ("ACTIVE", "1.35")
    assert cluster["resourcesVpcConfig"]["clusterSecurityGroupId"].startswith("sg-")
    assert isinstance(cluster["createdAt"], str)
    (call,) = aws.calls(mutating=True)
    asked = {key: value for key, value in call["parameters"].items() if key != "clientRequestToken"}
    assert asked == {
        "name": "west",
        "version": "1.35",
        "roleArn": parents.cluster_role,
        "resourcesVpcConfig": {
            "subnetIds": parents.subnets,
            "endpointPrivateAccess": True,
            "endpointPublicAccess": True,
        },
        "accessConfig": {
            "authenticationMode": "API_AND_CONFIG_MAP",
            "bootstrapClusterCreatorAdminPermissions": True,
        },
        "tags": OURS,
    }
    assert result["diff"]["before"] == {}
    assert result["diff"]["after"]["version"] == "1.35"
    assert any("is ACTIVE" in line for line in result["waited"])
    assert result["waited"] == result["logged"]
    again = unchanged(aws, arguments)
    assert again["diff"]["before"] == again["diff"]["after"]
    assert not run(arguments, check_mode=True)["changed"]
    assert aws.invalid() == []


def test_check_mode_of_one_that_would_be_made_needs_nothing(aws: Double, parents: Parents) -> None:
    result = run(parents.cluster(aws, role_arn="", subnet_ids=["", "", ""]), check_mode=True)
    assert not result["failed"]
    assert result["changed"]
    assert result["cluster"]["endpoint"] == ""
    assert result["cluster"]["resourcesVpcConfig"]["clusterSecurityGroupId"] == ""
    assert mutations(aws) == []


def test_what_is_missing_is_told_before_anything_is_sent(aws: Double, parents: Parents) -> None:
    result = run(parents.cluster(aws, role_arn="", subnet_ids=[""]))
    assert result["failed"]
    assert "role_arn, subnet_ids" in result["msg"]
    assert mutations(aws) == []


def test_a_role_that_is_not_known_everywhere_yet(aws: Double, parents: Parents) -> None:
    aws.refuse(operation="CreateCluster", code="InvalidParameterException", message=UNKNOWN_ROLE, status=400, times=3)
    result = made(parents.cluster(aws))
    assert result["cluster"]["status"] == "ACTIVE"
    assert sum("does not know the role yet" in line for line in result["waited"]) == 1
    assert mutations(aws) == ["CreateCluster"] * 4


def test_a_role_that_stays_wrong(aws: Double, parents: Parents) -> None:
    result = run(parents.cluster(aws, role_arn=parents.node_role, wait_timeout=1))
    assert result["failed"]
    assert "could not be assumed" in result["msg"]
    assert "trust policy" in result["msg"]


def test_another_fault_of_the_request_is_told_at_once(aws: Double, parents: Parents) -> None:
    result = run(parents.cluster(aws, version="1.99"))
    assert result["failed"]
    assert "unsupported Kubernetes version" in result["msg"]
    assert "describe-cluster-versions" in result["msg"]
    assert mutations(aws) == ["CreateCluster"]


def test_another_run_makes_it_meanwhile(aws: Double, parents: Parents) -> None:
    aws.refuse(operation="CreateCluster", code="ResourceInUseException", status=409, after=True)
    result = made(parents.cluster(aws))
    assert result["cluster"]["status"] == "ACTIVE"
    assert any("another run made it meanwhile" in line for line in result["waited"])


def test_one_that_is_still_being_made_is_waited_for(aws: Double, parents: Parents) -> None:
    aws.settings(phases=6)
    first = made(parents.cluster(aws, wait=False))
    assert first["cluster"]["status"] == "CREATING"
    second = unchanged(aws, parents.cluster(aws))
    assert second["cluster"]["status"] == "ACTIVE"


def test_one_that_is_being_made_is_not_changed_without_waiting(aws: Double, parents: Parents) -> None:
    aws.settings(phases=100)
    made(parents.cluster(aws, wait=False))
    result = unchanged(aws, parents.cluster(aws, public_access=False, wait=False))
    assert "is CREATING: what differs is changed once that is over" in result["warnings"][0]


def test_one_that_goes_is_made_anew(aws: Double, parents: Parents) -> None:
    made(parents.cluster(aws))
    aws.settings(phases=6)
    gone = made(parents.cluster(aws, state="absent", wait=False))
    assert gone["changed"]
    assert run(parents.cluster(aws), check_mode=True)["changed"]
    assert "being deleted" in run(parents.cluster(aws, wait=False))["msg"]
    result = made(parents.cluster(aws))
    assert result["changed"]
    assert result["cluster"]["status"] == "ACTIVE"


def test_a_creation_that_failed(aws: Double, parents: Parents) -> None:
    aws.fail("cluster", code="InsufficientFreeAddresses", message="No free addresses in subnet-1.")
    first = run(parents.cluster(aws))
    second = run(parents.cluster(aws))
    for result in (first, second):
        assert result["failed"]
        assert "its creation failed: InsufficientFreeAddresses: No free addresses in subnet-1" in result["msg"]
        assert "subnetCidrs" in result["msg"]
        assert "teardown.yml" in result["msg"]
    assert made(parents.cluster(aws, state="absent"))["changed"]
    assert made(parents.cluster(aws))["changed"]


def test_the_time_is_over(aws: Double, parents: Parents) -> None:
    aws.settings(phases=4)
    result = run(parents.cluster(aws, wait_timeout=0))
    assert result["failed"]
    assert "last seen: EKS cluster west is CREATING" in result["msg"]
    assert made(parents.cluster(aws))["cluster"]["status"] == "ACTIVE"


def test_versions_one_after_the_other(aws: Double, parents: Parents) -> None:
    made(parents.cluster(aws, version="1.33"))
    aws.forget_calls()
    newer = parents.cluster(aws, version="1.36")
    checked = run(newer, check_mode=True)
    assert checked["changed"]
    assert mutations(aws) == []
    result = made(newer)
    assert [call["parameters"]["version"] for call in aws.calls(mutating=True)] == ["1.34", "1.35", "1.36"]
    assert result["cluster"]["version"] == "1.36"
    assert result["diff"] == checked["diff"]
    assert result["diff"]["before"]["version"] == "1.33"
    unchanged(aws, newer)


def test_no_further_ahead_of_the_nodes_than_they_can_follow(aws: Double, parents: Parents) -> None:
    made(parents.cluster(aws, version="1.32"))
    result = made(parents.cluster(aws, version="1.36"))
    assert result["cluster"]["version"] == "1.35"
    assert "run again for 1.36" in result["warnings"][0]
    assert made(parents.cluster(aws, version="1.36"))["cluster"]["version"] == "1.36"


def test_what_cannot_be_taken_back_stays(aws: Double, parents: Parents) -> None:
    made(parents.cluster(aws, version="1.36", authentication_mode="API"))
    result = unchanged(aws, parents.cluster(aws, version="1.35"))
    assert "runs Kubernetes 1.36, which cannot go back to 1.35" in result["warnings"][0]
    assert "authentication mode API, which cannot go back to API_AND_CONFIG_MAP" in result["warnings"][1]


def test_all_differences_one_update_at_a_time(aws: Double, parents: Parents) -> None:
    made(parents.cluster(aws, authentication_mode="CONFIG_MAP", subnet_ids=parents.subnets[:2]))
    arn = run(parents.cluster(aws, state="absent"), check_mode=True) and aws.client("eks").describe_cluster(name="west")
    arn = arn["cluster"]["arn"]
    aws.client("eks").tag_resource(resourceArn=arn, tags={"team": "them", "modelplane.ai/old": "1"})
    aws.forget_calls()
    wanted = parents.cluster(
        aws, authentication_mode="API", public_access_cidrs=["10.1.2.3/8", "192.0.2.7/32"], tags={**TAGS, "cost": "7"}
    )
    result = made(wanted)
    assert mutations(aws) == ["TagResource", "UntagResource", *["UpdateClusterConfig"] * 4]
    cluster = result["cluster"]
    assert cluster["accessConfig"]["authenticationMode"] == "API"
    assert cluster["resourcesVpcConfig"]["publicAccessCidrs"] == ["10.0.0.0/8", "192.0.2.7/32"]
    assert cluster["resourcesVpcConfig"]["subnetIds"] == sorted(parents.subnets)
    assert cluster["tags"] == {**OURS, "team": "them", "cost": "7"}
    assert result["diff"]["after"]["subnetIds"] == sorted(parents.subnets)
    unchanged(aws, wanted)
    # Networks that nobody speaks of any more stay, and those that are written in another order are the same.
    unchanged(aws, {**wanted, "public_access_cidrs": []})
    unchanged(aws, {**wanted, "public_access_cidrs": ["192.0.2.7/32", "10.0.0.0/8"]})
    assert made({**wanted, "public_access": False})["cluster"]["resourcesVpcConfig"]["endpointPublicAccess"] is False
    assert aws.invalid() == []


def test_subnets_that_are_not_there_yet_are_not_compared(aws: Double, parents: Parents) -> None:
    made(parents.cluster(aws))
    result = run(parents.cluster(aws, role_arn="", subnet_ids=[parents.subnets[0], ""]), check_mode=True)
    assert not result["changed"]


def test_another_role_needs_another_cluster(aws: Double, parents: Parents) -> None:
    made(parents.cluster(aws))
    other = make_role(aws, "other", "eks.amazonaws.com", "AmazonEKSClusterPolicy")
    aws.forget_calls()
    for check_mode in (True, False):
        result = run(parents.cluster(aws, role_arn=other, public_access=False), check_mode=check_mode)
        assert result["failed"]
        assert "only a new cluster can have" in result["msg"]
    assert mutations(aws) == []


def test_an_update_that_fails(aws: Double, parents: Parents) -> None:
    made(parents.cluster(aws))
    aws.fail("update", "west", code="InsufficientFreeAddresses", message="No addresses left.")
    result = run(parents.cluster(aws, version="1.36"))
    assert result["failed"]
    assert "update EKS cluster west to Kubernetes 1.36 failed: InsufficientFreeAddresses: No addresses" in result["msg"]
    assert "subnetCidrs" in result["msg"]
    assert made(parents.cluster(aws, version="1.36"))["changed"]


def test_another_update_is_under_way(aws: Double, parents: Parents) -> None:
    made(parents.cluster(aws))
    aws.settings(phases=4)
    aws.client("eks").update_cluster_config(
        name="west", resourcesVpcConfig={"endpointPublicAccess": False, "endpointPrivateAccess": True}
    )
    result = made(parents.cluster(aws))
    assert result["changed"]
    assert result["cluster"]["resourcesVpcConfig"]["endpointPublicAccess"] is True


def test_an_update_that_another_run_begins_first(aws: Double, parents: Parents) -> None:
    made(parents.cluster(aws))
    aws.refuse(operation="UpdateClusterVersion", code="ResourceInUseException", status=409, after=True)
    result = made(parents.cluster(aws, version="1.36"))
    assert result["cluster"]["version"] == "1.36"


def test_without_waiting_one_update_is_begun(aws: Double, parents: Parents) -> None:
    made(parents.cluster(aws, version="1.33"))
    aws.settings(phases=100)
    result = made(parents.cluster(aws, version="1.36", public_access=False, wait=False))
    assert result["changed"]
    assert result["cluster"]["status"] == "UPDATING"


@pytest.mark.parametrize("have", [{}, {**OURS, "modelplane.ai/fleet": "other"}, {"modelplane.ai/fleet": "default"}])
@pytest.mark.parametrize("state", ["present", "absent"])
def test_what_is_not_ours_is_left_alone(aws: Double, parents: Parents, have: dict[str, str], state: str) -> None:
    aws.client("eks").create_cluster(
        name="west", roleArn=parents.cluster_role, resourcesVpcConfig={"subnetIds": parents.subnets}, tags=have
    )
    aws.forget_calls()
    for check_mode in (True, False):
        result = run(parents.cluster(aws, state=state), check_mode=check_mode)
        assert result["failed"]
        assert "neither changed nor deleted" in result["msg"]
    assert mutations(aws) == []


def test_deleted_once(aws: Double, parents: Parents) -> None:
    made(parents.cluster(aws))
    arguments = parents.cluster(aws, state="absent")
    aws.forget_calls()
    assert run(arguments, check_mode=True)["changed"]
    assert mutations(aws) == []
    result = made(arguments)
    assert result["changed"]
    assert result["cluster"] == {}
    assert result["diff"]["before"]["name"] == "west"
    assert result["diff"]["after"] == {}
    unchanged(aws, arguments)
    assert not run(arguments, check_mode=True)["changed"]


def test_not_deleted_while_it_has_node_groups(aws: Double, parents: Parents) -> None:
    made(parents.cluster(aws))
    aws.client("eks").create_nodegroup(
        clusterName="west", nodegroupName="theirs", subnets=parents.subnets, nodeRole=parents.node_role
    )
    result = run(parents.cluster(aws, state="absent"))
    assert result["failed"]
    assert "it has node groups: theirs" in result["msg"]


def test_a_deletion_that_fails(aws: Double, parents: Parents) -> None:
    made(parents.cluster(aws))
    aws.fail("delete cluster", "west", code="AccessDenied", message="No right to delete interfaces.")
    result = run(parents.cluster(aws, state="absent"))
    assert result["failed"]
    assert "could not be deleted: AccessDenied: No right to delete interfaces" in result["msg"]
    assert made(parents.cluster(aws, state="absent"))["changed"]


def test_one_that_is_changing_is_deleted_after_that(aws: Double, parents: Parents) -> None:
    aws.settings(phases=5)
    made(parents.cluster(aws, wait=False))
    assert made(parents.cluster(aws, state="absent"))["changed"]


def test_a_run_that_ends_anywhere_is_gone_on_with(aws: Double, parents: Parents) -> None:
    made(parents.cluster(aws, version="1.33", authentication_mode="CONFIG_MAP", subnet_ids=parents.subnets[:2]))
    wanted = parents.cluster(aws, tags={**TAGS, "cost": "7"})
    aws.refuse_each_once()
    for _ in range(20):
        result = run(wanted)
        if not result["failed"]:
            break
        assert "AccessDenied" in result["msg"]
    aws.refuse_each_once(enabled=False)
    unchanged(aws, wanted)


def test_secrets_do_not_show(aws: Double, parents: Parents) -> None:
    aws.settings(access_keys=["AKIAANOTHERKEY"])
    secrets = {"secret_key": "s3cr3t-of-the-account", "session_token": "t0k3n-of-the-session"}
    result = run({**parents.cluster(aws), **secrets})
    aws.settings(access_keys=[])
    assert result["failed"]
    told = json.dumps(result)
    assert not any(value in told for value in (*secrets.values(), aws.credentials["access_key"]))
    assert "access key" in result["msg"]
