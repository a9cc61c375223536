# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The fleet map: a tile per cluster where there are many, and a card for each, with its pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.index import Index
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.markup import (
    NOTHING,
    Markup,
    badge,
    code,
    count,
    el,
    gauge,
    items,
    join,
    percent,
    shortened,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.pools import (
    counted,
    grids,
    pool_section,
    uses,
)

FEW = 12
"""Up to so many clusters all are shown in full; of more there is an overview first, and each card opens on demand."""

_CAPTION = (
    "Which pod runs on which node is Kubernetes' choice when the pod starts. The drawings pack the pods of a pool on "
    "its nodes to show how much a replica takes: a frame is a node, a cell a device, and the number in "
    "it is that of the replica in the list below. Large pools are one bar. A pool counts the nodes it may grow to."
)
_TILES = (
    "A tile is a cluster: its name, how many devices are claimed, and how many there are; the stronger the colour, the "
    "fuller. Of several kinds of devices in a pool, the one counts that most pods claim. ! means a cluster with an "
    "overcommitted pool, × one that takes nothing new."
)


@dataclass(frozen=True)
class Fill:
    """Usage: how many counted devices of a cluster are claimed, of how many, and what they are called."""

    taken: int
    total: int
    device: str

    @property
    def free(self) -> int:
        return max(0, self.total - self.taken)

    def __str__(self) -> str:
        return f"{self.taken:,} of {self.total:,} {self.device} taken" if self.total else "no devices to claim"


def fill(cluster: Mapping[str, Any]) -> Fill:
    """The use of a cluster, by the kind of device that stands for each of its pools."""
    found = [use for use in map(counted, cluster["pools"]) if use]
    names = {use.device for use in found}
    device = names.pop() if len(names) == 1 else "devices"
    return Fill(sum(use.taken for use in found), sum(use.total for use in found), device)


def fleet_section(model: Mapping[str, Any], known: Index) -> Markup:
    """The section of all clusters."""
    clusters = model["clusters"]
    many = len(clusters) > FEW
    fills = [fill(cluster) for cluster in clusters]
    if not clusters:
        return el("p", "The fleet has no cluster: add an InferenceCluster.")
    cards = [
        _card(f"c{position}", cluster, use, known, open_=not many)
        for position, (cluster, use) in enumerate(zip(clusters, fills, strict=True))
    ]
    return join(
        [
            el("p", _totals(clusters)),
            _overview(clusters, fills) if many else NOTHING,
            el("p", _CAPTION, class_="m"),
            _legend(known),
            grids(pool for cluster in clusters for pool in cluster["pools"]),
            el("div", *cards, class_="cards", id="cards"),
        ]
    )


def _totals(clusters: Sequence[Mapping[str, Any]]) -> str:
    taken: dict[str, int] = {}
    total: dict[str, int] = {}
    for cluster in clusters:
        for pool in cluster["pools"]:
            for use in uses(pool):
                taken[use.device] = taken.get(use.device, 0) + use.taken
                total[use.device] = total.get(use.device, 0) + use.total
    nodes = sum(pool["nodes"] for cluster in clusters for pool in cluster["pools"])
    pools = sum(len(cluster["pools"]) for cluster in clusters)
    size = f"{count(len(clusters), 'cluster')}, {count(pools, 'pool')}, {count(nodes, 'node')}."
    shares = [
        f"{name}: {taken[name]:,} of {total[name]:,} taken ({percent(taken[name], total[name])})"
        for name in sorted(total)
    ]
    return f"{size} {'; '.join(shares)}." if shares else size


def _overview(clusters: Sequence[Mapping[str, Any]], fills: Sequence[Fill]) -> Markup:
    tiles = [_tile(position, cluster, fills[position]) for position, cluster in enumerate(clusters)]
    return el(
        "figure",
        el("figcaption", _TILES, class_="m"),
        el(
            "ul",
            *(el("li", tile) for tile in tiles),
            class_="tiles",
            id="tiles",
            aria_label="Clusters by how full they are",
        ),
    )


def _tile(position: int, cluster: Mapping[str, Any], use: Fill) -> Markup:
    over = any(pool["overcommitted"] for pool in cluster["pools"])
    flags = ("!" if over else "") + ("×" if cluster["reason"] else "")
    label = f"{cluster['name']}: {use}"
    label += ", a pool is overcommitted" if over else ""
    label += ", takes nothing new" if cluster["reason"] else ""
    level = min(10, 10 * use.taken // use.total) if use.total else 0
    return el(
        "a",
        el("span", shortened(cluster["name"]), class_="tn"),
        el("span", f"{use.taken:,}/{use.total:,}" if use.total else "–", " ", el("b", flags) if flags else NOTHING),
        href=f"#c{position}",
        class_=f"tile l{level}",
        title=label,
        aria_label=label,
    )


def _legend(known: Index) -> Markup:
    """Colours by deployment, as long as no two share one."""
    names = sorted(known.colours)
    if not names or len(names) > len(set(known.colours.values())):
        return NOTHING
    keys = [join([el("span", class_=f"k d{known.colours[key]}"), " ", "/".join(filter(None, key))]) for key in names]
    return el("div", el("h3", "Colours of deployments", class_="h"), items(keys, "lg"))


def _card(id_: str, cluster: Mapping[str, Any], use: Fill, known: Index, *, open_: bool) -> Markup:
    over = any(pool["overcommitted"] for pool in cluster["pools"])
    place = join([code(part) for part in (cluster["region"], cluster["source"]) if part], " · ")
    return el(
        "details",
        el(
            "summary",
            el("h3", code(cluster["name"])),
            el("span", place, class_="m"),
            el("span", str(use), class_="m"),
            gauge(use.taken, use.total),
            badge("Overcommitted", "bad") if over else NOTHING,
            badge("Nothing new", "warn") if cluster["reason"] else NOTHING,
        ),
        el(
            "div",
            el("p", f"No new replica may come: {cluster['reason']}") if cluster["reason"] else NOTHING,
            _facts(cluster),
            *(pool_section(pool, known) for pool in cluster["pools"]),
            NOTHING if cluster["pools"] else el("p", "It has no pool.", class_="m"),
            id=id_,
        ),
        class_="card",
        open="" if open_ else None,
        data_fill=str(1000 * use.taken // use.total if use.total else 0),
        data_free=str(use.free),
        data_region=cluster["region"],
    )


def _facts(cluster: Mapping[str, Any]) -> Markup:
    facts = []
    if cluster["address"]:
        facts.append(join(["Gateway ", code(cluster["address"])]))
    facts += [code(f"{key}={value}") for key, value in sorted(cluster["labels"].items())]
    facts += [join(["Taint ", code(taint)]) for taint in cluster["taints"]]
    return items(facts, "lb")
