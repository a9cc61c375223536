# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet on real control planes, with what no test can have: drivers that publish devices, and load balancers.

All else is what users have: manifests in a folder, an inventory, and `ansible-playbook`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.modelplane.fleet.tests.kube.control_plane import (
    GATEWAY_API,
    INFERENCE_EXTENSION,
    ControlPlane,
)
from ansible_collections.modelplane.fleet.tests.kube.fleet import Fleet

ROOT = Path(__file__).parents[2]
DRIVER = "gpu.nvidia.com"
SYSTEM = "modelplane-system"
MANAGED = "app.kubernetes.io/managed-by=modelplane.fleet"
POOL_LABEL = "modelplane.ai/pool"
GATEWAY = "gateway.networking.k8s.io/v1"

Object = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """What a run of Ansible did: the recap's counts by host, and all that it printed."""

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


class LiveFleet:
    """A folder with manifests and an inventory, and the clusters behind it."""

    def __init__(self, planes: Fleet, folder: Path) -> None:
        self.control = planes.control
        self.workloads = planes.workloads
        self.folder = folder
        self.manifests = folder / "manifests"
        self.manifests.mkdir(parents=True)
        self.kubeconfigs = {name: str(plane.kubeconfig) for name, plane in self.workloads.items()}
        self.control_kubeconfig = str(self.control.kubeconfig)
        self.settings: Object = {"fleet_wait": 60, "fleet_lease": 10}

    def prepare(self, nodes: int = 2, devices: int = 2) -> None:
        """What a cluster has before the fleet comes: APIs, nodes with devices, a gateway with an address."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda plane: _prepare(plane, nodes, devices), self.workloads.values()))
            pool.submit(self.control.install_crds, GATEWAY_API).result()
        for name, plane in self.workloads.items():
            give_address(plane, SYSTEM, "inference-gateway", f"192.0.2.{len(name)}")

    def write(self, name: str, text: str) -> None:
        (self.manifests / name).write_text(text)

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.manifests / name
        assert old in path.read_text(), (old, path.read_text())
        path.write_text(path.read_text().replace(old, new))

    def inventory(self) -> Path:
        hosts = {
            name: {"fleet_target": "kubernetes", "fleet_kubeconfig": path} for name, path in self.kubeconfigs.items()
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
        command = [str(Path(sys.executable).with_name("ansible-playbook")), f"modelplane.fleet.{playbook}"]
        full = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
            "ANSIBLE_LOCALHOST_WARNING": "0",
            "ANSIBLE_NOCOLOR": "1",
            **environment,
        }
        full.pop("PYTHONDONTWRITEBYTECODE", None)
        return subprocess.Popen(
            [*command, "-i", str(self.inventory()), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env=full,
            start_new_session=True,
        )

    def run(self, playbook: str, *arguments: str, **environment: str) -> Run:
        process = self.start(playbook, *arguments, **environment)
        try:
            output, _ = process.communicate(timeout=600)
        except BaseException:
            process.kill()
            raise
        assert "Traceback" not in output, output
        return Run(process.returncode, _recap(output), output)

    def address(self) -> None:
        """The address that a load balancer would give to the control gateway, when it is there."""
        if self.control.get(GATEWAY, "Gateway", "modelplane", SYSTEM):
            give_address(self.control, SYSTEM, "modelplane", "198.51.100.1")

    def ours(self, plane: ControlPlane) -> dict[tuple[str, str, str], Object]:
        """All objects with our label, by kind, namespace and name."""
        found = {}
        for api_version, kind in KINDS:
            if plane.objects.knows(api_version, kind):
                for value in plane.objects.list(api_version, kind, labels=MANAGED):
                    metadata = value["metadata"]
                    found[kind, metadata.get("namespace", ""), metadata["name"]] = value
        return found

    def pods(self, cluster: str) -> list[Object]:
        return [
            pod for pod in self.workloads[cluster].objects.list("v1", "Pod", labels="modelplane.ai/replica")
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
    ("modelplane.ai/v1alpha1", "InferenceClass"),
    ("modelplane.ai/v1alpha1", "InferenceCluster"),
    ("modelplane.ai/v1alpha1", "InferenceGateway"),
    ("modelplane.ai/v1alpha1", "ModelCache"),
    ("modelplane.ai/v1alpha1", "ModelDeployment"),
    ("modelplane.ai/v1alpha1", "ModelEndpoint"),
    ("modelplane.ai/v1alpha1", "ModelReplica"),
    ("modelplane.ai/v1alpha1", "ModelService"),
    ("infrastructure.modelplane.ai/v1alpha1", "ServingStack"),
)


def give_address(plane: ControlPlane, namespace: str, name: str, address: str) -> None:
    """What the controller of a Gateway says when its load balancer is there."""
    gateway = plane.get(GATEWAY, "Gateway", name, namespace)
    assert gateway is not None
    generation = gateway["metadata"]["generation"]
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": kind,
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": generation,
        }
        for kind in ("Accepted", "Programmed")
    ]
    status = {"addresses": [{"type": "IPAddress", "value": address}], "conditions": conditions}
    plane.objects.patch(GATEWAY, "Gateway", name, {"status": status}, namespace, subresource="status")


def until(what: str, ask: Callable[[], Any], seconds: float = 60) -> Any:
    """The first answer that is true."""
    deadline = time.monotonic() + seconds
    while not (found := ask()):
        assert time.monotonic() < deadline, f"{what} did not come true within {seconds:g} seconds"
        time.sleep(0.3)
    return found


def _prepare(plane: ControlPlane, nodes: int, devices: int) -> None:
    plane.install_crds(GATEWAY_API, INFERENCE_EXTENSION)
    plane.add_device_class(DRIVER, f'device.driver == "{DRIVER}"')
    plane.add_storage_class("rwx")
    for name in plane.add_nodes("gpu", nodes, labels={POOL_LABEL: "gpu"}) or [f"gpu-{index}" for index in range(nodes)]:
        published = [{"name": f"gpu-{index}", "capacity": {"memory": {"value": "23034Mi"}}} for index in range(devices)]
        plane.publish_devices(name, DRIVER, published)
    plane.create_namespace(SYSTEM)
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    plane.apply(
        {
            "apiVersion": GATEWAY,
            "kind": "Gateway",
            "metadata": {"name": "inference-gateway", "namespace": SYSTEM},
            "spec": {"gatewayClassName": "any", "listeners": [listener]},
        }
    )


def _recap(output: str) -> dict[str, dict[str, int]]:
    found = {}
    for line in output.partition("PLAY RECAP")[2].splitlines():
        host, colon, counts = line.partition(" : ")
        if colon:
            found[host.strip()] = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", counts)}
    return found
