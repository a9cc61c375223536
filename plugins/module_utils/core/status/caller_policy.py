# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of a CallerPolicy: how much is used of its budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from .. import api
from ..api.caller_policy import EVERY_CALLER, Budget, BudgetStatus, BudgetUse, CallerPolicyStatus
from ..compose.model_gateway.costs import limit_units, spent
from ..observation import ObservedBudget
from .conditions import Condition, Status, unknown

MOST_CALLERS = 20
"""Callers of a budget that a status lists."""

USE_KNOWN = "UsageKnown"


@dataclass(frozen=True)
class GatewayBudgets:
    """Observed budgets of a policy, by name, at a gateway that routes requests to one of its services."""

    gateway: str
    budgets: Mapping[str, ObservedBudget] = field(default_factory=dict)
    unread: str = ""
    """Reason for unread budgets, empty if they were read."""


def caller_policy(
    policy: api.CallerPolicy, gateways: Sequence[GatewayBudgets], unit: Decimal = Decimal(1)
) -> Status[CallerPolicyStatus]:
    """Return the status of a CallerPolicy. `unit`: amount that gateways count as 1 for budgets with unit Cost."""
    budgets = policy.spec.budgets or ()
    budget_statuses = [_budget(budget, gateways, unit) for budget in budgets]
    return Status((_known(budgets, gateways),), api.construct(CallerPolicyStatus, budgets=budget_statuses or None))


def _known(budgets: Sequence[Budget], gateways: Sequence[GatewayBudgets]) -> Condition:
    if not budgets:
        return Condition(USE_KNOWN, "True", "NoBudgets")
    if not gateways:
        return Condition(
            USE_KNOWN, "False", "NoRoute", "No gateway with keys routes requests to a service of the policy"
        )
    unread = [
        f"InferenceGateway {gateway_budgets.gateway}: {gateway_budgets.unread}"
        for gateway_budgets in gateways
        if gateway_budgets.unread
    ]
    if unread:
        return unknown(USE_KNOWN, "; ".join(unread))
    problems = [
        f"InferenceGateway {gateway_budgets.gateway}, budget {budget.name}: {problem}"
        for gateway_budgets in gateways
        for budget in budgets
        if (problem := _problem(gateway_budgets.budgets.get(budget.name)))
    ]
    if problems:
        return Condition(USE_KNOWN, "False", "NotCounted", "; ".join(problems))
    return Condition(USE_KNOWN, "True", "Counted")


def _problem(seen: ObservedBudget | None) -> str:
    return seen.problem if seen else "its cluster does not have it yet"


def _budget(budget: Budget, gateways: Sequence[GatewayBudgets], unit: Decimal) -> BudgetStatus:
    """Return the use of a budget: the shared counter, or the counters of the callers with the highest use."""
    seen = [
        (gateway_budgets.gateway, budget_use)
        for gateway_budgets in gateways
        if (budget_use := gateway_budgets.budgets.get(budget.name))
    ]
    counted = [(-count, gateway, caller) for gateway, budget_use in seen for caller, count in budget_use.used.items()]
    top_callers = sorted(counted)[:MOST_CALLERS]
    return api.construct(
        BudgetStatus,
        name=budget.name,
        unit=budget.unit,
        limit=limit_units(budget, unit),
        amount=budget.amount,
        currency=budget.currency,
        per=budget.per,
        use=[
            api.construct(
                BudgetUse,
                gateway=gateway,
                caller=None if caller == EVERY_CALLER else caller,
                used=-count,
                spent=spent(-count, unit) if budget.amount else None,
            )
            for count, gateway, caller in top_callers
        ],
        more_callers=len(counted) - len(top_callers) or None,
        resets_at=min((budget_use.resets for __, budget_use in seen if budget_use.resets), default=None),
    )
