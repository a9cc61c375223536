# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Operations of closures: access to fields and elements, equality, and calls with a choice of overloads."""

# A bool is an int for isinstance. pylint: disable=unidiomatic-typecheck

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import types as t
from .collections import element_at
from .declarations import Overload
from .state import Run, State
from .values import MISSING, NONE, CelError, CelMap, Optional, equal, no_overload, type_name


def equal_or_not(left: Any, right: Any, negated: bool, state: State) -> bool:
    """Evaluate == or !=. Values that are not comparable fail == and are unequal for != (cel-go's `evalNe`)."""
    try:
        return equal(left, right, state.spend) is not negated
    except CelError:
        if negated:
            return True
        raise


def has(value: Any, name: str) -> bool:
    if type(value) is Optional:
        if not value.present:
            return False
        value = value.value
    return type(value) is CelMap and (name in value.entries or value.default is not None)


def at(target: Any, key: Any) -> Any:
    if type(target) is Optional:
        return optional_at(target, key)
    element = element_at(target, key)
    if element is MISSING:
        raise CelError(f"index out of bounds: {key}" if type(target) is list else f"no such key: {key}")
    return element


def at_name(target: Any, name: str) -> Any:
    if type(target) is CelMap:
        entry = target.entries.get(name, MISSING)
        if entry is not MISSING:
            return entry
        if target.default is not None:
            return target.default
    return at(target, name)


def optional_at(target: Any, key: Any) -> Optional:
    if type(target) is Optional:
        if not target.present:
            return target
        target = target.value
    if type(target) is not CelMap and type(target) is not list:
        return NONE
    element = element_at(target, key)
    return NONE if element is MISSING else Optional(True, element)


def accepts(desired: t.Type, value: Any) -> bool:
    """Return True if a value fits a declared type. For lists, the first element decides (as in cel-go)."""
    kind = desired.kind
    if kind in ("dyn", "any", "param"):
        return True
    if kind == "list":
        return type(value) is list and (not value or accepts(desired.params[0], value[0]))
    if kind == "map":
        return type(value) is CelMap
    names = {"timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration"}
    return type_name(value) == (desired.name or names.get(kind, kind))


def require_overload(overloads: tuple[Overload, ...], values: list[Any]) -> None:
    for overload in overloads:
        if all(map(accepts, overload.args, values)):
            return
    raise no_overload()


def caller(
    function: Any, runs: tuple[Run, ...], guard: tuple[Overload, ...], cost: Callable[..., int] | None, spending: bool
) -> Run:
    """Return the closure of a call. Calls with one or two arguments of known types have their own closures."""
    if guard or spending or len(runs) not in (1, 2):
        return _general_caller(function, runs, guard, cost, spending)
    if len(runs) == 1:
        (only,) = runs
        if cost is None:
            return lambda state: function(only(state))

        def call_one(state: State) -> Any:
            value = only(state)
            state.spend(cost(value))
            return function(value)

        return call_one
    first_run, second_run = runs
    if cost is None:
        return lambda state: function(first_run(state), second_run(state))

    def call_two(state: State) -> Any:
        first_value, second_value = first_run(state), second_run(state)
        state.spend(cost(first_value, second_value))
        return function(first_value, second_value)

    return call_two


def _general_caller(
    function: Any, runs: tuple[Run, ...], guard: tuple[Overload, ...], cost: Callable[..., int] | None, spending: bool
) -> Run:
    def call(state: State) -> Any:
        values = [run(state) for run in runs]
        if guard:
            require_overload(guard, values)
        if cost is not None:
            state.spend(cost(*values))
        return function(state.spend, *values) if spending else function(*values)

    return call
