# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A plan as a page: one HTML file that needs no network, no server and, to be read, no script.

The model is a plan as plain values; every key is there, whatever is unknown is empty:

    summary    {what: count}, shown in this order
    clusters   [{name, source, region, reason, address, labels {k: v}, taints [str], pools}]; `reason` says why nothing
               new may come
      pools    [{name, nodes, class, fabric, devices, occupied, overcommitted}]; `overcommitted` is a reason
        devices   [{name, count (per node), claim ("DRA" or "Synthetic"), what}]
        occupied  [{namespace, deployment, replica, engine, role, pods, devices {name: number per pod}}]; the names of
                  devices are those of the pool
    replicas   [{namespace, deployment, replica, cluster, index, state, reason, engines}]; `state` is new, kept,
               changed, replaced, held or manual
      engines  [{name, copies, phase, members [{role, pools [{name, pods}], pods, devices {name: number per pod}}]}];
                 pods are those of one copy
    services   [{namespace, name, path, address, tier (the priority in use, None for none), note, endpoints}]
      endpoints [{name, entry, priority, weight, usable, url, external, replica}]
    caches     [{namespace, name, artifact, clusters [{name, phase}]}]
    pending    [{namespace, deployment, replicas (how many), reason, message, refusals [{clusters, pool, reason}]}]
    removed    [{namespace, deployment, replica, cluster, reason}]
    files      {added, changed, removed: [path]}

The order of lists is kept, except where the page sorts by name for itself; equal models give equal bytes.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.changes import changes_section
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.fleet import fleet_section
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.index import index
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.markup import Markup, el, items, join, link
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.paths import services_section
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.script import SCRIPT
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.style import STYLE
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.waiting import (
    caches_section,
    waiting_section,
)

__all__ = ["html"]

_TITLE = "Plan of the fleet"


def html(model: Mapping[str, Any]) -> str:
    """The page of a model. Its policy allows its own style and script, by their hashes, and nothing else."""
    known = index(model)
    sections = (
        ("changes", "What this plan changes", changes_section(model, known)),
        ("waiting", "Pending and overcommitted", waiting_section(model, known)),
        ("fleet", "Fleet map", fleet_section(model, known)),
        ("paths", "Request paths", services_section(model["services"], known)),
        ("caches", "Model caches", caches_section(model["caches"], known)),
    )
    body = el(
        "body",
        el("a", "Skip to the plan", href="#main", class_="skip"),
        el("header", el("h1", _TITLE), _summary(model["summary"])),
        el("nav", items([link(id_, title) for id_, title, __ in sections]), aria_label="Sections"),
        _tools(),
        el(
            "main",
            *(el("section", el("h2", title, id=id_), content, aria_labelledby=id_) for id_, title, content in sections),
            id="main",
        ),
        el("footer", "Made by modelplane.fleet. The same plan gives the same page."),
        el("script", Markup(SCRIPT)),
    )
    return f"<!DOCTYPE html>\n{el('html', _head(), body, lang='en')}\n"


def _head() -> Markup:
    policy = (
        f"default-src 'none'; style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}; base-uri 'none'; form-action 'none'"
    )
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="generator", content="modelplane.fleet"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", _TITLE),
        el("style", Markup(STYLE)),
    )


def _hash(source: str) -> str:
    """A source as a Content-Security-Policy names it (CSP level 3, `hash-source`)."""
    return f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'"


def _summary(summary: Mapping[str, int]) -> Markup:
    chips = [
        join([el("strong", f"{number:,}"), f" {what.removesuffix('s') if number == 1 else what}".replace("_", " ")])
        for what, number in summary.items()
    ]
    return items(chips, "sum")


def _tools() -> Markup:
    """Filter and order, shown by the script that makes them work."""
    orders = (("name", "name"), ("fill", "fullest first"), ("free", "most free first"), ("region", "region"))
    return el(
        "div",
        el(
            "div",
            el(
                "label",
                "Filter ",
                el("input", type="search", id="filter", placeholder="cluster, label, namespace, deployment"),
            ),
            el(
                "label",
                "Clusters by ",
                el("select", *(el("option", label, value=key) for key, label in orders), id="sort"),
            ),
            el("button", "Open all shown", type="button", id="open"),
            el("button", "Close all", type="button", id="close"),
            el("span", id="message", role="status", class_="m"),
        ),
        class_="bar",
        role="search",
        id="tools",
        hidden="",
    )
