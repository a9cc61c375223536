# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects of an API server with the fleet label: one list request per kind, if permitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..core import api, names
from ..core.applying.inventory import Key
from ..core.wire import Object, identity, text
from .client import Client
from .errors import ApiError, Forbidden, NotServed
from .secret_access import SecretAccess

GroupKind = tuple[str, str]

SECRET: GroupKind = ("", "Secret")
DECISION_LABEL = "modelplane.ai/decision"
"""Label of ConfigMaps of decisions. They can be numerous and large, so runs read them only by name."""
OURS = f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY},!{DECISION_LABEL}"
"""Selector of the objects of a fleet."""

_ON_BOTH = {
    "apps/v1": "Deployment",
    "discovery.k8s.io/v1": "EndpointSlice",
    "gateway.networking.k8s.io/v1": "Gateway HTTPRoute",
    "networking.k8s.io/v1": "NetworkPolicy",
    "policy/v1": "PodDisruptionBudget",
    "v1": "ConfigMap Namespace Service",
}
_ON_WORKLOAD = {
    "aigateway.envoyproxy.io/v1beta1": "AIGatewayRoute AIServiceBackend BackendSecurityPolicy",
    "batch/v1": "Job",
    "cert-manager.io/v1": "Certificate ClusterIssuer Issuer",
    "gateway.envoyproxy.io/v1alpha1": "Backend BackendTrafficPolicy ClientTrafficPolicy HTTPRouteFilter SecurityPolicy",
    "inference.networking.k8s.io/v1": "InferencePool",
    "leaderworkerset.x-k8s.io/v1": "LeaderWorkerSet",
    "rbac.authorization.k8s.io/v1": "Role RoleBinding",
    "resource.k8s.io/v1": "ResourceClaimTemplate",
    "trust.cert-manager.io/v1alpha1": "Bundle",
    "v1": "PersistentVolumeClaim Secret ServiceAccount",
}
_ON_CONTROL = {
    "gateway.networking.k8s.io/v1": "BackendTLSPolicy GatewayClass",
    "gateway.networking.k8s.io/v1beta1": "ReferenceGrant",
    "metallb.io/v1beta1": "IPAddressPool L2Advertisement",
}


def _versions(*tables: Mapping[str, str]) -> dict[GroupKind, str]:
    """Return API versions by group and kind."""
    return {
        identity({"apiVersion": version, "kind": kind})[:2]: version
        for table in tables
        for version, kinds in table.items()
        for kind in kinds.split()
    }


ON_WORKLOAD: Mapping[GroupKind, str] = _versions(_ON_BOTH, _ON_WORKLOAD)
"""Kinds of all objects that are composed for workload clusters. Orphans are searched among them if the inventory is
lost."""
ON_CONTROL: Mapping[GroupKind, str] = {
    **_versions(_ON_BOTH, _ON_CONTROL),
    **{(kind.GROUP, name): kind.group_version() for name, kind in api.KINDS.items()},
}
"""Kinds of all objects that are composed for control clusters, including copies of manifests."""


@dataclass(frozen=True)
class Live:
    """Snapshot of a server."""

    objects: dict[Key, Object] = field(default_factory=dict)
    """Objects with the fleet label."""
    not_served: set[GroupKind] = field(default_factory=set)
    """Kinds that the server does not serve."""
    gone: set[GroupKind] = field(default_factory=set)
    """Unserved kinds that no longer exist."""
    errors: dict[GroupKind, ApiError] = field(default_factory=dict)
    """Unreadable kinds with their errors."""
    closed: dict[str, ApiError] = field(default_factory=dict)
    """Unreadable namespaces that should contain Secrets of the fleet, if Secrets are readable in some namespaces
    only."""

    def error(self, key: Key) -> ApiError | None:
        """Return the reason for the unknown existence of an object, or None if it is known."""
        closed = self.closed.get(key.namespace) if (key.group, key.kind) == SECRET else None
        return closed or self.errors.get((key.group, key.kind))


def label_selector(labels: Mapping[str, str]) -> str:
    """Return the selector of objects that have all of these labels."""
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def kinds_of(objects: Iterable[Object]) -> dict[GroupKind, str]:
    """Return the kinds of objects, with their API version."""
    return {identity(value)[:2]: text(value, "apiVersion") for value in objects}


def list_labelled(
    client: Client, kinds: Mapping[GroupKind, str], secrets: SecretAccess, known: Iterable[Key] = ()
) -> Live:
    """List all kinds. A forbidden kind does not prevent other lists.

    `known`: desired objects and objects of the inventory. If Secrets are not readable in all namespaces, the Secrets in
    the namespaces of these objects are read."""
    live = Live()
    for group_kind in sorted(kinds):
        try:
            listing = client.list(kinds[group_kind], group_kind[1], labels=OURS)
        except NotServed:
            live.not_served.add(group_kind)
        except Forbidden as error:
            if group_kind == SECRET:
                _read_secrets(live, secrets, {key.namespace for key in known if key.kind == "Secret"})
            else:
                live.errors[group_kind] = error
        else:
            live.objects.update((Key.of(value), value) for value in listing.items)
    return live


def _read_secrets(live: Live, secrets: SecretAccess, places: set[str]) -> None:
    """Read Secrets in the expected namespaces and in all readable fleet namespaces.

    The latter are necessary because an inventory might be lost."""
    secrets.narrow = True
    fleet_namespaces = {key.name for key in live.objects if (key.group, key.kind) == ("", "Namespace")}
    for namespace in sorted(places | fleet_namespaces):
        try:
            listing = secrets.listed(namespace, OURS, opened=namespace in places)
        except Forbidden as error:
            if namespace in places:
                live.closed[namespace] = error
        else:
            live.objects.update((Key.of(value), value) for value in listing)
