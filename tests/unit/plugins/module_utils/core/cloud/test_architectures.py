# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Architectures of machines in clouds, and the images that their nodes get."""

from __future__ import annotations

from typing import Any

import botocore.session
import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import machines as eks_machines
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import plan as eks_plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import machines as gke_machines
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import plan as gke_plan
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks import clusters as eks_clusters
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke import clusters as gke_clusters
from moto.ec2.models.instance_types import INSTANCE_TYPES

LABELS = {"x86_64": "amd64", "arm64": "arm64"}


def test_every_instance_type_has_the_architecture_that_ec2_describes() -> None:
    expected = {
        name: {LABELS[each] for each in kind["ProcessorInfo"]["SupportedArchitectures"] if each in LABELS}
        for name, kind in INSTANCE_TYPES.items()
    }
    wrong = {name for name, found in expected.items() if found and eks_machines.architecture(name) not in found}
    assert (wrong, len(expected) > 1000) == (set(), True)


@pytest.mark.parametrize(
    ("machine", "role", "ami"),
    [
        ("g5g.xlarge", "GPU", "AL2023_ARM_64_NVIDIA"),
        ("p6e-gb200.36xlarge", "GPU", "AL2023_ARM_64_NVIDIA"),
        ("g6.12xlarge", "GPU", "AL2023_x86_64_NVIDIA"),
        ("g4dn.xlarge", "GPU", "AL2023_x86_64_NVIDIA"),
        ("m8g.xlarge", "System", "AL2023_ARM_64_STANDARD"),
        ("c7gn.4xlarge", "System", "AL2023_ARM_64_STANDARD"),
        ("a1.metal", "System", "AL2023_ARM_64_STANDARD"),
        ("m6i.xlarge", "System", "AL2023_x86_64_STANDARD"),
    ],
)
def test_node_groups_get_the_ami_of_their_machines(machine: str, role: str, ami: str) -> None:
    pool: dict[str, Any] = (
        eks_clusters.gpu(instanceType=machine)
        if role == "GPU"
        else {"name": "controllers", "role": role, "instanceType": machine}
    )
    others = [eks_clusters.gpu("other")] if role == "System" else []
    groups = eks_plan(eks_clusters.eks(pool, *others))["node_groups"]
    assert next(group["ami_type"] for group in groups if group["name"] == pool["name"]) == ami
    known = botocore.session.get_session().get_service_model("eks").shape_for("AMITypes").enum
    assert ami in known


@pytest.mark.parametrize(
    ("machine", "architecture"),
    [
        ("a4x-highgpu-4g", "arm64"),
        ("c4a-standard-8", "arm64"),
        ("n4a-standard-4", "arm64"),
        ("t2a-standard-2", "arm64"),
        ("a4-highgpu-8g", "amd64"),
        ("g2-standard-4", "amd64"),
        ("n4-standard-4", "amd64"),
        ("t2d-standard-4", "amd64"),
    ],
)
def test_only_arm_machines_are_created_without_gkes_taint_of_arm_nodes(machine: str, architecture: str) -> None:
    assert gke_machines.architecture(machine) == architecture
    accelerators = gke_machines.ACCELERATORS.get(machine)
    gpu = {"acceleratorType": accelerators[0], "acceleratorCount": accelerators[1]} if accelerators else {}
    own = gke_clusters.gpu("own", machineType=machine, gpu=gpu) if gpu else gke_clusters.system(machineType=machine)
    pool, others = own, [] if gpu else [gke_clusters.gpu()]
    resources = gke_plan(gke_clusters.gke(pool, *others), gke_clusters.PROJECT)["resources"]
    (entry,) = [each for each in resources if each["kind"] == "node-pool" and each["name"] == pool["name"]]
    taint = entry["initial"]["config"].get("taintConfig")
    assert taint == ({"architectureTaintBehavior": "NONE"} if architecture == "arm64" else None)


@pytest.mark.parametrize("version", ["DEFAULT", "LATEST", "INSTALLATION_DISABLED", None])
def test_the_driver_of_a_pool_on_gke_is_the_chosen_one(version: str | None) -> None:
    pool = gke_clusters.gpu(**({"gpuDriverVersion": version} if version else {}))
    resources = gke_plan(gke_clusters.gke(pool), gke_clusters.PROJECT)["resources"]
    (entry,) = [each for each in resources if each["kind"] == "node-pool" and each["name"] == pool["name"]]
    (accelerator,) = entry["body"]["config"]["accelerators"]
    assert accelerator["gpuDriverInstallationConfig"] == {"gpuDriverVersion": version or "DEFAULT"}
