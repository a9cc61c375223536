# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of an InferenceCluster: its readiness, its pools, and the address of its gateway."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from .. import api, names
from ..api.cloud import CacheStatus
from ..api.inference_cluster import GatewayStatus, GPUPool, InferenceClusterStatus, ProviderConfigRef
from ..compose import constants, endpoint
from ..compose.cluster import provider_config_name
from ..compose.model_gateway.mtls import internal_hostname, service_address
from ..compose.openshift import ROUTE
from ..observation import Component, ObservedCluster
from ..text import cut
from ..wire import Object, entries, first_address, label, number, text
from .conditions import DECLARED, Condition, Status, declared, earlier, hold, ready, truth, unknown
from .route import admitted_host, is_routed, route_url

_CLUSTER = "ClusterReady"
_BACKEND = "BackendReady"
_NO_ANSWER = "cluster {} did not answer: "


def assumed_address(cluster: str) -> str:
    """Return the gateway address of an unobserved cluster.

    It contains the name of the cluster and does not resolve (`.internal` is reserved for private use), unless DNS
    defines it. The status of the InferenceCluster has priority over it."""
    return f"{cluster}.fleet.internal"


def was_observed(previous: Mapping[str, Any] | None) -> bool:
    """Return True when an InferenceCluster with this status has been observed at least once."""
    return any(
        entry.get("status") in ("True", "False") and entry.get("reason") != DECLARED
        for entry in entries(previous, "conditions")
        if entry.get("type") == _BACKEND
    )


def gateway_address(previous: Mapping[str, Any] | None, observed: ObservedCluster | None, cluster: str = "") -> str:
    """Return the address of an inference cluster's gateway: the current or the last known address, or "" without one.

    `previous`: previous status of the InferenceCluster. A temporarily unreadable address is kept, because otherwise
    every endpoint of the gateway would be deleted. An address that was assumed before `cluster` was observed is not
    known.
    """
    previous_address = text(previous, "gateway", "address")
    if observed is None or observed.unreachable:
        return previous_address
    return _current_address(observed) or (previous_address if previous_address != assumed_address(cluster) else "")


def gateway_url(previous: Mapping[str, Any] | None, observed: ObservedCluster | None) -> str:
    """Return the URL of an inference cluster's gateway, or "" if it serves plain HTTP on port 80.

    The URL is kept together with the address: see `gateway_address`.
    """
    gateway = _gateway(observed)
    address = _current_address(observed)
    if not address:
        return text(previous, "gateway", "url")
    if is_routed(gateway):
        return route_url(_route(observed))
    url = endpoint.gateway_url(entries(gateway, "spec", "listeners"), address)
    return "" if url == endpoint.http_url(address) else url


def _current_address(observed: ObservedCluster | None) -> str:
    gateway = _gateway(observed)
    return admitted_host(_route(observed)) if is_routed(gateway) else first_address(gateway)


def _route(observed: ObservedCluster | None) -> Object | None:
    if observed is None:
        return None
    return observed.objects.find(ROUTE[1], constants.ENVOY_NAMESPACE, constants.WORKLOAD_GATEWAY)


def _gateway(observed: ObservedCluster | None) -> Object | None:
    if observed is None or observed.unreachable:
        return None
    namespace = constants.WORKLOAD_GATEWAY_NAMESPACE
    gateway = observed.objects.find("Gateway", namespace, constants.WORKLOAD_GATEWAY)
    if not label(gateway, names.GATEWAY_LABEL):
        return gateway
    # A Model gateway replaces it, and does not route to replicas of the cluster by their paths.
    return observed.objects.find("Gateway", namespace, constants.CLUSTER_GATEWAY) or gateway


def inference_cluster(
    cluster: api.InferenceCluster,
    missing_classes: Sequence[str] = (),
    invalid_pool: str = "",
    pools: Sequence[GPUPool] | None = None,
    observed: ObservedCluster | None = None,
    storage_class: str = "",
    gateway_address: str = "",
    *,
    gateway_url: str = "",
    previous: Mapping[str, Any] | None = None,
    is_declared: bool = False,
) -> Status[InferenceClusterStatus]:
    """Return the status of an InferenceCluster. `is_declared`: it is unobserved, and its declared state is assumed.

    `invalid_pool`: error of a pool with a class that the source cannot provision. `pools`: status.gpuPools, or None if
    unknown. Unknown pools keep the previous value, because a pool that is no longer published loses its replicas.
    """
    previous_status = earlier(cluster.status, previous)
    cluster_ready = _cluster_ready(cluster, missing_classes, invalid_pool, observed, previous_status, is_declared)
    if is_declared:
        backend_ready = declared(_BACKEND, cluster.name)
        overall = _declared_overall(cluster, cluster_ready, previous_status)
    else:
        backend_ready = _backend_ready(cluster_ready, observed, previous_status)
        overall = _overall(cluster, cluster_ready, backend_ready, observed, gateway_address, previous_status)
        if pools is not None and (observed is None or observed.unreachable):
            pools = _with_known_nodes(pools, previous_status)
    url = (gateway_address and gateway_url) or None
    gateway_fields = {"address": gateway_address or None, "url": url, **_for_models(cluster, observed, previous_status)}
    gateway = api.construct(GatewayStatus, **gateway_fields) if any(gateway_fields.values()) else None
    fields = api.construct(
        InferenceClusterStatus,
        provider_config_ref=api.construct(ProviderConfigRef, name=provider_config_name(cluster.name)),
        gateway=gateway,
        cache=api.construct(CacheStatus, storage_class_name=storage_class) if storage_class else None,
        gpu_pools=_published(pools, previous_status),
        namespace=constants.SYSTEM_NAMESPACE,
    )
    return Status((cluster_ready, backend_ready, overall), fields)


def _for_models(
    cluster: api.InferenceCluster, observed: ObservedCluster | None, previous_status: Mapping[str, Any]
) -> dict[str, str | None]:
    """Return the fields of a cluster that Model gateways use. They are empty until its own gateway requires client
    certificates and its CA is known. Known fields are kept while the cluster is unreachable or lacks an object,
    because otherwise every route to it would be deleted."""
    field_names = ("internalAddress", "hostname", "caCertificate")
    address, hostname, authority = (text(previous_status, "gateway", name) for name in field_names)
    if observed is not None and not observed.unreachable:
        namespace = constants.SYSTEM_NAMESPACE
        bundle = observed.objects.find("ConfigMap", namespace, constants.CLUSTER_GATEWAY_CA)
        authority = text(bundle, "data", constants.CA_KEY) or authority
        live = observed.objects.find("Gateway", namespace, constants.CLUSTER_GATEWAY)
        address = service_address(first_address(live)) or address
        hostname = internal_hostname(cluster.name) if address and authority else ""
    if not hostname:
        return {}
    return {"hostname": hostname, "internal_address": address or None, "ca_certificate": authority}


def _with_known_nodes(pools: Sequence[GPUPool], previous_status: Mapping[str, Any]) -> list[GPUPool]:
    """Return the pools with the last observed number of nodes: an unreachable cluster has not lost its nodes."""
    nodes = {
        text(pool, "name"): number(pool, "observedNodes")
        for pool in entries(previous_status, "gpuPools")
        if "observedNodes" in pool
    }
    return [pool.model_copy(update={"observed_nodes": nodes.get(pool.name)}) for pool in pools]


def _published(pools: Sequence[GPUPool] | None, previous_status: Mapping[str, Any]) -> list[GPUPool] | None:
    """Return the pools, or the readable previous pools if the pools are unknown."""
    if pools is not None:
        return list(pools)
    if not isinstance(previous_status.get("gpuPools"), list):
        return None
    previous = []
    for pool in entries(previous_status, "gpuPools"):
        with contextlib.suppress(ValueError):
            previous.append(GPUPool.model_validate(pool))
    return previous


def _not_observed(cluster: api.InferenceCluster, observed: ObservedCluster | None) -> str:
    """Return the reason for an unobserved cluster, or "" for an observed cluster."""
    name = cluster.name
    if observed is None:
        return f"cluster {name} has not been observed"
    return _NO_ANSWER.format(name) + cut(observed.unreachable) if observed.unreachable else ""


def no_answer(cluster: str, message: str) -> str:
    """Return the reason for a missing response of a cluster, from the message of Ready, or "" for another message."""
    start = _NO_ANSWER.format(cluster)
    return message.removeprefix(start) if message.startswith(start) else ""


def _cluster_ready(
    cluster: api.InferenceCluster,
    missing_classes: Sequence[str],
    invalid_pool: str,
    observed: ObservedCluster | None,
    previous_status: Mapping[str, Any],
    is_declared: bool,
) -> Condition:
    if missing_classes:
        names_of = ", ".join(sorted(set(missing_classes)))
        return Condition(_CLUSTER, "False", "WaitingForClasses", f"Waiting for InferenceClasses: {names_of}")
    if invalid_pool:
        return Condition(_CLUSTER, "False", "InvalidNodePool", invalid_pool)
    if cluster.spec.cluster.source == "Existing":
        return Condition(_CLUSTER, "True", "ClusterRunning", "The cluster already exists")
    if is_declared:
        return declared(_CLUSTER, cluster.name)
    not_observed = _not_observed(cluster, observed)
    if not_observed or observed is None:
        return hold(_CLUSTER, previous_status, unknown(_CLUSTER, not_observed))
    provisioned = observed.provisioned or Component(message="the cluster does not exist yet")
    if provisioned.ready:
        return Condition(_CLUSTER, "True", "ClusterRunning", cut(provisioned.message))
    return Condition(_CLUSTER, "False", "Provisioning", cut(provisioned.message) or "Waiting for the cloud")


def _backend_ready(
    cluster_ready: Condition, observed: ObservedCluster | None, previous_status: Mapping[str, Any]
) -> Condition:
    if observed is None or observed.unreachable:
        why = cut(observed.unreachable) if observed else "the cluster has not been observed"
        return hold(_BACKEND, previous_status, unknown(_BACKEND, why))
    if cluster_ready.status != "True":
        return Condition(_BACKEND, truth(observed.stack.ready), "WaitingForCluster", "Waiting for the cluster")
    if observed.stack.ready:
        return Condition(_BACKEND, "True", "BackendHealthy", cut(observed.stack.message))
    return Condition(_BACKEND, "False", "Installing", cut(observed.stack.message) or "Waiting for the serving stack")


def _declared_overall(
    cluster: api.InferenceCluster, cluster_ready: Condition, previous_status: Mapping[str, Any]
) -> Condition:
    """Return Ready, unless the manifest is not usable or its status is not Ready."""
    if cluster_ready.status == "False":
        return ready(False, previous_status, cluster_ready.message)
    declared_conditions = (cluster.status.conditions if cluster.status else None) or ()
    if any(condition.type == "Ready" and condition.status == "False" for condition in declared_conditions):
        return ready(False, previous_status, "The status in its manifest is not Ready")
    return declared("Ready", cluster.name)


def _overall(
    cluster: api.InferenceCluster,
    cluster_ready: Condition,
    backend_ready: Condition,
    observed: ObservedCluster | None,
    address: str,
    previous_status: Mapping[str, Any],
) -> Condition:
    """Return Ready: both parts are ready, and the gateway has an address.

    The readiness of an unreachable cluster is unknown: its replicas are kept, and it gets no new replicas. A cluster
    that was not observed keeps its readiness.
    """
    failing = [condition.message for condition in (cluster_ready, backend_ready) if condition.status == "False"]
    if failing:
        return ready(False, previous_status, failing[0])
    not_observed = _not_observed(cluster, observed)
    if observed is None:
        return hold("Ready", previous_status, unknown("Ready", not_observed))
    if not_observed:
        return ready(None, previous_status, not_observed)
    if not address:
        gateway = f"{constants.WORKLOAD_GATEWAY_NAMESPACE}/{constants.WORKLOAD_GATEWAY}"
        return ready(False, previous_status, f"Waiting for an address of Gateway {gateway}; needs a load balancer")
    return ready(True, previous_status, observed.unavailable_message)
