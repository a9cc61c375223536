# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The process of the double: requests of AWS clients, and beside them the control interface under /double/.

Every request is parsed, held against botocore's model, logged, refused if a test wants that, and then served: by the
double's own operations, or by moto.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any

from ansible_collections.modelplane.fleet.tests.cloud.control import PREFIX, Answer, Control
from ansible_collections.modelplane.fleet.tests.cloud.refusals import LOST, Refusal, Refusals
from moto.core import responses
from moto.moto_api._internal.models import moto_api_backend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from . import ec2, hooks, identities, node_groups, prices, services, tokens  # noqa: F401 their operations register themselves
from .eks import HANDLERS
from .wire import Call, UnknownOperation, answer, error_answer, parse
from .world import Settings, World

Json = dict[str, Any]
Environ = dict[str, Any]

# Parameters that say how, not what: a token that the client generates for each call.
IDEMPOTENCY = ("clientRequestToken", "ClientToken", "ClientRequestToken")
# Services that answer a call again which comes twice with one token. EFS reports that there is such an object.
IDEMPOTENT_SERVICES = ("ec2", "eks")


class Application(Control):
    """A WSGI application. Requests are served one after the other, so that states need no locks of their own."""

    def __init__(self) -> None:
        super().__init__()
        self._moto = DomainDispatcherApplication(create_backend_app)
        # moto searches its folder of services at each request, and the class that serves it.
        self._moto.get_backend_for_host = functools.cache(self._moto.get_backend_for_host)  # type: ignore[method-assign]
        responses.method_names_from_class = functools.cache(responses.method_names_from_class)  # type: ignore[attr-defined]
        self._lock = threading.Lock()
        self.world = World()
        self.refusals = _refusals()

    @property
    def settings(self) -> Settings:
        return self.world.settings

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with self._lock:
            path = environ.get("PATH_INFO", "")
            status, headers, content = (
                self.control(path, body) if path.startswith(PREFIX) else self._serve(environ, body)
            )
        if status == 0:
            # The answer gets lost: the client sees that the connection is closed.
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError
        start_response(f"{status} -", [*headers.items(), ("Content-Length", str(len(content)))])
        return [content]

    def _serve(self, environ: Environ, body: bytes) -> Answer:
        try:
            call = parse(environ, body)
        except UnknownOperation as error:
            self.invalid.append(str(error))
            return 400, {"Content-Type": "text/plain"}, f"UnknownOperation: {error}".encode()
        if call is None:
            return self._forward(environ, body)
        record = self.record(call)
        try:
            instead = self._check(call)
            given = self._once(call, lambda: self._answer(call, environ, body))
            if instead not in (None, LOST):
                raise instead
        except Refusal as refusal:
            record["error"] = refusal.code
            return error_answer(call.service, refusal)
        except NotImplementedError as error:
            reported = f"{call.service} {call.operation}: neither moto nor the double has it ({error})"
            record["error"] = "NotInTheDouble"
            self.invalid.append(reported)
            return error_answer(call.service, Refusal("NotInTheDouble", reported, 501))
        except Exception:
            record["error"] = "InternalFailure"
            return error_answer(call.service, self.internal_failure(call))
        if given[0] >= 400:
            record["error"] = _code(given)
        return (0, {}, b"") if instead is LOST else given

    def _check(self, call: Call) -> Refusal | None:
        """Refuses what cannot be served. What is answered instead of that which comes of the call."""
        if not self.world.knows(call.access_key) or call.region in self.world.settings.disabled_regions:
            code = {"ec2": "AuthFailure", "eks": "UnrecognizedClientException"}.get(
                call.service, "InvalidClientTokenId"
            )
            raise Refusal(code, "The security token included in the request is invalid.", 403)
        if call.findings:
            reported = f"{call.service} {call.operation}: {'; '.join(call.findings)}"
            self.invalid.append(reported)
            raise Refusal("InvalidParameterValue" if call.service == "ec2" else "ValidationException", reported, 400)
        return self.refusals.check(call)

    def _once(self, call: Call, act: Callable[[], Answer]) -> Answer:
        """Answer a call, and answer the same when it is sent once more with the same token of the client."""
        names = [name for name in IDEMPOTENCY if name in call.parameters and call.service in IDEMPOTENT_SERVICES]
        if not names:
            return act()
        key = (call.service, f"{call.region} {call.operation}", str(call.parameters[names[0]]))
        before = self.world.client_tokens.get(key)
        if before is not None and before[0] != call.parameters:
            code = "IdempotentParameterMismatch" if call.service == "ec2" else "InvalidParameterException"
            raise Refusal(code, "The client token was used before, with other parameters.", 400)
        if before is None:
            given = act()
            if given[0] >= 400:
                return given
            before = self.world.client_tokens[key] = (call.parameters, given)
        return before[1]

    def _answer(self, call: Call, environ: Environ, body: bytes) -> Answer:
        def forward() -> Answer:
            return self._forward(environ, body)

        handler = HANDLERS.get(call.operation) if call.service == "eks" else None
        if handler is not None:
            result: Any = handler(self.world, call)
        elif call.service == "eks":
            raise NotImplementedError("the double has its own EKS")
        else:
            hook = hooks.HOOKS.get((call.service, call.operation))
            result = hook(self.world, call, forward) if hook else forward()
        if isinstance(result, tuple):
            if result[0] in (404, 500) and result[2].lstrip()[:9].lower() == b"<!doctype":
                raise NotImplementedError("a page in HTML")
            return result  # type: ignore[return-value]
        given, found = answer(call, result)
        self.invalid += [f"answer of {call.service} {call.operation}: {finding}" for finding in found]
        return given

    def _forward(self, environ: Environ, body: bytes) -> Answer:
        """Return the answer of moto."""
        got: Json = {}

        def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
            got["status"], got["headers"] = int(status.split()[0]), dict(headers)

        content = b"".join(self._moto({**environ, "wsgi.input": BytesIO(body)}, start_response))
        got["headers"].pop("Content-Length", None)
        return got["status"], got["headers"], content

    def control_fail(
        self, kind: str, name: str = "", code: str = "InternalFailure", message: str = "It failed."
    ) -> None:
        self.world.failures.append({"kind": kind, "name": name, "code": code, "message": message})

    def control_cluster_server(self, url: str, ca_pem: str = "", name: str = "") -> None:
        self.world.servers[name] = (url, ca_pem)

    def control_capacity_reservation(self, region: str = "us-west-2", **reservation: Any) -> Json:
        return ec2.add_reservation(self.world, region, reservation)

    def control_token_review(self, cluster: str = "", /, **review: Any) -> Json:
        return tokens.review(self.world, review, cluster)

    def control_reset(self) -> None:
        moto_api_backend.reset()
        self.world, self.refusals = World(), _refusals()
        self.calls, self.invalid = [], []


def _refusals() -> Refusals:
    return Refusals("AccessDenied", "You are not authorized to perform this operation.", made_up=IDEMPOTENCY)


def _code(given: Answer) -> str:
    """The code of an error that moto gave."""
    _, headers, content = given
    named = {name.lower(): value for name, value in headers.items()}.get("x-amzn-errortype", "")
    if named:
        return str(named).split(":")[0]
    text = content.decode(errors="replace")
    if "<Code>" in text:
        return text.split("<Code>")[1].split("</Code>")[0]
    try:
        reported = json.loads(text)
        return str(reported.get("__type") or reported.get("ErrorCode") or given[0]).rpartition("#")[2]
    except (ValueError, AttributeError):
        return str(given[0])


class _Handler(MotoRequestHandler):
    """Keeps connections open, as AWS does and Werkzeug does not, and says nothing of each request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 65536

    def run_wsgi(self) -> None:
        got: Json = {}

        def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
            got["status"], got["headers"] = int(status.split()[0]), headers

        try:
            content = b"".join(self.server.app(self.make_environ(), start_response))
        except ConnectionAbortedError:
            self.close_connection = True
            return
        self.send_response(got["status"])
        for name, value in got["headers"]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log(self, *_: Any) -> None:
        pass


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A double of AWS; prints its address once it serves.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--with-parent", action="store_true", help="end when the standard input is closed")
    arguments = parser.parse_args(argv)
    # Nothing starts instances, and making 1,300 images takes a second in each region and at each reset.
    os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
    server = make_server(arguments.host, arguments.port, Application(), threaded=True, request_handler=_Handler)
    if arguments.with_parent:
        threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    print(f"http://{arguments.host}:{server.server_address[1]}", flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
