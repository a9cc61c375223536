# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Meaning of plain scalars of a manifest: `resolve`.

The rules are those of the Kubernetes reader (sigs.k8s.io/yaml: `resolve.go` of go.yaml.in/yaml/v2, and then JSON):
`yes` and `on` are booleans, `017` and `0o17` are fifteen, `2026-01-01` and `12:30:00` are text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isinf
from typing import Any

_WORDS: Mapping[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_BASED = re.compile(r"([-+]?)0(?:[xX]([0-9a-fA-F]+)|[bB]([01]+)|[oO]?([0-7]+))")
# After a leading point, Go accepts an underscore only between digits.
_SEPARATOR = re.compile(r"(?<=[0-9])_(?=[0-9])")
_MAX_INT_TEXT = 66

PLAIN = re.compile(r'-{0,2}[A-Za-z_/](?:[!-9;-~]++|:(?=[!-~])| ++(?=[!"$-~]))*+')
"""Plain scalars of one line that end with the line. They are printable ASCII, begin with a letter (or with dashes
before it), and contain no sign with a meaning in YAML, such as `: ` and ` #`."""


def resolve(text: str) -> Any:
    """Return the value of a plain scalar as the Kubernetes reader reads it: None, bool, int, float, or str.

    A float without a fraction becomes an int, because Kubernetes converts it to JSON (`2.0` is 2). Infinite values and
    NaN are returned unchanged. As in Kubernetes, decimal integers beyond 64 bits become floats.
    """
    if text in _WORDS:
        return _WORDS[text]
    sign = text[0]
    if sign not in "+-.0123456789":
        return text
    plain = _SEPARATOR.sub("", text) if sign == "." else text.replace("_", "")
    value = _integer(plain) if sign != "." else None
    if value is not None:
        return value
    if not _FLOAT.fullmatch(plain):
        return text
    number = float(plain)
    if isinf(number):
        return text
    return int(number) if number.is_integer() and abs(number) < 2**63 else number


def _integer(text: str) -> int | None:
    if len(text) > _MAX_INT_TEXT:
        return None
    if _DECIMAL.fullmatch(text):
        value = int(text)
    else:
        based = _BASED.fullmatch(text)
        if based is None:
            return None
        sign, hexadecimal, binary, octal = based.groups()
        value = int(hexadecimal or binary or octal, 16 if hexadecimal else 2 if binary else 8)
        value = -value if sign == "-" else value
    return value if -(2**63) <= value < 2**64 else None
