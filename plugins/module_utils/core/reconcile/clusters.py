# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The clusters of the fleet: as they were seen, and what of each goes on the control cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cluster import (
    InvalidPool,
    cluster_objects,
    published_pools,
    storage_class,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.context import Situation
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.fleet import Object
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import Status
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.inference_cluster import (
    gateway_address,
    gateway_url,
    inference_cluster,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import text

KINDS = ("EKSCluster", "GKECluster", "ServingStack")


@dataclass(frozen=True)
class Site:
    """An InferenceCluster: `resource` with the status that was decided if somebody observes the cluster, `objects` on
    the control cluster. `status` is None when nobody observes the fleet."""

    resource: api.InferenceCluster
    objects: tuple[Object, ...]
    status: Status | None = None


def sites(situation: Situation) -> dict[str, Site]:
    """Every cluster whose manifest can be used, by name."""
    classes = {name: api.wire(resource) for name, resource in situation.fleet.classes.items()}
    return {name: _site(situation, resource, classes) for name, resource in sorted(situation.fleet.clusters.items())}


def held_objects(situation: Situation) -> list[Object]:
    """What earlier runs composed on the control cluster of clusters whose manifests have errors now."""
    held = sorted(ref for ref in situation.fleet.held if ref.kind == "InferenceCluster")
    return [value for ref in held for value in situation.kept(ref, "", KINDS)]


def _site(situation: Situation, resource: api.InferenceCluster, classes: Mapping[str, Object]) -> Site:
    wire = api.wire(resource)
    missing = sorted({pool.class_name for pool in resource.spec.node_pools or ()} - set(classes))
    invalid = ""
    objects: tuple[Object, ...] = ()
    if not missing:
        try:
            objects = cluster_objects(wire, classes)
        except InvalidPool as error:
            invalid = str(error)
    if missing or invalid:
        # The absence of an input is no order to take a cluster away.
        objects = tuple(situation.kept(resource.ref, "", KINDS))
    if situation.observed is None:
        return Site(resource, objects)
    return _observed(situation, resource, objects, missing, invalid, classes)


def _observed(
    situation: Situation,
    resource: api.InferenceCluster,
    objects: tuple[Object, ...],
    missing: list[str],
    invalid: str,
    classes: Mapping[str, Object],
) -> Site:
    wire = api.wire(resource)
    seen = situation.seen(resource.name)
    is_declared = situation.declared(resource.name)
    previous = situation.statuses.get(resource.ref) or wire.get("status")
    pools = None if missing else published_pools(wire, classes, seen.nodes if seen else None)
    if is_declared:
        # As in the manifest, which is all that counts: the scheduler reads it.
        written = wire.get("status") or {}
        pools = written.get("gpuPools") or pools
        address, url = text(written, "gateway", "address"), text(written, "gateway", "url")
        if not address:
            address, url = situation.declared_gateway(resource.name)
    else:
        address = gateway_address(previous, seen, resource.name)
        url = gateway_url(previous, seen)
    status = inference_cluster(
        wire,
        missing_classes=missing,
        invalid_pool=invalid,
        pools=pools,
        seen=seen,
        storage_class=storage_class(wire),
        gateway_address=address,
        gateway_url=url,
        previous=previous,
        is_declared=is_declared,
    )
    if is_declared:
        return Site(resource, objects, status)
    parsed = api.parse({**wire, "status": status.wire(previous)})
    return Site(cast(api.InferenceCluster, parsed), objects, status)
