# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Ports, health paths, volumes and service accounts of engines in composed objects."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.secret_references import replica_references
from ansible_collections.modelplane.fleet.tests.written import parsed, replica_objects

VOLUMES = [
    {"name": "keys", "secret": {"secretName": "keys", "items": [{"key": "a", "path": "a"}]}},
    {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "32Gi"}},
]
MOUNTS = [{"name": "keys", "mountPath": "/keys"}, {"name": "shm", "mountPath": "/dev/shm"}]


def replica(container: dict[str, Any], spec: dict[str, Any] | None = None, **engine: Any) -> dict[str, Any]:
    request = {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "selectors": [{"cel": "true"}]}
    template = {"spec": {**(spec or {}), "containers": [{"name": "engine", "image": "x", **container}]}}
    member = {"role": "Standalone", "nodePoolName": "gpu", "deviceRequests": [request], "template": template}
    return {
        "metadata": {"name": "r", "namespace": "team"},
        "spec": {"clusterName": "east", "engines": [{"name": "main", "members": [member], **engine}]},
    }


def composed(document: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(each for each in replica_objects(document) if each["kind"] == kind)


def test_a_port_and_a_health_path() -> None:
    document = replica({}, port=30000, healthPath="/ready")
    (container,) = composed(document, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"containerPort": 30000}]
    for probe in ("readinessProbe", "startupProbe"):
        assert container[probe]["httpGet"] == {"path": "/ready", "port": 30000}
    assert composed(document, "InferencePool")["spec"]["targetPorts"] == [{"number": 30000}]
    policies = [each for each in replica_objects(document) if each["kind"] == "NetworkPolicy"]
    assert any("30000" in str(policy) for policy in policies)
    assert not any("8000" in str(each) for each in policies)


@pytest.mark.parametrize(
    ("image", "path"),
    [
        ("nvcr.io/nim/meta/llama:1", "/v1/health/ready"),
        ("ollama/ollama", "/"),
        ("vllm/vllm-openai", "/health"),
        ("x", "/health"),
    ],
)
def test_the_health_path_of_a_server(image: str, path: str) -> None:
    (container,) = composed(replica({"image": image}), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == path


def test_a_readiness_probe_replaces_the_composed_one() -> None:
    probe = {"httpGet": {"path": "/up", "port": 9000}, "successThreshold": 2}
    (container,) = composed(replica({"readinessProbe": probe}), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"] == probe


def test_volumes_and_a_service_account() -> None:
    document = replica({"volumeMounts": MOUNTS}, {"volumes": VOLUMES, "serviceAccountName": "reader"})
    pod = composed(document, "Deployment")["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("reader", False)
    assert pod["volumes"] == VOLUMES
    assert pod["containers"][0]["volumeMounts"] == MOUNTS
    (reference,) = replica_references(parsed(document, api.ModelReplica))
    assert (reference.name, reference.keys) == ("keys", frozenset({"a"}))


@pytest.mark.parametrize(("requested", "limit", "shared"), [("0", "8Gi", "4096Mi"), ("4Gi", "8Gi", "2048Mi")])
def test_shared_memory_fits_the_limit(requested: str, limit: str, shared: str) -> None:
    resources = {"requests": {"memory": requested}, "limits": {"memory": limit}}
    (volume,) = composed(replica({"resources": resources}), "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert volume["emptyDir"]["sizeLimit"] == shared
