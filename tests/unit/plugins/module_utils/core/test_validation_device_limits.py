# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Devices and claims that the API server does not accept are errors: under, at, and over each limit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Source, load
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.little_fleet import (
    CACHE,
    CLASS,
    CLUSTER,
    DEPLOYMENT,
    change,
)

SELECTED = "spec.template.spec.engines[0].members[0].nodeSelector"


def problems(*texts: str) -> list[Problem]:
    """The errors of a fleet of these texts and a cache."""
    sources = [Source(f"{number}.yaml", text.encode()) for number, text in enumerate((CACHE, *texts))]
    return [each for each in load(sources).problems if each.severity == "error"]


def of_class(claim: str = "DRA", **fields: Any) -> list[Problem]:
    """The problems of a class with one more device."""
    more = {"name": "more", "claim": claim, "driver": "a.example.com", **fields}
    if claim == "DRA":
        more.setdefault("deviceClassName", "a.example.com")
    return problems(CLASS.rstrip("\n") + f"\n  - {json.dumps(more)}\n", CLUSTER, DEPLOYMENT)


def texts(number: int) -> dict[str, Any]:
    return {f"a{at}": {"string": "x"} for at in range(number)}


def amounts(number: int) -> dict[str, Any]:
    return {f"c{at}": {"value": "1"} for at in range(number)}


@pytest.mark.parametrize(
    ("accepted", "refused", "says"),
    [
        (
            {"attributes": {"a": {"string": "x" * 64}}},
            {"attributes": {"a": {"string": "x" * 65}}},
            "has 65 bytes, and Kubernetes accepts at most 64 of an attribute",
        ),
        (
            {"attributes": {"a": {"string": "ä" * 32}}},
            {"attributes": {"a": {"string": "ä" * 33}}},
            "has 66 bytes, and Kubernetes accepts at most 64",
        ),
        (
            {"attributes": texts(16), "capacity": amounts(16)},
            {"attributes": texts(16), "capacity": amounts(17)},
            "has 33 attributes and capacities, and Kubernetes accepts at most 32 of a device",
        ),
        ({"attributes": texts(32)}, {"attributes": texts(32), "capacity": amounts(1)}, "has 33 attributes"),
        (
            {"attributes": {"a" * 32: {"bool": True}}},
            {"attributes": {"a" * 33: {"bool": True}}},
            "has 33 characters without its domain, and Kubernetes accepts at most 32",
        ),
        (
            {"capacity": {f"{'a' * 63}/b": {"value": "1"}}},
            {"capacity": {f"{'a' * 64}/b": {"value": "1"}}},
            "has a domain of 64 characters, and Kubernetes accepts at most 63",
        ),
        (
            {"attributes": {"numa_node": {"int": 1}}},
            {"attributes": {"numa-node": {"int": 1}}},
            "is not a name of an attribute or a capacity in Kubernetes",
        ),
        (
            {"attributes": {"a.example.com/b": {"int": 1}}},
            {"attributes": {"a_example/b": {"int": 1}}},
            "has a domain that is not a DNS subdomain",
        ),
        ({"driver": "a" * 63}, {"driver": "a" * 64}, "has 64 characters, and a driver name has at most 63"),
        ({"driver": "GPU.example.com"}, {"driver": "gpu_example"}, "is not a driver name in Kubernetes"),
        ({"deviceClassName": "a.b"}, {"deviceClassName": "a..b"}, "is not a name in Kubernetes"),
    ],
)
def test_a_claimed_device_is_one_that_a_driver_can_publish(
    accepted: dict[str, Any], refused: dict[str, Any], says: str
) -> None:
    assert of_class(**accepted) == []
    [problem] = of_class(**refused)
    assert says in problem.message
    assert problem.path.startswith("spec.devices[1]")


def test_synthetic_devices_exist_in_the_plan_only() -> None:
    assert of_class("Synthetic", attributes={"a": {"string": "x" * 65}}) == []


def of_deployment(devices: list[tuple[str, int]], constraints: list[dict[str, Any]], cel: str = "") -> list[Problem]:
    selectors = [{"cel": cel or 'device.driver == "gpu.nvidia.com"'}]
    node = {
        "devices": [{"name": name, "count": count, "selectors": selectors} for name, count in devices],
        "constraints": constraints,
    }
    written = DEPLOYMENT[DEPLOYMENT.index("          nodeSelector:") : DEPLOYMENT.index("          template:")]
    return problems(CLASS, CLUSTER, change(DEPLOYMENT, written, f"          nodeSelector: {json.dumps(node)}\n"))


ROOT = "resource.kubernetes.io/pcieRoot"


@pytest.mark.parametrize(
    ("devices", "names", "total"),
    [
        ([("gpu", 8), ("nic", 24)], ["gpu", "nic"], 0),
        ([("gpu", 8), ("nic", 25)], ["gpu", "nic"], 33),
        ([("gpu", 8), ("nic", 25)], ["gpu"], 0),
        ([("gpu", 33)], ["gpu"], 33),
        ([("gpu", 64)], [], 64),
        ([("gpu", 16), ("nic", 24), ("more", 24)], ["nic", "more"], 48),
    ],
)
def test_constraints_join_no_more_devices_than_a_claim_can_have(
    devices: list[tuple[str, int]], names: list[str], total: int
) -> None:
    constraint = {"matchAttribute": ROOT, **({"requests": names} if names else {})}
    found = of_deployment(devices, [constraint])
    if not total:
        assert found == []
        return
    [problem] = found
    assert problem.path == f"{SELECTED}.constraints"
    assert (
        f"which need {total} devices, and a ResourceClaim has at most 32 (AllocationResultsMaxSize)" in problem.message
    )
    assert problem.hint == "Name fewer requests in each constraint, or request fewer devices"


def test_without_constraints_a_pod_has_several_claims() -> None:
    assert of_deployment([("gpu", 8), ("nic", 56)], []) == []


@pytest.mark.parametrize(
    ("attribute", "says"),
    [
        (f"{'a' * 63}/{'b' * 32}", ""),
        (f"{'a' * 64}/b", "has a domain of 64 characters"),
        (f"a.b/{'b' * 33}", "has 33 characters without its domain"),
        ("a..b/c", "has a domain that is not a DNS subdomain"),
    ],
)
def test_the_attribute_of_a_constraint(attribute: str, says: str) -> None:
    found = of_deployment([("gpu", 1)], [{"matchAttribute": attribute}])
    assert [says in problem.message for problem in found] == ([True] if says else [])


@pytest.mark.parametrize(
    ("cel", "says"),
    [
        ('device.attributes["a"].x.matches("^H100")', ""),
        ('device.attributes.a.x.matches("^H100")', "too complex: Kubernetes estimates a cost of more than 4 billion"),
        (f'device.driver == "{"x" * 10217}"', ""),
        (f'device.driver == "{"x" * 10229}"', "10240"),
        (f'device.driver == "{"ä" * 5110}"', ""),
        (f'device.driver == "{"ä" * 5120}"', "a selector has at most 10240 bytes"),
    ],
)
def test_a_selector_is_one_that_the_api_server_accepts(cel: str, says: str) -> None:
    found = of_deployment([("gpu", 1)], [{"matchAttribute": ROOT}], cel)
    assert [says in str(problem) for problem in found] == ([True] if says else [])
