# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Real Traefik and real Envoy as processes, configured by what the fleet composes.

What is not as on a cluster is here and nowhere else: ports, addresses and paths of mounts are those of this machine.
"""

from __future__ import annotations

import copy
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import egress_config
from ansible_collections.modelplane.fleet.tests.kube.processes import free_port

Object = dict[str, Any]
Place = tuple[str, int]


def binary(name: str) -> str:
    """A program that a package of tests/requirements.txt has installed."""
    return str(Path(sys.executable).parent / name)


def wait_until(what: Callable[[], Any], seconds: float = 30.0, why: Callable[[], str] = lambda: "") -> Any:
    """The first answer that is true. Fails after so many seconds, with what `why` returns."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := what():
            return answer
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds:.0f} seconds: {why()}")


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


class Process:
    """A program that runs until the end of the block; its output goes to a file."""

    def __init__(
        self,
        arguments: list[str],
        log: Path,
        port: int,
        environment: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self._arguments, self.log, self.port, self._host = arguments, log, port, host
        self._environment = {**os.environ, **(environment or {})}

    def __enter__(self) -> Process:
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                self._arguments, stdout=output, stderr=subprocess.STDOUT, env=self._environment
            )
        wait_until(lambda: self._process.poll() is not None or accepts(self.port, self._host), why=self.tail)
        assert self._process.poll() is None, self.tail()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(10)

    def terminate(self) -> None:
        """Ask it to end, as the kubelet does."""
        self._process.terminate()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]


def traefik_arguments(values: Mapping[str, Any], api: str, ports: Mapping[str, int], ping: int, host: str) -> list[str]:
    """The arguments that the Traefik chart makes of the composed values, for those values that reach Traefik itself.

    Entry points are on these ports, by name; the API server is named instead of found; changes are taken over at once,
    not every two seconds.
    """
    gateway = values["providers"]["kubernetesGateway"]
    arguments = [
        "--global.checkNewVersion=false",
        "--global.sendAnonymousUsage=false",
        "--log.level=INFO",
        f"--entryPoints.traefik.address={host}:{ping}",
        "--ping=true",
        f"--providers.kubernetesGateway={str(gateway['enabled']).lower()}",
        f"--providers.kubernetesGateway.endpoint={api}",
        "--providers.kubernetesGateway.token=none",
        "--providers.providersThrottleDuration=100ms",
    ]
    for key, value in gateway["statusAddress"]["service"].items():
        arguments.append(f"--providers.kubernetesGateway.statusAddress.service.{key}={value}")
    for name, settings in values["ports"].items():
        arguments.append(f"--entryPoints.{name}.address={host}:{ports[name]}")
        arguments += [
            f"--entryPoints.{name}.transport.{group}.{key}={value}"
            for group, options in settings.get("transport", {}).items()
            for key, value in options.items()
        ]
    return arguments


def traefik(
    values: Mapping[str, Any], api: str, ports: Mapping[str, int], log: Path, roots: Path, host: str = "127.0.0.1"
) -> Process:
    """Traefik with its entry points on these ports. `roots` are the authorities that its system trusts."""
    arguments = [binary("traefik"), *traefik_arguments(values, api, ports, free_port(), host)]
    trusted = {"SSL_CERT_FILE": str(roots), "SSL_CERT_DIR": str(log.parent / "none")}
    return Process(arguments, log, ports["web"], trusted, host)


class Network:
    """Addresses of the fleet on this machine, and what Kubernetes' own controllers would add."""

    def __init__(self) -> None:
        self._places: dict[Place, Place] = {}
        self._pods: dict[tuple[str, str], list[Place]] = {}

    def at(self, host: str, port: int, local: Place) -> None:
        """Requests to host and port go to this place."""
        self._places[host, port] = local

    def find(self, host: str, port: int) -> Place:
        return self._places[host, port]

    def pods(self, namespace: str, service: str, *places: Place) -> None:
        """The pods that a Service with a selector finds."""
        self._pods[namespace, service] = list(places)

    def apply(self, objects: Iterable[Mapping[str, Any]], ports: Mapping[str, int]) -> list[Object]:
        """The objects with addresses of this machine, and the EndpointSlices of Services with selectors. Listeners have
        these ports, by protocol."""
        found: list[Object] = []
        for value in objects:
            changed = copy.deepcopy(dict(value))
            if changed["kind"] == "EndpointSlice":
                self._translate(changed)
            elif changed["kind"] == "Gateway":
                for listener in changed["spec"]["listeners"]:
                    listener["port"] = ports[listener["protocol"]]
            elif changed["kind"] == "Service" and "selector" in changed["spec"]:
                found += self._slices(changed)
            found.append(changed)
        return found

    def _translate(self, value: Object) -> None:
        for endpoint in value["endpoints"]:
            host, port = self._places[endpoint["addresses"][0], value["ports"][0]["port"]]
            endpoint["addresses"] = [host]
            value["ports"][0]["port"] = port
            if value["addressType"] == "FQDN":
                assert not host.replace(".", "").isdigit(), "a name has to stay a name"

    def _slices(self, service: Object) -> list[Object]:
        namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
        port = service["spec"]["ports"][0]
        return [
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": f"{name}-{index}",
                    "namespace": namespace,
                    "labels": {"kubernetes.io/service-name": name},
                },
                "addressType": "IPv4",
                "ports": [{"name": port.get("name", ""), "port": local, "protocol": "TCP"}],
                "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
            }
            for index, (host, local) in enumerate(self._pods[namespace, name])
        ]


class EgressPod:
    """Envoy with the composed configuration of an egress proxy, its mounts mapped to folders of this machine."""

    def __init__(self, objects: Iterable[Mapping[str, Any]], folder: Path, network: Network, roots: Path) -> None:
        self._kinds = {value["kind"]: value for value in objects}
        self._folder, self._network, self._roots = folder, network, roots
        self.port = free_port()
        self._pod = self._kinds["Deployment"]["spec"]["template"]["spec"]

    def mount(self, secret: Mapping[str, str], authorities: Mapping[str, str] | None = None) -> None:
        """Write what the kubelet mounts: the ConfigMap, the Secret with this data, and the ConfigMap of authorities."""
        texts = {name: self._localised(text) for name, text in self._kinds["ConfigMap"]["data"].items()}
        contents = {"config": texts, "key": secret, "ca": authorities or {}}
        for volume in self._pod["volumes"]:
            source = volume.get("secret") or volume["configMap"]
            items = source.get("items") or [{"key": key, "path": key} for key in contents[volume["name"]]]
            files = {item["path"]: contents[volume["name"]][item["key"]] for item in items}
            write_volume(self._folder / volume["name"], files)

    def process(self, log: Path) -> Process:
        arguments = [self._mapped(argument) for argument in self._pod["containers"][0]["args"]]
        return Process([binary("envoy"), *arguments], log, self.port)

    def _mapped(self, text: str) -> str:
        for mount in self._pod["containers"][0]["volumeMounts"]:
            text = text.replace(f"{mount['mountPath']}/", f"{self._folder / mount['name']}/")
        return text.replace(egress_config.SYSTEM_ROOTS, str(self._roots))

    def _localised(self, text: str) -> str:
        config = yaml.safe_load(self._mapped(text))
        resources = config.get("static_resources", {})
        for listener in resources.get("listeners", ()):
            listener["address"]["socket_address"].update(address="127.0.0.1", port_value=self.port)
        for cluster in resources.get("clusters", ()):
            address = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]
            place = address["socket_address"]
            place["address"], place["port_value"] = self._network.find(place["address"], place["port_value"])
        return yaml.safe_dump(config)


def write_volume(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files of a volume as the kubelet does: into a new folder, then `..data` is moved to it in one step."""
    folder.mkdir(parents=True, exist_ok=True)
    generation = folder / f"..{len(list(folder.glob('..[0-9]*')))}"
    generation.mkdir()
    for name, text in files.items():
        (generation / name).write_text(text)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data") / name)
    link = folder / "..data_tmp"
    link.symlink_to(generation.name)
    link.rename(folder / "..data")
