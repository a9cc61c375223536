# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Check of the rules between fields of a resource, including resources with invalid fields."""

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
    """Violation of a rule, with its location in the resource."""

    loc: Loc
    message: str
    hint: str = ""
    value: object = None
    """Value that violates the rule. None if the message needs no value."""


def violations(model: Model, *, tolerant: bool, checked: Container[int] = ()) -> list[LocatedViolation]:
    """Return all violations of rules in a resource.

    tolerant: skip a rule that reads an invalid field, for the models of `partial`.
    checked: models, by `id`, that are known to be valid.
    """
    search = _Search(tolerant, checked)
    search.within_model(model, ())
    return search.violations


@dataclass
class _Search:
    """Search for violations in a resource."""

    tolerant: bool
    checked: Container[int]
    violations: list[LocatedViolation] = field(default_factory=list)

    def within_model(self, model: Model, loc: Loc) -> None:
        cls = type(model)
        if cls.MIN_PROPERTIES and len(model.model_fields_set) < cls.MIN_PROPERTIES:
            self.violations.append(LocatedViolation(loc, EMPTY, f"Give {' or '.join(fields_of(cls))}"))
        for rule in cls.RULES:
            self.violations += _check(rule, model, loc, self.tolerant)
        values = model.__dict__
        for ruled in _ruled_fields(cls):
            value = values.get(ruled.attribute)
            if value is not None:
                self.within(ruled.shape, value, (*loc, ruled.wire))

    def within(self, shape: Shape, value: Any, loc: Loc) -> None:
        if shape.kind == "object":
            if id(value) not in self.checked:
                self.within_model(value, loc)
        elif shape.item is not None:
            if shape.list_keys:
                self.violations += _duplicates(shape, value, loc)
            if _ruled(shape.item):
                for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
                    self.within(shape.item, item, (*loc, key))


def _check(rule: Rule, model: Model, loc: Loc, tolerant: bool) -> Sequence[LocatedViolation]:
    try:
        result = rule.check(model)
    except AttributeError:
        if tolerant:
            return ()
        raise
    if result is True:
        return ()
    return [
        LocatedViolation(
            (*loc, *violation.path), violation.message or rule.message, violation.hint or rule.hint, violation.value
        )
        for violation in ((Violation(),) if isinstance(result, bool) else result)
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
        earlier = seen.setdefault(key, index)
        if earlier != index:
            names = " and ".join(shape.list_keys)
            yield LocatedViolation(
                (*loc, index, shape.list_keys[0]) if len(shape.list_keys) == 1 else (*loc, index),
                f"{names} must be unique in the list: item {earlier} has the same",
                "Rename one of them" if shape.list_keys == ("name",) else "Remove one of them",
                key[0] if len(key) == 1 else None,
            )


def partial(cls: type[Model], content: Mapping[str, Any], wrong: frozenset[Loc], loc: Loc = ()) -> Model:
    """Return a model of the valid fields of a document.

    The model has no attributes for the fields at the locations `wrong`, and for missing required fields.
    """
    values: dict[str, Any] = {}
    present = set()
    unset = []
    for entry in fields_of(cls).values():
        if entry.wire not in content:
            unset += [entry.attribute] if (*loc, entry.wire) in wrong else []
            continue
        present.add(entry.attribute)
        try:
            values[entry.wire] = _partial_value(entry.shape, content[entry.wire], wrong, (*loc, entry.wire))
        except _UnreadableError:
            unset.append(entry.attribute)
    model = cls.model_construct(present, **values)
    for attribute in unset:
        model.__dict__.pop(attribute, None)
    return model


class _UnreadableError(Exception):
    """Error of an invalid value, which rules cannot check."""


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
    """Return the fields with rules at or below them."""
    return tuple(field for field in fields_of(cls).values() if _ruled(field.shape))


def _ruled(shape: Shape) -> bool:
    if shape.kind == "object" and shape.model is not None:
        return bool(shape.model.RULES or shape.model.MIN_PROPERTIES or _ruled_fields(shape.model))
    return bool(shape.list_keys) or (shape.item is not None and _ruled(shape.item))
