# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The request path: from a service over its endpoints, with their shares, to replicas and the pools of their pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.fleet import FEW
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.index import Index, serves, serving_weight
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.markup import (
    NOTHING,
    Markup,
    badge,
    code,
    count,
    el,
    gauge,
    join,
    link,
    percent,
    pods_with,
)

_CAPTION = (
    "Requests go from the service to its endpoints by weight, and from an endpoint to the pods of one replica. Of "
    "several priorities only the lowest number with a usable endpoint is in use. The other way round, from pods to "
    "services, is shown beside each replica in the fleet map."
)


def services_section(services: Sequence[Mapping[str, Any]], known: Index) -> Markup:
    """The section of all services."""
    if not services:
        return el("p", "There is no ModelService: replicas can be reached through their cluster's gateway only.")
    cards = [
        _service(position, service, known, open_=len(services) <= FEW) for position, service in enumerate(services)
    ]
    return join([el("p", _CAPTION, class_="m"), el("div", *cards, class_="services", id="services")])


def _service(position: int, service: Mapping[str, Any], known: Index, *, open_: bool) -> Markup:
    serving = sum(serves(service, endpoint) for endpoint in service["endpoints"])
    text = f"endpoints with requests: {serving:,} of {len(service['endpoints']):,}"
    endpoints = sorted(service["endpoints"], key=lambda endpoint: _order(service, endpoint))
    whole = serving_weight(service)
    return el(
        "details",
        el(
            "summary",
            el("h3", code(f"{service['namespace']}/{service['name']}")),
            el("span", text, class_="m"),
            NOTHING if serving else badge("No endpoint", "warn"),
        ),
        el(
            "div",
            el(
                "p",
                "Clients call ",
                code(f"{service['address']}/" if service["address"] else service["path"]),
                NOTHING if service["address"] else " at the gateway, whose address is not known yet",
            ),
            el("p", badge("Note", "warn"), " ", service["note"]) if service["note"] else NOTHING,
            el("p", "It selects no endpoint.", class_="m") if not endpoints else NOTHING,
            el("ol", *(el("li", _endpoint(service, endpoint, whole, known)) for endpoint in endpoints), class_="rt"),
            id=f"s{position}",
        ),
        class_="card service",
        open="" if open_ else None,
    )


def _order(service: Mapping[str, Any], endpoint: Mapping[str, Any]) -> tuple[bool, int, int, str]:
    """Those that get requests first, then as they were written."""
    return not serves(service, endpoint), endpoint["priority"], endpoint["entry"], endpoint["name"]


def _endpoint(service: Mapping[str, Any], endpoint: Mapping[str, Any], whole: int, known: Index) -> Markup:
    return join(
        [
            el(
                "div",
                _share(service, endpoint, whole),
                el(
                    "div",
                    f"weight {endpoint['weight']:,} · " if endpoint["weight"] else "",
                    f"priority {endpoint['priority']} · entry {endpoint['entry']}",
                    class_="m",
                ),
                class_="sh",
            ),
            el(
                "div",
                el("b", "Endpoint "),
                code(endpoint["name"]),
                el("div", code(endpoint["url"]), class_="m"),
                class_="hop",
            ),
            el("div", _target(service, endpoint, known), class_="hop"),
        ]
    )


def _share(service: Mapping[str, Any], endpoint: Mapping[str, Any], whole: int) -> Markup:
    if serves(service, endpoint):
        text = join([el("strong", percent(endpoint["weight"], whole)), " of requests"])
        return text if endpoint["weight"] == whole else join([text, gauge(endpoint["weight"], whole)])
    if not endpoint["usable"]:
        return badge("Not usable: no requests", "warn")
    if service["tier"] is not None and endpoint["priority"] > service["tier"]:
        return badge("Stands by", "held")
    return badge("No requests", "held")


def _target(service: Mapping[str, Any], endpoint: Mapping[str, Any], known: Index) -> Markup:
    """Return what answers an endpoint: something outside of the fleet, or a replica's pods."""
    if not endpoint["replica"]:
        return join([el("b", "Outside of the fleet" if endpoint["external"] else "No replica known")])
    key = (service["namespace"], endpoint["replica"])
    named = join([el("b", "Replica "), link(known.replicas.get(key), code(endpoint["replica"]))])
    replica = known.placed.get(key)
    if replica is None:
        return join([named, el("div", "It is not part of this plan.", class_="m")])
    return join([named, " ", where(replica, known)])


def where(replica: Mapping[str, Any], known: Index) -> Markup:
    """The cluster of a replica, and the pools, pods and devices of its engines."""
    cluster = replica["cluster"]
    return join(
        [
            "on ",
            link(known.clusters.get(cluster), code(cluster)),
            *(el("div", _member(engine, member)) for engine in replica["engines"] for member in engine["members"]),
        ]
    )


def _member(engine: Mapping[str, Any], member: Mapping[str, Any]) -> Markup:
    phase = f" ({engine['phase']})" if engine["phase"] else ""
    takes = pods_with(member["pods"], member["devices"], engine["copies"])
    spread = len(member["pools"]) > 1
    pools = join(
        [join([f"{count(pool['pods'], 'pod')} in " if spread else "", code(pool["name"])]) for pool in member["pools"]],
        ", ",
    )
    return join(
        [
            f"{engine['name']}{phase} {member['role']}: {takes}",
            *([": " if spread else " in ", pools] if member["pools"] else []),
        ]
    )
