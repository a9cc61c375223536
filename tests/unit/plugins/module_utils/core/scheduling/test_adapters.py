# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what the scheduler reads of fabrics in manifests and ModelReplicas, and the example of the documentation."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling import adapters
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Fabric,
    PlacedMember,
)
from ansible_collections.modelplane.fleet.tests import written as documents

GPU = {"name": "gpu", "driver": "gpu.nvidia.com", "deviceClassName": "gpu.nvidia.com", "count": 8}


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        ({}, None),
        ({"fabric": {"type": "None"}}, None),
        ({"fabric": {}}, None),
        ({"fabric": {"type": "EFA"}}, ("EFA", "")),
        ({"fabric": {"type": "NVLink", "name": "rack-7"}}, ("NVLink", "rack-7")),
        ({"fabric": {"type": "InfiniBand", "infiniband": {"fabric": "ib-1"}}}, ("InfiniBand", "ib-1")),
    ],
    ids=["absent", "None", "empty", "no name", "name", "infiniband"],
)
def test_type_and_name_of_a_fabric(pool: dict[str, Any], expected: tuple[str, str] | None) -> None:
    assert adapters.fabric_of(pool) == expected
    assert (adapters.fabric_device(pool) is None) is (expected is None)


@pytest.mark.parametrize(
    ("taken", "name"),
    [((), "fabric"), (("gpu",), "fabric"), (("fabric",), "fabric-2"), (("fabric-2", "fabric"), "fabric-3")],
)
def test_the_device_of_a_fabric_has_a_free_name(taken: tuple[str, ...], name: str) -> None:
    assert adapters.fabric_device({"fabric": {"type": "EFA", "name": "rail"}}, taken) == {
        "name": name,
        "claim": "Synthetic",
        "driver": "fabric.modelplane.ai",
        "count": 64,
        "attributes": {"type": {"string": "EFA"}, "name": {"string": "rail"}},
    }


def parsed(kind: str, name: str, spec: dict[str, Any], status: dict[str, Any] | None = None) -> Any:
    document = {"apiVersion": "modelplane.ai/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    return api.parse({**document, "status": status} if status else document)


def cluster(pools: list[dict[str, Any]], status: dict[str, Any] | None = None) -> Cluster:
    device_class = parsed(
        "InferenceClass",
        "h200",
        {
            "provisioning": {
                "provider": "EKS",
                "eks": {"instanceType": "p5", "accelerator": {"type": "h200", "count": 8}},
            },
            "devices": [GPU],
        },
    )
    spec = {"cluster": {"source": "EKS", "eks": {"region": "us-east-1"}}, "nodePools": pools}
    found = parsed("InferenceCluster", "east", spec, status)
    return adapters.cluster(found, {"h200": device_class}, adapters.DeviceCatalogue())


def test_a_declared_pool_publishes_its_fabric() -> None:
    pool = {"className": "h200", "nodeCount": 2, "zones": ["us-east-1a"]}
    bare, plain, unnamed, named = cluster(
        [
            {"name": "bare", **pool},
            {"name": "plain", **pool, "fabric": {"type": "None"}},
            {"name": "unnamed", **pool, "fabric": {"type": "EFA"}},
            {"name": "named", **pool, "fabric": {"type": "EFA", "name": "rail"}},
        ]
    ).pools
    assert [device.name for device in bare.devices] == [device.name for device in plain.devices] == ["gpu"]
    assert [dict(device.attributes) for device in unnamed.devices[1:]] == [{"fabric.modelplane.ai/type": "EFA"}]
    assert [device.name for device in named.devices] == ["gpu", "fabric"]
    assert (bare.fabrics, plain.fabrics, unnamed.fabrics, named.fabrics) == ((), (), (), (Fabric("EFA", "rail"),))


def test_a_published_pool_is_used_as_it_stands() -> None:
    wire = adapters.fabric_device({"fabric": {"type": "EFA", "name": "rail"}})
    gpu = {**GPU, "claim": "DRA"}
    declared = [{"name": "declared", "className": "h200", "zones": ["a"], "fabric": {"type": "EFA", "name": "rail"}}]
    status = {
        "gpuPools": [
            {"name": "declared", "nodes": 2, "devices": [gpu]},
            {"name": "field", "nodes": 2, "devices": [gpu], "fabric": {"type": "EFA", "name": "rail"}},
            {"name": "device", "nodes": 2, "devices": [gpu, wire]},
            {"name": "both", "nodes": 2, "devices": [gpu, wire], "fabric": {"type": "EFA", "name": "rail"}},
        ]
    }
    pools = cluster(declared, status).pools
    rail = (Fabric("EFA", "rail"),)
    assert [(pool.name, pool.fabrics) for pool in pools] == [
        ("declared", ()),
        ("field", rail),
        ("device", rail),
        ("both", rail),
    ]
    assert [len(pool.devices) for pool in pools] == [1, 1, 2, 2]


def test_pools_with_equal_devices_share_them() -> None:
    """A result for one is then known of all, however many clusters there are."""
    catalogue = adapters.DeviceCatalogue()
    wire = [GPU, adapters.fabric_device({"fabric": {"type": "EFA", "name": "rail"}})]
    devices = catalogue.devices([dict(device) for device in wire if device])
    assert catalogue.devices([dict(device) for device in wire if device]) is devices
    assert catalogue.fabrics(devices) == (Fabric("EFA", "rail"),)


REQUEST = {"name": "gpu", "deviceClassName": "gpu.nvidia.com"}


@pytest.mark.parametrize(
    ("written", "pool", "shares"),
    [
        ({"nodePoolName": "x"}, "x", ()),
        (
            {"nodePoolName": "x", "nodePools": [{"name": "x", "pods": 1}, {"name": "y", "pods": 3}]},
            "x",
            (("x", 1), ("y", 3)),
        ),
    ],
    ids=["one pool", "two pools"],
)
def test_the_pools_of_a_member(written: dict[str, Any], pool: str, shares: tuple[tuple[str, int], ...]) -> None:
    template = {"spec": {"containers": [{"name": "engine", "image": "i"}]}}
    leads = {"role": "Leader", "nodePoolName": "x", "deviceRequests": [REQUEST], "template": template}
    works = {"role": "Worker", "worker": {"nodes": 4}, "template": template, **written}
    document = {
        "metadata": {"name": "r", "namespace": "n"},
        "spec": {"clusterName": "east", "engines": [{"name": "main", "members": [leads, works]}]},
    }
    (engine,) = adapters.replica(documents.parsed(document, api.ModelReplica)).engines
    assert engine.members == (PlacedMember("x", (REQUEST,), "Leader"), PlacedMember(pool, (), "Worker", 4, shares))
