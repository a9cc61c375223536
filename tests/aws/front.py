# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The door of the double: every request is read, checked, recorded, and answered by the double itself or by moto."""

from __future__ import annotations

import io
import socket
import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from moto.core.exceptions import ServiceException
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from . import reviews, wire
from .account import ACCOUNT, OPERATIONS, Account
from .tokens import is_presigned, who_presigned
from .wire import Asked, AwsError

Answer = tuple[int, dict[str, str], bytes]
StartResponse = Callable[[str, list[tuple[str, str]]], Any]
_NO_SUCH_KEY = {
    "ec2": ("AuthFailure", "AWS was not able to validate the provided access credentials"),
    "query": ("InvalidClientTokenId", "The security token included in the request is invalid."),
    "json": ("UnrecognizedClientException", "The security token included in the request is invalid."),
    "rest-json": ("UnrecognizedClientException", "The security token included in the request is invalid."),
}
_NO_RIGHT = {
    "ec2": "UnauthorizedOperation",
    "query": "AccessDenied",
    "json": "AccessDeniedException",
    "rest-json": "AccessDeniedException",
}
OWN = "modelplane-fleet-double"
"""The mark in the user agent of the double's own clients: what they ask is neither recorded nor failed."""


@dataclass(frozen=True)
class Call:
    """A request that arrived. `code` is AWS' code of its error, empty for a success, `lost` if no answer was sent."""

    service: str
    operation: str
    parameters: dict[str, Any]
    mutating: bool
    code: str
    region: str


@dataclass
class Fault:
    """A failure to come, once: at the mutating call number `what` from now (0 is the next), or at an operation.

    `halt` is a controller that dies there: nothing of what it asks afterwards is taken either.
    """

    what: int | str
    code: str
    message: str
    after: bool
    halt: bool

    def meets(self, asked: Asked) -> bool:
        if isinstance(self.what, int):
            self.what -= 1
            return self.what < 0
        return self.what in (asked.operation, f"{asked.service}:{asked.operation}")


class Front:
    """The application that the server runs."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        # Moto's state is not safe to be changed by two requests at once, and tests can reason about one at a time.
        self.lock = threading.RLock()
        self.account: Account
        self.calls: list[Call]
        self.invalid: list[str]
        self.faults: list[Fault]
        self.halted: AwsError | None
        # (service, region, operation, client token) -> what was asked with it, and the answer.
        self._done: dict[tuple[str, str, str, str], tuple[dict[str, Any], Answer]]
        self.reset()

    def reset(self) -> None:
        self.account = Account()
        self.calls, self.invalid, self.faults = [], [], []
        self.halted = None
        self._done = {}

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with self.lock:
            answer = self._answered(environ, body)
        if answer is None:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            answer = 500, {}, b""
        status, headers, content = answer
        kept = [
            (name, str(value)) for name, value in headers.items() if name.lower() not in ("content-length", "status")
        ]
        start_response(f"{status} Answer", [*kept, ("Content-Length", str(len(content)))])
        return [content]

    def _answered(self, environ: dict[str, Any], body: bytes) -> Answer | None:
        """The answer, None if the connection is to be cut."""
        if environ["PATH_INFO"].startswith(reviews.PATH):
            return reviews.answer(self.account, environ["PATH_INFO"], body)
        if is_presigned(environ):
            return self._presigned(environ)
        try:
            asked = wire.read(environ, body, OWN)
        except AwsError as error:
            self.invalid.append(str(error))
            return wire.refusal(None, error)
        if asked is None:
            return self._unknown(environ, body)
        if asked.access_key not in self.account.principals:
            return self._recorded(asked, wire.refusal(asked, AwsError(*_NO_SUCH_KEY[asked.protocol])))
        if asked.own:
            return self._effect(asked, environ, body)
        wrong = wire.faults(asked)
        if wrong:
            self.invalid.append(f"{asked.service} {asked.operation}: {'; '.join(wrong)}")
            return self._recorded(asked, wire.refusal(asked, AwsError("ValidationException", "; ".join(wrong))))
        return self._with_faults(asked, environ, body)

    def _unknown(self, environ: dict[str, Any], body: bytes) -> Answer:
        """A request to a service that the double does not read: recorded as what it seems to be."""
        service, region = wire.signed_for(environ)
        try:
            answer = self._pass_on(environ, body)
        except Exception as error:
            answer = wire.refusal(None, self._defect(service or "an unsigned request", error))
        operation = (
            environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
            or f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
        )
        if OWN not in environ.get("HTTP_USER_AGENT", ""):
            mutating = not operation.startswith((*wire.READS, "GET ", "HEAD "))
            self.calls.append(Call(service, operation, {}, mutating, wire.told_code(*answer), region))
        return answer

    def _with_faults(self, asked: Asked, environ: dict[str, Any], body: bytes) -> Answer | None:
        if self.halted:
            return self._recorded(asked, wire.refusal(asked, self.halted))
        fault = self._fault(asked)
        if fault is None:
            return self._recorded(asked, self._effect(asked, environ, body))
        error = AwsError(fault.code, fault.message)
        if fault.halt:
            self.halted = error
        if not fault.after:
            return self._recorded(asked, wire.refusal(asked, error))
        self._effect(asked, environ, body)
        if fault.halt:
            return self._recorded(asked, wire.refusal(asked, error))
        self.calls.append(self._call(asked, "lost"))
        return None

    def _fault(self, asked: Asked) -> Fault | None:
        met = None
        for fault in list(self.faults):
            if (asked.mutating or isinstance(fault.what, str)) and met is None and fault.meets(asked):
                self.faults.remove(fault)
                met = fault
        return met

    def _call(self, asked: Asked, code: str) -> Call:
        return Call(asked.service, asked.operation, asked.parameters, asked.mutating, code, asked.region)

    def _recorded(self, asked: Asked, answer: Answer) -> Answer:
        self.calls.append(self._call(asked, wire.told_code(*answer)))
        return answer

    def _effect(self, asked: Asked, environ: dict[str, Any], body: bytes) -> Answer:
        place = (asked.service, asked.operation)
        try:
            denied = self.account.denied.get(asked.operation)
            if denied and not asked.own:
                raise AwsError(_NO_RIGHT[asked.protocol], denied)
            token = _token(asked)
            if token in self._done:
                return self._again(asked, token)
            for guard in OPERATIONS.guards.get(place, ()):
                guard(self.account, asked)
            if asked.parameters.get("DryRun"):
                raise AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
            if place in OPERATIONS.handlers:
                answer = wire.answer(asked, OPERATIONS.handlers[place](self.account, asked))
            else:
                answer = self._pass_on(environ, body)
            if answer[0] < 400:
                for follower in OPERATIONS.followers.get(place, ()):
                    follower(self.account, asked)
                if token:
                    self._done[token] = asked.parameters, answer
            return answer
        except AwsError as error:
            return wire.refusal(asked, error)
        except ServiceException as error:
            # Raised by moto's own state where the double uses it.
            return wire.refusal(asked, AwsError(str(error.code), str(error.message)))
        except Exception as error:  # a defect of the double must be told, not look like an error of AWS that is retried
            return wire.refusal(asked, self._defect(f"{asked.service} {asked.operation}", error))

    def _defect(self, where: str, error: Exception) -> AwsError:
        self.account.faulty_answers.append(f"{where}: {''.join(traceback.format_exception(error))}")
        return AwsError("DefectOfTheDouble", repr(error))

    def _again(self, asked: Asked, token: tuple[str, str, str, str]) -> Answer:
        """A request comes twice, because the answer to the first was lost: it has its effect once."""
        parameters, answer = self._done[token]
        if parameters != asked.parameters:
            raise AwsError("IdempotentParameterMismatch", "The client token was used with other parameters before.")
        return answer

    def _pass_on(self, environ: dict[str, Any], body: bytes) -> Answer:
        """What moto answers."""
        told: dict[str, Any] = {}

        def start(status: str, headers: list[tuple[str, str]], _info: Any = None) -> Callable[[bytes], Any]:
            told["status"], told["headers"] = int(status.split()[0]), dict(headers)
            return lambda _written: None

        content = b"".join(self._moto({**environ, "wsgi.input": io.BytesIO(body)}, start))
        return told["status"], told["headers"], content

    def _presigned(self, environ: dict[str, Any]) -> Answer:
        try:
            identity = who_presigned(self.account, environ)
        except ValueError as error:
            return wire.refusal(None, AwsError("SignatureDoesNotMatch", str(error)))
        text = (
            '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
            f"<Arn>{identity.arn}</Arn><UserId>{identity.user_id}</UserId><Account>{ACCOUNT}</Account>"
            "</GetCallerIdentityResult><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata>"
            "</GetCallerIdentityResponse>"
        )
        return 200, {"Content-Type": "text/xml"}, text.encode()


def _token(asked: Asked) -> tuple[str, str, str, str] | None:
    """What makes a request the same as an earlier one, where AWS promises that.

    EFS calls its creation tokens so too, and refuses the second request.
    """
    shape = asked.model.input_shape
    if shape is None or asked.service == "efs" or not asked.mutating:
        return None
    for name, member in shape.members.items():
        if member.metadata.get("idempotencyToken") and asked.parameters.get(name):
            return asked.service, asked.region, asked.operation, asked.parameters[name]
    return None
