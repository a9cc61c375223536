# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Resources of a fleet by kind, and the state of the last run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from .. import api, names
from ..api.inference_gateway import CONTROL_CLUSTER_GATEWAY
from ..problem import Ref
from ..scheduling import adapters
from ..wire import Object

Own = TypeVar("Own", bound=api.Resource)

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped kinds) and name."""
Earlier = Callable[[Ref], Sequence[tuple[str, Object]]]
"""Function that returns the objects that earlier runs composed for a resource.

Each object has its inference cluster, or "" for the control cluster."""


def nothing_earlier(ref: Ref) -> Sequence[tuple[str, Object]]:
    """Return no earlier objects."""
    del ref
    return ()


@dataclass
class Fleet:
    """Resources by kind, and the state of the last run.

    `replicas`, `endpoints`: the existing ModelReplicas and composed ModelEndpoints.
    `manual`: hand-written ModelReplicas.
    `manual_before`: hand-written ModelReplicas of the last run.
    `external`: hand-written ModelEndpoints.
    `held`: resources with invalid manifests. The objects composed for them remain.
    `held_models`: the Model gateways among these resources.
    """

    deployments: dict[Key, api.ModelDeployment] = field(default_factory=dict)
    clusters: dict[str, api.InferenceCluster] = field(default_factory=dict)
    classes: dict[str, api.InferenceClass] = field(default_factory=dict)
    caches: dict[Key, api.ModelCache] = field(default_factory=dict)
    services: dict[Key, api.ModelService] = field(default_factory=dict)
    gateways: dict[str, api.InferenceGateway] = field(default_factory=dict)
    policies: dict[Key, api.CallerPolicy] = field(default_factory=dict)
    external: dict[Key, api.ModelEndpoint] = field(default_factory=dict)
    replicas: dict[Key, api.ModelReplica] = field(default_factory=dict)
    manual: dict[Key, api.ModelReplica] = field(default_factory=dict)
    manual_before: dict[Key, api.ModelReplica] = field(default_factory=dict)
    endpoints: dict[Key, api.ModelEndpoint] = field(default_factory=dict)
    held: frozenset[Ref] = frozenset()
    held_models: frozenset[str] = frozenset()

    @property
    def path_gateway(self) -> api.InferenceGateway | None:
        """Path-based gateway of the control cluster; None without a gateway of this name on the control cluster."""
        gateway = self.gateways.get(CONTROL_CLUSTER_GATEWAY)
        return gateway if gateway and gateway.is_of_control_cluster else None

    @property
    def serves_paths(self) -> bool:
        """Return True if services have paths on the control cluster: with a path-based gateway or no Model gateway.

        The paths exist before any gateway does, and remain while the manifest of the gateway has errors.
        """
        return self.has_path_gateway or not self.has_model_gateways

    @property
    def has_path_gateway(self) -> bool:
        """Return True if the control cluster has a gateway, including a gateway with manifest errors."""
        ref = Ref(api.InferenceGateway.KIND, "", CONTROL_CLUSTER_GATEWAY)
        return (ref in self.held and ref.name not in self.held_models) or self.path_gateway is not None

    @property
    def has_model_gateways(self) -> bool:
        """Return True if the fleet has Model gateways, including gateways with manifest errors."""
        return bool(self.model_gateways or self.held_models)

    @property
    def model_gateways(self) -> list[api.InferenceGateway]:
        """Return the Model gateways by name."""
        return [gateway for __, gateway in sorted(self.gateways.items()) if gateway.mode == "Model"]


def build_fleet(
    resources: Iterable[api.Resource],
    existing: Iterable[api.Resource],
    held_refs: Iterable[Ref] = (),
    earlier: Earlier = nothing_earlier,
) -> Fleet:
    """Return the fleet of these resources.

    A gateway with an invalid manifest is a Model gateway if earlier runs composed objects of it for an inference
    cluster. All objects of a path-based gateway are on the control cluster.

    `existing`: the ModelReplicas and ModelEndpoints of the last run.
    `earlier`: a function that returns the objects of earlier runs.
    """
    fleet = _last_run(existing, frozenset(held_refs))
    gateways = (ref for ref in fleet.held if ref.kind == api.InferenceGateway.KIND)
    fleet.held_models = frozenset(ref.name for ref in gateways if any(cluster for cluster, __ in earlier(ref)))
    exported: list[api.ModelReplica] = []
    for resource in resources:
        key = (resource.namespace, resource.name)
        if _add_written(fleet, key, resource):
            continue
        if isinstance(resource, api.ModelEndpoint):
            _add_endpoint(fleet, key, resource)
        elif isinstance(resource, api.ModelReplica):
            if names.DEPLOYMENT_LABEL not in resource.labels:
                fleet.manual[key] = _filled(resource)
            else:
                exported.append(resource)
    _add_exported(fleet, exported)
    return fleet


def _add_exported(fleet: Fleet, replicas: Sequence[api.ModelReplica]) -> None:
    """Add the state of an exported fleet, for a fleet that has no state yet."""
    if replicas:
        identities = {_identity(replica) for replica in fleet.replicas.values()}
        for replica in replicas:
            if _identity(replica) not in identities:
                fleet.replicas.setdefault((replica.namespace, replica.name), _filled(replica))


def _add_written(fleet: Fleet, key: Key, resource: api.Resource) -> bool:
    """Add a resource of a kind that only users write; return False for other kinds."""
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
    elif isinstance(resource, api.CallerPolicy):
        fleet.policies[key] = resource
    else:
        return False
    return True


def _last_run(existing: Iterable[api.Resource], held_refs: frozenset[Ref]) -> Fleet:
    """Return the state of the last run.

    Hand-written replicas have manifests, so `manual` contains only the replicas that are frozen.
    """
    fleet = Fleet(held=held_refs)
    for resource in existing:
        key = (resource.namespace, resource.name)
        if isinstance(resource, api.ModelEndpoint):
            fleet.endpoints[key] = resource
        elif isinstance(resource, api.ModelReplica) and names.DEPLOYMENT_LABEL in resource.labels:
            fleet.replicas[key] = resource
        elif isinstance(resource, api.ModelReplica):
            fleet.manual_before[key] = resource
            if resource.ref in held_refs:
                fleet.manual[key] = resource
    return fleet


def _add_endpoint(fleet: Fleet, key: Key, resource: api.ModelEndpoint) -> None:
    """Add a ModelEndpoint. If it was exported with its replica, it is state. Otherwise, it is hand-written."""
    if resource.labels.get(names.MANAGED_BY_LABEL) != names.MANAGED_BY:
        fleet.external[key] = resource
    elif key not in fleet.endpoints:
        fleet.endpoints[key] = _filled(resource)


def _filled(resource: Own) -> Own:
    """Return a resource without its status."""
    return resource.model_copy(update={"status": None})


def written(resource: api.Resource) -> Object:
    """Return the object to apply for a ModelReplica, ModelEndpoint or ModelRoute, with all defaults of the API."""
    return api.wire(resource)


def _identity(resource: api.ModelReplica) -> tuple[str, str, str, int]:
    replica = adapters.replica(resource)
    return replica.namespace, replica.deployment, replica.cluster, replica.index
