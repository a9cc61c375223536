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
Key = tuple[str, str]

_INVALID = "its manifest has errors"


class PlanError(Exception):
    """The resources contradict each other; the text says which and what to do."""


@dataclass(frozen=True)
class Plan:
    """What the fleet should be.

    `control` are the objects of the control cluster, `clusters` those of each workload cluster by its name (a cluster
    without any is there too), `replicas` the ModelReplica of each placement, in the order of `schedule.placements`,
    `edited` names (namespace, name) those of them that stay with other content than before.
    `manual` are ModelReplicas that users wrote themselves, `unplanned` replicas that go away as their deployment did.
    """

    schedule: Schedule
    replicas: tuple[Object, ...]
    control: tuple[Object, ...]
    clusters: Mapping[str, tuple[Object, ...]]
    edited: frozenset[Key] = frozenset()
    manual: tuple[Object, ...] = ()
    unplanned: tuple[Replica, ...] = ()


@dataclass
class _Fleet:
    """The resources by kind, and what the last run left."""

    deployments: dict[Key, api.ModelDeployment] = field(default_factory=dict)
    clusters: dict[str, api.InferenceCluster] = field(default_factory=dict)
    classes: dict[str, api.InferenceClass] = field(default_factory=dict)
    caches: dict[Key, api.ModelCache] = field(default_factory=dict)
    replicas: dict[Key, Object] = field(default_factory=dict)
    manual: dict[Key, Object] = field(default_factory=dict)
    endpoints: dict[Key, Object] = field(default_factory=dict)


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

    `existing` are the ModelReplicas and ModelEndpoints (wire form) of the last run. `invalid` names resources that were
    written but cannot be used: their replicas, and the replicas on such clusters, stay exactly as they are. Raises
    PlanError.
    """
    held = set(invalid)
    fleet = _sorted_out(resources, existing, held)
    deployments, clusters = _inputs(fleet, held)
    known = {deployment.key for deployment in deployments}
    existing_replicas = [translate.replica(wire) for wire in fleet.replicas.values()]
    running = [replica for replica in existing_replicas if (replica.namespace, replica.deployment) in known]
    manual = {key: wire for key, wire in fleet.manual.items() if _placed(wire, clusters)}
    decided = schedule(
        deployments, clusters, [*running, *(translate.replica(wire) for wire in manual.values())], options
    )
    replicas = tuple(_replica(placement, fleet) for placement in decided.placements)
    _refuse_equal_names(replicas, manual)
    composed = [*replicas, *manual.values()]
    return Plan(
        schedule=decided,
        replicas=replicas,
        control=_control(composed, clusters, fleet),
        clusters=_workloads(composed, [cluster.name for cluster in clusters]),
        edited=frozenset(
            (placement.namespace, wire["metadata"]["name"])
            for placement, wire in zip(decided.placements, replicas, strict=True)
            if placement.state == "kept" and fleet.replicas[(placement.namespace, placement.replica)] != wire
        ),
        manual=tuple(manual[key] for key in sorted(manual)),
        unplanned=tuple(
            replica for replica in existing_replicas if (replica.namespace, replica.deployment) not in known
        ),
    )


def _sorted_out(resources: Iterable[api.Resource], existing: Iterable[Mapping[str, Any]], held: set[Ref]) -> _Fleet:
    fleet = _left_behind(existing, held)
    identities = {_identity(wire) for wire in fleet.replicas.values()}
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
        elif isinstance(resource, api.ModelReplica):
            wire = api.wire(resource)
            wire.pop("status", None)
            if names.DEPLOYMENT_LABEL not in resource.labels:
                fleet.manual[key] = wire
            elif key not in fleet.replicas and _identity(wire) not in identities:
                # The state of a fleet that was exported, where this one has none yet.
                fleet.replicas[key] = wire
    return fleet


def _left_behind(existing: Iterable[Mapping[str, Any]], held: set[Ref]) -> _Fleet:
    """What the last run left. Of hand-written replicas, whose manifests tell, only those that are held count."""
    fleet = _Fleet()
    for wire in existing:
        key = (wire["metadata"].get("namespace") or "default", wire["metadata"]["name"])
        if wire["kind"] == "ModelEndpoint":
            fleet.endpoints[key] = dict(wire)
        elif names.DEPLOYMENT_LABEL in (wire["metadata"].get("labels") or {}):
            fleet.replicas[key] = dict(wire)
        elif Ref("ModelReplica", *key) in held:
            fleet.manual[key] = dict(wire)
    return fleet


def _identity(wire: Object) -> tuple[str, str, str, int]:
    replica = translate.replica(wire)
    return replica.namespace, replica.deployment, replica.cluster, replica.index


def _placed(wire: Object, clusters: Iterable[Cluster]) -> bool:
    """Whether the cluster that a hand-written replica names is there."""
    return any(cluster.name == wire["spec"]["clusterName"] for cluster in clusters)


def _refuse_equal_names(replicas: Iterable[Object], manual: Mapping[Key, Object]) -> None:
    for wire in replicas:
        metadata = wire["metadata"]
        if (metadata["namespace"], metadata["name"]) in manual:
            raise PlanError(
                f"the hand-written ModelReplica {metadata['namespace']}/{metadata['name']} has the name of a replica "
                f"of deployment {metadata['labels'][names.DEPLOYMENT_LABEL]}: rename it"
            )


def _inputs(fleet: _Fleet, held: set[Ref]) -> tuple[list[Deployment], list[Cluster]]:
    deployments = [translate.deployment(resource, fleet.caches) for resource in fleet.deployments.values()]
    catalogue = translate.DeviceCatalogue()
    clusters = [
        translate.cluster(resource, fleet.classes, catalogue, assumed_address=assumed_address)
        for resource in fleet.clusters.values()
    ]
    for ref in held:
        if ref.kind == "ModelDeployment":
            deployments.append(Deployment(ref.namespace, ref.name, replicas=0, invalid=_INVALID))
        elif ref.kind == "InferenceCluster":
            clusters.append(Cluster(ref.name, unknown=_INVALID))
    return deployments, clusters


def _replica(placement: Placement, fleet: _Fleet) -> Object:
    if placement.state == "held":
        return fleet.replicas[(placement.namespace, placement.replica)]
    deployment = fleet.deployments[(placement.namespace, placement.deployment)]
    return model_replica(api.wire(deployment, set_only=True), placement.cluster, placement.index, placement.engines)


def _control(composed: Iterable[Object], clusters: Iterable[Cluster], fleet: _Fleet) -> tuple[Object, ...]:
    """ModelReplicas, and the ModelEndpoint of each whose cluster has a gateway address.

    Where the address of a cluster cannot be told now, the endpoint stays what it was.
    """
    addresses = {cluster.name: cluster.gateway_address for cluster in clusters if cluster.unknown != _INVALID}
    objects: list[Object] = []
    for wire in composed:
        objects.append(wire)
        cluster, metadata = wire["spec"]["clusterName"], wire["metadata"]
        if cluster not in addresses:
            endpoint = fleet.endpoints.get((metadata["namespace"], metadata["name"]))
            objects += [endpoint] if endpoint else []
        elif addresses[cluster]:
            objects.append(model_endpoint(wire, addresses[cluster]))
    return tuple(objects)


def _workloads(composed: Iterable[Object], clusters: Iterable[str]) -> dict[str, tuple[Object, ...]]:
    objects: dict[str, list[Object]] = {name: [] for name in sorted(clusters)}
    for wire in composed:
        objects[wire["spec"]["clusterName"]].extend(replica_objects(wire))
    return {name: _distinct(found) for name, found in objects.items()}


def _distinct(objects: Iterable[Object]) -> tuple[Object, ...]:
    """Each object once: several replicas compose the same Namespace."""
    found: dict[tuple[str, str, str], Object] = {}
    for value in objects:
        metadata = value["metadata"]
        found.setdefault((value["kind"], metadata.get("namespace", ""), metadata["name"]), value)
    return tuple(found.values())
