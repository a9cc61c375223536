# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Reasons why a selector does not match a device, in one line with the decisive values."""

# A bool is an int for isinstance. pylint: disable=unidiomatic-typecheck

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .cel.ast import Bind, Call, Comprehension, ListLiteral, Literal, Logic, MapLiteral, Node, OptMap, Select
from .cel.checker import check, qualified_name
from .cel.evaluator import compile_checked
from .cel.lexer import CelSyntaxError
from .cel.standard import compare_to
from .cel.state import State
from .cel.values import MISSING, CelError, CelMap, CostLimitError, Optional, compare, type_name
from .device import Device
from .quantity import Quantity
from .selector import Selector, Verdict, cel_device, run_program
from .semver import Semver

_LONGEST = 160
_SHORTEST_SOURCE = 24
_MOST_NAMES = 6
_COMPARISONS = {"compareTo", "isGreaterThan", "isLessThan"}
_RELATIONS = {"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"}


def _ignore_cost(_cost: int) -> None:
    """Ignore a cost, as a `spend` function."""


def explain(selector: Selector, device: Device, spend: Callable[[int], None] = _ignore_cost) -> str | None:
    """Return the reason why `selector` does not match `device`, None if it does.

    For a chain of && the reason is the first part that is false or fails. Reasons of common expressions have both
    values (`capacity memory 23034Mi < 40Gi in ...`), other reasons have all values that the part reads.

    spend: function that receives the cost of each evaluated part, and can raise an error.
    """
    verdict = selector.evaluate(device)
    spend(verdict.cost)
    if verdict.match:
        return None
    if device.invalid:
        return f"device {device.name} is invalid: {device.invalid}"[:_LONGEST]
    return _Explanation(selector, device, spend).text(verdict)


def required_values(selector: Selector) -> set[tuple[str, str, str]]:
    """Return the required values of a match: `attributes` or `capacity`, domain, and name.

    Optional conditions, such as alternatives and conditions with a default, are skipped."""
    return {
        access
        for conjunct in _conjuncts(selector.tree)
        if not any(map(_is_conditional, nodes := walk(conjunct)))
        for access in map(value_access, nodes)
        if access is not None
    }


def _is_conditional(node: Node) -> bool:
    """Return True if an expression with this node can be true without a value."""
    if isinstance(node, Select):
        return node.optional or node.test
    if isinstance(node, Call):
        return node.function in ("_[?_]", "_?_:_")
    return isinstance(node, Logic | Comprehension | Bind | OptMap)


def value_access(node: Node) -> tuple[str, str, str] | None:
    """Return attributes or capacity, domain, and name of an access such as `device.attributes["d"].name`. None for
    other nodes."""
    outer, name = _key(node)
    inner, domain = _key(outer) if outer is not None else (None, None)
    root = qualified_name(inner) if inner is not None else None
    if name is None or domain is None or root not in ("device.attributes", "device.capacity"):
        return None
    return root.partition(".")[2], domain, name


class _Explanation:
    def __init__(self, selector: Selector, device: Device, spend: Callable[[int], None]) -> None:
        self._spend = spend
        self._source = selector.expression
        self._tree = selector.tree
        self._device = device
        self._cel = cel_device(device)

    def text(self, verdict: Verdict) -> str:
        conjunct, conjunct_verdict = self._first_false(verdict)
        reason = (
            self._driver(conjunct)
            or self._missing(conjunct)
            or self._comparison(conjunct)
            or self._values(conjunct, conjunct_verdict)
        )
        return self._within(reason, conjunct)

    def _first_false(self, verdict: Verdict) -> tuple[Node, Verdict]:
        for conjunct in _conjuncts(self._tree):
            try:
                conjunct_verdict = run_program(compile_checked(check(conjunct)), self._cel)
            except (CelSyntaxError, RecursionError):
                continue
            self._spend(conjunct_verdict.cost)
            if not conjunct_verdict.match:
                return conjunct, conjunct_verdict
        return self._tree, verdict

    def _within(self, reason: str, conjunct: Node) -> str:
        """Return the reason with its source, shortened to one readable line."""
        start = conjunct.start
        subject = self._operands(conjunct)[0] if isinstance(conjunct, Call) else None
        if subject is not None and value_access(subject) and self._source.startswith(".", subject.end):
            # The reason already contains the left operand. The excerpt shows the method and the right operand.
            start = subject.end + 1
        source = " ".join(self._source[start : conjunct.end].split())
        source = f"…{source}" if start > conjunct.start else source
        room = max(_LONGEST - len(reason) - len(" in ``"), _SHORTEST_SOURCE)
        return f"{_shortened(reason, _LONGEST - _SHORTEST_SOURCE)} in `{_shortened(source, room)}`"

    def _value(self, node: Node) -> Any:
        """Return the value of a part without variables, MISSING if it has no value."""
        state = None
        try:
            program = compile_checked(check(node, any_result=True))
            state = State(self._cel, program.slots, program.code.cost)
            value = program.code.run(state)
        except (CelSyntaxError, CelError, CostLimitError, RecursionError):
            return MISSING
        finally:
            self._spend(state.cost if state else 0)
        if type(value) is not Optional:
            return value
        return value.value if value.present else MISSING

    def _driver(self, conjunct: Node) -> str | None:
        if isinstance(conjunct, Call) and conjunct.function == "_==_":
            for node, operand in (conjunct.args, conjunct.args[::-1]):
                if qualified_name(node) == "device.driver" and isinstance(operand, Literal):
                    return f"driver is {self._device.driver}, not {operand.value}"
        return None

    def _missing(self, conjunct: Node) -> str | None:
        for node in walk(conjunct):
            access = value_access(node)
            if access is None or self._tested(conjunct, node):
                continue
            kind, domain, name = access
            values: CelMap = self._cel.get(kind).get(domain)
            if name not in values:
                noun = "attribute" if kind == "attributes" else "capacity"
                names = sorted(values.entries)
                shown_names = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
                return f"no {noun} {name} in domain {domain} (it has {shown_names or 'none'})"
        return None

    @staticmethod
    def _tested(conjunct: Node, node: Node) -> bool:
        """Return True if an expression handles a missing value. The missing value then does not explain the result."""
        return isinstance(node, Select) and (node.optional or node.test) and conjunct is not node

    def _comparison(self, conjunct: Node) -> str | None:
        if not isinstance(conjunct, Call):
            return None
        left_node, right_node = self._operands(conjunct)
        if left_node is None or right_node is None:
            return None
        left_value, right_value = self._value(left_node), self._value(right_node)
        name = self._name(left_node)
        if name is None and self._name(right_node) is not None:
            left_node, left_value, right_value = right_node, right_value, left_value
            name = self._name(left_node)
        if name is None or left_value is MISSING or right_value is MISSING:
            return None
        sign = _sign(left_value, right_value)
        if conjunct.function == "_==_" and (sign is None or type(left_value) in (str, bool, int)):
            return f"{name} is {_shown(left_value)}, not {_shown(right_value)}"
        return f"{name} {_shown(left_value)} {sign} {_shown(right_value)}" if sign else None

    @staticmethod
    def _operands(conjunct: Call) -> tuple[Node | None, Node | None]:
        """Return the compared operands: `a.compareTo(b) >= 0` and `a.isLessThan(b)` compare a and b, like `a < b`."""
        if conjunct.function in _COMPARISONS and conjunct.target is not None and len(conjunct.args) == 1:
            return conjunct.target, conjunct.args[0]
        if conjunct.function not in _RELATIONS:
            return None, None
        left_node, right_node = conjunct.args
        if (
            isinstance(left_node, Call)
            and left_node.function == "compareTo"
            and isinstance(right_node, Literal)
            and right_node.value == 0
        ):
            return left_node.target, left_node.args[0]
        return left_node, right_node

    def _name(self, node: Node) -> str | None:
        if qualified_name(node) == "device.driver":
            return "driver"
        access = value_access(node)
        if access is None:
            return None
        return f"{'attribute' if access[0] == 'attributes' else 'capacity'} {access[2]}"

    def _values(self, conjunct: Node, verdict: Verdict) -> str:
        read: dict[str, str] = {}
        for node in walk(conjunct):
            name = self._name(node)
            if name is not None:
                value = self._value(node)
                if value is not MISSING:
                    read.setdefault(name, f"{name} is {_shown(value)}")
        summary = ", ".join(read.values())
        if verdict.error:
            return f"{verdict.error} ({summary})" if summary else verdict.error
        return summary or "false"


def _conjuncts(node: Node) -> list[Node]:
    if not isinstance(node, Logic) or node.operator != "&&":
        return [node]
    return [conjunct for term in node.terms for conjunct in _conjuncts(term)]


def _key(node: Node) -> tuple[Node | None, str | None]:
    """Return the container and the constant key of a selection or an index."""
    if isinstance(node, Select):
        return node.operand, node.field
    if isinstance(node, Call) and node.function in ("_[_]", "_[?_]"):
        key = node.args[1]
        if isinstance(key, Literal) and type(key.value) is str:
            return node.args[0], key.value
    return None, None


def children(node: Node) -> list[Node]:
    """Return the direct parts of a node, in the order of the source."""
    nodes: list[Node | None]
    if isinstance(node, Select):
        nodes = [node.operand]
    elif isinstance(node, Call):
        nodes = [node.target, *node.args]
    elif isinstance(node, Logic):
        nodes = [*node.terms]
    elif isinstance(node, ListLiteral):
        nodes = [*node.elements]
    elif isinstance(node, MapLiteral):
        nodes = [entry_node for key, value, __ in node.entries for entry_node in (key, value)]
    elif isinstance(node, Comprehension):
        nodes = [node.target, node.predicate, node.body]
    elif isinstance(node, Bind):
        nodes = [node.value, node.body]
    elif isinstance(node, OptMap):
        nodes = [node.target, node.body]
    else:
        nodes = []
    return [child for child in nodes if child is not None]


def walk(node: Node) -> list[Node]:
    """Return a node and all its descendants, outermost first."""
    nodes: list[Node] = []
    stack = [node]
    while stack:
        current = stack.pop()
        nodes.append(current)
        stack.extend(reversed(children(current)))
    return nodes


def _sign(left: Any, right: Any) -> str | None:
    """Return the actual relation of two values, None if they have no order."""
    if (isinstance(left, Quantity) and isinstance(right, Quantity)) or (
        isinstance(left, Semver) and isinstance(right, Semver)
    ):
        order = compare_to(left, right)
    else:
        try:
            order = compare(left, right)
        except CelError:
            return None
    return "<=>"[order + 1]


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return _shortened(json.dumps(value, ensure_ascii=False), 60)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return _shortened(f"[{', '.join(map(_shown, value[:8]))}{', …' if len(value) > 8 else ''}]", 80)
    if isinstance(value, Quantity | Semver | int | float):
        return str(value)
    return "null" if value is None else f"a {type_name(value)}"


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
