# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Versions of launch templates, of the cluster, its nodes and its addons."""

from __future__ import annotations

import json

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.graph import UNKNOWN
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.cloud_resources_eks.eks_account import (
    OPTIONS,
    Cluster,
    block,
    changed_keys,
    same_but_unknown,
)


def template_versions(cluster: Cluster) -> list[tuple[int, bool]]:
    found = cluster.ec2.describe_launch_template_versions(
        LaunchTemplateId=cluster.id("launch-template-gpu-h200", "LaunchTemplateId")
    )
    return sorted((each["VersionNumber"], each["DefaultVersion"]) for each in found["LaunchTemplateVersions"])


def test_a_new_version_of_a_launch_template_replaces_the_nodes_of_a_capacity_block(cluster: Cluster) -> None:
    first = block(cluster)
    cluster.become(first)
    cluster.apply()
    key = "launch-template-gpu-h200"
    template = {"LaunchTemplateId": cluster.id(key, "LaunchTemplateId")}
    # The autoscaler removed a node.
    cluster.configure_group("gpu-h200", scalingConfig={"desiredSize": 1})
    cluster.become({**first, "diskSizeGb": 900})
    cluster.sent()
    checked = cluster.run(check=True)
    assert checked["diff"]["after"]["node-group-gpu-h200"] == {"launchTemplate.version": UNKNOWN}
    assert "update node group gpu-h200: launchTemplate.version; all its nodes are replaced" in checked["actions"]
    done = cluster.apply()
    assert done["actions"] == checked["actions"]
    assert same_but_unknown(checked["diff"], done["diff"])
    calls = cluster.requests()
    assert [call["operation"] for call in calls] == [
        "CreateLaunchTemplateVersion",
        "ModifyLaunchTemplate",
        "UpdateNodegroupConfig",
        "UpdateNodegroupVersion",
        "UpdateNodegroupConfig",
    ]
    # There is no room for new nodes beside the old ones.
    sizes = [each["scalingConfig"] for each in cluster.parameters(calls, "UpdateNodegroupConfig")]
    assert sizes == [{"minSize": 0, "maxSize": 2, "desiredSize": size} for size in (0, 1)]
    assert cluster.parameters(calls, "UpdateNodegroupVersion")[0]["launchTemplate"]["version"] == "2"
    assert template_versions(cluster) == [(1, False), (2, True)]
    cluster.unchanged(purge=True)

    # A version by hand, and a default version that is not the latest one.
    cluster.ec2.create_launch_template_version(**template, LaunchTemplateData={"InstanceType": "p5en.48xlarge"})
    cluster.apply()
    assert template_versions(cluster)[-1] == (4, True)
    cluster.ec2.modify_launch_template(**template, DefaultVersion="1")
    cluster.sent()
    cluster.apply()
    assert (template_versions(cluster)[-1], cluster.sent()) == ((4, True), ["ModifyLaunchTemplate"])
    cluster.unchanged(purge=True)

    # A pool goes: its template after it.
    cluster.become()
    cluster.sent()
    checked = cluster.run(check=True, purge=True)
    done = cluster.apply(purge=True)
    calls = cluster.sent()
    assert calls.index("DeleteNodegroup") < calls.index("DeleteLaunchTemplate")
    assert same_but_unknown(checked["diff"], done["diff"])
    assert "delete node group gpu-h200" in done["actions"]
    assert "delete security group eks-us-west-efa" in done["actions"]
    assert "node-group-gpu-l4" in changed_keys(done)
    cluster.unchanged(purge=True)


# Versions


def test_a_cluster_goes_through_the_minor_versions_and_its_nodes_and_addons_follow(cluster: Cluster) -> None:
    cluster.become(kubernetesVersion="1.32")
    cluster.apply()
    cluster.sent()
    cluster.become(kubernetesVersion="1.36")
    for check in (True, False):
        result = cluster.run(check=check)
        assert result["failed"]
        assert (
            f"EKS cluster {cluster.name}: cannot change version from 1.32 to 1.36. Nodes may be 3 minor versions "
            "behind at most: go to a version between first, and on when the nodes have it"
        ) in result["msg"]
    cluster.become(kubernetesVersion="1.35")
    checked = cluster.run(check=True)
    assert (checked["failed"], cluster.sent()) == (False, [])
    followers = ("node-group-system", "node-group-gpu-l4")
    assert checked["diff"]["after"] == {
        "cluster": {"version": "1.35"},
        "addon-kube-proxy": {"kubernetesVersion": "1.35"},
        **{key: {"version": "1.35"} for key in followers},
    }
    done = cluster.apply()
    assert done["diff"] == checked["diff"]
    calls = cluster.requests()
    versions = [each["version"] for each in cluster.parameters(calls, "UpdateClusterVersion")]
    assert versions == ["1.33", "1.34", "1.35"]
    assert {cluster.group(name)["version"] for name in ("system", "gpu-l4")} == {"1.35"}
    assert cluster.addon("kube-proxy")["addonVersion"] == "v1.35.0-eksbuild.2"
    cluster.unchanged(purge=True)


def test_versions_and_configurations_of_addons(made: Cluster) -> None:
    addons = {"coredns": {"version": "v1.12.4-eksbuild.1", "configuration": {"replicaCount": 3, "a": {"b": 1}}}}
    made.become(options=Options(tags=OPTIONS.tags, addons={**addons, "metrics-server": {}}))
    result = made.apply()
    assert changed_keys(result) == {"addon-coredns", "addon-metrics-server"}
    found = made.addon("coredns")
    assert (found["addonVersion"], json.loads(found["configurationValues"])) == (
        "v1.12.4-eksbuild.1",
        addons["coredns"]["configuration"],
    )
    same = '{"a":{"b":1},"replicaCount":3}'
    made.eks.update_addon(clusterName=made.name, addonName="coredns", configurationValues=same)
    made.settle(lambda: str(made.addon("coredns")["status"]))
    made.unchanged()
    # Without a version, the one that it has stays while it is for the cluster.
    made.become()
    result = made.apply(purge=True)
    assert "delete addon metrics-server" in result["actions"]
    assert made.addon("coredns")["addonVersion"] == "v1.12.4-eksbuild.1"
    made.aws.refuse(operation="DescribeAddonVersions", code="AccessDeniedException", message="No.", times=99)
    result = made.unchanged()
    assert len(result["warnings"]) == 5
    assert "addon coredns may have a version that is too old for its cluster" in " ".join(result["warnings"])
