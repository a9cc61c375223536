# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Type check of names and overloads in an expression, by the rules of cel-go (`checker/checker.go`).

In addition to type errors, it rejects everything that Kubernetes rejects before it evaluates an expression: lists and
maps of mixed types, invalid constant regular expressions, durations and timestamps, and results that cannot be a bool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import types as t
from .ast import Bind, Call, Comprehension, Ident, ListLiteral, Literal, Logic, MapLiteral, Node, OptMap, Select
from .declarations import DEVICE_FIELDS, FUNCTIONS, METHODS, TYPE_NAMES, Overload
from .lexer import CelSyntaxError

_VARIABLES = {"device": t.DEVICE}


class Checked:
    """Result of a check: the type of every node without type variables, and the resolved functions.

    functions: name of every call with a dotted name (`sets.contains`).
    """

    __slots__ = ("functions", "root", "types")

    def __init__(self, root: Node, types: dict[Node, t.Type], functions: dict[Node, str]) -> None:
        self.root = root
        self.types = types
        self.functions = functions


def check(root: Node, *, any_result: bool = False) -> Checked:
    """Check a device selector. Raise CelSyntaxError with the error and its position.

    any_result: allow results of any type, for parts of a selector.
    """
    checker = _Checker()
    checker.check(root)
    bindings = checker.bindings
    types = {node: bindings.substitute(node_type, free_to_dyn=True) for node, node_type in checker.types.items()}
    _require_homogeneous(types)
    result = types[root]
    if not any_result and result.kind not in ("bool", "any"):
        raise CelSyntaxError(f"a selector must give a bool, this gives {result}", root.start)
    return Checked(root, types, checker.functions)


def qualified_name(node: Node) -> str | None:
    """Return the dotted name of a chain of plain selections, None for other nodes."""
    names: list[str] = []
    while isinstance(node, Select) and not node.optional and not node.test:
        names.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join((node.name.removeprefix("."), *reversed(names)))


def _require_homogeneous(types: dict[Node, t.Type]) -> None:
    for node in types:
        if isinstance(node, ListLiteral):
            columns = [[(element, index in node.optional) for index, element in enumerate(node.elements)]]
        elif isinstance(node, MapLiteral):
            columns = [
                [(key, False) for key, *__ in node.entries],
                [(value, optional) for __, value, optional in node.entries],
            ]
        else:
            continue
        for column in columns:
            _require_one_type(column, types)


def _require_one_type(column: list[tuple[Node, bool]], types: dict[Node, t.Type]) -> None:
    first_type: t.Type | None = None
    for node, optional in column:
        node_type = types[node]
        if optional and node_type.params:
            node_type = node_type.params[0]
        if first_type is None:
            first_type = node_type
        elif first_type != node_type:
            raise CelSyntaxError(
                f"a list or map must be of one type: expected {first_type}, found {node_type}", node.start
            )


class _Checker:
    def __init__(self) -> None:
        self.types: dict[Node, t.Type] = {}
        self.functions: dict[Node, str] = {}
        self.bindings = t.Bindings()
        self._scopes: list[dict[str, t.Type]] = [_VARIABLES]

    def check(self, node: Node) -> t.Type:
        node_type: t.Type = _CHECKS[type(node)](self, node)
        self.types[node] = node_type
        return node_type

    def _in_scope(self, names: dict[str, t.Type], node: Node) -> t.Type:
        self._scopes.append(names)
        node_type = self.check(node)
        self._scopes.pop()
        return node_type

    def _lookup(self, name: str) -> t.Type | None:
        if name.startswith("."):
            name = name[1:]
            scopes = self._scopes[:1]
        else:
            scopes = self._scopes
        for scope in reversed(scopes):
            if name in scope:
                return scope[name]
        named_type = TYPE_NAMES.get(name)
        return None if named_type is None else t.type_of(named_type)

    def _literal(self, node: Literal) -> t.Type:
        return node.type

    def _ident(self, node: Ident) -> t.Type:
        ident_type = self._lookup(node.name)
        if ident_type is None:
            raise CelSyntaxError(_unknown_name(node.name), node.start)
        return ident_type

    def _select(self, node: Select) -> t.Type:
        if isinstance(node.operand, Ident | Select) and not node.test and not node.optional:
            name = qualified_name(node)
            named_type = self._lookup(name) if name and "." in name else None
            if named_type is not None:
                self.functions[node] = str(name)
                return named_type
        operand = self.bindings.substitute(self.check(node.operand))
        wrapped = t.is_optional(operand)
        result = self._field(node, operand.params[0] if wrapped else operand)
        if node.test:
            return t.BOOL
        return t.optional_of(result) if wrapped or node.optional else result

    def _field(self, node: Select, operand: t.Type) -> t.Type:
        if operand.kind == "map":
            return operand.params[1]
        if operand.kind == "param":
            self.bindings.assignable((t.DYN,), (operand,))
            return t.DYN
        if operand == t.DEVICE:
            if node.field not in DEVICE_FIELDS:
                raise CelSyntaxError(
                    f"a device has no field {node.field!r}, it has {', '.join(sorted(DEVICE_FIELDS))}", node.pos + 1
                )
            return DEVICE_FIELDS[node.field]
        if t.is_dyn_or_error(operand):
            return t.DYN
        raise CelSyntaxError(f"{operand} has no fields to select", node.pos)

    def _call(self, node: Call) -> t.Type:
        args = node.args
        arg_types = [self.check(arg) for arg in args]
        name = node.function
        if node.target is None:
            return self._resolve(node, name, FUNCTIONS.get(name.removeprefix(".")), tuple(arg_types), method=False)
        prefix = qualified_name(node.target)
        dotted = f"{prefix}.{name}" if prefix else ""
        if dotted in FUNCTIONS:
            self.functions[node] = dotted
            return self._resolve(node, dotted, FUNCTIONS[dotted], tuple(arg_types), method=False)
        target = self.check(node.target)
        return self._resolve(node, name, METHODS.get(name), (target, *arg_types), method=True)

    def _resolve(
        self,
        node: Call,
        name: str,
        overloads: tuple[Overload, ...] | None,
        arg_types: tuple[t.Type, ...],
        *,
        method: bool,
    ) -> t.Type:
        if overloads is None and name not in (FUNCTIONS if method else METHODS):
            raise CelSyntaxError(f"there is no function {name!r}", node.pos)
        bindings = self.bindings
        result: t.Type | None = None
        for overload in overloads or ():
            if len(overload.args) != len(arg_types):
                continue
            desired, answer = overload.args, overload.result
            if overload.variables:
                fresh = {variable: bindings.fresh() for variable in overload.variables}
                desired = tuple(_instantiate(arg_type, fresh) for arg_type in desired)
                answer = _instantiate(answer, fresh)
            if not bindings.assignable(arg_types, desired):
                continue
            answer = bindings.substitute(answer)
            if result is None:
                result = answer
            elif not t.is_dyn(result) and answer != result:
                result = t.DYN
        if result is None:
            resolved_types = tuple(bindings.substitute(arg_type, free_to_dyn=True) for arg_type in arg_types)
            raise CelSyntaxError(_no_overload(name, resolved_types, method=method), node.pos)
        return result

    def _logic(self, node: Logic) -> t.Type:
        for term in node.terms:
            self._require(term, t.BOOL, f"{node.operator} joins bools")
        return t.BOOL

    def _require(self, node: Node, desired: t.Type, message: str) -> None:
        node_type = self.check(node)
        if not self.bindings.assignable((node_type,), (desired,)):
            raise CelSyntaxError(
                f"{message}, this is {self.bindings.substitute(node_type, free_to_dyn=True)}", node.start
            )

    def _join(self, element_type: t.Type | None, node: Node, node_type: t.Type) -> t.Type:
        if element_type is None:
            return node_type
        if not self.bindings.assignable((element_type,), (node_type,)):
            raise CelSyntaxError(
                f"a list or map must be of one type: expected {element_type}, found {node_type}", node.start
            )
        return t.more_general(element_type, node_type)

    def _unwrapped(self, node: Node, optional: bool) -> t.Type:
        node_type = self.check(node)
        if not optional:
            return node_type
        if t.is_optional(node_type):
            return node_type.params[0]
        if not t.is_dyn(node_type):
            raise CelSyntaxError(f"? needs an optional, this is {node_type}", node.start)
        return node_type

    def _list(self, node: ListLiteral) -> t.Type:
        element: t.Type | None = None
        for index, child in enumerate(node.elements):
            element = self._join(element, child, self._unwrapped(child, index in node.optional))
        return t.list_of(element or self.bindings.fresh())

    def _map(self, node: MapLiteral) -> t.Type:
        key_type: t.Type | None = None
        value_type: t.Type | None = None
        for key, value, optional in node.entries:
            key_type = self._join(key_type, key, self.check(key))
            value_type = self._join(value_type, value, self._unwrapped(value, optional))
        return t.map_of(key_type or self.bindings.fresh(), value_type or self.bindings.fresh())

    def _comprehension(self, node: Comprehension) -> t.Type:
        target = self.bindings.substitute(self.check(node.target))
        types = self._iterated(node, target)
        scope = dict(zip(node.variables, types, strict=True))
        self._scopes.append(scope)
        if node.predicate is not None:
            self._require(node.predicate, t.BOOL, f"the condition of {node.kind} must be a bool")
        body = self.check(node.body) if node.body is not None else None
        self._scopes.pop()
        return self._accumulated(node, target, types, body)

    def _iterated(self, node: Comprehension, target: t.Type) -> tuple[t.Type, ...]:
        two = len(node.variables) == 2
        if target.kind == "list":
            return (t.INT, target.params[0]) if two else target.params
        if target.kind == "map":
            return target.params if two else target.params[:1]
        if target.kind == "dyn" or target.kind == "param":
            self.bindings.assignable((t.DYN,), (target,))
            return (t.DYN, t.DYN) if two else (t.DYN,)
        raise CelSyntaxError(f"{node.kind} needs a list or a map, this is {target}", node.target.start)

    def _accumulated(
        self, node: Comprehension, target: t.Type, types: tuple[t.Type, ...], body: t.Type | None
    ) -> t.Type:
        if body is None:
            return t.list_of(types[0]) if node.kind == "filter" else t.BOOL
        if node.kind == "transformMap":
            return t.map_of(types[0], body)
        if node.kind == "transformMapEntry":
            entry = t.map_of(self.bindings.fresh(), self.bindings.fresh())
            if not self.bindings.assignable((body,), (entry,)):
                raise CelSyntaxError(f"transformMapEntry needs a map for each entry, this is {body}", node.pos)
            return self.bindings.substitute(entry)
        if node.kind == "sortBy":
            keys = self.bindings.substitute(t.list_of(body))
            return self._resolve_sort(node, target, keys)
        return t.list_of(body)

    def _resolve_sort(self, node: Comprehension, target: t.Type, keys: t.Type) -> t.Type:
        call = Call(node.pos, node.start, node.end, "@sortByAssociatedKeys", node.target, [])
        return self._resolve(call, call.function, METHODS[call.function], (target, keys), method=True)

    def _bind(self, node: Bind) -> t.Type:
        return self._in_scope({node.name: self.check(node.value)}, node.body)

    def _opt_map(self, node: OptMap) -> t.Type:
        target = self.check(node.target)
        value = self.bindings.fresh()
        if not self.bindings.assignable((target,), (t.optional_of(value),)):
            raise CelSyntaxError(f"optMap needs an optional, this is {target}", node.pos)
        body = self._in_scope({node.name: self.bindings.substitute(value)}, node.body)
        if not node.flat:
            return t.optional_of(body)
        result = t.optional_of(self.bindings.fresh())
        if not self.bindings.assignable((body,), (result,)):
            raise CelSyntaxError(f"optFlatMap needs an optional as its result, this is {body}", node.body.start)
        return self.bindings.substitute(body)


_CHECKS: dict[type, Callable[[_Checker, Any], t.Type]] = {
    Literal: _Checker._literal,
    Ident: _Checker._ident,
    Select: _Checker._select,
    Call: _Checker._call,
    Logic: _Checker._logic,
    ListLiteral: _Checker._list,
    MapLiteral: _Checker._map,
    Comprehension: _Checker._comprehension,
    Bind: _Checker._bind,
    OptMap: _Checker._opt_map,
}


def _instantiate(cel_type: t.Type, fresh: dict[t.Type, t.Type]) -> t.Type:
    if cel_type.kind == "param":
        return fresh[cel_type]
    if not cel_type.params:
        return cel_type
    return t.Type(cel_type.kind, cel_type.name, tuple(_instantiate(param, fresh) for param in cel_type.params))


_SIGNS = {"@in": "in", "_[_]": "[]", "_[?_]": "[?]", "_?_:_": "?:"}


def _no_overload(name: str, arg_types: tuple[t.Type, ...], *, method: bool) -> str:
    arg_text = ", ".join(map(str, arg_types[1:] if method else arg_types))
    if method:
        return f"{arg_types[0]} has no method {name}({arg_text})"
    if not name[0].isalpha():
        return f"{_SIGNS.get(name, name.strip('_'))} does not take {' and '.join(map(str, arg_types))}"
    return f"{name}() does not take ({arg_text})"


def _unknown_name(name: str) -> str:
    hint = ": a selector sees only `device`" if name in ("self", "object", "devices", "node", "request") else ""
    return f"unknown name {name!r}{hint}"
