# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Operations of Google's APIs: their paths, their progress, and their errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .kinds import EVERY, OPERATIONS, VERSIONS

Operation = Mapping[str, Any]

# The codes of google.rpc.Code, by number.
_CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)


def path(resource: Mapping[str, Any], operation: Operation) -> str:
    """Return the path of an operation on an object, below the base URL of its service."""
    service = EVERY[resource["kind"]].service
    name = str(operation["name"])
    if service == "container":
        return f"{VERSIONS[service]}/{resource['parent'].partition('/clusters/')[0]}/operations/{name}"
    if service == "compute":
        return f"{VERSIONS[service]}/{resource['parent']}/operations/{name}"
    return f"{VERSIONS[service]}/{name}"


def of(resource: Mapping[str, Any], operations: Iterable[Operation]) -> list[Operation]:
    """Return the unfinished operations of Compute Engine on an object."""
    target = f"/{resource['parent']}/{EVERY[resource['kind']].collection}/{resource['name']}"
    return [
        operation
        for operation in operations
        if not done(operation) and str(operation.get("targetLink", "")).endswith(target)
    ]


def is_operation(kind: str, answer: Operation) -> bool:
    """Return True if the response to a change is an unfinished operation."""
    return EVERY[kind].service in OPERATIONS and "name" in answer and not done(answer)


def done(operation: Operation) -> bool:
    """Return True if an operation is finished, successfully or not."""
    return operation.get("status") == "DONE" or operation.get("done") is True


def errors(operation: Operation) -> list[tuple[str, str]]:
    """Return the errors of an operation: codes and messages; empty if it succeeded."""
    error = operation.get("error")
    if not error:
        return []
    if "errors" in error:
        return [(str(entry.get("code", "")), str(entry.get("message", ""))) for entry in error["errors"]]
    return [(code(error.get("code")), str(error.get("message", "")))]


def causes(actual: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the causes of a degraded or failed cluster or node pool: codes and messages of its conditions, or its
    message.

    Older codes of a condition are in `code`, newer codes in `canonicalCode`.
    """
    condition_causes = []
    for condition in actual.get("conditions") or ():
        code = condition.get("code") or ""
        canonical = condition.get("canonicalCode") or ""
        condition_causes.append(
            (canonical if code in ("", "UNKNOWN") and canonical else code, condition.get("message") or "")
        )
    return condition_causes or [("", str(actual.get("statusMessage") or ""))]


def progress(operation: Operation) -> str:
    """Return the progress of an operation, in a few words."""
    status = str(operation.get("status") or ("DONE" if operation.get("done") else "RUNNING"))
    percent = operation.get("progress")
    if isinstance(percent, int) and not done(operation):
        status += f", {percent} %"
    detail = operation.get("detail") or operation.get("statusMessage") or ""
    return f"{status}: {detail}" if detail else status


def code(number: Any) -> str:
    """Return the name of a code of google.rpc.Code; a name is returned unchanged."""
    return _CODES[number] if isinstance(number, int) and 0 <= number < len(_CODES) else str(number or "UNKNOWN")
