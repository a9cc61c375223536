# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Use of budgets in the HTML report. Budgets with the smallest remaining share come first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..api.caller_policy import BudgetStatus, BudgetUse
from ..output.status import PolicyStatus

# Minimum used percent of a limit for the level "nearly spent".
_NEARLY_SPENT_PERCENT = 80


# Levels of a budget, or of the use of one client. The worst level is first.
_SPENT, _NEARLY_SPENT, _AVAILABLE, _UNKNOWN = range(4)
_WORDS = {_SPENT: "spent", _NEARLY_SPENT: "nearly spent", _UNKNOWN: "not known"}


class BudgetRow(NamedTuple):
    """Budget of a CallerPolicy. The order of its fields is the sort order of rows.

    used_share: negative used share of the client with the highest use.
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
        """Return the uses with a word for their level. The word is empty if enough is available."""
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
    """Return the policies with unknown use by message, because one gateway can be the reason for many policies."""
    names: dict[str, list[str]] = {}
    for policy in policies:
        if policy.message:
            names.setdefault(policy.message, []).append(f"{policy.namespace}/{policy.name}")
    return names
