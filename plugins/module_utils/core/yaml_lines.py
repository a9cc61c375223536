# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conversion of texts of simple lines to values, in a tenth of the time of libyaml's events.

A simple line is a key or the dashes of lists with a scalar (quoted or plain), or a flow collection of such scalars. A
text of several lines is a literal block. `manifest_text` writes this format, and so do most users. Other texts are not
read here at all, but in `yaml_documents` with libyaml. Both readers return the same values.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from .yaml_scalars import PLAIN, resolve

# The indentation, the dashes of lists, and then a key (plain or quoted) with its value, or text.
_LINE = re.compile(r'( *)((?:- )*)(?:(?:([A-Za-z_/][!-9;-~]*)|"([ !#-\[\]-~]*)"):(?: (.+))?|(.+))')
_COMMENT = re.compile(" *(?:#[\t -~]*)?")
_ONE_QUOTED = re.compile(r"'((?:[ -&(-~]|'')*)'")
_TWO_QUOTED = re.compile(r'"([ !#-\[\]-~]*)"')
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_BLOCK_LINE = re.compile("[ -~]*")
# In a flow collection, where fewer plain texts mean themselves.
_FLOW = re.compile(
    r""" *(?:([{}\[\],])|([A-Za-z_/][A-Za-z0-9_./$@+-]*|0|-?[1-9][0-9]{0,17}(?![A-Za-z0-9_./$@+-])"""
    r"""|"[ !#-\[\]-~]*"|'(?:[ -&(-~]|'')*')(: )?)"""
)
_NOT_TEXT = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
# Documents near the limits of `yaml_documents` are left to it. A flow collection may be this deep again.
_DEEPEST = 45
_MOST_NODES = 900_000


def read(text: str) -> list[tuple[int, dict[str, Any]]] | None:
    """Return the numbered mappings of the documents of a text, or None for other texts and without mappings."""
    # A line, a dash, and each sign of a flow collection represent at most three values.
    if 3 * sum(map(text.count, ("\n", "- ", ",", "{", "["))) > _MOST_NODES or not text.endswith("\n"):
        return None
    try:
        return _documents(text.split("\n")) or None
    except _OtherFormError:
        return None


class _OtherFormError(Exception):
    """Line that is not simple, or that does not match the previous lines."""


def _documents(lines: list[str]) -> list[tuple[int, dict[str, Any]]]:
    parsed = []
    start, number = 0, 0
    end = len(lines) - 1
    if end and lines[end - 1] == "...":
        end -= 1
    for separator in (*(separator for separator, line in enumerate(lines[:end]) if line == "---"), end):
        value = _Reader(lines, start, separator).read()
        # Without a separator, nothing begins before there is content.
        if start or value:
            number += 1
        if value:
            parsed.append((number, value))
        start = separator + 1
    return parsed


class _Reader:
    """Reads a document line by line. `_open` are the mappings and lists around the innermost, each with its column."""

    def __init__(self, lines: list[str], first: int, end: int) -> None:
        self._lines = lines
        self._next = first
        self._end = end
        self._open: list[tuple[Any, int]] = []
        self._items: Any = {}
        self._column = 0
        self._key: str | None = None

    def read(self) -> dict[str, Any]:
        root: dict[str, Any] = self._items
        lines, end = self._lines, self._end
        while self._next < end:
            line = lines[self._next]
            self._next += 1
            match = _LINE.fullmatch(line)
            if match is None or (match[6] is not None and not match[2]):
                if _COMMENT.fullmatch(line):
                    continue
                raise _OtherFormError
            spaces, dashes, plain, quoted, value, text = match.groups()
            column = len(spaces)
            if dashes:
                column = self._enter_list(column, len(dashes) // 2)
                if text is not None:
                    self._items.append(self._value(text))
                    continue
                items: dict[str, Any] = {}
                self._items.append(items)
                self._enter(items, column)
            else:
                self._enter_mapping(column)
            key = _key(plain) if plain is not None else quoted
            if key in self._items:
                raise _OtherFormError
            if value is None:
                self._key = key
            else:
                self._items[key] = self._value(value)
        if self._key is not None:
            raise _OtherFormError
        return root

    def _enter(self, items: Any, column: int) -> None:
        if len(self._open) > _DEEPEST:
            raise _OtherFormError
        self._open.append((self._items, self._column))
        self._items, self._column = items, column

    def _enter_list(self, column: int, dashes: int) -> int:
        """Enter the list with dashes in this column, and the lists that begin on the line.

        Return the column of the value after the dashes."""
        if self._key is not None:
            if column < self._column:
                raise _OtherFormError
            self._below(self._key, [], column)
        elif self._column != column or not isinstance(self._items, list):
            self._leave(column, list)
        for __ in range(dashes - 1):
            column += 2
            items: list[Any] = []
            self._items.append(items)
            self._enter(items, column)
        return column + 2

    def _enter_mapping(self, column: int) -> None:
        """Enter the mapping with keys in this column."""
        if self._key is None:
            if self._column != column or not isinstance(self._items, dict):
                self._leave(column, dict)
        elif column > self._column:
            self._below(self._key, {}, column)
        else:
            raise _OtherFormError

    def _below(self, key: str, items: Any, column: int) -> None:
        self._items[key] = items
        self._key = None
        self._enter(items, column)

    def _leave(self, column: int, kind: type) -> None:
        """Leave all collections that are deeper than the mapping or list in this column."""
        while self._column != column or not isinstance(self._items, kind):
            if not self._open or self._column < column:
                raise _OtherFormError
            self._items, self._column = self._open.pop()

    def _value(self, text: str) -> Any:
        sign = text[0]
        if sign == "|":
            if text not in ("|", "|-"):
                raise _OtherFormError
            return self._block() + ("\n" if text == "|" else "")
        if sign in "{[":
            return _flow(text)
        return _scalar(text)

    def _block(self) -> str:
        """Return the lines of a literal block, without the last line end."""
        first_line = self._lines[self._next]
        indent = first_line[: len(first_line) - len(first_line.lstrip(" "))]
        # A line of spaces does not define the indentation of the block.
        if len(indent) <= self._column or indent == first_line:
            raise _OtherFormError
        block = []
        while self._next < self._end and ((line := self._lines[self._next]).startswith(indent) or not line):
            if not _BLOCK_LINE.fullmatch(line):
                raise _OtherFormError
            block.append(line[len(indent) :])
            self._next += 1
        if self._next < self._end and not line.strip(" "):
            # Shorter than the block is deep: more of the block may follow.
            raise _OtherFormError
        while not block[-1]:
            block.pop()
        return "\n".join(block)


@lru_cache(maxsize=1 << 12)
def _key(text: str) -> str:
    if text.lower() in _NOT_TEXT:
        raise _OtherFormError
    return text


@lru_cache(maxsize=1 << 14)
def _scalar(text: str) -> Any:
    if PLAIN.fullmatch(text):
        return resolve(text)
    if _INTEGER.fullmatch(text):
        return int(text)
    if match := _TWO_QUOTED.fullmatch(text):
        return match[1]
    if match := _ONE_QUOTED.fullmatch(text):
        return match[1].replace("''", "'")
    raise _OtherFormError


def _flow(text: str) -> Any:
    """Return the value of a flow collection that ends with its line."""
    root: list[Any] = []
    around: list[Any] = []
    items: Any = root
    key: str | None = None
    # True after a value: only a comma or an end may follow.
    follows_value = False
    position = 0
    while position < len(text):
        match = _FLOW.match(text, position)
        if match is None or (follows_value and not around) or len(around) > _DEEPEST:
            raise _OtherFormError
        position = match.end()
        sign, scalar_text, colon = match.groups()
        if colon:
            if follows_value or key is not None:
                raise _OtherFormError
            key = _flow_key(items, scalar_text)
        elif sign is None or sign in "{[":
            value: Any = _scalar(scalar_text) if sign is None else {} if sign == "{" else []
            _put(items, key, value, follows_value)
            key, follows_value = None, sign is None
            if sign is not None:
                around.append(items)
                items = value
        elif key is not None or not (follows_value if sign == "," else _ends(items, sign, follows_value)):
            raise _OtherFormError
        elif sign == ",":
            follows_value = False
        else:
            items, follows_value = around.pop(), True
    if around or len(root) != 1:
        raise _OtherFormError
    return root[0]


def _put(items: Any, key: str | None, value: Any, follows_value: bool) -> None:
    """Put a value into a flow collection: with a key into a mapping, without one into a list."""
    if follows_value or (key is None) is not isinstance(items, list):
        raise _OtherFormError
    if key is None:
        items.append(value)
    else:
        items[key] = value


def _ends(items: Any, sign: str, follows_value: bool) -> bool:
    """Return True if a sign ends a flow collection: it matches the opening sign, and no comma precedes it."""
    return isinstance(items, dict if sign == "}" else list) and (follows_value or not items)


def _flow_key(items: dict[str, Any], scalar_text: str) -> str:
    key = _scalar(scalar_text)
    if (
        not isinstance(items, dict)
        or not isinstance(key, str)
        or key in items
        or (key == scalar_text and key.lower() in _NOT_TEXT)
    ):
        raise _OtherFormError
    return key
