# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Field reference: a page per kind, with all fields, conditions and reasons.

The example values are from tests/data/api/complete.yaml, which uses every field of every kind.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import KINDS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.base import Model
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.meta import ObjectMeta, OwnerReference
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.resource import Condition, Resource
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.shape import FieldShape, Shape, fields_of
from ansible_collections.modelplane.fleet.tests.generated.condition_meanings import MEANINGS

COMPLETE = Path(__file__).resolve().parents[1] / "data" / "api" / "complete.yaml"
NOTE = "<!-- Generated from the API models by tests/generated/generate.py. Do not edit. -->\n"
SHARED = "README.md"
SHARED_MODELS: dict[type[Model], str] = {
    ObjectMeta: "metadata",
    OwnerReference: "metadata.ownerReferences[]",
    Condition: "status.conditions[]",
}
"""Models of all kinds, which have a common page."""

_TYPES = {"text": "text", "integer": "whole number", "boolean": "true or false", "any": "any value"}
_UNITS = {"text": ("character", "characters"), "list": ("item", "items"), "map": ("entry", "entries")}


@dataclass
class Section:
    """Fields of a model, with all its paths in a kind."""

    model: type[Model]
    description: str
    paths: list[str] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        """Fragment of the heading of the section."""
        return f"#{slug(self.paths[0])}"


def slug(heading: str) -> str:
    """Return the fragment of a heading on GitHub."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def pages() -> dict[str, str]:
    """Return the pages by name."""
    return {SHARED: shared_page(), **{f"{name}.md": kind_page(kind) for name, kind in KINDS.items()}}


def kind_page(kind: type[Resource]) -> str:
    """Return the page of a kind."""
    name = kind.KIND
    scope = "namespaced" if kind.NAMESPACED else "cluster-scoped"
    head = f"""\
# Fields of {name}

{NOTE}
{inspect.getdoc(kind)} `apiVersion: {kind.group_version()}`, {scope}, `kubectl get {kind.SHORT_NAMES[0]}`.
[{name}](../{name}.md) describes the kind, with examples. The [JSON Schema](../../schemas/{name}.json) is for
[editors](../../installation.md). [`metadata`]({SHARED}#metadata) has the same fields for all kinds.
"""
    sections = sections_of(kind)
    parts = [rendered(section, sections) for section in sections.values()]
    return "\n".join([head, *parts, *([conditions(name)] if name in MEANINGS else [])])


def shared_page() -> str:
    """Return the page with the list of kinds, and the common fields."""
    kinds = "\n".join(f"- [{name}]({name}.md): {first_line(kind)}" for name, kind in KINDS.items())
    sections = {model: Section(model, inspect.getdoc(model) or "", [path]) for model, path in SHARED_MODELS.items()}
    head = f"""\
# Fields of all kinds

{NOTE}
The pages list all fields of each kind, with type, default, constraints and an example, and all conditions with their
reasons:

{kinds}

Fields that are not marked as required are optional. Unknown fields are errors, and the error suggests a similar field.
All kinds have these fields:
"""
    return "\n".join([head, *(rendered(section, sections) for section in sections.values())])


def first_line(model: type[Model]) -> str:
    return (inspect.getdoc(model) or "").partition("\n")[0]


def sections_of(kind: type[Resource]) -> dict[type[Model], Section]:
    """Return the sections of a kind in the order of its fields. A model with several paths has one section."""
    found: dict[type[Model], Section] = {}
    for wire in ("spec", "status"):
        shape = fields_of(kind)[wire]
        _collect(shape.shape, wire, shape.description, found)
    return found


def _collect(shape: Shape, path: str, description: str, found: dict[type[Model], Section]) -> None:
    """Add the sections of the models at a path and below it."""
    if shape.item is not None:
        _collect(shape.item, f"{path}[]" if shape.kind == "list" else f"{path}.*", description, found)
    if shape.model is None or shape.model in SHARED_MODELS:
        return
    section = found.setdefault(shape.model, Section(shape.model, inspect.getdoc(shape.model) or description))
    section.paths.append(path)
    for wire, each in fields_of(shape.model).items():
        _collect(each.shape, f"{path}.{wire}", each.description, found)


def rendered(section: Section, sections: dict[type[Model], Section]) -> str:
    """Return a section with the rules and the table of fields."""
    lines = [f"## `{section.paths[0]}`", "", plain(section.description), ""]
    if section.paths[1:]:
        others = ", ".join(f"`{path}`" for path in section.paths[1:])
        lines += [f"Other paths with these fields: {others}.", ""]
    if section.model.MIN_PROPERTIES:
        lines += ["- must not be empty", ""]
    if section.model.RULES:
        lines += [*(f"- {plain(rule.message)}" for rule in section.model.RULES), ""]
    fields = fields_of(section.model)
    if fields:
        lines += ["| field | type | default | constraints | description | example |", "|---|---|---|---|---|---|"]
        lines += [_row(section.model, each, sections) for each in fields.values()] + [""]
    return "\n".join(lines)


def _row(model: type[Model], each: FieldShape, sections: dict[type[Model], Section]) -> str:
    default = ""
    if each.default is not None:
        default = code(each.default)
    elif each.required:
        default = "**required**"
    example = "" if _models(each.shape) else code(examples()[model.__name__, each.wire])
    cells = (
        f"`{each.wire}`",
        _type(each.shape, sections),
        default,
        limits(each.shape),
        plain(each.description),
        example,
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _models(shape: Shape) -> bool:
    """Return whether a shape contains objects with separate sections."""
    return shape.model is not None or (shape.item is not None and _models(shape.item))


def _type(shape: Shape, sections: dict[type[Model], Section], noun: str = "mapping") -> str:
    """Return a type in words, with a link to the fields of an object."""
    if shape.model in SHARED_MODELS and shape.model not in sections:
        return f"[{noun}]({SHARED}#{'statusconditions' if shape.model is Condition else 'metadata'})"
    if shape.model is not None:
        return f"[{noun}]({sections[shape.model].anchor})"
    if shape.free or shape.item is None:
        return f"any {noun}" if shape.kind == "map" else _scalar(shape)
    items = _type(shape.item, sections, "mappings")
    return f"{'list' if shape.kind == 'list' else 'mapping'} of {items}"


def _scalar(shape: Shape) -> str:
    return "text or whole number" if shape.int_or_string else _TYPES[shape.kind]


def limits(shape: Shape) -> str:
    """Return the constraints of a value in words."""
    found = []
    if shape.enum:
        found.append(alternatives(shape.enum))
    if shape.kind == "integer":
        found.append(span(shape.minimum, shape.maximum))
    elif shape.kind in _UNITS:
        one, many = _UNITS[shape.kind]
        size = span(shape.shortest, shape.longest)
        found.append(f"{size} {one if size.endswith(' 1') or size == '1' else many}" if size else "")
    if shape.list_keys:
        found.append(f"unique {' and '.join(f'`{key}`' for key in shape.list_keys)}")
    if shape.pattern:
        found.append(plain(shape.words.removeprefix("must be ")) if shape.words else f"`{shape.pattern}`")
    if shape.item is not None and not shape.free:
        of_items = limits(shape.item)
        found.append(f"each: {of_items}" if of_items else "")
    return "; ".join(filter(None, found))


def alternatives(values: Sequence[str]) -> str:
    """Return the values of an enumeration in words."""
    *choices, final = (f"`{value}`" for value in values)
    return f"{', '.join(choices)} or {final}" if choices else final


def span(least: int | None, most: int | None) -> str:
    """Return a range of numbers in words."""
    if least is not None and most is not None:
        return str(least) if least == most else f"{least} to {most}"
    if least is not None:
        return f"at least {least}"
    return "" if most is None else f"at most {most}"


def conditions(kind: str) -> str:
    """Return the conditions of a kind with their reasons."""
    lines = ["## Conditions", "", f"For their fields, see [`status.conditions[]`]({SHARED}#statusconditions).", ""]
    for meaning in MEANINGS[kind]:
        lines += [
            f"### `{meaning.type}`",
            "",
            f"True: {meaning.true}",
            "",
            "| status | reason | meaning |",
            "|---|---|---|",
        ]
        lines += [*(f"| {each.status} | `{each.name}` | {each.meaning} |" for each in meaning.reasons), ""]
    return "\n".join(lines)


@cache
def examples() -> dict[tuple[str, str], Any]:
    """Return the first value of each field in complete.yaml, by model name and wire name."""
    found: dict[tuple[str, str], Any] = {}
    for document in yaml.safe_load_all(COMPLETE.read_text(encoding="utf-8")):
        for key, value in _values(Shape("object", model=KINDS[document["kind"]]), document):
            found.setdefault(key, value)
    return found


def _values(shape: Shape, value: Any) -> Iterator[tuple[tuple[str, str], Any]]:
    if shape.model is not None:
        for wire, each in fields_of(shape.model).items():
            if wire in value:
                yield (shape.model.__name__, wire), value[wire]
                yield from _values(each.shape, value[wire])
    elif shape.item is not None:
        for item in value.values() if shape.kind == "map" else value:
            yield from _values(shape.item, item)


def code(value: Any) -> str:
    """Return the YAML of a value on one line."""
    written = yaml.safe_dump(value, default_flow_style=True, width=float("inf"), sort_keys=False, allow_unicode=True)
    return f"`{written.strip().removesuffix('...').strip()}`"


def plain(text: str) -> str:
    """Return text with Markdown escapes."""
    return text.replace("<", r"\<").replace("\n", " ")
