# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Findings about the fleet: what is wrong, why, and what to do about it; and the caches of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .health import health
from .index import Index
from .markup import NOTHING, Markup, badge, code, count, el, fold, items, join, link, linked, prose

# A refusal may name every cluster of a fleet, once for each deployment that waits.
_MOST_CLUSTERS = 12
_MOST_SERVICES = 12
_MOST_ENDPOINTS = 5
# Of more entries the rest is shown on demand, so that what changes is not far below.
_FEW = 3
# Kind, badge, title, and what its entries are.
_GROUPS = (
    ("unreachable", "unknown", "Unreachable", "cluster"),
    ("unready", "bad", "Not ready", ""),
    ("pending", "bad", "Pending", "deployment"),
    ("survival", "bad", "Losses that are not survived", ""),
)


def attention_section(model: Mapping[str, Any], known: Index) -> Markup:
    """The section of findings by kind, of overcommitted pools, and of clusters that take nothing new."""
    refusals = {(entry["namespace"], entry["deployment"]): entry["refusals"] for entry in model["pending"]}
    groups = [
        _group(badge(title, badge_), thing, [_finding(each, refusals, known) for each in _of_kind(model, kind)])
        for kind, badge_, title, thing in _GROUPS
    ]
    for is_step, title, color in (
        (False, "Endpoints that are not usable", "bad"),
        (True, "Remaining setup steps", "warn"),
    ):
        entries = [group for group in model["unusable"] if group["is_step"] is is_step]
        groups.append(_group(badge(title, color), "reason", _unusable(entries, known)))
    outside = [el("div", el("p", prose(line)), class_="wait warn-line") for line in model["sent_outside"]]
    groups.append(_group(badge("Requests outside the fleet", "warn"), "service", outside))
    groups.append(_group(badge("Overcommitted", "bad"), "pool", _overcommitted(model["clusters"])))
    groups.append(_group(badge("Takes nothing new", "warn"), "cluster", _closed(model)))
    if not any(groups):
        seen = "Nothing is wrong." if model["is_observed"] else "Nothing is wrong with the plan; no cluster was read."
        return el("p", badge(seen, "good"))
    return join(groups)


def problems(model: Mapping[str, Any]) -> int:
    """The number of things that are wrong, besides what is pending."""
    found = [each for each in model["findings"] if each["kind"] != "pending"]
    return len(found) + len(model["unusable"]) - steps(model) + len(_overcommitted(model["clusters"]))


def steps(model: Mapping[str, Any]) -> int:
    """The number of remaining setup steps before endpoints receive requests."""
    return sum(group["is_step"] for group in model["unusable"])


def _of_kind(model: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    return [each for each in model["findings"] if each["kind"] == kind]


def _group(title: Markup, thing: str, entries: Sequence[Markup]) -> Markup:
    if not entries:
        return NOTHING
    more = entries[_FEW:]
    return join(
        [
            el("h3", title, f" {count(len(entries), thing)}" if thing else f" {len(entries):,}"),
            items(entries[:_FEW], "at"),
            fold(el("span", f"{len(more):,} more"), items(more, "at")) if more else NOTHING,
        ]
    )


def _finding(
    found: Mapping[str, Any], refusals: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]], known: Index
) -> Markup:
    key = (found["namespace"], found["name"])
    why = [_refusal(refusal, known) for refusal in refusals.get(key, ())] if found["kind"] == "pending" else []
    return el(
        "div",
        el("p", *_subject(found, known), *_state(found)),
        el("p", prose(found["message"])),
        _to_do(found["hint"]),
        el("p", el("b", "On the cluster, see: "), el("code", found["command"])) if found["command"] else NOTHING,
        fold(el("span", "Why no cluster takes it"), items(why, "rf")) if why else NOTHING,
        class_="wait",
    )


def _state(found: Mapping[str, Any]) -> list[object]:
    if found["subject"] == "deployment":
        return [": ", found["status"]]
    return [" ", health(found["status"])] if found["status"] else []


def _subject(found: Mapping[str, Any], known: Index) -> list[object]:
    """The subject of a finding, with a link to it."""
    key = (found["namespace"], found["name"])
    name = code("/".join(filter(None, key)))
    cluster = linked(known.clusters.get(found["cluster"]), found["cluster"])
    if found["subject"] == "cluster":
        return ["Cluster ", cluster]
    elements = {"service": known.services, "replica": known.replicas}.get(found["subject"], {})
    subject: list[object] = [f"{found['subject'].capitalize()} ", link(elements.get(key), name)]
    return [*subject, " on ", cluster] if found["cluster"] else subject


def _refusal(refusal: Mapping[str, Any], known: Index) -> Markup:
    names = refusal["clusters"]
    pool = join([" pool ", code(refusal["pool"])]) if refusal["pool"] else NOTHING
    reason = prose(refusal["reason"])
    if len(names) > _MOST_CLUSTERS and set(names) >= set(known.clusters):
        return join([f"All {len(names):,} clusters", pool, ": ", reason])
    shown = join([linked(known.clusters.get(name), name) for name in names[:_MOST_CLUSTERS]], ", ")
    more = len(names) - _MOST_CLUSTERS
    return join([shown, f" and {more:,} more clusters" if more > 0 else "", pool, ": ", reason])


def _unusable(groups: Sequence[Mapping[str, Any]], known: Index) -> list[Markup]:
    return [
        el(
            "div",
            *(_endpoints(service, known) for service in group["services"][:_MOST_SERVICES]),
            el("p", f"And {count(more, 'more service')}.")
            if (more := len(group["services"]) - _MOST_SERVICES) > 0
            else NOTHING,
            el("p", "For gateways in mode Model: " if group["of_models"] else "", prose(group["reason"])),
            _to_do(group["hint"]),
            class_="wait warn-line" if group["is_step"] else "wait",
        )
        for group in groups
    ]


def _endpoints(service: Mapping[str, Any], known: Index) -> Markup:
    key = (service["namespace"], service["name"])
    named = [code(name) for name in service["endpoints"][:_MOST_ENDPOINTS]]
    more = len(service["endpoints"]) - len(named)
    return el(
        "p",
        "Service ",
        link(known.services.get(key), code("/".join(key))),
        ": ",
        join(named, ", "),
        f" and {more:,} more" if more else "",
    )


def _to_do(hint: str) -> Markup:
    return el("p", el("b", "What to do: "), prose(hint)) if hint else NOTHING


def _overcommitted(clusters: Sequence[Mapping[str, Any]]) -> list[Markup]:
    return [
        el(
            "div",
            el("p", "Cluster ", linked(f"c{position}", cluster["name"]), " pool ", code(pool["name"])),
            el("p", prose(pool["overcommitted"])),
            class_="wait",
        )
        for position, cluster in enumerate(clusters)
        for pool in cluster["pools"]
        if pool["overcommitted"]
    ]


def _closed(model: Mapping[str, Any]) -> list[Markup]:
    """Clusters that take nothing new although they are not among the findings."""
    named = {each["cluster"] for each in model["findings"] if each["subject"] == "cluster"}
    return [
        el(
            "div",
            el("p", "Cluster ", linked(f"c{position}", cluster["name"])),
            el("p", prose(cluster["reason"])),
            class_="wait warn-line",
        )
        for position, cluster in enumerate(model["clusters"])
        if cluster["reason"] and cluster["name"] not in named
    ]


def caches_section(caches: Sequence[Mapping[str, Any]], known: Index) -> Markup:
    """The section of model caches: their clusters, by phase."""
    if not caches:
        return el("p", "There is no ModelCache.")
    return items([_cache(cache, known, open_=len(caches) <= _MOST_CLUSTERS) for cache in caches], "ca")


def _cache(cache: Mapping[str, Any], known: Index, *, open_: bool) -> Markup:
    phases: dict[tuple[str, str], list[str]] = {}
    for cluster in cache["clusters"]:
        phases.setdefault((cluster["phase"], cluster["message"]), []).append(cluster["cluster"])
    rows = [
        join(
            [
                health(phase),
                " ",
                join([linked(known.clusters.get(name), name) for name in phases[phase, message]], ", "),
                join([": ", prose(message)]) if message else NOTHING,
            ]
        )
        for phase, message in sorted(phases)
    ]
    empty = el("p", "On no cluster.", class_="m") if not rows else NOTHING
    title = join([code(f"{cache['namespace']}/{cache['name']}"), " holds ", el("span", cache["artifact"])])
    ready = f" · ready on {cache['ready']:,} of {count(len(cache['clusters']), 'cluster')}"
    return fold(join([title, ready]), empty, items(rows, "rf"), open_=open_)
