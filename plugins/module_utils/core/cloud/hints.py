# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tables of what to do about an error of a cloud: by its code, or by what its message says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.kinds import State

Codes = tuple[tuple[tuple[str, ...], str], ...]
"""Codes and the hints for them. A `*` at the end or the beginning of a code stands for anything."""
Texts = tuple[tuple[str, str], ...]
"""Regular expressions of lower-case messages and the hints for them."""


def among(code: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a code is one of a table's."""
    return any(_matches(code, pattern) for pattern in patterns)


def of_code(table: Codes, code: str) -> str:
    """Return the hint for a code: the first that is found, empty when there is none."""
    return next((text for patterns, text in table if among(code, patterns)), "")


def of_text(table: Texts, message: str) -> str:
    """Return the hint for a message: the first that is found, empty when there is none."""
    text = " ".join(message.lower().split())
    return next((hint for pattern, hint in table if re.search(pattern, text)), "")


def of_words(table: Codes, vague: tuple[str, ...], words: Iterable[str]) -> str:
    """Return the hint for the first code among words of a message that is not vague; empty when there is none."""
    return next((hint for word in words if not among(word, vague) and (hint := of_code(table, word))), "")


def explained(found: State, causes: Iterable[tuple[str, str]], hint_for: Callable[[str, str], str]) -> State:
    """Return a state; a bad one with its causes (codes and messages), and with what to do about them."""
    if found.phase not in ("degraded", "failed"):
        return found
    reasons = tuple(causes)
    return replace(found, causes=reasons, remediation=of_causes(hint_for, reasons))


def of_causes(hint_for: Callable[[str, str], str], causes: Iterable[tuple[str, str]]) -> str:
    """Return the hints for codes and messages, each once."""
    return ". ".join(dict.fromkeys(filter(None, (hint_for(code, message) for code, message in causes))))


def _matches(code: str, pattern: str) -> bool:
    if pattern.startswith("*"):
        return code.endswith(pattern[1:])
    return code.startswith(pattern[:-1]) if pattern.endswith("*") else code == pattern
