# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Policies of Envoy Gateway that routes and gateways in mode Model have: whether they guard them, or others do.

Of several policies of a kind on one target only the oldest has an effect, and a SecurityPolicy on a route without
`mergeType` takes the place of that on its gateway. So one that is not of the fleet may let in callers without a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.projection import trim
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import cut
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import (
    Object,
    Objects,
    condition_entry,
    entries,
    fields,
    identity,
    label,
    number,
    stated,
    text,
)

SECURITY = "SecurityPolicy"
TRAFFIC = "BackendTrafficPolicy"
KINDS = (TRAFFIC, "ClientTrafficPolicy", SECURITY)

_TARGETS = ("targetRef", "targetRefs", "targetSelectors")
_HTTP_ROUTE, _GATEWAY = "HTTPRoute", "Gateway"

Contested = Mapping[str, Sequence[Object]]
"""Policies by which routes may not be guarded as they should, by namespace."""


def is_ours(policy: Object) -> bool:
    """Return whether a policy is of a fleet."""
    return label(policy, names.MANAGED_BY_LABEL) == names.MANAGED_BY


def trim_policy(policy: Object) -> dict[str, Any]:
    """Return what is observed of a policy: its targets, and of one of a fleet also what gateways say of it."""
    found = trim(policy)
    kept = ("name", "namespace", "generation", "labels") if is_ours(policy) else ("name", "namespace")
    found["metadata"] = {key: value for key, value in found["metadata"].items() if key in kept}
    found["spec"] = {key: value for key, value in fields(policy, "spec").items() if key in _TARGETS}
    if not is_ours(policy):
        found.pop("status", None)
    return found


def guards(policy: Object | None, route: Object) -> bool:
    """Return True for a policy that is attached to a route or to a Gateway of it (GEP-713), or may be by its selectors
    of labels."""
    return any(_attaches(target, policy, route) for target in _targets(policy)) or any(
        _selects(selector, policy, route) for selector in entries(policy, "spec", "targetSelectors")
    )


def is_policy(value: Object) -> bool:
    """Return True for a policy that is attached to routes or Gateways."""
    return any(text(target, "group") == constants.GATEWAY_GROUP for target in _targets(value))


def contested(observed: Objects) -> Contested:
    """Return the policies of others, and those of the fleet that its gateway refuses as they are now."""
    found: dict[str, list[Object]] = {}
    for kind in KINDS:
        for policy in observed.of_kind(kind):
            if not is_ours(policy) or _refusal(policy):
                found.setdefault(text(policy, "metadata", "namespace"), []).append(policy)
    return found


def conflict(known: Contested, routes: Iterable[Object]) -> str:
    """Return why routes are not guarded as they should be, "" where they are or gateways have not said yet."""
    found: dict[tuple[str, str, str, str], str] = {}
    for route in routes if known else ():
        attached = [policy for policy in _near(known, route) if guards(policy, route)]
        refused = {identity(policy)[1] for policy in attached if is_ours(policy)}
        for policy in attached:
            if is_ours(policy):
                found[identity(policy)] = f"{_shown(policy)} is not accepted: {_refusal(policy)}"
            elif identity(policy)[1] in {SECURITY, *refused}:
                found[identity(policy)] = foreign_message(policy)
    return "; ".join(message for __, message in sorted(found.items()))


def foreign(known: Contested, route: Object) -> Iterator[Object]:
    """Yield the SecurityPolicies of others that are attached to a route."""
    for policy in _near(known, route):
        if identity(policy)[1] == SECURITY and not is_ours(policy) and guards(policy, route):
            yield policy


def foreign_message(policy: Object) -> str:
    """Return what is wrong with a policy of others on a route, and what to do."""
    return (
        f"{_shown(policy)}, which is not of the fleet, is attached to a route or gateway of it, and may take the "
        "place of keys, rights and budgets there: remove it"
    )


def _shown(policy: Object) -> str:
    __, kind, namespace, name = identity(policy)
    return f"{kind} {namespace}/{name}"


def _near(known: Contested, route: Object) -> Iterator[Object]:
    """Yield the policies in the namespaces of a route and of its gateway."""
    for namespace in sorted({text(route, "metadata", "namespace"), names.SYSTEM_NAMESPACE}):
        yield from known.get(namespace, ())


def _refusal(policy: Object) -> str:
    """Return why a gateway does not accept a policy as it is now, "" where none says so."""
    generation = number(policy, "metadata", "generation")
    for ancestor in entries(policy, "status", "ancestors"):
        if stated(entries(ancestor, "conditions"), "Accepted", generation) == "False":
            said = condition_entry({"status": ancestor}, "Accepted")
            return ": ".join(filter(None, (text(said, "reason"), cut(text(said, "message"))))) or "no reason is given"
    return ""


def _targets(policy: Object | None) -> Iterator[Object]:
    yield from entries(policy, "spec", "targetRefs")
    if target := fields(policy, "spec", "targetRef"):
        yield target


def _attaches(target: Object, policy: Object | None, route: Object) -> bool:
    if text(target, "group") != constants.GATEWAY_GROUP:
        return False
    namespace, name = text(policy, "metadata", "namespace"), text(target, "name")
    if text(target, "kind") == _HTTP_ROUTE:
        return (namespace, name) == identity(route)[2:]
    return text(target, "kind") == _GATEWAY and any(
        (place, text(parent, "name")) == (namespace, name)
        and len({text(parent, "sectionName"), text(target, "sectionName")} - {""}) < 2
        for place, parent in _parents(route)
    )


def _selects(selector: Object, policy: Object | None, route: Object) -> bool:
    """Return whether a selector may select a route or a Gateway of it. Expressions, and the labels of the Gateway, are
    not compared."""
    namespace = text(policy, "metadata", "namespace")
    if text(selector, "kind") == _GATEWAY:
        return any(place == namespace for place, __ in _parents(route))
    # The AI gateway gives an HTTPRoute the labels of its AIGatewayRoute.
    labels, desired = fields(route, "metadata", "labels"), fields(selector, "matchLabels")
    is_near = namespace == text(route, "metadata", "namespace")
    return text(selector, "kind") == _HTTP_ROUTE and is_near and desired.items() <= labels.items()


def _parents(route: Object) -> Iterator[tuple[str, Object]]:
    for parent in entries(route, "spec", "parentRefs"):
        yield text(parent, "namespace") or text(route, "metadata", "namespace"), parent
