# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Waiting for objects that others made, on a real control plane."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import POOL_LABEL
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.external_objects import Awaited, settle
from ansible_collections.modelplane.fleet.plugins.modules import wait_ready
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.module_run import run_module

SPACE = "waiting"
FATE = "test.modelplane.ai/fate"
GROUP = "waiting.example.com"


@pytest.fixture(scope="module")
def plane(cluster: ControlPlane) -> ControlPlane:
    cluster.create_namespace(SPACE)
    cluster.add_nodes("waiting", 1)
    return cluster


@pytest.fixture
def client(plane: ControlPlane) -> Iterator[Client]:
    with connect(Connection(plane.name, kubeconfig=str(plane.kubeconfig))) as found:
        yield found


def deployment(name: str, **annotations: str) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": {"containers": [{"name": "main", "image": "example/main:1"}]},
            },
        },
    }


def identity(value: Object) -> dict[str, Any]:
    return {key: value[key] for key in ("apiVersion", "kind", "metadata")}


def settled(client: Client, desired: Awaited, seconds: float) -> dict[str, Any]:
    return {value["metadata"]["name"]: state for value, state in settle(client, desired, time.monotonic() + seconds)}


def definition(kind: str) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


def test_what_works_is_ready_whoever_made_it(plane: ControlPlane, client: Client) -> None:
    value = deployment("works")
    plane.apply(value)
    # A ConfigMap has nothing to become.
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "none", "namespace": SPACE}}
    found = settled(client, Awaited([identity(value), config]), 60)
    assert {name: state.ready for name, state in found.items()} == {"works": True}


@pytest.mark.parametrize(("fate", "reason"), [("image-pull", "ImagePullBackOff"), ("out-of-memory", "OOMKilled")])
def test_what_does_not_start_is_reported_with_the_reason_of_its_pods(
    plane: ControlPlane, client: Client, fate: str, reason: str
) -> None:
    value = deployment(fate, **{FATE: fate})
    plane.apply(value)
    begin = time.monotonic()
    found = settled(client, Awaited([identity(value)]), 6)[fate]
    assert not found.ready
    assert reason in found.message
    assert time.monotonic() - begin < 30


def test_what_is_not_there_is_waited_for(client: Client) -> None:
    found = settled(client, Awaited([deployment("nowhere")]), 0)
    assert (found["nowhere"].ready, found["nowhere"].message) == (False, "it does not exist")


def test_a_kind_without_a_rule_is_ready_by_its_condition(plane: ControlPlane, client: Client) -> None:
    plane.apply(definition("Gauge"))
    desired = Awaited([definition("Gauge")])
    assert settled(client, desired, 30)[f"gauges.{GROUP}"].ready
    client.forget_discovery()
    gauge = {"apiVersion": f"{GROUP}/v1", "kind": "Gauge", "metadata": {"name": "one", "namespace": SPACE}}
    plane.apply(gauge)
    desired = Awaited([gauge], conditions={"Gauge": "Available"})
    assert settled(client, desired, 0)["one"].message == "it has no condition Available yet"
    for status, message in (("False", "Late: not yet"), ("True", "")):
        condition = {"type": "Available", "status": status, "reason": "Late", "message": "not yet"}
        changed = {"status": {"conditions": [condition]}}
        plane.objects.patch(f"{GROUP}/v1", "Gauge", "one", changed, SPACE, subresource="status")
        found = settled(client, desired, 0)["one"]
        assert (found.ready, found.message) == (status == "True", message)


def test_an_object_is_let_in_once_its_kind_is_served(plane: ControlPlane, client: Client) -> None:
    value = {"apiVersion": f"{GROUP}/v1", "kind": "Valve", "metadata": {"name": "probe", "namespace": SPACE}}
    assert "does not take it yet" in settled(client, Awaited([], accepted=[value]), 0)["probe"].message
    plane.apply(definition("Valve"))
    assert settled(client, Awaited([], accepted=[value]), 30)["probe"].ready
    assert client.get(f"{GROUP}/v1", "Valve", "probe", SPACE) is None


def test_a_webhook_that_does_not_answer_is_waited_for(plane: ControlPlane, client: Client) -> None:
    webhook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "waiting"},
        "webhooks": [
            {
                "name": "waiting.example.com",
                "rules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["endpoints"], "operations": ["CREATE"]}
                ],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SPACE}},
                "clientConfig": {"url": "https://127.0.0.1:1/never"},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "timeoutSeconds": 1,
            }
        ],
    }
    value = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "probe", "namespace": SPACE}}
    plane.apply(webhook)
    try:
        with connect(Connection(plane.name, kubeconfig=str(plane.kubeconfig), retries=0)) as impatient:
            # An API server needs a moment to learn of a webhook.
            deadline = time.monotonic() + 20
            while (found := settled(impatient, Awaited([], accepted=[value]), 0)["probe"]).ready:
                assert time.monotonic() < deadline
                time.sleep(0.5)
        assert "waiting.example.com" in found.message
    finally:
        client.delete("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "waiting")
    assert settled(client, Awaited([], accepted=[value]), 30)["probe"].ready


def test_what_goes_is_waited_for_and_what_holds_it_is_reported(plane: ControlPlane, client: Client) -> None:
    held = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "held", "namespace": SPACE, "finalizers": ["example.com/held"]},
    }
    plane.apply(held)
    desired = Awaited([identity(held)], absent=True)
    assert settled(client, desired, 0)["held"].message == "it is still there (finalizers: example.com/held)"
    client.delete("v1", "ConfigMap", "held", SPACE)
    assert settled(client, desired, 0)["held"].message == "it is being deleted (finalizers: example.com/held)"
    plane.objects.patch("v1", "ConfigMap", "held", {"metadata": {"finalizers": None}}, SPACE)
    assert settled(client, desired, 30)["held"].ready


def test_nodes_without_devices_of_a_driver_are_named(plane: ControlPlane, client: Client) -> None:
    """Of the pools that were asked for alone; a pool without nodes is ready."""
    driver = "gpu.example.com"
    plane.add_nodes("devices", 2, labels={POOL_LABEL: "devices"})
    plane.add_nodes("others", 1, labels={POOL_LABEL: "others"})
    plane.publish_devices("devices-0", driver, [{"name": "gpu-0"}])
    plane.publish_devices("devices-1", "other.example.com", [{"name": "gpu-0"}])
    found = settled(client, Awaited([], devices={driver: ["devices", "empty"]}), 0)
    assert {name: state.ready for name, state in found.items()} == {"devices-0": True, "devices-1": False}
    assert found["devices-1"].message == f"it has no ResourceSlice of {driver}"
    plane.publish_devices("devices-1", driver, [{"name": "gpu-0"}])
    found = settled(client, Awaited([], devices={driver: ["devices"]}), 30)
    assert all(state.ready for state in found.values())
    assert settled(client, Awaited([], devices={driver: []}), 30) == {}


def test_pools_have_to_be_names(plane: ControlPlane) -> None:
    target = {"name": plane.name, "kubeconfig": str(plane.kubeconfig)}
    result = run_module(wait_ready, {"clusters": [target], "devices": {"d": ["gpu,x=y"]}})
    assert (result["failed"], result["msg"]) == (
        True,
        "devices[d] is ['gpu,x=y'], and must be a list of names of pools",
    )
