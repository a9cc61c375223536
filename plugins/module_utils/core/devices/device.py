# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""One kind of device on a node, as an entry of an InferenceClass or of a published pool."""

# A bool is an int for isinstance. pylint: disable=unidiomatic-typecheck

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

from .quantity import MAX_INT64, MIN_INT64, Quantity, QuantityError
from .semver import Semver, SemverError

Attribute = str | int | bool | Semver  # pylint: disable=unsupported-binary-operation

_KINDS = ("string", "bool", "int", "version")


class _InvalidDeviceError(ValueError):
    """Invalid value of a device. This error does not leave the module."""


@dataclass(frozen=True, eq=False)
class Device:
    """Kind of device.

    attributes, capacity: values by `domain/id`.
    count: number of devices on a node.
    invalid: reason why Kubernetes would not accept the device, otherwise empty. No selector matches an invalid device.
        The valid fields of the device are still displayed.
    architecture: processor architecture of the node, a value of kubernetes.io/arch. Empty if unknown.
    """

    name: str
    driver: str
    claim: Literal["DRA", "Synthetic"] = "DRA"
    device_class_name: str | None = None
    count: int = 0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    invalid: str = ""
    architecture: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", MappingProxyType(dict(self.attributes)))
        object.__setattr__(self, "capacity", MappingProxyType(dict(self.capacity)))

    @staticmethod
    def from_wire(wire: Mapping[str, Any]) -> Device:
        """Read an entry of `InferenceClass.spec.devices[]` or `InferenceCluster.status.gpuPools[].devices[]`.

        The domain of an attribute or capacity key without a domain is the driver. A missing `claim` is DRA, and a
        missing or negative `count` is 0. A value that Kubernetes would not accept (invalid version, invalid quantity,
        not exactly one value) makes the device `invalid`, without an error. The scheduler adds the key `architecture`.
        """
        driver = str(wire.get("driver") or "")
        reasons: list[str] = []
        attributes = _qualified(wire.get("attributes"), driver, "attribute", _attribute, reasons)
        capacity = _qualified(wire.get("capacity"), driver, "capacity", _quantity, reasons)
        count = wire.get("count")
        return Device(
            name=str(wire.get("name") or ""),
            driver=driver,
            claim="Synthetic" if wire.get("claim") == "Synthetic" else "DRA",
            device_class_name=wire.get("deviceClassName"),
            count=max(count, 0) if isinstance(count, int) else 0,
            attributes=attributes,
            capacity=capacity,
            invalid="; ".join(reasons),
            architecture=str(wire.get("architecture") or ""),
        )

    @cached_property
    def _identity(self) -> tuple[object, ...]:
        # Types and texts, not only values: True equals 1 in Python, and 1Gi equals 1024Mi, but selectors distinguish
        # them.
        return (
            self.name,
            self.driver,
            self.claim,
            self.device_class_name,
            self.count,
            tuple(sorted((key, type(value).__name__, str(value)) for key, value in self.attributes.items())),
            tuple(sorted((key, str(value)) for key, value in self.capacity.items())),
            self.invalid,
            self.architecture,
        )

    @cached_property
    def _hash(self) -> int:
        return hash(self._identity)

    def __eq__(self, other: object) -> bool:
        return self._identity == other._identity if isinstance(other, Device) else NotImplemented

    def __hash__(self) -> int:
        return self._hash


def split_name(qualified: str, driver: str) -> tuple[str, str]:
    """Return the domain and id of an attribute or capacity name. The driver is the default domain (KEP-4381)."""
    domain, slash, identifier = qualified.partition("/")
    return (domain, identifier) if slash else (driver, qualified)


def _qualified(wire: Any, driver: str, what: str, read: Any, reasons: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, raw in (wire or {}).items():
        key = "/".join(split_name(str(name), driver))
        if key in values:
            reasons.append(f"{what} {key} is given twice")
            continue
        try:
            values[key] = read(raw)
        except (_InvalidDeviceError, QuantityError, SemverError) as error:
            reasons.append(f"{what} {key}: {error}")
    return values


def _attribute(raw: Any) -> Attribute:
    typed_values = {kind: raw[kind] for kind in _KINDS if raw.get(kind) is not None} if isinstance(raw, Mapping) else {}
    if len(typed_values) != 1:
        raise _InvalidDeviceError(f"needs exactly one of {', '.join(_KINDS)}")
    kind, value = next(iter(typed_values.items()))
    if kind == "version" and isinstance(value, str):
        return Semver.parse(value)
    desired = {"string": str, "bool": bool, "int": int}.get(kind)
    if type(value) is not desired or not isinstance(value, str | bool | int):
        raise _InvalidDeviceError(f"{value!r} is no {kind}")
    if isinstance(value, int) and not MIN_INT64 <= value <= MAX_INT64:
        raise _InvalidDeviceError(f"{value} does not fit in 64 bits")
    return value


def _quantity(raw: Any) -> Quantity:
    value = raw.get("value") if isinstance(raw, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _InvalidDeviceError("needs a value that is a quantity")
    return Quantity.parse(str(value).strip())
