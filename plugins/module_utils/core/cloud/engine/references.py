# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""References of a body to other objects of the list: `{"ref": KEY, "field": PATH}` in place of a value.

The cloud gives many objects their ids when they are created. A reference is replaced by the value at PATH (with dots)
of the actual state of the object KEY; while that does not exist, by UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

UNKNOWN = "(known after creation)"
"""Stands for a value that is not known yet, in check mode and before the object is created."""
_KEYS = {"ref", "field"}


class Reference(NamedTuple):
    """The value at a path (`field`, with dots) of the actual state of the object with this key."""

    key: str
    field: str


def references(value: Any) -> Iterator[Reference]:
    """Return the references in a body, in depth."""
    if _is_reference(value):
        yield Reference(str(value["ref"]), str(value["field"]))
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from references(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from references(each)


def resolve(value: Any, actual: Mapping[str, Mapping[str, Any] | None]) -> Any:
    """Return a body with values in place of its references. `actual`: the actual state of each object by its key."""
    if _is_reference(value):
        return _value(actual.get(str(value["ref"])), str(value["field"]))
    if isinstance(value, Mapping):
        return {key: resolve(each, actual) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolve(each, actual) for each in value]
    return value


def has_unknown(value: Any) -> bool:
    """Return whether a value, in depth, is not known yet."""
    if isinstance(value, Mapping):
        return any(has_unknown(each) for each in value.values())
    if isinstance(value, (list, tuple)):
        return any(has_unknown(each) for each in value)
    return isinstance(value, str) and value == UNKNOWN


def _is_reference(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == _KEYS


def _value(actual: Any, path: str) -> Any:
    for part in path.split("."):
        actual = actual.get(part) if isinstance(actual, Mapping) else None
    return UNKNOWN if actual is None else actual
