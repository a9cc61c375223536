# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Selectors that do not fail on devices without an attribute or a capacity.

kube-scheduler evaluates the selectors of a request on the devices of a node in order, until it has enough devices. If
a selector fails on one of them, the scheduling of the pod ends (k8s.io/dynamic-resource-allocation/structured,
`selectorsMatch`). Therefore, the order of devices would decide if the pod is ever bound. A domain that a device does
not have is empty and does not fail (`newStringInterfaceMapWithDefault` in cel/compile.go).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from .cel.ast import (
    Bind,
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    Logic,
    MapLiteral,
    Node,
    OptMap,
    Select,
)
from .cel.checker import Checked, check
from .explain import children
from .selector import SelectorError, compile_selector

_Test = tuple[str, str]
"""The expressions of a domain and of a name in it."""
_Tests = frozenset[_Test]
"""Tests that are true before an expression is evaluated."""
_Writer = Callable[[_Tests], tuple[str, _Tests]]
"""Function that returns an expression for known tests, and the tests that are true after it."""
_NOTHING: _Tests = frozenset()
_OPPOSITE = {"exists": "all", "all": "exists"}


def guarded(expression: str) -> str:
    """Return a selector that matches the same devices as `expression`, and that is false for a device without an
    attribute or a capacity that `expression` requires.

    Return `expression` unchanged if it already tests for all values, or if Kubernetes would not accept the result, for
    example because it is too long. Raise SelectorError if `expression` is not a selector.
    """
    source, tree = _lifted(expression, compile_selector(expression).tree)
    guard = _Guard(source, check(tree))
    result = guard.true(tree)
    if not guard.added:
        return expression
    try:
        compile_selector(result)
    except SelectorError:
        return expression
    return result


def _lifted(source: str, tree: Node) -> tuple[str, Node]:
    """Return the source and tree of an equivalent expression without conditions in comparisons.

    `(a ? b : c) == d` becomes `(a ? b == d : c == d)`. The values that a comparison reads depend on the condition, so
    each result needs separate tests. Return the last version that Kubernetes accepts.
    """
    while (pair := next(_conditions(tree), None)) is not None:
        comparison, condition = pair
        if isinstance(condition, Call):
            test, *results = (source[arg.start : arg.end] for arg in condition.args)
        else:
            test, results = source[condition.start : condition.end], ["true", "false"]
        prefix, suffix = source[comparison.start : condition.start], source[condition.end : comparison.end]
        first_branch, second_branch = (f"{prefix}({result}){suffix}" for result in results)
        lifted = (
            f"{source[: comparison.start]}(({test}) ? ({first_branch}) : ({second_branch})){source[comparison.end :]}"
        )
        try:
            source, tree = lifted, compile_selector(lifted).tree
        except SelectorError:
            break
    return source, tree


def _conditions(node: Node) -> Iterator[tuple[Node, Node]]:
    """Yield each comparison with the first condition that it contains, in the order of the source."""
    if _is_conditional(node) or isinstance(node, Logic) or (isinstance(node, Call) and node.function == "!_"):
        for child in children(node):
            yield from _conditions(child)
    elif isinstance(node, Bind):
        yield from _conditions(node.body)
    elif isinstance(node, Comprehension):
        if node.kind in _OPPOSITE and node.predicate is not None:
            yield from _conditions(node.predicate)
    else:
        yield from ((node, condition) for condition in _strict_conditions(node))


def _strict_conditions(node: Node) -> Iterator[Node]:
    """Yield the outermost conditions that a part always evaluates."""
    if isinstance(node, Call | Select | ListLiteral | MapLiteral):
        for child in children(node):
            if _is_conditional(child) or isinstance(child, Logic):
                yield child
            else:
                yield from _strict_conditions(child)


def _is_conditional(node: Node) -> bool:
    return isinstance(node, Call) and node.function == "_?_:_"


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _all(writers: Sequence[_Writer], tests: _Tests) -> tuple[str, _Tests]:
    texts = []
    for write in writers:
        text, tests = write(tests)
        texts.append(text)
    return " && ".join(texts), tests


def _any(writers: Sequence[_Writer], tests: _Tests) -> str:
    return f"({' || '.join(write(tests)[0] for write in writers)})"


class _Guard:
    """Writer of expressions that do not fail on missing values.

    CEL's && and || ignore a failure of one operand if the other operand decides. Therefore, tests are added to each
    comparison, and not to the whole expression.
    """

    def __init__(self, source: str, checked: Checked) -> None:
        self.added = False
        self._source = source
        self._types = checked.types
        # Tests for the values that variables of cel.bind() read.
        self._bound: dict[str, list[_Test]] = {}

    def true(self, node: Node) -> str:
        """Return the expression that is true if `node` is true, and false if `node` is false or fails."""
        return self._of(node, _NOTHING, desired=True)[0]

    def _of(self, node: Node, known_tests: _Tests, *, desired: bool) -> tuple[str, _Tests]:
        """Return an expression that is true if `node` is `desired`, else false, and the facts that it implies."""
        if isinstance(node, Logic):
            terms = [partial(self._of, term, desired=desired) for term in node.terms]
            return (
                _all(terms, known_tests)
                if (node.operator == "&&") == desired
                else (_any(terms, known_tests), known_tests)
            )
        if isinstance(node, Call) and node.function == "!_":
            return self._of(node.args[0], known_tests, desired=not desired)
        if isinstance(node, Call) and _is_conditional(node):
            condition, *results = node.args
            branches = [
                [partial(self._of, condition, desired=holds), partial(self._of, result, desired=desired)]
                for holds, result in zip((True, False), results, strict=True)
            ]
            return _any([partial(_all, branch) for branch in branches], known_tests), known_tests
        if isinstance(node, Bind):
            with self._variables({node.name: list(self._tests(node.value))}):
                body = self._of(node.body, _NOTHING, desired=desired)[0]
            return f"cel.bind({node.name}, {self._text(node.value)}, {body})", known_tests
        if isinstance(node, Comprehension) and node.kind in _OPPOSITE and node.predicate is not None:
            return self._quantified(node, node.predicate, known_tests, desired=desired)
        text, tests = self._text(node), list(self._tests(node))
        return self._tested(
            text if desired else f"!({text})", tests, known_tests.union(self._proven(node) if desired else ())
        )

    def _quantified(
        self, node: Comprehension, predicate: Node, known_tests: _Tests, *, desired: bool
    ) -> tuple[str, _Tests]:
        kind = node.kind if desired else _OPPOSITE[node.kind]
        with self._variables({name: [] for name in node.variables}):
            body = self._of(predicate, _NOTHING, desired=desired)[0]
        text = f"{self._text(node.target)}.{kind}({', '.join(node.variables)}, {body})"
        return self._tested(text, list(self._tests(node.target)), known_tests)

    def _tested(self, text: str, tests: Iterable[_Test], known_tests: _Tests) -> tuple[str, _Tests]:
        new = [test for test in dict.fromkeys(tests) if test not in known_tests]
        self.added = self.added or bool(new)
        return " && ".join([*(f"{name} in {domain}" for domain, name in new), text]), known_tests.union(new)

    @contextmanager
    def _variables(self, tests: Mapping[str, list[_Test]]) -> Iterator[None]:
        previous_bindings = self._bound
        self._bound = {**previous_bindings, **tests}
        yield
        self._bound = previous_bindings

    def _tests(self, node: Node) -> Iterator[_Test]:
        """Yield the tests for the values that a part always reads, in the order of evaluation.

        Further values of the part depend on other values."""
        if isinstance(node, Ident):
            yield from self._bound.get(node.name, ())
        elif isinstance(node, Bind):
            yield from self._tests_within(node.body, {node.name: list(self._tests(node.value))})
        elif isinstance(node, Comprehension | OptMap):
            yield from self._tests(node.target)
            if isinstance(node, Comprehension) and isinstance(node.target, ListLiteral) and node.target.elements:
                # The first iteration of the loop is always evaluated.
                step = node.predicate if node.predicate is not None else node.body
                yield from self._tests_within(step, {name: [] for name in node.variables})
        elif isinstance(node, Call) and _is_conditional(node):
            yield from self._tests(node.args[0])
        elif not isinstance(node, Logic):
            for child in children(node):
                yield from self._tests(child)
            test = self._access(self._required(node))
            if test is not None and (self._required(node) is not node or not self._copes(node)):
                yield test

    def _tests_within(self, node: Node | None, variables: Mapping[str, list[_Test]]) -> list[_Test]:
        """Return the tests of a part with variables, without tests that name one of the variables."""
        if node is None:
            return []
        with self._variables(variables):
            tests = list(self._tests(node))
        pattern = re.compile(rf"(?<![\w.\"'])(?:{'|'.join(variables)})(?![\w\"'])")
        return [test for test in tests if not any(map(pattern.search, test))]

    @staticmethod
    def _required(node: Node) -> Node:
        """Return the optional access of a `value()` call, otherwise the node."""
        is_value = isinstance(node, Call) and node.function == "value" and node.target is not None
        return node.target if is_value and isinstance(node, Call) and isinstance(node.target, Select) else node

    def _access(self, node: Node) -> _Test | None:
        """Return the test for the value that a part reads or tests for, None for other parts."""
        domain: Node
        if isinstance(node, Select):
            domain, name = node.operand, _quoted(node.field)
        elif isinstance(node, Call) and node.function in ("_[_]", "@in"):
            domain, key = node.args if node.function == "_[_]" else node.args[::-1]
            name = _quoted(key.value) if isinstance(key, Literal) else self._text(key)
        else:
            return None
        domain_type = self._types.get(domain)
        # A map of domains has a default, unless a variable contains the map.
        is_domain = domain_type is not None and domain_type.kind == "map" and domain_type.params[1].kind == "map"
        if domain_type is None or domain_type.kind != "map" or (is_domain and not isinstance(domain, Ident)):
            return None
        return self._text(domain), name

    def _proven(self, node: Node) -> Iterator[_Test]:
        """Yield the test that a part consists of."""
        test = self._access(node)
        if test and self._copes(node) and not (isinstance(node, Select) and node.optional):
            yield test

    @staticmethod
    def _copes(node: Node) -> bool:
        """Return True if an access does not fail without a value."""
        if isinstance(node, Select):
            return node.test or node.optional
        return isinstance(node, Call) and node.function == "@in"

    def _text(self, node: Node) -> str:
        return self._source[node.start : node.end]
