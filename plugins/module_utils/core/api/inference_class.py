# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""InferenceClass: what a node has, and how to build one."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from ..._pydantic import Field
from .base import Column, ListMap, Model, Rule, requires
from .device import Device
from .pricing import Pricing
from .resource import Resource, Spec, Status

_DISK = "Size of the boot disk in GB."


class Accelerator(Model):
    """GPUs of a node. The scheduler reads `devices`, not this."""

    type: str = Field(min_length=1, max_length=63, description="Name of the accelerator in the cloud.")
    count: int = Field(ge=1, le=16, description="GPUs of one node.")


class GKEProvisioning(Model):
    """Settings of nodes on GKE."""

    machine_type: str = Field(min_length=1, description="Compute Engine machine type.")
    disk_size_gb: int = Field(default=100, ge=10, description=_DISK)
    accelerator: Accelerator = Field(description="GPUs to attach to each node.")


class EKSProvisioning(Model):
    """Settings of nodes on EKS."""

    instance_type: str = Field(min_length=1, description="EC2 instance type; decides which GPUs there are.")
    disk_size_gb: int = Field(default=100, ge=10, description=_DISK)
    accelerator: Accelerator = Field(description="Note on the GPUs; becomes a node label.")


class AKSProvisioning(Model):
    """Settings of nodes on AKS."""

    vm_size: str = Field(min_length=1, description="Azure VM size; decides which GPUs there are.")
    disk_size_gb: int = Field(default=100, ge=10, description=_DISK)
    accelerator: Accelerator = Field(description="Note on the GPUs; becomes a node label.")


class NebiusProvisioning(Model):
    """Settings of nodes on Nebius."""

    platform: str = Field(min_length=1, max_length=63, description="Compute platform.")
    preset: str = Field(min_length=1, max_length=63, description="Size within the platform.")
    disk_size_gb: int = Field(default=100, ge=10, description=_DISK)
    drivers_preset: str = Field(
        default="cuda13.0", min_length=1, max_length=63, description="CUDA driver bundle on the nodes."
    )
    accelerator: Accelerator = Field(description="Note on the GPUs; becomes a node label.")


class VultrProvisioning(Model):
    """Settings of nodes on Vultr."""

    plan: str = Field(min_length=1, max_length=63, description="ID of the plan; decides which GPUs there are.")
    accelerator: Accelerator = Field(description="Note on the GPUs; becomes a node label.")


class Provisioning(Model):
    """Settings of a pool of such nodes in a cloud."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        requires(("IK-1",), "provider", "GKE", "gke"),
        requires(("IK-2",), "provider", "EKS", "eks"),
        requires(("IK-3",), "provider", "AKS", "aks"),
        requires(("IK-4",), "provider", "Nebius", "nebius"),
        requires(("IK-5",), "provider", "Vultr", "vultr"),
    )

    provider: Literal["GKE", "EKS", "AKS", "Nebius", "Vultr"] = Field(
        description="Cloud; the block of the same name must be given."
    )
    gke: GKEProvisioning | None = Field(default=None, description="How to build nodes on GKE.")
    eks: EKSProvisioning | None = Field(default=None, description="How to build nodes on EKS.")
    aks: AKSProvisioning | None = Field(default=None, description="How to build nodes on AKS.")
    nebius: NebiusProvisioning | None = Field(default=None, description="How to build nodes on Nebius.")
    vultr: VultrProvisioning | None = Field(default=None, description="How to build nodes on Vultr.")


class InferenceClassSpec(Spec):
    """Devices and properties of a node."""

    description: str | None = Field(default=None, description="Text for people.")
    provisioning: Provisioning | None = Field(
        default=None, description="How to build such nodes; absent for hardware that exists already."
    )
    devices: Annotated[list[Device], ListMap(("name",))] = Field(
        min_length=1, max_length=16, description="Devices of one node, which selectors are matched against."
    )
    pricing: Pricing | None = Field(default=None, description="Price of a node. If unset, the price catalog applies.")


class InferenceClassStatus(Status):
    """Observed state of the class."""


class InferenceClass(Resource):
    """Kind of GPU node: which devices it has, and how a cloud builds it."""

    KIND: ClassVar[str] = "InferenceClass"
    PLURAL: ClassVar[str] = "inferenceclasses"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("icl",)
    NAMESPACED: ClassVar[bool] = False
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("PROVIDER", ".spec.provisioning.provider"),
        Column("DESCRIPTION", ".spec.description", priority=1),
    )

    spec: InferenceClassSpec = Field(description="What a node has.")
    status: InferenceClassStatus | None = Field(default=None, description="What is known of the class.")
