# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Requests to one API server, with credentials, retries, and error messages."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..core.secrets import MASK
from ..core.wire import Object
from ..http.errors import TransportError, shown_url
from ..http.retry import RETRIED_CODES, Attempts, retry_after
from .credentials import AccessError
from .errors import (
    CONTROL,
    ConnectionInvalid,
    LockLost,
    Unauthorized,
    Unreachable,
    from_answer,
    hidden,
    parse_status,
    shown,
    unfit,
)
from .target import Target
from .transport import LARGEST_ANSWER, Answer, Transport

# Timeout of a request to a server that was unreachable for the previous request.
_SHORT_SECONDS = 5.0
_MOST_WARNINGS = 50
WRITES = frozenset({"apply", "create", "replace", "patch", "delete"})
"""Verbs of Requester.sent that change objects on the server. Dry runs have the verb "dry-run"."""
# Characters of a token that is part of no other word.
_LONG = 16


@dataclass(frozen=True)
class Call:
    """Request, with its retry policy for an unknown outcome."""

    verb: str
    method: str
    path: str
    action: str
    """Verb phrase for messages."""
    query: Mapping[str, str]
    body: Mapping[str, Any] | None = None
    content_type: str = ""
    kind: str = ""
    once: bool = False
    """The request is not retried, and any response is its result."""


class Requester:
    """Sender of requests to one server. Thread-safe.

    `lost`: returns True if the lock for these requests was lost. Nothing is written afterwards.
    """

    def __init__(
        self,
        name: str,
        resolve: Callable[[], Target],
        *,
        server: str,
        timeout: float,
        retries: int,
        answer_limit: int = LARGEST_ANSWER,
    ) -> None:
        self.name = name
        self.server = server
        self.sent: Counter[str] = Counter()
        self.warnings: list[str] = []
        self.timeout = timeout
        self.retries = retries
        self.answer_limit = answer_limit
        self.lost: Callable[[], bool] = lambda: False
        self.lock = threading.RLock()
        self._resolve = resolve
        self._target: Target | None = None
        self._transport: Transport | None = None
        self._down = False

    def target(self, call: Call) -> Target:
        """Return the target of requests. The first call resolves it."""
        with self.lock:
            if self._target is None:
                try:
                    self._take(self._resolve())
                except AccessError as error:
                    raise self._no_access(call, error) from None
            target = self._target
        if target is None:
            raise self._no_access(call, AccessError("no way to reach it is given"))
        return target

    def close(self) -> None:
        """Close the connections."""
        with self.lock:
            if self._transport is not None:
                self._transport.close()

    def json(self, call: Call) -> Object:
        answer, _unsure = self.answer(call)
        return self.parsed(call, answer)

    def parsed(self, call: Call, answer: Answer) -> Object:
        self.check(call, answer)
        try:
            parsed = json.loads(answer.body)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise Unreachable(
                f"{shown_url(self.server)} answers with something that is no JSON object",
                cluster=self.name,
                action=call.action,
                code=answer.code,
                hint="Is this the address of an API server, or is there a proxy in between?",
            )
        return parsed

    def check(self, call: Call, answer: Answer) -> None:
        """Raise the error of a response without a 2xx code."""
        if 200 <= answer.code < 300:
            return
        if 300 <= answer.code < 400:
            raise Unreachable(
                f"{shown_url(self.server)} sends us elsewhere (HTTP {answer.code})",
                cluster=self.name,
                action=call.action,
                code=answer.code,
                hint="Give the address of the API server itself",
            )
        raise from_answer(
            answer.code,
            answer.body,
            cluster=self.name,
            action=call.action,
            hide=self._credentials() | (_secret_values(call.body) if call.kind == "Secret" else set()),
            kind=call.kind,
        )

    def _credentials(self) -> set[str]:
        """Return the credentials sent to the server, to mask them in messages."""
        with self.lock, contextlib.suppress(AccessError):
            if self._target is not None:
                scheme, __, value = self._target.credentials.authorization().rpartition(" ")
                password = ""
                if scheme == "Basic":
                    with contextlib.suppress(ValueError):
                        password = base64.b64decode(value).decode().partition(":")[2]
                return {value, password}
        return set()

    def _without_token(self, data: bytes) -> bytes:
        """Return the response of a server with the sent token masked.

        Objects, conditions and events that repeat the token might be printed or stored. Short tokens, such as
        passwords, can be part of any word, so they are masked only in errors.
        """
        for value in self._credentials():
            if len(value) >= _LONG and value.encode() in data:
                data = data.replace(value.encode(), MASK.encode())
        return data

    def answer(self, call: Call) -> tuple[Answer, bool]:
        """Return the response after all attempts, and True if an earlier attempt might have had an effect too."""
        timeout = min(self.timeout, _SHORT_SECONDS) if self._down else self.timeout
        attempts = Attempts(0 if self._down or call.once else self.retries, timeout)
        unsure = renewed = False
        while True:
            if call.verb in WRITES and self.lost():
                raise LockLost("the lock of this run was lost", cluster=self.name, action=call.action)
            transport = self._opened(call)
            self._count(call.verb)
            try:
                answer = transport.send(
                    call.method,
                    call.path,
                    query=call.query,
                    body=call.body,
                    content_type=call.content_type,
                    timeout=max(0.1, min(timeout, attempts.left(answered=True))),
                )
            except AccessError as error:
                raise self._no_access(call, error) from None
            except TransportError as error:
                unsure = unsure or error.sent
                if error.permanent or not attempts.again():
                    raise self._unreachable(call, error) from None
                continue
            self._down = False
            answer = replace(answer, body=self._without_token(answer.body))
            self._hear(answer)
            if answer.code == 401 and not renewed and self._renew(call):
                renewed = True
                continue
            if _passes(answer) and attempts.again(asked=_asked(answer), answered=True):
                unsure = unsure or answer.code != 429
                continue
            return answer, unsure

    def events(self, call: Call, deadline: float) -> Iterator[tuple[str, Object]]:
        """Yield the events of one stream until its end."""
        attempts = Attempts(self.retries, self.timeout)
        renewed = False
        while (remaining_seconds := deadline - time.monotonic()) > 0:
            transport = self._opened(call)
            self._count(call.verb)
            try:
                connect = min(self.timeout, remaining_seconds)
                with transport.stream(
                    call.path, query=call.query, timeout=remaining_seconds, connect=connect
                ) as pieces:
                    if not isinstance(pieces, Answer):
                        self._down = False
                        yield from self._lines(call, pieces, deadline)
                        return
                    answer = pieces
            except TransportError as error:
                if error.sent:
                    return
                if error.permanent or not attempts.again():
                    raise self._unreachable(call, error) from None
                continue
            except AccessError as error:
                raise self._no_access(call, error) from None
            if answer.code == 401 and not renewed and self._renew(call):
                renewed = True
            elif answer.code not in RETRIED_CODES or not attempts.again(asked=_asked(answer), answered=True):
                self.check(call, answer)

    def _lines(self, call: Call, pieces: Iterator[bytes], deadline: float) -> Iterator[tuple[str, Object]]:
        """Yield the events of a stream. A truncated last line is dropped, because the server sends it again."""
        buffer = bytearray()
        for piece in pieces:
            buffer += piece
            lines: list[bytearray] = []
            if b"\n" in piece:
                *lines, buffer = buffer.split(b"\n")
            for line in lines:
                if not line.strip():
                    continue
                try:
                    event = json.loads(self._without_token(bytes(line)))
                    kind, item = str(event["type"]), event["object"]
                except (ValueError, KeyError, TypeError, RecursionError):
                    return
                if not isinstance(item, dict) or not isinstance(item.setdefault("metadata", {}), dict):
                    return
                if kind == "ERROR":
                    code = item.get("code") or 500
                    if code in RETRIED_CODES or not isinstance(code, int):
                        return
                    raise from_answer(
                        code, json.dumps(item), cluster=self.name, action=call.action, hide=self._credentials()
                    )
                yield kind, item
            if time.monotonic() > deadline or len(buffer) > self.answer_limit:
                return

    def _opened(self, call: Call) -> Transport:
        with self.lock:
            target = self.target(call)
            try:
                if self._transport is None or self._transport.outdated():
                    self._transport = Transport(target, self.answer_limit)
            except AccessError as error:
                raise self._no_access(call, error) from None
            return self._transport

    def _take(self, target: Target) -> None:
        self._target, self.server = target, target.server
        if not target.verify and target.server.startswith("https"):
            self._warn(f"cluster {self.name}: the certificate of {shown_url(target.server)} is not verified")
        if target.server.startswith("http:"):
            self._warn(f"cluster {self.name}: the connection to {shown_url(target.server)} is not encrypted")

    def _renew(self, call: Call) -> bool:
        """Use other credentials after a response 401: renewed credentials, or current credentials of the kubeconfig."""
        with self.lock:
            try:
                if self._target is not None and self._target.credentials.renew():
                    return True
                previous_target = self._target
                self._take(self._resolve())
                if previous_target == self._target:
                    return False
                self._transport = None
                return True
            except AccessError as error:
                message = f"the server refuses the credentials, and there are no others: {error}"
                raise Unauthorized(message, cluster=self.name, action=call.action, code=401, hint=error.hint) from None

    def _count(self, verb: str) -> None:
        with self.lock:
            self.sent[verb] += 1

    def _warn(self, text: str) -> None:
        text = shown(hidden(text, self._credentials()))
        if text not in self.warnings and len(self.warnings) < _MOST_WARNINGS:
            self.warnings.append(text)

    def _hear(self, answer: Answer) -> None:
        """Store the warnings in a response (RFC 7234, 5.5: `299 - "text"`)."""
        warning = answer.headers.get("warning", "")
        if warning:
            with self.lock:
                for text in warning.split("299 - ")[1:]:
                    self._warn(f"cluster {self.name}: {text.strip().rstrip(',').strip()[1:-1]}")

    def _unreachable(self, call: Call, error: TransportError) -> Unreachable:
        self._down = True
        message = hidden(str(error), self._credentials())
        return Unreachable(message, cluster=self.name, action=call.action, hint=error.hint or _what_to_check(self.name))

    def _no_access(self, call: Call, error: AccessError) -> ConnectionInvalid:
        return ConnectionInvalid(str(error), cluster=self.name, action=call.action, hint=error.hint)


def _asked(answer: Answer) -> float | None:
    return retry_after(answer.headers.get("retry-after"), time.time())


def _passes(answer: Answer) -> bool:
    """Return True if the same request might have another response later."""
    if answer.code == 500:
        return not unfit(500, str(parse_status(answer.body).get("message") or ""))
    return answer.code in RETRIED_CODES


def _secret_values(body: Mapping[str, Any] | None) -> set[str]:
    """Return the values of a sent Secret. Messages must not contain them."""
    secret_values: set[str] = set()
    for field in ("data", "stringData"):
        values = (body or {}).get(field)
        for value in values.values() if isinstance(values, Mapping) else ():
            secret_values.add(str(value))
            with contextlib.suppress(ValueError):
                secret_values.add(base64.b64decode(str(value), validate=True).decode())
    return secret_values


def _what_to_check(name: str) -> str:
    variables = (
        "fleet_control_kubeconfig or fleet_control" if name == CONTROL else "fleet_kubeconfig or fleet_connection"
    )
    return f"Check that its API server runs, that this machine may connect to it, and its address ({variables})"
