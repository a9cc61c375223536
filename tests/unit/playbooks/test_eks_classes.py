# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The InferenceClasses for EKS that come with the collection, against what EC2 says of the same instance types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import boto3
import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.launch_templates import network_cards
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import fleet_inputs
from ansible_collections.modelplane.fleet.tests.unit.playbooks.catalogue import (
    EXAMPLES,
    classes,
    devices,
    folder,
    matching,
    memory,
)
from moto import mock_aws

CLASSES = classes("eks")
NAMES = [entry["metadata"]["name"] for entry in CLASSES]


def machine(entry: Mapping[str, Any]) -> str:
    return str(entry["spec"]["provisioning"]["eks"]["instanceType"])


@pytest.fixture(scope="module")
def described() -> Iterator[dict[str, dict[str, Any]]]:
    """Instance types of all classes, as EC2 describes them."""
    with mock_aws():
        ec2 = boto3.client("ec2", "us-west-2", aws_access_key_id="x", aws_secret_access_key="x")
        pages = ec2.get_paginator("describe_instance_types").paginate(
            InstanceTypes=sorted({machine(entry) for entry in CLASSES})
        )
        yield {found["InstanceType"]: found for page in pages for found in page["InstanceTypes"]}


def test_the_catalogue_is_a_valid_set_of_manifests() -> None:
    loaded = fleet_inputs.read_manifests([str(folder("eks"))])
    assert (loaded.errors, loaded.warnings) == ((), ())
    assert sorted(resource.name for resource in loaded.resources) == sorted(NAMES)
    assert len(set(NAMES)) == len(NAMES)


def test_every_family_is_there() -> None:
    families = {machine(entry).partition(".")[0] for entry in CLASSES}
    assert families == {"g6", "g6e", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200"}


@pytest.mark.parametrize("entry", CLASSES, ids=NAMES)
def test_a_class_is_what_ec2_says_of_its_machine(entry: dict[str, Any], described: dict[str, dict[str, Any]]) -> None:
    found = described[machine(entry)]
    gpu = devices(entry)["gpu"]
    assert len(found["GpuInfo"]["Gpus"]) == 1
    real = found["GpuInfo"]["Gpus"][0]
    count = gpu["count"]
    assert (real["Count"], real["Manufacturer"]) == (count, "NVIDIA")
    assert entry["spec"]["provisioning"]["eks"]["accelerator"]["count"] == count
    assert real["Name"] in gpu["attributes"]["productName"]["string"].replace("-", " ").split()
    # EC2 rounds, to either side: an L4 is 22888 MiB to it, and 23034 to its driver.
    assert memory(entry) == pytest.approx(real["MemoryInfo"]["SizeInMiB"], rel=0.01)
    assert found["ProcessorInfo"]["SupportedArchitectures"] == ["x86_64"]


@pytest.mark.parametrize("entry", CLASSES, ids=NAMES)
def test_a_class_is_named_after_its_machine(entry: dict[str, Any]) -> None:
    name = f"eks-{machine(entry).replace('.', '-')}"
    assert entry["metadata"]["name"] == (f"{name}-efa" if "efa" in devices(entry) else name)
    assert machine(entry) in entry["spec"]["description"]


@pytest.mark.parametrize(
    "entry",
    [entry for entry in CLASSES if "efa" in devices(entry)],
    ids=[name for name in NAMES if name.endswith("-efa")],
)
def test_a_class_with_efa_has_an_interface_per_network_card(
    entry: dict[str, Any], described: dict[str, dict[str, Any]]
) -> None:
    network = described[machine(entry)]["NetworkInfo"]
    count = devices(entry)["efa"]["count"]
    assert count == network["EfaInfo"]["MaximumEfaInterfaces"] == network["MaximumNetworkCards"]
    assert count == network_cards(machine(entry)), "what the nodes are given"


BIG = {"NVIDIA H200", "NVIDIA B200"}
EIGHTY = {"NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", *BIG}
FORTY = {"NVIDIA L40S", "NVIDIA A100-SXM4-40GB", *EIGHTY}
ALL = {"NVIDIA L4", *FORTY}


@pytest.mark.parametrize(
    ("least", "models"),
    [("20Gi", ALL), ("35Gi", FORTY), ("40Gi", FORTY), ("60Gi", EIGHTY), ("120Gi", BIG), ("200Gi", set())],
)
def test_memory_distinguishes_the_models(least: str, models: set[str]) -> None:
    assert matching(CLASSES, f'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("{least}")) >= 0') == models


@pytest.mark.parametrize(
    ("expression", "models"),
    [
        ('device.attributes["gpu.nvidia.com"].architecture == "Hopper"', {"NVIDIA H100 80GB HBM3", "NVIDIA H200"}),
        (
            'device.attributes["gpu.nvidia.com"].cudaComputeCapability.isGreaterThan(semver("8.9.0"))',
            {"NVIDIA H100 80GB HBM3", *BIG},
        ),
        ('device.attributes["gpu.nvidia.com"].productName.lowerAscii().contains("l40s")', {"NVIDIA L40S"}),
        ('device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu"', ALL),
    ],
)
def test_attributes_distinguish_the_models(expression: str, models: set[str]) -> None:
    assert matching(CLASSES, expression) == models


@pytest.mark.parametrize("expression", EXAMPLES)
def test_every_example_finds_a_class(expression: str) -> None:
    assert matching(CLASSES, expression)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 3
