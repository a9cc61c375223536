# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Nodes of pools whose free devices new pods cannot use, from Nodes, ResourceSlices and ResourceClaims."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.pod import gpu_tolerations
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import (
    NO_DEVICES,
    NOT_READY,
    UnavailableNode,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Taint, Toleration
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.devices import (
    DEVICE_KEY,
    DeviceKey,
    Promise,
    PublishedDevice,
    PublishedDevices,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import (
    Object,
    entries,
    fields,
    is_true,
    label,
    text,
)

_TOLERATED = "node.kubernetes.io/memory-pressure"
"""Taint that all pods with resource requests tolerate (Kubernetes, "Taints and Tolerations")."""
_OF_CONDITIONS = "node.kubernetes.io/"
"""Prefix of the taints that the control plane sets for the state of a node (Kubernetes, "Well-Known Labels, Annotations
and Taints")."""


def unavailable_nodes(
    promises: Sequence[Promise],
    nodes: Mapping[str, Iterable[Object]],
    published: PublishedDevices | None,
    in_use: Mapping[DeviceKey, str] | None,
) -> dict[str, tuple[UnavailableNode, ...]]:
    """Return the unavailable nodes of each pool, sorted by name; pools without any are left out.

    `nodes` are the Nodes of each pool, and `in_use` the devices in ResourceClaims of replicas, each with its node.
    A device in use counts as available because its replica keeps it. If the ResourceSlices (`published`) or the
    ResourceClaims (`in_use`) were not read, all devices count as in use.
    """
    members = {promise.pool: sorted(nodes.get(promise.pool, ()), key=_name) for promise in promises}
    closed = {promise.pool: [_closed(promise, node) for node in members[promise.pool]] for promise in promises}
    if published is None or in_use is None:
        unavailable = {
            pool: [
                UnavailableNode(_name(node), reason, closed=True)
                for node, reason in zip(pool_nodes, closed[pool], strict=True)
                if reason
            ]
            for pool, pool_nodes in members.items()
        }
    else:
        open_nodes = {
            pool: [node for node, reason in zip(pool_nodes, closed[pool], strict=True) if not reason]
            for pool, pool_nodes in members.items()
        }
        state = _Devices(published, published.by_node(promises, open_nodes, in_use), in_use)
        unavailable = {
            promise.pool: [
                node
                for name, reason in zip(map(_name, members[promise.pool]), closed[promise.pool], strict=True)
                if (node := state.unavailable(promise, name, reason))
            ]
            for promise in promises
        }
    return {pool: tuple(pool_nodes) for pool, pool_nodes in unavailable.items() if pool_nodes}


def stranded_replicas(nodes: Iterable[UnavailableNode], pods: Iterable[Object]) -> dict[tuple[str, str], str]:
    """Return the replicas with all device pods on nodes that take no new pods, and why.

    Replicas are identified by the namespace and the label `modelplane.ai/replica` of their pods.
    """
    closed = {node.name: node for node in nodes if node.closed}
    places: dict[tuple[str, str], set[str]] = {}
    for pod in pods:
        if fields(pod, "spec").get("resourceClaims"):
            places.setdefault(replica_of(pod), set()).add(text(pod, "spec", "nodeName"))
    return {
        replica: "; ".join(f"node {closed[name]} takes no new pods" for name in sorted(found))
        for replica, found in places.items()
        if found <= closed.keys()
    }


def replica_of(pod: Object) -> tuple[str, str]:
    """Return the namespace and the replica label of a pod."""
    return text(pod, "metadata", "namespace"), label(pod, names.REPLICA_LABEL)


def allocated(claims: Iterable[Object], nodes: Mapping[tuple[str, str], str]) -> dict[DeviceKey, str]:
    """Return the devices that are allocated to the ResourceClaims of pods, each with the node of the pod.

    `nodes` contains the node name of each pod, by namespace and name. ResourceClaims of other pods are ignored.
    """
    driver, pool, device = DEVICE_KEY
    return {
        (text(result, driver), text(result, pool), text(result, device)): nodes[pod]
        for claim in claims
        for pod in _consumers(claim)
        if pod in nodes
        for result in entries(claim, "status", "allocation", "devices", "results")
    }


def _consumers(claim: Object) -> Iterator[tuple[str, str]]:
    """Yield namespace and name of the pods that a ResourceClaim is reserved for."""
    for pod in entries(claim, "status", "reservedFor"):
        yield text(claim, "metadata", "namespace"), text(pod, "name")


def taints_of(node: Object) -> list[Taint]:
    """Return the taints of a node that keep pods away, without the taints for its state from the control plane."""
    return [taint for taint in _taints(node) if not taint.key.startswith(_OF_CONDITIONS)]


def tolerations_of(device_classes: Iterable[str]) -> list[Toleration]:
    """Return the tolerations of pods that claim devices of these classes."""
    return [Toleration(**entry) for entry in gpu_tolerations(device_classes)]  # type: ignore[arg-type]


def _taints(node: Object) -> Iterator[Taint]:
    for taint in entries(node, "spec", "taints"):
        for effect in ("NoSchedule", "NoExecute"):
            if text(taint, "effect") == effect:
                yield Taint(text(taint, "key"), effect, text(taint, "value"))


@dataclass(frozen=True)
class _Devices:
    """Devices on each node, by node name and driver. `in_use`: devices that ResourceClaims of replicas have."""

    published: PublishedDevices
    by_node: Mapping[tuple[str, str], Sequence[PublishedDevice]]
    in_use: Collection[DeviceKey]

    def unavailable(self, promise: Promise, node: str, closed: str) -> UnavailableNode | None:
        """Return the unavailable devices of a node, None without any. `closed`: reason why the node accepts no pods."""
        devices: dict[str, int] = {}
        reasons = []
        for driver in promise.drivers:
            on_node = self.by_node.get((node, driver), ())
            usable = [
                device for device in on_node if device.key in self.in_use or (device.is_allocatable and not closed)
            ]
            short = _short(promise.claimed(driver), on_node, usable)
            devices |= short
            if short:
                reasons.append(_reason(driver, on_node, is_shared=self.published.is_shared(driver)))
        if not (closed or devices):
            return None
        return UnavailableNode(node, closed or "; ".join(reasons), bool(closed), devices)


def _closed(promise: Promise, node: Object) -> str:
    """Return the reason why a node is not schedulable, "" for a schedulable node."""
    if not is_true(node, "Ready"):
        return NOT_READY
    if fields(node, "spec").get("unschedulable") is True:
        return "cordoned"
    tolerations = tolerations_of(promise.device_classes)
    for taint in _taints(node):
        if taint.key != _TOLERATED and not any(toleration.covers(taint) for toleration in tolerations):
            return f"taint {taint}"
    return ""


def _short(
    promised: list[Device], published: Sequence[PublishedDevice], usable: Sequence[PublishedDevice]
) -> dict[str, int]:
    """Return how many devices of each promised kind are not usable.

    A device with other attributes than the InferenceClass also counts, because pods claim devices by selectors."""
    remaining = list(usable)
    counts: dict[str, int] = {}
    # Kinds that the fewest devices match come first: the devices that they leave match other kinds, not the reverse.
    for kind in sorted(promised, key=lambda kind: sum(device.is_of(kind) for device in published)):
        matching = [device for device in remaining if device.is_of(kind)][: kind.count]
        remaining = [device for device in remaining if device not in matching]
        counts[kind.name] = len(matching)
    short = {}
    for kind in promised:
        others = min(len(remaining), kind.count - counts[kind.name])
        remaining = remaining[others:]
        if counts[kind.name] + others < kind.count:
            short[kind.name] = kind.count - counts[kind.name] - others
    return short


def _reason(driver: str, published: Sequence[PublishedDevice], *, is_shared: bool) -> str:
    if not published and not is_shared:
        return f"{NO_DEVICES} of driver {driver}"
    defect = next((device.pool_defect for device in published if device.pool_defect), "")
    if defect:
        return f"{defect} of driver {driver}"
    tainted = next((device for device in published if device.taint), None)
    if tainted:
        return f"device {tainted.key[2]} has the taint {tainted.taint}"
    return f"driver {driver} publishes fewer devices than the InferenceClass"


def _name(node: Object) -> str:
    return text(node, "metadata", "name")
