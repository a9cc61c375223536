# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Scenarios on the page: the answer to a question, and the losses of clusters that services have to survive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .cost import cost_section
from .index import Index
from .markup import NOTHING, Markup, badge, code, count, el, items, join, linked, prose

_COUNTS = (("before", "before"), ("atOnce", "at once"), ("after", "after"))
_KINDS = {"service": "service", "gateway": "gateways of a service", "deployment": "deployment"}


def what_if_section(answer: Mapping[str, Any], known: Index) -> Markup:
    """The section of an answer: the question, who moves, who finds no place, what is left of services and deployments,
    and what the fleet costs then. Empty without an answer."""
    if not answer:
        return NOTHING
    moves = [_move(move, known) for move in answer["moves"]]
    pending = [_pending(entry) for entry in answer["pending"]]
    return join(
        [
            items([el("span", each) for each in answer["asked"]]),
            _table("Replicas", ("Deployment", "From", "To"), moves) if moves else el("p", "Every replica stays."),
            join([el("h3", badge("Pending", "bad"), f" {count(len(pending), 'deployment')}"), items(pending, "at")])
            if pending
            else NOTHING,
            _lost_gateways(answer["gateways"], known),
            _counts("Services, and their usable endpoints", "Service", answer["services"], known.services),
            _counts("Deployments, and their replicas", "Deployment", answer["deployments"], {}),
            items([join([badge("Over the ceiling", "warn"), " ", prose(each)]) for each in answer["over"]]),
            cost_section(answer["costs"], known),
        ]
    )


def _move(move: Mapping[str, Any], known: Index) -> Markup:
    key = (move["namespace"], move.get("fromReplica", ""))
    owner = code(f"{move['namespace']}/{move['deployment']}" if move["deployment"] else move["namespace"])
    target = (
        join([_cluster(move["toCluster"], known), " pool ", code(", ".join(move["toPools"]))])
        if "toCluster" in move
        else badge("no place", "bad")
    )
    return el(
        "tr",
        el("td", owner, el("div", code(move.get("toReplica") or key[1]), class_="m")),
        el("td", _cluster(move["fromCluster"], known) if "fromCluster" in move else "new"),
        el("td", target, el("div", prose(move["reason"]), class_="m") if move["reason"] else NOTHING),
    )


def _cluster(name: str, known: Index) -> Markup:
    return linked(known.clusters.get(name), name)


def _pending(entry: Mapping[str, Any]) -> Markup:
    reasons = [
        join(
            [
                ", ".join(each["clusters"]),
                f" pool {each['pool']}" if "pool" in each else "",
                ": ",
                prose(each["reason"]),
            ]
        )
        for each in entry["refusals"]
    ]
    return el(
        "div",
        el("p", code(f"{entry['namespace']}/{entry['deployment']}"), f": {count(entry['replicas'], 'replica')}"),
        el("p", prose(entry["message"])),
        items(reasons, "rf"),
        class_="wait",
    )


def _lost_gateways(gateways: Sequence[Mapping[str, Any]], known: Index) -> Markup:
    if not gateways:
        return NOTHING
    rows = [
        el(
            "tr",
            el("th", code(each["name"]), scope="row"),
            el("td", _cluster(each["cluster"], known)),
            el("td", items([prose(line) for line in each["services"]]) or "none"),
        )
        for each in gateways
    ]
    return _table("Gateways that are lost", ("Gateway", "Cluster", "Services"), rows)


def _counts(
    caption: str, title: str, rows: Sequence[Mapping[str, Any]], elements: Mapping[tuple[str, str], str]
) -> Markup:
    if not rows:
        return NOTHING
    lines = [
        el(
            "tr",
            el(
                "th",
                linked(elements.get((row["namespace"], row["name"])), f"{row['namespace']}/{row['name']}"),
                scope="row",
            ),
            *(el("td", f"{row[key]:,}", class_="n") for key, __ in _COUNTS),
        )
        for row in rows
    ]
    return _table(caption, (title, *(words for __, words in _COUNTS)), lines, numbers=True)


def losses_section(survival: Mapping[str, Any], known: Index) -> Markup:
    """The section of losses that services and deployments have to survive, with what would fix those that do not.
    Empty where none has to survive any."""
    if not survival["needs"]:
        return NOTHING
    rows = [
        el(
            "tr",
            el(
                "th",
                linked(known.services.get((row["namespace"], row["name"])), f"{row['namespace']}/{row['name']}"),
                el(
                    "div",
                    f"{_KINDS[row['kind']]}, any {count(row['clusters'], 'cluster')}",
                    class_="m",
                ),
                el("div", "on clusters with ", code(row["label"]), class_="m") if row["label"] else NOTHING,
                scope="row",
            ),
            el("td", items([_place(place, known, row["kind"]) for place in row["places"]]) or "nowhere"),
            el("td", *_verdict(row)),
        )
        for row in survival["needs"]
    ]
    tried = f"{count(survival['tried'], 'loss', 'losses')} of {survival['losses']:,} that can matter were tried."
    return join(
        [_table("What has to survive", ("Subject", "Runs on", "After each loss"), rows), el("p", tried, class_="m")]
    )


def _place(place: Mapping[str, Any], known: Index, kind: str) -> Markup:
    elsewhere = "the control cluster" if kind == "gateway" else "outside of the fleet"
    where = _cluster(place["cluster"], known) if place["cluster"] else join([elsewhere])
    return join([where, f" ({place['number']:,})"])


def _verdict(row: Mapping[str, Any]) -> list[Markup]:
    if not row["what"]:
        return [badge("survives", "good")]
    said = [row["what"], *row["why"], row["fixes"]]
    return [
        badge("does not survive", "bad" if row["is_fatal"] else "warn"),
        *(el("p", prose(each)) for each in said if each),
    ]


def _table(caption: str, titles: Sequence[str], rows: Sequence[Markup], *, numbers: bool = False) -> Markup:
    """Return a table; with `numbers` all columns but the first are of numbers."""
    heads = [el("th", title, scope="col", class_="n" if numbers and at else None) for at, title in enumerate(titles)]
    return el(
        "table",
        el("caption", caption),
        el("thead", el("tr", *heads)),
        el("tbody", *rows),
        class_="numbers" if numbers else None,
    )
