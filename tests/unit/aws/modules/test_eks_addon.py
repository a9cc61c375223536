# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The modules eks_addon and eks_pod_identity against a double of AWS."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.modules import eks_addon, eks_pod_identity
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.running import OURS, TAGS, good, refused
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.site import CLUSTER, Site

CNI = {"cluster": CLUSTER, "name": "vpc-cni", "tags": TAGS}
DNS = {"cluster": CLUSTER, "name": "coredns", "tags": TAGS, "configuration": {"replicaCount": 3}}
IDENTITY = {"cluster": CLUSTER, "namespace": "kube-system", "service_account": "cluster-autoscaler", "tags": TAGS}


def described(site: Site, name: str) -> dict[str, Any]:
    return dict(site.aws.client("eks").describe_addon(clusterName=CLUSTER, addonName=name)["addon"])


def test_installed_as_asked_and_then_left_alone(site: Site) -> None:
    assert good(eks_addon, check=True, **CNI)["steps"] == ["addon vpc-cni of cluster west: create"]
    site.with_cluster()
    site.aws.delay("addon", 3)
    first = good(eks_addon, **CNI, version="v1.20.4-eksbuild.1", configuration='{"env": {"A": "1"}}')
    assert (first["changed"], first["addon"]["status"]) == (True, "ACTIVE")
    create = site.aws.mutations[0].parameters
    assert create["resolveConflicts"] == "OVERWRITE"
    assert site.sent() == ["CreateAddon"]
    found = described(site, "vpc-cni")
    assert (found["addonVersion"], found["tags"]) == ("v1.20.4-eksbuild.1", OURS)
    assert json.loads(found["configurationValues"]) == {"env": {"A": "1"}}
    assert first["arn"] == found["addonArn"]
    for same in ({}, {"configuration": {"env": {"A": "1"}}}, {"version": "v1.20.4-eksbuild.1"}):
        second = good(eks_addon, **CNI, **same)
        assert (second["changed"], second["addon"]) == (False, first["addon"])
    assert site.sent() == []


def test_an_addon_that_needs_nodes_can_be_installed_before_them(site: Site) -> None:
    site.with_cluster()
    message = refused(eks_addon, **DNS, wait_timeout=0.2)
    assert "addon coredns of cluster west has to be ACTIVE: still not so" in message
    assert "DEGRADED: InsufficientNumberOfReplicas: The add-on is unhealthy" in message
    early = good(eks_addon, **DNS, wait_for="CREATED")
    assert (early["changed"], early["addon"]["status"]) == (False, "DEGRADED")
    site.aws.client("eks").create_nodegroup(
        clusterName=CLUSTER, nodegroupName="system", nodeRole=site.node_role, subnets=[site.subnets[0]]
    )
    site.aws.client("eks").describe_nodegroup(clusterName=CLUSTER, nodegroupName="system")
    assert good(eks_addon, **DNS)["addon"]["status"] == "ACTIVE"


UPDATES: dict[str, tuple[dict[str, Any], list[str], dict[str, Any]]] = {
    "version": ({"version": "v1.21.1-eksbuild.1"}, ["UpdateAddon"], {"addonVersion": "v1.21.1-eksbuild.1"}),
    "configuration": ({"configuration": {"b": 2}}, ["UpdateAddon"], {"configurationValues": '{"b": 2}'}),
    "tags": ({"tags": {**TAGS, "team": "ml"}}, ["TagResource"], {"tags": {**OURS, "team": "ml"}}),
}


@pytest.mark.parametrize("name", UPDATES)
def test_changed_in_place(site: Site, name: str) -> None:
    change, operations, expected = UPDATES[name]
    site.with_cluster()
    first = {**CNI, "version": "v1.20.4-eksbuild.1", "configuration": {"a": 1}}
    good(eks_addon, **first)
    site.sent()
    site.aws.delay("update", 2)
    arguments = {**first, **change}
    checked = good(eks_addon, check=True, **arguments)
    assert checked["changed"]
    assert site.sent() == []
    done = good(eks_addon, **arguments)
    assert (done["changed"], done["steps"], done["diff"]) == (True, checked["steps"], checked["diff"])
    assert site.sent() == operations
    found = described(site, "vpc-cni")
    assert {key: found[key] for key in expected} == expected
    assert not good(eks_addon, **arguments)["changed"]


def test_its_role_is_changed_in_place(site: Site) -> None:
    site.with_cluster()
    good(eks_addon, **CNI)
    assert good(eks_addon, **CNI, service_account_role_arn=site.pod_role)["changed"]
    assert described(site, "vpc-cni")["serviceAccountRoleArn"] == site.pod_role
    assert not good(eks_addon, **CNI, service_account_role_arn=site.pod_role)["changed"]


def test_a_failed_installation_is_told_and_done_again_by_the_next_run(site: Site) -> None:
    site.with_cluster()
    site.aws.delay("addon", 1)
    issue = {"code": "ConfigurationConflict", "message": "Conflicts found"}
    site.aws.end("addon", "vpc-cni", "CREATE_FAILED", issue)
    assert "is CREATE_FAILED: ConfigurationConflict: Conflicts found" in refused(eks_addon, **CNI)
    site.sent()
    again = good(eks_addon, **CNI)
    assert again["addon"]["status"] == "ACTIVE"
    calls = [(call.operation, call.parameters.get("preserve")) for call in site.aws.mutations]
    assert calls == [("DeleteAddon", True), ("CreateAddon", None)]


def test_a_failed_update_is_told_and_done_again(site: Site) -> None:
    site.with_cluster()
    good(eks_addon, **CNI, version="v1.20.4-eksbuild.1")
    site.aws.delay("update", 1)
    site.aws.end("update", "vpc-cni", "Failed", {"code": "AdmissionRequestDenied", "message": "a webhook says no"})
    newer = {**CNI, "version": "v1.21.1-eksbuild.1"}
    assert "update AddonUpdate Failed: AdmissionRequestDenied: a webhook says no" in refused(eks_addon, **newer)
    assert described(site, "vpc-cni")["status"] == "UPDATE_FAILED"
    assert good(eks_addon, check=True, **CNI)["steps"] == ["addon vpc-cni of cluster west: update again"]
    assert good(eks_addon, **newer)["addon"]["version"] == "v1.21.1-eksbuild.1"


REFUSED = {
    "unknown": ({"name": "no-such-addon"}, "Addon no-such-addon specified is not supported"),
    "a list": ({"configuration": [1]}, "configuration is neither a mapping nor JSON text of one"),
    "no JSON": ({"configuration": "{"}, "configuration is neither a mapping nor JSON text of one"),
    "another cluster": ({"cluster": "east"}, "No cluster found for name: east"),
    "another cluster's": ({"tags": {"modelplane.ai/cluster": "a.b"}}, "is not this cluster's"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(site: Site, name: str) -> None:
    change, text = REFUSED[name]
    site.with_cluster()
    good(eks_addon, **CNI)
    assert text in refused(eks_addon, **{**CNI, **change}, wait_timeout=0.1)


@pytest.mark.parametrize("operation", ["CreateAddon", "UpdateAddon", "DeleteAddon"])
def test_a_lost_answer_does_nothing_twice(site: Site, operation: str) -> None:
    site.with_cluster()
    site.aws.fail(operation, after=True)
    good(eks_addon, **CNI, version="v1.20.4-eksbuild.1")
    good(eks_addon, **CNI, version="v1.21.1-eksbuild.1")
    assert described(site, "vpc-cni")["addonVersion"] == "v1.21.1-eksbuild.1"
    assert good(eks_addon, **CNI, state="absent")["changed"]
    assert site.aws.failed
    assert site.aws.client("eks").list_addons(clusterName=CLUSTER)["addons"] == []


def test_removed_and_then_left_alone(site: Site) -> None:
    site.with_cluster()
    good(eks_addon, **CNI)
    site.sent()
    site.aws.delay("addon", 2)
    assert good(eks_addon, check=True, **CNI, state="absent")["changed"]
    assert site.sent() == []
    assert good(eks_addon, **CNI, state="absent")["addon"] == {}
    assert site.sent() == ["DeleteAddon"]
    assert not good(eks_addon, **CNI, state="absent")["changed"]


# Pod Identity


def associations(site: Site) -> list[dict[str, Any]]:
    eks = site.aws.client("eks")
    listed = eks.list_pod_identity_associations(clusterName=CLUSTER)["associations"]
    return [
        eks.describe_pod_identity_association(clusterName=CLUSTER, associationId=each["associationId"])["association"]
        for each in listed
    ]


def test_a_role_is_given_changed_and_taken(site: Site) -> None:
    arguments = {**IDENTITY, "association_role_arn": site.pod_role}
    assert good(eks_pod_identity, check=True, **arguments)["changed"]
    site.with_cluster()
    first = good(eks_pod_identity, **arguments)
    assert site.sent() == ["CreatePodIdentityAssociation"]
    (found,) = associations(site)
    assert (found["namespace"], found["serviceAccount"]) == ("kube-system", "cluster-autoscaler")
    assert (found["roleArn"], found["tags"]) == (site.pod_role, OURS)
    assert (first["changed"], first["arn"]) == (True, found["associationArn"])
    assert first["association"]["id"] == found["associationId"]
    second = good(eks_pod_identity, **arguments)
    assert (second["changed"], second["association"]) == (False, first["association"])
    assert site.sent() == []

    other = {**arguments, "association_role_arn": site.other_pod_role(), "tags": {**TAGS, "team": "ml"}}
    checked = good(eks_pod_identity, check=True, **other)
    assert (checked["changed"], site.sent()) == (True, [])
    done = good(eks_pod_identity, **other)
    assert (done["steps"], done["diff"]) == (checked["steps"], checked["diff"])
    assert site.sent() == ["TagResource", "UpdatePodIdentityAssociation"]
    assert associations(site)[0]["roleArn"] == other["association_role_arn"]
    assert not good(eks_pod_identity, **other)["changed"]

    assert good(eks_pod_identity, check=True, **IDENTITY, state="absent")["changed"]
    assert site.sent() == []
    assert good(eks_pod_identity, **IDENTITY, state="absent")["association"] == {}
    assert site.sent() == ["DeletePodIdentityAssociation"]
    assert not good(eks_pod_identity, **IDENTITY, state="absent")["changed"]
    assert associations(site) == []


@pytest.mark.parametrize("operation", ["CreatePodIdentityAssociation", "DeletePodIdentityAssociation"])
def test_a_lost_answer_makes_no_second_association(site: Site, operation: str) -> None:
    site.with_cluster()
    site.aws.fail(operation, after=True)
    assert good(eks_pod_identity, **IDENTITY, association_role_arn=site.pod_role)["association"]["id"]
    assert len(associations(site)) == 1
    assert good(eks_pod_identity, **IDENTITY, state="absent")["changed"]
    assert site.aws.failed
    assert associations(site) == []


def test_what_is_not_ours_is_neither_changed_nor_deleted(site: Site) -> None:
    site.with_cluster()
    eks = site.aws.client("eks")
    eks.create_addon(clusterName=CLUSTER, addonName="vpc-cni", tags={"modelplane.ai/cluster": "other.cluster"})
    eks.create_pod_identity_association(
        clusterName=CLUSTER,
        namespace="kube-system",
        serviceAccount="cluster-autoscaler",
        roleArn=site.pod_role,
    )
    for state in ("present", "absent"):
        assert "is not this cluster's" in refused(eks_addon, **CNI, state=state)
        role = {"association_role_arn": site.pod_role}
        assert "is not this cluster's" in refused(eks_pod_identity, **IDENTITY, **role, state=state)
    assert site.sent() == []
