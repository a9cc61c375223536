# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""CEL's static types and their unification, by cel-go's rules (`checker/types.go`)."""

from __future__ import annotations

from typing import NamedTuple


class Type(NamedTuple):
    """A type: its kind, the name of a struct, an opaque type or a type variable, and its parameters."""

    kind: str
    name: str = ""
    params: tuple[Type, ...] = ()

    def __str__(self) -> str:
        name = _SHOWN.get(self.kind, self.name or self.kind)
        return f"{name}({', '.join(map(str, self.params))})" if self.params else name


_SHOWN = {"null": "null_type", "timestamp": "timestamp", "duration": "duration"}

BOOL = Type("bool")
BYTES = Type("bytes")
DOUBLE = Type("double")
INT = Type("int")
UINT = Type("uint")
STRING = Type("string")
NULL = Type("null")
DYN = Type("dyn")
ANY = Type("any")
ERROR = Type("error")
TIMESTAMP = Type("timestamp")
DURATION = Type("duration")
QUANTITY = Type("struct", "kubernetes.Quantity")
SEMVER = Type("struct", "kubernetes.Semver")
DEVICE = Type("struct", "kubernetes.DRADevice")
URL = Type("struct", "kubernetes.URL")
FORMAT = Type("struct", "kubernetes.NamedFormat")
IP = Type("opaque", "net.IP")
CIDR = Type("opaque", "net.CIDR")


def list_of(element: Type) -> Type:
    return Type("list", "", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", "", (key, value))


def optional_of(value: Type) -> Type:
    return Type("opaque", "optional_type", (value,))


def type_of(value: Type) -> Type:
    return Type("type", "", (value,))


def is_dyn(given: Type) -> bool:
    return given.kind == "dyn" or given.kind == "any"


def is_dyn_or_error(given: Type) -> bool:
    return given.kind in _WILD


def is_optional(given: Type) -> bool:
    return given.name == "optional_type"


_WILD = frozenset(("dyn", "any", "error"))
_NULLABLE = frozenset(("opaque", "struct", "any", "duration", "timestamp"))
_COMPOSED = frozenset(("opaque", "list", "map"))
_SUBSTITUTED = frozenset(("opaque", "list", "map", "type"))


class Bindings:
    """Values of the type variables of an expression."""

    __slots__ = ("_bound", "_count")

    def __init__(self) -> None:
        self._bound: dict[Type, Type] = {}
        self._count = 0

    def fresh(self) -> Type:
        self._count += 1
        return Type("param", f"_var{self._count}")

    def assignable(self, given: tuple[Type, ...], desired: tuple[Type, ...]) -> bool:
        """Return whether all types fit together; what is learnt about variables is kept only if they do."""
        if given == desired:
            return True
        before = dict(self._bound)
        if len(given) == len(desired) and all(map(self._assignable, given, desired)):
            return True
        self._bound = before
        return False

    def substitute(self, given: Type, *, free_to_dyn: bool = False) -> Type:
        """The type with its variables replaced; unbound ones stay, or become dyn."""
        bound = self._bound.get(given)
        if bound is not None:
            return self.substitute(bound, free_to_dyn=free_to_dyn)
        if given.kind == "param":
            return DYN if free_to_dyn else given
        if given.params and given.kind in _SUBSTITUTED:
            return Type(
                given.kind, given.name, tuple(self.substitute(part, free_to_dyn=free_to_dyn) for part in given.params)
            )
        return given

    def _assignable(self, left: Type, right: Type) -> bool:
        if right.kind == "param":
            valid, known = self._bind(left, right)
            if valid or known:
                return valid
        if left.kind == "param":
            return self._bind(right, left)[0]
        if left.kind in _WILD or right.kind in _WILD:
            return True
        if left.kind == "null" or right.kind == "null":
            other = right if left.kind == "null" else left
            return other.kind in _NULLABLE or other.kind == "null"
        if left.kind == "type":
            return right.kind == "type"
        if left.kind in _COMPOSED:
            return (
                left.kind == right.kind
                and left.name == right.name
                and len(left.params) == len(right.params)
                and all(map(self._assignable, left.params, right.params))
            )
        return left == right

    def _bind(self, given: Type, variable: Type) -> tuple[bool, bool]:
        """Return whether `variable` can stand for `given`, and whether it stood for something before."""
        if given == variable:
            return True, True
        bound = self._bound.get(variable)
        if bound is not None:
            if given == bound:
                return True, True
            if not self._assignable(given, bound):
                return False, True
            general = more_general(given, bound)
            if self._absent(variable, general):
                self._bound[variable] = general
            return True, True
        if self._absent(variable, given):
            self._bound[variable] = given
            return True, False
        return False, False

    def _absent(self, variable: Type, within: Type) -> bool:
        """The occurs check: a variable must not stand for something that contains it."""
        if variable == within:
            return False
        if within.kind == "param":
            bound = self._bound.get(within)
            return bound is None or self._absent(variable, bound)
        return all(self._absent(variable, part) for part in within.params)


def more_general(left: Type, right: Type) -> Type:
    """The more general of two types that are known to fit."""
    return left if _covers(left, right) else right


def _covers(left: Type, right: Type) -> bool:
    if is_dyn(left) or left.kind == "param":
        return True
    if is_dyn(right) or right.kind == "param" or left.kind != right.kind:
        return False
    if left.kind == "type":
        return True
    if left.kind in _COMPOSED:
        return (
            left.name == right.name
            and len(left.params) == len(right.params)
            and all(map(_covers, left.params, right.params))
        )
    return left == right
