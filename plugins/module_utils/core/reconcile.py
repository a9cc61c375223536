# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The whole decision: resources and what runs now in, every object of every cluster out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import (
    model_endpoint,
    model_replica,
    replica_objects,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling import translate
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Options,
    Placement,
    Replica,
    Schedule,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule

Object = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What the fleet should be.

    `control` are the objects of the control cluster, `clusters` those of each workload cluster by its name (a cluster
    without any is there too), `replicas` the ModelReplica of each placement, in the order of `schedule.placements`.
    `unplanned` are the names of replicas that go away because their deployment did.
    """

    schedule: Schedule
    replicas: tuple[Object, ...]
    control: tuple[Object, ...]
    clusters: Mapping[str, tuple[Object, ...]]
    unplanned: tuple[Replica, ...] = ()


@dataclass
class _Fleet:
    """The resources by kind, and the existing replicas."""

    deployments: dict[tuple[str, str], api.ModelDeployment] = field(default_factory=dict)
    clusters: dict[str, api.InferenceCluster] = field(default_factory=dict)
    classes: dict[str, api.InferenceClass] = field(default_factory=dict)
    caches: dict[tuple[str, str], api.ModelCache] = field(default_factory=dict)
    replicas: dict[tuple[str, str], Object] = field(default_factory=dict)
    handwritten: dict[tuple[str, str], Object] = field(default_factory=dict)


def assumed_address(cluster: str) -> str:
    """The gateway address of a cluster that nobody observes. It names the cluster and resolves nowhere (RFC 9476 keeps
    `.internal` for private use), until DNS or the status of the InferenceCluster gives it a real one."""
    return f"{cluster}.fleet.internal"


def plan(
    resources: Iterable[api.Resource],
    existing: Iterable[Mapping[str, Any]] = (),
    invalid: Iterable[Ref] = (),
    options: Options | None = None,
) -> Plan:
    """Decide where everything runs and compose it, for clusters that nobody observes.

    `existing` are the ModelReplicas (wire form) of the last run. `invalid` names resources that were written but
    cannot be used: their replicas, and the replicas on such clusters, stay exactly as they are.
    """
    fleet = _sorted_out(resources, existing)
    held = set(invalid)
    deployments, clusters = _inputs(fleet, held)
    known = {deployment.key for deployment in deployments}
    running, unplanned = [], []
    for wire in fleet.replicas.values():
        replica = translate.replica(wire)
        if not replica.deployment or (replica.namespace, replica.deployment) in known:
            running.append(replica)
        else:
            unplanned.append(replica)
    handwritten = [translate.replica(wire) for wire in fleet.handwritten.values()]
    decided = schedule(deployments, clusters, [*running, *handwritten], options)
    replicas = tuple(_replica(placement, fleet) for placement in decided.placements)
    composed = [(placement.gateway_address, wire) for placement, wire in zip(decided.placements, replicas, strict=True)]
    addresses = {cluster.name: cluster.gateway_address for cluster in clusters}
    composed += [(addresses.get(wire["spec"]["clusterName"], ""), wire) for wire in fleet.handwritten.values()]
    return Plan(
        schedule=decided,
        replicas=replicas,
        control=_control(composed),
        clusters=_workloads(composed, [cluster.name for cluster in clusters]),
        unplanned=tuple(sorted(unplanned, key=lambda replica: (replica.namespace, replica.name))),
    )


def _sorted_out(resources: Iterable[api.Resource], existing: Iterable[Mapping[str, Any]]) -> _Fleet:
    fleet = _Fleet()
    for wire in existing:
        fleet.replicas[(wire["metadata"].get("namespace") or "default", wire["metadata"]["name"])] = dict(wire)
    for resource in resources:
        key = (resource.namespace or "", resource.name)
        if isinstance(resource, api.ModelDeployment):
            fleet.deployments[key] = resource
        elif isinstance(resource, api.InferenceCluster):
            fleet.clusters[resource.name] = resource
        elif isinstance(resource, api.InferenceClass):
            fleet.classes[resource.name] = resource
        elif isinstance(resource, api.ModelCache):
            fleet.caches[key] = resource
        elif isinstance(resource, api.ModelReplica) and key not in fleet.replicas:
            wire = api.wire(resource)
            wire.pop("status", None)
            # One that names a deployment is the state of an exported fleet; one that does not is the user's own.
            own = resource.labels.get(names.DEPLOYMENT_LABEL)
            (fleet.replicas if own else fleet.handwritten)[key] = wire
    return fleet


def _inputs(fleet: _Fleet, held: set[Ref]) -> tuple[list[Deployment], list[Cluster]]:
    deployments = [
        translate.deployment(resource, fleet.caches)
        for key, resource in fleet.deployments.items()
        if Ref("ModelDeployment", *key) not in held
    ]
    catalogue = translate.DeviceCatalogue()
    clusters = [
        translate.cluster(resource, fleet.classes, catalogue, assumed_address=assumed_address)
        for name, resource in fleet.clusters.items()
        if Ref("InferenceCluster", "", name) not in held
    ]
    for ref in held:
        if ref.kind == "ModelDeployment":
            deployments.append(Deployment(ref.namespace, ref.name, replicas=0, invalid="its manifest has errors"))
        elif ref.kind == "InferenceCluster":
            clusters.append(
                Cluster(ref.name, gateway_address=assumed_address(ref.name), unknown="its manifest has errors")
            )
    return deployments, clusters


def _replica(placement: Placement, fleet: _Fleet) -> Object:
    if placement.state == "held":
        return fleet.replicas[(placement.namespace, placement.replica)]
    deployment = fleet.deployments[(placement.namespace, placement.deployment)]
    return model_replica(api.wire(deployment, set_only=True), placement.cluster, placement.index, placement.engines)


def _control(composed: Iterable[tuple[str, Object]]) -> tuple[Object, ...]:
    """ModelReplicas, and the ModelEndpoint of each whose cluster has a gateway address."""
    objects: list[Object] = []
    for address, wire in composed:
        objects.append(wire)
        if address:
            objects.append(model_endpoint(wire, address))
    return _distinct(objects)


def _workloads(composed: Iterable[tuple[str, Object]], clusters: Iterable[str]) -> dict[str, tuple[Object, ...]]:
    objects: dict[str, list[Object]] = {name: [] for name in sorted(clusters)}
    for _, wire in composed:
        objects.setdefault(wire["spec"]["clusterName"], []).extend(replica_objects(wire))
    return {name: _distinct(found) for name, found in objects.items()}


def _distinct(objects: Iterable[Object]) -> tuple[Object, ...]:
    """Each object once; several replicas compose the same Namespace."""
    found: dict[tuple[str, str, str], Object] = {}
    for value in objects:
        metadata = value["metadata"]
        found.setdefault((value["kind"], metadata.get("namespace", ""), metadata["name"]), value)
    return tuple(found.values())
