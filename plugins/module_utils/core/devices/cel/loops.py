# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Loops of the macros: all, exists, exists_one, map, filter, the transforms, and sortBy.

Each maker returns a closure for the range, the slots of one or two variables, and the condition and the body with their
costs. Every iteration is charged, so the cost limit applies to every loop.
"""

# A bool is an int for isinstance. pylint: disable=unidiomatic-typecheck

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from . import library
from .collections import sort_by_keys
from .state import Run, State
from .values import CelError, CelMap, no_overload

Part = tuple[Run, int] | None  # pylint: disable=unsupported-binary-operation
Slots = tuple[int, ...]


def _turns(target: Run, slots: Slots, state: State) -> Iterator[None]:
    """Yield once for each iteration, after its variables are set."""
    range_value = target(state)
    variables = state.slots
    if len(slots) == 1:
        (slot,) = slots
        if type(range_value) is not list and type(range_value) is not CelMap:
            raise no_overload()
        for value in range_value:
            variables[slot] = value
            yield
        return
    first_slot, second_slot = slots
    if type(range_value) is list:
        for index, value in enumerate(range_value):
            variables[first_slot], variables[second_slot] = index, value
            yield
    elif type(range_value) is CelMap:
        for key in range_value:
            variables[first_slot], variables[second_slot] = key, range_value.get(CelMap.key(key))
            yield
    else:
        raise no_overload()


# Costs that cel-go's expansions charge per iteration in addition to the condition and the body.
_QUANTIFIER_TURN = {"all": 3, "exists": 4}
_COUNT_HIT = 2
_APPEND_TURN = 12
_INSERT_TURN = 2


def _quantifier(kind: str) -> Callable[..., Run]:
    decisive = kind == "exists"
    turn_cost = _QUANTIFIER_TURN[kind]

    def make(target: Run, slots: Slots, predicate: Part, _body: Part) -> Run:
        test, cost = _required(predicate)
        cost += turn_cost

        def quantify(state: State) -> bool:
            failure: CelError | None = None
            for __ in _turns(target, slots, state):
                state.spend(cost)
                try:
                    value = test(state)
                except CelError as error:
                    failure = error
                    continue
                if value is decisive:
                    return bool(decisive)
                if type(value) is not bool:
                    failure = no_overload()
            state.spend(1)
            if failure is not None:
                raise failure
            return not decisive

        return quantify

    return make


def _required(expression: Part) -> tuple[Run, int]:
    if expression is None:
        raise CelError("a loop without its expression")
    return expression


def _holds(test: Run, state: State) -> bool:
    value = test(state)
    if type(value) is not bool:
        raise no_overload()
    return bool(value)


def _exists_one(target: Run, slots: Slots, predicate: Part, _body: Part) -> Run:
    test, cost = _required(predicate)

    def exists_one(state: State) -> bool:
        count = 0
        for __ in _turns(target, slots, state):
            state.spend(cost)
            if _holds(test, state):
                state.spend(_COUNT_HIT)
                count += 1
        state.spend(2)
        return count == 1

    return exists_one


def _collect(target: Run, slots: Slots, predicate: Part, body: Part) -> Run:
    """Return the closure of map, filter, or transformList. Without a body it collects the (first) variable."""
    slot = slots[0]
    test, test_cost = predicate or (None, 0)
    compute, compute_cost = body or ((lambda state: state.slots[slot]), 1)
    compute_cost += _APPEND_TURN

    def collect(state: State) -> list[Any]:
        result: list[Any] = []
        for __ in _turns(target, slots, state):
            state.spend(test_cost)
            if test is None or _holds(test, state):
                state.spend(compute_cost)
                result.append(compute(state))
        state.spend(1)
        return result

    return collect


def _transform_map(target: Run, slots: Slots, predicate: Part, body: Part) -> Run:
    slot = slots[0]
    test, test_cost = predicate or (None, 0)
    compute, compute_cost = _required(body)

    def transform(state: State) -> CelMap:
        entries: dict[Any, Any] = {}
        for __ in _turns(target, slots, state):
            state.spend(test_cost)
            if test is None or _holds(test, state):
                state.spend(compute_cost + _INSERT_TURN)
                _insert(entries, CelMap.key(state.slots[slot]), compute(state))
        state.spend(1)
        return CelMap(entries)

    return transform


def _transform_entries(target: Run, slots: Slots, predicate: Part, body: Part) -> Run:
    test, test_cost = predicate or (None, 0)
    compute, compute_cost = _required(body)

    def transform(state: State) -> CelMap:
        entries: dict[Any, Any] = {}
        for __ in _turns(target, slots, state):
            state.spend(test_cost)
            if test is None or _holds(test, state):
                state.spend(compute_cost + _INSERT_TURN)
                transformed = compute(state)
                if type(transformed) is not CelMap:
                    raise no_overload()
                for key, value in transformed.entries.items():
                    state.spend(1)
                    _insert(entries, key, value)
        state.spend(1)
        return CelMap(entries)

    return transform


def _insert(entries: dict[Any, Any], key: Any, value: Any) -> None:
    if key in entries:
        raise CelError(f"insert failed: key {key} already exists")
    entries[key] = value


def _sort_by(target: Run, slots: Slots, _predicate: Part, body: Part) -> Run:
    (slot,) = slots
    compute, cost = _required(body)
    cost += _APPEND_TURN + 1

    def sort_by(state: State) -> list[Any]:
        elements = target(state)
        if type(elements) is not list:
            raise no_overload()
        keys: list[Any] = []
        for element in elements:
            state.spend(cost)
            state.slots[slot] = element
            keys.append(compute(state))
        state.spend(library.METHOD_COSTS["sort"](keys))
        return sort_by_keys(elements, keys)

    return sort_by


LOOPS: dict[str, Callable[..., Run]] = {
    "all": _quantifier("all"),
    "exists": _quantifier("exists"),
    "exists_one": _exists_one,
    "map": _collect,
    "filter": _collect,
    "transformList": _collect,
    "transformMap": _transform_map,
    "transformMapEntry": _transform_entries,
    "sortBy": _sort_by,
}
