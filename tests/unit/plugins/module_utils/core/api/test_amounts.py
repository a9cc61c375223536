# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Hints for amounts with a wrong or missing unit: no hint makes them a valid and absurd amount."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import InvalidResource, parse
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem

RESOURCES = "spec.template.spec.engines[0].members[0].template.spec.containers[0].resources"
CAPACITY = "spec.devices[0].capacity"
BOUND = "must be a number of replicas such as 2, or a percentage such as 25%"

Change = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]


def problem(document: dict[str, Any], path: str) -> Problem:
    """The only problem at a path."""
    with pytest.raises(InvalidResource) as caught:
        parse(document)
    (found,) = [each for each in caught.value.problems if each.path == path]
    return found


@pytest.mark.parametrize(
    ("name", "value", "write"),
    [
        ("memory", 80, "Write 80Gi"),
        ("gpu.nvidia.com/memory", 80, "Write 80Gi"),
        ("memory", 79.6, "Write 79.6Gi"),
        ("memory", 81559, "Write 81559Mi"),
        ("memory", 85899345920, "Add the unit, such as 81559Mi"),
        ("memory", 0, "Add the unit, such as 81559Mi"),
        ("multiprocessors", 132, 'Quote it: "132"'),
    ],
)
def test_memory_of_a_device_has_a_unit(
    minimal: dict[str, dict[str, Any]], change: Change, name: str, value: Any, write: str
) -> None:
    document = change(minimal["InferenceClass"], {CAPACITY: {name: {"value": value}}})
    assert problem(document, f'{CAPACITY}["{name}"].value').hint == write


@pytest.mark.parametrize(
    ("resource", "value", "write"),
    [
        ("memory", 0.5, "Add the unit, such as 0.5Mi or 0.5Gi"),
        ("memory", " 80", "Add the unit, such as 80Mi or 80Gi"),
        ("memory", "80 m", "Add the unit, such as 80Mi or 80Gi"),
        ("memory", "80 GB", "Write 80G"),
        ("ephemeral-storage", 1.5, "Add the unit, such as 1.5Mi or 1.5Gi"),
        ("cpu", 0.5, 'Quote it: "0.5"'),
        ("cpu", "500 m", "Write 500m"),
        ("cpu", "16 cores", 'Write "16"'),
        ("cpu", "0.5 CPU", 'Write "0.5"'),
        ("cpu", "80GB", "Units of memory do not apply to a CPU"),
        ("cpu", "80g", "Units of memory do not apply to a CPU"),
    ],
)
def test_memory_of_a_container_has_a_unit(
    minimal: dict[str, dict[str, Any]], change: Change, resource: str, value: Any, write: str
) -> None:
    document = change(minimal["ModelDeployment"], {RESOURCES: {"limits": {resource: value}}})
    assert problem(document, f"{RESOURCES}.limits.{resource}").hint.startswith(write)


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ("cpu", "must be a quantity of cores, such as 4 or 500m"),
        ("memory", "must be a quantity, such as 512Mi or 16Gi"),
        ("ephemeral-storage", "must be a quantity, such as 512Mi or 16Gi"),
    ],
)
def test_examples_of_an_amount_are_of_its_resource(
    minimal: dict[str, dict[str, Any]], change: Change, resource: str, message: str
) -> None:
    document = change(minimal["ModelDeployment"], {RESOURCES: {"limits": {resource: "80GB"}}})
    assert problem(document, f"{RESOURCES}.limits.{resource}").message == message


@pytest.mark.parametrize("field", ["maxUnavailable", "maxSurge"])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1], f"{BOUND}, is a list"),
        ({"percent": 25}, f"{BOUND}, is a mapping"),
        (True, f"{BOUND}, is true or false"),
        (0.25, f"{BOUND}, is a decimal number"),
        ("a quarter", BOUND),
    ],
)
def test_a_bound_of_a_rollout_is_a_number_or_a_percentage(
    minimal: dict[str, dict[str, Any]], change: Change, field: str, value: Any, message: str
) -> None:
    document = change(minimal["ModelDeployment"], {"spec.rollout": {field: value}})
    found = problem(document, f"spec.rollout.{field}")
    assert found.message == message
    assert "text" not in str(found)
    assert "t must be" not in found.hint


@pytest.mark.parametrize(
    ("of", "path", "value", "write"),
    [
        ("ModelCache", "spec.huggingFace.sizeGiB", "160M", ""),
        ("EKSCluster", "spec.nodePools[0].diskSizeGb", "200M", ""),
        # 8,000 billions are no model, and 8.3 hours are no time-out.
        ("ModelDeployment", "spec.template.spec.model", {"parameters": 8000, "dtype": "bfloat16"}, "It must be"),
        ("ModelDeployment", "spec.template.spec.model", {"parameters": 32.8, "dtype": "bfloat16"}, "Write 32.8B"),
        ("ModelService", "spec.timeouts", {"request": 30000}, "It must be a duration"),
        ("ModelService", "spec.timeouts", {"request": 30}, "Write 30s"),
        ("ModelService", "spec.timeouts", {"request": "5 minutes"}, "Write 5m"),
        ("ModelService", "spec.timeouts", {"request": "1hr 30min"}, 'Write "1h30m"'),
        # Numbers that the field does not accept.
        ("EKSCluster", "spec.nodePools[0].diskSizeGb", "7", "It must be at least 10"),
        ("EKSCluster", "spec.nodePools[0].diskSizeGb", "7GB", "It must be at least 10"),
        ("EKSCluster", "spec.nodePools[0].diskSizeGb", [7], "It must be at least 10"),
        ("EKSCluster", "spec.nodePools[0].nodeCount", "-1", "It must be at least 0"),
        ("EKSCluster", "spec.nodePools[0].nodeCount", "5000", "It must be at most 1000"),
        # Some write 2,000 as 2.000.
        ("ModelDeployment", "spec.replicas", "2.000", ""),
        ("ModelDeployment", "spec.replicas", "2.0", "Write 2"),
        ("ModelDeployment", "spec.replicas", "2,000", "It must be at most 1000"),
        # A quantity of memory also has the unit m.
        ("ModelDeployment", RESOURCES, {"limits": {"memory": "90 min"}}, ""),
        ("ModelDeployment", RESOURCES, {"limits": {"cpu": "5 min"}}, ""),
        ("InferenceCluster", "metadata.labels", "1:30", 'Write {"1": "30"}'),
        ("InferenceCluster", "metadata.labels", "a:b", "Write {a: b}"),
        # Names in the form of amounts.
        ("ModelDeployment", "spec.template.spec.engines[0].name", "1.5h", ""),
        ("ModelDeployment", "spec.template.spec.engines[0].name", "5 Min", 'Write "5-min"'),
    ],
)
def test_no_hint_is_valid_and_absurd(
    minimal: dict[str, dict[str, Any]], change: Change, of: str, path: str, value: Any, write: str
) -> None:
    document = change(minimal[of], {path: value})
    while isinstance(value, dict):
        path = f"{path}.{next(iter(value))}"
        value = next(iter(value.values()))
    found = problem(document, path).hint
    assert found.startswith(write) if write else found == "", found


@pytest.mark.parametrize(("value", "write"), [(8.9, "Write 8.9.0 (or 8.90.0, if you wrote 8.90)"), (9, "Write 9.0.0")])
def test_a_version_has_three_parts(minimal: dict[str, dict[str, Any]], change: Change, value: Any, write: str) -> None:
    attribute = {"cudaComputeCapability": {"version": value}}
    document = change(minimal["InferenceClass"], {"spec.devices[0].attributes": attribute})
    assert problem(document, 'spec.devices[0].attributes["cudaComputeCapability"].version').hint == write


@pytest.mark.parametrize(
    ("value", "write"),
    [("90", "Write it without quotes: 90"), ("2h", "Write 120"), ("90 min", "Write 90"), ("90s", "")],
)
def test_minutes_are_whole(minimal: dict[str, dict[str, Any]], change: Change, value: str, write: str) -> None:
    path = "spec.template.spec.engines[0].startupMinutes"
    assert problem(change(minimal["ModelDeployment"], {path: value}), path).hint == write


@pytest.mark.parametrize(
    ("of", "path", "value"),
    [
        ("InferenceCluster", "spec.cluster.source", "aws"),
        ("InferenceCluster", "spec.cluster.source", "yes"),
        ("EKSCluster", "spec.nodePools[0].role", "gcp"),
    ],
)
def test_a_word_that_is_no_misspelt_choice_has_no_hint(
    minimal: dict[str, dict[str, Any]], change: Change, of: str, path: str, value: str
) -> None:
    """One letter makes another word of a short word."""
    assert problem(change(minimal[of], {path: value}), path).hint == ""


def test_a_list_contains_valid_items(minimal: dict[str, dict[str, Any]], change: Change) -> None:
    path, due = "spec.logging.types", "Write it as a list: one line with '- ' for each item"
    for value, write in (("api, audit", "Write [api, audit]"), ("auto", due), ("API", due)):
        assert problem(change(minimal["EKSCluster"], {"spec.logging": {"types": value}}), path).hint == write
    groups = f"{RESOURCES.removesuffix('.containers[0].resources')}.securityContext.supplementalGroups"
    for number, write in ((3000, "Write [3000]"), (-1, due)):
        assert problem(change(minimal["ModelDeployment"], {groups: number}), groups).hint == write


def test_a_name_is_not_an_amount_of_money(minimal: dict[str, dict[str, Any]], change: Change) -> None:
    path = "spec.tls.serverName"
    document = change(minimal["ModelEndpoint"], {"spec.tls": {"serverName": 15}})
    assert problem(document, path).hint == 'Quote it: "15"'
