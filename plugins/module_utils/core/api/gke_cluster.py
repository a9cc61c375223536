# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""GKECluster: a Kubernetes cluster on Google Cloud."""

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
    """Address ranges of the cluster."""

    pod_cidr: str = Field(default="10.1.0.0/16", max_length=18, description="Range of pods.")
    service_cidr: str = Field(default="10.2.0.0/16", max_length=18, description="Range of services.")
    node_cidr: str = Field(default="10.0.0.0/24", max_length=18, description="Range of nodes.")


class GKEGPU(Model):
    """GPUs of a pool."""

    accelerator_type: str = Field(min_length=1, max_length=63, description="Accelerator to attach to each node.")
    accelerator_count: int = Field(default=1, ge=1, le=16, description="How many to attach to each node.")


class GKENodePool(GKEPoolSettings):
    """A group of equal nodes. Numbers of nodes are for each zone."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        requires(("GK-1",), "role", "GPU", "gpu"),
        requires(("GK-2",), "role", "GPU", "zones"),
        node_count_rule("GK-3"),
        *GKEPoolSettings.RULES,
    )

    name: PoolName = Field(description="Name of the pool; nodes carry it as the label modelplane.ai/pool.")
    role: Literal["System", "GPU"] = Field(description="System runs controllers, GPU runs engines.")
    machine_type: str = Field(min_length=1, max_length=63, description="Compute Engine machine type.")
    disk_size_gb: int = Field(default=100, ge=10, le=65536, description="Size of the boot disk in GB.")
    node_count: int = Field(default=1, ge=0, le=1000, description="Nodes at the start, in each zone.")
    min_node_count: int = Field(default=0, ge=0, le=1000, description="Fewest nodes the autoscaler leaves in a zone.")
    max_node_count: int = Field(default=8, ge=0, le=1000, description="Most nodes the autoscaler makes in a zone.")
    gpu: GKEGPU | None = Field(default=None, description="GPUs; required for role GPU.")
    zones: list[Zone] | None = Field(
        default=None, min_length=1, max_length=8, description="Zones of the nodes; required for role GPU."
    )


class GKEClusterSpec(GKEClusterSettings, CloudClusterSpec):
    """Location and nodes of the cluster."""

    region: str = Field(min_length=1, max_length=32, description="Google Cloud region.")
    project: str | None = Field(
        default=None,
        min_length=6,
        max_length=30,
        description="Google Cloud project; absent is that of the credentials.",
    )
    kubernetes_version: str = Field(
        default="1.35", min_length=1, max_length=16, description="Version of the control plane."
    )
    credentials: Annotated[Credentials, Hidden()] | None = Field(
        default=None, description="Which provider configuration signs calls to Google Cloud."
    )
    networking: GKENetworking | None = Field(default=None, description="Address ranges of the cluster.")
    node_pools: Annotated[list[GKENodePool], ListMap(("name",))] = Field(
        min_length=1, max_length=9, description="Groups of nodes: up to 8 for engines, and one for controllers."
    )


class GKESecret(Model):
    """A Secret that was made, in the cluster object's own namespace."""

    type: Literal["Kubeconfig", "GoogleApplicationCredentials"] = Field(description="What the Secret holds.")
    name: str = Field(max_length=253, description="Name of the Secret.")
    key: str = Field(max_length=253, description="Key in its data.")


class GKEClusterStatus(Status):
    """Observed state of the cluster."""

    secrets: list[GKESecret] | None = Field(default=None, description="Secrets that were made.")
    cache: CacheStatus | None = Field(default=None, description="Storage for model weights.")


class GKECluster(CloudCluster):
    """A Kubernetes cluster on Google Cloud."""

    KIND: ClassVar[str] = "GKECluster"
    PLURAL: ClassVar[str] = "gkeclusters"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("gke",)
    SYSTEM_MACHINE: ClassVar[Mapping[str, str]] = MappingProxyType({"machineType": "e2-standard-4"})

    spec: GKEClusterSpec = Field(description="Where the cluster is and which nodes it has.")
    status: GKEClusterStatus | None = Field(default=None, description="What is known of the cluster.")
