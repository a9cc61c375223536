# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Order in which objects are applied, and the kinds that are recreated when an immutable field changes."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import registry
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.overflow import (
    is_behind_cluster_gateway,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, identity

NAMESPACE = "Namespace"
DEFINITION = "CustomResourceDefinition"
_BEHIND = "AIGatewayRoute behind a cluster gateway"

_STAGES = (
    (NAMESPACE,),
    (DEFINITION,),
    ("PriorityClass", "StorageClass", "DeviceClass", "ClusterRole", "GatewayClass"),
    ("ModelReplica", *registry.KINDS, "ServingStack"),
    ("ServiceAccount", "Secret", "ConfigMap", "Role"),
    ("RoleBinding", "ClusterRoleBinding"),
    ("PersistentVolumeClaim", "ResourceClaimTemplate"),
    ("Service", "EndpointSlice", "NetworkPolicy", "PodDisruptionBudget", "BackendTLSPolicy", "ReferenceGrant"),
    ("Deployment", "StatefulSet", "DaemonSet", "LeaderWorkerSet", "Job"),
    ("ModelEndpoint",),
    ("InferencePool",),
    ("Gateway",),
    # All other kinds: filters and policies that routes refer to.
    (),
    (_BEHIND,),
    ("HTTPRoute", "AIGatewayRoute"),
)
_OTHERS = _STAGES.index(())
_RANK = {kind: rank for rank, kinds in enumerate(_STAGES) for kind in kinds}

RECREATED = frozenset(
    {
        ("", "ConfigMap"),
        ("", "Secret"),
        ("batch", "Job"),
        ("discovery.k8s.io", "EndpointSlice"),
        ("rbac.authorization.k8s.io", "RoleBinding"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("resource.k8s.io", "ResourceClaimTemplate"),
    }
)
"""Groups and kinds that are deleted and created again when an immutable field changes. No running pod is lost, except
those of a Job, whose work is no longer desired."""


def rank(value: Object) -> int:
    """Return the stage of an object: objects of lower stages are applied before it, and deleted after it."""
    kind = _BEHIND if is_behind_cluster_gateway(value) else identity(value)[1]
    return _RANK.get(kind, _OTHERS)


def ordered(objects: Iterable[Object]) -> list[Object]:
    """Return the objects in the order in which they are applied; deletions use the reverse order."""
    return sorted(objects, key=lambda value: (rank(value), identity(value)))
