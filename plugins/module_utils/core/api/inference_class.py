# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""InferenceClass: devices of a type of node, and settings for cloud nodes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from ..._pydantic import Field
from .base import Column, ListMap, Model, Rule, requires
from .device import Device
from .pricing import Pricing
from .resource import Resource, Spec, Status

_DISK = "Size of the boot disk in GB. Defaults to 100."
_LABELED = "GPUs of each node. Sets only a node label, because the machine type determines the GPUs."


class Accelerator(Model):
    """GPUs of a node. The scheduler uses `spec.devices` instead."""

    type: str = Field(min_length=1, max_length=63, description="Name of the accelerator in the cloud.")
    count: int = Field(ge=1, le=16, description="Number of GPUs per node.")


class GKEProvisioning(Model):
    """GKE settings of the nodes."""

    machine_type: str = Field(min_length=1, description="Compute Engine machine type.")
    disk_size_gb: int = Field(default=100, ge=10, description=_DISK)
    accelerator: Accelerator = Field(description="GPUs to attach to each node.")


class EKSProvisioning(Model):
    """EKS settings of the nodes."""

    instance_type: str = Field(min_length=1, description="EC2 instance type. It determines the GPUs.")
    disk_size_gb: int = Field(default=100, ge=10, description=_DISK)
    accelerator: Accelerator = Field(description=_LABELED)


class AKSProvisioning(Model):
    """AKS settings of the nodes."""

    vm_size: str = Field(min_length=1, description="Azure VM size. It determines the GPUs.")
    disk_size_gb: int = Field(default=100, ge=10, description=_DISK)
    accelerator: Accelerator = Field(description=_LABELED)


class NebiusProvisioning(Model):
    """Nebius settings of the nodes."""

    platform: str = Field(min_length=1, max_length=63, description="Nebius compute platform.")
    preset: str = Field(min_length=1, max_length=63, description="Preset of the platform. It determines the size.")
    disk_size_gb: int = Field(default=100, ge=10, description=_DISK)
    drivers_preset: str = Field(
        default="cuda13.0", min_length=1, max_length=63, description="CUDA driver preset. Defaults to cuda13.0."
    )
    accelerator: Accelerator = Field(description=_LABELED)


class VultrProvisioning(Model):
    """Vultr settings of the nodes."""

    plan: str = Field(min_length=1, max_length=63, description="ID of the Vultr plan. It determines the GPUs.")
    accelerator: Accelerator = Field(description=_LABELED)


class Provisioning(Model):
    """Cloud settings of the nodes."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        requires(("IK-1",), "provider", "GKE", "gke"),
        requires(("IK-2",), "provider", "EKS", "eks"),
        requires(("IK-3",), "provider", "AKS", "aks"),
        requires(("IK-4",), "provider", "Nebius", "nebius"),
        requires(("IK-5",), "provider", "Vultr", "vultr"),
    )

    provider: Literal["GKE", "EKS", "AKS", "Nebius", "Vultr"] = Field(
        description="Cloud provider of the nodes. The field with the name of the provider is required."
    )
    gke: GKEProvisioning | None = Field(default=None, description="GKE settings. Required for provider GKE.")
    eks: EKSProvisioning | None = Field(default=None, description="EKS settings. Required for provider EKS.")
    aks: AKSProvisioning | None = Field(default=None, description="AKS settings. Required for provider AKS.")
    nebius: NebiusProvisioning | None = Field(
        default=None, description="Nebius settings. Required for provider Nebius."
    )
    vultr: VultrProvisioning | None = Field(default=None, description="Vultr settings. Required for provider Vultr.")


class InferenceClassSpec(Spec):
    """Desired state of the class."""

    description: str | None = Field(default=None, description="Human-readable description.")
    provisioning: Provisioning | None = Field(
        default=None, description="Cloud settings of the nodes. If unset, the class describes existing nodes only."
    )
    devices: Annotated[list[Device], ListMap(("name",))] = Field(
        min_length=1, max_length=16, description="Devices of each node. The scheduler matches selectors against them."
    )
    pricing: Pricing | None = Field(default=None, description="Price of a node. If unset, the price catalog applies.")


class InferenceClassStatus(Status):
    """Observed state of the class."""


class InferenceClass(Resource):
    """Type of GPU node: its devices, its price, and its settings in a cloud."""

    KIND: ClassVar[str] = "InferenceClass"
    PLURAL: ClassVar[str] = "inferenceclasses"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("icl",)
    NAMESPACED: ClassVar[bool] = False
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("PROVIDER", ".spec.provisioning.provider"),
        Column("DESCRIPTION", ".spec.description", priority=1),
    )

    spec: InferenceClassSpec = Field(description="Desired state of the class.")
    status: InferenceClassStatus | None = Field(default=None, description="Observed state of the class.")
