# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Requests and answers of Google's APIs, held against their discovery documents.

A schema of a document becomes a JSON Schema that is stricter than Google's servers: fields that it does not name, and
those that only Google sets, are errors of a request.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema

from .documents import document

Json = dict[str, Any]

_OUTPUT_ONLY = re.compile(r"\s*\[?output[ -]only", re.IGNORECASE)
_INTEGERS = {"int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1)}
_TEXTS = {
    "int64": r"^-?[0-9]+$",
    "uint64": r"^[0-9]+$",
    "byte": r"^[A-Za-z0-9+/_-]*={0,2}$",
    "date": r"^\d{4}-\d\d-\d\d$",
    "date-time": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d",
    "google-datetime": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$",
    "google-duration": r"^-?\d+(\.\d{1,9})?s$",
    "google-fieldmask": r"^([A-Za-z0-9_.*]+(,[A-Za-z0-9_.*]+)*)?$",
}
_QUERIES = {"boolean": re.compile(r"true|false"), "integer": re.compile(r"-?\d+")}


@dataclass(frozen=True)
class Method:
    """A method of an API. `name` is its id without the service."""

    service: str
    name: str
    verb: str
    path: re.Pattern[str]
    parameters: Mapping[str, Json]
    request: str
    answer: str


class Api:
    """The API of a service."""

    def __init__(self, service: str) -> None:
        self.service = service
        self.document = document(service)
        self.base = self.document["servicePath"]
        self.methods = [self._method(each) for each in _methods(self.document)]
        self._validators: dict[tuple[str, str], Any] = {}

    def find(self, verb: str, path: str) -> tuple[Method, dict[str, str]] | None:
        """The method that a request is of, and the parameters in its path (without a slash at its beginning)."""
        if not path.startswith(self.base):
            return None
        rest = path.removeprefix(self.base)
        for method in self.methods:
            found = method.path.fullmatch(rest) if method.verb == verb else None
            if found:
                names = [name for name, each in method.parameters.items() if each["location"] == "path"]
                return method, {name: found[_group(name)] for name in names if _group(name) in found.groupdict()}
        return None

    def request_errors(self, method: Method, query: Mapping[str, list[str]], body: Any) -> list[str]:
        """Return the errors in the query and the body (None: there is none) of a request."""
        errors = list(self._query_errors(method, query))
        if method.request:
            errors += self._errors(method.request, method.name, {} if body is None else _without_nulls(body))
        elif body not in (None, {}):
            errors.append("it takes no body")
        return errors

    def answer_errors(self, method: Method, answer: Any) -> list[str]:
        return self._errors(method.answer, "", answer) if method.answer else []

    def _query_errors(self, method: Method, query: Mapping[str, list[str]]) -> Iterator[str]:
        known = {**self.document["parameters"], **method.parameters}
        for name, values in query.items():
            if name not in known or known[name]["location"] != "query":
                yield f"there is no parameter {name}"
                continue
            if len(values) > 1 and not known[name].get("repeated"):
                yield f"the parameter {name} is given twice"
            pattern = _QUERIES.get(known[name]["type"])
            allowed = known[name].get("enum")
            for value in values:
                if (pattern and not pattern.fullmatch(value)) or (allowed and value not in allowed):
                    yield f"the parameter {name} is {value!r}"
        for name, each in method.parameters.items():
            if each["location"] == "query" and each.get("required") and name not in query:
                yield f"the parameter {name} is missing"

    def _errors(self, schema: str, request_of: str, value: Any) -> list[str]:
        """Return the errors in a value. `request_of`: the method whose request it is; empty for an answer."""
        key = (schema, request_of)
        if key not in self._validators:
            self._validators[key] = jsonschema.Draft202012Validator(self._schema(schema, request_of))
        errors = self._validators[key].iter_errors(value)
        return sorted({f"{schema}{error.json_path[1:]}: {_message(error)}" for error in errors})

    def _schema(self, name: str, request_of: str) -> Json:
        """The JSON Schema of a schema of the document, with all that it refers to."""
        definitions: Json = {}
        missing = [name]
        while missing:
            each = missing.pop()
            if each not in definitions:
                converted = self._convert(self.document["schemas"][each], request_of)
                definitions[each] = converted
                missing += _references(converted)
        return {"$ref": f"#/$defs/{name}", "$defs": definitions}

    def _convert(self, schema: Json, request_of: str) -> Json:
        if "$ref" in schema:
            return {"$ref": f"#/$defs/{schema['$ref']}"}
        kind = schema.get("type", "object")
        if kind == "object":
            return self._object(schema, request_of)
        if kind == "array":
            return {"type": "array", "items": self._convert(schema["items"], request_of)}
        if kind == "string":
            return _text(schema)
        if kind == "integer":
            least, most = _INTEGERS[schema.get("format", "int32")]
            return {"type": "integer", "minimum": least, "maximum": most}
        return {} if kind == "any" else {"type": kind}

    def _object(self, schema: Json, request_of: str) -> Json:
        if "additionalProperties" in schema:
            return {"type": "object", "additionalProperties": self._convert(schema["additionalProperties"], request_of)}
        properties: Json = {}
        required = []
        for name, each in schema.get("properties", {}).items():
            closed = request_of and (each.get("readOnly") or _OUTPUT_ONLY.match(each.get("description", "")))
            properties[name] = {"not": {}} if closed else self._convert(each, request_of)
            if f"{self.service}.{request_of}" in each.get("annotations", {}).get("required", ()) and not closed:
                required.append(name)
        return {"type": "object", "properties": properties, "additionalProperties": False, "required": required}

    def _method(self, described: Json) -> Method:
        parameters = described.get("parameters", {})
        return Method(
            service=self.service,
            name=described["id"].removeprefix(f"{self.service}."),
            verb=described["httpMethod"],
            path=_path(described["path"], parameters),
            parameters=parameters,
            request=described.get("request", {}).get("$ref", ""),
            answer=described.get("response", {}).get("$ref", ""),
        )


@functools.cache
def api(service: str) -> Api:
    return Api(service)


def _methods(described: Json) -> Iterator[Json]:
    yield from described.get("methods", {}).values()
    for each in described.get("resources", {}).values():
        yield from _methods(each)


def _path(template: str, parameters: Mapping[str, Json]) -> re.Pattern[str]:
    """The paths of a method: `{name}` is one part, `{+name}` what the pattern of the parameter says."""
    text = ""
    for part in re.split(r"({[^}]*})", template):
        name = part.strip("{}+")
        if not part.startswith("{"):
            text += re.escape(part)
            continue
        pattern = parameters.get(name, {}).get("pattern") if part.startswith("{+") else None
        # Between the last part and the verb of a custom method there is a colon, which names do not have.
        inner = (pattern or "[^/]+").removeprefix("^").removesuffix("$").replace("[^/]+", "[^/:]+")
        text += f"(?P<{_group(name)}>{inner})"
    return re.compile(text)


def _group(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _text(schema: Json) -> Json:
    converted: Json = {"type": "string"}
    if "enum" in schema:
        converted["enum"] = schema["enum"]
    if "pattern" in schema:
        converted["pattern"] = f"^(?:{schema['pattern'].removeprefix('^').removesuffix('$')})$"
    known = schema.get("format", "")
    if known in _TEXTS:
        converted["pattern"] = _TEXTS[known]
    if known in ("int64", "uint64"):
        return {"anyOf": [converted, {"type": "integer"}]}
    return converted


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, each in schema.items():
            if key == "$ref":
                yield each.removeprefix("#/$defs/")
            else:
                yield from _references(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _references(each)


def _without_nulls(value: Any) -> Any:
    """A body without members that are null, which is how ProtoJSON has them. google-auth sends such."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _message(error: Any) -> str:
    return "only Google sets it" if error.validator == "not" else str(error.message)
