# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module eks_cluster against a double of AWS."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.modules import eks_cluster
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.running import OURS, TAGS, good, refused, run
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.site import CLUSTER, Site

ABSENT = {"name": CLUSTER, "state": "absent", "tags": TAGS}


def described(site: Site) -> dict[str, Any]:
    return dict(site.aws.client("eks").describe_cluster(name=CLUSTER)["cluster"])


def test_made_as_asked_and_then_left_alone(site: Site) -> None:
    site.aws.delay("cluster", 3)
    first = good(eks_cluster, **site.cluster, public_access_cidrs=["9.9.9.0/24"])
    assert first["changed"]
    assert site.sent() == ["CreateCluster"]
    found = described(site)
    assert found["status"] == "ACTIVE"
    assert found["version"] == "1.34"
    assert found["roleArn"] == site.cluster_role
    assert found["tags"] == OURS
    assert found["accessConfig"] == {
        "authenticationMode": "API_AND_CONFIG_MAP",
        "bootstrapClusterCreatorAdminPermissions": True,
    }
    network = found["resourcesVpcConfig"]
    assert network["subnetIds"] == list(site.subnets)
    assert network["endpointPrivateAccess"] is network["endpointPublicAccess"] is True
    assert network["publicAccessCidrs"] == ["9.9.9.0/24"]
    told = first["cluster"]
    assert told["arn"] == first["arn"] == found["arn"]
    assert told["endpoint"] == found["endpoint"]
    assert told["certificate_authority"] == found["certificateAuthority"]["data"]
    assert (told["vpc_id"], told["security_group_id"]) == (site.vpc, network["clusterSecurityGroupId"])
    second = good(eks_cluster, **site.cluster, public_access_cidrs=["9.9.9.0/24"])
    assert not second["changed"]
    assert second["diff"]["before"] == second["diff"]["after"]
    assert second["cluster"] == told
    assert site.sent() == []


def test_check_mode_tells_what_would_be_made_and_makes_nothing(site: Site) -> None:
    result = good(eks_cluster, check=True, **site.cluster)
    assert result["changed"]
    assert result["steps"] == ["cluster west: create"]
    assert result["diff"]["before"] == {}
    assert result["diff"]["after"]["version"] == "1.34"
    assert result["cluster"]["name"] == CLUSTER
    assert result["cluster"]["security_group_id"] == ""
    assert site.sent() == []


UPDATES: dict[str, tuple[dict[str, Any], list[str], dict[str, Any]]] = {
    "one version": ({"version": "1.35"}, ["UpdateClusterVersion"], {"version": "1.35"}),
    "two versions": ({"version": "1.36"}, ["UpdateClusterVersion"] * 2, {"version": "1.36"}),
    "endpoint": (
        {"endpoint_public_access": False},
        ["UpdateClusterConfig"],
        {"resourcesVpcConfig.endpointPublicAccess": False},
    ),
    "who reaches it": (
        {"public_access_cidrs": ["9.9.9.0/24", "8.8.8.0/24"]},
        ["UpdateClusterConfig"],
        {"resourcesVpcConfig.publicAccessCidrs": ["8.8.8.0/24", "9.9.9.0/24"]},
    ),
    "authentication mode": (
        {"authentication_mode": "API"},
        ["UpdateClusterConfig"],
        {"accessConfig.authenticationMode": "API"},
    ),
    "tags": ({"tags": {**TAGS, "team": "ml"}}, ["TagResource"], {"tags": {**OURS, "team": "ml"}}),
    "all at once": (
        {"version": "1.35", "endpoint_public_access": False, "authentication_mode": "API"},
        ["UpdateClusterConfig", "UpdateClusterConfig", "UpdateClusterVersion"],
        {"version": "1.35", "accessConfig.authenticationMode": "API"},
    ),
}


@pytest.mark.parametrize("name", UPDATES)
def test_changed_in_place(site: Site, name: str) -> None:
    change, operations, expected = UPDATES[name]
    site.with_cluster()
    site.aws.delay("update", 2)
    before = described(site)
    checked = good(eks_cluster, check=True, **{**site.cluster, **change})
    assert checked["changed"]
    assert site.sent() == []
    done = good(eks_cluster, **{**site.cluster, **change})
    assert (done["changed"], done["steps"]) == (True, checked["steps"])
    assert done["diff"] == checked["diff"]
    assert site.sent() == operations
    found = described(site)
    for path, value in expected.items():
        got: Any = found
        for key in path.split("."):
            got = got[key]
        assert sorted(got) if isinstance(got, list) else got == value
    assert found["resourcesVpcConfig"]["subnetIds"] == before["resourcesVpcConfig"]["subnetIds"]
    assert not good(eks_cluster, **{**site.cluster, **change})["changed"]
    assert site.sent() == []


def test_subnets_change_in_place(site: Site) -> None:
    site.with_cluster(subnet_ids=list(site.subnets[:2]))
    assert good(eks_cluster, **site.cluster)["changed"]
    assert described(site)["resourcesVpcConfig"]["subnetIds"] == list(site.subnets)
    assert described(site)["resourcesVpcConfig"]["endpointPrivateAccess"] is True
    assert not good(eks_cluster, **site.cluster)["changed"]


REFUSED = {
    "an older version": ({"version": "1.33"}, "version is 1.34 and should be 1.33: EKS cannot take a cluster to"),
    "another role": ({"cluster_role_arn": "arn:aws:iam::123456789012:role/x"}, "only making it anew would do"),
    "an older mode": ({"authentication_mode": "CONFIG_MAP"}, "authentication_mode is API_AND_CONFIG_MAP and should"),
    "no version": ({"version": "latest"}, 'version is latest, and must be like "1.36"'),
    "no cluster tag": ({"tags": {"a": "b"}}, "tags: modelplane.ai/cluster is missing"),
    "another manager": ({"tags": {**TAGS, "modelplane.ai/managed-by": "me"}}, "has to be modelplane.fleet"),
    "another cluster's": ({"tags": {"modelplane.ai/cluster": "a.b"}}, "is there but is not this cluster's"),
    "no time": ({"wait_timeout": -1}, "wait_timeout is -1, and must be"),
}


@pytest.mark.parametrize("check", [False, True], ids=["run", "check"])
@pytest.mark.parametrize("name", REFUSED)
def test_refused_without_a_change(site: Site, name: str, check: bool) -> None:
    change, text = REFUSED[name]
    site.with_cluster()
    assert text in refused(eks_cluster, check=check, **{**site.cluster, **change})
    assert site.sent() == []


def test_what_is_not_ours_is_neither_changed_nor_deleted(site: Site) -> None:
    eks = site.aws.client("eks")
    eks.create_cluster(
        name=CLUSTER, roleArn=site.cluster_role, resourcesVpcConfig={"subnetIds": list(site.subnets)}, tags={"a": "b"}
    )
    for arguments in (site.cluster, ABSENT):
        message = refused(eks_cluster, **arguments)
        assert "no modelplane.ai/cluster, no modelplane.ai/managed-by" in message
    assert site.sent() == []


def test_removed_and_then_left_alone(site: Site) -> None:
    site.with_cluster()
    site.aws.delay("cluster", 3)
    assert good(eks_cluster, check=True, **ABSENT)["changed"]
    assert site.sent() == []
    done = good(eks_cluster, **ABSENT)
    assert (done["changed"], done["cluster"], done["diff"]["after"]) == (True, {}, {})
    assert site.sent() == ["DeleteCluster"]
    assert not good(eks_cluster, **ABSENT)["changed"]
    assert site.sent() == []
    assert site.aws.client("eks").list_clusters()["clusters"] == []


def test_a_failed_creation_is_told_with_the_reason_of_aws(site: Site) -> None:
    site.aws.delay("cluster", 1)
    site.aws.end("cluster", CLUSTER, "FAILED", {"code": "InsufficientFreeAddresses", "message": "no free addresses"})
    message = refused(eks_cluster, **site.cluster)
    assert "cluster west is FAILED: InsufficientFreeAddresses: no free addresses" in message
    assert "state: absent" in message
    assert "is FAILED" in refused(eks_cluster, **site.cluster)
    assert good(eks_cluster, **ABSENT)["changed"]
    assert good(eks_cluster, **site.cluster)["changed"]


def test_a_failed_update_is_told_and_done_again(site: Site) -> None:
    site.with_cluster()
    site.aws.delay("update", 1)
    site.aws.end("update", CLUSTER, "Failed", {"code": "EniLimitReached", "message": "no interface left"})
    message = refused(eks_cluster, **{**site.cluster, "version": "1.35"})
    assert "update VersionUpdate Failed: EniLimitReached: no interface left" in message
    assert good(eks_cluster, **{**site.cluster, "version": "1.35"})["cluster"]["version"] == "1.35"


def test_a_lost_answer_makes_no_second_cluster(site: Site) -> None:
    site.aws.fail("CreateCluster", after=True)
    result = good(eks_cluster, **site.cluster)
    assert result["changed"]
    assert result["cluster"]["status"] == "ACTIVE"
    assert site.aws.client("eks").list_clusters()["clusters"] == [CLUSTER]


def test_a_run_that_was_stopped_is_gone_on_with(site: Site) -> None:
    site.aws.delay("cluster", 4)
    started = good(eks_cluster, **site.cluster, wait=False)
    assert (started["changed"], started["cluster"]["status"]) == (True, "CREATING")
    again = good(eks_cluster, **site.cluster)
    assert (again["changed"], again["cluster"]["status"]) == (False, "ACTIVE")
    site.aws.delay("update", 4)
    newer = {**site.cluster, "version": "1.36"}
    assert len(good(eks_cluster, **newer, wait=False)["steps"]) == 1
    assert good(eks_cluster, **newer, wait=False)["steps"] == []
    site.sent()
    assert good(eks_cluster, **newer)["cluster"]["version"] == "1.36"
    assert site.sent() == ["UpdateClusterVersion"]


def test_one_that_is_being_deleted_is_made_again(site: Site) -> None:
    site.with_cluster()
    site.aws.delay("cluster", 3)
    assert good(eks_cluster, **ABSENT, wait=False)["changed"]
    assert "is being deleted" in refused(eks_cluster, **site.cluster, wait=False)
    assert good(eks_cluster, check=True, **site.cluster)["steps"] == ["cluster west: create"]
    assert good(eks_cluster, **site.cluster)["cluster"]["status"] == "ACTIVE"


def test_a_wait_ends_in_time_with_what_was_seen(site: Site) -> None:
    site.aws.delay("cluster", 1000)
    message = refused(eks_cluster, **site.cluster, wait_timeout=0.1)
    assert "cluster west has to be ACTIVE: still not so after 0.1 seconds: CREATING" in message
    assert "run again" in message


def test_a_role_that_is_not_known_yet_is_tried_again(site: Site) -> None:
    result = run(eks_cluster, **{**site.cluster, "cluster_role_arn": site.cluster_role + "x"}, wait_timeout=0.2)
    assert "could not be assumed" in result["msg"]
    assert len([call for call in site.aws.mutations if call.operation == "CreateCluster"]) > 1


def test_nodes_keep_a_cluster(site: Site) -> None:
    site.with_nodes()
    message = refused(eks_cluster, **ABSENT)
    assert "ResourceInUseException" in message
    assert "Something still uses it" in message


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("AccessDeniedException", "lack the right"),
        ("ExpiredTokenException", "log in anew"),
        ("UnrecognizedClientException", "whether the region is enabled"),
        ("ResourceLimitExceededException", "A quota of the account is used up"),
        ("UnsupportedAvailabilityZoneException", "choose other zones"),
    ],
)
def test_a_refusal_says_what_to_do(site: Site, code: str, hint: str) -> None:
    site.aws.fail("CreateCluster", code, "so it is")
    message = refused(eks_cluster, **site.cluster)
    assert f"eks CreateCluster of cluster west: {code}: so it is. " in message
    assert hint in message
    assert good(eks_cluster, **site.cluster)["changed"]
