# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Composed objects against the schemas that Kubernetes and the projects publish, unknown fields refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.gateway import backend_of
from ansible_collections.modelplane.fleet.tests.schemas import KUBERNETES_VERSIONS, SchemaError, check
from ansible_collections.modelplane.fleet.tests.written import (
    cache_objects,
    cluster_objects,
    endpoint_index,
    endpoint_objects,
    gateway_objects,
    replica_objects,
    resolve,
    service_objects,
)

Make = Callable[..., dict[str, Any]]
Object = dict[str, Any]

POD_FIELDS: dict[str, Any] = {
    "args": ["--model=m"],
    "env": [
        {"name": "A", "value": "{{ x }}"},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
    ],
    "resources": {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"memory": "64Gi"}},
}
CACHE: dict[str, Any] = {
    "metadata": {"name": "w" * 60, "namespace": "ml-team"},
    "spec": {"huggingFace": {"repo": "Qwen/Qwen3-8B", "sizeGiB": 40, "layout": "HubCache", "revision": "v1"}},
}
CLASS = {
    "spec": {
        "provisioning": {
            "eks": {"instanceType": "p5.48xlarge", "accelerator": {"type": "nvidia-h100", "count": 8}},
            "gke": {"machineType": "a3-highgpu-8g", "accelerator": {"type": "nvidia-h100-80gb", "count": 8}},
        },
        "devices": [{"name": "gpu", "driver": "gpu.nvidia.com", "deviceClassName": "gpu.nvidia.com", "count": 8}],
    }
}
SOURCES: tuple[dict[str, Any], ...] = (
    {"source": "EKS", "eks": {"region": "us-west-2"}},
    {"source": "GKE", "gke": {"region": "us-west1", "project": "my-project"}},
    {"source": "Existing", "existing": {"secretRef": {"name": "k"}, "identitySecretRef": {"name": "i"}}},
)


def replicas(make_replica: Make, make_member: Make, make_engine: Make, pair: tuple[Any, ...]) -> Iterator[Object]:
    """A ModelReplica of every shape."""
    hub = {"name": "weights", "layout": "HubCache"}
    yield make_replica(container=POD_FIELDS, modelCacheRef={"name": "weights"})
    yield make_replica(*pair, serving={"mode": "PrefillDecode"}, modelCacheRef=hub)
    leader, worker = make_member("Leader", **POD_FIELDS), make_member("Worker", **POD_FIELDS)
    yield make_replica(make_engine("main", leader, worker))
    spread = [{"name": "gpu-a", "pods": 1}, {"name": "gpu-b", "pods": 2}]
    worker = {**worker, "nodePoolName": "gpu-a", "nodePools": spread, "worker": {"nodes": 3}}
    prefill = make_engine("prefill", make_member(), phase="Prefill")
    decode = make_engine("decode", leader, worker, phase="Decode", copies=3)
    yield make_replica(prefill, decode, serving={"mode": "PrefillDecode"}, modelCacheRef=hub)


def clusters() -> Iterator[Object]:
    pool = {"name": "gpu", "className": "h100", "nodeCount": 2, "zones": ["us-west-2a"], "fabric": {"type": "EFA"}}
    for source in SOURCES:
        yield {"metadata": {"name": "west"}, "spec": {"cluster": source, "nodePools": [pool]}}


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_everything_of_a_replica(
    make_replica: Make, make_member: Make, make_engine: Make, pair: tuple[Any, ...], version: str
) -> None:
    kinds = set()
    for replica in replicas(make_replica, make_member, make_engine, pair):
        check(replica)
        for each in replica_objects(replica):
            check(each, version)
            kinds.add(each["kind"])
    assert {"Deployment", "LeaderWorkerSet", "InferencePool", "HTTPRoute", "ResourceClaimTemplate"} <= kinds


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_the_pods_of_a_gang_are_pods(
    make_replica: Make, make_member: Make, make_engine: Make, pair: tuple[Any, ...], version: str
) -> None:
    """The schema of a LeaderWorkerSet has the pods of the Kubernetes it was made with; these are those of this one."""
    found = [
        each["spec"]["leaderWorkerTemplate"]
        for replica in replicas(make_replica, make_member, make_engine, pair)
        for each in replica_objects(replica)
        if each["kind"] == "LeaderWorkerSet"
    ]
    assert len(found) == 2
    for templates in found:
        for name in ("leaderTemplate", "workerTemplate"):
            pod = deepcopy(templates[name])
            check({"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {"name": "p", **pod["metadata"]}}, version)


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize("secret", [None, {"name": "hf-token"}])
@pytest.mark.parametrize("settled", [True, False])
def test_everything_of_a_cache(version: str, secret: dict[str, str] | None, settled: bool) -> None:
    cache = deepcopy(CACHE)
    if secret:
        cache["spec"]["huggingFace"]["authSecret"] = secret
    objects = cache_objects(cache, "modelplane-rwx", hydrate=True, settled=settled, options=Options())
    assert [each["kind"] for each in objects] == ["Namespace", "PersistentVolumeClaim", "Job"]
    for each in objects:
        check(each, version)


def test_everything_of_a_cluster() -> None:
    for cluster in clusters():
        check({"apiVersion": "modelplane.ai/v1alpha1", "kind": "InferenceCluster", **cluster})
        for each in cluster_objects(cluster, {"h100": CLASS}):
            check(each)


ENDPOINTS: tuple[dict[str, Any], ...] = (
    {"url": "http://203.0.113.10/a/b/v1", "rewritePath": "/a/b/"},
    {"url": "http://[2001:db8::1]:8080/"},
    {"url": "http://models.example.com/"},
    {"url": "https://api.example.com/", "rewritePath": "/"},
    {"url": "https://10.0.0.1:8443/", "tls": {"serverName": "x.example.com", "caCertificateRef": {"name": "ca"}}},
    {"url": "https://api.example.com/", "credential": {"apiKey": {"secretRef": {"name": "key"}}}},
    {
        "url": "https://api.example.com:8443/",
        "credential": {"apiKey": {"secretRef": {"name": "key", "key": "k"}, "header": "x-api-key"}},
        "tls": {"caCertificateRef": {"name": "ca"}},
    },
)
METALLB = {"loadBalancer": "MetalLB", "metallb": {"addressPool": "172.18.255.200-172.18.255.250"}}


def endpoints(count: int = len(ENDPOINTS)) -> list[Object]:
    return [
        {
            "apiVersion": "modelplane.ai/v1alpha1",
            "kind": "ModelEndpoint",
            "metadata": {"name": f"e-{number}", "namespace": "ml-team", "labels": {"a": "b"}},
            "spec": ENDPOINTS[number % len(ENDPOINTS)],
        }
        for number in range(count)
    ]


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_everything_of_endpoints(version: str) -> None:
    kinds = set()
    for endpoint in endpoints():
        check(endpoint)
        for each in endpoint_objects(endpoint, Options()):
            check(each, version)
            kinds.add(each["kind"])
    assert {"Service", "EndpointSlice", "BackendTLSPolicy", "Deployment", "ConfigMap"} <= kinds


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize(("count", "usable"), [(7, True), (7, False), (40, True), (300, True)])
def test_everything_of_a_service(version: str, count: int, usable: bool) -> None:
    service = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelService",
        "metadata": {"name": "assistant", "namespace": "ml-team"},
        "spec": {"endpoints": [{"weight": 3, "selector": {"matchLabels": {"a": "b"}}}]},
    }
    check(service)
    resolution = resolve(service, endpoint_index(endpoints(count)), lambda _endpoint: usable)
    objects = service_objects(service, resolution, backend_of(None), True)
    assert any(each["kind"] == "HTTPRoute" for each in objects)
    for each in objects:
        check(each, version)


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize("balancer", [{}, METALLB])
def test_everything_of_a_gateway(balancer: dict[str, Any], version: str) -> None:
    gateway = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceGateway",
        "metadata": {"name": "default"},
        "spec": {"backend": "Traefik", "traefik": {"version": "39.0.0", **balancer}},
    }
    check(gateway)
    objects = gateway_objects(gateway)
    assert ("IPAddressPool" in {each["kind"] for each in objects}) == bool(balancer)
    for each in objects:
        check(each, version)


def container_of(deployment: Object) -> Any:
    return deployment["spec"]["template"]["spec"]["containers"][0]


# What is broken, and a change that breaks it.
BROKEN: dict[str, tuple[str, Callable[[Object], Any]]] = {
    "unknown field": ("Deployment", lambda each: container_of(each)["resources"].update(claim=[])),
    "wrong type": ("Deployment", lambda each: each["spec"].update(replicas="1")),
    "label too long": ("Deployment", lambda each: each["metadata"]["labels"].update(a="b" * 64)),
    "unknown kind": ("Deployment", lambda each: each.update(kind="Deploymint")),
    "unknown group": ("Deployment", lambda each: each.update(apiVersion="example.com/v1")),
    "custom: unknown field": ("InferencePool", lambda each: each["spec"].update(selectors={})),
    "custom: unknown field below": ("HTTPRoute", lambda each: each["spec"]["rules"][0]["matches"][0].update(paths={})),
    "custom: missing field": ("InferencePool", lambda each: each["spec"].pop("targetPorts")),
    "custom: pattern": ("HTTPRoute", lambda each: each["spec"]["rules"][0]["timeouts"].update(request="0 s")),
    "custom: too many": ("HTTPRoute", lambda each: each["spec"].update(rules=each["spec"]["rules"] * 17)),
    "custom: no namespace": ("HTTPRoute", lambda each: each["metadata"].pop("namespace")),
    "custom: metadata": ("HTTPRoute", lambda each: each["metadata"].update(label={})),
    "custom: one key twice": (
        "LeaderWorkerSet",
        lambda each: each["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["volumes"].append(
            {"name": "dshm", "emptyDir": {}}
        ),
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_the_check_has_findings(
    make_replica: Make, gang: dict[str, Any], make_engine: Make, make_member: Make, case: str
) -> None:
    kind, change = BROKEN[case]
    replica = make_replica(gang, make_engine("second", make_member()))
    document = next(each for each in replica_objects(replica) if each["kind"] == kind)
    check(document)
    change(document)
    with pytest.raises(SchemaError):
        check(document)
