# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Requests to the double, and errors as Google's APIs answer them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.tests.cloud.control import Answer
from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal

Json = dict[str, Any]

JSON = {"Content-Type": "application/json; charset=UTF-8"}
# Methods that are POST, and change nothing.
READ_ONLY = {
    "generateAccessToken",
    "getIamPolicy",
    "testIamPermissions",
    "token",
    "wait",
}
_REASONS = {
    400: "invalid",
    401: "authError",
    403: "forbidden",
    404: "notFound",
    409: "alreadyExists",
    412: "conditionNotMet",
    429: "rateLimitExceeded",
    500: "internalError",
    503: "backendError",
}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    412: "FAILED_PRECONDITION",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
}
# HTTP statuses of errors, where a refusal does not say one.
_HTTP = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "ALREADY_EXISTS": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
}
# The numbers of google.rpc.Code.
_CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)


@dataclass
class Call:
    """One request. `operation`: the id of the method without the service. `path`: what it is on, from `projects` on.
    `parameters`: those of path and query, and the `body`. `principal`: whose access token it has."""

    service: str
    operation: str
    verb: str
    path: str
    parameters: Json
    errors: list[str] = field(default_factory=list)
    principal: str = ""
    region: str = ""

    @property
    def mutating(self) -> bool:
        return self.verb != "GET" and self.operation.rpartition(".")[2] not in READ_ONLY

    @property
    def body(self) -> Json:
        given: Json = self.parameters.get("body") or {}
        return given

    @property
    def project(self) -> str:
        """The ID of the project in the path."""
        parts = self.path.split("/")
        return parts[parts.index("projects") + 1] if "projects" in parts[:-1] else ""


def json_answer(value: Any, status: int = 200) -> Answer:
    return status, dict(JSON), json.dumps(value, indent=2).encode()


def error_answer(service: str, refusal: Refusal) -> Answer:
    """An error as the service returns it. Its code is one of google.rpc.Code, or a reason as `quotaExceeded`."""
    status = refusal.status or _HTTP.get(refusal.code, 400)
    error: Json = {"code": status, "message": refusal.message}
    canonical = refusal.code if refusal.code in _CODES else _STATUSES.get(status, "UNKNOWN")
    if service == "compute":
        reason = refusal.code if refusal.code not in _CODES else _REASONS.get(status, "invalid")
        error["errors"] = [{"message": refusal.message, "domain": "global", "reason": reason}]
    if service != "compute" or status in (401, 403):
        error["status"] = canonical
    if "details" in refusal.members:
        error["details"] = refusal.members["details"]
    return json_answer({"error": error}, status)


def rpc_status(code: str, message: str) -> Json:
    """A google.rpc.Status: its code is a number."""
    number = _CODES.index(code) if code in _CODES else _CODES.index(_CANONICAL.get(code, "INTERNAL"))
    return {"code": number, "message": message}


def canonical(code: str) -> str:
    """The code of google.rpc.Code for one of another kind."""
    return code if code in _CODES else _CANONICAL.get(code, "INTERNAL")


_CANONICAL = {
    "GCE_STOCKOUT": "UNAVAILABLE",
    "GCE_QUOTA_EXCEEDED": "RESOURCE_EXHAUSTED",
    "ZONE_RESOURCE_POOL_EXHAUSTED": "UNAVAILABLE",
    "QUOTA_EXCEEDED": "RESOURCE_EXHAUSTED",
}
