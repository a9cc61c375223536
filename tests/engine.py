# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A stand-in for vLLM and SGLang: a server in front of a core that computes tokens in a process of its own.

usage: engine.py [--names vllm|sglang|none] [--api-key KEY] [--key-file FILE] [--closed-metrics] [--endless-metrics]
                 [--no-completions]

Prints its port and the process ID of the core, as JSON. Like the originals, the server answers /health and /metrics
while its core is frozen, its metrics are those of the last step of the core, and a long prompt is counted at its end.
A request may give the number of steps of its prompt as `steps`. With `max_tokens: 0` it ends after GET /finish only.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any

STEP_SECONDS = 0.01
NAMES = {
    "vllm": {
        "prompt": "vllm:prompt_tokens_total",
        "generated": "vllm:generation_tokens_total",
        "running": "vllm:num_requests_running",
        "waiting": "vllm:num_requests_waiting",
        "cache": "vllm:kv_cache_usage_perc",
    },
    "sglang": {
        "prompt": "sglang:prompt_tokens_total",
        "generated": "sglang:generation_tokens_total",
        "running": "sglang:num_running_reqs",
        "waiting": "sglang:num_queue_reqs",
        "cache": "sglang:token_usage",
    },
    "none": {},
}


def compute(connection: Connection) -> None:
    """Compute tokens for ever. Each step sends the state after it, with the requests that have ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    state = {"prompt": 0, "generated": 0, "running": 0, "waiting": 0, "cache": 0.0}
    requests: dict[int, dict[str, int]] = {}
    while True:
        while not requests or connection.poll():
            number, request = connection.recv()
            if number < 0:
                for each in requests.values():
                    each.update(steps=0, tokens=1)
            else:
                requests[number] = request
        ended = []
        for number, request in list(requests.items()):
            if request["steps"]:
                request["steps"] -= 1
                state["cache"] = (state["cache"] + 0.0001) % 1
                state["prompt"] += 4 * (not request["steps"])
                continue
            state["generated"] += 1
            request["tokens"] -= 1
            if request["tokens"] == 0:
                ended.append(number)
                del requests[number]
        state["running"] = len(requests)
        state["cache"] = state["cache"] if requests else 0.0
        connection.send((dict(state), ended))
        time.sleep(STEP_SECONDS)


class Engine:
    """The server's view of its core."""

    def __init__(self) -> None:
        self._connection, other = multiprocessing.Pipe()
        self.core = multiprocessing.Process(target=compute, args=(other,), daemon=True)
        self.core.start()
        self.state: dict[str, float] = dict.fromkeys(NAMES["vllm"], 0)
        self.asked = self.polls = 0
        self._numbers = itertools.count()
        self._ends: dict[int, threading.Event] = {}
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        while True:
            self.state, ended = self._connection.recv()
            for number in ended:
                self._ends.pop(number).set()

    def finish(self) -> None:
        """End all requests with their next token."""
        self._connection.send((-1, {}))

    def complete(self, request: dict[str, Any]) -> None:
        number, end = next(self._numbers), threading.Event()
        self._ends[number] = end
        self.asked += 1
        tokens = request["max_tokens"] or -1
        self._connection.send((number, {"steps": request.get("steps", 1), "tokens": tokens}))
        end.wait()


class Handler(BaseHTTPRequestHandler):
    engine: Engine
    options: argparse.Namespace
    key = ""

    def log_message(self, *_args: Any) -> None:
        pass

    def _respond(self, status: int, content: str = "") -> None:
        body = content.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _is_refused(self) -> bool:
        guarded = self.path.startswith("/v1") or (self.options.closed_metrics and self.path == "/metrics")
        refused = bool(self.key) and guarded and self.headers.get("Authorization") != f"Bearer {self.key}"
        if refused:
            self._respond(401)
        return refused

    def do_GET(self) -> None:
        if self._is_refused():
            return
        names = NAMES[self.options.names]
        if self.path == "/metrics" and self.options.endless_metrics:
            self.send_response(200)
            self.end_headers()
            while True:
                self.wfile.write(b"#")
                time.sleep(0.1)
        elif self.path == "/metrics":
            self.engine.polls += 1
            if names:
                labels = '{engine="0",model_name="a}b"}'
                lines = [f"{name}{labels} {self.engine.state[field]}" for field, name in names.items()]
                lines += [
                    f"# HELP {names['running']} Requests.",
                    f"{names['prompt'][:-6]}_created{labels} {time.time()}",
                ]
            else:
                lines = ["python_info 1"]
            self._respond(200, "\n".join(lines) + "\n")
        elif self.path == "/v1/models":
            self._respond(200, json.dumps({"data": [{"id": "model"}]}))
        elif self.path == "/finish":
            self.engine.finish()
            self._respond(200)
        elif self.path == "/counts":
            self._respond(
                200, json.dumps({"asked": self.engine.asked, "polls": self.engine.polls, **self.engine.state})
            )
        else:
            self._respond(200 if self.path == "/health" else 404)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._is_refused():
            return
        if self.options.no_completions and "steps" not in request:
            self._respond(404)
            return
        self.engine.complete(request)
        self._respond(200, "{}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--names", choices=NAMES, default="vllm")
    parser.add_argument("--api-key", default=os.environ.get("VLLM_API_KEY", ""))
    parser.add_argument("--key-file")
    parser.add_argument("--closed-metrics", action="store_true")
    parser.add_argument("--endless-metrics", action="store_true")
    parser.add_argument("--no-completions", action="store_true")
    options = parser.parse_args()
    if options.key_file:
        with open(options.key_file, encoding="utf-8") as file:
            options.api_key = file.read()
    Handler.engine, Handler.options, Handler.key = Engine(), options, options.api_key
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(json.dumps({"port": server.server_address[1], "core": Handler.engine.core.pid}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
