# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Resources and what is composed of them, and ways in which a cluster may show that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.options import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Component, ObservedCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Objects
from ansible_collections.modelplane.fleet.tests.written import cache_objects, endpoint_objects, parsed, replica_objects

Object = dict[str, Any]

MODELS = "modelplane.ai/v1alpha1"
WORKLOADS = "mp-ml-team-51733"
CLASS = {
    "apiVersion": MODELS,
    "kind": "InferenceClass",
    "metadata": {"name": "l4"},
    "spec": {"devices": [{"name": "gpu", "driver": "gpu.nvidia.com", "deviceClassName": "gpu.nvidia.com"}]},
}
EXISTING: Object = {
    "apiVersion": MODELS,
    "kind": "InferenceCluster",
    "metadata": {"name": "east"},
    "spec": {
        "cluster": {"source": "Existing", "existing": {"secretRef": {"name": "east"}}},
        "nodePools": [{"name": "gpu-l4", "className": "l4"}],
    },
}
EKS: Object = {**EXISTING, "spec": {**EXISTING["spec"], "cluster": {"source": "EKS", "eks": {"region": "us-east-1"}}}}
GATEWAY: Object = {
    "apiVersion": MODELS,
    "kind": "InferenceGateway",
    "metadata": {"name": "default"},
    "spec": {"backend": "Traefik", "traefik": {"version": "40.2.0"}},
}
CACHE: Object = {
    "apiVersion": MODELS,
    "kind": "ModelCache",
    "metadata": {"name": "qwen", "namespace": "ml-team"},
    "spec": {
        "source": "HuggingFace",
        "huggingFace": {"repo": "Qwen/Qwen3-8B", "sizeGiB": 40, "authSecret": {"name": "hf-token"}},
    },
}
SERVICE: Object = {
    "apiVersion": MODELS,
    "kind": "ModelService",
    "metadata": {"name": "assistant", "namespace": "ml-team"},
    "spec": {
        "endpoints": [
            {"selector": {"matchLabels": {"modelplane.ai/deployment": "qwen3-8b"}}},
            {"name": "outside", "priority": 1, "selector": {"matchLabels": {"provider": "together"}}},
        ]
    },
}
_MEMBER = {
    "role": "Standalone",
    "template": {"spec": {"containers": [{"name": "engine", "image": "vllm/vllm-openai:v0.23.0"}]}},
}


def deployment(replicas: int = 2, cache: str = "", selector: Mapping[str, str] | None = None) -> Object:
    request = {"name": "gpu", "selectors": [{"cel": 'device.driver == "gpu.nvidia.com"'}]}
    spec: Object = {"engines": [{"name": "main", "members": [{**_MEMBER, "nodeSelector": {"devices": [request]}}]}]}
    if cache:
        spec["modelCacheRef"] = {"name": cache}
    if selector:
        spec["clusterSelector"] = {"matchLabels": dict(selector)}
    return {
        "apiVersion": MODELS,
        "kind": "ModelDeployment",
        "metadata": {"name": "qwen3-8b", "namespace": "ml-team"},
        "spec": {"replicas": replicas, "template": {"spec": spec}},
    }


def replica(*, gang: bool = False, copies: int = 1) -> Object:
    request = {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 1}
    placed = {**_MEMBER, "nodePoolName": "gpu-l4", "deviceRequests": [request]}
    members = [placed]
    if gang:
        members = [{**placed, "role": "Leader"}, {**placed, "role": "Worker", "worker": {"nodes": 1}}]
    return {
        "apiVersion": MODELS,
        "kind": "ModelReplica",
        "metadata": {
            "name": "qwen3-8b-6e732e38e8",
            "namespace": "ml-team",
            "labels": {"modelplane.ai/deployment": "qwen3-8b"},
        },
        "spec": {"clusterName": "east", "engines": [{"name": "main", "copies": copies, "members": members}]},
    }


def endpoint(url: str = "http://203.0.113.10/v1", **spec: Any) -> Object:
    return {
        "apiVersion": MODELS,
        "kind": "ModelEndpoint",
        "metadata": {"name": "together", "namespace": "ml-team"},
        "spec": {"url": url, **spec},
    }


def endpoint_parts(wire: Object) -> list[Object]:
    return list(endpoint_objects(wire, Options()))


def cache_parts(wire: Object = CACHE) -> tuple[Object, Object]:
    """The PersistentVolumeClaim and the Job of a cache."""
    found = cache_objects(wire, "rwx", hydrate=True, settled=True, options=Options())
    by_kind = {value["kind"]: value for value in found}
    return by_kind["PersistentVolumeClaim"], by_kind["Job"]


def conditions(**statuses: str) -> list[Object]:
    return [{"type": kind, "status": status, "message": f"{kind} is {status}"} for kind, status in statuses.items()]


def showing(value: Object, **status: Any) -> Object:
    """An object with a status, as its API server returns it."""
    found = deepcopy(value)
    found["metadata"] = {"generation": 1, **found["metadata"]}
    found["status"] = status
    return found


def available(value: Object, up: int | None = None) -> Object:
    """A workload as its controller reports it: all copies are up, or so many."""
    copies = value["spec"]["replicas"]
    count = copies if up is None else up
    verdict = conditions(Available="True" if count == copies else "False")
    if value["kind"] == "LeaderWorkerSet":
        return showing(value, conditions=verdict, replicas=copies, readyReplicas=count)
    return showing(value, observedGeneration=1, conditions=verdict, replicas=copies, availableReplicas=count)


def parts(wire: Object) -> dict[str, Object]:
    """The composed workloads of a replica of one engine: `engine` and `picker`, and its `route`."""
    found: dict[str, Object] = {}
    for value in replica_objects(wire):
        if value["kind"] in ("Deployment", "LeaderWorkerSet"):
            found["picker" if value["metadata"]["name"].endswith("-epp") else "engine"] = value
        elif value["kind"] == "HTTPRoute":
            found["route"] = value
    return found


def cluster(*objects: Object, **fields: Any) -> ObservedCluster:
    return ObservedCluster(objects=Objects(objects), **fields)


def silent() -> ObservedCluster:
    return ObservedCluster(unreachable="connection refused")


def ready_cluster(*objects: Object) -> ObservedCluster:
    up = Component(True)
    return ObservedCluster(provisioned=up, stack=up, objects=Objects(objects))


def edge_gateway(*values: str, listeners: Sequence[Object] = ()) -> Object:
    addresses = [{"type": "IPAddress", "value": value} for value in values]
    metadata = {"name": "inference-gateway", "namespace": "modelplane-system"}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": metadata,
        **({"spec": {"listeners": list(listeners)}} if listeners else {}),
        "status": {"addresses": addresses},
    }


def admitted_route(status: str = "True", **spec: Any) -> Object:
    """The Route of OpenShift that exposes the edge gateway."""
    condition = {"type": "Admitted", "status": status}
    return {
        "apiVersion": "route.openshift.io/v1",
        "kind": "Route",
        "metadata": {"name": "inference-gateway", "namespace": "envoy-gateway-system"},
        "spec": spec,
        "status": {"ingress": [{"host": "gateway.apps.example.com", "conditions": [condition]}]},
    }


def route(name: str = "assistant", accepted: str = "True", resolved: str = "True") -> Object:
    metadata = {"name": name, "namespace": "ml-team", "generation": 3}
    verdicts = [{**entry, "observedGeneration": 3} for entry in conditions(Accepted=accepted, ResolvedRefs=resolved)]
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": metadata,
        "status": {"parents": [{"conditions": verdicts}]},
    }


def control_gateway(accepted: str = "True", *addresses: str) -> list[Object]:
    """The Gateway of the control cluster and its class."""
    gateway = edge_gateway(*addresses)
    gateway["metadata"]["name"] = "modelplane"
    gateway["spec"] = {"gatewayClassName": "traefik"}
    gateway["status"]["conditions"] = conditions(Accepted=accepted)
    kind = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "traefik"}}
    return [gateway, {**kind, "status": {"conditions": conditions(Accepted=accepted)}}]


@dataclass(frozen=True)
class Member:
    """An endpoint that a service matches."""

    endpoint: api.ModelEndpoint
    entry: int = 0
    usable: bool = True
    weight: int = 1


@dataclass(frozen=True)
class Resolution:
    """Targets of a service."""

    members: tuple[Member, ...] = ()
    tier: int | None = 0


def resolution(*usable: bool, tier: int | None = 0) -> Resolution:
    members = tuple(
        Member(parsed(endpoint() | {"metadata": {"name": f"endpoint-{index}"}}, api.ModelEndpoint), usable=able)
        for index, able in enumerate(usable)
    )
    return Resolution(members, tier if any(usable) else None)


def reported(status: Any) -> dict[str, tuple[str, str]]:
    """Status and reason by condition type."""
    return {condition.type: (condition.status, condition.reason) for condition in status.conditions}
