# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The role eks_cluster and the playbook provision: variables, and what is told before anything is made.

The Kubernetes side is not there, so every run that brings a cluster ends where its API server is asked for something;
tests/e2e goes further.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.advice import advice
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import Choices, plan
from ansible_collections.modelplane.fleet.tests import ansible_run, packages
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from ansible_collections.modelplane.fleet.tests.unit.roles.cloud_fleet import (
    CONCEPTS,
    MANIFESTS,
    CloudFleet,
    variables_are_documented,
)

DEFAULTS = yaml.safe_load((ansible_run.ROOT / "roles/eks_cluster/defaults/main.yml").read_text())
GETTING_STARTED = MANIFESTS / "getting-started" / "eks"
NAME = "modelplane-system-eks-us-west-eks-03b8e"


# What a run for a cluster with three zones and no EFA makes, from the first to the last step in AWS.
MADE = {
    "ec2": {"CreateVpc": 1, "CreateSubnet": 6, "AllocateAddress": 1, "CreateNatGateway": 1, "CreateRouteTable": 2},
    "iam": {"CreateRole": 4, "CreatePolicy": 1},
    "eks": {"CreateCluster": 1, "CreateNodegroup": 2, "CreateAddon": 5, "CreatePodIdentityAssociation": 2},
    "elasticfilesystem": {"CreateFileSystem": 1, "CreateMountTarget": 3},
}


@dataclass
class Fleet(CloudFleet):
    """A fleet of one EKS cluster, whose account is the double."""

    host = "eks-us-west"
    connection: ClassVar[dict[str, Any]] = {"eks": {"cluster": NAME, "region": "us-west-2"}}
    resources = (CONCEPTS / "inference-cluster-eks.yaml", CONCEPTS / "inference-class-eks-l4.yaml")

    collections: Path = Path()

    @property
    def aws(self) -> Double:
        assert isinstance(self.cloud, Double)
        return self.cloud

    def environment(self) -> dict[str, str]:
        paths = f"{ansible_run.ROOT / '.collections'}:{self.collections}"
        return {**self.aws.environment, "ANSIBLE_COLLECTIONS_PATH": paths}

    def secrets(self) -> list[str]:
        return [self.aws.environment["AWS_SECRET_ACCESS_KEY"]]


@pytest.fixture
def fleet(tmp_path: Path, aws: Double) -> Fleet:
    try:
        collections = packages.amazon_aws()
    except packages.UnavailableError as error:
        pytest.skip(str(error))
    aws.reset()
    return Fleet(tmp_path, aws, {"eks_cluster_poll_delay": 0.01}, collections)


# Variables


def test_every_variable_is_documented() -> None:
    variables_are_documented("eks_cluster")


@pytest.mark.parametrize(
    ("why", "expected"), [("", ["cluster-autoscaler", "efa-driver"]), ("x", ["cluster-autoscaler"])]
)
def test_components_can_be_planned(why: str, expected: list[str]) -> None:
    components = [
        {**each, **({"objects": []} if "objects" in each else {}), **({"unneeded": why} if "unneeded" in each else {})}
        for each in DEFAULTS["eks_cluster_components"]
    ]
    planned = plan(components, Choices(variables="eks_cluster"))
    assert [each["key"] for each in planned if each.get("chart") and not each["why"]] == expected


# Runs


def test_site_makes_clusters_and_removes_none(fleet: Fleet) -> None:
    ran = fleet.run("-e", "eks_cluster_state=absent", playbook="site")
    assert ran.failed == 1
    assert "this playbook makes clusters. Take the playbook provision" in ran.output
    assert ran.calls == []


def test_a_run_that_ended_at_the_api_server_made_all_else_once(fleet: Fleet) -> None:
    first = fleet.run()
    assert first.failed == 1
    assert "is not known. Check the address" in first.output
    counts = first.counts()
    for operations in MADE.values():
        assert {operation: counts.get(operation, 0) for operation in operations} == operations

    second = fleet.run()
    assert (second.changed, second.mutating) == (0, [])


def written(folder: Path, cidrs: list[str], fabric: str, pools: Iterable[str] = ("gpu",), version: str = "1.35") -> Any:
    """The variables of a fleet with an EKSCluster in a file there."""
    pool = {"role": "GPU", "instanceType": "p5.48xlarge", "fabric": fabric, "zones": ["us-west-2a"], "nodeCount": 0}
    spec = {
        "region": "us-west-2",
        "kubernetesVersion": version,
        "networking": {"subnetCidrs": cidrs},
        "nodePools": [{"name": name, **pool, "gpu": {"acceleratorType": "nvidia-h100"}} for name in pools],
    }
    name = {"name": "eks-us-west", "namespace": "modelplane-system"}
    api = "infrastructure.modelplane.ai/v1alpha1"
    path = folder / "cluster.yaml"
    path.write_text(json.dumps({"apiVersion": api, "kind": "EKSCluster", "metadata": name, "spec": spec}))
    return {"fleet_resources": [str(path)]}


def test_nodes_follow_the_cluster_templates_go_after_them_and_all_goes_in_the_end(fleet: Fleet, tmp_path: Path) -> None:
    cidrs = ["10.0.0.0/20", "10.0.16.0/20", "10.0.32.0/20"]
    before = fleet.run(**written(tmp_path, cidrs, "EFA", ["gpu", "gone"]))
    assert before.counts()["CreateSecurityGroup"] == 2
    newer = written(tmp_path, cidrs, "EFA", version="1.36")
    would = fleet.run("--check", "--diff", **newer)
    assert would.mutating == []
    # The cluster, and both groups that stay.
    assert would.output.count("+ version: '1.36'") == 3, would.output
    done = fleet.run(**newer)
    assert done.counts()["UpdateNodegroupVersion"] == 2
    calls = [call["operation"] for call in done.calls if call["mutating"]]
    assert calls.index("DeleteLaunchTemplate") > calls.index("DeleteNodegroup")
    names = [
        each["LaunchTemplateName"] for each in fleet.aws.client("ec2").describe_launch_templates()["LaunchTemplates"]
    ]
    assert len(names) == 1
    assert "-gpu-" in names[0]
    # What was made goes with the cluster, whatever the manifests have no more.
    fewer = written(tmp_path, cidrs[:2], "None")
    fleet.run("-e", "eks_cluster_state=absent", **fewer).ok()
    assert not [vpc for vpc in fleet.aws.client("ec2").describe_vpcs()["Vpcs"] if not vpc["IsDefault"]]
    assert fleet.aws.client("ec2").describe_launch_templates()["LaunchTemplates"] == []
    assert fleet.aws.invalid() == []


def test_an_address_whose_gateway_failed_is_used_by_the_next_run(fleet: Fleet) -> None:
    fleet.aws.refuse(operation="CreateNatGateway", code="NatGatewayLimitExceeded", message="Too many.")
    first = fleet.run()
    assert "NatGatewayLimitExceeded" in first.output
    assert advice("NatGatewayLimitExceeded", "") in first.output
    assert first.counts()["AllocateAddress"] == 1
    # The rest of the run tells nothing more.
    fleet.aws.refuse(operation="CreateRouteTable")
    second = fleet.run().counts()
    assert "AllocateAddress" not in second
    assert second["CreateNatGateway"] == 1


def test_what_is_wrong_is_told_before_anything_is_made(fleet: Fleet) -> None:
    ran = fleet.run(fleet_resources=[str(CONCEPTS / "inference-cluster-eks.yaml")])
    assert ran.failed == 1
    assert "eks-l4-1x-g6" in ran.output
    assert ran.mutating == []


def test_a_cluster_whose_manifest_has_errors_is_held(fleet: Fleet, tmp_path: Path) -> None:
    broken = tmp_path / "fleet.yaml"
    broken.write_text((CONCEPTS / "inference-cluster-eks.yaml").read_text().replace("region:", "regoin:"))
    given = {"fleet_resources": [str(broken)], "fleet_invalid": "hold"}
    ran = fleet.run(**given).ok()
    assert "regoin" in ran.output
    assert ran.calls == []
    gone = fleet.run("-e", "eks_cluster_state=absent", **given)
    assert gone.failed == 1
    assert "regoin" in gone.output
    assert gone.calls == []


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ({"fleet_target": "directory"}, "No host of the play is a cluster that the fleet makes"),
        ({"fleet_provision": "never"}, "fleet_provision"),
        (
            {"eks_cluster_tag": {}},
            "eks_cluster_tag is no variable of modelplane.fleet's roles. Did you mean eks_cluster_tags?",
        ),
    ],
)
def test_variables_that_make_no_sense_are_told(fleet: Fleet, host: dict[str, Any], told: str) -> None:
    ran = fleet.run(host=host)
    assert told in ran.output
    assert ran.calls == []


@pytest.mark.parametrize(
    "host",
    [
        {"fleet_provision": "provided"},
        {"fleet_connection": {"eks": {"cluster": "production", "region": "us-west-2"}}},
    ],
)
def test_clusters_of_others_are_passed_by(fleet: Fleet, host: dict[str, Any]) -> None:
    assert fleet.run(host=host).ok().calls == []


@pytest.mark.parametrize("state", ["present", "absent"])
def test_a_collection_that_is_missing_is_told(fleet: Fleet, tmp_path: Path, state: str) -> None:
    ran = replace(fleet, collections=tmp_path / "none").run(eks_cluster_state=state)
    assert ran.failed == 1
    assert "amazon.aws is not installed: clusters on EKS need 10.1.2 or newer. Install it with: " in ran.output
    assert not ran.mutating


def test_a_role_is_assumed(fleet: Fleet) -> None:
    accounts = {"default": {"role_arn": "arn:aws:iam::123456789012:role/fleet"}}
    ran = fleet.run("--check", "-v", eks_cluster_accounts=accounts).ok()
    assumed = [call for call in ran.calls if call["operation"] == "AssumeRole"]
    assert [call["parameters"]["RoleArn"] for call in assumed] == [accounts["default"]["role_arn"]]
    assert "session_token" not in ran.output
    fleet.aws.refuse(operation="AssumeRole", code="AccessDenied", message="Not you.")
    told = fleet.run("--check", eks_cluster_accounts=accounts)
    assert "cannot be assumed" in told.output
    assert "Not you." in told.output


def test_a_cluster_with_replicas_stays(fleet: Fleet) -> None:
    given = {"fleet_resources": [str(GETTING_STARTED)], "fleet_build": str(fleet.folder / "build")}
    fleet.run(playbook="reconcile", host={"fleet_target": "directory"}, **given).ok()
    ran = fleet.run("-e", "eks_cluster_state=absent", **given)
    assert "cluster eks-us-west has 1 ModelReplicas. Drain it first" in ran.output, ran.output
    assert ran.calls == []
    forced = fleet.run("-e", "eks_cluster_state=absent", "-e", "eks_cluster_force=true", **given).ok()
    assert forced.mutating == []
