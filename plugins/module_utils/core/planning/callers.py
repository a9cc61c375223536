# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Callers of Model gateways with API keys that only observations contain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from .. import api, names
from ..caller_keys import caller_of
from ..compose.model_gateway.callers import KeySecret
from ..text import nearest, some
from .context import Context

Keys = tuple[api.InferenceGateway, Sequence[KeySecret]]
"""Gateway that requires API keys, and the Secrets with the API keys of its callers."""

_MAKE = "the playbook modelplane.fleet.keys makes keys"


def key_warnings(context: Context, keys: Sequence[Keys]) -> Iterator[str]:
    """Yield gateways that no caller has a key for, and callers of policies that have none."""
    callers_by_gateway = {gateway.name: _callers(secrets) for gateway, secrets in keys}
    for gateway, _secrets in keys:
        if not callers_by_gateway[gateway.name] and gateway.spec.auth and gateway.spec.auth.api_key:
            yield _without_keys(context, gateway)
    for __, policy in sorted(context.fleet.policies.items()):
        services = context.selection.services(policy)
        asking = [
            gateway_keys for gateway_keys in keys if any(gateway_keys[0].serves(service.labels) for service in services)
        ]
        callers = frozenset[str]().union(*(callers_by_gateway[gateway.name] for gateway, __ in asking))
        # Without any key at all, it is the gateway that something is wrong with.
        if callers:
            gateways = f"InferenceGateway {some(gateway.name for gateway, __ in asking)}"
            yield from _unknown_callers(policy, callers, gateways)
            yield from _empty_group(
                policy, [secret for __, secrets_of_gateway in asking for secret in secrets_of_gateway], gateways
            )


def unread_groups(policies: Iterable[api.CallerPolicy]) -> Iterator[str]:
    """Yield a warning for each policy that selects callers by labels of Secrets, because Secrets are not read."""
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
    required_labels = _pairs(keys.secret_selector.match_labels if keys else {})
    observed = context.observed.secret_labels.items() if context.observed else ()
    other_secrets = [
        f"{name} ({_pairs(labels)})"
        for (namespace, name), labels in sorted(observed)
        if namespace == names.SYSTEM_NAMESPACE
    ]
    secrets_note = f"; Secrets there with keys are {some(other_secrets, 3)}" if other_secrets else ""
    return (
        f"InferenceGateway {gateway.name}: no Secret of {names.SYSTEM_NAMESPACE} with the labels {required_labels} "
        f"has a key, so every caller gets 401: {_MAKE}; if there are some, correct spec.auth.apiKey.secretSelector"
        f"{secrets_note}"
    )


def _unknown_callers(policy: api.CallerPolicy, known_callers: frozenset[str], gateways: str) -> Iterator[str]:
    policy_callers = policy.named_callers
    unknown = [name for name in policy_callers if name not in known_callers]
    if unknown:
        suggestions = [(name, nearest(name, known_callers.difference(policy_callers))) for name in unknown]
        corrections = [f"{near} in place of {name}" for name, near in suggestions if near]
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
