# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What somebody who looks at clusters has to look for: what the resources of a fleet expect to find there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cache import DEFAULT_TOKEN_KEY
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.devices import Promise
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, entries, fields, text

SecretKeys = Mapping[tuple[str, str], frozenset[str]]
"""Keys of Secrets by (namespace, name)."""


@dataclass(frozen=True)
class ExpectedCluster:
    """What is known of a workload cluster before anybody looks: the devices that the classes of its pools promise, and
    whether the fleet makes the cluster itself."""

    name: str
    promises: tuple[Promise, ...] = ()
    made: bool = False

    @property
    def device_classes(self) -> list[str]:
        """The DeviceClasses that claims of its pools go through."""
        return sorted({name for promise in self.promises for name in promise.device_classes})

    @property
    def drivers(self) -> list[str]:
        return sorted({driver for promise in self.promises for driver in promise.drivers})


@dataclass(frozen=True)
class Expected:
    """`secrets` are the keys of Secrets on the control cluster that resources refer to; `gateway` is the
    InferenceGateway (wire form), None when there is none."""

    clusters: Mapping[str, ExpectedCluster] = field(default_factory=dict)
    secrets: SecretKeys = field(default_factory=dict)
    gateway: Object | None = None

    def cluster(self, name: str) -> ExpectedCluster:
        """What is known of a cluster, which may be nothing."""
        return self.clusters.get(name) or ExpectedCluster(name)


def expected(resources: Iterable[Object]) -> Expected:
    """What the resources of a fleet (wire form; other objects are passed over) expect.

    A pool whose class is not among them promises nothing.
    """
    by_kind: dict[str, dict[tuple[str, str], Object]] = {}
    for value in resources:
        if value.get("apiVersion") == f"{api.GROUP_MODELS}/{api.VERSION}":
            place = (text(value, "metadata", "namespace"), text(value, "metadata", "name"))
            by_kind.setdefault(text(value, "kind"), {})[place] = value
    classes = {name: value for (_, name), value in by_kind.get("InferenceClass", {}).items()}
    clusters = {
        name: _cluster(name, value, classes) for (_, name), value in by_kind.get("InferenceCluster", {}).items()
    }
    references = [_token(value) for value in by_kind.get("ModelCache", {}).values()]
    references += [_credential(value) for value in by_kind.get("ModelEndpoint", {}).values()]
    secrets: dict[tuple[str, str], frozenset[str]] = {}
    for namespace, name, key in references:
        if name:
            secrets[namespace, name] = secrets.get((namespace, name), frozenset()) | {key}
    gateways = by_kind.get("InferenceGateway", {})
    return Expected(clusters, secrets, gateways[min(gateways)] if gateways else None)


def _cluster(name: str, cluster: Object, classes: Mapping[str, Object]) -> ExpectedCluster:
    promises = [
        Promise.of(text(pool, "name"), classes[text(pool, "className")])
        for pool in entries(cluster, "spec", "nodePools")
        if text(pool, "className") in classes
    ]
    source = text(cluster, "spec", "cluster", "source")
    return ExpectedCluster(name, tuple(promises), made=source not in ("", "Existing"))


def _token(cache: Object) -> tuple[str, str, str]:
    """Namespace, name (empty: it needs none) and key of the Secret with the token of a ModelCache."""
    reference = fields(cache, "spec", "huggingFace", "authSecret")
    return _namespace(cache), text(reference, "name"), text(reference, "key") or DEFAULT_TOKEN_KEY


def _credential(endpoint: Object) -> tuple[str, str, str]:
    reference = fields(endpoint, "spec", "credential", "apiKey", "secretRef")
    return _namespace(endpoint), text(reference, "name"), text(reference, "key") or "apiKey"


def _namespace(resource: Object) -> str:
    return text(resource, "metadata", "namespace") or "default"
