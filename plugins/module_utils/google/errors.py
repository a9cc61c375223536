# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Errors of Google's APIs, as one sentence with a fix. Error texts never contain a secret."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..cloud.errors import CloudError, shown
from ..core.cloud.gke.hints import hint_for
from ..core.cloud.hints import of_causes

_RETRIED = frozenset({429, 500, 502, 503, 504})
# Rate limits. Some services report them with 403.
_RATE = {
    "RATE_LIMIT_EXCEEDED",
    "RESOURCE_OPERATION_RATE_EXCEEDED",
    "rateLimitExceeded",
    "userRateLimitExceeded",
}
# Codes of GKE and Compute Engine during another change of the object.
_BUSY_CODES = {"CLUSTER_ALREADY_HAS_OPERATION", "RESOURCE_NOT_READY", "resourceNotReady"}
_BUSY = re.compile(
    r"incompatible operation|operation .*(currently|already) |operation in progress|"
    r"is (currently )?(being )?(updat|upgrad|creat|repair|delet)(ing|ed)",
    re.IGNORECASE,
)
_OPERATION = re.compile(r"\boperation-[\w-]+")


class GoogleError(CloudError):
    """Google rejects a request, cannot be reached, or reports a failure.

    `status`: the HTTP status, 0 without a response. `codes`: all codes of the response. `after`: the seconds to wait
    that the server requests, if any.
    """

    cloud = "Google"

    def __init__(
        self,
        what: str,
        message: str = "",
        *,
        code: str = "",
        hint: str = "",
        status: int = 0,
        codes: Iterable[str] = (),
        passing: bool = False,
    ) -> None:
        super().__init__(what, message, code=code, hint=hint, passing=passing)
        self.status = status
        self.codes = frozenset(codes)
        self.after: float | None = None

    @property
    def passing(self) -> bool:
        return self._passing or self.status in _RETRIED or bool(self.codes & _RATE)

    @property
    def absent(self) -> bool:
        """Return True if the object does not exist."""
        return self.status == 404

    @property
    def exists(self) -> bool:
        """Return True if the object already exists."""
        return self.status == 409 and bool(self.codes & {"ALREADY_EXISTS", "alreadyExists", "RESOURCE_ALREADY_EXISTS"})

    @property
    def outdated(self) -> bool:
        """Return True if an object was changed after it was read."""
        return self.status == 412 or (self.status == 409 and not self.exists)

    @property
    def busy(self) -> bool:
        """Return True if another change of the object must finish first."""
        return self.status in (400, 409) and (
            bool(self.codes & _BUSY_CODES)
            or ("FAILED_PRECONDITION" in self.codes and _BUSY.search(self.message) is not None)
        )

    @property
    def blocker(self) -> str:
        """The operation that keeps an object busy, if the message names it."""
        operation_match = _OPERATION.search(self.message)
        return operation_match[0] if operation_match else super().blocker


def from_answer(what: str, status: int, body: bytes, hide: Iterable[str] = ()) -> GoogleError:
    """Return the error of a response that is not 2xx. `hide`: texts that are masked in the error."""
    error = _error(body)
    details = [detail for detail in error.get("details") or () if isinstance(detail, Mapping)]
    reasons = [str(detail["reason"]) for detail in details if detail.get("reason")]
    reasons += [
        str(detail["reason"])
        for detail in error.get("errors") or ()
        if isinstance(detail, Mapping) and "reason" in detail
    ]
    codes = [*reasons, *([str(error["status"])] if error.get("status") else [])]
    error_text = str(error.get("message") or "") or _plain(body)
    for text in hide:
        error_text = error_text.replace(text, "********")
    code = codes[0] if codes else f"HTTP {status}"
    message = shown(error_text)
    return GoogleError(what, message, code=code, hint=_hint(codes, message), status=status, codes=codes)


def explained(causes: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """Return the text of causes (codes and messages), and their hints without duplicates."""
    shown_causes = [(code, shown(message).rstrip(". ")) for code, message in causes]
    explanation = "; ".join(": ".join(filter(None, shown_cause)) for shown_cause in shown_causes if any(shown_cause))
    return explanation, of_causes(hint_for, shown_causes)


def _hint(codes: Iterable[str], message: str) -> str:
    """Return the hint for the most specific code. The most specific codes are first."""
    return next(filter(None, (hint_for(code, message) for code in codes)), "") or hint_for("", message)


def _error(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        return {}
    # Methods that stream return lists with one entry.
    document = document[0] if isinstance(document, list) and document else document
    error = document.get("error") if isinstance(document, dict) else None
    return error if isinstance(error, dict) else {}


def _plain(body: bytes) -> str:
    """Return one line of a response that is not from Google: from a proxy, a load balancer, or another server."""
    text = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", body.decode("utf-8", "replace"), flags=re.S | re.I)
    return " ".join(text.split())[:200]
