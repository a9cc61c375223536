# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A real Kubernetes control plane on this machine: no kubelets, nodes and pods are acted by kwok."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from . import audit, stages, workers
from .certificates import Authority, signing_key
from .client import Object, Objects, documents
from .processes import Port, Process, wait_for

T = TypeVar("T")
DATA = Path(__file__).resolve().parent / "data"
# Definitions of custom kinds that composed objects need: what `install_crds` takes.
GATEWAY_API = DATA / "crds" / "gateway-api"
INFERENCE_EXTENSION = DATA / "crds" / "inference-extension"
LEADER_WORKER_SET = DATA / "crds" / "leader-worker-set"
METALLB = DATA / "crds" / "metallb"

# What runs beside the API server: of a cluster that only holds objects, and of one that runs pods.
CONTROL = ("kube-controller-manager",)
WORKLOAD = ("kube-controller-manager", "kube-scheduler", "kwok", "lws")

ADMIN = "admin"
# The user of writes by the methods of ControlPlane, so that its own requests are not counted.
TESTS = "tests"
_MASTERS = ("system:masters",)
_SYSTEM_USERS = frozenset({TESTS, *(f"system:{name}" for name in WORKLOAD)})
_START_SECONDS = 300.0
# The controllers that composed objects need. Without node lifecycle: the nodes of kwok send no heartbeat here.
_CONTROLLERS = (
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpointslice-controller",
    "ephemeral-volume-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "resourceclaim-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "clusterrole-aggregation-controller",
)
# Kind of Kubernetes 1.36 behind a feature gate, which 1.37 enables by default.
_TAINT_RULES = "--feature-gates=DRADeviceTaintRules=true"
# The API server's proxy finds the pods of a Service by it.
_ENDPOINTS = "endpoints-controller"


class Etcd:
    """An etcd that keeps nothing safe. Several control planes can use one, each below its own prefix."""

    def __init__(self, programs: Mapping[str, Path], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._data = folder / "data"
        self._ports = (Port(), Port())
        self.url, peer = (f"http://127.0.0.1:{port}" for port in self._ports)
        self.process = Process(
            [
                programs["etcd"],
                f"--data-dir={self._data}",
                f"--listen-client-urls={self.url}",
                f"--advertise-client-urls={self.url}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
                "--log-level=error",
            ],
            folder / "etcd.log",
        )
        # API servers that come first wait a second before they try again.
        port = self._ports[0].number
        wait_for("etcd listens", lambda: workers.listens(port), seconds=_START_SECONDS, alive=[self.process])

    def stop(self) -> None:
        self.process.kill()
        # Logs of etcd's own are reserved in pieces of 64 MiB, and pytest keeps the folders of three runs.
        shutil.rmtree(self._data, ignore_errors=True)
        for port in self._ports:
            port.release()


class ControlPlane:
    """One cluster: an API server with RBAC on a port of its own, and the `components` beside it.

    `programs` are those of binaries.find. `folder` gets logs, keys and kubeconfigs. Without `etcd` it has one of its
    own. Works as a context manager that starts and stops it. `objects` reads and writes objects as the user `tests`;
    what is tested uses `kubeconfig` or `user_kubeconfig`. `token_review` is the URL of a webhook that says whose bearer
    tokens are that this API server did not issue (TokenReview of authentication.k8s.io/v1). `egress` is a socket of a
    proxy (HTTP CONNECT) by which the API server reaches pods; without one it reaches none.
    """

    def __init__(
        self,
        programs: Mapping[str, Path],
        name: str,
        folder: Path,
        *,
        etcd: Etcd | None = None,
        components: Sequence[str] = WORKLOAD,
        token_review: str = "",
        egress: Path | None = None,
    ) -> None:
        self.name = name
        self.folder = folder
        self.components = tuple(components)
        self._programs = programs
        folder.mkdir(parents=True, exist_ok=True)
        self._own_etcd = etcd is None
        self._etcd = etcd or Etcd(programs, folder / "etcd")
        self._ports = {"kube-apiserver": Port()}
        self.server = f"https://127.0.0.1:{self._ports['kube-apiserver']}"
        self._authority = Authority(folder, name)
        self._authority.server(folder / "server.crt", folder / "server.key")
        signing_key(folder / "service-accounts.key")
        self.kubeconfig = self._kubeconfig(ADMIN)
        self._audit = audit.AuditLog(folder / "audit.log")
        (folder / "audit-policy.json").write_text(json.dumps(audit.policy(_SYSTEM_USERS)), encoding="utf-8")
        self._webhook = _write_webhook(folder / "token-review.json", token_review) if token_review else None
        self._egress = _write_egress(folder / "egress.json", egress) if egress else None
        self.objects = Objects(self._kubeconfig(TESTS))
        self.processes: dict[str, Process] = {}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # The life of the processes

    def start(self) -> Self:
        """Start everything; returns when the API server is ready and the components have begun to work."""
        try:
            self.start_api_server()
            for name, start in (
                ("kube-controller-manager", self._start_controller_manager),
                ("kube-scheduler", self._start_scheduler),
                ("kwok", self._start_kwok),
                ("lws", self._start_leader_worker_set),
            ):
                if name in self.components:
                    start()
            if "kube-controller-manager" in self.components:
                self.wait_for("the default service account", lambda: self._service_account("default"))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill all processes of this cluster. Logs stay."""
        for process in reversed(self.processes.values()):
            process.kill()
        self.processes = {}
        if self._own_etcd:
            self._etcd.stop()
        for port in self._ports.values():
            port.release()

    def pause(self) -> None:
        """Stop all processes where they are, as each takes some percent of a processor when idle."""
        for process in self._all.values():
            process.pause()

    def resume(self) -> None:
        """Let paused processes go on; returns when the API server answers."""
        for process in self._all.values():
            process.resume()
        self.wait_for("the API server is ready", self.objects.ready)

    def start_api_server(self) -> None:
        """Start the API server (again), on its port and with its data; wait until it is ready."""
        folder = self.folder
        disabled = ["TaintNodesByCondition"]  # Its taint of new nodes is removed by the node lifecycle controller.
        if "kube-controller-manager" not in self.components:
            disabled.append("ServiceAccount")
        webhook = (
            f"--authentication-token-webhook-config-file={self._webhook}",
            "--authentication-token-webhook-version=v1",
        )
        self._run(
            "kube-apiserver",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._ports['kube-apiserver']}",
            "--endpoint-reconciler-type=none",
            f"--etcd-servers={self._etcd.url}",
            f"--etcd-prefix=/{self.name}",
            f"--tls-cert-file={folder / 'server.crt'}",
            f"--tls-private-key-file={folder / 'server.key'}",
            f"--client-ca-file={self._authority.path}",
            f"--service-account-key-file={folder / 'service-accounts.key'}",
            f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/16",
            "--authorization-mode=RBAC",
            f"--disable-admission-plugins={','.join(disabled)}",
            "--enable-priority-and-fairness=false",
            "--runtime-config=resource.k8s.io/v1beta2=true",
            _TAINT_RULES,
            "--allow-privileged=true",
            "--profiling=false",
            f"--audit-policy-file={folder / 'audit-policy.json'}",
            f"--audit-log-path={self._audit.path}",
            "--audit-log-maxsize=10000",
            *(webhook if self._webhook else ()),
            *((f"--egress-selector-config-file={self._egress}",) if self._egress else ()),
        )
        self.wait_for("the API server is ready", self.objects.ready)

    def kill_api_server(self) -> None:
        """SIGKILL, as if its machine was switched off. The components go on and wait for `start_api_server`."""
        self.processes.pop("kube-apiserver").kill()

    def wait_until_gone(self, gone: Callable[[], bool], *, seconds: float = 600) -> None:
        """Wait until what was removed is gone, as the garbage collector of Kubernetes removes what belonged to it.
        Raises TimeoutError.

        The collector stops for minutes when API groups come and go, so kube-controller-manager starts again; more than
        once, as groups may still be going while it starts, and each time later, as a busy machine starts it slowly.
        """
        deadline, restart, pause = time.monotonic() + seconds, 0.0, 0.25
        patience = 20.0
        while not gone():
            if time.monotonic() >= deadline:
                raise TimeoutError(f"cluster {self.name}: what was removed is not gone within {seconds:g} seconds")
            if time.monotonic() >= restart:
                self.processes.pop("kube-controller-manager").kill()
                self._start_controller_manager()
                restart = time.monotonic() + patience
                patience *= 2
            # To ask may cost a second of a processor.
            time.sleep(pause)
            pause = min(2 * pause, 8.0)

    def wait_for(self, what: str, ask: Callable[[], T | None], *, seconds: float = _START_SECONDS) -> T:
        """The first true answer of `ask`. Raises TimeoutError, or ProcessDiedError when a process here dies."""
        return wait_for(what, ask, seconds=seconds, alive=[*self.processes.values(), self._etcd.process])

    def program(self, name: str) -> Path:
        """One of the programs that belong to a control plane (`kubectl`, for one)."""
        return self._programs[name]

    def memory(self) -> dict[str, int]:
        """Resident bytes of each process, etcd left out when it is shared."""
        return {name: process.memory() for name, process in self._all.items()}

    @property
    def _all(self) -> dict[str, Process]:
        return {**({"etcd": self._etcd.process} if self._own_etcd else {}), **self.processes}

    # Who may do what, and who did

    def user_kubeconfig(
        self,
        user: str,
        *,
        rules: Sequence[Mapping[str, Any]] = (),
        cluster_role: str = "",
        namespace: str = "",
        groups: Sequence[str] = (),
    ) -> Path:
        """A kubeconfig for a user who may do what `rules` (of a ClusterRole) and the role `cluster_role` say, no more.

        They hold in `namespace` only, where one is given (it has to exist).
        """
        roles = [cluster_role] if cluster_role else []
        if rules:
            roles.append(f"user-{user}")
            api = "rbac.authorization.k8s.io/v1"
            self.apply(
                {"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": roles[-1]}, "rules": list(rules)}
            )
        for role in roles:
            self.apply(_binding(user, role, namespace))
        return self._kubeconfig(user, groups)

    def audit_position(self) -> int:
        """Return where the audit log ends now: what `requests` and `write_requests` take as `since`."""
        return self._audit.position()

    def requests(self, since: int = 0, users: Collection[str] | None = None) -> list[audit.Request]:
        """Requests since a position of these users; by default of all who are no part of the cluster or these tests."""
        desired = self._audit.requests(since)
        if users is None:
            return [each for each in desired if not each.user.startswith("system:") and each.user != TESTS]
        return [each for each in desired if each.user in users]

    def write_requests(self, since: int = 0, users: Collection[str] | None = None) -> list[audit.Request]:
        """Return the requests that write, including dry runs and refused requests. Access reviews store nothing."""
        return [
            request
            for request in self.requests(since, users)
            if request.verb not in audit.READS and request.group != "authorization.k8s.io"
        ]

    # Objects

    def apply(self, objects: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[Object]:
        """Apply objects as they are, in their order, once their namespaces of earlier tests are gone."""
        each = [objects] if isinstance(objects, Mapping) else objects
        if "kube-controller-manager" in self.components:
            needed = {_namespace(one) for one in each}
            self.wait_for("namespaces of before are gone", lambda: not needed & self._going(), seconds=600)
        return self.objects.apply(each)

    def _going(self) -> set[str]:
        """The namespaces that are being deleted."""
        namespaces = self.objects.list("v1", "Namespace")
        return {each["metadata"]["name"] for each in namespaces if "deletionTimestamp" in each["metadata"]}

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Object | None:
        """An object, None when there is none."""
        return self.objects.get(api_version, kind, name, namespace)

    def create_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """A namespace in which pods can be created at once."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}})
        if "kube-controller-manager" in self.components:
            self.wait_for(f"the service account of namespace {name}", lambda: self._service_account(name))

    def install_crds(self, *paths: Path) -> None:
        """Install the CustomResourceDefinitions of files and folders and wait until their kinds are served."""
        definitions = [each for each in documents(*paths) if each["kind"] == "CustomResourceDefinition"]
        self.apply(definitions)
        for each in definitions:
            spec = each["spec"]
            for version in (version["name"] for version in spec["versions"] if version["served"]):
                self._wait_for_kind(f"{spec['group']}/{version}", spec["names"]["kind"])

    def add_nodes(
        self,
        pool: str,
        count: int,
        *,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        capacity: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Add `count` nodes `POOL-0`, `POOL-1`, … and wait until they are Ready; their names. See workers.nodes."""
        made = workers.nodes(pool, count, labels=labels or {}, taints=taints, capacity=capacity or {})
        self.apply(made)
        names = [node["metadata"]["name"] for node in made]

        def ready() -> bool:
            found = self.objects.list("v1", "Node")
            return set(names) <= {node["metadata"]["name"] for node in found if condition(node, "Ready") == "True"}

        self.wait_for(f"nodes of {pool} are ready", ready)
        return names

    def remove_nodes(self) -> None:
        """Remove all nodes, and the devices that are published for them."""
        for api_version, kind in (("resource.k8s.io/v1", "ResourceSlice"), ("v1", "Node")):
            for each in self.objects.list(api_version, kind):
                self.objects.delete(api_version, kind, each["metadata"]["name"])

    def publish_devices(self, node: str, driver: str, devices: Sequence[Mapping[str, Any]]) -> None:
        """Publish the devices of a node as its driver would, in place of those before (resource.k8s.io/v1 devices:
        `{"name": …, "attributes": {NAME: {"string": …}}, "capacity": {NAME: {"value": …}}}`)."""
        api = "resource.k8s.io/v1"
        before = [
            each
            for each in self.objects.list(api, "ResourceSlice")
            if (each["spec"].get("nodeName"), each["spec"]["driver"]) == (node, driver)
        ]
        generation = max((each["spec"]["pool"]["generation"] for each in before), default=0) + 1
        after = workers.slices(node, driver, devices, generation)
        self.apply(after)
        for name in {each["metadata"]["name"] for each in before} - {each["metadata"]["name"] for each in after}:
            self.objects.delete(api, "ResourceSlice", name)

    def add_device_class(self, name: str, *expressions: str) -> None:
        """A DeviceClass of devices of which all these CEL expressions are true."""
        self.apply(workers.device_class(name, expressions))

    def add_storage_class(self, name: str, *, wait_for_pod: bool = False, default: bool = False) -> None:
        """A StorageClass whose claims are bound: at once, or when a pod that uses them has a node. Needs kwok."""
        self.apply(workers.storage_class(name, wait_for_pod=wait_for_pod, default=default))

    # Components

    def _run(self, name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Process:
        process = Process([self._programs[name], *arguments], self.folder / f"{name}.log", environment)
        self.processes[name] = process
        return process

    def _start_controller_manager(self) -> None:
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={self._component_kubeconfig('kube-controller-manager')}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--controllers={','.join(_CONTROLLERS)}" + (f",{_ENDPOINTS}" if self._egress else ""),
            "--kube-api-qps=500",
            "--kube-api-burst=500",
            "--profiling=false",
        )

    def _start_scheduler(self) -> None:
        settings = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {
                "kubeconfig": str(self._component_kubeconfig("kube-scheduler")),
                "qps": 500,
                "burst": 500,
            },
            "leaderElection": {"leaderElect": False},
            "enableProfiling": False,
            # Pods that did not fit are tried again soon when a test has changed what they wait for.
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 2,
        }
        path = self.folder / "kube-scheduler.json"
        path.write_text(json.dumps(settings), encoding="utf-8")
        self._run("kube-scheduler", f"--config={path}", "--secure-port=0", _TAINT_RULES)

    def _start_kwok(self) -> None:
        configuration = self.folder / "kwok.yaml"
        stages.write(configuration)
        self._run(
            "kwok",
            f"--kubeconfig={self._component_kubeconfig('kwok')}",
            f"--config={configuration}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=0",
            "--cidr=10.64.0.0/12",
        )

    def _start_leader_worker_set(self) -> None:
        self.install_crds(LEADER_WORKER_SET)
        port = self._ports["lws"] = Port()
        served = self.folder / "lws"
        served.mkdir()
        self._authority.server(served / "tls.crt", served / "tls.key")
        settings = {
            "apiVersion": "config.lws.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": "127.0.0.1", "port": port.number, "certDir": str(served)},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": "0"},
        }
        path = self.folder / "lws.json"
        path.write_text(json.dumps(settings), encoding="utf-8")
        self._run(
            "lws", f"--config={path}", "--zap-log-level=info", f"--kubeconfig={self._component_kubeconfig('lws')}"
        )
        self.wait_for("the webhooks of LeaderWorkerSet listen", lambda: workers.listens(port.number))
        self.apply(workers.leader_worker_set_webhooks(f"https://127.0.0.1:{port}", self._authority.certificate))

    def _wait_for_kind(self, api_version: str, kind: str) -> None:
        self.wait_for(f"{kind} of {api_version} is served", lambda: self.objects.knows(api_version, kind))

    def _component_kubeconfig(self, component: str) -> Path:
        return self._authority.kubeconfig(
            self.folder / f"{component}.kubeconfig", self.server, f"system:{component}", _MASTERS, self.name
        )

    def _kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        groups = _MASTERS if user in (ADMIN, TESTS) else groups
        return self._authority.kubeconfig(self.folder / f"{user}.kubeconfig", self.server, user, groups, self.name)

    def _service_account(self, namespace: str) -> Object | None:
        return self.get("v1", "ServiceAccount", "default", namespace)


def condition(thing: Mapping[str, Any], kind: str) -> str:
    """Status of a condition of an object ("True", "False", "Unknown"), empty where it has none of this type."""
    conditions = thing.get("status", {}).get("conditions") or []
    return next((each["status"] for each in conditions if each["type"] == kind), "")


def _write_egress(path: Path, socket: Path) -> Path:
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(socket)}}}
    document = {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def _write_webhook(path: Path, url: str) -> Path:
    """Return how an API server reaches a webhook: a kubeconfig."""
    made = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "webhook", "cluster": {"server": url}}],
        "users": [{"name": "api-server", "user": {}}],
        "contexts": [{"name": "webhook", "context": {"cluster": "webhook", "user": "api-server"}}],
        "current-context": "webhook",
    }
    path.write_text(json.dumps(made), encoding="utf-8")
    return path


def _namespace(value: Mapping[str, Any]) -> str:
    """The namespace that an object is, or is in."""
    metadata = value["metadata"]
    return str(metadata["name"] if value["kind"] == "Namespace" else metadata.get("namespace", ""))


def _binding(user: str, role: str, namespace: str) -> Object:
    group = "rbac.authorization.k8s.io"
    metadata = {"name": f"user-{user}-{role}", **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
