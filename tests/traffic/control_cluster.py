# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A control cluster whose traffic is real: composed objects, Traefik, Envoy, and stand-ins for what is behind them."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.backend import backend_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.endpoint_url import parse_url
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.gateway import backend_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.options import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import merged
from ansible_collections.modelplane.fleet.tests.kube.processes import free_port
from ansible_collections.modelplane.fleet.tests.traffic.api_double import ApiDouble
from ansible_collections.modelplane.fleet.tests.traffic.certificates import Authority
from ansible_collections.modelplane.fleet.tests.traffic.edges import STREAM_SECONDS, Edge
from ansible_collections.modelplane.fleet.tests.traffic.processes import (
    EgressPod,
    Network,
    Process,
    traefik,
    wait_until,
)
from ansible_collections.modelplane.fleet.tests.written import (
    endpoint_index,
    endpoint_objects,
    gateway_objects,
    gateway_releases,
    parsed,
    resolve,
    service_objects,
)

Object = dict[str, Any]
NAMESPACE = "ml-team"
GATEWAY: Object = {
    "metadata": {"name": "default"},
    "spec": {
        "backend": "Traefik",
        "traefik": {"version": "40.2.0"},
        "listeners": [
            {
                "name": "https",
                "port": 443,
                "protocol": "HTTPS",
                "hostname": "models.example",
                "tls": {"certificateRefs": [{"name": "models-example"}]},
            }
        ],
    },
}
SECURE_NAME = GATEWAY["spec"]["listeners"][0]["hostname"]
GATEWAY_ADDRESS = "198.51.100.7"
# What the Traefik chart makes beside its Deployment, with the composed values.
TRAEFIK_SERVICE: Object = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "traefik", "namespace": "traefik-system"},
    "spec": {
        "type": "LoadBalancer",
        "selector": {"app.kubernetes.io/name": "traefik"},
        "ports": [{"name": "web", "port": 80, "targetPort": "web", "protocol": "TCP"}],
    },
    "status": {"loadBalancer": {"ingress": [{"ip": GATEWAY_ADDRESS}]}},
}


def endpoint(name: str, url: str, labels: Mapping[str, str] | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"name": name, **(labels or {})}},
        "spec": {"url": url, **spec},
    }


def service(name: str, *entries: Mapping[str, Any]) -> Object:
    """A ModelService; an entry is its `weight`, its `priority`, and labels."""
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "endpoints": [
                {
                    **{key: value for key, value in entry.items() if key in ("weight", "priority")},
                    "selector": {
                        "matchLabels": {k: v for k, v in entry.items() if k not in ("weight", "priority")},
                    },
                }
                for entry in entries
            ]
        },
    }


def credential(secret: str, **fields: str) -> Object:
    return {"apiKey": {"secretRef": {"name": secret}, **fields}}


@dataclass
class Plan:
    """Desired state of a fleet. `down` are endpoints that are not usable, `routed` services that had routes before."""

    endpoints: dict[str, Object]
    services: dict[str, Object]
    down: set[str] = field(default_factory=set)
    routed: set[str] = field(default_factory=set)

    def objects(self) -> list[Object]:
        gateway = backend_of(parsed(GATEWAY, api.InferenceGateway))
        index = endpoint_index(self.endpoints.values())
        found: list[Object] = list(gateway_objects(GATEWAY))
        for value in self.endpoints.values():
            found += endpoint_objects(value, Options(), gateway)
        for name, value in self.services.items():
            resolution = resolve(value, index, lambda each: each.name not in self.down)
            found += service_objects(value, resolution, gateway, name in self.routed)
        return found


def _key(value: Mapping[str, Any]) -> tuple[str, str, str]:
    return value["kind"], value["metadata"].get("namespace", ""), value["metadata"]["name"]


@dataclass(frozen=True)
class Answer:
    status: int
    text: str


class Stream(threading.Thread):
    """A streamed answer that is read to its end in the background."""

    def __init__(self, port: int, path: str, host: str = "127.0.0.1") -> None:
        super().__init__(daemon=True)
        self._host, self._port, self._path = host, port, path
        self.lines = 0
        self.last = b""
        self.status = 0
        self.error = ""

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=30)
        try:
            connection.request(
                "POST", self._path, body=b'{"stream": true}', headers={"Content-Type": "application/json"}
            )
            response = connection.getresponse()
            self.status = response.status
            for line in response:
                self.lines += line.startswith(b"data: ")
                self.last = line.strip() or self.last
            # A response that is cut ends like a whole one, with the last chunk left open.
            if response.chunked and response.chunk_left is not None:
                self.error = "the stream was cut"
        except (OSError, http.client.HTTPException) as error:
            self.error = repr(error)
        finally:
            connection.close()


class SilentRequest(threading.Thread):
    """A request whose answer begins long after it was sent, waited for in the background."""

    def __init__(self, ask: Callable[[], Answer]) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self.answer: Answer | None = None
        self.error = ""

    def run(self) -> None:
        try:
            self.answer = self._ask()
        except (OSError, http.client.HTTPException) as error:
            self.error = repr(error)


class ControlCluster:
    """Traefik in front of the objects of a plan."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.network = Network()
        self.public = Authority("public", folder)
        self.private = Authority("private", folder)
        self.port = free_port()
        self.secure_port = free_port()
        self.api = ApiDouble()
        self.edges: dict[str, Edge] = {}
        self.pods: dict[str, EgressPod] = {}
        self.given: list[Object] = []
        self._published: list[Object] = []
        self._labels = 0
        self._stack = ExitStack()
        self.traefik: Process | None = None
        self.network.pods("traefik-system", "traefik", ("127.0.0.1", self.port))

    def __enter__(self) -> ControlCluster:
        self._stack.enter_context(self.api)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def edge(
        self, name: str, *urls: str, bind: str = "127.0.0.1", by: Authority | None = None, server: str = ""
    ) -> Edge:
        """A stand-in behind these URLs; with an authority it speaks TLS under the name `server` or the URL's host."""
        targets = [parse_url(url) for url in urls]
        pair = by.issue(server or targets[0].host) if by else None
        edge = self._stack.enter_context(Edge(name, host=bind, certificate=pair))
        for target in targets:
            self.network.at(target.host, target.port, ("localhost" if target.named else bind, edge.port))
        self.edges[name] = edge
        return edge

    def egress(
        self, name: str, plan: Plan, secret: Mapping[str, str], authorities: Mapping[str, str] | None = None
    ) -> EgressPod:
        """The pod of the egress proxy of an endpoint of the plan."""
        objects = endpoint_objects(plan.endpoints[name], Options())
        pod = EgressPod(objects, self.folder / name, self.network, self.public.file)
        pod.mount(secret, authorities)
        self._stack.enter_context(pod.process(self.folder / f"{name}.log"))
        self.network.pods(NAMESPACE, backend_name(name, egress=True), ("127.0.0.1", pod.port))
        self.pods[name] = pod
        return pod

    def start(self, plan: Plan, given: Iterable[Object]) -> None:
        """Run Traefik with this plan, beside objects that others made, until it has taken everything over."""
        self.given = [*given, TRAEFIK_SERVICE, self._certificate()]
        self._published = self._local(plan)
        self.api.replace(self._published)
        self.traefik = self._stack.enter_context(self._pod("127.0.0.1"))
        self._taken_over()

    def _pod(self, host: str, life: Mapping[str, str] | None = None) -> Process:
        """A pod of Traefik, which has its ports on this address. `life` is in place of the `lifeCycle` of values."""
        values = next(each.values for each in gateway_releases(GATEWAY) if each.name == "mp-traefik")
        if life:
            values = merged(values, {"ports": {name: {"transport": {"lifeCycle": life}} for name in values["ports"]}})
        ports = {"web": self.port, "websecure": self.secure_port}
        log = self.folder / f"traefik-{host}.log"
        return traefik(values, self.api.url, ports, log, self.public.file, host)

    @contextmanager
    def another_pod(self, host: str, path: str, life: Mapping[str, str] | None = None) -> Iterator[Process]:
        """A second pod of Traefik, once it answers requests to this path again and again."""
        with self._pod(host, life) as pod:
            wait_until(lambda: all(self.ask(path, host=host).status == 200 for _ in range(20)), why=pod.tail)
            yield pod

    def apply(self, plan: Plan) -> None:
        """Make this plan the one there is, and wait until Traefik has taken it over.

        As whoever applies plans has to, this removes objects when no route leads to them any more: a route to a Service
        that is gone answers 500 to its share of requests.
        """
        desired = self._local(plan)
        keys = {_key(value) for value in desired}
        self.api.replace([*desired, *(value for value in self._published if _key(value) not in keys)])
        self._taken_over()
        self.api.replace(desired)
        self._published = desired
        self._taken_over()

    def _local(self, plan: Plan) -> list[Object]:
        ports = {"HTTP": self.port, "HTTPS": self.secure_port}
        return self.network.apply([*plan.objects(), *self.given], ports)

    def _certificate(self) -> Object:
        """The Secret of the gateway's listener for HTTPS."""
        certificate, key = (Path(file).read_bytes() for file in self.public.issue(SECURE_NAME))
        (reference,) = GATEWAY["spec"]["listeners"][0]["tls"]["certificateRefs"]
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": reference["name"], "namespace": "modelplane-system"},
            "type": "kubernetes.io/tls",
            "data": {"tls.crt": b64encode(certificate).decode(), "tls.key": b64encode(key).decode()},
        }

    def _taken_over(self) -> None:
        """Wait until Traefik has written its verdict on every route and then serves a route that is added now.

        Its routers change all at once, a moment after the verdicts.
        """
        wait_until(self._settled, why=self.why)
        self._labels += 1
        mark = service(f"mark-{self._labels}", {"name": "no-pod"})
        objects = Plan({}, {"mark": mark}, routed={"mark"}).objects()
        self.api.add(value for value in objects if value["metadata"].get("namespace") == NAMESPACE)
        path = f"/{NAMESPACE}/mark-{self._labels}/"
        wait_until(lambda: self.ask(path).status == 503, why=self.why)

    def _settled(self) -> bool:
        return all(self.conditions(route) for route in self.api.of_kind("HTTPRoute"))

    def conditions(self, route: Mapping[str, Any]) -> dict[str, str]:
        """The conditions that Traefik wrote for the route as it is now."""
        found: dict[str, str] = {}
        for parent in route.get("status", {}).get("parents", ()):
            for condition in parent["conditions"]:
                if condition["observedGeneration"] == route["metadata"]["generation"]:
                    found[condition["type"]] = condition["status"]
        return found

    def why(self) -> str:
        """Return the end of Traefik's log."""
        return self.traefik.tail() if self.traefik else ""

    def ask_securely(self, path: str) -> Answer:
        """The answer to one request by HTTPS, whose certificate is checked."""
        context = ssl.create_default_context(cafile=str(self.public.file))
        # Its certificates have no identifier of their authority.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        with socket.create_connection(("127.0.0.1", self.secure_port), timeout=20) as plain:
            connection = http.client.HTTPSConnection(SECURE_NAME, timeout=20)
            connection.sock = context.wrap_socket(plain, server_hostname=SECURE_NAME)
            connection.request("POST", path, body=b"{}", headers={"Connection": "close"})
            response = connection.getresponse()
            return Answer(response.status, response.read().decode())

    def ask(
        self, path: str, headers: Mapping[str, str] | None = None, *, host: str = "127.0.0.1", timeout: float = 20
    ) -> Answer:
        """The answer to one request on a connection of its own."""
        connection = http.client.HTTPConnection(host, self.port, timeout=timeout)
        try:
            connection.request("POST", path, body=b"{}", headers={"Host": GATEWAY_ADDRESS, **(headers or {})})
            response = connection.getresponse()
            return Answer(response.status, response.read().decode())
        finally:
            connection.close()

    def ask_often(self, path: str, times: int) -> Counter[int]:
        """Return how often each status was answered to so many requests, one after the other on one connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        answers: Counter[int] = Counter()
        try:
            for _ in range(times):
                connection.request("POST", path, body=b"{}")
                response = connection.getresponse()
                response.read()
                answers[response.status] += 1
        finally:
            connection.close()
        return answers

    def stream(self, path: str, host: str = "127.0.0.1") -> Stream:
        stream = Stream(self.port, path, host)
        stream.start()
        return stream

    def silent_request(self, path: str) -> SilentRequest:
        request = SilentRequest(lambda: self.ask(path, timeout=STREAM_SECONDS + 30))
        request.start()
        return request
