# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What can go wrong between us and an API server, each as one sentence a person can act on.

The classes follow the `reason` and `code` of `metav1.Status` (Kubernetes API conventions, "Response Status Kind").
No text holds a token, a key or a kubeconfig.
"""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """A request that failed, or a connection that could not be made.

    `code`: the HTTP status, 0 where the server did not answer. `reason`: the server's word for it (`Conflict`).
    `message`: what the server said. `cluster`: name of the cluster. `action`: what was being done on which object.
    `hint`: what to do about it. `str()` is all of it in one sentence.
    """

    hint = ""

    def __init__(
        self, message: str, *, cluster: str, action: str = "", code: int = 0, reason: str = "", hint: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.cluster = cluster
        self.action = action
        self.code = code
        self.reason = reason
        self.hint = hint or type(self).hint

    def __str__(self) -> str:
        text = f"cluster {self.cluster}: "
        if self.action:
            text += f"{self.action}: "
        text += self.message.rstrip(". ")
        return f"{text}. {self.hint}" if self.hint else text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class ConnectionInvalid(ApiError):
    """How to reach a cluster is not told, or told wrong: a kubeconfig, a missing library, credentials."""


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
    """404 of an object that had to be there, or of its namespace."""


class AlreadyExists(ApiError):
    """409 of a create."""


class Conflict(ApiError):
    """409: another field manager owns fields (`managers`), or the object changed meanwhile (no managers)."""

    def __init__(self, message: str, *, managers: tuple[tuple[str, str], ...] = (), **told: Any) -> None:
        super().__init__(message, **told)
        self.managers = managers


class Invalid(ApiError):
    """422, 400: the server refuses the object. `causes`: (field path, message)."""

    def __init__(self, message: str, *, causes: tuple[tuple[str, str], ...] = (), **told: Any) -> None:
        super().__init__(message, **told)
        self.causes = causes


class Gone(ApiError):
    """410: the resourceVersion is too old for a watch; list again."""


class Throttled(ApiError):
    """429 after all retries."""

    hint = "The server is busy: try again later, or with fewer forks"


class ServerFault(ApiError):
    """5xx after all retries."""
