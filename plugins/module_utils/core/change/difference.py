# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Difference between the observed and the desired objects of one API server: what to write, and what to delete.

Nothing is written for an object that is as desired, according to the inventory of the last run: what was desired then
equals what is desired now, and the fields that our field manager owned in the live object afterwards equal those that
it owns now. So defaults, other writers' fields and the server's own way of writing a value never matter, and every
drift of a field of ours does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.deletion import is_being_deleted
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import (
    RECORD_LABEL,
    Entry,
    Inventory,
    Key,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.managed_fields import (
    digest,
    labels_of_others,
    managed,
    owned,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change import rules
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.rules import (
    DEFINITION,
    NAMESPACE,
    RULES,
    SYSTEM_KEY,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, fields, text

_ISSUED_FOR = "cert-manager.io/certificate-name"
_SECRET = ("", "Secret")


@dataclass(frozen=True)
class Refusal:
    """Reason why a desired object cannot be written, and the object that is there."""

    message: str
    before: Object | None = None


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Observed state of one API server."""

    live: Mapping[Key, Object]
    """Objects with our label, whether they are desired or not."""
    own: Inventory | None = None
    """Inventory of the last run, None if there is none."""
    others: Mapping[Key, str] = field(default_factory=dict)
    """Owners of the objects in other inventories."""
    refusals: Mapping[Key, Refusal] = field(default_factory=dict)
    used: Collection[Key] = frozenset()
    """Desired objects of other owners that are used as they are."""
    namespaces: Sequence[str] = ()
    """Namespaces of users that do not exist, and that the run creates."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Objects that a run may delete.

    `prune`: those that are no longer desired. `definitions`: CustomResourceDefinitions too, as all objects of their
    kinds go with them. `orphans`: without an inventory, those that our field manager has applied. `held`, and all
    that have every label of an entry of `held_labels`, stay as they are: it is unknown whether they are desired.
    """

    prune: bool = True
    definitions: bool = False
    orphans: bool = True
    held: frozenset[Key] = frozenset()
    held_labels: frozenset[tuple[tuple[str, str], ...]] = frozenset()


def yielding(value: Object, live: Object | None) -> Object:
    """Return an object as it is applied: without those labels of a prefix (`Rule.keeps_labels`) that a user has set.

    Administrators, and the controller by which OpenShift labels namespaces, know what a cluster has to let in.
    """
    prefix = RULES[rules.row(value)].keeps_labels
    if not prefix or live is None:
        return value
    live_labels, labels = fields(live, "metadata", "labels"), fields(value, "metadata", "labels")
    held = {key for key in labels_of_others(live, names.FIELD_MANAGER) if key.startswith(prefix)}
    kept = {key: label for key, label in labels.items() if key not in held or live_labels.get(key) == label}
    return {**value, "metadata": {**fields(value, "metadata"), "labels": kept}}


def entry(desired: Object, live: Object) -> Entry:
    """Return the entry of the inventory for an object that was applied."""
    return Entry(text(desired, "apiVersion"), _desired_digest(desired), _owned_digest(live))


def _desired_digest(value: Object) -> str:
    """Return the digest of a desired object. That of a Secret is of the names of its keys."""
    if text(value, "kind") != "Secret":
        return digest(value)
    return digest({**value, "data": sorted(fields(value, "data")), "stringData": sorted(fields(value, "stringData"))})


def _owned_digest(live: Object) -> str:
    return "" if text(live, "kind") == "Secret" else digest(owned(live, names.FIELD_MANAGER))


def is_as_desired(value: Object, live: Object, known: Entry | None) -> bool:
    """Return True if nothing has to be written for an object."""
    if known is None or known.desired != _desired_digest(value) or is_being_deleted(live):
        return False
    if text(value, "kind") == "Secret":
        labels = fields(value, "metadata", "labels")
        live_labels = fields(live, "metadata", "labels")
        same = all(live_labels.get(name) == held for name, held in labels.items())
        return same and fields(live, "data") == fields(value, "data") and owned(live, names.FIELD_MANAGER) is not None
    return known.owned == _owned_digest(live)


def is_certificate(key: Key) -> bool:
    """Return whether cert-manager issues a certificate for an object, into a Secret."""
    return (key.group, key.kind) == ("cert-manager.io", "Certificate")


def held_keys(live: Mapping[Key, Object], scope: Scope) -> set[Key]:
    """Return the objects that stay as they are, with the namespaces that they are in, and that of the inventories."""

    def has_held_labels(value: Object) -> bool:
        labels = fields(value, "metadata", "labels")
        return any(all(labels.get(name) == held for name, held in entry) for entry in scope.held_labels)

    found = {key for key, value in live.items() if has_held_labels(value)} | scope.held
    places = {Key("", NAMESPACE, "", key.namespace) for key in found}
    return found | places | {SYSTEM_KEY} if found else set()


def to_prune(observed: Observed, kept: Collection[Key], *, definitions: bool) -> list[Object]:
    """Return the objects to delete, in order: those with our label that are in our inventory or, without an inventory,
    that our manager applied and no other inventory has; with certificates, the Secrets that have them."""
    found = []
    for key, value in observed.live.items():
        if (
            key in kept
            or key in observed.others
            or is_being_deleted(value)
            or (key.kind == DEFINITION and not definitions)
        ):
            continue
        if RECORD_LABEL in fields(value, "metadata", "labels"):
            continue
        known = key in observed.own if observed.own is not None else managed(value, names.FIELD_MANAGER) is not None
        if known:
            found.append(value)
    return rules.ordered_deletions([*found, *_issued(observed.live, found, kept)])


def _issued(live: Mapping[Key, Object], gone: Collection[Object], kept: Collection[Key]) -> Iterator[Object]:
    """Yield the Secrets that were issued for certificates which are to be deleted: cert-manager leaves them behind."""
    keys = {Key.of(value) for value in gone}
    for certificate in filter(lambda value: is_certificate(Key.of(value)), gone):
        secret = Key(*_SECRET, Key.of(certificate).namespace, text(certificate, "spec", "secretName"))
        issued = None if secret in kept or secret in keys else live.get(secret)
        issuer = text(issued, "metadata", "annotations", _ISSUED_FOR)
        if issued is not None and not is_being_deleted(issued) and issuer == Key.of(certificate).name:
            yield issued
