# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conversion of API resources to the input of the scheduler."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from .. import api, names
from ..api import model_replica
from ..api.inference_cluster import NodePool
from ..api.model_deployment import ServedModel
from ..cloud import registry
from ..devices.device import Device
from ..pricing import PriceBook, purchase_option
from .fabric import FABRIC_DRIVER, fabrics_of
from .image_needs import image_need
from .memory import engine_memory
from .model import (
    Cluster,
    Constraint,
    CostLimits,
    Deployment,
    Engine,
    Fabric,
    Member,
    MemoryNeed,
    Minimum,
    PlacedEngine,
    PlacedMember,
    PlannedNodes,
    Pool,
    Replica,
    Request,
    Spread,
    Taint,
    Toleration,
)

# Any number of pods share the fabric of a node. A request that was copied from a request for network cards might need
# several devices. Therefore, the device of a fabric counts as the maximum that a request can have.
FABRIC_COUNT = 64


class DeviceCatalogue:
    """Device lists as tuples. Equal lists are the same object, so callers can cache results by `id()`."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Device, ...]] = {}
        # Keys are results of id(). The tuples exist as long as this object, so the keys remain unique.
        self._fabrics: dict[int, tuple[Fabric, ...]] = {}

    def devices(self, wire: list[dict[str, Any]]) -> tuple[Device, ...]:
        """Return the devices of a list in wire form.

        wire: value of `InferenceClass.spec.devices` or `InferenceCluster.status.gpuPools[].devices`.
        """
        key = json.dumps(wire, sort_keys=True)
        if key not in self._known:
            self._known[key] = tuple(Device.from_wire(device) for device in wire)
        return self._known[key]

    def fabrics(self, devices: tuple[Device, ...]) -> tuple[Fabric, ...]:
        """Return the named fabrics of nodes with these devices. `devices` must be a result of the method `devices`."""
        key = id(devices)
        if key not in self._fabrics:
            self._fabrics[key] = fabrics_of(devices)
        return self._fabrics[key]


def fabric_of(pool: Any) -> tuple[str, str] | None:
    """Return the type and the name of the fabric of a pool, None without a fabric. The name is empty if the fabric has
    no name.

    `pool` is an entry of `InferenceCluster.spec.nodePools` or `status.gpuPools`, as a model or in wire form.
    `infiniband.fabric` counts as the name.
    """
    fabric = pool.get("fabric") if isinstance(pool, Mapping) else pool.fabric
    if fabric is None:
        return None
    wire = fabric if isinstance(fabric, Mapping) else api.wire(fabric)
    kind = wire.get("type") or "None"
    if kind == "None":
        return None
    return kind, wire.get("name") or (wire.get("infiniband") or {}).get("fabric") or ""


def fabric_device(pool: Any, device_names: Iterable[str] = ()) -> dict[str, Any] | None:
    """Return the Synthetic device (wire form) that publishes the fabric of a pool to selectors, None without a fabric.

    `device_names`: names of the other devices of the pool. The name of the device is `fabric`, or `fabric-2` and so on
    if a device has this name.
    """
    fabric = fabric_of(pool)
    if fabric is None:
        return None
    kind, name = fabric
    used_names = set(device_names)
    numbered = (f"fabric-{number}" for number in range(2, len(used_names) + 3))
    attributes = {"type": {"string": kind}}
    if name:
        attributes["name"] = {"string": name}
    return {
        "name": next(free for free in ("fabric", *numbered) if free not in used_names),
        "claim": "Synthetic",
        "driver": FABRIC_DRIVER,
        "count": FABRIC_COUNT,
        "attributes": attributes,
    }


def deployment(
    resource: api.ModelDeployment, caches: Mapping[tuple[str, str], api.ModelCache], currency: str = ""
) -> Deployment:
    """Return the scheduler's deployment for a valid ModelDeployment.

    The selector of the mounted cache restricts the clusters further. If both selectors have a label, the value of the
    cache applies, because its clusters have the weights. Without the cache the scheduler places no new replicas, and
    running replicas remain.

    caches: all caches by (namespace, name).
    currency: currency of prices, empty without prices.
    """
    spec = resource.spec.template.spec
    preferences = resource.spec.cluster_preferences
    selector = dict(spec.cluster_selector.match_labels or {}) if spec.cluster_selector else {}
    hold = ""
    if spec.model_cache_ref:
        cache = caches.get((resource.namespace, spec.model_cache_ref.name))
        if cache is None:
            hold = f"ModelCache {spec.model_cache_ref.name} not found; holding replica placement"
        elif cache.spec.cluster_selector:
            selector.update(cache.spec.cluster_selector.match_labels or {})
    return Deployment(
        namespace=resource.namespace,
        name=resource.name,
        replicas=resource.spec.replicas,
        engines=tuple(_engine(engine, spec.model) for engine in spec.engines),
        cluster_selector=selector,
        tolerations=tuple(
            Toleration(entry.key or "", entry.operator, entry.value or "", entry.effect or "")
            for entry in spec.tolerations or ()
        ),
        priority=priority(resource.annotations),
        created=str(resource.metadata.creation_timestamp or ""),
        hold=hold,
        spread=tuple(
            Spread(entry.topology_key, entry.max_skew, entry.when_unsatisfiable == "DoNotSchedule")
            for entry in resource.spec.spread or ()
        ),
        minimum=tuple(Minimum(entry.replicas, entry.topology_key or "") for entry in resource.spec.min_available or ()),
        preferences=tuple(term.match_labels for term in preferences.terms) if preferences else (),
        returns=preferences.return_ if preferences else False,
        preempts=resource.spec.preemption == "LowerPriority",
        cost=_cost(resource, currency),
    )


def _cost(resource: api.ModelDeployment, currency: str) -> CostLimits | None:
    cost = resource.spec.cost
    if cost is None:
        return None
    invalid = ""
    if cost.currency and currency and cost.currency != currency:
        invalid = f"spec.cost.currency is {cost.currency}, and the prices of the fleet are in {currency}"
    return CostLimits(
        ceiling=Decimal(cost.ceiling_per_hour) if cost.ceiling_per_hour else None,
        currency=cost.currency or currency,
        invalid=invalid,
        most_spot=cost.spot.max if cost.spot else None,
        least_on_demand=cost.spot.min_on_demand if cost.spot else 0,
    )


def priority(annotations: Mapping[str, str]) -> int:
    """Return the number in the priority annotation, 0 if the annotation is missing or invalid."""
    value = annotations.get(names.PRIORITY_ANNOTATION, "0")
    return int(value) if is_priority(value) else 0


def is_priority(value: str) -> bool:
    """Return True if a text is a whole number of up to 18 digits."""
    return bool(re.fullmatch(r"[+-]?[0-9]{1,18}", value.strip()))


def _engine(engine: Any, model: ServedModel | None) -> Engine:
    memory = engine_memory(model, engine) if model else None
    return Engine(
        engine.name, tuple(_member(member, memory) for member in engine.members), engine.copies, engine.phase or ""
    )


def _member(member: Any, memory: MemoryNeed | None) -> Member:
    requests = member.node_selector.devices if member.node_selector else ()
    image = image_need(member.template.spec.containers[0].image)
    return Member(
        role=member.role,
        pods=member.worker.nodes if member.worker else 1,
        requests=tuple(
            Request(
                request.name,
                request.count,
                tuple(entry.cel for entry in request.selectors if entry.cel),
                memory,
                image,
            )
            for request in requests
        ),
        constraints=tuple(
            Constraint(entry.match_attribute, tuple(entry.requests or ()))
            for entry in (member.node_selector.constraints if member.node_selector else None) or ()
        ),
    )


def cluster(
    resource: api.InferenceCluster,
    classes: Mapping[str, api.InferenceClass],
    catalogue: DeviceCatalogue,
    *,
    assumed_gateway: Callable[[str], tuple[str, str]] | None = None,
    prices: PriceBook | None = None,
) -> Cluster:
    """Return the scheduler's cluster for a valid InferenceCluster.

    The capacity is the published capacity. Without published capacity it is the declared capacity of pools and classes.

    assumed_gateway: function that returns the gateway (address, and URL or "") for the name of an unobserved cluster.
        The cluster counts as ready unless its status reports otherwise. If unset, only the status counts.
    """
    status = resource.status
    gateway = status.gateway if status else None
    address, url = (gateway.address or "", gateway.url or "") if gateway else ("", "")
    ready = _ready(resource)
    not_ready = ready or ""
    if assumed_gateway:
        address, url = (address, url) if address else assumed_gateway(resource.name)
    elif ready is None:
        not_ready = "is not Ready"
    unknown = ""
    if status and status.gpu_pools is not None:
        pool_classes = {pool.name: classes.get(pool.class_name) for pool in resource.spec.node_pools or ()}
        pools = tuple(
            _published_pool(pool, catalogue, architecture(resource, pool_classes.get(pool.name)))
            for pool in status.gpu_pools
        )
    else:
        unknown = _unknown(resource, classes, catalogue)
        pools = tuple(
            _declared_pool(resource, pool, classes[pool.class_name], catalogue)
            for pool in resource.spec.node_pools or ()
            if not unknown
        )
    return Cluster(
        name=resource.name,
        pools=_with_drivers(_priced(pools, resource, prices), resource),
        labels=dict(resource.labels),
        taints=tuple(Taint(taint.key, taint.effect, taint.value or "") for taint in resource.spec.taints or ()),
        gateway_address=address,
        gateway_url=url,
        not_ready=not_ready,
        unknown=unknown,
    )


def _priced(pools: tuple[Pool, ...], resource: api.InferenceCluster, prices: PriceBook | None) -> tuple[Pool, ...]:
    """Return pools with the prices and purchase options of their nodes."""
    declared = {pool.name: pool for pool in resource.spec.node_pools or ()}

    def priced(pool: Pool) -> Pool:
        if pool.name not in declared:
            return pool
        price = prices.node_price(resource, declared[pool.name]) if prices and prices.currency else None
        spot = purchase_option(resource, declared[pool.name]) == "Spot"
        return replace(pool, price=price.per_hour if price else None, spot=spot) if price or spot else pool

    return tuple(map(priced, pools))


def _with_drivers(pools: tuple[Pool, ...], resource: api.InferenceCluster) -> tuple[Pool, ...]:
    """Return pools with the reasons why their GPU drivers might be old."""
    cloud = registry.BY_SOURCE.get(resource.spec.cluster.source)
    old = {pool.name: cloud.old_driver(pool) for pool in resource.spec.node_pools or ()} if cloud else {}
    return tuple(replace(pool, old_driver=old[pool.name]) if old.get(pool.name) else pool for pool in pools)


def architecture(resource: api.InferenceCluster, inference_class: api.InferenceClass | None) -> str:
    """Return the architecture of the nodes of a class on a cluster, a value of kubernetes.io/arch. Empty if unknown."""
    provisioning = inference_class.spec.provisioning if inference_class else None
    source = resource.spec.cluster.source
    cloud = registry.BY_SOURCE.get(source) or registry.BY_SOURCE.get(provisioning.provider if provisioning else "")
    block = getattr(provisioning, cloud.name) if cloud and provisioning else None
    return cloud.architecture(cloud.machine(block)) if cloud and block else ""


def _with_architecture(devices: list[dict[str, Any]], node_architecture: str) -> list[dict[str, Any]]:
    """Return devices (wire form) with the architecture of their node."""
    return [{**device, "architecture": node_architecture} for device in devices] if node_architecture else devices


def _published_pool(pool: Any, catalogue: DeviceCatalogue, node_architecture: str) -> Pool:
    """Return a pool of `status.gpuPools`. Its fabric counts even if none of its devices publishes the fabric."""
    wire = [api.wire(device) for device in pool.devices or ()]
    devices = catalogue.devices(_with_architecture(wire, node_architecture))
    fabrics = catalogue.fabrics(devices)
    fabric = fabric_of(pool)
    if fabric and fabric[1] and Fabric(*fabric) not in fabrics:
        fabrics = tuple(sorted((*fabrics, Fabric(*fabric))))
    return Pool(pool.name, max(pool.nodes or 0, 0), devices, fabrics)


def _declared_pool(
    resource: api.InferenceCluster, pool: Any, inference_class: api.InferenceClass, catalogue: DeviceCatalogue
) -> Pool:
    """Return a pool of `spec.nodePools`, with its fabric among the devices of its class."""
    wire = [api.wire(device) for device in inference_class.spec.devices]
    fabric = fabric_device(pool, (device["name"] for device in wire))
    node_architecture = architecture(resource, inference_class)
    devices = catalogue.devices(_with_architecture([*wire, fabric] if fabric else wire, node_architecture))
    return Pool(pool.name, capacity(resource, pool), devices, catalogue.fabrics(devices))


def _class_devices(inference_class: api.InferenceClass, catalogue: DeviceCatalogue) -> tuple[Device, ...]:
    return catalogue.devices([api.wire(device) for device in inference_class.spec.devices])


def _unknown(
    resource: api.InferenceCluster, classes: Mapping[str, api.InferenceClass], catalogue: DeviceCatalogue
) -> str:
    """Return the reason why the pools are unknown, empty if they are known.

    An invalid device must not count as a device that no longer fits.
    """
    for pool in resource.spec.node_pools or ():
        inference_class = classes.get(pool.class_name)
        if inference_class is None:
            return f"InferenceClass {pool.class_name} of pool {pool.name} does not exist or has errors"
        for device in _class_devices(inference_class, catalogue):
            if device.invalid:
                return f"InferenceClass {pool.class_name}, device {device.name}: {device.invalid}"
    return ""


def capacity(resource: api.InferenceCluster, pool: NodePool) -> int:
    """Return the maximum number of nodes of a pool: its limit if it is autoscaled, otherwise its size. Some clouds
    count both per zone."""
    __, maximum = node_bounds(resource, pool)
    return maximum


def node_bounds(resource: api.InferenceCluster, pool: NodePool) -> tuple[int, int]:
    """Return the minimum and the maximum number of nodes of a pool in all its zones."""
    minimum, maximum = pool.bounds
    cloud = registry.BY_SOURCE.get(resource.spec.cluster.source)
    zones = max(len(set(pool.zones or ())) if cloud and cloud.per_zone else 1, 1)
    return minimum * zones, maximum * zones


def _ready(resource: api.InferenceCluster) -> str | None:
    """Return "" if the Ready condition is True, the reason if it is not True, None without a Ready condition."""
    for condition in (resource.status.conditions if resource.status else None) or ():
        if condition.type == "Ready":
            if condition.status == "True":
                return ""
            return f"is not Ready ({condition.reason or condition.status})"
    return None


def replica(resource: api.ModelReplica) -> Replica:
    """Return the scheduler's replica for an existing ModelReplica. A missing or malformed index label counts as 0."""
    index = resource.labels.get(names.REPLICA_INDEX_LABEL, "")
    return Replica(
        name=resource.name,
        namespace=resource.namespace,
        deployment=resource.labels.get(names.DEPLOYMENT_LABEL) or "",
        cluster=resource.spec.cluster_name,
        index=int(index) if index.isascii() and index.isdigit() and len(index) < 10 else 0,
        engines=tuple(
            PlacedEngine(engine.name, tuple(_placed_member(member) for member in engine.members), engine.copies)
            for engine in resource.spec.engines
        ),
        preempted_by=resource.annotations.get(names.PREEMPTED_ANNOTATION, ""),
    )


def _planned_nodes(planned: model_replica.PlannedNodes | None) -> PlannedNodes | None:
    return PlannedNodes(tuple(planned.numbers or ()), planned.sharing) if planned else None


def _placed_member(member: model_replica.PlacedMember) -> PlacedMember:
    shares: dict[str, int] = {}
    for share in member.node_pools or ():
        shares[share.name] = shares.get(share.name, 0) + share.pods
    spread = len(shares) > 1
    return PlacedMember(
        role=member.role,
        pool=next(iter(shares)) if spread else member.node_pool_name,
        device_requests=tuple(api.wire(request, set_only=True) for request in member.device_requests or ()),
        pods=member.worker.nodes if member.worker else 1,
        shares=tuple(shares.items()) if spread else (),
        device_constraints=tuple(api.wire(constraint) for constraint in member.device_constraints or ()),
        planned_nodes=_planned_nodes(member.planned_nodes),
    )
