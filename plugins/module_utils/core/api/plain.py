# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conversion of documents to plain data: dicts with text keys, lists, texts, numbers, and booleans."""

# isinstance accepts a bool as an int. pylint: disable=unidiomatic-typecheck

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Loc = tuple[str | int, ...]  # pylint: disable=unsupported-binary-operation


# Valid resources have at most 20 levels and a few thousand values. The limits bound the cost of hostile input.
MAX_DEPTH = 64
MAX_VALUES = 200_000

INT64 = 2**63
BEYOND_64_BITS = "must be a whole number of at most 64 bits"


@dataclass(frozen=True)
class Unreadable:
    """Value or key that is invalid in every document."""

    loc: Loc
    message: str
    hint: str = ""
    of_key: bool = False
    """True if a key of the mapping at `loc` is invalid, instead of the value."""
    number: int | None = None
    """Value, if it is a number that is too large."""


class TooLargeError(ValueError):
    """Error of a document with more than MAX_VALUES values."""


class Refused:
    """Placeholder of an invalid value."""


REFUSED = Refused()


@dataclass(frozen=True)
class Plain:
    """Copy of a document, with the paths of nulls in mappings, and the invalid values and keys."""

    content: dict[str, Any]
    nulls: tuple[Loc, ...]
    unreadable: tuple[Unreadable, ...]


def plain(document: Mapping[Any, Any]) -> Plain:
    """Return a document as plain data. Raise TooLargeError.

    Values and keys of subclasses of str, int and float, such as the values of templating engines, are converted. For a
    plain document, such as parsed YAML, only the outermost mapping is copied.
    """
    if is_plain(document):
        return Plain(dict(document), (), ())
    copier = _Copier()
    content = copier.mapping(document, (), 0)
    return Plain(content, tuple(copier.nulls), tuple(copier.unreadable))


def is_plain(document: Mapping[Any, Any]) -> bool:
    """Return whether a document needs no conversion and contains no nulls in mappings and no invalid values.

    Return False for rare valid values, such as text that is not ASCII. The copier checks these values.
    """
    level: list[Any] = [document]
    values = 0
    for __ in range(MAX_DEPTH):
        below: list[Any] = []
        for parent in level:
            kind = type(parent)
            if kind is dict:
                if not all(type(key) is str and key.isascii() for key in parent):
                    return False
                # The copier records the nulls of mappings.
                items, scalars = parent.values(), _IN_MAPPINGS
            elif kind is list:
                items, scalars = parent, _IN_LISTS
            else:
                return False
            values += len(items)
            for item in items:
                kind = type(item)
                if kind is dict or kind is list:
                    below.append(item)
                elif kind not in scalars or (
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
        self._remaining = MAX_VALUES

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
        self._remaining -= 1
        if self._remaining < 0:
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
    """Return whether a text has a UTF-8 encoding. Lone surrogates have none."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def type_words(value: object) -> str:
    """Return the type of a value in words."""
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
