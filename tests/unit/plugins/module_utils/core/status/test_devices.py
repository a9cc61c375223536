# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what drivers publish against what classes promise."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.devices import (
    Promise,
    PublishedDevices,
    mismatches,
)
from ansible_collections.modelplane.fleet.tests.written import promise as promise_of
from hypothesis import given
from hypothesis import strategies as st

DRIVER = "gpu.nvidia.com"
H100 = {"productName": {"string": "NVIDIA H100"}, "cudaComputeCapability": {"version": "9.0.0"}}
MEMORY = {"memory": {"value": "80Gi"}}


def kind(name: str = "gpu", count: int = 8, **more: Any) -> dict[str, Any]:
    given = {"attributes": H100, "capacity": MEMORY, "deviceClassName": DRIVER}
    return {"name": name, "driver": DRIVER, "count": count, **given, **more}


def nodes(*names: str) -> dict[str, list[dict[str, Any]]]:
    return {"gpu-a": [{"metadata": {"name": name}} for name in names]}


def promise(*devices: dict[str, Any], pool: str = "gpu-a") -> Promise:
    return promise_of(pool, {"metadata": {"name": "h100"}, "spec": {"devices": list(devices) or [kind()]}})


def gpu(index: int, product: str = "NVIDIA H100", **more: Any) -> dict[str, Any]:
    attributes = {**H100, "productName": {"string": product}, "uuid": {"string": f"GPU-{index}"}}
    return {"name": f"gpu-{index}", "attributes": attributes, "capacity": MEMORY, **more}


def gpus(count: int, **more: Any) -> list[dict[str, Any]]:
    return [gpu(index, **more) for index in range(count)]


def piece(
    devices: list[dict[str, Any]],
    node: str = "n1",
    driver: str = DRIVER,
    generation: int = 1,
    slices: int = 1,
    **spec: Any,
) -> dict[str, Any]:
    pool = {"name": node or "net", "generation": generation, "resourceSliceCount": slices}
    place = {"nodeName": node} if node else {}
    return {"kind": "ResourceSlice", "spec": {"driver": driver, "pool": pool, "devices": devices, **place, **spec}}


NIC = kind("nic", 2, driver="dra.net", attributes={"dra.net/rdma": {"bool": True}}, capacity={})
RDMA = {"name": "eth1", "attributes": {"rdma": {"bool": True}}}
PLAIN = {"name": "eth0", "attributes": {"rdma": {"bool": False}}}
LATE = piece(gpus(5), generation=2)
FULL = gpus(8)
A100 = gpus(8, product="NVIDIA A100")

NAMED_N2 = {"key": "metadata.name", "operator": "In", "values": ["n2"]}

CASES: dict[str, tuple[Promise, list[dict[str, Any]], list[str]]] = {
    "as promised": (promise(), [piece(FULL)], []),
    "more than promised": (promise(), [piece(gpus(9))], []),
    "more memory": (promise(), [piece(gpus(8, capacity={"memory": {"value": "81920Mi"}}))], []),
    "one missing": (
        promise(),
        [piece(gpus(7))],
        ["class h100 promises 8 devices of gpu.nvidia.com, the driver publishes 7"],
    ),
    "no slice": (promise(), [], ["no ResourceSlice of driver gpu.nvidia.com: is the DRA driver running there?"]),
    "slices of another node": (
        promise(),
        [piece(FULL, node="n2")],
        ["no ResourceSlice of driver gpu.nvidia.com: is the DRA driver running there?"],
    ),
    "an empty slice": (
        promise(),
        [piece([])],
        ["no ResourceSlice of driver gpu.nvidia.com: is the DRA driver running there?"],
    ),
    "another product": (
        promise(),
        [piece(A100)],
        ["class h100 promises attribute productName NVIDIA H100, the driver publishes NVIDIA A100"],
    ),
    "one of another product": (
        promise(),
        [piece([*gpus(7), gpu(7, "NVIDIA A100")])],
        ["class h100 promises attribute productName NVIDIA H100, the driver publishes NVIDIA A100 (on 1 device)"],
    ),
    "less memory": (
        promise(),
        [piece(gpus(8, capacity={"memory": {"value": "40Gi"}}))],
        ["class h100 promises capacity memory 80Gi, the driver publishes 40Gi"],
    ),
    "no such attribute": (
        promise(kind(attributes={"nvlink": {"bool": True}})),
        [piece(FULL)],
        ["class h100 promises attribute nvlink true, the driver publishes none"],
    ),
    "an attribute of another type": (
        promise(kind(attributes={"productName": {"version": "1.0.0"}})),
        [piece(FULL)],
        ["class h100 promises attribute productName 1.0.0, the driver publishes NVIDIA H100"],
    ),
    "a number is no boolean": (
        promise(kind(attributes={"ecc": {"bool": True}}, capacity={})),
        [piece([{"name": f"gpu-{index}", "attributes": {"ecc": {"int": 1}}} for index in range(8)])],
        ["class h100 promises attribute ecc true, the driver publishes 1"],
    ),
    "an attribute of a type that is not known yet": (
        promise(kind(attributes={"links": {"int": 1}}, capacity={})),
        [piece([{"name": f"gpu-{index}", "attributes": {"links": {"ints": [1, 2]}}} for index in range(8)])],
        [],
    ),
    "names with the domain written out": (
        promise(kind(attributes={f"{DRIVER}/productName": {"string": "NVIDIA H100"}})),
        [piece(FULL)],
        [],
    ),
    "tainted": (
        promise(),
        [piece([*gpus(7), gpu(7, taints=[{"key": "xid", "value": "79", "effect": "NoExecute"}])])],
        ["class h100 promises 8 devices of gpu.nvidia.com, the driver publishes 7 and 1 with taints: xid=79:NoExecute"],
    ),
    "a taint that refuses no pod": (
        promise(),
        [piece(gpus(8, taints=[{"key": "seen", "effect": "None"}]))],
        [],
    ),
    "old generations do not count": (
        promise(),
        [piece(FULL), LATE],
        ["class h100 promises 8 devices of gpu.nvidia.com, the driver publishes 5"],
    ),
    "not all slices there": (
        promise(),
        [piece(FULL, slices=3)],
        [
            "driver gpu.nvidia.com has published 1 of 3 ResourceSlices of its pool n1, so Kubernetes allocates no "
            "device of this pool"
        ],
    ),
    "one name twice": (
        promise(),
        [piece(FULL, slices=2), piece([gpu(7)], slices=2)],
        [
            "driver gpu.nvidia.com has published 2 devices with the name gpu-7 in its pool n1, so Kubernetes allocates "
            "no device of this pool"
        ],
    ),
    "spread over slices": (promise(), [piece(gpus(8)[:4], slices=2), piece(gpus(8)[4:], slices=2)], []),
    "two drivers": (
        promise(kind(), NIC),
        [piece(FULL), piece([PLAIN, RDMA], driver="dra.net")],
        ["class h100 promises attribute rdma true, the driver publishes false (on 1 device)"],
    ),
    "devices that are none of the promised": (
        promise(NIC),
        [piece([PLAIN, RDMA, {**RDMA, "name": "eth2"}], driver="dra.net")],
        [],
    ),
    "devices by node within a slice": (
        promise(),
        [piece([{**device, "nodeName": "n1"} for device in FULL], node="", perDeviceNodeSelection=True)],
        [],
    ),
    "devices of the network": (promise(), [piece(FULL, node="", allNodes=True)], []),
    "not all slices of the network": (
        promise(),
        [piece(FULL, node="", allNodes=True, slices=2)],
        [
            "driver gpu.nvidia.com has published 1 of 2 ResourceSlices of its pool net, so Kubernetes allocates no "
            "device of this pool"
        ],
    ),
    "devices of another node of the network": (
        promise(),
        [piece(FULL, node="", nodeSelector={"nodeSelectorTerms": [{"matchFields": [NAMED_N2]}]})],
        ["class h100 promises 8 devices of gpu.nvidia.com, the driver publishes 0"],
    ),
    "two kinds of one driver": (
        promise(kind("any", 1, attributes={}), kind("h100", 1)),
        [piece([gpu(0), gpu(1, "NVIDIA A100")])],
        [],
    ),
    "two kinds, one missing": (
        promise(kind("any", 1, attributes={}), kind("h100", 2)),
        [piece([gpu(0), gpu(1)])],
        ["class h100 promises 2 devices h100 of gpu.nvidia.com, the driver publishes 1"],
    ),
    "nothing but fabric": (promise({"name": "fabric", "driver": "fabric.modelplane.ai", "claim": "Synthetic"}), [], []),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_node_lacks(name: str) -> None:
    desired, slices, messages = CASES[name]
    found = mismatches([desired], nodes("n1"), PublishedDevices(slices))
    assert [mismatch.message for mismatch in found] == messages
    assert all(mismatch.nodes == ("n1",) for mismatch in found)


def test_nodes_alike_are_reported_once() -> None:
    slices = [piece(gpus(7), node=f"n{index}") for index in range(1, 6)] + [piece(gpus(6), node="n6")]
    found = mismatches(
        [promise()],
        {**nodes(*(f"n{index}" for index in range(1, 7))), "other": nodes("n9")["gpu-a"]},
        PublishedDevices(slices),
    )
    assert [str(mismatch) for mismatch in found] == [
        "pool gpu-a, node n6: class h100 promises 8 devices of gpu.nvidia.com, the driver publishes 6",
        "pool gpu-a, nodes n1, n2, n3 and 2 more: class h100 promises 8 devices of gpu.nvidia.com, "
        "the driver publishes 7",
    ]


@given(st.integers(0, 10), st.integers(0, 10), st.integers(0, 10), st.integers(1, 10), st.permutations(list(range(30))))
def test_a_promise_is_kept_when_enough_suit_it(good: int, other: int, sick: int, count: int, order: list[int]) -> None:
    devices = [
        *gpus(good),
        *gpus(other, product="NVIDIA A100"),
        *gpus(sick, taints=[{"key": "xid", "effect": "NoSchedule"}]),
    ]
    devices = [{**device, "name": f"gpu-{index}"} for index, device in enumerate(devices)]
    shuffled = [devices[index] for index in order if index < len(devices)]
    found = mismatches([promise(kind(count=count))], nodes("n1"), PublishedDevices([piece(shuffled)]))
    assert bool(found) == (good < count)
    assert found == mismatches([promise(kind(count=count))], nodes("n1"), PublishedDevices([piece(devices)]))
