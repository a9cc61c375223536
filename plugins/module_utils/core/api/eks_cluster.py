# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""EKSCluster: a Kubernetes cluster on AWS."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from ..._pydantic import Field
from .base import Hidden, ListMap, Model, Rule, has, requires, without
from .cloud import (
    CacheStatus,
    CapacityBlock,
    Cidr,
    CloudCluster,
    CloudClusterSpec,
    Credentials,
    PoolName,
    Zone,
    node_count_rule,
)
from .eks_settings import EKSClusterSettings, EKSPoolSettings
from .resource import Status


class EKSNetworking(Model):
    """Address ranges of the cluster."""

    vpc_cidr: str = Field(default="10.0.0.0/16", max_length=18, description="Range of the VPC.")
    subnet_cidrs: list[Cidr] = Field(
        default_factory=lambda: ["10.0.0.0/20", "10.0.16.0/20", "10.0.32.0/20"],
        min_length=2,
        max_length=6,
        description="Range of the public subnet in each zone.",
    )
    zones: list[Zone] | None = Field(
        default=None,
        min_length=2,
        max_length=6,
        description="Zone of each range; without, those of the node pools, then others of the region.",
    )


class EKSGPU(Model):
    """GPUs of a pool."""

    accelerator_type: str = Field(
        min_length=1, max_length=63, description="Value of a node label; the instance type decides the hardware."
    )


class EKSNodePool(EKSPoolSettings):
    """A group of equal nodes."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        requires(("EK-1",), "role", "GPU", "gpu"),
        requires(("EK-2",), "role", "GPU", "zones"),
        node_count_rule("EK-3"),
        Rule(
            ids=("EK-4",),
            message="capacityType SPOT and capacityBlock exclude each other",
            cel="!(has(self.capacityBlock) && has(self.capacityType) && self.capacityType == 'SPOT')",
            check=lambda pool: pool.capacity_block is None or pool.capacity_type != "SPOT",
            hint="Remove capacityType",
            schema={"if": has("capacityType", "SPOT"), "then": without("capacityBlock")},
        ),
    )

    name: PoolName = Field(description="Name of the pool; nodes carry it as the label modelplane.ai/pool.")
    role: Literal["System", "GPU"] = Field(description="System runs controllers, GPU runs engines.")
    instance_type: str = Field(min_length=1, max_length=63, description="EC2 instance type.")
    disk_size_gb: int = Field(default=100, ge=10, le=65536, description="Size of the root disk in GB.")
    node_count: int = Field(default=1, ge=0, le=1000, description="Nodes at the start.")
    min_node_count: int = Field(default=0, ge=0, le=1000, description="Fewest nodes the autoscaler leaves.")
    max_node_count: int = Field(default=8, ge=0, le=1000, description="Most nodes the autoscaler makes.")
    gpu: EKSGPU | None = Field(default=None, description="GPUs; required for role GPU.")
    capacity_block: CapacityBlock | None = Field(default=None, description="Capacity Block to take nodes from.")
    zones: list[Zone] | None = Field(
        default=None, min_length=1, max_length=8, description="Zones of the nodes; required for role GPU."
    )
    fabric: Literal["None", "EFA"] = Field(
        default="None", description="EFA adds fast network interfaces and their driver."
    )


class EKSClusterSpec(EKSClusterSettings, CloudClusterSpec):
    """Location and nodes of the cluster."""

    region: str = Field(min_length=1, max_length=32, description="AWS region.")
    kubernetes_version: str = Field(
        default="1.36", min_length=1, max_length=16, description="Version of the control plane."
    )
    credentials: Annotated[Credentials, Hidden()] | None = Field(
        default=None, description="Which provider configuration signs calls to AWS."
    )
    networking: EKSNetworking | None = Field(default=None, description="Address ranges of the cluster.")
    node_pools: Annotated[list[EKSNodePool], ListMap(("name",))] = Field(
        min_length=1, max_length=9, description="Groups of nodes: up to 8 for engines, and one for controllers."
    )


class EKSSecret(Model):
    """A Secret that was made, in the cluster object's own namespace."""

    type: Literal["Kubeconfig"] = Field(description="What the Secret holds.")
    name: str = Field(max_length=253, description="Name of the Secret.")
    key: str = Field(max_length=253, description="Key in its data.")


class EKSClusterStatus(Status):
    """Observed state of the cluster."""

    secrets: list[EKSSecret] | None = Field(default=None, description="Secrets that were made.")
    cache: CacheStatus | None = Field(default=None, description="Storage for model weights.")


class EKSCluster(CloudCluster):
    """A Kubernetes cluster on AWS."""

    KIND: ClassVar[str] = "EKSCluster"
    PLURAL: ClassVar[str] = "eksclusters"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("eks",)
    SYSTEM_MACHINE: ClassVar[Mapping[str, str]] = MappingProxyType({"instanceType": "m6i.xlarge"})

    spec: EKSClusterSpec = Field(description="Where the cluster is and which nodes it has.")
    status: EKSClusterStatus | None = Field(default=None, description="What is known of the cluster.")
