# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What is on an API server of all that carries our label: one list request per kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.record import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observed import Object, identity, text
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError, Forbidden, NotServed

GroupKind = tuple[str, str]

OURS = f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY}"

COMPOSED: Mapping[GroupKind, str] = {
    ("", "ConfigMap"): "v1",
    ("", "Namespace"): "v1",
    ("", "PersistentVolumeClaim"): "v1",
    ("", "Secret"): "v1",
    ("", "Service"): "v1",
    ("", "ServiceAccount"): "v1",
    ("apps", "Deployment"): "apps/v1",
    ("batch", "Job"): "batch/v1",
    ("discovery.k8s.io", "EndpointSlice"): "discovery.k8s.io/v1",
    ("gateway.networking.k8s.io", "BackendTLSPolicy"): "gateway.networking.k8s.io/v1",
    ("gateway.networking.k8s.io", "Gateway"): "gateway.networking.k8s.io/v1",
    ("gateway.networking.k8s.io", "GatewayClass"): "gateway.networking.k8s.io/v1",
    ("gateway.networking.k8s.io", "HTTPRoute"): "gateway.networking.k8s.io/v1",
    ("gateway.networking.k8s.io", "ReferenceGrant"): "gateway.networking.k8s.io/v1beta1",
    ("inference.networking.k8s.io", "InferencePool"): "inference.networking.k8s.io/v1",
    ("infrastructure.modelplane.ai", "EKSCluster"): "infrastructure.modelplane.ai/v1alpha1",
    ("infrastructure.modelplane.ai", "GKECluster"): "infrastructure.modelplane.ai/v1alpha1",
    ("infrastructure.modelplane.ai", "ServingStack"): "infrastructure.modelplane.ai/v1alpha1",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "leaderworkerset.x-k8s.io/v1",
    ("metallb.io", "IPAddressPool"): "metallb.io/v1beta1",
    ("metallb.io", "L2Advertisement"): "metallb.io/v1beta1",
    ("modelplane.ai", "ModelEndpoint"): "modelplane.ai/v1alpha1",
    ("modelplane.ai", "ModelReplica"): "modelplane.ai/v1alpha1",
    ("networking.k8s.io", "NetworkPolicy"): "networking.k8s.io/v1",
    ("policy", "PodDisruptionBudget"): "policy/v1",
    ("rbac.authorization.k8s.io", "Role"): "rbac.authorization.k8s.io/v1",
    ("rbac.authorization.k8s.io", "RoleBinding"): "rbac.authorization.k8s.io/v1",
    ("resource.k8s.io", "ResourceClaimTemplate"): "resource.k8s.io/v1",
}
"""All that is ever composed, by group and kind: where to look for orphans when the record is lost."""


@dataclass(frozen=True)
class Live:
    """What was seen: the objects with our label; kinds that are not served, and of those the ones that no longer exist;
    kinds that could not be read, and why."""

    objects: dict[Key, Object] = field(default_factory=dict)
    not_served: set[GroupKind] = field(default_factory=set)
    gone: set[GroupKind] = field(default_factory=set)
    faults: dict[GroupKind, ApiError] = field(default_factory=dict)


def kinds_of(objects: Iterable[Object]) -> dict[GroupKind, str]:
    """The kinds of objects, with the version that they are written in."""
    return {identity(value)[:2]: text(value, "apiVersion") for value in objects}


def look(client: Client, kinds: Mapping[GroupKind, str]) -> Live:
    """List every kind. A kind that may not be listed does not keep the others from being seen."""
    live = Live()
    for group_kind in sorted(kinds):
        try:
            listing = client.list(kinds[group_kind], group_kind[1], labels=OURS)
        except NotServed:
            live.not_served.add(group_kind)
        except Forbidden as error:
            live.faults[group_kind] = error
        else:
            live.objects.update((Key.of(value), value) for value in listing.items)
    return live
