# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Relations of routes: objects that a route references, and the progress of gateways with the route."""

from __future__ import annotations

from ..wire import Object, entries, fields, number, stated, text

HTTP_ROUTE, AI_ROUTE = "HTTPRoute", "AIGatewayRoute"
KINDS = frozenset({HTTP_ROUTE, AI_ROUTE})
"""Kinds that route requests to backends. The backends must exist until the routes have changed."""
_ROUTED = ("Accepted", "ResolvedRefs")


def references(route: Object) -> frozenset[tuple[str, str]]:
    """Return the kinds and names of the objects that an HTTPRoute references in its namespace: backends and filters."""
    namespace = text(route, "metadata", "namespace")
    targets = set()
    for rule in entries(route, "spec", "rules"):
        backends = entries(rule, "backendRefs")
        filters = [
            route_filter for filter_owner in (rule, *backends) for route_filter in entries(filter_owner, "filters")
        ]
        for reference in (*backends, *(fields(route_filter, "extensionRef") for route_filter in filters)):
            if text(reference, "name") and text(reference, "namespace") in ("", namespace):
                targets.add((text(reference, "kind") or "Service", text(reference, "name")))
    return frozenset(targets)


def ai_backends(route: Object) -> set[str]:
    """Return the names of the Backends of an AIGatewayRoute. They equal the names of its AIServiceBackends."""
    return {name for name, __ in weighted_backends(route)}


def serving_backends(route: Object) -> set[str]:
    """Return the names of the Backends of an AIGatewayRoute that receive requests."""
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
    """Return True if the controller of a Gateway has not yet processed the latest change of an HTTPRoute.

    A controller without a report does not exist. If several controllers reported for a Gateway, the latest report
    counts."""
    generation, namespace = number(route, "metadata", "generation"), text(route, "metadata", "namespace")
    latest: dict[tuple[str, str, str], int] = {}
    for parent in entries(route, "status", "parents"):
        parent_key = _parent(fields(parent, "parentRef"), namespace)
        for reported in entries(parent, "conditions"):
            seen = number(reported, "observedGeneration", default=generation)
            latest[parent_key] = max(latest.get(parent_key, 0), seen)
    parents = (_parent(parent, namespace) for parent in entries(route, "spec", "parentRefs"))
    return any(latest.get(parent, generation) < generation for parent in parents)


def is_accepted(route: Object) -> bool:
    """Return True if all Gateways of an HTTPRoute have accepted its current version, with all references."""
    generation, namespace = number(route, "metadata", "generation"), text(route, "metadata", "namespace")
    accepted = {
        _parent(fields(parent, "parentRef"), namespace)
        for parent in entries(route, "status", "parents")
        if all(stated(entries(parent, "conditions"), kind, generation) == "True" for kind in _ROUTED)
    }
    return all(_parent(parent, namespace) in accepted for parent in entries(route, "spec", "parentRefs"))


def _parent(reference: Object, namespace: str) -> tuple[str, str, str]:
    return text(reference, "namespace") or namespace, text(reference, "name"), text(reference, "sectionName")
