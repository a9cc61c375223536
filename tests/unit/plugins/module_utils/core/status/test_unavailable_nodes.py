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


def node(*taints: tuple[str, str], ready: str = "True", cordoned: bool = False) -> dict[str, Any]:
    spec: dict[str, Any] = {"taints": [{"key": key, "effect": effect} for key, effect in taints]}
    conditions = [{"type": "Ready", "status": ready}]
    return {
        "metadata": {"name": "n1"},
        "spec": {**spec, "unschedulable": True} if cordoned else spec,
        "status": {"conditions": conditions},
    }


def resource_slice(*devices: dict[str, Any], count: int = 1) -> dict[str, Any]:
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": count}
    return {"spec": {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": list(devices)}}


def gpu(index: int, *taints: dict[str, str]) -> dict[str, Any]:
    return {"name": f"gpu-{index}", **({"taints": list(taints)} if taints else {})}


def rule(effect: str = "NoSchedule", **selector: str) -> dict[str, Any]:
    return {"spec": {"deviceSelector": selector, "taint": {"key": "sick", "effect": effect}}}


def claim(*devices: str) -> dict[str, Any]:
    results = [{"driver": DRIVER, "pool": "n1", "device": name} for name in devices]
    return {"status": {"allocation": {"devices": {"results": results}}}}


BOTH = resource_slice(gpu(0), gpu(1))
CASES: dict[str, tuple[dict[str, Any], list[Any], list[Any], list[Any], tuple[str, dict[str, int]] | None]] = {
    "available": (node(), [BOTH], [], [], None),
    "tolerated taint": (node(("nvidia.com/gpu", "NoSchedule")), [BOTH], [], [], None),
    "taint that prefers": (node(("batch", "PreferNoSchedule")), [BOTH], [], [], None),
    "memory pressure": (node(("node.kubernetes.io/memory-pressure", "NoSchedule")), [BOTH], [], [], None),
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
CLOSED = {name for name in CASES if name.startswith(("cordoned", "not Ready", "taint", "NVIDIA", "disk"))} - {
    "tainted device"
}


@pytest.mark.parametrize("name", CASES)
def test_the_free_devices_that_new_pods_cannot_use(name: str) -> None:
    value, slices, rules, claims, expected = CASES[name]
    found = unavailable_nodes([PROMISE], {"gpu": [value]}, PublishedDevices(slices, rules), allocated(claims))
    nodes = [(node.name, node.reason, node.devices) for node in found.get("gpu", ())]
    assert nodes == ([("n1", *expected)] if expected else [])
    assert [node.closed for node in found.get("gpu", ())] == [name in CLOSED for _ in nodes]


def test_nothing_is_known_of_devices_that_were_not_read() -> None:
    cordon = node(cordoned=True)
    closed = {"gpu": (UnavailableNode("n1", "cordoned", closed=True),)}
    assert unavailable_nodes([PROMISE], {"gpu": [cordon]}, None, ()) == closed
    assert unavailable_nodes([PROMISE], {"gpu": [cordon]}, PublishedDevices([BOTH]), None) == closed
    assert unavailable_nodes([PROMISE], {"gpu": [node()]}, None, ()) == {}


def pod(replica: str, node_name: str, **spec: Any) -> dict[str, Any]:
    labels = {"modelplane.ai/replica": replica}
    claims = {"resourceClaims": [{"name": "devices"}]}
    return {"metadata": {"namespace": "mp-ml", "labels": labels}, "spec": {**claims, "nodeName": node_name, **spec}}


def test_replicas_with_all_pods_on_closed_nodes_are_stranded() -> None:
    nodes = [UnavailableNode("n1", "cordoned", closed=True), UnavailableNode("n2", "device gpu-0 has the taint x:y")]
    pods = [
        pod("there", "n1"),
        pod("both", "n1"),
        pod("both", "n3"),
        pod("waits", ""),
        pod("tainted", "n2"),
        pod("picker", "n1", resourceClaims=[]),
    ]
    assert stranded_replicas(nodes, pods) == {("mp-ml", "there"): "node n1 (cordoned) takes no new pods"}


def test_devices_of_two_kinds_count_apart() -> None:
    kinds = [{**L4, "name": name, "count": 1, "attributes": {"productName": {"string": name}}} for name in ("l4", "t4")]
    two_kinds = promise("gpu", {"metadata": {"name": "mixed"}, "spec": {"devices": kinds}})
    devices = [
        {**gpu(0, FATAL), "attributes": kinds[0]["attributes"]},
        {**gpu(1), "attributes": kinds[1]["attributes"]},
    ]
    (found,) = unavailable_nodes([two_kinds], {"gpu": [node()]}, PublishedDevices([resource_slice(*devices)]), ())[
        "gpu"
    ]
    assert found.devices == {"l4": 1}
