# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Stand-ins for what requests reach at last: edges of workload clusters, and providers. They keep what they got."""

from __future__ import annotations

import itertools
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STREAM_SECONDS = 65
"""Longer than any default timeout of a proxy that matters here; most are 60 seconds."""
PREFILL_SECONDS = 0.2
"""The time before a stream begins, as an engine needs to process the prompt.

On a busy machine Traefik cuts a stream that begins while Traefik still reads the request (golang/go#40747)."""
LAST = b"data: end"


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    host: str
    path: str
    headers: dict[str, str]
    server_name: str
    tls: str = ""
    """The version of TLS; empty without."""


class Edge:
    """An HTTP server that answers every request with its own name and keeps what it was sent.

    A path that ends in /stream is answered by a line a second for STREAM_SECONDS, one in /silent once these are over,
    and one in /held by lines until `released` is set, and then by LAST.
    """

    def __init__(self, name: str, *, host: str = "127.0.0.1", certificate: tuple[str, str] | None = None) -> None:
        self.name = name
        self.seen: list[Seen] = []
        self.released = threading.Event()
        self.server_names: dict[Any, str] = {}
        server_class = _Server6 if ":" in host else _Server
        self._server = server_class((host, 0), _handler(self))
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            context.sni_callback = self._note_server_name
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Edge:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def _note_server_name(self, connection: Any, name: str | None, _context: Any) -> None:
        connection.modelplane_server_name = name or ""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """Nothing: a client that refuses a certificate is one of the cases tested."""


class _Server6(_Server):
    address_family = socket.AF_INET6


def _handler(edge: Edge) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: Any) -> None:
            """Nothing: what arrived is in `seen`."""

        def do_GET(self) -> None:
            headers = {key.lower(): value for key, value in self.headers.items()}
            name = getattr(self.connection, "modelplane_server_name", "")
            tls = self.connection.version() or "" if isinstance(self.connection, ssl.SSLSocket) else ""
            edge.seen.append(Seen(headers.get("host", ""), self.path, headers, name, tls))
            if self.path.endswith("/stream"):
                return self._stream(range(STREAM_SECONDS), 1)
            if self.path.endswith("/held"):
                lines = itertools.takewhile(lambda _: not edge.released.is_set(), itertools.count())
                return self._stream(itertools.chain(lines, ["end"]), 0.05)
            if self.path.endswith("/silent"):
                time.sleep(STREAM_SECONDS)
            body = json.dumps({"edge": edge.name}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return None

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self.do_GET()

        def _stream(self, lines: Iterable[object], seconds: float) -> None:
            time.sleep(PREFILL_SECONDS)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for each in lines:
                line = f"data: {each}\n\n".encode()
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                self.wfile.flush()
                time.sleep(seconds)
            self.wfile.write(b"0\r\n\r\n")

    return Handler
