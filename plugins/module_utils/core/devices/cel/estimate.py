# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Estimate of the cost of a selector. The API server rejects a selector if its estimate is too high.

The rules are from cel-go (`checker/cost.go`), from k8s.io/apiserver/pkg/cel/library/cost.go, and from the sizes in
k8s.io/dynamic-resource-allocation/cel/compile.go. Functions that device selectors rarely call, such as functions of
network addresses and sorted lists, have a lower estimate. Therefore, a selector that the API server accepts is never
rejected here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from ..limits import MAX_ATTRIBUTE_VALUE, MAX_ATTRIBUTES_AND_CAPACITIES, MAX_DOMAIN, MAX_DRIVER, MAX_ID
from . import types as t
from .ast import Bind, Call, Comprehension, Ident, ListLiteral, Literal, Logic, MapLiteral, Node, OptMap, Select
from .checker import Checked

_UNLIMITED = 2**64 - 1
_LIST = 10
_MAP = 30
_UTF8_BYTES = 4


@dataclass(frozen=True)
class _Value:
    """Highest size of a value.

    size: characters of a text, or entries of a list or a map.
    key: a key of a map.
    entry: an entry of a list, or a value of a map.
    """

    size: int = _UNLIMITED
    key: _Value | None = None
    entry: _Value | None = None


_Estimate = tuple[int, _Value]
"""Cost of a node, and the size of its value."""
_UNKNOWN = _Value()
_ONE = _Value(1)
_SCALARS = frozenset(("bool", "double", "duration", "int", "timestamp", "uint"))
_TEXTS = frozenset(("string", "bytes"))
_PARSED = frozenset((t.QUANTITY, t.SEMVER, t.IP, t.CIDR))

_ATTRIBUTES, _CAPACITIES = (
    _Value(MAX_ATTRIBUTES_AND_CAPACITIES, key=_Value(MAX_ID), entry=entry)
    for entry in (_Value(MAX_ATTRIBUTE_VALUE), _Value(0))
)
_DEVICE = {
    "driver": _Value(MAX_DRIVER),
    "attributes": _Value(MAX_ATTRIBUTES_AND_CAPACITIES, key=_Value(MAX_DOMAIN), entry=_ATTRIBUTES),
    "capacity": _Value(MAX_ATTRIBUTES_AND_CAPACITIES, key=_Value(MAX_DOMAIN), entry=_CAPACITIES),
}

_SETUP_AND_STEP = {
    "all": (1, 3),
    "exists": (1, 4),
    "exists_one": (2, 2),
    "filter": (_LIST + 1, _LIST + 3),
    "map": (_LIST + 1, _LIST + 2),
    "sortBy": (3 * _LIST + 3, _LIST + 2),
    "transformList": (_LIST + 1, _LIST + 2),
    "transformMap": (_MAP + 1, 3),
    "transformMapEntry": (_MAP + 1, 2),
}
"""Cost of a loop, and of each iteration without its condition and its result."""


def _read(size: int, factor: float = 0.1) -> int:
    return ceil(float(size) * factor)


def _read_first(text: int, *_others: int) -> int:
    return _read(text)


def _read_twice(text: int, *_others: int) -> int:
    return _read(text, 0.2)


def _read_second(_text: int, argument: int) -> int:
    return _read(argument)


def _contains(text: int, substring: int) -> int:
    return _read(text) * _read(substring)


def _matches(text: int, pattern: int, *_others: int) -> int:
    return _read(text + 1) * _read(pattern, 0.25)


def _compare(left: int, right: int) -> int:
    return _read(min(left, right))


def _validate(_format: int, text: int) -> int:
    return _read(_read(text), 32)


def _join(count: int, *_others: int) -> int:
    return _read(count * _UNLIMITED)


def _copy(count: int, *_others: int) -> int:
    return count + _LIST + 1


def _sort(count: int) -> int:
    return 2 * count**2 + _LIST + 1


def _compare_sets(left: int, right: int) -> int:
    return left * right + 1


_FUNCTIONS: Mapping[Callable[..., int], str] = {
    _read_first: "lowerAscii upperAscii substring trim format url ip isIP cidr isCIDR quantity isQuantity semver "
    "isSemver strings.quote",
    _read_twice: "replace split ip.isCanonical",
    _read_second: "startsWith endsWith",
    _contains: "contains",
    _matches: "matches find findAll",
    _compare: "_==_ _!=_ _<_ _<=_ _>_ _>=_",
    _validate: "validate",
    _join: "join",
    _copy: "flatten reverse",
    _sort: "distinct sort",
    _compare_sets: "sets.contains sets.intersects sets.equivalent",
}
_COSTS = {name: cost for cost, names in _FUNCTIONS.items() for name in names.split()}
"""Costs of functions, by the sizes of the target and the arguments. Other functions cost 1."""
_AGGREGATES = frozenset(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"))
_PARTS_OF_TEXTS = frozenset(("find", "findAll", "lowerAscii", "replace", "split", "substring", "trim", "upperAscii"))
_REORDERED_LISTS = frozenset(("distinct", "flatten", "reverse", "sort"))
_KEEPS_SIZE = _PARTS_OF_TEXTS | _REORDERED_LISTS
"""Functions with a result that counts as large as the target."""


def estimate(checked: Checked) -> int:
    """Return the highest cost of a checked selector on any device."""
    return _Estimator(checked).visit(checked.root)


class _Estimator:
    def __init__(self, checked: Checked) -> None:
        self._types = checked.types
        self._functions = checked.functions
        self._values: dict[Node, _Value] = {}
        self._variables: dict[str, _Value] = {}

    def visit(self, node: Node) -> int:
        """Return the cost of a node, and record the size of its value."""
        cost, value = _VISITS[type(node)](self, node)
        kind = self._types.get(node, t.DYN)
        while t.is_optional(kind):
            kind = kind.params[0]
        self._values[node] = _ONE if value == _UNKNOWN and kind.kind in _SCALARS else value
        return cost

    def _visit_in_scope(self, node: Node | None, variables: Mapping[str, _Value]) -> int:
        if node is None:
            return 0
        outer = self._variables
        self._variables = {**outer, **variables}
        cost = self.visit(node)
        self._variables = outer
        return cost

    def _literal(self, node: Literal) -> _Estimate:
        return 0, _Value(len(node.value) if isinstance(node.value, str | bytes) else 1)

    def _ident(self, node: Ident) -> _Estimate:
        return 1, self._variables.get(node.name, _Value(0) if self._types[node] == t.DEVICE else _UNKNOWN)

    def _select(self, node: Select) -> _Estimate:
        if node in self._functions:
            return 1, _UNKNOWN
        cost = self.visit(node.operand)
        if node.test:
            return cost, _ONE
        if node.optional:
            return cost + 1, _UNKNOWN
        operand = self._types[node.operand]
        if operand == t.DEVICE:
            return cost + 1, _DEVICE.get(node.field, _ONE)
        # The API server has no sizes for a domain that is a field, as in device.attributes.domain.
        domain = self._values[node.operand]
        is_attribute = domain == _ATTRIBUTES
        return cost + (operand.kind in ("map", "param")), _Value(MAX_ATTRIBUTE_VALUE) if is_attribute else _UNKNOWN

    def _logic(self, node: Logic) -> _Estimate:
        return sum(map(self.visit, node.terms)), _ONE

    def _list(self, node: ListLiteral) -> _Estimate:
        cost = _LIST + sum(map(self.visit, node.elements))
        return cost, _Value(len(node.elements), entry=self._largest(node.elements))

    def _map(self, node: MapLiteral) -> _Estimate:
        keys, values = [entry[0] for entry in node.entries], [entry[1] for entry in node.entries]
        cost = _MAP + sum(map(self.visit, (*keys, *values)))
        return cost, _Value(len(keys), self._largest(keys), self._largest(values))

    def _largest(self, nodes: Sequence[Node]) -> _Value:
        return _Value(max((self._values[node].size for node in nodes), default=0))

    def _bind(self, node: Bind) -> _Estimate:
        cost = _LIST + self.visit(node.value)
        cost += self._visit_in_scope(node.body, {node.name: self._values[node.value]})
        return cost, self._values[node.body]

    def _opt_map(self, node: OptMap) -> _Estimate:
        """Return the estimate of `target.hasValue() ? optional.of(cel.bind(name, target.value(), body)) : ...`."""
        target = self.visit(node.target)
        value = self._values[node.target]
        body = self._visit_in_scope(node.body, {node.name: value if value == _ONE else _UNKNOWN})
        return 2 * (target + 1) + _LIST + body + (not node.flat), _UNKNOWN

    def _comprehension(self, node: Comprehension) -> _Estimate:
        cost = self.visit(node.target)
        target = self._values[node.target]
        is_list = self._types[node.target].kind == "list"
        key, entry = _ONE if is_list else target.key or _UNKNOWN, target.entry or _UNKNOWN
        values = (key, entry) if len(node.variables) == 2 or not is_list else (entry,)
        variables = dict(zip(node.variables, values, strict=False))
        setup, step = _SETUP_AND_STEP[node.kind]
        step += self._visit_in_scope(node.predicate, variables) + self._visit_in_scope(node.body, variables)
        if node.kind == "sortBy":
            step += 2 * target.size
        if node.kind in ("all", "exists", "exists_one"):
            result = _ONE
        else:
            body = self._values[node.body] if node.body and node.kind in ("map", "transformList") else _UNKNOWN
            result = _Value(target.size, entry=_Value(body.size))
        return cost + setup + target.size * step, result

    def _call(self, node: Call) -> _Estimate:
        name = self._functions.get(node, node.function).removeprefix(".")
        nodes = node.args if node.target is None or node in self._functions else [node.target, *node.args]
        costs = [self.visit(argument) for argument in nodes]
        values = [self._values[argument] for argument in nodes]
        if name == "_?_:_":
            return costs[0] + max(costs[1:]), _larger(*values[1:])
        cost, result = self._function(node, name, nodes, values)
        return sum(costs) + cost, result

    def _function(self, node: Call, name: str, nodes: Sequence[Node], values: Sequence[_Value]) -> _Estimate:
        """Return the estimate of a call without the cost of its arguments."""
        sizes = [value.size for value in values]
        subject = self._types[nodes[0]] if nodes else t.DYN
        if name == "_[_]":
            return 1, values[0].entry or _UNKNOWN
        if name == "dyn":
            return 1, values[0]
        if name == "_+_" and self._types[node].kind not in _SCALARS:
            size = sum(sizes)
            return 1 if subject.kind == "list" else _read(size), replace(_larger(*values), size=size)
        if name in _TEXTS and (t.is_dyn(subject) or {subject.kind, name} == _TEXTS):
            return _read(sizes[0]), _Value(sizes[0] * _UTF8_BYTES if name == "bytes" else sizes[0])
        if name == "@in":
            return 1 if self._types[nodes[1]].kind == "map" else sizes[1], _ONE
        if name == "lists.range":
            count = _number(nodes[0], _UNLIMITED)
            return _copy(count), _Value(count)
        if name == "slice":
            count = max(_number(nodes[2], sizes[0]) - _number(nodes[1], 0), 0)
            return _copy(count), _Value(count)
        if name in _AGGREGATES:
            elements = subject.params[0].kind if subject.params else ""
            return _read(sizes[0]) if not elements else sizes[0] * (_UNLIMITED if elements in _TEXTS else 1), _UNKNOWN
        is_constant = name not in _COSTS or (subject in _PARSED and name in ("_==_", "ip"))
        cost = 1 if is_constant else _COSTS[name](*sizes)
        return cost, _Value(sizes[0]) if name in _KEEPS_SIZE else _UNKNOWN


def _number(node: Node, default: int) -> int:
    return node.value if isinstance(node, Literal) and isinstance(node.value, int) else default


def _larger(*values: _Value) -> _Value:
    """Return a value that is at least as large as each of the values."""
    keys, entries = [value.key for value in values], [value.entry for value in values]
    return _Value(max(value.size for value in values), _largest_known(keys), _largest_known(entries))


def _largest_known(values: Sequence[_Value | None]) -> _Value | None:
    sizes = [value.size for value in values if value]
    return _Value(max(sizes)) if len(sizes) == len(values) else None


_VISITS: dict[type, Callable[[_Estimator, Any], _Estimate]] = {
    Literal: _Estimator._literal,
    Ident: _Estimator._ident,
    Select: _Estimator._select,
    Call: _Estimator._call,
    Logic: _Estimator._logic,
    ListLiteral: _Estimator._list,
    MapLiteral: _Estimator._map,
    Comprehension: _Estimator._comprehension,
    Bind: _Estimator._bind,
    OptMap: _Estimator._opt_map,
}
