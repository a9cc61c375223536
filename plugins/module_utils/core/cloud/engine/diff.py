# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Difference between the actual and the desired state of an object. Only fields of the body are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .compare import at, put
from .graph import UNKNOWN, has_unknown
from .kinds import Actual, Field, Kind


@dataclass(frozen=True)
class Change:
    """One different field.

    `update`: the update of the provider that changes it. If no update can (`action` is immutable), it is empty, and
    `remediation` has the fix. `effect`: the side effect of the update in messages.
    """

    field: str
    action: Literal["update", "immutable"]
    before: Any
    after: Any
    update: str = ""
    remediation: str = ""
    effect: str = ""

    def __str__(self) -> str:
        text = f"{self.field} from {_text(self.before)} to {_text(self.after)}"
        return f"{text}. {self.remediation}" if self.remediation else text


def diff(kind: Kind, actual: Actual, desired: Mapping[str, Any]) -> list[Change]:
    """Return the fields of an object that differ from its body (`desired`), in the order of the table of kinds."""
    changes = (_change(field, actual, desired) for field in kind.fields if at(desired, field.path) is not None)
    return [change for change in changes if change is not None]


def changed(kind: Kind, actual: Actual, changes: Sequence[Change]) -> dict[str, Any]:
    """Return the expected object after its changes, for references to it."""
    expected = {**actual, **(dict.fromkeys(kind.computed, UNKNOWN) if changes else {})}
    actual_paths = {field.path: field.actual or field.path for field in kind.fields}
    for change in changes:
        put(expected, actual_paths[change.field], change.after)
    return expected


def _change(field: Field, actual: Actual, desired: Mapping[str, Any]) -> Change | None:
    actual_field, desired_field = at(actual, field.actual or field.path), at(desired, field.path)
    if has_unknown(desired_field):
        # The value is compared later, when it is known. Until then an update is expected.
        return _update(field, actual_field, desired_field) if field.update else None
    if field.same(actual_field, desired_field):
        return None
    actual_field = field.compared(actual_field, desired_field)
    if field.update and (field.possible is None or field.possible(actual_field, desired_field)):
        return _update(field, actual_field, desired_field)
    remediation = field.remediation.format(before=_text(actual_field), after=_text(desired_field))
    return Change(field.path, "immutable", actual_field, desired_field, remediation=remediation)


def _update(field: Field, before: Any, after: Any) -> Change:
    return Change(field.path, "update", before, after, update=field.update, effect=field.effect)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_text(element)}" for key, element in value.items()) or "nothing"
    if isinstance(value, (list, tuple)):
        return "; ".join(_text(element) for element in value) or "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    return "nothing" if value is None or value == "" else str(value)
