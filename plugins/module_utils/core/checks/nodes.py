# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Checks of nodes: nodes match their node pools and accept pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..cloud.registry import CLOUDS
from ..compose import constants
from ..devices import LEAST_KUBERNETES
from ..status.unavailable_nodes import taints_of, tolerations_of
from ..text import are, nearest_key, some
from ..wire import Object, entries, fields, is_true, number, text
from .finding import Finding, warning
from .snapshot import NVIDIA, Desired, Snapshot, pool_of

LABEL = constants.POOL_LABEL
_CHECK = "nodes"
_GPU_LABELS = (
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    *(cloud.platform.gpu_label for cloud in CLOUDS if cloud.platform.gpu_label),
)
"""Labels of nodes with GPUs: of NVIDIA's GPU feature discovery, of Node Feature Discovery, of clouds."""


def findings(snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    """Yield problems with nodes: with the nodes of each pool, and with the nodes that remain for the stack."""
    if "Node" in snapshot.unread:
        return
    pools = {text(pool, "name"): pool for pool in entries(desired.cluster, "spec", "nodePools")}
    by_pool: dict[str, list[Object]] = {}
    for node in snapshot.nodes:
        by_pool.setdefault(pool_of(node), []).append(node)
    if desired.cluster is None:
        yield warning(
            _CHECK,
            "manifests",
            f"no InferenceCluster {desired.name} is known, so its pools were not checked",
            "Give its manifest in fleet_resources, or the control cluster that has it",
        )
    # A cluster that the fleet makes has a pool of its own for what is no replica.
    elif not desired.expected.provisioned:
        yield from _unknown_pools(by_pool, pools)
        yield from _unlabelled(by_pool.get("", ()), snapshot, desired)
    for index, (name, pool) in enumerate(pools.items()):
        path = f"spec.nodePools[{index}] ({name})"
        if text(pool, "className") not in desired.classes:
            yield Finding(
                _CHECK,
                path,
                f"there is no InferenceClass {text(pool, 'className')}",
                "Add its manifest to fleet_resources, or correct className",
            )
        yield from _numbers(path, name, pool, by_pool.get(name, []))
        yield from _state(name, by_pool.get(name, []))
        yield from _taints(name, by_pool.get(name, []), desired)
    yield from _room_for_the_stack(snapshot, desired)


def _unknown_pools(by_pool: Mapping[str, list[Object]], pools: Mapping[str, Object]) -> Iterator[Finding]:
    for name, nodes in sorted(by_pool.items()):
        if name and name not in pools:
            yield warning(
                _CHECK,
                f"Node {some(_names(nodes))}",
                f"the label {LABEL} is {name}, and the InferenceCluster has no such pool",
                nearest_key(name, pools) if pools else "Add the pool to spec.nodePools, or take the label off",
            )


def _unlabelled(nodes: Iterable[Object], snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    publishing = {text(value, "spec", "nodeName") for value in snapshot.slices}
    device_nodes = [node for node in nodes if _has_devices(node) or text(node, "metadata", "name") in publishing]
    if device_nodes and desired.expected.drivers:
        yield warning(
            _CHECK,
            f"Node {some(_names(device_nodes))}",
            f"devices are there, and no label {LABEL}: no replica is placed there",
            f"If they are of a pool: kubectl label node NAME {LABEL}=POOL",
        )


def _has_devices(node: Object) -> bool:
    labels = fields(node, "metadata", "labels")
    return any(label in labels for label in _GPU_LABELS) or plugin_devices(node) > 0


def plugin_devices(node: Object) -> int:
    """The GPUs that a device plugin offers on a node."""
    count = text(node, "status", "allocatable", "nvidia.com/gpu")
    return int(count) if count.isdecimal() else 0


def _numbers(path: str, name: str, pool: Object, nodes: list[Object]) -> Iterator[Finding]:
    start = number(pool, "nodeCount", default=1)
    minimum = number(pool, "minNodeCount", default=start)
    maximum = number(pool, "maxNodeCount", default=max(start, minimum))
    field = "maxNodeCount" if "maxNodeCount" in pool else "nodeCount"
    label = f"kubectl label node NAME {LABEL}={name}"
    if not nodes and minimum:
        yield Finding(
            _CHECK,
            path,
            f"no node has the label {LABEL}={name}, {minimum} or more are desired",
            f"Label the nodes of the pool ({label}), or correct the pool",
        )
    elif len(nodes) < maximum and field == "nodeCount":
        yield warning(
            _CHECK,
            path,
            f"{field} is {maximum}, and {are(len(nodes), 'node')} there with the label {LABEL}={name}: replicas use "
            "only these nodes",
            f"Add nodes, label them ({label}), or set nodeCount to {len(nodes)}",
        )
    elif len(nodes) < maximum:
        yield warning(
            _CHECK,
            path,
            f"{field} is {maximum}, and {are(len(nodes), 'node')} there: replicas might also be placed on missing "
            "nodes, and wait until your autoscaler adds nodes with the label",
            f"Make sure that your autoscaler adds nodes, or set {field} to {max(len(nodes), 1)}",
        )


def _state(name: str, nodes: list[Object]) -> Iterator[Finding]:
    for nodes_of_it, message, hint in (
        ([node for node in nodes if not is_true(node, "Ready")], "is not Ready", "kubectl describe node says why"),
        (
            [node for node in nodes if fields(node, "spec").get("unschedulable") is True],
            "is cordoned: no pod is started there",
            "kubectl uncordon NAME, or take the label of the pool off",
        ),
        (
            [node for node in nodes if (0, 0) < _kubelet(node) < LEAST_KUBERNETES],
            "has a kubelet older than 1.34: pods claim devices with Kubernetes 1.34 and newer",
            "Upgrade the nodes",
        ),
    ):
        if nodes_of_it:
            yield warning(_CHECK, f"Node {some(_names(nodes_of_it))} (pool {name})", message, hint)


def _kubelet(node: Object) -> tuple[int, ...]:
    """Major and minor version of a node's kubelet, zeros where it has none."""
    version_numbers = text(node, "status", "nodeInfo", "kubeletVersion").removeprefix("v").split(".")[:2]
    return (
        tuple(map(int, version_numbers))
        if len(version_numbers) == 2 and all(digits.isdecimal() for digits in version_numbers)
        else (0, 0)
    )


def _taints(name: str, nodes: list[Object], desired: Desired) -> Iterator[Finding]:
    classes = [
        device_class
        for promise in desired.expected.promises
        if promise.pool == name
        for device_class in promise.device_classes
    ]
    tolerations = tolerations_of(classes)
    nodes_by_taint: dict[str, list[str]] = {}
    for node in nodes:
        for taint in taints_of(node):
            if not any(toleration.covers(taint) for toleration in tolerations):
                nodes_by_taint.setdefault(str(taint), []).append(text(node, "metadata", "name"))
    for taint_text, node_names in sorted(nodes_by_taint.items()):
        yield Finding(
            _CHECK,
            f"Node {some(sorted(node_names))} (pool {name})",
            f"pods of replicas do not tolerate the taint {taint_text}",
            f"Take it off (kubectl taint node NAME {taint_text}-); engines tolerate "
            f"{some(toleration.key for toleration in tolerations)} with the effect NoSchedule",
        )


def _room_for_the_stack(snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    """Controllers and the gateway tolerate nothing."""
    free = [node for node in snapshot.nodes if not taints_of(node)]
    if not any(entry.get("chart") for entry in desired.managed) or any(_takes_pods(node) for node in free):
        return
    why = "every node has a taint" if snapshot.nodes else "there is no node"
    yield Finding(
        _CHECK,
        "nodes",
        f"none of the nodes without taints is Ready: {some(_names(free))}" if free else why,
        "The controllers of the serving stack and its gateway need a node without taints (beside the pools)",
    )


def _takes_pods(node: Object) -> bool:
    return is_true(node, "Ready") and fields(node, "spec").get("unschedulable") is not True


def driver_roots(snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    """Yield nodes with an NVIDIA driver outside the directory that the DRA driver expects."""
    if not any(entry["key"] == "dra-driver" for entry in desired.managed) or desired.driver_root not in ("", "/"):
        return
    pools = {promise.pool for promise in desired.expected.promises if NVIDIA in promise.drivers}
    nodes = [node for node in snapshot.nodes if pool_of(node) in pools or plugin_devices(node)]
    variable = "nvidia_driver_root"
    for cloud in CLOUDS:
        root = cloud.platform.driver_root
        cloud_nodes = [node for node in nodes if cloud.platform.gpu_label in fields(node, "metadata", "labels")]
        if cloud_nodes and root != "/":
            yield Finding(
                "driver-root",
                f"Node {some(_names(cloud_nodes))}",
                f"{cloud.source} keeps the NVIDIA driver in {root}, and the DRA driver would search it in /",
                f"Set {variable} to {root} for this cluster",
            )
    for value in snapshot.workloads:
        if text(value, "kind") == "DaemonSet" and text(value, "metadata", "name").startswith("nvidia-driver-daemonset"):
            yield warning(
                "driver-root",
                f"DaemonSet {text(value, 'metadata', 'namespace')}/{text(value, 'metadata', 'name')}",
                "NVIDIA's GPU Operator keeps the driver in /run/nvidia/driver, and the DRA driver would search it in /",
                f"Set {variable} to /run/nvidia/driver, unless the nodes have a driver of their own",
            )


def _names(nodes: Iterable[Object]) -> list[str]:
    return sorted(text(node, "metadata", "name") for node in nodes)
