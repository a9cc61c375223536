# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""NetworkPolicies for composed pods. The kubelet always reaches the pods of its node.

Only the egress of proxies that send requests outside of the fleet is restricted: engines download weights, pickers
watch the API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..names import REPLICA_LABEL, label_value
from ..wire import Object
from . import constants
from .hosts import outside_peers
from .options import Options
from .owner import Owner
from .workload import pod_labels

_NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""Set on every Namespace by the API server."""
_DNS_PORTS = (53, 5353)
"""Ports of DNS: of its Service, and of the pods behind it on OpenShift."""


def network_policy(
    metadata: Mapping[str, Any],
    selector: Mapping[str, Any],
    ingress: Iterable[Mapping[str, Any]],
    egress: Iterable[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return a NetworkPolicy that restricts ingress and egress of the selected pods to the rules of `ingress` and
    `egress`.

    If `egress` is None, egress is not restricted.
    """
    rules = {"ingress": list(ingress)} | ({} if egress is None else {"egress": list(egress)})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": dict(metadata),
        "spec": {
            "podSelector": selector,
            "policyTypes": [direction.capitalize() for direction in rules],
            **rules,
        },
    }


def outside_rules(*, pods: bool = False, allowed: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return the egress rules of a proxy for endpoints outside of the fleet. They exclude metadata services, link-local
    and other special addresses, even if the name of an endpoint resolves to such an address.

    `pods`: whether the proxy also connects to pods of its cluster, at any address. `allowed`: entries of
    `fleet_endpoint_hosts`, whose CIDRs are not excluded. Raises ValueError for invalid entries."""
    peers = [*([{"namespaceSelector": {}}] if pods else []), *outside_peers(allowed)]
    names = [{"port": port, "protocol": protocol} for port in _DNS_PORTS for protocol in ("UDP", "TCP")]
    # DNS caches on nodes have link-local addresses, so the DNS rule has no peers.
    return [{"to": peers}, {"ports": names}]


def admit(peers: Sequence[Mapping[str, Any]], port: int | str | None = None) -> list[dict[str, Any]]:
    """Return the rule that admits these peers, on one port or on all ports.

    The result is empty without peers, because a rule without peers admits all traffic.
    """
    if not peers:
        return []
    rule: dict[str, Any] = {"from": list(peers)}
    if port is not None:
        rule["ports"] = [{"port": port, "protocol": "TCP"}]
    return [rule]


def pods_of(namespace: str) -> dict[str, Any]:
    """Return all pods of a namespace as a peer."""
    return {"namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: namespace}}}


def replica_policies(
    owner: Owner, workloads: Sequence[Object], options: Options, port: int, *, linked: bool
) -> tuple[dict[str, Any], ...]:
    """Return the NetworkPolicies of a replica with these workloads.

    Pods of a gang, and linked engines, connect to each other on ports that NCCL and UCX choose. Metrics may be scraped
    on any port, because the metrics ports of engines and pickers are configurable.

    `linked`: True if its engines exchange their KV caches.
    """
    if not options.network_policies:
        return ()

    def gateway() -> list[dict[str, Any]]:
        return [pods_of(namespace) for namespace in options.gateway_namespaces]

    def metrics() -> list[dict[str, Any]]:
        return admit([pods_of(namespace) for namespace in options.metrics_namespaces])

    def picker() -> dict[str, Any]:
        return {"matchLabels": {constants.APP_LABEL: owner.picker_name, **_replica(owner)}}

    def peers(workload: Object) -> list[dict[str, Any]]:
        """Return the pods that connect to pods of a workload on any port."""
        is_gang = workload["kind"] == "LeaderWorkerSet"
        linked_workloads = workloads if linked else [workload] if is_gang else []
        return [{"podSelector": _pods(owner, linked_workload)} for linked_workload in linked_workloads]

    serving = network_policy(
        owner.metadata(owner.prefix),
        {"matchLabels": {constants.SERVING_LABEL: owner.prefix}},
        admit([*gateway(), {"podSelector": picker()}], port),
    )
    engines = [
        network_policy(
            owner.metadata(workload["metadata"]["name"]),
            _pods(owner, workload),
            [*admit(peers(workload)), *metrics()],
        )
        for workload in workloads
    ]
    pickers = network_policy(
        owner.metadata(owner.picker_name), picker(), [*admit(gateway(), constants.PICKER_PORT), *metrics()]
    )
    return (serving, *engines, pickers)


def _pods(owner: Owner, workload: Object) -> dict[str, Any]:
    """Return the label selector of a workload's pods. Users can set labels of LeaderWorkerSet, not the replica's."""
    return {"matchLabels": {**_replica(owner), **pod_labels(workload)}}


def _replica(owner: Owner) -> dict[str, str]:
    return {REPLICA_LABEL: label_value(owner.replica)}
