# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Keeping what may be a secret out of what people see."""

from __future__ import annotations

import re

MASK = "********"
_NAME = re.compile(r"token|secret|pass|pwd|key|credential|auth|private|cert|dsn", re.IGNORECASE)
# `--api-key=value` and `--api-key value`; a flag that only counts tokens or names a file is masked too, which costs
# nothing but a look at the file.
_FLAG_NAME = r"--?[\w.-]*(?:token|secret|pass|pwd|key|credential|auth)[\w.-]*"
_FLAG = re.compile(rf"(?P<flag>{_FLAG_NAME})(?P<gap>=|\s+)\S+", re.IGNORECASE)
_USER_INFO = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^\s/@'\"]+@", re.IGNORECASE)
_KNOWN = re.compile(r"\b(?:hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA|ASIA|nvapi-)[A-Za-z0-9_\-]{8,}")
_ENTRY = re.compile(r"^(?P<indent> *)- name: (?P<name>.+)$")
_LONE_FLAG = re.compile(rf"^ *- ['\"]?{_FLAG_NAME}['\"]?$", re.IGNORECASE)


def secret_like(name: str) -> bool:
    """Whether an environment variable of this name, or an argument that says this, is likely to hold a secret."""
    return bool(_NAME.search(name) or _USER_INFO.search(name) or _KNOWN.search(name))


def masked(text: str) -> str:
    """YAML text as `manifest_text` writes it, without literal secrets: values of environment variables and flags whose
    names speak of one, user and password in URLs, and tokens of a known shape."""
    return "\n".join(_masked_text(line) for line in _without_values(text.split("\n")))


def _masked_text(line: str) -> str:
    line = _FLAG.sub(rf"\g<flag>\g<gap>{MASK}", line)
    line = _USER_INFO.sub(rf"\g<scheme>{MASK}@", line)
    return _KNOWN.sub(MASK, line)


def _without_values(lines: list[str]) -> list[str]:
    """The lines, the `value:` of each secret-like variable masked, as the argument after a secret-like flag."""
    found: list[str] = []
    hidden: int | None = None
    entry: tuple[int, str] | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip(" "))
        if hidden is not None:
            if not line.strip() or indent > hidden:
                continue
            hidden = None
        named = _ENTRY.match(line)
        if named:
            entry = (len(named["indent"]) + 2, named["name"])
        elif entry and indent == entry[0] and line.lstrip().startswith("value:") and secret_like(entry[1]):
            found.append(" " * indent + f"value: {MASK}")
            hidden = indent
            continue
        elif (
            found and _LONE_FLAG.match(found[-1]) and line.lstrip().startswith("- ") and "--" not in line[: indent + 5]
        ):
            found.append(" " * indent + f"- {MASK}")
            hidden = indent
            continue
        found.append(line)
    return found
