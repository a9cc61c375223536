# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Words and numbers of the HTML report."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Literal

HealthKind = Literal["good", "warn", "unknown", "neutral", "bad"]

_STATUSES: Mapping[HealthKind, tuple[str, ...]] = {
    "good": ("Ready", "Serving"),
    # Temporary or intended statuses.
    "warn": ("Degraded", "Deploying", "Held", "Hydrating", "New", "Pending", "Provisioning", "Starting", "Updating"),
    "unknown": ("Unknown", "Unreachable"),
    "neutral": ("Declared", "Leaving", "NotInRun"),
}
_KINDS = {status: kind for kind, statuses in _STATUSES.items() for status in statuses}
_WORST_FIRST: tuple[HealthKind, ...] = ("bad", "unknown", "warn", "neutral", "good")
_SHORT_NAME_CHARACTERS = 12


def health_kind(status: str) -> HealthKind:
    """Return the kind of a status. Unknown statuses are bad, because pods have any number of failure reasons."""
    return _KINDS.get(status, "bad")


def health_rank(status: str) -> int:
    """Return a sort key that puts the worst status first."""
    return _WORST_FIRST.index(health_kind(status))


def number(value: int) -> str:
    """Return a number with separators: `1,000`."""
    return f"{value:,}"


def count(value: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 pod`, `1,000 pods`."""
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


def percent(part: int, whole: int) -> str:
    """Return a share with at most one decimal: `33.3%`. A share above zero is not rounded to zero."""
    thousandths = (2000 * part + whole) // (2 * whole) if whole else 0
    if part and not thousandths:
        return "<0.1%"
    return f"{thousandths // 10}%" if thousandths % 10 == 0 else f"{thousandths // 10}.{thousandths % 10}%"


def gauge_width(part: int, whole: int) -> int:
    """Return the width of the filled part of a gauge, in percent. A part above zero is visible."""
    return min(100, max(1 if part else 0, 100 * part // whole)) if whole else 0


def pods_text(pods: int, devices: Mapping[str, int], copies: int = 1) -> str:
    """Return pods with their devices: `3 × 2 pods each with 8 gpu and 8 nic`.

    devices: number per pod, by device name.
    """
    device_text = " and ".join(f"{number_:,} {name}" for name, number_ in sorted(devices.items()) if number_)
    pod_text = count(pods, "pod") if copies == 1 else f"{copies:,} × {count(pods, 'pod')}"
    if not device_text:
        return f"{pod_text} without devices"
    return f"{pod_text}{' each' if pods * copies > 1 else ''} with {device_text}"


def prose_parts(sentence: str) -> list[str]:
    """Return the parts of a sentence. Parts with odd positions were between backticks."""
    return re.split("`([^`]+)`", sentence)


def short_name(name: str) -> str:
    """Return a name of at most 12 characters. Names in a fleet differ more at their ends than in the middle."""
    limit = _SHORT_NAME_CHARACTERS
    return name if len(name) <= limit else f"{name[: limit // 2 - 2]}…{name[-(limit - limit // 2 + 1) :]}"


def hash_source(source: str) -> str:
    """Return a style or script as `hash-source` of the Content-Security-Policy (CSP level 3)."""
    return f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'"
