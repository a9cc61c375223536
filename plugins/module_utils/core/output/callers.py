# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Table of callers: the Secrets with their keys, the age of the keys, and the labels that policies select by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..names import MANAGED_BY_LABEL, RESERVED_PREFIX
from .status_tables import age
from .text_table import lines

_TITLES = ("CALLER", "SECRET", "KEYS", "AGE")
_WIDTH = 72


def table(callers: Iterable[Mapping[str, Any]], now: str) -> list[str]:
    """Return the lines of a table of callers from `core.caller_keys.listed`, or no lines without callers."""
    return lines(_TITLES, [(_cells(caller, now), [_labels(caller["labels"])]) for caller in callers], _WIDTH, "LABELS")


def _cells(caller: Mapping[str, Any], now: str) -> tuple[str, str, str, str]:
    ages = ", ".join(age(entry["made"], now) for entry in caller["entries"])
    return caller["name"], caller["secret"], str(len(caller["entries"])), ages


def _labels(labels: Mapping[str, str]) -> str:
    user_labels = {
        key: labels[key] for key in labels if key != MANAGED_BY_LABEL and not key.startswith(RESERVED_PREFIX)
    }
    return ", ".join(f"{key}={value}" for key, value in sorted(user_labels.items())) or "-"
