# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Operators, conversions, and the rest of CEL's standard library (cel-go's `common/stdlib` and `common/types`)."""

# A bool is an int for isinstance. pylint: disable=unidiomatic-typecheck

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from ..quantity import Quantity
from ..semver import Semver
from .times import duration_text, parse_duration, parse_timestamp, timestamp_text
from .values import (
    CelError,
    CelMap,
    ComputedQuantity,
    Duration,
    Opaque,
    Optional,
    Timestamp,
    TypeValue,
    UInt,
    as_duration,
    as_int,
    as_timestamp,
    as_uint,
    compare,
    no_overload,
    type_name,
)


def _add_times(left: Any, right: Any) -> Any:
    if type(left) is Timestamp:
        if type(right) is not Duration:
            raise no_overload()
        return as_timestamp(left.nanos + right.nanos, left.offset)
    if type(right) is Timestamp:
        return as_timestamp(left.nanos + right.nanos, right.offset)
    if type(right) is not Duration:
        raise no_overload()
    return as_duration(left.nanos + right.nanos)


def _subtract_times(left: Any, right: Any) -> Any:
    if type(left) is Timestamp and type(right) is Timestamp:
        return as_duration(left.nanos - right.nanos)
    if type(right) is not Duration:
        raise no_overload()
    if type(left) is Timestamp:
        return as_timestamp(left.nanos - right.nanos, left.offset)
    return as_duration(left.nanos - right.nanos)


def add(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is Duration or kind is Timestamp:
        return _add_times(left, right)
    if kind is not type(right):
        raise no_overload()
    if kind is int:
        return as_int(left + right)
    if kind is UInt:
        return as_uint(int(left) + int(right))
    if kind is float or kind is str or kind is bytes or kind is list:
        return left + right
    raise no_overload()


def subtract(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is Duration or kind is Timestamp:
        return _subtract_times(left, right)
    if kind is not type(right):
        raise no_overload()
    if kind is int:
        return as_int(left - right)
    if kind is UInt:
        return as_uint(int(left) - int(right))
    if kind is float:
        return left - right
    raise no_overload()


def multiply(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is not type(right):
        raise no_overload()
    if kind is int:
        return as_int(left * right)
    if kind is UInt:
        return as_uint(int(left) * int(right))
    if kind is float:
        return left * right
    raise no_overload()


def divide(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is not type(right):
        raise no_overload()
    if kind is float:
        return _divide_doubles(left, right)
    if kind is not int and kind is not UInt:
        raise no_overload()
    if right == 0:
        raise CelError("division by zero")
    quotient = abs(int(left)) // abs(int(right))
    if kind is UInt:
        return UInt(quotient)
    return as_int(quotient if (left < 0) == (right < 0) else -quotient)


def _divide_doubles(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def modulo(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is not type(right) or (kind is not int and kind is not UInt):
        raise no_overload()
    if right == 0:
        raise CelError("modulus by zero")
    remainder = abs(int(left)) % abs(int(right))
    if kind is UInt:
        return UInt(remainder)
    # Kubernetes rejects the only division with a quotient that does not fit. This applies to the remainder too.
    divide(left, right)
    return -remainder if left < 0 else remainder


def negate(value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return as_int(-value)
    if kind is float:
        return -value
    if kind is Duration:
        return as_duration(-value.nanos)
    raise no_overload()


def invert(value: Any) -> bool:
    if type(value) is not bool:
        raise no_overload()
    return not value


def size(value: Any) -> int:
    if type(value) in (str, bytes, list, CelMap):
        return len(value)
    raise no_overload()


def type_of(value: Any) -> TypeValue:
    return TypeValue(type_name(value))


# Conversions

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_NATURAL = re.compile(r"[0-9]{1,40}", re.ASCII)
_DIGITS = "[0-9]+(?:_[0-9]+)*"
_DOUBLE = re.compile(
    rf"[+-]?({_DIGITS}\.?({_DIGITS})?|\.{_DIGITS})([eE][+-]?{_DIGITS})?|[+-]?inf(inity)?|nan", re.ASCII | re.IGNORECASE
)
_HEX_DOUBLE = re.compile(r"[+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+", re.ASCII)
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def _cannot_convert(value: Any, desired: str) -> CelError:
    excerpt = f" {value!r}" if isinstance(value, str) and len(value) <= 40 else ""
    return CelError(f"type conversion error from '{type_name(value)}'{excerpt} to '{desired}'")


def to_int(value: Any) -> int:
    kind = type(value)
    if kind is int:
        return int(value)
    if kind is UInt:
        return as_int(int(value))
    if kind is float:
        if not -(2.0**63) < value < 2.0**63:
            raise CelError("integer overflow")
        return int(value)
    if kind is Duration:
        return int(value.nanos)
    if kind is Timestamp:
        return int(value.nanos // 10**9)
    if kind is str and _INTEGER.fullmatch(value):
        return as_int(int(value))
    raise _cannot_convert(value, "int")


def to_uint(value: Any) -> UInt:
    kind = type(value)
    if kind is UInt or kind is int:
        return as_uint(value)
    if kind is float:
        if not 0 <= value < 2.0**64:
            raise CelError("unsigned integer overflow")
        return UInt(value)
    if kind is str and _NATURAL.fullmatch(value):
        return as_uint(int(value))
    raise _cannot_convert(value, "uint")


def to_double(value: Any) -> float:
    kind = type(value)
    if kind is float or kind is int or kind is UInt:
        return float(value)
    if kind is str and _DOUBLE.fullmatch(value):
        result = float(value)
        if not math.isinf(result) or "inf" in value.lower():
            return result
    elif kind is str and _HEX_DOUBLE.fullmatch(value):
        try:
            return float.fromhex(value)
        except OverflowError:
            pass
    raise _cannot_convert(value, "double")


def to_bool(value: Any) -> bool:
    if type(value) is bool:
        return bool(value)
    if type(value) is str and value in _TRUE | _FALSE:
        return value in _TRUE
    raise _cannot_convert(value, "bool")


def to_bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return bytes(value)
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass")
    raise _cannot_convert(value, "bytes")


def double_text(value: float) -> str:
    """Return a double in the format of Go's %g."""
    if math.isinf(value) or math.isnan(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + int(exponent) if text != "0" else 1
    prefix = "-" if sign else ""
    if not -4 <= point - 1 < 6:
        return _scientific(prefix, text, point - 1)
    if point <= 0:
        return f"{prefix}0.{'0' * -point}{text}"
    if point >= len(text):
        return prefix + text + "0" * (point - len(text))
    return f"{prefix}{text[:point]}.{text[point:]}"


def _scientific(prefix: str, digits: str, exponent: int) -> str:
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{prefix}{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def to_string(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is UInt:
        return str(int(value))
    if kind is float:
        return double_text(value)
    if kind is bytes:
        try:
            return bytes(value).decode()
        except UnicodeDecodeError as error:
            raise CelError("invalid UTF-8 in bytes, cannot convert to string") from error
    if kind is Duration:
        return duration_text(value)
    if kind is Timestamp:
        return timestamp_text(value)
    if kind is Opaque and value.type.startswith("net."):
        return str(value.content)
    raise _cannot_convert(value, "string")


def to_duration(value: Any) -> Duration:
    if type(value) is Duration:
        return value
    if type(value) is str:
        return parse_duration(value)
    raise _cannot_convert(value, "google.protobuf.Duration")


def to_timestamp(value: Any) -> Timestamp:
    kind = type(value)
    if kind is Timestamp:
        return Timestamp(value.nanos, value.offset)
    if kind is int:
        return as_timestamp(value * 10**9)
    if kind is str:
        return parse_timestamp(value)
    raise _cannot_convert(value, "google.protobuf.Timestamp")


def same(value: Any) -> Any:
    return value


CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "bool": to_bool,
    "bytes": to_bytes,
    "double": to_double,
    "duration": to_duration,
    "dyn": same,
    "int": to_int,
    "string": to_string,
    "timestamp": to_timestamp,
    "type": type_of,
    "uint": to_uint,
}


# Optionals


def is_zero(value: Any) -> bool:
    """Return True if a value is the zero value of its type, or is empty, as in `optional.ofNonZeroValue`."""
    kind = type(value)
    if value is None or kind is bool or kind in (int, UInt, float):
        return not value
    if kind in (str, bytes, list, CelMap):
        return len(value) == 0
    if kind is Duration:
        return bool(value.nanos == 0)
    return False


def optional_value(optional: Optional) -> Any:
    if not optional.present:
        raise CelError("optional.none() dereference")
    return optional.value


def unwrap(optionals: list[Any]) -> list[Any]:
    if any(type(optional) is not Optional for optional in optionals):
        raise CelError("value is not optional")
    return [optional.value for optional in optionals if optional.present]


def _less(left: Any, right: Any) -> bool:
    return compare(left, right) < 0


def _less_equal(left: Any, right: Any) -> bool:
    return compare(left, right) <= 0


def _greater(left: Any, right: Any) -> bool:
    return compare(left, right) > 0


def _greater_equal(left: Any, right: Any) -> bool:
    return compare(left, right) >= 0


OPERATORS: dict[str, Callable[..., Any]] = {
    "_+_": add,
    "_-_": subtract,
    "_*_": multiply,
    "_/_": divide,
    "_%_": modulo,
    "-_": negate,
    "!_": invert,
    "_<_": _less,
    "_<=_": _less_equal,
    "_>_": _greater,
    "_>=_": _greater_equal,
}


# Quantities and versions


def parse_with(parse: Callable[..., Any]) -> Callable[..., Any]:
    """Return a parser of text as a CEL function."""

    def read(text: str, *options: bool) -> Any:
        try:
            return parse(text, *options)
        except ValueError as error:
            raise CelError(str(error)) from error

    return read


def parses_with(parse: Callable[..., Any]) -> Callable[..., bool]:
    """Return a CEL function that returns True if a parser accepts a text."""

    def read(text: str, *options: bool) -> bool:
        try:
            parse(text, *options)
        except ValueError:
            return False
        return True

    return read


def _comparable(left: Any, right: Any) -> None:
    kind = Quantity if isinstance(left, Quantity) else Semver
    if not isinstance(left, kind) or not isinstance(right, kind):
        raise no_overload()


def compare_to(left: Any, right: Any) -> int:
    _comparable(left, right)
    return -1 if left < right else int(left > right)


def is_greater_than(left: Any, right: Any) -> bool:
    _comparable(left, right)
    return bool(left > right)


def is_less_than(left: Any, right: Any) -> bool:
    _comparable(left, right)
    return bool(left < right)


def as_integer(quantity: Quantity) -> int:
    value = quantity.as_integer()
    if value is None:
        raise CelError("cannot convert value to integer")
    return value


def is_integer(quantity: Quantity) -> bool:
    return quantity.as_integer() is not None


def sign(quantity: Quantity) -> int:
    return (quantity.value > 0) - (quantity.value < 0)


def approximate_float(quantity: Quantity) -> float:
    try:
        return float(quantity.value)
    except OverflowError:
        return math.inf if quantity.value > 0 else -math.inf


def _as_quantity(value: Any) -> Quantity:
    return value if isinstance(value, Quantity) else Quantity.parse(str(int(value)))


def _computed(result: Quantity) -> ComputedQuantity:
    return ComputedQuantity(result.text, result.value, result.scale)


def add_quantity(left: Quantity, right: Any) -> Quantity:
    return _computed(left + _as_quantity(right))


def subtract_quantity(left: Quantity, right: Any) -> Quantity:
    return _computed(left - _as_quantity(right))


def as_signed(number: int) -> int:
    """Return a 64-bit unsigned number as a signed number, as Go converts the parts of a version."""
    return number - 2**64 if number >= 2**63 else number
