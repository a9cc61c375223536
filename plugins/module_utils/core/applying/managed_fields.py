# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Fields of a live object that a field manager owns (Kubernetes, "Server-Side Apply": managedFields, fieldsV1).

A set of fields is a tree: `f:<name>` is a field, `k:<keys>` the item of a list with these values of its keys,
`v:<value>` a value of a set, `i:<index>` an item by its index, `.` the node itself. A node without children is owned
entirely.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from ..wire import Object, entries, fields, text

Fields = Mapping[str, Any]

_DIGEST_DIGITS = 20


def digest(value: Any) -> str:
    """Return the digest of a value: 80 bits of SHA-256 over its canonical JSON."""
    canonical_json = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(canonical_json.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_DIGITS]


def managed(live: Object | None, manager: str, subresource: str = "") -> Fields | None:
    """Return the set of fields that a manager applied, or None if it never applied this object."""
    for entry in entries(live, "metadata", "managedFields"):
        applied = entry.get("operation") == "Apply" and text(entry, "subresource") == subresource
        if applied and entry.get("manager") == manager:
            return fields(entry, "fieldsV1")
    return None


def appliers(live: Object | None) -> frozenset[str]:
    """Return the managers that apply this object by server-side apply."""
    return frozenset(
        text(entry, "manager")
        for entry in entries(live, "metadata", "managedFields")
        if entry.get("operation") == "Apply"
    )


def writers(live: Object | None) -> list[str]:
    """Return all managers of an object, sorted."""
    return sorted({text(entry, "manager") for entry in entries(live, "metadata", "managedFields")} - {""})


def labels_of_others(live: Object | None, manager: str) -> frozenset[str]:
    """Return the keys of labels that other managers own."""
    return frozenset(
        key.removeprefix("f:")
        for entry in entries(live, "metadata", "managedFields")
        if entry.get("manager") != manager
        for key in fields(entry, "fieldsV1", "f:metadata", "f:labels")
        if key != "."
    )


def owned(live: Object | None, manager: str, subresource: str = "") -> Any:
    """Return the values of the fields that a manager applied, or None if it never applied this object."""
    owned_fields = managed(live, manager, subresource)
    return None if owned_fields is None else project(live, owned_fields)


def project(value: Any, owned_fields: Fields) -> Any:
    """Return the part of a value with a set of fields. Missing fields are left out, and lists keep their order."""
    children = {key: below for key, below in owned_fields.items() if key != "."}
    if not children and "." not in owned_fields:
        return value
    if isinstance(value, Mapping):
        return {
            name: project(value[name], below)
            for key, below in children.items()
            if (name := key.removeprefix("f:")) != key and name in value
        }
    if isinstance(value, (list, tuple)):
        return _items(value, children)
    # The node is owned but has no children: its type has changed, or it is empty.
    return value


def _items(value: Sequence[Any], children: Fields) -> list[Any]:
    keyed: list[tuple[Mapping[str, Any], Fields]] = []
    values: set[str] = set()
    indexes: dict[int, Fields] = {}
    for key, below in children.items():
        tag, __, key_text = key.partition(":")
        if tag == "k":
            keyed.append((json.loads(key_text), below))
        elif tag == "v":
            values.add(_canonical(json.loads(key_text)))
        elif tag == "i":
            indexes[int(key_text)] = below
    owned_items = []
    for index, item in enumerate(value):
        below = indexes.get(index) if index in indexes else _keyed(item, keyed)
        if below is not None:
            owned_items.append(project(item, below))
        elif values and _canonical(item) in values:
            owned_items.append(item)
    return owned_items


def _keyed(item: Any, keyed: Sequence[tuple[Mapping[str, Any], Fields]]) -> Fields | None:
    """Return the fields of the item's entry. The entry has the schema default of a key that the item lacks."""
    if not isinstance(item, Mapping):
        return None
    for keys, below in keyed:
        if all(item.get(name, value) == value for name, value in keys.items()):
            return below
    return None


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def union(first: Fields, second: Fields) -> Fields:
    """Return the fields of both sets. A node that one of them owns entirely is owned entirely."""
    if not first or not second:
        return {}
    return {
        key: union(first[key], second[key]) if key in first and key in second else first.get(key, second.get(key))
        for key in (*first, *(key for key in second if key not in first))
    }
