# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Items that need attention: waiting replicas, overcommitted pools, clusters that take nothing, caches on their way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.index import Index
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.markup import (
    NOTHING,
    Markup,
    badge,
    code,
    count,
    el,
    fold,
    items,
    join,
    link,
)

# A refusal may name every cluster of a fleet, once for each deployment that waits.
_MOST_CLUSTERS = 12
_OPEN_ENTRIES = 12


def waiting_section(model: Mapping[str, Any], known: Index) -> Markup:
    """The section of pending replicas, by reason, and of overcommitted pools and clusters that take nothing new."""
    by_reason: dict[str, list[Mapping[str, Any]]] = {}
    for pending in model["pending"]:
        by_reason.setdefault(pending["reason"], []).append(pending)
    groups = [_group(reason, by_reason[reason], known) for reason in sorted(by_reason)]
    return join(
        [
            *(groups or [el("p", "No replica waits for a place.")]),
            _overcommitted(model["clusters"]),
            _closed(model["clusters"]),
        ]
    )


def _group(reason: str, entries: Sequence[Mapping[str, Any]], known: Index) -> Markup:
    replicas = sum(entry["replicas"] for entry in entries)
    few = len(entries) <= _OPEN_ENTRIES
    title = el("h3", badge(reason, "pending"), f" {count(replicas, 'replica')} of {count(len(entries), 'deployment')}")
    return fold(title, el("div", *(_pending(entry, known, open_=few) for entry in entries), class_="ws"), open_=few)


def _pending(entry: Mapping[str, Any], known: Index, *, open_: bool) -> Markup:
    title = join(
        [code(f"{entry['namespace']}/{entry['deployment']}"), f" · {count(entry['replicas'], 'replica')} pending"]
    )
    refusals = [_refusal(refusal, known) for refusal in entry["refusals"]]
    body = el("div", el("p", entry["message"]), items(refusals, "rf"))
    return el("details", el("summary", title), body, class_="wait", open="" if open_ else None)


def _refusal(refusal: Mapping[str, Any], known: Index) -> Markup:
    names = refusal["clusters"]
    pool = join([" pool ", code(refusal["pool"])]) if refusal["pool"] else NOTHING
    if len(names) > _MOST_CLUSTERS and set(names) >= set(known.clusters):
        return join([f"All {len(names):,} clusters", pool, f": {refusal['reason']}"])
    shown = join([link(known.clusters.get(name), code(name)) for name in names[:_MOST_CLUSTERS]], ", ")
    more = len(names) - _MOST_CLUSTERS
    return join([shown, f" and {more:,} more clusters" if more > 0 else "", pool, f": {refusal['reason']}"])


def _overcommitted(clusters: Sequence[Mapping[str, Any]]) -> Markup:
    found = [
        join([link(f"c{position}", code(cluster["name"])), " pool ", code(pool["name"]), f": {pool['overcommitted']}"])
        for position, cluster in enumerate(clusters)
        for pool in cluster["pools"]
        if pool["overcommitted"]
    ]
    if not found:
        return el("p", "No pool is overcommitted.")
    title = el("h3", badge("Overcommitted", "bad"), f" {count(len(found), 'pool')}")
    return fold(title, items(found, "rf"), open_=len(found) <= _OPEN_ENTRIES)


def _closed(clusters: Sequence[Mapping[str, Any]]) -> Markup:
    found = [
        join([link(f"c{position}", code(cluster["name"])), f": {cluster['reason']}"])
        for position, cluster in enumerate(clusters)
        if cluster["reason"]
    ]
    if not found:
        return NOTHING
    title = el("h3", badge("Nothing new", "warn"), f" {count(len(found), 'cluster')} may get no new replica")
    return fold(title, items(found, "rf"), open_=len(found) <= _OPEN_ENTRIES)


def caches_section(caches: Sequence[Mapping[str, Any]], known: Index) -> Markup:
    """The section of model caches: their clusters, by phase."""
    if not caches:
        return el("p", "There is no ModelCache.")
    few = len(caches) <= _OPEN_ENTRIES
    return items([_cache(cache, known, open_=few) for cache in caches], "ca")


def _cache(cache: Mapping[str, Any], known: Index, *, open_: bool) -> Markup:
    phases: dict[str, list[str]] = {}
    for cluster in cache["clusters"]:
        phases.setdefault(cluster["phase"], []).append(cluster["name"])
    rows = [
        join(
            [
                el("strong", f"{phase or 'Not observed'}: "),
                join([link(known.clusters.get(name), code(name)) for name in phases[phase]], ", "),
            ]
        )
        for phase in sorted(phases)
    ]
    empty = el("p", "On no cluster.", class_="m") if not rows else NOTHING
    title = join([code(f"{cache['namespace']}/{cache['name']}"), " holds ", el("span", cache["artifact"])])
    return fold(join([title, f" · {count(len(cache['clusters']), 'cluster')}"]), empty, items(rows, "rf"), open_=open_)
