# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The role eks_cluster and the playbook provision: variables, and what is reported before anything is made.

The Kubernetes side is not there, so every run that creates a cluster ends where its API server is asked for something;
tests/e2e goes further.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import names as eks_names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.hints import hint_for
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import Choices, plan
from ansible_collections.modelplane.fleet.tests import ansible_run, packages
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from ansible_collections.modelplane.fleet.tests.unit.roles.cloud_fleet import (
    CONCEPTS,
    CloudFleet,
    variables_are_documented,
)

eks_name = functools.partial(eks_names.cluster_name, "modelplane-system")
DEFAULTS = yaml.safe_load((ansible_run.ROOT / "roles/eks_cluster/defaults/main.yml").read_text())
NAME = "modelplane-system-eks-us-west-eks-03b8e"


# What is made once for a cluster with three zones, EFA and three node groups, from the first to the last step in AWS.
MADE = {
    "ec2": {"CreateVpc": 1, "CreateSubnet": 6, "AllocateAddress": 1, "CreateNatGateway": 1, "CreateRouteTable": 2},
    "iam": {"CreateRole": 4, "CreatePolicy": 1},
    "eks": {"CreateCluster": 1, "CreateNodegroup": 3, "CreateAddon": 5, "CreatePodIdentityAssociation": 2},
    "elasticfilesystem": {"CreateFileSystem": 1, "CreateMountTarget": 3},
}


@dataclass
class Fleet(CloudFleet):
    """A fleet of EKS clusters, whose account is the double."""

    host = "eks-us-west"
    resources = (CONCEPTS / "inference-cluster-eks.yaml", CONCEPTS / "inference-class-eks-l4.yaml")

    collections: Path = Path()

    @property
    def aws(self) -> Double:
        assert isinstance(self.cloud, Double)
        return self.cloud

    def at(self, cluster: str) -> dict[str, Any]:
        return {"eks": {"cluster": eks_name(cluster), "region": "us-west-2"}}

    def environment(self) -> dict[str, str]:
        paths = f"{ansible_run.ROOT / '.collections'}:{self.collections}"
        return {**self.aws.environment, "ANSIBLE_COLLECTIONS_PATH": paths}

    def secrets(self) -> list[str]:
        return [self.aws.environment["AWS_SECRET_ACCESS_KEY"]]


@pytest.fixture
def fleet(tmp_path: Path, aws: Double) -> Fleet:
    try:
        collections = packages.kubernetes_core()
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
    assert "this playbook creates clusters. Use the playbook provision" in ran.output
    assert ran.calls == []


def test_accounts_are_recorded_and_a_plan_that_contacts_nothing_refuses(fleet: Fleet, tmp_path: Path) -> None:
    """Each cluster fits alone, and both together do not."""
    fleet.aws.settings(quotas={"ec2": {"L-DB2E81BA": 6.0}})
    observed = tmp_path / "observed.json"
    shared = {"fleet_observations": str(observed), "fleet_build": str(tmp_path / "build"), "beside": {"eks-west-b": {}}}
    ran = fleet.run("--diff", playbook="check", **shared)
    assert (ran.changed, ran.failed, ran.mutating) == (2, 2, []), "there is no cluster to check yet"
    assert "+ - code: L-DB2E81BA" in ran.output
    (account,) = json.loads(observed.read_text())["accounts"]
    assert [each["name"] for each in account["clusters"]] == sorted([NAME, eks_name("eks-west-b")])
    refused = fleet.run(playbook="plan", **shared)
    assert (refused.failed, refused.calls) == (1, [])
    assert (
        "InferenceCluster eks-west-b, spec.nodePools[0]: Node pools eks-us-west/gpu-l4 (4), eks-west-b/gpu-l4 (4): "
        'start with 8 vCPUs, and the quota "Running On-Demand G and VT instances" (L-DB2E81BA) of account 123456789012 '
        "in us-west-2 is 6 vCPUs, as observed on"
    ) in refused.output
    assert not (tmp_path / "build" / "plan.json").exists()


def written(
    folder: Path,
    cidrs: list[str],
    fabric: str,
    pools: Iterable[str] = ("gpu",),
    region: str = "us-west-2",
    zone: str = "us-west-2a",
) -> Any:
    """The variables of a fleet with an EKSCluster in a file there."""
    pool = {"role": "GPU", "instanceType": "p5.48xlarge", "fabric": fabric, "zones": [zone], "nodeCount": 0}
    spec = {
        "region": region,
        "kubernetesVersion": "1.35",
        "networking": {"subnetCidrs": cidrs},
        "nodePools": [{"name": name, **pool, "gpu": {"acceleratorType": "nvidia-h100"}} for name in pools],
    }
    name = {"name": "eks-us-west", "namespace": "modelplane-system"}
    api = "infrastructure.modelplane.ai/v1alpha1"
    path = folder / "cluster.yaml"
    path.write_text(json.dumps({"apiVersion": api, "kind": "EKSCluster", "metadata": name, "spec": spec}))
    return {"fleet_resources": [str(path)]}


@pytest.mark.interrupted
def test_a_run_that_was_refused_is_continued_and_all_goes_in_the_end(fleet: Fleet, tmp_path: Path) -> None:
    cidrs = ["10.0.0.0/20", "10.0.16.0/20", "10.0.32.0/20"]
    desired = written(tmp_path, cidrs, "EFA", ["gpu", "gone"])
    fleet.aws.refuse(operation="CreateNatGateway", code="NatGatewayLimitExceeded", message="Too many.")
    first = fleet.run(**desired)
    assert "NatGatewayLimitExceeded" in first.output
    assert hint_for("NatGatewayLimitExceeded", "") in first.output
    second = fleet.run(**desired)
    assert second.failed == 1
    assert "is not known. Check the address" in second.output
    made = Counter(first.counts()) + Counter(second.counts())
    assert made["CreateSecurityGroup"] == 2
    for operations in MADE.values():
        assert {operation: made[operation] for operation in operations} == operations
    # What was made goes with the cluster, whatever the manifests have no more.
    fewer = written(tmp_path, cidrs[:2], "None")
    fleet.run("-e", "eks_cluster_state=absent", **fewer).ok()
    assert not [vpc for vpc in fleet.aws.client("ec2").describe_vpcs()["Vpcs"] if not vpc["IsDefault"]]
    assert fleet.aws.client("ec2").describe_launch_templates()["LaunchTemplates"] == []
    assert fleet.aws.invalid() == []


def test_zones_are_those_that_can_hold_a_control_plane(fleet: Fleet, tmp_path: Path) -> None:
    cidrs = [f"10.0.{8 * index}.0/21" for index in range(5)]
    desired = written(tmp_path, cidrs, "EFA", region="us-east-1", zone="us-east-1b")
    ran = fleet.run("--check", "--diff", **desired).ok()
    assert ran.mutating == []
    zones = set(re.findall(r"AvailabilityZone: (us-east-1[a-z])", ran.output))
    assert zones == {f"us-east-1{letter}" for letter in "abcdf"}, ran.output
    # Named by a pool, it is reported: here it is use1-az3.
    refused = fleet.run(**written(tmp_path, cidrs, "EFA", region="us-east-1", zone="us-east-1e"))
    assert "EKS takes no subnets" in refused.output, refused.output
    assert refused.mutating == []


def test_errors_are_reported_before_anything_is_made(fleet: Fleet) -> None:
    ran = fleet.run(fleet_resources=[str(CONCEPTS / "inference-cluster-eks.yaml")])
    assert ran.failed == 1
    assert "eks-l4-1x-g6" in ran.output
    assert ran.mutating == []


def test_a_cluster_whose_manifest_has_errors_is_held(fleet: Fleet) -> None:
    given = {"fleet_resources": [fleet.another(fleet.host, " region:", " regoin:")], "fleet_invalid": "hold"}
    ran = fleet.run(**given).ok()
    assert "regoin" in ran.output
    assert ran.calls == []
    gone = fleet.run("-e", "eks_cluster_state=absent", **given)
    assert gone.failed == 1
    assert "regoin" in gone.output
    assert gone.calls == []


def test_variables_that_make_no_sense_are_reported(fleet: Fleet) -> None:
    ran = fleet.run(host={"fleet_provision": "never", "eks_cluster_tag": {}, "gke_cluster_label": {}})
    messages = (
        'fleet_provision is "never", and must be one of managed, provided',
        "eks_cluster_tag is not a variable of modelplane.fleet's roles. Did you mean eks_cluster_tags?",
        "gke_cluster_label is not a variable of modelplane.fleet's roles. Did you mean gke_cluster_labels?",
    )
    assert [each for each in messages if each not in ran.output] == []
    assert ran.calls == []


def test_a_role_is_assumed(fleet: Fleet) -> None:
    arn = "arn:aws:iam::123456789012:role/"
    fleet.aws.refuse(operation="AssumeRole", code="AccessDenied", message="Not you.")
    ran = fleet.run(
        "--check",
        "-v",
        host={"eks_cluster_accounts": {"default": {"role_arn": f"{arn}fleet"}}},
        beside={"other": {"eks_cluster_role_arn": f"{arn}other"}},
    )
    asked = [call for call in ran.calls if call["operation"] == "AssumeRole"]
    assert {call["parameters"]["RoleArn"] for call in asked} == {f"{arn}fleet", f"{arn}other"}
    assert "session_token" not in ran.output
    # Both ask at the same time, and whoever is first is refused.
    (refused,) = [call["parameters"]["RoleArn"] for call in asked if call["error"]]
    assert ran.failed == 1
    assert f"the role {refused} cannot be assumed" in ran.output
    assert "Not you." in ran.output


def test_a_cluster_with_replicas_stays(fleet: Fleet) -> None:
    build, beside = fleet.built("eks-us-west", "forced"), {"forced": {"eks_cluster_force": True}}
    ran = fleet.run("-e", "eks_cluster_state=absent", beside=beside, fleet_build=build)
    assert "cluster eks-us-west has 1 ModelReplicas. Drain it first" in ran.output, ran.output
    assert "eks_cluster_force" in ran.output
    assert (ran.failed, ran.mutating) == (1, [])
    assert NAME not in json.dumps(ran.calls)
    assert eks_name("forced") in json.dumps(ran.calls)
