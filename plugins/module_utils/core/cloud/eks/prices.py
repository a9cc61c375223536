# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Prices of EC2: the filters of the queries, and the prices in GetProducts and DescribeSpotPriceHistory responses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from .regions import partition

SERVICE_CODE = "AmazonEC2"
PLATFORM = "Linux/UNIX"
_HOURS = "Hrs"
# On-Demand and without software at extra cost: all other products of an instance type have different attributes.
_ATTRIBUTES = {
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "tenancy": "Shared",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}


def endpoint_region(region: str) -> str:
    """Return the region of the Price List API endpoint for a region."""
    return "cn-northwest-1" if partition(region) == "aws-cn" else "us-east-1"


def currency(region: str) -> str:
    """Return the currency of listed prices in a region."""
    return "CNY" if partition(region) == "aws-cn" else "USD"


def filters(machine: str, region: str) -> list[dict[str, str]]:
    """Return the filters of GetProducts for an instance type in a region."""
    attributes = {"instanceType": machine, "regionCode": region, **_ATTRIBUTES}
    return [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in attributes.items()]


def on_demand(products: Iterable[str | Mapping[str, Any]], region: str) -> set[Decimal]:
    """Return the hourly prices of entries of a `PriceList`.

    Only On-Demand terms count. Prices of zero do not count, because an instance in a reservation has a price of zero.
    """
    hourly_prices = set()
    for product in products:
        read = json.loads(product) if isinstance(product, str) else product
        for term in (read.get("terms", {}).get("OnDemand") or {}).values():
            for dimension in (term.get("priceDimensions") or {}).values():
                text = (dimension.get("pricePerUnit") or {}).get(currency(region))
                if dimension.get("unit") == _HOURS and text and Decimal(text):
                    hourly_prices.add(Decimal(text))
    return hourly_prices


def newest_spot(history: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Decimal]:
    """Return the newest spot price of each instance type in each zone."""
    newest_prices: dict[tuple[str, str], tuple[Any, Decimal]] = {}
    for entry in history:
        key = (entry["InstanceType"], entry["AvailabilityZone"])
        if key not in newest_prices or newest_prices[key][0] < entry["Timestamp"]:
            newest_prices[key] = (entry["Timestamp"], Decimal(entry["SpotPrice"]))
    return {key: price for key, (__, price) in newest_prices.items()}
