# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of a CallerPolicy: use of its budgets at all gateways. Its conditions are in test_every_reason.py."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import ObservedBudget
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.caller_policy import (
    MOST_CALLERS,
    GatewayBudgets,
)
from ansible_collections.modelplane.fleet.tests.written import caller_policy

END = "2026-11-28T00:00:00Z"
DAILY = {"name": "daily", "unit": "Tokens", "limit": 20, "per": "Day"}


def shown(budgets: list[dict[str, Any]], *gateways: GatewayBudgets) -> dict[str, Any]:
    policy = {"metadata": {"name": "acme", "namespace": "ml-team"}, "spec": {"callers": [{"name": "*"}]}}
    found: dict[str, Any] = caller_policy(policy | {"spec": {**policy["spec"], "budgets": budgets}}, gateways).wire()
    return found


def at(gateway: str, **used: int) -> GatewayBudgets:
    return GatewayBudgets(gateway, {"daily": ObservedBudget("ml-team", "acme", "daily", used, END)})


def test_callers_are_listed_by_their_use_at_each_gateway() -> None:
    found = shown([DAILY], at("eu", alice=7, bob=0), at("us", alice=9, carol=9))
    assert found["budgets"] == [
        {
            **DAILY,
            "use": [
                {"gateway": "us", "caller": "alice", "used": 9},
                {"gateway": "us", "caller": "carol", "used": 9},
                {"gateway": "eu", "caller": "alice", "used": 7},
                {"gateway": "eu", "caller": "bob", "used": 0},
            ],
            "resetsAt": END,
        }
    ]


def test_a_shared_budget_names_no_caller() -> None:
    found = shown([DAILY], at("eu", **{"*": 12}))
    assert found["budgets"][0]["use"] == [{"gateway": "eu", "used": 12}]


def test_those_who_used_most_are_listed_and_the_others_counted() -> None:
    found = shown([DAILY], at("eu", **{f"c{number:02}": number for number in range(MOST_CALLERS + 5)}))
    [budget] = found["budgets"]
    assert [each["caller"] for each in budget["use"]] == [f"c{number:02}" for number in range(MOST_CALLERS + 4, 4, -1)]
    assert budget["moreCallers"] == 5


def test_what_one_gateway_says_is_shown_without_the_other() -> None:
    found = shown([DAILY], GatewayBudgets("eu", unread="cluster a has not been observed"), at("us", alice=1))
    assert found["budgets"][0]["use"] == [{"gateway": "us", "caller": "alice", "used": 1}]
    assert [each["status"] for each in found["conditions"]] == ["Unknown"]


def test_without_budgets_none_is_listed() -> None:
    found = shown([], at("eu"))
    assert "budgets" not in found
    assert [each["reason"] for each in found["conditions"]] == ["NoBudgets"]
