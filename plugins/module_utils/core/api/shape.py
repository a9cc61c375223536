# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Shapes of models, from their declarations. Error messages and CustomResourceDefinitions use them."""

# isinstance accepts a bool as an int. pylint: disable=unidiomatic-typecheck

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from ..._pydantic import FieldInfo
from .base import Atomic, Format, Hidden, IntOrString, Known, ListMap, Model, RequiredWithDefault, Words

Kind = Literal["text", "integer", "boolean", "object", "map", "list", "any"]

_SCALARS: Mapping[object, Kind] = {str: "text", int: "integer", bool: "boolean"}


@dataclass(frozen=True)
class Shape:
    """Shape of a value. Limits apply to its characters, items or entries, or to the number itself."""

    kind: Kind
    model: type[Model] | None = None
    item: Shape | None = None
    enum: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    shortest: int | None = None
    longest: int | None = None
    pattern: str = ""
    words: str = ""
    format: str = ""
    int_or_string: bool = False
    list_keys: tuple[str, ...] = ()
    atomic: bool = False
    known_key: str = ""
    hidden: bool = False

    def outside(self, number: int) -> str:
        """Return the limit that a number violates. Empty if the number is within the limits."""
        if self.minimum is not None and number < self.minimum:
            return f"must be at least {self.minimum}"
        if self.maximum is not None and number > self.maximum:
            return f"must be at most {self.maximum}"
        return ""

    @property
    def free(self) -> bool:
        """Return whether the value has no schema."""
        return self.kind == "any" or (self.kind == "map" and self.item is not None and self.item.kind == "any")


@dataclass(frozen=True)
class FieldShape:
    """Field of a model."""

    attribute: str
    """Name of the field in Python."""
    wire: str
    """Name of the field in documents."""
    shape: Shape
    required: bool
    default: Any = None
    """Default of the field. None if the field has no default."""
    description: str = ""


@cache
def fields_of(model: type[Model]) -> Mapping[str, FieldShape]:
    """Return the fields of a model by wire name, in the order of their declaration."""
    shapes = {}
    for attribute, info in model.model_fields.items():
        wire = info.alias or attribute
        markers = [*_inner_markers(info.annotation), *info.metadata]
        default = None if info.is_required() else info.get_default(call_default_factory=True)
        shapes[wire] = FieldShape(
            attribute=attribute,
            wire=wire,
            shape=_shape(info.annotation, info.metadata),
            required=info.is_required() or any(isinstance(marker, RequiredWithDefault) for marker in markers),
            default=default,
            description=info.description or "",
        )
    return shapes


def _inner_markers(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        return list(get_args(annotation)[1:])
    return []


def _shape(annotation: Any, markers: Any) -> Shape:
    """Return the shape of a type. None in a union is for optional fields."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        return _shape(inner, [*metadata, *markers])
    if origin in (Union, types.UnionType):
        (inner,) = (member for member in get_args(annotation) if member is not type(None))
        return _shape(inner, markers)
    if origin is Literal:
        shape = Shape("text", enum=get_args(annotation))
    elif origin is list:
        shape = Shape("list", item=_shape(get_args(annotation)[0], ()))
    elif origin is dict:
        shape = Shape("map", item=_shape(get_args(annotation)[1], ()))
    elif annotation in _SCALARS:
        shape = Shape(_SCALARS[annotation])
    elif isinstance(annotation, type) and issubclass(annotation, Model):
        shape = Shape("object", model=annotation)
    else:
        shape = Shape("any")
    for marker in markers:
        shape = _marked(shape, marker)
    return shape


def _marked(shape: Shape, marker: Any) -> Shape:
    if isinstance(marker, FieldInfo):
        for constraint in marker.metadata:
            shape = _marked(shape, constraint)
        return shape
    if isinstance(marker, ListMap):
        return replace(shape, list_keys=marker.keys)
    if isinstance(marker, Atomic):
        return replace(shape, atomic=True)
    if isinstance(marker, Words):
        return replace(shape, words=marker.text)
    if isinstance(marker, Format):
        return replace(shape, format=marker.name)
    if isinstance(marker, IntOrString):
        return replace(shape, int_or_string=True)
    if isinstance(marker, Hidden):
        return replace(shape, hidden=True)
    if isinstance(marker, Known):
        return replace(shape, known_key=marker.key)
    # pydantic converts the limits of Field() to objects with these attributes.
    return replace(
        shape,
        minimum=_first(getattr(marker, "ge", None), shape.minimum),
        maximum=_first(getattr(marker, "le", None), shape.maximum),
        shortest=_first(getattr(marker, "min_length", None), shape.shortest),
        longest=_first(getattr(marker, "max_length", None), shape.longest),
        pattern=getattr(marker, "pattern", None) or shape.pattern,
    )


def _first(new: int | None, old: int | None) -> int | None:
    return old if new is None else new
