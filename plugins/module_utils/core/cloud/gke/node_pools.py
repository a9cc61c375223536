# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The node pools of a GKECluster, as the API of GKE takes them. Numbers of nodes are for each zone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import pools

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
IMAGE_TYPE = "COS_CONTAINERD"
DRIVER_VERSION = "DEFAULT"
DRA_LABEL = "cloud.google.com/gke-nvidia-gpu-dra-driver"
"""Tells the autoscaler of GKE that nodes of the pool will publish their GPUs in ResourceSlices. Without it, a pool of
no nodes never grows for a pod that claims one."""
DRA_LABELS = {"gke-no-default-nvidia-gpu-device-plugin": "true", "nvidia.com/gpu.present": "true"}
"""More of what Google's guides to DRA set: GKE's own device plugin stays off such nodes."""


def node_pool(pool: Mapping[str, Any], labels: Mapping[str, str], version: str, *, dra_labels: bool) -> dict[str, Any]:
    """The NodePool of a pool (wire form, with defaults). `labels` are for its machines in Google Cloud.

    GKE refuses a start outside the bounds, and a largest size of 0: a pool of no nodes may have one, which nothing asks
    for as no replica is placed on it. GKE keeps what claims no GPU off nodes with GPUs by a taint of its own.
    """
    least = pool["minNodeCount"]
    most = max(pool["maxNodeCount"], 1)
    made: dict[str, Any] = {
        "name": pool["name"],
        "initialNodeCount": min(max(pool["nodeCount"], least), most),
        "autoscaling": {"enabled": True, "minNodeCount": least, "maxNodeCount": most},
        "config": _config(pool, labels, dra_labels),
        "version": version,
    }
    if pool.get("zones"):
        made["locations"] = list(pool["zones"])
    return made


def _config(pool: Mapping[str, Any], labels: Mapping[str, str], dra_labels: bool) -> dict[str, Any]:
    config: dict[str, Any] = {
        "machineType": pool["machineType"],
        "imageType": IMAGE_TYPE,
        "oauthScopes": [SCOPE],
        "labels": pools.labels(pool),
        "taints": [],
        "resourceLabels": dict(labels),
    }
    if pool["diskSizeGb"] is not None:
        config["diskSizeGb"] = pool["diskSizeGb"]
    if pool["role"] == pools.GPU:
        config["labels"] |= {DRA_LABEL: "true", **(DRA_LABELS if dra_labels else {})}
        config["accelerators"] = [
            {
                "acceleratorType": pool["gpu"]["acceleratorType"],
                # A number of 64 bits, which is a text in JSON.
                "acceleratorCount": str(pool["gpu"]["acceleratorCount"]),
                "gpuDriverInstallationConfig": {"gpuDriverVersion": DRIVER_VERSION},
            }
        ]
    return config
