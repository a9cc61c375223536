# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Durations and timestamps: their texts (Go's `time` package) and the functions of CEL on them."""

# A bool is an int for isinstance. pylint: disable=unidiomatic-typecheck

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

from .values import NANOS, CelError, Duration, Timestamp, as_duration, as_timestamp

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": NANOS, "m": 60 * NANOS, "h": 3600 * NANOS}
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))",
    re.ASCII,
)
_EPOCH = date(1970, 1, 1).toordinal()
_DAY = 24 * 3600


def parse_duration(text: str) -> Duration:
    """Return a duration in the format of Go's `time.ParseDuration`: `1h30m`, `-1.5s`, `0`."""
    unsigned = text[1:] if text[:1] in ("+", "-") and text else text
    failure = CelError(f"{text[:40]!r} is no duration: write numbers with units, such as 1h30m or 1.5s")
    if unsigned == "0":
        return Duration(0)
    if not unsigned:
        raise failure
    nanos = pos = 0
    while pos < len(unsigned):
        match = _PART.match(unsigned, pos)
        if match is None or not (match.group(1) or match.group(2)):
            raise failure
        integer, fraction, unit = match.groups()
        if len(integer) > 20:
            raise failure
        nanos += int(integer or 0) * _UNITS[unit]
        if fraction:
            # Further digits are smaller than a nanosecond, even in hours.
            nanos += int(fraction[:18]) * _UNITS[unit] // 10 ** len(fraction[:18])
        pos = match.end()
    return as_duration(-nanos if text.startswith("-") else nanos)


def duration_text(duration: Duration) -> str:
    """Return a duration in the format of CEL: seconds, with the digits that a double needs."""
    nanos = abs(duration.nanos)
    seconds = float(nanos // NANOS) + (nanos % NANOS) / 1e9
    text = format(Decimal(repr(seconds)), "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"{'-' if duration.nanos < 0 else ''}{text}s"


def parse_timestamp(text: str) -> Timestamp:
    """Return a timestamp that Go accepts as RFC 3339."""
    failure = CelError(f"{text[:40]!r} is no timestamp: write one such as 2026-01-31T12:00:00Z")
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise failure
    year, month, day, hour, minute, second = (int(match.group(index)) for index in range(1, 7))
    sign, offset_hours, offset_minutes = match.group(8), int(match.group(9) or 0), int(match.group(10) or 0)
    if hour > 23 or minute > 59 or second > 59 or offset_hours > 24 or offset_minutes > 59:
        raise failure
    try:
        days = date(year, month, day).toordinal() - _EPOCH
    except ValueError as error:
        raise failure from error
    offset = (offset_hours * 60 + offset_minutes) * 60 * (-1 if sign == "-" else 1)
    seconds = days * _DAY + hour * 3600 + minute * 60 + second - offset
    fraction = int((match.group(7) or "")[:9].ljust(9, "0"))
    return as_timestamp(seconds * NANOS + fraction, offset)


def timestamp_text(timestamp: Timestamp) -> str:
    """Return a timestamp in RFC 3339, with the required number of digits of a second."""
    local = timestamp.nanos + timestamp.offset * NANOS
    days, day_nanos = divmod(local, _DAY * NANOS)
    second, nanos = divmod(day_nanos, NANOS)
    fraction = f".{nanos:09d}".rstrip("0").rstrip(".")
    day = _date(days)
    minutes = abs(timestamp.offset) // 60
    zone = f"{'-' if timestamp.offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}" if timestamp.offset else "Z"
    return f"{day}T{second // 3600:02d}:{second % 3600 // 60:02d}:{second % 60:02d}{fraction}{zone}"


def _date(days: int) -> date:
    try:
        return date.fromordinal(days + _EPOCH)
    except ValueError as error:
        raise CelError("timestamp overflow") from error


_OFFSET = re.compile(r"([+-]?[0-9]+):([+-]?[0-9]+)", re.ASCII)
_UTC = frozenset(("", "UTC", "GMT", "Etc/UTC", "Z", "Zulu", "Etc/GMT", "Universal"))


def _zone_offset(name: str) -> int:
    """Return the offset in seconds east of UTC. Other names than UTC require a zone database, and are not supported."""
    match = _OFFSET.fullmatch(name)
    if match is not None:
        hours, minutes = (int(group[:6]) for group in match.groups())
        return (hours * 60 - minutes if name.startswith("-") else hours * 60 + minutes) * 60
    if name in _UTC:
        return 0
    raise CelError(f"unknown time zone {name[:40]!r}: use UTC or an offset such as +01:00")


def _local(timestamp: Timestamp, zone: tuple[str, ...]) -> tuple[date, int]:
    """Return the date, and the nanoseconds since its midnight, in a zone. UTC without a zone."""
    offset = _zone_offset(zone[0]) if zone else 0
    days, day_nanos = divmod(timestamp.nanos + offset * NANOS, _DAY * NANOS)
    return _date(days), day_nanos


def _of_date(read: Callable[[date], int]) -> Callable[..., int]:
    return lambda timestamp, *zone: read(_local(timestamp, zone)[0])


def _of_clock(unit: int, modulus: int, total: int) -> Callable[..., int]:
    """Return a function that reads a part of the time of day, or a whole duration in a unit."""

    def read(value: Any, *zone: str) -> int:
        if type(value) is Duration:
            count = abs(value.nanos) // total
            return -count if value.nanos < 0 else count
        return _local(value, zone)[1] // unit % modulus

    return read


PARTS: dict[str, Callable[..., int]] = {
    "getFullYear": _of_date(lambda day: day.year),
    "getMonth": _of_date(lambda day: day.month - 1),
    "getDayOfYear": _of_date(lambda day: day.timetuple().tm_yday - 1),
    "getDate": _of_date(lambda day: day.day),
    "getDayOfMonth": _of_date(lambda day: day.day - 1),
    "getDayOfWeek": _of_date(lambda day: day.isoweekday() % 7),
    "getHours": _of_clock(3600 * NANOS, 24, 3600 * NANOS),
    "getMinutes": _of_clock(60 * NANOS, 60, 60 * NANOS),
    "getSeconds": _of_clock(NANOS, 60, NANOS),
    "getMilliseconds": _of_clock(10**6, 1000, 10**6),
}
