# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A document as plain data: dicts with text keys, lists, text, numbers, booleans."""

# To isinstance a bool is an int. pylint: disable=unidiomatic-typecheck

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Loc = tuple[str | int, ...]  # pylint: disable=unsupported-binary-operation


# No resource is nested deeper than 20 or holds more than some thousand values; the limits keep hostile input cheap.
MAX_DEPTH = 64
MAX_VALUES = 200_000

INT64 = 2**63
BEYOND_64_BITS = "must be a whole number of at most 64 bits"


@dataclass(frozen=True)
class Unreadable:
    """Part that no document can have: the value at a place, or (with `of_key`) a key of the mapping there.

    `number`: the value, if it is too large a number.
    """

    loc: Loc
    message: str
    hint: str = ""
    of_key: bool = False
    number: int | None = None


class TooLargeError(ValueError):
    """A document with more than MAX_VALUES values."""


class Refused:
    """Stands in the place of a value that cannot be part of a document."""


REFUSED = Refused()


@dataclass(frozen=True)
class Plain:
    """A copy of a document, the places of nulls in mappings, and what cannot be part of any document."""

    content: dict[str, Any]
    nulls: tuple[Loc, ...]
    unreadable: tuple[Unreadable, ...]


def plain(document: Mapping[Any, Any]) -> Plain:
    """The document as plain data.

    Values and keys of subclasses of str, int and float (as templating engines make them) become plain ones.
    Raises TooLargeError. Of a document that is plain already, as YAML is, only the outermost mapping is copied.
    """
    if is_plain(document):
        return Plain(dict(document), (), ())
    copier = _Copier()
    content = copier.mapping(document, (), 0)
    return Plain(content, tuple(copier.nulls), tuple(copier.unreadable))


def is_plain(document: Mapping[Any, Any]) -> bool:
    """Return whether there is nothing to convert, to note or to refuse in a document, level by level. What is harmless
    but rare, such as text that is not ASCII, is left to the copier."""
    level: list[Any] = [document]
    values = 0
    for __ in range(MAX_DEPTH):
        below: list[Any] = []
        for parent in level:
            kind = type(parent)
            if kind is dict:
                if not all(type(key) is str and key.isascii() for key in parent):
                    return False
                # A null of a mapping is noted.
                items, known = parent.values(), _IN_MAPPINGS
            elif kind is list:
                items, known = parent, _IN_LISTS
            else:
                return False
            values += len(items)
            for item in items:
                kind = type(item)
                if kind is dict or kind is list:
                    below.append(item)
                elif kind not in known or (
                    not item.isascii() if kind is str else kind is int and not -INT64 <= item < INT64
                ):
                    return False
        if values > MAX_VALUES:
            return False
        if not below:
            return True
        level = below
    return False


_IN_MAPPINGS = frozenset({str, int, float, bool})
_IN_LISTS = _IN_MAPPINGS | {type(None)}


class _Copier:
    def __init__(self) -> None:
        self.unreadable: list[Unreadable] = []
        self.nulls: list[Loc] = []
        self._left = MAX_VALUES

    def mapping(self, value: Mapping[Any, Any], loc: Loc, depth: int) -> dict[str, Any]:
        copy: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                name = type_words(key)
                self.unreadable.append(
                    Unreadable(loc, f"a key must be text, is {name}", "Put the key in quotes", of_key=True)
                )
                continue
            text = key if type(key) is str else str.__str__(key)
            if not _encodable(text):
                self.unreadable.append(Unreadable(loc, "a key is not valid Unicode text", of_key=True))
                continue
            if item is None:
                self.nulls.append((*loc, text))
            copy[text] = self.value(item, (*loc, text), depth + 1)
        return copy

    def value(self, value: Any, loc: Loc, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise TooLargeError
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value, loc)
        if isinstance(value, int):
            return self._integer(int(value), loc)
        if isinstance(value, float):
            return float(value)
        if isinstance(value, (Mapping, list, tuple)):
            if depth > MAX_DEPTH:
                return self._refuse(loc, f"is nested deeper than {MAX_DEPTH} levels")
            if isinstance(value, Mapping):
                return self.mapping(value, loc, depth)
            return [self.value(item, (*loc, index), depth + 1) for index, item in enumerate(value)]
        return self._refuse(
            loc, f"must be text, a number, true or false, a list or a mapping, is {type_words(value)}", "Quote it"
        )

    def _text(self, value: str, loc: Loc) -> Any:
        text = value if type(value) is str else str.__str__(value)
        return text if _encodable(text) else self._refuse(loc, "is not valid Unicode text")

    def _integer(self, value: int, loc: Loc) -> Any:
        if not -INT64 <= value < INT64:
            return self._refuse(loc, BEYOND_64_BITS, number=value)
        return value

    def _refuse(self, loc: Loc, message: str, hint: str = "", number: int | None = None) -> Refused:
        self.unreadable.append(Unreadable(loc, message, hint, number=number))
        return REFUSED


def _encodable(text: str) -> bool:
    """Return whether the text can be written: lone surrogates cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def type_words(value: object) -> str:
    """Return what a value is, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int):
        return "a whole number"
    if isinstance(value, float):
        return "a decimal number"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if hasattr(value, "isoformat"):
        return "a date"
    return "binary data" if isinstance(value, (bytes, bytearray)) else f"of type {type(value).__name__}"
