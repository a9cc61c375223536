# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Clusters in detail: a card for each, with its pools, and what runs in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .health import health
from .index import Index
from .markup import NOTHING, Markup, badge, code, el, items, join, moment, prose
from .pools import DeviceUse, grids, load, pool_section

FEW = 12
"""Up to so many clusters or services all are shown in full; of more there is an overview, and each opens on demand."""

_CAPTION = (
    "Which pod runs on which node is Kubernetes' choice when the pod starts. The drawings pack the pods of a pool on "
    "its nodes to show how much a replica takes: a frame is a node, a cell a device, and the number in "
    "it is that of the replica in the list below. Large pools are one bar. A pool counts the nodes it may grow to."
)


def use_of(pools: Iterable[Mapping[str, Any]]) -> DeviceUse:
    """Return the use of the devices of all these pools."""
    pools = list(pools)
    return DeviceUse(*(sum(pool[key] for pool in pools) for key in DeviceUse._fields))


def is_overcommitted(cluster: Mapping[str, Any]) -> bool:
    """Return whether more is claimed of a pool of a cluster than it has."""
    return any(pool["overcommitted"] for pool in cluster["pools"])


def fleet_section(model: Mapping[str, Any], known: Index) -> Markup:
    """The section of all clusters."""
    clusters = model["clusters"]
    if not clusters:
        return el("p", "The fleet has no cluster: add an InferenceCluster.")
    cards = [
        _card(f"c{position}", cluster, known, open_=len(clusters) <= FEW) for position, cluster in enumerate(clusters)
    ]
    return join(
        [
            el("p", _CAPTION, class_="m") if known.is_drawn else NOTHING,
            _legend(known),
            grids(pool for cluster in clusters for pool in cluster["pools"]) if known.is_drawn else NOTHING,
            el("div", *cards, class_="cards" if len(clusters) <= FEW else "cards many", id="cards"),
        ]
    )


def _legend(known: Index) -> Markup:
    """Colours by deployment, as long as no two share one."""
    names = sorted(known.colours)
    if not names or len(names) > len(set(known.colours.values())):
        return NOTHING
    keys = [join([el("span", class_=f"k d{known.colours[key]}"), " ", "/".join(filter(None, key))]) for key in names]
    return el("div", el("h3", "Colours of deployments", class_="h"), items(keys, "lg"))


def _card(id_: str, cluster: Mapping[str, Any], known: Index, *, open_: bool) -> Markup:
    use = use_of(cluster["pools"])
    place = join([code(part) for part in (cluster["region"], cluster["source"]) if part], " · ")
    return el(
        "details",
        el(
            "summary",
            el("h3", code(cluster["name"])),
            health(cluster["state"]),
            badge("Overcommitted", "bad") if is_overcommitted(cluster) else NOTHING,
            badge("Takes nothing new", "warn") if cluster["reason"] else NOTHING,
            el("span", place, class_="m"),
            el("span", load(use), class_="use"),
        ),
        el(
            "div",
            el("p", prose(cluster["message"])) if cluster["message"] else NOTHING,
            el("p", "No new replica may come here. ", prose(cluster["reason"]))
            if cluster["reason"] not in ("", cluster["message"])
            else NOTHING,
            _facts(cluster),
            *(pool_section(pool, known) for pool in cluster["pools"]),
            NOTHING if cluster["pools"] or cluster["gateways"] else el("p", "It has no pool.", class_="m"),
            id=id_,
        ),
        class_="card",
        open="" if open_ else None,
        data_fill=str(1000 * use.used // use.total if use.total else 0),
        data_free=str(use.free),
        data_region=cluster["region"],
    )


def _facts(cluster: Mapping[str, Any]) -> Markup:
    facts = [join(["Runs InferenceGateway ", code(name)]) for name in cluster["gateways"]]
    if cluster["address"]:
        facts.append(join(["Gateway ", code(cluster["address"])]))
    if cluster["version"]:
        facts.append(join(["Kubernetes ", code(cluster["version"])]))
    if cluster["last_seen"]:
        facts.append(join(["Seen ", moment(cluster["last_seen"])]))
    facts += [code(f"{key}={value}") for key, value in sorted(cluster["labels"].items())]
    facts += [join(["Taint ", code(taint)]) for taint in cluster["taints"]]
    return items(facts, "lb")
