# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Devices of a node, as an InferenceClass declares them and an InferenceCluster publishes them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from ..._pydantic import Field
from ..text import meant_device_memory
from .base import Format, Model, Rule, exactly_one, requires


class AttributeValue(Model):
    """The value of an attribute in the field of its type."""

    string: str | None = Field(default=None, max_length=253, description="Text.")
    version: str | None = Field(default=None, max_length=32, description="Semantic version, such as 9.0.0.")
    bool_: bool | None = Field(default=None, description="True or false.")
    int_: Annotated[int, Format("int64")] | None = Field(default=None, description="Whole number.")


class DeviceAttribute(AttributeValue):
    """A fact about a device, with exactly one typed value."""

    RULES: ClassVar[tuple[Rule, ...]] = (exactly_one(("IK-6",), "string", "version", "bool", "int"),)

    @classmethod
    def hint_of_amount(cls, place: Sequence[str | int], amount: str) -> str:
        """Return the hint for a version with fewer than three parts, such as 8.9, which YAML reads as a number."""
        if place[-1] != "version" or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", amount):
            return ""
        # YAML reads 12.10 as 12.1.
        other = f" (or {amount}0.0, if you wrote {amount}0)" if re.search(r"\.[0-9]$", amount) else ""
        return f"Write {amount}{'.0' * (2 - amount.count('.'))}{other}"


MEMORY = "memory"
"""Name of the capacity that is the memory of a device, with or without a domain."""


def is_memory(capacity: str) -> bool:
    """Return whether a capacity is the memory of a device. `capacity`: its name, or domain/name."""
    return capacity.rpartition("/")[2] == MEMORY


class DeviceCapacity(Model):
    """A quantity that a device offers."""

    @classmethod
    def hint_of_amount(cls, place: Sequence[str | int], amount: str) -> str:
        """Return the hint for memory without a unit, which Kubernetes reads as bytes."""
        if not is_memory(str(place[-2])):
            return ""
        meant = meant_device_memory(amount)
        return f"Write {meant}" if meant else "Add the unit, such as 81559Mi"

    value: str = Field(
        min_length=1, max_length=32, description="Kubernetes quantity, such as 81559Mi: what drivers report as usable."
    )


class PublishedCapacity(Model):
    """A quantity that a device of a cluster offers."""

    value: str = Field(max_length=32, description="Kubernetes quantity.")


class Device(Model):
    """A kind of device on one node, and how many of it there are."""

    NOT_HERE: ClassVar[Mapping[str, str]] = {"deviceClass": "Did you mean deviceClassName?"}
    RULES: ClassVar[tuple[Rule, ...]] = (requires(("IK-7",), "claim", "DRA", "deviceClassName", default=True),)

    name: str = Field(min_length=1, max_length=63, description="Handle, such as gpu or nic.")
    claim: Literal["DRA", "Synthetic"] = Field(
        default="DRA",
        description="DRA: matched by the scheduler and claimed on the cluster. Synthetic: matched, never claimed.",
    )
    driver: str = Field(
        min_length=1, max_length=253, description="DRA driver; the domain of attributes and capacity without one."
    )
    device_class_name: str | None = Field(
        default=None, min_length=1, max_length=253, description="DeviceClass that claims go through."
    )
    count: int = Field(default=1, ge=1, le=64, description="How many of these devices one node has.")
    attributes: dict[str, DeviceAttribute] | None = Field(
        default=None, max_length=32, description="Facts by name, or by domain/name."
    )
    capacity: dict[str, DeviceCapacity] | None = Field(
        default=None, max_length=32, description="Quantities by name, or by domain/name."
    )


class PublishedDevice(Model):
    """A kind of device on the nodes of a pool, as published in the status of its cluster."""

    name: str = Field(max_length=63, description="Handle from the InferenceClass.")
    claim: Literal["DRA", "Synthetic"] | None = Field(default=None, description="DRA (also when absent) or Synthetic.")
    driver: str = Field(max_length=253, description="DRA driver.")
    device_class_name: str | None = Field(default=None, max_length=253, description="DeviceClass for claims.")
    count: int | None = Field(default=None, description="Devices on one node; absent is none.")
    attributes: dict[str, AttributeValue] | None = Field(default=None, max_length=32, description="Facts.")
    capacity: dict[str, PublishedCapacity] | None = Field(default=None, max_length=32, description="Quantities.")
