# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Where an object in Google Cloud is not as it is planned. Only what the body says is compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.kinds import KINDS, Field

Found = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """One field that differs. `update` says which of the updates of the kind changes it (see requests.py). When none
    can (`action` is immutable), it is empty, and `advice` says what a person can do."""

    field: str
    action: Literal["update", "immutable"]
    before: Any
    after: Any
    update: str = ""
    advice: str = ""

    def __str__(self) -> str:
        told = f"{self.field} from {_shown(self.before)} to {_shown(self.after)}"
        return f"{told}. {self.advice}" if self.advice else told


def differences(kind: str, have: Found, want: Found) -> list[Change]:
    """What of an object that is there (`have`, as its API returns it) is not as in the body (`want`), in the order of
    the table of kinds."""
    return [
        change
        for change in (_change(each, have, want) for each in KINDS[kind].fields if held(want, each.path) is not None)
        if change is not None
    ]


def held(value: Any, path: str) -> Any:
    """What is at a place in an object; None where there is nothing."""
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _change(field: Field, have: Found, want: Found) -> Change | None:
    before, after = held(have, field.have or field.path), held(want, field.path)
    if field.same(before, after):
        return None
    before = field.compared(before, after)
    if field.update and (field.possible is None or field.possible(before, after)):
        return Change(field.path, "update", before, after, update=field.update)
    advice = field.advice.format(before=_shown(before), after=_shown(after))
    return Change(field.path, "immutable", before, after, advice=advice)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_shown(each)}" for key, each in value.items()) or "nothing"
    if isinstance(value, (list, tuple)):
        return "; ".join(_shown(each) for each in value) or "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    return "nothing" if value is None or value == "" else str(value)
