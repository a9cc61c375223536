# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
# ruff: noqa: N818 -- the names are the reasons of metav1.Status
"""Errors of exchanges with an API server, each as one sentence a person can act on.

The classes follow the `reason` and `code` of `metav1.Status` (Kubernetes API conventions, "Response Status Kind").
No text holds a token, a key or a kubeconfig.
"""

from __future__ import annotations

import json
import os
import re
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

from ..core.secrets import masked
from ..core.text import printable

# The longest text of a server that is passed on.
_LONGEST = 1000


def shown(text: str, keep: str = "") -> str:
    """Return the message of a server without secrets and terminal escapes."""
    return printable(masked(text), keep)


CONTROL = "control"
"""Name of the control cluster in messages."""


class ApiError(Exception):
    """Failed request or connection. `str()` is one sentence with all fields.

    `code`: the HTTP status, 0 without a response. `reason`: the reason of the server (`Conflict`). `message`: the
    message of the server. `cluster`: name of the cluster. `action`: action and its object. `hint`: the fix.
    """

    hint = ""

    def __init__(
        self, message: str, *, cluster: str, action: str = "", code: int = 0, reason: str = "", hint: str = ""
    ) -> None:
        # Servers and their extensions write these untrusted texts, and terminals show them.
        message = shown(message, keep="\n")
        super().__init__(message)
        self.message = message
        self.cluster = cluster
        self.action = action
        self.code = code
        self.reason = reason
        self.hint = shown(hint) or type(self).hint

    def __str__(self) -> str:
        text = f"cluster {self.cluster}: "
        if self.action:
            text += f"{self.action}: "
        text += self.message.rstrip(". ")
        return f"{text}. {self.hint}" if self.hint else text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class ConnectionInvalid(ApiError):
    """A connection that is missing or invalid: a kubeconfig, a missing library, credentials."""


class Unreachable(ApiError):
    """No answer: DNS, connection, TLS, proxy, timeout, after retries."""


class Unauthorized(ApiError):
    """401, and no newer credentials could be had."""

    hint = "The server does not accept the credentials: renew the token or the kubeconfig"


class Forbidden(ApiError):
    """403."""

    hint = "Grant the permission to the user that this connection authenticates as"


class NotServed(ApiError):
    """The server serves no such kind."""


class NotFound(ApiError):
    """Response 404 for a required object, or for its namespace."""


class AlreadyExists(ApiError):
    """409 of a create."""


class Conflict(ApiError):
    """Response 409: another field manager owns fields (`managers`), or the object was changed (no managers)."""

    def __init__(self, message: str, *, managers: tuple[tuple[str, str], ...] = (), **details: Any) -> None:
        super().__init__(message, **details)
        self.managers = tuple((shown(manager), shown(field)) for manager, field in managers)


class Invalid(ApiError):
    """422, 400: the server refuses the object. `causes`: (field path, message)."""

    def __init__(self, message: str, *, causes: tuple[tuple[str, str], ...] = (), **details: Any) -> None:
        super().__init__(message, **details)
        self.causes = tuple((shown(field), shown(text)) for field, text in causes)


class Gone(ApiError):
    """Response 410: the resourceVersion is too old for a watch. The caller must list again."""


class Throttled(ApiError):
    """429 after all retries."""

    hint = "The server is busy: try again later, or with fewer forks"


class ServerError(ApiError):
    """5xx after all retries."""


class Unexpected(ApiError):
    """An answer that violates the Kubernetes API, or a bug of this collection in reading one."""

    hint = "If this is an API server that nothing stands in front of, please report it as a bug of modelplane.fleet"


class LockLost(ApiError):
    """Another run has acquired the lock of the fleet, or the server does not return the lock holder."""

    hint = "Another run may be at work on the fleet, so nothing more is changed: run again when it has ended"


UNEXPECTED = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""Errors of code that reads malformed responses."""


def unexpected(error: BaseException, cluster: str) -> Unexpected:
    """Return the error of a cluster for one of UNEXPECTED, with the location in the code."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    return Unexpected(f"{type(error).__name__} in {where} over what it answers", cluster=cluster)


# Owner of the field in the field manager conflict of a server-side apply.
_MANAGER = re.compile(r'conflict with "(?P<manager>[^"]*)"')
# Messages of server-side apply for objects of a wrong type. The server responds with 500.
_UNFIT = re.compile(r"failed to (create typed patch object|convert new object)")
_UNDECLARED = "field not declared in schema"
_UNDECLARED_HINT = "The server's version of the kind does not have the field: upgrade what defines it, or leave it out"
_BY_REASON: dict[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "Invalid": Invalid,
    "BadRequest": Invalid,
    "Expired": Gone,
    "Gone": Gone,
}
_BY_CODE: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: Throttled,
}


def from_answer(
    code: int, body: bytes | str | None, *, cluster: str, action: str, hide: Iterable[str] = (), kind: str = ""
) -> ApiError:
    """Return the error for a response without a 2xx code.

    `hide`: values that the texts must not contain, even if the server repeats them. `kind`: kind of the sent object.
    For a Secret, the text of the server is shortened by its quoted values.
    """
    status = parse_status(body)
    hide = tuple(hide)
    # The server repeats parts of an object when it rejects the object.
    quoted = kind == "Secret" and code not in (401, 403, 404, 409)
    reason = hidden(str(status.get("reason") or ""), hide)
    message = hidden(str(status.get("message") or "") or _plain(code, body, hide), hide, quoted=quoted)
    details = status.get("details")
    causes = tuple(
        (cause, hidden(text, hide, quoted=quoted), hidden(field, hide))
        for cause, text, field in _causes(details if isinstance(details, Mapping) else {})
    )
    about: dict[str, Any] = {"cluster": cluster, "action": action, "code": code, "reason": reason}
    if unfit(code, message):
        return Invalid(message, hint=_UNDECLARED_HINT if _UNDECLARED in message else "", **about)
    error_type = _BY_REASON.get(reason) or _BY_CODE.get(code) or (ServerError if code >= 500 else ApiError)
    if error_type is Conflict:
        managers = tuple(
            (match["manager"], field)
            for cause, text, field in causes
            if cause == "FieldManagerConflict" and (match := _MANAGER.search(text))
        )
        return Conflict(message, managers=managers, hint=_conflict_hint(managers), **about)
    if error_type is Invalid:
        fields = tuple((field, text) for _cause, text, field in causes)
        return Invalid(message, causes=fields, **about)
    return error_type(message, **about)


def unfit(code: int, message: str) -> bool:
    """Return True for a response 500 because of the sent object. The response is the same for each retry."""
    return code == 500 and _UNFIT.search(message) is not None


def parse_status(body: bytes | str | None) -> Mapping[str, Any]:
    """Return the metav1.Status in a response, or {} for other responses."""
    try:
        status = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        return {}
    return status if isinstance(status, dict) and status.get("kind") == "Status" else {}


# Values in messages of a server: in quotes, in braces (Go structures), or without quotes after a certain word.
_VALUES = re.compile(r"""\{.*\}|"(?:[^"\\]|\\.)*"|(?<=value: )[^\s,;\])]+""", re.DOTALL | re.IGNORECASE)


def hidden(text: str, values: Iterable[str], *, quoted: bool = False) -> str:
    """Return the text without the values, cut to a readable length. `quoted`: also mask other quoted values."""
    for value in sorted({value for value in values if len(value) >= 4}, key=len, reverse=True):
        text = text.replace(value, "********")
    # The text is truncated first, because some patterns take quadratic time.
    text = text[: 4 * _LONGEST]
    if quoted:
        text = _VALUES.sub("********", text)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."


def _causes(details: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    causes = details.get("causes")
    return [
        (str(cause.get("reason") or ""), str(cause.get("message") or ""), str(cause.get("field") or ""))
        for cause in (causes if isinstance(causes, list) else ())
        if isinstance(cause, Mapping)
    ]


def _plain(code: int, body: bytes | str | None, hide: Iterable[str]) -> str:
    """Return a line of a response that is not a Status, such as the response of a proxy or a load balancer."""
    text = hidden(body.decode("utf-8", "replace") if isinstance(body, bytes) else body or "", hide)
    text = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL | re.IGNORECASE)
    text = " ".join(text.split())[:200]
    return f"HTTP {code}: {text}" if text else f"HTTP {code}"


def _conflict_hint(managers: tuple[tuple[str, str], ...]) -> str:
    if not managers:
        return "The object was changed meanwhile: run again"
    names = ", ".join(sorted({manager for manager, _field in managers}))
    return f"Take the fields over with force, or let {names} give them up"
