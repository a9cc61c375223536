# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Fast networks between pools, and the assignment of pools to networks by the published devices of their nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..devices.device import Device
from .model import Cluster, Deployment, Fabric, Placement, Pool, Refusal, pools_of

# Driver of the Synthetic device that publishes the fabric of the manifest of a pool.
FABRIC_DRIVER = "fabric.modelplane.ai"


def published(device: Device) -> Fabric | None:
    """Return the fabric that a Synthetic device publishes, None for all other devices.

    Devices that are created from the `fabric` of a pool have the attributes `type` and `name`. Devices of an
    InferenceClass have the string attribute `fabric`, and their driver and this value identify the fabric.
    """
    if device.claim != "Synthetic" or device.invalid:
        return None
    if device.driver == FABRIC_DRIVER:
        kind = device.attributes.get(f"{FABRIC_DRIVER}/type")
        name = device.attributes.get(f"{FABRIC_DRIVER}/name")
        return Fabric(kind, name if isinstance(name, str) else "") if isinstance(kind, str) and kind else None
    value = device.attributes.get(f"{device.driver}/fabric")
    return Fabric(device.driver, value) if isinstance(value, str) and value else None


def fabrics_of(devices: Iterable[Device]) -> tuple[Fabric, ...]:
    """Return the named fabrics of nodes with these devices, sorted."""
    fabrics = {fabric for device in devices if (fabric := published(device))}
    return tuple(sorted(fabric for fabric in fabrics if fabric.name))


def shared_fabrics(cluster: Cluster) -> dict[Fabric, tuple[Pool, ...]]:
    """Return the fabrics that several pools of a cluster share, with these pools in the order of the cluster."""
    pools: dict[Fabric, list[Pool]] = {}
    for pool in cluster.pools:
        for fabric in pool.fabrics:
            pools.setdefault(fabric, []).append(pool)
    return {fabric: tuple(fabric_pools) for fabric, fabric_pools in sorted(pools.items()) if len(fabric_pools) > 1}


def pair_warnings(
    deployments: Iterable[Deployment], clusters: Iterable[Cluster], placements: Iterable[Placement]
) -> tuple[Refusal, ...]:
    """Return warnings about replicas that transfer the KV cache over the network of the cluster.

    The node pools of their Prefill and Decode engines have fabrics, but no fabric in common. Fabrics without a name are
    not shared.
    """
    phases = {
        (deployment.namespace, deployment.name): {engine.name: engine.phase for engine in deployment.engines}
        for deployment in deployments
    }
    pools = {(cluster.name, pool.name): pool for cluster in clusters for pool in cluster.pools}
    clusters_by_reason: dict[str, set[str]] = {}
    for placement in placements:
        by_phase = phases.get((placement.namespace, placement.deployment), {})
        halves = [
            pools_of(engine for engine in placement.engines if by_phase.get(engine.name) == phase)
            for phase in ("Prefill", "Decode")
        ]
        fabrics = {
            name: {fabric for device in pools[placement.cluster, name].devices if (fabric := published(device))}
            for name in frozenset().union(*halves)
            if (placement.cluster, name) in pools
        }
        is_fast = all(any(fabrics.get(name) for name in half) for half in halves)
        if is_fast and len(fabrics) > 1 and not any(fabric.name for fabric in set.intersection(*fabrics.values())):
            names = " and ".join(", ".join(sorted(half)) for half in halves)
            reason = (
                f"ModelDeployment {placement.namespace}/{placement.deployment}: the Prefill and Decode engines of a "
                f"replica are on node pools {names}, which share no fabric, so they transfer the KV cache over the "
                "network of the cluster. Select node pools of one fabric in both engines (nodeSelector), or set the "
                "same fabric.name on pools that share one"
            )
            clusters_by_reason.setdefault(reason, set()).add(placement.cluster)
    return tuple(Refusal(reason, "", tuple(sorted(names))) for reason, names in sorted(clusters_by_reason.items()))


class FabricViews:
    """Devices of a node for gangs that communicate over one fabric.

    A member that requests a fabric means the fabric between its pods. Therefore, the devices of other fabrics have a
    count of 0. They keep their position because charges count devices by position.
    """

    def __init__(self) -> None:
        self._views: dict[tuple[int, Fabric], tuple[Device, ...]] = {}
        # References to the tuples with the id() of a key. Without them another object could have the same id().
        self._alive: dict[int, tuple[Device, ...]] = {}

    def on(self, fabric: Fabric, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        """Return the devices, with a count of 0 for devices of other fabrics. Equal arguments return the same tuple.

        The tuple is `devices` if it has no devices of other fabrics.
        """
        key = (id(devices), fabric)
        view = self._views.get(key)
        if view is None:
            self._alive[id(devices)] = devices
            hidden_flags = [published(device) not in (None, fabric) for device in devices]
            view = devices
            if any(hidden_flags):
                view = tuple(
                    replace(device, count=0) if is_hidden else device
                    for device, is_hidden in zip(devices, hidden_flags, strict=True)
                )
            self._views[key] = view
        return view
