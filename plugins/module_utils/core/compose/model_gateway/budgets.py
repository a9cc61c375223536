# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Budgets: the policies on the routes of a namespace that count usage and reject requests beyond the limits.

A route has one policy of each kind because Envoy Gateway ignores all but the oldest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

from ... import api, names
from ...api.caller_policy import Budget
from ...text import some
from ...wire import Object
from .. import constants
from . import parts
from .callers import BY_TOKEN, NamespaceRights, Rights
from .costs import COST_KEY, limit_units
from .gateway import DEFAULT_PRIORITIES, accepts_tokens, listener_name, listener_names, retries
from .patterns import Matches, divided, pattern
from .routes import Route

DIVIDED = "is not one limit for all callers together, but one for each group of them, as one cannot hold all names"
UNDIVIDED = "name fewer callers, or select services that no other CallerPolicy selects"
"""Hint for divided budgets."""
DIVIDED_SERVICES = (
    "is not one limit for all services together, but one for each group of them, as one cannot hold all names"
)
UNDIVIDED_SERVICES = (
    "select fewer services, give them shorter names, or let policies with budgets select the same services"
)
"""Hint for budgets that are divided by their services."""
MOST_RULES = 256
"""Maximum number of rules in a policy (CustomResourceDefinition of Envoy Gateway)."""

_METADATA = "io.envoy.ai_gateway"
_COUNTED = {
    "Tokens": "llm_total_token",
    "InputTokens": "llm_input_token",
    "OutputTokens": "llm_output_token",
    "Cost": COST_KEY,
}


@dataclass(frozen=True)
class RateLimiter:
    """Gateway that counts budgets.

    counts: whether a budget of a policy is counted here for a service.
    header: header with the service name.
    targets: policy fields that select the HTTPRoutes of services.
    named: policy name for services.
    several: whether a service has more than one Envoy route.
    """

    counts: Callable[[Rights, Budget, Route], bool]
    header: str
    targets: Callable[[Sequence[Route]], Mapping[str, Any]]
    named: Callable[[Sequence[Route]], str]
    several: bool = False


def counts_tokens_of_callers(policy: api.CallerPolicy, budgets: Iterable[Budget]) -> bool:
    """Return True if any of the budgets counts tokens by client name.

    Tokens are counted at the end of a response, by the headers that the backend got.
    """
    has_names = not policy.is_for_everyone
    return any(budget.unit != "Requests" and (budget.scope == "Caller" or has_names) for budget in budgets)


def budget_objects(routes: Sequence[Route], namespace_rights: NamespaceRights) -> Iterator[Object]:
    """Yield the policies with the budgets and retries of the routes of a namespace on one gateway."""
    yield from counting_objects(routes, namespace_rights, AT_GATEWAY, _retry)


def counting_objects(
    routes: Sequence[Route],
    namespace_rights: NamespaceRights,
    limiter: RateLimiter,
    other_fields: Callable[[Sequence[Route]], Mapping[str, Any]] = lambda _group: {},
) -> Iterator[Object]:
    """Yield the policies that count budgets at a gateway. `other_fields`: further policy fields for the routes."""
    for group in _groups(routes, namespace_rights, limiter):
        limits = list(_limits(group, namespace_rights, limiter))
        spec = {**other_fields(group.routes), **_rate_limit(limits)}
        if spec:
            route = group.routes[0]
            yield parts.envoy_object(
                "BackendTrafficPolicy",
                {**route.metadata(limiter.named(group.routes)), **_annotations(route, limits)},
                {**limiter.targets(group.routes), "mergeType": parts.MERGED, **spec},
            )


_Covered: TypeAlias = "tuple[Rights, Budget, list[Route]]"
"""Budget of a policy with its routes."""


@dataclass(frozen=True)
class _Group:
    """Routes that share budgets, sorted by service name."""

    routes: list[Route] = field(default_factory=list)
    budgets: list[_Covered] = field(default_factory=list)


def _groups(routes: Iterable[Route], namespace_rights: NamespaceRights, limiter: RateLimiter) -> list[_Group]:
    """Return the routes in groups. Routes that share a budget are in one group with one policy."""
    by_name = {route.service.name: route for route in sorted(routes, key=lambda route: route.service.name)}
    together = {name: [name] for name in by_name}
    counted: list[_Covered] = []
    for rights in namespace_rights.policies:
        selected = [by_name[name] for name in sorted(by_name.keys() & rights.services)] if rights.budgets else []
        names_of_policy: list[str] = []
        for budget in rights.budgets:
            covered = [route for route in selected if limiter.counts(rights, budget, route)]
            names_of_policy += [route.service.name for route in covered]
            counted += [(rights, budget, covered)] if covered else []
        _join(together, names_of_policy)
    groups: dict[int, _Group] = {}
    for name, route in by_name.items():
        groups.setdefault(id(together[name]), _Group()).routes.append(route)
    for rights, budget, covered in counted:
        groups[id(together[covered[0].service.name])].budgets.append((rights, budget, covered))
    return list(groups.values())


def _join(together: dict[str, list[str]], joined: Sequence[str]) -> None:
    """Merge the lists of these names."""
    for name in joined[1:]:
        longer, shorter = sorted((together[joined[0]], together[name]), key=len, reverse=True)
        if longer is not shorter:
            longer += shorter
            for moved_name in shorter:
                together[moved_name] = longer


def _name_at_gateway(group: Sequence[Route]) -> str:
    name = group[0].service.name
    return name if len(group) == 1 else names.joined_name(*(route.service.name for route in group))


def _counts_at_gateway(rights: Rights, budget: Budget, route: Route) -> bool:
    detour = route.overflow
    return not (detour and detour.is_ready and (rights.policy.name, budget.name) in detour.budgets)


def _targets_at_gateway(group: Sequence[Route]) -> dict[str, Any]:
    return {"targetRefs": parts.route_targets(route.service.name for route in group)}


AT_GATEWAY = RateLimiter(_counts_at_gateway, constants.MODEL_HEADER, _targets_at_gateway, _name_at_gateway)
"""The gateway itself, which rejects requests beyond budgets."""


def _annotations(route: Route, limits: Sequence[_Limit]) -> dict[str, Any]:
    """Return the annotations of a policy with the budgets of its limits."""
    if not limits:
        return {}
    counted = {"listener": listener_name(route.gateway), "rules": [limit.counted for limit in limits]}
    value = json.dumps(counted, separators=(",", ":"), sort_keys=True)
    return {"annotations": {constants.BUDGETS_ANNOTATION: value}}


def _retry(group: Iterable[Route]) -> dict[str, Any]:
    """Return the retries of routes with a number of priorities other than the default."""
    priorities = max(route.priority_count for route in group)
    return {} if priorities == DEFAULT_PRIORITIES else {"retry": {"numRetries": retries(priorities)}}


@dataclass(frozen=True)
class _Limit:
    """Rate limit of a budget, and its entry in `BUDGETS_ANNOTATION`. A rule of one route has the route name there."""

    rule: Mapping[str, Any]
    counted: Mapping[str, str]


def _limits(group: _Group, namespace_rights: NamespaceRights, limiter: RateLimiter) -> Iterator[_Limit]:
    for rights, budget, covered in group.budgets:
        callers = _counted_callers(rights, budget, covered, namespace_rights)
        counters = [match for matches in callers for match in _counters(matches, budget, covered[0].gateway)]
        gateway = covered[0].gateway
        is_shared = limiter.several or len(covered) > 1 or len(listener_names(gateway)) > 1
        route = {} if is_shared else {"route": covered[0].service.name}
        prices = covered[0].prices
        limit = limit_units(budget, prices.unit if prices else Decimal(1))
        for services in _service_matches(covered, group.routes, limiter.header):
            for rule in _budget_rules(counters, budget, limit, services, is_shared=is_shared):
                yield _Limit(rule, {"policy": rights.policy.name, "budget": budget.name, **route})


def _service_matches(covered: Sequence[Route], group: Sequence[Route], header: str) -> list[Matches]:
    """Return the header matches for the services of a budget, one per rule. An empty match covers a whole group."""
    if len(covered) == len(group):
        return [[]]
    service_names = [route.service.model_name for route in covered]
    if len(service_names) == 1:
        return [[{"type": "Exact", "name": header, "value": service_names[0]}]]
    return [[pattern(header, value)] for value in divided(service_names)]


def _rate_limit(limits: Iterable[_Limit]) -> dict[str, Any]:
    rules = [dict(limit.rule) for limit in limits]
    return {"rateLimit": {"type": "Global", "global": {"rules": rules}}} if rules else {}


def _counted_callers(
    rights: Rights, budget: Budget, covered: Iterable[Route], namespace_rights: NamespaceRights
) -> Sequence[Matches]:
    """Return the header matches for the clients of a budget, one per rule.

    Names are not needed if no other policy authorizes clients. No header has groups, so policies with groups do not
    share services."""
    if rights.groups:
        return [[]]
    is_needed = budget.scope == "Caller" or namespace_rights.are_shared(route.service.name for route in covered)
    return rights.patterns if is_needed or len(rights.patterns) < 2 else [[]]


def divided_budgets(rights: Rights, namespace_rights: NamespaceRights, served: Collection[str]) -> list[Budget]:
    """Return the budgets of scope Policy with several rules, each for a part of the clients.

    Their names do not fit one pattern, and other policies authorize clients that must not be counted. `served`: names
    of the services of the namespace with routes."""
    if len(rights.patterns) < 2 or not namespace_rights.are_shared(rights.services.intersection(served)):
        return []
    return [budget for budget in rights.budgets if budget.scope == "Policy"]


def divided_services(routes: Sequence[Route], namespace_rights: NamespaceRights) -> Iterator[tuple[str, str]]:
    """Yield the names of policies and budgets with several rules, each for a part of the services on one gateway.

    The names of these services do not fit one pattern, and they share other budgets with more services."""
    if len(divided(route.service.model_name for route in routes)) < 2:
        return
    for group in _groups(routes, namespace_rights, AT_GATEWAY):
        for rights, budget, covered in group.budgets:
            if len(_service_matches(covered, group.routes, AT_GATEWAY.header)) > 1:
                yield rights.policy.name, budget.name


@dataclass(frozen=True)
class TooManyRules:
    """Budgets of policies that do not fit one object: their number of rules."""

    policies: tuple[str, ...]
    rules: int

    @property
    def message(self) -> str:
        """Predicate of a sentence about the budgets."""
        shared = f", together with those of CallerPolicy {some(self.policies[1:])}" if self.policies[1:] else ""
        return f"are {self.rules} rules of one object{shared}, and it can have {MOST_RULES}: clusters refuse it"


FEWER_RULES = "have fewer budgets, name fewer callers, or select services so that fewer policies share one"
"""Hint for too many rules."""


def too_many_rules(
    routes: Sequence[Route], namespace_rights: NamespaceRights, limiter: RateLimiter
) -> Iterator[TooManyRules]:
    """Yield the budgets for the routes of a namespace on one gateway that do not fit one object."""
    parts_of_services = len(divided(route.service.model_name for route in routes))
    # Clients with tokens have separate rules.
    rules_of_callers = sum(len(rights.budgets) * max(2, len(rights.patterns)) for rights in namespace_rights.policies)
    if parts_of_services * rules_of_callers <= MOST_RULES:
        return
    for group in _groups(routes, namespace_rights, limiter):
        limits = list(_limits(group, namespace_rights, limiter))
        if len(limits) > MOST_RULES:
            concerned = {limit.counted["policy"] for limit in limits}
            yield TooManyRules(tuple(sorted(concerned)), len(limits))


def _counters(callers: Matches, budget: Budget, gateway: api.InferenceGateway) -> Iterator[Matches]:
    """Yield the header matches of the rules that count these clients of a gateway.

    A budget of scope Caller counts each client by name. API keys and tokens use different headers for the name."""
    if budget.scope != "Caller":
        yield callers
        return
    auth = gateway.spec.auth
    is_token = BY_TOKEN in callers
    if not is_token and (callers or not (auth and auth.jwt) or auth.api_key):
        no_token = [{**BY_TOKEN, "invert": True}] if accepts_tokens(gateway) and not callers else []
        yield [{"type": "Distinct", "name": constants.CALLER_HEADER}, *callers, *no_token]
    if is_token or (not callers and accepts_tokens(gateway)):
        yield [{"type": "Distinct", "name": constants.SUBJECT_HEADER}, *(callers or [BY_TOKEN])]


def _budget_rules(
    counters: Iterable[Matches], budget: Budget, limit: int, services: Sequence[Mapping[str, str]], *, is_shared: bool
) -> Iterator[dict[str, Any]]:
    """Yield the rules of a budget: one, or several if the names do not fit one pattern."""
    for matches in counters:
        headers = [*matches, *services]
        rule: dict[str, Any] = {
            **({"clientSelectors": [{"headers": headers}]} if headers else {}),
            "limit": {"requests": limit, "unit": budget.per},
        }
        if budget.unit != "Requests":
            # The cost is counted at the end of the response. The request only checks the remaining budget.
            metadata = {"namespace": _METADATA, "key": _COUNTED[budget.unit]}
            rule["cost"] = {
                "request": {"from": "Number", "number": 0},
                "response": {"from": "Metadata", "metadata": metadata},
            }
        if is_shared:
            rule["shared"] = True
        yield rule
