# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Distribution on the page: replicas by value of a label and by preference, and those that go for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .fleet import FEW
from .index import Index
from .markup import NOTHING, Markup, badge, code, count, el, fold, items, join, linked, measure, prose

_LINES = "Lines across a bar are the smallest and the largest number of replicas that are asked for."
_MOST_PLACES = 6
_MOST_VALUES = 12


def distribution_section(rows: Sequence[Mapping[str, Any]], known: Index) -> Markup:
    """The section of deployments that ask for a spread, preferred clusters, a minimum or preemption. Empty where none
    does."""
    if not rows:
        return NOTHING
    cards = [_card(row, known, open_=len(rows) <= FEW) for row in rows]
    return join([el("p", _LINES, class_="m"), el("div", *cards, class_="services")])


def _card(row: Mapping[str, Any], known: Index, *, open_: bool) -> Markup:
    missing = row["desired"] - row["replicas"]
    return el(
        "details",
        el(
            "summary",
            el("h3", "Deployment ", code(f"{row['namespace']}/{row['deployment']}")),
            el("span", count(row["replicas"], "replica"), class_="m"),
            badge(f"{missing:,} pending", "pending") if missing > 0 else NOTHING,
        ),
        el(
            "div",
            _fleet_minimum(row),
            el("p", "New replicas may take the place of those of lower priority.") if row["preempts"] else NOTHING,
            el("div", *(el("div", part) for part in _parts(row, known)), class_="parts"),
        ),
        class_="card",
        open="" if open_ else None,
    )


def _parts(row: Mapping[str, Any], known: Index) -> list[Markup]:
    parts = [
        *(_topology(entry, known) for entry in row["topologies"]),
        _tiers(row, known),
        _goes("Replicas that leave", row["leaving"], known),
        _goes("Replicas that it preempts", row["preempted"], known),
    ]
    return [part for part in parts if part]


def _fleet_minimum(row: Mapping[str, Any]) -> Markup:
    if row["minimum"] is None:
        return NOTHING
    few = row["minimum"] - row["replicas"]
    return el("p", f"At least {count(row['minimum'], 'replica')} in the fleet. ", _too("few", few))


def _too(word: str, number: int) -> Markup:
    return badge(f"{number:,} too {word}", "warn") if number > 0 else NOTHING


def _topology(entry: Mapping[str, Any], known: Index) -> Markup:
    values = [_value(each, entry, known) for each in entry["values"]]
    more = values[_MOST_VALUES:]
    return join(
        [
            el("h4", "Over ", code(entry["key"])),
            el("p", _rule(entry), class_="m"),
            el("ul", *values[:_MOST_VALUES], class_="rt half"),
            fold(el("span", count(len(more), "more value")), el("ul", *more, class_="rt half")) if more else NOTHING,
        ]
    )


def _rule(entry: Mapping[str, Any]) -> Markup:
    """Return what is asked for, in one sentence each."""
    parts: list[object] = []
    if entry["minimum"] is not None:
        parts.append(f"At least {entry['minimum']:,} each. ")
    if entry["most"] is not None:
        verb = "At most" if entry["required"] else "If possible at most"
        least = entry["most"] - entry["max_skew"]
        parts += [
            f"{verb} {entry['most']:,} each now: ",
            code(entry["fewest"]),
            f" has fewest, {least:,}, and maxSkew is {entry['max_skew']:,}.",
        ]
    elif entry["max_skew"] is not None:
        parts.append("No cluster with this label takes new replicas.")
    return join(parts)


def _value(value: Mapping[str, Any], entry: Mapping[str, Any], known: Index) -> Markup:
    minimum, most, number = entry["minimum"], entry["most"], value["replicas"]
    bounds = [each for each in (minimum, most) if each is not None] if value["value"] else []
    whole = max(number, *bounds, *(each["replicas"] for each in entry["values"]), 1)
    excess = number if entry["required"] else 0
    if value["value"]:
        excess = number - most if most is not None else 0
    few = minimum - number if value["value"] and minimum is not None else 0
    return el(
        "li",
        el(
            "div",
            code(value["value"]) if value["value"] else "without the label",
            el("div", _places(value["places"], known), class_="m"),
        ),
        el(
            "div",
            el("strong", f"{number:,}"),
            f" {'replica' if number == 1 else 'replicas'} ",
            _too("few", few),
            _too("many", excess),
            NOTHING if value["takes_new"] else badge("takes nothing new", "held"),
            measure(number, whole, bounds),
        ),
    )


def _places(places: Sequence[Mapping[str, Any]], known: Index) -> Markup:
    """Return clusters, those with most replicas first."""
    ordered = sorted(places, key=lambda each: (-each["replicas"], each["cluster"]))
    shown = [
        join([linked(known.clusters.get(each["cluster"]), each["cluster"]), f" {each['replicas']:,}"])
        for each in ordered[:_MOST_PLACES]
    ]
    more = len(ordered) - len(shown)
    return join([join(shown, ", "), f" and {more:,} more" if more else ""]) if shown else join(["no cluster"])


def _tiers(row: Mapping[str, Any], known: Index) -> Markup:
    # Where each cluster is of some term, there are no others.
    tiers = [each for each in row["tiers"] if each["labels"] or each["places"]]
    if not tiers:
        return NOTHING
    back = "Replicas return when a more preferred cluster has room, one at a time." if row["returns"] else ""
    whole = max(row["replicas"], 1)
    parts = [
        el(
            "li",
            el(
                "div",
                _labels(each["labels"]),
                el("div", _places(each["places"], known), class_="m"),
            ),
            el(
                "div",
                el("strong", f"{each['replicas']:,}"),
                f" of {count(row['replicas'], 'replica')}",
                measure(each["replicas"], whole),
            ),
        )
        for each in tiers
    ]
    return join(
        [
            el("h4", "Preferred clusters"),
            el("p", f"The first that has room takes a replica. {back}", class_="m"),
            el("ol", *parts, class_="rt half"),
        ]
    )


def _labels(labels: Mapping[str, str]) -> Markup:
    if not labels:
        return join(["All other clusters"])
    return join([code(f"{key}: {value}") for key, value in sorted(labels.items())], ", ")


def _goes(title: str, replicas: Sequence[Mapping[str, Any]], known: Index) -> Markup:
    if not replicas:
        return NOTHING
    rows = [
        el(
            "div",
            badge("leaving", "replaced") if each["stays"] else badge("removed", "removed"),
            " ",
            linked(known.replicas.get((each["namespace"], each["replica"])), each["replica"]),
            " of ",
            code(f"{each['namespace']}/{each['deployment']}"),
            " on ",
            linked(known.clusters.get(each["cluster"]), each["cluster"]),
            el("div", prose(each["reason"]), "; stays until another serves" if each["stays"] else "", class_="m"),
        )
        for each in replicas
    ]
    return join([el("h4", title), items(rows, "rf")])
