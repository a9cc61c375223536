# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Problems of fields: what is wrong with a value, where, and what to write instead."""

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
    """Return whether the value at a place may be shown: what is written of secrets, and what an engine is started with,
    may hold some.

    Variables are judged by their name, commands and arguments by what they say. A text in the form of a secret is one
    anywhere.
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
    for part in loc:
        content = _step(content, part)
    return content


def _step(content: object, part: str | int) -> object:
    if isinstance(content, dict):
        return content.get(part)
    if isinstance(content, list) and isinstance(part, int) and part < len(content):
        return content[part]
    return None


def path_of(kind: type[Model], loc: Sequence[str | int]) -> str:
    """A place as a field path: spec.devices[0].attributes["foo"].version"""
    path = ""
    shape: Shape | None = Shape("object", model=kind)
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        elif shape is not None and shape.kind in ("map", "any"):
            path = entry_path(path, part)
        else:
            path = field_path(path, part)
        shape = _below(shape, part)
    return path


def _below(shape: Shape | None, part: str | int) -> Shape | None:
    if shape is None:
        return None
    if shape.kind == "object" and shape.model is not None:
        found = fields_of(shape.model).get(str(part))
        return found.shape if found else None
    return shape if shape.kind == "any" else shape.item


def shape_at(kind: type[Model], loc: Iterable[str | int]) -> Shape | None:
    """The shape of the value at a place; None where the API has no such field."""
    shape: Shape | None = Shape("object", model=kind)
    for part in loc:
        shape = _below(shape, part)
    return shape


def _shapes(kind: type[Model], loc: Loc) -> Iterator[Shape]:
    """Yield the shapes of the values on the way to a place."""
    for length in range(1, len(loc) + 1):
        shape = shape_at(kind, loc[:length])
        if shape is not None:
            yield shape


def problem_of_error(kind: type[Model], error: Mapping[str, Any], content: object, ref: Ref | None) -> Problem:
    """The problem for one error of pydantic."""
    loc: Loc = tuple(error["loc"])
    path = path_of(kind, loc)
    if error["type"] == "missing":
        return Problem(REQUIRED, path=path, hint=_missing_hint(kind, loc), ref=ref)
    if error["type"] == "extra_forbidden":
        return unknown_field(kind, loc, ref)
    value = error["input"]
    shown = may_show(kind, content, loc, value)
    message, hint = _wrong(shape_at(kind, loc), _name(loc), value, shown)
    if isinstance(value, str) and "{{" in value:
        hint = NOT_TEMPLATED
    elif shown and (amount := _amount_hint(kind, loc, value)):
        hint = amount
    elif isinstance(value, str) and not hint:
        parent = shape_at(kind, loc[:-1])
        said = parent.model.hint_of_text(str(loc[-1]), value) if parent is not None and parent.model else ""
        hint = said or _secret_hint(kind, loc)
    return Problem(message, path=path, value=short(value) if shown else "", hint=hint, ref=ref)


def _amount_hint(kind: type[Model], loc: Loc, value: object) -> str:
    """Return the hint for an amount without a unit. The number without a unit is also a valid amount."""
    parent = shape_at(kind, loc[:-1])
    if parent is None or parent.model is None or isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return ""
    return parent.model.hint_of_amount(loc, str(value))


def _secret_hint(kind: type[Model], loc: Loc) -> str:
    """Return what to write where a text, probably a secret itself, takes the place of what says where it is."""
    shape = shape_at(kind, loc)
    if shape is None or shape.model is None or not any(above.hidden for above in _shapes(kind, loc)):
        return ""
    required = [name for name, field in fields_of(shape.model).items() if field.required]
    return f"Keep secrets out of manifests: write a mapping with {' and '.join(required)}" if required else ""


def problem_of_unreadable(kind: type[Model], found: Unreadable, ref: Ref | None) -> Problem:
    """The problem of a value that no document can have. Of a number that is too large for any it is what its field
    says, where that says more."""
    shape, message, hint = shape_at(kind, found.loc), found.message, found.hint
    if found.number is not None and shape is not None:
        if shape.kind == "integer":
            message = shape.outside(found.number) or message
        elif shape.kind != "any":
            message = f"must be {_KINDS[shape.kind]}, is {_is(shape, found.number)}"
            hint = "Put it in quotes" if shape.kind == "text" else ""
    return Problem(message, path=path_of(kind, found.loc), hint=hint, ref=ref)


def is_unknown_field(kind: type[Model], loc: Loc) -> bool:
    """Return whether a place is that of a field that the API does not have, in an object that it has."""
    parent = shape_at(kind, loc[:-1])
    return parent is not None and parent.model is not None and str(loc[-1]) not in fields_of(parent.model)


def unknown_field(kind: type[Model], loc: Loc, ref: Ref | None) -> Problem:
    """The problem of a field that the API does not have."""
    return Problem("is not a known field", path=path_of(kind, loc), hint=_unknown_hint(kind, loc), ref=ref)


def _missing_hint(kind: type[Model], loc: Loc) -> str:
    parent = shape_at(kind, loc[:-1])
    field = fields_of(parent.model).get(str(loc[-1])) if parent is not None and parent.model is not None else None
    if field is None:
        return ""
    return f"One of {', '.join(field.shape.enum)}" if field.shape.enum else f"Description: {field.description}"


def _unknown_hint(kind: type[Model], loc: Loc) -> str:
    """The key that was probably meant, or where the matter is decided instead."""
    parent = shape_at(kind, loc[:-1])
    if parent is None or parent.model is None:
        return ""
    said = parent.model.NOT_HERE.get(str(loc[-1])[:KEY_CHARACTERS])
    if said:
        return said
    near = _meant(parent.model, loc)
    return f"Did you mean {near}?" if near else f"Known here: {', '.join(fields_of(parent.model))}"


def _meant(model: type[Model], loc: Loc, likeness: float = LIKENESS) -> str:
    """Return the field that the user probably meant by a name. `nodes` means nodeCount, although its spelling is closer
    to zones."""
    name = str(loc[-1])[:KEY_CHARACTERS]
    fields = fields_of(model)
    misspelt = nearest(name, fields, MISSPELT)
    if misspelt or likeness >= MISSPELT:
        return misspelt
    # Two names that differ in more words are probably of different things.
    similar = [field for field in fields if len(_words(name) ^ _words(field)) <= 1 and _words(name) & _words(field)]
    return nearest(name, similar, 0) or nearest(name, fields, likeness)


def _words(name: str) -> frozenset[str]:
    """Return the words of a name in camel case, without the s of plurals."""
    return frozenset(word.lower().removesuffix("s") for word in re.findall("[A-Z]*[a-z0-9]+|[A-Z]+", name))


def misspelt_places(kind: type[Model], content: object, unknown: Iterable[Loc]) -> Iterator[Loc]:
    """Yield the places of fields that are misspelt, and not there under their own name: what they are is not known."""
    for loc in unknown:
        parent = shape_at(kind, loc[:-1])
        meant = _meant(parent.model, loc, MISSPELT) if parent is not None and parent.model is not None else ""
        if meant and _at(content, (*loc[:-1], meant)) is None:
            yield *loc[:-1], meant


def without_consequences(kind: type[Model], unknown: Iterable[Loc], problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems but for those that unknown fields explain: the field that each was meant for is missing."""
    meant = set()
    for loc in unknown:
        parent = shape_at(kind, loc[:-1])
        if parent is not None and parent.model is not None:
            meant.add((path_of(kind, loc[:-1]), _meant(parent.model, loc)))
    return [problem for problem in problems if not any(_follows(problem, *each) for each in meant)]


def _follows(problem: Problem, path: str, name: str) -> bool:
    if problem.path == path:
        return problem.message == EMPTY or bool(name and problem.message.startswith(f"{name} is required"))
    return bool(name and problem.path == field_path(path, name) and problem.message == REQUIRED)


def _name(loc: Loc) -> str:
    return next((part for part in reversed(loc) if isinstance(part, str)), "")


def _wrong(shape: Shape | None, name: str, value: object, shown: bool) -> tuple[str, str]:
    """Return what a value of a known field should have been, and what to do. `shown`: it may be repeated."""
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
    """Return what a value is, in words. Where a text is due, 1.00 may have been written, which YAML reads as 1."""
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
    one, many = _UNITS.get(shape.kind, ("", ""))
    if shape.shortest is not None and size < shape.shortest:
        if size == 0:
            return EMPTY
        return f"must be at least {shape.shortest} {one if shape.shortest == 1 else many}, is {size}"
    if shape.longest is not None and size > shape.longest:
        return f"must be at most {shape.longest} {one if shape.longest == 1 else many}, is {size}"
    return shape.words or (f"must match {shape.pattern}" if shape.pattern else "is not valid")
