# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Clients of a Model gateway, and the policies on its routes that authorize them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from ... import api
from ...api.caller_policy import Budget
from ...api.inference_gateway import CallerTokens
from ...caller_keys import NEXT_SUFFIX, caller_of, entries_of
from ...wire import Object, entries, identity, text
from .. import constants
from . import parts
from .gateway import TOKEN_PROVIDER
from .patterns import Matches, divided, pattern
from .routes import Route

_MOST_VALUES = 256
BY_TOKEN = {"type": "Exact", "name": constants.CALLER_HEADER, "value": constants.TOKEN_CALLER}
"""Header match of clients with tokens."""
_MOST_GROUPS = 6
"""Maximum number of groups per rule. An expression of 4,096 characters fits six groups and claims of 253 characters."""
_NEXT = f"({re.escape(NEXT_SUFFIX)})?"
_SELECTOR_DIGITS = 10


@dataclass(frozen=True)
class KeySecret:
    """Secret with API keys."""

    labels: Mapping[str, str]
    """Labels of the Secret."""
    callers: tuple[str, ...]
    """Names of the entries of the Secret. They are client names."""


@dataclass(frozen=True)
class Rights:
    """Permissions of a CallerPolicy.

    callers: client names; None for all clients with a key or a token.
    services: names of the selected ModelServices.
    selected: client names from `callerSelector`.
    tokens: spec.auth.jwt of the gateway.
    """

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
        """Header matches of the clients, one per rule."""
        if self.callers is None:
            return [[]]
        keys = [[pattern(constants.CALLER_HEADER, value)] for value in divided(self.callers, _NEXT)]
        subjects = divided(self.subjects)
        return [*keys, *([BY_TOKEN, pattern(constants.SUBJECT_HEADER, value)] for value in subjects)]

    @property
    def groups(self) -> Sequence[str]:
        """Groups of clients with tokens, if the gateway has a groups claim."""
        return (self.tokens and self.tokens.groups_claim and self.policy.spec.groups) or ()

    @property
    def subjects(self) -> Sequence[str]:
        """Clients with tokens, if the gateway accepts tokens."""
        return (self.tokens and self.policy.spec.subjects) or ()


@dataclass(frozen=True)
class NamespaceRights:
    """Permissions of the CallerPolicies of a namespace at a gateway, sorted by policy name."""

    policies: Sequence[Rights]

    @cached_property
    def _by_service(self) -> Mapping[str, Sequence[Rights]]:
        rights_by_service: dict[str, list[Rights]] = {}
        for policy_rights in self.policies:
            for name in policy_rights.services:
                rights_by_service.setdefault(name, []).append(policy_rights)
        return rights_by_service

    def to(self, service: str) -> Sequence[Rights]:
        """Return the permissions for a service."""
        return self._by_service.get(service, ())

    def are_shared(self, services: Iterable[str]) -> bool:
        """Return True if several policies select any of the services."""
        return any(len(self.to(name)) > 1 for name in services)


def rights(
    policy: api.CallerPolicy,
    secrets: Iterable[KeySecret],
    services: Iterable[api.ModelService] = (),
    tokens: CallerTokens | None = None,
) -> Rights:
    """Return the permissions of a policy that selects these services.

    secrets: Secrets with API keys, which `callerSelector` selects.
    tokens: spec.auth.jwt of the gateway.
    """
    selected_services = frozenset(service.name for service in services)
    if policy.is_for_everyone:
        return Rights(policy, None, selected_services, tokens=tokens)
    selector = policy.spec.caller_selector
    selected_secrets = [secret for secret in secrets if selector and selector.matches(secret.labels)]
    selected = {caller_of(entry) for secret in selected_secrets for entry in secret.callers}
    callers = tuple(sorted({*map(caller_of, policy.named_callers), *selected}))
    return Rights(policy, callers, selected_services, tuple(sorted(selected)), tokens)


def authorizations(routes: Iterable[Route], namespace_rights: NamespaceRights) -> Iterator[Object]:
    """Yield the policies of routes that not every client may use."""
    for route in routes:
        route_rights = namespace_rights.to(route.service.name)
        if route_rights and all(policy_rights.callers is not None for policy_rights in route_rights):
            yield _authorization(route, route_rights)


def _authorization(route: Route, route_rights: Iterable[Rights]) -> Object:
    """Return the policy that rejects clients without permission."""
    rules = [rule for policy_rights in route_rights for rule in _allow_rules(policy_rights)]
    return parts.envoy_object(
        "SecurityPolicy",
        route.metadata(route.service.name),
        {
            "targetRefs": parts.route_targets([route.service.name]),
            "mergeType": parts.MERGED,
            "authorization": {"defaultAction": "Deny", **({"rules": rules} if rules else {})},
        },
    )


def _allow_rules(policy_rights: Rights) -> Iterator[dict[str, Any]]:
    """Yield the rules that authorize the clients of a policy.

    Selected clients have separate rules, so that later runs can read the selected clients from these rules."""
    policy = policy_rights.policy
    listed_callers = sorted(set(policy_rights.callers or ()).difference(policy_rights.selected))
    # Policy names have no "/", so rule names are unique.
    for name, callers in ((policy.name, listed_callers), (_rule_of_selected(policy), policy_rights.selected)):
        # During a key rotation, a client has two names.
        entry_names = [entry for caller in callers for entry in entries_of(caller)]
        for start in range(0, len(entry_names), _MOST_VALUES):
            header = {"name": constants.CALLER_HEADER, "values": entry_names[start : start + _MOST_VALUES]}
            yield {
                "name": f"{name}/{start}" if start else name,
                "action": "Allow",
                "principal": {"headers": [header]},
            }
    if policy_rights.subjects:
        headers = [
            {"name": constants.CALLER_HEADER, "values": [constants.TOKEN_CALLER]},
            {"name": constants.SUBJECT_HEADER, "values": list(policy_rights.subjects)},
        ]
        yield {"name": f"{policy.name}/subjects", "action": "Allow", "principal": {"headers": headers}}
    for start in range(0, len(policy_rights.groups), _MOST_GROUPS):
        test = _in_groups(policy_rights, policy_rights.groups[start : start + _MOST_GROUPS])
        name = f"{policy.name}/groups"
        yield {"name": f"{name}/{start}" if start else name, "action": "Allow", "cel": test}


def _in_groups(policy_rights: Rights, groups: Iterable[str]) -> str:
    """Return a CEL test for groups in the verified claims of a token. Envoy supports no macros.

    A request without a token has no claims, which is an error in CEL, and matches no rule."""
    claim = (policy_rights.tokens and policy_rights.tokens.groups_claim) or ""
    verified = f"metadata.filter_metadata['envoy.filters.http.jwt_authn']['{TOKEN_PROVIDER}']"
    token_groups = verified + "".join(f"['{key}']" for key in claim.split("."))
    tests = " || ".join(f"'{group}' in {token_groups}" for group in groups)
    return f"'{constants.SUBJECT_HEADER}' in request.headers && ({tests})"


def _rule_of_selected(policy: api.CallerPolicy) -> str:
    """Return the name of the rule for selected clients. The name depends on the selector."""
    selector = policy.spec.caller_selector
    labels = json.dumps(selector.match_labels if selector else {}, sort_keys=True)
    return f"{policy.name}/selected-{sha256(labels.encode()).hexdigest()[:_SELECTOR_DIGITS]}"


def selected_callers(observed: Object, policy: api.CallerPolicy) -> list[str]:
    """Return the clients that a composed object authorizes because `callerSelector` selected them."""
    if identity(observed)[1] != "SecurityPolicy":
        return []
    name = _rule_of_selected(policy)
    rules = entries(observed, "spec", "authorization", "rules")
    selected_rules = [rule for rule in rules if f"{text(rule, 'name')}/".startswith(f"{name}/")]
    headers = [header for rule in selected_rules for header in entries(rule, "principal", "headers")]
    return sorted({caller_of(entry) for header in headers for entry in header.get("values") or ()})
