# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Selectors that separate one kind of device of a node from other kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .device import Attribute, Device, split_name
from .selector import SelectorError, compile_selector
from .semver import Semver

_ESCAPES = {'"': '\\"', "\\": "\\\\"}


def distinguish(kind: Device, other_kinds: Sequence[Device]) -> str | None:
    """Return a selector that matches `kind` and none of `other_kinds`. None if no published value separates them.

    A driver publishes the attributes of a class, and might publish more attributes and larger capacities. Therefore,
    different values are preferred to missing values, and the larger capacity is the bound of a comparison.
    """
    for other_kind in other_kinds:
        for text in _candidates(kind, other_kind):
            if distinguishes(text, kind, other_kinds):
                return text
    selectors: list[str] = []
    for other_kind in other_kinds:
        if any(distinguishes(selector, kind, (other_kind,)) for selector in selectors):
            continue
        selector = next(
            (text for text in _candidates(kind, other_kind) if distinguishes(text, kind, (other_kind,))), None
        )
        if selector is None:
            return None
        selectors.append(selector)
    text = " && ".join(selectors)
    return text if selectors and distinguishes(text, kind, other_kinds) else None


def distinguishes(text: str, kind: Device, other_kinds: Sequence[Device]) -> bool:
    """Return True if a selector matches `kind` and none of `other_kinds`."""
    try:
        selector = compile_selector(text)
    except SelectorError:
        return False
    verdicts = [selector.evaluate(device) for device in (kind, *other_kinds)]
    # Kubernetes allocates no device of a node if a selector fails on one of its devices.
    if any(verdict.error for verdict in verdicts):
        return False
    return verdicts[0].match and not any(verdict.match for verdict in verdicts[1:])


def _candidates(kind: Device, other_kind: Device) -> Iterator[str]:
    """Yield selectors that might separate a kind from another kind, the most reliable first."""
    if kind.driver != other_kind.driver:
        yield f"device.driver == {_literal(kind.driver)}"
    common = sorted(set(kind.attributes) & set(other_kind.attributes))
    for name in common:
        yield _equals(name, kind.attributes[name], kind.driver)
    for name in sorted(set(kind.capacity) & set(other_kind.capacity)):
        capacity, other_capacity = kind.capacity[name], other_kind.capacity[name]
        where = _value("capacity", name, kind.driver)
        if capacity > other_capacity:
            bound = _literal(str(capacity))
            yield f"{_has('capacity', name, kind.driver)} && {where}.compareTo(quantity({bound})) >= 0"
        elif capacity < other_capacity:
            bound = _literal(str(other_capacity))
            yield f"{_has('capacity', name, kind.driver)} && {where}.compareTo(quantity({bound})) < 0"
    for name in sorted(set(kind.attributes) - set(other_kind.attributes)):
        yield _equals(name, kind.attributes[name], kind.driver)
    for name in sorted(set(other_kind.attributes) - set(kind.attributes)):
        yield f"!({_equals(name, other_kind.attributes[name], other_kind.driver)})"
    for name in sorted(set(kind.capacity) - set(other_kind.capacity)):
        yield _has("capacity", name, kind.driver)
    for name in sorted(set(other_kind.capacity) - set(kind.capacity)):
        yield f"!({_has('capacity', name, other_kind.driver)})"


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


def _has(field: str, name: str, driver: str) -> str:
    domain, identifier = split_name(name, driver)
    return f"{_literal(identifier)} in device.{field}[{_literal(domain)}]"


def _value(field: str, name: str, driver: str) -> str:
    domain, identifier = split_name(name, driver)
    return f"device.{field}[{_literal(domain)}][{_literal(identifier)}]"


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
