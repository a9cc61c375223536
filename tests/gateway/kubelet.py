# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Kubelets, kube-proxies and a load balancer for the pods of a cluster, as far as gateways need them.

kwok makes pods Ready and gives them addresses; here their containers run, as processes with a network and a root of
their own. An image is a program of this machine, by the last part of its name; containers of other images are not run.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import kubernetes.client
import kubernetes.config
from ansible_collections.modelplane.fleet.tests.kube.client import PASSING, Object, Objects
from ansible_collections.modelplane.fleet.tests.kube.control_plane import TESTS, ControlPlane
from ansible_collections.modelplane.fleet.tests.kube.processes import Process, wait_for
from kubernetes.dynamic.exceptions import NotFoundError

from .network import NODE, Namespace, Network

T = TypeVar("T")
Key = tuple[str, str]
_CONTAINER = Path(__file__).with_name("container.py")
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_WATCH_SECONDS = 20.0
_PATIENCE = 300.0
_DAY = 86_400
_HELD = "test.modelplane.ai/containers"
# By default access logs are written every ten seconds.
_FLUSH = "--file-flush-interval-msec"
_ISSUER = "https://kubernetes.default.svc"
# What programs of this machine are linked with, and what every container has.
_SYSTEM = tuple(
    path for path in ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/proc", "/dev", "/etc/ssl") if Path(path).exists()
)
_DOMAIN = "svc.cluster.local"


class Kubelet:
    """Runs the pods of a cluster until `stop`. Logs are below `folder`, NAMESPACE/POD/CONTAINER.log."""

    def __init__(self, cluster: ControlPlane, network: Network, folder: Path, images: Mapping[str, Path]) -> None:
        self.cluster = cluster
        self.network = network
        self.folder = folder
        self.images = images
        self.pods: dict[Key, Pod] = {}
        self.stopped = threading.Event()
        self._clients = 0
        self._secrets: dict[Key, str] = {}
        self._slices: dict[Key, Object] = {}
        self._balanced: dict[Key, str] = {}
        self._balancers: dict[tuple[str, int], tuple[Process, Path]] = {}
        host, port = network.admit(int(cluster.server.rpartition(":")[2]))
        self.api_server = (host, port)
        network.names.setdefault("kubernetes.default.svc", [NODE])
        network.resolvers.append(self._resolve)
        client = kubernetes.config.new_client_from_config(str(self._kubeconfig()))  # type: ignore[no-untyped-call]
        self._core = kubernetes.client.CoreV1Api(client)
        self.objects = Objects(self._kubeconfig())

    def start(self) -> None:
        for api_version, kind, seen, gone in (
            ("v1", "Secret", self._secret, None),
            ("discovery.k8s.io/v1", "EndpointSlice", self._slice, self._slice_gone),
            ("v1", "Service", self._service, None),
            ("v1", "Pod", self._pod, self._pod_gone),
        ):
            arguments = (Objects(self._kubeconfig()), api_version, kind, seen, gone)
            threading.Thread(target=self._follow, args=arguments, name=f"kubelet-{kind}", daemon=True).start()

    def stop(self) -> None:
        """Kill all containers."""
        self.stopped.set()
        if self._resolve in self.network.resolvers:
            self.network.resolvers.remove(self._resolve)
        for pod in list(self.pods.values()):
            pod.kill()
            pod.leave()

    def running(self, namespace: str, labels: Mapping[str, str]) -> list[Pod]:
        """Pods with these labels that are ready and do not end."""
        return [
            pod
            for (where, _), pod in list(self.pods.items())
            if where == namespace and pod.ready and not pod.ending and labels.items() <= pod.labels.items()
        ]

    def errors(self) -> str:
        """Errors of pods, one a line: why they could not be started, and ends of containers."""
        return "\n".join(f"{'/'.join(key)}: {pod.error}" for key, pod in list(self.pods.items()) if pod.error)

    def secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        return self._data("Secret", namespace, name)

    def config_map(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        return self._data("ConfigMap", namespace, name)

    def token(self, namespace: str, account: str) -> str:
        """A token of a service account, for a day."""
        spec = kubernetes.client.V1TokenRequestSpec(audiences=[_ISSUER], expiration_seconds=_DAY)
        body = kubernetes.client.AuthenticationV1TokenRequest(spec=spec)
        made: Any = self._core.create_namespaced_service_account_token(account, namespace, body)
        return str(made.status.token)

    def targets(self, namespace: str, service: str, port_name: str) -> list[tuple[str, int]]:
        """Address and port of what is ready behind a port of a service."""
        return [
            (address, port["port"])
            for each in self._slices_of(namespace, service)
            for port in each.get("ports") or ()
            if (port.get("name") or "") == port_name
            for address in self._ready(each)
        ]

    # Following the API server

    def _kubeconfig(self) -> Path:
        """A copy of that of the tests, whose requests the audit log leaves out: clients keep a file beside theirs."""
        self._clients += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"client-{self._clients}.kubeconfig"
        shutil.copy(self.cluster.folder / f"{TESTS}.kubeconfig", path)
        return path

    def _follow(
        self,
        objects: Objects,
        api_version: str,
        kind: str,
        seen: Callable[[Object], None],
        gone: Callable[[Key], None] | None,
    ) -> None:
        known: set[Key] = set()
        while not self.stopped.is_set():
            try:
                there = {_key(each) for each in objects.list(api_version, kind)} if gone else set()
                if gone:
                    for key in known - there:
                        gone(key)
                known = there
                for each in objects.watch(api_version, kind, _WATCH_SECONDS):
                    if self.stopped.is_set():
                        return
                    known.add(_key(each))
                    seen(each)
            except PASSING:
                self.stopped.wait(0.5)

    def _data(self, kind: str, namespace: str, name: str) -> Mapping[str, bytes] | None:
        found = self.objects.get("v1", kind, name, namespace)
        if found is None:
            return None
        encoded = found.get("data") if kind == "Secret" else found.get("binaryData")
        plain = {} if kind == "Secret" else found.get("data") or {}
        return {
            **{key: value.encode() for key, value in plain.items()},
            **{key: base64.b64decode(value or "") for key, value in (encoded or {}).items()},
        }

    # Pods

    def _pod(self, value: Object) -> None:
        key = _key(value)
        if value["metadata"].get("deletionTimestamp"):
            self._pod_gone(key)
            return
        known = self.pods.get(key)
        if known is not None and known.uid == value["metadata"]["uid"]:
            return
        if not value.get("status", {}).get("podIP") or not any(map(self.program, value["spec"]["containers"])):
            return
        if known is not None:
            known.end()
        self.pods[key] = made = Pod(self, value)
        threading.Thread(target=made.start, name=f"pod-{key[1]}", daemon=True).start()

    def _pod_gone(self, key: Key) -> None:
        pod = self.pods.get(key)
        if pod is not None and not pod.ending and pod.restarts:
            threading.Thread(target=pod.end, name=f"end-{key[1]}", daemon=True).start()

    def program(self, container: Mapping[str, Any]) -> Path | None:
        """The program of a container's image."""
        name = container["image"].rpartition("/")[2].partition("@")[0].partition(":")[0]
        return self.images.get(name)

    def _secret(self, value: Object) -> None:
        key, version = _key(value), value["metadata"]["resourceVersion"]
        before, self._secrets[key] = self._secrets.get(key), version
        if before not in (None, version):
            for pod in list(self.pods.values()):
                pod.secret_changed(*key)

    # Services

    def _slice(self, value: Object) -> None:
        self._slices[_key(value)] = value
        self.rebalance()

    def _slice_gone(self, key: Key) -> None:
        self._slices.pop(key, None)
        self.rebalance()

    def _slices_of(self, namespace: str, service: str) -> list[Object]:
        label = "kubernetes.io/service-name"
        return [
            each
            for (where, _), each in list(self._slices.items())
            if where == namespace and each["metadata"].get("labels", {}).get(label) == service
        ]

    def _resolve(self, name: str) -> list[str]:
        """The addresses of what is ready behind SERVICE.NAMESPACE.svc.cluster.local: there are no cluster addresses."""
        service, _, rest = name.partition(".")
        namespace, _, domain = rest.partition(".")
        if domain != _DOMAIN:
            return []
        return sorted({address for each in self._slices_of(namespace, service) for address in self._ready(each)})

    def _ready(self, value: Mapping[str, Any]) -> list[str]:
        """Addresses of an EndpointSlice, without those of pods that kwok calls ready and that are not yet."""
        starting = {pod.address for pod in list(self.pods.values()) if not pod.ready}
        return [
            address
            for each in value.get("endpoints") or ()
            if (each.get("conditions") or {}).get("ready") is not False
            for address in each["addresses"]
            if address not in starting
        ]

    def _service(self, value: Object) -> None:
        """Give a service of type LoadBalancer an address, on which its ports are."""
        key = _key(value)
        if value["spec"].get("type") != "LoadBalancer":
            return
        known = key in self._balanced
        if not known:
            self._balanced[key] = self.network.new_address()
        for port in value["spec"]["ports"]:
            place = self._balanced[key], port["port"]
            if place not in self._balancers:
                targets = self._targets_file(key, port.get("name") or "")
                self._balancers[place] = self.network.balance(*place, targets), targets
        self.rebalance()
        if known:
            return
        status = {"status": {"loadBalancer": {"ingress": [{"ip": self._balanced[key]}]}}}
        self.objects.patch("v1", "Service", key[1], status, key[0], subresource="status")

    @contextlib.contextmanager
    def cut_off(self, address: str) -> Iterator[None]:
        """Have no load balancer at an address: what is open there breaks off, and nothing answers any more."""
        gone = {place: found for place, found in self._balancers.items() if place[0] == address}
        assert gone, f"there is no load balancer at {address}"
        for process, _ in gone.values():
            process.kill()
        try:
            yield
        finally:
            for place, (_, targets) in gone.items():
                self._balancers[place] = self.network.balance(*place, targets), targets

    def _targets_file(self, key: Key, port_name: str) -> Path:
        folder = self.folder / "balanced"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{key[0]}.{key[1]}.{port_name}"
        if not path.exists():
            path.touch()
        return path

    def rebalance(self) -> None:
        for key in list(self._balanced):
            for path in (self.folder / "balanced").glob(f"{key[0]}.{key[1]}.*"):
                port_name = path.name.removeprefix(f"{key[0]}.{key[1]}.")
                if port_name.endswith("~"):
                    continue
                lines = "".join(f"{host} {port}\n" for host, port in self.targets(*key, port_name))
                unfinished = path.with_name(f"{path.name}{threading.get_ident()}~")
                unfinished.write_text(lines, encoding="ascii")
                unfinished.replace(path)


class Pod:
    """The containers of one pod."""

    def __init__(self, kubelet: Kubelet, value: Object) -> None:
        metadata = value["metadata"]
        self.namespace, self.name, self.uid = metadata["namespace"], metadata["name"], metadata["uid"]
        self.labels: Mapping[str, str] = metadata.get("labels") or {}
        self.address: str = value["status"]["podIP"]
        self.folder: Path = kubelet.folder / self.namespace / self.name
        self.processes: dict[str, Process] = {}
        self.ready = False
        self.ending = False
        self.error = ""
        self.restarts = value["spec"].get("restartPolicy") != "Never"
        self._kubelet = kubelet
        self._value = value
        self._network: Namespace | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.restarts:
                self._hold(True)
            self._network = self._kubelet.network.attach(self.address)
            for volume in self._value["spec"].get("volumes") or ():
                self._fill(volume)
            for container in self._containers():
                threading.Thread(
                    target=self._keep, args=(container,), name=f"container-{container['name']}", daemon=True
                ).start()
            self._wait_until_ready()
            self.ready = True
            self._kubelet.rebalance()
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
            if not self._kubelet.stopped.is_set():
                raise

    def kill(self) -> None:
        with self._lock:
            self.ending = True
            for process in self.processes.values():
                process.kill()

    def leave(self) -> None:
        """Give up its network and its object."""
        with self._lock:
            left, self._network = self._network, None
        if left:
            left.close()
        if self.restarts:
            with contextlib.suppress(*PASSING):
                self._hold(False)

    def _hold(self, held: bool) -> None:
        """Keep its object, and so its address, until its containers have ended: kwok would give it to the next pod."""
        change = {"metadata": {"finalizers": [_HELD] if held else None}}
        with contextlib.suppress(NotFoundError):
            self._kubelet.objects.patch("v1", "Pod", self.name, change, self.namespace)

    def end(self) -> None:
        """End it as a kubelet does: hooks, SIGTERM, and SIGKILL when its grace is over."""
        self.ending = True
        grace = float(self._value["spec"].get("terminationGracePeriodSeconds") or 30)
        over = time.monotonic() + grace
        hooks = [threading.Thread(target=self._before_end, args=(each,), daemon=True) for each in self._containers()]
        for hook in hooks:
            hook.start()
        for hook in hooks:
            hook.join(max(0.0, over - time.monotonic()))
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.id, signal.SIGTERM)
        while time.monotonic() < over and any(process.running for process in self.processes.values()):
            if self._kubelet.stopped.wait(0.1):
                break
        self.kill()
        self.leave()
        self._kubelet.pods.pop((self.namespace, self.name), None)

    def inside(self, act: Callable[[], T]) -> T:
        """Call `act` in its network; its result."""
        assert self._network is not None, f"pod {self.name} has no network"
        return self._network.run(act)

    def log(self, container: str) -> str:
        path = self.folder / f"{container}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def secret_changed(self, namespace: str, name: str) -> None:
        if namespace != self.namespace:
            return
        for volume in self._value["spec"].get("volumes") or ():
            sources = (volume.get("projected") or {}).get("sources") or (volume,)
            secrets = [source["secret"] for source in sources if "secret" in source]
            named = {secret.get("name") or secret.get("secretName") for secret in secrets}
            if name in named and self._volume(volume["name"]).exists():
                with contextlib.suppress(*PASSING):
                    self._fill(volume)

    def _wait_until_ready(self) -> None:
        """Ask the readiness probes of its containers, as far as they are requests."""
        for container in self._containers():
            asked = (container.get("readinessProbe") or {}).get("httpGet")
            while asked and not (self.ending or self._kubelet.stopped.is_set()):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    if self._get(asked, 1.0) < 400:
                        break
                time.sleep(0.1)

    def _get(self, asked: Mapping[str, Any], seconds: float) -> int:
        """Status of the answer to a request that a probe or a hook makes."""
        connection = http.client.HTTPConnection(self.address, asked["port"])
        connection.sock = self._kubelet.network.connect(self.address, asked["port"], seconds)
        connection.request("GET", asked["path"])
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    def _containers(self) -> list[Object]:
        spec = self._value["spec"]
        sidecars = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
        return [each for each in (*sidecars, *spec["containers"]) if self._kubelet.program(each)]

    def _keep(self, container: Object) -> None:
        """Run a container, and again when it ends."""
        pause = 0.5
        while True:
            with self._lock:
                if self.ending or self._kubelet.stopped.is_set():
                    return
                process = self._run(container["name"], container, self._command(container))
                self.processes[container["name"]] = process
            status = process.wait()
            if not self.restarts:
                return
            if not self.ending:
                self.error = f"{container['name']} ended with {status}, {process.log}"
            time.sleep(pause)
            pause = min(2 * pause, 5.0)

    def _run(self, name: str, container: Object, command: list[str]) -> Process:
        assert self._network is not None
        root = self.folder / f"{name}.root"
        for below in ("tmp", "etc", "usr/local", "bin"):
            (root / below).mkdir(parents=True, exist_ok=True)
        if not (root / "usr/local/bin").is_symlink():
            (root / "usr/local/bin").symlink_to("/bin")
        search = f"{self.namespace}.{_DOMAIN} {_DOMAIN} cluster.local"
        (root / "etc/resolv.conf").write_text(f"nameserver {NODE}\nsearch {search}\noptions ndots:5\n")
        (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        (root / "etc/passwd").write_text("root:x:0:0:root:/tmp:/bin/false\n")
        program = self._kubelet.program(container)
        memory = self.folder / "shm"  # Envoys of one machine would share it.
        memory.mkdir(exist_ok=True)
        mounts = [*((path, path) for path in _SYSTEM), (str(memory), "/dev/shm")]
        mounts.append((str(program), f"/bin/{_entry(container)}"))
        for mount in container.get("volumeMounts") or ():
            source = self._volume(mount["name"])
            below = mount.get("subPath")
            mounts.append((str(source / below if below else source), mount["mountPath"]))
        spec = {
            "network": self._network.path,
            "root": str(root),
            "mounts": mounts,
            "command": command,
            "environment": self._environment(container),
            "folder": container.get("workingDir") or "/",
        }
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(spec), encoding="utf-8")
        path.chmod(0o600)
        return Process([sys.executable, "-I", "-S", _CONTAINER, path], self.folder / f"{name}.log")

    def _command(self, container: Object) -> list[str]:
        environment = self._environment(container)

        def expand(text: str) -> str:
            return re.sub(r"\$\(([A-Za-z_]\w*)\)", lambda found: environment.get(found[1], found[0]), text)

        parts = [*(container.get("command") or [_entry(container)]), *(container.get("args") or ())]
        if _entry(container) == "envoy" and _FLUSH not in parts:
            parts += [_FLUSH, "100"]
        return [expand(part) for part in parts]

    def _environment(self, container: Object) -> dict[str, str]:
        host, port = "kubernetes.default.svc", self._kubelet.api_server[1]
        made = {
            "PATH": "/bin",
            "HOME": "/tmp",
            "HOSTNAME": self.name,
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": str(port),
        }
        for each in container.get("env") or ():
            made[each["name"]] = each.get("value") or self._value_from(each.get("valueFrom") or {})
        return made

    def _value_from(self, source: Mapping[str, Any]) -> str:
        field = source.get("fieldRef")
        if field:
            found: Any = self._value
            for part in re.findall(r"\['([^']+)'\]|([^.\[\]]+)", field["fieldPath"]):
                found = (found or {}).get(part[0] or part[1])
            return str(found or "")
        for kind, read in (("secretKeyRef", self._kubelet.secret), ("configMapKeyRef", self._kubelet.config_map)):
            reference = source.get(kind)
            if reference:
                return ((read(self.namespace, reference["name"]) or {}).get(reference["key"]) or b"").decode()
        return "0"

    def _before_end(self, container: Object) -> None:
        hook = (container.get("lifecycle") or {}).get("preStop") or {}
        with contextlib.suppress(OSError, http.client.HTTPException):
            if "exec" in hook:
                self._run(f"{container['name']}-ends", container, hook["exec"]["command"]).wait()
            elif "httpGet" in hook:
                self._get(hook["httpGet"], _PATIENCE)

    # Volumes

    def _volume(self, name: str) -> Path:
        return self.folder / "volumes" / name

    def _fill(self, volume: Object) -> None:
        target = self._volume(volume["name"])
        if "emptyDir" in volume:
            target.mkdir(parents=True, exist_ok=True)
            return
        _publish(target, wait_for(f"volume {volume['name']}", lambda: self._content(volume), seconds=_PATIENCE))

    def _content(self, volume: Mapping[str, Any]) -> dict[str, bytes] | None:
        """File -> content of a volume, None while what it is made of is not there."""
        if self._kubelet.stopped.is_set():
            raise RuntimeError("the kubelet was stopped")
        made: dict[str, bytes] = {}
        for source in (volume.get("projected") or {}).get("sources") or (volume,):
            part = self._part(source)
            if part is None:
                return None
            made |= part
        return made

    def _part(self, source: Mapping[str, Any]) -> dict[str, bytes] | None:
        token = source.get("serviceAccountToken")
        if token:
            account = self._value["spec"].get("serviceAccountName") or "default"
            return {token["path"]: self._kubelet.token(self.namespace, account).encode()}
        if "downwardAPI" in source:
            return {each["path"]: self._value_from(each).encode() for each in source["downwardAPI"].get("items") or ()}
        for kind, read in (("secret", self._kubelet.secret), ("configMap", self._kubelet.config_map)):
            if kind in source:
                named = source[kind].get("name") or source[kind].get("secretName")
                if named == "kube-root-ca.crt":  # A controller that does not run here makes it.
                    found: Mapping[str, bytes] | None = {
                        "ca.crt": (self._kubelet.cluster.folder / "ca.crt").read_bytes()
                    }
                else:
                    found = read(self.namespace, named)
                if found is None:
                    return {} if source[kind].get("optional") else None
                items = source[kind].get("items")
                return {each["path"]: found[each["key"]] for each in items} if items else dict(found)
        return {}


def _publish(target: Path, content: Mapping[str, bytes]) -> None:
    """Write files as kubelets do, all at once: programs watch for the move of `..data`."""
    target.mkdir(parents=True, exist_ok=True)
    link = target / "..data"
    before = target / os.readlink(link) if link.is_symlink() else None
    fresh = target / f"..{time.time_ns()}"
    fresh.mkdir()
    for name, data in content.items():
        path = fresh / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(data)
    unfinished = target / "..data_tmp"
    unfinished.symlink_to(fresh.name)
    unfinished.replace(link)
    for name in {name.partition("/")[0] for name in content}:
        if not (target / name).is_symlink():
            (target / name).symlink_to(f"..data/{name}")
    if before:
        shutil.rmtree(before, ignore_errors=True)


def _entry(container: Mapping[str, Any]) -> str:
    """The name of the program in the image: that of the command, or the usual one."""
    command = container.get("command")
    if command:
        return Path(command[0]).name
    name = container["image"].rpartition("/")[2].partition("@")[0].partition(":")[0]
    return {"gateway": "envoy-gateway", "redis": "redis-server"}.get(name, str(name))


def _key(value: Mapping[str, Any]) -> Key:
    return value["metadata"].get("namespace", ""), value["metadata"]["name"]
