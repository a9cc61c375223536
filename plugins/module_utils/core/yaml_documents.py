# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conversion of manifest text to plain documents with line numbers for every key and list item.

Plain scalars have the same meaning as in Kubernetes (`yaml_scalars`), with two differences. Keys that are not text are
rejected, because Kubernetes silently converts `on:` to `true:`. Infinite numbers and NaN are rejected, because
Kubernetes rejects them later.

No object is constructed from a tag, and no text is templated. The depth, the number of nodes, and the number of nodes
behind aliases are limited.
"""

# To isinstance a bool is an int. pylint: disable=unidiomatic-typecheck

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from math import isfinite
from typing import Any

from .._yaml import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    MarkedYAMLError,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    YAMLError,
    events,
)
from . import yaml_lines
from .problem import Problem
from .secrets import without_keys
from .yaml_scalars import resolve

MAX_DEPTH = 100
MAX_NODES = 1_000_000
MAX_ALIAS_NODES = 100_000
MAX_DOCUMENTS = 20_000
MAX_SYNTAX_ERRORS = 20
MAX_PROBLEMS = 100

# What a long text counts when an alias repeats it: one node per so many characters.
_TEXT_PER_NODE = 64


@dataclass(frozen=True)
class Source:
    """Text to read: the name it is reported under, and its bytes."""

    name: str
    data: bytes


@dataclass(frozen=True)
class Place:
    """Location of a value: the line of its key (or of the value itself), and the locations of its children."""

    line: int
    children: Mapping[str, Place] | Sequence[Place] | None = None

    def nearest(self, components: Sequence[str | int]) -> Place:
        """Return the location at the end of `components`, or of the nearest parent in the text."""
        position = self
        for component in components:
            children = position.children
            if isinstance(children, Mapping):
                child = children.get(component) if isinstance(component, str) else None
            elif children is not None and isinstance(component, int) and 0 <= component < len(children):
                child = children[component]
            else:
                child = None
            if child is None:
                break
            position = child
        return position


class _LaterPlace(Place):
    """Location that is found on first use, because most locations are never used."""

    def __init__(self, find: Callable[[], Place]) -> None:
        self.__dict__["_find"] = find

    @cached_property
    def _found(self) -> Place:
        position: Place = self.__dict__["_find"]()
        return position

    @property
    def line(self) -> int:
        return self._found.line

    @property
    def children(self) -> Mapping[str, Place] | Sequence[Place] | None:
        return self._found.children


@dataclass(frozen=True)
class Document:
    """Document of a file: plain dicts, lists, and scalars, with their locations."""

    file: str
    number: int
    value: Any
    place: Place
    problems: tuple[Problem, ...] = ()
    """Problems of the text itself."""
    complete: bool = True
    """False if unreadable parts are missing from `value`. Validation of `value` would then find false errors."""
    unread: str | None = None
    """Text of a document without a value, up to its probable end. None if there might be more text."""


def documents(source: Source, *, max_nodes: int = MAX_NODES, max_documents: int = MAX_DOCUMENTS) -> Iterator[Document]:
    """Yield all documents of a file that are not empty.

    A document that is not YAML has a problem and no value. Reading continues at the next `---` line."""
    text, problem = _decode(source)
    if problem is not None:
        yield Document(source.name, 1, None, Place(problem.line or 1), (problem,), complete=False)
        return
    simple = yaml_lines.read(text) if max_nodes >= MAX_NODES else None
    if simple is not None and len(simple) <= max_documents:
        yield from _without_places(source.name, text, simple)
        return
    reader = _FileReader(source.name, text, max_nodes, max_documents)
    yield from reader.read()


def _without_places(name: str, text: str, simple: Sequence[tuple[int, Any]]) -> Iterator[Document]:
    """Yield the documents of a text that was already read. A second reading of the text finds all their locations."""

    @cache
    def places() -> dict[int, Place]:
        reader = _FileReader(name, text, MAX_NODES, MAX_DOCUMENTS)
        return {document.number: document.place for document in reader.read()}

    for number, value in simple:
        yield Document(name, number, value, _LaterPlace(partial(_place, places, number)))


def _place(places: Callable[[], Mapping[int, Place]], number: int) -> Place:
    return places()[number]


_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UTF16_STARTS = (b"\xff\xfe", b"\xfe\xff")


def _decode(source: Source) -> tuple[str, Problem | None]:
    data = source.data
    hint = "Save the file as UTF-8 text"
    if data.startswith(_UTF16_STARTS) or data[:4] in (b"\x00\x00\xfe\xff", b"\xff\xfe\x00\x00"):
        return "", Problem("is UTF-16 or UTF-32, and must be UTF-8", hint=hint, file=source.name, line=1)
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    nul = data.find(b"\0")
    if nul >= 0:
        line = data.count(b"\n", 0, nul) + 1
        return "", Problem(f"is not text: byte {nul} is NUL", hint=hint, file=source.name, line=line)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}"
        return "", Problem(message, hint=hint, file=source.name, line=line)
    sign = _UNPRINTABLE.search(text)
    if sign:
        line = text.count("\n", 0, sign.start()) + 1
        message = f"holds the control character U+{ord(sign.group()):04X}, which YAML does not allow"
        hint = 'Write it as an escape in a double-quoted text ("\\x1b")'
        return "", Problem(message, hint=hint, file=source.name, line=line)
    return text, None


class _Text:
    """Text of a file, with cached properties for hints."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def _holds_helm(self) -> bool:
        return _TEMPLATE_ACTION.search(self.text) is not None

    @cached_property
    def _holds_template_line(self) -> bool:
        return _TEMPLATE_LINE.search(self.text) is not None

    def line(self, number: int) -> str:
        """Return the line of the file with this number, or "" after the end."""
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""

    def document(self, first: int, behind: int) -> str:
        """Return the lines of the document with the line `first`, up to the start of the document after `behind`."""
        begin, end = first - 1, behind - 1
        while begin > 0 and not _DOCUMENT_LINE.match(self.line(begin + 1)):
            begin -= 1
        while end < len(self._lines) and not _DOCUMENT_LINE.match(self._lines[end]):
            end += 1
        return "\n".join(self._lines[begin:end])

    def template_hint(self, number: int) -> str:
        """Return a hint for `{{` in place of YAML, or "" without a template."""
        if self._holds_helm:
            return "This seems to be a Helm template: render it first (helm template) and read its output"
        line = self.line(number)
        if "{{" in line or "{%" in line or self._holds_template_line:
            return "Put quotes around a value that holds '{{', and note that nothing is templated here"
        return ""


class _RefusedError(Exception):
    """Document that is not read further: it exceeds a limit, or its errors prevent further reading."""

    def __init__(self, message: str, line: int, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.hint = hint


_DOCUMENT_LINE = re.compile(r"^---(?=\s|$)", re.MULTILINE)
# A JSON escape of a character beyond U+FFFF: two halves, which YAML writes as one. An escaped backslash is skipped.
_JSON_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\\\")


class _FileReader:
    """Reader of one file. It splits the file into documents and continues after a broken document."""

    def __init__(self, name: str, text: str, max_nodes: int, max_documents: int) -> None:
        self._name = name
        self._max_nodes = max_nodes
        self._max_documents = max_documents
        self._text = _Text(_JSON_PAIR.sub(_join_json_pair, text) if text.lstrip()[:1] in ("{", "[") else text)
        self._number = 0
        self._nodes = 0
        self._broken_at = 0

    def read(self) -> Iterator[Document]:
        text = self._text.text
        start, first_line, failures = 0, 1, 0
        while True:
            self._broken_at = 0
            yield from self._stream(text[start:], first_line)
            broken_at = self._broken_at
            if not broken_at:
                return
            failures += 1
            if failures >= MAX_SYNTAX_ERRORS or self._nodes > self._max_nodes or self._number >= self._max_documents:
                message = "the rest of the file is not read"
                yield replace(
                    self._failed(Problem(message, hint="Correct the errors above first", line=broken_at)), unread=None
                )
                return
            offset = self._offset_behind(start, broken_at - first_line)
            separator = _DOCUMENT_LINE.search(text, offset)
            if separator is None:
                return
            first_line += text.count("\n", start, separator.start())
            start = separator.start()

    def _offset_behind(self, start: int, lines: int) -> int:
        """Return the offset after `lines` line ends from `start`."""
        offset = start
        for __ in range(lines):
            offset = self._text.text.find("\n", offset) + 1
            if offset == 0:
                return len(self._text.text)
        return offset

    def _stream(self, text: str, first_line: int) -> Iterator[Document]:
        """Yield the documents up to the first unreadable document, which is last and has no value."""
        builder: _Builder | None = None
        try:
            for event in events(text):
                kind = type(event)
                if builder is not None and kind is not DocumentEndEvent:
                    builder.take(event)
                elif kind is DocumentStartEvent:
                    self._number += 1
                    if self._number > self._max_documents:
                        message = f"holds more than {self._max_documents} documents"
                        raise _RefusedError(message, event.start_mark.line + first_line, "Split the file")
                    builder = _Builder(
                        self._text, first_line, event.start_mark.line + first_line, self._max_nodes - self._nodes
                    )
                elif kind is DocumentEndEvent and builder is not None:
                    self._nodes += builder.nodes
                    document = self._finished(builder)
                    builder = None
                    if document is not None:
                        yield document
        except _RefusedError as refused:
            self._nodes += builder.nodes if builder else 0
            yield self._failed(Problem(refused.message, hint=refused.hint, line=refused.line), builder)
        except YAMLError as error:
            if builder is None:
                self._number += 1
            yield self._failed(_syntax_problem(error, self._text, first_line), builder)

    def _finished(self, builder: _Builder) -> Document | None:
        if builder.value is None and not builder.problems:
            return None
        position = Place(builder.line, builder.children)
        problems = self._placed(builder.problems)
        return Document(self._name, self._number, builder.value, position, problems, complete=not builder.lost)

    def _failed(self, problem: Problem, builder: _Builder | None = None) -> Document:
        line = problem.line or 1
        # A document that begins on the line of its error would be found there again.
        self._broken_at = line if builder is not None and line > builder.first_line else line + 1
        problems = (*builder.problems, problem) if builder else (problem,)
        unread = self._text.document(builder.first_line if builder else line, self._broken_at)
        return Document(
            self._name, self._number, None, Place(line), self._placed(problems), complete=False, unread=unread
        )

    def _placed(self, problems: Sequence[Problem]) -> tuple[Problem, ...]:
        return tuple(p.at(file=self._name, line=p.line, document=self._number) for p in problems)


def _join_json_pair(match: re.Match[str]) -> str:
    if match.group(1) is None:
        return match.group()
    high, low = int(match.group(1), 16), int(match.group(2), 16)
    return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"


# Since 0.2.6, libyaml also has a limit, far above this one. It reaches it first, because it reads ahead of its events.
_PARSER_DEPTH = "exceeded maximum nesting depth"
_TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep"
_TOO_DEEP_HINT = "No manifest needs that depth"

_SYNTAX_HINTS = (
    (r"'\\t'|with a tab|tab character", "Indent with spaces, YAML does not take tabs"),
    (r"mapping values are not allowed", "Put quotes around a text that holds ': ', and check the indentation"),
    (r"did not find expected '-' indicator|did not find expected key", "Check the indentation of this line"),
    (r"could not find expected ':'", "Each key needs a ':' behind it"),
    (r"found character|found unexpected", "Put quotes around a text that starts with a special character"),
    (r"expected ',' or|expected node content", "A bracket or brace is not closed, or a comma is missing"),
    (r"undefined alias|unidentified alias", "Define the anchor (&name) before it is used, in the same document"),
)


def _syntax_problem(error: YAMLError, text: _Text, first_line: int) -> Problem:
    """Return the error of the parser with its line, its column, the expected text, and a hint."""
    mark: Any = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = mark.line + first_line if mark is not None else first_line
    column = mark.column + 1 if mark is not None else 1
    if isinstance(error, MarkedYAMLError):
        complaint = " ".join(phrase for phrase in (error.problem, error.context) if phrase) or "cannot be read"
        if _PARSER_DEPTH in complaint:
            return Problem(_TOO_DEEP, hint=_TOO_DEEP_HINT, line=line)
        start: Any = error.context_mark
        if start is not None and start.line + first_line != line:
            complaint += f" that starts at line {start.line + first_line}"
    else:
        complaint = str(getattr(error, "reason", "") or "cannot be read")
    source_line = text.line(line)
    if "\t" in source_line[: len(source_line) - len(source_line.lstrip())]:
        complaint += " (the line starts with a tab)"
    hint = next((hint for pattern, hint in _SYNTAX_HINTS if re.search(pattern, complaint)), "")
    return Problem(
        f"is not valid YAML at line {line}, column {column}: {complaint}",
        hint=text.template_hint(line) or hint,
        line=line,
    )


_TEMPLATE_LINE = re.compile(r"^[ \t]*(- )?\{\{", re.MULTILINE)
_TEMPLATE_ACTION = re.compile(
    r"\{\{-|-\}\}|\{\{ *(\.Values|\.Release|\.Chart|include|if|range|with|end|define|toYaml)\b"
)


_KEYED = object()
_LOST = object()
_MERGE = object()


class _Frame:
    """Mapping or list that is being read."""

    __slots__ = ("anchor", "children", "height", "items", "key", "key_line", "line", "merges", "size")

    def __init__(self, items: dict[str, Any] | list[Any], line: int, anchor: str | None) -> None:
        self.items = items
        self.children: Any = {} if isinstance(items, dict) else []
        self.line = line
        self.anchor = anchor
        self.key: Any = _KEYED
        self.key_line = line
        self.merges: list[tuple[dict[str, Any], Any]] = []
        self.size = 1
        self.height = 0


class _Builder:
    """Builds one document from parser events, without recursion."""

    def __init__(self, text: _Text, parser_line: int, first_line: int, budget: int) -> None:
        """Create the reader of a document.

        `parser_line`: start line of the parser in the file. `first_line`: start line of the document. `budget`: maximum
        number of values."""
        self.value: Any = None
        self.children: Any = None
        self.first_line = self.line = first_line
        self.nodes = 0
        self.problems: list[Problem] = []
        self.lost = False
        self._text = text
        self._parser_line = parser_line
        self._budget = budget
        self._alias_nodes = 0
        self._scalar_text = ""
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, Any, int, int] | None] = {}
        self._take: dict[type, Callable[[Any], None]] = {
            ScalarEvent: self._scalar,
            MappingStartEvent: self._start,
            SequenceStartEvent: self._start,
            MappingEndEvent: self._end,
            SequenceEndEvent: self._end,
            AliasEvent: self._alias,
        }

    def take(self, event: Any) -> None:
        """Return the next event of the document. Raise _RefusedError."""
        self._take[type(event)](event)

    def _problem(self, message: str, line: int, hint: str = "") -> None:
        if len(self.problems) >= MAX_PROBLEMS:
            raise _RefusedError(f"has more than {MAX_PROBLEMS} errors", line, "Correct the errors above first")
        self.problems.append(Problem(message, hint=hint, line=line))

    def _count(self, line: int) -> None:
        self.nodes += 1
        if self.nodes > self._budget:
            raise _RefusedError("the file holds too many values", line, "Split the file")

    def _scalar(self, event: Any) -> None:
        line = event.start_mark.line + self._parser_line
        self._count(line)
        frame = self._stack[-1] if self._stack else None
        plain = event.implicit[0]
        text = event.value
        if frame is not None and frame.key is _KEYED and type(frame.items) is dict and plain and text == "<<":
            frame.key, frame.key_line = _MERGE, line
            return
        self._scalar_text = text
        value = self._resolve(text, event.tag, plain, line)
        size = 1 + len(text) // _TEXT_PER_NODE
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, None, size, 0)
        self._add(value, None, line, size, 0)

    def _resolve(self, text: str, tag: str | None, plain: bool, line: int) -> Any:
        if tag is None or tag == "!":
            value = resolve(text) if plain else text
        else:
            expected = _TAGS.get(tag)
            value = text if expected is str else resolve(text)
            if expected is None or expected in (dict, list):
                self._bad_tag(tag, line)
                return _LOST
            if expected is float and type(value) is int:
                return value
            if type(value) is not expected:
                self._problem(f"{_short(text)!r} is not what its tag {_short_tag(tag)} says", line, "Remove the tag")
                self.lost = True
                return _LOST
        if type(value) is float and not isfinite(value):
            self._problem(f"{text} is not a number that a manifest can hold", line, "Quote it if it is meant as text")
            self.lost = True
            return _LOST
        return value

    def _bad_tag(self, tag: str, line: int) -> None:
        hint = "Remove it: manifests hold plain text, numbers, booleans, lists and mappings only"
        self._problem(f"the tag {_short(_short_tag(tag))} is not allowed", line, hint)
        self.lost = True

    def _start(self, event: Any) -> None:
        line = event.start_mark.line + self._parser_line
        self._count(line)
        if len(self._stack) >= MAX_DEPTH:
            raise _RefusedError(_TOO_DEEP, line, _TOO_DEEP_HINT)
        items: dict[str, Any] | list[Any] = {} if type(event) is MappingStartEvent else []
        if event.tag is not None and event.tag != "!" and _TAGS.get(event.tag) is not type(items):
            self._bad_tag(event.tag, line)
        frame = self._stack[-1] if self._stack else None
        if frame is not None and frame.key is _KEYED and type(frame.items) is dict:
            hint = self._text.template_hint(line) or "A key is one word; quote a text that starts with { or ["
            self._problem("a mapping or list cannot be a key", line, hint)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._stack.append(_Frame(items, line, event.anchor))

    def _end(self, event: Any) -> None:
        del event
        frame = self._stack.pop()
        if isinstance(frame.items, dict):
            for merged, children in frame.merges:
                for key, value in merged.items():
                    if key not in frame.items:
                        frame.items[key] = value
                        frame.children[key] = children[key]
        height = frame.height + 1
        if frame.anchor is not None:
            self._anchors[frame.anchor] = (frame.items, frame.children, frame.size, height)
        self._add(frame.items, frame.children, frame.line, frame.size, height)

    def _alias(self, event: Any) -> None:
        line = event.start_mark.line + self._parser_line
        self._count(line)
        name = event.anchor
        if name not in self._anchors:
            hint = "Define the anchor (&name) before it is used, in the same document"
            raise _RefusedError(f"the alias *{_short(name)} has no anchor", line, hint)
        target = self._anchors[name]
        if target is None:
            raise _RefusedError(f"the alias *{_short(name)} stands for something that it is a part of", line)
        value, children, size, height = target
        self._alias_nodes += size
        if self._alias_nodes > MAX_ALIAS_NODES:
            hint = "Write the values out, or split the document"
            raise _RefusedError(f"its aliases stand for more than {MAX_ALIAS_NODES} values", line, hint)
        if len(self._stack) + height > MAX_DEPTH:
            raise _RefusedError(_TOO_DEEP, line, _TOO_DEEP_HINT)
        self._add(value, children, line, size, height)

    def _add(self, value: Any, children: Any, line: int, size: int, height: int) -> None:
        """Add a complete value to the innermost mapping or list, or set it as the document."""
        if not self._stack:
            self.value = None if value is _LOST else value
            self.children, self.line = children, line
            return
        frame = self._stack[-1]
        frame.size += size
        frame.height = max(frame.height, height)
        if isinstance(frame.items, list):
            frame.items.append(None if value is _LOST else value)
            frame.children.append(Place(line, children))
        elif frame.key is _KEYED:
            self._key(frame, value, line)
        else:
            key, frame.key = frame.key, _KEYED
            if key is _MERGE:
                self._merge(frame, value, children, line)
            elif key is not _LOST and value is not _LOST:
                frame.items[key] = value
                frame.children[key] = Place(frame.key_line, children)

    def _key(self, frame: _Frame, key: Any, line: int) -> None:
        frame.key, frame.key_line = _LOST, line
        if isinstance(key, (dict, list)) or key is _LOST:
            # Already reported where it starts.
            self.lost = True
        elif not isinstance(key, str):
            key_text = _short(self._scalar_text)
            self._problem(
                f"the key {key_text!r} is {_KIND_NAMES[type(key)]}, not text", line, f'Quote it: "{key_text}"'
            )
            self.lost = True
        elif key in frame.items:
            first_line = frame.children[key].line
            hint = "Keep one of the two"
            self._problem(
                f"the key {_short(key)!r} is given twice, at line {first_line} and at line {line}", line, hint
            )
        else:
            frame.key = key

    def _merge(self, frame: _Frame, value: Any, children: Any, line: int) -> None:
        if isinstance(value, dict):
            frame.merges.append((value, children))
        elif isinstance(value, list) and all(isinstance(item, dict) for item in value):
            frame.merges.extend((item, position.children) for item, position in zip(value, children, strict=True))
        else:
            self._problem("the merge key << needs a mapping or a list of mappings", line, "Give it an alias: <<: *name")
            self.lost = True


_TAGS: Mapping[str, type] = {
    "tag:yaml.org,2002:str": str,
    "tag:yaml.org,2002:int": int,
    "tag:yaml.org,2002:float": float,
    "tag:yaml.org,2002:bool": bool,
    "tag:yaml.org,2002:null": type(None),
    "tag:yaml.org,2002:map": dict,
    "tag:yaml.org,2002:seq": list,
}
_KIND_NAMES: Mapping[type, str] = {bool: "a boolean", int: "a number", float: "a number", type(None): "null"}


def _short_tag(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!", 1)


def _short(text: str) -> str:
    text = without_keys(text)
    return text if len(text) <= 60 else text[:57] + "..."
