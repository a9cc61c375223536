# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Definition of Google Kubernetes Engine for the registry of clouds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...api.gke_pool import DRIVER_VERSION, SPECIFIC
from ...api.gke_settings import GKEClusterSettings
from ...api.inference_class import GKEProvisioning
from ...api.inference_cluster import NodePool
from ...api.pricing import PurchaseOption
from ..cloud import Cloud, Identity, Login, Platform, node_pool
from . import demand, machines, needs
from .names import cluster_name
from .reading import KIND
from .validation import VALIDATION


def _login(place: Any, name: str) -> dict[str, Any]:
    project = {"project": place.project} if place.project else {}
    return {**project, "location": place.region, "cluster": name}


def _node_pool(pool: NodePool, provisioning: GKEProvisioning, sizes: Mapping[str, int]) -> dict[str, Any]:
    accelerator = provisioning.accelerator
    gpu = {"acceleratorType": accelerator.type, "acceleratorCount": accelerator.count}
    return node_pool(pool, {"machineType": provisioning.machine_type}, sizes, gpu, pool.gke)


def _machine(provisioning: GKEProvisioning) -> str:
    return provisioning.machine_type


def _old_driver(pool: NodePool) -> str:
    if pool.gke and pool.gke.gpu_driver_version not in (None, DRIVER_VERSION):
        return ""
    return "GKE's default one may be older. Set gke.gpuDriverVersion of the pool to LATEST"


def _purchase_option(pool: NodePool) -> PurchaseOption | None:
    settings = pool.gke
    if settings is None:
        return "OnDemand"
    if settings.flex_start:
        return None
    affinity = settings.reservation_affinity
    if affinity and affinity.consume_reservation_type == SPECIFIC:
        return "Reserved"
    return "Spot" if settings.spot else "OnDemand"


CLOUD = Cloud(
    name="gke",
    source="GKE",
    kind=KIND,
    vendor="Google Cloud",
    login=Login(
        options={
            "project": {"type": "str"},
            "location": {"type": "str", "required": True},
            "cluster": {"type": "str", "required": True},
            "credentials_file": {"type": "path"},
            "endpoint": {"type": "str"},
            "ca_file": {"type": "path"},
        },
        of=_login,
        # The project belongs to the cluster, so the project of a connection overrides the variable.
        defaults={"gke_cluster_project": "project"},
        overrides={
            "gke_cluster_credentials_file": "credentials_file",
            "gke_cluster_ca_file": "ca_file",
            "gke_cluster_endpoints.container": "endpoint",
        },
    ),
    cluster_name=cluster_name,
    settings=GKEClusterSettings,
    node_pool=_node_pool,
    validation=VALIDATION,
    needs=needs.needs,
    demands=demand.of_cluster,
    quota_words=demand.WORDS,
    machine=_machine,
    architecture=machines.architecture,
    old_driver=_old_driver,
    purchase_option=_purchase_option,
    storage_class="modelplane-rwx",
    identity=Identity(type="GoogleApplicationCredentials", suffix="sa-key", key="private_key"),
    per_zone=True,
    platform=Platform(
        provider_id="gce://",
        one_node=("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
        many_nodes=("filestore.csi.storage.gke.io", "lustre.csi.storage.gke.io"),
        gateway_controllers=("networking.gke.io/",),
        node_label="cloud.google.com/gke-nodepool",
        gpu_label="cloud.google.com/gke-accelerator",
        no_device_plugin="gke-no-default-nvidia-gpu-device-plugin=true",
        # The directory of the driver installer on Container-Optimized OS, because its root is read-only.
        driver_root="/home/kubernetes/bin/nvidia",
        # DeviceClass of managed DRANET.
        network_device_classes=("mrdma.google.com",),
        metadata_hosts=("metadata.google.internal", "metadata.goog"),
        metadata_networks=("fd20:ce::254/128",),
        services=("34.118.224.0/20",),
    ),
)
