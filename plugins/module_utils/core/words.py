# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Values, fields and keys as messages name them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping

SHOWN_CHARACTERS = 60
"""Length up to which an offending value is repeated in a message."""

KEY_CHARACTERS = 80
"""Length up to which a key is repeated in a path."""


def short_value(value: object) -> str:
    """A value in at most 60 characters, in the words of YAML; containers are named, not shown."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, str):
        text = (
            json.dumps(value[: 2 * SHOWN_CHARACTERS], ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
        )
    elif value is None or isinstance(value, (bool, int, float)):
        text = json.dumps(value)
    else:
        text = type(value).__name__
    text = printable(text)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def printable(text: str, keep: str = "") -> str:
    """The text with escapes (`\\x1b`) in place of what a terminal could take for a command, and of line ends."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in keep else letter.encode("unicode_escape").decode()
        for letter in text
    )


def field_path(base: str, key: object) -> str:
    """The path of a field: `base.key`, or `base["key"]` for a key that is no plain name."""
    if isinstance(key, str) and len(key) <= KEY_CHARACTERS and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", key):
        return f"{base}.{key}" if base else key
    return entry_path(base, key)


def entry_path(base: str, key: object) -> str:
    """The path of an entry of a map with free keys: `base["key"]`."""
    if isinstance(key, str):
        return f"{base}[{json.dumps(key if len(key) <= KEY_CHARACTERS else _cut(key), ensure_ascii=False)}]"
    return f"{base}[{short_value(key)}]"


def _cut(key: str) -> str:
    return key[: KEY_CHARACTERS - 1] + "…"


def nearest_name(name: str, known: Iterable[str]) -> str:
    """A hint for a name that nothing has: the known one that is most similar, or the first of them."""
    names = sorted(known)
    match = difflib.get_close_matches(name, names, n=1)
    if match:
        return f"Did you mean {match[0]}?"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"The fleet has {', '.join(names[:10])}{more}."


def nearest_key(key: object, known: Iterable[str]) -> str:
    """A hint for an unknown key: the known one that is most similar, or all of them."""
    names = sorted(known)
    by_folded = {name.replace("_", "").lower(): name for name in names}
    folded = key[:SHOWN_CHARACTERS].replace("_", "").lower() if isinstance(key, str) else ""
    match = difflib.get_close_matches(folded, by_folded, n=1)
    return f"Did you mean {by_folded[match[0]]}?" if match else f"Known here: {', '.join(names)}."
