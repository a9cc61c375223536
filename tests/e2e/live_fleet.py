# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet on real control planes, with what no test can have: drivers that publish devices, and load balancers.

All else is what users have: manifests in a folder, an inventory, and `ansible-playbook`.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.e2e.gateways import (
    GATEWAY,
    KINDS_OF_CONTROL,
    GatewayController,
)
from ansible_collections.modelplane.fleet.tests.kube.control_plane import (
    GATEWAY_API,
    INFERENCE_EXTENSION,
    ControlPlane,
)
from ansible_collections.modelplane.fleet.tests.kube.fleet import Fleet
from kubernetes.dynamic.exceptions import NotFoundError, ResourceNotFoundError

ROOT = Path(__file__).parents[2]
DRIVER = "gpu.nvidia.com"
SYSTEM = "modelplane-system"
MANAGED = "app.kubernetes.io/managed-by=modelplane.fleet"
POOL_LABEL = "modelplane.ai/pool"
CONTROL_ADDRESS = "198.51.100.1"
STACK_GATEWAY = {
    "apiVersion": GATEWAY,
    "kind": "Gateway",
    "metadata": {"name": "inference-gateway", "namespace": SYSTEM},
    "spec": {"gatewayClassName": "any", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
}
"""Gateway that the serving stack has for replicas on each cluster."""

Object = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """Result of a run of Ansible: the recap's counts by host, and all that it printed."""

    code: int
    recap: Mapping[str, Mapping[str, int]]
    output: str

    @property
    def changed(self) -> int:
        return sum(counts["changed"] for counts in self.recap.values())

    @property
    def failed(self) -> set[str]:
        return {host for host, counts in self.recap.items() if counts["failed"] or counts["unreachable"]}

    def ok(self) -> Run:
        assert self.code == 0, self.output
        return self


@dataclass(frozen=True)
class Pool:
    """Nodes with devices, as an InferenceClass promises them. `label`: of the pool, as the nodes have it; without, they
    are nodes that the fleet knows nothing of."""

    name: str
    nodes: int = 2
    devices: int = 2
    memory: str = "23034Mi"
    architecture: str = "Ada Lovelace"
    label: bool = True


class LiveFleet:
    """A folder with manifests and an inventory, and the clusters behind it.

    As a context manager it ends what acts on the clusters; they themselves belong to who made them.
    """

    def __init__(self, planes: Fleet, folder: Path) -> None:
        self.control = planes.control
        self.workloads = planes.workloads
        self.folder = folder
        self.manifests = folder / "manifests"
        self.manifests.mkdir(parents=True)
        self.kubeconfigs = {name: str(plane.kubeconfig) for name, plane in self.workloads.items()}
        self.control_kubeconfig = str(self.control.kubeconfig)
        self.settings: Object = {"fleet_wait": 60, "fleet_lease": 10}
        self.of_hosts: dict[str, Object] = {}
        self.addresses = {name: f"192.0.2.{index}" for index, name in enumerate(sorted(self.workloads), 1)}
        self._controllers: list[GatewayController] = []

    def prepare(self, nodes: int = 2, devices: int = 2, more: Sequence[Pool] = ()) -> None:
        """Create what a cluster has before the fleet: APIs, nodes with devices, a gateway with an address; and
        controllers of gateways. The nodes are those of a pool `gpu`, and `more`."""
        self.settings |= {"fleet_serving_stack": "provided", "fleet_control_gateway": "provided"}
        pools = [Pool("gpu", nodes, devices), *more]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda plane: _prepare(plane, pools), self.workloads.values()))
            pool.submit(_prepare_control, self.control).result()
        self.gateways = {name: GatewayController(plane, self.addresses[name]) for name, plane in self.workloads.items()}
        self._controllers += self.gateways.values()
        self.control_gateway = GatewayController(self.control, CONTROL_ADDRESS, KINDS_OF_CONTROL)
        self._controllers.append(self.control_gateway)
        for name, plane in self.workloads.items():
            until(f"the gateway of {name} has an address", lambda plane=plane: _address(plane, "inference-gateway"))

    def close(self) -> None:
        for controller in self._controllers:
            controller.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def clear(self) -> None:
        """Remove whatever is left of a fleet, its users' resources as well, so that the clusters can be those of
        another one."""
        for plane in (self.control, *self.workloads.values()):
            for kind, namespace, name in sorted(self._left(plane), key=lambda key: key[0] == "Namespace"):
                plane.objects.delete(dict(map(reversed, KINDS))[kind], kind, name, namespace)
        for plane in (self.control, *self.workloads.values()):
            # The last to go, and one question where all that is left takes dozens.
            until(
                f"no namespace is left on {plane.name}",
                lambda plane=plane: not plane.objects.list("v1", "Namespace", labels=MANAGED),
            )
            until(f"nothing is left on {plane.name}", lambda plane=plane: not self._left(plane))

    def write(self, name: str, text: str) -> None:
        (self.manifests / name).write_text(text)

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.manifests / name
        assert old in path.read_text(), (old, path.read_text())
        path.write_text(path.read_text().replace(old, new))

    def inventory(self) -> Path:
        hosts = {
            name: {"fleet_target": "kubernetes", "fleet_kubeconfig": path, **self.of_hosts.get(name, {})}
            for name, path in self.kubeconfigs.items()
        }
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "fleet_resources": [str(self.manifests)],
            "fleet_build": str(self.folder / "build"),
            **self.settings,
        }
        control = {"control": {"fleet_control_kubeconfig": self.control_kubeconfig} if self.control_kubeconfig else {}}
        groups = {"control_plane": {"hosts": control}, "workload_clusters": {"hosts": hosts}}
        path = self.folder / "hosts.json"
        path.write_text(json.dumps({"all": {"vars": variables, "children": groups}}))
        return path

    def start(self, playbook: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """A run of a playbook of the collection, in a process group of its own."""
        return ansible_run.start(
            "ansible-playbook", *self._command(playbook, arguments), cwd=self.folder, **environment
        )

    def run(self, playbook: str, *arguments: str, **environment: str) -> Run:
        done = ansible_run.completed(
            "ansible-playbook", *self._command(playbook, arguments), cwd=self.folder, merged=True, **environment
        )
        # pytest shows the end of long texts at best.
        with (self.folder / "runs.log").open("a") as log:
            log.write(done.stdout)
        assert "Traceback" not in done.stdout, done.stdout
        return Run(done.returncode, _recap(done.stdout), done.stdout)

    def _command(self, playbook: str, arguments: Sequence[str]) -> list[str]:
        return [f"modelplane.fleet.{playbook}", "-i", str(self.inventory()), *arguments]

    def ours(self, plane: ControlPlane) -> dict[tuple[str, str, str], Object]:
        """All objects with our label, by kind, namespace and name."""
        return self._find(plane, {})

    def _left(self, plane: ControlPlane) -> dict[tuple[str, str, str], Object]:
        return self._find(plane, dict.fromkeys((group for group, _ in KINDS if "modelplane.ai/" in group), ""))

    def _find(self, plane: ControlPlane, labels: Mapping[str, str]) -> dict[tuple[str, str, str], Object]:
        found = {}
        served = plane.objects.kinds()
        for api_version, kind in KINDS:
            # A definition may go while objects are listed.
            with contextlib.suppress(NotFoundError, ResourceNotFoundError):
                listed = (api_version, kind) in served and plane.objects.list(
                    api_version, kind, labels=labels.get(api_version, MANAGED)
                )
                for value in listed or ():
                    metadata = value["metadata"]
                    found[kind, metadata.get("namespace", ""), metadata["name"]] = value
        return found

    def plan(self) -> Object:
        """The decision of the last run."""
        found: Object = json.loads((self.folder / "build/plan.json").read_text())
        return found

    def kubectl(self, *arguments: str, cluster: str = "") -> str:
        """Return what kubectl prints, of the control cluster unless another one is named."""
        return kubectl(self.workloads[cluster] if cluster else self.control, *arguments)

    def pods(self, cluster: str) -> list[Object]:
        return [
            pod
            for pod in self.workloads[cluster].objects.list("v1", "Pod", labels="modelplane.ai/replica")
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def resource(self, kind: str, name: str, namespace: str = "") -> Object:
        found = self.control.get("modelplane.ai/v1alpha1", kind, name, namespace)
        assert found is not None, f"{kind} {namespace}/{name} is not on the control cluster"
        return found

    def is_true(self, kind: str, name: str, namespace: str = "", condition: str = "Ready") -> bool:
        conditions = (self.resource(kind, name, namespace).get("status") or {}).get("conditions") or ()
        return any(entry["type"] == condition and entry["status"] == "True" for entry in conditions)


KINDS: Sequence[tuple[str, str]] = (
    *(("v1", kind) for kind in ("Namespace", "ConfigMap", "Secret", "Service", "ServiceAccount")),
    ("v1", "PersistentVolumeClaim"),
    ("apps/v1", "Deployment"),
    ("batch/v1", "Job"),
    ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("discovery.k8s.io/v1", "EndpointSlice"),
    ("resource.k8s.io/v1", "ResourceClaimTemplate"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
    ("inference.networking.k8s.io/v1", "InferencePool"),
    (GATEWAY, "Gateway"),
    (GATEWAY, "HTTPRoute"),
    ("modelplane.ai/v1alpha1", "CallerPolicy"),
    ("modelplane.ai/v1alpha1", "InferenceClass"),
    ("modelplane.ai/v1alpha1", "InferenceCluster"),
    ("modelplane.ai/v1alpha1", "InferenceGateway"),
    ("modelplane.ai/v1alpha1", "ModelCache"),
    ("modelplane.ai/v1alpha1", "ModelDeployment"),
    ("modelplane.ai/v1alpha1", "ModelEndpoint"),
    ("modelplane.ai/v1alpha1", "ModelReplica"),
    ("modelplane.ai/v1alpha1", "ModelRoute"),
    ("modelplane.ai/v1alpha1", "ModelService"),
    ("infrastructure.modelplane.ai/v1alpha1", "ServingStack"),
)


def kubectl(plane: ControlPlane, *arguments: str) -> str:
    """Return what kubectl prints."""
    command = [str(plane.program("kubectl")), f"--kubeconfig={plane.kubeconfig}", *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=60).stdout


def until(what: str, ask: Callable[[], Any], seconds: float = 300) -> Any:
    """The first answer that is true."""
    deadline = time.monotonic() + seconds
    while not (found := ask()):
        assert time.monotonic() < deadline, f"{what} did not come true within {seconds:g} seconds"
        time.sleep(0.3)
    return found


def _address(plane: ControlPlane, name: str) -> str:
    gateway = plane.get(GATEWAY, "Gateway", name, SYSTEM) or {}
    addresses = (gateway.get("status") or {}).get("addresses") or [{"value": ""}]
    return str(addresses[0]["value"])


def _prepare(plane: ControlPlane, pools: Sequence[Pool]) -> None:
    plane.install_crds(GATEWAY_API, INFERENCE_EXTENSION)
    plane.add_device_class(DRIVER, f'device.driver == "{DRIVER}"')
    plane.add_storage_class("rwx")
    for pool in pools:
        for name in plane.add_nodes(pool.name, pool.nodes, labels={POOL_LABEL: pool.name} if pool.label else {}):
            plane.publish_devices(name, DRIVER, [device(pool, index) for index in range(pool.devices)])
    plane.create_namespace(SYSTEM)
    plane.apply(STACK_GATEWAY)


def _prepare_control(plane: ControlPlane) -> None:
    """CRDs of the chart of the control gateway."""
    plane.install_crds(GATEWAY_API)
    plane.create_namespace("traefik-system")
    labels = {"app.kubernetes.io/name": "traefik"}
    container = {"name": "traefik", "image": "traefik:v3.6"}
    plane.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "traefik", "namespace": "traefik-system", "labels": labels},
            "spec": {
                # Nothing runs pods here, and a Deployment that wants none is available.
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
    )


def device(pool: Pool, index: int) -> Object:
    return {
        "name": f"gpu-{index}",
        # The DeviceClass of the driver's chart asks for the type.
        "attributes": {"type": {"string": "gpu"}, "architecture": {"string": pool.architecture}},
        "capacity": {"memory": {"value": pool.memory}},
    }


def _recap(output: str) -> dict[str, dict[str, int]]:
    found = {}
    for line in output.partition("PLAY RECAP")[2].splitlines():
        host, colon, counts = line.partition(" : ")
        if colon:
            found[host.strip()] = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", counts)}
    return found
