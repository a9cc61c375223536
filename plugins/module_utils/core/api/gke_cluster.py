# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""GKECluster: cluster to create on Google Kubernetes Engine."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from ..._pydantic import Field
from .base import Hidden, ListMap, Model, Rule, requires
from .cloud import CacheStatus, CloudCluster, CloudClusterSpec, Credentials, PoolName, Zone, node_count_rule
from .gke_pool import GKEPoolSettings
from .gke_settings import GKEClusterSettings
from .resource import Status


class GKENetworking(Model):
    """Network settings of the cluster."""

    pod_cidr: str = Field(
        default="10.1.0.0/16", max_length=18, description="CIDR range of pods. Defaults to 10.1.0.0/16."
    )
    service_cidr: str = Field(
        default="10.2.0.0/16", max_length=18, description="CIDR range of Services. Defaults to 10.2.0.0/16."
    )
    node_cidr: str = Field(
        default="10.0.0.0/24", max_length=18, description="CIDR range of nodes. Defaults to 10.0.0.0/24."
    )


class GKEGPU(Model):
    """GPUs of the nodes."""

    accelerator_type: str = Field(min_length=1, max_length=63, description="Accelerator type of each node.")
    accelerator_count: int = Field(
        default=1, ge=1, le=16, description="Number of accelerators per node. Defaults to 1."
    )


class GKENodePool(GKEPoolSettings):
    """Pool of nodes of the same machine type. Node counts are per zone."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        requires(("GK-1",), "role", "GPU", "gpu"),
        requires(("GK-2",), "role", "GPU", "zones"),
        node_count_rule("GK-3"),
        *GKEPoolSettings.RULES,
    )

    name: PoolName = Field(description="Name of the node pool, and value of the node label modelplane.ai/pool.")
    role: Literal["System", "GPU"] = Field(
        description="Role of the node pool. System runs controllers, and GPU runs engines."
    )
    machine_type: str = Field(min_length=1, max_length=63, description="Compute Engine machine type.")
    disk_size_gb: int = Field(default=100, ge=10, le=65536, description="Size of the boot disk in GB. Defaults to 100.")
    node_count: int = Field(default=1, ge=0, le=1000, description="Initial number of nodes per zone. Defaults to 1.")
    min_node_count: int = Field(
        default=0, ge=0, le=1000, description="Minimum number of nodes per zone for the autoscaler. Defaults to 0."
    )
    max_node_count: int = Field(
        default=8, ge=0, le=1000, description="Maximum number of nodes per zone for the autoscaler. Defaults to 8."
    )
    gpu: GKEGPU | None = Field(default=None, description="GPUs of the nodes. Required for role GPU.")
    zones: list[Zone] | None = Field(
        default=None, min_length=1, max_length=8, description="Zones of the nodes. Required for role GPU."
    )


class GKEClusterSpec(GKEClusterSettings, CloudClusterSpec):
    """Desired state of the cluster."""

    region: str = Field(min_length=1, max_length=32, description="Google Cloud region.")
    project: str | None = Field(
        default=None,
        min_length=6,
        max_length=30,
        description="Google Cloud project. Defaults to the project of the credentials.",
    )
    kubernetes_version: str = Field(
        default="1.35",
        min_length=1,
        max_length=16,
        description="Kubernetes version of the control plane. Defaults to 1.35.",
    )
    credentials: Annotated[Credentials, Hidden()] | None = Field(
        default=None, description="Provider configuration with the credentials for Google Cloud."
    )
    networking: GKENetworking | None = Field(
        default=None, description="Network settings of the cluster. If unset, the defaults of its fields apply."
    )
    node_pools: Annotated[list[GKENodePool], ListMap(("name",))] = Field(
        min_length=1, max_length=9, description="Node pools: up to 8 for engines, and one for controllers."
    )


class GKESecret(Model):
    """Secret that was created in the namespace of the GKECluster."""

    type: Literal["Kubeconfig", "GoogleApplicationCredentials"] = Field(description="Content of the Secret.")
    name: str = Field(max_length=253, description="Name of the Secret.")
    key: str = Field(max_length=253, description="Key in the data of the Secret.")


class GKEClusterStatus(Status):
    """Observed state of the cluster."""

    secrets: list[GKESecret] | None = Field(default=None, description="Secrets that were created for the cluster.")
    cache: CacheStatus | None = Field(default=None, description="Storage for model weights.")


class GKECluster(CloudCluster):
    """Cluster to create on Google Kubernetes Engine (GKE)."""

    KIND: ClassVar[str] = "GKECluster"
    PLURAL: ClassVar[str] = "gkeclusters"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("gke",)
    SYSTEM_MACHINE: ClassVar[Mapping[str, str]] = MappingProxyType({"machineType": "e2-standard-4"})

    spec: GKEClusterSpec = Field(description="Desired state of the cluster.")
    status: GKEClusterStatus | None = Field(default=None, description="Observed state of the cluster.")
