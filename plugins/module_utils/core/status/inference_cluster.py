# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The status of an InferenceCluster: whether it is there, what it can take, and where it is reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants, endpoint
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Component, ObservedCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import (
    DECLARED,
    Condition,
    Status,
    cut,
    declared,
    earlier,
    hold,
    ready,
    truth,
    unknown,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, entries, first_address, text

_CLUSTER = "ClusterReady"
_BACKEND = "BackendReady"


def assumed_address(cluster: str) -> str:
    """The gateway address of a cluster that nobody looks at. It names the cluster and resolves nowhere (RFC 9476 keeps
    `.internal` for private use), until DNS or the status of the InferenceCluster gives it a real one."""
    return f"{cluster}.fleet.internal"


def looked_at(previous: Mapping[str, Any] | None) -> bool:
    """Whether an InferenceCluster with this status was looked at once, so that something is known of it."""
    return any(
        entry.get("status") in ("True", "False") and entry.get("reason") != DECLARED
        for entry in entries(previous, "conditions")
        if entry.get("type") == _BACKEND
    )


def gateway_address(previous: Mapping[str, Any] | None, seen: ObservedCluster | None, cluster: str = "") -> str:
    """The address of a workload cluster's gateway: as it is now, else the last that was known; "" before there is one.

    `previous` is the status of the InferenceCluster of before. An address that cannot be read for a moment is no order
    to take every endpoint behind it away. One that was only assumed, before anybody looked at `cluster`, is none that
    was known.
    """
    before = text(previous, "gateway", "address")
    if seen is None or seen.unreachable:
        return before
    return first_address(_gateway(seen)) or (before if before != assumed_address(cluster) else "")


def gateway_url(previous: Mapping[str, Any] | None, seen: ObservedCluster | None) -> str:
    """The URL of a workload cluster's gateway where it takes no plain HTTP on port 80 of its address, else "".

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
    cluster: Object,
    missing_classes: Sequence[str] = (),
    invalid_pool: str = "",
    pools: Sequence[Mapping[str, Any]] | None = None,
    seen: ObservedCluster | None = None,
    storage_class: str = "",
    gateway_address: str = "",
    *,
    gateway_url: str = "",
    previous: Mapping[str, Any] | None = None,
    is_declared: bool = False,
) -> Status:
    """The status of an InferenceCluster (wire form). `is_declared`: nobody looks at it, and it counts as declared.

    `invalid_pool` says which pool has a class that its source cannot build. `pools` is status.gpuPools; None when it
    cannot be told, then that of before stays: a pool that is no longer published loses its replicas.
    """
    before = earlier(cluster, previous)
    cluster_ready = _cluster_ready(cluster, missing_classes, invalid_pool, seen, before, is_declared)
    if is_declared:
        backend_ready = declared(_BACKEND, cluster["metadata"]["name"])
        overall = _declared_overall(cluster, cluster_ready, before)
    else:
        backend_ready = _backend_ready(cluster_ready, seen, before)
        overall = _overall(cluster, cluster_ready, backend_ready, seen, gateway_address, before)
        if pools is not None and (seen is None or seen.unreachable):
            pools = _with_known_nodes(pools, before)
    fields = _fields(cluster, pools, storage_class, before)
    if gateway_address:
        fields["gateway"] = {"address": gateway_address} | ({"url": gateway_url} if gateway_url else {})
    return Status((cluster_ready, backend_ready, overall), fields)


def _with_known_nodes(pools: Sequence[Mapping[str, Any]], before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The pools with the nodes that were seen last: a cluster that does not answer has not lost them."""
    nodes = {
        text(pool, "name"): pool["observedNodes"] for pool in entries(before, "gpuPools") if "observedNodes" in pool
    }
    found = []
    for pool in pools:
        known = {key: value for key, value in pool.items() if key != "observedNodes"}
        if pool["name"] in nodes:
            known["observedNodes"] = nodes[pool["name"]]
        found.append(known)
    return found


def _fields(
    cluster: Object,
    pools: Sequence[Mapping[str, Any]] | None,
    storage_class: str,
    before: Mapping[str, Any],
) -> dict[str, Any]:
    name = cluster["metadata"]["name"]
    found: dict[str, Any] = {
        "providerConfigRef": {"name": names.child_name(name, "cluster-kubeconfig")},
        "namespace": constants.SYSTEM_NAMESPACE,
    }
    if pools is not None:
        found["gpuPools"] = [deepcopy(dict(pool)) for pool in pools]
    elif isinstance(before.get("gpuPools"), list):
        found["gpuPools"] = [deepcopy(dict(pool)) for pool in entries(before, "gpuPools")]
    if storage_class:
        found["cache"] = {"storageClassName": storage_class}
    return found


def _unseen(cluster: Object, seen: ObservedCluster | None) -> str:
    """Why nothing is known of the cluster now; empty when something is."""
    name = cluster["metadata"]["name"]
    if seen is None:
        return f"cluster {name} has not been observed"
    return f"cluster {name} did not answer: {cut(seen.unreachable)}" if seen.unreachable else ""


def _cluster_ready(
    cluster: Object,
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
    if text(cluster, "spec", "cluster", "source") == "Existing":
        return Condition(_CLUSTER, "True", "ClusterRunning", "The cluster exists already")
    if is_declared:
        return declared(_CLUSTER, cluster["metadata"]["name"])
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


def _declared_overall(cluster: Object, cluster_ready: Condition, before: Mapping[str, Any]) -> Condition:
    """Ready, unless the manifest cannot be used or says itself that the cluster is not."""
    if cluster_ready.status == "False":
        return ready(False, before, cluster_ready.message)
    written = entries(cluster, "status", "conditions")
    if any(entry.get("type") == "Ready" and entry.get("status") == "False" for entry in written):
        return ready(False, before, "Its manifest says so")
    return declared("Ready", cluster["metadata"]["name"])


def _overall(
    cluster: Object,
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
