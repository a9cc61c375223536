# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Contents of a cloud at two times, or in two clouds, compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Object = dict[str, Any]
Kinds = Mapping[str, list[Object]]
"""Objects by kind."""


def differences(before: Kinds, after: Kinds, fleeting: re.Pattern[str]) -> list[str]:
    """Return what there was and is no more, and what is there now, a line each, by kind; but for `fleeting` fields."""
    found = []
    for kind in sorted({*before, *after}):
        was, now = (_lines(kinds.get(kind, []), fleeting) for kinds in (before, after))
        found += [f"- {kind}: {line}" for line in sorted(was - now)] + [
            f"+ {kind}: {line}" for line in sorted(now - was)
        ]
    return found


def comparable(kinds: Kinds, fleeting: re.Pattern[str], reported: Callable[[str], str]) -> dict[str, list[str]]:
    """Objects without `fleeting` fields, and with texts as they are `reported`, by kind."""
    return {
        kind: sorted(text(lasting(each, fleeting, reported)) for each in found)
        for kind, found in kinds.items()
        if found
    }


def lasting(value: Any, fleeting: re.Pattern[str], reported: Callable[[str], str] = str) -> Any:
    """A value without `fleeting` fields, with texts as they are `reported`, and with lists in an order of their own."""
    if isinstance(value, Mapping):
        return {key: lasting(part, fleeting, reported) for key, part in value.items() if not fleeting.match(str(key))}
    if isinstance(value, (list, tuple)):
        return sorted((lasting(part, fleeting, reported) for part in value), key=text)
    return reported(value) if isinstance(value, str) else value


def text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _lines(found: Iterable[Object], fleeting: re.Pattern[str]) -> set[str]:
    return {text(lasting(each, fleeting)) for each in found}
