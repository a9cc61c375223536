# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Prices: the Price List API, and the history of spot prices of EC2, with amounts that are made up."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal

from .hooks import Forward, hook
from .wire import Call
from .world import Json, World

_LOCATIONS = {"us-west-2": "US West (Oregon)", "us-east-1": "US East (N. Virginia)"}
_PRICES = {
    ("g6.xlarge", "us-west-2"): "0.8000000000",
    ("g6.xlarge", "us-east-1"): "0.7900000000",
    ("p5.48xlarge", "us-west-2"): "55.1230000000",
}
# What else the list has of an instance type, and what it costs beside an instance as most have it.
_USUAL = {
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "tenancy": "Shared",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
    "licenseModel": "No License required",
}
_OTHERS: tuple[dict[str, str], ...] = (
    {},
    {"operatingSystem": "Windows"},
    {"tenancy": "Dedicated"},
    {"preInstalledSw": "SQL Std"},
    {"capacitystatus": "UnusedCapacityReservation"},
    {"marketoption": "CapacityBlock"},
)
_PAGE = 1
_SPOT = {
    ("g6.xlarge", "us-west-2a"): ("0.310000", "0.300000"),
    ("g6.xlarge", "us-west-2b"): ("0.350000",),
}


@hook("pricing", "GetProducts")
def get_products(_world: World, call: Call, _forward: Forward) -> Json:
    """Products that all filters match, a page each. An entry of the list is JSON in a string."""
    if call.region not in ("us-east-1", "ap-south-1", "eu-central-1"):
        raise Refusal("InvalidParameterException", "There is no such endpoint", 400)
    found = [product for product in _products() if _matches(product["product"]["attributes"], call.parameters)]
    start = int(call.parameters.get("NextToken") or 0)
    more = {"NextToken": str(start + _PAGE)} if start + _PAGE < len(found) else {}
    return {"FormatVersion": "aws_v1", "PriceList": [json.dumps(each) for each in found[start : start + _PAGE]], **more}


def _matches(attributes: Json, asked: Json) -> bool:
    return all(attributes.get(each["Field"]) == each["Value"] for each in asked.get("Filters", []))


def _products() -> list[Json]:
    return [
        _product(
            f"{machine} {region} {number}", {"instanceType": machine, "regionCode": region, **_USUAL, **other}, price
        )
        for (machine, region), price in _PRICES.items()
        for number, other in enumerate(_OTHERS)
    ]


def _product(sku: str, attributes: Json, price: str) -> Json:
    dearer = attributes["operatingSystem"] == "Windows" or attributes["tenancy"] == "Dedicated"
    amount = "99.9900000000" if dearer else price
    return {
        "product": {
            "productFamily": "Compute Instance",
            "attributes": {**attributes, "servicecode": "AmazonEC2", "location": _LOCATIONS[attributes["regionCode"]]},
            "sku": sku,
        },
        "serviceCode": "AmazonEC2",
        "terms": {
            "OnDemand": {
                f"{sku}.JRTCKXETXF": {
                    "priceDimensions": {
                        f"{sku}.JRTCKXETXF.6YS6EN2CT7": {
                            "unit": "Hrs",
                            "endRange": "Inf",
                            "beginRange": "0",
                            "description": f"${amount} per On Demand Linux {attributes['instanceType']} Instance Hour",
                            "appliesTo": [],
                            "rateCode": f"{sku}.JRTCKXETXF.6YS6EN2CT7",
                            "pricePerUnit": {"USD": amount},
                        }
                    },
                    "sku": sku,
                    "effectiveDate": "2026-11-01T00:00:00Z",
                    "offerTermCode": "JRTCKXETXF",
                    "termAttributes": {},
                }
            },
            "Reserved": {},
        },
        "version": "20261101000000",
        "publicationDate": "2026-11-01T00:00:00Z",
    }


@hook("ec2", "DescribeSpotPriceHistory")
def describe_spot_price_history(_world: World, call: Call, _forward: Forward) -> Json:
    """Prices of each zone, the newest not first, a page each."""
    asked = call.parameters
    found = [
        {
            "AvailabilityZone": zone,
            "InstanceType": machine,
            "ProductDescription": "Linux/UNIX",
            "SpotPrice": price,
            "Timestamp": datetime(2026, 11, 1 + day, tzinfo=UTC),
        }
        for (machine, zone), prices in _SPOT.items()
        for day, price in enumerate(prices)
        if machine in asked.get("InstanceTypes", [machine])
        and zone.startswith(call.region)
        and "Linux/UNIX" in asked.get("ProductDescriptions", ["Linux/UNIX"])
    ]
    start = int(asked.get("NextToken") or 0)
    return {
        "SpotPriceHistory": found[start : start + _PAGE],
        "NextToken": str(start + _PAGE) if start + _PAGE < len(found) else "",
    }
