# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Prices of machine types: from SKUs of the Cloud Billing Catalog API, and the machine type in Compute Engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from ..cloud.provider import Quoted, Quotes
from ..core.api.pricing import PurchaseOption
from ..core.cloud.gke import prices
from ..core.cloud.machines import Machine
from . import session
from .client import Client

_SOURCE = "Cloud Billing Catalog API: vCPUs, memory and GPUs"
_PAGE = 5000
_OPTIONS: tuple[PurchaseOption, ...] = ("OnDemand", "Spot")


def quotes(module: Any, machines: Sequence[Machine], currency: str) -> Quotes:
    """Return the prices of machine types by region. Raises GoogleError."""
    client = session.client(module)
    project = session.project(module.params)
    query = urlencode({"currencyCode": currency, "pageSize": _PAGE})
    path = f"v1/services/{prices.SERVICE}/skus?{query}"
    quoted_prices: list[Quoted] = []
    missing: list[str] = []
    priced = []
    for machine in machines:
        try:
            prices.family(machine.name)
            priced.append(machine)
        except prices.NoPriceError as error:
            missing.append(f"{machine.name} in {machine.region}: {error}")
    skus = list(client.pages("cloudbilling", path, "skus", "list the prices of Compute Engine")) if priced else []
    for machine in priced:
        described = _described(client, project, machine)
        if described is None:
            missing.append(f"{machine.name} in {machine.region}: no zone of the region has it")
            continue
        source = f"{_SOURCE}; without local SSDs" if prices.has_local_disks(described) else _SOURCE
        for option in _OPTIONS:
            try:
                price = prices.machine_price(described, skus, machine.region, currency, spot=option == "Spot")
                quoted_prices.append(Quoted(machine.name, machine.region, "", option, price, source))
            except prices.NoPriceError as error:
                missing.append(f"{machine.name} in {machine.region}, {option}: {error}")
    return Quotes(tuple(quoted_prices), tuple(missing))


def _described(client: Client, project: str, machine: Machine) -> dict[str, Any] | None:
    """Return the description of a machine type by Compute Engine in a zone of the region."""
    query = urlencode({"filter": f"name={machine.name}"})
    path = f"compute/v1/projects/{project}/aggregated/machineTypes?{query}"
    what = f"read machine type {machine.name}"
    for location, machine_type in client.aggregated(path, "machineTypes", what):
        if location.rpartition("/")[2].rpartition("-")[0] == machine.region:
            return machine_type
    return None
