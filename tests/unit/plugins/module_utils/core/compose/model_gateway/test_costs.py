# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Budgets in currency: the expressions that count them, limits in budget units, and prices that are missing."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.costs import (
    ServicePrices,
    spent,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import PlanError
from ansible_collections.modelplane.fleet.plugins.module_utils.core.pricing import Catalogue, ModelPrice
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    Built,
    Document,
    build,
    fleet,
    policy,
    provider,
    provider_entry,
    service,
)

DAY = {"asOf": "2026-11-01", "source": "a test"}
BUDGET = {"name": "spend", "unit": "Cost", "amount": "250.00", "currency": "USD", "per": "Month"}


def price(**amounts: str) -> ModelPrice:
    return api.read_part({"model": "ml-team/chat", **amounts, **DAY}, ModelPrice)


def evaluated(expression: str, backend: str = "", **tokens: int) -> int:
    """Value of an expression whose prices depend on backends, and not on caches, by the rules of CEL that it uses."""
    *cases, last = expression.split(" : ")
    for case in cases:
        condition, _, cost = case.partition(" ? ")
        pattern = condition.removeprefix('backend.matches("').removesuffix('")').replace("\\\\", "\\")
        if re.search(pattern, backend):
            last = cost
            break
    text = re.sub(r"(\d+)u\b", r"\1", last).replace("/", "//")
    return int(eval(text, {f"{name}_tokens": tokens.get(name, 0) for name in ("input", "output")}))


@pytest.mark.parametrize(
    ("amounts", "unit", "tokens"),
    [
        ({"input": "0.20", "output": "0.60"}, "0.00001", {"input": 7, "output": 5}),
        ({"input": "15", "output": "75"}, "0.00001", {"input": 1_000_000, "output": 4_000_000}),
        ({"input": "0.000000001", "output": "0"}, "0.00001", {"input": 1}),
        ({"input": "0.02", "output": "0.123456789"}, "0.000001", {"input": 8191, "output": 333}),
        ({"input": "250", "output": "1000"}, "0.01", {"input": 1234, "output": 56}),
        ({"input": "3", "output": "15"}, "0.003", {"input": 999_999, "output": 1}),
        ({"input": "0", "output": "0"}, "0.00001", {"input": 5, "output": 5}),
    ],
)
def test_a_request_costs_its_tokens_rounded_up(amounts: dict[str, str], unit: str, tokens: dict[str, int]) -> None:
    expression = ServicePrices({"a": price(**amounts)}, Decimal(unit)).expression({"b": "a"})
    exact = sum(tokens.get(name, 0) * Decimal(amount) for name, amount in amounts.items()) / 10**6 / Decimal(unit)
    counted = evaluated(expression, **tokens)
    # Prices are rounded up to a ten thousandth of a unit for a million tokens.
    assert exact.to_integral_value(ROUND_CEILING) <= counted <= exact + sum(tokens.values()) / Decimal(10**10) + 1
    # CEL evaluates in 64 bits.
    assert all(int(number) * 10**7 < 2**63 for number in re.findall(r"(\d+)u\b", expression))


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ({"input": 1_000_000, "cached_input": 400_000}, 60_000_000 + 4_000_000),
        ({"input": 1_000_000, "cached_input": 1_000_000}, 10_000_000),
        # A provider that counts what is cached beside the input.
        ({"input": 100, "cached_input": 1_000_000}, 10_000_000),
    ],
)
def test_cached_tokens_have_a_price_of_their_own(tokens: dict[str, int], expected: int) -> None:
    prices = ServicePrices({"a": price(input="1000", cachedInput="100", output="1")}, Decimal("0.00001"))
    expression = prices.expression({"b": "a"})
    assert expression.startswith("((cached_input_tokens < input_tokens ? input_tokens - cached_input_tokens : 0u) * ")
    factors = [
        int(number)
        for number in re.findall(r"tokens \* (\d+)u|0u\) \* (\d+)u", expression)
        for number in number
        if number
    ]
    divisor = int(re.findall(r"/ (\d+)u", expression)[0])
    uncached = max(0, tokens["input"] - tokens["cached_input"])
    order = re.findall(r"(0u\)|[a-z_]+_tokens) \* ", expression)
    values = {"0u)": uncached, "output_tokens": 0, "cached_input_tokens": tokens["cached_input"]}
    total = sum(values[name] * factor for name, factor in zip(order, factors, strict=True))
    assert -(-total // divisor) == expected


def costing(*prices: dict[str, str], unit: str = "0.00001", currency: str = "USD") -> Catalogue:
    return api.read_part({"currency": currency, "models": list(prices), "budgetUnit": unit}, Catalogue)


def planned(catalogue: Catalogue | None, budget: Any = BUDGET) -> Built:
    spare = {**provider_entry("b", priority=1), "name": "spare"}
    documents: list[Document] = fleet(
        service({**provider_entry("a"), "name": "own"}, spare), provider("a"), provider("b"), policy(budgets=[budget])
    )
    return build(documents, catalogue=catalogue)


CHAT = {"model": "ml-team/chat", "input": "0.20", "output": "0.60", **DAY}
SPARE = {"model": "ml-team/chat", "endpoint": "spare", "input": "3", "output": "15", **DAY}


def test_a_budget_counts_units_of_its_amount_by_the_endpoint_that_answers() -> None:
    made = planned(costing(CHAT, SPARE))
    limits = made("BackendTrafficPolicy", "chat")["spec"]["rateLimit"]["global"]["rules"]
    assert [(rule["limit"], rule["cost"]["response"]["metadata"]["key"]) for rule in limits] == [
        ({"requests": 25_000_000, "unit": "Month"}, "llm_cost")
    ]
    [cost] = [
        each for each in made("AIGatewayRoute", "chat")["spec"]["llmRequestCosts"] if each["metadataKey"] == "llm_cost"
    ]
    assert cost["type"] == "CEL"
    backends = [each["name"] for each in made("AIGatewayRoute", "chat")["spec"]["rules"][0]["backendRefs"]]
    for name in (f"{backends[0]}.mp-ml-team-51733", f"mp-ml-team-51733/{backends[0]}/route/chat/rule/0/ref/0"):
        assert evaluated(cost["cel"], name, input=1_000_000) == 20_000
    for name in (f"{backends[1]}.mp-ml-team-51733", f"{backends[0]}x.mp-ml-team-51733", "unknown", ""):
        assert evaluated(cost["cel"], name, input=1_000_000) == 300_000


def test_routes_without_a_budget_in_currency_are_as_they_were() -> None:
    tokens = {"name": "t", "unit": "Tokens", "limit": 9, "per": "Day"}
    costs = planned(costing(CHAT), tokens)("AIGatewayRoute", "chat")["spec"]["llmRequestCosts"]
    assert "llm_cost" not in {each["metadataKey"] for each in costs}


@pytest.mark.parametrize(
    ("catalogue", "budget", "says"),
    [
        (None, {}, "spec.budgets[0].unit"),
        (costing(CHAT, currency="EUR"), {}, "is not the currency of the price catalog, which is EUR"),
        (costing(CHAT), {"amount": "42949.68"}, "must be from 0.00001 to 42949.67295"),
        (costing(CHAT), {"amount": "0.000001"}, "must be from 0.00001"),
        (costing(CHAT, unit="0.01"), {"amount": "42949672.96"}, "must be from 0.01 to 42949672.95"),
        (costing({**CHAT, "model": "ml-team/chats"}), {}, "where ml-team/chats has one"),
        (costing(), {}, "has no price for this model"),
        (costing(CHAT, unit="0.000000001"), {"amount": "1"}, "budgetUnit 0.000000008"),
    ],
)
def test_budgets_that_cannot_be_counted_stop_the_plan(catalogue: Any, budget: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=f"(?i){re.escape(says)}") as raised:
        planned(catalogue, {**BUDGET, **budget})
    assert "CallerPolicy ml-team/team" in str(raised.value)


def test_an_entry_without_a_price_costs_as_much_as_the_dearest_and_is_warned_of() -> None:
    made = planned(costing({**CHAT, "endpoint": "own"}))
    [message] = [each for each in made.plan.models.warnings if "has no price" in each]
    assert message.startswith("ModelService ml-team/chat: the price catalog has no price for endpoints spare")


@pytest.mark.parametrize(
    ("used", "unit", "text"),
    [(1_250_000, "0.00001", "12.50"), (1, "0.00001", "0.00001"), (0, "0.00001", "0.00"), (7, "1", "7.00")],
)
def test_amounts_are_shown_with_cents_at_least(used: int, unit: str, text: str) -> None:
    assert spent(used, Decimal(unit)) == text
