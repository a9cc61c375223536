# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A place on a real API server for each test of applying, and objects to put there."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import (
    MANAGED_BY,
    MANAGED_BY_LABEL,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.apply import Applied, Options, apply
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

Object = dict[str, Any]

SYSTEM = "modelplane-system"
_NUMBERS = itertools.count(1)


def thing(api_version: str, kind: str, name: str, namespace: str = "", **content: Any) -> Object:
    metadata: Object = {"name": name, "labels": {MANAGED_BY_LABEL: MANAGED_BY}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def config(name: str, namespace: str, **data: str) -> Object:
    return thing("v1", "ConfigMap", name, namespace, data=data)


def pods(name: str, annotations: dict[str, str] | None = None) -> Object:
    return {
        "metadata": {"labels": {"app": name}, "annotations": annotations or {}},
        "spec": {"containers": [{"name": "main", "image": "example.com/main:1", "ports": [{"containerPort": 80}]}]},
    }


def deployment(name: str, namespace: str, replicas: int = 1, **annotations: str) -> Object:
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": pods(name, {f"test.modelplane.ai/{key}": value for key, value in annotations.items()}),
    }
    return thing("apps/v1", "Deployment", name, namespace, spec=spec)


def service(name: str, namespace: str) -> Object:
    spec = {"selector": {"app": name}, "ports": [{"name": "http", "port": 80}]}
    return thing("v1", "Service", name, namespace, spec=spec)


def job(name: str, namespace: str, command: str) -> Object:
    template = pods(name)
    template["spec"]["restartPolicy"] = "Never"
    template["spec"]["containers"][0]["command"] = [command]
    return thing("batch/v1", "Job", name, namespace, spec={"template": template})


class Place:
    """A fleet and a namespace that no other test uses, on one cluster."""

    def __init__(self, plane: ControlPlane, client: Client) -> None:
        number = next(_NUMBERS)
        self.plane = plane
        self.client = client
        self.fleet = f"fleet-{number}"
        self.namespace = f"apply-{number}"

    def objects(self) -> list[Object]:
        return [
            thing("v1", "Namespace", self.namespace),
            config("settings", self.namespace, a="1"),
            service("web", self.namespace),
            deployment("web", self.namespace),
        ]

    def apply(self, objects: list[Object], client: Client | None = None, **options: Any) -> Applied:
        options.setdefault("fleet", self.fleet)
        return apply(client or self.client, objects, Options(**options))

    def get(self, value: Object) -> Object | None:
        metadata = value["metadata"]
        return self.plane.get(value["apiVersion"], value["kind"], metadata["name"], metadata.get("namespace", ""))

    def records(self) -> list[Object]:
        found = self.plane.objects.list("v1", "ConfigMap", SYSTEM, f"modelplane.ai/fleet={self.fleet}")
        return sorted(found, key=lambda part: str(part["metadata"]["name"]))

    def forget(self) -> None:
        for part in self.records():
            self.plane.objects.delete("v1", "ConfigMap", part["metadata"]["name"], SYSTEM)


@pytest.fixture(scope="module")
def client(cluster: ControlPlane) -> Iterator[Client]:
    with connect(Connection("east", kubeconfig=str(cluster.kubeconfig), retries=1), write_cache=False) as made:
        yield made


@pytest.fixture(scope="module")
def anchor(cluster: ControlPlane, client: Client) -> Iterator[None]:
    """Something of another fleet that keeps the namespace of records, which takes seconds to go and come."""
    cluster.create_namespace("anchor")
    place = Place(cluster, client)
    place.apply([config("anchor", "anchor")])
    yield
    place.apply([])
    settle(cluster)


def settle(cluster: ControlPlane) -> None:
    """Wait while the namespace of records is being deleted: nothing can be created in it until it is gone."""

    def settled() -> bool:
        there = cluster.get("v1", "Namespace", SYSTEM)
        return there is None or "deletionTimestamp" not in there["metadata"]

    cluster.wait_until_gone(settled)


@pytest.fixture
def place(cluster: ControlPlane, client: Client, anchor: None) -> Iterator[Place]:
    del anchor
    found = Place(cluster, client)
    yield found
    found.apply([])


def actions(applied: Applied) -> dict[str, str]:
    """Kind/name -> action, without the namespace of the records."""
    return {f"{found.kind}/{found.name}": found.action for found in applied.results if found.name != SYSTEM}


def only(applied: Applied, kind: str) -> Any:
    return next(found for found in applied.results if found.kind == kind and found.name != SYSTEM)


def written(place: Place, since: int) -> Counter[str]:
    return Counter(request.verb for request in place.plane.write_requests(since))


ALL_CREATED = {
    "Namespace/{}": "created",
    "ConfigMap/settings": "created",
    "Service/web": "created",
    "Deployment/web": "created",
}


def all_are(place: Place, action: str) -> dict[str, str]:
    return {name.format(place.namespace): action for name in ALL_CREATED}


def drifted(place: Place, value: Object, change: Object) -> None:
    metadata = value["metadata"]
    place.plane.objects.patch(
        value["apiVersion"], value["kind"], metadata["name"], change, metadata.get("namespace", "")
    )
