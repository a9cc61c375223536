# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tables of hints for errors of a cloud: by error code, or by the text of the message."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from .engine.kinds import State


@dataclass(frozen=True)
class Hints:
    """Hints for the errors of a cloud. The first match counts.

    codes: hints by error codes, separated by spaces. A `*` matches any text.
    texts: hints by regular expressions of lower-case messages.
    vague: hints by codes that do not name the cause; "" for a code without a hint. The message has precedence.
    code_in_text: pattern of an error code in a message.
    bare: function that returns a code as the tables have it.
    """

    codes: Mapping[str, str]
    texts: Mapping[str, str]
    vague: Mapping[str, str]
    code_in_text: re.Pattern[str]
    bare: Callable[[str], str] = str

    def of_code(self, code: str) -> str | None:
        """Return the hint for a code; None for an unknown code."""
        return _hint_of(self.codes, code)

    def of_vague(self, code: str, message: str) -> str | None:
        """Return the hint for a code that does not name the cause; None for any other code."""
        hint = _hint_of(self.vague, code)
        return hint if hint is None else self.of_message(message) or self.of_code(code) or hint

    def of_message(self, message: str) -> str:
        """Return the hint for the first code in a message, otherwise for its text; "" without a match."""
        for code in map(self.bare, self.code_in_text.findall(message)):
            hint = self.of_code(code)
            if hint and _hint_of(self.vague, code) is None:
                return hint
        text = " ".join(message.lower().split())
        return next((hint for pattern, hint in self.texts.items() if re.search(pattern, text)), "")


def _hint_of(table: Mapping[str, str], code: str) -> str | None:
    for patterns, hint in table.items():
        if any(fnmatchcase(code, pattern) for pattern in patterns.split()):
            return hint
    return None


def explained(state: State, causes: Iterable[tuple[str, str]], hint_for: Callable[[str, str], str]) -> State:
    """Return a state. A degraded or failed state gets its causes (codes and messages) and their hints."""
    if state.phase not in ("degraded", "failed"):
        return state
    reasons = tuple(causes)
    return replace(state, causes=reasons, remediation=of_causes(hint_for, reasons))


def of_causes(hint_for: Callable[[str, str], str], causes: Iterable[tuple[str, str]]) -> str:
    """Return the hints for codes and messages, each once."""
    return ". ".join(dict.fromkeys(filter(None, (hint_for(code, message) for code, message in causes))))
