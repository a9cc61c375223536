# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Nodes whose free devices new pods cannot use."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import UnavailableNode
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.devices import PublishedDevices
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.unavailable_nodes import (
    allocated,
    stranded_replicas,
    unavailable_nodes,
)
from ansible_collections.modelplane.fleet.tests.written import promise

DRIVER = "gpu.nvidia.com"
L4 = {"name": "gpu", "driver": DRIVER, "deviceClassName": DRIVER, "count": 2}
PROMISE = promise("gpu", {"metadata": {"name": "l4"}, "spec": {"devices": [L4]}})
FATAL = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}


def node(*taints: tuple[str, str], ready: str = "True", cordoned: bool = False, name: str = "n1") -> dict[str, Any]:
    spec: dict[str, Any] = {"taints": [{"key": key, "effect": effect} for key, effect in taints]}
    conditions = [{"type": "Ready", "status": ready}]
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {**spec, "unschedulable": True} if cordoned else spec,
        "status": {"conditions": conditions},
    }


def resource_slice(*devices: dict[str, Any], count: int = 1, generation: int = 1, **nodes: Any) -> dict[str, Any]:
    pool = {"name": "n1", "generation": generation, "resourceSliceCount": count}
    selection = nodes or {"nodeName": "n1"}
    return {"spec": {"driver": DRIVER, **selection, "pool": pool, "devices": list(devices)}}


def gpu(index: int, *taints: dict[str, str]) -> dict[str, Any]:
    return {"name": f"gpu-{index}", **({"taints": list(taints)} if taints else {})}


def rule(effect: str = "NoSchedule", **selector: str) -> dict[str, Any]:
    return {"spec": {"deviceSelector": selector, "taint": {"key": "sick", "effect": effect}}}


def in_use(*claims: dict[str, Any], on: str = "n1") -> dict[tuple[str, str, str], str]:
    return dict.fromkeys(allocated(claims, {("mp-ml", "pod")}), on)


def claim(*devices: str) -> dict[str, Any]:
    results = [{"driver": DRIVER, "pool": "n1", "device": name} for name in devices]
    return {
        "metadata": {"namespace": "mp-ml"},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": [{"name": "pod"}]},
    }


BOTH = resource_slice(gpu(0), gpu(1))
CASES: dict[str, tuple[dict[str, Any], list[Any], list[Any], list[Any], tuple[str, dict[str, int]] | None]] = {
    "available": (node(), [BOTH], [], [], None),
    "tolerated taint": (node(("nvidia.com/gpu", "NoSchedule")), [BOTH], [], [], None),
    "taint that prefers": (node(("batch", "PreferNoSchedule")), [BOTH], [], [], None),
    "memory pressure": (
        node(("node.kubernetes.io/memory-pressure", "NoSchedule")),
        [BOTH],
        [],
        [],
        ("taint node.kubernetes.io/memory-pressure:NoSchedule", {"gpu": 2}),
    ),
    "cordoned": (node(cordoned=True), [BOTH], [], [], ("cordoned", {"gpu": 2})),
    "not Ready": (node(ready="Unknown"), [BOTH], [], [], ("not Ready", {"gpu": 2})),
    "taint": (node(("batch", "NoSchedule")), [BOTH], [], [], ("taint batch:NoSchedule", {"gpu": 2})),
    "NVIDIA taint of another effect": (
        node(("nvidia.com/gpu", "NoExecute")),
        [BOTH],
        [],
        [],
        ("taint nvidia.com/gpu:NoExecute", {"gpu": 2}),
    ),
    "disk pressure": (
        node(("node.kubernetes.io/disk-pressure", "NoSchedule")),
        [BOTH],
        [],
        [],
        ("taint node.kubernetes.io/disk-pressure:NoSchedule", {"gpu": 2}),
    ),
    "cordoned with one device in use": (
        node(cordoned=True),
        [BOTH],
        [],
        [claim("gpu-1")],
        ("cordoned", {"gpu": 1}),
    ),
    "cordoned with all devices in use": (node(cordoned=True), [BOTH], [], [claim("gpu-0", "gpu-1")], ("cordoned", {})),
    "no slice": (node(), [], [], [], (f"no devices of driver {DRIVER}", {"gpu": 2})),
    "one device less": (
        node(),
        [resource_slice(gpu(0))],
        [],
        [],
        (f"driver {DRIVER} publishes fewer devices than the InferenceClass", {"gpu": 1}),
    ),
    "incomplete slices": (
        node(),
        [resource_slice(gpu(0), gpu(1), count=2)],
        [],
        [],
        (f"1 of 2 ResourceSlices of its pool n1 of driver {DRIVER}", {"gpu": 2}),
    ),
    "device in two slices": (
        node(),
        [resource_slice(gpu(0), count=2), resource_slice(gpu(0), count=2)],
        [],
        [],
        (f"2 devices with the name gpu-0 in its pool n1 of driver {DRIVER}", {"gpu": 2}),
    ),
    "device in two slices, in use": (
        node(),
        [resource_slice(gpu(0), count=2), resource_slice(gpu(0), count=2)],
        [],
        [claim("gpu-0")],
        (f"2 devices with the name gpu-0 in its pool n1 of driver {DRIVER}", {"gpu": 1}),
    ),
    "device in two generations": (
        node(),
        [resource_slice(gpu(0), gpu(1)), resource_slice(gpu(0), generation=2)],
        [],
        [],
        (f"driver {DRIVER} publishes fewer devices than the InferenceClass", {"gpu": 1}),
    ),
    "more slices than the pool has": (
        node(),
        [resource_slice(gpu(0)), resource_slice(gpu(1))],
        [],
        [],
        (f"2 of 1 ResourceSlices of its pool n1 of driver {DRIVER}", {"gpu": 2}),
    ),
    "incomplete slices of all nodes": (
        node(),
        [resource_slice(gpu(0), gpu(1), count=2, allNodes=True)],
        [],
        [],
        (f"1 of 2 ResourceSlices of its pool n1 of driver {DRIVER}", {"gpu": 2}),
    ),
    "incomplete slices with nodes of devices": (
        node(),
        [
            resource_slice(
                *({**gpu(index), "nodeName": "n1"} for index in range(2)), count=2, perDeviceNodeSelection=True
            )
        ],
        [],
        [],
        (f"1 of 2 ResourceSlices of its pool n1 of driver {DRIVER}", {"gpu": 2}),
    ),
    "another incomplete pool": (
        node(),
        [BOTH, {"spec": {**resource_slice(gpu(2), count=2)["spec"], "pool": {"name": "x", "resourceSliceCount": 2}}}],
        [],
        [],
        None,
    ),
    "tainted device": (
        node(),
        [resource_slice(gpu(0), gpu(1, FATAL))],
        [],
        [],
        ("device gpu-1 has the taint gpu.nvidia.com/xid=79:NoSchedule", {"gpu": 1}),
    ),
    "tainted device in use": (node(), [resource_slice(gpu(0), gpu(1, FATAL))], [], [claim("gpu-1")], None),
    "informative taint": (node(), [resource_slice(gpu(0), gpu(1, {**FATAL, "effect": "None"}))], [], [], None),
    "rule for a device": (
        node(),
        [BOTH],
        [rule(driver=DRIVER, pool="n1", device="gpu-0")],
        [],
        ("device gpu-0 has the taint sick:NoSchedule", {"gpu": 1}),
    ),
    "rule for a driver": (
        node(),
        [BOTH],
        [rule(driver=DRIVER, effect="NoExecute")],
        [],
        ("device gpu-0 has the taint sick:NoExecute", {"gpu": 2}),
    ),
    "rule for another node": (node(), [BOTH], [rule(pool="n2")], [], None),
    "rule with an empty selector": (
        node(),
        [BOTH],
        [rule()],
        [],
        ("device gpu-0 has the taint sick:NoSchedule", {"gpu": 2}),
    ),
    "rule without a selector": (node(), [BOTH], [{"spec": {"taint": rule()["spec"]["taint"]}}], [], None),
    "other attributes than promised": (
        node(),
        [resource_slice({**gpu(0), "attributes": {"driverVersion": {"version": "580.2.0"}}}, gpu(1))],
        [],
        [],
        None,
    ),
    "rule without an effect on pods": (node(), [BOTH], [rule(effect="None", driver=DRIVER)], [], None),
}
CLOSED = {name for name in CASES if name.startswith(("cordoned", "not Ready", "taint", "NVIDIA", "disk", "memory"))} - {
    "tainted device"
}


@pytest.mark.parametrize("name", CASES)
def test_the_free_devices_that_new_pods_cannot_use(name: str) -> None:
    value, slices, rules, claims, expected = CASES[name]
    found = unavailable_nodes([PROMISE], {"gpu": [value]}, PublishedDevices(slices, rules), in_use(*claims))
    nodes = [(node.name, node.reason, node.devices) for node in found.get("gpu", ())]
    assert nodes == ([("n1", *expected)] if expected else [])
    assert [node.closed for node in found.get("gpu", ())] == [name in CLOSED for _ in nodes]


def test_nothing_is_known_of_devices_that_were_not_read() -> None:
    cordon = node(cordoned=True)
    closed = {"gpu": (UnavailableNode("n1", "cordoned", closed=True),)}
    assert unavailable_nodes([PROMISE], {"gpu": [cordon]}, None, {}) == closed
    assert unavailable_nodes([PROMISE], {"gpu": [cordon]}, PublishedDevices([BOTH]), None) == closed
    assert unavailable_nodes([PROMISE], {"gpu": [node()]}, None, {}) == {}


def pod(replica: str, node_name: str, name: str = "", phase: str = "Running", **spec: Any) -> dict[str, Any]:
    labels = {"modelplane.ai/replica": replica}
    claims = {"resourceClaims": [{"name": "devices"}]}
    return {
        "metadata": {"namespace": "mp-ml", "name": name or f"{replica}-{node_name}", "labels": labels},
        "spec": {**claims, "nodeName": node_name, **spec},
        "status": {"phase": phase},
    }


CORDONED = "node n1 (cordoned) takes no new pods"
DELETED = pod("deleted", "n1")
DELETED["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def test_replicas_with_a_pod_that_could_not_start_again_are_stranded() -> None:
    nodes = [UnavailableNode("n1", "cordoned", closed=True), UnavailableNode("n2", "device gpu-0 has the taint x:y")]
    pods = [
        pod("there", "n1"),
        pod("both", "n1"),
        pod("both", "n3"),
        pod("evicted", "n1", phase="Failed"),
        pod("evicted", "n3"),
        pod("evicted-to-n1", "n1"),
        pod("evicted-to-n1", "n3", phase="Failed"),
        DELETED,
        pod("waits", ""),
        pod("sick", "n2"),
        pod("healthy", "n2"),
        pod("picker", "n1", resourceClaims=[]),
    ]
    devices = {
        (DRIVER, "n2", "gpu-0"): ("mp-ml", "sick-n2"),
        (DRIVER, "n2", "gpu-1"): ("mp-ml", "healthy-n2"),
    }
    assert stranded_replicas(nodes, pods, devices, {(DRIVER, "n2", "gpu-0"): "x:y"}) == {
        ("mp-ml", "there"): CORDONED,
        ("mp-ml", "both"): CORDONED,
        ("mp-ml", "evicted-to-n1"): CORDONED,
        ("mp-ml", "sick"): "device gpu-0 of pool n2 has the taint x:y",
    }


N2 = {"name": "n2", "generation": 1, "resourceSliceCount": 1}


def test_devices_of_stranded_replicas_are_unavailable_on_all_their_nodes() -> None:
    nodes = [node(cordoned=True), {**node(), "metadata": {**node()["metadata"], "name": "n2"}}]
    other = {"spec": {**BOTH["spec"], "nodeName": "n2", "pool": N2}}
    published = PublishedDevices([BOTH, other])
    stranded = {(DRIVER, "n1", "gpu-0"): "n1", (DRIVER, "n2", "gpu-0"): "n2"}
    found = unavailable_nodes([PROMISE], {"gpu": nodes}, published, {}, stranded)["gpu"]
    assert [(each.name, each.closed, each.devices) for each in found] == [
        ("n1", True, {"gpu": 2}),
        ("n2", False, {"gpu": 1}),
    ]
    assert found[1].reason == "a replica that could not start again uses its devices"


def test_devices_of_two_kinds_count_apart() -> None:
    kinds = [{**L4, "name": name, "count": 1, "attributes": {"productName": {"string": name}}} for name in ("l4", "t4")]
    two_kinds = promise("gpu", {"metadata": {"name": "mixed"}, "spec": {"devices": kinds}})
    devices = [
        {**gpu(0, FATAL), "attributes": kinds[0]["attributes"]},
        {**gpu(1), "attributes": kinds[1]["attributes"]},
    ]
    (found,) = unavailable_nodes([two_kinds], {"gpu": [node()]}, PublishedDevices([resource_slice(*devices)]), {})[
        "gpu"
    ]
    assert found.devices == {"l4": 1}


def on(*names: str) -> dict[str, Any]:
    expressions = [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(names)}]
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}


FOUR = [gpu(index) for index in range(4)]
NONE_LEFT = f"driver {DRIVER} publishes fewer devices than the InferenceClass"
SHARED: dict[str, tuple[list[dict[str, Any]], dict[tuple[str, str, str], str], dict[str, int]]] = {
    "of all nodes": ([resource_slice(*FOUR, allNodes=True)], {}, {"n3": 2}),
    "of all nodes, by device": (
        [resource_slice(*({**device, "allNodes": True} for device in FOUR), perDeviceNodeSelection=True)],
        {},
        {"n3": 2},
    ),
    "of selected nodes": ([resource_slice(*FOUR, **on("n2", "n3"))], {}, {"n1": 2}),
    "of selected nodes, by device": (
        [resource_slice(*({**device, **on("n3")} for device in FOUR), perDeviceNodeSelection=True)],
        {},
        {"n1": 2, "n2": 2},
    ),
    "of nodes by name, by device": (
        [resource_slice(*({**device, "nodeName": "n2"} for device in FOUR), perDeviceNodeSelection=True)],
        {},
        {"n1": 2, "n3": 2},
    ),
    "of fewer nodes first": (
        [
            resource_slice(
                *({**device, "allNodes": True} for device in FOUR[:2]),
                *({**device, **on("n1")} for device in FOUR[2:]),
                perDeviceNodeSelection=True,
            )
        ],
        {},
        {"n3": 2},
    ),
    "in use": ([resource_slice(*FOUR, allNodes=True)], in_use(claim("gpu-0", "gpu-1"), on="n3"), {"n2": 2}),
    "tainted": ([resource_slice(*FOUR[:3], gpu(3, FATAL), allNodes=True)], {}, {"n2": 1, "n3": 2}),
    "and devices of one node": (
        [resource_slice(*FOUR[:3], allNodes=True), {"spec": {**BOTH["spec"], "pool": {"name": "local"}}}],
        {},
        {"n3": 1},
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_a_device_that_several_nodes_can_use_counts_on_one_node(name: str) -> None:
    slices, claimed, expected = SHARED[name]
    nodes = [node(name=name) for name in ("n1", "n2", "n3")]
    found = unavailable_nodes([PROMISE], {"gpu": nodes}, PublishedDevices(slices), claimed)
    assert {node.name: node.devices["gpu"] for node in found["gpu"]} == expected


def test_shared_devices_count_on_nodes_that_take_pods() -> None:
    nodes = [node(cordoned=True), node(name="n2"), node(name="n3")]
    published = PublishedDevices([resource_slice(*FOUR, allNodes=True)])
    (cordoned,) = unavailable_nodes([PROMISE], {"gpu": nodes}, published, {})["gpu"]
    assert (cordoned.name, cordoned.devices) == ("n1", {"gpu": 2})
    held = unavailable_nodes([PROMISE], {"gpu": nodes}, published, in_use(claim("gpu-0", "gpu-1")))["gpu"]
    assert [(node.name, node.reason, node.devices) for node in held] == [
        ("n1", "cordoned", {}),
        ("n3", NONE_LEFT, {"gpu": 2}),
    ]
