# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Model prices for budgets with unit Cost, and problems with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal

from .. import api
from ..api.caller_policy import MOST, Budget
from ..compose.model_gateway.costs import ServicePrices, least_unit, limit_units, most_amount
from ..compose.model_gateway.selection import PolicySelection
from ..pricing import Catalogue, PricingError
from ..problem import Problem
from ..text import nearest, some
from .context import Context

_CATALOGUE = "the file that fleet_prices names"


def service_prices(context: Context, service: api.ModelService) -> ServicePrices | None:
    """Return the model prices of a service with a budget in unit Cost, or None for other services."""
    catalogue = context.catalogue
    policies = context.selection.policies(service)
    if catalogue is None or not any(_costs(policy) for policy in policies):
        return None
    prices = catalogue.model_prices(service.model_name, _entries(service))
    return ServicePrices(prices, Decimal(catalogue.budget_unit)) if prices else None


def check_budgets(context: Context) -> None:
    """Raise PricingError for budgets of unit Cost that cannot be counted by the price catalog."""
    if problems := _budget_problems(context.fleet.policies.values(), context.selection, context.catalogue):
        raise PricingError(problems)


def budget_problems(resources: Iterable[api.Resource], catalogue: Catalogue | None) -> list[Problem]:
    """Return the problems of budgets of unit Cost that cannot be counted by the price catalog."""
    policies = [resource for resource in resources if isinstance(resource, api.CallerPolicy)]
    if not any(map(_costs, policies)):
        return []
    services = [resource for resource in resources if isinstance(resource, api.ModelService)]
    return _budget_problems(policies, PolicySelection(policies, services), catalogue)


def _budget_problems(
    policies: Iterable[api.CallerPolicy], selection: PolicySelection, catalogue: Catalogue | None
) -> list[Problem]:
    return [
        replace(problem, ref=policy.ref)
        for policy in sorted(policies, key=lambda policy: (policy.namespace, policy.name))
        for index, budget in _costs(policy)
        for problem in _problems(selection.services(policy), catalogue, f"spec.budgets[{index}]", budget)
    ]


def unpriced_entries(context: Context) -> Iterator[str]:
    """Yield warnings about endpoint entries without a price. The highest price applies to them."""
    for __, service in sorted(context.fleet.services.items()):
        prices = service_prices(context, service)
        missing = [name for name in _entries(service) if prices and name not in prices.entries]
        if missing:
            yield (
                f"{service.ref}: the price catalog has no price for endpoints {some(missing)}: budgets with unit Cost "
                "use the highest price of the service for them. Add entries with model: "
                f"{service.model_name} and endpoint to models in {_CATALOGUE}"
            )


def _entries(service: api.ModelService) -> list[str]:
    return [entry.name or "" for entry in service.spec.endpoints]


def _costs(policy: api.CallerPolicy) -> list[tuple[int, Budget]]:
    return [(index, budget) for index, budget in enumerate(policy.spec.budgets or ()) if budget.unit == "Cost"]


def _problems(
    services: Iterable[api.ModelService], catalogue: Catalogue | None, path: str, budget: Budget
) -> Iterator[Problem]:
    if catalogue is None:
        hint = "Set fleet_prices to a price catalog with model prices (docs/cost.md)"
        yield Problem("requires model prices, but the fleet has no price catalog", f"{path}.unit", budget.unit, hint)
        return
    unit = Decimal(catalogue.budget_unit)
    if budget.currency != catalogue.currency:
        message = f"is not the currency of the price catalog, which is {catalogue.currency}"
        yield Problem(message, f"{path}.currency", budget.currency or "", "Convert the amount, or the prices")
    if not 1 <= limit_units(budget, unit) <= MOST:
        message = f"must be from {unit:f} to {most_amount(unit):f}, as gateways count by budgetUnit {unit:f}"
        hint = f"Write another amount or a shorter window, or change budgetUnit in {_CATALOGUE}"
        yield Problem(message, f"{path}.amount", budget.amount or "", hint)
    for service in services:
        prices = catalogue.model_prices(service.model_name, _entries(service))
        if not prices:
            near = nearest(service.model_name, {entry.model for entry in catalogue.models or ()})
            hint = f"Add one to models in {_CATALOGUE}{f', where {near} has one' if near else ''}"
            message = f"is for ModelService {service.model_name}, and the price catalog has no price for this model"
            yield Problem(message, path, hint=hint)
        elif unit < (minimum_unit := least_unit(prices.values())):
            message = (
                f"is for ModelService {service.model_name}, whose requests can cost more than Envoy counts at once"
            )
            yield Problem(message, path, hint=f"Write budgetUnit {minimum_unit:f} or more in {_CATALOGUE}")
