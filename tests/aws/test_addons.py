# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Addons, Pod Identity associations and access entries of EKS."""

from __future__ import annotations

import json

from ansible_collections.modelplane.fleet.tests.aws.account import Account, refused
from ansible_collections.modelplane.fleet.tests.aws.double import Double


def test_addons(aws: Double, account: Account) -> None:
    account.cluster()
    with refused("InvalidParameterException", "Addon none specified is not supported"):
        account.eks.create_addon(clusterName="one", addonName="none")
    with refused("InvalidParameterException", "v9 specified is not supported"):
        account.eks.create_addon(clusterName="one", addonName="coredns", addonVersion="v9")
    with refused("InvalidParameterException", "ConfigurationValue"):
        account.eks.create_addon(clusterName="one", addonName="coredns", configurationValues="[1")
    made = account.eks.create_addon(
        clusterName="one", addonName="coredns", configurationValues='{"replicaCount": 3}', resolveConflicts="OVERWRITE"
    )["addon"]
    assert made["status"] == "CREATING"
    with refused("ResourceInUseException"):
        account.eks.create_addon(clusterName="one", addonName="coredns")
    assert account.describe("addon", "coredns")["status"] == "CREATING"
    with refused("ResourceInUseException"):
        account.eks.delete_addon(clusterName="one", addonName="coredns")
    addon = account.describe("addon", "coredns", until="DEGRADED")
    assert addon["health"]["issues"][0]["code"] == "InsufficientNumberOfReplicas"
    account.nodes("gpu", taints=[{"key": "a", "effect": "NO_SCHEDULE"}])
    assert account.describe("addon", "coredns")["status"] == "DEGRADED"
    account.nodes()
    addon = account.describe("addon", "coredns", until="ACTIVE")
    assert addon["configurationValues"] == '{"replicaCount": 3}'
    older = account.eks.describe_addon_versions(addonName="coredns")["addons"][0]["addonVersions"][1]["addonVersion"]
    update = account.eks.update_addon(clusterName="one", addonName="coredns", addonVersion=older)["update"]
    assert account.updated(update, addonName="coredns") == "Successful"
    assert account.describe("addon", "coredns")["addonVersion"] == older
    assert account.eks.list_addons(clusterName="one")["addons"] == ["coredns"]
    account.eks.delete_addon(clusterName="one", addonName="coredns", preserve=False)
    assert account.describe("addon", "coredns")["status"] == "DELETING"
    with refused("ResourceNotFoundException"):
        account.describe("addon", "coredns")
    aws.fail("addon", "vpc-cni", code="ConfigurationConflict", message="Conflicts found")
    account.eks.create_addon(clusterName="one", addonName="vpc-cni")
    assert (
        account.describe("addon", "vpc-cni", until="CREATE_FAILED")["health"]["issues"][0]["message"]
        == "Conflicts found"
    )


def test_versions_of_addons_follow_the_cluster(account: Account) -> None:
    account.cluster(version="1.35")
    account.eks.create_addon(clusterName="one", addonName="kube-proxy")
    assert account.describe("addon", "kube-proxy", until="ACTIVE")["addonVersion"].startswith("v1.35.")
    reported = account.eks.describe_addon_versions(kubernetesVersion="1.36", addonName="kube-proxy")["addons"][0]
    default = [one for one in reported["addonVersions"] if one["compatibilities"][0]["defaultVersion"]]
    assert default[0]["addonVersion"].startswith("v1.36.")
    schema = account.eks.describe_addon_configuration(addonName="kube-proxy", addonVersion="v1.36.0-eksbuild.2")
    assert json.loads(schema["configurationSchema"])["type"] == "object"


def test_waiters(account: Account) -> None:
    account.cluster()
    account.nodes()
    quick = {"Delay": 0, "MaxAttempts": 4}
    account.eks.create_addon(clusterName="one", addonName="coredns")
    account.eks.get_waiter("addon_active").wait(clusterName="one", addonName="coredns", WaiterConfig=quick)
    account.eks.delete_addon(clusterName="one", addonName="coredns")
    account.eks.get_waiter("addon_deleted").wait(clusterName="one", addonName="coredns", WaiterConfig=quick)
    account.eks.delete_nodegroup(clusterName="one", nodegroupName="system")
    account.eks.get_waiter("nodegroup_deleted").wait(clusterName="one", nodegroupName="system", WaiterConfig=quick)
    account.eks.delete_cluster(name="one")
    account.eks.get_waiter("cluster_deleted").wait(name="one", WaiterConfig=quick)


def test_pod_identities(account: Account) -> None:
    account.cluster()
    asked = {"clusterName": "one", "namespace": "kube-system", "serviceAccount": "driver"}
    with refused("InvalidParameterException", "trusted entity"):
        account.eks.create_pod_identity_association(**asked, roleArn=account.roles["node"])
    made = account.eks.create_pod_identity_association(**asked, roleArn=account.roles["pod"], tags={"a": "b"})[
        "association"
    ]
    assert made["associationId"].startswith("a-")
    with refused("ResourceInUseException", f"Association already exists: {made['associationId']}"):
        account.eks.create_pod_identity_association(**asked, roleArn=account.roles["pod"])
    found = account.eks.list_pod_identity_associations(**asked)["associations"]
    assert [one["associationId"] for one in found] == [made["associationId"]]
    assert "roleArn" not in found[0]
    assert account.eks.list_pod_identity_associations(clusterName="one", namespace="x")["associations"] == []
    other = account.role("pod2", "pods.eks.amazonaws.com")
    key = {"clusterName": "one", "associationId": made["associationId"]}
    account.eks.update_pod_identity_association(**key, roleArn=other)
    assert account.eks.describe_pod_identity_association(**key)["association"]["roleArn"] == other
    account.eks.delete_pod_identity_association(**key)
    with refused("ResourceNotFoundException"):
        account.eks.describe_pod_identity_association(**key)


def test_access_entries(account: Account) -> None:
    account.cluster()
    key = {"clusterName": "one", "principalArn": account.roles["node"]}
    with refused("InvalidRequestException", "authentication mode"):
        account.eks.create_access_entry(**key)
    update = account.eks.update_cluster_config(name="one", accessConfig={"authenticationMode": "API_AND_CONFIG_MAP"})
    account.updated(update["update"])
    account.eks.create_access_entry(**key, kubernetesGroups=["a"])
    with refused("ResourceInUseException"):
        account.eks.create_access_entry(**key)
    policy = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    account.eks.associate_access_policy(**key, policyArn=policy, accessScope={"type": "cluster"})
    found = account.eks.list_associated_access_policies(**key)["associatedAccessPolicies"]
    assert [one["policyArn"] for one in found] == [policy]
    account.eks.update_access_entry(**key, kubernetesGroups=["b"])
    assert account.eks.describe_access_entry(**key)["accessEntry"]["kubernetesGroups"] == ["b"]
    assert account.eks.list_access_entries(clusterName="one")["accessEntries"] == [account.roles["node"]]
    account.eks.disassociate_access_policy(**key, policyArn=policy)
    account.eks.delete_access_entry(**key)
    assert account.eks.list_access_entries(clusterName="one")["accessEntries"] == []
