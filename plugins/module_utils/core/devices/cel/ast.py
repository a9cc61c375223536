# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Syntax tree of an expression. Macros are separate nodes and are not expanded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .types import Type


@dataclass(eq=False, slots=True)
class Node:
    """Node of the syntax tree.

    pos: position for error messages, an index into the source.
    start, end: range of the node in the source.
    height: number of operators, selections, calls, and indexes on the path to the deepest leaf.
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
    """Function, method (with a target), or operator. Operators have their name in the CEL specification."""

    function: str
    target: Node | None
    args: list[Node]


@dataclass(eq=False, slots=True)
class Logic(Node):
    """Chain of && or || of any length."""

    operator: str
    terms: list[Node]


@dataclass(eq=False, slots=True)
class ListLiteral(Node):
    elements: list[Node]
    optional: frozenset[int]


@dataclass(eq=False, slots=True)
class MapLiteral(Node):
    """Map literal. An entry is (key, value, True for an optional value)."""

    entries: list[tuple[Node, Node, bool]]


@dataclass(eq=False, slots=True)
class Comprehension(Node):
    """Call of all, exists, exists_one, map, filter, transformList, transformMap, transformMapEntry, or sortBy.

    variables: one or two names.
    predicate: test of all, exists, exists_one, and filter, or the optional condition of the other macros.
    body: result of the other macros.
    """

    kind: str
    target: Node
    variables: tuple[str, ...]
    predicate: Node | None
    body: Node | None


@dataclass(eq=False, slots=True)
class Bind(Node):
    """Call of `cel.bind(name, value, body)`."""

    name: str
    value: Node
    body: Node


@dataclass(eq=False, slots=True)
class OptMap(Node):
    """Call of `target.optMap(name, body)`, or of optFlatMap if `flat`."""

    target: Node
    name: str
    body: Node
    flat: bool
