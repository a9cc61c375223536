# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Difference between the observed and the desired objects of one API server: objects to write and to delete.

An object is up to date if the inventory of the last run contains the digest of its desired state and the digest of the
live fields that our field manager owns. The comparison therefore ignores defaults, fields of other field managers and
normalized values, and detects any drift of our own fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .. import names
from ..applying.inventory import RECORD_LABEL, Entry, Inventory, Key
from ..applying.managed_fields import digest, labels_of_others, managed, owned
from ..wire import Object, fields, is_being_deleted, text
from . import rules
from .rules import DEFINITION, NAMESPACE, RULES, SYSTEM_KEY

_ISSUED_FOR = "cert-manager.io/certificate-name"
_SECRET = ("", "Secret")


@dataclass(frozen=True)
class Refusal:
    """Reason why a desired object cannot be written, with the live object."""

    message: str
    before: Object | None = None


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Observed state of one API server."""

    live: Mapping[Key, Object]
    """Objects with our label, desired or not."""
    own: Inventory | None = None
    """Inventory of the last run, None without a last run."""
    others: Mapping[Key, str] = field(default_factory=dict)
    """Owners of the objects in other inventories."""
    refusals: Mapping[Key, Refusal] = field(default_factory=dict)
    used: Collection[Key] = frozenset()
    """Desired objects that the fleet uses without changes, because they have another owner."""
    namespaces: Sequence[str] = ()
    """Missing user namespaces that the run creates."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Objects that a run may delete.

    prune: delete objects that are no longer desired.
    definitions: also delete CustomResourceDefinitions, and with them all objects of their kinds.
    orphans: without an inventory, delete objects that our field manager applied.
    held: frozen objects, because their desired state is unknown.
    held_labels: label sets. Objects with all labels of a set are frozen too.
    """

    prune: bool = True
    definitions: bool = False
    orphans: bool = True
    held: frozenset[Key] = frozenset()
    held_labels: frozenset[tuple[tuple[str, str], ...]] = frozenset()


def yielding(value: Object, live: Object | None) -> Object:
    """Return the object to apply, without labels with the prefix `Rule.keeps_labels` that other managers have set.

    Administrators and the OpenShift label controller decide the pod security level of a namespace.
    """
    prefix = RULES[rules.row(value)].keeps_labels
    if not prefix or live is None:
        return value
    live_labels, labels = fields(live, "metadata", "labels"), fields(value, "metadata", "labels")
    foreign = {key for key in labels_of_others(live, names.FIELD_MANAGER) if key.startswith(prefix)}
    merged = {key: label for key, label in labels.items() if key not in foreign or live_labels.get(key) == label}
    return {**value, "metadata": {**fields(value, "metadata"), "labels": merged}}


def entry(desired: Object, live: Object) -> Entry:
    """Return the inventory entry for an applied object."""
    owned_digest = "" if text(live, "kind") == "Secret" else digest(owned(live, names.FIELD_MANAGER))
    return Entry(text(desired, "apiVersion"), _desired_digest(desired), owned_digest)


def _desired_digest(value: Object) -> str:
    """Return the digest of a desired object. The digest of a Secret covers only the names of its keys."""
    if text(value, "kind") != "Secret":
        return digest(value)
    return digest({**value, "data": sorted(fields(value, "data")), "stringData": sorted(fields(value, "stringData"))})


def is_as_desired(value: Object, live: Object, inventory_entry: Entry | None) -> bool:
    """Return True if an object is up to date."""
    if inventory_entry is None or inventory_entry.desired != _desired_digest(value) or is_being_deleted(live):
        return False
    labels, live_labels = fields(value, "metadata", "labels"), fields(live, "metadata", "labels")
    has_same_data = labels.items() <= live_labels.items() and fields(live, "data") == fields(value, "data")
    is_secret = text(value, "kind") == "Secret"
    own_fields = owned(live, names.FIELD_MANAGER)
    return has_same_data and own_fields is not None if is_secret else inventory_entry.owned == digest(own_fields)


def is_certificate(key: Key) -> bool:
    """Return True if an object is a Certificate. cert-manager creates a Secret for each Certificate."""
    return (key.group, key.kind) == ("cert-manager.io", "Certificate")


def held_keys(live: Mapping[Key, Object], scope: Scope) -> set[Key]:
    """Return the frozen objects, with their namespaces and the namespace of the inventories."""

    def has_held_labels(value: Object) -> bool:
        labels = fields(value, "metadata", "labels")
        return any(all(labels.get(name) == label for name, label in entry) for entry in scope.held_labels)

    keys = {key for key, value in live.items() if has_held_labels(value)} | scope.held
    namespaces = {Key("", NAMESPACE, "", key.namespace) for key in keys}
    return keys | namespaces | {SYSTEM_KEY} if keys else set()


def to_prune(observed: Observed, kept_keys: Collection[Key], *, definitions: bool) -> list[Object]:
    """Return the objects to delete, in order: labeled objects in our inventory, and the Secrets of their certificates.

    Without an inventory, objects that our field manager applied and that are in no other inventory are deleted."""
    values = []
    for key, value in observed.live.items():
        if (
            key in kept_keys
            or key in observed.others
            or is_being_deleted(value)
            or (key.kind == DEFINITION and not definitions)
        ):
            continue
        if RECORD_LABEL in fields(value, "metadata", "labels"):
            continue
        is_own = key in observed.own if observed.own is not None else managed(value, names.FIELD_MANAGER) is not None
        if is_own:
            values.append(value)
    return rules.ordered_deletions([*values, *_issued_secrets(observed.live, values, kept_keys)])


def _issued_secrets(
    live: Mapping[Key, Object], removed: Collection[Object], kept_keys: Collection[Key]
) -> Iterator[Object]:
    """Yield the Secrets of deleted certificates, because cert-manager does not delete the Secrets."""
    keys = {Key.of(value) for value in removed}
    for certificate in filter(lambda value: is_certificate(Key.of(value)), removed):
        key = Key(*_SECRET, Key.of(certificate).namespace, text(certificate, "spec", "secretName"))
        secret = None if key in kept_keys or key in keys else live.get(key)
        issuer = text(secret, "metadata", "annotations", _ISSUED_FOR)
        if secret is not None and not is_being_deleted(secret) and issuer == Key.of(certificate).name:
            yield secret
