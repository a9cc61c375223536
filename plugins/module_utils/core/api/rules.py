# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The rules between fields, checked all over a resource, even over one whose fields are partly wrong."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from .base import Model, Rule, Violation
from .plain import Loc
from .shape import FieldShape, Shape, fields_of

EMPTY = "must not be empty"


@dataclass(frozen=True)
class LocatedViolation:
    """A rule that does not hold: where, in words, and the value it is about (None when there is none)."""

    loc: Loc
    message: str
    hint: str = ""
    value: object = None


def violations(model: Model, *, tolerant: bool, checked: Container[int] = ()) -> list[LocatedViolation]:
    """Every rule that does not hold in a resource and its parts.

    `tolerant` is for the models of `partial`: a rule that reads a field that is itself wrong has no answer. `checked`:
    parts (by `id`) in which all rules are known to hold.
    """
    search = _Search(tolerant, checked)
    search.within_model(model, ())
    return search.found


@dataclass
class _Search:
    """Search for what does not hold; `found` is what was found."""

    tolerant: bool
    checked: Container[int]
    found: list[LocatedViolation] = field(default_factory=list)

    def within_model(self, model: Model, loc: Loc) -> None:
        cls = type(model)
        if cls.MIN_PROPERTIES and len(model.model_fields_set) < cls.MIN_PROPERTIES:
            self.found.append(LocatedViolation(loc, EMPTY, f"Give {' or '.join(fields_of(cls))}"))
        for rule in cls.RULES:
            self.found += _check(rule, model, loc, self.tolerant)
        values = model.__dict__
        for part in _ruled_fields(cls):
            value = values.get(part.attribute)
            if value is not None:
                self.within(part.shape, value, (*loc, part.wire))

    def within(self, shape: Shape, value: Any, loc: Loc) -> None:
        if shape.kind == "object":
            if id(value) not in self.checked:
                self.within_model(value, loc)
        elif shape.item is not None:
            if shape.list_keys:
                self.found += _duplicates(shape, value, loc)
            if _ruled(shape.item):
                for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
                    self.within(shape.item, item, (*loc, key))


def _check(rule: Rule, model: Model, loc: Loc, tolerant: bool) -> Sequence[LocatedViolation]:
    try:
        answer = rule.check(model)
    except AttributeError:
        if tolerant:
            return ()
        raise
    if answer is True:
        return ()
    return [
        LocatedViolation((*loc, *each.path), each.message or rule.message, each.hint or rule.hint, each.value)
        for each in ((Violation(),) if isinstance(answer, bool) else answer)
    ]


def _duplicates(shape: Shape, items: Any, loc: Loc) -> Iterator[LocatedViolation]:
    if shape.item is None or shape.item.model is None:
        return
    attributes = [fields_of(shape.item.model)[key].attribute for key in shape.list_keys]
    seen: dict[tuple[object, ...], int] = {}
    for index, item in enumerate(items):
        key = tuple(item.__dict__.get(attribute) for attribute in attributes)
        if None in key:
            continue
        first = seen.setdefault(key, index)
        if first != index:
            names = " and ".join(shape.list_keys)
            yield LocatedViolation(
                (*loc, index, shape.list_keys[0]) if len(shape.list_keys) == 1 else (*loc, index),
                f"{names} must be unique in the list: item {first} has the same",
                "Rename one of them" if shape.list_keys == ("name",) else "Remove one of them",
                key[0] if len(key) == 1 else None,
            )


def partial(cls: type[Model], content: Mapping[str, Any], wrong: frozenset[Loc], loc: Loc = ()) -> Model:
    """A model of what is right in a document, though some of its fields are not.

    Fields at the places `wrong`, whether they are there or not, and required ones that are missing, are no attributes
    of it.
    """
    values: dict[str, Any] = {}
    present = set()
    unset = []
    for part in fields_of(cls).values():
        if part.wire not in content:
            unset += [part.attribute] if (*loc, part.wire) in wrong else []
            continue
        present.add(part.attribute)
        try:
            values[part.wire] = _partial_value(part.shape, content[part.wire], wrong, (*loc, part.wire))
        except _UnreadableError:
            unset.append(part.attribute)
    model = cls.model_construct(present, **values)
    for attribute in unset:
        model.__dict__.pop(attribute, None)
    return model


class _UnreadableError(Exception):
    """A value that is wrong itself, so that nothing can be said about it."""


def _partial_value(shape: Shape, value: Any, wrong: frozenset[Loc], loc: Loc) -> Any:
    if loc in wrong:
        raise _UnreadableError
    if shape.kind == "object" and shape.model is not None:
        if not isinstance(value, dict):
            raise _UnreadableError
        return partial(shape.model, value, wrong, loc)
    if shape.kind == "list" and shape.item is not None:
        if not isinstance(value, list):
            raise _UnreadableError
        return [_partial_value(shape.item, item, wrong, (*loc, index)) for index, item in enumerate(value)]
    if shape.kind == "map" and shape.item is not None:
        if not isinstance(value, dict):
            raise _UnreadableError
        return {key: _partial_value(shape.item, item, wrong, (*loc, key)) for key, item in value.items()}
    return value


@cache
def _ruled_fields(cls: type[Model]) -> tuple[FieldShape, ...]:
    """The fields below which there is something to check."""
    return tuple(field for field in fields_of(cls).values() if _ruled(field.shape))


def _ruled(shape: Shape) -> bool:
    if shape.kind == "object" and shape.model is not None:
        return bool(shape.model.RULES or shape.model.MIN_PROPERTIES or _ruled_fields(shape.model))
    return bool(shape.list_keys) or (shape.item is not None and _ruled(shape.item))
