# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""CEL's static types and their unification, by the rules of cel-go (`checker/types.go`)."""

from __future__ import annotations

from typing import NamedTuple


class Type(NamedTuple):
    """Static type: its kind, the name of a struct, an opaque type, or a type variable, and its parameters."""

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


def is_dyn(cel_type: Type) -> bool:
    return cel_type.kind == "dyn" or cel_type.kind == "any"


def is_dyn_or_error(cel_type: Type) -> bool:
    return cel_type.kind in _WILD


def is_optional(cel_type: Type) -> bool:
    return cel_type.name == "optional_type"


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

    def assignable(self, actual: tuple[Type, ...], desired: tuple[Type, ...]) -> bool:
        """Return True if all types fit together. New bindings of variables are kept only if the types fit."""
        if actual == desired:
            return True
        previous_bindings = dict(self._bound)
        if len(actual) == len(desired) and all(map(self._assignable, actual, desired)):
            return True
        self._bound = previous_bindings
        return False

    def substitute(self, cel_type: Type, *, free_to_dyn: bool = False) -> Type:
        """Return the type with its variables replaced. Unbound variables do not change, or become dyn."""
        bound = self._bound.get(cel_type)
        if bound is not None:
            return self.substitute(bound, free_to_dyn=free_to_dyn)
        if cel_type.kind == "param":
            return DYN if free_to_dyn else cel_type
        if cel_type.params and cel_type.kind in _SUBSTITUTED:
            return Type(
                cel_type.kind,
                cel_type.name,
                tuple(self.substitute(param, free_to_dyn=free_to_dyn) for param in cel_type.params),
            )
        return cel_type

    def _assignable(self, left: Type, right: Type) -> bool:
        if right.kind == "param":
            is_valid, is_bound = self._bind(left, right)
            if is_valid or is_bound:
                return is_valid
        if left.kind == "param":
            return self._bind(right, left)[0]
        if left.kind in _WILD or right.kind in _WILD:
            return True
        if left.kind == "null" or right.kind == "null":
            other_type = right if left.kind == "null" else left
            return other_type.kind in _NULLABLE or other_type.kind == "null"
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

    def _bind(self, cel_type: Type, variable: Type) -> tuple[bool, bool]:
        """Return True if a variable can represent a type, and True if the variable already represented a type."""
        if cel_type == variable:
            return True, True
        bound = self._bound.get(variable)
        if bound is not None:
            if cel_type == bound:
                return True, True
            if not self._assignable(cel_type, bound):
                return False, True
            general = more_general(cel_type, bound)
            if self._absent(variable, general):
                self._bound[variable] = general
            return True, True
        if self._absent(variable, cel_type):
            self._bound[variable] = cel_type
            return True, False
        return False, False

    def _absent(self, variable: Type, within: Type) -> bool:
        """Return True if a variable is not part of a type (occurs check). A variable must not represent a type that
        contains it."""
        if variable == within:
            return False
        if within.kind == "param":
            bound = self._bound.get(within)
            return bound is None or self._absent(variable, bound)
        return all(self._absent(variable, param) for param in within.params)


def more_general(left: Type, right: Type) -> Type:
    """Return the more general one of two types that fit together."""
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
