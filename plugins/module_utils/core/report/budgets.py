# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Budgets on the page: how much callers have used of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.markup import (
    NOTHING,
    Markup,
    badge,
    code,
    count,
    el,
    gauge,
    join,
    moment,
)

_TITLES = ("Used", "Limit")


def budgets_section(policies: Sequence[Mapping[str, Any]]) -> Markup:
    """The section of the use of budgets. Empty where no CallerPolicy has one, or the fleet is not observed."""
    if not policies:
        return NOTHING
    heads = [
        el("th", "Budget", scope="col"),
        el("th", "Caller", scope="col"),
        *(el("th", each, scope="col", class_="n") for each in _TITLES),
    ]
    table = el(
        "table",
        el("caption", "Use of the budgets of CallerPolicies"),
        el("thead", el("tr", *heads)),
        *(el("tbody", *_rows(policy, budget)) for policy in policies for budget in policy["budgets"]),
        class_="numbers",
    )
    notes = [
        el("p", "CallerPolicy ", code(f"{policy['namespace']}/{policy['name']}"), f": {policy['message']}.", class_="m")
        for policy in policies
        if policy["message"]
    ]
    return join([table, *notes])


def _rows(policy: Mapping[str, Any], budget: Mapping[str, Any]) -> Iterator[Markup]:
    """Yield the rows of a budget: one for each caller beside its name and its limit."""
    resets, more = budget.get("resetsAt"), budget.get("moreCallers")
    ends = el("div", "until ", moment(resets), class_="m") if resets else NOTHING
    name = join([code(f"{policy['namespace']}/{policy['name']}"), f" {budget['name']}", ends])
    limit = f"{budget['limit']:,} {budget['unit']} per {budget['per']}"
    cells = [_cells(each, budget["limit"]) for each in budget["use"]] or [(el("td", "-"), el("td", "not known"))]
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
    spent = badge("spent", "warn") if used >= limit else NOTHING
    return (
        el("td", who, el("div", "at ", code(use["gateway"]), class_="m")),
        el("td", f"{used:,}", gauge(used, limit), spent, class_="n"),
    )
