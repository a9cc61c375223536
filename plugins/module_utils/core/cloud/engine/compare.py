# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Fields of objects, and comparisons of an actual with a desired value; functions have the two parameters in this
order.

APIs omit default values of a type (0, false, empty), write 64-bit numbers as text, and add fields that the request did
not contain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any


def at(value: Any, path: str) -> Any:
    """Return the value at a path (with dots) of an object, or None if the path does not exist."""
    for field_name in path.split("."):
        value = value.get(field_name) if isinstance(value, Mapping) else None
    return value


def put(target: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a path (with dots) of an object. Its parts are copied."""
    *parents, field_name = path.split(".")
    for parent in parents:
        target[parent] = target = dict(target.get(parent) or {})
    target[field_name] = value


def value(actual: Any, desired: Any) -> bool:
    """Compare one value. A missing value is equal to the default of its type; a number may be a text."""
    if isinstance(desired, bool):
        return bool(actual) is desired
    if isinstance(desired, int) or (isinstance(desired, str) and isinstance(actual, int)):
        return _number(actual) == _number(desired)
    return bool((actual or type(desired)()) == desired)


def subset(actual: Any, desired: Any) -> bool:
    """Compare only the desired fields, in depth."""
    if isinstance(desired, list) and isinstance(actual, list):
        return len(actual) == len(desired) and all(map(subset, actual, desired))
    if not isinstance(desired, Mapping):
        return value(actual, desired)
    fields = actual if isinstance(actual, Mapping) else {}
    return all(subset(fields.get(key), desired_field) for key, desired_field in desired.items())


def narrowed(actual: Any, desired: Any) -> Any:
    """Return the actual value without the fields that are not desired."""
    if not isinstance(actual, Mapping) or not isinstance(desired, Mapping):
        return actual
    return {key: narrowed(actual[key], desired[key]) for key in desired if key in actual}


def labels(actual: Any, desired: Any) -> bool:
    """Compare the desired labels; labels of other owners are ignored."""
    return all((actual or {}).get(key) == desired_label for key, desired_label in desired.items())


def members(actual: Any, desired: Any) -> bool:
    """Compare a list without an order."""
    return set(actual or ()) == set(desired)


def superset(actual: Any, desired: Any) -> bool:
    """Compare a list without an order. The cloud may have added entries."""
    return set(actual or ()) >= set(desired)


def numbers(version: Any) -> tuple[int, ...]:
    """Return the numbers of a version."""
    return tuple(int(digits) for digits in re.findall(r"\d+", str(version or "")))


def at_least(actual: Any, desired: Any) -> bool:
    """Compare versions. A newer version is equal to the desired version because versions never decrease. `1.35` matches
    any `1.35.4`."""
    desired_numbers = numbers(desired)
    return numbers(actual)[: len(desired_numbers)] >= desired_numbers


def minors(actual: Any, desired: Any) -> list[str]:
    """Return the versions of the single updates, oldest first: clouds update one minor version at a time."""
    (major, current_minor), (__, desired_minor) = numbers(actual)[:2], numbers(desired)[:2]
    return [f"{major}.{minor}" for minor in range(current_minor + 1, desired_minor + 1)]


def keyed(key: str, *, exactly: bool = False) -> Callable[[Any, Any], bool]:
    """Return the comparison of lists without an order. Field `key` identifies an entry.

    Only the desired entries are compared. `exactly`: other entries are a difference.
    """

    def same(actual: Any, desired: Any) -> bool:
        actual_entries = {entry.get(key): entry for entry in actual or ()}
        extra_keys = actual_entries.keys() - {entry[key] for entry in desired}
        return not (exactly and extra_keys) and all(subset(actual_entries.get(entry[key]), entry) for entry in desired)

    return same


def _number(number: Any) -> int | None:
    """Return a number, also from a text; None for other values."""
    if number is None:
        return 0
    try:
        return int(number)
    except (TypeError, ValueError):
        return None
