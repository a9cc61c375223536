# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Requests and answers of AWS as botocore's service models describe them.

A request becomes a `Call`: what is called, and with which parameters. It is held against the model more strictly than a
client does: enumerations, patterns, greatest lengths and members that the model does not know. Answers that the double
gives itself are held against the model too, before they are written in the protocol of the service.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from xml.sax.saxutils import escape

import botocore.loaders
import botocore.model
import botocore.serialize
import botocore.validate
from ansible_collections.modelplane.fleet.tests.cloud.control import Answer
from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import Request
from moto.core.routing import NotFound, get_service_router
from moto.core.serialize import get_serializer_class
from moto.core.utils import get_service_model

Json = dict[str, Any]

# Services whose name in a signature is not the name of their model.
_SIGNED_AS = {"elasticfilesystem": "efs", "servicequotas": "service-quotas", "elasticloadbalancing": "elbv2"}
_CLASSIC_LOAD_BALANCING = "2012-06-01"
_READ_ONLY = ("Describe", "Get", "List", "Lookup", "Search", "Head", "Simulate")
# A dry run and an exchange of credentials change nothing either.
_READ_ONLY_OPERATIONS = {("sts", "AssumeRole"), ("sts", "AssumeRoleWithWebIdentity")}
_QUERY_PROTOCOLS = ("ec2", "query")


class UnknownOperation(Exception):  # noqa: N818
    """A request that no operation of the service's model matches."""


@dataclass
class Call:
    """One request. `findings` says what the service's model does not allow in it."""

    service: str
    region: str
    operation: str
    parameters: Json
    access_key: str = ""
    findings: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def mutating(self) -> bool:
        """Return whether the operation changes anything, by its name."""
        if (self.service, self.operation) in _READ_ONLY_OPERATIONS or self.parameters.get("DryRun") is True:
            return False
        return not self.operation.startswith(_READ_ONLY)

    @property
    def partition(self) -> str:
        for prefix, partition in (("cn-", "aws-cn"), ("us-gov-", "aws-us-gov")):
            if self.region.startswith(prefix):
                return partition
        return "aws"


@functools.cache
def strict_model(service: str) -> botocore.model.ServiceModel:
    """The model of botocore as it is, without what moto adds to it."""
    return botocore.model.ServiceModel(
        botocore.loaders.create_loader().load_service_model(service, "service-2"), service
    )


@functools.cache
def _moto_operation(service: str, operation: str) -> Any:
    return get_service_model(service).operation_model(operation)


def parse(environ: Mapping[str, Any], body: bytes) -> Call | None:
    """Parse a request. None for what is not signed, and for services without a model that the double reads.

    :raises UnknownOperation: with the text that names the request.
    """
    request = Request({**environ, "wsgi.input": BytesIO(body)})
    scope = _scope(request)
    if scope is None:
        return None
    access_key, region, signed_as = scope
    service = _SIGNED_AS.get(signed_as, signed_as)
    if service == "elbv2" and request.values.get("Version") == _CLASSIC_LOAD_BALANCING:
        service = "elb"
    if service == "s3":
        return None
    uri: Json = {}
    if service == "sts" and not request.values.get("Action"):
        raise UnknownOperation(f"sts: {request.method} {request.path}")
    operation = str(request.values.get("Action") or request.headers.get("X-Amz-Target", "").rpartition(".")[2])
    if not operation:
        try:
            model, uri = get_service_router(service).match(request)
        except NotFound:
            raise UnknownOperation(f"{service}: {request.method} {request.path}") from None
        operation = model.name
    if operation not in strict_model(service).operation_names:
        raise UnknownOperation(f"{service}: {operation}")
    parameters = _parameters(request, service, operation, uri, body)
    call = Call(service, region, operation, parameters, access_key)
    call.findings = findings(call, request, body)
    return call


def _scope(request: Request) -> tuple[str, str, str] | None:
    """Access key, region and service that a request is signed for, in its header or in its address."""
    found = re.search(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request", request.headers.get("Authorization", ""))
    if not found:
        found = re.match(r"([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request$", request.args.get("X-Amz-Credential", ""))
    return (found[1], found[2], found[3].lower()) if found else None


def _parameters(request: Request, service: str, operation: str, uri: Json, body: bytes) -> Json:
    model = _moto_operation(service, operation)
    parser = PROTOCOL_PARSERS[protocol_of(service)](model)
    parsed = parser.parse(
        {
            "method": request.method,
            "values": request.values,
            "headers": request.headers,
            "body": body,
            "url_path": request.path,
            "url_params": uri,
        }
    )
    # A list in the address that is not there comes out as an empty one.
    shape = strict_model(service).operation_model(operation).input_shape
    members = shape.members if shape else {}
    addressed = {name for name, member in members.items() if member.serialization.get("location")}
    dropped = [name for name, value in parsed.items() if value is None or (value == [] and name in addressed)]
    return {name: value for name, value in parsed.items() if name not in dropped}


def protocol_of(service: str) -> str:
    return str(strict_model(service).metadata["protocol"])


def findings(call: Call, request: Request, body: bytes) -> list[str]:
    """List what the model of the service does not allow in a request."""
    operation = strict_model(call.service).operation_model(call.operation)
    if operation.input_shape is None:
        return []
    reported = shape_findings(operation.input_shape, call.parameters)
    return reported or _unknown_members(call, operation, request, body)


def shape_findings(shape: botocore.model.Shape, value: Any) -> list[str]:
    """List how a value differs from a shape: types, required and unknown members, limits, enumerations and patterns."""
    report = botocore.validate.ParamValidator().validate(value, shape)
    if report.has_errors():
        return str(report.generate_report()).splitlines()
    return list(_limits(shape, value, ""))


def _limits(shape: botocore.model.Shape, value: Any, path: str) -> list[str]:
    """Check what botocore leaves to the service: enumerations, patterns and greatest lengths or values."""
    if shape.type_name == "structure":
        return [
            finding
            for name, one in value.items()
            for finding in _limits(shape.members[name], one, f"{path}.{name}".lstrip("."))
        ]
    reported = []
    greatest = shape.metadata.get("max")
    if shape.type_name == "list":
        reported = [
            finding for index, one in enumerate(value) for finding in _limits(shape.member, one, f"{path}[{index}]")
        ]
    elif shape.type_name == "map":
        for key, one in value.items():
            reported += _limits(shape.key, key, f"{path} (key)") + _limits(shape.value, one, f"{path}.{key}")
    elif shape.type_name == "string":
        reported = _text_limits(shape, str(value), path)
    size = value if isinstance(value, (int, float)) else len(value) if hasattr(value, "__len__") else 0
    if greatest is not None and size > greatest:
        reported.append(f"{path}: {value!r} is more than {greatest}")
    return reported


def _text_limits(shape: Any, value: str, path: str) -> list[str]:
    if shape.enum and value not in shape.enum:
        return [f"{path}: {value!r} is none of {', '.join(shape.enum)}"]
    pattern = _pattern(shape.metadata.get("pattern", ""))
    # AWS holds a whole value against a pattern, also where that has no anchors.
    if pattern and not pattern.fullmatch(value):
        return [f"{path}: {value!r} is not like {shape.metadata['pattern']}"]
    return []


@functools.cache
def _pattern(text: str) -> re.Pattern[str] | None:
    """A pattern of a model. The few that Python's expressions lack, such as classes of Unicode, are not checked."""
    try:
        return re.compile(text) if text else None
    except re.error:
        return None


def _unknown_members(call: Call, operation: Any, request: Request, body: bytes) -> list[str]:
    """Members of the request that its parameters, written again by botocore, do not have."""
    written = botocore.serialize.create_serializer(protocol_of(call.service)).serialize_to_request(
        call.parameters, operation
    )
    if protocol_of(call.service) in _QUERY_PROTOCOLS:
        if not request.form:
            return []
        return [f"{name}: is unknown" for name in sorted(set(request.form) - set(written["body"]))]
    reported = [f"{name} (query): is unknown" for name in sorted(set(request.args) - set(written["query_string"]))]
    if body and isinstance(written["body"], (bytes, str)):
        reported += _more_members(json.loads(body), json.loads(written["body"] or "{}"), "")
    return reported


def _more_members(sent: Any, known: Any, path: str) -> list[str]:
    if isinstance(sent, dict) and isinstance(known, dict):
        reported = []
        for name, value in sent.items():
            where = f"{path}.{name}".lstrip(".")
            reported += _more_members(value, known[name], where) if name in known else [f"{where}: is unknown"]
        return reported
    if isinstance(sent, list) and isinstance(known, list):
        return [
            finding
            for index, (one, other) in enumerate(zip(sent, known, strict=False))
            for finding in _more_members(one, other, f"{path}[{index}]")
        ]
    return []


def answer(call: Call, result: Json) -> tuple[Answer, list[str]]:
    """An answer in the protocol of the service, and what its model does not allow in it."""
    strict = strict_model(call.service).operation_model(call.operation)
    reported = shape_findings(strict.output_shape, result) if strict.output_shape is not None else []
    serializer = get_serializer_class(call.service, protocol_of(call.service))
    written = serializer(operation_model=_moto_operation(call.service, call.operation)).serialize(result)
    body = written["body"]
    return (
        written["status_code"],
        dict(written["headers"]),
        body.encode() if isinstance(body, str) else body,
    ), reported


def error_answer(service: str, refusal: Refusal) -> Answer:
    """An error in the protocol of the service."""
    status = refusal.status or _modelled_status(service, refusal.code)
    protocol = protocol_of(service)
    if protocol == "ec2":
        text = (
            f"<Response><Errors><Error><Code>{refusal.code}</Code><Message>{escape(refusal.message)}</Message></Error>"
            "</Errors><RequestID>7a62c49f-347e-4fc4-9331-6e8eEXAMPLE</RequestID></Response>"
        )
    elif protocol == "query":
        text = (
            f"<ErrorResponse><Error><Type>{'Sender' if status < 500 else 'Receiver'}</Type><Code>{refusal.code}</Code>"
            f"<Message>{escape(refusal.message)}</Message></Error>"
            "<RequestId>7a62c49f-347e-4fc4-9331-6e8eEXAMPLE</RequestId></ErrorResponse>"
        )
    else:
        # A JSON service names the error in a header; one of the older JSON protocol does so in the body.
        spelt = "Message" if service == "efs" else "message"
        members = {"__type": refusal.code} if protocol == "json" else {}
        content = {**members, spelt: refusal.message, **refusal.members}
        if service == "efs":
            content["ErrorCode"] = refusal.code
        return (
            status,
            {"Content-Type": "application/json", "x-amzn-ErrorType": refusal.code},
            json.dumps(content).encode(),
        )
    return status, {"Content-Type": "text/xml;charset=UTF-8"}, text.encode()


def _modelled_status(service: str, code: str) -> int:
    for shape in strict_model(service).error_shapes:
        if code in (shape.name, shape.metadata.get("error", {}).get("code")):
            return int(shape.metadata.get("error", {}).get("httpStatusCode", 400))
    return 400
