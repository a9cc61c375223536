# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Cost of the plan on the page: of deployments, of clusters, and of the fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .index import Index
from .markup import NOTHING, Markup, count, el, gauge, items, join, linked

_TITLES = ("Per hour", "Per month", "Change")


def cost_section(cost: Mapping[str, Any], known: Index) -> Markup:
    """The section of what the plan costs. Empty for a fleet that knows no prices."""
    if not cost:
        return NOTHING
    return join(
        [
            el("p", f"{cost['currency']}; a month counts {cost['hours']} hours. {cost['as_of']}", class_="m"),
            _table("Clusters, by the nodes that run", "Cluster", cost["clusters"], known.clusters),
            _table("Deployments, by the devices that they claim", "Deployment", cost["deployments"], {}),
            items([el("span", note) for note in cost["notes"]]),
        ]
    )


def _table(caption: str, title: str, rows: list[Mapping[str, Any]], elements: Mapping[Any, str]) -> Markup:
    heads = [el("th", title, scope="col"), *(el("th", each, scope="col", class_="n") for each in _TITLES)]
    return el(
        "table",
        el("caption", caption),
        el("thead", el("tr", *heads)),
        el("tbody", *(_row(row, elements) for row in rows)),
        class_="numbers",
    )


def _row(row: Mapping[str, Any], elements: Mapping[Any, str]) -> Markup:
    nodes = count(int(row["nodes"]), "node") if row["nodes"].isdecimal() else ""
    share = row["share"]
    what = ", ".join(part for part in (nodes, "" if share is None else f"{share}%") if part)
    notes = [el("div", note, class_="m") for note in (what, *row["notes"]) if note]
    name = linked(elements.get(row["name"]), row["name"])
    return el(
        "tr",
        el("th", name, NOTHING if share is None else gauge(share, 100), *notes, scope="row"),
        # An amount is not broken into lines.
        *(el("td", row[key].replace(" ", "\u00a0"), class_="n") for key in ("per_hour", "per_month", "change")),
    )
