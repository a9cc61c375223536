# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Device selectors: CEL expressions for one device, compiled once and evaluated with the verdict of Kubernetes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from .cel.ast import Node
from .cel.checker import check
from .cel.estimate import estimate
from .cel.evaluator import Program, compile_checked
from .cel.lexer import CelSyntaxError
from .cel.parser import parse
from .cel.state import State
from .cel.values import CelError, CelMap, CostLimitError, type_name
from .device import Device, split_name
from .limits import MAX_COST, MAX_EXPRESSION

_SHOWN_LINE = 120

_Result = TypeVar("_Result")


class SelectorError(ValueError):
    """Invalid device selector, with the error and its position (line and column count from 1)."""

    def __init__(self, expression: str, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.expression = expression
        self.message = message
        self.line = line
        self.column = column

    def __str__(self) -> str:
        lines = self.expression.split("\n")
        text = lines[self.line - 1] if self.line <= len(lines) else ""
        start = max(0, self.column - 1 - _SHOWN_LINE // 2)
        excerpt = text[start : start + _SHOWN_LINE].replace("\t", " ")
        caret = " " * (self.column - 1 - start) + "^"
        return f"{self.message} (line {self.line}, column {self.column})\n{excerpt}\n{caret}"

    def __reduce__(self) -> tuple[Any, ...]:
        return SelectorError, (self.expression, self.message, self.line, self.column)


@dataclass(frozen=True)
class Verdict:
    """Result of an evaluation, with its cost. `error`: reason of a failure. The device then does not match."""

    match: bool
    error: str | None = None
    cost: int = 0


@dataclass(frozen=True)
class Selector:
    """Compiled selector, equal and hashed by its expression. Evaluations do not change it and are thread-safe."""

    expression: str
    tree: Node = field(compare=False, repr=False)
    program: Program = field(compare=False, repr=False)

    def evaluate(self, device: Device) -> Verdict:
        """Return the verdict of Kubernetes on one device. Raises no errors."""
        if device.invalid:
            return Verdict(False, f"the device is invalid: {device.invalid}")
        return run_program(self.program, cel_device(device))


def run_program(program: Program, device: CelMap) -> Verdict:
    """Run a compiled expression on the CEL form of a device."""
    try:
        return _run(program, device)
    except RecursionError:
        # The stack of the caller is already deep. A new thread starts with an empty stack.
        try:
            return _in_thread(lambda: _run(program, device))
        except RecursionError:
            return Verdict(False, "the expression is nested too deeply")


def _run(program: Program, device: CelMap) -> Verdict:
    code = program.code
    state = State(device, program.slots, code.cost)
    try:
        value = code.run(state)
    except (CelError, CostLimitError) as error:
        return Verdict(False, str(error), state.cost)
    if value is True:
        return Verdict(True, None, state.cost)
    if value is False:
        return Verdict(False, None, state.cost)
    return Verdict(False, f"the selector gives {type_name(value)}, not a bool", state.cost)


@lru_cache(maxsize=1024)
def compile_selector(expression: str) -> Selector:
    """Return a compiled selector, new or from the cache. Raise SelectorError if Kubernetes would reject the
    selector."""
    size = len(expression.encode("utf-8", "surrogatepass"))
    if size > MAX_EXPRESSION:
        raise SelectorError(expression, f"a selector has at most {MAX_EXPRESSION} bytes, this one has {size}", 1, 1)
    try:
        return _compile(expression)
    except CelSyntaxError as error:
        raise _located(expression, error) from None
    except RecursionError:
        try:
            return _in_thread(lambda: _compile(expression))
        except CelSyntaxError as error:
            raise _located(expression, error) from None
        except RecursionError:
            raise SelectorError(expression, "the expression is nested too deeply", 1, 1) from None


def _compile(expression: str) -> Selector:
    tree = parse(expression)
    checked = check(tree)
    program = compile_checked(checked)
    cost = estimate(checked)
    if cost > MAX_COST:
        raise CelSyntaxError(
            f"too complex: Kubernetes estimates a cost of {_amount(cost)} and accepts at most {MAX_COST:,}. Read "
            'attributes as device.attributes["domain"].name, shorten lists and patterns, or avoid nested loops',
            tree.start,
        )
    return Selector(expression, tree, program)


def _amount(cost: int) -> str:
    return f"{cost:,}" if cost < 2**32 else "more than 4 billion"


def _located(expression: str, error: CelSyntaxError) -> SelectorError:
    prefix = expression[: error.pos]
    line = prefix.count("\n") + 1
    return SelectorError(expression, error.message, line, error.pos - (prefix.rfind("\n") + 1) + 1)


# Kubernetes accepts 250 levels of nesting. Each level uses several frames, so they need a higher limit than Python's.
_DEEP = 12_000
_DEEP_LOCK = threading.Lock()


def _in_thread(work: Callable[[], _Result]) -> _Result:
    """Repeat work that exceeded the stack, with an empty stack and with a higher recursion limit until it ends.

    The limit applies to the whole interpreter. Only one thread at a time raises it, and it restores the previous limit.
    """
    with _DEEP_LOCK:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, _DEEP))
        try:
            return _in_new_thread(work)
        finally:
            sys.setrecursionlimit(limit)


def _in_new_thread(work: Callable[[], _Result]) -> _Result:
    results: list[_Result] = []
    failures: list[Exception] = []

    def target() -> None:
        try:
            results.append(work())
        except (CelSyntaxError, RecursionError) as failure:
            failures.append(failure)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


_EMPTY = CelMap({})
_CACHE = "_cel_device"


def cel_device(device: Device) -> CelMap:
    """Return the value of `device`, created once for every Device."""
    cached = device.__dict__.get(_CACHE)
    if cached is None:
        cached = CelMap(
            {
                "driver": device.driver,
                "allowMultipleAllocations": False,
                "attributes": CelMap(_by_domain(device.attributes, device.driver), _EMPTY),
                "capacity": CelMap(_by_domain(device.capacity, device.driver), _EMPTY),
            }
        )
        # A frozen dataclass still has its dictionary. Two threads would store equal values.
        device.__dict__[_CACHE] = cached
    return cached


def _by_domain(values: Any, driver: str) -> dict[Any, Any]:
    domains: dict[Any, Any] = {}
    for qualified, value in values.items():
        domain, identifier = split_name(qualified, driver)
        domains.setdefault(domain, CelMap({})).entries[identifier] = value
    return domains
