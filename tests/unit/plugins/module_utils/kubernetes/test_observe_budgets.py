# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Reads of budgets from a cluster, also when their service does not answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import observation
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes import observe_budgets as module
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError, Unreachable
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe import ClusterSnapshot
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe_budgets import (
    observe_budgets,
    with_budgets,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.memory import MemoryClient

RECORDED = json.loads((Path(__file__).parents[4] / "data" / "budget-use.json").read_text(encoding="utf-8"))
PAIR = ("alice", "bob")
CALLERS = {("ml-team", name): PAIR for name in ("each", "pair", "bought", "together", "team", "all-bought")}


class Gateway(MemoryClient):
    """A cluster whose rate limit service answers as it was recorded to, or as `answer` does."""

    def __init__(self, answer: Callable[[Any], Any] | None = None, **more: Any) -> None:
        super().__init__(RECORDED["policies"], **more)
        self.patience = 30.0
        self.answer = answer or self.recorded

    @staticmethod
    def recorded(body: Any) -> Any:
        return next(each["answer"] for each in RECORDED["exchanges"] if each["request"] == body)

    def answer_within(self, seconds: float) -> None:
        self.patience = seconds

    def ask_service(self, name: str, namespace: str, port: str, path: str, body: Any, *, codes: Any) -> Any:
        self._ask("ask", f"{namespace}/{name}:{port}/{path}", *map(str, codes))
        return self.answer(body)


def refuses(error: ApiError) -> Callable[[Any], Any]:
    def answer(_body: Any) -> Any:
        raise error

    return answer


def test_all_counters_of_a_cluster_are_asked_for_in_a_few_requests() -> None:
    client = Gateway()
    found = observe_budgets(client, CALLERS)
    assert {budget.policy: dict(budget.used) for budget in found}["each"] == {"alice": 20, "bob": 0}
    asked = ("ask", "envoy-gateway-system/modelplane-rate-limit:http/json", "200", "429")
    assert client.asked[1:] == [asked, asked]
    assert client.patience == 5.0


def test_where_no_policy_has_budgets_nothing_is_read() -> None:
    client = Gateway()
    snapshot = ClusterSnapshot({"objects": []})
    assert with_budgets(snapshot, client, {}).entry == {"objects": []}
    assert client.asked == []


def test_policies_that_were_read_are_not_read_again() -> None:
    client = Gateway()
    snapshot = ClusterSnapshot({"objects": []}, traffic_policies=RECORDED["policies"])
    assert with_budgets(snapshot, client, CALLERS).entry["budgets"] == [
        observation.budget_wire(budget) for budget in observe_budgets(Gateway(), CALLERS)
    ]
    assert {asked[0] for asked in client.asked} == {"ask"}


def test_a_cluster_without_the_kind_has_no_budgets() -> None:
    assert observe_budgets(Gateway(unserved=["BackendTrafficPolicy"]), CALLERS) == []


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            refuses(Unreachable("no endpoints available", cluster="east", action="ask Service a/b")),
            "its rate limit service did not say it: ",
        ),
        (lambda _body: {"statuses": []}, "its rate limit service answers with something else"),
    ],
)
def test_a_service_that_does_not_answer_is_a_reason_and_no_failure(answer: Callable[[Any], Any], problem: str) -> None:
    """It is asked no second time."""
    client = Gateway(answer)
    snapshot = with_budgets(ClusterSnapshot({"objects": []}), client, CALLERS)
    assert [each[0] for each in client.asked] == ["list", "ask"]
    seen = observation.parse({"clusters": {"east": snapshot.entry}}).clusters["east"]
    assert len(seen.budgets) == 6
    assert all(budget.problem.startswith(problem) and not budget.used for budget in seen.budgets)
    assert snapshot.requests == 2


def test_a_slow_service_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers until then count."""
    times = iter([0.0, 1.0, 21.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(times))
    found = observe_budgets(Gateway(), CALLERS)
    assert {budget.policy for budget in found if budget.problem} == {"pair", "team"}
    assert {budget.problem for budget in found} == {"", "its rate limit service takes more than 20 seconds to say it"}
