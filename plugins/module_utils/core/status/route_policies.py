# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Envoy Gateway policies of routes and Model gateways, and conflicts with policies that the fleet does not manage.

If several policies of a kind have the same target, only the oldest policy has an effect. A SecurityPolicy on a route
without `mergeType` replaces the SecurityPolicy of the gateway. An unmanaged policy might therefore accept requests
without a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .. import names
from ..compose import constants
from ..text import cut
from ..wire import Object, Objects, condition_entry, entries, fields, identity, label, number, stated, text
from .projection import trim

SECURITY = "SecurityPolicy"
TRAFFIC = "BackendTrafficPolicy"
KINDS = (TRAFFIC, "ClientTrafficPolicy", SECURITY)

_TARGETS = ("targetRef", "targetRefs", "targetSelectors")
_HTTP_ROUTE, _GATEWAY = "HTTPRoute", "Gateway"

Contested = Mapping[str, Sequence[Object]]
"""Policies that might prevent the protection of routes, by namespace."""


def is_ours(guard: Object) -> bool:
    """Return True if a fleet manages a policy."""
    return label(guard, names.MANAGED_BY_LABEL) == names.MANAGED_BY


def trim_policy(guard: Object) -> dict[str, Any]:
    """Return the observed fields of a policy: its targets, and for policies of a fleet also the status."""
    seen = trim(guard)
    metadata_fields = ("name", "namespace", "generation", "labels") if is_ours(guard) else ("name", "namespace")
    trimmed = {
        **seen,
        "metadata": {key: value for key, value in fields(seen, "metadata").items() if key in metadata_fields},
        "spec": {key: value for key, value in fields(guard, "spec").items() if key in _TARGETS},
    }
    return trimmed if is_ours(guard) else {key: value for key, value in trimmed.items() if key != "status"}


def guards(guard: Object | None, route: Object) -> bool:
    """Return True if a policy is or might be attached to a route or its Gateway (GEP-713, label selectors)."""
    return any(_attaches(target, guard, route) for target in _targets(guard)) or any(
        _selects(target, guard, route) for target in entries(guard, "spec", "targetSelectors")
    )


def is_policy(guard: Object) -> bool:
    """Return True for a policy that is attached to routes or Gateways."""
    targets = (*_targets(guard), *entries(guard, "spec", "targetSelectors"))
    return any(text(target, "group") == constants.GATEWAY_GROUP for target in targets)


def policy_targets(guard: Object) -> Iterator[tuple[str, ...]]:
    """Yield the targets of a policy: kind, namespace and name of each target, or the namespace of its selectors. A
    policy can guard a route if they share a target (see `guard_targets`)."""
    namespace = text(guard, "metadata", "namespace")
    for target in _targets(guard):
        if text(target, "group") == constants.GATEWAY_GROUP:
            yield text(target, "kind"), namespace, text(target, "name")
    if entries(guard, "spec", "targetSelectors"):
        yield (namespace,)


def guard_targets(route: Object) -> Iterator[tuple[str, ...]]:
    """Yield the targets of policies that can guard a route: the route, its Gateways, and their namespaces."""
    __, __, namespace, name = identity(route)
    yield _HTTP_ROUTE, namespace, name
    yield (namespace,)
    for gateway_namespace, parent in _parents(route):
        yield _GATEWAY, gateway_namespace, text(parent, "name")
        yield (gateway_namespace,)


def contested(observed: Objects) -> Contested:
    """Return the policies of other owners, and the policies of the fleet that the gateway currently rejects."""
    policies_by_namespace: dict[str, list[Object]] = {}
    for kind in KINDS:
        for guard in observed.of_kind(kind):
            if not is_ours(guard) or _refusal(guard):
                policies_by_namespace.setdefault(text(guard, "metadata", "namespace"), []).append(guard)
    return policies_by_namespace


def conflict(known: Contested, routes: Iterable[Object]) -> str:
    """Return the reason why routes lack their policies, "" if they have them or gateways have not reported yet."""
    messages_by_policy: dict[tuple[str, str, str, str], str] = {}
    for route in routes if known else ():
        attached = [guard for guard in _near(known, route) if guards(guard, route)]
        refused = {identity(guard)[1] for guard in attached if is_ours(guard)}
        for guard in attached:
            if is_ours(guard):
                messages_by_policy[identity(guard)] = f"{_shown(guard)} is not accepted: {_refusal(guard)}"
            elif identity(guard)[1] in {SECURITY, *refused}:
                messages_by_policy[identity(guard)] = foreign_message(guard)
    return "; ".join(message for __, message in sorted(messages_by_policy.items()))


def foreign(known: Contested, route: Object) -> Iterator[Object]:
    """Yield the SecurityPolicies of other owners that are attached to a route."""
    for guard in _near(known, route):
        if identity(guard)[1] == SECURITY and not is_ours(guard) and guards(guard, route):
            yield guard


def foreign_message(guard: Object) -> str:
    """Return a message about an unmanaged policy on a route, with a fix."""
    return (
        f"{_shown(guard)}, which is not of the fleet, is attached to a route or gateway of it, and may take the "
        "place of keys, rights and budgets there: remove it"
    )


def _shown(guard: Object) -> str:
    __, kind, namespace, name = identity(guard)
    return f"{kind} {namespace}/{name}"


def _near(known: Contested, route: Object) -> Iterator[Object]:
    """Yield the policies in the namespaces of a route and of its gateway."""
    for namespace in sorted({text(route, "metadata", "namespace"), names.SYSTEM_NAMESPACE}):
        yield from known.get(namespace, ())


def _refusal(guard: Object) -> str:
    """Return the reason why a gateway rejects the current policy, "" if no gateway rejects it."""
    generation = number(guard, "metadata", "generation")
    for ancestor in entries(guard, "status", "ancestors"):
        if stated(entries(ancestor, "conditions"), "Accepted", generation) == "False":
            accepted = condition_entry({"status": ancestor}, "Accepted")
            explanation = filter(None, (text(accepted, "reason"), cut(text(accepted, "message"))))
            return ": ".join(explanation) or "no reason is given"
    return ""


def _targets(guard: Object | None) -> Iterator[Object]:
    yield from entries(guard, "spec", "targetRefs")
    if target := fields(guard, "spec", "targetRef"):
        yield target


def _attaches(target: Object, guard: Object | None, route: Object) -> bool:
    if text(target, "group") != constants.GATEWAY_GROUP:
        return False
    namespace, name = text(guard, "metadata", "namespace"), text(target, "name")
    if text(target, "kind") == _HTTP_ROUTE:
        return (namespace, name) == identity(route)[2:]
    return text(target, "kind") == _GATEWAY and any(
        (parent_namespace, text(parent, "name")) == (namespace, name)
        and len({text(parent, "sectionName"), text(target, "sectionName")} - {""}) < 2
        for parent_namespace, parent in _parents(route)
    )


def _selects(target: Object, guard: Object | None, route: Object) -> bool:
    """Return True if a selector might select a route or its Gateway.

    Expressions, and the labels of the Gateway, are not compared."""
    namespace = text(guard, "metadata", "namespace")
    if text(target, "kind") == _GATEWAY:
        return any(parent_namespace == namespace for parent_namespace, __ in _parents(route))
    # The AI gateway copies the labels of an AIGatewayRoute to its HTTPRoute.
    labels, desired = fields(route, "metadata", "labels"), fields(target, "matchLabels")
    is_near = namespace == text(route, "metadata", "namespace")
    return text(target, "kind") == _HTTP_ROUTE and is_near and desired.items() <= labels.items()


def _parents(route: Object) -> Iterator[tuple[str, Object]]:
    for parent in entries(route, "spec", "parentRefs"):
        yield text(parent, "namespace") or text(route, "metadata", "namespace"), parent
