# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""All objects of a plan are created once, and deleted with what is in the way."""

from __future__ import annotations

import json

from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import gpu
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.cloud_resources_eks.eks_account import (
    Cluster,
    block,
    change_document,
    change_policies,
    changed_keys,
    same_but_unknown,
)


def test_all_objects_are_created_once_and_check_mode_foresees_them(cluster: Cluster) -> None:
    cluster.aws.settings(phases=1)
    cluster.become(gpu(), block(cluster))
    before = cluster.account()
    checked = cluster.run(check=True, purge=True)
    assert (checked["failed"], checked["changed"], cluster.sent()) == (False, True, [])
    assert checked["resources"] == {each["key"]: {} for each in cluster.plan["resources"]}
    assert cluster.account() == before == []

    done = cluster.apply(purge=True)
    assert same_but_unknown(checked["diff"], done["diff"])
    assert sorted(done["actions"]) == sorted(checked["actions"])
    assert all(line.startswith("create ") for line in done["actions"])
    # Objects are waited for side by side, for as long as the machine takes.
    assert sorted(done["waited"]) == sorted(done["logged"])
    assert any(line.startswith(f"EKS cluster {cluster.name} is ACTIVE (after ") for line in done["waited"])
    assert (done["pending"], done["warnings"]) == ([], [])
    calls = cluster.requests()
    (sent,) = cluster.parameters(calls, "CreateCluster")
    assert sent == {
        "name": cluster.name,
        "version": "1.36",
        "roleArn": cluster.id("role-cluster", "Arn"),
        "resourcesVpcConfig": {
            "subnetIds": [
                cluster.id(f"subnet-{tier}-us-west-2{zone}", "SubnetId")
                for tier in ("public", "private")
                for zone in "ab"
            ],
            "endpointPrivateAccess": True,
            "endpointPublicAccess": True,
        },
        "accessConfig": {
            "authenticationMode": "API_AND_CONFIG_MAP",
            "bootstrapClusterCreatorAdminPermissions": True,
        },
        "tags": cluster.plan["tags"],
    }
    groups = {each["nodegroupName"]: each for each in cluster.parameters(calls, "CreateNodegroup")}
    assert groups["gpu-l4"] == {
        "clusterName": cluster.name,
        "nodegroupName": "gpu-l4",
        "scalingConfig": {"minSize": 0, "maxSize": 8, "desiredSize": 1},
        "updateConfig": {"maxUnavailable": 1, "updateStrategy": "MINIMAL"},
        "subnets": [cluster.id("subnet-private-us-west-2a", "SubnetId")],
        "nodeRole": cluster.id("role-node", "Arn"),
        "amiType": "AL2023_x86_64_NVIDIA",
        "capacityType": "ON_DEMAND",
        "instanceTypes": ["g6.12xlarge"],
        "launchTemplate": {"id": cluster.id("launch-template-gpu-l4", "LaunchTemplateId"), "version": "1"},
        "labels": {"modelplane.ai/pool": "gpu-l4", "modelplane.ai/gpu": "nvidia-l4"},
        "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
        "tags": cluster.plan["tags"],
    }
    template = cluster.found["launch-template-gpu-h200"]
    assert groups["gpu-h200"]["launchTemplate"] == {"id": template["LaunchTemplateId"], "version": "1"}
    assert not {"instanceTypes", "diskSize", "version"} & set(groups["gpu-h200"])
    interfaces = template["Latest"]["data"]["NetworkInterfaces"]
    network = cluster.found["cluster"]["resourcesVpcConfig"]
    assert interfaces[0]["Groups"] == [cluster.id("security-group-efa", "GroupId"), network["clusterSecurityGroupId"]]
    for addon in cluster.parameters(calls, "CreateAddon"):
        # What EKS puts into a cluster by itself becomes an addon.
        assert addon["resolveConflicts"] == "OVERWRITE"
        assert not {"addonVersion", "configurationValues"} & set(addon)
    cluster.unchanged(purge=True)
    checked = cluster.run(check=True, purge=True)
    assert (checked["failed"], checked["changed"], cluster.sent()) == (False, False, [])


def test_kinds_that_are_not_named_are_only_read(cluster: Cluster) -> None:
    rights = {"role", "policy"}
    checked = cluster.run(check=True, kinds=[*rights])
    done = cluster.apply(kinds=[*rights], purge=True)
    assert same_but_unknown(checked["diff"], done["diff"])
    assert {cluster.entry(key)["kind"] for key in changed_keys(done)} == rights
    assert {line.split()[0] for line in cluster.account()} == {"role", "policy"}
    assert set(cluster.apply(state="absent", kinds=["policy", "role"])["removed"]) == changed_keys(done)
    assert cluster.account() == []
    assert "there is no kind nodegroup. Did you mean node-group?" in cluster.run(kinds=["nodegroup"])["msg"]


def test_everything_is_deleted_with_what_is_in_the_way(made: Cluster) -> None:
    made.aws.settings(phases=1)
    system = made.id("file-system", "FileSystemId")
    made.efs.create_access_point(FileSystemId=system, ClientToken="volume")
    made.efs.create_file_system(CreationToken="another")
    change_document(made)
    change_policies(made)
    made.become(gpu(maxNodeCount=3))
    made.sent()
    checked = made.run(check=True, state="absent", purge=True)
    assert (checked["failed"], checked["changed"], made.sent()) == (False, True, [])
    done = made.apply(state="absent", purge=True)
    assert done["diff"] == checked["diff"]
    assert sorted(done["removed"]) == sorted(checked["removed"])
    # Addons and pod identities go with the cluster.
    inside = {each["key"] for each in made.plan["resources"] if each["kind"] in ("addon", "pod-identity")}
    assert set(done["removed"]) == {each["key"] for each in made.plan["resources"]} - inside
    assert all(line.startswith("delete ") for line in done["actions"])
    calls = made.sent()
    assert calls.count("DeletePolicyVersion") == 4
    assert not {"DeleteAddon", "DeletePodIdentityAssociation"} & set(calls)
    order = ["DeleteNodegroup", "DeleteCluster", "DeleteVpc"]
    assert sorted(order, key=calls.index) == order
    assert made.account() == ["file system another 0"]
    again = made.unchanged(state="absent", purge=True)
    assert again["removed"] == []


def test_a_cluster_with_node_groups_of_others_is_not_deleted(made: Cluster) -> None:
    subnet, role = made.id("subnet-private-us-west-2a", "SubnetId"), made.id("role-node", "Arn")
    made.eks.create_nodegroup(clusterName=made.name, nodegroupName="theirs", subnets=[subnet], nodeRole=role)
    result = made.run(state="absent", wait_timeout=1)
    assert result["failed"]
    assert "Cluster has nodegroups attached" in result["msg"]
    assert f"cluster {made.name}" in made.account()


def test_a_detached_internet_gateway_is_attached_again_or_deleted(cluster: Cluster) -> None:
    keys = ("vpc", "internet-gateway")
    listed = [cluster.entry(key) for key in keys]
    cluster.apply(resources=listed)
    gateway = {"InternetGatewayId": cluster.id(keys[1], "InternetGatewayId"), "VpcId": cluster.id("vpc", "VpcId")}
    cluster.ec2.detach_internet_gateway(**gateway)
    assert cluster.apply(resources=listed)["diff"]["before"] == {"internet-gateway": {"VpcId": ""}}
    cluster.ec2.detach_internet_gateway(**gateway)
    assert cluster.apply(resources=listed, state="absent")["removed"] == list(keys)
    assert cluster.account() == []


def test_secrets_are_not_in_results(cluster: Cluster) -> None:
    cluster.aws.settings(access_keys=["AKIAANOTHERKEY"])
    secrets = {"secret_key": "s3cr3t-of-the-account", "session_token": "t0k3n-of-the-session"}
    result = cluster.run(**secrets)
    assert result["failed"]
    text = json.dumps(result)
    assert not any(value in text for value in (*secrets.values(), cluster.aws.credentials["access_key"]))
    assert "access key" in result["msg"]
