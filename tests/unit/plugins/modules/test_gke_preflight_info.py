# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module gke_preflight_info against the double of Google Cloud."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.rights import MAKING
from ansible_collections.modelplane.fleet.plugins.modules import cloud_resources, gke_preflight_info
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.module_run import run_module
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke.clusters import (
    gke,
    gpu,
    system,
)

Json = dict[str, Any]
WE = "provisioner@modelplane-test.iam.gserviceaccount.com"
ZONES = ["us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f"]


class Project:
    """A project that is looked at."""

    def __init__(self, gcp: Double) -> None:
        self.gcp = gcp

    def planned(self, *pools: Json, **spec: Any) -> Json:
        return plan(gke(*pools, **spec), self.gcp.project)

    def look(self, wanted: Json | None = None, **more: Any) -> Json:
        self.gcp.forget_calls()
        given = {**self.gcp.credentials, **({"plan": wanted} if wanted else {}), **more}
        result = run_module(gke_preflight_info, given, check_mode=True)
        assert self.gcp.calls(mutating=True) == []
        assert not result["failed"], result["msg"]
        assert result["changed"] is False
        return result

    def told(self, *pools: Json, **spec: Any) -> tuple[list[str], list[str]]:
        """Problems and warnings."""
        result = self.look(self.planned(*pools, **spec))
        return result["problems"], result["warnings_found"]

    def bring(self, wanted: Json) -> None:
        given = {"provider": "gke", **self.gcp.credentials, "resources": wanted["resources"], "wait_delay": 0.0}
        assert not run_module(cloud_resources, given)["failed"]


@pytest.fixture
def project(gcp: Double) -> Iterator[Project]:
    gcp.settings(polls=0)
    yield Project(gcp)
    assert gcp.invalid() == []


def test_a_good_plan_has_no_problem(project: Project) -> None:
    result = project.look(project.planned())
    assert (result["problems"], result["warnings_found"]) == ([], [])
    assert (result["project"], result["account"], result["zones"]) == ("modelplane-test", WE, ZONES)


def test_without_a_plan_we_are_told(project: Project) -> None:
    result = project.look(project=None)
    assert (result["project"], result["account"], result["zones"]) == ("modelplane-test", WE, [])
    assert (result["problems"], result["warnings_found"]) == ([], [])
    assert [call["operation"] for call in project.gcp.calls()] in (["token", "projects.get"], ["projects.get"])


# The project


def test_a_project_that_is_not_ours(project: Project) -> None:
    wanted = plan(gke(project="somebody-else"), project.gcp.project)
    result = project.look(wanted)
    assert result["project"] == "somebody-else"
    assert result["problems"] == [
        f"project somebody-else: does not exist, or {WE} may not use it (PERMISSION_DENIED). Give the ID of a project, "
        "not its name or number, and the roles in it that docs/gke.md lists"
    ]
    assert project.look(project="somebody-else")["problems"] == result["problems"]


def test_a_project_that_is_being_deleted(project: Project) -> None:
    project.gcp.settings(project_state="DELETE_REQUESTED")
    problems, _ = project.told()
    assert problems == ["project modelplane-test: is being deleted (DELETE_REQUESTED). Give another project"]


def test_apis_that_are_not_enabled(project: Project) -> None:
    project.gcp.disable_service("container.googleapis.com")
    project.gcp.disable_service("compute.googleapis.com")
    assert project.told() == (
        [
            "project modelplane-test: APIs are not enabled: compute.googleapis.com, container.googleapis.com. Run: "
            "gcloud services enable compute.googleapis.com container.googleapis.com --project modelplane-test"
        ],
        [],
    )


def test_the_api_that_tells_of_projects_is_not_enabled(project: Project) -> None:
    project.gcp.disable_service("cloudresourcemanager.googleapis.com")
    problems, warnings = project.told()
    assert len(problems) == 1
    assert "gcloud services enable cloudresourcemanager.googleapis.com --project modelplane-test" in problems[0]
    assert warnings == []
    (told,) = project.look()["problems"]
    assert told.startswith("read project modelplane-test: SERVICE_DISABLED: ")
    assert "gcloud services enable" in told


def test_apis_that_cannot_be_listed(project: Project) -> None:
    project.gcp.refuse(operation="services.list", code="PERMISSION_DENIED", message="You may not.", status=403)
    project.gcp.disable_service("compute.googleapis.com")
    problems, warnings = project.told()
    assert len(problems) == 1, "each API is told once"
    assert "Compute Engine API has not been used in project modelplane-test" in problems[0]
    (told,) = warnings
    assert told.startswith("not looked at: list the APIs that are enabled in project")


# Rights


def test_rights_that_are_missing(project: Project) -> None:
    """Only who may use accounts and policies."""
    project.gcp.leave_role("roles/owner")
    project.gcp.change_policy("roles/resourcemanager.projectIamAdmin", f"serviceAccount:{WE}")
    project.gcp.change_policy("roles/iam.serviceAccountAdmin", f"serviceAccount:{WE}")
    problems, _ = project.told()
    lacking = [role for role in MAKING if role.startswith(("roles/compute", "roles/container", "roles/serviceusage"))]
    assert problems[0].startswith(f"project modelplane-test: {WE} may not: compute.globalOperations.list, ")
    assert f"Give it the roles {', '.join(lacking)}, or one of your own" in problems[0]
    nodes = project.planned()["node_account"]
    assert f"{WE} may not have nodes run as {nodes}, which is created with the cluster" in problems[1]
    assert len(problems) == 2


def test_rights_that_only_removing_needs(project: Project) -> None:
    project.gcp.leave_role("roles/owner")
    for role in (*MAKING, "roles/iam.serviceAccountUser"):
        project.gcp.change_policy(role, f"serviceAccount:{WE}")
    problems, warnings = project.told()
    assert problems == []
    assert warnings == [
        f"project modelplane-test: removing the cluster needs more: {WE} may not: file.instances.delete, "
        "file.instances.list. Give it the role roles/file.editor, or one of your own that has these permissions"
    ]


def test_rights_that_are_missing_once_the_cluster_is_there(project: Project) -> None:
    project.bring(project.planned())
    project.gcp.leave_role("roles/owner")
    for role in (*MAKING, "roles/file.editor"):
        if not role.startswith("roles/iam."):
            project.gcp.change_policy(role, f"serviceAccount:{WE}")
    problems, warnings = project.told()
    assert problems == []
    assert any("may not: iam.serviceAccounts.create, " in line for line in warnings)
    assert any("may not have nodes run as" in line for line in warnings)


def test_nodes_without_an_account(project: Project) -> None:
    project.gcp.settings(node_account=False)
    (told,), _ = project.told(nodeServiceAccount="default")
    assert "123456789012-compute@developer.gserviceaccount.com, which nodes run as, does not exist" in told


@pytest.mark.parametrize(
    "operation",
    ["zones.list", "machineTypes.aggregatedList", "acceleratorTypes.aggregatedList", "clusters.get", "services.list"],
)
def test_a_right_to_look_that_is_missing_stops_nothing(project: Project, operation: str) -> None:
    project.gcp.refuse(operation=operation, code="PERMISSION_DENIED", message="You may not.", status=403, times=9)
    problems, warnings = project.told()
    assert problems == []
    assert any(line.startswith("not looked at: ") and "You may not" in line for line in warnings)


@pytest.mark.parametrize("operation", ["getServerConfig", "regions.get", "projects.serviceAccounts.testIamPermissions"])
def test_what_cannot_be_read_is_a_warning(project: Project, operation: str) -> None:
    project.gcp.refuse(operation=operation, code="INVALID_ARGUMENT", message="Not today.", status=400, times=9)
    problems, warnings = project.told()
    assert problems == []
    assert len(warnings) == 1
    assert "Not today" in warnings[0]


# Places, versions and machines


def test_a_region_that_does_not_exist(project: Project) -> None:
    wanted = project.planned(system(), region="us-centrl1")
    result = project.look(wanted)
    assert result["problems"] == [
        "spec.region: there is no region us-centrl1 in Google Cloud for project modelplane-test. Did you mean "
        "us-central1?"
    ]
    assert (result["warnings_found"], result["zones"]) == ([], [])


def test_a_version_that_is_not_offered(project: Project) -> None:
    assert project.told(kubernetesVersion="1.99")[0] == [
        "spec.kubernetesVersion: GKE does not offer Kubernetes 1.99 on the channel REGULAR in us-central1. It offers "
        "1.33, 1.34, 1.35, 1.36"
    ]
    (told,), _ = project.told(kubernetesVersion="1.35.9")
    assert told.endswith("It offers 1.35.2, 1.35.3")


def test_a_cluster_whose_version_is_not_offered_any_more(project: Project) -> None:
    project.bring(project.planned(kubernetesVersion="1.34"))
    project.gcp.settings(versions={"REGULAR": ["1.35.2-gke.1269000", "1.36.2-gke.1120000"]})
    assert project.told(kubernetesVersion="1.34") == ([], [])


def test_a_zone_that_does_not_exist(project: Project) -> None:
    (told,), _ = project.told(gpu(zones=["us-central1-a", "us-central1-e"]))
    assert told.startswith("node pool gpu-l4: zone us-central1-e does not exist in us-central1, or is not up. Did you")


def test_a_zone_without_the_machine_type(project: Project) -> None:
    problems, _ = project.told(gpu(zones=["us-central1-a", "us-central1-f"]))
    assert problems == [
        "node pool gpu-l4: g2-standard-8 is not offered in us-central1-f. It is offered in us-central1-a, "
        "us-central1-b, us-central1-c"
    ]


def test_a_machine_type_that_does_not_exist(project: Project) -> None:
    assert project.told(gpu(machineType="g2-standard-9"))[0] == [
        "node pool gpu-l4: there is no machine type g2-standard-9 in us-central1. Look for a typing error, or at the "
        "region"
    ]


def test_a_machine_that_takes_no_gpus(project: Project) -> None:
    (told,), _ = project.told(gpu(machineType="n2-standard-8"))
    assert told.startswith("node pool gpu-l4: n2-standard-8 takes no GPUs. Take a machine type that comes with")


def test_gpus_that_are_added(project: Project) -> None:
    added = gpu(machineType="n1-standard-8", gpu={"acceleratorType": "nvidia-tesla-t4"})
    assert project.told(added) == ([], [])


def test_what_is_there_already_is_only_warned_of(project: Project) -> None:
    project.bring(project.planned())
    project.gcp.settings(not_offered={"us-central1-a": ["g2-standard-8"]})
    problems, warnings = project.told()
    assert problems == []
    assert len(warnings) == 1
    assert "g2-standard-8 is not offered in us-central1-a" in warnings[0]


# Quotas and networks


def test_a_quota_that_is_too_small(project: Project) -> None:
    project.gcp.settings(quotas={"us-central1": {"NVIDIA_L4_GPUS": 1, "CPUS": 20}, "global": {"GPUS_ALL_REGIONS": 8}})
    problems, warnings = project.told()
    assert problems == []
    ask = "Ask for more in the Google Cloud console (IAM & Admin, Quotas & System Limits)"
    assert warnings == [
        "node pools system: may grow to 24, and the quota CPUS of project modelplane-test in us-central1 is 20, with "
        f"what else runs there. {ask} before they grow",
        "node pools gpu-l4: start with 2, and the quota NVIDIA_L4_GPUS of project modelplane-test in us-central1 is 1. "
        f"{ask}, or lower nodeCount and minNodeCount",
        "node pools gpu-l4: may grow to 16, and the quota GPUS_ALL_REGIONS of project modelplane-test for all regions "
        f"is 8, with what else runs there. {ask} before they grow",
    ]


def test_networks_that_are_used_up(project: Project) -> None:
    project.gcp.settings(quotas={"global": {"NETWORKS": 0}})
    _, (told,) = project.told()
    assert told.startswith("the quota NETWORKS of project modelplane-test is 0, and 0 are in use")


def test_networks_that_overlap(project: Project) -> None:
    others = [
        {"name": "east", "region": "us-east4", "cidr": "10.0.0.0/16"},
        {"name": "north", "region": "europe-west4", "cidr": "10.9.0.0/16"},
        {"name": "gke-us-central", "region": "us-central1", "cidr": "10.0.0.0/24"},
    ]
    result = project.look(project.planned(), others=others)
    assert result["problems"] == []
    assert result["warnings_found"] == [
        "spec.networking: 10.0.0.0/24 overlap the networks of east (10.0.0.0/16, us-east4), so that they cannot be "
        "joined (VPC Network Peering, VPN). Other ranges are written in a GKECluster; they cannot change later"
    ]


def test_wrong_arguments(project: Project) -> None:
    result = run_module(gke_preflight_info, {**project.gcp.credentials, "plan": {"name": "x"}})
    assert result["failed"] is True
    assert result["msg"].startswith("plan: has no object, project, region, version, resources. Give what the filter")
    assert "modelplane.fleet.gke_plan" in result["msg"]
