# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Terminating objects with a finalizer fail each run with their name, finalizers and age."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import LiveFleet, Object, Run, kubectl
from ansible_collections.modelplane.fleet.tests.e2e.observing import engines
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

pytestmark = pytest.mark.interrupted

HELD = "test.modelplane.ai/held"
GATEWAY_API = "gateway.networking.k8s.io/v1"


@pytest.fixture(scope="module", autouse=True)
def first(live: LiveFleet) -> Run:
    text = fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west") + fleets.cache("weights")
    text += fleets.deployment("chat", 2, modelCacheRef={"name": "weights"}) + fleets.service("chat", "chat")
    live.write("fleet.yaml", text)
    return live.run("reconcile").ok()


@pytest.fixture(params=["Deployment", "PersistentVolumeClaim", "Namespace", "HTTPRoute", "ModelReplica", "CRD"])
def held(live: LiveFleet, request: pytest.FixtureRequest) -> Iterator[str]:
    """Name of a terminating object of the fleet with a finalizer."""
    plane, api_version, kind = _kinds(live)[request.param]
    values = plane.objects.list(api_version, kind, labels="app.kubernetes.io/managed-by=modelplane.fleet")
    candidates = [value for value in values if value["metadata"]["name"] not in ("modelplane-system", "team")]
    value = next(
        candidate
        for candidate in candidates
        if kind != "CustomResourceDefinition" or "callerpolic" in str(candidate["metadata"])
    )
    holder = value
    if kind == "Namespace":
        # Controllers do not delete a namespace that contains objects with finalizers.
        namespace = value["metadata"]["name"]
        holder = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "held", "namespace": namespace, "finalizers": [HELD]},
        }
        plane.apply(holder)
    else:
        _patch(plane, holder, f'["{HELD}"]')
    name, namespace = value["metadata"]["name"], value["metadata"].get("namespace", "")
    plane.objects.delete(api_version, kind, name, namespace)
    yield name
    _patch(plane, holder, "null")
    live.run("reconcile").ok()
    assert live.run("reconcile").ok().changed == 0


def _kinds(live: LiveFleet) -> dict[str, tuple[ControlPlane, str, str]]:
    cluster = next(name for name in sorted(live.workloads) if engines(live, name))
    west = live.workloads[cluster]
    return {
        "Deployment": (west, "apps/v1", "Deployment"),
        "PersistentVolumeClaim": (west, "v1", "PersistentVolumeClaim"),
        "Namespace": (west, "v1", "Namespace"),
        "HTTPRoute": (west, GATEWAY_API, "HTTPRoute"),
        "ModelReplica": (live.control, fleets.API, "ModelReplica"),
        "CRD": (live.control, "apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    }


def _patch(plane: ControlPlane, value: Object, finalizers: str) -> None:
    metadata = value["metadata"]
    place = ["-n", metadata["namespace"]] if "namespace" in metadata else []
    resource = {"CustomResourceDefinition": "crd", "ModelReplica": "modelreplicas.modelplane.ai"}.get(value["kind"])
    patch = f'{{"metadata": {{"finalizers": {finalizers}}}}}'
    kubectl(plane, "patch", resource or value["kind"], metadata["name"], *place, "--type=merge", "-p", patch)


def test_a_held_object_fails_every_run(live: LiveFleet, held: str) -> None:
    checked = live.run("reconcile", "--check")
    assert held in checked.output
    assert "has been terminating since" in checked.output
    for _ in range(2):
        failed = live.run("reconcile", "-e", "fleet_wait=5")
        assert failed.code != 0, failed.output
        assert held in failed.output
        assert "has been terminating since" in failed.output
        assert HELD in failed.output
