# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Expected state of clusters according to the resources of a fleet, for the code that observes them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.caller_keys import caller_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cache import DEFAULT_TOKEN_KEY
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.callers import (
    KeySecret,
    rights,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.gateway import (
    composed_gateways,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.devices import Promise
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, text

SecretKeys = Mapping[tuple[str, str], frozenset[str]]
"""Keys of Secrets by (namespace, name)."""


@dataclass(frozen=True)
class ExpectedCluster:
    """Expected state of a workload cluster: the devices that the classes of its pools promise.

    `provisioned` is true for a cluster that the fleet creates, `has_cluster_gateway` for one that gateways in mode
    Model may reach, `hosts_gateway` for one that has such a gateway. `callers` are those whose use of budgets is
    counted there, by namespace and name of each CallerPolicy that has some."""

    name: str
    promises: tuple[Promise, ...] = ()
    provisioned: bool = False
    has_cluster_gateway: bool = False
    hosts_gateway: bool = False
    callers: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)

    @property
    def device_classes(self) -> list[str]:
        """DeviceClasses of the claims in its pools."""
        return sorted({name for promise in self.promises for name in promise.device_classes})

    @property
    def drivers(self) -> list[str]:
        return sorted({driver for promise in self.promises for driver in promise.drivers})


@dataclass(frozen=True)
class Expected:
    """Expected state of all clusters. `secrets` are the keys of Secrets on the control cluster that resources refer to;
    `gateway` is the InferenceGateway of the control cluster, None when there is none. `caller_keys` are the labels of
    Secrets there that hold keys of callers."""

    clusters: Mapping[str, ExpectedCluster] = field(default_factory=dict)
    secrets: SecretKeys = field(default_factory=dict)
    gateway: api.InferenceGateway | None = None
    caller_keys: tuple[Mapping[str, str], ...] = ()

    def cluster(self, name: str) -> ExpectedCluster:
        """Return the expected state of a cluster, empty for an unknown one."""
        return self.clusters.get(name) or ExpectedCluster(name)


def expected(resources: Iterable[Object], key_secrets: Sequence[KeySecret] = ()) -> Expected:
    """Return the expected state according to the resources of a fleet (wire format, as written or as on the control
    cluster). `key_secrets` are the Secrets with keys of callers that the control cluster has.

    Other objects and invalid resources are skipped. A pool whose class is missing promises no devices.
    """
    known = _Known()
    for value in resources:
        if value.get("apiVersion") == f"{api.GROUP_MODELS}/{api.VERSION}" and text(value, "kind") in _READ:
            with contextlib.suppress(api.InvalidResource):
                known.add(api.parse(value))
    gateways = composed_gateways(known.model_gateways.values())
    hosts = gateways.keys() & known.clusters.keys()
    callers = {name: _callers(gateways[name], known.policies.values(), key_secrets) for name in hosts}
    clusters = {
        name: _cluster(cluster, known.classes, hosts, callers.get(name, {})) for name, cluster in known.clusters.items()
    }
    references = [found for cache in known.caches.values() if (found := _token(cache))]
    references += [found for endpoint in known.endpoints.values() if (found := _credential(endpoint))]
    secrets: dict[tuple[str, str], frozenset[str]] = {}
    for namespace, name, key in references:
        secrets[namespace, name] = secrets.get((namespace, name), frozenset()) | {key}
    auths = [each.spec.auth for __, each in sorted(known.model_gateways.items())]
    selectors = [auth.api_key.secret_selector.match_labels for auth in auths if auth]
    return Expected(clusters, secrets, known.gateway, tuple(selectors))


_READ = frozenset(
    {"CallerPolicy", "InferenceClass", "InferenceCluster", "InferenceGateway", "ModelCache", "ModelEndpoint"}
)


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
    """Return the callers whose use of budgets a gateway counts, by policy: of one for everyone, all who have a key."""
    if gateway.spec.auth is None:
        return {}
    selector = gateway.spec.auth.api_key.secret_selector
    found = [secret for secret in secrets if selector.matches(secret.labels)]
    everyone = sorted({caller_of(entry) for secret in found for entry in secret.callers})
    allowed = {policy.ref: rights(policy, found).callers for policy in policies if policy.spec.budgets}
    return {(ref.namespace, ref.name): everyone if callers is None else callers for ref, callers in allowed.items()}


def _token(cache: api.ModelCache) -> tuple[str, str, str] | None:
    """Return namespace, name and key of the Secret with the token of a ModelCache; None when it needs none."""
    secret = cache.spec.hugging_face.auth_secret if cache.spec.hugging_face else None
    return (cache.namespace, secret.name, secret.key or DEFAULT_TOKEN_KEY) if secret else None


def _credential(endpoint: api.ModelEndpoint) -> tuple[str, str, str] | None:
    credential = endpoint.spec.credential
    reference = credential.api_key.secret_ref if credential else None
    return (endpoint.namespace, reference.name, reference.key) if reference else None
