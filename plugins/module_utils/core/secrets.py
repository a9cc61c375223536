# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Keeping what may be a secret out of what people see."""

from __future__ import annotations

import re

MASK = "********"
_NAME = re.compile(r"token|secret|passw|pwd|key|credential|auth|private|cert", re.IGNORECASE)
_ENTRY = re.compile(r"^(?P<indent> *)- name: (?P<name>.+)$")


def secret_like(name: str) -> bool:
    """Whether an environment variable of this name, or an argument that says this, is likely to hold a secret."""
    return bool(_NAME.search(name))


def masked(text: str) -> str:
    """YAML text as `manifest_text` writes it, literal values of environment variables with such names masked."""
    lines: list[str] = []
    hidden: int | None = None
    entry: tuple[int, str] | None = None
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        if hidden is not None:
            if not line.strip() or indent > hidden:
                continue
            hidden = None
        found = _ENTRY.match(line)
        if found:
            entry = (len(found["indent"]) + 2, found["name"])
        elif entry and indent == entry[0] and line.lstrip().startswith("value:") and secret_like(entry[1]):
            lines.append(" " * indent + f"value: {MASK}")
            hidden = indent
            continue
        lines.append(line)
    return "\n".join(lines)
