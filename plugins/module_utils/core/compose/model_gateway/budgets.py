# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Budgets of callers: the policies on the routes of a namespace that count them and refuse what is beyond.

A route has one policy of each kind, as Envoy Gateway uses only the oldest of several.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.caller_policy import Budget
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway import parts
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.callers import (
    BY_TOKEN,
    NamespaceRights,
    Rights,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.costs import (
    COST_KEY,
    limit_units,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.gateway import (
    DEFAULT_PRIORITIES,
    accepts_tokens,
    listener_name,
    listener_names,
    retries,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.patterns import (
    Matches,
    divided,
    pattern,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.routes import Route
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import some
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object

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
"""Budgets that the policy of a group of routes can hold (CustomResourceDefinition of Envoy Gateway)."""

_METADATA = "io.envoy.ai_gateway"
_COUNTED = {
    "Tokens": "llm_total_token",
    "InputTokens": "llm_input_token",
    "OutputTokens": "llm_output_token",
    "Cost": COST_KEY,
}


@dataclass(frozen=True)
class RateLimiter:
    """Place where budgets are counted.

    `counts`: whether a budget of a policy is counted here for a service. `header` has the name of the service here.
    `targets`: policy fields that select the HTTPRoutes of services. `several`: a service has more than one Envoy route.
    `named`: policy name for such services."""

    counts: Callable[[Rights, Budget, Route], bool]
    header: str
    targets: Callable[[Sequence[Route]], Mapping[str, Any]]
    named: Callable[[Sequence[Route]], str]
    several: bool = False


def counts_tokens_of_callers(policy: api.CallerPolicy, budgets: Iterable[Budget]) -> bool:
    """Return whether one of these budgets of a policy is of tokens whose use belongs to callers by their names.

    Tokens are counted when an answer has ended, by the headers that its backend got."""
    named = not policy.is_for_everyone
    return any(budget.unit != "Requests" and (budget.scope == "Caller" or named) for budget in budgets)


def budget_objects(routes: Sequence[Route], known: NamespaceRights) -> Iterator[Object]:
    """Yield the policies on the routes of a namespace on one gateway that count budgets there, and say how often
    requests are tried again."""
    yield from counting_objects(routes, known, AT_GATEWAY, _retry)


def counting_objects(
    routes: Sequence[Route],
    known: NamespaceRights,
    limiter: RateLimiter,
    more: Callable[[Sequence[Route]], Mapping[str, Any]] = lambda _group: {},
) -> Iterator[Object]:
    """Yield the policies that count budgets at a place; `more` of their fields are for the same routes."""
    for group in _groups(routes, known, limiter):
        limits = list(_limits(group, known, limiter))
        spec = {**more(group.routes), **_rate_limit(limits)}
        if spec:
            first = group.routes[0]
            yield parts.envoy_object(
                "BackendTrafficPolicy",
                {**first.metadata(limiter.named(group.routes)), **_annotations(first, limits)},
                {**limiter.targets(group.routes), "mergeType": parts.MERGED, **spec},
            )


_Covered: TypeAlias = "tuple[Rights, Budget, list[Route]]"
"""Budget of a policy with the routes that it is for."""


@dataclass(frozen=True)
class _Group:
    """Routes that share budgets, by the names of their services."""

    routes: list[Route] = field(default_factory=list)
    budgets: list[_Covered] = field(default_factory=list)


def _groups(routes: Iterable[Route], known: NamespaceRights, limiter: RateLimiter) -> list[_Group]:
    """Return the routes in groups: those that share a budget are in one, whose policy counts for all of them."""
    by_name = {route.service.name: route for route in sorted(routes, key=lambda route: route.service.name)}
    together = {name: [name] for name in by_name}
    counted: list[_Covered] = []
    for each in known.policies:
        selected = [by_name[name] for name in sorted(by_name.keys() & each.services)] if each.budgets else []
        names_of_policy: list[str] = []
        for budget in each.budgets:
            covered = [route for route in selected if limiter.counts(each, budget, route)]
            names_of_policy += [route.service.name for route in covered]
            counted += [(each, budget, covered)] if covered else []
        _join(together, names_of_policy)
    groups: dict[int, _Group] = {}
    for name, route in by_name.items():
        groups.setdefault(id(together[name]), _Group()).routes.append(route)
    for each, budget, covered in counted:
        groups[id(together[covered[0].service.name])].budgets.append((each, budget, covered))
    return list(groups.values())


def _join(together: dict[str, list[str]], joined: Sequence[str]) -> None:
    """Make these names, and those that each is together with, one list."""
    for name in joined[1:]:
        kept, added = sorted((together[joined[0]], together[name]), key=len, reverse=True)
        if kept is not added:
            kept += added
            for other in added:
                together[other] = kept


def _name_at_gateway(group: Sequence[Route]) -> str:
    first = group[0].service.name
    return first if len(group) == 1 else names.joined_name(*(route.service.name for route in group))


def _counts_at_gateway(each: Rights, budget: Budget, route: Route) -> bool:
    detour = route.overflow
    return not (detour and detour.is_ready and (each.policy.name, budget.name) in detour.budgets)


def _targets_at_gateway(group: Sequence[Route]) -> dict[str, Any]:
    return {"targetRefs": parts.route_targets(route.service.name for route in group)}


AT_GATEWAY = RateLimiter(_counts_at_gateway, constants.MODEL_HEADER, _targets_at_gateway, _name_at_gateway)
"""The gateway itself, which refuses requests beyond budgets."""


def _annotations(first: Route, limits: Sequence[_Limit]) -> dict[str, Any]:
    """Return the annotations of a policy, which say of which budgets its limits are."""
    if not limits:
        return {}
    counted = {"listener": listener_name(first.gateway), "rules": [limit.counted for limit in limits]}
    value = json.dumps(counted, separators=(",", ":"), sort_keys=True)
    return {"annotations": {constants.BUDGETS_ANNOTATION: value}}


def _retry(group: Iterable[Route]) -> dict[str, Any]:
    """Return the retries of routes with more or fewer priorities than those of the gateway's own policy reach."""
    most = max(route.priority_count for route in group)
    return {} if most == DEFAULT_PRIORITIES else {"retry": {"numRetries": retries(most)}}


@dataclass(frozen=True)
class _Limit:
    """Rate limit of a budget, and what `BUDGETS_ANNOTATION` says of it: a rule that several routes do not share counts
    by the name of its route."""

    rule: Mapping[str, Any]
    counted: Mapping[str, str]


def _limits(group: _Group, known: NamespaceRights, limiter: RateLimiter) -> Iterator[_Limit]:
    for each, budget, covered in group.budgets:
        callers = _counted(each, budget, covered, known)
        counters = [match for named in callers for match in _counters(named, budget, covered[0].gateway)]
        gateway = covered[0].gateway
        is_shared = limiter.several or len(covered) > 1 or len(listener_names(gateway)) > 1
        route = {} if is_shared else {"route": covered[0].service.name}
        prices = covered[0].prices
        limit = limit_units(budget, prices.unit if prices else Decimal(1))
        for services in _asked_for(covered, group.routes, limiter.header):
            for rule in _budget_rules(counters, budget, limit, services, is_shared=is_shared):
                yield _Limit(rule, {"policy": each.policy.name, "budget": budget.name, **route})


def _asked_for(covered: Sequence[Route], group: Sequence[Route], header: str) -> list[Matches]:
    """Return the header matches of the services of a budget, each for one rule; an empty one matches all of a group."""
    if len(covered) == len(group):
        return [[]]
    named = [route.service.model_name for route in covered]
    if len(named) == 1:
        return [[{"type": "Exact", "name": header, "value": named[0]}]]
    return [[pattern(header, value)] for value in divided(named)]


def _rate_limit(limits: Iterable[_Limit]) -> dict[str, Any]:
    rules = [dict(limit.rule) for limit in limits]
    return {"rateLimit": {"type": "Global", "global": {"rules": rules}}} if rules else {}


def _counted(each: Rights, budget: Budget, covered: Iterable[Route], known: NamespaceRights) -> Sequence[Matches]:
    """Return the header matches of the callers of a budget, each for one rule. Where no other policy lets callers in,
    names are not needed, and groups are in no header, so that policies with groups have services of their own."""
    if each.groups:
        return [[]]
    is_needed = budget.scope == "Caller" or known.are_shared(route.service.name for route in covered)
    return each.patterns if is_needed or len(each.patterns) < 2 else [[]]


def divided_budgets(each: Rights, known: NamespaceRights, served: Collection[str]) -> list[Budget]:
    """Return the budgets for all callers of a policy together that are several, each for some of them: those of names
    that no single pattern can hold, where other policies let in callers who must not be counted. `served` are the names
    of the services of the namespace that have routes."""
    if len(each.patterns) < 2 or not known.are_shared(each.services.intersection(served)):
        return []
    return [budget for budget in each.budgets if budget.scope == "Policy"]


def divided_services(routes: Sequence[Route], known: NamespaceRights) -> Iterator[tuple[str, str]]:
    """Yield the budgets, by the names of their policies and their own, for several services of a namespace on one
    gateway that are several, each for some of them: no single pattern can hold the names of these services, which
    share other budgets with more services."""
    if len(divided(route.service.model_name for route in routes)) < 2:
        return
    for group in _groups(routes, known, AT_GATEWAY):
        for each, budget, covered in group.budgets:
            if len(_asked_for(covered, group.routes, AT_GATEWAY.header)) > 1:
                yield each.policy.name, budget.name


@dataclass(frozen=True)
class TooManyRules:
    """Budgets that are more than one object can hold: those of these policies, as rules."""

    policies: tuple[str, ...]
    rules: int

    @property
    def message(self) -> str:
        """Rest of a sentence that begins with the budgets."""
        shared = f", together with those of CallerPolicy {some(self.policies[1:])}" if self.policies[1:] else ""
        return f"are {self.rules} rules of one object{shared}, and it can have {MOST_RULES}: clusters refuse it"


FEWER_RULES = "have fewer budgets, name fewer callers, or select services so that fewer policies share one"
"""Hint for too many rules."""


def too_many_rules(routes: Sequence[Route], known: NamespaceRights, limiter: RateLimiter) -> Iterator[TooManyRules]:
    """Yield the budgets for the routes of a namespace on one gateway that are too many for one object at a place."""
    parts_of_services = len(divided(route.service.model_name for route in routes))
    # Clients with tokens have rules of their own.
    rules_of_callers = sum(len(each.budgets) * max(2, len(each.patterns)) for each in known.policies)
    if parts_of_services * rules_of_callers <= MOST_RULES:
        return
    for group in _groups(routes, known, limiter):
        limits = list(_limits(group, known, limiter))
        if len(limits) > MOST_RULES:
            concerned = {limit.counted["policy"] for limit in limits}
            yield TooManyRules(tuple(sorted(concerned)), len(limits))


def _counters(named: Matches, budget: Budget, gateway: api.InferenceGateway) -> Iterator[Matches]:
    """Yield the header matches of the rules that count these callers of a gateway.

    For a budget of scope Caller each is counted by name: those of API keys and of tokens are in different headers."""
    if budget.scope != "Caller":
        yield named
        return
    auth = gateway.spec.auth
    is_token = BY_TOKEN in named
    if not is_token and (named or not (auth and auth.jwt) or auth.api_key):
        others = [{**BY_TOKEN, "invert": True}] if accepts_tokens(gateway) and not named else []
        yield [{"type": "Distinct", "name": constants.CALLER_HEADER}, *named, *others]
    if is_token or (not named and accepts_tokens(gateway)):
        yield [{"type": "Distinct", "name": constants.SUBJECT_HEADER}, *(named or [BY_TOKEN])]


def _budget_rules(
    counters: Iterable[Matches], budget: Budget, limit: int, services: Sequence[Mapping[str, str]], *, is_shared: bool
) -> Iterator[dict[str, Any]]:
    """Yield the rules of a budget: one, or several for names that no single pattern can hold."""
    for matches in counters:
        headers = [*matches, *services]
        rule: dict[str, Any] = {
            **({"clientSelectors": [{"headers": headers}]} if headers else {}),
            "limit": {"requests": limit, "unit": budget.per},
        }
        if budget.unit != "Requests":
            # The cost is known when the answer ends; the request only checks that something is left.
            metadata = {"namespace": _METADATA, "key": _COUNTED[budget.unit]}
            rule["cost"] = {
                "request": {"from": "Number", "number": 0},
                "response": {"from": "Metadata", "metadata": metadata},
            }
        if is_shared:
            rule["shared"] = True
        yield rule
