# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Changes of a plan: what it adds, changes and removes: replicas first, then objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .health import health
from .index import Index
from .markup import HOLE, NOTHING, Markup, badge, code, count, el, fold, join, linked, prose, shape
from .picture import where

_MEANING = {
    "new": "placed by this plan",
    "changed": "in place, with another template",
    "replaced": "what ran goes, and another one comes in its place",
    "held": "left exactly as it is, because something about it cannot be read or decided",
    "kept": "nothing changes",
    "leaving": "running until others serve instead",
    "manual": "written by hand; counts against capacity and is left alone",
}
_KINDS = (("created", "new"), ("changed", "changed"), ("removed", "removed"))
_OPEN_ROWS = 25
# A first build of a large fleet writes tens of thousands of files: their folders say enough then.
_MOST_FILES = 3_000
_MOST_FOLDERS = 1_000


def changes_section(model: Mapping[str, Any], known: Index) -> Markup:
    """The section of replicas by what happens to them, and of objects."""
    by_state: dict[str, list[int]] = {state: [] for state in _MEANING}
    for position, replica in enumerate(model["replicas"]):
        by_state.setdefault(replica["state"], []).append(position)
    parts = [
        _replicas(state, positions, model["replicas"], known) for state, positions in by_state.items() if positions
    ]
    if model["removed"]:
        parts.insert(3, _removed(model["removed"], known))
    nothing = el("p", "No replica runs, and none is placed.") if not parts else NOTHING
    return join([nothing, *parts, _objects(model, known)])


def _replicas(state: str, positions: Sequence[int], replicas: Sequence[Mapping[str, Any]], known: Index) -> Markup:
    title = join([badge(state, state), f" {count(len(positions), 'replica')}: {_MEANING.get(state, state)}"])
    rows = [_replica(position, replicas[position], known) for position in positions]
    return fold(
        title,
        _table(f"Replicas that are {state}", ("Replica", "Runs on"), rows),
        open_=state not in ("kept", "manual") and len(rows) <= _OPEN_ROWS,
    )


_REPLICA = shape(
    el(
        "tr",
        el("td", code(HOLE), el("div", code(HOLE), " · index ", HOLE, class_="m"), HOLE),
        el("td", HOLE, HOLE),
        id=join(["r", HOLE]),
    )
)


def _replica(position: int, replica: Mapping[str, Any], known: Index) -> Markup:
    owner = f"{replica['namespace']}/{replica['deployment']}" if replica["deployment"] else replica["namespace"]
    return _REPLICA(
        position,
        owner,
        replica["replica"],
        replica["index"],
        health(replica["status"]),
        where(replica, known),
        el("div", prose(replica["reason"])) if replica["reason"] else NOTHING,
    )


def _removed(removed: Sequence[Mapping[str, Any]], known: Index) -> Markup:
    rows = [
        el(
            "tr",
            el(
                "td", code(f"{entry['namespace']}/{entry['deployment']}"), el("div", code(entry["replica"]), class_="m")
            ),
            el(
                "td",
                "from ",
                linked(known.clusters.get(entry["cluster"]), entry["cluster"]),
                el("div", prose(entry["reason"])),
            ),
        )
        for entry in removed
    ]
    title = join([badge("removed", "removed"), f" {count(len(removed), 'replica')}: no longer desired there"])
    return fold(title, _table("Replicas that are removed", ("Replica", "Removed"), rows), open_=len(rows) <= _OPEN_ROWS)


def _table(caption: str, titles: Sequence[str], rows: Sequence[Markup]) -> Markup:
    return el(
        "table",
        el("caption", caption),
        el("thead", el("tr", *(el("th", title, scope="col") for title in titles))),
        el("tbody", *rows),
    )


def _objects(model: Mapping[str, Any], known: Index) -> Markup:
    """Objects that change, by cluster in numbers, and by file in full."""
    if not model["objects"]:
        return join([el("h3", "Objects"), el("p", "No object changes.")])
    rows = [
        el(
            "tr",
            el("th", _place(entry["cluster"], known), scope="row"),
            *(el("td", f"{entry[kind]:,}", class_="n") for kind, __ in _KINDS),
        )
        for entry in model["objects"]
    ]
    heads = el(
        "tr", el("th", "Cluster", scope="col"), *(el("th", kind, scope="col", class_="n") for kind, __ in _KINDS)
    )
    sums = [sum(entry[kind] for entry in model["objects"]) for kind, __ in _KINDS]
    title = ", ".join(f"{number:,} {kind}" for (kind, __), number in zip(_KINDS, sums, strict=True) if number)
    table = el("table", el("caption", "Objects by cluster"), el("thead", heads), el("tbody", *rows), class_="numbers")
    folds = [
        fold(
            join([badge(kind, state), f" {count(len(model['files'][kind]), 'object')}"]), _folders(model["files"][kind])
        )
        for kind, state in _KINDS
        if model["files"][kind]
    ]
    many = len(rows) > _OPEN_ROWS
    return join(
        [
            el("h3", f"Objects: {title}"),
            fold(el("span", f"By cluster ({len(rows):,})"), table, open_=not many) if many else table,
            *folds,
        ]
    )


def _place(cluster: str, known: Index) -> Markup:
    return linked(known.clusters.get(cluster), cluster) if cluster else join(["Control cluster"])


def _folders(paths: Sequence[str]) -> Markup:
    """Paths by folder. Of very many only the folders and how many files change in each."""
    folders: dict[str, list[str]] = {}
    for path in sorted(paths):
        folder, __, name = path.rpartition("/")
        folders.setdefault(folder, []).append(name)
    shown = list(folders.items())[:_MOST_FOLDERS]
    brief = len(paths) > _MOST_FILES
    rows = [
        el("li", el("span", f"{folder}/" if folder else "./"), " ", count(len(names), "file"))
        if brief
        else el("li", el("span", f"{folder}/" if folder else "./"), el("pre", "\n".join(names)))
        for folder, names in shown
    ]
    more = len(folders) - len(shown)
    return join(
        [
            el("ul", *rows, class_="files"),
            el("p", f"And {count(more, 'more folder')}.", class_="m") if more else NOTHING,
        ]
    )
