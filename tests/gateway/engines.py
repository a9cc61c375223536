# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Doubles of engines and providers: servers that speak the APIs of OpenAI and Anthropic, count, and fail on demand."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OPENAI = "/chat/completions"
ANTHROPIC = "/messages"
PROMPT_TOKENS = 7
COMPLETION_TOKENS = 5
"""Tokens of an answer, unless an engine says otherwise."""


@dataclass(frozen=True)
class Seen:
    """A request as an engine saw it."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    client: str = ""
    """Common name of the client's certificate."""


@dataclass
class Engine:
    """An engine at `host`: an address and a port, behind which `listening` is a socket.

    `answer`: the status of its answers; other than 200 they are errors in the API's format. `hangs`: takes requests and
    says nothing until it is `released`. `pause`: seconds between the events of a stream, until then. `input_tokens` and
    `output_tokens`: what each answer reports. `prompt_tokens` and `completion_tokens`: what it has reported so far.
    """

    name: str
    address: str
    port: int
    listening: socket.socket
    tls: ssl.SSLContext | None = None
    answer: int = 200
    hangs: bool = False
    pause: float = 0.0
    input_tokens: int = PROMPT_TOKENS
    output_tokens: int = COMPLETION_TOKENS
    released: threading.Event = field(default_factory=threading.Event)
    seen: list[Seen] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._server = _Server(self)
        self._connections: set[socket.socket] = set()
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name=self.name, daemon=True).start()

    def die(self) -> None:
        """Close its port and its connections, as if its machine was switched off."""
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def usage(self) -> tuple[int, int]:
        """Tokens of one answer, which are counted."""
        with self.lock:
            self.prompt_tokens += self.input_tokens
            self.completion_tokens += self.output_tokens
        return self.input_tokens, self.output_tokens


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, engine: Engine) -> None:
        super().__init__((engine.address, engine.port), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = engine.listening
        self.engine = engine

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.engine.tls:
            request = self.engine.tls.wrap_socket(request, server_side=True)
        self.engine._connections.add(request)
        try:
            super().finish_request(request, client_address)
        finally:
            self.engine._connections.discard(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: connections are cut on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._note({})
        if self._failed():
            return
        self._send(200, {"object": "list", "data": [{"id": self.server.engine.name, "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self._read() or b"{}")
        self._note(body)
        if self._failed():
            return
        path = self.path.partition("?")[0]
        if path.endswith(OPENAI):
            (self._stream_openai if body.get("stream") else self._answer_openai)(body)
        elif path.endswith(ANTHROPIC):
            (self._stream_anthropic if body.get("stream") else self._answer_anthropic)(body)
        else:
            self._send(404, {"error": {"message": f"no such path: {path}", "type": "not_found_error"}})

    def log_message(self, *_: object) -> None:
        """Write no log."""

    def _read(self) -> bytes:
        """The body, in chunks where the gateway has changed it."""
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _note(self, body: Mapping[str, Any]) -> None:
        engine = self.server.engine
        client = ""
        if isinstance(self.connection, ssl.SSLSocket):
            names: Any = (self.connection.getpeercert() or {}).get("subject") or ()
            client = next((str(value) for part in names for key, value in part if key == "commonName"), "")
        headers = {key.lower(): value for key, value in self.headers.items()}
        with engine.lock:
            engine.seen.append(Seen(self.command, self.path, headers, body, client))

    def _failed(self) -> bool:
        engine = self.server.engine
        if engine.hangs:
            engine.released.wait()
        if engine.answer != 200:
            kind = "rate_limit_error" if engine.answer == 429 else "server_error"
            self._send(engine.answer, {"error": {"message": f"{engine.name} fails on demand", "type": kind}})
        return engine.answer != 200

    def _answer_openai(self, body: Mapping[str, Any]) -> None:
        message = {"role": "assistant", "content": f"from {self.server.engine.name}"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        common = {"id": "chatcmpl-1", "created": 0, "model": body.get("model")}
        self._send(200, {**common, "object": "chat.completion", "choices": [choice], "usage": self._openai_usage()})

    def _stream_openai(self, body: Mapping[str, Any]) -> None:
        common = {"id": "chatcmpl-1", "created": 0, "model": body.get("model"), "object": "chat.completion.chunk"}
        self._begin_stream()
        for word in ("from ", self.server.engine.name):
            self._event({**common, "choices": [{"index": 0, "delta": {"content": word}}]})
        self._event({**common, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        # As vLLM and OpenAI do, only on demand.
        if (body.get("stream_options") or {}).get("include_usage"):
            self._event({**common, "choices": [], "usage": self._openai_usage()})
        else:
            self.server.engine.usage()
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _answer_anthropic(self, body: Mapping[str, Any]) -> None:
        read, wrote = self.server.engine.usage()
        self._send(
            200,
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": body.get("model"),
                "content": [{"type": "text", "text": f"from {self.server.engine.name}"}],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": read, "output_tokens": wrote},
            },
        )

    def _stream_anthropic(self, body: Mapping[str, Any]) -> None:
        read, wrote = self.server.engine.usage()
        message: dict[str, Any] = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": [],
        }
        self._begin_stream()
        usage = {"input_tokens": read, "output_tokens": 1}
        self._event({"type": "message_start", "message": {**message, "usage": usage}})
        self._event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        for word in ("from ", self.server.engine.name):
            delta = {"type": "text_delta", "text": word}
            self._event({"type": "content_block_delta", "index": 0, "delta": delta})
        self._event({"type": "content_block_stop", "index": 0})
        done = {"stop_reason": "end_turn"}
        self._event({"type": "message_delta", "delta": done, "usage": {"output_tokens": wrote}})
        self._event({"type": "message_stop"})
        self._chunk(b"")

    def _openai_usage(self) -> dict[str, int]:
        read, wrote = self.server.engine.usage()
        return {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _event(self, data: Mapping[str, Any]) -> None:
        kind = f"event: {data['type']}\n" if "type" in data else ""
        self._chunk(f"{kind}data: {json.dumps(data)}\n\n".encode())
        if self.server.engine.pause:
            self.server.engine.released.wait(self.server.engine.pause)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _send(self, status: int, value: Mapping[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
