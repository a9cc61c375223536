# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Nodes for placed replicas in node pools that can be empty, if the autoscaler does not start a first node."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from .. import api
from ..cloud import registry
from ..cloud.cloud import Cloud
from ..cloud.pool_size import NodesNeeded
from ..cloud.pools import emptiable
from ..compose.constants import SYSTEM_NAMESPACE
from ..devices.quantity import MAX_INT64
from ..scheduling.fitting import FleetCapacity
from ..scheduling.model import Options, Pool, pools_of
from ..wire import identity
from . import Plan
from .clusters import Platform, unusable_nodes
from .rollout import stranded

# The plan evaluated the same selectors, within the budget that users set.
_OPTIONS = Options(selector_budget=MAX_INT64)


@dataclass(frozen=True)
class _Provisioned:
    """Cluster in a cloud: its login options, and its node pools that may be empty."""

    cloud: Cloud
    login: Mapping[str, str]
    pools: frozenset[str]


def nodes_needed(plan: Plan, resources: Iterable[api.Resource]) -> tuple[NodesNeeded, ...]:
    """Return the nodes needed per node pool, sorted by cluster and pool.

    The result contains each pool that can be empty, has devices to claim, and has an autoscaler that does not start a
    first node. A cluster with unknown pools needs no nodes, because its workloads are unknown too. Pods that share
    nodes are packed, regardless of the accounting of the plan.

    `resources`: the resources of the fleet. Only its cloud clusters are read.
    """
    known_clusters = {cluster.name: cluster for cluster in plan.clusters if not cluster.unknown}
    direct = {
        resource.name: resource
        for resource in resources
        if isinstance(resource, api.CloudCluster) and resource.namespace == SYSTEM_NAMESPACE
    }
    provisioned_pools = {
        name: _provisioned(platform, direct.get(name)) for name, platform in sorted(plan.platforms.items())
    }
    concerned = {
        name: provisioned
        for name, provisioned in provisioned_pools.items()
        if provisioned is not None and provisioned.pools and name in known_clusters
    }
    if not concerned:
        return ()
    capacity = FleetCapacity({name: known_clusters[name] for name in concerned}, _OPTIONS)
    waiting = _charge(plan, capacity, concerned)
    return tuple(
        NodesNeeded(
            name,
            pool.name,
            provisioned.cloud.name,
            provisioned.login,
            _nodes(plan, capacity, name, pool) if (name, pool.name) in waiting else 0,
            waiting.get((name, pool.name), False),
        )
        for name, provisioned in concerned.items()
        for pool in sorted(known_clusters[name].pools, key=lambda pool: pool.name)
        if pool.name in provisioned.pools and _claimable(pool)
    )


def _nodes(plan: Plan, capacity: FleetCapacity, cluster: str, pool: Pool) -> int:
    """Return the size that a pool needs in its cloud, including nodes with unavailable devices.

    The size is at least one because a pod without claims also needs a node."""
    used = pool.open_nodes - capacity.free_nodes(cluster, pool)
    return max(1, used) + unusable_nodes(plan.context.observed_cluster(cluster), pool)


def _provisioned(platform: Platform, direct: api.CloudCluster | None) -> _Provisioned | None:
    """Return the cluster in its cloud; None if the fleet creates none, or if its autoscaler needs no help.

    The cloud cluster is composed from the InferenceCluster. For an InferenceCluster with the source Existing, it is the
    cloud cluster in the manifests.
    """
    source = platform.resource.spec.cluster
    cloud, block = registry.BY_SOURCE.get(source.source), registry.block_of(source)
    if cloud is None and direct is not None and source.source == "Existing":
        cloud, block = registry.BY_KIND[direct.kind], direct.spec
    if cloud is None or block is None or cloud.starts_first_node:
        return None
    composed = next((value for value in platform.objects if identity(value)[1] == cloud.kind), None)
    cluster = composed or (api.wire(direct) if direct is not None else None)
    if cluster is None:
        return None
    name = cloud.cluster_name(SYSTEM_NAMESPACE, platform.resource.name)
    return _Provisioned(cloud, cloud.login.of(block, name), frozenset(emptiable(cluster)))


def _charge(plan: Plan, capacity: FleetCapacity, clusters: Container[str]) -> dict[tuple[str, str], bool]:
    """Charge all replicas on these clusters, and return the pools with replicas.

    The keys are cluster and pool. A value is True if any of the replicas does not serve yet.
    """
    waiting: dict[tuple[str, str], bool] = {}
    for resource, replica in zip(plan.composed, plan.running, strict=True):
        cluster, engines = replica.cluster, replica.engines
        if cluster not in clusters:
            continue
        if not stranded(plan.context, resource):
            # The devices of a stranded replica are on nodes that accept no pods.
            capacity.charge(cluster, engines)
        state = plan.states.get((replica.namespace, replica.name))
        waits = state is None or not state.serving
        for pool in pools_of(engines):
            waiting[cluster, pool] = waiting.get((cluster, pool), False) or waits
    return waiting


def _claimable(pool: Pool) -> bool:
    return any(device.claim == "DRA" and device.count for device in pool.devices)
