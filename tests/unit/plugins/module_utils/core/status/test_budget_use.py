# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Questions about budgets and their answers, with what envoyproxy/ratelimit behind Envoy Gateway v1.9.1 answered.

`budget-use.json` was recorded by tests/gateway: policies as the API server returns them, and requests with answers.
"""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import ObservedBudget
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.budget_use import (
    MOST_IN_REQUEST,
    MOST_QUESTIONS,
    Count,
    Inquiry,
    Question,
    batches,
    counts,
    inquiry,
    observed,
    request,
)

RECORDED = json.loads((Path(__file__).parents[5] / "data" / "budget-use.json").read_text(encoding="utf-8"))
POLICIES = RECORDED["policies"]
NOW = datetime(2026, 11, 27, 13, 43, 19, tzinfo=UTC)
PAIR = ("alice", "bob")
CALLERS = {
    ("ml-team", "each"): PAIR,
    ("ml-team", "pair"): PAIR,
    ("ml-team", "bought"): PAIR,
    ("ml-team", "together"): (),
    ("ml-team", "team"): ("alice", "bob", "carol"),
    ("ml-team", "all-bought"): (),
}
EACH = [each for each in POLICIES if each["metadata"]["name"] == "each"]
ONE = {("ml-team", "each"): ("alice",)}


def read(exchanges: list[dict[str, Any]], asked: Inquiry, problem: str = "") -> dict[str, ObservedBudget]:
    """The use of budgets by policy, with these answers to the batches."""
    answers: dict[Question, Count | None] = {}
    for batch, exchange in zip(batches(asked.questions), exchanges, strict=False):
        found = counts(batch, exchange["answer"])
        assert found is not None
        answers.update(zip(batch, found, strict=True))
    return {budget.policy: budget for budget in observed(asked, answers, problem, NOW)}


def test_the_questions_are_those_that_the_service_answered() -> None:
    asked = inquiry(reversed(POLICIES), CALLERS)
    assert [request(batch) for batch in batches(asked.questions)] == [each["request"] for each in RECORDED["exchanges"]]


def test_answers_say_what_is_used_and_when_it_ends() -> None:
    """Alice used 24 of 20 tokens: the service says that none are left."""
    found = read(RECORDED["exchanges"], inquiry(POLICIES, CALLERS))
    assert {name: budget.used for name, budget in found.items()} == {
        "each": {"alice": 20, "bob": 0},
        "pair": {"alice": 10, "bob": 5},
        "bought": {"alice": 0, "bob": 0},
        "together": {"*": 2},
        "team": {"*": 1},
        "all-bought": {"*": 0},
    }
    assert {budget.problem for budget in found.values()} == {""}
    assert {name: found[name].resets for name in ("each", "together")} == {
        "each": "2026-11-27T14:00:00Z",
        "together": "2026-11-28T00:00:00Z",
    }


def test_both_keys_of_a_caller_count_for_it() -> None:
    asked = inquiry(EACH, ONE)
    used = [{"currentLimit": {"requestsPerUnit": 20}, "limitRemaining": left} for left in (8, 15)]
    assert read([{"answer": {"statuses": used}}], asked)["each"].used == {"alice": 17}
    assert [question.descriptor[1][1] for question in asked.questions] == ["alice", "alice.next"]


@pytest.mark.parametrize("seconds", [-29, -1, 0, 1, 29])
def test_the_end_of_a_span_is_the_same_for_every_clock(seconds: int) -> None:
    status = {"currentLimit": {"requestsPerUnit": 20}, "durationUntilReset": f"{1001 + seconds}s"}
    found = read([{"answer": {"statuses": [status, status]}}], inquiry(EACH, ONE))
    assert found["each"].resets == "2026-11-27T14:00:00Z"


@pytest.mark.parametrize("said", ["", "soon", "nans", "infs", "1e99s", "-5s"])
def test_an_end_that_makes_no_sense_is_left_out(said: str) -> None:
    status = {"currentLimit": {"requestsPerUnit": 20}, "limitRemaining": 20, "durationUntilReset": said}
    found = read([{"answer": {"statuses": [status, status]}}], inquiry(EACH, ONE))["each"]
    assert (found.resets, found.used) == ("", {"alice": 0})


@pytest.mark.parametrize("status", [{"code": "OK"}, {"currentLimit": {"requestsPerUnit": "20"}}, {"limitRemaining": 1}])
def test_a_counter_that_the_service_does_not_know_is_no_use_of_zero(status: dict[str, Any]) -> None:
    right = {"currentLimit": {"requestsPerUnit": 20}, "limitRemaining": 20}
    found = read([{"answer": {"statuses": [right, status]}}], inquiry(EACH, ONE))["each"]
    assert (found.used, found.problem) == ({}, "its rate limit service does not count it yet")


@pytest.mark.parametrize(
    "answer", [{}, {"statuses": []}, {"statuses": [{}, {}, {}]}, {"statuses": 1}, {"kind": "Status"}]
)
def test_an_answer_to_something_else_is_none(answer: dict[str, Any]) -> None:
    assert counts(inquiry(EACH, ONE).questions, answer) is None


def test_without_an_answer_a_budget_has_the_reason() -> None:
    """Of those that were asked for in another request too."""
    asked = inquiry(POLICIES, CALLERS)
    found = read(RECORDED["exchanges"][:1], asked, "it does not answer")
    assert {name for name, budget in found.items() if budget.problem} == {"pair", "team"}
    assert {budget.problem for budget in found.values()} == {"", "it does not answer"}


def test_policies_that_are_not_of_the_fleet_any_more_are_not_asked_for() -> None:
    assert inquiry(POLICIES, {}) == Inquiry()
    assert inquiry(POLICIES, {("other", "each"): PAIR}) == Inquiry()


def test_a_budget_of_callers_without_keys_is_there_and_asks_nothing() -> None:
    asked = inquiry(EACH, {("ml-team", "each"): ()})
    assert asked == Inquiry((("ml-team", "each", "hourly"),))
    assert observed(asked, {}, "", NOW) == [ObservedBudget("ml-team", "each", "hourly")]


@pytest.mark.parametrize(
    "annotation",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        '{"listener":"http"}',
        '{"listener":"http","rules":[]}',
        '{"listener":"http","rules":[1]}',
        '{"listener":"http","rules":[{"policy":"each","budget":""}]}',
        '{"listener":"http","rules":[{"policy":["each"],"budget":"hourly"}]}',
        '{"listener":1,"rules":[{"policy":"each","budget":"hourly"}]}',
        '{"listener":"http","rules":[{"policy":"each","budget":"hourly","more":1}]}',
        '{"listener":"http","rules":[{"policy":"each","budget":"a"},{"policy":"each","budget":"b"}]}',
    ],
)
def test_what_others_wrote_into_a_policy_is_not_read(annotation: str) -> None:
    changed = copy.deepcopy(EACH)
    changed[0]["metadata"]["annotations"] = {"modelplane.ai/budgets": annotation}
    assert inquiry(changed, ONE) == Inquiry()


def test_questions_are_bounded() -> None:
    """A budget is asked for as a whole, or not at all; its neighbours are."""
    many = tuple(f"c{number}" for number in range(MOST_QUESTIONS))
    asked = inquiry(POLICIES, {**CALLERS, ("ml-team", "each"): many})
    assert len(asked.questions) <= MOST_QUESTIONS
    assert asked.skipped >= {("ml-team", "each", "hourly")}
    found = {budget.policy: budget for budget in observed(asked, {}, "x", NOW)}
    assert "more than 2000 counters" in found["each"].problem
    most = inquiry(EACH, {("ml-team", "each"): many[: MOST_QUESTIONS // 2]})
    assert [len(batch) for batch in batches(most.questions)] == [MOST_IN_REQUEST] * 8
