# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Read access to unvalidated Kubernetes objects in wire form. Only their metadata is checked (`with_metadata`).

`fields`, `entries`, `text`, and `number` return an empty value if a field is missing or of another type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Object = Mapping[str, Any]

_MAP = (dict, Mapping)
"""Types of a map. `dict` is first because a check against only an abstract class takes ten times as long."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def _value(value: Any, path: Iterable[str]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, _MAP) else None
    return value


def fields(value: Any, *path: str) -> Mapping[str, Any]:
    """Return the map at a path below a value, or {} without one."""
    value_at_path = _value(value, path)
    return value_at_path if isinstance(value_at_path, _MAP) else {}


def entries(value: Any, *path: str) -> list[Mapping[str, Any]]:
    """Return the maps in the list at a path below a value."""
    value_at_path = _value(value, path)
    return (
        [entry for entry in value_at_path if isinstance(entry, _MAP)]
        if isinstance(value_at_path, (list, tuple))
        else []
    )


def text(value: Any, *path: str) -> str:
    """Return the text at a path below a value, or "" without one."""
    value_at_path = _value(value, path)
    return value_at_path if isinstance(value_at_path, str) else ""


def number(value: Any, *path: str, default: int = 0) -> int:
    """Return the integer at a path below a value."""
    value_at_path = _value(value, path)
    return value_at_path if isinstance(value_at_path, int) and not isinstance(value_at_path, bool) else default


class NoObjectError(ValueError):
    """A value is not a Kubernetes object. The message contains the reason."""


_OBJECT_TYPES: dict[str, tuple[type, str]] = {
    **dict.fromkeys(("apiVersion", "kind"), (str, "a text")),
    **dict.fromkeys(("spec", "status"), (dict, "a map")),
}
_METADATA_TYPES: dict[str, tuple[type, str]] = {
    **dict.fromkeys(("name", "namespace", "generateName", "uid", "resourceVersion", "selfLink"), (str, "a text")),
    **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), (str, "a text")),
    **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), (int, "a number")),
    **dict.fromkeys(("labels", "annotations"), (dict, "a map")),
    **dict.fromkeys(("finalizers", "ownerReferences", "managedFields"), (list, "a list")),
}
_ENTRY_TYPES: dict[str, tuple[type, str]] = {
    **dict.fromkeys(("labels", "annotations", "finalizers"), (str, "a text")),
    **dict.fromkeys(("ownerReferences", "managedFields"), (dict, "a map")),
}
_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid")


def with_metadata(value: Any) -> Any:
    """Return the object in a response of a server. Raise NoObjectError with the field and its problem.

    Its metadata has a name and the types of Kubernetes (meta/v1, ObjectMeta), and `spec` and `status` are maps. Null
    fields are removed, because they count as unset.
    """
    if not isinstance(value, dict) or not isinstance(value.get("metadata"), dict):
        raise NoObjectError("it has no metadata")
    metadata = value["metadata"]
    for mapping in (value, metadata):
        for key in [key for key, field_value in mapping.items() if field_value is None]:
            del mapping[key]
    for key, expected in _OBJECT_TYPES.items():
        if key in value:
            _expect(value[key], expected, key)
    if not metadata.get("name"):
        raise NoObjectError("it has no metadata.name")
    _check_metadata(metadata)
    return value


def _check_metadata(metadata: Mapping[str, Any]) -> None:
    for key, expected in _METADATA_TYPES.items():
        if key in metadata:
            _expect(metadata[key], expected, f"metadata.{key}")
    for key, expected in _ENTRY_TYPES.items():
        entry_set = metadata.get(key, ())
        for entry in entry_set.values() if isinstance(entry_set, dict) else entry_set:
            _expect(entry, expected, f"an entry of metadata.{key}")
    for owner in metadata.get("ownerReferences", ()):
        for key in _OWNER_FIELDS:
            _expect(owner.get(key, ""), (str, "a text"), f"metadata.ownerReferences.{key}")


def _expect(value: object, expected: tuple[type, str], field: str) -> None:
    kind, type_name = expected
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise NoObjectError(f"{field} is not {type_name}")


def canonical(value: Any) -> Any:
    """Return a value with sorted map keys, so that composed objects equal objects of an API server as text."""
    if isinstance(value, _MAP):
        return {key: canonical(value[key]) for key in sorted(value)}
    return [canonical(item) for item in value] if isinstance(value, (list, tuple)) else value


def has_all_of(value: Any, subset: Any) -> bool:
    """Return True if a value contains all parts of another value. Its maps can have more keys, such as defaults."""
    if isinstance(subset, _MAP):
        return isinstance(value, _MAP) and all(
            key in value and has_all_of(value[key], item) for key, item in subset.items()
        )
    if isinstance(subset, (list, tuple)):
        return isinstance(value, (list, tuple)) and len(value) == len(subset) and all(map(has_all_of, value, subset))
    return type(value) is type(subset) and bool(value == subset)


class Objects:
    """Kubernetes objects (wire form) by kind, namespace, name, and, for kinds of several API groups, by API group."""

    def __init__(self, objects: Iterable[Object] = ()) -> None:
        self._by_kind: dict[str, dict[tuple[str, str], dict[str, Object]]] = {}
        self._by_label: dict[tuple[str, str], dict[tuple[str, str], list[Object]]] = {}
        for value in objects:
            __, kind, namespace, name = identity(value)
            self._by_kind.setdefault(kind, {}).setdefault((namespace, name), {})[identity(value)[0]] = value

    def find(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return the object, or None if it was not observed. `namespace` is empty for cluster-scoped kinds.

        If objects differ only in their API group, return the object of the first group.
        """
        versions = self._by_kind.get(kind, {}).get((namespace, name), {})
        return versions[min(versions)] if versions else None

    def of_kind(self, kind: str) -> Iterator[Object]:
        """Return all objects of a kind, sorted by namespace, name, and API group."""
        objects = self._by_kind.get(kind, {})
        return (objects[key][group] for key in sorted(objects) for group in sorted(objects[key]))

    def like(self, desired: Object) -> Object | None:
        """Return the observed state of an object that is composed."""
        group, kind, namespace, name = identity(desired)
        return self._by_kind.get(kind, {}).get((namespace, name), {}).get(group)

    def labelled(self, kind: str, namespace: str, label: str, value: str) -> Sequence[Object]:
        """Return the objects of a kind in a namespace with this value of a label, sorted by name."""
        index = self._by_label.get((kind, label))
        if index is None:
            index = self._by_label[kind, label] = {}
            for seen in self.of_kind(kind):
                key = (text(seen, "metadata", "namespace"), text(seen, "metadata", "labels", label))
                index.setdefault(key, []).append(seen)
        return index.get((namespace, value), ())

    def __iter__(self) -> Iterator[Object]:
        return (value for kind in sorted(self._by_kind) for value in self.of_kind(kind))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Objects) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def identity(value: Object) -> tuple[str, str, str, str]:
    """Return the API group, kind, namespace, and name of an object. Missing parts are empty."""
    group, slash, __ = text(value, "apiVersion").partition("/")
    metadata = fields(value, "metadata")
    return group if slash else "", text(value, "kind"), text(metadata, "namespace"), text(metadata, "name")


def label(value: Object | None, name: str) -> str:
    """Return the value of a label of an object, or "" without the label."""
    return text(value, "metadata", "labels", name)


def is_being_deleted(live: Object | None) -> bool:
    """Return True if an object has a deletionTimestamp."""
    return "deletionTimestamp" in fields(live, "metadata")


def condition(value: Object | None, kind: str) -> str:
    """Return the status of a condition of an object: True, False, or Unknown (also without the condition).

    The condition of an older generation of the object does not apply to the current generation (Kubernetes API
    conventions, "Typical status properties").
    """
    generation = number(value, "metadata", "generation")
    default = number(value, "status", "observedGeneration", default=generation)
    return stated(entries(value, "status", "conditions"), kind, generation, default)


def condition_entry(value: Object | None, kind: str) -> Object:
    """Return the condition entry of a type, or {} without one."""
    return next((entry for entry in entries(value, "status", "conditions") if entry.get("type") == kind), {})


def stated(conditions: Iterable[Object], kind: str, generation: int = 0, default: int | None = None) -> str:
    """Return the status of a condition in a list for this generation of an object or a later one.

    `default`: generation of conditions that do not specify one (None: any). Contradictory conditions of one type result
    in Unknown.
    """
    states = set()
    for entry in conditions:
        if entry.get("type") == kind:
            about = number(entry, "observedGeneration", default=generation if default is None else default)
            states.add("Unknown" if about < generation else text(entry, "status"))
    status = states.pop() if len(states) == 1 else "Unknown"
    return status if status in ("True", "False") else "Unknown"


def is_true(value: Object | None, kind: str) -> bool:
    """Return True if a condition holds for the latest generation of its object."""
    return condition(value, kind) == "True"


def first_address(gateway: Object | None) -> str:
    """Return the address of a Gateway: its first IP address, its first address, or "" without addresses."""
    values = [entry for entry in entries(gateway, "status", "addresses") if text(entry, "value")]
    chosen = next((entry for entry in values if entry.get("type", "IPAddress") == "IPAddress"), None)
    if chosen is None and values:
        chosen = values[0]
    return text(chosen, "value")
