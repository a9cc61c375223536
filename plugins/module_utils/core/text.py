# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Values, fields, names and lists of them as messages have them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from .secrets import masked, without_keys

SHOWN_CHARACTERS = 60
"""Longest part of an offending value that a message repeats."""

JUDGED_CHARACTERS = 4000
"""Number of characters of a value that are searched for secrets: many times the number of shown characters."""

KEY_CHARACTERS = 80
"""Longest part of a key that a path repeats."""

MESSAGE_CHARACTERS = 400
"""Longest part of a message of another program that is repeated."""

LIKENESS = 0.6
"""Minimum similarity of a known name to suggest it for an unknown name (`difflib`)."""

MISSPELT = 0.86
"""Minimum similarity of an unknown name to treat it as a misspelled known name."""

_TEMPLATE = re.compile(r"(?<=\{)(?=[{%#])|\A(?=#jinja2:)")
"""Positions for a space that prevents Ansible from evaluating a text as a template: within delimiters, and before the
header that sets other delimiters."""
_UTC = re.compile(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z$")


def short_value(value: object) -> str:
    """Return a value in at most 60 characters, in YAML notation, without secrets. Containers are named, not shown."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, str):
        # A secret that is cut may not be known as one.
        safe_text = masked(value[:JUDGED_CHARACTERS])[: 2 * SHOWN_CHARACTERS]
        text = json.dumps(safe_text, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
    elif value is None or isinstance(value, (bool, int, float)):
        text = json.dumps(value)
    else:
        text = type(value).__name__
    text = printable(text)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def printable(text: str, keep: str = "") -> str:
    """Return text with escapes (`\\x1b`) for line ends and for characters that a terminal might interpret."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in keep else letter.encode("unicode_escape").decode()
        for letter in text
    )


def field_path(base: str, key: object) -> str:
    """Return the path of a field: `base.key`, or `base["key"]` for a key with special characters."""
    if isinstance(key, str) and len(key) <= KEY_CHARACTERS and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", key):
        return f"{base}.{key}" if base else key
    return entry_path(base, key)


def entry_path(base: str, key: object) -> str:
    """Return the path of an entry in a map with free keys: `base["key"]`."""
    if isinstance(key, str):
        return f"{base}[{json.dumps(key if len(key) <= KEY_CHARACTERS else _cut(key), ensure_ascii=False)}]"
    return f"{base}[{short_value(key)}]"


def _cut(key: str) -> str:
    # A key of a caller or provider that is cut may not be known as one.
    key = without_keys(key)
    return key[: KEY_CHARACTERS - 1] + "…"


def capitalized(text: str) -> str:
    """Return a text as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def nearest(name: str, candidates: Iterable[str], likeness: float = LIKENESS) -> str:
    """Return the most similar known name of an unknown name, or "" without a similar name.

    Case, underscores, and dashes are ignored. `likeness` (0 to 1): MISSPELT if the result has other uses than a hint.
    """
    by_folded = {_folded(candidate): candidate for candidate in candidates}
    matches = difflib.get_close_matches(_folded(name[:KEY_CHARACTERS]), by_folded, 1, likeness)
    return by_folded[matches[0]] if matches else ""


def _folded(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def nearest_name(name: str, candidates: Iterable[str]) -> str:
    """Return a hint for an unknown name: the most similar known name, or the first known names."""
    names = sorted(candidates)
    match = nearest(name, names)
    return f"Did you mean {match}?" if match else f"The fleet has {some(names, 10)}."


def nearest_key(key: object, candidates: Iterable[str]) -> str:
    """Return a hint for an unknown key: the most similar known key, or all known keys."""
    names = sorted(candidates)
    match = nearest(key, names) if isinstance(key, str) else ""
    return f"Did you mean {match}?" if match else f"Known here: {', '.join(names)}."


NOT_TEMPLATED = "Nothing is templated in manifests: write the value itself"
"""Hint for a value with a template. The value is unchanged."""


# In messages, the word before these verbs is the name of a field.
_WORD = re.compile(r"[a-z]+(?=[\s,;:]|$)(?! (?:is|are|must|and)\b)")


def sentence(text: str) -> str:
    """Return a text as a sentence: with a final mark, and with a capital unless it begins with the name of a field.

    A text that ends with a mark below an excerpt gets no final mark, because it would seem to belong to the excerpt."""
    text = text.strip()
    if _WORD.match(text):
        text = capitalized(text)
    return text if text.endswith((".", "?", "!", "…", " ^", "\n^")) else f"{text}."


_AMOUNT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([kmgtpe])(i?)(b?)", re.ASCII | re.IGNORECASE)


def meant_quantity(text: str) -> str:
    """Return the probable Kubernetes quantity of a text such as `80 GB` or `64gi`, or "" if unknown."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        return ""
    number, letter, binary, byte = match.groups()
    if letter == "m" and not binary and not byte:
        # Kubernetes reads thousandths, and many users mean megabytes.
        return ""
    return f"{number}{'k' if letter in 'kK' and not binary else letter.upper()}{binary.lower()}"


_UNITLESS = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,9})?) ?m?", re.ASCII)


def meant_device_memory(text: str) -> str:
    """Return the memory of a GPU that a number without a unit, or in thousandths, means: `80` means 80Gi, `81559m`
    means 81559Mi. Empty when that is unknown."""
    number_match = _UNITLESS.fullmatch(text.strip())
    number = float(number_match[1]) if number_match else 0
    unit = "Gi" if 1 <= number < 1024 else "Mi" if 1024 <= number < 1024**2 else ""
    return f"{number_match[1]}{unit}" if number_match and unit else ""


def meant_memory(text: str) -> str:
    """Return possible meanings of a unitless or milli number as container memory (`80Mi or 80Gi`), or "" if unknown."""
    number_match = _UNITLESS.fullmatch(text.strip())
    return f"{number_match[1]}Mi or {number_match[1]}Gi" if number_match and float(number_match[1]) else ""


def first_lines(lines: Iterable[str], limit: int, suffix: str = "and {} more") -> list[str]:
    """Return the first lines, and a line with the number of omitted lines."""
    all_lines = list(lines)
    omitted = len(all_lines) - limit
    return [*all_lines[:limit], suffix.format(omitted)] if omitted > 0 else all_lines


def some(names: Iterable[str], limit: int = 5) -> str:
    """Return names for a sentence: the first names in their order, and the number of omitted names."""
    all_names = list(names)
    omitted = len(all_names) - limit
    return f"{', '.join(all_names[:limit])} and {omitted} more" if omitted > 0 else ", ".join(all_names)


def listed(names: Iterable[str], limit: int = 3) -> str:
    """Return names for a sentence: the first sorted names without duplicates, and the number of omitted names."""
    return some(sorted(set(names)), limit)


def by_reason(reasons: Mapping[str, str], limit: int = 3) -> list[str]:
    """Return names grouped by reason: the first reasons, and the number of omitted reasons."""
    together: dict[str, list[str]] = {}
    for name in sorted(reasons):
        together.setdefault(reasons[name], []).append(name)
    return first_lines(
        (f"{some(affected)}: {cut(reason)}" for reason, affected in together.items()), limit, "and {} more reasons"
    )


def joined(*messages: str) -> str:
    """Join messages without duplicates. An earlier message can contain a later message."""
    text = ""
    for message in messages:
        if message and message not in text:
            text = f"{text}; {message}" if text else message
    return text


def cut(message: str, limit: int = MESSAGE_CHARACTERS) -> str:
    """Return a message of another program in one line of at most `limit` characters, without secrets."""
    line = printable(" ".join(masked(message[: 8 * limit]).split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def parse_time(timestamp: str) -> datetime | None:
    """Return a time from its text (RFC 3339), None if the text is not a time. A time without a zone is in UTC."""
    try:
        time = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def utc(time: str) -> str:
    """Return an RFC 3339 time in UTC as readable text: `2026-11-26 18:00:00 UTC`. Other text is unchanged."""
    return _UTC.sub(r"\1 \2 UTC", time)


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def are(number: int, noun: str) -> str:
    """Return a number with its noun and verb."""
    return f"{count(number, noun)} {'is' if number == 1 else 'are'}"


def short(value: object) -> str:
    """Return a value in the form of messages, or "" for lists and mappings, because they can contain any data."""
    return "" if isinstance(value, (Mapping, list, tuple)) else short_value(value)


def without_templates(value: Any) -> Any:
    """Return a value without templates in its strings and keys.

    Within a run, Ansible evaluates only the strings of playbooks and inventories. A string that leaves the run as a
    variable is no longer marked as untrusted. Other runs read job artifacts, rulebook events, and inventory hosts as
    extra variables and inventories, and trust them. These strings might be from manifests and servers.
    """
    if isinstance(value, str):
        return _TEMPLATE.sub(" ", value)
    if isinstance(value, Mapping):
        return {without_templates(key): without_templates(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_templates(entry) for entry in value]
    return value
