# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The status of an InferenceCluster: its readiness, its pools, and the address of its gateway."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.cloud import CacheStatus
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.inference_cluster import (
    GatewayStatus,
    GPUPool,
    InferenceClusterStatus,
    ProviderConfigRef,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants, endpoint
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Component, ObservedCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import (
    DECLARED,
    Condition,
    Status,
    declared,
    earlier,
    hold,
    ready,
    truth,
    unknown,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import cut
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import (
    Object,
    entries,
    first_address,
    number,
    text,
)

_CLUSTER = "ClusterReady"
_BACKEND = "BackendReady"


def assumed_address(cluster: str) -> str:
    """Return the gateway address of a cluster that is not observed. It names the cluster and resolves nowhere (RFC 9476
    keeps `.internal` for private use), until DNS or the status of the InferenceCluster gives it a real one."""
    return f"{cluster}.fleet.internal"


def was_observed(previous: Mapping[str, Any] | None) -> bool:
    """Return True when an InferenceCluster with this status was observed once, so that something is known of it."""
    return any(
        entry.get("status") in ("True", "False") and entry.get("reason") != DECLARED
        for entry in entries(previous, "conditions")
        if entry.get("type") == _BACKEND
    )


def gateway_address(previous: Mapping[str, Any] | None, seen: ObservedCluster | None, cluster: str = "") -> str:
    """Return the address of a workload cluster's gateway: as it is now, else the last that was known; "" for none.

    `previous` is the status of the InferenceCluster of before. An address that cannot be read for a moment is no order
    to delete every endpoint behind it. One that was only assumed, before `cluster` was observed, is none that was
    known.
    """
    before = text(previous, "gateway", "address")
    if seen is None or seen.unreachable:
        return before
    return first_address(_gateway(seen)) or (before if before != assumed_address(cluster) else "")


def gateway_url(previous: Mapping[str, Any] | None, seen: ObservedCluster | None) -> str:
    """Return the URL of a workload cluster's gateway where it takes no plain HTTP on port 80 of its address, else "".

    Known for as long as the address is: see `gateway_address`.
    """
    gateway = _gateway(seen)
    address = first_address(gateway)
    if not address:
        return text(previous, "gateway", "url")
    url = endpoint.gateway_url(entries(gateway, "spec", "listeners"), address)
    return "" if url == endpoint.http_url(address) else url


def _gateway(seen: ObservedCluster | None) -> Object | None:
    if seen is None or seen.unreachable:
        return None
    return seen.objects.find("Gateway", constants.WORKLOAD_GATEWAY_NAMESPACE, constants.WORKLOAD_GATEWAY)


def inference_cluster(
    cluster: api.InferenceCluster,
    missing_classes: Sequence[str] = (),
    invalid_pool: str = "",
    pools: Sequence[GPUPool] | None = None,
    seen: ObservedCluster | None = None,
    storage_class: str = "",
    gateway_address: str = "",
    *,
    gateway_url: str = "",
    previous: Mapping[str, Any] | None = None,
    is_declared: bool = False,
) -> Status[InferenceClusterStatus]:
    """Return the status of an InferenceCluster. `is_declared`: it is not observed, and counts as declared.

    `invalid_pool` says which pool has a class that its source cannot build. `pools` is status.gpuPools; None when it
    is not known, then that of before stays: a pool that is no longer published loses its replicas.
    """
    before = earlier(cluster.status, previous)
    cluster_ready = _cluster_ready(cluster, missing_classes, invalid_pool, seen, before, is_declared)
    if is_declared:
        backend_ready = declared(_BACKEND, cluster.name)
        overall = _declared_overall(cluster, cluster_ready, before)
    else:
        backend_ready = _backend_ready(cluster_ready, seen, before)
        overall = _overall(cluster, cluster_ready, backend_ready, seen, gateway_address, before)
        if pools is not None and (seen is None or seen.unreachable):
            pools = _with_known_nodes(pools, before)
    gateway = (
        api.construct(GatewayStatus, address=gateway_address, url=gateway_url or None) if gateway_address else None
    )
    fields = api.construct(
        InferenceClusterStatus,
        provider_config_ref=api.construct(ProviderConfigRef, name=names.child_name(cluster.name, "cluster-kubeconfig")),
        gateway=gateway,
        cache=api.construct(CacheStatus, storage_class_name=storage_class) if storage_class else None,
        gpu_pools=_published(pools, before),
        namespace=constants.SYSTEM_NAMESPACE,
    )
    return Status((cluster_ready, backend_ready, overall), fields)


def _with_known_nodes(pools: Sequence[GPUPool], before: Mapping[str, Any]) -> list[GPUPool]:
    """Return the pools with the nodes that were observed last: a cluster that does not answer has not lost them."""
    nodes = {
        text(pool, "name"): number(pool, "observedNodes")
        for pool in entries(before, "gpuPools")
        if "observedNodes" in pool
    }
    return [pool.model_copy(update={"observed_nodes": nodes.get(pool.name)}) for pool in pools]


def _published(pools: Sequence[GPUPool] | None, before: Mapping[str, Any]) -> list[GPUPool] | None:
    """Return the pools, or where they are not known those of before, as far as they can be read."""
    if pools is not None:
        return list(pools)
    if not isinstance(before.get("gpuPools"), list):
        return None
    found = []
    for pool in entries(before, "gpuPools"):
        with contextlib.suppress(ValueError):
            found.append(GPUPool.model_validate(pool))
    return found


def _unseen(cluster: api.InferenceCluster, seen: ObservedCluster | None) -> str:
    """Return why nothing is known of the cluster now; empty when something is."""
    name = cluster.name
    if seen is None:
        return f"cluster {name} has not been observed"
    return f"cluster {name} did not answer: {cut(seen.unreachable)}" if seen.unreachable else ""


def _cluster_ready(
    cluster: api.InferenceCluster,
    missing_classes: Sequence[str],
    invalid_pool: str,
    seen: ObservedCluster | None,
    before: Mapping[str, Any],
    is_declared: bool,
) -> Condition:
    if missing_classes:
        names_of = ", ".join(sorted(set(missing_classes)))
        return Condition(_CLUSTER, "False", "WaitingForClasses", f"Waiting for InferenceClasses: {names_of}")
    if invalid_pool:
        return Condition(_CLUSTER, "False", "InvalidNodePool", invalid_pool)
    if cluster.spec.cluster.source == "Existing":
        return Condition(_CLUSTER, "True", "ClusterRunning", "The cluster exists already")
    if is_declared:
        return declared(_CLUSTER, cluster.name)
    unseen = _unseen(cluster, seen)
    if unseen or seen is None:
        return hold(_CLUSTER, before, unknown(_CLUSTER, unseen))
    provisioned = seen.provisioned or Component(message="the cluster is not there yet")
    if provisioned.ready:
        return Condition(_CLUSTER, "True", "ClusterRunning", cut(provisioned.message))
    return Condition(_CLUSTER, "False", "Provisioning", cut(provisioned.message) or "Waiting for the cloud")


def _backend_ready(cluster_ready: Condition, seen: ObservedCluster | None, before: Mapping[str, Any]) -> Condition:
    if seen is None or seen.unreachable:
        why = cut(seen.unreachable) if seen else "the cluster has not been observed"
        return hold(_BACKEND, before, unknown(_BACKEND, why))
    if cluster_ready.status != "True":
        return Condition(_BACKEND, truth(seen.stack.ready), "WaitingForCluster", "Waiting for the cluster")
    if seen.stack.ready:
        return Condition(_BACKEND, "True", "BackendHealthy", cut(seen.stack.message))
    return Condition(_BACKEND, "False", "Installing", cut(seen.stack.message) or "Waiting for the serving stack")


def _declared_overall(cluster: api.InferenceCluster, cluster_ready: Condition, before: Mapping[str, Any]) -> Condition:
    """Return Ready, unless the manifest cannot be used or says itself that the cluster is not."""
    if cluster_ready.status == "False":
        return ready(False, before, cluster_ready.message)
    written = (cluster.status.conditions if cluster.status else None) or ()
    if any(condition.type == "Ready" and condition.status == "False" for condition in written):
        return ready(False, before, "Its manifest says so")
    return declared("Ready", cluster.name)


def _overall(
    cluster: api.InferenceCluster,
    cluster_ready: Condition,
    backend_ready: Condition,
    seen: ObservedCluster | None,
    address: str,
    before: Mapping[str, Any],
) -> Condition:
    """Ready: both parts are, and the gateway has an address.

    A cluster that does not answer is not known to be ready, whatever it was: what runs there stays, nothing new goes
    there. One that nobody looked at stays what it was.
    """
    failing = [part.message for part in (cluster_ready, backend_ready) if part.status == "False"]
    if failing:
        return ready(False, before, failing[0])
    unseen = _unseen(cluster, seen)
    if seen is None:
        return hold("Ready", before, unknown("Ready", unseen))
    if unseen:
        return ready(None, before, unseen)
    if not address:
        gateway = f"{constants.WORKLOAD_GATEWAY_NAMESPACE}/{constants.WORKLOAD_GATEWAY}"
        return ready(False, before, f"Waiting for an address of Gateway {gateway}; needs a load balancer")
    return ready(True, before)
