# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Cloud Billing Catalog: SKUs of Compute Engine as its API lists them, with amounts that are made up."""

from __future__ import annotations

from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal

from .operations import serves
from .wire import Call, Json
from .world import World

COMPUTE_ENGINE = "6F81-5844-456A"
# Description, unit, and price of a unit in billionths.
_PRICES = (
    ("G2 Instance Core running in Americas", "h", 25_000_000),
    ("Spot Preemptible G2 Instance Core running in Americas", "h", 10_000_000),
    ("G2 Instance Ram running in Americas", "GiBy.h", 3_000_000),
    ("Spot Preemptible G2 Instance Ram running in Americas", "GiBy.h", 1_000_000),
    ("Nvidia L4 GPU running in Americas", "h", 560_000_001),
    ("Nvidia L4 GPU attached to Spot Preemptible VMs running in Americas", "h", 224_000_000),
    ("A3 Instance Core running in Americas", "h", 29_000_000),
    ("A3 Instance Ram running in Americas", "GiBy.h", 2_500_000),
    ("Nvidia H100 80GB GPU running in Americas", "h", 9_796_550_569),
    # Others that are alike, and are not meant.
    ("G2 Custom Instance Core running in Americas", "h", 99_000_000),
    ("G2 Instance Core running in Frankfurt", "h", 32_000_000),
    ("Commitment v1: Nvidia L4 GPU running in Americas for 1 Year", "h", 1_000_000),
    ("Nvidia L4 Virtual Workstation GPU running in Americas", "h", 999_000_000),
)
_REGIONS = {"Americas": ["us-central1", "us-west1"], "Frankfurt": ["europe-west3"]}
_PAGE = 5


@serves("cloudbilling", "services.skus.list")
def list_skus(_world: World, call: Call) -> Json:
    """In pages that are smaller than asked for, as a list may have."""
    if call.path.split("/")[1] != COMPUTE_ENGINE:
        raise Refusal("NOT_FOUND", "Requested entity was not found.", 404)
    currency = call.parameters.get("currencyCode", "USD")
    skus = [_sku(number, *each, currency) for number, each in enumerate(_PRICES)]
    start = int(call.parameters.get("pageToken") or 0)
    return {
        "skus": skus[start : start + _PAGE],
        "nextPageToken": str(start + _PAGE) if start + _PAGE < len(skus) else "",
    }


def _sku(number: int, description: str, unit: str, nanos: int, currency: str) -> Json:
    identifier = f"{number:04X}-0000-0000"
    usage = "Preemptible" if "Spot Preemptible" in description else "OnDemand"
    kind = "RAM" if " Ram " in description else "GPU" if " GPU " in description else "CPU"
    place = next(place for place in _REGIONS if place in description)
    return {
        "name": f"services/{COMPUTE_ENGINE}/skus/{identifier}",
        "skuId": identifier,
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Compute",
            "resourceGroup": kind,
            "usageType": "Commit1Yr" if description.startswith("Commitment") else usage,
        },
        "serviceRegions": _REGIONS[place],
        "pricingInfo": [
            {
                "summary": "",
                "effectiveTime": "2026-11-01T00:00:00.000000Z",
                "pricingExpression": {
                    "usageUnit": unit,
                    "usageUnitDescription": "hour" if unit == "h" else "gibibyte hour",
                    "baseUnit": "s" if unit == "h" else "By.s",
                    "baseUnitDescription": "second" if unit == "h" else "byte second",
                    "baseUnitConversionFactor": 3600,
                    "displayQuantity": 1,
                    "tieredRates": [{"startUsageAmount": 0, "unitPrice": _money(nanos, currency)}],
                },
                "currencyConversionRate": 1,
            }
        ],
        "serviceProviderName": "Google",
        "geoTaxonomy": {"type": "MULTI_REGIONAL" if len(_REGIONS[place]) > 1 else "REGIONAL"},
    }


def _money(nanos: int, currency: str) -> Json:
    return {"currencyCode": currency, "units": str(nanos // 10**9), "nanos": nanos % 10**9}
