# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Highest cost of an expression on any device, as the API server estimates it before it accepts a selector.

The rules are those of cel-go's `checker/cost.go` and `ext/`, of k8s.io/apiserver/pkg/cel/library/cost.go, and of the
size estimator in k8s.io/dynamic-resource-allocation/cel/compile.go. Macros are not expanded here, so that their costs
include what cel-go's expansions add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.cel import types as t
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.cel.ast import (
    Bind,
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    Logic,
    MapLiteral,
    Node,
    OptMap,
    Select,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.cel.checker import Checked
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.cel.declarations import Overload
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.limits import (
    MAX_ATTRIBUTE_VALUE,
    MAX_ATTRIBUTES_AND_CAPACITIES,
    MAX_DOMAIN,
    MAX_DRIVER,
    MAX_ID,
)

_MOST = 2**64 - 1
_TRAVERSAL = 0.1
_REGEX = 0.25
_LIST = 10
_MAP = 30
_FORMAT_REGEX = 128
_FORMAT_SIZE = 64

Size = tuple[int, int]
"""Least and most characters or entries."""
_UNKNOWN: Size = (0, _MOST)
_ONE: Size = (1, 1)
_SCALARS = frozenset(("bool", "double", "duration", "int", "timestamp", "uint"))
_CONSTANT = frozenset(
    [
        "sign",
        "asInteger",
        "isInteger",
        "asApproximateFloat",
        "isGreaterThan",
        "isLessThan",
        "compareTo",
        "add",
        "sub",
        "major",
        "minor",
        "patch",
        "getScheme",
        "getHostname",
        "getHost",
        "getPort",
        "getEscapedPath",
        "getQuery",
        "masked",
        "prefixLength",
        "family",
        "isUnspecified",
        "isLoopback",
        "isLinkLocalMulticast",
        "isLinkLocalUnicast",
        "isGlobalUnicast",
        "format.named",
    ]
)
_TRAVERSED_ARGUMENT = frozenset(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"))
_COMPARED = frozenset(("_==_", "_!=_"))
_ORDERED = frozenset(("_<_", "_<=_", "_>_", "_>=_"))
_TEXTS = frozenset(("string", "bytes"))

# Sizes of what a device has, by path: the most keys of maps, characters of texts and keys.
_SIZES: Mapping[tuple[str, ...], int] = {
    ("driver",): MAX_DRIVER,
    ("allowMultipleAllocations",): 1,
    **{
        (part, *path): size
        for part in ("attributes", "capacity")
        for path, size in {
            (): MAX_ATTRIBUTES_AND_CAPACITIES,
            ("@keys",): MAX_DOMAIN,
            ("@values",): MAX_ATTRIBUTES_AND_CAPACITIES,
            ("@items",): MAX_ATTRIBUTES_AND_CAPACITIES,
            ("@values", "@keys"): MAX_ID,
            ("@items", "@keys"): MAX_ID,
            ("@values", "@values"): MAX_ATTRIBUTE_VALUE if part == "attributes" else 0,
            ("@items", "@values"): MAX_ATTRIBUTE_VALUE if part == "attributes" else 0,
        }.items()
    },
}


def estimate(checked: Checked) -> int:
    """Return the highest cost of a checked expression."""
    return _Estimator(checked).cost(checked.root)


def _plus(*numbers: int) -> int:
    return min(sum(numbers), _MOST)


def _times(one: int, other: int) -> int:
    return min(one * other, _MOST)


def _scaled(size: int, factor: float) -> int:
    return min(ceil(float(size) * factor), _MOST)


def _add(one: Size, other: Size) -> Size:
    return _plus(one[0], other[0]), _plus(one[1], other[1])


def _multiply(one: Size, other: Size) -> Size:
    return _times(one[0], other[0]), _times(one[1], other[1])


def _union(one: Size, other: Size) -> Size:
    return min(one[0], other[0]), max(one[1], other[1])


@dataclass(frozen=True)
class _Entry:
    """Sizes of the keys (or indexes) and the values of a list or a map."""

    kind: str
    key: Size
    value: Size


def _joined(one: _Entry | None, other: _Entry | None) -> _Entry | None:
    if one is None or other is None:
        return None
    return _Entry(one.kind, _union(one.key, other.key), _union(one.value, other.value))


@dataclass(frozen=True)
class _Variable:
    path: tuple[str, ...] = ()
    size: Size | None = None
    entry: _Entry | None = None


_Estimate = tuple[int, Size | None]  # pylint: disable=unsupported-binary-operation
"""Cost of a call without its arguments, and the size of its result."""


class _Estimator:
    def __init__(self, checked: Checked) -> None:
        self._types = checked.types
        self._overloads = checked.overloads
        self._functions = checked.functions
        self._paths: dict[Node, tuple[str, ...]] = {}
        self._sizes: dict[Node, Size] = {}
        self._entries: dict[Node, _Entry] = {}
        self._variables: dict[str, _Variable] = {}

    def cost(self, node: Node) -> int:
        return _COSTS[type(node)](self, node)

    # Sizes

    def _size(self, node: Node) -> Size:
        return self._known_size(node) or _UNKNOWN

    def _known_size(self, node: Node) -> Size | None:
        found = self._sizes.get(node) or _literal_size(node)
        if found is None:
            most = self._device_size(self._path(node))
            if most is not None:
                found = self._sizes[node] = (0, most)
        if found is None and self._is_scalar(self._types.get(node)):
            found = _ONE
        if found is None and isinstance(node, Ident) and node.name in self._variables:
            found = self._variables[node.name].size
        return found

    @staticmethod
    def _is_scalar(given: t.Type | None) -> bool:
        while given is not None and t.is_optional(given):
            given = given.params[0]
        return given is not None and given.kind in _SCALARS

    @staticmethod
    def _device_size(path: tuple[str, ...]) -> int | None:
        if not path or path[0] != "device":
            return None
        found = _SIZES.get(path[1:]) if len(path) > 1 else 0
        if found is None and len(path) == 4 and path[1] == "attributes" and path[3][0] != "@":
            found = MAX_ATTRIBUTE_VALUE if path[2] in ("@values", "@items") else None
        return found

    def _path(self, node: Node) -> tuple[str, ...]:
        if isinstance(node, Ident) and node.name in self._variables:
            return self._variables[node.name].path
        return self._paths.get(node, ())

    def _entry(self, node: Node) -> _Entry | None:
        found = self._entries.get(node)
        if found is None and isinstance(node, Ident) and node.name in self._variables:
            return self._variables[node.name].entry
        return found

    def _set_size(self, node: Node, size: Size | None) -> None:
        if size is not None:
            self._sizes[node] = size

    def _set_entry(self, node: Node, entry: _Entry | None) -> None:
        if entry is not None:
            self._entries[node] = entry

    @contextmanager
    def _scope(self, variables: Mapping[str, _Variable]) -> Iterator[None]:
        before = self._variables
        self._variables = {**before, **variables}
        yield
        self._variables = before

    # Nodes

    def _literal(self, _node: Literal) -> int:
        return 0

    def _ident(self, node: Ident) -> int:
        if node.name not in self._variables:
            self._paths[node] = (node.name.removeprefix("."),)
        return 1

    def _select(self, node: Select) -> int:
        if node in self._functions:
            return 1
        cost = self.cost(node.operand)
        if node.optional:
            return _plus(cost, 1)
        if node.test:
            return cost
        operand = self._types[node.operand]
        self._paths[node] = (*self._path(node.operand), node.field)
        return _plus(cost, operand.kind in ("map", "param") or operand == t.DEVICE)

    def _logic(self, node: Logic) -> int:
        return _plus(*map(self.cost, node.terms))

    def _list(self, node: ListLiteral) -> int:
        cost = _plus(_LIST, *map(self.cost, node.elements))
        self._entries[node] = _Entry("list", _ONE, self._sizes_of(node.elements))
        return cost

    def _map(self, node: MapLiteral) -> int:
        cost = _plus(_MAP, *(_plus(self.cost(key), self.cost(value)) for key, value, __ in node.entries))
        keys, values = [entry[0] for entry in node.entries], [entry[1] for entry in node.entries]
        self._entries[node] = _Entry("map", self._sizes_of(keys), self._sizes_of(values))
        return cost

    def _sizes_of(self, nodes: Sequence[Node]) -> Size:
        sizes = [self._size(node) for node in nodes]
        return (min(size[0] for size in sizes), max(size[1] for size in sizes)) if sizes else (0, 0)

    def _bind(self, node: Bind) -> int:
        return _plus(
            _LIST, self._bound(node, node.name, self.cost(node.value), self._variable_of(node.value), node.body)
        )

    def _variable_of(self, node: Node) -> _Variable:
        return _Variable(self._path(node), self._known_size(node), self._entry(node))

    def _bound(self, node: Node, name: str, value_cost: int, value: _Variable, body: Node) -> int:
        with self._scope({name: value}):
            cost = self.cost(body)
            size, entry = self._known_size(body), self._entry(body)
        self._set_size(node, size)
        self._set_entry(node, entry)
        return _plus(value_cost, cost)

    def _opt_map(self, node: OptMap) -> int:
        """target.hasValue() ? optional.of(cel.bind(name, target.value(), body)) : optional.none()."""
        target = self.cost(node.target)
        value = _Variable(size=_ONE if self._is_scalar(self._types.get(node.target)) else None)
        inner = _plus(_LIST, self._bound(node, node.name, _plus(target, 1), value, node.body))
        self._sizes.pop(node, None)
        self._entries.pop(node, None)
        return _plus(target, 1, inner, 0 if node.flat else 1)

    def _comprehension(self, node: Comprehension) -> int:
        target = self.cost(node.target)
        if node.kind == "sortBy":
            return self._sort_by(node, target)
        count = self._size(node.target)
        entry = self._entry(node.target)
        kind = entry.kind if entry else self._types[node.target].kind
        path = self._path(node.target)
        is_list = kind == "list"
        keys = _Variable((*path, "@indices" if is_list else "@keys"), entry.key if entry else None)
        values = _Variable((*path, "@items" if is_list else "@values"), entry.value if entry else None)
        first = keys if len(node.variables) == 2 or not is_list else values
        with self._scope(dict(zip(node.variables, (first, values), strict=False))):
            setup, step = self._loop(node)
        return _plus(target, setup, _times(count[1], step), *self._sized(node, count))

    def _loop(self, node: Comprehension) -> tuple[int, int]:
        """Return the cost of what surrounds a loop, and of one of its steps with its condition."""
        predicate = self.cost(node.predicate) if node.predicate is not None else 0
        if node.kind in ("all", "exists"):
            return 1, _plus(2 if node.kind == "all" else 3, 1, predicate)
        if node.kind == "exists_one":
            return 2, _plus(predicate, 2)
        if node.kind == "filter":
            return _LIST + 1, _plus(predicate, 2 + _LIST + 1)
        body = self.cost(node.body) if node.body is not None else 0
        if node.kind == "transformMap":
            return _MAP + 1, _plus(predicate, 3, body)
        if node.kind == "transformMapEntry":
            return _MAP + 1, _plus(predicate, 2, body)
        return _LIST + 1, _plus(predicate, 2 + _LIST, body)

    def _sized(self, node: Comprehension, count: Size) -> Iterator[int]:
        """Set the sizes of a loop's result. Yields nothing: it has no cost."""
        if node.kind in ("all", "exists", "exists_one"):
            self._sizes[node] = _ONE
        else:
            self._sizes[node] = count
            if node.kind in ("map", "transformList", "filter"):
                value = self._size(node.body) if node.body is not None else _UNKNOWN
                self._entries[node] = _Entry("list", _ONE, _union((0, 0), value))
        yield from ()

    def _sort_by(self, node: Comprehension, target: int) -> int:
        """cel.bind(input, target, input.@sortByAssociatedKeys(input.map(name, key)))."""
        size, entry = self._size(node.target), self._entry(node.target)
        values = _Variable((*self._path(node.target), "@items"), entry.value if entry else None)
        with self._scope({node.variables[0]: values}):
            step = _plus(2 + _LIST, self.cost(node.body) if node.body is not None else 0)
        keys = _plus(1, _LIST + 1, _times(size[1], step))
        key_kind = self._types[node.body].kind if node.body is not None else ""
        sort, __ = _sorted(size, key_kind in _TEXTS or t.is_dyn(self._types[node.body]) if node.body else False)
        self._sizes[node] = _multiply(size, size)
        return _plus(_LIST, target, 1, keys, sort)

    # Calls

    def _call(self, node: Call) -> int:
        name = self._functions.get(node, node.function).removeprefix(".")
        costs = [self.cost(arg) for arg in node.args]
        if name == "dyn":
            self._set_size(node, self._known_size(node.args[0]))
            self._set_entry(node, self._entry(node.args[0]))
            return _plus(1, costs[0])
        target = None if node in self._functions else node.target
        cost = self.cost(target) if target is not None else 0
        if name == "_?_:_":
            self._set_size(node, _union(self._size(node.args[1]), self._size(node.args[2])))
            self._set_entry(node, _joined(self._entry(node.args[1]), self._entry(node.args[2])))
            return _plus(costs[0], max(costs[1:]))
        most, size = 0, None
        for overload in self._overloads.get(node, ()):
            call, result = self._overload(node, name, target, overload)
            most = max(most, call)
            if result is not None:
                size = result if size is None else _union(size, result)
            if name == "_[_]" and overload.args[0].kind in ("list", "map"):
                entry = self._entry(node.args[0])
                size = entry.value if entry else None
                last = "@items" if overload.args[0].kind == "list" else "@values"
                self._paths[node] = (*self._path(node.args[0]), last)
            size = size or self._known_size(node)
        self._set_size(node, size)
        return _plus(cost, most, *costs)

    def _overload(self, node: Call, name: str, target: Node | None, overload: Overload) -> _Estimate:
        args = node.args
        subject = target if target is not None else (args[0] if args else None)
        if name in _CONSTANT:
            return 1, None
        if name in _TRAVERSED_ARGUMENT:
            return _scaled(self._size(args[0])[1], _TRAVERSAL), None
        known = _CALLS.get(name)
        if known is not None and subject is not None:
            found: _Estimate | None = known(self, target, args, overload)
            if found is not None:
                return found
        if name in _COMPARED or (name in _ORDERED and overload.args[0].kind in _TEXTS):
            return self._compared(name, args)
        if name == "_+_" and overload.result.kind in ("string", "bytes", "list"):
            size = _add(self._size(args[0]), self._size(args[1]))
            self._set_entry(node, _joined(self._entry(args[0]), self._entry(args[1])))
            return (1 if overload.result.kind == "list" else _scaled(size[1], _TRAVERSAL)), size
        return 1, None

    def _compared(self, name: str, args: Sequence[Node]) -> _Estimate:
        left, right = self._types[args[0]], self._types[args[1]]
        if name == "_==_" and left == right:
            if left in (t.QUANTITY, t.SEMVER, t.IP, t.CIDR):
                return 1, None
            if left == t.FORMAT:
                return _scaled(_FORMAT_SIZE, _TRAVERSAL), None
            if left == t.URL:
                known = self._known_size(args[1])
                return _scaled(known[1] if known else 1, _TRAVERSAL), None
        return _scaled(min(self._size(args[0])[1], self._size(args[1])[1]), _TRAVERSAL), None

    def _elements(self, node: Node) -> tuple[t.Type, Size] | None:
        """Return the type and the size of the elements of a list; None for other values."""
        given = self._types[node]
        if not given.params:
            return None
        path = self._path(node)
        most = self._device_size((*path, "@items")) if path else None
        return given.params[0], (0, most) if most is not None else _UNKNOWN


def _literal_size(node: Node) -> Size | None:
    if isinstance(node, ListLiteral):
        return (len(node.elements),) * 2
    if isinstance(node, MapLiteral):
        return (len(node.entries),) * 2
    if isinstance(node, Literal):
        size = len(node.value) if isinstance(node.value, str | bytes) else 1
        return size, size
    return None


def _sorted(size: Size, is_text: bool) -> _Estimate:
    squared = _multiply(size, size)
    return _plus(_scaled(squared[1], 2 + _TRAVERSAL if is_text else 2), 1, _LIST), squared


def _whole_number(node: Node, default: int) -> int:
    return node.value if isinstance(node, Literal) and isinstance(node.value, int) else default


_Target = Node | None  # pylint: disable=unsupported-binary-operation


def _traversal(factor: float, *, of_argument: bool = False, keeps_size: bool = True) -> Callable[..., _Estimate | None]:
    def call(self: _Estimator, target: _Target, args: Sequence[Node], _overload: Overload) -> _Estimate | None:
        node = args[0] if of_argument and args else target
        if node is None:
            return None
        size = self._size(node)
        return _scaled(size[1], factor), size if keeps_size else None

    return call


def _aggregate(self: _Estimator, target: _Target, _args: Sequence[Node], _overload: Overload) -> _Estimate | None:
    if target is None:
        return None
    elements = self._elements(target)
    size = self._size(target)[1]
    if elements is None:
        return _scaled(size, _TRAVERSAL), None
    kind, element = elements
    each = _plus(1, _scaled(element[1], _TRAVERSAL)) if kind.kind in _TEXTS else 1
    return _times(size, each), None


def _replace(self: _Estimator, target: _Target, args: Sequence[Node], _overload: Overload) -> _Estimate | None:
    if target is None:
        return None
    size, old, new = self._size(target), self._size(args[0]), self._size(args[1])
    if old[0] == 0:
        most, kept = (_plus(size[1], 1), size[1])
    elif new[1] <= old[0]:
        most, kept = 0, size[1]
    else:
        most, kept = ceil(size[1] / old[0]), 0
    if old[1] == 0:
        least, kept_least = _plus(size[0], 1), size[0]
    elif old[1] <= new[0]:
        least, kept_least = 0, size[0]
    else:
        least, kept_least = ceil(size[0] / old[1]), 0
    result = _add(_multiply((least, most), new), (kept_least, kept))
    return _scaled(size[1], 2 * _TRAVERSAL), result


def _split(self: _Estimator, target: _Target, args: Sequence[Node], _overload: Overload) -> _Estimate | None:
    if target is None:
        return None
    most = self._size(target)[1]
    parts = _whole_number(args[1], most) if len(args) > 1 else most
    return _scaled(most, 2 * _TRAVERSAL), (0, parts % 2**64)


def _join(self: _Estimator, target: _Target, args: Sequence[Node], _overload: Overload) -> _Estimate | None:
    if target is None:
        return None
    count = self._size(target)
    elements = self._elements(target)
    size = _multiply(count, elements[1]) if elements else (0, 0)
    if args:
        size = _add(size, _multiply(self._size(args[0]), (max(count[0] - 1, 0), max(count[1] - 1, 0))))
    return _scaled(size[1], _TRAVERSAL), size


def _find(self: _Estimator, target: _Target, args: Sequence[Node], _overload: Overload) -> _Estimate | None:
    found = _matches(self, target, args, _overload)
    return (found[0], (0, self._size(target)[1])) if found and target is not None else None


def _matches(self: _Estimator, target: _Target, args: Sequence[Node], _overload: Overload) -> _Estimate | None:
    if target is None:
        return None
    text = _scaled(_plus(self._size(target)[1], 1), _TRAVERSAL)
    return _times(text, _scaled(self._size(args[0])[1], _REGEX)), None


def _contains(self: _Estimator, target: _Target, args: Sequence[Node], _overload: Overload) -> _Estimate | None:
    if target is None:
        return None
    sizes = [_scaled(self._size(node)[1], _TRAVERSAL) for node in (target, args[0])]
    return _times(*sizes), None


def _address(self: _Estimator, _target: _Target, args: Sequence[Node], overload: Overload) -> _Estimate | None:
    if overload.args[0] == t.CIDR:
        return 1, None
    return _scaled(self._size(args[0])[1], _TRAVERSAL), None


def _contains_address(compared: int) -> Callable[..., _Estimate | None]:
    def call(self: _Estimator, _target: _Target, args: Sequence[Node], overload: Overload) -> _Estimate | None:
        parsed = _scaled(self._size(args[0])[1], _TRAVERSAL) if overload.args[1] == t.STRING else 0
        return _plus(compared, parsed), None

    return call


def _validate(self: _Estimator, _target: _Target, args: Sequence[Node], _overload: Overload) -> _Estimate | None:
    return _scaled(_scaled(self._size(args[0])[1], _TRAVERSAL), _FORMAT_REGEX * _REGEX), None


def _in(self: _Estimator, _target: _Target, args: Sequence[Node], overload: Overload) -> _Estimate | None:
    return (self._size(args[1])[1], None) if overload.args[1].kind == "list" else None


def _text_of(self: _Estimator, target: _Target, args: Sequence[Node], overload: Overload) -> _Estimate | None:
    size = self._size(args[0]) if args and target is None else None
    if size is None or (overload.args[0].kind, overload.result.kind) not in (("string", "bytes"), ("bytes", "string")):
        return None
    result = (size[0], _times(size[1], 4)) if overload.result.kind == "bytes" else (size[0] // 4, size[1])
    return _scaled(size[1], _TRAVERSAL), result


def _quote(self: _Estimator, _target: _Target, args: Sequence[Node], _overload: Overload) -> _Estimate | None:
    size = self._size(args[0])
    return _scaled(size[1], _TRAVERSAL), (_plus(size[0], 2), _plus(_times(size[1], 2), 2))


def _list_call(size_of: Callable[[_Estimator, _Target, Sequence[Node]], tuple[float, Size]]) -> Callable[..., Any]:
    def call(self: _Estimator, target: _Target, args: Sequence[Node], _overload: Overload) -> _Estimate | None:
        factor, size = size_of(self, target, args)
        return _plus(_scaled(size[1], factor), 1, _LIST), size

    return call


def _slice(self: _Estimator, target: _Target, args: Sequence[Node]) -> tuple[float, Size]:
    most = self._size(target)[1] if target is not None else _MOST
    size = (_whole_number(args[1], most) - _whole_number(args[0], 0)) % 2**64
    return 1, (size, size)


def _sort(self: _Estimator, target: _Target, _args: Sequence[Node], overload: Overload) -> _Estimate | None:
    return _sorted(self._size(target), overload.args[0].params[0].kind in _TEXTS) if target is not None else None


def _sets(factor: float) -> Callable[..., _Estimate | None]:
    def call(self: _Estimator, _target: _Target, args: Sequence[Node], _overload: Overload) -> _Estimate | None:
        size = _multiply(self._size(args[0]), self._size(args[1]))
        return _plus(_scaled(size[1], factor), 1), None

    return call


def _own(self: _Estimator, target: _Target, power: int = 1) -> Size:
    size = self._size(target) if target is not None else _UNKNOWN
    return size if power == 1 else _multiply(size, size)


_CALLS: Mapping[str, Callable[..., _Estimate | None]] = {  # pylint: disable=unsupported-binary-operation
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _aggregate),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _traversal(_TRAVERSAL)),
    "url": _traversal(_TRAVERSAL, of_argument=True),
    "ip.isCanonical": _traversal(2 * _TRAVERSAL, of_argument=True, keeps_size=False),
    "startsWith": _traversal(_TRAVERSAL, of_argument=True, keeps_size=False),
    "endsWith": _traversal(_TRAVERSAL, of_argument=True, keeps_size=False),
    "format": _traversal(_TRAVERSAL, keeps_size=False),
    "replace": _replace,
    "split": _split,
    "join": _join,
    "find": _find,
    "findAll": _find,
    "matches": _matches,
    "contains": _contains,
    "ip": _address,
    "containsIP": _contains_address(_scaled(32, _TRAVERSAL)),
    "containsCIDR": _contains_address(_scaled(32, _TRAVERSAL) + _scaled(16, _TRAVERSAL) + 1),
    "validate": _validate,
    "@in": _in,
    "string": _text_of,
    "bytes": _text_of,
    "strings.quote": _quote,
    "slice": _list_call(_slice),
    "flatten": _list_call(
        lambda self, target, args: (_whole_number(args[0], _MOST) if args else 1, _own(self, target))
    ),
    "lists.range": _list_call(lambda _self, _target, args: (1, (_whole_number(args[0], _MOST) % 2**64,) * 2)),
    "reverse": _list_call(lambda self, target, _args: (1, _own(self, target))),
    "distinct": _list_call(lambda self, target, _args: (2, _own(self, target, 2))),
    "sort": _sort,
    "sets.contains": _sets(1),
    "sets.intersects": _sets(1),
    "sets.equivalent": _sets(2),
}

_COSTS: dict[type, Callable[[_Estimator, Any], int]] = {
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
