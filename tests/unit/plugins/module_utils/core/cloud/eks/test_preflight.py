# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Problems and warnings of a planned cluster, with AWS as the cases describe it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.preflight import (
    Found,
    Verdict,
    judge,
    quota_codes,
    zones_fit,
)

ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
BLOCK = "cr-0123456789abcdef0"


def machine(cards: int = 1, vcpus: int = 4, *, maker: str = "NVIDIA", processor: str = "x86_64") -> dict[str, Any]:
    return {
        "ProcessorInfo": {"SupportedArchitectures": [processor]},
        "GpuInfo": {"Gpus": [{"Manufacturer": maker}]} if maker else {},
        "NetworkInfo": {
            "EfaSupported": cards > 1,
            "MaximumNetworkCards": cards,
            "EfaInfo": {"MaximumEfaInterfaces": cards},
        },
        "VCpuInfo": {"DefaultVCpus": vcpus},
    }


TYPES = {
    "m6i.xlarge": machine(maker=""),
    "g6.xlarge": machine(),
    "p5.48xlarge": machine(32, 192),
    "g4ad.xlarge": machine(maker="AMD"),
    "g5g.xlarge": machine(processor="arm64"),
    "g6.16xlarge": machine(processor="arm64"),
}
GOOD = Found(
    "us-west-2",
    "123456789012",
    zones=ZONES,
    offerings={kind: frozenset(ZONES) for kind in TYPES},
    types=TYPES,
    versions={"1.33": "EXTENDED_SUPPORT", "1.36": "STANDARD_SUPPORT", "1.30": "UNSUPPORTED"},
    quotas={"L-1216C47A": 1000.0, "L-DB2E81BA": 1000.0, "L-417A185B": 1000.0},
)
RESERVATION = {
    "ReservationType": "capacity-block",
    "State": "active",
    "InstanceType": "p5.48xlarge",
    "AvailabilityZone": "us-west-2a",
    "TotalInstanceCount": 2,
}


def group(name: str = "gpu", kind: str = "g6.xlarge", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "role": "GPU",
        "instance_type": kind,
        "zones": ["us-west-2a"],
        "launch_template": "",
        "capacity_type": "",
        "capacity_reservation": "",
        "min_size": 0,
        "max_size": 2,
        "desired_size": 1,
        **more,
    }


SYSTEM = group("system", "m6i.xlarge", role="System", zones=list(ZONES))
BLOCKED = group(kind="p5.48xlarge", capacity_type="CAPACITY_BLOCK", capacity_reservation=BLOCK)


def plan(*groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "object": {"namespace": "modelplane-system", "name": "west"},
        "name": "modelplane-system-west-eks-12345",
        "region": "us-west-2",
        "version": "1.36",
        "zones": list(ZONES),
        "vpc": {"name": "west", "cidr": "10.0.0.0/16"},
        "node_groups": [SYSTEM, *(groups or (group(),))],
        "launch_templates": [{"name": "fast", "network_cards": 32}],
        **more,
    }


def said(verdict: Verdict) -> tuple[str, str]:
    return "\n".join(verdict.problems), "\n".join(verdict.warnings)


def test_a_good_plan() -> None:
    assert judge(plan(), GOOD) == Verdict((), ())
    assert judge(plan(group(kind="g5g.xlarge")), GOOD) == Verdict((), ())


def test_what_is_not_known_is_not_judged() -> None:
    assert judge(plan(group(kind="odd.one", zones=["moon-1a"])), Found("us-west-2", "123456789012")) == Verdict((), ())


SUBNETS = [{"cidr": f"10.0.{16 * index}.0/20", "zone": zone} for index, zone in enumerate(ZONES)]


@pytest.mark.parametrize(
    ("found", "fit"),
    [
        (GOOD, True),
        (Found("us-west-2", "123456789012"), True),
        (replace(GOOD, zones=ZONES[:2]), False),
        (replace(GOOD, zones=ZONES[:2], subnet_zones={"10.0.32.0/20": ZONES[2]}), True),
        (replace(GOOD, subnet_zones={"10.0.0.0/20": ZONES[1]}), False),
        (replace(GOOD, subnet_zones={"10.9.0.0/20": ZONES[1]}), True),
    ],
    ids=["usable", "not known", "not usable", "not usable but there", "there in another zone", "of another range"],
)
def test_zones_that_fit(found: Found, fit: bool) -> None:
    assert zones_fit(plan(subnets=SUBNETS), found) is fit


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (plan(version="1.29"), "EKS does not offer Kubernetes 1.29 in us-west-2. It offers 1.33, 1.36"),
        (plan(version="1.30"), "does not offer Kubernetes 1.30"),
        (plan(zones=[*ZONES, "us-west-2d"]), "has 4 entries, one for each zone, and us-west-2 has 3 zones"),
        (plan(group(zones=["us-west-2e"])), "zone us-west-2e is not available to this account in us-west-2"),
        (plan(group(kind="g6.huge")), "there is no instance type g6.huge"),
        (plan(group(kind="g4ad.xlarge")), "g4ad.xlarge has no NVIDIA GPU"),
        (plan(group(kind="m6i.xlarge")), "m6i.xlarge has no NVIDIA GPU"),
        (plan(group(kind="g6.16xlarge")), "g6.16xlarge has arm64 processors, and the nodes' image is for x86_64"),
        (plan(group(launch_template="fast")), "g6.xlarge has no EFA"),
        (plan(group(desired_size=251, max_size=251)), "start with 1004 vCPUs"),
    ],
)
def test_problems(case: dict[str, Any], message: str) -> None:
    problems, _warnings = said(judge(case, GOOD))
    assert message in problems
    assert len(problems.splitlines()) == 1


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (plan(version="1.33"), "extended support"),
        (plan(group(max_size=300)), "may grow to 1200 vCPUs"),
    ],
)
def test_warnings(case: dict[str, Any], message: str) -> None:
    problems, warnings = said(judge(case, GOOD))
    assert (problems, message in warnings) == ("", True)


def test_a_type_that_a_zone_lacks() -> None:
    found = replace(GOOD, offerings={**GOOD.offerings, "g6.xlarge": frozenset({"us-west-2c"})})  # type: ignore[dict-item]
    problems, _warnings = said(judge(plan(), found))
    assert problems == "node pool gpu: g6.xlarge is not offered in us-west-2a. It is offered in us-west-2c"
    nowhere = replace(GOOD, offerings={**GOOD.offerings, "g6.xlarge": frozenset()})  # type: ignore[dict-item]
    assert "g6.xlarge is not offered in us-west-2. Take another" in said(judge(plan(), nowhere))[0]


def test_the_system_pool_needs_one_zone_only() -> None:
    found = replace(GOOD, offerings={**GOOD.offerings, "m6i.xlarge": frozenset({"us-west-2c"})})  # type: ignore[dict-item]
    assert judge(plan(), found) == Verdict((), ())


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        ({"ReservationType": "default"}, {}, "is no Capacity Block"),
        ({"State": "scheduled", "StartDate": "2027-01-01"}, {}, "is not active yet, it starts at 2027-01-01"),
        ({"State": "expired"}, {}, "is expired, so nothing starts in it"),
        ({"State": "payment-pending"}, {}, "is payment-pending"),
        ({"InstanceType": "p5en.48xlarge"}, {}, "is for p5en.48xlarge, and the pool has p5.48xlarge"),
        ({"AvailabilityZone": "us-west-2b"}, {}, "is in us-west-2b, and the pool in us-west-2a"),
        ({}, {"zones": ["us-west-2a", "us-west-2b"]}, "is in us-west-2a, and the pool in us-west-2a, us-west-2b"),
        ({}, {"desired_size": 3, "max_size": 3}, "start with 3 machines, and reservation cr-0123456789abcdef0 of"),
    ],
)
def test_capacity_blocks_that_do_not_do(change: dict[str, Any], more: dict[str, Any], message: str) -> None:
    found = replace(GOOD, reservations={BLOCK: {**RESERVATION, **change}})
    problems, _warnings = said(judge(plan({**BLOCKED, **more}), found))
    assert message in problems
    assert len(problems.splitlines()) == 1


def test_a_capacity_block_that_does() -> None:
    found = replace(GOOD, reservations={BLOCK: RESERVATION})
    assert judge(plan(BLOCKED), found) == Verdict((), ())


def test_a_capacity_block_counts_against_no_quota() -> None:
    found = replace(GOOD, reservations={BLOCK: RESERVATION}, quotas={"L-417A185B": 0.0})
    assert judge(plan(BLOCKED), found) == Verdict((), ())


def test_what_is_there_already_is_only_warned_of() -> None:
    found = replace(GOOD, reservations={BLOCK: {**RESERVATION, "State": "expired"}}, node_groups=frozenset({"gpu"}))
    problems, warnings = said(judge(plan(BLOCKED), found))
    assert (problems, "is expired" in warnings) == ("", True)
    running = replace(GOOD, version="1.29")
    assert judge(plan(version="1.29"), running) == Verdict((), ())


def test_efa_interfaces() -> None:
    fast = group(kind="p5.48xlarge", launch_template="fast")
    assert judge(plan(fast), GOOD) == Verdict((), ())
    more = plan(fast, launch_templates=[{"name": "fast", "network_cards": 33}])
    assert "33 EFA interfaces are asked for, and p5.48xlarge has 32" in said(judge(more, GOOD))[0]
    fewer = plan(fast, launch_templates=[{"name": "fast", "network_cards": 1}])
    assert said(judge(fewer, GOOD)) == ("", "node pool gpu: p5.48xlarge has 32 EFA interfaces, and the nodes get 1")


def test_groups_without_a_launch_template_are_one_warning() -> None:
    there = frozenset({"gpu", "more", "system"})
    found = replace(GOOD, node_groups=there, groups_without_template=frozenset({"more", "system", "gone"}))
    problems, warnings = said(judge(plan(group(), group("more")), found))
    assert problems == ""
    assert warnings.startswith("node pools system, more: exist without a launch template, which EKS adds to none")
    assert len(warnings.splitlines()) == 1


def test_networks_that_overlap_are_reported_once() -> None:
    others = [
        {"name": "b", "region": "us-east-1", "cidr": "10.0.0.0/8"},
        {"name": "a", "region": "us-east-1", "cidr": "10.0.3.0/24"},
        {"name": "c", "region": "us-east-1", "cidr": "10.1.0.0/16"},
        {"name": "west", "region": "us-west-2", "cidr": "10.0.0.0/16"},
        {"name": "odd", "region": "us-west-2", "cidr": "none"},
    ]
    problems, warnings = said(judge(plan(), GOOD, others))
    assert problems == ""
    assert "a (10.0.3.0/24, us-east-1), b (10.0.0.0/8, us-east-1), so" in warnings


@pytest.mark.parametrize(
    ("capacity", "code"),
    [("ON_DEMAND", "L-DB2E81BA"), ("SPOT", "L-3819A6DF"), ("", "L-DB2E81BA")],
)
def test_quotas_by_family_and_capacity(capacity: str, code: str) -> None:
    assert quota_codes(plan(group(capacity_type=capacity), group("more"))) == sorted({"L-1216C47A", "L-DB2E81BA", code})


def test_a_capacity_block_is_read_no_quota_for() -> None:
    assert quota_codes(plan(BLOCKED, group("neuron", "trn1.32xlarge"))) == ["L-1216C47A"]


def test_spot_and_on_demand_count_against_quotas_of_their_own() -> None:
    groups = (group(desired_size=2), group("cheap", capacity_type="SPOT", desired_size=2, max_size=8))
    found = replace(GOOD, quotas={"L-DB2E81BA": 8.0, "L-3819A6DF": 4.0})
    problems, warnings = said(judge(plan(*groups), found))
    assert problems == (
        'node pools cheap: start with 8 vCPUs, and the quota "All G and VT Spot Instance Requests" (L-3819A6DF) of '
        "account 123456789012 in us-west-2 is 4 vCPUs. Ask for more in Service Quotas (EC2), or lower nodeCount"
    )
    assert warnings == ""


def test_a_capacity_block_that_others_use() -> None:
    found = replace(GOOD, reservations={BLOCK: {**RESERVATION, "AvailableInstanceCount": 0}})
    problems, _warnings = said(judge(plan(BLOCKED), found))
    assert "start with 1 machine, and reservation cr-0123456789abcdef0 of account 123456789012 has 2" in problems
    assert "of which 2 are in use. Reserve more, or lower nodeCount" in problems
    # Its own nodes are what uses it.
    assert judge(plan(BLOCKED), replace(found, node_groups=frozenset({"gpu"}))) == Verdict((), ())
    scheduled = {**RESERVATION, "AvailableInstanceCount": 0, "State": "scheduled"}
    problems, _warnings = said(judge(plan(BLOCKED), replace(GOOD, reservations={BLOCK: scheduled})))
    assert len(problems.splitlines()) == 1
