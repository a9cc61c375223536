# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module eks_preflight_info against the double of AWS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import Options, plan
from ansible_collections.modelplane.fleet.plugins.modules import eks_preflight_info
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from ansible_collections.modelplane.fleet.tests.module_run import run_module

ZONES = ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"]
L4 = {
    "name": "gpu",
    "role": "GPU",
    "instanceType": "g6.xlarge",
    "zones": ["us-west-2a"],
    "gpu": {"acceleratorType": "x"},
}


WEST: dict[str, Any] = {
    "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
    "kind": "EKSCluster",
    "metadata": {"namespace": "modelplane-system", "name": "west"},
    "spec": {"region": "us-west-2", "nodePools": [L4]},
}
FLEET = "modelplane.ai/fleet"


def planned(*pools: dict[str, Any], zones: Sequence[str] = ZONES, **spec: Any) -> dict[str, Any]:
    whole = {**WEST, "spec": {**WEST["spec"], "nodePools": list(pools) or [L4], **spec}}
    return plan(whole, options=Options(zones=zones))


def look(aws: Double, wanted: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    aws.forget_calls()
    given = {**aws.credentials, **({"plan": wanted} if wanted else {}), **more}
    result = run_module(eks_preflight_info, given, check_mode=True)
    assert aws.calls(mutating=True) == []
    assert result["changed"] is False
    return result


def test_a_good_plan_has_no_problem(aws: Double) -> None:
    result = look(aws, planned())
    assert (result["failed"], result["problems"], result["warnings_found"]) == (False, [], [])
    assert result["account"] == "123456789012"
    assert result["arn"] == aws.client("sts").get_caller_identity()["Arn"]
    assert result["zones"] == ZONES


def test_without_a_plan_zones_are_told(aws: Double) -> None:
    result = look(aws)
    assert (result["problems"], result["zones"]) == ([], ZONES)
    assert {call["operation"] for call in aws.calls()} == {"GetCallerIdentity", "DescribeAvailabilityZones"}


def test_zones_without_a_control_plane_are_left_out(aws: Double) -> None:
    east = {zone["ZoneName"]: zone["ZoneId"] for zone in zones_of(aws, "us-east-1")}
    assert east["us-east-1e"] == "use1-az3"
    assert look(aws, region="us-east-1")["zones"] == sorted(set(east) - {"us-east-1e"})
    cidrs = [f"10.0.{16 * index}.0/20" for index in range(3)]
    wanted = planned({**L4, "zones": ["us-east-1e"]}, region="us-east-1", networking={"subnetCidrs": cidrs}, zones=())
    assert look(aws, wanted, region="us-east-1")["zones_fit"] is False


def zones_of(aws: Double, region: str) -> list[dict[str, Any]]:
    found = aws.client("ec2", region).describe_availability_zones()["AvailabilityZones"]
    return list(found)


def test_zones_of_subnets_that_exist(aws: Double) -> None:
    wanted, ec2 = planned(), aws.client("ec2")
    assert (look(aws, wanted)["subnet_zones"], look(aws, wanted)["zones_fit"]) == ({}, True)
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    tags = {**wanted["tags"], "Name": "x"}
    for cidr, zone, own in (("10.0.0.0/20", "us-west-2d", tags), ("10.0.16.0/20", "us-west-2c", {**tags, FLEET: "y"})):
        listed = [{"Key": key, "Value": value} for key, value in own.items()]
        specification = [{"ResourceType": "subnet", "Tags": listed}]
        ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone, TagSpecifications=specification)
    result = look(aws, wanted)
    assert (result["subnet_zones"], result["zones_fit"]) == ({"10.0.0.0/20": "us-west-2d"}, False)
    again = plan(WEST, options=Options(zones=result["zones"], subnet_zones=result["subnet_zones"]))
    assert again["zones"] == ["us-west-2d", "us-west-2a", "us-west-2b"]
    assert look(aws, again)["zones_fit"] is True


def test_credentials_that_are_refused(aws: Double) -> None:
    aws.settings(access_keys=["AKIANOTOURS"])
    result = look(aws, planned())
    assert (result["failed"], result["account"], result["zones"]) == (False, "", [])
    assert len(result["problems"]) == 1
    assert "access key" in result["problems"][0]


def test_a_region_that_is_not_enabled(aws: Double) -> None:
    aws.settings(disabled_regions=["us-west-2"])
    result = look(aws, planned())
    assert result["problems"]
    assert all("whether the region is enabled" in line for line in result["problems"]), result["problems"]


def test_a_version_that_is_not_offered(aws: Double) -> None:
    result = look(aws, planned(kubernetesVersion="1.99"))
    assert len(result["problems"]) == 1
    assert "1.99" in result["problems"][0]
    assert "1.36" in result["problems"][0]


def test_an_instance_type_that_does_not_exist(aws: Double) -> None:
    result = look(aws, planned({**L4, "instanceType": "g6.xlarg"}))
    assert result["problems"] == [
        "node pool gpu: there is no instance type g6.xlarg in us-west-2. Look for a typing error"
    ]


def test_a_zone_without_the_instance_type(aws: Double) -> None:
    result = look(aws, planned({**L4, "instanceType": "p5e.48xlarge", "zones": ["us-west-2a", "us-west-2c"]}))
    assert result["problems"] == [
        "node pool gpu: p5e.48xlarge is not offered in us-west-2a. It is offered in us-west-2c"
    ]


@pytest.mark.parametrize(
    ("kind", "told"),
    [("m6i.xlarge", "has no NVIDIA GPU"), ("g5g.xlarge", "has arm64 processors")],
)
def test_a_machine_that_does_not_do(aws: Double, kind: str, told: str) -> None:
    result = look(aws, planned({**L4, "instanceType": kind}))
    assert any(told in line for line in result["problems"]), result["problems"]


def test_efa_that_a_machine_does_not_have(aws: Double) -> None:
    result = look(aws, planned({**L4, "fabric": "EFA"}))
    assert result["problems"] == [
        "node pool gpu: g6.xlarge has no EFA. Leave fabric out, or take another instance type"
    ]


@pytest.mark.parametrize(
    ("kind", "zone"),
    [("p4d.24xlarge", "us-west-2b"), ("p5.48xlarge", "us-west-2a"), ("p6-b200.48xlarge", "us-west-2b")],
)
def test_efa_of_the_catalogue_is_what_the_machines_have(aws: Double, kind: str, zone: str) -> None:
    wanted = planned({**L4, "instanceType": kind, "fabric": "EFA", "zones": [zone]})
    result = look(aws, wanted)
    assert not any("EFA" in line for line in (*result["problems"], *result["warnings_found"]))


def block(reservation: str, **more: Any) -> dict[str, Any]:
    return {
        **L4,
        "instanceType": "p5.48xlarge",
        "capacityBlock": {"capacityReservationId": reservation},
        "maxNodeCount": 2,
        **more,
    }


def test_a_capacity_block_that_is_active(aws: Double) -> None:
    reservation = aws.capacity_reservation(TotalInstanceCount=2)["CapacityReservationId"]
    result = look(aws, planned(block(reservation)))
    assert (result["problems"], result["warnings_found"]) == ([], [])


def test_a_capacity_block_that_does_not_exist(aws: Double) -> None:
    result = look(aws, planned(block("cr-0123456789abcdef0")))
    assert len(result["problems"]) == 1
    assert "cr-0123456789abcdef0 does not exist in us-west-2" in result["problems"][0]


def test_a_capacity_block_that_is_not_active_yet(aws: Double) -> None:
    reservation = aws.capacity_reservation(State="scheduled", TotalInstanceCount=2)["CapacityReservationId"]
    result = look(aws, planned(block(reservation)))
    assert len(result["problems"]) == 1
    assert "is not active yet" in result["problems"][0]
    result = look(aws, planned(block(reservation, nodeCount=0, minNodeCount=0)))
    assert result["problems"] == []
    assert len(result["warnings_found"]) == 1


def test_a_quota_that_is_too_small(aws: Double) -> None:
    aws.settings(quotas={"ec2": {"L-1216C47A": 5.0, "L-DB2E81BA": 2.0, "L-417A185B": 0.0}})
    result = look(aws, planned())
    (told,) = result["problems"]
    assert "node pools gpu: start with 4 vCPUs, and the account's quota \"Running On-Demand G and VT" in told
    assert any("may grow to 8 vCPUs" in line for line in result["warnings_found"]), "the system pool"


@pytest.mark.parametrize("operation", ["GetServiceQuota", "DescribeClusterVersions"])
def test_what_cannot_be_read_is_a_warning(aws: Double, operation: str) -> None:
    aws.refuse(operation=operation, code="AccessDeniedException", message="You may not.", times=100)
    result = look(aws, planned())
    assert result["problems"] == []
    assert len(result["warnings_found"]) == 1
    assert result["warnings_found"][0].startswith("not looked at: ")


@pytest.mark.parametrize(
    "operation",
    [
        "DescribeAvailabilityZones",
        "DescribeInstanceTypes",
        "DescribeInstanceTypeOfferings",
        "DescribeCluster",
    ],
)
def test_a_right_that_is_missing_stops_nothing(aws: Double, operation: str) -> None:
    aws.refuse(operation=operation, code="UnauthorizedOperation", message="You may not.", times=100)
    result = look(aws, planned())
    assert (result["failed"], result["problems"]) == (False, [])
    assert any(line.startswith("not looked at: ") and "You may not" in line for line in result["warnings_found"])


def test_networks_that_overlap(aws: Double) -> None:
    others = [
        {"name": "east", "region": "us-east-1", "cidr": "10.0.128.0/17"},
        {"name": "north", "region": "eu-north-1", "cidr": "10.1.0.0/16"},
        {"name": "west", "region": "us-west-2", "cidr": "10.0.0.0/16"},
    ]
    result = look(aws, planned(), others=others)
    assert result["problems"] == []
    assert len(result["warnings_found"]) == 1
    assert "east (10.0.128.0/17, us-east-1)" in result["warnings_found"][0]
    assert "north" not in result["warnings_found"][0]


@pytest.mark.parametrize(
    ("given", "told"),
    [({"plan": {"name": "x"}}, "plan: has no object"), ({"region": "eu-north-1"}, "the plan is for us-west-2")],
)
def test_wrong_arguments(aws: Double, given: dict[str, Any], told: str) -> None:
    result = run_module(eks_preflight_info, {**aws.credentials, "plan": planned(), **given})
    assert result["failed"] is True
    assert told in result["msg"]
