# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Calls of Google's REST APIs: with a token and retries. The result is JSON or a GoogleError."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from .._urllib3 import HTTPError, urllib3
from ..cloud.provider import Operation
from ..cloud.waiting import PollResult
from ..core.cloud.gke import operations
from ..core.cloud.gke.kinds import EVERY, OPERATIONS, SERVICES
from ..core.cloud.gke.requests import Request
from ..http.errors import explain
from ..http.proxies import environment_proxy
from ..http.retry import Attempts, retry_after
from .errors import GoogleError, explained, from_answer
from .tokens import LoginError, Tokens, ask

_CONNECT_SECONDS = 10.0
_READ_SECONDS = 90.0
_RETRIES = 5
_RETRY_SECONDS = 60.0
_USER_AGENT = "modelplane.fleet"
_NETWORK = "Check the network, HTTPS_PROXY, NO_PROXY and endpoints"
_TLS = "Give the certificates that Google is reached with as ca_file"


class Client:
    """The APIs with the credentials of one identity. Safe for several threads. Every method raises GoogleError."""

    def __init__(self, tokens: Tokens, endpoints: Mapping[str, str] | None = None, ca_file: str = "") -> None:
        """`endpoints`: base URLs of services that differ from Google's public URLs."""
        self._tokens = tokens
        self._bases = {**SERVICES, **(endpoints or {})}
        self._ca_file = ca_file

    def call(self, request: Request, what: str = "") -> dict[str, Any]:
        """Return the response to a request. `what` describes the action if the request has no purpose."""
        return self.send(request.service, request.method, request.path, request.body, what or request.purpose)

    def send(
        self, service: str, method: str, path: str, body: Mapping[str, Any] | None = None, what: str = ""
    ) -> dict[str, Any]:
        """Return the response to one request, with retries. `path` may have a query."""
        url = f"{self._bases[service].rstrip('/')}/{path}"
        attempts = Attempts(_RETRIES, _RETRY_SECONDS)
        refused, renewed = "", False
        while True:
            token = self._token(what, refused)
            try:
                return self._once(url, method, body, what, token, refused)
            except GoogleError as error:
                why = error
            if why.status == 401 and not renewed:
                refused, renewed = token, True
            elif not why.passing or not attempts.again(asked=why.after, answered=why.status > 0):
                raise why

    def pages(self, service: str, path: str, field: str, what: str) -> Iterator[dict[str, Any]]:
        """Yield all entries of a list. Its pages have them in `field`."""
        for answer in self.answers(service, path, what):
            yield from answer.get(field) or ()

    def aggregated(self, path: str, field: str, what: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield all entries of an aggregated list of Compute Engine, each with its location, such as
        `zones/us-central1-a`."""
        for answer in self.answers("compute", path, what):
            for location, location_entries in (answer.get("items") or {}).items():
                for entry in location_entries.get(field) or ():
                    yield location, entry

    def answers(self, service: str, path: str, what: str) -> Iterator[dict[str, Any]]:
        """Yield the pages of a list."""
        token, previous_tokens = "", set[str]()
        while True:
            sign = "&" if "?" in path else "?"
            page = f"{sign}pageToken={quote(token, safe='')}" if token else ""
            answer = self.send(service, "GET", f"{path}{page}", None, what)
            yield answer
            token = str(answer.get("nextPageToken") or "")
            if not token:
                return
            if token in previous_tokens:
                raise GoogleError(what, "the list does not come to an end", hint=_NETWORK)
            previous_tokens.add(token)

    def _token(self, what: str, refused: str) -> str:
        try:
            return self._tokens.token(refused).value
        except LoginError as error:
            raise GoogleError(what, str(error), hint=error.hint, passing=error.passing) from None

    def _once(
        self, url: str, method: str, body: Mapping[str, Any] | None, what: str, token: str, old_token: str
    ) -> dict[str, Any]:
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": _USER_AGENT,
        }
        quota = self._tokens.quota_project()
        if quota:
            headers["X-Goog-User-Project"] = quota
        try:
            answer = ask(
                method,
                url,
                self._ca_file,
                seconds=_READ_SECONDS,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
            )
        except (HTTPError, OSError, ValueError, ArithmeticError, MemoryError) as error:
            raise _unreachable(what, url, error) from None
        if not 200 <= answer.status < 300:
            refused = from_answer(what, answer.status, answer.data, filter(None, (token, old_token)))
            refused.after = retry_after(answer.headers.get("Retry-After"), time.time())
            raise refused
        try:
            document = json.loads(answer.data or b"{}")
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise GoogleError(what, f"the answer of {urlsplit(url).netloc} is no JSON object", hint=_NETWORK)
        return document


def _unreachable(what: str, url: str, error: Exception) -> GoogleError:
    base = f"{urlsplit(url).scheme}://{urlsplit(url).netloc}"
    problem = explain(error, base, environment_proxy(url), _READ_SECONDS)
    untrusted = problem.permanent and "certificate" in str(problem)
    return GoogleError(
        what,
        str(problem),
        code="CertificateNotTrusted" if untrusted else "Unreachable",
        hint=_TLS if untrusted else _NETWORK,
        passing=not problem.permanent,
    )


def operation(client: Client, resource: Mapping[str, Any], answer: Mapping[str, Any], title: str) -> Operation | None:
    """Return the operation in the response to a change; None if the change is complete with the response.

    Raises GoogleError if it has already failed.
    """
    kind = resource["kind"]
    if not operations.is_operation(kind, answer):
        _check(answer, kind, title)
        return None
    path = operations.path(resource, answer)

    def poll() -> PollResult:
        try:
            current_operation = client.send(EVERY[kind].service, "GET", path, None, f"{title}: read its operation")
        except GoogleError as error:
            if not error.absent:
                raise
            # Google deletes operations after some time; the object itself is read next.
            return PollResult(f"{title}: done", done=True)
        message = f"{title}: {operations.progress(current_operation)}"
        try:
            _check(current_operation, kind, title)
        except GoogleError as failed:
            return PollResult(message, done=True, value=failed)
        return PollResult(message, done=operations.done(current_operation))

    return Operation(title, poll)


def _check(found: Mapping[str, Any], kind: str, title: str) -> None:
    """Raise GoogleError if an operation failed."""
    causes = operations.errors(found) if EVERY[kind].service in OPERATIONS else []
    if causes:
        explanation, hint = explained(causes)
        raise GoogleError(f"{title} failed", explanation, hint=hint, codes=[code for code, __ in causes])
