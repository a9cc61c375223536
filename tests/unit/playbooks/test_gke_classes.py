# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The InferenceClasses for GKE that come with the collection, against what Google sells."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.fleet import clusters
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.machines import ACCELERATORS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import plan
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import fleet_inputs
from ansible_collections.modelplane.fleet.tests.unit.playbooks.catalogue import (
    EXAMPLES,
    classes,
    devices,
    folder,
    matching,
    memory,
)

CLASSES = classes("gke")
NAMES = [entry["metadata"]["name"] for entry in CLASSES]
# What Compute Engine's documentation says of its machine types ("Accelerator-optimized machine family"): the model, its
# nominal memory in GB, and how many; and GKE's of its accelerators ("GPU node pools"): the type.
L4 = ("L4", 24, "nvidia-l4")
A100, A100_80 = ("A100", 40, "nvidia-tesla-a100"), ("A100", 80, "nvidia-a100-80gb")
H100, MEGA = ("H100", 80, "nvidia-h100-80gb"), ("H100", 80, "nvidia-h100-mega-80gb")
H200, B200 = ("H200", 141, "nvidia-h200-141gb"), ("B200", 180, "nvidia-b200")
MACHINES: dict[str, tuple[tuple[str, int, str], int]] = {
    "g2-standard-4": (L4, 1),
    "g2-standard-8": (L4, 1),
    "g2-standard-12": (L4, 1),
    "g2-standard-16": (L4, 1),
    "g2-standard-32": (L4, 1),
    "g2-standard-24": (L4, 2),
    "g2-standard-48": (L4, 4),
    "g2-standard-96": (L4, 8),
    "a2-highgpu-1g": (A100, 1),
    "a2-highgpu-2g": (A100, 2),
    "a2-highgpu-4g": (A100, 4),
    "a2-highgpu-8g": (A100, 8),
    "a2-megagpu-16g": (A100, 16),
    "a2-ultragpu-1g": (A100_80, 1),
    "a2-ultragpu-2g": (A100_80, 2),
    "a2-ultragpu-4g": (A100_80, 4),
    "a2-ultragpu-8g": (A100_80, 8),
    "a3-highgpu-8g": (H100, 8),
    "a3-megagpu-8g": (MEGA, 8),
    "a3-ultragpu-8g": (H200, 8),
    "a4-highgpu-8g": (B200, 8),
}


def block(entry: dict[str, Any]) -> dict[str, Any]:
    return dict(entry["spec"]["provisioning"]["gke"])


def test_the_catalogue_is_a_valid_set_of_manifests() -> None:
    loaded = fleet_inputs.read_manifests([str(folder("gke"))])
    assert (loaded.errors, loaded.warnings) == ((), ())
    assert sorted(resource.name for resource in loaded.resources) == sorted(NAMES)
    assert len(set(NAMES)) == len(NAMES)


def test_every_machine_is_there() -> None:
    assert sorted(block(entry)["machineType"] for entry in CLASSES) == sorted(MACHINES)


@pytest.mark.parametrize("entry", CLASSES, ids=NAMES)
def test_a_class_is_what_google_says_of_its_machine(entry: dict[str, Any]) -> None:
    machine = block(entry)["machineType"]
    (model, size, accelerator), count = MACHINES[machine]
    assert block(entry)["accelerator"] == {"type": accelerator, "count": count}
    assert ACCELERATORS[machine] == (accelerator, count)
    gpu = devices(entry)["gpu"]
    assert gpu["count"] == count
    assert model in gpu["attributes"]["productName"]["string"].replace("-", " ").split()
    # Usable memory is below the nominal size, or just above it where that is in GB of a thousand.
    assert size * 1000 * 0.95 < memory(entry) < size * 1024 * 1.01


@pytest.mark.parametrize("entry", CLASSES, ids=NAMES)
def test_a_class_is_named_after_its_machine(entry: dict[str, Any]) -> None:
    machine = block(entry)["machineType"]
    assert entry["metadata"]["name"] == f"gke-{machine}"
    assert f"GKE {machine}, " in entry["spec"]["description"]
    assert set(devices(entry)) == {"gpu"}


@pytest.mark.parametrize("entry", CLASSES, ids=NAMES)
def test_a_pool_of_a_class_can_be_planned(entry: dict[str, Any]) -> None:
    cluster = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": "gke"},
        "spec": {
            "cluster": {"source": "GKE", "gke": {"region": "us-central1"}},
            "nodePools": [{"name": "gpu", "className": entry["metadata"]["name"], "zones": ["us-central1-a"]}],
        },
    }
    found = clusters([], [cluster, entry])["gke"]
    assert found["problems"] == []
    pool = next(each for each in plan(found["object"], "my-project")["resources"] if each["key"] == "pool-gpu")
    config = pool["body"]["config"]
    assert (config["machineType"], config["diskSizeGb"]) == (block(entry)["machineType"], 200)
    assert config["accelerators"][0]["acceleratorCount"] == str(MACHINES[config["machineType"]][1])


@pytest.mark.parametrize("entry", CLASSES, ids=NAMES)
def test_a_model_of_gpu_is_the_same_on_eks(entry: dict[str, Any]) -> None:
    gpu = devices(entry)["gpu"]
    alike = [
        other
        for other in (devices(each)["gpu"] for each in classes("eks"))
        if other["attributes"]["productName"] == gpu["attributes"]["productName"]
    ]
    assert alike
    assert all((each["attributes"], each["capacity"]) == (gpu["attributes"], gpu["capacity"]) for each in alike)


BIG = {"NVIDIA H200", "NVIDIA B200"}
EIGHTY = {"NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", *BIG}
FORTY = {"NVIDIA A100-SXM4-40GB", *EIGHTY}


@pytest.mark.parametrize(
    ("least", "models"),
    [("20Gi", {"NVIDIA L4", *FORTY}), ("35Gi", FORTY), ("60Gi", EIGHTY), ("120Gi", BIG), ("200Gi", set())],
)
def test_memory_distinguishes_the_models(least: str, models: set[str]) -> None:
    expression = f'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("{least}")) >= 0'
    assert matching(CLASSES, expression) == models


@pytest.mark.parametrize("expression", EXAMPLES)
def test_every_example_finds_a_class(expression: str) -> None:
    assert matching(CLASSES, expression)
