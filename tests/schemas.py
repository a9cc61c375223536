# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Schemas by which an API server would accept an object: `check`. Schemas of custom kinds are in tests/data/schemas.

Rules in CEL are not among what is checked here (tests/crds/kubernetes has them checked by Kubernetes' own code).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api

FOLDER = Path(__file__).parent / "data" / "schemas"
KUBERNETES_VERSIONS = ("1.34", "1.35", "1.36")

_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_METADATA = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "maxLength": 253, "pattern": r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"},
        "namespace": {"type": "string", "maxLength": 63, "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
        "labels": _TEXTS,
        "annotations": _TEXTS,
    },
    "additionalProperties": False,
}
# Otherwise it parses a file of 1.5 MB for each object.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")


class SchemaError(AssertionError):
    """An object that an API server refuses, and why."""


def check(document: Mapping[str, Any], kubernetes_version: str = KUBERNETES_VERSIONS[-1]) -> None:
    """Raises SchemaError when the object is not valid: a field that is unknown, missing or wrong, two entries of a list
    with one key, a label that is none, a namespace too many or too few (custom kinds)."""
    group, _slash, version = document["apiVersion"].rpartition("/")
    who = f"{document['kind']} {document['metadata'].get('name')}"
    labels = document["metadata"].get("labels") or {}
    bad = [value for value in labels.values() if len(value) > 63 or not _LABEL_VALUE.fullmatch(value)]
    if bad:
        raise SchemaError(f"{who}: no value of a label: {bad}")
    found = definitions().get((group, version, document["kind"]))
    if found:
        _check_custom(document, found, who)
    elif group in (api.GROUP_MODELS, api.GROUP_INFRASTRUCTURE):
        try:
            api.parse(document)
        except api.InvalidResource as error:
            raise SchemaError(f"{who}: {error}") from error
    else:
        try:
            kubernetes_validate.validate(dict(document), kubernetes_version, strict=True)
        except kubernetes_validate.SchemaNotFoundError as error:
            raise SchemaError(f"{who}: {document['apiVersion']} is not of Kubernetes, nor in {FOLDER}") from error
        except kubernetes_validate.ValidationError as error:
            raise SchemaError(f"{who}: {error}") from error


@functools.cache
def definitions() -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return what is known of custom kinds, by group, version and kind; `schema` refuses unknown fields."""
    found = {}
    for path in sorted(FOLDER.glob("*.json")):
        definition = json.loads(path.read_text(encoding="utf-8"))
        schema = _closed(definition["schema"])
        schema["properties"] = {
            **schema["properties"],
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": _METADATA,
        }
        definition["schema"] = schema
        definition["validator"] = jsonschema.Draft4Validator(schema)
        found[definition["group"], definition["version"], definition["kind"]] = definition
    return found


def _closed(schema: Any) -> Any:
    """A structural schema in which objects have no fields but those that are named.

    Only the structure is walked (KEP-1693 structural schemas): below allOf, anyOf, oneOf and not are mere conditions.
    """
    if not isinstance(schema, dict):
        return schema
    closed = dict(schema)
    if isinstance(schema.get("properties"), dict):
        closed["properties"] = {name: _closed(part) for name, part in schema["properties"].items()}
        if "additionalProperties" not in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            closed["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if key in schema:
            closed[key] = _closed(schema[key])
    return closed


def _check_custom(document: Mapping[str, Any], definition: Mapping[str, Any], who: str) -> None:
    namespaced = "namespace" in document["metadata"]
    if namespaced != (definition["scope"] == "Namespaced"):
        raise SchemaError(f"{who}: the kind is {definition['scope']}")
    error = jsonschema.exceptions.best_match(definition["validator"].iter_errors(document))
    if error:
        raise SchemaError(f"{who}: {error.json_path}: {error.message}")
    for path in _doubled(document, definition["schema"], "$"):
        raise SchemaError(f"{who}: {path}: two entries have the same key")


def _doubled(value: Any, schema: Any, path: str) -> Iterator[str]:
    """The lists with two entries of one key (`x-kubernetes-list-type: map`) or two equal entries (`set`)."""
    if not isinstance(schema, dict):
        return
    if isinstance(value, dict):
        for name, held in value.items():
            below = (schema.get("properties") or {}).get(name, schema.get("additionalProperties"))
            yield from _doubled(held, below, f"{path}.{name}")
    elif isinstance(value, list):
        items = schema.get("items") or {}
        kind = schema.get("x-kubernetes-list-type")
        if kind == "map" and _repeats(_keys(entry, schema, items) for entry in value):
            yield path
        if kind == "set" and _repeats(value):
            yield path
        for index, entry in enumerate(value):
            yield from _doubled(entry, items, f"{path}[{index}]")


def _keys(entry: Mapping[str, Any], schema: Mapping[str, Any], items: Mapping[str, Any]) -> list[Any]:
    """The key of an entry, with defaults."""
    properties = items.get("properties") or {}
    return [entry.get(key, properties.get(key, {}).get("default")) for key in schema["x-kubernetes-list-map-keys"]]


def _repeats(values: Iterable[Any]) -> bool:
    seen = [json.dumps(value, sort_keys=True) for value in values]
    return len(seen) != len(set(seen))
