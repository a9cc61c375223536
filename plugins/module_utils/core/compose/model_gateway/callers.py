# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Callers of a gateway in mode Model, and the policies on its routes that let in those who may call a service."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.caller_policy import Budget
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.inference_gateway import CallerTokens
from ansible_collections.modelplane.fleet.plugins.module_utils.core.caller_keys import (
    NEXT_SUFFIX,
    caller_of,
    entries_of,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway import parts
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.gateway import TOKEN_PROVIDER
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.patterns import (
    Matches,
    divided,
    pattern,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.routes import Route
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, entries, identity, text

_MOST_VALUES = 256
BY_TOKEN = {"type": "Exact", "name": constants.CALLER_HEADER, "value": constants.TOKEN_CALLER}
"""Header match of clients with tokens."""
_MOST_GROUPS = 6
"""Groups of a rule: a group and a claim of 253 characters each fit into an expression of 4,096 so many times."""
_NEXT = f"({re.escape(NEXT_SUFFIX)})?"
_SELECTOR_DIGITS = 10


@dataclass(frozen=True)
class KeySecret:
    """Secret with keys of callers: its labels, and the names of its entries, which are callers."""

    labels: Mapping[str, str]
    callers: tuple[str, ...]


@dataclass(frozen=True)
class Rights:
    """CallerPolicy with its callers; None are all that have a key or a token. `selected` are those of its
    `callerSelector`; `services` are the names of the ModelServices that it selects. `tokens`: spec.auth.jwt of the
    gateway."""

    policy: api.CallerPolicy
    callers: tuple[str, ...] | None
    services: frozenset[str]
    selected: tuple[str, ...] = ()
    tokens: CallerTokens | None = None

    @property
    def budgets(self) -> Sequence[Budget]:
        """Budgets of the policy."""
        return self.policy.spec.budgets or ()

    @cached_property
    def patterns(self) -> Sequence[Matches]:
        """Header matches of the callers, each for one rule."""
        if self.callers is None:
            return [[]]
        keys = [[pattern(constants.CALLER_HEADER, value)] for value in divided(self.callers, _NEXT)]
        subjects = divided(self.subjects)
        return [*keys, *([BY_TOKEN, pattern(constants.SUBJECT_HEADER, value)] for value in subjects)]

    @property
    def groups(self) -> Sequence[str]:
        """Groups of clients with tokens, at a gateway that knows groups."""
        return (self.tokens and self.tokens.groups_claim and self.policy.spec.groups) or ()

    @property
    def subjects(self) -> Sequence[str]:
        """Clients with tokens that the policy names, at a gateway that accepts tokens."""
        return (self.tokens and self.policy.spec.subjects) or ()


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


def rights(
    policy: api.CallerPolicy,
    secrets: Iterable[KeySecret],
    services: Iterable[api.ModelService] = (),
    tokens: CallerTokens | None = None,
) -> Rights:
    """Return the callers of a policy, and the services that it selects, which are these; the callers of its selector
    are those whose keys are in these Secrets. `tokens`: those that the gateway accepts."""
    selected_services = frozenset(service.name for service in services)
    if policy.is_for_everyone:
        return Rights(policy, None, selected_services, tokens=tokens)
    selector = policy.spec.caller_selector
    found = [secret for secret in secrets if selector and selector.matches(secret.labels)]
    selected = {caller_of(entry) for secret in found for entry in secret.callers}
    callers = tuple(sorted({*map(caller_of, policy.named_callers), *selected}))
    return Rights(policy, callers, selected_services, tuple(sorted(selected)), tokens)


def authorizations(routes: Iterable[Route], known: NamespaceRights) -> Iterator[Object]:
    """Yield the policies of routes that refuse all but certain callers."""
    for route in routes:
        selecting = known.to(route.service.name)
        if selecting and all(each.callers is not None for each in selecting):
            yield _authorization(route, selecting)


def _authorization(route: Route, selecting: Iterable[Rights]) -> Object:
    """Return the policy that refuses all callers but those of these policies."""
    rules = [rule for each in selecting for rule in _allowing(each)]
    return parts.envoy_object(
        "SecurityPolicy",
        route.metadata(route.service.name),
        {
            "targetRefs": parts.route_targets([route.service.name]),
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
    if each.subjects:
        headers = [
            {"name": constants.CALLER_HEADER, "values": [constants.TOKEN_CALLER]},
            {"name": constants.SUBJECT_HEADER, "values": list(each.subjects)},
        ]
        yield {"name": f"{each.policy.name}/subjects", "action": "Allow", "principal": {"headers": headers}}
    for start in range(0, len(each.groups), _MOST_GROUPS):
        test = _in_groups(each, each.groups[start : start + _MOST_GROUPS])
        name = f"{each.policy.name}/groups"
        yield {"name": f"{name}/{start}" if start else name, "action": "Allow", "cel": test}


def _in_groups(each: Rights, groups: Iterable[str]) -> str:
    """Return the test for groups of a token, as CEL over the claims that Envoy has verified. Envoy takes no macros.

    A request without a token has no claims, which is an error in CEL, and matches no rule."""
    claim = (each.tokens and each.tokens.groups_claim) or ""
    verified = f"metadata.filter_metadata['envoy.filters.http.jwt_authn']['{TOKEN_PROVIDER}']"
    place = verified + "".join(f"['{part}']" for part in claim.split("."))
    tests = " || ".join(f"'{group}' in {place}" for group in groups)
    return f"'{constants.SUBJECT_HEADER}' in request.headers && ({tests})"


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
