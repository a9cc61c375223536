# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The serving stack on two bare clusters at once, with a real Helm and charts that stand in for the real ones."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.tests import packages
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.gateways import GatewayController
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import DRIVER, POOL_LABEL, ROOT, LiveFleet, Pool, Run
from ansible_collections.modelplane.fleet.tests.kube.client import Objects
from ansible_collections.modelplane.fleet.tests.kube.control_plane import TESTS, ControlPlane
from ansible_collections.modelplane.fleet.tests.kube.fleet import Fleet
from ansible_collections.modelplane.fleet.tests.stack.programs import Helm, helm
from ansible_collections.modelplane.fleet.tests.stack.sources import pack
from kubernetes.client import ApiException
from kubernetes.dynamic.exceptions import ResourceNotFoundError
from urllib3.exceptions import HTTPError

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
_PROMETHEUS = ("monitoring.coreos.com/v1", "Prometheus")
POOL = Pool("gpu")


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
            with contextlib.suppress(ApiException, ResourceNotFoundError, HTTPError, OSError):
                objects = objects or Objects(kubeconfig)
                for value in objects.list(*_PROMETHEUS):
                    if value.get("status") != status:
                        metadata = value["metadata"]
                        change = {"status": status}
                        objects.patch(
                            *_PROMETHEUS, metadata["name"], change, metadata["namespace"], subresource="status"
                        )


class Stack:
    """Two clusters and the playbook that brings the stack there."""

    def __init__(self, live: LiveFleet, collections: Path) -> None:
        self.live = live
        self._environment = {"ANSIBLE_COLLECTIONS_PATH": f"{ROOT / '.collections'}:{collections}"}

    def run(self, *arguments: str) -> Run:
        return self.live.run("serving_stack", *arguments, **self._environment)

    def releases(self, cluster: str) -> dict[str, str]:
        """Chart by name of what Helm says is deployed."""
        command = Helm(3, self.live.folder / "helm")
        kubeconfig = self.live.kubeconfigs[cluster]
        listed = json.loads(command("list", "-A", "-o", "json", "--kubeconfig", kubeconfig))
        return {each["name"]: each["chart"] for each in listed if each["status"] == "deployed"}


@pytest.fixture(scope="module")
def stack(kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    try:
        program, collections = helm(3), packages.kubernetes_core()
    except packages.UnavailableError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("stack")
    with Fleet(kubernetes_programs, folder / "planes") as planes, LiveFleet(planes, folder / "fleet") as live:
        acting: list[Operator | GatewayController] = []
        for name, plane in live.workloads.items():
            for node in plane.add_nodes(POOL.name, POOL.nodes, labels={POOL_LABEL: POOL.name}):
                plane.publish_devices(node, DRIVER, [{"name": f"gpu-{index}"} for index in range(POOL.devices)])
            acting += [Operator(plane), GatewayController(plane, live.addresses[name])]
        pack(folder / "charts")
        live.settings |= {
            "serving_stack_helm": str(program),
            "serving_stack_charts_dir": str(folder / "charts"),
            "serving_stack_charts_required": True,
            "serving_stack_timeout": 60,
        }
        live.write("fleet.yaml", fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west"))
        yield Stack(live, collections)
        for each in acting:
            each.stop()


def test_check_mode_lists_what_would_be_installed(stack: Stack) -> None:
    run = stack.run("--check").ok()
    assert run.changed > 0
    for release in RELEASES:
        assert release in run.output
    for cluster, plane in stack.live.workloads.items():
        assert stack.releases(cluster) == {}
        assert stack.live.ours(plane) == {}


def test_all_of_it_works_on_all_clusters(stack: Stack) -> None:
    stack.run().ok()
    for cluster, plane in stack.live.workloads.items():
        assert set(stack.releases(cluster)) == RELEASES
        gateway = plane.get("gateway.networking.k8s.io/v1", "Gateway", "inference-gateway", "modelplane-system")
        assert gateway is not None
        assert gateway["status"]["addresses"][0]["value"] == stack.live.addresses[cluster]


def test_a_second_run_changes_nothing(stack: Stack) -> None:
    assert stack.run().ok().changed == 0
