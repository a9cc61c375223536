# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A gateway cluster whose traffic is real: `GatewayCluster`; see README.md."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml
from ansible_collections.modelplane.fleet.tests.kube.client import Object
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane, condition
from ansible_collections.modelplane.fleet.tests.kube.processes import wait_for
from ansible_collections.modelplane.fleet.tests.stack.programs import Helm
from ansible_collections.modelplane.fleet.tests.stack.sources import pack

from . import programs
from .engines import Engine
from .kubelet import Kubelet, Pod
from .network import Network

T = TypeVar("T")
Values = Mapping[str, Any]
COMPONENTS = ("kube-controller-manager", "kube-scheduler", "kwok")
"""Components of a control plane that gateways need."""
SYSTEM = "envoy-gateway-system"
AI_SYSTEM = "envoy-ai-gateway-system"
_GATEWAY_API = "gateway.networking.k8s.io/v1"
_SECONDS = 120.0
_AI_CRDS = "ai-gateway-crds-helm"
# What the serving stack sets, and what the API server of these tests demands: it reaches no webhook inside the network.
VALUES: Values = {
    "topologyInjector": {"enabled": False},
    "config": {
        "envoyGateway": {
            "extensionApis": {"enableBackend": True, "enableEnvoyPatchPolicy": True},
            "rateLimit": {
                "backend": {"type": "Redis", "redis": {"url": f"redis.{SYSTEM}.svc.cluster.local:6379"}},
                "failClosed": True,
                "timeout": "2s",
            },
            "extensionManager": {
                "maxMessageSize": "64Mi",
                "hooks": {
                    "xdsTranslator": {
                        "translation": {
                            name: {"includeAll": True} for name in ("listener", "route", "cluster", "secret")
                        },
                        "post": ["Translation", "Cluster", "Route"],
                    }
                },
                "service": {"fqdn": {"hostname": f"ai-gateway-controller.{AI_SYSTEM}.svc.cluster.local", "port": 1063}},
            },
        }
    },
}


@dataclass(frozen=True)
class Answer:
    """An answer as a client got it."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class GatewayCluster:
    """Envoy Gateway, the rate-limit service with its Redis, and the AI gateway, on a control plane with COMPONENTS.

    `values`: those of the chart of Envoy Gateway, in place of VALUES. `ai_gateway`: objects of an AI gateway, in place
    of those of the stand-in. Each cluster has a network of its own. A context manager.
    """

    def __init__(
        self,
        cluster: ControlPlane,
        folder: Path,
        *,
        values: Values = VALUES,
        ai_gateway: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        self._values = values
        self._ai_gateway = ai_gateway_objects() if ai_gateway is None else ai_gateway
        self._images = programs.images()
        self._chart = programs.chart()
        self._helm = Helm(3, folder / "helm")
        self.network = Network(folder / "network")
        self.kubelet = Kubelet(cluster, self.network, folder / "pods", self._images)
        self.engines: dict[str, Engine] = {}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Install everything and return when the controllers work."""
        self.cluster.install_crds(self._chart / "charts" / "crds" / "crds")
        self.install_ai_crds()
        self.cluster.add_nodes("gateway", 1)
        for name in (SYSTEM, AI_SYSTEM):
            self.cluster.create_namespace(name)
        self.kubelet.start()
        self.cluster.apply([*_redis(), *self._ai_gateway])
        self.wait_for(
            "the AI gateway listens", lambda: self._listens(AI_SYSTEM, {"app": "ai-gateway-controller"}, 1063)
        )
        rendered = self._render()
        self.cluster.apply([each for each in rendered if each["kind"] != "Job"])
        self.cluster.apply([each for each in rendered if each["kind"] == "Job"])
        self.cluster.apply(_gateway_class())
        self.wait_for("Envoy Gateway takes the class envoy", self._class_accepted)
        self.wait_for(
            "the rate-limit service listens",
            lambda: self._listens(SYSTEM, {"app.kubernetes.io/name": "envoy-ratelimit"}, 8081),
        )

    def stop(self) -> None:
        for engine in self.engines.values():
            engine.die()
        self.kubelet.stop()
        self.network.close()

    def wait_for(self, what: str, ask: Any, *, seconds: float = _SECONDS) -> Any:
        """The first true answer of `ask`. The error when there is none says what went wrong with pods."""
        try:
            return wait_for(what, ask, seconds=seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.kubelet.errors()}") from error

    def apply(self, objects: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[Object]:
        return self.cluster.apply(objects)

    def engine(self, name: str, *hosts: str, port: int = 8000, tls: ssl.SSLContext | None = None) -> Engine:
        """A double of an engine that pods reach by these host names, in place of the one of this name before."""
        before = self.engines.get(name)
        if before:
            before.die()
        address = before.address if before else self.network.new_address()
        made = Engine(name, address, port, self.network.listen(address, port), tls)
        self.engines[name] = made
        for host in hosts:
            self.network.names[host] = [address]
        return made

    def reach(self, gateway: Gateway, port: int, *hosts: str) -> None:
        """Let pods reach a gateway of another cluster by these host names."""
        address = self.network.reach(gateway.network, gateway.address, port)
        for host in hosts:
            self.network.names[host] = [address]

    def gateway(self, name: str, namespace: str) -> Gateway:
        """A Gateway once it is Programmed and its proxies answer."""

        def programmed() -> Object | None:
            found = self.cluster.get(_GATEWAY_API, "Gateway", name, namespace)
            return found if found and condition(found, "Programmed") == "True" else None

        value = self.wait_for(f"Gateway {namespace}/{name} is programmed", programmed)
        made = Gateway(self, name, namespace, value["status"]["addresses"][0]["value"])
        self.wait_for(f"all proxies of Gateway {name} are ready", made.complete)
        for listener in value["spec"]["listeners"]:
            self.wait_for(
                f"Gateway {name} listens on {listener['port']}", lambda port=listener["port"]: made.listens(port)
            )
        return made

    def programmed_route(self, name: str, namespace: str, kind: str = "HTTPRoute") -> Object:
        """A route once Envoy Gateway has accepted it."""

        def accepted() -> Object | None:
            found = self.cluster.get(_GATEWAY_API, kind, name, namespace)
            parents = (found or {}).get("status", {}).get("parents") or ()
            done = parents and all(condition({"status": each}, "Accepted") == "True" for each in parents)
            return found if done else None

        found: Object = self.wait_for(f"{kind} {namespace}/{name} is accepted", accepted)
        return found

    def install_ai_crds(self) -> None:
        """Install the definitions of the AI gateway: small ones, which take any field."""
        packed = pack(self.folder / "charts", only=[_AI_CRDS])[_AI_CRDS]
        rendered = self.folder / "ai-crds.yaml"
        rendered.write_text(self._helm("template", _AI_CRDS, packed, "--namespace", AI_SYSTEM), encoding="utf-8")
        self.cluster.install_crds(rendered)

    def _class_accepted(self) -> bool:
        found = self.cluster.get(_GATEWAY_API, "GatewayClass", "envoy")
        return bool(found) and condition(found or {}, "Accepted") == "True"

    def _listens(self, namespace: str, labels: Mapping[str, str], port: int) -> bool:
        return any(self.listens(pod.address, port) for pod in self.kubelet.running(namespace, labels))

    def listens(self, address: str, port: int) -> bool:
        try:
            self.network.connect(address, port, 1.0).close()
        except OSError:
            return False
        return True

    def _render(self) -> list[Object]:
        values = self.folder / "values.json"
        values.write_text(json.dumps(self._values), encoding="utf-8")
        text = self._helm(
            "template", "envoy-gateway", self._chart, "--namespace", SYSTEM, "--values", values, "--skip-crds"
        )
        return [_placed(each) for each in yaml.safe_load_all(text) if each]


class _Connection(http.client.HTTPConnection):
    """A connection into a network, again when the other side has closed it. `host` is the name that TLS asks for."""

    def __init__(
        self, network: Network, address: str, port: int, tls: ssl.SSLContext | None, host: str, seconds: float
    ) -> None:
        super().__init__(host, timeout=seconds)
        self._network, self._there, self._seconds, self._tls = network, (address, port), seconds, tls

    def connect(self) -> None:
        self.sock = self._network.connect(*self._there, self._seconds)
        if self._tls:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)


class Gateway:
    """A Gateway at `address`, an address of the private network."""

    def __init__(self, cluster: GatewayCluster, name: str, namespace: str, address: str) -> None:
        self.name, self.namespace, self.address = name, namespace, address
        self._cluster = cluster
        self.network = cluster.network
        owner = "gateway.envoyproxy.io/owning-gateway"
        self._labels = {f"{owner}-name": name, f"{owner}-namespace": namespace}

    def listens(self, port: int) -> bool:
        """Return whether all of its proxies listen on a port."""
        there = self._ports().get(port)
        pods = self.pods
        return bool(there and pods) and all(self._cluster.listens(pod.address, there or 0) for pod in pods)

    def complete(self) -> bool:
        """Return whether it has as many proxies as it is to have."""
        found = self._owned("apps/v1", "Deployment")
        return bool(found) and len(self.pods) == sum(each["spec"].get("replicas", 1) for each in found)

    def everywhere(self, status: int, path: str, *arguments: Any, port: int = 80) -> bool:
        """Return whether each of its proxies answers a request with this status; arguments are those of `request`."""
        connections = [self.connection(port, pod=pod) for pod in self.pods]
        return bool(connections) and all(
            self.request(path, *arguments, over=each).status == status for each in connections
        )

    @property
    def pods(self) -> list[Pod]:
        """Its proxies."""
        return self._cluster.kubelet.running(SYSTEM, self._labels)

    def connection(
        self,
        port: int = 80,
        tls: ssl.SSLContext | None = None,
        *,
        host: str = "",
        pod: Pod | None = None,
        seconds: float = 30.0,
    ) -> http.client.HTTPConnection:
        """A connection of a client, for one request after the other: to one of its proxies, or to a certain one.

        `host`: the name in requests and for TLS.
        """
        address = pod.address if pod else self.address
        there = self._ports()[port] if pod else port
        return _Connection(self.network, address, there, tls, host or self.address, seconds)

    def request(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        port: int = 80,
        method: str = "",
        over: http.client.HTTPConnection | None = None,
    ) -> Answer:
        """Ask, on a connection of its own unless one is given."""
        connection = over or self.connection(port)
        data = None if body is None else json.dumps(body).encode()
        sent = {"content-type": "application/json", **(headers or {})}
        connection.request(method or ("GET" if body is None else "POST"), path, data, sent)
        got = connection.getresponse()
        answer = Answer(got.status, {key.lower(): value for key, value in got.getheaders()}, got.read())
        if over is None:
            connection.close()
        return answer

    def chat(self, model: str, key: str = "", *, over: http.client.HTTPConnection | None = None, **more: Any) -> Answer:
        """Ask a model by the API of OpenAI."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], **more}
        return self.request("/v1/chat/completions", body, headers, over=over)

    def url(self, port: int = 80) -> str:
        """Its address for programs outside of the private network: http://127.0.0.1:PORT."""
        return f"http://127.0.0.1:{self._cluster.network.expose(self.address, port)}"

    def access_log(self) -> list[Mapping[str, Any]]:
        """The lines of the access log, in JSON, of all its proxies so far. Envoy writes them late."""
        lines = [line for pod in self.pods for line in pod.log("envoy").splitlines() if line.startswith("{")]
        return [json.loads(line) for line in lines]

    def _owned(self, api_version: str, kind: str) -> list[Object]:
        selector = ",".join(f"{name}={value}" for name, value in self._labels.items())
        return self._cluster.cluster.objects.list(api_version, kind, SYSTEM, selector)

    def _ports(self) -> Mapping[int, int]:
        """Port of its Service -> port of its pods."""
        found = self._owned("v1", "Service")
        return {port["port"]: port["targetPort"] for each in found for port in each["spec"]["ports"]}


def _placed(value: Object) -> Object:
    """An object of the chart as Helm installs it: what names no namespace is in that of the release."""
    cluster_wide = ("Namespace", "ClusterRole", "ClusterRoleBinding", "GatewayClass", "CustomResourceDefinition")
    if value["kind"] not in cluster_wide and not value["kind"].endswith("WebhookConfiguration"):
        value["metadata"].setdefault("namespace", SYSTEM)
    return value


def _gateway_class() -> Object:
    controller = "gateway.envoyproxy.io/gatewayclass-controller"
    return {
        "apiVersion": _GATEWAY_API,
        "kind": "GatewayClass",
        "metadata": {"name": "envoy"},
        "spec": {"controllerName": controller},
    }


def _workload(name: str, namespace: str, image: str, ports: Mapping[str, int], **container: Any) -> list[Object]:
    """A Deployment and its Service."""
    labels = {"app": name}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    listed = [{"name": each, "port": port, "targetPort": port} for each, port in ports.items()]
    pod = {"serviceAccountName": name, "containers": [{"name": name, "image": image, **container}]}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": listed},
        },
    ]


def _redis() -> list[Object]:
    command = ["redis-server", "--protected-mode", "no", "--save", "", "--appendonly", "no"]
    return _workload("redis", SYSTEM, "docker.io/library/redis:6.2", {"redis": 6379}, command=command)


def ai_gateway_objects(read_interval: str = "5s") -> list[Object]:
    """The AI gateway with the rights that its chart gives it, for the subset that the stand-in reads and writes.

    `read_interval`: how often its processor reads its configuration."""
    name = "ai-gateway-controller"
    rules = [
        {"apiGroups": ["aigateway.envoyproxy.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["gateway.networking.k8s.io"], "resources": ["httproutes", "gateways"], "verbs": ["*"]},
        {
            "apiGroups": ["gateway.envoyproxy.io"],
            "resources": ["envoyextensionpolicies", "httproutefilters", "backends"],
            "verbs": ["*"],
        },
    ]
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": AI_SYSTEM}],
    }
    image = "docker.io/envoyproxy/ai-gateway-controller:stand-in"
    env = [{"name": "AI_GATEWAY_READ_INTERVAL", "value": read_interval}]
    ports = {"grpc": 1063, "processor": 1064}
    return [role, binding, *_workload(name, AI_SYSTEM, image, ports, env=env)]
