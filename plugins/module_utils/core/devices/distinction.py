# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Selectors that separate one kind of device of a node from others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .device import Attribute, Device, split_name
from .selector import SelectorError, compile_selector
from .semver import Semver

_ESCAPES = {'"': '\\"', "\\": "\\\\"}


def distinguish(kind: Device, others: Sequence[Device]) -> str | None:
    """Return a selector that matches `kind` and none of `others`; None when nothing that they publish separates them.

    What a driver publishes equals the attributes of a class, and may have more attributes and larger capacities. So a
    value that differs is preferred to one that is absent, and a capacity is compared with the larger one as the bound.
    """
    for other in others:
        for text in _candidates(kind, other):
            if distinguishes(text, kind, others):
                return text
    parts: list[str] = []
    for other in others:
        if any(distinguishes(part, kind, (other,)) for part in parts):
            continue
        part = next((text for text in _candidates(kind, other) if distinguishes(text, kind, (other,))), None)
        if part is None:
            return None
        parts.append(part)
    text = " && ".join(parts)
    return text if parts and distinguishes(text, kind, others) else None


def distinguishes(text: str, kind: Device, others: Sequence[Device]) -> bool:
    """Return whether a selector matches `kind` and none of `others`."""
    try:
        selector = compile_selector(text)
    except SelectorError:
        return False
    verdicts = [selector.evaluate(device) for device in (kind, *others)]
    # Kubernetes allocates nothing from a node where a selector fails on a device.
    if any(verdict.error for verdict in verdicts):
        return False
    return verdicts[0].match and not any(verdict.match for verdict in verdicts[1:])


def _candidates(kind: Device, other: Device) -> Iterator[str]:
    """Return selectors that may separate a kind from another one, the most reliable first."""
    if kind.driver != other.driver:
        yield f"device.driver == {_literal(kind.driver)}"
    common = sorted(set(kind.attributes) & set(other.attributes))
    for name in common:
        yield _equals(name, kind.attributes[name], kind.driver)
    for name in sorted(set(kind.capacity) & set(other.capacity)):
        mine, its = kind.capacity[name], other.capacity[name]
        where = _value("capacity", name, kind.driver)
        if mine > its:
            yield f"{_has('capacity', name, kind.driver)} && {where}.compareTo(quantity({_literal(str(mine))})) >= 0"
        elif mine < its:
            yield f"{_has('capacity', name, kind.driver)} && {where}.compareTo(quantity({_literal(str(its))})) < 0"
    for name in sorted(set(kind.attributes) - set(other.attributes)):
        yield _equals(name, kind.attributes[name], kind.driver)
    for name in sorted(set(other.attributes) - set(kind.attributes)):
        yield f"!({_equals(name, other.attributes[name], other.driver)})"
    for name in sorted(set(kind.capacity) - set(other.capacity)):
        yield _has("capacity", name, kind.driver)
    for name in sorted(set(other.capacity) - set(kind.capacity)):
        yield f"!({_has('capacity', name, other.driver)})"


def _equals(name: str, value: Attribute, driver: str) -> str:
    where = _value("attributes", name, driver)
    if isinstance(value, Semver):
        same = f"{where}.compareTo(semver({_literal(str(value))})) == 0"
    elif isinstance(value, bool):
        same = f"{where} == {'true' if value else 'false'}"
    elif isinstance(value, int):
        same = f"{where} == {value}"
    else:
        same = f"{where} == {_literal(value)}"
    return f"{_has('attributes', name, driver)} && {same}"


def _has(part: str, name: str, driver: str) -> str:
    domain, identifier = split_name(name, driver)
    return f"{_literal(identifier)} in device.{part}[{_literal(domain)}]"


def _value(part: str, name: str, driver: str) -> str:
    domain, identifier = split_name(name, driver)
    return f"device.{part}[{_literal(domain)}][{_literal(identifier)}]"


def _literal(text: str) -> str:
    """Return a text as a string literal of CEL, in printable ASCII."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    if 0x20 <= code < 0x7F:
        return character
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
