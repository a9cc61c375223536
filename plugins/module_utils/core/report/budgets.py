# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Use of budgets in the HTML report: budgets with the least rest are first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..api.caller_policy import BudgetStatus, BudgetUse
from ..output.status import PolicyStatus

# Used percent of a limit from which a budget is nearly spent.
_NEARLY_SPENT_PERCENT = 80


# Levels of a budget, or of the part of it that a client has. The worst is first.
_SPENT, _NEARLY_SPENT, _AVAILABLE, _UNKNOWN = range(4)
_WORDS = {_SPENT: "spent", _NEARLY_SPENT: "nearly spent", _UNKNOWN: "not known"}


class BudgetRow(NamedTuple):
    """Budget of a CallerPolicy. The order of rows is that of their fields.

    used_share: negative, of the client that used most.
    policy: namespace and name.
    """

    level: int
    used_share: float
    policy: str
    name: str
    budget: BudgetStatus

    @property
    def is_unknown(self) -> bool:
        return self.level == _UNKNOWN

    @property
    def limit_text(self) -> str:
        """Return the limit: `600 Requests per Minute`."""
        budget = self.budget
        amount = f"{budget.amount} {budget.currency}" if budget.amount else f"{budget.limit:,} {budget.unit}"
        return f"{amount} per {budget.per}"

    @property
    def uses(self) -> list[tuple[BudgetUse, str]]:
        """Return the uses, each with a word for its level; empty if there is enough left."""
        return [(use, _WORDS.get(_level(use.used, self.budget.limit), "")) for use in self.budget.use]

    @property
    def lines(self) -> int:
        """Return the number of table rows."""
        return max(1, len(self.budget.use)) + bool(self.budget.more_callers)


def budget_rows(policies: Sequence[PolicyStatus]) -> list[BudgetRow]:
    """Return the budgets of policies, sorted."""
    rows = [_row(policy, budget) for policy in policies for budget in policy.budgets]
    return sorted(rows, key=lambda row: row[:4])


def _row(policy: PolicyStatus, budget: BudgetStatus) -> BudgetRow:
    used = max((use.used for use in budget.use), default=0)
    is_unknown = not budget.use and policy.message
    level = _UNKNOWN if is_unknown else _level(used, budget.limit)
    return BudgetRow(level, -used / budget.limit, f"{policy.namespace}/{policy.name}", budget.name, budget)


def _level(used: int, limit: int) -> int:
    if used >= limit:
        return _SPENT
    return _NEARLY_SPENT if 100 * used >= _NEARLY_SPENT_PERCENT * limit else _AVAILABLE


def level_counts(rows: Sequence[BudgetRow]) -> str:
    """Return the number of budgets at each level: `2 spent, 1 not known`."""
    counts = {word: sum(row.level == level for row in rows) for level, word in _WORDS.items()}
    return ", ".join(f"{number:,} {word}" for word, number in counts.items() if number)


def unknown_uses(policies: Sequence[PolicyStatus]) -> dict[str, list[str]]:
    """Return the policies whose use is unknown by message, because a gateway can be the reason for many policies."""
    names: dict[str, list[str]] = {}
    for policy in policies:
        if policy.message:
            names.setdefault(policy.message, []).append(f"{policy.namespace}/{policy.name}")
    return names
