# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A Kubernetes object as YAML text that every YAML reader takes the same way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils._yaml import (
    Dumper,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    dump,
    emitted,
)

# Plain texts that some reader would take for a number, a boolean or a date: YAML 1.1 and 1.2, go-yaml and PyYAML differ
# in what they resolve, so anything that could be one of these is quoted.
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


def to_yaml(value: Mapping[str, Any]) -> str:
    """The object as YAML, keys in the order they have, without document markers. The same value gives the same text."""
    try:
        return emitted(_events(value))
    except _OtherTypeError:
        return dump(value, _DUMPER)


class _OtherTypeError(TypeError):
    """A value that is none of JSON's."""


def _events(value: Any) -> Iterator[Any]:
    """Return what the dumper would emit for a value as JSON has them."""
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


@lru_cache(maxsize=1 << 12)
def _text_event(text: str) -> Any:
    # An empty text without quotes is null.
    return ScalarEvent(None, None, (text != "", True), text, style=_style(text))
