# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Bare clusters and the serving stack that comes to them: charts that stand in for the real ones, a real Helm, and what
would act on the clusters if images ran there."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from ansible_collections.modelplane.fleet.tests.e2e.gateways import KINDS, ROUTE, GatewayController
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import (
    DRIVER,
    POOL_LABEL,
    ROOT,
    LiveFleet,
    Pool,
    device,
    kubectl,
)
from ansible_collections.modelplane.fleet.tests.kube.client import PASSING, Objects
from ansible_collections.modelplane.fleet.tests.kube.control_plane import TESTS, ControlPlane
from ansible_collections.modelplane.fleet.tests.stack.programs import Helm
from ansible_collections.modelplane.fleet.tests.stack.sources import HttpRepository, OciRegistry

RELEASES = {
    "mp-cert-manager",
    "mp-kube-prometheus-stack",
    "mp-lws",
    "mp-ai-gateway-crds-helm",
    "mp-gateway-helm",
    "mp-ai-gateway-helm",
    "mp-node-feature-discovery",
    "mp-dra-driver-nvidia-gpu",
}
REPOSITORY = ("cert-manager", "kube-prometheus-stack", "valkey")
"""The charts that come from a repository of the older kind."""
REGISTRY = {
    "lws": "k8s/lws/charts",
    "trust-manager": "quay/jetstack/charts",
    "ai-gateway-crds-helm": "dockerhub/envoyproxy",
    "gateway-helm": "dockerhub/envoyproxy",
    "ai-gateway-helm": "dockerhub/envoyproxy",
    "node-feature-discovery": "k8s/nfd/charts",
    "dra-driver-nvidia-gpu": "k8s/dra-driver-nvidia/charts",
}
"""The charts that come from a registry, and where in a mirror of it they are."""
_PROMETHEUS = ("monitoring.coreos.com/v1", "Prometheus")
# Of which there are others after a while, whatever anybody does.
_FLEETING = ("events", "events.events.k8s.io", "leases.coordination.k8s.io", "pods.metrics.k8s.io")
# The controller of LeaderWorkerSets runs beside these clusters, and installs its definition before any stack does.
_EQUIPMENT = {
    "APIService /v1.leaderworkerset.x-k8s.io",
    "CustomResourceDefinition /leaderworkersets.leaderworkerset.x-k8s.io",
}


class Operator:
    """Says of every Prometheus that it is available, as its operator would."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name=f"{plane.name} Prometheus", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        available = {"type": "Available", "status": "True", "reason": "Stood", "message": ""}
        status = {"conditions": [{**available, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
        # A client of its own, as the cache of one is no place for two threads.
        kubeconfig = self._plane.folder / "prometheus.kubeconfig"
        shutil.copy(self._plane.folder / f"{TESTS}.kubeconfig", kubeconfig)
        objects: Objects | None = None
        while not self._stopped.wait(1):
            with contextlib.suppress(*PASSING):
                objects = objects or Objects(kubeconfig)
                for value in objects.list(*_PROMETHEUS):
                    if value.get("status") != status:
                        metadata = value["metadata"]
                        change = {"status": status}
                        objects.patch(
                            *_PROMETHEUS, metadata["name"], change, metadata["namespace"], subresource="status"
                        )


@contextlib.contextmanager
def acting(live: LiveFleet, *pools: Pool) -> Iterator[None]:
    """Nodes of pools with devices, and storage, on every workload cluster, and what acts there while the context
    lasts."""
    actors: list[Operator | GatewayController] = []
    for name, plane in live.workloads.items():
        plane.add_storage_class("rwx")
        for pool in pools:
            for node in plane.add_nodes(pool.name, pool.nodes, labels={POOL_LABEL: pool.name}):
                plane.publish_devices(node, DRIVER, [device(pool, index) for index in range(pool.devices)])
        kinds = (*KINDS, ROUTE) if plane.objects.knows(*ROUTE) else KINDS
        actors += [Operator(plane), GatewayController(plane, live.addresses[name], kinds)]
    yield
    for each in actors:
        each.stop()


class Mirror:
    """A registry that asks for a login and a repository, both with a certificate of their own authority."""

    def __init__(self, folder: Path, charts: Mapping[str, Path]) -> None:
        self._folder = folder
        self.registry = OciRegistry(tls=folder / "registry", credentials=("robot", "not-for-everybody"))
        self.repository = HttpRepository(tls=folder / "repository")
        self.add(charts)

    def add(self, charts: Mapping[str, Path]) -> None:
        self.repository.add(*(path for name, path in charts.items() if name in REPOSITORY))
        for name, path in charts.items():
            if name in REGISTRY:
                self.registry.add(REGISTRY[name], path)

    def settings(self) -> dict[str, object]:
        """Variables that point a cluster to it."""
        bundle = self._folder / "authorities.pem"
        bundle.write_text("".join(server.ca.read_text() for server in (self.registry, self.repository) if server.ca))
        return {
            "serving_stack_chart_repositories": {
                "oci://docker.io": f"{self.registry.url}/dockerhub",
                "oci://registry.k8s.io": f"{self.registry.url}/k8s",
                "oci://quay.io": f"{self.registry.url}/quay",
                "https://charts.jetstack.io": self.repository.url,
                "https://prometheus-community.github.io/helm-charts": self.repository.url,
            },
            "serving_stack_ca_file": str(bundle),
            "serving_stack_registry_config": str(self.registry.login(self._folder / "login.json")),
        }

    @property
    def asked(self) -> int:
        """Return how many requests there were."""
        return len(self.registry.requests) + len(self.repository.requests)


def environment(collections: Path) -> dict[str, str]:
    """Variables with which ansible-playbook finds the collection of Helm's modules as well."""
    return {"ANSIBLE_COLLECTIONS_PATH": f"{ROOT / '.collections'}:{collections}"}


def releases(live: LiveFleet, cluster: str) -> dict[str, str]:
    """Chart by name of what Helm says is deployed."""
    command = Helm(3, live.folder / "helm")
    listed = json.loads(command("list", "-A", "-o", "json", "--kubeconfig", live.kubeconfigs[cluster]))
    return {each["name"]: each["chart"] for each in listed if each["status"] == "deployed"}


def everything(plane: ControlPlane) -> set[str]:
    """Every object of a cluster, whosever it is but the tests', as KIND NAMESPACE/NAME."""
    kinds = set(kubectl(plane, "api-resources", "--verbs=list", "--output=name").split()) - set(_FLEETING)
    line = '{range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\\n"}{end}'
    return set(kubectl(plane, "get", ",".join(sorted(kinds)), "-A", f"-o=jsonpath={line}").splitlines()) - _EQUIPMENT


def check_bare(plane: ControlPlane, before: set[str]) -> None:
    """A cluster has the same objects as before, after what takes its time has gone."""
    with contextlib.suppress(TimeoutError):
        plane.wait_until_gone(lambda: everything(plane) == before)
    now = everything(plane)
    assert (plane.name, sorted(now - before), sorted(before - now)) == (plane.name, [], [])
