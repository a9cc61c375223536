# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Callers of gateways in mode Model of whom only observations say that they have keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from .. import api, names
from ..caller_keys import caller_of
from ..compose.model_gateway.callers import KeySecret
from ..text import nearest, some
from .context import Context

Keys = tuple[api.InferenceGateway, Sequence[KeySecret]]
"""Gateway that asks for keys, and the Secrets that have those of its callers."""

_MAKE = "the playbook modelplane.fleet.keys makes keys"


def key_warnings(context: Context, keys: Sequence[Keys]) -> Iterator[str]:
    """Yield gateways that no caller has a key for, and callers of policies that have none."""
    known = {gateway.name: _callers(secrets) for gateway, secrets in keys}
    for gateway, _secrets in keys:
        if not known[gateway.name] and gateway.spec.auth and gateway.spec.auth.api_key:
            yield _without_keys(context, gateway)
    for __, policy in sorted(context.fleet.policies.items()):
        services = context.selection.services(policy)
        asking = [each for each in keys if any(each[0].serves(service.labels) for service in services)]
        callers = frozenset[str]().union(*(known[gateway.name] for gateway, __ in asking))
        # Without any key at all, it is the gateway that something is wrong with.
        if callers:
            gateways = f"InferenceGateway {some(gateway.name for gateway, __ in asking)}"
            yield from _unknown_callers(policy, callers, gateways)
            yield from _empty_group(policy, [secret for __, found in asking for secret in found], gateways)


def unread_groups(policies: Iterable[api.CallerPolicy]) -> Iterator[str]:
    """Yield the policies of these whose callers are selected by labels of Secrets, which are not read."""
    for policy in policies:
        selector = policy.spec.caller_selector
        if selector and not policy.is_for_everyone:
            yield (
                f"{policy.ref}: the callers of callerSelector {_pairs(selector.match_labels)} are not known, as no "
                "control cluster is read: it lets in none of them, and counts no budget of theirs, until one is; or "
                "name them in callers"
            )


def _callers(secrets: Iterable[KeySecret]) -> frozenset[str]:
    return frozenset(caller_of(entry) for secret in secrets for entry in secret.callers)


def _without_keys(context: Context, gateway: api.InferenceGateway) -> str:
    keys = gateway.spec.auth.api_key if gateway.spec.auth else None
    asked = _pairs(keys.secret_selector.match_labels if keys else {})
    observed = context.observed.secret_labels.items() if context.observed else ()
    others = [
        f"{name} ({_pairs(labels)})" for (place, name), labels in sorted(observed) if place == names.SYSTEM_NAMESPACE
    ]
    known = f"; Secrets there with keys are {some(others, 3)}" if others else ""
    return (
        f"InferenceGateway {gateway.name}: no Secret of {names.SYSTEM_NAMESPACE} with the labels {asked} has a key, so "
        f"every caller gets 401: {_MAKE}; if there are some, correct spec.auth.apiKey.secretSelector{known}"
    )


def _unknown_callers(policy: api.CallerPolicy, known: frozenset[str], gateways: str) -> Iterator[str]:
    named = policy.named_callers
    unknown = [name for name in named if name not in known]
    if unknown:
        meant = [(name, nearest(name, known.difference(named))) for name in unknown]
        corrections = [f"{near} in place of {name}" for name, near in meant if near]
        hint = f"write {some(corrections)}, or make a key: {_MAKE}" if corrections else _MAKE
        yield f"{policy.ref}: no caller of {gateways} has a key by the name {some(unknown)}: {hint}"


def _empty_group(policy: api.CallerPolicy, secrets: Sequence[KeySecret], gateways: str) -> Iterator[str]:
    selector = policy.spec.caller_selector
    if (
        selector
        and not policy.is_for_everyone
        and not _callers(secret for secret in secrets if selector.matches(secret.labels))
    ):
        labels = sorted({_pairs({key: value}) for secret in secrets for key, value in secret.labels.items()})
        yield (
            f"{policy.ref}: callerSelector {_pairs(selector.match_labels)} matches no Secret with keys of "
            f"{gateways}: select by their labels, which are {some(labels)}"
        )


def _pairs(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in sorted(labels.items()) if key != names.MANAGED_BY_LABEL)
