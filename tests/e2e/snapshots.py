# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Snapshots of a fleet's clusters, without what differs between two runs that did the same."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import LiveFleet, Object
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane, condition

Snapshot = dict[str, Any]
MANAGER = "modelplane.fleet"

# Identities, times, counts of writes, and what a cluster draws at random.
_DROPPED = frozenset(
    {
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "observedGeneration",
        "lastTransitionTime",
        "time",
        "clusterIP",
        "clusterIPs",
        "nodePort",
        "volumeName",
        "controller-uid",
        "batch.kubernetes.io/controller-uid",
        "deployment.kubernetes.io/revision",
        "pv.kubernetes.io/bind-completed",
        "pv.kubernetes.io/bound-by-controller",
    }
)


def snapshot(fleet: LiveFleet) -> Snapshot:
    """All objects of the fleet on all its clusters, namespaces of all kinds, and pods by what they belong to."""
    found: Snapshot = {}
    for plane in (fleet.control, *fleet.workloads.values()):
        for (kind, namespace, name), value in fleet.ours(plane).items():
            # Made by a controller of the cluster, with the labels of a Service of ours and a name drawn at random.
            if value["metadata"].get("ownerReferences"):
                continue
            found[f"{plane.name}: {kind} {namespace}/{name}"] = normalized(value)
        found[f"{plane.name}: namespaces"] = sorted(
            value["metadata"]["name"] for value in plane.objects.list("v1", "Namespace")
        )
    for name, plane in fleet.workloads.items():
        for place, count in Counter(map(_place, plane.objects.list("v1", "Pod"))).items():
            found[f"{name}: pod {place}"] = count
        for kind in ("ResourceClaim", "ResourceClaimTemplate"):
            found[f"{name}: {kind}s"] = len(plane.objects.list("resource.k8s.io/v1", kind))
    return found


def normalized(value: Object) -> Object:
    """An object without what two equal ones differ in: of owners of fields ours, a status where it is ours."""
    plain = _without(value)
    metadata = plain["metadata"]
    if "managedFields" in metadata:
        ours = [entry for entry in metadata["managedFields"] if entry["manager"] == MANAGER]
        metadata["managedFields"] = sorted(ours, key=lambda entry: entry.get("subresource", ""))
    if not value["apiVersion"].partition("/")[0].endswith("modelplane.ai"):
        plain.pop("status", None)
    return plain


def differences(desired: Snapshot, found: Snapshot) -> str:
    """Return what is missing, too much, and different, for people; empty when nothing is."""
    lines = [f"missing: {key}" for key in sorted(set(desired) - set(found))]
    lines += [f"too much: {key}" for key in sorted(set(found) - set(desired))]
    for key in sorted(set(desired) & set(found)):
        if desired[key] != found[key]:
            texts = [yaml.safe_dump(side[key]).splitlines() for side in (desired, found)]
            lines += [f"different: {key}", *difflib.unified_diff(*texts, "desired", "found", lineterm="", n=2)]
    return "\n".join(lines)


def serving(plane: ControlPlane) -> dict[str, str]:
    """Ready pods that requests go to and that are not being deleted: uid -> deployment."""
    return {
        pod["metadata"]["uid"]: pod["metadata"]["labels"]["modelplane.ai/deployment"]
        for pod in plane.objects.list("v1", "Pod", labels="modelplane.ai/serving")
        if condition(pod, "Ready") == "True" and "deletionTimestamp" not in pod["metadata"]
    }


def _place(pod: Object) -> str:
    """Return what a pod is one of, and how it is doing: its own name is random."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    owner = labels.get("modelplane.ai/replica") or labels.get("app.kubernetes.io/name") or metadata.get("generateName")
    node = pod["spec"].get("nodeName") or ""
    # A pod that claims no device may be anywhere.
    pool = (node.rpartition("-")[0] if pod["spec"].get("resourceClaims") else "any node") if node else "no node"
    leaving = ", leaving" if "deletionTimestamp" in metadata else ""
    return f"{metadata['namespace']}/{owner} on {pool}, {pod['status'].get('phase')}{leaving}"


def _without(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without(each) for key, each in value.items() if key not in _DROPPED}
    if isinstance(value, list):
        return [_without(each) for each in value]
    return value
