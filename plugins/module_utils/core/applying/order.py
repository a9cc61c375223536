# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""In which order objects are applied, and which may be made anew when they cannot be changed."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import registry
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, identity

NAMESPACE = "Namespace"
DEFINITION = "CustomResourceDefinition"

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
    # Kinds without a place of their own go here: filters and policies that routes refer to.
    (),
    ("HTTPRoute",),
)
_OTHERS = _STAGES.index(())
_RANK = {kind: rank for rank, kinds in enumerate(_STAGES) for kind in kinds}

ROUTES = frozenset({"HTTPRoute"})
"""Kinds that lead requests to others: what they led to may only go when they no longer do."""

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
"""Group and kind of what is deleted and made anew when a field that cannot be changed has to: nothing that runs is lost
by it, but for a Job, whose pods would do what is no longer wanted."""


def rank(value: Object) -> int:
    """The stage of an object: all of a lower stage are applied before it, and deleted after it."""
    return _RANK.get(identity(value)[1], _OTHERS)


def ordered(objects: Iterable[Object]) -> list[Object]:
    """The objects in the order in which they are applied; deletions go the other way round."""
    return sorted(objects, key=lambda value: (rank(value), identity(value)))
