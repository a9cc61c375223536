# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Manifests of a small fleet, with a service for each deployment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Engine,
    Member,
    Pool,
    Request,
)
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import FABRIC, Fleet

Spec = Mapping[str, Any]


def resources_of(fleet: Fleet) -> list[api.Resource]:
    """Return classes, clusters, deployments and services, without clusters that accept no replicas at all."""
    clusters = [cluster for cluster in fleet.clusters if not cluster.not_ready and cluster.gateway_address]
    return [
        *(_class(cluster, pool) for cluster in clusters for pool in cluster.pools),
        *(_cluster(cluster) for cluster in clusters),
        *(resource for deployment in fleet.deployments for resource in _model(deployment)),
    ]


def _resource(kind: str, name: str, spec: Spec, **metadata: Any) -> api.Resource:
    document = {"apiVersion": "modelplane.ai/v1alpha1", "kind": kind, "metadata": {"name": name, **metadata}}
    return api.parse({**document, "spec": spec})


def _class(cluster: Cluster, pool: Pool) -> api.Resource:
    devices = [
        {
            "name": device.name,
            "driver": device.driver,
            "claim": device.claim,
            **({"deviceClassName": device.device_class_name} if device.device_class_name else {}),
            "count": device.count,
            "attributes": {key: {"string": str(value)} for key, value in device.attributes.items()},
            "capacity": {key: {"value": str(value)} for key, value in device.capacity.items()},
        }
        for device in pool.devices
        if device.driver != FABRIC
    ]
    price = {"currency": "USD", "asOf": "2026-11-01", "onDemand": str(pool.price)}
    spec = {"devices": devices, **({"pricing": price} if pool.price is not None else {})}
    return _resource("InferenceClass", f"{cluster.name}-{pool.name}", spec)


def _cluster(cluster: Cluster) -> api.Resource:
    pools = []
    for pool in cluster.pools:
        fabric = next((device for device in pool.devices if device.driver == FABRIC), None)
        name = str(fabric.attributes.get(f"{FABRIC}/name", "")) if fabric else ""
        written = {"name": pool.name, "className": f"{cluster.name}-{pool.name}", "nodeCount": pool.nodes}
        named = {"name": name} if name else {}
        pools.append({**written, **({"fabric": {"type": "EFA", **named}} if fabric else {})})
    spec: dict[str, Any] = {
        "cluster": {"source": "Existing", "existing": {"secretRef": {"name": cluster.name}}},
        "nodePools": pools,
    }
    if cluster.taints:
        spec["taints"] = [{"key": taint.key, "effect": taint.effect} for taint in cluster.taints]
    return _resource("InferenceCluster", cluster.name, spec, labels=dict(cluster.labels))


def _model(deployment: Deployment) -> Iterator[api.Resource]:
    body: dict[str, Any] = {"engines": list(map(_engine, deployment.engines))}
    if deployment.cluster_selector:
        body["clusterSelector"] = {"matchLabels": dict(deployment.cluster_selector)}
    if deployment.tolerations:
        body["tolerations"] = [{"key": one.key, "operator": one.operator} for one in deployment.tolerations]
    spec: dict[str, Any] = {"replicas": deployment.replicas - deployment.surge, "template": {"spec": body}}
    if deployment.spread:
        spec["spread"] = [
            {
                "topologyKey": spread.topology_key,
                "maxSkew": spread.max_skew,
                "whenUnsatisfiable": "DoNotSchedule" if spread.required else "ScheduleAnyway",
            }
            for spread in deployment.spread
        ]
    if deployment.minimum:
        spec["minAvailable"] = [
            {"replicas": minimum.replicas, **({"topologyKey": minimum.topology_key} if minimum.topology_key else {})}
            for minimum in deployment.minimum
        ]
    if deployment.preferences:
        terms = [{"matchLabels": dict(term)} for term in deployment.preferences]
        spec["clusterPreferences"] = {"terms": terms, "return": deployment.returns}
    if deployment.preempts:
        spec["preemption"] = "LowerPriority"
    if deployment.cost is not None:
        ceiling = deployment.cost.ceiling
        spec["cost"] = {} if ceiling is None else {"ceilingPerHour": str(ceiling), "currency": "USD"}
    where = {"namespace": deployment.namespace}
    yield _resource(
        "ModelDeployment",
        deployment.name,
        spec,
        **where,
        annotations={"modelplane.ai/priority": str(deployment.priority)},
    )
    selector = {"matchLabels": {"modelplane.ai/deployment": deployment.name}}
    yield _resource("ModelService", deployment.name, {"endpoints": [{"selector": selector}]}, **where)


def _engine(engine: Engine) -> Spec:
    return {"name": engine.name, "copies": engine.copies, "members": list(map(_member, engine.members))}


def _member(member: Member) -> Spec:
    written: dict[str, Any] = {
        "role": member.role,
        "template": {"spec": {"containers": [{"name": "engine", "image": "vllm"}]}},
    }
    if member.role == "Worker":
        written["worker"] = {"nodes": member.pods}
    if member.requests:
        written["nodeSelector"] = {"devices": list(map(_device, member.requests))}
    if member.constraints:
        written["nodeSelector"]["constraints"] = [
            {
                "matchAttribute": constraint.match_attribute,
                **({"requests": list(constraint.requests)} if constraint.requests else {}),
            }
            for constraint in member.constraints
        ]
    return written


def _device(request: Request) -> Spec:
    selectors = [{"cel": selector} for selector in request.selectors]
    return {"name": request.name, "count": request.count, "selectors": selectors}
