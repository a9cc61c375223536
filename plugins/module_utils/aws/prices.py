# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Prices of instance types: On-Demand prices from the AWS Price List API, Spot prices from EC2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

from .._aws import AWS_PACKAGE, load_aws
from ..arguments import libraries
from ..cloud import parallel
from ..cloud.provider import Quoted, Quotes
from ..core.cloud.eks import prices
from ..core.cloud.machines import Machine
from . import session
from .errors import AwsError, guarded
from .session import Account

_LIST, _SPOT = "AWS Price List API", "EC2 DescribeSpotPriceHistory"


def quotes(module: Any, machines: Sequence[Machine], currency: str) -> Quotes:
    """Return the prices of instance types: On-Demand prices by region, Spot prices by zone. Raises AwsError."""
    libraries.need(module, late={AWS_PACKAGE: load_aws})
    regions = sorted({machine.region for machine in machines})
    for region in regions:
        if prices.currency(region) != currency:
            raise AwsError(
                f"prices in {region}", f"AWS lists them in {prices.currency(region)}, and the catalogue has {currency}"
            )
    accounts = {name: _account(module.params, name) for name in {*regions, *map(prices.endpoint_region, regions)}}
    work: dict[Any, Any] = {machine_key: partial(_on_demand, accounts, machine_key) for machine_key in machines}
    for region in regions:
        names = [machine.name for machine in machines if machine.region == region]
        work[region] = partial(_spot, accounts[region], names)
    outcome = parallel.at_once({str(number): action for number, action in enumerate(work.values())})
    outcome.check(AwsError)
    answers = dict(zip(work, (outcome.done[str(number)] for number in range(len(work))), strict=True))
    quoted_prices = [
        Quoted(machine.name, machine.region, "", "OnDemand", answers[machine].pop(), _LIST)
        for machine in machines
        if len(answers[machine]) == 1
    ]
    missing = [
        f"{machine.name} in {machine.region}: {_LIST} has {'no price' if not answers[machine] else 'several prices'}"
        for machine in machines
        if not quoted_prices
        or not any(
            machine_key.machine == machine.name and machine_key.region == machine.region
            for machine_key in quoted_prices
        )
    ]
    for region in regions:
        quoted_prices += [
            Quoted(name, "", zone, "Spot", price, _SPOT) for (name, zone), price in sorted(answers[region].items())
        ]
    return Quotes(tuple(quoted_prices), tuple(missing))


def _account(params: Mapping[str, Any], region: str) -> Account:
    return session.from_params({**params, "region": region})


def _on_demand(accounts: Mapping[str, Account], machine: Machine) -> set[Decimal]:
    client = accounts[prices.endpoint_region(machine.region)].client("pricing")
    parameters = {"ServiceCode": prices.SERVICE_CODE, "Filters": prices.filters(machine.name, machine.region)}
    with guarded(f"read the price of {machine.name} in {machine.region}"):
        pages = client.get_paginator("get_products").paginate(**parameters)
        products = [product for page in pages for product in page.get("PriceList") or ()]
    return prices.on_demand(products, machine.region)


def _spot(account: Account, names: Sequence[str]) -> dict[tuple[str, str], Decimal]:
    parameters = {
        "InstanceTypes": sorted(set(names)),
        "ProductDescriptions": [prices.PLATFORM],
        "StartTime": datetime.now(UTC),
    }
    with guarded(f"read spot prices in {account.region}"):
        pages = account.client("ec2").get_paginator("describe_spot_price_history").paginate(**parameters)
        history = [entry for page in pages for entry in page.get("SpotPriceHistory") or ()]
    return prices.newest_spot(history)
