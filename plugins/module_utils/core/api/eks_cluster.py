# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""EKSCluster: cluster to create on Amazon EKS."""

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
    """Network settings of the cluster."""

    vpc_cidr: str = Field(
        default="10.0.0.0/16", max_length=18, description="CIDR range of the VPC. Defaults to 10.0.0.0/16."
    )
    subnet_cidrs: list[Cidr] = Field(
        default_factory=lambda: ["10.0.0.0/20", "10.0.16.0/20", "10.0.32.0/20"],
        min_length=2,
        max_length=6,
        description="CIDR ranges of the public subnets, one per zone. Defaults to 10.0.0.0/20, 10.0.16.0/20 and "
        "10.0.32.0/20.",
    )
    zones: list[Zone] | None = Field(
        default=None,
        min_length=2,
        max_length=6,
        description="Zones of subnetCidrs, in the same order. Defaults to the zones of the node pools, followed by "
        "other zones of the region.",
    )


class EKSGPU(Model):
    """GPUs of the nodes."""

    accelerator_type: str = Field(
        min_length=1,
        max_length=63,
        description="Accelerator type, as the value of a node label. The instance type determines the GPUs.",
    )


class EKSNodePool(EKSPoolSettings):
    """Pool of nodes of the same instance type."""

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

    name: PoolName = Field(description="Name of the node pool, and value of the node label modelplane.ai/pool.")
    role: Literal["System", "GPU"] = Field(
        description="Role of the node pool. System runs controllers, and GPU runs engines."
    )
    instance_type: str = Field(min_length=1, max_length=63, description="EC2 instance type.")
    disk_size_gb: int = Field(default=100, ge=10, le=65536, description="Size of the root disk in GB. Defaults to 100.")
    node_count: int = Field(default=1, ge=0, le=1000, description="Initial number of nodes. Defaults to 1.")
    min_node_count: int = Field(
        default=0, ge=0, le=1000, description="Minimum number of nodes for the autoscaler. Defaults to 0."
    )
    max_node_count: int = Field(
        default=8, ge=0, le=1000, description="Maximum number of nodes for the autoscaler. Defaults to 8."
    )
    gpu: EKSGPU | None = Field(default=None, description="GPUs of the nodes. Required for role GPU.")
    capacity_block: CapacityBlock | None = Field(
        default=None, description="Capacity Block that provides the nodes. If unset, capacityType applies."
    )
    zones: list[Zone] | None = Field(
        default=None, min_length=1, max_length=8, description="Zones of the nodes. Required for role GPU."
    )
    fabric: Literal["None", "EFA"] = Field(
        default="None",
        description="Network fabric of the nodes. EFA adds Elastic Fabric Adapters and their driver. Defaults to None.",
    )


class EKSClusterSpec(EKSClusterSettings, CloudClusterSpec):
    """Desired state of the cluster."""

    region: str = Field(min_length=1, max_length=32, description="AWS region.")
    kubernetes_version: str = Field(
        default="1.36",
        min_length=1,
        max_length=16,
        description="Kubernetes version of the control plane. Defaults to 1.36.",
    )
    credentials: Annotated[Credentials, Hidden()] | None = Field(
        default=None, description="Provider configuration with the credentials for AWS."
    )
    networking: EKSNetworking | None = Field(
        default=None, description="Network settings of the cluster. If unset, the defaults of its fields apply."
    )
    node_pools: Annotated[list[EKSNodePool], ListMap(("name",))] = Field(
        min_length=1, max_length=9, description="Node pools: up to 8 for engines, and one for controllers."
    )


class EKSSecret(Model):
    """Secret that was created in the namespace of the EKSCluster."""

    type: Literal["Kubeconfig"] = Field(description="Content of the Secret.")
    name: str = Field(max_length=253, description="Name of the Secret.")
    key: str = Field(max_length=253, description="Key in the data of the Secret.")


class EKSClusterStatus(Status):
    """Observed state of the cluster."""

    secrets: list[EKSSecret] | None = Field(default=None, description="Secrets that were created for the cluster.")
    cache: CacheStatus | None = Field(default=None, description="Storage for model weights.")


class EKSCluster(CloudCluster):
    """Cluster to create on Amazon Elastic Kubernetes Service (EKS)."""

    KIND: ClassVar[str] = "EKSCluster"
    PLURAL: ClassVar[str] = "eksclusters"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("eks",)
    SYSTEM_MACHINE: ClassVar[Mapping[str, str]] = MappingProxyType({"instanceType": "m6i.xlarge"})

    spec: EKSClusterSpec = Field(description="Desired state of the cluster.")
    status: EKSClusterStatus | None = Field(default=None, description="Observed state of the cluster.")
