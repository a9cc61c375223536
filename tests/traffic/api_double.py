# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A small double of a Kubernetes API server: as much of it as a Gateway API controller needs.

It serves the objects it is given by list and watch (also with initial events, as newer clients ask for) and takes
writes of `status`. There is no validation, no admission and no other controller in it.
"""

from __future__ import annotations

import copy
import json
import queue
import threading
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
Key = tuple[str, str, str]

# Resource names in paths, and the versions under which a resource is served although its objects say another one.
KINDS = {
    "gatewayclasses": "GatewayClass",
    "gateways": "Gateway",
    "httproutes": "HTTPRoute",
    "grpcroutes": "GRPCRoute",
    "tlsroutes": "TLSRoute",
    "backendtlspolicies": "BackendTLSPolicy",
    "referencegrants": "ReferenceGrant",
    "services": "Service",
    "endpointslices": "EndpointSlice",
    "secrets": "Secret",
    "configmaps": "ConfigMap",
    "namespaces": "Namespace",
    "nodes": "Node",
    "pods": "Pod",
    "ingressclasses": "IngressClass",
}
GENERATION = 1


class ApiDouble:
    """Objects by kind, namespace and name, with everybody who watches them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[Key, Object] = {}
        self._version = 1
        self._watchers: list[tuple[str, queue.SimpleQueue[Object | None]]] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.double = self
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> ApiDouble:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for _, events in self._watchers:
                events.put(None)
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def replace(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Make these, and no others, the objects there are; what stays keeps its status."""
        desired = {_key(value): value for value in objects}
        self.add(desired.values())
        with self._lock:
            for key in sorted(self._objects.keys() - desired.keys()):
                self._send("DELETED", self._objects.pop(key))

    def add(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Make these objects, or make those that are there what these say, but for their status."""
        with self._lock:
            for value in objects:
                key, desired = _key(value), copy.deepcopy(dict(value))
                known = self._objects.get(key)
                if known is None:
                    self._put("ADDED", key, desired, GENERATION)
                elif _content(known) != _content(desired):
                    status = {"status": known["status"]} if "status" in known else {}
                    self._put("MODIFIED", key, {**desired, **status}, known["metadata"]["generation"] + 1)

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        with self._lock:
            return copy.deepcopy(self._objects.get((kind, namespace, name)))

    def of_kind(self, kind: str) -> list[Object]:
        with self._lock:
            return [copy.deepcopy(value) for key, value in sorted(self._objects.items()) if key[0] == kind]

    def write_status(self, key: Key, status: Any) -> Object | None:
        with self._lock:
            known = self._objects.get(key)
            if known is None:
                return None
            if known.get("status") != status:
                self._put("MODIFIED", key, {**known, "status": status}, known["metadata"]["generation"])
            return copy.deepcopy(self._objects[key])

    def snapshot(self, kind: str, namespace: str) -> tuple[list[Object], int]:
        with self._lock:
            return self._select(kind, namespace), self._version

    def watch(
        self, kind: str, namespace: str, initial: bool, since: int
    ) -> tuple[list[Object], queue.SimpleQueue[Object | None]]:
        """Return what changed since a version (or all there is, with `initial`), and a queue of what changes later."""
        events: queue.SimpleQueue[Object | None] = queue.SimpleQueue()
        with self._lock:
            first = [
                {"type": "ADDED" if initial else "MODIFIED", "object": value}
                for value in self._select(kind, namespace)
                if initial or int(value["metadata"]["resourceVersion"]) > since
            ]
            if initial:
                first.append({"type": "BOOKMARK", "object": self._bookmark(kind)})
            self._watchers.append((kind, events))
        return first, events

    def unwatch(self, events: queue.SimpleQueue[Object | None]) -> None:
        with self._lock:
            self._watchers = [pair for pair in self._watchers if pair[1] is not events]

    def _bookmark(self, kind: str) -> Object:
        metadata = {"resourceVersion": str(self._version), "annotations": {"k8s.io/initial-events-end": "true"}}
        known = next((value for key, value in self._objects.items() if key[0] == kind), {"apiVersion": "v1"})
        return {"apiVersion": known["apiVersion"], "kind": kind, "metadata": metadata}

    def _select(self, kind: str, namespace: str) -> list[Object]:
        return [
            copy.deepcopy(value)
            for key, value in sorted(self._objects.items())
            if key[0] == kind and namespace in ("", key[1])
        ]

    def _put(self, event: str, key: Key, value: Object, generation: int) -> None:
        self._version += 1
        known = {
            "uid": "-".join(key).lower(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "generation": generation,
            "resourceVersion": str(self._version),
        }
        self._objects[key] = {**value, "metadata": {**value["metadata"], **known}}
        self._send(event, self._objects[key])

    def _send(self, event: str, value: Object) -> None:
        for kind, events in self._watchers:
            if kind == value["kind"]:
                events.put({"type": event, "object": copy.deepcopy(value)})


def _key(value: Mapping[str, Any]) -> Key:
    return value["kind"], value["metadata"].get("namespace", ""), value["metadata"]["name"]


def _content(value: Mapping[str, Any]) -> Object:
    metadata = {key: value["metadata"].get(key) for key in ("name", "namespace", "labels", "annotations")}
    return {**{key: part for key, part in value.items() if key != "status"}, "metadata": metadata}


def _parse(path: str) -> tuple[str, str, str, str]:
    """(group/version, kind, namespace, rest) of a path of the Kubernetes API; kind is "" for what is not served."""
    words = path.strip("/").split("/")
    api, words = ("v1", words[2:]) if words[0] == "api" else ("/".join(words[1:3]), words[3:])
    namespace = ""
    if len(words) > 2 and words[0] == "namespaces":
        namespace, words = words[1], words[2:]
    kind = KINDS.get(words[0], "") if words else ""
    return api, kind, namespace, "/".join(words[1:])


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    double: ApiDouble


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing: tests read what they want to know from the objects."""

    def _answer(self, code: int, value: Mapping[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _missing(self) -> None:
        self._answer(
            404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        )

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        if url.path == "/version":
            return self._answer(200, {"major": "1", "minor": "34", "gitVersion": "v1.34.0"})
        api, kind, namespace, name = _parse(url.path)
        if not kind:
            return self._missing()
        if name:
            value = self.server.double.get(kind, namespace, name)
            return self._answer(200, {**value, "apiVersion": api}) if value else self._missing()
        if query.get("watch") in ("true", "1"):
            return self._watch(api, kind, namespace, query)
        items, version = self.server.double.snapshot(kind, namespace)
        items = [{**value, "apiVersion": api} for value in items]
        metadata = {"resourceVersion": str(version)}
        return self._answer(200, {"kind": f"{kind}List", "apiVersion": api, "metadata": metadata, "items": items})

    def _watch(self, api: str, kind: str, namespace: str, query: Mapping[str, str]) -> None:
        initial = query.get("sendInitialEvents") == "true"
        since = int(query.get("resourceVersion") or 0)
        first, events = self.server.double.watch(kind, namespace, initial, since)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for event in first:
                self._event(api, event)
            while (event := events.get()) is not None:
                if namespace in ("", event["object"]["metadata"].get("namespace", "")):
                    self._event(api, event)
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
        finally:
            self.server.double.unwatch(events)

    def _event(self, api: str, event: Mapping[str, Any]) -> None:
        line = json.dumps({**event, "object": {**event["object"], "apiVersion": api}}).encode() + b"\n"
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.flush()

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        api, kind, namespace, rest = _parse(urlsplit(self.path).path)
        name, _, what = rest.partition("/")
        value = (
            self.server.double.write_status((kind, namespace, name), body.get("status")) if what == "status" else None
        )
        if value is None:
            return self._missing()
        return self._answer(200, {**value, "apiVersion": api})

    do_PATCH = do_PUT  # noqa: N815 - merge patches of a status, which controllers always send whole
