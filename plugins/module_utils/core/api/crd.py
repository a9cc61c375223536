# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""CustomResourceDefinitions of the models. API servers reject the documents that `parse` rejects.

The schemas are structural (https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/):
each node has a type, and there are no references. Rules between fields are CEL rules. Lists and texts that CEL rules
read have size limits, because API servers limit the estimated cost of rules.
"""

from __future__ import annotations

import inspect
from typing import Any

from .base import VERSION, Column, Model
from .resource import AGE_COLUMN, READY_COLUMN, Resource
from .shape import FieldShape, Shape, fields_of

CATEGORY = "modelplane"

_TYPES = {"text": "string", "integer": "integer", "boolean": "boolean"}
# API servers define these fields. A schema can only contain their type.
_BUILT_IN = ("apiVersion", "kind", "metadata")


def crd(kind: type[Resource]) -> dict[str, Any]:
    """Return the CustomResourceDefinition (apiextensions.k8s.io/v1) of a kind."""
    subresources: dict[str, Any] = {"status": {}}
    if kind.SCALE is not None:
        desired, observed, selector = kind.SCALE
        subresources["scale"] = {
            "specReplicasPath": desired,
            "statusReplicasPath": observed,
            "labelSelectorPath": selector,
        }
    names: dict[str, Any] = {
        "kind": kind.KIND,
        "listKind": f"{kind.KIND}List",
        "plural": kind.PLURAL,
        "singular": kind.KIND.lower(),
        "shortNames": list(kind.SHORT_NAMES),
        "categories": [CATEGORY],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.PLURAL}.{kind.GROUP}"},
        "spec": {
            "group": kind.GROUP,
            "names": names,
            "scope": "Namespaced" if kind.NAMESPACED else "Cluster",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": _columns(kind),
                    "subresources": subresources,
                    "schema": {"openAPIV3Schema": _root(kind)},
                }
            ],
        },
    }


def _columns(kind: type[Resource]) -> list[dict[str, Any]]:
    columns = list(kind.COLUMNS)
    if all(column.name != READY_COLUMN.name for column in columns):
        columns.append(READY_COLUMN)
    return [_column(column) for column in (*columns, AGE_COLUMN)]


def _column(column: Column) -> dict[str, Any]:
    definition: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        definition["description"] = column.description
    if column.priority:
        definition["priority"] = column.priority
    return definition


def _root(kind: type[Resource]) -> dict[str, Any]:
    schema = _object(kind)
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        **{name: node for name, node in schema["properties"].items() if name not in _BUILT_IN},
    }
    schema["required"] = [name for name in schema["required"] if name not in _BUILT_IN]
    return schema


def _object(model: type[Model]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "description": inspect.getdoc(model) or ""}
    fields = fields_of(model)
    required = [wire for wire, field in fields.items() if field.required]
    if required:
        schema["required"] = required
    if model.MIN_PROPERTIES:
        schema["minProperties"] = model.MIN_PROPERTIES
    schema["properties"] = {wire: _field(field) for wire, field in fields.items()}
    rules = [{"rule": rule.cel, "message": rule.message} for rule in model.RULES if rule.cel]
    if rules:
        schema["x-kubernetes-validations"] = rules
    return schema


def _field(field: FieldShape) -> dict[str, Any]:
    schema = _schema(field.shape)
    if field.description:
        schema["description"] = field.description
    if field.default is not None:
        schema["default"] = field.default
    return schema


def _schema(shape: Shape) -> dict[str, Any]:
    if shape.kind == "object" and shape.model is not None:
        return _object(shape.model)
    if shape.kind == "map" and shape.item is not None:
        return _map(shape, shape.item)
    if shape.kind == "list" and shape.item is not None:
        return _list(shape, shape.item)
    if shape.int_or_string:
        schema: dict[str, Any] = {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
        }
    else:
        schema = {"type": _TYPES[shape.kind]}
    limits = {
        "format": shape.format,
        "enum": list(shape.enum),
        "minLength": shape.shortest,
        "maxLength": shape.longest,
        "minimum": shape.minimum,
        "maximum": shape.maximum,
        "pattern": shape.pattern,
    }
    schema.update({key: limit for key, limit in limits.items() if limit is not None and limit not in ("", [])})
    return schema


def _map(shape: Shape, item: Shape) -> dict[str, Any]:
    schema: dict[str, Any]
    if shape.free:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        if shape.known_key:
            schema["properties"] = {shape.known_key: {"type": "string"}}
        return schema
    schema = {"type": "object", "additionalProperties": _schema(item)}
    if shape.shortest is not None:
        schema["minProperties"] = shape.shortest
    if shape.longest is not None:
        schema["maxProperties"] = shape.longest
    return schema


def _list(shape: Shape, item: Shape) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array"}
    if shape.shortest is not None:
        schema["minItems"] = shape.shortest
    if shape.longest is not None:
        schema["maxItems"] = shape.longest
    if shape.list_keys:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(shape.list_keys)}
    elif shape.atomic:
        schema["x-kubernetes-list-type"] = "atomic"
    schema["items"] = _schema(item)
    return schema
