# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Models on the page: what they take of the memory of the devices that they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..text import some
from .index import Index
from .markup import NOTHING, Markup, badge, code, el, gauge, join, link

_NOTE = "Of each device. Activations, graphs and scales of quantised weights come on top and are not counted."
_TITLES = ("Weights", "KV cache of a request", "For both")


def memory_section(rows: Sequence[Mapping[str, Any]], known: Index) -> Markup:
    """The section of models whose size is known. Empty where none is."""
    if not rows:
        return NOTHING
    heads = [el("th", "Model on a pool", scope="col"), *(el("th", each, scope="col", class_="n") for each in _TITLES)]
    table = el(
        "table",
        el("caption", "Models, and the memory of their devices"),
        el("thead", el("tr", *heads)),
        el("tbody", *(_row(row, known) for row in rows)),
        class_="numbers",
    )
    return join([el("p", _NOTE, class_="m"), table])


def _row(row: Mapping[str, Any], known: Index) -> Markup:
    places = [link(known.clusters.get(name), code(name)) for name in row["clusters"][:3]]
    more = some(row["clusters"][3:], 0) if len(row["clusters"]) > 3 else ""
    short = row["taken"] > row["whole"]
    where = (" on ", *_listed(places), more, f": device {row['device']}")
    word = "no room for the cache" if row["fits_weights"] else "weights do not fit"
    return el(
        "tr",
        el(
            "th",
            code(f"{row['namespace']}/{row['deployment']}"),
            f" engine {row['engine']}",
            el("div", "pool ", code(row["pool"]), *where, class_="m"),
            gauge(row["taken"], row["whole"]),
            badge(word, "warn") if short else NOTHING,
            scope="row",
        ),
        *(el("td", row[key], class_="n") for key in ("weights", "cache", "usable")),
    )


def _listed(places: Sequence[Markup]) -> list[Markup | str]:
    return [part for at, place in enumerate(places) for part in ((", ", place) if at else (place,))]
