# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Kubernetes objects as YAML text with the same meaning for every YAML reader.

The text equals the output of libyaml. Lines with only one possible form are created here, in a tenth of the time. If an
object contains any other value, libyaml writes the whole object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from .._yaml import (
    Dumper,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    dump,
    emitted,
)
from .wire import canonical
from .yaml_scalars import PLAIN

# Plain texts that some reader would parse as a number, a boolean, or a date. YAML 1.1 and 1.2, go-yaml, and PyYAML use
# different rules, so all possible values of these types are quoted.
_AMBIGUOUS = re.compile(
    r"[-+.]?[0-9].*|[-+]?\.(inf|nan)|[-+]|~|=|<<|(y|n|yes|no|on|off|true|false|null)", re.IGNORECASE
)


class _ManifestDumper(Dumper):
    """Never writes anchors, keeps the order of keys, writes text of several lines as a block."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _style(text: str) -> str | None:
    if "\n" in text:
        return "|"
    return '"' if _AMBIGUOUS.fullmatch(text) else None


def _represent_text(dumper: Any, text: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))


def _prepare() -> type[Any]:
    if hasattr(_ManifestDumper, "add_representer"):
        _ManifestDumper.add_representer(str, _represent_text)
    return _ManifestDumper


_DUMPER = _prepare()


def to_yaml(value: Mapping[str, Any], *, sort_keys: bool = False) -> str:
    """Return an object as YAML without document markers. Unless `sort_keys` is set, keys keep their order."""
    lines: list[str] = []
    kind = type(value)
    try:
        if isinstance(value, dict) and kind is dict and value:
            _put_mapping(value, "", "", lines.append, _sorted_items if sort_keys else dict.items)
            return "".join(lines)
    except _OtherTextError:
        pass
    return by_libyaml(canonical(value) if sort_keys else value)


def by_libyaml(value: Mapping[str, Any]) -> str:
    """Return the text that libyaml writes for an object with any values."""
    try:
        return emitted(_events(value))
    except _OtherTypeError:
        return dump(value, _DUMPER)


class _OtherTextError(Exception):
    """Value with a text that only libyaml can write."""


def _sorted_items(value: dict[Any, Any]) -> Iterable[tuple[Any, Any]]:
    return sorted(value.items()) if len(value) > 1 else value.items()


def _put_mapping(
    value: dict[Any, Any],
    lead: str,
    indent: str,
    put: Callable[[str], None],
    items: Callable[[dict[Any, Any]], Iterable[tuple[Any, Any]]],
) -> None:
    """Write the lines of a mapping that is not empty. `lead`: start of the first line. `indent`: start of other
    lines."""
    for key, below in items(value):
        kind = type(below)
        if kind is str:
            if "\n" in below:
                put(f"{lead}{_key(key)} {_block(below, indent)}\n")
            else:
                put(f"{lead}{_key(key)} {_scalar(below)}\n")
        elif kind is dict:
            if below:
                put(f"{lead}{_key(key)}\n")
                deeper = indent + "  "
                _put_mapping(below, deeper, deeper, put, items)
            else:
                put(f"{lead}{_key(key)} {{}}\n")
        elif kind is list or kind is tuple:
            if below:
                put(f"{lead}{_key(key)}\n")
                _put_list(below, indent, indent, put, items)
            else:
                put(f"{lead}{_key(key)} []\n")
        else:
            put(f"{lead}{_key(key)} {_other(below)}\n")
        lead = indent


def _put_list(
    value: Any,
    lead: str,
    indent: str,
    put: Callable[[str], None],
    items: Callable[[dict[Any, Any]], Iterable[tuple[Any, Any]]],
) -> None:
    """Put the lines of a list that is not empty."""
    deeper = indent + "  "
    for below in value:
        kind = type(below)
        if kind is str:
            text = _block(below, indent) if "\n" in below else _scalar(below)
            put(f"{lead}- {text}\n")
        elif kind is dict:
            if below:
                _put_mapping(below, f"{lead}- ", deeper, put, items)
            else:
                put(f"{lead}- {{}}\n")
        elif kind is list or kind is tuple:
            if below:
                _put_list(below, f"{lead}- ", deeper, put, items)
            else:
                put(f"{lead}- []\n")
        else:
            put(f"{lead}- {_other(below)}\n")
        lead = indent


_NUMBER_LIKE = re.compile(r"[-+.]?[0-9][ !#-\[\]-~]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
# Of several lines, none of which ends with a space, and the first of which does not begin with one.
_BLOCK = re.compile(r"(?=[!-~])[ -~]*[!-~](?:\n+[ -~]*[!-~])*\n?")
# Those of YAML 1.1.
_LINE_ENDS = frozenset("\n\r\x85\u2028\u2029")
# libyaml writes longer keys in another form. It folds texts only at a width that no text here reaches.
_LONGEST_KEY = 128
_LONGEST_TEXT = 100_000


@lru_cache(maxsize=1 << 12)
def _key(key: Any) -> str:
    """Return the text of a key, with its colon."""
    kind = type(key)
    if kind is not str or len(key) > _LONGEST_KEY:
        raise _OtherTextError
    if PLAIN.fullmatch(key):
        return f'"{key}":' if key.lower() in _WORDS else f"{key}:"
    if _NUMBER_LIKE.fullmatch(key):
        return f'"{key}":'
    raise _OtherTextError


@lru_cache(maxsize=1 << 15)
def _scalar(text: str) -> str:
    """Return the YAML text of a one-line value."""
    if len(text) > _LONGEST_TEXT or not _LINE_ENDS.isdisjoint(text):
        raise _OtherTextError
    if PLAIN.fullmatch(text):
        return f'"{text}"' if text.lower() in _WORDS else text
    if _NUMBER_LIKE.fullmatch(text):
        return f'"{text}"'
    # The text does not depend on its column, because it has one line.
    sequence = emitted((SequenceStartEvent(None, None, True, flow_style=False), _text_event(text), SequenceEndEvent()))
    return sequence[2:-1]


@lru_cache(maxsize=1 << 10)
def _block(text: str, indent: str) -> str:
    """Return the YAML text of a value with several lines, without its last line end."""
    if len(text) > _LONGEST_TEXT or not _BLOCK.fullmatch(text):
        raise _OtherTextError
    mark, body = ("|", text[:-1]) if text.endswith("\n") else ("|-", text)
    lines = (f"\n{indent}  {line}" if line else "\n" for line in body.split("\n"))
    return mark + "".join(lines)


def _other(value: Any) -> str:
    if value is None:
        return "null"
    kind = type(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value)
    raise _OtherTextError


class _OtherTypeError(TypeError):
    """Value of a type that JSON does not have."""


def _events(value: Any) -> Iterator[Any]:
    """Yield the events that the dumper would emit for a JSON value."""
    kind = type(value)
    if kind is str:
        yield _text_event(value)
    elif kind is dict:
        yield MappingStartEvent(None, None, True, flow_style=False)
        for key, below in value.items():
            yield from _events(key)
            yield from _events(below)
        yield MappingEndEvent()
    elif kind is list or kind is tuple:
        yield SequenceStartEvent(None, None, True, flow_style=False)
        for below in value:
            yield from _events(below)
        yield SequenceEndEvent()
    elif kind is bool or kind is int or value is None:
        yield ScalarEvent(None, None, (True, False), "null" if value is None else str(value).lower())
    else:
        raise _OtherTypeError


def _text_event(text: str) -> Any:
    # An empty text without quotes is null.
    return ScalarEvent(None, None, (text != "", True), text, style=_style(text))
