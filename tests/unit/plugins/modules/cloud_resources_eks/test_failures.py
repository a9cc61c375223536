# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Calls and updates that fail, other runs, and runs that do not wait."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import Options
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import gpu
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.cloud_resources_eks.eks_account import (
    OPTIONS,
    Cluster,
    Json,
    block,
    changed_keys,
    same_but_unknown,
)

ROLE_MISSING = "Role provided in the request does not exist."
UNTRUSTED = (
    "Following required service principals [ec2.amazonaws.com] were not found in the trust relationships of nodeRole"
)
NO_SUCH_ROLE = "The role could not be assumed because it does not exist or the trusted entity is not correct"


# Failures


def test_objects_that_could_not_be_created_are_created_again(cluster: Cluster) -> None:
    aws = cluster.aws
    aws.fail("cluster", code="InsufficientFreeAddresses", message="No free addresses in subnet-1.")
    result = cluster.run()
    assert (
        f"EKS cluster {cluster.name} is FAILED: InsufficientFreeAddresses: No free addresses in subnet-1"
        in result["msg"]
    )
    assert "subnetCidrs" in result["msg"]
    assert "addon-coredns was not begun, as it needs cluster" in result["msg"]
    aws.fail(
        "nodegroup",
        "gpu-l4",
        code="AsgInstanceLaunchFailures",
        message="Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have "
        "sufficient g6.12xlarge capacity in the Availability Zone you requested.",
    )
    aws.fail("addon", "coredns", code="ConfigurationConflict", message="Conflicts found: Deployment coredns.")
    cluster.sent()
    result = cluster.run()
    assert cluster.sent()[:2] == ["DeleteCluster", "CreateCluster"]
    assert "node group gpu-l4 is CREATE_FAILED: AsgInstanceLaunchFailures: Could not launch On-Demand" in result["msg"]
    assert "add zones to the pool" in result["msg"]
    assert "addon coredns is CREATE_FAILED: ConfigurationConflict: Conflicts found" in result["msg"]
    # What was done is in the result, and what else could be done is.
    assert {"cluster", "node-group-system", "node-group-gpu-l4", "addon-aws-efs-csi-driver"} <= changed_keys(result)
    checked = cluster.run(check=True)
    assert changed_keys(checked) == {"node-group-gpu-l4", "addon-coredns"}
    result = cluster.apply()
    assert same_but_unknown(checked["diff"], result["diff"])
    assert sorted(cluster.sent()) == ["CreateAddon", "CreateNodegroup", "DeleteAddon", "DeleteNodegroup"]
    assert any(line.endswith("it is deleted and created again") for line in result["waited"])
    cluster.unchanged(purge=True)


def test_updates_that_fail_are_reported_with_the_reason_and_made_by_the_next_run(made: Cluster) -> None:
    failures = {
        made.name: ("InsufficientFreeAddresses", "No addresses left.", "subnetCidrs"),
        "system": ("PodEvictionFailure", "Reached max retries while trying to evict pods.", "PodDisruptionBudgets"),
        "coredns": ("ConfigurationConflict", "Conflicts found: Deployment coredns.", ""),
    }
    made.become(kubernetesVersion="1.35")
    made.run(state="absent")
    made.apply()
    for name, (code, message, _) in failures.items():
        made.aws.fail("update", name, code=code, message=message)
    options = Options(tags=OPTIONS.tags, addons={"coredns": {"configuration": {"replicaCount": 3}}})
    made.become(kubernetesVersion="1.36", options=options)
    messages = []
    while (result := made.run())["failed"]:
        messages.append(result["msg"])
        assert len(messages) < 4
    text = "\n".join(messages)
    assert f"set the version 1.36 of EKS cluster {made.name}: the update is Failed: InsufficientFree" in text
    assert "set version of node group system: the update is Failed: PodEvictionFailure: Reached max retries" in text
    assert "set configurationValues of addon coredns: the update is Failed: ConfigurationConflict" in text
    assert all(hint in text for *_, hint in failures.values())
    made.unchanged()


def test_an_addon_without_nodes_is_a_warning(made: Cluster) -> None:
    keys = ("cluster", "addon-coredns")
    made.run(state="absent", kinds=["node-group"])
    listed = [{**made.entry("addon-coredns"), "needs": ["cluster"]}]
    listed += [
        each for each in made.plan["resources"] if each["kind"] in ("vpc", "subnet", "policy", "role", "cluster")
    ]
    result = made.unchanged(resources=listed)
    (warning,) = result["warnings"]
    assert warning.startswith("addon coredns is DEGRADED: InsufficientNumberOfReplicas: The add-on is unhealthy")
    assert "system node group" in warning
    assert made.run(check=True, resources=listed)["warnings"] == [warning]
    made.aws.fail("update", "coredns", code="InsufficientNumberOfReplicas", message="No replicas.")
    listed[0]["body"]["configurationValues"] = '{"replicaCount": 3}'
    assert changed_keys(made.apply(resources=listed)) == {keys[1]}


def test_deletions_that_fail_are_reported_and_sent_again_by_the_next_run(made: Cluster) -> None:
    message = "resource sg-1 has a dependent object"
    made.aws.settings(phases=1)
    for _ in range(2):
        made.aws.fail("delete nodegroup", "system", code="Ec2SecurityGroupDeletionFailure", message=message)
        result = made.run(state="absent")
        assert (
            f"it could not be deleted: node group system is DELETE_FAILED: Ec2SecurityGroupDeletionFailure: {message}"
        ) in result["msg"]
    made.apply(state="absent")
    assert made.account() == []


# While something else goes on


def test_new_roles_are_not_known_everywhere_at_once(cluster: Cluster) -> None:
    refused = {
        "CreateCluster": NO_SUCH_ROLE,
        "CreateNodegroup": UNTRUSTED,
        "CreatePodIdentityAssociation": ROLE_MISSING,
    }
    for operation, message in refused.items():
        cluster.aws.refuse(operation=operation, code="InvalidParameterException", message=message, status=400, times=2)
    done = cluster.apply()
    assert sum("waits for its role to be known everywhere" in line for line in done["waited"]) >= 3
    cluster.unchanged(purge=True)


def test_a_call_that_stays_wrong_fails_with_the_message_of_aws(cluster: Cluster) -> None:
    cluster.aws.refuse(
        operation="CreateCluster", code="InvalidParameterException", message=NO_SUCH_ROLE, status=400, times=999
    )
    result = cluster.run(wait_timeout=1)
    assert "could not be assumed because it does not exist" in result["msg"]
    assert "trust policy" in result["msg"]
    cluster.aws.reset()
    cluster.aws.settings(versions=["1.30", "1.31"])
    result = cluster.run()
    assert "InvalidParameterException: unsupported Kubernetes version" in result["msg"]
    assert "describe-cluster-versions" in result["msg"]
    assert cluster.sent().count("CreateCluster") == 0


def test_one_update_at_a_time(made: Cluster) -> None:
    """Updates that others began are waited for, and what they changed is put right."""
    made.aws.settings(phases=6)
    made.eks.update_cluster_config(name=made.name, resourcesVpcConfig={"endpointPrivateAccess": False})
    made.eks.update_nodegroup_config(clusterName=made.name, nodegroupName="gpu-l4", scalingConfig={"maxSize": 9})
    made.eks.update_addon(clusterName=made.name, addonName="coredns", configurationValues='{"replicaCount": 9}')
    options = Options(tags=OPTIONS.tags, addons={"coredns": {"configuration": {"replicaCount": 3}}})
    made.become(gpu(maxNodeCount=4), options=options)
    made.entry("cluster")["body"]["resourcesVpcConfig"]["publicAccessCidrs"] = ["192.0.2.0/24"]
    result = made.apply()
    assert any("waits for another change" in line for line in result["waited"]), result["waited"]
    made.aws.settings(phases=0)
    made.apply()
    made.unchanged()
    network = made.live("cluster")["resourcesVpcConfig"]
    assert (network["endpointPrivateAccess"], network["publicAccessCidrs"]) == (True, ["192.0.2.0/24"])
    assert made.group()["scalingConfig"]["maxSize"] == 4


def test_another_run_does_the_same(cluster: Cluster) -> None:
    """Each call of this run comes second."""
    created = ("CreateCluster", "CreateNodegroup", "CreateAddon", "CreatePodIdentityAssociation")
    for operation in created:
        cluster.aws.refuse(operation=operation, code="ResourceInUseException", status=409, effect=True)
    for operation, code in {
        "CreateRole": "EntityAlreadyExists",
        "CreatePolicy": "EntityAlreadyExists",
        "CreateSecurityGroup": "InvalidGroup.Duplicate",
        "CreateSubnet": "InvalidSubnet.Conflict",
        "CreateFileSystem": "FileSystemAlreadyExists",
        "CreateMountTarget": "MountTargetConflict",
        "AttachInternetGateway": "Resource.AlreadyAssociated",
        "AssociateRouteTable": "Resource.AlreadyAssociated",
        "CreateRoute": "RouteAlreadyExists",
        "AuthorizeSecurityGroupIngress": "InvalidPermission.Duplicate",
        "UpdateNodegroupConfig": "ResourceInUseException",
    }.items():
        cluster.aws.refuse(operation=operation, code=code, status=409, effect=True)
    cluster.apply()
    cluster.become(gpu(maxNodeCount=3))
    cluster.apply()
    assert cluster.aws.refusals() == []
    cluster.unchanged(purge=True)


# Each call, refused or with its answer lost


@pytest.mark.interrupted
@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
def test_every_call_may_fail_once(cluster: Cluster, after: bool) -> None:
    """The account is the same in the end, and in it everything can be changed and deleted in the same way."""
    lost = {"after": True, "code": "ServiceUnavailable", "status": 503}
    failure: Json = lost if after else {"code": "AccessDenied", "message": "Not authorized.", "status": 403}
    before = [gpu(), block(cluster)]
    after_it = [gpu(maxNodeCount=3), {**before[1], "diskSizeGb": 900}]
    plans = [({"kubernetesVersion": "1.35"}, before), ({"kubernetesVersion": "1.36"}, after_it)]
    calm = []
    for spec, pools in plans:
        cluster.become(*pools, **spec)
        cluster.apply(purge=True)
        calm.append(cluster.account())
    cluster.apply(state="absent", purge=True)
    assert cluster.account() == []
    for (spec, pools), expected in zip(plans, calm, strict=True):
        cluster.become(*pools, **spec)
        cluster.aws.refuse_each_once(**failure)
        failed = cluster.converge(purge=True)
        cluster.aws.refuse_each_once(enabled=False)
        assert after or failed > 1
        cluster.apply(purge=True)
        assert cluster.account() == expected
        cluster.unchanged(purge=True)
    cluster.aws.refuse_each_once(**failure)
    cluster.converge(state="absent", purge=True)
    assert cluster.account() == []


# Without waiting


def test_without_waiting_each_run_goes_on_where_the_last_one_ended(cluster: Cluster) -> None:
    def until_done(**more: Any) -> list[list[str]]:
        pending = []
        for _ in range(60):
            pending.append(cluster.apply(wait=False, **more)["pending"])
            if not pending[-1]:
                return pending
        raise AssertionError(pending[-1])

    cluster.aws.settings(phases=1)
    first, *_ = until_done()
    assert "node group gpu-l4 comes once addon-vpc-cni is done: run again" in first or first
    assert all(line.endswith(": run again") for line in first)
    cluster.unchanged()
    first, *_ = until_done(state="absent")
    assert any("is DELETING: run again" in line for line in first)
    assert cluster.account() == []
