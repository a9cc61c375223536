# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The fleet as one picture: from services over endpoints to clusters and their pools, with health and load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from .fleet import FEW, is_overcommitted, use_of
from .health import health, kind_of, rank_of
from .index import Index, serves, serving_weight
from .markup import (
    HOLE,
    NOTHING,
    Markup,
    badge,
    code,
    count,
    el,
    fold,
    gauge,
    join,
    linked,
    percent,
    pods_with,
    prose,
    shape,
    shortened,
)
from .pools import DeviceUse, load, nodes_of

_TILES = (
    "A tile is a cluster: its name, its devices in use, and all of them; the stronger the colour, the fuller. "
    "! means not ready or overcommitted, ? not known, × that it takes nothing new."
)
_MOST_ENDPOINTS = 8
# More tiles are small, and named where they are pointed at and to screen readers.
_MOST_LARGE = 60


def picture_section(model: Mapping[str, Any], known: Index) -> Markup:
    """The section of the whole fleet."""
    clusters = model["clusters"]
    parts = [_totals(clusters)]
    if len(clusters) > FEW:
        parts.append(_overview(clusters))
    parts += [_services(model, known), _gateways(model["gateways"], known)]
    if len(clusters) <= FEW:
        parts.append(_unrouted(model, known))
    return join(parts)


def _totals(clusters: Sequence[Mapping[str, Any]]) -> Markup:
    pools = [pool for cluster in clusters for pool in cluster["pools"]]
    size = ", ".join(
        (
            count(len(clusters), "cluster"),
            count(len(pools), "pool"),
            count(sum(pool["nodes"] for pool in pools), "node"),
        )
    )
    return el("p", f"{size}: ", load(use_of(pools)))


def _overview(clusters: Sequence[Mapping[str, Any]]) -> Markup:
    large = len(clusters) <= _MOST_LARGE
    tiles = [_tile(position, cluster, large=large) for position, cluster in enumerate(clusters)]
    return el(
        "figure",
        el("figcaption", _TILES, class_="m"),
        el(
            "ul",
            *(el("li", tile) for tile in tiles),
            class_="tiles" if large else "tiles small",
            id="tiles",
            aria_label="Clusters",
        ),
    )


def _tile(position: int, cluster: Mapping[str, Any], *, large: bool) -> Markup:
    use = use_of(cluster["pools"])
    kind, over = kind_of(cluster["state"]), is_overcommitted(cluster)
    flags = "!" if over or kind == "bad" else "?" if kind == "unknown" else ""
    flags += "×" if cluster["reason"] else ""
    label = f"{cluster['name']}: {cluster['state']}, {use.words}"
    label += ", a pool is overcommitted" if over else ""
    label += ", takes nothing new" if cluster["reason"] else ""
    label += "".join(f", runs InferenceGateway {name}" for name in cluster["gateways"])
    level = min(10, 10 * use.used // use.total) if use.total else 0
    bold = el("b", flags) if flags else NOTHING
    return el(
        "a",
        el("span", shortened(cluster["name"]), class_="tn") if large else NOTHING,
        el("span", f"{use.used:,}/{use.total:,}" if use.total else "–", " ", bold) if large else bold,
        href=f"#c{position}",
        class_=f"tile l{level} t-{'bad' if over else kind}",
        title=label,
        aria_label=label,
    )


def _services(model: Mapping[str, Any], known: Index) -> Markup:
    services = model["services"]
    if not services:
        by_cluster = "replicas can be reached through their cluster's gateway only"
        return el(
            "p",
            "There is no ModelService: ",
            by_cluster if model["serves_paths"] else "replicas cannot be reached",
            ".",
        )
    few = len(services) <= FEW
    # Of many, the first are shown: those that are not as they should be.
    order = (
        range(len(services)) if few else sorted(range(len(services)), key=lambda at: rank_of(services[at]["status"]))
    )
    cards = [_service(at, services[at], known, open_=few) for at in order]
    return el("div", *cards, class_="services" if few else "services many", id="services")


def _service(position: int, service: Mapping[str, Any], known: Index, *, open_: bool) -> Markup:
    serving = sum(serves(service, endpoint) for endpoint in service["endpoints"])
    endpoints = sorted(service["endpoints"], key=lambda endpoint: _order(service, endpoint))
    whole = serving_weight(service)
    rows = [_endpoint(service, endpoint, whole, known) for endpoint in endpoints]
    more = rows[_MOST_ENDPOINTS:]
    return el(
        "details",
        el(
            "summary",
            el("h3", "Service ", code(f"{service['namespace']}/{service['name']}")),
            health(service["status"]),
            el("span", f"{serving:,} of {count(service['desired'], 'endpoint')} with requests", class_="m"),
            el(
                "span",
                code(service["address"] or service["path"] or f"model {service['namespace']}/{service['name']}"),
                class_="m",
            ),
        ),
        el(
            "div",
            el("p", prose(service["message"])) if service["message"] else NOTHING,
            el("p", "The address of the gateway is not known yet.", class_="m")
            if service["path"] and not service["address"]
            else NOTHING,
            el("p", service["at"], class_="m") if service["at"] else NOTHING,
            el("p", "It selects no endpoint.", class_="m") if not endpoints else NOTHING,
            el("ol", *rows[:_MOST_ENDPOINTS], class_="rt") if rows else NOTHING,
            fold(el("span", f"{count(len(more), 'more endpoint')}"), el("ol", *more, class_="rt")) if more else NOTHING,
            id=f"s{position}",
        ),
        class_="card service",
        open="" if open_ else None,
    )


def _gateways(gateways: Sequence[Mapping[str, Any]], known: Index) -> Markup:
    """Gateways in mode Model: where they run, and what they route."""
    if not gateways:
        return NOTHING
    rows = [
        el(
            "li",
            el("div", "Gateway ", code(each["name"]), " ", health(each["state"])),
            el("div", _cluster(each["cluster"], known)),
            el("div", code(each["address"])) if each["address"] else el("div", "No address yet", class_="m"),
            el("div", f"Routes {each['models']:,} of {count(each['services'], 'model')}", class_="m"),
            el("div", prose(each["message"])) if each["message"] else NOTHING,
        )
        for each in gateways
    ]
    return el("div", el("h3", "Gateways in mode Model"), el("ul", *rows, class_="ca"), class_="card")


def _order(service: Mapping[str, Any], endpoint: Mapping[str, Any]) -> tuple[bool, int, int, str]:
    """Those that get requests first, then as they were written."""
    return not serves(service, endpoint), endpoint["priority"], endpoint["entry"], endpoint["name"]


_ENDPOINT = shape(
    el(
        "li",
        el(
            "div",
            HOLE,
            el("div", "Endpoint ", code(HOLE)),
            el("div", HOLE, class_="m"),
            el("div", HOLE, "priority ", HOLE, " · entry ", HOLE, class_="m"),
        ),
        el("div", HOLE, class_="hop"),
        HOLE,
    )
)
_HOP = shape(el("div", HOLE, class_="hop"))


def _endpoint(service: Mapping[str, Any], endpoint: Mapping[str, Any], whole: int, known: Index) -> Markup:
    key = (service["namespace"], endpoint["replica"])
    replica = known.placed.get(key) if endpoint["replica"] else None
    return _ENDPOINT(
        _share(service, endpoint, whole),
        endpoint["name"],
        _leads_to(endpoint),
        f"weight {endpoint['weight']:,} · " if endpoint["weight"] else "",
        endpoint["priority"],
        endpoint["entry"],
        _target(endpoint, replica, known),
        _HOP(_pools(replica, known)) if replica else NOTHING,
    )


def _leads_to(endpoint: Mapping[str, Any]) -> Markup:
    url, model = endpoint["url"], endpoint["model"]
    called = join(["model ", code(model)]) if model else NOTHING
    return join([each for each in (code(url) if url else NOTHING, called) if each], " · ")


@lru_cache(maxsize=1 << 10, typed=True)
def _part(weight: int, whole: int) -> Markup:
    share = NOTHING if weight == whole else gauge(weight, whole)
    return join([el("strong", percent(weight, whole)), " of requests", share])


def _share(service: Mapping[str, Any], endpoint: Mapping[str, Any], whole: int) -> Markup:
    if serves(service, endpoint):
        return join([_part(endpoint["weight"], whole), _unused(endpoint)])
    if not endpoint["usable"]:
        return join([badge("Not usable: no requests", "bad"), _unused(endpoint)])
    if service["tier"] is not None and endpoint["priority"] > service["tier"]:
        return badge("Stands by", "held")
    return badge("No requests", "held")


def _unused(endpoint: Mapping[str, Any]) -> Markup:
    reason = endpoint["unused"]
    return el("div", "None from gateways in mode Model: ", prose(reason)) if reason else NOTHING


_TARGET = shape(join([el("div", HOLE), el("div", "Replica ", HOLE, " ", HOLE)]))


def _target(endpoint: Mapping[str, Any], replica: Mapping[str, Any] | None, known: Index) -> Markup:
    """Return what answers an endpoint: a replica on a cluster, or something outside of the fleet."""
    if replica is None:
        outside = "Outside of the fleet" if endpoint["external"] or not endpoint["replica"] else ""
        return join([outside] if outside else ["Replica ", code(endpoint["replica"]), ", which is not of this plan"])
    named = linked(known.replicas.get((replica["namespace"], replica["replica"])), replica["replica"])
    return _TARGET(_cluster(replica["cluster"], known), named, health(replica["status"]))


_CLUSTER = shape(join(["Cluster ", HOLE, HOLE]))


def _cluster(name: str, known: Index) -> Markup:
    row = known.cluster_rows.get(name)
    state = join([" ", health(row["state"])]) if row else NOTHING
    return _CLUSTER(linked(known.clusters.get(name), name), state)


def _pools(replica: Mapping[str, Any], known: Index) -> Markup:
    """The pools of a replica with their load."""
    row = known.cluster_rows.get(replica["cluster"])
    used = {
        pool["name"]: None for engine in replica["engines"] for member in engine["members"] for pool in member["pools"]
    }
    return join(_pool(pool) for pool in (row["pools"] if row else ()) if pool["name"] in used)


def _pool(pool: Mapping[str, Any]) -> Markup:
    return _pool_load(pool["name"], nodes_of(pool), use_of([pool]))


@lru_cache(maxsize=1 << 12, typed=True)
def _pool_load(name: str, nodes: str, use: DeviceUse) -> Markup:
    title = el("div", "Pool ", code(name), el("span", f" · {nodes}", class_="m"))
    return el("div", title, load(use), class_="load")


def _unrouted(model: Mapping[str, Any], known: Index) -> Markup:
    """Clusters to which no service leads, without those that are there for a gateway alone."""
    reached = {
        known.placed[service["namespace"], endpoint["replica"]]["cluster"]
        for service in model["services"]
        for endpoint in service["endpoints"]
        if (service["namespace"], endpoint["replica"]) in known.placed
    }
    rows = [
        el(
            "li",
            el("div", _cluster(cluster["name"], known)),
            el("div", *(_pool(pool) for pool in cluster["pools"]), class_="hop") if cluster["pools"] else NOTHING,
        )
        for cluster in model["clusters"]
        if cluster["name"] not in reached and (cluster["pools"] or not cluster["gateways"])
    ]
    if not rows:
        return NOTHING
    title = "Clusters without endpoints" if len(rows) < len(model["clusters"]) else "Clusters"
    return el("div", el("h3", title), el("ul", *rows, class_="rt two"), class_="card")


def where(replica: Mapping[str, Any], known: Index) -> Markup:
    """The cluster of a replica, and the pools, pods and devices of its engines."""
    cluster = replica["cluster"]
    members = (_member(engine, member) for engine in replica["engines"] for member in engine["members"])
    return join(["on ", linked(known.clusters.get(cluster), cluster), *members])


_MEMBER = shape(el("div", HOLE, HOLE, HOLE))


def _member(engine: Mapping[str, Any], member: Mapping[str, Any]) -> Markup:
    phase = f" ({engine['phase']})" if engine["phase"] else ""
    takes = pods_with(member["pods"], member["devices"], engine["copies"])
    spread = len(member["pools"]) > 1
    pools = join(
        [join([f"{count(pool['pods'], 'pod')} in " if spread else "", code(pool["name"])]) for pool in member["pools"]],
        ", ",
    )
    between = (": " if spread else " in ") if member["pools"] else ""
    return _MEMBER(f"{engine['name']}{phase} {member['role']}: {takes}", between, pools)
