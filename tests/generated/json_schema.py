# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""JSON Schemas of the kinds for editors and linters, generated from the models.

The schemas use draft 7, which YAML editors support best. Unlike the schemas for API servers (`crd.py`), they include
metadata, reject unknown fields, and apply to documents without defaults. They contain the rules between fields that
JSON Schema can express (`Rule.schema`). `errorMessage`, `patternErrorMessage`, `deprecationMessage` and `doNotSuggest`
are keywords of editors, which validators ignore.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.base import JSONSchema, Model
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.resource import Resource
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.shape import FieldShape, Shape, fields_of

DRAFT = "http://json-schema.org/draft-07/schema#"

_TYPES = {"text": "string", "integer": "integer", "boolean": "boolean"}


def json_schema(kind: type[Resource]) -> JSONSchema:
    """Return the schema of a kind in the current format."""
    schema = _object(kind)
    properties = schema["properties"]
    properties["apiVersion"]["const"] = kind.group_version()
    properties["kind"]["const"] = kind.KIND
    if not kind.NAMESPACED:
        del properties["metadata"]["properties"]["namespace"]
    return {"$schema": DRAFT, "title": kind.KIND, **schema}


def schema_of_manifests(kinds: Iterable[type[Resource]]) -> JSONSchema:
    """Return the schema of manifests, which references the file `<Kind>.json` in the same directory for each kind.

    The schema accepts objects of other API groups, because the fleet ignores them. It checks the items of a List.
    """
    kinds = tuple(kinds)
    names = [kind.KIND for kind in kinds]
    of_the_fleet = {"apiVersion": {"pattern": "modelplane"}, "kind": {"not": {"pattern": "List$"}}}
    a_list = {"kind": {"const": "List"}}
    return {
        "$schema": DRAFT,
        "title": "Manifest",
        "description": "Object of a fleet. apiVersion and kind determine its schema.",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": {
            "apiVersion": {
                "type": "string",
                "description": "API group and version of the object.",
                "examples": sorted({kind.group_version() for kind in kinds}),
            },
            "kind": {"type": "string", "description": "Kind of the object.", "examples": names},
        },
        "allOf": [
            {
                "if": {"required": list(of_the_fleet), "properties": of_the_fleet},
                "then": {"properties": {"kind": {"enum": names}}},
            },
            *(
                {
                    "if": {"required": ["kind"], "properties": {"kind": {"const": name}}},
                    "then": {"$ref": f"{name}.json"},
                }
                for name in names
            ),
            {
                "if": {"required": ["kind"], "properties": a_list},
                "then": {"properties": {"items": {"type": "array", "items": {"$ref": "#"}}}},
            },
        ],
    }


def schema_of_document(model: type[Model]) -> JSONSchema:
    """Return the schema of a result. It accepts unknown fields, because new fields do not require a new version."""
    opened = _opened(_object(model))
    return {"$schema": DRAFT, "title": model.__name__, **opened}


def _opened(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _opened(part) for key, part in value.items() if (key, part) != ("additionalProperties", False)}
    return [_opened(part) for part in value] if isinstance(value, list) else value


def _object(model: type[Model]) -> JSONSchema:
    fields = fields_of(model)
    schema: JSONSchema = {"type": "object", "description": inspect.getdoc(model) or ""}
    required = [wire for wire, field in fields.items() if field.required and field.default is None]
    if required:
        schema["required"] = required
    if model.MIN_PROPERTIES:
        schema["minProperties"] = model.MIN_PROPERTIES
    schema["properties"] = {
        **{wire: _field(field) for wire, field in fields.items()},
        **{key: {"type": "null", "errorMessage": hint, "doNotSuggest": True} for key, hint in model.NOT_HERE.items()},
    }
    schema["additionalProperties"] = False
    rules = [_with_message(rule.schema, rule.message) for rule in model.RULES if rule.schema]
    if rules:
        schema["allOf"] = rules
    return schema


_ASSERTIONS = ("required", "contains", "enum", "pattern")
_PARTS = ("then", "else", "items", "additionalProperties", "propertyNames")


def _with_message(schema: JSONSchema, message: str) -> JSONSchema:
    """Return the schema of a rule in which all assertions have the message of the rule."""
    result = {name: _with_message(part, message) if name in _PARTS else part for name, part in schema.items()}
    properties = schema.get("properties", {})
    if properties:
        result["properties"] = {name: part and _with_message(part, message) for name, part in properties.items()}
    if "allOf" in schema:
        result["allOf"] = [_with_message(part, message) for part in schema["allOf"]]
    if False in properties.values() or any(name in schema for name in _ASSERTIONS):
        result["errorMessage"] = message
    return result


def _field(field: FieldShape) -> JSONSchema:
    schema = {**_schema(field.shape), "description": field.description}
    if field.default is not None:
        schema["default"] = field.default
    return schema


def _schema(shape: Shape) -> JSONSchema:
    if shape.kind == "object" and shape.model is not None:
        return _object(shape.model)
    if shape.kind == "map" and shape.item is not None:
        return _map(shape, shape.item)
    if shape.kind == "list" and shape.item is not None:
        return _limited({"type": "array"}, minItems=shape.shortest, maxItems=shape.longest) | {
            "items": _schema(shape.item)
        }
    if shape.int_or_string:
        # The pattern applies to texts, and the minimum to numbers.
        return _limited({"type": ["integer", "string"], "minimum": 0}, **_limits_of_text(shape))
    return _limited(
        {"type": _TYPES[shape.kind]},
        enum=list(shape.enum) or None,
        minimum=shape.minimum,
        maximum=shape.maximum,
        **_limits_of_text(shape),
    )


def _limits_of_text(shape: Shape) -> dict[str, Any]:
    return {
        "minLength": shape.shortest,
        "maxLength": shape.longest,
        "pattern": shape.pattern or None,
        "patternErrorMessage": shape.words or None,
    }


def _map(shape: Shape, item: Shape) -> JSONSchema:
    if shape.free:
        known = {shape.known_key: {"type": "string"}} if shape.known_key else None
        return _limited({"type": "object"}, properties=known)
    schema: JSONSchema = {"type": "object", "additionalProperties": _schema(item)}
    return _limited(schema, minProperties=shape.shortest, maxProperties=shape.longest)


def _limited(schema: JSONSchema, **limits: Any) -> JSONSchema:
    """Return the schema with all limits that are not None."""
    return schema | {name: limit for name, limit in limits.items() if limit is not None}
