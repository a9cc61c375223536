# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Problems of fields: message, field path, value and hint."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..problem import Problem, Ref
from ..secrets import masked, secret_like
from ..text import (
    JUDGED_CHARACTERS,
    KEY_CHARACTERS,
    LIKENESS,
    MISSPELT,
    NOT_TEMPLATED,
    entry_path,
    field_path,
    nearest,
    short,
)
from . import corrections
from .base import Model
from .plain import BEYOND_64_BITS, INT64, Loc, Unreadable, type_words
from .rules import EMPTY
from .shape import Shape, fields_of

REQUIRED = "is required"
_KINDS = {
    "text": "text",
    "integer": "a whole number",
    "boolean": "true or false",
    "object": "a mapping",
    "map": "a mapping",
    "list": "a list",
    "any": "a value",
}
_UNITS = {"text": ("character", "characters"), "list": ("item", "items"), "map": ("entry", "entries")}


def may_show(kind: type[Model], content: object, loc: Loc, value: object) -> bool:
    """Return whether messages can contain the value at a location, because it is not a secret.

    Fields that reference secrets are hidden, because users might write the secret itself. Environment variables are
    checked by name, and commands and arguments by content. A text with the format of a secret is always hidden.
    """
    if any(shape.hidden for shape in _shapes(kind, loc)):
        return False
    if isinstance(value, str) and masked(value[:JUDGED_CHARACTERS]) != value[:JUDGED_CHARACTERS]:
        return False
    if "env" in loc:
        variable = _at(content, loc[: loc.index("env") + 2])
        name = variable.get("name") if isinstance(variable, dict) else None
        return isinstance(name, str) and not secret_like(name)
    if "args" in loc or "command" in loc:
        return not secret_like(str(_at(content, loc)))
    return True


def _at(content: object, loc: Loc) -> object:
    for key in loc:
        content = _step(content, key)
    return content


def _step(content: object, key: str | int) -> object:
    if isinstance(content, dict):
        return content.get(key)
    if isinstance(content, list) and isinstance(key, int) and key < len(content):
        return content[key]
    return None


def path_of(kind: type[Model], loc: Sequence[str | int]) -> str:
    """Return the field path of a location, such as spec.devices[0].attributes["foo"].version."""
    path = ""
    shape: Shape | None = Shape("object", model=kind)
    for key in loc:
        if isinstance(key, int):
            path += f"[{key}]"
        elif shape is not None and shape.kind in ("map", "any"):
            path = entry_path(path, key)
        else:
            path = field_path(path, key)
        shape = _child(shape, key)
    return path


def _child(shape: Shape | None, key: str | int) -> Shape | None:
    if shape is None:
        return None
    if shape.kind == "object" and shape.model is not None:
        field = fields_of(shape.model).get(str(key))
        return field.shape if field else None
    return shape if shape.kind == "any" else shape.item


def shape_at(kind: type[Model], loc: Iterable[str | int]) -> Shape | None:
    """Return the shape of the value at a location. None if the API has no such field."""
    shape: Shape | None = Shape("object", model=kind)
    for key in loc:
        shape = _child(shape, key)
    return shape


def _shapes(kind: type[Model], loc: Loc) -> Iterator[Shape]:
    """Yield the shapes of a location and its parents."""
    for length in range(1, len(loc) + 1):
        shape = shape_at(kind, loc[:length])
        if shape is not None:
            yield shape


def problem_of_error(kind: type[Model], error: Mapping[str, Any], content: object, ref: Ref | None) -> Problem:
    """Return the problem of a pydantic error."""
    loc: Loc = tuple(error["loc"])
    path = path_of(kind, loc)
    if error["type"] == "missing":
        return Problem(REQUIRED, path=path, hint=_missing_hint(kind, loc), ref=ref)
    if error["type"] == "extra_forbidden":
        return unknown_field(kind, loc, ref)
    value = error["input"]
    can_show = may_show(kind, content, loc, value)
    message, hint = _wrong(shape_at(kind, loc), _name(loc), value, can_show)
    if isinstance(value, str) and "{{" in value:
        hint = NOT_TEMPLATED
    elif can_show and (amount := _amount_hint(kind, loc, value)):
        hint = amount
    elif isinstance(value, str) and not hint:
        parent = shape_at(kind, loc[:-1])
        text_hint = parent.model.hint_of_text(str(loc[-1]), value) if parent is not None and parent.model else ""
        hint = text_hint or _secret_hint(kind, loc)
    return Problem(message, path=path, value=short(value) if can_show else "", hint=hint, ref=ref)


def _amount_hint(kind: type[Model], loc: Loc, value: object) -> str:
    """Return the hint for an amount without a unit. Empty for other values. The number is also a valid amount."""
    parent = shape_at(kind, loc[:-1])
    if parent is None or parent.model is None or isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return ""
    return parent.model.hint_of_amount(loc, str(value))


def _secret_hint(kind: type[Model], loc: Loc) -> str:
    """Return the hint for a text, probably a secret, in a field that references a secret. Empty for other fields."""
    shape = shape_at(kind, loc)
    if shape is None or shape.model is None or not any(above.hidden for above in _shapes(kind, loc)):
        return ""
    required = [name for name, field in fields_of(shape.model).items() if field.required]
    return f"Keep secrets out of manifests: write a mapping with {' and '.join(required)}" if required else ""


def problem_of_unreadable(kind: type[Model], unreadable: Unreadable, ref: Ref | None) -> Problem:
    """Return the problem of a value that is invalid in every document.

    For a number that is too large, the problem has the message of its field, which is more precise.
    """
    shape, message, hint = shape_at(kind, unreadable.loc), unreadable.message, unreadable.hint
    if unreadable.number is not None and shape is not None:
        if shape.kind == "integer":
            message = shape.outside(unreadable.number) or message
        elif shape.kind != "any":
            message = f"must be {_KINDS[shape.kind]}, is {_is(shape, unreadable.number)}"
            hint = "Put it in quotes" if shape.kind == "text" else ""
    return Problem(message, path=path_of(kind, unreadable.loc), hint=hint, ref=ref)


def is_unknown_field(kind: type[Model], loc: Loc) -> bool:
    """Return whether a known object of the API does not have the field at a location."""
    parent = shape_at(kind, loc[:-1])
    return parent is not None and parent.model is not None and str(loc[-1]) not in fields_of(parent.model)


def unknown_field(kind: type[Model], loc: Loc, ref: Ref | None) -> Problem:
    """Return the problem of an unknown field."""
    return Problem("is not a known field", path=path_of(kind, loc), hint=_unknown_hint(kind, loc), ref=ref)


def _missing_hint(kind: type[Model], loc: Loc) -> str:
    parent = shape_at(kind, loc[:-1])
    field = fields_of(parent.model).get(str(loc[-1])) if parent is not None and parent.model is not None else None
    if field is None:
        return ""
    return f"One of {', '.join(field.shape.enum)}" if field.shape.enum else f"Description: {field.description}"


def _unknown_hint(kind: type[Model], loc: Loc) -> str:
    """Return the hint for an unknown field: a similar field, or where to set the value instead."""
    parent = shape_at(kind, loc[:-1])
    if parent is None or parent.model is None:
        return ""
    hint = parent.model.NOT_HERE.get(str(loc[-1])[:KEY_CHARACTERS])
    if hint:
        return hint
    near = _intended_field(parent.model, loc)
    return f"Did you mean {near}?" if near else f"Known here: {', '.join(fields_of(parent.model))}"


def _intended_field(model: type[Model], loc: Loc, likeness: float = LIKENESS) -> str:
    """Return the most probable field for an unknown name. `nodes` is nodeCount, although zones has a more similar
    spelling."""
    name = str(loc[-1])[:KEY_CHARACTERS]
    fields = fields_of(model)
    misspelt = nearest(name, fields, MISSPELT)
    if misspelt or likeness >= MISSPELT:
        return misspelt
    # Names that differ in several words probably have different meanings.
    similar = [field for field in fields if len(_words(name) ^ _words(field)) <= 1 and _words(name) & _words(field)]
    return nearest(name, similar, 0) or nearest(name, fields, likeness)


def _words(name: str) -> frozenset[str]:
    """Return the words of a name in camel case, without the s of plurals."""
    return frozenset(segment.lower().removesuffix("s") for segment in re.findall("[A-Z]*[a-z0-9]+|[A-Z]+", name))


def misspelt_fields(kind: type[Model], content: object, unknown: Iterable[Loc]) -> Iterator[Loc]:
    """Yield the locations of misspelt fields under their correct name. The values of these fields are unknown."""
    for loc in unknown:
        parent = shape_at(kind, loc[:-1])
        field = _intended_field(parent.model, loc, MISSPELT) if parent is not None and parent.model is not None else ""
        if field and _at(content, (*loc[:-1], field)) is None:
            yield *loc[:-1], field


def without_consequences(kind: type[Model], unknown: Iterable[Loc], problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems, except for missing fields that are probably the unknown fields."""
    fields = set()
    for loc in unknown:
        parent = shape_at(kind, loc[:-1])
        if parent is not None and parent.model is not None:
            fields.add((path_of(kind, loc[:-1]), _intended_field(parent.model, loc)))
    return [problem for problem in problems if not any(_follows(problem, path, name) for path, name in fields)]


def _follows(problem: Problem, path: str, name: str) -> bool:
    if problem.path == path:
        return problem.message == EMPTY or bool(name and problem.message.startswith(f"{name} is required"))
    return bool(name and problem.path == field_path(path, name) and problem.message == REQUIRED)


def _name(loc: Loc) -> str:
    return next((key for key in reversed(loc) if isinstance(key, str)), "")


def _wrong(shape: Shape | None, name: str, value: object, shown: bool) -> tuple[str, str]:
    """Return the message and the hint for a value of a known field. `shown`: they can contain the value."""
    if shape is None:
        return "is not valid", ""
    if shape.enum:
        return _wrong_choice(shape, value)
    if shape.kind == "integer" and isinstance(value, float) and value.is_integer() and abs(value) >= INT64:
        return shape.outside(int(value)) or BEYOND_64_BITS, ""
    if not _is_a(shape, value):
        if shape.kind == "object" and shape.words:
            return shape.words, corrections.of_type(shape, name, value, shown)
        if shape.int_or_string and shape.words:
            message = f"{shape.words}, is {type_words(value)}"
            return message, corrections.of_type(replace(shape, words=""), name, value, shown)
        return f"must be {_KINDS[shape.kind]}, is {_is(shape, value)}", corrections.of_type(shape, name, value, shown)
    return _beyond_limits(shape, value), corrections.of_spelling(shape, value) if shown else ""


def _is(shape: Shape, value: object) -> str:
    """Return the type of a value in words. For text, an integer is a number, because YAML reads 1.00 as 1."""
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return "a number" if shape.kind == "text" and is_whole and not isinstance(value, bool) else type_words(value)


def _is_a(shape: Shape, value: object) -> bool:
    match shape.kind:
        case "text":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "list":
            return isinstance(value, list)
        case "object" | "map":
            return isinstance(value, dict)
    return True


def _wrong_choice(shape: Shape, value: object) -> tuple[str, str]:
    choices = ", ".join(shape.enum)
    if not isinstance(value, str):
        return f"must be one of {choices}, is {type_words(value)}", corrections.of_choice(shape, value)
    return f"must be one of {choices}", corrections.of_choice(shape, value)


def _beyond_limits(shape: Shape, value: Any) -> str:
    if shape.kind == "integer":
        return shape.outside(value) or "is not a valid number"
    if shape.int_or_string and shape.words:
        # The number of characters of an amount is irrelevant to users.
        return shape.words
    size = len(value)
    singular, plural = _UNITS.get(shape.kind, ("", ""))
    if shape.shortest is not None and size < shape.shortest:
        if size == 0:
            return EMPTY
        return f"must be at least {shape.shortest} {singular if shape.shortest == 1 else plural}, is {size}"
    if shape.longest is not None and size > shape.longest:
        return f"must be at most {shape.longest} {singular if shape.longest == 1 else plural}, is {size}"
    return shape.words or (f"must match {shape.pattern}" if shape.pattern else "is not valid")
