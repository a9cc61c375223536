# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects with which a cluster has something to run pods on: nodes, devices, volumes, webhooks."""

from __future__ import annotations

import base64
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from .stages import PROVISIONER

_CAPACITY = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti"}
# Limit of spec.devices of a ResourceSlice (Kubernetes API reference).
_DEVICES_OF_A_SLICE = 128


def nodes(
    pool: str,
    count: int,
    *,
    labels: Mapping[str, str],
    taints: Sequence[Mapping[str, str]],
    capacity: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Nodes `POOL-0` to `POOL-<count-1>`; `capacity` is over 64 CPUs, 512Gi and 110 pods."""
    resources = {**_CAPACITY, **capacity}
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"{pool}-{number}",
                "labels": {
                    "kubernetes.io/hostname": f"{pool}-{number}",
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    **labels,
                },
            },
            "spec": {"taints": [dict(taint) for taint in taints]},
            "status": {"capacity": resources, "allocatable": resources},
        }
        for number in range(count)
    ]


def slices(node: str, driver: str, devices: Sequence[Mapping[str, Any]], generation: int) -> list[dict[str, Any]]:
    """ResourceSlices of the pool that a driver has on a node (KEP-4381); a node without devices has one empty slice."""
    starts = range(0, max(len(devices), 1), _DEVICES_OF_A_SLICE)
    parts = [devices[start : start + _DEVICES_OF_A_SLICE] for start in starts]
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-{driver}-{number}"},
            "spec": {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "generation": generation, "resourceSliceCount": len(parts)},
                "devices": [dict(device) for device in part],
            },
        }
        for number, part in enumerate(parts)
    ]


def device_class(name: str, expressions: Sequence[str]) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": each}} for each in expressions]},
    }


def storage_class(name: str, *, wait_for_pod: bool, default: bool) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": name,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true" if default else "false"},
        },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Retain",
        "volumeBindingMode": "WaitForFirstConsumer" if wait_for_pod else "Immediate",
    }


def leader_worker_set_webhooks(url: str, authority: bytes) -> list[dict[str, Any]]:
    """The webhook configurations of LeaderWorkerSet v0.8.0 (config/webhook), for a controller outside the cluster."""
    group = "leaderworkerset.x-k8s.io"
    whole = {"apiGroups": [group], "apiVersions": ["v1"], "resources": ["leaderworkersets"]}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    only_members = {"matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]}

    def webhook(name: str, path: str, rule: dict[str, Any], *operations: str, **more: Any) -> dict[str, Any]:
        return {
            "name": name,
            "clientConfig": {"url": url + path, "caBundle": base64.b64encode(authority).decode()},
            "rules": [{**rule, "operations": list(operations)}],
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            **more,
        }

    def configuration(kind: str, name: str, webhooks: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": webhooks,
        }

    both = ("CREATE", "UPDATE")
    return [
        configuration(
            "MutatingWebhookConfiguration",
            "lws-mutating-webhook-configuration",
            [
                webhook("mleaderworkerset.kb.io", "/mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset", whole, *both),
                webhook("mpod.kb.io", "/mutate--v1-pod", pods, "CREATE", objectSelector=only_members),
            ],
        ),
        configuration(
            "ValidatingWebhookConfiguration",
            "lws-validating-webhook-configuration",
            [
                webhook(
                    "vleaderworkerset.kb.io", "/validate-leaderworkerset-x-k8s-io-v1-leaderworkerset", whole, *both
                ),
                webhook("vpod.kb.io", "/validate--v1-pod", pods, *both, objectSelector=only_members),
            ],
        ),
    ]


def listens(port: int) -> bool:
    """Return whether something takes connections on this port of 127.0.0.1."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
