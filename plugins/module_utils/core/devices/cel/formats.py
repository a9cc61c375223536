# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""`string.format(list)` of cel-go's strings library, version 2, and Kubernetes' named formats."""

# A bool is an int for isinstance. pylint: disable=unidiomatic-typecheck

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import date
from typing import Any

from .network import is_url
from .standard import to_string
from .values import NONE, CelError, CelMap, Duration, Opaque, Optional, Spend, Timestamp, TypeValue, UInt, type_name

_CLAUSE = re.compile(r"%(?:(%)|(?:\.([0-9]+))?(.?))", re.DOTALL)
_PRECISION = 6
# No double has more digits. Go would print zeros instead.
_MAX_PRECISION = 1000

# Types that each clause accepts, for the check before an expression runs. `dyn` fits all clauses.
CLAUSE_TYPES: dict[str, frozenset[str]] = {
    "s": frozenset(
        ("list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null")
    ),
    "d": frozenset(("int", "uint")),
    "f": frozenset(("double", "string")),
    "e": frozenset(("double", "string")),
    "b": frozenset(("int", "uint", "bool")),
    "x": frozenset(("int", "uint", "string", "bytes")),
    "X": frozenset(("int", "uint", "string", "bytes")),
    "o": frozenset(("int", "uint")),
}


def clauses(template: str) -> list[str]:
    """Return the letters of the clauses of a template, in order. Raise CelError for an invalid clause."""
    letters: list[str] = []
    for match in _CLAUSE.finditer(template):
        if not match.group(1):
            if match.group(3) not in CLAUSE_TYPES or not match.group(3):
                raise CelError(f"unrecognized formatting clause {match.group()!r}")
            letters.append(match.group(3))
    return letters


def format_text(spend: Spend, template: str, args: list[Any]) -> str:
    """Return the template with its clauses replaced by the arguments."""
    clauses(template)
    pieces: list[str] = []
    position = index = 0
    for match in _CLAUSE.finditer(template):
        pieces.append(template[position : match.start()])
        position = match.end()
        if match.group(1):
            pieces.append("%")
            continue
        if index >= len(args):
            raise CelError(f"index {index} out of range")
        precision = int(match.group(2)[:5]) if match.group(2) else _PRECISION
        if precision > _MAX_PRECISION:
            raise CelError(f"a precision of {precision} digits is too much")
        text = _clause(spend, match.group(3), args[index], precision)
        spend(len(text) // 10)
        pieces.append(text)
        index += 1
    pieces.append(template[position:])
    return "".join(pieces)


def _clause(spend: Spend, letter: str, value: Any, precision: int) -> str:
    if letter == "s":
        return _plain(spend, value)
    kind = type(value)
    is_integer = kind is int or kind is UInt
    if letter == "d" and is_integer:
        return str(int(value))
    if letter in "fe":
        return _floating(letter, value, precision)
    if letter == "b" and (is_integer or kind is bool):
        return format(int(value), "b")
    if letter == "o" and is_integer:
        return format(int(value), "o")
    if letter in "xX" and (is_integer or kind is str or kind is bytes):
        text = format(int(value), "x") if is_integer else (value.encode() if kind is str else value).hex()
        return text.upper() if letter == "X" else text
    raise CelError(f"clause %{letter} cannot be used on {type_name(value)}")


_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _floating(letter: str, value: Any, precision: int) -> str:
    if type(value) is str and value in ("NaN", "Infinity", "-Infinity"):
        value = float(value)
    if type(value) is not float:
        raise CelError(f"clause %{letter} can only be used on doubles, was given {type_name(value)}")
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if letter == "f":
        # Kubernetes formats for the locale en-US, with commas between thousands.
        return format(value, f",.{precision}f")
    # Kubernetes uses the precision of this clause as a width and always prints six digits.
    mantissa, __, exponent = format(value, f".{_PRECISION}e").partition("e")
    sign = "-" if exponent.startswith("-") else ""
    power = (sign + exponent.lstrip("+-").zfill(2)).translate(_SUPERSCRIPT)
    return f"{mantissa}\u00d710{power}".rjust(precision)


def _plain(spend: Spend, value: Any) -> str:
    """Return the text of the clause %s: lists and maps as CEL literals, other values as in `string()`."""
    spend(1)
    if value is None:
        return "null"
    kind = type(value)
    if kind is list:
        return f"[{', '.join(_literal(spend, element) for element in value)}]"
    if kind is CelMap:
        pairs = sorted((_key(key), _literal(spend, value.get(CelMap.key(key)))) for key in value)
        return "{" + ", ".join(f"{key}:{text}" for key, text in pairs) + "}"
    if kind is TypeValue:
        return str(value.name)
    if kind is Opaque or kind is Optional or type_name(value).startswith("kubernetes."):
        raise CelError(f"string clause cannot be used on {type_name(value)}")
    return to_string(value)


def _key(key: Any) -> str:
    if type(key) is float:
        raise CelError("no formatting function for map key of type double")
    return json.dumps(key, ensure_ascii=False) if type(key) is str else to_string(key)


def _literal(spend: Spend, value: Any) -> str:
    kind = type(value)
    if kind is str:
        return json.dumps(value, ensure_ascii=False)
    if kind is bytes:
        return f"b{json.dumps(to_string(value), ensure_ascii=False)}"
    if kind is float:
        if math.isfinite(value):
            return format(value, f".{_PRECISION}f")
        return '"NaN"' if math.isnan(value) else '"+Inf"' if value > 0 else '"-Inf"'
    if kind is Timestamp or kind is Duration:
        return f"{'timestamp' if kind is Timestamp else 'duration'}({json.dumps(to_string(value))})"
    return _plain(spend, value)


# Named formats. The patterns are constants of this module, so Python's re is safe here. Sources: k8s.io/apimachinery
# util/validation and k8s.io/kube-openapi strfmt.

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS1123_LABEL = re.compile(_LABEL, re.ASCII)
_DNS1123_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
_DNS1035_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_BASE64 = re.compile(
    r"(?:[A-Za-z0-9+\\/]{4})*(?:[A-Za-z0-9+\\/]{2}==|[A-Za-z0-9+\\/]{3}=|[A-Za-z0-9+\\/]{4})", re.ASCII
)
_CLOCK = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))", re.ASCII)
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
_LABEL_LENGTH = 63
_SUBDOMAIN_LENGTH = 253


def _short(pattern: re.Pattern[str], length: int, *, prefix: bool = False) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        if prefix and len(text) > 1 and text.endswith("-"):
            text = text[:-2] + "a"
        return len(text) <= length and pattern.fullmatch(text) is not None

    return test


def _is_qualified_name(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    if slash and not (len(prefix) <= _SUBDOMAIN_LENGTH and _DNS1123_SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= _LABEL_LENGTH and _NAME.fullmatch(name) is not None


def _is_label_value(text: str) -> bool:
    return not text or (len(text) <= _LABEL_LENGTH and _NAME.fullmatch(text) is not None)


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    # Go supports the year 0, Python does not. It is a leap year like the year 4.
    year = int(match.group(1)) or 4
    try:
        date(year, int(match.group(2)), int(match.group(3)))
    except ValueError:
        return False
    return True


def _is_datetime(text: str) -> bool:
    day, *times = text.lower().split("t")
    match = _CLOCK.fullmatch(times[0]) if times else None
    if match is None or not _is_date(day):
        return False
    return match.group(1) <= "23" and match.group(2) <= "59" and match.group(3) <= "59"


FORMATS: dict[str, Callable[[str], bool]] = {
    "dns1123Label": _short(_DNS1123_LABEL, _LABEL_LENGTH),
    "dns1123Subdomain": _short(_DNS1123_SUBDOMAIN, _SUBDOMAIN_LENGTH),
    "dns1035Label": _short(_DNS1035_LABEL, _LABEL_LENGTH),
    "qualifiedName": _is_qualified_name,
    "dns1123LabelPrefix": _short(_DNS1123_LABEL, _LABEL_LENGTH, prefix=True),
    "dns1123SubdomainPrefix": _short(_DNS1123_SUBDOMAIN, _SUBDOMAIN_LENGTH, prefix=True),
    "dns1035LabelPrefix": _short(_DNS1035_LABEL, _LABEL_LENGTH, prefix=True),
    "labelValue": _is_label_value,
    "uri": is_url,
    "uuid": lambda text: _UUID.fullmatch(text) is not None,
    "byte": lambda text: _BASE64.fullmatch(text) is not None,
    "date": _is_date,
    "datetime": _is_datetime,
}


def format_named(name: str) -> Optional:
    return Optional(True, Opaque("kubernetes.NamedFormat", name)) if name in FORMATS else NONE


def named_format(name: str) -> Callable[[], Opaque]:
    return lambda: Opaque("kubernetes.NamedFormat", name)


def validate(format_value: Opaque, text: str) -> Optional:
    """Return an empty optional if the text has the format, otherwise an optional with the error."""
    if FORMATS[format_value.content](text):
        return NONE
    return Optional(True, [f"does not match the format {format_value.content}"])
