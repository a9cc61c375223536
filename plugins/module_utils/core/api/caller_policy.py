# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""CallerPolicy: access of clients to ModelServices through Model gateways, and their budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from ..._pydantic import Field
from .base import DNSLabel, ListMap, Model, Rule, Violation, Words, has, other_than, without
from .meta import LabelSelector
from .pricing import Amount, Currency
from .resource import Resource, Spec, Status, name_rule

EVERY_CALLER = "*"
TokenValue = Annotated[
    str,
    Words("must be the value of a claim: visible ASCII without quotes, backslashes and spaces"),
    Field(min_length=1, max_length=253, pattern=r"^[!#-&(-\[\]-~]+$"),
]
# The rate limit service of Envoy has limits of 32 bits (requests_per_unit).
MOST = 2**32 - 1
"""Maximum limit of the rate limit service."""


class Caller(Model):
    """Client by the name of its API key, or all clients."""

    name: Annotated[
        str,
        Words(
            "must be the name of a key in a Secret (letters, digits, '-', '_', '.'; no dot alone, no two first), or '*'"
        ),
    ] = Field(
        min_length=1,
        max_length=253,
        # Same characters as in keys of Secrets (IsConfigMapKey of apimachinery).
        pattern=r"^([*]|\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*)$",
        description="Name of the API key, which is a key in the data of a Secret. `*` selects all clients with an API "
        "key or a token.",
    )


_COST_FIELDS = ("amount", "currency")
_IS_COST = "self.unit == 'Cost'"


def _limit_of_unit(budget: Any) -> list[Violation] | bool:
    is_cost = budget.unit == "Cost"
    required = _COST_FIELDS if is_cost else ("limit",)
    refused = ("limit",) if is_cost else _COST_FIELDS
    hint = 'Write amount: "50.00" and currency: USD for unit Cost, or limit for other units'
    missing = [Violation((field,), f"is required for unit {budget.unit}", hint=hint) for field in required]
    missing = [violation for violation in missing if getattr(budget, str(violation.path[0])) is None]
    extra = [field for field in refused if getattr(budget, field) is not None]
    return [
        *missing,
        *(Violation((field,), f"is not allowed for unit {budget.unit}", hint=hint) for field in extra),
    ] or True


class Budget(Model):
    """Token, request or cost budget: a quota per window."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("CP-4",),
            message="a budget with unit Cost requires amount and currency, and other budgets require limit",
            cel=f"{_IS_COST} ? (has(self.amount) && has(self.currency) && !has(self.limit)) : "
            "(has(self.limit) && !has(self.amount) && !has(self.currency))",
            check=_limit_of_unit,
            schema={
                "if": has("unit", "Cost"),
                "then": {"required": list(_COST_FIELDS), **without("limit")},
                "else": {"required": ["limit"], **without(*_COST_FIELDS)},
            },
        ),
        Rule(
            ids=("CP-5",),
            message="amount must be more than 0",
            cel="!has(self.amount) || self.amount.matches('[1-9]')",
            check=lambda budget: budget.amount is None or any(digit in budget.amount for digit in "123456789"),
            schema={"properties": {"amount": {"pattern": "[1-9]"}}},
        ),
    )

    @classmethod
    def hint_of_null(cls, field: str, _content: Mapping[str, Any]) -> str:
        """Return the hint for a `scope` without a value. Empty for other fields."""
        return "Write Policy or Caller, or remove it for a budget of each caller" if field == "scope" else ""

    name: DNSLabel = Field(description="Name of the budget. Must be unique in the policy.")
    unit: Literal["Tokens", "InputTokens", "OutputTokens", "Requests", "Cost"] = Field(
        description="Unit of the budget. Requests are counted on arrival. Tokens are counted at the end of a response, "
        "as the engine or provider reports them. Cost is the cost of these tokens at the model prices in the price "
        "catalog. The tokens of a stream are not counted if its client disconnects early. Add a budget with unit "
        "Requests to limit such streams."
    )
    limit: int | None = Field(
        default=None,
        ge=1,
        le=MOST,
        description="Maximum number of requests or tokens per window. Required, except for unit Cost.",
    )
    amount: Amount | None = Field(
        default=None, description="Maximum cost per window, as a string. Required for unit Cost."
    )
    currency: Currency | None = Field(
        default=None, description="Currency of the amount. Must be the currency of the price catalog."
    )
    per: Literal["Minute", "Hour", "Day", "Month"] = Field(
        description="Window of the budget. Windows are fixed, and start for all clients at full minutes, hours and "
        "days of UTC. A Month is a window of 30 days, counted from 1970-01-01, and not a calendar month."
    )
    scope: Literal["Caller", "Policy"] = Field(
        default="Caller",
        description="Scope of the budget. With Caller, each client has the whole budget. With Policy, all clients of "
        "the policy share the budget. Defaults to Caller.",
    )
    when_spent: Literal["Refuse", "Overflow"] = Field(
        default="Refuse",
        description="Action when the budget is exhausted. Refuse rejects requests with status 429 until the window "
        "ends. Overflow routes requests to endpoints of the next priority, where the budget does not count them. A "
        "service without such endpoints rejects them with status 429. Defaults to Refuse.",
    )
    when_unavailable: Literal["Refuse", "Allow"] = Field(
        default="Refuse",
        description="Action if usage cannot be counted. Refuse rejects requests, and Allow accepts them without "
        "counting. Defaults to Refuse.",
    )

    @property
    def quantity(self) -> Decimal:
        """Limit or amount of the budget."""
        return Decimal(self.amount) if self.amount else Decimal(self.limit or 0)


_HINTS_OF_NULLS = {
    "services": "Write matchLabels, or remove it to select all ModelServices of the namespace",
    "budgets": "Write budgets, or remove it for no limit",
}


class CallerPolicySpec(Spec):
    """Desired state of the policy."""

    @classmethod
    def hint_of_null(cls, field: str, _content: Mapping[str, Any]) -> str:
        """Return the hint for a field without a value that restricts clients. Empty for other fields."""
        return _HINTS_OF_NULLS.get(field, "")

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("CP-1",),
            message="callers, callerSelector, subjects or groups must be set",
            cel="has(self.callers) || has(self.callerSelector) || has(self.subjects) || has(self.groups)",
            check=lambda spec: (
                any(clients is not None for clients in (spec.callers, spec.caller_selector, spec.subjects, spec.groups))
                or [Violation(("callers",), "is required, or callerSelector, subjects or groups instead")]
            ),
            hint='Add callers: [{name: "*"}] for every client with an API key or a token',
            schema={"anyOf": [{"required": [field]} for field in ("callers", "callerSelector", "subjects", "groups")]},
        ),
        Rule(
            ids=("CP-2",),
            message=f"callers must not contain '{EVERY_CALLER}' together with names",
            cel=f"!has(self.callers) || self.callers.size() == 1 || "
            f"!self.callers.exists(c, c.name == '{EVERY_CALLER}')",
            check=lambda spec: (
                len(spec.callers or ()) <= 1 or all(caller.name != EVERY_CALLER for caller in spec.callers)
            ),
            hint=f"Remove '{EVERY_CALLER}', or all others",
            schema={
                "properties": {
                    "callers": {
                        "anyOf": [
                            {"maxItems": 1},
                            {"items": {"properties": {"name": other_than(f"[{EVERY_CALLER}]")}}},
                        ]
                    }
                }
            },
        ),
    )

    services: LabelSelector | None = Field(
        default=None,
        description="Label selector for the ModelServices in the namespace. If unset, selects all ModelServices.",
    )
    callers: Annotated[list[Caller], ListMap(("name",))] | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="Clients that can call the services, by the name of their API key.",
    )
    caller_selector: LabelSelector | None = Field(
        default=None,
        description="Label selector for Secrets with API keys. Clients with these API keys can call the services.",
    )
    subjects: list[TokenValue] | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="Values of the callerClaim of tokens whose clients can call the services.",
    )
    groups: list[TokenValue] | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="Groups in the groupsClaim of tokens. Clients in at least one group can call the services.",
    )
    budgets: Annotated[list[Budget], ListMap(("name",))] | None = Field(
        default=None,
        max_length=8,
        description="Token, request and cost budgets of the clients. All budgets apply. If unset, usage is not "
        "limited.",
    )


class BudgetUse(Model):
    """Usage of a budget at a gateway."""

    gateway: str = Field(description="InferenceGateway of the counter. Each gateway has separate counters.")
    caller: str | None = Field(
        default=None, description="Name of the client. Unset for a budget that all clients share."
    )
    used: int = Field(
        ge=0,
        description="Usage in the current window. It does not include usage above the limit by the response that "
        "exhausts the budget. While an API key is rotated, usage is the sum of both keys, each of which has the whole "
        "limit.",
    )
    spent: str | None = Field(default=None, description="Cost in the current window, for unit Cost.")


class BudgetStatus(Model):
    """Usage of a budget."""

    name: str = Field(description="Name of the budget.")
    unit: str = Field(description="Unit of the budget.")
    limit: int = Field(description="Limit per window, in requests, tokens, or budget units for unit Cost.")
    amount: str | None = Field(default=None, description="Maximum cost per window, for unit Cost.")
    currency: str | None = Field(default=None, description="Currency of the amount.")
    per: str = Field(description="Length of the window.")
    use: list[BudgetUse] = Field(description="Usage at each gateway, highest usage first.")
    more_callers: int | None = Field(
        default=None, description="Number of clients with less usage that are not listed. If unset, all are listed."
    )
    resets_at: str | None = Field(default=None, description="End of the current window, when the budget resets.")


class CallerPolicyStatus(Status):
    """Observed state of the policy."""

    budgets: Annotated[list[BudgetStatus], ListMap(("name",))] | None = Field(
        default=None, description="Usage of the budgets that gateways report."
    )


class CallerPolicy(Resource):
    """Access of clients to ModelServices in the namespace through Model gateways, with budgets.

    A service that at least one policy selects accepts only the clients of its policies.
    """

    RULES: ClassVar[tuple[Rule, ...]] = (name_rule("CP-3", label=False),)

    KIND: ClassVar[str] = "CallerPolicy"
    PLURAL: ClassVar[str] = "callerpolicies"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("cp",)

    spec: CallerPolicySpec = Field(description="Desired state of the policy.")
    status: CallerPolicyStatus | None = Field(default=None, description="Observed state of the policy.")

    @property
    def named_callers(self) -> Sequence[str]:
        """Names of clients in `callers`, except `*`."""
        return [caller.name for caller in self.spec.callers or () if caller.name != EVERY_CALLER]

    @property
    def is_for_everyone(self) -> bool:
        """Return whether the policy selects all clients."""
        return any(caller.name == EVERY_CALLER for caller in self.spec.callers or ())
