# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Platforms of the fleet: each InferenceCluster with its status and its objects on the control cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .. import api
from ..api.inference_cluster import InferenceClusterStatus
from ..cloud import registry
from ..compose import constants
from ..compose.cluster import InvalidPool, cluster_objects, published_pools, storage_class
from ..observation import NO_DEVICES, NOT_READY, ObservedCluster, UnavailableNode
from ..scheduling.model import Cluster, Pool
from ..status.conditions import Status
from ..status.inference_cluster import gateway_address, gateway_url, inference_cluster
from ..text import count, some
from ..wire import Object
from .context import Context

KINDS = (*registry.KINDS, "ServingStack")


@dataclass(frozen=True)
class Platform:
    """InferenceCluster with its objects on the control cluster.

    `resource`: includes the computed status if the cluster is observed.
    `status`: None if the fleet is not observed.
    """

    resource: api.InferenceCluster
    objects: tuple[Object, ...]
    status: Status[InferenceClusterStatus] | None = None


def platforms(context: Context) -> dict[str, Platform]:
    """Return every cluster with a valid manifest, by name."""
    return {name: _platform(context, resource) for name, resource in sorted(context.fleet.clusters.items())}


def held_objects(context: Context) -> list[Object]:
    """Return the objects that earlier runs composed on the control cluster for clusters with invalid manifests."""
    held_clusters = sorted(ref for ref in context.fleet.held if ref.kind == "InferenceCluster")
    return [value for ref in held_clusters for value in context.kept(ref, "", KINDS)]


def pools_without_nodes(context: Context) -> Iterator[str]:
    """Yield a warning for each node pool of an existing cluster that has no nodes. A pool that requires no nodes has a
    warning if nodes with the label of an unknown pool exist: the pool might have been renamed."""
    for name, cluster in sorted(context.fleet.clusters.items()):
        observed = context.observed_cluster(name)
        if observed is None or observed.unreachable or cluster.spec.cluster.source != "Existing":
            continue
        pools = cluster.spec.node_pools or ()
        unknown = sorted(set(observed.nodes) - {pool.name for pool in pools})
        unknown_labels = f" Other nodes have the label {constants.POOL_LABEL}: {some(unknown)}." if unknown else ""
        for index, pool in enumerate(pools):
            label = f"{constants.POOL_LABEL}={pool.name}"
            if (pool.bounds[0] or unknown) and pool.name not in observed.nodes:
                waits = pool.is_autoscaled or observed.unavailable is None
                effect = "replicas wait until the pool has nodes" if waits else "no new replica is placed on the pool"
                yield (
                    f"InferenceCluster {name}: spec.nodePools[{index}] ({pool.name}): no node has the label {label}, "
                    f"so {effect}.{unknown_labels} Label the pool's nodes (kubectl label node NAME {label}), or "
                    "correct the pool name"
                )


def with_observed_nodes(context: Context, cluster: Cluster) -> Cluster:
    """Return a cluster limited to the devices of observed nodes and of nodes that an autoscaler or a cloud might add.

    If the run did not read the nodes, the cluster is returned unchanged.
    """
    observed = context.observed_cluster(cluster.name)
    resource = context.fleet.clusters[cluster.name]
    if observed is None or observed.unavailable is None:
        return cluster
    declared = {pool.name: pool for pool in resource.spec.node_pools or ()}
    is_provisioned = resource.spec.cluster.source != "Existing"

    def may_grow(pool: Pool) -> bool:
        limits = declared.get(pool.name)
        return is_provisioned or (limits is not None and limits.is_autoscaled)

    return replace(
        cluster,
        pools=tuple(_with_observed_nodes(pool, observed, may_grow=may_grow(pool)) for pool in cluster.pools),
    )


def _with_observed_nodes(pool: Pool, observed: ObservedCluster, *, may_grow: bool) -> Pool:
    unavailable = observed.unavailable_in(pool.name)
    existing = observed.existing(pool.name)
    nodes = pool.nodes if may_grow else min(existing, pool.nodes)
    shortfall = [] if nodes == pool.nodes else [f"{existing} of {count(pool.nodes, 'declared node')} exist"]
    if unavailable:
        shortfall.append(f"{len(unavailable)} of {count(existing, 'node')} unavailable: {some(map(str, unavailable))}")
    vectors = sorted((_unavailable_devices(pool, node) for node in unavailable), key=sum)
    # Existing nodes above the declared number replace unavailable nodes.
    counted = len(vectors) - max(0, existing - pool.nodes)
    return replace(
        pool,
        nodes=nodes,
        unavailable=tuple(vectors[: max(0, counted)]),
        arriving=max(0, nodes - existing) + sum(_is_starting(node) for node in unavailable) if may_grow else 0,
        missing=pool.nodes - nodes,
        shortfall="; ".join(shortfall),
    )


def unusable_nodes(observed: ObservedCluster | None, pool: Pool) -> int:
    """Return the number of nodes in a pool without an available device, excluding nodes that might be new."""
    starting = sum(
        _is_starting(node) and _unavailable_devices(pool, node) == pool.claimable
        for node in (observed.unavailable_in(pool.name) if observed else ())
    )
    return max(0, pool.closed_nodes - starting)


def _unavailable_devices(pool: Pool, node: UnavailableNode) -> tuple[int, ...]:
    return tuple(node.devices.get(device.name, 0) for device in pool.devices)


def _is_starting(node: UnavailableNode) -> bool:
    """Return True if a node might be new: it is not Ready, or a driver has not published its devices."""
    return node.reason == NOT_READY or node.reason.startswith(NO_DEVICES)


def _platform(context: Context, resource: api.InferenceCluster) -> Platform:
    classes = context.fleet.classes
    missing = sorted({pool.class_name for pool in resource.spec.node_pools or ()} - set(classes))
    invalid = ""
    objects: tuple[Object, ...] = ()
    if not missing:
        try:
            objects = cluster_objects(resource, classes)
        except InvalidPool as error:
            invalid = str(error)
    if missing or invalid:
        # A missing class must not remove a cluster.
        objects = tuple(context.kept(resource.ref, "", KINDS))
    if context.observed is None:
        return Platform(resource, objects)
    return _observed(context, resource, objects, missing, invalid)


def _observed(
    context: Context, resource: api.InferenceCluster, objects: tuple[Object, ...], missing: list[str], invalid: str
) -> Platform:
    observed = context.observed_cluster(resource.name)
    is_declared = context.declared(resource.name)
    manifest_status = resource.status
    recorded = context.statuses.get(resource.ref)
    previous = recorded or (api.wire(manifest_status) if manifest_status else None)
    pools = None
    if not missing:
        pools = published_pools(resource, context.fleet.classes, observed.nodes if observed else None)
    if is_declared:
        # The status in the manifest takes precedence: the scheduler reads it.
        pools = (manifest_status.gpu_pools if manifest_status else None) or pools
        gateway = manifest_status.gateway if manifest_status else None
        address, url = (gateway.address or "", gateway.url or "") if gateway else ("", "")
        if not address:
            address, url = context.declared_gateway(resource.name)
    else:
        address = gateway_address(previous, observed, resource.name)
        url = gateway_url(previous, observed)
    status = inference_cluster(
        resource,
        missing_classes=missing,
        invalid_pool=invalid,
        pools=pools,
        observed=observed,
        storage_class=storage_class(resource),
        gateway_address=address,
        gateway_url=url,
        previous=previous,
        is_declared=is_declared,
    )
    if is_declared:
        return Platform(resource, objects, status)
    decided = InferenceClusterStatus.model_validate(status.wire(previous))
    return Platform(resource.model_copy(update={"status": decided}), objects, status)
