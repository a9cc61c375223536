# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Warnings about node pools that need what an account may not have: one for each pool, none for usual ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import quotas
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Source, load
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem

GPUS = {"name": "gpu", "claim": "DRA", "driver": "gpu.nvidia.com", "deviceClassName": "gpu.nvidia.com", "count": 8}
SOURCES: dict[str, tuple[str, dict[str, str], str, str]] = {
    "EKS": ("instanceType", {"region": "us-west-2"}, "us-west-2a", "EKSCluster"),
    "GKE": ("machineType", {"region": "us-central1"}, "us-central1-a", "GKECluster"),
}
BLOCK = {"capacityBlock": {"capacityReservationId": "cr-0123456789abcdef0"}}
RESERVED = {"reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION", "values": ["h200-block"]}}
NETWORKS = {"additionalNodeNetworkConfigs": [{"network": "rail", "subnetwork": "rail-0"}]}


def problems(*documents: dict[str, Any]) -> list[Problem]:
    loaded = load(Source(f"{index}.yaml", json.dumps(each).encode()) for index, each in enumerate(documents))
    assert not loaded.errors
    return list(loaded.warnings)


def documents(source: str, machine: str, pool: dict[str, Any]) -> list[dict[str, Any]]:
    """An InferenceCluster with one pool of a class of this machine."""
    field, block, zone, _kind = SOURCES[source]
    provisioning = {field: machine, "accelerator": {"type": "nvidia-h200", "count": 8}}
    return [
        {
            "apiVersion": "modelplane.ai/v1alpha1",
            "kind": "InferenceClass",
            "metadata": {"name": "big"},
            "spec": {"provisioning": {"provider": source, source.lower(): provisioning}, "devices": [GPUS]},
        },
        {
            "apiVersion": "modelplane.ai/v1alpha1",
            "kind": "InferenceCluster",
            "metadata": {"name": "west"},
            "spec": {
                "cluster": {"source": source, source.lower(): block},
                "nodePools": [{"name": "gpu", "className": "big", "zones": [zone], **pool}],
            },
        },
    ]


def direct(source: str, machine: str, pool: dict[str, Any], labels: dict[str, str] | None = None) -> dict[str, Any]:
    """A cluster of the kind of its cloud with one GPU pool."""
    field, block, zone, kind = SOURCES[source]
    gpu = {"name": "gpu", "role": "GPU", field: machine, "gpu": {"acceleratorType": "nvidia-h200"}, "zones": [zone]}
    return {
        "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
        "kind": kind,
        "metadata": {"name": "west", "namespace": "modelplane-system", "labels": labels or {}},
        "spec": {**block, "nodePools": [{**gpu, **pool}]},
    }


CASES = [
    ("EKS", "p5.48xlarge", BLOCK, "capacityBlock", ["Capacity Block cr-0123456789abcdef0", "in us-west-2a"]),
    ("EKS", "g6.12xlarge", {"eks": {"capacityType": "SPOT"}}, "eks.capacityType", ["All G and VT Spot Instance"]),
    ("EKS", "p5en.48xlarge", {"eks": {"capacityType": "SPOT"}}, "eks.capacityType", ["All P5 Spot Instance"]),
    ("EKS", "p6-b200.48xlarge", {"eks": {"capacityType": "SPOT"}}, "eks.capacityType", ["All Spot Instance Requests"]),
    ("EKS", "p4d.24xlarge", {}, "className", ["Running On-Demand P instances", "or buy a Capacity Block"]),
    ("GKE", "a3-ultragpu-8g", {"gke": RESERVED}, "gke.reservationAffinity", ["reservation h200-block", "named use"]),
    ("GKE", "g2-standard-48", {"gke": {"spot": True}}, "gke.spot", ["Spot machines", "preemptible GPUs"]),
    ("GKE", "a3-highgpu-8g", {"gke": {"flexStart": True}}, "gke.flexStart", ["flex-start machines", "preemptible"]),
    ("GKE", "a4-highgpu-8g", {}, "className", ["not sold on demand", "Set reservationAffinity, flexStart or spot"]),
    ("GKE", "a3-highgpu-1g", {}, "className", ["not sold on demand"]),
    ("GKE", "a3-megagpu-8g", {}, "className", ["quota is 0 in new projects"]),
    ("GKE", "g2-standard-48", {"gke": NETWORKS}, "gke.additionalNodeNetworkConfigs", ["networks rail/rail-0"]),
    (
        "GKE",
        "g2-standard-48",
        {"gke": {"acceleratorNetworkProfile": "auto"}},
        "gke.acceleratorNetworkProfile",
        ["quota NETWORKS"],
    ),
]


@pytest.mark.parametrize(("source", "machine", "pool", "field", "says"), CASES)
def test_a_need_is_one_warning_at_its_field(
    source: str, machine: str, pool: dict[str, Any], field: str, says: list[str]
) -> None:
    [problem] = problems(*documents(source, machine, pool))
    assert problem.path == f"spec.nodePools[0].{field}"
    assert "InferenceCluster west" in str(problem)
    assert "pool gpu (class big) needs what an account may not have: " in problem.message
    assert problem.hint
    assert all(text in str(problem) for text in says), str(problem)


@pytest.mark.parametrize(("source", "machine", "pool", "field", "says"), CASES)
def test_a_cluster_of_the_kind_of_its_cloud_has_the_same_needs(
    source: str, machine: str, pool: dict[str, Any], field: str, says: list[str]
) -> None:
    flat = {**pool.get("eks", {}), **pool.get("gke", {})} or pool
    [problem] = problems(direct(source, machine, flat))
    own = field.rpartition(".")[2].replace("className", SOURCES[source][0])
    assert problem.path == f"spec.nodePools[0].{own}"
    assert all(text in str(problem) for text in says), str(problem)


def test_several_needs_of_a_pool_are_one_warning() -> None:
    pool = {"gke": {**RESERVED, "acceleratorNetworkProfile": "auto"}}
    [problem] = problems(*documents("GKE", "a3-ultragpu-8g", pool))
    assert problem.path == "spec.nodePools[0]"
    assert "h200-block (gke.reservationAffinity); networks" in problem.message
    assert "(gke.acceleratorNetworkProfile)" in problem.message


@pytest.mark.parametrize(
    ("source", "machine", "pool"),
    [
        ("EKS", "g6.12xlarge", {}),
        ("EKS", "g6e.48xlarge", {"eks": {"capacityType": "ON_DEMAND"}}),
        ("GKE", "g2-standard-48", {}),
        ("GKE", "a2-ultragpu-8g", {}),
        ("GKE", "g2-standard-48", {"gke": {"reservationAffinity": {"consumeReservationType": "ANY_RESERVATION"}}}),
        ("GKE", "g2-standard-48", {"gke": {"gvnic": True, "placementPolicy": {"type": "COMPACT"}}}),
    ],
)
def test_nothing_is_said_of_usual_pools(source: str, machine: str, pool: dict[str, Any]) -> None:
    assert problems(*documents(source, machine, pool)) == []


def test_what_an_inference_cluster_became_is_not_reported_again() -> None:
    labels = {"app.kubernetes.io/managed-by": "modelplane.fleet", "modelplane.ai/cluster": "west"}
    assert problems(direct("EKS", "p5.48xlarge", BLOCK, labels)) == []


@pytest.mark.parametrize("role", ["System"])
def test_spot_machines_of_controllers_are_usual(role: str) -> None:
    cluster = direct("EKS", "g6.12xlarge", {})
    system = {"name": "controllers", "role": role, "instanceType": "m6i.xlarge", "capacityType": "SPOT"}
    cluster["spec"]["nodePools"].append(system)
    assert problems(cluster) == []


@pytest.mark.parametrize(
    ("machine", "capacity", "code"),
    [
        ("m6i.xlarge", "ON_DEMAND", "L-1216C47A"),
        ("m6i.xlarge", "SPOT", "L-34B43A08"),
        ("g6e.12xlarge", "ON_DEMAND", "L-DB2E81BA"),
        ("g6e.12xlarge", "SPOT", "L-3819A6DF"),
        ("gr6.4xlarge", "SPOT", "L-3819A6DF"),
        ("p4de.24xlarge", "SPOT", "L-7212CCBC"),
        ("p5en.48xlarge", "SPOT", "L-C4BD4855"),
        ("p5en.48xlarge", "ON_DEMAND", "L-417A185B"),
        ("p6-b200.48xlarge", "ON_DEMAND", "L-417A185B"),
        ("p6-b200.48xlarge", "SPOT", ""),
        ("p5.48xlarge", "CAPACITY_BLOCK", ""),
        ("inf2.xlarge", "ON_DEMAND", ""),
        ("48xlarge", "SPOT", ""),
    ],
)
def test_machines_count_against_the_quota_of_their_family(machine: str, capacity: str, code: str) -> None:
    assert quotas.code(machine, capacity) == code
    assert bool(quotas.name(machine, capacity)) == bool(code)


def test_a_capacity_block_on_a_cloud_without_them() -> None:
    (found,) = [each for each in problems(*documents("GKE", "g2-standard-8", BLOCK)) if "does nothing" in each.message]
    assert (found.path, found.message) == ("spec.nodePools[0].capacityBlock", "does nothing on GKE")
