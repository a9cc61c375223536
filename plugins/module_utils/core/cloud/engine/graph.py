# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""References between objects, and the resulting order.

A reference is `{"ref": KEY, "field": PATH}` instead of a value, because the cloud assigns the IDs of many objects at
their creation. It is replaced by the value at PATH (with dots) of the actual state of the object KEY, or by UNKNOWN if
the object does not exist.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from .compare import at
from .kinds import Resource

Needs = Mapping[str, Collection[str]]
"""Keys, each with the keys of its dependencies."""
UNKNOWN = "(known after creation)"
"""Placeholder for a value that is unknown in check mode and before the object is created."""
_KEYS = {"ref", "field"}


def references(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the references in a body, in depth: key and path."""
    return ((str(leaf["ref"]), str(leaf["field"])) for leaf in _leaves(value) if _is_reference(leaf))


def resolve(value: Any, actual: Mapping[str, Mapping[str, Any] | None]) -> Any:
    """Return a body with its references replaced by values. `actual`: the actual state of each object by its key."""
    if _is_reference(value):
        resolved = at(actual.get(str(value["ref"])), str(value["field"]))
        return UNKNOWN if resolved is None else resolved
    if isinstance(value, Mapping):
        return {key: resolve(element, actual) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolve(element, actual) for element in value]
    return value


def has_unknown(value: Any) -> bool:
    """Return True if a value, or a part of it, is not known yet."""
    return any(leaf == UNKNOWN for leaf in _leaves(value))


def _leaves(value: Any) -> Iterator[Any]:
    if _is_reference(value) or not isinstance(value, (Mapping, list, tuple)):
        yield value
    else:
        for element in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(element)


def _is_reference(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == _KEYS


def needs(resources: Iterable[Resource]) -> dict[str, list[str]]:
    """Return the dependencies of each object: the keys in its list, and the references in its body."""
    return {
        entry["key"]: list(dict.fromkeys([*entry["needs"], *(key for key, __ in references(entry["body"]))]))
        for entry in resources
    }


def problem(graph: Needs) -> str:
    """Return the problem of a dependency graph: an unknown key or a cycle; empty if it has none."""
    for key, required_keys in graph.items():
        for required_key in required_keys:
            if required_key not in graph:
                return f"{key} needs {required_key}, which is not among them"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return f"these need each other: {', '.join(sorted(set(error.args[1])))}"
    return ""


def reverse(graph: Needs) -> dict[str, list[str]]:
    """Return the order of deletion: each key with its dependents."""
    return {key: [dependent for dependent, required_keys in graph.items() if key in required_keys] for key in graph}


def depths(graph: Needs) -> dict[str, int]:
    """Return the depth of each key: 0 without dependencies, otherwise one more than its deepest dependency."""
    result: dict[str, int] = {}
    for key in TopologicalSorter(graph).static_order():
        result[key] = 1 + max((result[dependency] for dependency in graph.get(key, ())), default=-1)
    return result
