# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Expected state of clusters according to the resources of a fleet, for the code that observes them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .. import api, names
from ..api.engine import ClusterSelector
from ..caller_keys import caller_of
from ..compose import constants
from ..compose.model_gateway.callers import KeySecret, rights
from ..compose.model_gateway.gateway import composed_gateways
from ..problem import Ref
from ..wire import Object, text
from .devices import Promise
from .secret_references import SecretReference, control_references, deployment_references, replica_references

SecretKeys = Mapping[tuple[str, str], frozenset[str]]
"""Keys of Secrets by (namespace, name)."""


@dataclass(frozen=True)
class ExpectedCluster:
    """Expected state of an inference cluster: the devices that the classes of its pools promise."""

    name: str
    promises: tuple[Promise, ...] = ()
    provisioned: bool = False
    """True for a cluster that the fleet creates."""
    has_cluster_gateway: bool = False
    """True for a cluster that Model gateways can reach."""
    hosts_gateway: bool = False
    """True for a cluster with a Model gateway."""
    callers: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    """Callers with counted budgets on the cluster, by namespace and name of each CallerPolicy."""
    secrets: tuple[SecretReference, ...] = ()
    """References of pods on the cluster to Secrets."""
    control_secrets: tuple[SecretReference, ...] = ()
    """References of the cluster's resources to Secrets on the control cluster."""

    @property
    def device_classes(self) -> list[str]:
        """DeviceClasses of the claims in its pools."""
        return sorted({name for promise in self.promises for name in promise.device_classes})

    @property
    def drivers(self) -> list[str]:
        return sorted({driver for promise in self.promises for driver in promise.drivers})


@dataclass(frozen=True)
class Expected:
    """Expected state of all clusters."""

    clusters: Mapping[str, ExpectedCluster] = field(default_factory=dict)
    secrets: SecretKeys = field(default_factory=dict)
    """Keys of Secrets on the control cluster that resources reference."""
    gateway: api.InferenceGateway | None = None
    """InferenceGateway of the control cluster, None without one."""
    caller_keys: tuple[Mapping[str, str], ...] = ()
    """Labels of Secrets on the control cluster with keys of callers."""

    def cluster(self, name: str) -> ExpectedCluster:
        """Return the expected state of a cluster, empty for an unknown one."""
        return self.clusters.get(name) or ExpectedCluster(name)


def expected(resources: Iterable[Object], key_secrets: Sequence[KeySecret] = ()) -> Expected:
    """Return the expected state for the resources of a fleet (wire format, from manifests or the control cluster).

    `key_secrets`: Secrets with keys of callers on the control cluster. Other objects and invalid resources are skipped.
    A pool with a missing class promises no devices.
    """
    known_resources = _Known()
    for value in resources:
        if value.get("apiVersion") == f"{api.GROUP_MODELS}/{api.VERSION}" and _is_read(value):
            with contextlib.suppress(api.InvalidResource):
                known_resources.add(api.parse(value))
    gateways = composed_gateways(known_resources.model_gateways.values())
    hosts = gateways.keys() & known_resources.clusters.keys()
    callers = {name: _callers(gateways[name], known_resources.policies.values(), key_secrets) for name in hosts}
    clusters = {
        name: replace(
            _cluster(cluster, known_resources.classes, hosts, callers.get(name, {})),
            secrets=tuple(dict.fromkeys(known_resources.pod_secrets(cluster))),
            control_secrets=tuple(known_resources.control_secrets_for(cluster, is_host=name in hosts)),
        )
        for name, cluster in known_resources.clusters.items()
    }
    secrets: dict[tuple[str, str], frozenset[str]] = {}
    for reference in known_resources.control_secrets:
        key = (reference.namespace, reference.name)
        secrets[key] = secrets.get(key, frozenset()) | reference.keys
    auths = [model_gateway.spec.auth for __, model_gateway in sorted(known_resources.model_gateways.items())]
    selectors = [auth.api_key.secret_selector.match_labels for auth in auths if auth and auth.api_key]
    return Expected(clusters, secrets, known_resources.gateway, tuple(selectors))


_READ = frozenset(
    {"CallerPolicy", "InferenceClass", "InferenceCluster", "InferenceGateway", "ModelCache", "ModelEndpoint"}
)


def _selects(selector: ClusterSelector | None, cluster: api.InferenceCluster) -> bool:
    labels = (selector.match_labels or {}) if selector else {}
    return labels.items() <= names.all_labels(cluster).items()


_WITH_PODS = frozenset({"ModelDeployment", "ModelReplica"})
_OF_SECRETS = frozenset({"imagePullSecrets", "secretKeyRef"})
"""Fields of pods that name Secrets."""


def _is_read(value: Object) -> bool:
    """Return True if a resource affects the expected clusters. Few of the many replicas reference Secrets."""
    kind = text(value, "kind")
    return kind in _READ or (kind in _WITH_PODS and _has_key(value, _OF_SECRETS))


def _has_key(value: object, keys: frozenset[str]) -> bool:
    """Return True if a mapping, or a mapping inside it, has any of these keys."""
    if isinstance(value, Mapping):
        return not keys.isdisjoint(value) or any(_has_key(item, keys) for item in value.values())
    return isinstance(value, list) and any(_has_key(item, keys) for item in value)


@dataclass
class _Known:
    """Resources by name, or by namespace and name."""

    classes: dict[str, api.InferenceClass] = field(default_factory=dict)
    clusters: dict[str, api.InferenceCluster] = field(default_factory=dict)
    gateway: api.InferenceGateway | None = None
    model_gateways: dict[str, api.InferenceGateway] = field(default_factory=dict)
    caches: dict[Ref, api.ModelCache] = field(default_factory=dict)
    endpoints: dict[Ref, api.ModelEndpoint] = field(default_factory=dict)
    policies: dict[Ref, api.CallerPolicy] = field(default_factory=dict)
    deployments: dict[Ref, api.ModelDeployment] = field(default_factory=dict)
    replicas: dict[Ref, api.ModelReplica] = field(default_factory=dict)

    @property
    def control_secrets(self) -> Iterator[SecretReference]:
        """Yield the references to Secrets of the control cluster."""
        gateways = [*self.model_gateways.values(), *([self.gateway] if self.gateway else [])]
        for resource in (*self.caches.values(), *self.endpoints.values(), *gateways):
            yield from control_references(resource)

    def pod_secrets(self, cluster: api.InferenceCluster) -> Iterator[SecretReference]:
        """Yield the references of the pods of existing replicas, and of replicas that might be placed on a cluster."""
        for deployment in self.deployments.values():
            if _selects(deployment.spec.template.spec.cluster_selector, cluster):
                yield from deployment_references(deployment, cluster.name)
        for replica in self.replicas.values():
            if replica.spec.cluster_name == cluster.name:
                yield from replica_references(replica)

    def control_secrets_for(self, cluster: api.InferenceCluster, *, is_host: bool) -> Iterator[SecretReference]:
        """Yield the Secrets of the control cluster that caches and a gateway of a cluster reference.

        `is_host`: the cluster has a Model gateway."""
        for cache in self.caches.values():
            if _selects(cache.spec.cluster_selector, cluster):
                yield from control_references(cache)
        gateways = [gateway for gateway in self.model_gateways.values() if gateway.spec.cluster_name == cluster.name]
        for resource in (*gateways, *(self.endpoints.values() if is_host else ())):
            yield from control_references(resource)

    def add(self, resource: api.Resource) -> None:
        if isinstance(resource, api.InferenceClass):
            self.classes[resource.name] = resource
        elif isinstance(resource, api.InferenceCluster):
            self.clusters[resource.name] = resource
        elif isinstance(resource, api.InferenceGateway):
            if resource.mode == "Model":
                self.model_gateways[resource.name] = resource
            elif resource.is_of_control_cluster:
                self.gateway = resource
        elif isinstance(resource, api.ModelCache):
            self.caches[resource.ref] = resource
        elif isinstance(resource, api.ModelEndpoint):
            self.endpoints[resource.ref] = resource
        elif isinstance(resource, api.CallerPolicy):
            self.policies[resource.ref] = resource
        elif isinstance(resource, api.ModelDeployment):
            self.deployments[resource.ref] = resource
        elif isinstance(resource, api.ModelReplica):
            self.replicas[resource.ref] = resource


def _cluster(
    cluster: api.InferenceCluster,
    classes: Mapping[str, api.InferenceClass],
    hosts: Collection[str],
    callers: Mapping[tuple[str, str], Sequence[str]],
) -> ExpectedCluster:
    promises = [
        Promise.of(pool.name, classes[pool.class_name])
        for pool in cluster.spec.node_pools or ()
        if pool.class_name in classes
    ]
    return ExpectedCluster(
        cluster.name,
        tuple(promises),
        provisioned=cluster.spec.cluster.source != "Existing",
        has_cluster_gateway=bool(hosts),
        hosts_gateway=cluster.name in hosts,
        callers=callers,
    )


def _callers(
    gateway: api.InferenceGateway, policies: Iterable[api.CallerPolicy], secrets: Iterable[KeySecret]
) -> dict[tuple[str, str], Sequence[str]]:
    """Return the callers that a gateway counts for budgets, by policy. "Everyone" is all callers with a key."""
    if gateway.spec.auth is None:
        return {}
    keys, tokens = gateway.spec.auth.api_key, gateway.spec.auth.jwt
    selected_secrets = [secret for secret in secrets if keys and keys.secret_selector.matches(secret.labels)]
    everyone = sorted({caller_of(entry) for secret in selected_secrets for entry in secret.callers})
    allowed = [rights(policy, selected_secrets, tokens=tokens) for policy in policies if policy.spec.budgets]
    return {
        (policy_rights.policy.namespace, policy_rights.policy.name): [
            *(everyone if policy_rights.callers is None else policy_rights.callers),
            *(f"{constants.TOKEN_CALLER}{subject}" for subject in policy_rights.subjects),
        ]
        for policy_rights in allowed
    }
