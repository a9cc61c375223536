# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Secrets that runs copy from the control cluster to inference clusters, key by key, according to the plan.

Their values are sent only from one API server to the other: to no file, no result, and no message.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core import names
from ..core.applying.inventory import Key
from ..core.compose.cache import OPAQUE
from ..core.compose.model_gateway.backends import SECRET_KEY
from ..core.wire import Object, fields, text
from .client import Client
from .errors import ApiError, Forbidden
from .labelled_objects import label_selector

_LONGEST_KEY = 1024
_VISIBLE = re.compile(rb"[\x21-\x7e]+")
_ODD_KEY = "is hardly what a provider gave: write the key alone, without spaces, line breaks or letters beyond ASCII"


@dataclass(frozen=True)
class Copies:
    """Copies of Secrets for one inference cluster."""

    desired: tuple[Object, ...] = ()
    """Desired Secrets."""
    held: frozenset[Key] = frozenset()
    """Frozen Secrets with an unreadable source."""
    notes: tuple[str, ...] = ()
    """Reasons for frozen Secrets."""


class Sources:
    """Secrets of the control cluster. Each Secret is read once.

    After an error of the server, no further Secret is read, and `error` contains the error. A forbidden Secret does not
    prevent reading others. Without a client, no Secret is readable."""

    def __init__(self, control: Client | None) -> None:
        self._control = control
        self._seen: dict[tuple[str, str], Object | None] = {}
        self._refused: dict[tuple[str, str], Forbidden] = {}
        self.error: ApiError | None = None

    def labelled(self, namespace: str, labels: Mapping[str, Any]) -> tuple[dict[str, str], list[str], str]:
        """Return all keys and values (Base64) of the Secrets with these labels, the skipped keys, and an error.

        The error is the reason for unknown values. If several Secrets have the same key, the first Secret by name is
        used. If several keys have the same value, the first key is used, because Envoy Gateway rejects all keys if one
        value is duplicated."""
        if self._control is None:
            return {}, [], "no control cluster is given to copy from"
        if self.error is None:
            try:
                listing = self._control.list("v1", "Secret", namespace=namespace, labels=label_selector(labels)).items
            except Forbidden as error:
                return {}, [], str(error)
            except ApiError as error:
                self.error = error
        if self.error is not None:
            return {}, [], str(self.error)
        values: dict[str, str] = {}
        owners: dict[str, str] = {}
        left_out = []
        for secret in sorted(listing, key=lambda listed_secret: text(listed_secret, "metadata", "name")):
            for key, value in sorted(fields(secret, "data").items()):
                key_description = f"{key} of Secret {namespace}/{text(secret, 'metadata', 'name')}"
                if not _is_usable(value):
                    left_out.append(
                        f"{key_description} is not used: a key has 1 to {_LONGEST_KEY} visible ASCII characters"
                    )
                elif key not in values and value in owners:
                    left_out.append(
                        f"{key_description} is not used: it has the same value as {owners[value]}. Give it another"
                    )
                elif key not in values:
                    values[key] = value
                    owners[value] = key_description
        return values, left_out, ""

    def value(self, namespace: str, name: str, key: str) -> tuple[str, str]:
        """Return the value of a key (Base64), and the reason for an empty value."""
        if self._control is None:
            return "", "no control cluster is given to copy from"
        secret_key = (namespace, name)
        if self.error is None and secret_key not in self._seen and secret_key not in self._refused:
            try:
                self._seen[secret_key] = self._control.get("v1", "Secret", name, namespace)
            except Forbidden as error:
                self._refused[secret_key] = error
            except ApiError as error:
                self.error = error
        if secret_key not in self._seen:
            return "", str(self._refused.get(secret_key) or self.error)
        secret = self._seen[secret_key]
        if secret is None:
            return "", f"there is no Secret {namespace}/{name} on the control cluster"
        value = text(secret, "data", key)
        return value, "" if value else f"Secret {namespace}/{name} of the control cluster has no key {key}"


def copies(plan: Iterable[Mapping[str, Any]], cluster: str, sources: Sources) -> Copies:
    """Return the Secrets that `secretCopies` of a plan means for one cluster."""
    data: dict[tuple[str, str], dict[str, str]] = {}
    kinds: dict[tuple[str, str], tuple[str, Mapping[str, str]]] = {}
    held_keys: set[Key] = set()
    notes = []
    for entry in plan:
        if entry.get("cluster") != cluster:
            continue
        source, target = fields(entry, "from"), fields(entry, "to")
        secret_key = (text(target, "namespace"), text(target, "name"))
        values, left_out, error = _values(source, text(target, "key"), sources)
        notes += left_out
        if error:
            held_keys.add(Key("", "Secret", *secret_key))
            notes.append(f"Secret {secret_key[0]}/{secret_key[1]} is left as it is: {error}")
            continue
        if text(target, "key") == SECRET_KEY and fields(entry, "labels") and not _is_sent(values[SECRET_KEY]):
            # With labels of the fleet, it is the key of a provider.
            place_of_key = f"{text(source, 'key')} of Secret {text(source, 'namespace')}/{text(source, 'name')}"
            notes.append(f"{place_of_key} {_ODD_KEY}")
        data.setdefault(secret_key, {}).update(values)
        namespace = {names.NAMESPACE_LABEL: names.label_value(text(source, "namespace"))}
        kinds[secret_key] = text(entry, "type") or OPAQUE, {**namespace, **fields(entry, "labels")}
    desired = [
        _secret(*secret_key, values, *kinds[secret_key])
        for secret_key, values in sorted(data.items())
        if Key("", "Secret", *secret_key) not in held_keys
    ]
    return Copies(tuple(desired), frozenset(held_keys), tuple(sorted(set(notes))))


def _values(source: Mapping[str, Any], key: str, sources: Sources) -> tuple[dict[str, str], list[str], str]:
    """Return the copied values of one entry of a plan, by key, and the omitted keys.

    If the source is unreadable, return no values and the reason."""
    namespace, labels = text(source, "namespace"), fields(source, "matchLabels")
    if labels:
        return sources.labelled(namespace, labels)
    value, error = sources.value(namespace, text(source, "name"), text(source, "key"))
    return {key: value}, [], error


def _is_usable(value: str) -> bool:
    """Return True if a header can contain a value (Base64). Envoy loads no keys if one value is invalid."""
    return _is_sent(value) and len(base64.b64decode(value)) <= _LONGEST_KEY


def _is_sent(value: str) -> bool:
    """Return True if a value (Base64) is visible ASCII, like all keys."""
    try:
        return _VISIBLE.fullmatch(base64.b64decode(value)) is not None
    except ValueError:
        return False


def _secret(namespace: str, name: str, data: Mapping[str, str], kind: str, labels: Mapping[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**labels, names.MANAGED_BY_LABEL: names.MANAGED_BY},
        },
        "type": kind,
        "data": dict(sorted(data.items())),
    }
