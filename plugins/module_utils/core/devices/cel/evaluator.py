# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Compiler of a checked tree to closures. A selector is compiled once and runs for each device.

Every node becomes a function of the state of an evaluation. Known costs are added during compilation and charged at
branches (&&, ||, ?:, loops). Therefore, a usual selector requires one addition to count its cost.
"""

# A bool is an int for isinstance, and only NaN is unequal to itself.
# pylint: disable=unidiomatic-typecheck,comparison-with-itself

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..quantity import Quantity
from ..semver import Semver
from . import library
from . import types as t
from .access import accepts, at, at_name, caller, equal_or_not, has, optional_at
from .ast import Bind, Call, Comprehension, Ident, ListLiteral, Literal, Logic, MapLiteral, Node, OptMap, Select
from .checker import Checked
from .collections import regex_for, total_of
from .declarations import FUNCTIONS, METHODS, TYPE_NAMES, Overload
from .formats import CLAUSE_TYPES, clauses
from .lexer import CelSyntaxError
from .loops import LOOPS
from .standard import CONVERSIONS, OPERATORS
from .state import Run, State
from .values import MISSING, NONE, CelError, CelMap, Optional, TypeValue, UInt, no_overload, type_name

# Types of constants that Kubernetes evaluates again in each evaluation.
_FOLDED_HERE = frozenset((Quantity, Semver))
_NO_LITERAL = _FOLDED_HERE | {type(MISSING)}
_KEY_KINDS = frozenset((str, bool, int, UInt, float))
_LIST_COST = 10
_MAP_COST = 30


@dataclass(slots=True)
class Code:
    """Compiled node: its function, the cost to charge before the call, and its value if it is a constant."""

    run: Run
    cost: int
    constant: Any = MISSING


@dataclass(slots=True)
class Program:
    """Compiled expression. It runs on a `State` with `slots` variables."""

    code: Code
    slots: int


def compile_checked(checked: Checked) -> Program:
    """Compile a checked expression. Raise CelSyntaxError for constants that Kubernetes rejects before an evaluation."""
    compiler = _Compiler(checked)
    code = compiler.compile(checked.root)
    return Program(code, compiler.slots)


def _constant(value: Any, cost: int = 0) -> Code:
    return Code(lambda _state: value, cost, value)


class _Compiler:
    def __init__(self, checked: Checked) -> None:
        self._types = checked.types
        self._functions = checked.functions
        # Variables in scope, with the code that reads them. A slot is never reused, because a bound value might be
        # computed late, in loops of the body that binds it.
        self._scope: list[tuple[str, Code]] = []
        self.slots = 0

    def compile(self, node: Node) -> Code:
        return _COMPILERS[type(node)](self, node)

    def _variable(self, name: str) -> int:
        """Add a variable and return its slot. `_leave` ends its scope."""
        slot = self.slots
        self.slots += 1
        self._scope.append((name, Code(lambda state: state.slots[slot], 1)))
        return slot

    def _leave(self, count: int = 1) -> None:
        del self._scope[len(self._scope) - count :]

    def _within(self, name: str, body: Node) -> tuple[int, Code]:
        slot = self._variable(name)
        code = self.compile(body)
        self._leave()
        return slot, code

    # Leaves

    def _literal(self, node: Literal) -> Code:
        return _constant(node.value)

    def _ident(self, node: Ident) -> Code:
        name = node.name
        if not name.startswith("."):
            for variable, code in reversed(self._scope):
                if variable == name:
                    return code
        name = name.removeprefix(".")
        if name == "device":
            return Code(lambda state: state.device, 1)
        return _type_value(name)

    def _select(self, node: Select) -> Code:
        if node in self._functions:
            return _type_value(self._functions[node])
        operand = self.compile(node.operand)
        run, name = operand.run, node.field
        if node.test:
            return Code(lambda state: has(run(state), name), operand.cost)
        if node.optional or t.is_optional(self._types[node.operand]):
            return Code(lambda state: optional_at(run(state), name), operand.cost + 1)

        def select(state: State) -> Any:
            value = run(state)
            if type(value) is not CelMap:
                if type(value) is Optional:
                    return optional_at(value, name)
                raise CelError(f"no such key: {name}")
            field_value = value.entries.get(name, MISSING)
            if field_value is MISSING:
                field_value = value.default
                if field_value is None:
                    raise CelError(f"no such key: {name}")
            return field_value

        return Code(select, operand.cost + 1)

    # Calls

    def _call(self, node: Call) -> Code:
        name = node.function
        special = _SPECIAL.get(name) if node.target is None else _SPECIAL_METHODS.get(name)
        if special is not None and node not in self._functions:
            return special(self, node)
        if node in self._functions or node.target is None:
            name = self._functions.get(node, name).removeprefix(".")
            return self._function(node, name, node.args, method=False)
        return self._function(node, name, [node.target, *node.args], method=True)

    def _function(self, node: Call, name: str, args: list[Node], *, method: bool) -> Code:
        codes = [self.compile(arg) for arg in args]
        cost = sum(code.cost for code in codes)
        spending = (library.SPENDING_METHODS if method else library.SPENDING_FUNCTIONS).get(name)
        function = None if spending else (library.METHODS if method else library.FUNCTIONS)[name]
        if method and name == "sum":
            function = self._sum_of(args[0])
        _check_constants(name, args, codes, method=method)
        if name == "format":
            self._check_format(args)
        dynamic = (library.METHOD_COSTS if method else library.FUNCTION_COSTS).get(name)
        if function is not None and all(code.constant is not MISSING for code in codes):
            folded = _fold(node, name, function, dynamic, codes, method=method)
            if folded is not None:
                return folded
        guard = self._guard(name, args, method=method)
        runs = tuple(code.run for code in codes)
        if dynamic is None:
            return Code(caller(function or spending, runs, guard, None, spending is not None), cost + 1)
        return Code(caller(function or spending, runs, guard, dynamic, spending is not None), cost)

    def _sum_of(self, arg: Node) -> Callable[..., Any]:
        arg_type = self._types[arg]
        element = arg_type.params[0].kind if arg_type.kind == "list" else ""
        if element in library.SUM_ZEROS:
            return total_of(library.SUM_ZEROS[element])
        return library.METHODS["sum"]

    def _guard(self, name: str, args: list[Node], *, method: bool) -> tuple[Overload, ...]:
        """Return the overloads to select from at run time. Empty if the static types determine the overload."""
        if name in OPERATORS or (name in CONVERSIONS and not method) or name == "@in":
            return ()
        if not any(_is_open(self._types[arg]) for arg in args):
            return ()
        overloads = (METHODS if method else FUNCTIONS)[name]
        return tuple(overload for overload in overloads if len(overload.args) == len(args))

    def _check_format(self, args: list[Node]) -> None:
        template, values = args[0], args[1]
        if not isinstance(template, Literal) or not isinstance(values, ListLiteral) or type(template.value) is not str:
            return
        try:
            letters = clauses(template.value)
        except CelError as error:
            raise CelSyntaxError(str(error), template.start) from error
        if len(letters) != len(values.elements):
            raise CelSyntaxError(f"format has {len(letters)} clauses for {len(values.elements)} values", values.start)
        for letter, value in zip(letters, values.elements, strict=True):
            self._check_clause(letter, value)

    def _check_clause(self, letter: str, value: Node) -> None:
        kind = self._types[value].kind
        if kind != "dyn" and kind not in CLAUSE_TYPES[letter]:
            raise CelSyntaxError(f"clause %{letter} does not take {self._types[value]}", value.start)
        if isinstance(value, ListLiteral):
            for element in value.elements:
                self._check_clause("s", element)

    # Operators with control flow, or with separate closures for speed

    def _conditional(self, node: Call) -> Code:
        condition, positive, negative = (self.compile(arg) for arg in node.args)
        test, yes, no = condition.run, positive.run, negative.run
        yes_cost, no_cost = positive.cost, negative.cost

        def choose(state: State) -> Any:
            value = test(state)
            if value is True:
                state.spend(yes_cost)
                return yes(state)
            if value is False:
                state.spend(no_cost)
                return no(state)
            raise no_overload()

        return Code(choose, condition.cost)

    def _logic(self, node: Logic) -> Code:
        codes = [self.compile(term) for term in node.terms]
        terms = tuple((code.run, code.cost) for code in codes[1:])
        first_run, decisive = codes[0].run, node.operator == "||"

        def decide(state: State) -> bool:
            failure: CelError | None = None
            try:
                value = first_run(state)
                if value is decisive:
                    return bool(decisive)
                if type(value) is not bool:
                    failure = no_overload()
            except CelError as error:
                failure = error
            for run, cost in terms:
                state.spend(cost)
                try:
                    value = run(state)
                except CelError as error:
                    failure = error
                    continue
                if value is decisive:
                    return bool(decisive)
                if type(value) is not bool:
                    failure = no_overload()
            if failure is not None:
                raise failure
            return not decisive

        return Code(decide, codes[0].cost)

    def _equality(self, node: Call) -> Code:
        left_code, right_code = (self.compile(arg) for arg in node.args)
        left_run, right_run = left_code.run, right_code.run
        negated = node.function == "_!=_"
        fixed = right_code.constant
        # Most selectors compare strings, so this comparison has its own code.
        if type(fixed) is str:
            max_cost = library.equality_cost(fixed, fixed)

            def equals_text(state: State) -> bool:
                value = left_run(state)
                if type(value) is str:
                    state.cost += max_cost if len(value) >= len(fixed) else library.equality_cost(value, fixed)
                    return bool(value == fixed) is not negated
                state.cost += max_cost and 1
                return equal_or_not(value, fixed, negated, state)

            return Code(equals_text, left_code.cost)

        def equals(state: State) -> bool:
            value, second = left_run(state), right_run(state)
            state.spend(library.equality_cost(value, second))
            return equal_or_not(value, second, negated, state)

        return Code(equals, left_code.cost + right_code.cost)

    def _index(self, node: Call) -> Code:
        target, key = (self.compile(arg) for arg in node.args)
        run, key_of = target.run, key.run
        cost = target.cost + key.cost + 1
        if node.function == "_[?_]" or t.is_optional(self._types[node.args[0]]):
            return Code(lambda state: optional_at(run(state), key_of(state)), cost)
        if key.constant is not MISSING and type(key.constant) not in _KEY_KINDS:
            raise CelSyntaxError(f"{type_name(key.constant)} is no key or index", node.args[1].start)
        if type(key.constant) is str:
            name = key.constant
            return Code(lambda state: at_name(run(state), name), cost)

        def index(state: State) -> Any:
            return at(run(state), key_of(state))

        return Code(index, cost)

    def _membership(self, node: Call) -> Code:
        """Compile `in`. A list of plain constants becomes a set, like in Kubernetes."""
        value, target = (self.compile(arg) for arg in node.args)
        elements = target.constant
        if type(elements) is not list or not elements or any(type(element) not in _KEY_KINDS for element in elements):
            return self._function(node, "@in", node.args, method=False)
        members = frozenset(CelMap.key(element) for element in elements if element == element)
        run = value.run

        def is_member(state: State) -> bool:
            candidate = run(state)
            if type(candidate) is Semver or type(candidate) is bytes:
                # Go cannot hash these types, so Kubernetes fails here.
                raise CelError(f"{type_name(candidate)} cannot be found in a list of other values")
            return type(candidate) in _KEY_KINDS and candidate == candidate and CelMap.key(candidate) in members

        return Code(is_member, value.cost)

    def _or_else(self, node: Call) -> Code:
        """Compile `or` and `orValue`. The argument is only evaluated if it is needed."""
        if node.target is None or len(node.args) != 1:
            raise CelSyntaxError(f"{node.function} is a method of optionals", node.pos)
        target, fallback = self.compile(node.target), self.compile(node.args[0])
        run, alternative, cost = target.run, fallback.run, fallback.cost
        unwrap, result = node.function == "orValue", self._types[node]

        def choose(state: State) -> Any:
            value = run(state)
            if type(value) is not Optional:
                # cel-go accepts a value of a fitting type, even if it is not an optional at run time.
                if unwrap and accepts(result, value):
                    return value
                raise no_overload()
            if value.present:
                return value.value if unwrap else value
            state.spend(cost)
            return alternative(state)

        return Code(choose, target.cost)

    # Literals of lists and maps

    def _list(self, node: ListLiteral) -> Code:
        codes = [self.compile(element) for element in node.elements]
        if not node.optional and all(type(code.constant) not in _NO_LITERAL for code in codes):
            return _constant([code.constant for code in codes])
        element_runs = tuple((code.run, index in node.optional) for index, code in enumerate(codes))

        def build(state: State) -> list[Any]:
            result: list[Any] = []
            for run, optional in element_runs:
                value = run(state)
                if not optional:
                    result.append(value)
                elif type(value) is not Optional:
                    raise no_overload()
                elif value.present:
                    result.append(value.value)
            return result

        return Code(build, sum(code.cost for code in codes) + _LIST_COST)

    def _map(self, node: MapLiteral) -> Code:
        codes = [(self.compile(key), self.compile(value), optional) for key, value, optional in node.entries]
        entry_runs = tuple((key.run, value.run, optional) for key, value, optional in codes)

        def build(state: State) -> CelMap:
            entries: dict[Any, Any] = {}
            for key_run, value_run, optional in entry_runs:
                key, value = CelMap.key(key_run(state)), value_run(state)
                if optional:
                    if type(value) is not Optional:
                        raise no_overload()
                    if not value.present:
                        continue
                    value = value.value
                # The last value of a repeated key applies, as in cel-go.
                entries[key] = value
            return CelMap(entries)

        fixed = [code.constant for key, value, __ in codes for code in (key, value)]
        if all(value is not MISSING for value in fixed) and not any(optional for __, __, optional in codes):
            try:
                return _constant(build(State.empty()))
            except CelError:
                pass  # Kubernetes reports it when the expression runs.
        return Code(build, sum(key.cost + value.cost for key, value, __ in codes) + _MAP_COST)

    # Scopes

    def _comprehension(self, node: Comprehension) -> Code:
        target = self.compile(node.target)
        slots = tuple(self._variable(name) for name in node.variables)
        predicate = self.compile(node.predicate) if node.predicate is not None else None
        body = self.compile(node.body) if node.body is not None else None
        self._leave(len(slots))
        loop = LOOPS[node.kind]
        return Code(
            loop(
                target.run,
                slots,
                (predicate.run, predicate.cost) if predicate else None,
                (body.run, body.cost) if body else None,
            ),
            target.cost,
        )

    def _bind(self, node: Bind) -> Code:
        """Compile `cel.bind`. The value is computed when it is first read."""
        value = self.compile(node.value)
        slot = self.slots
        self.slots += 1
        run, cost = value.run, value.cost

        def read(state: State) -> Any:
            bound_value = state.slots[slot]
            if bound_value is MISSING:
                state.spend(cost)
                bound_value = state.slots[slot] = _as_variable(run(state))
            return bound_value

        self._scope.append((node.name, Code(read, 1)))
        body = self.compile(node.body)
        self._leave()
        then = body.run

        def bind(state: State) -> Any:
            state.slots[slot] = MISSING
            return then(state)

        # The empty list of the loop in cel-go's expansion is a constant without a cost.
        return Code(bind, body.cost)

    def _opt_map(self, node: OptMap) -> Code:
        target = self.compile(node.target)
        slot, body = self._within(node.name, node.body)
        run, then = target.run, body.run
        # The expansion evaluates its target a second time.
        cost = target.cost + body.cost + (1 if node.flat else 2)
        flat = node.flat

        def opt_map(state: State) -> Any:
            value = run(state)
            if type(value) is not Optional:
                raise no_overload()
            if not value.present:
                state.spend(1)
                return NONE
            state.slots[slot] = _as_variable(value.value)
            state.spend(cost)
            result = then(state)
            return result if flat else Optional(True, result)

        return Code(opt_map, target.cost + 1)


def _as_variable(value: Any) -> Any:
    """Return the value of a variable of `cel.bind` or `optMap`.

    cel-go expands both to a loop with the variable as accumulator, and copies an empty map for the accumulator
    (interpreter/interpretable.go, `evalFold`). The copy has no default."""
    return CelMap({}) if type(value) is CelMap and not value.entries else value


def _type_value(name: str) -> Code:
    cel_type = TYPE_NAMES[name]
    names = {"null": "null_type", "timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration"}
    value = TypeValue(cel_type.name or names.get(cel_type.kind, cel_type.kind))
    return _constant(value)


def _is_open(cel_type: t.Type) -> bool:
    """Return True if values of a static type can have several types at run time."""
    return cel_type.kind in ("dyn", "any", "param") or any(map(_is_open, cel_type.params)) or cel_type.kind == "null"


# Conversions of constants are evaluated, and constant patterns are compiled, before an expression runs.
_PATTERNS = {"matches": 1, "find": 1, "findAll": 1}


def _check_constants(name: str, args: list[Node], codes: list[Code], *, method: bool) -> None:
    index = _PATTERNS.get(name)
    if index is not None and index < len(codes) and type(codes[index].constant) is str:
        try:
            regex_for(codes[index].constant)
            if name == "matches" and not method and isinstance(args[0], Literal):
                # The check of Kubernetes uses the first argument as the pattern, even if it is the text.
                regex_for(codes[0].constant)
        except CelError as error:
            raise CelSyntaxError(str(error), args[index].start) from error


def _fold(
    node: Call, name: str, function: Any, cost: Callable[..., int] | None, codes: list[Code], *, method: bool
) -> Code | None:
    """Return the constant result of a pure call of constants. None if the call fails, because the failure is reported
    at run time."""
    values = [code.constant for code in codes]
    conversion = name in CONVERSIONS and not method
    if not conversion and name not in ("quantity", "semver"):
        return None
    try:
        value = function(*values)
        call_cost = 0 if conversion else cost(*values) if cost else 1
    except CelError as error:
        if conversion and type(values[0]) not in _FOLDED_HERE:
            raise CelSyntaxError(str(error), node.pos) from error
        return None
    return _constant(value, call_cost)


_SPECIAL: dict[str, Callable[[_Compiler, Any], Code]] = {
    "_?_:_": _Compiler._conditional,
    "_==_": _Compiler._equality,
    "_!=_": _Compiler._equality,
    "_[_]": _Compiler._index,
    "_[?_]": _Compiler._index,
    "@in": _Compiler._membership,
}
_SPECIAL_METHODS: dict[str, Callable[[_Compiler, Any], Code]] = {
    "or": _Compiler._or_else,
    "orValue": _Compiler._or_else,
}
_COMPILERS: dict[type, Callable[[_Compiler, Any], Code]] = {
    Literal: _Compiler._literal,
    Ident: _Compiler._ident,
    Select: _Compiler._select,
    Call: _Compiler._call,
    Logic: _Compiler._logic,
    ListLiteral: _Compiler._list,
    MapLiteral: _Compiler._map,
    Comprehension: _Compiler._comprehension,
    Bind: _Compiler._bind,
    OptMap: _Compiler._opt_map,
}
