# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Budgets with overflow to the next priority of a service (`whenSpent: Overflow`).

Envoy counts budgets before it chooses an endpoint, and responds with 429 itself. Failover starts with the response of
an endpoint, so it would never process this response. Therefore, requests for the first priority of such a service pass
the ingress gateway of the gateway's own cluster (`mtls.py`), and the budget is counted behind it:

    caller ──> gateway ──> cluster gateway ──> first priority      the budget is counted at the cluster gateway
                  └──────────────────────────> next priorities     after a 429 response, as for any endpoint

The gateway has a separate backend for the route to each endpoint. Weights and attempts are unchanged, and usage records
name the endpoint. Requests to the cluster gateway have headers with their service and endpoint. Only gateways have a
certificate for the cluster gateway, so it trusts these headers and the client name. Only the gateway writes usage
records, so each request has one record.

Behind the cluster gateway, each endpoint has a separate AIGatewayRoute, which a request selects by a header. Envoy
Gateway derives the names of Envoy clusters from the position of a rule in its route. With the rules of several
endpoints in one route, a change of one endpoint would move the other endpoints to Envoy clusters that do not exist yet.
Until Envoy has the clusters, it rejects requests with 503, and after five such responses the gateway ejects the whole
first priority for 30 seconds.

The two gateways receive changes at different times. The cluster gateway therefore responds with 429 for an endpoint
that is missing, so that the gateway retries another endpoint and does not eject the first priority.

Requests for the next priorities do not count against such a budget. If an endpoint of the first priority rejects an
attempt, the retry counts as another request, because it passes the cluster gateway again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ... import api, names
from ...api.caller_policy import Budget
from ...wire import Object, entries, fields, identity, text
from .. import constants
from . import backends, parts
from .backends import Overflow
from .budgets import RateLimiter, counting_objects, counts_tokens_of_callers
from .callers import NamespaceRights, Rights
from .gateway import gateway_metadata, rate_limited
from .mtls import ClusterGateway
from .refusals import MISSING_ENDPOINT
from .routes import Route, ai_route, host_rewrite, reference, rule_of
from .selection import PolicySelection

_UNKNOWN = f"{constants.CLUSTER_GATEWAY}-unknown"
_LISTENER = {**parts.named("Gateway", constants.CLUSTER_GATEWAY, constants.GATEWAY_GROUP), "sectionName": parts.HTTPS}
"""The listener that asks for certificates, and no other."""

Overflowing = Mapping[str, Sequence[tuple[api.CallerPolicy, Budget]]]
"""Budgets with overflow to the next priority, by service name."""


def overflowing(
    routes: Iterable[Route], policies: Iterable[api.CallerPolicy], selection: PolicySelection
) -> Overflowing:
    """Return the budgets of these policies that overflow, by service of their namespace.

    A budget over several services is counted in one place. Therefore, it overflows for all of them if one service has a
    next priority. Requests to the other services are rejected there.
    """
    used = {route.service.name: route for route in routes if route.used}
    budgets_by_service: dict[str, list[tuple[api.CallerPolicy, Budget]]] = {}
    for policy in policies:
        counted_behind = [(policy, budget) for budget in _overflowing_budgets(policy)]
        selected = selection.services(policy) if counted_behind else ()
        covered = [service.name for service in selected if service.name in used]
        if any(used[name].priority_count > 1 for name in covered):
            for name in covered:
                budgets_by_service.setdefault(name, []).extend(counted_behind)
    return budgets_by_service


def with_overflow(
    route: Route,
    budgets_by_service: Overflowing,
    cluster_gateway: ClusterGateway,
    policies: Iterable[api.CallerPolicy],
    accepts: Callable[[Mapping[str, str]], bool],
) -> Route:
    """Return a route with the overflow route for its budgets; unchanged while the cluster gateway cannot be used.

    `policies`: the policies that select its service.

    `accepts`: a function that returns True if the cluster gateway has accepted an AIGatewayRoute with these labels in
    the route's namespace, for any endpoint. Only then do requests use the overflow route. Otherwise, the gateway
    rejects requests beyond the budget.
    """
    counted_behind = budgets_by_service.get(route.service.name, ())
    if not counted_behind or cluster_gateway.problem:
        return route
    budgets = frozenset((policy.name, budget.name) for policy, budget in counted_behind)
    detour = Overflow(
        cluster_gateway,
        budgets,
        is_ready=accepts(_labels(route)),
        names_callers=any(counts_tokens_of_callers(policy, [budget]) for policy, budget in counted_behind),
        counts_tokens=any(budget.unit != "Requests" for __, budget in counted_behind),
    )
    if not detour.is_ready:
        return replace(route, overflow=detour)
    counted = [(policy, budget) for policy in policies for budget in policy.spec.budgets or ()]
    counted_at_gateway = [(policy, budget) for policy, budget in counted if (policy.name, budget.name) not in budgets]
    names_callers = any(counts_tokens_of_callers(policy, [budget]) for policy, budget in counted_at_gateway)
    return replace(route, overflow=detour, names_callers=names_callers)


def refusals(
    route: Route, budgets_by_service: Overflowing, cluster_gateway: ClusterGateway, policies: Iterable[api.CallerPolicy]
) -> Iterator[str]:
    """Yield a warning with a reason for each budget of a service that rejects excess requests instead of overflowing.

    A service with a single priority in its manifest has no warning here, because its validation reports the priority.

    `policies`: the policies that select the service.
    """
    if not route.used or len({entry.priority for entry in route.service.spec.endpoints}) < 2:
        return
    reason = ""
    if route.priority_count < 2:
        reason = "no endpoint of a next priority can be used"
    elif budgets_by_service.get(route.service.name) and cluster_gateway.problem:
        reason = cluster_gateway.problem
    elif route.overflow and not route.overflow.is_ready:
        gateway = (
            f"Gateway {constants.SYSTEM_NAMESPACE}/{constants.CLUSTER_GATEWAY} of cluster {cluster_gateway.cluster}"
        )
        name = _route_name(route.first[0])
        reason = f"{gateway} has not accepted AIGatewayRoute {route.namespace}/{name} yet"
    for policy in policies if reason else ():
        for budget in _overflowing_budgets(policy):
            yield (
                f"ModelService {route.service.namespace}/{route.service.name}: requests beyond budget {budget.name} of "
                f"CallerPolicy {policy.name} are refused and do not go to the next priority: {reason}"
            )


def _overflowing_budgets(policy: api.CallerPolicy) -> list[Budget]:
    return [budget for budget in policy.spec.budgets or () if budget.when_spent == "Overflow"]


def overflow_objects(route: Route) -> Iterator[Object]:
    """Yield the objects of a service behind the cluster gateway, of none without a detour."""
    detour = route.overflow
    if not detour:
        return
    model = route.service.model_name
    for name in route.first:
        backend = backends.detour(route.targets[name], detour.cluster_gateway, model, name)
        yield from backends.backend_objects(route.metadata(backends.detour_name(name)), backend)
        headers = {constants.SERVICE_HEADER: model, constants.ENDPOINT_HEADER: name}
        rule = rule_of(route, headers, [reference(name, 1, 0, route.targets[name].model)])
        desired = ai_route(route, _route_name(name), [_LISTENER], [rule])
        yield host_rewrite(route, _route_name(name))
        labels = {**fields(desired, "metadata", "labels"), **_labels(route)}
        yield {**desired, "metadata": {**fields(desired, "metadata"), "labels": labels}}


def is_behind_cluster_gateway(route: Object) -> bool:
    """Return True for an AIGatewayRoute behind the cluster gateway of a cluster: it has to stay for as long as that."""
    parents = entries(route, "spec", "parentRefs") if identity(route)[1] == "AIGatewayRoute" else ()
    return any(text(parent, "name") == constants.CLUSTER_GATEWAY for parent in parents)


def cluster_gateway_answers(gateway: api.InferenceGateway) -> Iterator[Object]:
    """Yield the objects that respond to requests for missing endpoints on the cluster gateway. The rules of existing
    endpoints match more headers and take precedence."""
    metadata = gateway_metadata(gateway, _UNKNOWN)
    body = {"type": "Inline", "inline": json.dumps(MISSING_ENDPOINT.body)}
    response = {"statusCode": MISSING_ENDPOINT.status, "contentType": "application/json", "body": body}
    yield parts.envoy_object("HTTPRouteFilter", metadata, {"directResponse": response})
    match = {"type": "RegularExpression", "name": constants.SERVICE_HEADER, "value": ".+"}
    reference_of = parts.named("HTTPRouteFilter", _UNKNOWN, constants.ENVOY_GROUP)
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/"}, "headers": [match]}],
        "filters": [{"type": "ExtensionRef", "extensionRef": reference_of}],
    }
    yield {
        "apiVersion": parts.GATEWAY_API,
        "kind": "HTTPRoute",
        "metadata": metadata,
        "spec": {"parentRefs": [_LISTENER], "rules": [rule]},
    }
    yield from rate_limited(gateway, f"{constants.CLUSTER_GATEWAY}-rate-limited", _LISTENER, _UNKNOWN)


def overflow_budget_objects(routes: Iterable[Route], rights: NamespaceRights) -> Iterator[Object]:
    """Yield the policies that count budgets behind the cluster gateway, for the services of a namespace."""
    yield from counting_objects([route for route in routes if route.overflow], rights, AT_CLUSTER_GATEWAY)


def _labels(route: Route) -> dict[str, str]:
    """Return the labels that select the AIGatewayRoutes of a service behind the cluster gateway."""
    labels = {name: route.labels[name] for name in (names.SERVICE_LABEL, names.GATEWAY_LABEL)}
    return {**labels, names.OVERFLOW_LABEL: "true"}


def _route_name(backend: str) -> str:
    return names.child_name(backend, "overflow")


def _targets(group: Sequence[Route]) -> dict[str, Any]:
    # A selector matches all endpoint routes, also if endpoints change while the policy remains.
    return {"targetSelectors": parts.route_selectors(map(_labels, group))}


def _policy_name(group: Sequence[Route]) -> str:
    joined = names.joined_name(*(route.service.name for route in group), group[0].gateway.name)
    return names.child_name(joined, "overflow")


def _counts_at_cluster_gateway(policy_rights: Rights, budget: Budget, route: Route) -> bool:
    return bool(route.overflow and (policy_rights.policy.name, budget.name) in route.overflow.budgets)


AT_CLUSTER_GATEWAY = RateLimiter(
    _counts_at_cluster_gateway, constants.SERVICE_HEADER, _targets, _policy_name, several=True
)
"""The cluster gateway of the gateway's own cluster."""
