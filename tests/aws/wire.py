# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Requests and answers of AWS as they go over the wire, by botocore's own models of its services.

`read` turns a request into an operation and its parameters, `faults` says what AWS would not take of them, and `answer`
and `refusal` write what goes back.
"""

from __future__ import annotations

import io
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from botocore.serialize import create_serializer
from botocore.validate import ParamValidator
from moto.core.model import OperationModel, ServiceModel, Shape
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import Request, determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.serialize import DefaultAttributePicker, get_serializer_class
from moto.core.utils import get_service_model
from werkzeug.exceptions import NotFound

# The name in the scope of a signature -> the services of botocore that sign with it.
_SERVICES: dict[str, tuple[str, ...]] = {
    "autoscaling": ("autoscaling",),
    "ec2": ("ec2",),
    "eks": ("eks",),
    "elasticfilesystem": ("efs",),
    "elasticloadbalancing": ("elb", "elbv2"),
    "iam": ("iam",),
    "servicequotas": ("service-quotas",),
    "sts": ("sts",),
}
_SCOPE = re.compile(r"Credential=(?P<key>[^/]+)/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request")
READS = ("Describe", "Get", "List", "Head", "Lookup", "Simulate", "Batch", "Search")
_READ_TOO = frozenset({"AssumeRole", "AssumeRoleWithWebIdentity", "DecodeAuthorizationMessage"})
# Fields of a body that say which operation is meant, and are no parameters of it.
_ROUTING = frozenset({"Action", "Version"})
_STATUS = {
    "AccessDenied": 403,
    "AuthFailure": 401,
    "AccessDeniedException": 403,
    "ExpiredToken": 403,
    "ExpiredTokenException": 403,
    "InvalidClientTokenId": 403,
    "UnauthorizedOperation": 403,
    "UnrecognizedClientException": 403,
    "NoSuchEntity": 404,
    "DeleteConflict": 409,
    "EntityAlreadyExists": 409,
    "InternalError": 500,
    "InternalFailure": 500,
    "InsufficientInstanceCapacity": 500,
    "ServiceUnavailable": 503,
    "Unavailable": 503,
}


class AwsError(Exception):
    """An error answer of AWS: its code, its message and the further members of its shape."""

    def __init__(self, code: str, message: str, **members: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.members = members


@dataclass(frozen=True)
class Asked:
    """One request: what is asked of which service, as boto3 takes it. `own` if the double's own client asks."""

    service: str
    region: str
    operation: str
    parameters: dict[str, Any]
    access_key: str
    own: bool
    model: OperationModel
    protocol: str
    sent: Mapping[str, Any] = field(repr=False)

    @property
    def mutating(self) -> bool:
        reads = self.operation.startswith(READS) or self.operation in _READ_TOO
        return not reads and not self.parameters.get("DryRun")


def signed_for(environ: Mapping[str, Any]) -> tuple[str, str]:
    """The service and the region of a signature; empty for an unsigned request."""
    scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    return (scope["service"], scope["region"]) if scope else ("", "")


def read(environ: Mapping[str, Any], body: bytes, own: str) -> Asked | None:
    """What a request asks for; None when it is signed for a service that this module does not know, or not at all.

    `own` is the mark in the user agent of the double's own clients. Raises AwsError for an operation that no model has.
    """
    scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    if scope is None or scope["service"] not in _SERVICES:
        return None
    request = Request({**environ, "wsgi.input": io.BytesIO(body)})
    for service in _SERVICES[scope["service"]]:
        model = get_service_model(service)
        if not _speaks(model, request):
            continue
        try:
            operation, in_path = get_service_router(service).match(request)
        except NotFound:
            continue
        protocol = determine_request_protocol(model, request.content_type)
        sent = {
            "method": request.method,
            "values": request.values,
            "headers": request.headers,
            "body": request.data,
            "url_path": request.path,
            "url_params": in_path,
        }
        parameters = PROTOCOL_PARSERS[protocol](operation, map_type=dict).parse(sent)
        return Asked(
            service=service,
            region="aws-global" if service == "iam" else scope["region"],
            operation=str(operation.name),
            parameters=_plain(parameters),
            access_key=scope["key"],
            own=own in environ.get("HTTP_USER_AGENT", ""),
            model=operation,
            protocol=protocol,
            sent={"body": body, "query": environ.get("QUERY_STRING", ""), "path": request.raw_path},
        )
    asked_for = f"{request.method} {request.path} {request.values.get('Action', '')}".strip()
    raise AwsError("UnknownOperationException", f"no operation of {scope['service']} is {asked_for}")


def _speaks(model: ServiceModel, request: Request) -> bool:
    """Two services sign as elasticloadbalancing; the version of their interface tells them apart."""
    version = request.values.get("Version")
    return version is None or version == model.api_version


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def faults(asked: Asked) -> list[str]:
    """What is wrong with a request by botocore's model of its operation, one line each.

    Checked are the parameters (types, required members, enumerations, patterns, bounds) and that the request says
    nothing but them: it must be what botocore itself would send for these parameters.
    """
    shape = asked.model.input_shape
    if shape is None:
        return []
    report = ParamValidator().validate(asked.parameters, shape)
    found = [report.generate_report()] if report.has_errors() else []
    found += _out_of_bounds(asked.parameters, shape, "")
    return found or list(_unexplained(asked))


def _out_of_bounds(value: Any, shape: Shape, path: str) -> Iterator[str]:
    """Enumerations, patterns and upper bounds: AWS holds to them, botocore's validator does not."""
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            if name in value:
                yield from _out_of_bounds(value[name], member, f"{path}.{name}".lstrip("."))
    elif shape.type_name == "list":
        yield from _beyond(len(value), shape, path)
        for index, item in enumerate(value):
            yield from _out_of_bounds(item, shape.member, f"{path}[{index}]")
    elif shape.type_name == "map":
        yield from _beyond(len(value), shape, path)
        for key, item in value.items():
            yield from _out_of_bounds(key, shape.key, f"{path} (key {key})")
            yield from _out_of_bounds(item, shape.value, f"{path}.{key}")
    elif shape.type_name == "string" and isinstance(value, str):
        yield from _beyond(len(value), shape, path)
        if shape.enum and value not in shape.enum:
            yield f"{path}: {value!r} is none of {', '.join(shape.enum)}"
        pattern = _pattern(shape.metadata.get("pattern"))
        if pattern and not pattern.search(value):
            yield f"{path}: {value!r} does not match {pattern.pattern}"
    elif shape.type_name in ("integer", "long", "float", "double"):
        yield from _beyond(value, shape, path)


def _beyond(size: float, shape: Shape, path: str) -> Iterator[str]:
    most = shape.metadata.get("max")
    if most is not None and size > most:
        yield f"{path}: {size} is more than {most}"


@cache
def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error:
        # Patterns of models are Java's; what Python cannot read stays unchecked.
        return None


def _unexplained(asked: Asked) -> Iterator[str]:
    """What the request says beyond its parameters."""
    expected = create_serializer(asked.protocol).serialize_to_request(asked.parameters, asked.model)
    arrived_body = asked.sent["body"]
    if asked.protocol in ("query", "ec2"):
        arrived = dict(parse_qsl(arrived_body.decode(), keep_blank_values=True))
        wanted = {key: str(value) for key, value in expected["body"].items()}
    elif asked.protocol in ("json", "rest-json"):
        arrived = json.loads(arrived_body or b"{}")
        wanted = json.loads(expected["body"] or b"{}")
    else:
        return
    for name in sorted({*arrived, *wanted} - _ROUTING):
        if arrived.get(name) != wanted.get(name):
            yield f"{name}: {arrived.get(name)!r} arrived, and botocore would send {wanted.get(name)!r}"


def answer(asked: Asked, result: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer. Raises TypeError when the model of the operation has no such answer."""
    shape = asked.model.output_shape
    if shape is not None:
        report = ParamValidator().validate(dict(result), shape)
        wrong = ([report.generate_report()] if report.has_errors() else []) + list(_out_of_bounds(result, shape, ""))
        if wrong:
            raise TypeError(f"the double answers {asked.operation} with what its model does not have: {wrong}")
    serializer = get_serializer_class(asked.service, asked.protocol)
    written = serializer(operation_model=asked.model, value_picker=DefaultAttributePicker()).serialize(result)
    body = written["body"]
    return written["status_code"], dict(written["headers"]), body if isinstance(body, bytes) else body.encode()


def refusal(asked: Asked | None, error: AwsError) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an error answer."""
    request_id = str(uuid.uuid4())
    protocol = asked.protocol if asked else "rest-json"
    if protocol in ("json", "rest-json"):
        shape = _error_shape(asked, error.code) if asked else None
        status = int((shape.metadata.get("error", {}) if shape else {}).get("httpStatusCode", _status(error.code)))
        says = next((name for name in (shape.members if shape else ()) if name.lower() == "message"), "message")
        body = {says: error.message, **error.members}
        if shape and "ErrorCode" in shape.members:
            body["ErrorCode"] = error.code
        if protocol == "json":
            body["__type"] = error.code
        headers = {
            "Content-Type": "application/json",
            "x-amzn-ErrorType": error.code,
            "x-amzn-RequestId": request_id,
        }
        return status, headers, json.dumps(body).encode()
    told = f"<Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
    if protocol == "ec2":
        text = f"<Response><Errors><Error>{told}</Error></Errors><RequestID>{request_id}</RequestID></Response>"
    else:
        text = f"<Error><Type>Sender</Type>{told}</Error><RequestId>{request_id}</RequestId>"
        text = f"<ErrorResponse>{text}</ErrorResponse>"
    return _status(error.code), {"Content-Type": "text/xml"}, text.encode()


def _error_shape(asked: Asked, code: str) -> Shape | None:
    return next((shape for shape in asked.model.service_model.error_shapes if shape.name == code), None)


def _status(code: str) -> int:
    return _STATUS.get(code, 400)


def told_code(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """The code of an error answer that somebody else wrote; empty for a success."""
    if status < 400:
        return ""
    by_name = {name.lower(): value for name, value in headers.items()}
    if "x-amzn-errortype" in by_name:
        return by_name["x-amzn-errortype"].split(":")[0]
    in_xml = re.search(rb"<Code>([^<]+)</Code>", body)
    if in_xml:
        return in_xml[1].decode()
    in_json = re.search(rb'"(?:__type|code)":\s*"([^"]+)"', body)
    return in_json[1].decode().split("#")[-1] if in_json else str(status)
