# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""CEL macros: calls with a special name, style, and number of arguments. They are detected before names are resolved.

The macros are the macros of the CEL specification ("Macros"), and of cel-go's optional types, bindings, two-variable
comprehensions, and lists extension. The environment of Kubernetes has all of them.
"""

from __future__ import annotations

from .ast import Bind, Call, Comprehension, Ident, ListLiteral, Node, OptMap, Select
from .lexer import CelSyntaxError

# Accumulator of the expansions in cel-go. It cannot be a variable.
_ACCUMULATOR = "__result__"

_TESTS = {"all": "all", "exists": "exists", "exists_one": "exists_one"}
_TRANSFORMS = frozenset(("transformList", "transformMap", "transformMapEntry"))


def expand(name: str, target: Node | None, args: list[Node], pos: int, end: int) -> Node | None:
    """Return the node of a macro call, None for other calls. Raise CelSyntaxError for invalid arguments."""
    if target is None:
        return _has(args[0], pos, end) if name == "has" and len(args) == 1 else None
    return (
        _comprehension(name, target, args, pos, end)
        or _sort_by(name, target, args, pos, end)
        or _bind(name, target, args, pos, end)
        or _opt_map(name, target, args, pos, end)
    )


def _has(arg: Node, pos: int, end: int) -> Node:
    if not isinstance(arg, Select) or arg.optional or arg.test:
        raise CelSyntaxError("has() takes a selection such as a.b; for a[...] use `in`, or a[?...].hasValue()", arg.pos)
    node = Select(arg.pos, arg.start, end, arg.operand, arg.field, test=True)
    node.start = pos - len("has")
    return node


def _comprehension(name: str, target: Node, args: list[Node], pos: int, end: int) -> Node | None:
    count = len(args)
    predicate: Node | None = None
    body: Node | None = None
    if (name in _TESTS and count in (2, 3)) or (name == "existsOne" and count == 3):
        # The name without an underscore is only valid with two variables.
        kind, variables, predicate = _TESTS.get(name, "exists_one"), args[:-1], args[-1]
    elif name == "filter" and count == 2:
        kind, variables, predicate = name, args[:1], args[1]
    elif name == "map" and count in (2, 3):
        kind, variables, body = name, args[:1], args[-1]
        predicate = args[1] if count == 3 else None
    elif name in _TRANSFORMS and count in (3, 4):
        kind, variables, body = name, args[:2], args[-1]
        predicate = args[2] if count == 4 else None
    else:
        return None
    return Comprehension(pos, target.start, end, kind, target, _variables(variables), predicate, body)


def _variables(nodes: list[Node]) -> tuple[str, ...]:
    names: list[str] = []
    for node in nodes:
        if not isinstance(node, Ident):
            raise CelSyntaxError("this argument must be a simple name", node.pos)
        if node.name == _ACCUMULATOR:
            raise CelSyntaxError(f"{_ACCUMULATOR} cannot be a variable", node.pos)
        if node.name in names:
            raise CelSyntaxError(f"two variables have the name {node.name}", node.pos)
        names.append(node.name)
    return tuple(names)


def _sort_by(name: str, target: Node, args: list[Node], pos: int, end: int) -> Node | None:
    if name != "sortBy" or len(args) != 2:
        return None
    if not isinstance(target, ListLiteral | Select | Ident | Comprehension | Call | Bind):
        raise CelSyntaxError("sortBy needs a list", target.pos)
    return Comprehension(pos, target.start, end, "sortBy", target, _variables(args[:1]), None, args[1])


def _bind(name: str, target: Node, args: list[Node], pos: int, end: int) -> Node | None:
    if name != "bind" or len(args) != 3 or not isinstance(target, Ident) or target.name != "cel":
        return None
    variable = args[0]
    if not isinstance(variable, Ident):
        raise CelSyntaxError("cel.bind() needs a simple name first", variable.pos)
    return Bind(pos, target.start, end, variable.name, args[1], args[2])


def _opt_map(name: str, target: Node, args: list[Node], pos: int, end: int) -> Node | None:
    if name not in ("optMap", "optFlatMap") or len(args) != 2:
        return None
    variable = args[0]
    if not isinstance(variable, Ident):
        raise CelSyntaxError(f"{name}() needs a simple name first", variable.pos)
    return OptMap(pos, target.start, end, target, variable.name, args[1], name == "optFlatMap")
