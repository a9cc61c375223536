# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A proxy in front of a real API server that does what bad networks and busy servers do.

It ends TLS with an authority of its own, knows one bearer token, and passes requests on as the cluster's administrator.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import http.server
import json
import random
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from ansible_collections.modelplane.fleet.tests import sick
from ansible_collections.modelplane.fleet.tests.kube.certificates import Authority
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.kube.processes import Port

_CHUNK = 65_536
_UPSTREAM_SECONDS = 120.0
# Headers of one connection (RFC 9110, 7.6.1), and those that are written again.
_OF_THE_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "authorization", "host"})

REFUSED = "refused"
SILENT = "silent"


@dataclass(frozen=True)
class Odds:
    """Probabilities of the failures of a request, each between 0 and 1.

    `busy`: 429 with Retry-After. `unavailable`: 503 from something in between. Neither reaches the server. `internal`:
    the server acts and the answer is a 500. `cut`: the server acts and the connection breaks before the answer.
    """

    busy: float = 0.0
    unavailable: float = 0.0
    internal: float = 0.0
    cut: float = 0.0


class FailingProxy:
    """Starts when it is made and works until `stop`; use it as a context manager.

    `odds` may be changed at any time, and so may `sick`, the name of a sickness (`tests/sick.py`) that all answers
    have, or empty. `met` counts the failures by their names in Odds, `connections` what was accepted.
    """

    def __init__(self, plane: ControlPlane, folder: Path, token: str = "proxy-token", seed: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.odds = Odds()
        self.sick = ""
        self.met: Counter[str] = Counter()
        self.connections = 0
        self.token = token
        self.lock = threading.Lock()
        self.upstream = _Upstream(plane, folder)
        self._random = random.Random(seed)
        self._port = Port()
        self._authority = Authority(folder, f"{plane.name}-proxy")
        self._authority.server(folder / "server.crt", folder / "server.key")
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.tls.load_cert_chain(folder / "server.crt", folder / "server.key")
        self.stopped = threading.Event()
        self.silent = False
        self._server: _Server | None = None
        self.url = f"https://127.0.0.1:{self._port}"
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(self._kubeconfig()))
        self._listen()

    def _kubeconfig(self) -> dict[str, Any]:
        authority = base64.b64encode(self._authority.certificate).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": {"server": self.url, "certificate-authority-data": authority}}],
            "users": [{"name": "me", "user": {"token": self.token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
            "current-context": "it",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self.stopped.set()
        self._close()
        self._port.release()

    @contextlib.contextmanager
    def unreachable(self, how: str) -> Iterator[None]:
        """Meanwhile connections are REFUSED, or accepted and SILENT."""
        if how == SILENT:
            self.silent = True
            self._server.hang_up() if self._server else None
        else:
            self._close()
        try:
            yield
        finally:
            if how == SILENT:
                self.silent = False
                self._server.hang_up() if self._server else None
            else:
                self._listen()

    def draw(self) -> str:
        """The failure that the next request meets, empty for none."""
        with self.lock:
            drawn = self._random.random()
            for name in ("busy", "unavailable", "internal", "cut"):
                drawn -= getattr(self.odds, name)
                if drawn < 0:
                    self.met[name] += 1
                    return name
        return ""

    def _listen(self) -> None:
        self._server = _Server(self, self._port.number)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server.hang_up()
            self._server = None


class _Upstream:
    """Connection to the API server, as its administrator."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        settings = json.loads(plane.kubeconfig.read_text())
        user, cluster = settings["users"][0]["user"], settings["clusters"][0]["cluster"]
        pair = folder / "upstream.pem"
        pair.touch(mode=0o600)
        parts = (user["client-certificate-data"], user["client-key-data"])
        pair.write_bytes(b"\n".join(base64.b64decode(part) for part in parts))
        self._tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        self._tls.load_cert_chain(pair)
        self._address = urlsplit(cluster["server"])

    def connect(self) -> http.client.HTTPSConnection:
        host, port = self._address.hostname or "", self._address.port
        return http.client.HTTPSConnection(host, port, context=self._tls, timeout=_UPSTREAM_SECONDS)


class _Server(http.server.ThreadingHTTPServer):
    """Listens on one port. TLS begins in the thread of the connection."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, proxy: FailingProxy, port: int) -> None:
        self.proxy = proxy
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def hang_up(self) -> None:
        with self.proxy.lock:
            connections, self._open = self._open, set()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with self.proxy.lock:
            self.proxy.connections += 1
            self._open.add(request)
        try:
            if self.proxy.silent:
                while self.proxy.silent and not self.proxy.stopped.wait(0.1):
                    pass
                return
            with self.proxy.tls.wrap_socket(request, server_side=True, suppress_ragged_eofs=True) as connection:
                with self.proxy.lock:
                    self._open = (self._open - {request}) | {connection}
                self.finish_request(connection, client_address)
        except OSError:
            return
        finally:
            with self.proxy.lock:
                self._open.discard(request)
            self.shutdown_request(request)


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection of a client, and one to the API server for all its requests."""

    protocol_version = "HTTP/1.1"
    server: _Server
    _upstream: http.client.HTTPSConnection | None = None

    def log_message(self, *_: Any) -> None:
        """No client reads it."""

    def finish(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
        super().finish()

    def _pass_on(self) -> None:
        proxy = self.server.proxy
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
        if self.headers.get("Authorization") != f"Bearer {proxy.token}":
            self._status(401, "Unauthorized", "Unauthorized")
            return
        if proxy.sick and (proxy.sick not in sick.OF_LISTS or "limit=" in self.path):
            self._send(sick.MODES[proxy.sick]())
            return
        failure = proxy.draw()
        if failure == "busy":
            self._status(429, "TooManyRequests", "too many requests, please try again later", {"Retry-After": "1"})
        elif failure == "unavailable":
            self._text(503, b"upstream connect error or disconnect/reset before headers")
        else:
            self._ask(body, failure)

    # The names that the standard library calls.
    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on  # noqa: N815

    def _send(self, pieces: sick.Pieces) -> None:
        """All of it, for as long as a client reads."""
        self.close_connection = True
        for piece in pieces:
            if isinstance(piece, bytes):
                self.wfile.write(piece)
            elif self.server.proxy.stopped.wait(piece):
                return

    def _ask(self, body: bytes | None, failure: str) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_THE_HOP}
        try:
            self._upstream = self._upstream or self.server.proxy.upstream.connect()
            self._upstream.request(self.command, self.path, body, headers)
            answer = self._upstream.getresponse()
            if failure:
                # Acted on, and to the end.
                if "watch=true" not in self.path:
                    answer.read()
                self._upstream.close()
                self._upstream = None
        except (OSError, http.client.HTTPException):
            self._upstream = None
            self.close_connection = True
            return
        if failure == "internal":
            self._status(500, "InternalError", "Internal error occurred: etcdserver: request timed out")
        elif failure:
            self.close_connection = True
        else:
            self._repeat(answer)

    def _repeat(self, answer: http.client.HTTPResponse) -> None:
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in _OF_THE_HOP:
                self.send_header(name, value)
        length = answer.getheader("Content-Length")
        if length is not None:
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(answer.read())
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while piece := answer.read1(_CHUNK):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
        except (OSError, http.client.HTTPException):
            # The server went away in the middle: so does the client's answer.
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")

    def _status(self, code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> None:
        status = {
            "apiVersion": "v1",
            "kind": "Status",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }
        self._text(code, json.dumps(status).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _text(self, code: int, text: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response_only(code)
        for name, value in {"Content-Type": "text/plain", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
