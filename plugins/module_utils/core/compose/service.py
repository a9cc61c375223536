# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelService: the endpoints that a service matches, and its routes to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .. import api
from ..api.model_service import ServiceEndpoint
from ..wire import Object
from . import weights
from .gateway import GatewayBackend
from .label_index import LabelIndex
from .service_routes import WeightedEndpoint, routes, unavailable


@dataclass(frozen=True)
class MatchedEndpoint:
    """ModelEndpoint that a service matches. `entry` is the index of the entry of the service; `weight` is 0 for an
    endpoint that gets no requests, because it is not usable or because another tier is in use."""

    endpoint: api.ModelEndpoint
    entry: int
    weight: int
    usable: bool


@dataclass(frozen=True)
class Resolution:
    """Resolved endpoints of a service: every endpoint that it matches, once, by entry and then by name. `tier` is the
    priority that is in use, None when no endpoint is usable."""

    members: tuple[MatchedEndpoint, ...]
    tier: int | None


def resolve(
    service: api.ModelService,
    endpoints: LabelIndex[api.ModelEndpoint],
    usable: Callable[[api.ModelEndpoint], bool],
    *,
    failover: bool = False,
) -> Resolution:
    """Resolve a ModelService to endpoints of its namespace.

    An endpoint belongs to the first entry that matches it. Entries are in use if they have the lowest `priority` among
    the entries with a usable endpoint. With `failover`, all priorities are in use, each with separate weights, because
    the gateway fails over to the next priority itself.
    """
    matched = _matched(service, endpoints)
    able = {
        index: [usable(endpoint) for endpoint in entry_endpoints] for index, (__, entry_endpoints) in enumerate(matched)
    }
    tiers = sorted({entry.priority for index, (entry, __) in enumerate(matched) if any(able[index])})
    shares: list[list[int]] = [[] for __ in matched]
    for tier in tiers if failover else tiers[:1]:
        counts = [
            (entry.weight, sum(able[index]) if entry.priority == tier else 0)
            for index, (entry, __) in enumerate(matched)
        ]
        shares = [new or share for new, share in zip(weights.split(counts), shares, strict=True)]
    members = []
    for index, ((__, entry_endpoints), share) in enumerate(zip(matched, shares, strict=True)):
        remaining_weights = iter(share)
        for endpoint, is_usable in zip(entry_endpoints, able[index], strict=True):
            weight = next(remaining_weights, 0) if is_usable else 0
            members.append(MatchedEndpoint(endpoint, index, weight, is_usable))
    return Resolution(tuple(members), tiers[0] if tiers else None)


def _matched(
    service: api.ModelService, endpoints: LabelIndex[api.ModelEndpoint]
) -> list[tuple[ServiceEndpoint, list[api.ModelEndpoint]]]:
    """Return every entry with the endpoints that belong to it."""
    claimed_names: set[str] = set()
    matched = []
    for entry in service.spec.endpoints:
        candidates = endpoints.matching(service.namespace, entry.selector.match_labels)
        unclaimed = [endpoint for endpoint in candidates if endpoint.name not in claimed_names]
        claimed_names.update(endpoint.name for endpoint in unclaimed)
        matched.append((entry, unclaimed))
    return matched


def service_objects(
    service: api.ModelService, resolution: Resolution, gateway: GatewayBackend, existed: bool
) -> tuple[Object, ...]:
    """Return the objects of a ModelService with these endpoints on this gateway.

    While no endpoint is usable, a service that had routes before answers 503, and a new service gets no route: a path
    that never worked answers 404.
    """
    used = [WeightedEndpoint(member.endpoint, member.weight) for member in resolution.members if member.weight]
    if used:
        return routes(service, used, gateway)
    return unavailable(service, gateway) if existed else ()
