# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Devices of a node in an InferenceClass, and in the status of an InferenceCluster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from ..._pydantic import Field
from ..text import meant_device_memory
from .base import Format, Model, Rule, exactly_one, requires


class AttributeValue(Model):
    """Value of an attribute, in the field of its type."""

    string: str | None = Field(default=None, max_length=253, description="Text value.")
    version: str | None = Field(
        default=None, max_length=32, description="Semantic version (semver.org), such as 9.0.0."
    )
    bool_: bool | None = Field(default=None, description="Boolean value.")
    int_: Annotated[int, Format("int64")] | None = Field(default=None, description="Integer value.")


class DeviceAttribute(AttributeValue):
    """Attribute of a device. Exactly one value must be set."""

    RULES: ClassVar[tuple[Rule, ...]] = (exactly_one(("IK-6",), "string", "version", "bool", "int"),)

    @classmethod
    def hint_of_amount(cls, path: Sequence[str | int], amount: str) -> str:
        """Return the hint for a version with fewer than three numbers, such as 8.9, which YAML reads as a number."""
        if path[-1] != "version" or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", amount):
            return ""
        # YAML reads 12.10 as 12.1.
        alternative = f" (or {amount}0.0, if you wrote {amount}0)" if re.search(r"\.[0-9]$", amount) else ""
        return f"Write {amount}{'.0' * (2 - amount.count('.'))}{alternative}"


MEMORY = "memory"
"""Name of the capacity with the memory of a device, without its domain."""


def is_memory(capacity: str) -> bool:
    """Return whether a capacity is the memory of a device. `capacity`: its name, with an optional domain."""
    return capacity.rpartition("/")[2] == MEMORY


class DeviceCapacity(Model):
    """Capacity of a device."""

    @classmethod
    def hint_of_amount(cls, path: Sequence[str | int], amount: str) -> str:
        """Return the hint for memory without a unit, which Kubernetes reads as bytes."""
        if not is_memory(str(path[-2])):
            return ""
        quantity = meant_device_memory(amount)
        return f"Write {quantity}" if quantity else "Add the unit, such as 81559Mi"

    value: str = Field(
        min_length=1,
        max_length=32,
        description="Quantity of the capacity, such as 81559Mi. Use the value that the driver reports.",
    )


class PublishedCapacity(Model):
    """Capacity of a device."""

    value: str = Field(max_length=32, description="Quantity of the capacity.")


class Device(Model):
    """Type of device on a node, with its count."""

    NOT_HERE: ClassVar[Mapping[str, str]] = {"deviceClass": "Did you mean deviceClassName?"}
    RULES: ClassVar[tuple[Rule, ...]] = (requires(("IK-7",), "claim", "DRA", "deviceClassName", default=True),)

    name: str = Field(min_length=1, max_length=63, description="Name of the device in the class, such as gpu or nic.")
    claim: Literal["DRA", "Synthetic"] = Field(
        default="DRA",
        description="Whether pods claim the device. DRA devices are claimed with Dynamic Resource Allocation. "
        "Synthetic devices only match selectors, and are never claimed. Defaults to DRA.",
    )
    driver: str = Field(
        min_length=1,
        max_length=253,
        description="Name of the DRA driver. It is the domain of attributes and capacities without a domain.",
    )
    device_class_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description="DeviceClass of claims for the device. Required for claim DRA.",
    )
    count: int = Field(default=1, ge=1, le=64, description="Number of these devices per node. Defaults to 1.")
    attributes: dict[str, DeviceAttribute] | None = Field(
        default=None, max_length=32, description="Attributes of the device, by name or domain/name."
    )
    capacity: dict[str, DeviceCapacity] | None = Field(
        default=None, max_length=32, description="Capacities of the device, by name or domain/name."
    )


class PublishedDevice(Model):
    """Type of device on the nodes of a node pool, in the status of the cluster."""

    name: str = Field(max_length=63, description="Name of the device in the InferenceClass.")
    claim: Literal["DRA", "Synthetic"] | None = Field(
        default=None, description="Whether pods claim the device: DRA or Synthetic. Defaults to DRA."
    )
    driver: str = Field(max_length=253, description="Name of the DRA driver.")
    device_class_name: str | None = Field(
        default=None, max_length=253, description="DeviceClass of claims for the device."
    )
    count: int | None = Field(
        default=None, description="Number of these devices per node. If unset, the nodes have none."
    )
    attributes: dict[str, AttributeValue] | None = Field(
        default=None, max_length=32, description="Attributes of the device."
    )
    capacity: dict[str, PublishedCapacity] | None = Field(
        default=None, max_length=32, description="Capacities of the device."
    )
