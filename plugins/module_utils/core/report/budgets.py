# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Budgets on the page: how much callers have used of them, those first of which the least is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from .markup import NOTHING, Markup, badge, code, count, el, fold, gauge, join, moment

_TITLES = ("Used", "Limit")
# Percent of a limit from which on little is left.
_NEARLY = 80
# More budgets are shown on demand, and more policies of one note are counted.
_FEW = 12


class _Level(IntEnum):
    """State of a budget, or of one caller's part of it."""

    SPENT = 0
    NEARLY = 1
    LEFT = 2
    UNKNOWN = 3


_WORDS = {_Level.SPENT: "spent", _Level.NEARLY: "nearly spent", _Level.UNKNOWN: "not known"}


class _Row(NamedTuple):
    """A budget of a policy; sorted, those of which the least is left come first."""

    level: _Level
    left: float
    policy: str
    name: str
    budget: Mapping[str, Any]


def budgets_section(policies: Sequence[Mapping[str, Any]]) -> Markup:
    """The section of the use of budgets. Empty where no CallerPolicy has one, or the fleet is not observed."""
    rows = sorted(
        (_row(policy, budget) for policy in policies for budget in policy["budgets"]), key=lambda row: row[:4]
    )
    if not rows:
        return NOTHING
    more = rows[_FEW:]
    return join(
        [
            _totals(rows, len(policies)),
            _table("Use of the budgets of CallerPolicies", rows[:_FEW]),
            fold(el("span", count(len(more), "more budget")), _table("Use of more budgets", more)) if more else NOTHING,
            *_notes(policies),
        ]
    )


def _row(policy: Mapping[str, Any], budget: Mapping[str, Any]) -> _Row:
    used = max((int(each["used"]) for each in budget["use"]), default=0)
    is_unknown = not budget["use"] and policy["message"]
    level = _Level.UNKNOWN if is_unknown else _level(used, budget["limit"])
    return _Row(level, -used / budget["limit"], f"{policy['namespace']}/{policy['name']}", budget["name"], budget)


def _level(used: int, limit: int) -> _Level:
    if used >= limit:
        return _Level.SPENT
    return _Level.NEARLY if 100 * used >= _NEARLY * limit else _Level.LEFT


def _totals(rows: Sequence[_Row], policies: int) -> Markup:
    numbers = {level: sum(row.level == level for row in rows) for level in _WORDS}
    states = ", ".join(f"{number:,} {_WORDS[level]}" for level, number in numbers.items() if number)
    whole = f"{count(len(rows), 'budget')} of {count(policies, 'CallerPolicy', 'CallerPolicies')}"
    return el("p", f"{whole}: {states}" if states else whole, class_="m")


def _table(caption: str, rows: Sequence[_Row]) -> Markup:
    heads = [
        el("th", "Budget", scope="col"),
        el("th", "Caller", scope="col"),
        *(el("th", each, scope="col", class_="n") for each in _TITLES),
    ]
    return el(
        "table",
        el("caption", caption),
        el("thead", el("tr", *heads)),
        *(el("tbody", *_lines(row)) for row in rows),
        class_="numbers budgets",
    )


def _lines(row: _Row) -> Iterator[Markup]:
    """Yield the lines of a budget: one for each caller beside its name and its limit."""
    budget = row.budget
    resets, more = budget.get("resetsAt"), budget.get("moreCallers")
    ends = el("div", "until ", moment(resets), class_="m") if resets else NOTHING
    name = join([code(row.policy), " ", code(budget["name"]), ends])
    counted = f"{budget['limit']:,} {budget['unit']}"
    amount = f"{budget['amount']} {budget['currency']}" if budget.get("amount") else counted
    limit = f"{amount} per {budget['per']}"
    none = (
        (el("td", "-"), el("td", _WORDS[row.level]))
        if row.level == _Level.UNKNOWN
        else (el("td", "no caller"), el("td"))
    )
    cells = [_cells(each, budget["limit"]) for each in budget["use"]] or [none]
    if more:
        cells.append((el("td", f"{count(more, 'caller')} used less", class_="m"), el("td")))
    head = el("th", name, scope="rowgroup" if len(cells) > 1 else "row", rowspan=len(cells))
    for number, each in enumerate(cells):
        first = number == 0
        end = el("td", limit, class_="n", rowspan=len(cells)) if first else NOTHING
        yield el("tr", head if first else NOTHING, *each, end)


def _cells(use: Mapping[str, Any], limit: int) -> tuple[Markup, Markup]:
    who = code(use["caller"]) if use.get("caller") else "all callers"
    used = int(use["used"])
    word = _WORDS.get(_level(used, limit))
    return (
        el("td", who, el("div", "at ", code(use["gateway"]), class_="m")),
        el(
            "td",
            use.get("spent") or f"{used:,}",
            gauge(used, limit),
            badge(word, "warn") if word else NOTHING,
            class_="n",
        ),
    )


def _notes(policies: Sequence[Mapping[str, Any]]) -> Iterator[Markup]:
    """Yield why use is not known: a gateway that does not answer is the reason of many policies."""
    names: dict[str, list[str]] = {}
    for policy in policies:
        if policy["message"]:
            names.setdefault(policy["message"], []).append(f"{policy['namespace']}/{policy['name']}")
    for message, found in names.items():
        more = f" and {len(found) - _FEW:,} more" if len(found) > _FEW else ""
        shown = join([code(name) for name in found[:_FEW]], ", ")
        word = "CallerPolicy " if len(found) == 1 else "CallerPolicies "
        yield el("p", word, shown, more, f": {message}.", class_="m")
