# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Relations of routes: objects that a route refers to, and whether gateways follow it."""

from __future__ import annotations

from ..wire import Object, entries, fields, number, stated, text

HTTP_ROUTE, AI_ROUTE = "HTTPRoute", "AIGatewayRoute"
KINDS = frozenset({HTTP_ROUTE, AI_ROUTE})
"""Kinds that route requests to others: their backends may be deleted only after the routes have changed."""
_ROUTED = ("Accepted", "ResolvedRefs")


def references(route: Object) -> frozenset[tuple[str, str]]:
    """Return kinds and names of the objects that an HTTPRoute refers to in its own namespace: backends and filters."""
    own = text(route, "metadata", "namespace")
    found = set()
    for rule in entries(route, "spec", "rules"):
        backends = entries(rule, "backendRefs")
        filters = [each for place in (rule, *backends) for each in entries(place, "filters")]
        for each in (*backends, *(fields(value, "extensionRef") for value in filters)):
            if text(each, "name") and text(each, "namespace") in ("", own):
                found.add((text(each, "kind") or "Service", text(each, "name")))
    return frozenset(found)


def ai_backends(route: Object) -> set[str]:
    """Return the names of the Backends of an AIGatewayRoute, which are those of its AIServiceBackends."""
    return {name for name, __ in weighted_backends(route)}


def serving_backends(route: Object) -> set[str]:
    """Return the names of the Backends of an AIGatewayRoute that get requests."""
    return {name for name, weight in weighted_backends(route) if weight}


def weighted_backends(route: Object) -> list[tuple[str, int]]:
    """Return the names of the Backends of an AIGatewayRoute, or of its HTTPRoute, in order, with their weights."""
    return [
        (text(reference, "name"), number(reference, "weight", default=1))
        for rule in entries(route, "spec", "rules")
        for reference in entries(rule, "backendRefs")
        if text(route, "kind") == AI_ROUTE or text(reference, "kind") == "Backend"
    ]


def is_behind(route: Object) -> bool:
    """Return True for an HTTPRoute whose latest change is not processed yet by the controller of one of its Gateways.

    One that has never reported is not there, and of several that reported for a Gateway, the last one counts."""
    generation, own = number(route, "metadata", "generation"), text(route, "metadata", "namespace")
    latest: dict[tuple[str, str, str], int] = {}
    for parent in entries(route, "status", "parents"):
        place = _parent(fields(parent, "parentRef"), own)
        for reported in entries(parent, "conditions"):
            seen = number(reported, "observedGeneration", default=generation)
            latest[place] = max(latest.get(place, 0), seen)
    parents = (_parent(parent, own) for parent in entries(route, "spec", "parentRefs"))
    return any(latest.get(parent, generation) < generation for parent in parents)


def is_accepted(route: Object) -> bool:
    """Return True for an HTTPRoute by which all of its Gateways route as it is now, with all that it refers to."""
    generation, own = number(route, "metadata", "generation"), text(route, "metadata", "namespace")
    accepted = {
        _parent(fields(parent, "parentRef"), own)
        for parent in entries(route, "status", "parents")
        if all(stated(entries(parent, "conditions"), kind, generation) == "True" for kind in _ROUTED)
    }
    return all(_parent(parent, own) in accepted for parent in entries(route, "spec", "parentRefs"))


def _parent(reference: Object, own: str) -> tuple[str, str, str]:
    return text(reference, "namespace") or own, text(reference, "name"), text(reference, "sectionName")
