# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""GKEClusters of tests, and what Google's APIs return of what they become."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import plan

Object = dict[str, Any]
PROJECT = "my-project"


def gpu(name: str = "gpu-l4", **more: Any) -> Object:
    return {
        "name": name,
        "role": "GPU",
        "machineType": "g2-standard-8",
        "gpu": {"acceleratorType": "nvidia-l4"},
        "zones": ["us-central1-a", "us-central1-c"],
        **more,
    }


def system(name: str = "controllers", **more: Any) -> Object:
    return {"name": name, "role": "System", "machineType": "e2-standard-8", **more}


def gke(*pools: Object, name: str = "gke-us-central", namespace: str = "modelplane-system", **spec: Any) -> Object:
    """A GKECluster as a user writes it; without pools, with one of L4."""
    return {
        "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
        "kind": "GKECluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"region": "us-central1", "nodePools": list(pools or (gpu(),)), **spec},
    }


def inference_cluster(*pools: Object, name: str = "gke-us-central", **block: Any) -> Object:
    """An InferenceCluster with source GKE."""
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": name},
        "spec": {
            "cluster": {"source": "GKE", "gke": {"region": "us-central1", **block}},
            "nodePools": list(pools or ({"name": "gpu-l4", "className": "l4", "zones": ["us-central1-a"]},)),
        },
    }


def inference_class(accelerator: str = "nvidia-l4", machine: str = "g2-standard-48", count: int = 4) -> Object:
    block = {"machineType": machine, "diskSizeGb": 200, "accelerator": {"type": accelerator, "count": count}}
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceClass",
        "metadata": {"name": "l4"},
        "spec": {"provisioning": {"provider": "GKE", "gke": block}},
    }


def resource(key: str, cluster: Object | None = None) -> Object:
    """An entry of the plan of a GKECluster."""
    every = plan(cluster or gke(), PROJECT)["resources"]
    return next(entry for entry in every if entry["key"] == key)


def returned(entry: Object) -> Object:
    """Return an object just made as the API does: values that are the default of their type are left out, the rest of
    what Google fills in is there."""
    made = deepcopy(entry["body"])
    return _RETURNED.get(entry["kind"], dict)(made)  # type: ignore[no-any-return]


def _network(made: Object) -> Object:
    return {**made, "kind": "compute#network", "id": "7", "mtu": 1460, "routingConfig": {"routingMode": "REGIONAL"}}


def _subnetwork(made: Object) -> Object:
    url = f"https://www.googleapis.com/compute/v1/{made['network']}"
    reserved = {"rangeName": "others", "ipCidrRange": "10.9.0.0/24"}
    ranges = [reserved, *reversed(made["secondaryIpRanges"])]
    filled = {"fingerprint": "Zk0=", "gatewayAddress": "10.0.0.1", "privateIpGoogleAccess": False, "state": "READY"}
    return {**filled, **made, "network": url, "secondaryIpRanges": ranges, "stackType": "IPV4_ONLY"}


def _cluster(made: Object) -> Object:
    version = "1.35.4-gke.1200000"
    del made["nodePools"]
    return {
        **made,
        "initialClusterVersion": version,
        "currentMasterVersion": version,
        "network": made["network"].rpartition("/")[2],
        "subnetwork": made["subnetwork"].rpartition("/")[2],
        "ipAllocationPolicy": {
            **made["ipAllocationPolicy"],
            "clusterIpv4CidrBlock": "10.1.0.0/16",
            "stackType": "IPV4",
        },
        "networkConfig": {
            **{key: value for key, value in made["networkConfig"].items() if value},
            "network": made["network"],
        },
        "addonsConfig": {**made["addonsConfig"], "gcePersistentDiskCsiDriverConfig": {"enabled": True}},
        "resourceLabels": {**made["resourceLabels"], "team": "ml"},
        "labelFingerprint": "a9dc16a7",
        "status": "RUNNING",
        "endpoint": "203.0.113.7",
    }


def _pool(made: Object) -> Object:
    config = made["config"]
    config["resourceLabels"]["goog-gke-node-pool-provisioning-model"] = "on-demand"
    config.setdefault("diskSizeGb", 100)
    config.setdefault("serviceAccount", "default")
    config["diskType"] = "pd-balanced"
    config.setdefault("shieldedInstanceConfig", {"enableIntegrityMonitoring": True})
    for false in ("spot", "flexStart", "taints"):
        if not config[false]:
            del config[false]
    if "accelerators" in config:
        config["taints"] = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}]
    bounds = {key: value for key, value in made["autoscaling"].items() if value}
    filled = {"version": "1.35.4-gke.1200000", "status": "RUNNING", "management": {"autoUpgrade": True}, "etag": "e1"}
    return {"locations": ["us-central1-a", "us-central1-b", "us-central1-f"], **made, "autoscaling": bounds, **filled}


_RETURNED = {
    "network": _network,
    "subnetwork": _subnetwork,
    "cluster": _cluster,
    "node-pool": _pool,
    "service": lambda _made: {"name": "projects/7/services/file.googleapis.com", "state": "ENABLED"},
    "service-account": lambda made: {**made, "uniqueId": "1", "projectId": PROJECT},
}
