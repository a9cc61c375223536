# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""CallerPolicy: who may call which services through gateways in mode Model, and how much."""

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
# Limits are 32 bits wide in the rate limit service of Envoy (requests_per_unit).
MOST = 2**32 - 1
"""Largest limit that the rate limit service counts."""


class Caller(Model):
    """A caller, or all that have a key."""

    name: Annotated[
        str,
        Words(
            "must be the name of a key in a Secret (letters, digits, '-', '_', '.'; no dot alone, no two first), or '*'"
        ),
    ] = Field(
        min_length=1,
        max_length=253,
        # As Kubernetes wants keys of Secrets (IsConfigMapKey of apimachinery).
        pattern=r"^([*]|\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*)$",
        description="Name of the entry of a Secret that holds the caller's key; `*` is every caller that has one.",
    )


_COST_FIELDS = ("amount", "currency")
_IS_COST = "self.unit == 'Cost'"


def _limit_of_unit(budget: Any) -> list[Violation] | bool:
    is_cost = budget.unit == "Cost"
    required = _COST_FIELDS if is_cost else ("limit",)
    refused = ("limit",) if is_cost else _COST_FIELDS
    hint = 'Write amount: "50.00" and currency: USD for unit Cost, or limit for other units'
    found = [Violation((field,), f"is required for unit {budget.unit}", hint=hint) for field in required]
    found = [each for each in found if getattr(budget, str(each.path[0])) is None]
    given = [field for field in refused if getattr(budget, field) is not None]
    return [
        *found,
        *(Violation((field,), f"is not allowed for unit {budget.unit}", hint=hint) for field in given),
    ] or True


class Budget(Model):
    """Limit of what callers may use in a window of time."""

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
        """Return what to write where the field by which callers share a budget has no value."""
        return "Write Policy or Caller, or remove it for a budget of each caller" if field == "scope" else ""

    name: DNSLabel = Field(description="Name of the budget.")
    unit: Literal["Tokens", "InputTokens", "OutputTokens", "Requests", "Cost"] = Field(
        description="Unit of the budget: requests, tokens that engines and providers report at the end of a response, "
        "or the cost of these tokens at the model prices in the price catalog. Requests are counted on arrival. A "
        "stream is not counted if its client disconnects before the end: add a budget with unit Requests."
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
        description="Window: full minutes, hours and days of UTC, for everyone at once; a Month is 30 days, "
        "counted from 1970-01-01, and no month of the calendar."
    )
    scope: Literal["Caller", "Policy"] = Field(
        default="Caller", description="Caller: each caller has a budget; Policy: all callers share one."
    )
    when_spent: Literal["Refuse", "Overflow"] = Field(
        default="Refuse",
        description="Refuse answers 429 until the window ends; Overflow sends requests to endpoints of the next "
        "priority, which the budget does not count, and answers 429 where a service has none.",
    )
    when_unavailable: Literal["Refuse", "Allow"] = Field(
        default="Refuse", description="What happens to requests while use cannot be counted."
    )

    @property
    def quantity(self) -> Decimal:
        """Limit or amount."""
        return Decimal(self.amount) if self.amount else Decimal(self.limit or 0)


_HINTS_OF_NULLS = {
    "services": "Write matchLabels, or remove it to select all ModelServices of the namespace",
    "budgets": "Write budgets, or remove it for no limit",
}


class CallerPolicySpec(Spec):
    """Callers, services, and how much of them."""

    @classmethod
    def hint_of_null(cls, field: str, _content: Mapping[str, Any]) -> str:
        """Return what to write where a field that restricts callers has no value."""
        return _HINTS_OF_NULLS.get(field, "")

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("CP-1",),
            message="callers, callerSelector, subjects or groups must be set",
            cel="has(self.callers) || has(self.callerSelector) || has(self.subjects) || has(self.groups)",
            check=lambda spec: (
                any(each is not None for each in (spec.callers, spec.caller_selector, spec.subjects, spec.groups))
                or [Violation(("callers",), "is required, or callerSelector, subjects or groups instead")]
            ),
            hint='Add callers: [{name: "*"}] for every client with an API key or a token',
            schema={"anyOf": [{"required": [field]} for field in ("callers", "callerSelector", "subjects", "groups")]},
        ),
        Rule(
            ids=("CP-2",),
            message=f"callers must be names, or '{EVERY_CALLER}' alone, which is every caller",
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
        default=None, description="ModelServices of the namespace, by their labels; absent is all of them."
    )
    callers: Annotated[list[Caller], ListMap(("name",))] | None = Field(
        default=None, min_length=1, max_length=64, description="Callers that may call the services."
    )
    caller_selector: LabelSelector | None = Field(
        default=None, description="Callers whose keys are in Secrets with these labels may call the services too."
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
        default=None, max_length=8, description="How much they may use; each of them holds."
    )


class BudgetUse(Model):
    """Use of a budget at a gateway."""

    gateway: str = Field(description="InferenceGateway that counts it; each has counters of its own.")
    caller: str | None = Field(default=None, description="The caller; absent for a budget that all callers share.")
    used: int = Field(
        ge=0,
        description="How much is used of the current window. What goes beyond the limit with the answer that "
        "spends it is not counted here. While a caller's key is rotated, that of both keys, each of which has the "
        "whole limit.",
    )
    spent: str | None = Field(default=None, description="Used amount of money, for unit Cost.")


class BudgetStatus(Model):
    """Use of a budget."""

    name: str = Field(description="Name of the budget.")
    unit: str = Field(description="What is counted.")
    limit: int = Field(description="Limit per window, in requests, tokens, or budget units for unit Cost.")
    amount: str | None = Field(default=None, description="Maximum cost per window, for unit Cost.")
    currency: str | None = Field(default=None, description="Currency of the amount.")
    per: str = Field(description="Length of the window.")
    use: list[BudgetUse] = Field(description="Use at each gateway, the callers that used most first.")
    more_callers: int | None = Field(default=None, description="How many callers are not listed, as they used less.")
    resets_at: str | None = Field(default=None, description="When the window ends, and the next one begins.")


class CallerPolicyStatus(Status):
    """Observed state of the policy."""

    budgets: Annotated[list[BudgetStatus], ListMap(("name",))] | None = Field(
        default=None, description="How much is used of the budgets, as far as gateways say it."
    )


class CallerPolicy(Resource):
    """Rights to call services of a namespace through gateways in mode Model, and how much.

    A service that a policy selects answers only to callers that one of its policies names.
    """

    RULES: ClassVar[tuple[Rule, ...]] = (name_rule("CP-3", label=False),)

    KIND: ClassVar[str] = "CallerPolicy"
    PLURAL: ClassVar[str] = "callerpolicies"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("cp",)

    spec: CallerPolicySpec = Field(description="Which callers, of which services, and how much.")
    status: CallerPolicyStatus | None = Field(default=None, description="What is known of the policy.")

    @property
    def named_callers(self) -> Sequence[str]:
        """Names of callers, as written; that of every caller is none."""
        return [caller.name for caller in self.spec.callers or () if caller.name != EVERY_CALLER]

    @property
    def is_for_everyone(self) -> bool:
        """Return True for a policy for every caller that has a key."""
        return any(caller.name == EVERY_CALLER for caller in self.spec.callers or ())
