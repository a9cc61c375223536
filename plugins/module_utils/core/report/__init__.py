# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet as a page: one HTML file that needs no network, no server and, to be read, no script.

The model is plain values; every key is there, whatever is unknown is empty. What `FleetStatus` (`output/status.py`)
has is from there, so that the numbers and words of the page are those of the terminal and of the document:

    time, commit  of the plan; `is_observed`: whether clusters were read
    counts     {clusters, services, objects, desired, placed, pending, serving (None if not observed)}
    findings   the fields of `output/findings.py`
    sent_outside  [warning that a service sends all requests outside the fleet],
    unusable   [{reason, hint, of_models (only Model gateways send no requests), is_step, services}],
               endpoints without requests
      services   [{namespace, name, endpoints [str]}]
    serves_paths  whether gateways in mode Path serve services
    clusters   [{name, state, message, version, last_seen, source, region, reason, address, labels {k: v}, taints [str],
               gateways [str], pools}]; `reason` says why nothing new may come, `gateways` are those in mode Model there
      pools    [{name, nodes, schedulable_nodes (None if not observed), unavailable_nodes [str], total, used, planned,
                and unavailable (devices), class, fabric, devices,
               occupied, overcommitted}]; `overcommitted` is a reason
        devices   [{name, count (per node), claim ("DRA" or "Synthetic"), what}]
        occupied  [{namespace, deployment, replica, engine, role, pods, devices {name: number per pod}}]; the names of
                  devices are those of the pool
    replicas   [{namespace, deployment, replica, cluster, index, state, reason, status, message, engines}]; `state` is
               new, kept, changed, replaced, leaving, held or manual
      engines  [{name, copies, phase, members [{role, pools [{name, pods}], pods, devices {name: number per pod}}]}];
                 pods are those of one copy
    services   [{namespace, name, path, address, at (gateways in mode Model), tier (the priority in use, None for none),
               status, message, desired, endpoints}]; `desired`: number of endpoints, including missing endpoints
      endpoints [{name, entry, priority, weight, usable, unused (why gateways in mode Model send it none), url (empty
                 for a replica where no gateway is in mode Path), model (its name there; may be empty), external,
                 replica}]
    caches     [{namespace, name, artifact, ready, clusters [{cluster, phase, message}]}]
    policies   [{namespace, name, message, budgets}], of CallerPolicies with budgets; `message` says what is not known
      budgets  [{name, unit, limit, per, use [{gateway, caller (not of one for all), used}], moreCallers, resetsAt}];
               budgets with unit Cost have amount and currency, and their use has spent
    pending    [{namespace, deployment, refusals [{clusters, pool, reason}]}]
    removed    [{namespace, deployment, replica, cluster, action, reason}]
    objects    [{cluster (empty for the control cluster), created, changed, removed (how many)}]
    files      {created, changed, removed: [path]} of these objects
    distributions [{namespace, deployment, replicas, desired, minimum, topologies, tiers, returns, preempts, leaving,
                  preempted}], as `output/distribution.py` says; of deployments that ask for one
    what_if    {} without a question, else `output/what_if.py` (its document in written form), with asked [str],
               over [str] (deployments over their ceiling), gateways [{name, cluster, services [str]}] (those that
               are lost, and what is left of their services) and costs (as cost below)
    survival   {losses, tried (how many), needs}
      needs    [{kind, namespace, name, label (of clusters, or empty), clusters, is_fatal,
               places [{cluster (empty for none of the fleet), number}],
               what (empty when it survives all), why [str], fixes}]
    cost       {} for a fleet that knows no prices, else {currency, hours (of a month), as_of, clusters, deployments,
               notes [str]}; of clusters the last one is the fleet
      clusters, deployments  [{name, nodes, per_hour, per_month, change (texts), share (percent, or None), notes [str]}]
    memory     [{namespace, deployment, engine, pool, device, clusters [str], weights, cache, usable (texts),
               taken, whole (numbers of a unit), fits_weights}], of models whose size is known

The order of lists is kept, except where the page sorts by name for itself; equal models give equal bytes.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from .attention import attention_section, caches_section, problems, steps
from .budgets import budgets_section
from .changes import changes_section
from .cost import cost_section
from .distribution import distribution_section
from .fleet import fleet_section
from .index import index
from .markup import HOLE, Markup, code, count, el, items, join, link, moment, shape
from .memory import memory_section
from .picture import picture_section
from .scenarios import losses_section, what_if_section
from .script import SCRIPT
from .style import STYLE

__all__ = ["html"]

_TITLE = "The fleet"


def html(model: Mapping[str, Any]) -> str:
    """The page of a model. Its policy allows its own style and script, by their hashes, and nothing else."""
    known = index(model)
    scenarios = (
        ("distribution", "Order and spread of replicas", distribution_section(model["distributions"], known)),
        ("what-if", "What if", what_if_section(model["what_if"], known)),
        ("losses", "Losses of clusters", losses_section(model["survival"], known)),
    )
    plan_sections = (
        ("cost", "What it costs", cost_section(model["cost"], known)),
        ("memory", "Models and memory", memory_section(model["memory"], known)),
        ("budgets", "Use of budgets", budgets_section(model["policies"])),
    )
    sections = (
        ("attention", "What is wrong", attention_section(model, known)),
        ("picture", "Services, clusters and pools", picture_section(model, known)),
        *(section for section in scenarios if section[2]),
        *(section for section in plan_sections if section[2]),
        ("changes", "What changes", changes_section(model, known)),
        ("fleet", "Clusters in detail", fleet_section(model, known)),
        ("caches", "Model caches", caches_section(model["caches"], known)),
    )
    body = el(
        "body",
        el("a", "Skip to the fleet", href="#main", class_="skip"),
        el("header", el("h1", _TITLE), _origin(model), _summary(model)),
        el("nav", items([link(id_, title) for id_, title, __ in sections]), aria_label="Sections"),
        _tools(),
        # Sections that are read first stand side by side where there is room.
        el("main", el("div", HOLE, HOLE, class_="first"), *[HOLE] * len(sections[2:]), id="main"),
        el("footer", "Made by modelplane.fleet."),
        el("script", Markup(SCRIPT)),
    )
    # Large sections are inserted last, as each element copies its content.
    page = shape(el("html", _head(), body, lang="en"))
    return f"<!DOCTYPE html>\n{page(*map(_section, sections))}\n"


def _section(section: tuple[str, str, Markup]) -> Markup:
    id_, title, content = section
    return el("section", el("h2", title, id=id_), content, aria_labelledby=id_)


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


def _origin(model: Mapping[str, Any]) -> Markup:
    """The time of the page, the commit of its manifests, and whether it shows what is or what should be."""
    read = "Read at " if model["is_observed"] else "Planned at "
    commit = join([", manifests of commit ", code(model["commit"][:12]), " or edited since"])
    declared = "" if model["is_observed"] else ". No cluster was read: all is assumed to be as declared"
    return el("p", read, moment(model["time"]), commit if model["commit"] else "", declared, ".", class_="m")


def _summary(model: Mapping[str, Any]) -> Markup:
    counts = model["counts"]
    of = f" of {count(counts['desired'], 'replica')} "
    done, word = (counts["placed"], "placed") if counts["serving"] is None else (counts["serving"], "serve")
    chips = [join([el("strong", f"{done:,}"), of, "serves" if done == 1 and word == "serve" else word])]
    if counts["pending"]:
        chips.append(_chip(counts["pending"], "pending", "pending"))
    if wrong := problems(model):
        chips.append(_chip(wrong, "problem", "problems"))
    if step_count := steps(model):
        chips.append(_chip(step_count, "step left", "steps left"))
    chips += [_chip(counts[what], what.removesuffix("s"), what) for what in ("services", "clusters", "objects")]
    return items(chips, "sum")


def _chip(number: int, one: str, many: str) -> Markup:
    text = join([el("strong", f"{number:,}"), f" {one if number == 1 else many}"])
    return link("attention", text) if one in ("pending", "problem", "step left") else text


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
            el("button", "Open shown", type="button", id="open"),
            el("button", "Close all", type="button", id="close"),
            el("span", id="message", role="status", class_="m"),
        ),
        class_="bar",
        role="search",
        id="tools",
        hidden="",
    )
