# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Queries to the rate limit service of Envoy Gateway about the use of budgets, and its responses.

The service decides for each request if the limit is exceeded. For a query with the same descriptors and a cost of 0, it
returns the remaining amount and counts nothing. Descriptors have the names of Envoy Gateway
(internal/xds/translator/ratelimit.go, BuildRateLimitServiceConfig). The name of a rule that several routes share
contains the policy. The name of another rule contains the listener and the route. For an unknown name, the service
responds without a limit. The use is then unknown, but never wrong.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from .. import names
from ..api.caller_policy import EVERY_CALLER
from ..caller_keys import caller_of, entries_of
from ..compose import constants
from ..observation import ObservedBudget
from ..wire import Object, entries, identity, number, text

MOST_QUESTIONS = 2000
"""Counters of a cluster that are asked for."""
MOST_IN_REQUEST = 250

_NOT_COUNTED = "its rate limit service does not count it yet"
_TOO_MANY = f"its gateway has more than {MOST_QUESTIONS} counters, which are not all asked for"
_SPAN = 60
"""Unit in seconds. Rate limit windows begin at its multiples, so times are rounded to it."""

Callers = Mapping[tuple[str, str], Sequence[str]]
"""Callers to query, by namespace and name of their CallerPolicy."""
Budget = tuple[str, str, str]
"""Namespace, policy, name."""


@dataclass(frozen=True)
class Question:
    """Counter of a budget: the counter of one key of a caller, or of all callers (`caller` is "*")."""

    budget: Budget
    caller: str
    domain: str
    descriptor: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Inquiry:
    """Budgets of the gateway of a cluster, with their queries. `skipped`: budgets beyond the query limit."""

    budgets: tuple[Budget, ...] = ()
    questions: tuple[Question, ...] = ()
    skipped: frozenset[Budget] = frozenset()


@dataclass(frozen=True)
class Count:
    """Answer to a question: how much is used of the limit, no more than it, and seconds until the window ends."""

    used: int
    seconds: float


def inquiry(policies: Iterable[Object], callers: Callers) -> Inquiry:
    """Return the queries for the budgets in BackendTrafficPolicies of a cluster, of CallerPolicies in `callers`."""
    budgets: dict[Budget, None] = {}
    questions: list[Question] = []
    for seen in sorted(policies, key=identity):
        for budget, policy_questions in _of_policy(seen, callers):
            budgets[budget] = None
            questions += policy_questions
    skipped = frozenset(question.budget for question in questions[MOST_QUESTIONS:])
    asked_questions = tuple(question for question in questions[:MOST_QUESTIONS] if question.budget not in skipped)
    return Inquiry(tuple(sorted(budgets)), asked_questions, skipped)


def _of_policy(seen: Object, callers: Callers) -> Iterator[tuple[Budget, list[Question]]]:
    """Yield the budget of each rule of a policy, with its questions."""
    namespace = text(seen, "metadata", "labels", names.NAMESPACE_LABEL)
    policy_identity = identity(seen)[2:]
    rules, counted = entries(seen, "spec", "rateLimit", "global", "rules"), _counted(seen)
    if counted is None or len(rules) != len(counted.rules):
        # Others changed it.
        return
    numbers = {True: 0, False: 0}
    for index, (rule, of_budget) in enumerate(zip(rules, counted.rules, strict=True)):
        shared = rule.get("shared") is True
        position = numbers[shared]
        numbers[shared] += 1
        budget = (namespace, of_budget.policy, of_budget.budget)
        budget_callers = callers.get(budget[:2])
        if budget_callers is None:
            continue
        domain, key = _names(policy_identity, index, of_budget.route, counted.listener, shared=shared)
        budget_questions = [
            Question(budget, caller_of(caller), domain, ((key, key), *descriptors))
            for caller, descriptors in _headers(rule, position, budget_callers)
        ]
        yield budget, budget_questions


@dataclass(frozen=True)
class _OfBudget:
    policy: str
    budget: str
    route: str = ""


@dataclass(frozen=True)
class _Counted:
    """Content of `BUDGETS_ANNOTATION`."""

    listener: str
    rules: tuple[_OfBudget, ...]


def _counted(seen: Object) -> _Counted | None:
    """Return the budget annotation of a policy, or None for a missing or foreign annotation."""
    try:
        annotation = _parsed(**json.loads(text(seen, "metadata", "annotations", constants.BUDGETS_ANNOTATION)))
    except (TypeError, ValueError, RecursionError):
        return None
    values = [
        annotation.listener,
        *(value for rule in annotation.rules for value in (rule.policy, rule.budget, rule.route)),
    ]
    is_ours = all(isinstance(value, str) for value in values) and all(rule.budget for rule in annotation.rules)
    return annotation if is_ours else None


def _parsed(listener: str, rules: Iterable[Mapping[str, str]]) -> _Counted:
    return _Counted(listener, tuple(_OfBudget(**rule) for rule in rules))


def _names(place: tuple[str, str], index: int, route: str, listener: str, *, shared: bool) -> tuple[str, str]:
    """Return the domain and the first descriptor of a rule."""
    namespace, name = place
    if shared:
        return f"{namespace}/{name}", f"{namespace}/{name}/rule/{index}"
    gateway = f"{constants.SYSTEM_NAMESPACE}/{constants.MODEL_GATEWAY}/{listener}"
    return gateway, f"httproute/{namespace}/{route}/rule/0/match/0/*"


def _headers(rule: Object, position: int, callers: Sequence[str]) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    """Yield the callers with counters of a rule, each with the descriptors of the header matches.

    `position`: the position of the rule in its domain."""
    headers = [header for parent in entries(rule, "clientSelectors") for header in entries(parent, "headers")]
    if not headers:
        only = f"rule-{position}-match--1"
        yield EVERY_CALLER, ((only, only),)
        return
    keys = [f"rule-{position}-match-{index}" for index in range(len(headers))]
    distinct = [text(header, "type") == "Distinct" for header in headers]
    if not any(distinct):
        yield EVERY_CALLER, tuple((key, key) for key in keys)
        return
    is_of_tokens = any(text(header, "name") == constants.SUBJECT_HEADER for header in headers)
    for entry in (entry for caller in callers for entry in _entries(caller)):
        if entry.startswith(constants.TOKEN_CALLER) == is_of_tokens:
            name = entry.removeprefix(constants.TOKEN_CALLER)
            values = (name if is_distinct else key for key, is_distinct in zip(keys, distinct, strict=True))
            yield entry, tuple(zip(keys, values, strict=True))


def _entries(caller: str) -> Sequence[str]:
    return [caller] if caller.startswith(constants.TOKEN_CALLER) else entries_of(caller)


def batches(questions: Iterable[Question]) -> list[Sequence[Question]]:
    """Return the questions in the batches that can be asked at once."""
    by_domain: dict[str, list[Question]] = {}
    for question in questions:
        by_domain.setdefault(question.domain, []).append(question)
    return [
        domain_questions[start : start + MOST_IN_REQUEST]
        for domain_questions in by_domain.values()
        for start in range(0, len(domain_questions), MOST_IN_REQUEST)
    ]


def request(questions: Sequence[Question]) -> dict[str, Any]:
    """Return the request for queries of one domain (RateLimitRequest of Envoy, as JSON)."""
    descriptors = [
        {
            "entries": [{"key": key, "value": value} for key, value in question.descriptor],
            # A query must cost 0, because the default cost of 1 would be counted.
            "hitsAddend": "0",
        }
        for question in questions
    ]
    return {"domain": questions[0].domain, "descriptors": descriptors}


def counts(questions: Sequence[Question], observed: Object) -> list[Count | None] | None:
    """Return the responses to queries (RateLimitResponse of Envoy, as JSON), with None for queries without a limit.

    Return None for the response to other queries."""
    statuses = entries(observed, "statuses")
    if len(statuses) != len(questions):
        return None
    return list(map(_count, statuses))


def _count(state: Object) -> Count | None:
    limit = number(state, "currentLimit", "requestsPerUnit", default=-1)
    # A number of 0 is not written.
    remaining = state.get("limitRemaining", 0)
    if limit < 0 or not isinstance(remaining, int):
        return None
    try:
        seconds = float(text(state, "durationUntilReset").removesuffix("s") or "nan")
    except ValueError:
        seconds = math.nan
    return Count(max(0, limit - remaining), seconds)


def observed(
    asked: Inquiry, answers: Mapping[Question, Count | None], problem: str, now: datetime
) -> list[ObservedBudget]:
    """Return the use of budgets. `problem`: why questions without an answer have none."""
    by_budget: dict[Budget, list[Question]] = {budget: [] for budget in asked.budgets}
    for question in asked.questions:
        by_budget[question.budget].append(question)
    budgets = []
    for budget, questions in by_budget.items():
        if budget in asked.skipped:
            budgets.append(ObservedBudget(*budget, problem=_TOO_MANY))
        elif any(question not in answers for question in questions):
            budgets.append(ObservedBudget(*budget, problem=problem))
        else:
            budgets.append(_observed(budget, {question: answers[question] for question in questions}, now))
    return budgets


def _observed(budget: Budget, answers: Mapping[Question, Count | None], now: datetime) -> ObservedBudget:
    used: dict[str, int] = {}
    resets = ""
    for question, count in answers.items():
        if count is None:
            return ObservedBudget(*budget, problem=_NOT_COUNTED)
        used[question.caller] = used.get(question.caller, 0) + count.used
        resets = resets or _end(now, count.seconds)
    return ObservedBudget(*budget, used, resets)


def _end(now: datetime, seconds: float) -> str:
    """Return the end of a window, equal for all runs within the window, or "" if the service does not return it."""
    if not 0 <= seconds <= timedelta(days=366).total_seconds():
        return ""
    end = round((now.timestamp() + seconds) / _SPAN) * _SPAN
    return datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
