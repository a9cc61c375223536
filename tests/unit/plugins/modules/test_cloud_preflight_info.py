# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module cloud_preflight_info against the doubles of AWS and Google Cloud."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import plan as eks_plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.rights import MAKING
from ansible_collections.modelplane.fleet.plugins.modules import cloud_preflight_info, cloud_resources
from ansible_collections.modelplane.fleet.tests.aws.double import Double as Aws
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.module_run import run_module
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke.clusters import (
    gke,
    gpu,
    system,
)

pytestmark = pytest.mark.integration

Json = dict[str, Any]
WE = "provisioner@modelplane-test.iam.gserviceaccount.com"
GKE_ZONES = ["us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f"]
ZONES = ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"]
L4 = {
    "name": "gpu",
    "role": "GPU",
    "instanceType": "g6.xlarge",
    "zones": ["us-west-2a"],
    "gpu": {"acceleratorType": "x"},
}
WEST: Json = {
    "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
    "kind": "EKSCluster",
    "metadata": {"namespace": "modelplane-system", "name": "west"},
    "spec": {"region": "us-west-2", "nodePools": [L4]},
}
FLEET = "modelplane.ai/fleet"


class Place:
    """An account or project that is checked."""

    provider = ""

    def __init__(self, double: Any) -> None:
        self.double = double

    def planned(self, *pools: Json, **spec: Any) -> Json:
        raise NotImplementedError

    def deny(self, operation: str) -> None:
        raise NotImplementedError

    def run(self, planned: Json | None = None, **more: Any) -> Json:
        given = {"provider": self.provider, **self.double.credentials, **({"plan": planned} if planned else {}), **more}
        self.double.forget_calls()
        result = run_module(cloud_preflight_info, given, check_mode=True)
        assert self.double.calls(mutating=True) == []
        return result

    def check(self, planned: Json | None = None, **more: Any) -> Json:
        result = self.run(planned, **more)
        assert not result["failed"], result["msg"]
        assert result["changed"] is False
        return result

    def report(self, *pools: Json, **spec: Any) -> tuple[list[str], list[str]]:
        """Return problems and warnings."""
        result = self.check(self.planned(*pools, **spec))
        return result["problems"], result["warnings_found"]


class Account(Place):
    provider = "eks"

    def planned(self, *pools: Json, zones: Sequence[str] = ZONES, **spec: Any) -> Json:
        whole = {**WEST, "spec": {**WEST["spec"], "nodePools": list(pools) or [L4], **spec}}
        return eks_plan.plan(whole, options=eks_plan.Options(zones=zones))

    def deny(self, operation: str) -> None:
        self.double.refuse(operation=operation, code="AccessDeniedException", message="You may not.", times=100)


class Project(Place):
    provider = "gke"

    def planned(self, *pools: Json, **spec: Any) -> Json:
        return plan(gke(*pools, **spec), self.double.project)

    def deny(self, operation: str) -> None:
        self.double.refuse(operation=operation, code="PERMISSION_DENIED", message="You may not.", status=403, times=9)

    def create(self, planned: Json) -> None:
        given = {"provider": "gke", **self.double.credentials, "resources": planned["resources"], "wait_delay": 0.0}
        assert not run_module(cloud_resources, given)["failed"]


@pytest.fixture
def account(aws: Aws) -> Account:
    return Account(aws)


@pytest.fixture
def project(gcp: Double) -> Iterator[Project]:
    gcp.settings(polls=0)
    yield Project(gcp)
    assert gcp.invalid() == []


@pytest.fixture(params=["account", "project"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


# In every cloud


def test_a_good_plan_has_no_problem(place: Place) -> None:
    assert place.report() == ([], [])


def test_networks_that_overlap_are_a_warning(place: Place) -> None:
    planned = place.planned()
    others = [
        {"name": "east", "region": "us-east", "cidr": "10.0.0.0/17"},
        {"name": "north", "region": "eu-north", "cidr": "10.9.0.0/16"},
        {"name": planned["object"]["name"], "region": planned["region"], "cidr": "10.0.0.0/16"},
    ]
    result = place.check(planned, others=others)
    assert result["problems"] == []
    (line,) = result["warnings_found"]
    assert line.startswith("spec.networking")
    assert "east (10.0.0.0/17, us-east)" in line
    assert "north" not in line


@pytest.mark.parametrize(
    ("cloud", "operation"),
    [
        ("account", "DescribeAvailabilityZones"),
        ("account", "DescribeInstanceTypes"),
        ("account", "DescribeInstanceTypeOfferings"),
        ("account", "DescribeCluster"),
        ("account", "GetServiceQuota"),
        ("account", "DescribeClusterVersions"),
        ("project", "zones.list"),
        ("project", "machineTypes.aggregatedList"),
        ("project", "acceleratorTypes.aggregatedList"),
        ("project", "clusters.get"),
        ("project", "services.list"),
    ],
)
def test_a_right_to_read_that_is_missing_stops_nothing(
    request: pytest.FixtureRequest, cloud: str, operation: str
) -> None:
    place: Place = request.getfixturevalue(cloud)
    place.deny(operation)
    problems, warnings = place.report()
    assert problems == []
    assert any(line.startswith("not checked: ") and "You may not" in line for line in warnings)


def test_a_plan_without_what_is_needed(place: Place) -> None:
    result = place.run({"name": "x"})
    assert result["failed"] is True
    assert result["msg"].startswith("plan: has no object, ")
    assert result["msg"].endswith(f"Give what the filter modelplane.fleet.{place.provider}_plan returns")


# AWS


def test_the_identity_and_the_zones(account: Account) -> None:
    result = account.check(account.planned())
    arn = account.double.client("sts").get_caller_identity()["Arn"]
    assert (result["account"], result["arn"], result["zones"]) == ("123456789012", arn, ZONES)


@pytest.mark.parametrize(
    ("region", "line"), [("eu-north-1", "the plan is for us-west-2"), (None, "region is missing. Give the region")]
)
def test_another_region_than_that_of_the_plan(account: Account, region: str | None, line: str) -> None:
    result = account.run(account.planned(), region=region)
    assert result["failed"] is True
    assert line in result["msg"]


def test_without_a_plan_zones_are_returned(account: Account) -> None:
    result = account.check()
    assert (result["problems"], result["zones"]) == ([], ZONES)
    assert {call["operation"] for call in account.double.calls()} == {"GetCallerIdentity", "DescribeAvailabilityZones"}


def test_zones_without_a_control_plane_are_left_out(account: Account) -> None:
    east = {zone["ZoneName"]: zone["ZoneId"] for zone in zones_of(account, "us-east-1")}
    assert east["us-east-1e"] == "use1-az3"
    assert account.check(region="us-east-1")["zones"] == sorted(set(east) - {"us-east-1e"})
    cidrs = [f"10.0.{16 * index}.0/20" for index in range(3)]
    planned = account.planned(
        {**L4, "zones": ["us-east-1e"]}, region="us-east-1", networking={"subnetCidrs": cidrs}, zones=()
    )
    assert account.check(planned, region="us-east-1")["zones_fit"] is False


def zones_of(account: Account, region: str) -> list[Json]:
    found = account.double.client("ec2", region).describe_availability_zones()["AvailabilityZones"]
    return list(found)


def test_zones_of_subnets_that_exist(account: Account) -> None:
    planned, ec2 = account.planned(), account.double.client("ec2")
    assert (account.check(planned)["subnet_zones"], account.check(planned)["zones_fit"]) == ({}, True)
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    tags = {**planned["tags"], "Name": "x"}
    for cidr, zone, own in (("10.0.0.0/20", "us-west-2d", tags), ("10.0.16.0/20", "us-west-2c", {**tags, FLEET: "y"})):
        listed = [{"Key": key, "Value": value} for key, value in own.items()]
        specification = [{"ResourceType": "subnet", "Tags": listed}]
        ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone, TagSpecifications=specification)
    result = account.check(planned)
    assert (result["subnet_zones"], result["zones_fit"]) == ({"10.0.0.0/20": "us-west-2d"}, False)
    again = eks_plan.plan(WEST, options=eks_plan.Options(zones=result["zones"], subnet_zones=result["subnet_zones"]))
    assert again["zones"] == ["us-west-2d", "us-west-2a", "us-west-2b"]
    assert account.check(again)["zones_fit"] is True


def test_credentials_that_are_refused(account: Account) -> None:
    account.double.settings(access_keys=["AKIANOTOURS"])
    result = account.check(account.planned())
    assert (result["failed"], result["account"], result["zones"]) == (False, "", [])
    assert len(result["problems"]) == 1
    assert "access key" in result["problems"][0]


def test_a_region_that_is_not_enabled(account: Account) -> None:
    account.double.settings(disabled_regions=["us-west-2"])
    result = account.check(account.planned())
    assert result["problems"]
    assert all("whether the region is enabled" in line for line in result["problems"]), result["problems"]


def test_a_version_that_is_not_offered(account: Account) -> None:
    result = account.check(account.planned(kubernetesVersion="1.99"))
    assert len(result["problems"]) == 1
    assert "1.99" in result["problems"][0]
    assert "1.36" in result["problems"][0]


def test_an_instance_type_that_does_not_exist(account: Account) -> None:
    result = account.check(account.planned({**L4, "instanceType": "g6.xlarg"}))
    assert result["problems"] == [
        "node pool gpu: there is no instance type g6.xlarg in us-west-2. Check it for a typing error"
    ]


def test_a_zone_without_the_instance_type(account: Account) -> None:
    result = account.check(
        account.planned({**L4, "instanceType": "p5e.48xlarge", "zones": ["us-west-2a", "us-west-2c"]})
    )
    assert result["problems"] == [
        "node pool gpu: p5e.48xlarge is not offered in us-west-2a. It is offered in us-west-2c"
    ]


def test_a_machine_without_a_gpu(account: Account) -> None:
    result = account.check(account.planned({**L4, "instanceType": "m6i.xlarge"}))
    assert any("has no NVIDIA GPU" in line for line in result["problems"]), result["problems"]


def test_a_machine_with_arm64_processors(account: Account) -> None:
    result = account.check(account.planned({**L4, "instanceType": "g5g.xlarge"}))
    assert result["problems"] == []


def test_efa_that_a_machine_does_not_have(account: Account) -> None:
    result = account.check(account.planned({**L4, "fabric": "EFA"}))
    assert result["problems"] == [
        "node pool gpu: g6.xlarge has no EFA. Leave fabric out, or take another instance type"
    ]


@pytest.mark.parametrize(
    ("kind", "zone"),
    [("p4d.24xlarge", "us-west-2b"), ("p5.48xlarge", "us-west-2a"), ("p6-b200.48xlarge", "us-west-2b")],
)
def test_efa_of_the_catalogue_is_what_the_machines_have(account: Account, kind: str, zone: str) -> None:
    planned = account.planned({**L4, "instanceType": kind, "fabric": "EFA", "zones": [zone]})
    result = account.check(planned)
    assert not any("EFA" in line for line in (*result["problems"], *result["warnings_found"]))


def block(reservation: str, **more: Any) -> Json:
    return {
        **L4,
        "instanceType": "p5.48xlarge",
        "capacityBlock": {"capacityReservationId": reservation},
        "maxNodeCount": 2,
        **more,
    }


def test_a_capacity_block_that_is_active(account: Account) -> None:
    reservation = account.double.capacity_reservation(TotalInstanceCount=2)["CapacityReservationId"]
    result = account.check(account.planned(block(reservation)))
    assert (result["problems"], result["warnings_found"]) == ([], [])


def test_a_capacity_block_that_does_not_exist(account: Account) -> None:
    result = account.check(account.planned(block("cr-0123456789abcdef0")))
    assert len(result["problems"]) == 1
    assert "cr-0123456789abcdef0 does not exist in us-west-2" in result["problems"][0]


def test_a_capacity_block_that_is_not_active_yet(account: Account) -> None:
    reservation = account.double.capacity_reservation(State="scheduled", TotalInstanceCount=2)["CapacityReservationId"]
    result = account.check(account.planned(block(reservation)))
    assert len(result["problems"]) == 1
    assert "is not active yet" in result["problems"][0]
    result = account.check(account.planned(block(reservation, nodeCount=0, minNodeCount=0)))
    assert result["problems"] == []
    assert len(result["warnings_found"]) == 1


def test_a_quota_that_is_too_small(account: Account) -> None:
    account.double.settings(quotas={"ec2": {"L-1216C47A": 5.0, "L-DB2E81BA": 2.0, "L-417A185B": 0.0}})
    result = account.check(account.planned())
    (line,) = result["problems"]
    assert 'node pools gpu: start with 4 vCPUs, and the quota "Running On-Demand G and VT instances" (L-DB2E' in line
    assert any("may grow to 8 vCPUs" in line for line in result["warnings_found"]), "the system pool"


def test_groups_without_a_launch_template_stay_and_are_a_warning(account: Account) -> None:
    options = eks_plan.Options(zones=ZONES, groups_without_template=("gpu",))
    made = eks_plan.plan(WEST, options=options)
    given = {"provider": "eks", **account.double.credentials, "resources": made["resources"], "wait_delay": 0.0}
    assert account.check(made)["groups_without_template"] == []
    assert not run_module(cloud_resources, given)["failed"]
    result = account.check(account.planned())
    assert (result["groups_without_template"], result["problems"]) == (["gpu"], [])
    [line] = result["warnings_found"]
    assert line.startswith("node pools gpu: exist without a launch template, which EKS adds to none")


def test_the_quota_for_spot_is_another_one(account: Account) -> None:
    account.double.settings(quotas={"ec2": {"L-DB2E81BA": 0.0, "L-3819A6DF": 768.0}})
    assert account.report({**L4, "capacityType": "SPOT"}) == ([], [])
    account.double.settings(quotas={"ec2": {"L-DB2E81BA": 768.0, "L-3819A6DF": 0.0}})
    [line], _warnings = account.report({**L4, "capacityType": "SPOT"})
    assert 'the quota "All G and VT Spot Instance Requests" (L-3819A6DF) of account 123456789012 in us-w' in line
    assert line.endswith("is 0 vCPUs. Ask for more in Service Quotas (EC2), or lower nodeCount")


# Google Cloud


def test_the_identity_and_the_zones_of_a_project(project: Project) -> None:
    result = project.check(project.planned())
    assert (result["project"], result["account"], result["zones"]) == ("modelplane-test", WE, GKE_ZONES)


def test_without_a_plan_the_project_is_returned(project: Project) -> None:
    result = project.check(project=None)
    assert (result["project"], result["account"], result["zones"]) == ("modelplane-test", WE, [])
    assert (result["problems"], result["warnings_found"]) == ([], [])
    assert [call["operation"] for call in project.double.calls()] in (["token", "projects.get"], ["projects.get"])


def test_a_project_that_is_not_ours(project: Project) -> None:
    planned = plan(gke(project="not-ours"), project.double.project)
    result = project.check(planned)
    assert result["project"] == "not-ours"
    assert result["problems"] == [
        f"project not-ours: does not exist, or {WE} may not use it (PERMISSION_DENIED). Give the ID of a project, "
        "not its name or number, and the roles in it that docs/kinds/GKECluster.md lists"
    ]
    assert project.check(project="not-ours")["problems"] == result["problems"]


def test_a_project_that_is_being_deleted(project: Project) -> None:
    project.double.settings(project_state="DELETE_REQUESTED")
    problems, _ = project.report()
    assert problems == ["project modelplane-test: is being deleted (DELETE_REQUESTED). Give another project"]


def test_apis_that_are_not_enabled(project: Project) -> None:
    project.double.disable_service("container.googleapis.com")
    project.double.disable_service("compute.googleapis.com")
    assert project.report() == (
        [
            "project modelplane-test: APIs are not enabled: compute.googleapis.com, container.googleapis.com. Run: "
            "gcloud services enable compute.googleapis.com container.googleapis.com --project modelplane-test"
        ],
        [],
    )


def test_the_api_of_projects_is_not_enabled(project: Project) -> None:
    project.double.disable_service("cloudresourcemanager.googleapis.com")
    problems, warnings = project.report()
    assert len(problems) == 1
    assert "gcloud services enable cloudresourcemanager.googleapis.com --project modelplane-test" in problems[0]
    assert warnings == []
    (line,) = project.check()["problems"]
    assert line.startswith("read project modelplane-test: SERVICE_DISABLED: ")
    assert "gcloud services enable" in line


def test_apis_that_cannot_be_listed(project: Project) -> None:
    project.double.refuse(operation="services.list", code="PERMISSION_DENIED", message="You may not.", status=403)
    project.double.disable_service("compute.googleapis.com")
    problems, warnings = project.report()
    assert len(problems) == 1, "each API is reported once"
    assert "Compute Engine API has not been used in project modelplane-test" in problems[0]
    (line,) = warnings
    assert line.startswith("not checked: list the APIs that are enabled in project")


def test_rights_that_are_missing(project: Project) -> None:
    """Only who may use accounts and policies."""
    project.double.leave_role("roles/owner")
    project.double.change_policy("roles/resourcemanager.projectIamAdmin", f"serviceAccount:{WE}")
    project.double.change_policy("roles/iam.serviceAccountAdmin", f"serviceAccount:{WE}")
    problems, _ = project.report()
    lacking = [role for role in MAKING if role.startswith(("roles/compute", "roles/container", "roles/serviceusage"))]
    assert problems[0].startswith(f"project modelplane-test: {WE} may not: compute.globalOperations.list, ")
    assert f"Give it the roles {', '.join(lacking)}, or one of your own" in problems[0]
    nodes = project.planned()["node_account"]
    assert f"{WE} may not have nodes run as {nodes}, which is created with the cluster" in problems[1]
    assert len(problems) == 2


def test_rights_that_only_removing_needs(project: Project) -> None:
    project.double.leave_role("roles/owner")
    for role in (*MAKING, "roles/iam.serviceAccountUser"):
        project.double.change_policy(role, f"serviceAccount:{WE}")
    problems, warnings = project.report()
    assert problems == []
    assert warnings == [
        f"project modelplane-test: removing the cluster needs more: {WE} may not: file.instances.delete, "
        "file.instances.list. Give it the role roles/file.editor, or one of your own that has these permissions"
    ]


def test_rights_that_are_missing_once_the_cluster_is_there(project: Project) -> None:
    project.create(project.planned())
    project.double.leave_role("roles/owner")
    for role in (*MAKING, "roles/file.editor"):
        if not role.startswith("roles/iam."):
            project.double.change_policy(role, f"serviceAccount:{WE}")
    problems, warnings = project.report()
    assert problems == []
    assert any("may not: iam.serviceAccounts.create, " in line for line in warnings)
    assert any("may not have nodes run as" in line for line in warnings)


def test_nodes_without_an_account(project: Project) -> None:
    project.double.settings(node_account=False)
    (line,), _ = project.report(nodeServiceAccount="default")
    assert "123456789012-compute@developer.gserviceaccount.com, which nodes run as, does not exist" in line


@pytest.mark.parametrize("operation", ["getServerConfig", "regions.get", "projects.serviceAccounts.testIamPermissions"])
def test_what_cannot_be_read_is_a_warning(project: Project, operation: str) -> None:
    project.double.refuse(operation=operation, code="INVALID_ARGUMENT", message="Not today.", status=400, times=9)
    problems, warnings = project.report()
    assert problems == []
    assert len(warnings) == 1
    assert "Not today" in warnings[0]


def test_a_region_that_does_not_exist(project: Project) -> None:
    planned = project.planned(system(), region="us-centrl1")
    result = project.check(planned)
    assert result["problems"] == [
        "spec.region: there is no region us-centrl1 in Google Cloud for project modelplane-test. Did you mean "
        "us-central1?"
    ]
    assert (result["warnings_found"], result["zones"]) == ([], [])


def test_a_version_that_gke_does_not_offer(project: Project) -> None:
    assert project.report(kubernetesVersion="1.99")[0] == [
        "spec.kubernetesVersion: GKE does not offer Kubernetes 1.99 on the channel REGULAR in us-central1. It offers "
        "1.33, 1.34, 1.35, 1.36"
    ]
    (line,), _ = project.report(kubernetesVersion="1.35.9")
    assert line.endswith("It offers 1.35.2, 1.35.3")


def test_a_cluster_whose_version_is_not_offered_any_more(project: Project) -> None:
    project.create(project.planned(kubernetesVersion="1.34"))
    project.double.settings(versions={"REGULAR": ["1.35.2-gke.1269000", "1.36.2-gke.1120000"]})
    assert project.report(kubernetesVersion="1.34") == ([], [])


def test_a_zone_that_does_not_exist(project: Project) -> None:
    (line,), _ = project.report(gpu(zones=["us-central1-a", "us-central1-e"]))
    assert line.startswith("node pool gpu-l4: zone us-central1-e does not exist in us-central1, or is not up. Did you")


def test_a_zone_without_the_machine_type(project: Project) -> None:
    problems, _ = project.report(gpu(zones=["us-central1-a", "us-central1-f"]))
    assert problems == [
        "node pool gpu-l4: g2-standard-8 is not offered in us-central1-f. It is offered in us-central1-a, "
        "us-central1-b, us-central1-c"
    ]


def test_a_machine_type_that_does_not_exist(project: Project) -> None:
    assert project.report(gpu(machineType="g2-standard-9"))[0] == [
        "node pool gpu-l4: there is no machine type g2-standard-9 in us-central1. Check it for a typing error, and the "
        "region"
    ]


def test_a_machine_that_takes_no_gpus(project: Project) -> None:
    (line,), _ = project.report(gpu(machineType="n2-standard-8"))
    assert line.startswith("node pool gpu-l4: n2-standard-8 takes no GPUs. Take a machine type that comes with")


def test_gpus_that_are_added(project: Project) -> None:
    added = gpu(machineType="n1-standard-8", gpu={"acceleratorType": "nvidia-tesla-t4"})
    assert project.report(added) == ([], [])


def test_what_is_there_already_is_only_warned_of(project: Project) -> None:
    project.create(project.planned())
    project.double.settings(not_offered={"us-central1-a": ["g2-standard-8"]})
    problems, warnings = project.report()
    assert problems == []
    assert len(warnings) == 1
    assert "g2-standard-8 is not offered in us-central1-a" in warnings[0]


def test_a_quota_of_google_cloud_that_is_too_small(project: Project) -> None:
    project.double.settings(
        quotas={"us-central1": {"NVIDIA_L4_GPUS": 1, "CPUS": 20}, "global": {"GPUS_ALL_REGIONS": 8}}
    )
    problems, warnings = project.report()
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
    project.double.settings(quotas={"global": {"NETWORKS": 0}})
    _, (line,) = project.report()
    assert line.startswith("the quota NETWORKS of project modelplane-test is 0, and 0 are in use")


RESERVED = {"consumeReservationType": "SPECIFIC_RESERVATION", "values": ["l4-block"]}


def reserve(project: Project, zone: str, used: int = 0, **more: Any) -> None:
    specific = {
        "count": "2",
        "assuredCount": "2",
        "inUseCount": str(used),
        "instanceProperties": {"machineType": "g2-standard-8"},
    }
    collection = f"projects/{project.double.project}/zones/{zone}/reservations"
    body = {"status": "READY", "specificReservationRequired": True, "specificReservation": specific, **more}
    project.double.plant(collection, name="l4-block", **body)


def test_a_reservation_of_google_cloud(project: Project) -> None:
    pool = gpu(zones=["us-central1-a"], maxNodeCount=2, reservationAffinity=RESERVED)
    [line], _warnings = project.report(pool)
    assert "node pool gpu-l4: reservation l4-block does not exist in project modelplane-test" in line
    reserve(project, "us-central1-c")
    [line], _warnings = project.report(pool)
    assert "reservation l4-block is in us-central1-c, and the pool in us-central1-a" in line
    reserve(project, "us-central1-a", used=2)
    [line], _warnings = project.report(pool)
    assert "of the 2 machines of reservation l4-block there 0 are free" in line
    reserve(project, "us-central1-a")
    assert project.report(pool) == ([], [])


def test_a_reservation_that_may_not_be_read_is_a_warning(project: Project) -> None:
    project.double.refuse(
        operation="reservations.aggregatedList", code="PERMISSION_DENIED", message="You may not.", status=403, times=9
    )
    problems, [line] = project.report(gpu(reservationAffinity=RESERVED))
    assert problems == []
    assert line.startswith("not checked: read reservation l4-block of project modelplane-test")
