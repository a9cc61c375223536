# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The resources of a fleet by kind, and what earlier runs left of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling import adapters

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace (empty for cluster-scoped kinds) and name."""
Earlier = Callable[[Ref], Sequence[tuple[str, Object]]]
"""What earlier runs composed of a resource: each object with its workload cluster, or "" for the control cluster."""


def nothing_earlier(ref: Ref) -> Sequence[tuple[str, Object]]:
    """A fleet of which there are no earlier objects."""
    del ref
    return ()


@dataclass
class Fleet:
    """The resources by kind, and what the last run left.

    `replicas` and `endpoints` are the ModelReplicas and composed ModelEndpoints that exist, `manual` hand-written
    ModelReplicas, `manual_before` what those were in the last run, `external` hand-written ModelEndpoints. `held` are
    resources whose manifests cannot be used: what was made of them stays.
    """

    deployments: dict[Key, api.ModelDeployment] = field(default_factory=dict)
    clusters: dict[str, api.InferenceCluster] = field(default_factory=dict)
    classes: dict[str, api.InferenceClass] = field(default_factory=dict)
    caches: dict[Key, api.ModelCache] = field(default_factory=dict)
    services: dict[Key, api.ModelService] = field(default_factory=dict)
    gateways: dict[str, api.InferenceGateway] = field(default_factory=dict)
    external: dict[Key, Object] = field(default_factory=dict)
    replicas: dict[Key, Object] = field(default_factory=dict)
    manual: dict[Key, Object] = field(default_factory=dict)
    manual_before: dict[Key, Object] = field(default_factory=dict)
    endpoints: dict[Key, Object] = field(default_factory=dict)
    held: frozenset[Ref] = frozenset()


def sort_out(
    resources: Iterable[api.Resource], existing: Iterable[Mapping[str, Any]], held: Iterable[Ref] = ()
) -> Fleet:
    """The fleet of these resources. `existing` are the ModelReplicas and ModelEndpoints (wire form) of the last run."""
    fleet = _left_behind(existing, frozenset(held))
    identities = {_identity(wire) for wire in fleet.replicas.values()}
    for resource in resources:
        key = (resource.namespace, resource.name)
        if isinstance(resource, api.ModelDeployment):
            fleet.deployments[key] = resource
        elif isinstance(resource, api.InferenceCluster):
            fleet.clusters[resource.name] = resource
        elif isinstance(resource, api.InferenceClass):
            fleet.classes[resource.name] = resource
        elif isinstance(resource, api.ModelCache):
            fleet.caches[key] = resource
        elif isinstance(resource, api.ModelService):
            fleet.services[key] = resource
        elif isinstance(resource, api.InferenceGateway):
            fleet.gateways[resource.name] = resource
        elif isinstance(resource, api.ModelEndpoint):
            _take_endpoint(fleet, key, resource)
        elif isinstance(resource, api.ModelReplica):
            wire = _without_status(resource)
            if names.DEPLOYMENT_LABEL not in resource.labels:
                fleet.manual[key] = wire
            elif key not in fleet.replicas and _identity(wire) not in identities:
                # The state of a fleet that was exported, where this one has none yet.
                fleet.replicas[key] = wire
    return fleet


def _left_behind(existing: Iterable[Mapping[str, Any]], held: frozenset[Ref]) -> Fleet:
    """What the last run left. Of hand-written replicas, whose manifests tell, only those that are held count."""
    fleet = Fleet(held=held)
    for wire in existing:
        key = (wire["metadata"].get("namespace") or "default", wire["metadata"]["name"])
        if wire["kind"] == "ModelEndpoint":
            fleet.endpoints[key] = dict(wire)
        elif names.DEPLOYMENT_LABEL in (wire["metadata"].get("labels") or {}):
            fleet.replicas[key] = dict(wire)
        else:
            fleet.manual_before[key] = dict(wire)
            if Ref("ModelReplica", *key) in held:
                fleet.manual[key] = dict(wire)
    return fleet


def _take_endpoint(fleet: Fleet, key: Key, resource: api.ModelEndpoint) -> None:
    """A ModelEndpoint that was exported with its replica is state; any other one is written by hand."""
    if resource.labels.get(names.MANAGED_BY_LABEL) == names.MANAGED_BY:
        fleet.endpoints.setdefault(key, _without_status(resource))
    else:
        fleet.external[key] = _without_status(resource)


def _without_status(resource: api.Resource) -> Object:
    wire: Object = api.wire(resource)
    wire.pop("status", None)
    return wire


def _identity(wire: Object) -> tuple[str, str, str, int]:
    replica = adapters.replica(wire)
    return replica.namespace, replica.deployment, replica.cluster, replica.index
