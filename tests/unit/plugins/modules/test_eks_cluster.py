# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module eks_cluster against the double of AWS."""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.parents import OURS, TAGS, Parents, make_role
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.runner import Runner

MODULE = "eks_cluster"
UNKNOWN_ROLE = "The role could not be assumed because it does not exist or the trusted entity is not correct"


def test_made_and_the_second_run_changes_nothing(run: Runner, parents: Parents) -> None:
    arguments = parents.cluster()
    result = run.made(MODULE, **arguments)
    assert result["changed"]
    cluster = result["cluster"]
    assert (cluster["status"], cluster["version"]) == ("ACTIVE", "1.35")
    assert cluster["resourcesVpcConfig"]["clusterSecurityGroupId"].startswith("sg-")
    assert isinstance(cluster["createdAt"], str)
    (call,) = run.aws.calls(mutating=True)
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
    again = run.unchanged(MODULE, **arguments)
    assert again["diff"]["before"] == again["diff"]["after"]
    assert not run(MODULE, check=True, **arguments)["changed"]


def test_check_mode_of_one_that_would_be_made_needs_nothing(run: Runner, parents: Parents) -> None:
    result = run(MODULE, check=True, **parents.cluster(role_arn="", subnet_ids=["", "", ""]))
    assert not result["failed"]
    assert result["changed"]
    assert result["cluster"]["endpoint"] == ""
    assert result["cluster"]["resourcesVpcConfig"]["clusterSecurityGroupId"] == ""
    assert run.mutations() == []


def test_what_is_missing_is_told_before_anything_is_sent(run: Runner, parents: Parents) -> None:
    result = run(MODULE, **parents.cluster(role_arn="", subnet_ids=[""]))
    assert result["failed"]
    assert "role_arn, subnet_ids" in result["msg"]
    assert run.mutations() == []


def test_a_role_that_is_not_known_everywhere_yet(run: Runner, parents: Parents) -> None:
    run.aws.refuse(
        operation="CreateCluster", code="InvalidParameterException", message=UNKNOWN_ROLE, status=400, times=3
    )
    result = run.made(MODULE, **parents.cluster())
    assert result["cluster"]["status"] == "ACTIVE"
    assert sum("does not know the role yet" in line for line in result["waited"]) == 1
    assert run.mutations() == ["CreateCluster"] * 4


def test_a_role_that_stays_wrong(run: Runner, parents: Parents) -> None:
    result = run(MODULE, **parents.cluster(role_arn=parents.node_role, wait_timeout=1))
    assert result["failed"]
    assert "could not be assumed" in result["msg"]
    assert "trust policy" in result["msg"]


def test_another_fault_of_the_request_is_told_at_once(run: Runner, parents: Parents) -> None:
    result = run(MODULE, **parents.cluster(version="1.99"))
    assert result["failed"]
    assert "unsupported Kubernetes version" in result["msg"]
    assert "describe-cluster-versions" in result["msg"]
    assert run.mutations() == ["CreateCluster"]


def test_another_run_makes_it_meanwhile(run: Runner, parents: Parents) -> None:
    run.aws.refuse(operation="CreateCluster", code="ResourceInUseException", status=409, effect=True)
    result = run.made(MODULE, **parents.cluster())
    assert result["cluster"]["status"] == "ACTIVE"
    assert any("another run made it meanwhile" in line for line in result["waited"])


def test_one_that_is_still_being_made_is_waited_for(run: Runner, parents: Parents) -> None:
    run.aws.settings(phases=6)
    first = run.made(MODULE, **parents.cluster(wait=False))
    assert first["cluster"]["status"] == "CREATING"
    second = run.unchanged(MODULE, **parents.cluster())
    assert second["cluster"]["status"] == "ACTIVE"


def test_one_that_is_being_made_is_not_changed_without_waiting(run: Runner, parents: Parents) -> None:
    run.aws.settings(phases=100)
    run.made(MODULE, **parents.cluster(wait=False))
    result = run.unchanged(MODULE, **parents.cluster(public_access=False, wait=False))
    assert "is CREATING: what differs is changed once that is over" in result["warnings"][0]


def test_one_that_goes_is_made_anew(run: Runner, parents: Parents) -> None:
    run.made(MODULE, **parents.cluster())
    run.aws.settings(phases=6)
    gone = run.made(MODULE, **parents.cluster(state="absent", wait=False))
    assert gone["changed"]
    assert run(MODULE, check=True, **parents.cluster())["changed"]
    assert "being deleted" in run(MODULE, **parents.cluster(wait=False))["msg"]
    result = run.made(MODULE, **parents.cluster())
    assert result["changed"]
    assert result["cluster"]["status"] == "ACTIVE"


def test_a_creation_that_failed(run: Runner, parents: Parents) -> None:
    run.aws.fail("cluster", code="InsufficientFreeAddresses", message="No free addresses in subnet-1.")
    first = run(MODULE, **parents.cluster())
    second = run(MODULE, **parents.cluster())
    for result in (first, second):
        assert result["failed"]
        assert "its creation failed: InsufficientFreeAddresses: No free addresses in subnet-1" in result["msg"]
        assert "subnetCidrs" in result["msg"]
        assert "teardown.yml" in result["msg"]
    assert run.made(MODULE, **parents.cluster(state="absent"))["changed"]
    assert run.made(MODULE, **parents.cluster())["changed"]


def test_the_time_is_over(run: Runner, parents: Parents) -> None:
    run.aws.settings(phases=4)
    result = run(MODULE, **parents.cluster(wait_timeout=0))
    assert result["failed"]
    assert "last seen: EKS cluster west is CREATING" in result["msg"]
    assert run.made(MODULE, **parents.cluster())["cluster"]["status"] == "ACTIVE"


def test_versions_one_after_the_other(run: Runner, parents: Parents) -> None:
    run.made(MODULE, **parents.cluster(version="1.33"))
    run.aws.forget_calls()
    newer = parents.cluster(version="1.36")
    checked = run(MODULE, check=True, **newer)
    assert checked["changed"]
    assert run.mutations() == []
    result = run.made(MODULE, **newer)
    assert [call["parameters"]["version"] for call in run.aws.calls(mutating=True)] == ["1.34", "1.35", "1.36"]
    assert result["cluster"]["version"] == "1.36"
    assert result["diff"] == checked["diff"]
    assert result["diff"]["before"]["version"] == "1.33"
    run.unchanged(MODULE, **newer)


def test_no_further_ahead_of_the_nodes_than_they_can_follow(run: Runner, parents: Parents) -> None:
    run.made(MODULE, **parents.cluster(version="1.32"))
    result = run.made(MODULE, **parents.cluster(version="1.36"))
    assert result["cluster"]["version"] == "1.35"
    assert "run again for 1.36" in result["warnings"][0]
    assert run.made(MODULE, **parents.cluster(version="1.36"))["cluster"]["version"] == "1.36"


def test_what_cannot_be_taken_back_stays(run: Runner, parents: Parents) -> None:
    run.made(MODULE, **parents.cluster(version="1.36", authentication_mode="API"))
    result = run.unchanged(MODULE, **parents.cluster(version="1.35"))
    assert "runs Kubernetes 1.36, which cannot go back to 1.35" in result["warnings"][0]
    assert "authentication mode API, which cannot go back to API_AND_CONFIG_MAP" in result["warnings"][1]


def test_all_differences_one_update_at_a_time(run: Runner, parents: Parents) -> None:
    run.made(MODULE, **parents.cluster(authentication_mode="CONFIG_MAP", subnet_ids=parents.subnets[:2]))
    arn = run.aws.client("eks").describe_cluster(name="west")["cluster"]["arn"]
    run.aws.client("eks").tag_resource(resourceArn=arn, tags={"team": "them", "modelplane.ai/old": "1"})
    run.aws.forget_calls()
    wanted = parents.cluster(
        authentication_mode="API", public_access_cidrs=["10.1.2.3/8", "192.0.2.7/32"], tags={**TAGS, "cost": "7"}
    )
    result = run.made(MODULE, **wanted)
    assert run.mutations() == ["TagResource", "UntagResource", *["UpdateClusterConfig"] * 4]
    cluster = result["cluster"]
    assert cluster["accessConfig"]["authenticationMode"] == "API"
    assert cluster["resourcesVpcConfig"]["publicAccessCidrs"] == ["10.0.0.0/8", "192.0.2.7/32"]
    assert cluster["resourcesVpcConfig"]["subnetIds"] == sorted(parents.subnets)
    assert cluster["tags"] == {**OURS, "team": "them", "cost": "7"}
    assert result["diff"]["after"]["subnetIds"] == sorted(parents.subnets)
    run.unchanged(MODULE, **wanted)
    # Networks that nobody speaks of any more stay, and those that are written in another order are the same.
    run.unchanged(MODULE, **wanted | {"public_access_cidrs": []})
    run.unchanged(MODULE, **wanted | {"public_access_cidrs": ["192.0.2.7/32", "10.0.0.0/8"]})
    assert (
        run.made(MODULE, **wanted | {"public_access": False})["cluster"]["resourcesVpcConfig"]["endpointPublicAccess"]
        is False
    )


def test_subnets_that_are_not_there_yet_are_not_compared(run: Runner, parents: Parents) -> None:
    run.made(MODULE, **parents.cluster())
    result = run(MODULE, check=True, **parents.cluster(role_arn="", subnet_ids=[parents.subnets[0], ""]))
    assert not result["changed"]


def test_another_role_needs_another_cluster(run: Runner, parents: Parents) -> None:
    run.made(MODULE, **parents.cluster())
    other = make_role(run.aws, "other", "eks.amazonaws.com", "AmazonEKSClusterPolicy")
    run.aws.forget_calls()
    for check_mode in (True, False):
        result = run(MODULE, check=check_mode, **parents.cluster(role_arn=other, public_access=False))
        assert result["failed"]
        assert "only a new cluster can have" in result["msg"]
    assert run.mutations() == []


def test_an_update_that_fails(run: Runner, parents: Parents) -> None:
    run.made(MODULE, **parents.cluster())
    run.aws.fail("update", "west", code="InsufficientFreeAddresses", message="No addresses left.")
    result = run(MODULE, **parents.cluster(version="1.36"))
    assert result["failed"]
    assert "update EKS cluster west to Kubernetes 1.36 failed: InsufficientFreeAddresses: No addresses" in result["msg"]
    assert "subnetCidrs" in result["msg"]
    assert run.made(MODULE, **parents.cluster(version="1.36"))["changed"]


def test_another_update_is_under_way(run: Runner, parents: Parents) -> None:
    run.made(MODULE, **parents.cluster())
    run.aws.settings(phases=4)
    run.aws.client("eks").update_cluster_config(
        name="west", resourcesVpcConfig={"endpointPublicAccess": False, "endpointPrivateAccess": True}
    )
    result = run.made(MODULE, **parents.cluster())
    assert result["changed"]
    assert result["cluster"]["resourcesVpcConfig"]["endpointPublicAccess"] is True


def test_an_update_that_another_run_begins_first(run: Runner, parents: Parents) -> None:
    run.made(MODULE, **parents.cluster())
    run.aws.refuse(operation="UpdateClusterVersion", code="ResourceInUseException", status=409, effect=True)
    result = run.made(MODULE, **parents.cluster(version="1.36"))
    assert result["cluster"]["version"] == "1.36"


def test_without_waiting_one_update_is_begun(run: Runner, parents: Parents) -> None:
    run.made(MODULE, **parents.cluster(version="1.33"))
    run.aws.settings(phases=100)
    result = run.made(MODULE, **parents.cluster(version="1.36", public_access=False, wait=False))
    assert result["changed"]
    assert result["cluster"]["status"] == "UPDATING"


@pytest.mark.parametrize("have", [{}, {**OURS, "modelplane.ai/fleet": "other"}, {"modelplane.ai/fleet": "default"}])
@pytest.mark.parametrize("state", ["present", "absent"])
def test_what_is_not_ours_is_left_alone(run: Runner, parents: Parents, have: dict[str, str], state: str) -> None:
    run.aws.client("eks").create_cluster(
        name="west", roleArn=parents.cluster_role, resourcesVpcConfig={"subnetIds": parents.subnets}, tags=have
    )
    run.aws.forget_calls()
    for check_mode in (True, False):
        result = run(MODULE, check=check_mode, **parents.cluster(state=state))
        assert result["failed"]
        assert "neither changed nor deleted" in result["msg"]
    assert run.mutations() == []


def test_deleted_once(run: Runner, parents: Parents) -> None:
    run.made(MODULE, **parents.cluster())
    arguments = parents.cluster(state="absent")
    run.aws.forget_calls()
    assert run(MODULE, check=True, **arguments)["changed"]
    assert run.mutations() == []
    result = run.made(MODULE, **arguments)
    assert result["changed"]
    assert result["cluster"] == {}
    assert result["diff"]["before"]["name"] == "west"
    assert result["diff"]["after"] == {}
    run.unchanged(MODULE, **arguments)
    assert not run(MODULE, check=True, **arguments)["changed"]


def test_not_deleted_while_it_has_node_groups(run: Runner, parents: Parents) -> None:
    run.made(MODULE, **parents.cluster())
    run.aws.client("eks").create_nodegroup(
        clusterName="west", nodegroupName="theirs", subnets=parents.subnets, nodeRole=parents.node_role
    )
    result = run(MODULE, **parents.cluster(state="absent"))
    assert result["failed"]
    assert "it has node groups: theirs" in result["msg"]


def test_a_deletion_that_fails(run: Runner, parents: Parents) -> None:
    run.made(MODULE, **parents.cluster())
    run.aws.fail("delete cluster", "west", code="AccessDenied", message="No right to delete interfaces.")
    result = run(MODULE, **parents.cluster(state="absent"))
    assert result["failed"]
    assert "could not be deleted: AccessDenied: No right to delete interfaces" in result["msg"]
    assert run.made(MODULE, **parents.cluster(state="absent"))["changed"]


def test_one_that_is_changing_is_deleted_after_that(run: Runner, parents: Parents) -> None:
    run.aws.settings(phases=5)
    run.made(MODULE, **parents.cluster(wait=False))
    assert run.made(MODULE, **parents.cluster(state="absent"))["changed"]


def test_a_run_that_ends_anywhere_is_gone_on_with(run: Runner, parents: Parents) -> None:
    run.made(
        MODULE, **parents.cluster(version="1.33", authentication_mode="CONFIG_MAP", subnet_ids=parents.subnets[:2])
    )
    wanted = parents.cluster(tags={**TAGS, "cost": "7"})
    run.through_refusals(MODULE, **wanted)


def test_secrets_do_not_show(run: Runner, parents: Parents) -> None:
    run.aws.settings(access_keys=["AKIAANOTHERKEY"])
    secrets = {"secret_key": "s3cr3t-of-the-account", "session_token": "t0k3n-of-the-session"}
    result = run(MODULE, **parents.cluster() | secrets)
    run.aws.settings(access_keys=[])
    assert result["failed"]
    told = json.dumps(result)
    assert not any(value in told for value in (*secrets.values(), run.aws.credentials["access_key"]))
    assert "access key" in result["msg"]
