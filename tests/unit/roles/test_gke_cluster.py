# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The role gke_cluster and the playbook provision: variables, what is told before anything is made, and resumption.

The Kubernetes side is not there, so every run that brings a cluster ends where its API server is asked for something;
tests/e2e goes further.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils import connections
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import rights
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import Choices, plan
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.gcp.world import PROJECT
from ansible_collections.modelplane.fleet.tests.unit.roles.cloud_fleet import (
    CONCEPTS,
    MANIFESTS,
    CloudFleet,
    Ran,
    variables_are_documented,
)

DEFAULTS = yaml.safe_load((ansible_run.ROOT / "roles/gke_cluster/defaults/main.yml").read_text())
GETTING_STARTED = MANIFESTS / "getting-started" / "gke"
NAME = "modelplane-system-gke-us-central-g-f8ba7"
NETWORK = f"projects/{PROJECT}/global/networks/{NAME}"
ABSENT = ("-e", "gke_cluster_state=absent")
# What a run for the cluster of the documents makes, and what is taken away with it.
MADE = {
    "projects.locations.clusters.create": 1,
    "projects.locations.clusters.nodePools.create": 1,
    "networks.insert": 1,
    "projects.serviceAccounts.create": 1,
    "projects.setIamPolicy": 1,
    "services.enable": 1,
    "subnetworks.insert": 1,
}
GONE = {
    "projects.locations.clusters.delete": 1,
    "networks.delete": 1,
    "projects.serviceAccounts.delete": 1,
    "projects.setIamPolicy": 1,
    "subnetworks.delete": 1,
}


@dataclass
class Fleet(CloudFleet):
    """A fleet of one GKE cluster, whose project is the double."""

    host = "gke-us-central"
    connection: ClassVar[dict[str, Any]] = {"gke": {"location": "us-central1", "cluster": NAME}}
    resources = (CONCEPTS / "inference-cluster-gke.yaml", CONCEPTS / "inference-class-gke-l4.yaml")

    @property
    def gcp(self) -> Double:
        assert isinstance(self.cloud, Double)
        return self.cloud

    def environment(self) -> dict[str, str]:
        return self.gcp.environment

    def secrets(self) -> list[str]:
        return [self.gcp.key()["private_key"].splitlines()[1]]

    def projects(self, ran: Ran) -> set[str]:
        """The projects that a run asked about."""
        told = {str(part) for call in ran.calls for part in call["parameters"].values()}
        return {name for name in (PROJECT, "second-project") if any(name in part for part in told)}


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


def test_check_mode_lists_what_would_be_made_and_makes_nothing(fleet: Fleet) -> None:
    ran = fleet.run("--check", "--diff").ok()
    assert ran.mutating == []
    assert fleet.gcp.objects() == []
    assert ran.changed == 1
    for told in (
        f"network ({NAME}) is made",
        "autoCreateSubnetworks: false",
        f"subnetwork ({NAME}) is made",
        "ipCidrRange: 10.0.0.0/24",
        f"cluster ({NAME}) is made",
        "initialClusterVersion: '1.35'",
        "pool-gpu-l4 (gpu-l4) is made",
        "acceleratorType: nvidia-l4",
        "pool-system (system) is made",
        "service-filestore (file.googleapis.com) is enabled",
        "storage-class is brought into the cluster",
        "role: roles/container.admin",
    ):
        assert told in ran.output


def test_a_run_that_ended_early_is_gone_on_with_and_what_it_made_is_removed(fleet: Fleet) -> None:
    first = fleet.run()
    assert first.failed == 1
    assert "gke.invalid" in first.output
    assert first.counts() == MADE

    second = fleet.run()
    assert (second.changed, second.mutating) == (0, [])

    would = fleet.run(*ABSENT, "--check").ok()
    assert would.mutating == []
    gone = fleet.run(*ABSENT).ok()
    assert gone.counts() == GONE
    assert would.changed == gone.changed > 0
    assert fleet.gcp.objects() == []
    assert NAME[:20] not in json.dumps(fleet.gcp.policy())


def test_what_controllers_left_goes_with_the_cluster_and_what_is_of_others_is_told(fleet: Fleet) -> None:
    fleet.run()
    fleet.gcp.load_balancer(NAME)
    fleet.gcp.volume(NAME)
    theirs = {"name": "theirs", "network": NETWORK, "direction": "INGRESS", "allowed": [{"IPProtocol": "tcp"}]}
    fleet.gcp.plant(f"projects/{PROJECT}/global/firewalls", **theirs)
    would = fleet.run(*ABSENT, "--check").ok()
    assert "firewall rule theirs" in would.output
    ran = fleet.run(*ABSENT)
    assert ran.failed == 1
    assert "Cluster gke-us-central is gone, but not its network:" in ran.output
    assert "firewall rule theirs" in ran.output
    left = [path for path in fleet.gcp.objects() if "serviceAccounts" not in path]
    assert sorted(path.split("/")[-2] for path in left) == ["firewalls", "networks", "subnetworks"]
    fleet.gcp.request("compute", "DELETE", f"compute/v1/projects/{PROJECT}/global/firewalls/theirs")
    for _ in range(5):
        fleet.gcp.request("compute", "GET", f"compute/v1/projects/{PROJECT}/global/firewalls/theirs")
    fleet.run(*ABSENT).ok()
    assert fleet.gcp.objects() == []


@pytest.mark.parametrize("state", ["present", "absent"])
def test_what_is_of_others_is_told_before_anything_is_done(fleet: Fleet, state: str) -> None:
    mine = {"name": NAME, "autoCreateSubnetworks": False, "description": "mine"}
    fleet.gcp.plant(f"projects/{PROJECT}/global/networks", **mine)
    ran = fleet.run(gke_cluster_state=state)
    assert ran.failed == 1
    assert f"network {NAME} exists already, and was not made by this collection" in ran.output
    assert ran.mutating == []


def test_what_is_wrong_with_the_manifests_is_told_before_anything_is_asked(fleet: Fleet) -> None:
    ran = fleet.run(fleet_resources=[str(CONCEPTS / "inference-cluster-gke.yaml")])
    assert ran.failed == 1
    assert "gke-l4-1x-g2" in ran.output
    assert ran.calls == []


def test_what_is_wrong_with_the_project_is_told_before_anything_is_made(fleet: Fleet) -> None:
    fleet.gcp.disable_service("container.googleapis.com")
    fleet.gcp.settings(not_offered={"us-central1-a": ["g2-standard-8"]})
    ran = fleet.run()
    assert ran.failed == 1
    assert "Cluster gke-us-central:" in ran.output
    assert "container.googleapis.com" in ran.output
    assert ran.mutating == []


def test_rights_that_are_needed_are_told_before_anything_is_made(fleet: Fleet) -> None:
    """Without a control cluster, nobody keeps a key, so that none is made."""
    fleet.gcp.leave_role("roles/owner")
    me = f"serviceAccount:{fleet.gcp.key()['client_email']}"
    for role in {*rights.MAKING, *rights.REMOVING, "roles/iam.serviceAccountUser"} - {rights.KEYS, "roles/file.editor"}:
        fleet.gcp.change_policy(role, me)
    ran = fleet.run("--check").ok()
    assert "removing the cluster needs more" in ran.output
    assert "Give it the role roles/file.editor" in ran.output
    fleet.gcp.leave_role("roles/iam.serviceAccountUser")
    ran = fleet.run("--check")
    assert ran.failed == 1
    assert "Give it the role roles/iam.serviceAccountUser" in ran.output


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ({"fleet_target": "directory"}, "No host of the play is a cluster that the fleet makes"),
        ({"gke_cluster_state": "gone"}, "gke_cluster_state is gone, and must be one of present, absent."),
        (
            {"gke_cluster_label": {}},
            "gke_cluster_label is no variable of modelplane.fleet's roles. Did you mean gke_cluster_labels?",
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
        {"fleet_connection": {"gke": {"location": "us-central1", "cluster": "production"}}},
        {"eks_cluster_state": "absent", "fleet_connection": {"eks": {"region": "us-west-2", "cluster": NAME}}},
    ],
)
def test_clusters_of_others_are_passed_by(fleet: Fleet, host: dict[str, Any]) -> None:
    assert fleet.run(host=host).ok().calls == []


# Which project


def test_a_project_that_is_written_wins(fleet: Fleet, tmp_path: Path) -> None:
    fleet.gcp.add_project("second-project")
    manifest = tmp_path / "cluster.yaml"
    text = (CONCEPTS / "inference-cluster-gke.yaml").read_text()
    manifest.write_text(text.replace("      region:", "      project: second-project\n      region:"))
    given = {"fleet_resources": [str(manifest), str(CONCEPTS / "inference-class-gke-l4.yaml")]}
    here = {"fleet_connection": {"gke": {**fleet.connection["gke"], "project": "second-project"}}}
    ran = fleet.run("--check", host=here, gke_cluster_project=PROJECT, **given)
    assert fleet.projects(ran) >= {"second-project"}
    assert f"project: {PROJECT}" not in ran.output
    elsewhere = {"fleet_connection": {"gke": {**fleet.connection["gke"], "project": PROJECT}}}
    assert fleet.run("--check", host=elsewhere, **given).ok().calls == []


def test_a_project_and_credentials_are_those_of_the_account(fleet: Fleet, tmp_path: Path) -> None:
    fleet.gcp.add_project("second-project")
    (tmp_path / "keys").mkdir()
    key = {**fleet.gcp.key("second-project"), "project_id": "nowhere"}
    (tmp_path / "keys" / "second.json").write_text(json.dumps(key))
    accounts = {"default": {"project": "second-project", "credentials_file": "keys/second.json"}}
    ran = fleet.run("--check", gke_cluster_accounts=accounts).ok()
    assert fleet.projects(ran) == {"second-project"}
    missing = {"default": {"credentials_file": "keys/missing.json"}}
    told = fleet.run("--check", gke_cluster_accounts=missing)
    assert "keys/missing.json: no such file or directory" in told.output
    assert (
        "Set credentials_file (gke_cluster_credentials_file in an inventory) or GOOGLE_APPLICATION_CREDENTIALS"
        in told.output
    )


def test_a_cluster_with_replicas_stays(fleet: Fleet) -> None:
    manifests = [str(GETTING_STARTED / name) for name in ("platform.yaml", "model-deployment.yaml")]
    given = {"fleet_resources": manifests, "fleet_build": str(fleet.folder / "build")}
    way = {"gke": {"location": "us-central1", "cluster": connections.gke_name("starter")}}
    host = {"fleet_cluster": "starter", "fleet_connection": way}
    fleet.run(playbook="reconcile", host={**host, "fleet_target": "directory"}, **given).ok()
    ran = fleet.run(*ABSENT, host=host, **given)
    assert "cluster starter has 1 ModelReplicas. Drain it first" in ran.output, ran.output
    assert ran.mutating == []
    forced = fleet.run(*ABSENT, "-e", "gke_cluster_force=true", host=host, **given).ok()
    assert forced.mutating == []
