# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Header matches that many values share, as regular expressions of a limited length."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

Matches: TypeAlias = "list[dict[str, Any]]"
"""Header matches of a rule, which all have to hold; none match every request."""

_MOST_CHARACTERS = 1024


def divided(values: Iterable[str], suffix: str = "") -> list[str]:
    """Return the patterns that these values match, each as many of them as it can hold."""
    patterns: list[list[str]] = []
    length = 0
    for value in map(re.escape, values):
        if patterns and length + len(value) + 1 <= _MOST_CHARACTERS:
            patterns[-1].append(value)
            length += len(value) + 1
        else:
            patterns.append([value])
            length = len(_alternatives([value], suffix))
    return [_alternatives(alternatives, suffix) for alternatives in patterns]


def pattern(header: str, value: str) -> dict[str, Any]:
    """Return the match of a header by a regular expression."""
    return {"type": "RegularExpression", "name": header, "value": value}


def _alternatives(escaped: Sequence[str], suffix: str) -> str:
    return f"^({'|'.join(escaped)}){suffix}$"
