# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Kubernetes quantities (`40Gi`, `1.5k`, `12e3`): exact values, with the grammar of `resource.ParseQuantity`.

The grammar is the grammar of k8s.io/apimachinery/pkg/api/resource: a sign, digits with an optional fraction, and one of
the suffixes n u m k M G T P E, Ki Mi Gi Ti Pi Ei or e<exponent>. As in Kubernetes, a suffix without digits is zero
(`Mi`), and `1.` and `.5` are numbers. Values are rounded away from zero to nano units, and the maximum of a binary
quantity is 2^63-1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, total_ordering

from ..text import meant_quantity

MAX_INT64 = 2**63 - 1
MIN_INT64 = -(2**63)
# All numbers of up to 18 digits fit in 64 bits.
_SAFE_DIGITS = 18
_NANO_DIGITS = 9
# Kubernetes accepts exponents of any size, but computations with them fail or take very long.
_MAX_EXPONENT = 999

_GRAMMAR = re.compile(r"([+-]?)([0-9]*)(?:(\.)([0-9]*))?([eEinumkKMGTP]*[+-]?[0-9]*)", re.ASCII)
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_STEP = 1024
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)


class QuantityError(ValueError):
    """Invalid quantity. The message contains the expected format."""


@total_ordering
@dataclass(frozen=True, eq=False)
class Quantity:
    """Exact quantity. It is equal and ordered by value (`1Gi == 1024Mi`), and printed in its original form.

    scale: power of ten of Kubernetes' 64-bit form, None if Kubernetes keeps the number as a decimal of any size. Only
        `as_integer` uses it, comparisons do not.
    """

    text: str
    value: Fraction
    scale: int | None = field(default=0, repr=False)
    # The value in nano units, always an integer. Comparisons of integers are much faster than of fractions.
    _nanos: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_nanos", (self.value * 10**_NANO_DIGITS).numerator)

    @staticmethod
    def parse(text: str) -> Quantity:
        """Parse a quantity. Raise QuantityError with the reason for an invalid text."""
        return _parse(text)

    def as_integer(self) -> int | None:
        """Return the value if Kubernetes has it as a 64-bit integer (`AsInt64`), otherwise None.

        Also None for whole numbers that Kubernetes keeps as decimals, such as `192Ti` or `0.5Gi`.
        """
        if self.scale is None or self.scale < 0 or not MIN_INT64 <= self.value <= MAX_INT64:
            return None
        return int(self.value)

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return self._nanos == other._nanos if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self._nanos < other._nanos

    def __gt__(self, other: Quantity) -> bool:
        return self._nanos > other._nanos

    def __hash__(self) -> int:
        return hash(self._nanos)

    def __add__(self, other: Quantity) -> Quantity:
        return _sum(self, other.value, other.scale)

    def __sub__(self, other: Quantity) -> Quantity:
        return _sum(self, -other.value, other.scale)


def _sum(left: Quantity, right: Fraction, right_scale: int | None) -> Quantity:
    value = left.value + right
    scale: int | None = None
    if left.scale is not None and right_scale is not None:
        scale = _sum_scale(left.value, left.scale, right, right_scale)
    return Quantity(_canonical(value), value, scale)


def _sum_scale(left: Fraction, left_scale: int, right: Fraction, right_scale: int) -> int | None:
    """Return the scale of a sum in Kubernetes' 64-bit form. None if the sum does not fit and becomes a decimal."""
    if right == 0:
        return left_scale
    if left == 0:
        return right_scale
    scale = min(left_scale, right_scale)
    unit = Fraction(10) ** scale
    fits = all(MIN_INT64 <= amount / unit <= MAX_INT64 for amount in (left, right, left + right))
    return scale if fits else None


@lru_cache(maxsize=1024)
def canonical_text(text: str, digits: int = _NANO_DIGITS) -> str:
    """Return a quantity in the form of the API server: `12288Mi` as `12Gi`, `0.5` as `500m`, `1000m` as `1`. Return
    other texts unchanged.

    The result has the format of the text: powers of two, powers of ten, or an exponent. However, a quantity below 1024
    or with a fraction has a decimal suffix, because a binary suffix would round the quantity.

    digits: number of decimal digits. The API server rounds up to them.
    """
    try:
        value = Quantity.parse(text).value
    except QuantityError:
        return text
    match = _GRAMMAR.fullmatch(text)
    if match is None or not value:
        return "0"
    integer, decimals, suffix = match[2].lstrip("0") or "0", match[4] or "", match[5]
    binary, exponent = _interpret(text, suffix)
    if _is_unchanged(integer, decimals, digits, binary=binary, exponent=exponent):
        return text
    nanos = -(-value * 10**digits // 1) * 10 ** (_NANO_DIGITS - digits)
    units = Fraction(nanos, 10**_NANO_DIGITS)
    if binary and units.denominator == 1 and abs(units) >= _STEP:
        return _scaled(units.numerator, 0, _STEP, 10, _BINARY) or text
    if _EXPONENT.fullmatch(suffix):
        number, power = _without_factors(nanos, -_NANO_DIGITS, 1000, 3)
        return f"{number}e{power}" if power else str(number)
    return _scaled(nanos, -_NANO_DIGITS, 1000, 3, _DECIMAL) or text


def _is_unchanged(integer: str, decimals: str, digits: int, *, binary: bool, exponent: int) -> bool:
    """Return True if a quick test of the digits shows that Kubernetes considers a text canonical."""
    number = integer + decimals
    if binary:
        return not decimals and _binary_precision(integer, exponent) >= 0 and bool(int(integer) & 7)
    is_short = _SAFE_DIGITS - len(number) >= 0 and exponent - len(decimals) >= -digits
    return is_short and not (exponent - len(decimals)) % 3 and not number.endswith("000") and number[0] != "0"


def _scaled(number: int, power: int, factor: int, step: int, units: Mapping[str, int]) -> str:
    """Return a number with the suffix of its largest whole unit, "" if it has none."""
    number, power = _without_factors(number, power, factor, step)
    suffix = next((suffix for suffix, exponent in units.items() if exponent == power), None)
    return "" if suffix is None and power else f"{number}{suffix or ''}"


def _without_factors(number: int, power: int, factor: int, step: int) -> tuple[int, int]:
    while not number % factor:
        number, power = number // factor, power + step
    return number, power


def _binary_precision(digits: str, exponent: int) -> int:
    """Return Kubernetes' estimate of the free digits of a binary quantity. It determines if an integer form exists."""
    return 15 - len(digits) - int(exponent * 3 / 10) - 1


def _canonical(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    # Sums of quantities are whole multiples of a nano unit.
    return f"{(value * 10**9).numerator}n"


@lru_cache(maxsize=1024)
def _parse(text: str) -> Quantity:
    match = _GRAMMAR.fullmatch(text)
    if not text or match is None:
        suggestion = meant_quantity(text) or "a number and a suffix such as Mi, Gi, k or M"
        raise QuantityError(f"{text!r} is no quantity: write {suggestion}")
    sign, digits, point, decimals, suffix = match.groups()
    # Kubernetes accepts zeros without other characters, with or without a sign, before it checks the grammar.
    if not digits.strip("0") and not point and not suffix:
        return Quantity(text, Fraction(0))
    binary, exponent = _interpret(text, suffix)
    digits, decimals = digits.lstrip("0") or "0", decimals or ""
    value, scale = _magnitude(text, digits, decimals, binary=binary, exponent=exponent)
    return Quantity(text, -value if sign == "-" else value, scale)


def _interpret(text: str, suffix: str) -> tuple[bool, int]:
    """Return True if a suffix is a power of two, and its exponent."""
    if suffix in _BINARY:
        return True, _BINARY[suffix]
    if suffix in _DECIMAL:
        return False, _DECIMAL[suffix]
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        raise QuantityError(
            f"{text!r} has the unknown suffix {suffix!r}: "
            f"use one of {' '.join((*_BINARY, *filter(None, _DECIMAL)))} or e<n>"
        )
    exponent = int(match.group(1)) if len(suffix) < 12 else _MAX_EXPONENT + 1
    if abs(exponent) > _MAX_EXPONENT:
        raise QuantityError(f"{text!r} has an exponent beyond {_MAX_EXPONENT}")
    return False, exponent


def _magnitude(text: str, digits: str, decimals: str, *, binary: bool, exponent: int) -> tuple[Fraction, int | None]:
    """Return the absolute value and its scale, like the fast and the slow path of `resource.ParseQuantity`."""
    scale = 0
    if binary:
        precision = _binary_precision(digits, exponent) if not decimals else -1
    else:
        scale = exponent
        precision = _SAFE_DIGITS - len(digits) - len(decimals)
    number = Fraction(int(digits + decimals), 10 ** len(decimals))
    value = number * (2**exponent if binary else Fraction(10) ** exponent)
    scale -= len(decimals)
    if precision >= 0 and scale >= -_NANO_DIGITS:
        return value, scale
    if not re.search("[0-9]", text[: len(text) - len(text.lstrip("+-.0123456789"))]):
        raise QuantityError(f"{text!r} has no digits before its suffix")
    nano = value * 10**_NANO_DIGITS
    value = Fraction(-(-nano.numerator // nano.denominator), 10**_NANO_DIGITS)
    return (min(value, Fraction(MAX_INT64)) if binary else value), None
