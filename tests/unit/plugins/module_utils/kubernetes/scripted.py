# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""An API server that answers what a test sets, including failures of the network, and a proxy on the way to it."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ansible_collections.modelplane.fleet.tests.kube.certificates import Authority

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Request:
    """Request of a client."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Reply:
    """An answer. `after`: seconds before it comes. `cut`: bytes of it that are sent before the connection breaks."""

    code: int = 200
    body: Body | bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    after: float = 0.0
    cut: int | None = None


@dataclass(frozen=True)
class Stream:
    """An answer in pieces: bytes are sent, numbers are seconds of silence. `whole`: it ends as it should."""

    pieces: Sequence[bytes | float]
    whole: bool = True


@dataclass(frozen=True)
class Raw:
    """All that is sent, status line and headers included: bytes, and numbers for seconds of silence, for as long as
    a client reads."""

    pieces: Iterable[bytes | float]


@dataclass(frozen=True)
class Reset:
    """No answer: the connection is reset once the request was read."""


Step = Reply | Stream | Raw | Reset


def status(code: int, reason: str, message: str = "it is so", **details: Any) -> dict[str, Any]:
    """A metav1.Status."""
    made: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return {**made, "reason": reason, "message": message, **({"details": details} if details else {})}


def event(kind: str, name: str, version: int) -> bytes:
    """A line of a watch."""
    return json.dumps({"type": kind, "object": config_map(name, version)}).encode() + b"\n"


def config_map(name: str, version: int = 1, **data: str) -> dict[str, Any]:
    """A ConfigMap of the namespace `here`."""
    metadata = {"name": name, "namespace": "here", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


CORE = {
    "kind": "APIResourceList",
    "groupVersion": "v1",
    "resources": [
        {"name": plural, "kind": kind, "namespaced": namespaced, "verbs": ["get", "list", "watch", "patch"]}
        for plural, kind, namespaced in (
            ("configmaps", "ConfigMap", True),
            ("namespaces", "Namespace", False),
            ("secrets", "Secret", True),
            ("services", "Service", True),
        )
    ],
}


class _Listener(ThreadingHTTPServer):
    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, _request: Any, _address: Any) -> None:
        """Broken connections are what is tested."""


class Server:
    """Answers `script` in its order, then `always`; what is served needs neither. `seen`: all requests.

    `raw_bodies`: what is sent is not JSON.
    """

    def __init__(self, authority: Authority | None, folder: Path, *, host: str = "127.0.0.1", client_ca: bool = False):
        self.seen: list[Request] = []
        self.script: list[Step] = []
        self.always: Callable[[Request], Step] = lambda _request: Reply(404, status(404, "NotFound"))
        self.served: dict[str, Body] = {"/api/v1": CORE}
        self.raw_bodies = False
        self._lock = threading.Lock()
        self._context = _tls(authority, folder, client_ca) if authority else None
        self._host = host
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._context else 'http'}://{host}:{self.port}"

    @property
    def asked(self) -> list[str]:
        """Methods and paths, without those about what is served."""
        return [f"{request.method} {request.path}" for request in self.seen if request.path not in self.served]

    def start(self) -> None:
        """Listen, on the port of the last time."""

        class Listener(_Listener):
            address_family = socket.AF_INET6 if ":" in self._host else socket.AF_INET

        server, context = self, self._context

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                if context is not None:
                    self.request = context.wrap_socket(self.request, server_side=True)
                super().setup()

            def log_message(self, *_args: Any) -> None:
                """Say nothing."""

            def handle_any(self) -> None:
                server.answer(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

        self._server = Listener((self._host, self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        """Refuse connections from now on."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        length = int(handler.headers.get("Content-Length") or 0)
        text = handler.rfile.read(length) if length else b""
        request = Request(
            handler.command,
            parts.path,
            {key: values[0] for key, values in parse_qs(parts.query).items()},
            {key.lower(): value for key, value in handler.headers.items()},
            text if self.raw_bodies else json.loads(text) if text else None,
        )
        with self._lock:
            self.seen.append(request)
            reported = self.served.get(request.path) if request.method == "GET" else None
            step: Step | None = Reply(200, reported) if reported else self.script.pop(0) if self.script else None
        _act(handler, step or self.always(request))


def _act(handler: BaseHTTPRequestHandler, step: Step) -> None:
    if isinstance(step, Reset):
        _reset(handler)
    elif isinstance(step, Stream):
        _stream(handler, step)
    elif isinstance(step, Raw):
        handler.close_connection = True
        for piece in step.pieces:
            if isinstance(piece, float):
                time.sleep(piece)
            else:
                handler.wfile.write(piece)
    else:
        time.sleep(step.after)
        body = step.body if isinstance(step.body, bytes) else json.dumps(step.body or {}).encode()
        handler.send_response(step.code)
        for name, value in {"Content-Type": "application/json", **step.headers}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body if step.cut is None else body[: step.cut])
        if step.cut is not None:
            _reset(handler)


def _stream(handler: BaseHTTPRequestHandler, step: Stream) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for piece in step.pieces:
        if isinstance(piece, float):
            time.sleep(piece)
        else:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.wfile.flush()
    if step.whole:
        handler.wfile.write(b"0\r\n\r\n")
    else:
        _reset(handler)


def _reset(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    with contextlib.suppress(OSError):
        handler.wfile.flush()
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def _tls(authority: Authority, folder: Path, client_ca: bool) -> ssl.SSLContext:
    folder.mkdir(parents=True, exist_ok=True)
    authority.server(folder / "server.crt", folder / "server.key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    if client_ca:
        context.load_verify_locations(authority.path)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class Proxy:
    """Connects (HTTP CONNECT) every name to one port of this machine. `asked`: what for, and with which credentials."""

    def __init__(self, port: int, *, refuse: bool = False) -> None:
        self.asked: list[tuple[str, str]] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_args: Any) -> None:
                """Say nothing."""

            def do_CONNECT(self) -> None:
                asked.append((self.path, self.headers.get("Proxy-Authorization", "")))
                if refuse:
                    self.send_response(403)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                with socket.create_connection(("127.0.0.1", port)) as server:
                    self.send_response(200, "Connection established")
                    self.end_headers()
                    for source, target in _pumped(self.connection, server):
                        data = source.recv(65536)
                        if not data:
                            break
                        target.sendall(data)

        self._server = _Listener(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _pumped(one: socket.socket, other: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    while True:
        for ready in select.select([one, other], [], [])[0]:
            yield (one, other) if ready is one else (other, one)
