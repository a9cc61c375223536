# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Nodes of pools whose free devices new pods cannot use, from Nodes, ResourceSlices and ResourceClaims."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

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

Devices = Collection[tuple[str, str, str]]
"""Devices by driver, resource pool, and name."""


def unavailable_nodes(
    promises: Iterable[Promise],
    nodes: Mapping[str, Iterable[Object]],
    published: PublishedDevices | None,
    in_use: Devices | None,
) -> dict[str, tuple[UnavailableNode, ...]]:
    """Return the unavailable nodes of each pool, sorted by name; pools without any are left out.

    `nodes` are the Nodes of each pool, `in_use` the devices that ResourceClaims of replicas have. A device in use
    counts as available because its replica keeps it. If the ResourceSlices (`published`) or the ResourceClaims
    (`in_use`) were not read, all devices count as in use.
    """
    unavailable = {
        promise.pool: tuple(
            found
            for node in sorted(nodes.get(promise.pool, ()), key=_name)
            if (found := _unavailable(promise, node, published, in_use))
        )
        for promise in promises
    }
    return {pool: found for pool, found in unavailable.items() if found}


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


def allocated(claims: Iterable[Object]) -> frozenset[tuple[str, str, str]]:
    """Return the devices that are allocated to ResourceClaims (wire format, resource.k8s.io/v1)."""
    driver, pool, device = DEVICE_KEY
    return frozenset(
        (text(result, driver), text(result, pool), text(result, device))
        for claim in claims
        for result in entries(claim, "status", "allocation", "devices", "results")
    )


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


def _unavailable(
    promise: Promise, node: Object, published: PublishedDevices | None, in_use: Devices | None
) -> UnavailableNode | None:
    closed = _closed(promise, node)
    devices: dict[str, int] = {}
    reasons = []
    if published is None or in_use is None:
        return UnavailableNode(_name(node), closed, closed=True) if closed else None
    for driver in promise.drivers:
        missing = published.incomplete(_name(node), driver)
        there = published.on(_name(node), driver)
        usable = [device for device in there if device.key in in_use or not (closed or missing or device.taint)]
        short = _short(promise.claimed(driver), there, usable)
        devices |= short
        if short:
            reasons.append(_reason(driver, there, missing))
    if not (closed or devices):
        return None
    return UnavailableNode(_name(node), closed or "; ".join(reasons), bool(closed), devices)


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


def _short(promised: list[Device], published: list[PublishedDevice], usable: list[PublishedDevice]) -> dict[str, int]:
    """Return how many devices of each promised kind are not usable.

    A device with other attributes than the InferenceClass also counts, because pods claim devices by selectors."""
    left = list(usable)
    counts: dict[str, int] = {}
    # Kinds that the fewest devices match come first: the devices that they leave match other kinds, not the reverse.
    for kind in sorted(promised, key=lambda kind: sum(device.is_of(kind) for device in published)):
        matching = [device for device in left if device.is_of(kind)][: kind.count]
        left = [device for device in left if device not in matching]
        counts[kind.name] = len(matching)
    short = {}
    for kind in promised:
        others = min(len(left), kind.count - counts[kind.name])
        left = left[others:]
        if counts[kind.name] + others < kind.count:
            short[kind.name] = kind.count - counts[kind.name] - others
    return short


def _reason(driver: str, there: list[PublishedDevice], missing: str) -> str:
    if not there:
        return f"{NO_DEVICES} of driver {driver}"
    if missing:
        return f"{missing} of driver {driver}"
    tainted = [device for device in there if device.taint]
    if tainted:
        return f"device {tainted[0].key[2]} has the taint {tainted[0].taint}"
    return f"driver {driver} publishes fewer devices than the InferenceClass"


def _name(node: Object) -> str:
    return text(node, "metadata", "name")
