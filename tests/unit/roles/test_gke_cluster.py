# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The role gke_cluster and the playbook provision: variables, what is reported before anything is made, and resumption.

The Kubernetes side is not there, so every run that creates a cluster ends where its API server is asked for something;
tests/e2e goes further.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import names as eks_names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import names as gke_names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import rights
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import Choices, plan
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.gcp.world import PROJECT
from ansible_collections.modelplane.fleet.tests.unit.roles.cloud_fleet import (
    CONCEPTS,
    CloudFleet,
    Ran,
    variables_are_documented,
)

eks_name = functools.partial(eks_names.cluster_name, "modelplane-system")
gke_name = functools.partial(gke_names.cluster_name, "modelplane-system")
DEFAULTS = yaml.safe_load((ansible_run.ROOT / "roles/gke_cluster/defaults/main.yml").read_text())
NAME = "modelplane-system-gke-us-central-g-f8ba7"
NETWORK = f"projects/{PROJECT}/global/networks/{NAME}"
IN_SECOND = ("      region:", "      project: second-project\n      region:")
ABSENT = ("-e", "gke_cluster_state=absent")
# What a run for the cluster of the documents makes, and what is removed after it.
MADE = {
    "projects.locations.clusters.create": 1,
    "projects.locations.clusters.nodePools.create": 1,
    "networks.insert": 1,
    "projects.serviceAccounts.create": 2,
    "projects.setIamPolicy": 3,
    "services.enable": 1,
    "subnetworks.insert": 1,
}
GONE = {
    "networks.delete": 1,
    "projects.serviceAccounts.delete": 2,
    "projects.setIamPolicy": 3,
    "subnetworks.delete": 1,
}


@dataclass
class Fleet(CloudFleet):
    """A fleet of GKE clusters, whose project is the double."""

    host = "gke-us-central"
    resources = (CONCEPTS / "inference-cluster-gke.yaml", CONCEPTS / "inference-class-gke-l4.yaml")

    @property
    def gcp(self) -> Double:
        assert isinstance(self.cloud, Double)
        return self.cloud

    def at(self, cluster: str, **more: str) -> dict[str, Any]:
        return {"gke": {"location": "us-central1", "cluster": gke_name(cluster), **more}}

    def environment(self) -> dict[str, str]:
        # Nothing of AWS is to be asked, and no account of a user is.
        nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_EC2_METADATA_DISABLED": "true"}
        return {**self.gcp.environment, **nowhere, "AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}

    def secrets(self) -> list[str]:
        return [self.gcp.key()["private_key"].splitlines()[1]]

    def projects(self, ran: Ran) -> set[str]:
        """The projects that a run asked about."""
        message = {str(part) for call in ran.calls for part in call["parameters"].values()}
        return {name for name in (PROJECT, "second-project") if any(name in part for part in message)}


@pytest.fixture
def fleet(tmp_path: Path, gcp: Double) -> Fleet:
    gcp.cluster_server("https://gke.invalid")
    return Fleet(tmp_path, gcp, {"gke_cluster_poll_delay": 0.01, "gke_cluster_endpoints": gcp.credentials["endpoints"]})


# Variables


def test_every_variable_is_documented() -> None:
    variables_are_documented("gke_cluster")


def test_components_can_be_planned() -> None:
    components = [{**each, "objects": []} for each in DEFAULTS["gke_cluster_components"]]
    assert [each["key"] for each in plan(components, Choices(variables="gke_cluster"))] == ["storage-class"]


# Runs


def test_a_check_records_the_project_and_reports_its_quotas(fleet: Fleet, tmp_path: Path) -> None:
    fleet.gcp.settings(quotas={"us-central1": {"NVIDIA_L4_GPUS": 0.0}})
    ran = fleet.run(playbook="check", fleet_observations=str(tmp_path / "observed.json"))
    assert (ran.changed, ran.mutating) == (1, [])
    assert f"and the quota NVIDIA_L4_GPUS of project {PROJECT} in us-central1 is 0. Ask for more" in ran.output
    accounts = json.loads((tmp_path / "observed.json").read_text())["accounts"]
    assert [(each["account"], each["region"]) for each in accounts] == [(PROJECT, "global"), (PROJECT, "us-central1")]


def test_check_mode_reports_what_would_be_made_and_what_could_not_be_removed_and_makes_nothing(fleet: Fleet) -> None:
    """Without a control cluster there is no place to keep a key, so that none is made."""
    fleet.gcp.leave_role("roles/owner")
    me = f"serviceAccount:{fleet.gcp.key()['client_email']}"
    for role in {*rights.MAKING, *rights.REMOVING, "roles/iam.serviceAccountUser"} - {rights.KEYS, "roles/file.editor"}:
        fleet.gcp.change_policy(role, me)
    ran = fleet.run("--check", "--diff").ok()
    assert ran.mutating == []
    assert fleet.gcp.objects() == []
    assert ran.changed == 1
    message = (
        f"create VPC network {NAME}",
        "autoCreateSubnetworks: false",
        f"create subnetwork {NAME}",
        "ipCidrRange: 10.0.0.0/24",
        f"create GKE cluster {NAME}",
        "initialClusterVersion: '1.35'",
        "create node pool gpu-l4",
        "acceleratorType: nvidia-l4",
        "create node pool system",
        "create API file.googleapis.com",
        "storage-class is installed in the cluster",
        "role: roles/container.admin",
        "removing the cluster needs more",
        "Give it the role roles/file.editor",
    )
    assert [words for words in message if words not in ran.output] == []


@pytest.mark.interrupted
def test_a_run_that_ended_early_is_gone_on_with_and_what_is_of_others_outlives_the_cluster(fleet: Fleet) -> None:
    first = fleet.run()
    assert first.failed == 1
    assert "gke.invalid" in first.output
    assert first.counts() == MADE

    second = fleet.run()
    assert (second.changed, second.mutating) == (0, [])

    for state in ((), ABSENT):
        others = fleet.run(*state, host={"gke_cluster_fleet": "others"})
        assert "modelplane-ai-fleet=default" in others.output, others.output
        assert (others.failed, others.mutating) == (1, [])

    fleet.gcp.load_balancer(NAME)
    fleet.gcp.volume(NAME)
    theirs = {"name": "theirs", "network": NETWORK, "direction": "INGRESS", "allowed": [{"IPProtocol": "tcp"}]}
    fleet.gcp.plant(f"projects/{PROJECT}/global/firewalls", **theirs)
    would = fleet.run(*ABSENT, "--check").ok()
    assert would.mutating == []
    assert "firewall rule theirs" in would.output
    ran = fleet.run(*ABSENT)
    assert ran.failed == 1
    assert "Network of cluster gke-us-central is not deleted:" in ran.output
    assert "firewall rule theirs" in ran.output
    left = [path for path in fleet.gcp.objects() if "serviceAccounts" not in path]
    assert sorted(path.split("/")[-2] for path in left) == ["firewalls", "networks", "subnetworks"]
    fleet.gcp.request("compute", "DELETE", f"compute/v1/projects/{PROJECT}/global/firewalls/theirs")
    for _ in range(5):
        fleet.gcp.request("compute", "GET", f"compute/v1/projects/{PROJECT}/global/firewalls/theirs")
    assert fleet.run(*ABSENT).ok().counts() == GONE
    assert fleet.gcp.objects() == []
    assert NAME[:20] not in json.dumps(fleet.gcp.policy())


def test_what_keeps_clusters_from_being_made_or_removed_is_reported_before_anything_is_done(fleet: Fleet) -> None:
    fleet.gcp.settings(not_offered={"us-central1-c": ["g2-standard-8"]})
    states = {"made": "present", "removed": "absent"}
    for name in states:
        network = {"name": gke_name(name), "autoCreateSubnetworks": False, "description": "mine"}
        fleet.gcp.plant(f"projects/{PROJECT}/global/networks", **network)
        fleet.another(name, "    - us-central1-c\n")
    ran = fleet.run(beside={name: {"gke_cluster_state": state} for name, state in states.items()})
    assert ran.failed == 3
    message = (
        "Cluster gke-us-central: node pool gpu-l4: g2-standard-8 is not offered in us-central1-c",
        *(f"network {gke_name(name)} exists already, and was not created by this" for name in states),
    )
    assert [words for words in message if words not in ran.output] == []
    assert ran.mutating == []


def test_what_is_wrong_with_the_manifests_is_reported_before_anything_is_asked(fleet: Fleet) -> None:
    ran = fleet.run(fleet_resources=[str(CONCEPTS / "inference-cluster-gke.yaml")])
    assert ran.failed == 1
    assert "gke-l4-1x-g2" in ran.output
    assert ran.calls == []


def test_variables_that_make_no_sense_are_reported(fleet: Fleet) -> None:
    # Once the other one has failed, nothing is left to do.
    ran = fleet.run(host={"gke_cluster_state": "gone"}, beside={"files": {"fleet_target": "directory"}})
    assert "gke_cluster_state is gone, and must be one of present, absent." in ran.output
    assert "The fleet creates no cluster of the play's hosts" in ran.output
    assert ran.calls == []


def on_eks(name: str) -> dict[str, Any]:
    return {"eks": {"region": "us-west-2", "cluster": name}}


def test_clusters_of_others_are_passed_by(fleet: Fleet) -> None:
    """As are those that are reached in another project than the one they are made in, and the same on EKS."""
    eks = (CONCEPTS / "inference-cluster-eks.yaml").read_text()
    eks_class = (CONCEPTS / "inference-class-eks-l4.yaml").read_text()
    (fleet.folder / "their-eks.yaml").write_text(eks.replace("eks-us-west", "their-eks"))
    (fleet.folder / "others-eks.yaml").write_text(f"{eks.replace('eks-us-west', 'others-eks')}\n---\n{eks_class}")
    fleet.gcp.add_project("second-project")
    fleet.another("elsewhere", *IN_SECOND)
    ran = fleet.run(
        host={"fleet_provision": "provided"},
        beside={
            "theirs": {"fleet_connection": {"gke": {"location": "us-central1", "cluster": "production"}}},
            "elsewhere": {"fleet_connection": fleet.at("elsewhere", project=PROJECT)},
            "on-eks": {"eks_cluster_state": "absent", "fleet_connection": on_eks(gke_name("on-eks"))},
            "their-eks": {"fleet_connection": on_eks("production")},
            "others-eks": {
                "fleet_provision": "provided",
                "fleet_connection": on_eks(eks_name("others-eks")),
            },
        },
    )
    assert ran.ok().calls == []


# Which project


def test_projects_and_credentials_are_those_that_are_written_or_those_of_the_account(fleet: Fleet) -> None:
    fleet.gcp.add_project("second-project")
    keys = fleet.folder / "keys"
    keys.mkdir()
    key = {**fleet.gcp.key("second-project"), "project_id": "nowhere"}
    (keys / "second.json").write_text(json.dumps(key))
    fleet.another("written", *IN_SECOND)
    account = {"project": "second-project", "credentials_file": "keys/second.json"}
    ran = fleet.run(
        "--check",
        host={"gke_cluster_accounts": {"default": account}},
        beside={
            "written": {
                "fleet_connection": fleet.at("written", project="second-project"),
                "gke_cluster_project": PROJECT,
                "gke_cluster_credentials_file": "keys/second.json",
            },
            "keyless": {"gke_cluster_accounts": {"default": {"credentials_file": "keys/missing.json"}}},
        },
    )
    assert fleet.projects(ran) == {"second-project"}
    assert f"project: {PROJECT}" not in ran.output
    for cluster in ("gke-us-central", "written"):
        assert f"create GKE cluster {gke_name(cluster)}" in ran.output
    assert ran.failed == 1
    assert "keys/missing.json: no such file or directory" in ran.output
    assert (
        "Set credentials_file (gke_cluster_credentials_file in an inventory) or GOOGLE_APPLICATION_CREDENTIALS"
        in ran.output
    )


def test_a_cluster_with_replicas_stays(fleet: Fleet) -> None:
    build = fleet.built("gke-us-central", "forced")
    ran = fleet.run(*ABSENT, beside={"forced": {"gke_cluster_force": True}}, fleet_build=build)
    assert "cluster gke-us-central has 1 ModelReplicas. Drain it first" in ran.output, ran.output
    assert "gke_cluster_force" in ran.output
    assert (ran.failed, ran.mutating) == (1, [])
    assert NAME not in json.dumps(ran.calls)
    assert gke_name("forced") in json.dumps(ran.calls)
