# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module eks_preflight against a double of AWS, and what it makes of what AWS may say."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import preflight
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.preflight import InstanceType, Region
from ansible_collections.modelplane.fleet.plugins.modules import eks_preflight
from ansible_collections.modelplane.fleet.tests.aws.double import AwsDouble
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.running import good, refused

ZONE = "us-west-2a"
P5 = "p5.48xlarge"
ASKED = {"id": "cr-0123456789abcdef0", "instance_type": P5, "zones": [ZONE], "count": 2}
START = datetime.datetime(2026, 12, 1, 11, 30, tzinfo=datetime.UTC)
BLOCK = {
    "ReservationType": "capacity-block",
    "State": "active",
    "InstanceType": P5,
    "AvailabilityZone": ZONE,
    "TotalInstanceCount": 2,
    "StartDate": START,
    "EndDate": START,
}


def wanted(**more: Any) -> dict[str, Any]:
    """A cluster as the module hands it on."""
    empty: dict[str, Any] = {"zones": [], "instance_types": {}, "efa": {}, "capacity_reservations": [], "version": None}
    return {"name": "west", "region": "us-west-2", **empty, **more}


def there(**more: Any) -> Region:
    """A region in which all is well."""
    return Region(
        "us-west-2",
        **{
            "zones": {ZONE: "available", "us-west-2b": "available", "us-west-2c": "impaired"},
            "offered": frozenset({(ZONE, P5), (ZONE, "g6.2xlarge"), ("us-west-2b", "g6.2xlarge")}),
            "types": {P5: InstanceType(192, 32, 32), "g6.2xlarge": InstanceType(8, 1, 0)},
            "reservations": {ASKED["id"]: BLOCK},
            "versions": {"1.36": "STANDARD_SUPPORT", "1.33": "EXTENDED_SUPPORT", "1.29": "UNSUPPORTED"},
            "quotas": {"L-417A185B": 192.0, "L-DB2E81BA": 8.0},
            **more,
        },
    )


WELL = wanted(
    zones=[ZONE, "us-west-2b"],
    instance_types={ZONE: [P5, "g6.2xlarge"], "us-west-2b": ["g6.2xlarge"]},
    efa={P5: 32},
    capacity_reservations=[ASKED],
    version="1.36",
)

CASES: dict[str, tuple[dict[str, Any], Region, list[tuple[str, str]]]] = {
    "all is well": (WELL, there(), []),
    "nothing is known": (
        WELL,
        there(zones=None, offered=None, types=None, reservations={}, versions=None, quotas={}, unknown=["no right"]),
        [("warning", "could not be checked: no right")],
    ),
    "no credentials": (WELL, there(failure="they are expired"), [("error", "they are expired")]),
    "no such zone": (
        wanted(zones=["us-west-2z"]),
        there(),
        [("error", "zone us-west-2z is not there for this account in us-west-2. Choose among us-west-2a, us-west-2b")],
    ),
    "a zone in trouble": (
        wanted(instance_types={"us-west-2c": []}),
        there(),
        [("error", "zone us-west-2c is impaired. Choose among us-west-2a, us-west-2b")],
    ),
    "a type is elsewhere": (
        wanted(instance_types={"us-west-2b": [P5]}),
        there(),
        [("error", f"instance type {P5} is not offered in us-west-2b. Zones with it: us-west-2a")],
    ),
    "a type is nowhere": (
        wanted(instance_types={ZONE: ["p6-b200.48xlarge"]}),
        there(),
        [("error", "instance type p6-b200.48xlarge is not offered in us-west-2a. us-west-2 has none at all")],
    ),
    "no EFA": (
        wanted(efa={"g6.2xlarge": 1}),
        there(),
        [("error", "instance type g6.2xlarge has no EFA. Set the fabric of its pool to None, or choose another type")],
    ),
    "too many cards": (
        wanted(efa={P5: 33}),
        there(quotas={}),
        [("error", f"33 network cards of {P5} are asked for, and it has 32")],
    ),
    "too many interfaces": (
        wanted(efa={P5: 32}),
        there(types={P5: InstanceType(192, 32, 16)}),
        [("error", f"32 EFA interfaces of {P5} are asked for, and it takes 16")],
    ),
    "cards that lie idle": (
        wanted(efa={P5: 1}),
        there(),
        [("warning", f"1 of the 32 EFA interfaces of {P5} are used")],
    ),
    "quota": (
        wanted(instance_types={ZONE: [P5, "g6.2xlarge"]}),
        there(quotas={"L-417A185B": 0.0, "L-DB2E81BA": 8.0}),
        [
            (
                "error",
                f"one {P5} has 192 vCPUs, and the quota L-417A185B (Running On-Demand P instances) of us-west-2 is",
            )
        ],
    ),
    "a block needs no quota": (
        wanted(instance_types={ZONE: [P5]}, capacity_reservations=[ASKED]),
        there(quotas={"L-417A185B": 0.0}),
        [],
    ),
    "no such version": (
        wanted(version="1.29"),
        there(),
        [("error", "EKS offers no Kubernetes 1.29 in us-west-2. Choose among 1.33, 1.36")],
    ),
    "an old version": (wanted(version="1.33"), there(), [("warning", "Kubernetes 1.33 is in extended support")]),
}


@pytest.mark.parametrize("name", CASES)
def test_findings(name: str) -> None:
    cluster, region, expected = CASES[name]
    found = preflight.findings(cluster, region)
    assert [finding.severity for finding in found] == [severity for severity, _ in expected]
    for finding, (_, text) in zip(found, expected, strict=True):
        assert finding.cluster == "west"
        assert finding.message.startswith(text)


NAME = f"capacity reservation {ASKED['id']}"
BLOCKS: dict[str, tuple[dict[str, Any] | None, int, list[tuple[str, str]]]] = {
    "active": ({}, 2, []),
    "gone": (None, 2, [("error", f"{NAME} is not there in us-west-2")]),
    "no block": (
        {"ReservationType": "default"},
        2,
        [("error", f"{NAME} is of type default, and capacityBlock takes capacity blocks only")],
    ),
    "scheduled": (
        {"State": "scheduled"},
        2,
        [("error", f"{NAME} is scheduled, and starts at 2026-12-01 11:30 UTC. Its pool can have nodes from then on")],
    ),
    "scheduled, and no node is wanted yet": ({"State": "scheduled"}, 0, [("warning", f"{NAME} is scheduled")]),
    "expired": ({"State": "expired"}, 2, [("error", f"{NAME} is expired; it ended at 2026-12-01 11:30 UTC. Buy")]),
    "payment failed": ({"State": "payment-failed", "EndDate": None}, 0, [("error", f"{NAME} is payment-failed. Buy")]),
    "another type": (
        {"InstanceType": "p5e.48xlarge"},
        2,
        [("error", f"{NAME} is for p5e.48xlarge, and its pool for p5.48xlarge")],
    ),
    "another zone": (
        {"AvailabilityZone": "us-west-2d"},
        2,
        [("error", f"{NAME} is in us-west-2d, and its pool in us-west-2a. Set zones of the pool to [us-west-2d]")],
    ),
    "too small": ({}, 3, [("error", f"{NAME} has 2 machines, and its pool starts with 3. Lower nodeCount")]),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_findings_of_capacity_blocks(name: str) -> None:
    change, count, expected = BLOCKS[name]
    cluster = wanted(capacity_reservations=[{**ASKED, "count": count}])
    found = preflight.findings(
        cluster, there(reservations={ASKED["id"]: None if change is None else {**BLOCK, **change}})
    )
    assert [finding.severity for finding in found] == [severity for severity, _ in expected]
    for finding, (_, text) in zip(found, expected, strict=True):
        assert finding.message.startswith(text)


def findings(*clusters: dict[str, Any], **more: Any) -> list[tuple[str, str, str]]:
    result = good(eks_preflight, clusters=list(clusters), **more)
    assert not result["changed"]
    return [(each["cluster"], each["severity"], each["message"]) for each in result["findings"]]


def plan(account: AwsDouble, **more: Any) -> dict[str, Any]:
    block = account.reserve(P5, ZONE, 2)
    return {
        "name": "west",
        "region": "us-west-2",
        "zones": [ZONE, "us-west-2b"],
        "instance_types": {ZONE: [P5, "m6i.xlarge"]},
        "efa": {P5: 32},
        "capacity_reservations": [{"id": block, "instance_type": P5, "zones": [ZONE], "count": 2}],
        "version": "1.36",
        "vpc_cidr": "10.0.0.0/16",
        **more,
    }


def test_a_cluster_that_can_be_made(account: AwsDouble) -> None:
    assert findings(plan(account)) == []
    assert account.mutations == []


def test_all_that_is_wrong_is_told_at_once(account: AwsDouble) -> None:
    account.not_offered(P5, ZONE)
    account.quota("ec2", "L-DB2E81BA", 4)
    wrong = plan(account, version="1.20", zones=["us-west-2q"], instance_types={ZONE: [P5, "g6.2xlarge"]})
    told = findings(wrong)
    assert [severity for _, severity, _ in told] == ["error"] * 4
    text = " ".join(message for _, _, message in told)
    for part in ("zone us-west-2q", f"{P5} is not offered in {ZONE}", "the quota L-DB2E81BA", "no Kubernetes 1.20"):
        assert part in text


def test_clusters_of_several_regions(account: AwsDouble) -> None:
    first, second = plan(account), plan(account, name="east", region=None, capacity_reservations=[])
    second |= {"zones": ["us-east-1a"], "instance_types": {"us-east-1a": ["m6i.xlarge"]}, "efa": {}}
    assert findings(first, second, region="us-east-1") == []
    third = {**first, "name": "copy", "region": "us-east-1"}
    assert {name for name, _, _ in findings(first, third)} == {"copy"}


@pytest.mark.parametrize(
    ("service", "operation"),
    [
        ("service-quotas", "GetServiceQuota"),
        ("eks", "DescribeClusterVersions"),
        ("ec2", "DescribeCapacityReservations"),
    ],
)
def test_what_may_not_be_read_is_a_warning(account: AwsDouble, service: str, operation: str) -> None:
    account.deny(operation)
    ((_, severity, message),) = findings(plan(account))
    assert severity == "warning"
    assert f"could not be checked: {service} {operation} of" in message


def test_credentials_that_do_not_work_are_the_only_finding(account: AwsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    account.deny("GetCallerIdentity", "The security token included in the request is invalid")
    ((_, severity, message),) = findings(plan(account))
    assert (severity, "the credentials in us-west-2" in message) == ("error", True)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    ((_, severity, message),) = findings(plan(account))
    assert severity == "error"
    assert "no AWS credentials were found" in message


WRONG = {
    "no region": ({"region": None}, "west has no region"),
    "no list": ({"instance_types": {ZONE: P5}}, f"instance_types of {ZONE} is no list of names"),
    "no number": ({"efa": {P5: "many"}}, f"efa of {P5} is no number"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_means_nothing_is_told(account: AwsDouble, name: str) -> None:
    change, text = WRONG[name]
    assert text in refused(eks_preflight, clusters=[plan(account, **change)], region=None)
