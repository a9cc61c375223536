# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The syntax tree of an expression. Macros are nodes of their own: nothing is expanded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .types import Type


@dataclass(eq=False, slots=True)
class Node:
    """A node; `pos` is where it is reported (an index into the source), `start` and `end` what it spans.

    `height` counts the operators, selections, calls and indexes from here to the deepest leaf.
    """

    pos: int
    start: int
    end: int
    height: int = field(default=0, init=False)


@dataclass(eq=False, slots=True)
class Literal(Node):
    value: Any
    type: Type


@dataclass(eq=False, slots=True)
class Ident(Node):
    name: str


@dataclass(eq=False, slots=True)
class Select(Node):
    """`operand.field`, `operand.?field` (optional) or `has(operand.field)` (test)."""

    operand: Node
    field: str
    optional: bool = False
    test: bool = False


@dataclass(eq=False, slots=True)
class Call(Node):
    """A function, a method (with a target) or an operator, which goes by its name in the CEL specification."""

    function: str
    target: Node | None
    args: list[Node]


@dataclass(eq=False, slots=True)
class Logic(Node):
    """A chain of && or || of any length."""

    operator: str
    terms: list[Node]


@dataclass(eq=False, slots=True)
class ListLiteral(Node):
    elements: list[Node]
    optional: frozenset[int]


@dataclass(eq=False, slots=True)
class MapLiteral(Node):
    """Entries are (key, value, whether the value is an optional)."""

    entries: list[tuple[Node, Node, bool]]


@dataclass(eq=False, slots=True)
class Comprehension(Node):
    """all, exists, exists_one, map, filter, transformList, transformMap, transformMapEntry, sortBy.

    `variables` are one or two names; `predicate` is what all, exists, exists_one and filter test, and the condition of
    the longer spellings of the others; `body` is what those compute.
    """

    kind: str
    target: Node
    variables: tuple[str, ...]
    predicate: Node | None
    body: Node | None


@dataclass(eq=False, slots=True)
class Bind(Node):
    """`cel.bind(name, value, body)`."""

    name: str
    value: Node
    body: Node


@dataclass(eq=False, slots=True)
class OptMap(Node):
    """`target.optMap(name, body)`, or optFlatMap when `flat`."""

    target: Node
    name: str
    body: Node
    flat: bool
