# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Prices of machine types of Compute Engine, from SKUs of the Cloud Billing Catalog API.

A machine type has no price of its own, but its vCPUs, its memory and its GPUs do. Only the description of a SKU
identifies them, so only families with known descriptions have prices. Local SSDs of a machine type are not part of its
price here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

SERVICE = "6F81-5844-456A"
"""ID of Compute Engine in the catalog."""
_NANOS = Decimal(10) ** 9
# Prefixes of machine types, and the names of their families in descriptions.
_FAMILIES = {
    "a2-": "A2",
    "a3-edgegpu-": "A3",
    "a3-highgpu-": "A3",
    "a3-megagpu-": "A3Plus",
    "g2-": "G2",
}
# Accelerator types, and their names in descriptions. The names differ between regions.
_ACCELERATORS = {
    "nvidia-a100-80gb": ("Nvidia Tesla A100 80GB GPU",),
    "nvidia-h100-80gb": ("Nvidia H100 80GB GPU",),
    "nvidia-h100-mega-80gb": ("Nvidia H100 80GB Mega GPU", "Nvidia H100 80GB Plus GPU", "Nvidia H100 Mega 80GB GPU"),
    "nvidia-l4": ("Nvidia L4 GPU",),
    "nvidia-tesla-a100": ("Nvidia Tesla A100 GPU",),
}
_HOURS, _MEMORY_HOURS = "h", "GiBy.h"
FAMILIES = tuple(f"{prefix}*" for prefix in _FAMILIES)
"""Machine types that have prices."""


class NoPriceError(Exception):
    """A machine type without a price; the message has the reason."""


def family(machine: str) -> str:
    """Return the name of a machine family in SKU descriptions. Raises NoPriceError."""
    family_name = next((name for prefix, name in _FAMILIES.items() if machine.startswith(prefix)), "")
    if not family_name:
        raise NoPriceError(f"the SKUs of its family are not known; those of {', '.join(FAMILIES)} are")
    return family_name


def machine_price(
    machine: Mapping[str, Any], skus: Sequence[Mapping[str, Any]], region: str, currency: str, *, spot: bool
) -> Decimal:
    """Return the hourly price of a machine type. Raises NoPriceError.

    `machine`: in the format of Compute Engine (machineTypes). `skus`: the SKUs of Compute Engine (services.skus.list).
    """
    name = family(str(machine["name"]))
    mark = "Spot Preemptible " if spot else ""
    offered = [sku for sku in skus if region in (sku.get("serviceRegions") or ()) and _is_spot(sku) is spot]
    cores, memory = Decimal(machine["guestCpus"]), Decimal(machine["memoryMb"]) / 1024
    total = cores * _price([f"{mark}{name} Instance Core running in "], offered, _HOURS, currency)
    total += memory * _price([f"{mark}{name} Instance Ram running in "], offered, _MEMORY_HOURS, currency)
    attached = "attached to Spot Preemptible VMs running in " if spot else "running in "
    for accelerator in machine.get("accelerators") or ():
        kind = str(accelerator["guestAcceleratorType"])
        if kind not in _ACCELERATORS:
            raise NoPriceError(f"the SKUs of {kind} are not known")
        beginnings = [f"{description} {attached}" for description in _ACCELERATORS[kind]]
        total += Decimal(accelerator["guestAcceleratorCount"]) * _price(beginnings, offered, _HOURS, currency)
    return total


def has_local_disks(machine: Mapping[str, Any]) -> bool:
    """Return True if a machine type has local SSDs."""
    return bool((machine.get("bundledLocalSsds") or {}).get("partitionCount"))


def _is_spot(sku: Mapping[str, Any]) -> bool | None:
    """Return True for a SKU of Spot machines, False for a SKU of on-demand machines, and None for other SKUs."""
    return {"OnDemand": False, "Preemptible": True}.get((sku.get("category") or {}).get("usageType", ""))


def _price(beginnings: Iterable[str], skus: Iterable[Mapping[str, Any]], unit: str, currency: str) -> Decimal:
    """Return the only price of all SKUs with a description that starts with one of `beginnings`."""
    expected = tuple(beginning.lower() for beginning in beginnings)
    unit_prices = {
        _unit_price(sku, unit, currency) for sku in skus if str(sku.get("description", "")).lower().startswith(expected)
    }
    expected_text = " or ".join(f"{beginning.strip()} …" for beginning in beginnings)
    if len(unit_prices) != 1:
        number = "no SKU" if not unit_prices else "several prices"
        raise NoPriceError(f"the catalogue has {number} for {expected_text}")
    return unit_prices.pop()


def _unit_price(sku: Mapping[str, Any], unit: str, currency: str) -> Decimal:
    """Return the price of a SKU for one unit, from its newest price."""
    what = str(sku.get("description"))
    newest = max(sku.get("pricingInfo") or [{}], key=lambda info: str(info.get("effectiveTime", "")))
    expression = newest.get("pricingExpression") or {}
    rates = expression.get("tieredRates") or []
    if expression.get("usageUnit") != unit or len(rates) != 1:
        raise NoPriceError(f"SKU {what} has no single price for {unit}")
    price = rates[0].get("unitPrice") or {}
    if price.get("currencyCode") != currency:
        raise NoPriceError(f"SKU {what} has no price in {currency}")
    return Decimal(price.get("units") or 0) + Decimal(price.get("nanos") or 0) / _NANOS
