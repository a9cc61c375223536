# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Policies on the routes of a namespace: who may call its services through a gateway in mode Model, and how much.

A route has one policy of each kind, as Envoy Gateway uses only the oldest of several.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, TypeAlias

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.caller_policy import Budget
from ansible_collections.modelplane.fleet.plugins.module_utils.core.caller_keys import (
    NEXT_SUFFIX,
    caller_of,
    entries_of,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway import parts
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.gateway import (
    DEFAULT_PRIORITIES,
    listener_name,
    retries,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.routes import Route
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import some
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, entries, identity, text

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

_MOST_VALUES = 256
_MOST_CHARACTERS = 1024
_NEXT = f"({re.escape(NEXT_SUFFIX)})?"
_SELECTOR_DIGITS = 10
_METADATA = "io.envoy.ai_gateway"
_COUNTED = {"Tokens": "llm_total_token", "InputTokens": "llm_input_token", "OutputTokens": "llm_output_token"}


_Matches: TypeAlias = "list[dict[str, str]]"
"""Header matches of a rule, which all have to hold; none match every request."""


@dataclass(frozen=True)
class KeySecret:
    """Secret with keys of callers: its labels, and the names of its entries, which are callers."""

    labels: Mapping[str, str]
    callers: tuple[str, ...]


@dataclass(frozen=True)
class Rights:
    """CallerPolicy with its callers; None are all that have a key. `selected` are those of its `callerSelector`;
    `services` are the names of the ModelServices that it selects."""

    policy: api.CallerPolicy
    callers: tuple[str, ...] | None
    services: frozenset[str]
    selected: tuple[str, ...] = ()

    @property
    def budgets(self) -> Sequence[Budget]:
        """Budgets of the policy."""
        return self.policy.spec.budgets or ()

    @cached_property
    def patterns(self) -> Sequence[_Matches]:
        """Header matches of the callers, each for one rule."""
        return _patterns(self.callers)


@dataclass(frozen=True)
class NamespaceRights:
    """Rights that the CallerPolicies of a namespace give at a gateway, by the names of the policies."""

    policies: Sequence[Rights]

    @cached_property
    def _by_service(self) -> Mapping[str, Sequence[Rights]]:
        found: dict[str, list[Rights]] = {}
        for each in self.policies:
            for name in each.services:
                found.setdefault(name, []).append(each)
        return found

    def to(self, service: str) -> Sequence[Rights]:
        """Return the rights to a service of this name."""
        return self._by_service.get(service, ())

    def are_shared(self, services: Iterable[str]) -> bool:
        """Return whether one of these services that some policy selects is selected by another one too."""
        return any(len(self.to(name)) > 1 for name in services)


@dataclass(frozen=True)
class RateLimiter:
    """Place where budgets are counted.

    `counts`: whether a budget of a policy is counted here for a service. `header` has the name of the service here.
    `routes`: the names of its HTTPRoutes; `several`: together they are more than one route of Envoy's. `named`: the
    name of the policy for such services."""

    counts: Callable[[Rights, Budget, Route], bool]
    header: str
    routes: Callable[[Route], Sequence[str]]
    named: Callable[[Sequence[Route]], str]
    several: bool = False


def counts_tokens_of_callers(policy: api.CallerPolicy, budgets: Iterable[Budget]) -> bool:
    """Return whether one of these budgets of a policy is of tokens whose use belongs to callers by their names.

    Tokens are counted when an answer has ended, by the headers that its backend got."""
    named = not policy.is_for_everyone
    return any(budget.unit != "Requests" and (budget.scope == "Caller" or named) for budget in budgets)


def rights(policy: api.CallerPolicy, secrets: Iterable[KeySecret], services: Iterable[api.ModelService] = ()) -> Rights:
    """Return the callers of a policy, and the services that it selects, which are these; the callers of its selector
    are those whose keys are in these Secrets."""
    selected_services = frozenset(service.name for service in services)
    if policy.is_for_everyone:
        return Rights(policy, None, selected_services)
    selector = policy.spec.caller_selector
    found = [secret for secret in secrets if selector and selector.matches(secret.labels)]
    selected = {caller_of(entry) for secret in found for entry in secret.callers}
    callers = tuple(sorted({*map(caller_of, policy.named_callers), *selected}))
    return Rights(policy, callers, selected_services, tuple(sorted(selected)))


def caller_objects(routes: Sequence[Route], known: NamespaceRights) -> Iterator[Object]:
    """Yield the policies on the routes of a namespace on one gateway that have endpoints."""
    for route in routes:
        selecting = known.to(route.service.name)
        if selecting and all(each.callers is not None for each in selecting):
            yield _authorization(route, selecting)
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
                {"targetRefs": _targets(group.routes, limiter), "mergeType": parts.MERGED, **spec},
            )


def _targets(routes: Iterable[Route], limiter: RateLimiter) -> list[dict[str, str]]:
    # The AI gateway makes an HTTPRoute of the same name of each of its routes.
    named = [name for route in routes for name in limiter.routes(route)]
    return [parts.named("HTTPRoute", name, constants.GATEWAY_GROUP) for name in named]


def _authorization(route: Route, selecting: Iterable[Rights]) -> Object:
    """Return the policy that refuses all callers but those of these policies."""
    rules = [rule for each in selecting for rule in _allowing(each)]
    return parts.envoy_object(
        "SecurityPolicy",
        route.metadata(route.service.name),
        {
            "targetRefs": _targets([route], AT_GATEWAY),
            "mergeType": parts.MERGED,
            "authorization": {"defaultAction": "Deny", **({"rules": rules} if rules else {})},
        },
    )


def _allowing(each: Rights) -> Iterator[dict[str, Any]]:
    """Yield the rules that let in the callers of a policy: the selected ones by rules of their own, as these say in
    later runs who was selected."""
    named = sorted(set(each.callers or ()).difference(each.selected))
    # No policy has the name of another one's rule, as names have no "/".
    for name, callers in ((each.policy.name, named), (_rule_of_selected(each.policy), each.selected)):
        # While a key is rotated, gateways know its caller by two names.
        known = [entry for caller in callers for entry in entries_of(caller)]
        for start in range(0, len(known), _MOST_VALUES):
            header = {"name": constants.CALLER_HEADER, "values": known[start : start + _MOST_VALUES]}
            yield {
                "name": f"{name}/{start}" if start else name,
                "action": "Allow",
                "principal": {"headers": [header]},
            }


def _rule_of_selected(policy: api.CallerPolicy) -> str:
    """Return the name of the rule for selected callers, which is another one for another selector."""
    selector = policy.spec.caller_selector
    labels = json.dumps(selector.match_labels if selector else {}, sort_keys=True)
    return f"{policy.name}/selected-{sha256(labels.encode()).hexdigest()[:_SELECTOR_DIGITS]}"


def selected_callers(seen: Object, policy: api.CallerPolicy) -> list[str]:
    """Return the callers whom a composed object lets in because the selector of a CallerPolicy selected them."""
    if identity(seen)[1] != "SecurityPolicy":
        return []
    name = _rule_of_selected(policy)
    rules = entries(seen, "spec", "authorization", "rules")
    own = [rule for rule in rules if f"{text(rule, 'name')}/".startswith(f"{name}/")]
    headers = [header for rule in own for header in entries(rule, "principal", "headers")]
    return sorted({caller_of(entry) for header in headers for entry in header.get("values") or ()})


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


AT_GATEWAY = RateLimiter(
    _counts_at_gateway, constants.MODEL_HEADER, lambda route: [route.service.name], _name_at_gateway
)
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
        is_shared = limiter.several or len(covered) > 1
        route = {} if is_shared else {"route": covered[0].service.name}
        for services in _asked_for(covered, group.routes, limiter.header):
            for rule in _budget_rules(callers, budget, services, is_shared=is_shared):
                yield _Limit(rule, {"policy": each.policy.name, "budget": budget.name, **route})


def _asked_for(covered: Sequence[Route], group: Sequence[Route], header: str) -> list[list[dict[str, str]]]:
    """Return the header matches of the services of a budget, each for one rule; an empty one matches all of a group."""
    if len(covered) == len(group):
        return [[]]
    named = [route.service.model_name for route in covered]
    if len(named) == 1:
        return [[{"type": "Exact", "name": header, "value": named[0]}]]
    return [[_pattern(header, value)] for value in _divided(named)]


def _rate_limit(limits: Iterable[_Limit]) -> dict[str, Any]:
    rules = [dict(limit.rule) for limit in limits]
    return {"rateLimit": {"type": "Global", "global": {"rules": rules}}} if rules else {}


def _counted(each: Rights, budget: Budget, covered: Iterable[Route], known: NamespaceRights) -> Sequence[_Matches]:
    """Return the header matches of the callers of a budget, each for one rule. Where no other policy lets callers in,
    names are not needed."""
    is_needed = budget.scope == "Caller" or known.are_shared(route.service.name for route in covered)
    return each.patterns if is_needed or len(each.patterns) < 2 else _patterns(None)


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
    if len(_divided(route.service.model_name for route in routes)) < 2:
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
    parts_of_services = len(_divided(route.service.model_name for route in routes))
    rules_of_callers = sum(len(each.budgets) * len(each.patterns) for each in known.policies)
    if parts_of_services * rules_of_callers <= MOST_RULES:
        return
    for group in _groups(routes, known, limiter):
        limits = list(_limits(group, known, limiter))
        if len(limits) > MOST_RULES:
            concerned = {limit.counted["policy"] for limit in limits}
            yield TooManyRules(tuple(sorted(concerned)), len(limits))


def _budget_rules(
    callers: Iterable[_Matches], budget: Budget, services: Sequence[Mapping[str, str]], *, is_shared: bool
) -> Iterator[dict[str, Any]]:
    """Yield the rules of a budget: one, or several for names that no single pattern can hold."""
    for named in callers:
        distinct = [{"type": "Distinct", "name": constants.CALLER_HEADER}] if budget.scope == "Caller" else []
        headers = [*distinct, *named, *services]
        rule: dict[str, Any] = {
            **({"clientSelectors": [{"headers": headers}]} if headers else {}),
            "limit": {"requests": budget.limit, "unit": budget.per},
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


def _patterns(callers: Sequence[str] | None) -> list[_Matches]:
    """Return the header matches of callers, each for one rule; None are all callers."""
    if callers is None:
        return [[]]
    return [[_pattern(constants.CALLER_HEADER, value)] for value in _divided(callers, _NEXT)]


def _divided(values: Iterable[str], suffix: str = "") -> list[str]:
    """Return the patterns that these values match, each as many of them as it can hold."""
    patterns: list[list[str]] = []
    length = 0
    for value in map(re.escape, values):
        if patterns and length + len(value) + 1 <= _MOST_CHARACTERS:
            patterns[-1].append(value)
            length += len(value) + 1
        else:
            patterns.append([value])
            length = len(_alternatives([value], suffix))
    return [_alternatives(part, suffix) for part in patterns]


def _alternatives(escaped: Sequence[str], suffix: str) -> str:
    return f"^({'|'.join(escaped)}){suffix}$"


def _pattern(header: str, value: str) -> dict[str, str]:
    return {"type": "RegularExpression", "name": header, "value": value}
