# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Pods that keep the nodes of a pool: all pods except DaemonSet pods and static pods."""

from __future__ import annotations

from ..core import names
from ..core.wire import Object, entries, fields, text
from .client import Client

_ENDED = ("Succeeded", "Failed")
_OF_EVERY_NODE = ("DaemonSet", "Node")
"""Owners of pods that exist only with their node: DaemonSets, and the node itself for static pods."""


def pods_on_pool(client: Client, pool: str) -> list[Object]:
    """Return the pods on the nodes of a pool, and pending replica pods for it, without DaemonSet and static pods.

    Requires two LIST requests. Raise ApiError.
    """
    pool_nodes = client.list("v1", "Node", labels=f"{names.POOL_LABEL}={pool}").items
    nodes = {text(node, "metadata", "name") for node in pool_nodes}
    return [pod for pod in client.list("v1", "Pod").items if _keeps(pod, pool, nodes)]


def replicas_on_pool(client: Client, pool: str) -> list[str]:
    """Return the replicas with running or pending pods on a node pool, as `NAMESPACE/NAME`. Raise ApiError."""
    labels = [fields(pod, "metadata", "labels") for pod in pods_on_pool(client, pool) if is_ours(pod)]
    return sorted(
        {
            f"{text(replica_labels, names.NAMESPACE_LABEL)}/{text(replica_labels, names.REPLICA_LABEL)}"
            for replica_labels in labels
        }
    )


def is_ours(pod: Object) -> bool:
    """Return True if a pod belongs to a replica."""
    return bool(text(pod, "metadata", "labels", names.REPLICA_LABEL))


def _keeps(pod: Object, pool: str, nodes: set[str]) -> bool:
    if text(pod, "status", "phase") in _ENDED:
        return False
    node = text(pod, "spec", "nodeName")
    if not node:
        return is_ours(pod) and pool in _selected(pod)
    owners = {text(owner, "kind") for owner in entries(pod, "metadata", "ownerReferences")}
    return node in nodes and not owners & set(_OF_EVERY_NODE)


def _selected(pod: Object) -> set[str]:
    """Return the pools that a replica's pod can run on: one pool by its selector, or several pools by its affinity."""
    required = fields(pod, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    pools = {text(pod, "spec", "nodeSelector", names.POOL_LABEL)}
    for term in entries(required, "nodeSelectorTerms"):
        for expression in entries(term, "matchExpressions"):
            if text(expression, "key") == names.POOL_LABEL:
                pools.update(map(str, expression.get("values") or ()))
    return pools
