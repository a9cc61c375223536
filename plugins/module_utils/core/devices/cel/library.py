# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Implementations and costs of the functions in declarations.py.

Costs are the costs of cel-go's `interpreter/runtimecost.go` and of Kubernetes' `library/cost.go`. Functions without an
entry cost 1. Some functions report more work through `spend`, because Kubernetes undercharges them.
"""

# A bool is an int for isinstance. pylint: disable=unidiomatic-typecheck

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..quantity import Quantity
from ..semver import Semver
from . import collections, formats, network, standard, times
from .values import NONE, Duration, Opaque, Optional, UInt, cost_size

Function = Callable[..., Any]
# Function that returns the cost of a call from its arguments, before the call.
Cost = Callable[..., int]

FUNCTIONS: dict[str, Function] = {
    **standard.OPERATORS,
    **standard.CONVERSIONS,
    "size": standard.size,
    "optional.of": lambda value: Optional(True, value),
    "optional.ofNonZeroValue": lambda value: NONE if standard.is_zero(value) else Optional(True, value),
    "optional.none": lambda: NONE,
    "optional.unwrap": standard.unwrap,
    "strings.quote": collections.quote,
    "quantity": standard.parse_with(Quantity.parse),
    "isQuantity": standard.parses_with(Quantity.parse),
    "sign": standard.sign,
    "semver": standard.parse_with(Semver.parse),
    "isSemver": standard.parses_with(Semver.parse),
    "url": network.to_url,
    "isURL": network.is_url,
    "ip": network.to_ip,
    "isIP": network.is_ip,
    "ip.isCanonical": network.ip_is_canonical,
    "cidr": network.to_cidr,
    "isCIDR": network.is_cidr,
    "format.named": formats.format_named,
    **{f"format.{name}": formats.named_format(name) for name in formats.FORMATS},
}

METHODS: dict[str, Function] = {
    **times.PARTS,
    **network.ADDRESS_TESTS,
    **network.URL_PARTS,
    "size": standard.size,
    "contains": collections.string_contains,
    "startsWith": collections.starts_with,
    "endsWith": collections.ends_with,
    "value": standard.optional_value,
    "hasValue": lambda optional: optional.present,
    "first": lambda elements: Optional(True, elements[0]) if elements else NONE,
    "last": lambda elements: Optional(True, elements[-1]) if elements else NONE,
    "unwrapOpt": standard.unwrap,
    "charAt": collections.char_at,
    "lowerAscii": collections.lower_ascii,
    "upperAscii": collections.upper_ascii,
    "trim": collections.trim,
    "split": collections.split,
    "substring": collections.substring,
    "reverse": collections.reverse,
    "slice": collections.slice_list,
    "sort": collections.sort,
    "@sortByAssociatedKeys": collections.sort_by_keys,
    "isSorted": collections.is_sorted,
    "sum": collections.total,
    "min": collections.minimum,
    "max": collections.maximum,
    "compareTo": standard.compare_to,
    "isGreaterThan": standard.is_greater_than,
    "isLessThan": standard.is_less_than,
    "asApproximateFloat": standard.approximate_float,
    "asInteger": standard.as_integer,
    "isInteger": standard.is_integer,
    "add": standard.add_quantity,
    "sub": standard.subtract_quantity,
    "major": lambda version: standard.as_signed(version.major),
    "minor": lambda version: standard.as_signed(version.minor),
    "patch": lambda version: standard.as_signed(version.patch),
    "family": network.family,
    "containsIP": network.contains_ip,
    "containsCIDR": network.contains_cidr,
    "ip": network.cidr_ip,
    "prefixLength": network.prefix_length,
    "masked": network.masked,
    "validate": formats.validate,
}

# Functions with `spend` as their first argument.
SPENDING_FUNCTIONS: dict[str, Function] = {
    "@in": collections.is_in,
    "matches": collections.matches,
    "lists.range": collections.lists_range,
    "sets.contains": collections.sets_contains,
    "sets.equivalent": collections.sets_equivalent,
    "sets.intersects": collections.sets_intersects,
}
SPENDING_METHODS: dict[str, Function] = {
    "matches": collections.matches,
    "find": collections.find,
    "findAll": collections.find_all,
    "replace": collections.replace,
    "join": collections.join,
    "indexOf": collections.index_of,
    "lastIndexOf": collections.last_index_of,
    "flatten": collections.flatten,
    "distinct": collections.distinct,
    "format": formats.format_text,
}

# `sum()` of a list with a known type has this type even for an empty list.
SUM_ZEROS: dict[str, Any] = {"int": 0, "uint": UInt(0), "double": 0.0, "duration": Duration(0)}


def _tenth(size: float) -> int:
    return math.ceil(size * 0.1)


def _traversal(value: Any, *_more: Any) -> int:
    return _tenth(cost_size(value))


def _two_traversals(value: Any, *_more: Any) -> int:
    return math.ceil(cost_size(value) * 0.2)


def _regex(text: Any, pattern: Any, *_more: Any) -> int:
    return _tenth(1 + cost_size(text)) * math.ceil(cost_size(pattern) * 0.25)


def _elements(value: Any, *_more: Any) -> int:
    if type(value) is list and value and type(value[0]) in (str, bytes):
        return len(value) + sum(_tenth(cost_size(element)) for element in value)
    return cost_size(value) if type(value) is list else _tenth(cost_size(value))


def _membership(_value: Any, target: Any) -> int:
    return len(target) if type(target) is list else 1


def _smaller(left: Any, right: Any) -> int:
    return _tenth(min(cost_size(left), cost_size(right)))


def _both(left: Any, right: Any) -> int:
    kind = type(left)
    if kind is str or kind is bytes:
        return _tenth(cost_size(left) + cost_size(right))
    # Kubernetes joins lists without a copy and charges 1. This implementation copies them.
    return 1 + (len(left) + cost_size(right)) // 10 if kind is list else 1


def _self_compare(elements: Any, *_more: Any) -> int:
    factor = 2.1 if elements and type(elements[0]) in (str, bytes) else 2.0
    return int(len(elements) ** 2 * factor) + 11


def _pairs(factor: int) -> Cost:
    return lambda left, right: 1 + len(left) * len(right) * factor


def _network(network_value: Any, argument: Any) -> int:
    text = _tenth(len(argument)) if type(argument) is str else 0
    return math.ceil(2 * cost_size(network_value) * 0.1) + text


def _sliced(_elements: Any, start: int, end: int) -> int:
    return max(end - start, 0) + 11


def _flattened(elements: Any, depth: int = 1) -> int:
    return len(elements) * max(depth, 0) + 11


def _ordered(left: Any, right: Any) -> int:
    kind = type(left)
    return _smaller(left, right) if kind is str or kind is bytes else 1


def _converted(value: Any) -> int:
    return _tenth(len(value)) if type(value) in (str, bytes) else 1


def _reversed(value: Any) -> int:
    return len(value) + 11


FUNCTION_COSTS: dict[str, Cost] = {
    **dict.fromkeys(
        ("quantity", "isQuantity", "semver", "isSemver", "url", "ip", "isIP", "cidr", "isCIDR"), _traversal
    ),
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), _ordered),
    "ip.isCanonical": _two_traversals,
    "strings.quote": _traversal,
    "matches": _regex,
    "@in": _membership,
    "_+_": _both,
    "bytes": _converted,
    "string": lambda value: _tenth(len(value)) if type(value) is bytes else 1,
    "lists.range": lambda _count: 11,
    "sets.contains": _pairs(1),
    "sets.intersects": _pairs(1),
    "sets.equivalent": _pairs(2),
}
METHOD_COSTS: dict[str, Cost] = {
    **dict.fromkeys(("startsWith", "endsWith"), _traversal),
    "contains": lambda text, substring: _tenth(len(text)) * _tenth(len(substring)),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim", "format"), _traversal),
    **dict.fromkeys(("replace", "split"), _two_traversals),
    "join": lambda *_args: 0,
    **dict.fromkeys(("isSorted", "sum", "min", "max", "indexOf", "lastIndexOf"), _elements),
    **dict.fromkeys(("find", "findAll", "matches"), _regex),
    **dict.fromkeys(("sort", "distinct"), _self_compare),
    "@sortByAssociatedKeys": lambda _elements, keys: _self_compare(keys),
    "reverse": _reversed,
    "slice": _sliced,
    "flatten": _flattened,
    **dict.fromkeys(("containsIP", "containsCIDR"), _network),
}


def equality_cost(left: Any, right: Any) -> int:
    """Return the cost of == and !=."""
    kind = type(left)
    if kind is Semver or kind is Opaque or isinstance(left, Quantity):
        return 1
    return _smaller(left, right)
