# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Nodes of pools with free devices that new pods cannot use, from Nodes, ResourceSlices, and ResourceClaims."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from .. import names
from ..compose import constants
from ..compose.pod import gpu_tolerations
from ..devices.device import Device
from ..observation import NO_DEVICES, NOT_READY, UnavailableNode
from ..scheduling.model import Taint, Toleration
from ..wire import Object, entries, fields, is_being_deleted, is_true, label, text
from .devices import DEVICE_KEY, DeviceKey, Promise, PublishedDevice, PublishedDevices
from .workloads import EVENT_CONDITION, NODE_LOST

PodKey = tuple[str, str]
"""Namespace and name of a pod."""
ReplicaKey = tuple[str, str]
"""Namespace and `modelplane.ai/replica` label of a replica's pods."""
_OF_CONDITIONS = "node.kubernetes.io/"
"""Prefix of the taints that the control plane sets for the state of a node (Kubernetes, "Well-Known Labels, Annotations
and Taints")."""


def unavailable_nodes(
    promises: Sequence[Promise],
    nodes: Mapping[str, Iterable[Object]],
    published: PublishedDevices | None,
    in_use: Mapping[DeviceKey, str] | None,
    stranded: Mapping[DeviceKey, str] = MappingProxyType({}),
) -> dict[str, tuple[UnavailableNode, ...]]:
    """Return the unavailable nodes of each pool, sorted by name, only for pools with such nodes.

    `nodes`: Nodes of each pool. `in_use`: devices in ResourceClaims of replicas, each with its node. A device in use
    counts as available because its replica keeps it. If the ResourceSlices (`published`) or the ResourceClaims
    (`in_use`) were not read, all devices count as in use. `stranded`: devices of stranded replicas. They count as
    unavailable because a new replica cannot rely on them.
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
        devices = published.by_node(promises, open_nodes, {**in_use, **stranded})
        state = _Devices(published, devices, in_use, stranded)
        unavailable = {
            promise.pool: [
                node
                for name, reason in zip(map(_name, members[promise.pool]), closed[promise.pool], strict=True)
                if (node := state.unavailable(promise, name, reason))
            ]
            for promise in promises
        }
    return {pool: tuple(pool_nodes) for pool, pool_nodes in unavailable.items() if pool_nodes}


def stranded_replicas(
    nodes: Iterable[UnavailableNode],
    pods: Iterable[Object],
    devices: Mapping[DeviceKey, PodKey],
    taints: Mapping[DeviceKey, str],
) -> dict[ReplicaKey, str]:
    """Return the replicas with a pod that could not start again on its node, with the reason.

    The node accepts no new pods, or the pod has a device with a taint. `pods`: pods of replicas. `devices`: devices
    that are allocated to the pods. `taints`: taints of devices that exclude claims.
    """
    closed = {node.name: f"node {node} takes no new pods" for node in nodes if node.closed}
    tainted = {
        pod: f"device {key[2]} of pool {key[1]} has the taint {taints[key]}"
        for key, pod in sorted(devices.items())
        if key in taints
    }
    reasons: dict[ReplicaKey, set[str]] = {}
    for pod in pods:
        if fields(pod, "spec").get("resourceClaims") and _is_running(pod):
            pod_reasons = (closed.get(text(pod, "spec", "nodeName")), tainted.get(pod_key(pod)))
            reasons.setdefault(replica_of(pod), set()).update(filter(None, pod_reasons))
    return {replica: "; ".join(sorted(texts)) for replica, texts in reasons.items() if texts}


def with_lost_node(pod: Object, nodes: Iterable[Object]) -> dict[str, Any]:
    """Return a gang pod that is overdue for deletion, with an EVENT_CONDITION if its node is gone or not Ready.

    Only the kubelet ends a deletion, and the StatefulSets of a LeaderWorkerSet create no second pod of the same name.
    `nodes`: all nodes of node pools.
    """
    node = text(pod, "spec", "nodeName")
    ready = {_name(candidate): is_true(candidate, "Ready") for candidate in nodes}
    if not node or ready.get(node) or not label(pod, constants.LWS_NAME_LABEL):
        return dict(pod)
    namespace, name = pod_key(pod)
    message = (
        f"its node {node} is {NOT_READY if node in ready else 'gone'}, so its deletion does not end and the gang does "
        f"not start again. Make sure that the machine is off, then run kubectl delete pod {name} -n {namespace} "
        "--force, or taint the node node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    )
    lost = {"type": EVENT_CONDITION, "status": "True", "reason": NODE_LOST, "message": message}
    status = fields(pod, "status")
    return {**pod, "status": {**status, "conditions": [*entries(status, "conditions"), lost]}}


def _is_running(pod: Object) -> bool:
    """Return True if a pod still uses its node: the pod has not ended and is not being deleted."""
    return text(pod, "status", "phase") not in ("Failed", "Succeeded") and not is_being_deleted(pod)


def pod_key(pod: Object) -> PodKey:
    """Return the namespace and the name of a pod."""
    return text(pod, "metadata", "namespace"), text(pod, "metadata", "name")


def replica_of(pod: Object) -> ReplicaKey:
    """Return the namespace and the replica label of a pod."""
    return text(pod, "metadata", "namespace"), label(pod, names.REPLICA_LABEL)


def allocated(claims: Iterable[Object], pods: Collection[PodKey]) -> dict[DeviceKey, PodKey]:
    """Return the devices that are allocated to the ResourceClaims of these pods, each with its pod."""
    driver, pool, device = DEVICE_KEY
    return {
        (text(result, driver), text(result, pool), text(result, device)): pod
        for claim in claims
        for pod in _consumers(claim)
        if pod in pods
        for result in entries(claim, "status", "allocation", "devices", "results")
    }


def _consumers(claim: Object) -> Iterator[PodKey]:
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
    """Devices on each node, by node name and driver. `in_use` and `stranded`: devices that ResourceClaims of replicas
    have."""

    published: PublishedDevices
    by_node: Mapping[tuple[str, str], Sequence[PublishedDevice]]
    in_use: Collection[DeviceKey]
    stranded: Collection[DeviceKey]

    def unavailable(self, promise: Promise, node: str, closed: str) -> UnavailableNode | None:
        """Return the unavailable devices of a node, None without any. `closed`: reason why the node accepts no pods."""
        devices: dict[str, int] = {}
        reasons = []
        for driver in promise.drivers:
            on_node = self.by_node.get((node, driver), ())
            usable = [
                device
                for device in on_node
                if device.key not in self.stranded
                and (device.key in self.in_use or (device.is_allocatable and not closed))
            ]
            short = _short(promise.claimed(driver), on_node, usable)
            devices |= short
            if short:
                reasons.append(self._reason(driver, on_node))
        if not (closed or devices):
            return None
        return UnavailableNode(node, closed or "; ".join(reasons), bool(closed), devices)

    def _reason(self, driver: str, on_node: Sequence[PublishedDevice]) -> str:
        if not on_node and not self.published.is_shared(driver):
            return f"{NO_DEVICES} of driver {driver}"
        defect = next((device.pool_defect for device in on_node if device.pool_defect), "")
        if defect:
            return f"{defect} of driver {driver}"
        tainted = next((device for device in on_node if device.taint), None)
        if tainted:
            return f"device {tainted.key[2]} has the taint {tainted.taint}"
        if any(device.key in self.stranded for device in on_node):
            return "a replica that could not start again uses its devices"
        return f"driver {driver} publishes fewer devices than the InferenceClass"


def _closed(promise: Promise, node: Object) -> str:
    """Return the reason why a node is not schedulable, "" for a schedulable node."""
    if not is_true(node, "Ready"):
        return NOT_READY
    if fields(node, "spec").get("unschedulable") is True:
        return "cordoned"
    tolerations = tolerations_of(promise.device_classes)
    for taint in _taints(node):
        if not any(toleration.covers(taint) for toleration in tolerations):
            return f"taint {taint}"
    return ""


def _short(
    promised: list[Device], published: Sequence[PublishedDevice], usable: Sequence[PublishedDevice]
) -> dict[str, int]:
    """Return the number of unusable devices of each promised kind.

    A device with other attributes than the InferenceClass also counts, because pods claim devices by selectors."""
    remaining = list(usable)
    counts: dict[str, int] = {}
    # Kinds with the fewest matching devices have priority, because the remaining devices match other kinds.
    for kind in sorted(promised, key=lambda kind: sum(device.is_of(kind) for device in published)):
        matching = [device for device in remaining if device.is_of(kind)][: kind.count]
        remaining = [device for device in remaining if device not in matching]
        counts[kind.name] = len(matching)
    short = {}
    for kind in promised:
        substitutes = min(len(remaining), kind.count - counts[kind.name])
        remaining = remaining[substitutes:]
        if counts[kind.name] + substitutes < kind.count:
            short[kind.name] = kind.count - counts[kind.name] - substitutes
    return short


def _name(node: Object) -> str:
    return text(node, "metadata", "name")
