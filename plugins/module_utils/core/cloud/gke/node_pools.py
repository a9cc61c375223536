# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The node pools of a GKECluster, in the format of the GKE API. Node counts apply to each zone."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from ...api.gke_pool import DRIVER_VERSION, NONE, SPECIFIC
from .. import pools
from . import machines

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
IMAGE_TYPE = "COS_CONTAINERD"
DRA_LABEL = "cloud.google.com/gke-nvidia-gpu-dra-driver"
"""Label that announces the GPUs of new nodes in ResourceSlices to the autoscaler of GKE. Without it, an empty pool
never grows for a pod that claims a GPU."""
RESERVATION_KEY = "compute.googleapis.com/reservation-name"


def node_pool(pool: Mapping[str, Any], labels: Mapping[str, str], version: str, account: str = "") -> dict[str, Any]:
    """Return the NodePool of a pool (wire form, with defaults).

    `labels` are for its machines in Google Cloud. `account` is the service account of its nodes if the manifest sets
    it.

    GKE rejects an initial size outside the bounds, and a maximum size of 0. A pool without nodes therefore has a
    maximum size of 1, and no replica is scheduled on it. A taint of GKE excludes pods without a GPU claim from nodes
    with GPUs.
    """
    min_nodes = pool["minNodeCount"]
    max_nodes = max(pool["maxNodeCount"], 1)
    node_pool_body: dict[str, Any] = {
        "name": pool["name"],
        "initialNodeCount": 0 if pool.get("flexStart") else min(max(pool["nodeCount"], min_nodes), max_nodes),
        "autoscaling": {"enabled": True, "minNodeCount": min_nodes, "maxNodeCount": max_nodes},
        "config": {**_config(pool, labels), **({"serviceAccount": account} if account else {})},
        "version": version,
    }
    if pool.get("zones"):
        node_pool_body["locations"] = list(pool["zones"])
    upgrade = _upgrade_settings(pool)
    if upgrade:
        node_pool_body["upgradeSettings"] = upgrade
    if pool.get("flexStart"):
        # Flex-start VMs start in any zone with capacity, and cannot be repaired because they have a fixed lifetime.
        node_pool_body["autoscaling"]["locationPolicy"] = "ANY"
        node_pool_body["management"] = {"autoRepair": False, "autoUpgrade": True}
    if pool.get("placementPolicy"):
        node_pool_body["placementPolicy"] = dict(pool["placementPolicy"])
    networks = _networks(pool)
    if networks:
        node_pool_body["networkConfig"] = networks
    return node_pool_body


def initial(pool: Mapping[str, Any], account: str) -> dict[str, Any]:
    """Return the initial settings of a pool that the manifest does not set.

    GKE cannot change them later, so existing pools keep their settings. `account`: the service account of its nodes,
    empty if the manifest sets it.
    """
    config: dict[str, Any] = {"serviceAccount": account} if account else {}
    if not pool.get("shieldedInstanceConfig"):
        config["shieldedInstanceConfig"] = {"enableSecureBoot": True, "enableIntegrityMonitoring": True}
    if pool.get("gvnic") is None and machines.needs_gvnic(pool["machineType"]):
        config["gvnic"] = {"enabled": True}
    if machines.architecture(pool["machineType"]) == "arm64":
        # Pods select pools, and GPU nodes have a separate taint, so engines do not need to tolerate GKE's taint of Arm
        # nodes.
        config["taintConfig"] = {"architectureTaintBehavior": "NONE"}
    return {"config": config}


def _config(pool: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    config: dict[str, Any] = {
        "machineType": pool["machineType"],
        "imageType": IMAGE_TYPE,
        "oauthScopes": [SCOPE],
        "labels": pools.labels(pool),
        "taints": [],
        "resourceLabels": dict(labels),
        # False is sent too, so a pool with these settings is detected as different.
        "spot": bool(pool.get("spot")),
        "flexStart": bool(pool.get("flexStart")),
    }
    if pool["diskSizeGb"] is not None:
        config["diskSizeGb"] = pool["diskSizeGb"]
    if pool["role"] == pools.GPU:
        config["labels"] |= {DRA_LABEL: "true"}
        config["accelerators"] = [_accelerator(pool["gpu"], pool.get("gpuDriverVersion") or DRIVER_VERSION)]
    for field in ("maxRunDuration", "shieldedInstanceConfig"):
        if pool.get(field):
            config[field] = deepcopy(pool[field])
    if pool.get("gvnic") is not None:
        config["gvnic"] = {"enabled": pool["gvnic"]}
    reservation = _reservation_affinity(pool)
    if reservation:
        config["reservationAffinity"] = reservation
    return config


def _accelerator(gpu: Mapping[str, Any], driver: str) -> dict[str, Any]:
    return {
        "acceleratorType": gpu["acceleratorType"],
        # A 64-bit number is a text in JSON.
        "acceleratorCount": str(gpu["acceleratorCount"]),
        "gpuDriverInstallationConfig": {"gpuDriverVersion": driver},
    }


def _upgrade_settings(pool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the upgrade settings of a pool. For GPUs, an upgrade requires no spare machine.

    The default of GKE adds a machine first, and the upgrade fails without a spare machine.
    """
    chosen = pool.get("upgradeSettings")
    if chosen is None and pool["role"] == pools.GPU and not pool.get("flexStart"):
        chosen = {"maxSurge": 0, "maxUnavailable": 1}
    return {"strategy": "SURGE", **chosen} if chosen else {}


def _reservation_affinity(pool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reservations of a pool. GKE requires the value NONE for flex-start machines, because they cannot be
    reserved."""
    chosen = pool.get("reservationAffinity") or {}
    kind = chosen.get("consumeReservationType") or (NONE if pool.get("flexStart") else "")
    if kind == SPECIFIC:
        return {"consumeReservationType": kind, "key": RESERVATION_KEY, "values": list(chosen["values"])}
    return {"consumeReservationType": kind} if kind else {}


def has_networks(pool: Mapping[str, Any]) -> bool:
    """Return True if nodes of a pool have additional network interfaces."""
    return bool(_networks(pool))


def _networks(pool: Mapping[str, Any]) -> dict[str, Any]:
    networks: dict[str, Any] = {}
    if pool.get("acceleratorNetworkProfile"):
        networks["acceleratorNetworkProfile"] = pool["acceleratorNetworkProfile"]
    if pool.get("additionalNodeNetworkConfigs"):
        networks["additionalNodeNetworkConfigs"] = [
            dict(node_network) for node_network in pool["additionalNodeNetworkConfigs"]
        ]
    return networks
