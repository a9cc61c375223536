# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Values of CEL, and their common properties: type, equality, order, and size.

A CEL value is a Python value: null is None, bool bool, int int, uint `UInt`, double float, string str, bytes bytes, a
list a list, and a map a `CelMap`. Other types have a class in this module. The rules are in the CEL specification,
section "Values", and in cel-go's `common/types`. The verdicts of cel-go are decisive.
"""

# A bool is an int for isinstance, and only NaN is unequal to itself.
# pylint: disable=unidiomatic-typecheck,comparison-with-itself

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..quantity import MAX_INT64, MIN_INT64, Quantity
from ..semver import Semver

MAX_UINT64 = 2**64 - 1
NANOS = 10**9
# Years 1 to 9999, in seconds since 1970.
MIN_TIMESTAMP = -62135596800 * NANOS
MAX_TIMESTAMP = 253402300799 * NANOS + NANOS - 1


class CelError(Exception):
    """Failure of an evaluation. && and || ignore it if the other operand decides."""


class CostLimitError(Exception):
    """Evaluation stopped because its cost exceeds the limit. && and || do not ignore this error."""


def no_overload() -> CelError:
    return CelError("no such overload")


Spend = Callable[[int], None]


def free(_cost: int) -> None:
    """Accept work without a charge, as a `Spend` function."""


class UInt(int):
    """64-bit unsigned number, a separate type in CEL."""

    __slots__ = ()


@dataclass(frozen=True, order=True, slots=True)
class Duration:
    """Duration in nanoseconds, within 64 bits."""

    nanos: int


@dataclass(frozen=True, order=True, slots=True)
class Timestamp:
    """Time in nanoseconds since 1970, and its offset from UTC in seconds."""

    nanos: int
    offset: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)


@dataclass(frozen=True, slots=True)
class TypeValue:
    """Type as a value: the result of `type(x)`, and the value of the name of a type."""

    name: str


@dataclass(frozen=True, slots=True)
class Optional:
    """Optional that contains a value or no value."""

    present: bool
    value: Any = None


NONE = Optional(False)


@dataclass(frozen=True, eq=False)
class ComputedQuantity(Quantity):
    """Result of `add` or `sub`.

    Kubernetes keeps it by reference, so comparisons of other values with it by == or != fail: only `sum == other`
    works, not `other == sum`. `compareTo` works in both directions.
    """


class Key:
    """Bool as a key. True equals 1 in Python, but not in CEL."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash((Key, self.value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and other.value is self.value


class CelMap:
    """Map. Numeric keys match across types (`{1: 2}[1u]`), as in Python's dict.

    default: result of an access with a missing key. It does not affect `in`, size, or iteration. Kubernetes has an
        empty map for each unknown domain of a device.
    """

    __slots__ = ("default", "entries")

    def __init__(self, entries: dict[Any, Any], default: CelMap | None = None) -> None:
        self.entries = entries
        self.default = default

    @staticmethod
    def key(value: Any) -> Any:
        """Return the stored form of a key. Raise CelError for a value that cannot be a key."""
        kind = type(value)
        if kind is str or kind is int or kind is UInt or value is None:
            return value
        if kind is bool:
            return Key(value)
        if kind is float and not math.isnan(value):
            return value
        raise CelError(f"unsupported key type: {type_name(value)}")

    def get(self, key: Any) -> Any:
        """Return the value of a key, `default` for a missing key, MISSING without a default."""
        entry = self.entries.get(key, MISSING)
        return self.default if entry is MISSING and self.default is not None else entry

    def __contains__(self, key: Any) -> bool:
        return key in self.entries

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Any]:
        for key in self.entries:
            yield key.value if type(key) is Key else key


class _Missing:
    __slots__ = ()


MISSING = _Missing()


@dataclass(frozen=True, slots=True)
class Opaque:
    """Value of a library of Kubernetes (address, network, URL, format): the name of its type, and its content."""

    type: str
    content: Any


_TYPE_NAMES: dict[type, str] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    CelMap: "map",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    TypeValue: "type",
    Optional: "optional_type",
    Quantity: "kubernetes.Quantity",
    ComputedQuantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
}


def type_name(value: Any) -> str:
    """Return the name of the type of a value at run time, without parameters."""
    return value.type if type(value) is Opaque else _TYPE_NAMES[type(value)]


def as_int(value: int) -> int:
    if not MIN_INT64 <= value <= MAX_INT64:
        raise CelError("integer overflow")
    return value


def as_uint(value: int) -> UInt:
    if not 0 <= value <= MAX_UINT64:
        raise CelError("unsigned integer overflow")
    return UInt(value)


def as_duration(nanos: int) -> Duration:
    if not MIN_INT64 <= nanos <= MAX_INT64:
        raise CelError("duration overflow")
    return Duration(nanos)


def as_timestamp(nanos: int, offset: int = 0) -> Timestamp:
    if not MIN_TIMESTAMP <= nanos <= MAX_TIMESTAMP:
        raise CelError("timestamp overflow")
    return Timestamp(nanos, offset)


def _equal_numbers(left: float, right: float) -> bool:
    if type(left) is float or type(right) is float:
        return compare_numbers(left, right) == 0 if left == left and right == right else False
    return left == right


_NUMBERS = frozenset((int, UInt, float))
# A comparison of these types with another type is an error. All other values are unequal to other types (cel-go,
# `Equal`).
_STRICT = frozenset((Quantity, ComputedQuantity, Semver, Opaque))


def equal(left: Any, right: Any, spend: Spend = free) -> bool:
    """Evaluate == in CEL: numbers across types, lists and maps by content. Values of different types are unequal.

    spend: function that receives the work on lists and maps. Shared lists can be far larger than their memory.
    """
    kind, other_kind = type(left), type(right)
    if kind is str:
        return other_kind is str and bool(left == right)
    if kind in _NUMBERS:
        return other_kind in _NUMBERS and _equal_numbers(left, right)
    if left is None or right is None:
        return left is right
    if kind in _STRICT:
        if type_name(left) != type_name(right) or other_kind is ComputedQuantity:
            raise no_overload()
        return bool(left == right)
    if kind is not other_kind:
        return False
    if kind is list:
        return len(left) == len(right) and all(
            _equal_parts(left_element, right_element, spend)
            for left_element, right_element in zip(left, right, strict=True)
        )
    if kind is CelMap:
        return _equal_maps(left, right, spend)
    if kind is Optional:
        return left.present == right.present and (not left.present or equal(left.value, right.value, spend))
    return bool(left == right)


def _equal_parts(left: Any, right: Any, spend: Spend) -> bool:
    if type(left) in (list, CelMap):
        spend(1 + len(left) // 10)
    return equal(left, right, spend)


def _equal_maps(left: CelMap, right: CelMap, spend: Spend) -> bool:
    if len(left) != len(right):
        return False
    for key, value in left.entries.items():
        right_value = right.entries.get(key, MISSING)
        if right_value is MISSING or not _equal_parts(value, right_value, spend):
            return False
    return True


def contains(elements: list[Any], value: Any, spend: Spend = free) -> bool:
    """Return True if a list has an element that equals a value. Elements without a valid comparison are unequal."""
    for element in elements:
        try:
            if equal(value, element, spend):
                return True
        except CelError:
            continue
    return False


def compare_numbers(left: float, right: float) -> int:
    """Return -1, 0 or 1. An integer is compared with a double as a double, unless the double exceeds the integer
    range."""
    if type(left) is float or type(right) is float:
        if left != left or right != right:
            raise CelError("NaN values cannot be ordered")
        if type(left) is not float and math.isfinite(right) and MIN_INT64 <= right <= MAX_UINT64:
            left = float(left)
        elif type(right) is not float and math.isfinite(left) and MIN_INT64 <= left <= MAX_UINT64:
            right = float(right)
    return (left > right) - (left < right)


_ORDERED = frozenset((bool, str, bytes, Duration, Timestamp))


def compare(left: Any, right: Any) -> int:
    """Return the order of two values in CEL: -1, 0 or 1. Raise CelError for types without an order, and for different
    types other than numbers."""
    kind, other_kind = type(left), type(right)
    if kind in _NUMBERS and other_kind in _NUMBERS:
        return compare_numbers(left, right)
    if kind is not other_kind or kind not in _ORDERED:
        raise no_overload()
    if kind is str and not (left.isascii() and right.isascii()):
        left, right = left.encode("utf-8", "surrogatepass"), right.encode("utf-8", "surrogatepass")
    return int(left > right) - int(left < right)


def is_comparable(value: Any) -> bool:
    return type(value) in _NUMBERS or type(value) in _ORDERED


_SIZED: frozenset[type] = frozenset((str, bytes, list, CelMap))


def cost_size(value: Any) -> int:
    """Return the size that determines the cost of work on a value: the size of strings, lists, and maps, 1 for
    others."""
    kind = type(value)
    if kind in _SIZED:
        return len(value)
    if kind is Optional and value.present:
        return cost_size(value.value)
    if kind is Opaque and value.type.startswith("net."):
        size: Callable[[], int] = value.content.cost_size
        return size()
    return 1
