# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Selectors that do not fail on devices without an attribute or a capacity.

kube-scheduler evaluates the selectors of a request on the devices of a node one after the other, until it has found
enough devices. A selector that fails on a device ends the scheduling of the pod (k8s.io/dynamic-resource-allocation/
structured, `selectorsMatch`). Therefore, the order of the devices would decide whether the pod is ever bound. A domain
that a device does not have is empty and does not fail (`newStringInterfaceMapWithDefault` in cel/compile.go).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.cel.ast import (
    Call,
    Comprehension,
    ListLiteral,
    Literal,
    Logic,
    Node,
    Select,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.explain import (
    is_conditional,
    value_access,
    walk,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.selector import (
    SelectorError,
    compile_selector,
)


def guarded(expression: str) -> str:
    """Return a selector that matches the same devices, and that tests for the values that each comparison reads.

    CEL's && and || ignore that one side fails if the other side decides. Therefore, tests are added to each comparison,
    and not to the expression as a whole. A comparison that might not read all of its values, for example because it has
    a condition or a default, gets no tests. Return `expression` if Kubernetes would not accept the result, for example
    because it is too long. Raise SelectorError if `expression` is not a selector.
    """
    guard = _Guard(expression)
    result = guard.text(compile_selector(expression).tree, set())
    if not guard.has_added_tests:
        return expression
    try:
        compile_selector(result)
    except SelectorError:
        return expression
    return result


class _Guard:
    def __init__(self, source: str) -> None:
        self.has_added_tests = False
        self._source = source

    def text(self, node: Node, tests: set[str], *, desired: bool = True) -> str:
        """Return an expression that is true if a node has the desired value, otherwise false.

        tests: tests that are true when the node is evaluated. The tests of the node are added.
        """
        if isinstance(node, Logic) and (node.operator == "&&") == desired:
            return " && ".join([self.text(term, tests, desired=desired) for term in node.terms])
        if isinstance(node, Logic):
            return f"({' || '.join(self.text(term, set(tests), desired=desired) for term in node.terms)})"
        if isinstance(node, Call) and node.function == "!_":
            return self.text(node.args[0], tests, desired=not desired)
        new_tests = [test for test in dict.fromkeys(_tests(node, self._source)) if test not in tests]
        self.has_added_tests = self.has_added_tests or bool(new_tests)
        tests.update(new_tests)
        if desired:
            tests.update(_access_test(node, self._source))
        text = self._source[node.start : node.end]
        return " && ".join([*new_tests, text if desired else f"!({text})"])


def _tests(comparison: Node, source: str) -> Iterator[str]:
    """Yield the tests for the values that a comparison reads in any case."""
    nodes = walk(comparison)
    if not any(is_conditional(node) and not _is_loop_over_literal(node) for node in nodes):
        for node in nodes:
            if value_access(node):
                yield from _access_test(node, source)


def _is_loop_over_literal(node: Node) -> bool:
    return isinstance(node, Comprehension) and isinstance(node.target, ListLiteral) and bool(node.target.elements)


def _access_test(node: Node, source: str) -> Iterator[str]:
    """Yield the test for the value that a node reads or tests for."""
    if isinstance(node, Select) and not node.optional:
        yield f"{json.dumps(node.field)} in {source[node.operand.start : node.operand.end]}"
    elif isinstance(node, Call) and node.function in ("_[_]", "@in"):
        domain, key = node.args if node.function == "_[_]" else node.args[::-1]
        if isinstance(key, Literal) and isinstance(key.value, str):
            yield f"{json.dumps(key.value, ensure_ascii=False)} in {source[domain.start : domain.end]}"
