# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Cost of the plan on the page: of deployments, of clusters, and of the fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.index import Index
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.markup import (
    NOTHING,
    Markup,
    code,
    el,
    gauge,
    items,
    join,
    link,
)

_TITLES = ("Nodes", "Per hour", "Per month", "Change", "Share")


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
    heads = [el("th", each, scope="col") for each in (title, *_TITLES)]
    return el(
        "table",
        el("caption", caption),
        el("thead", el("tr", *heads)),
        el("tbody", *(_row(row, elements) for row in rows)),
        class_="numbers",
    )


def _row(row: Mapping[str, Any], elements: Mapping[Any, str]) -> Markup:
    notes = [el("div", note, class_="m") for note in row["notes"]]
    return el(
        "tr",
        el("th", link(elements.get(row["name"]), code(row["name"])), *notes, scope="row"),
        *(el("td", row[key], class_="n") for key in ("nodes", "per_hour", "per_month", "change")),
        el("td", gauge(row["share"], 100), f"{row['share']}%", class_="n"),
    )
