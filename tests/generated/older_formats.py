# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""JSON Schemas of the kinds for editors, which also accept older formats with a deprecation message.

Renamed and moved fields are checked at their older path. `spec` of a ModelDeployment with `workers` or `decode` is not
checked, because a schema cannot express its conversion.
"""

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.base import JSONSchema, without
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.resource import Resource
from ansible_collections.modelplane.fleet.plugins.module_utils.core.conversion.deployment import REPLICA_FIELDS
from ansible_collections.modelplane.fleet.tests.generated.json_schema import json_schema


def editor_schema(kind: type[Resource]) -> JSONSchema:
    """Return the schema of a kind in all supported formats."""
    schema = json_schema(kind)
    if kind.KIND in _OLDER:
        properties = schema["properties"]
        properties["spec"] = _OLDER[kind.KIND](properties["spec"])
    return schema


def _inference_class(spec: JSONSchema) -> JSONSchema:
    device = spec["properties"]["devices"]["items"]["properties"]
    memory = device["capacity"]["additionalProperties"]["properties"]["value"]
    gpu = _object({"count": device["count"], "memory": memory})
    resources = _older({**_object({"gpu": gpu}), "required": ["gpu"]}, "spec.devices")
    return _instead(spec, "devices", "resources", resources)


def _inference_cluster(spec: JSONSchema) -> JSONSchema:
    pool = spec["properties"]["nodePools"]["items"]
    properties = pool["properties"]
    for name, former in (("className", "class"), ("maxNodeCount", "maxNodes")):
        pool = _instead(pool, name, former, _older(properties[name], name))
    fabric = properties["fabric"]
    kinds = fabric["properties"]["type"]["enum"]
    pool["properties"]["fabric"] = {
        "description": fabric["description"],
        "if": {"type": "string"},
        "then": _older({"enum": kinds}, "fabric.type"),
        "else": fabric,
    }
    pools = {**spec["properties"]["nodePools"], "items": pool}
    return {**spec, "properties": {**spec["properties"], "nodePools": pools}}


def _model_deployment(spec: JSONSchema) -> JSONSchema:
    replica = spec["properties"]["template"]["properties"]["spec"]
    moved = {name: replica["properties"][name] for name in (*REPLICA_FIELDS, "engines")}
    moved["engines"] = _older(moved["engines"], "spec.template.spec.engines")
    kept = {name: schema for name, schema in spec["properties"].items() if name != "template"}
    former = {"anyOf": [_given(name) for name in ("engines", "workers", "decode")]}
    return {
        "type": "object",
        "description": spec["description"],
        "if": {"anyOf": [_given("template"), {"not": former}]},
        "then": spec,
        "else": {"if": _given("engines"), "then": {**replica, "properties": {**kept, **moved}}},
    }


def _model_endpoint(spec: JSONSchema) -> JSONSchema:
    api = spec["properties"]["api"]
    ignored = {"deprecationMessage": "is of an earlier design, and ignored. Leave it out, or write api.schema."}
    either = {"description": api["description"], "if": {"type": "object"}, "then": api, "else": ignored}
    return {**spec, "properties": {**spec["properties"], "api": either}}


_OLDER: dict[str, Callable[[JSONSchema], JSONSchema]] = {
    "InferenceClass": _inference_class,
    "InferenceCluster": _inference_cluster,
    "ModelDeployment": _model_deployment,
    "ModelEndpoint": _model_endpoint,
}


def _object(properties: JSONSchema) -> JSONSchema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _older(schema: JSONSchema, newer: str) -> JSONSchema:
    return {**schema, "deprecationMessage": f"is an earlier spelling of {newer}. Write {newer}."}


def _given(field: str) -> JSONSchema:
    return {"required": [field]}


def _instead(schema: JSONSchema, field: str, former: str, of_former: JSONSchema) -> JSONSchema:
    """Return the schema of an object with either a field or its older name."""
    needed = schema.get("required", ())
    rule = {"if": _given(former), "then": without(field)}
    if field in needed:
        rule["else"] = _given(field)
    return {
        **schema,
        "required": [name for name in needed if name != field],
        "properties": {**schema["properties"], former: of_former},
        "allOf": [*schema.get("allOf", ()), rule],
    }
