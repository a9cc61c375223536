# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Validation of resources and of their combination: references, selectors, and invalid combinations.

The fields of all resources here are valid, except for the resources of `problems_of_invalid`. Problems have the
identity of their resource and the canonical path. Problems that another error might cause are not reported. Examples
are references to an invalid resource, or to a resource that might be in an unreadable document.
"""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..api import Resource
from ..api.inference_gateway import CONTROL_CLUSTER_GATEWAY
from ..cloud import registry
from ..cloud.cloud import Cloud
from ..devices.explain import required_values
from ..devices.limits import MAX_EXPRESSION
from ..devices.quantity import Quantity, QuantityError
from ..devices.selector import SelectorError, compile_selector
from ..devices.semver import Semver, SemverError
from ..names import CLUSTER_LABEL, DEPLOYMENT_LABEL, REPLICA_INDEX_LABEL, all_labels, workload_namespace
from ..problem import Problem, Ref, Severity, warning
from ..scheduling.adapters import fabric_of
from ..scheduling.fabric import FABRIC_DRIVER
from ..text import field_path, meant_device_memory, nearest, short, some
from . import known_gateways
from .annotations import deployment_priority, known_annotations
from .cloud_needs import cloud_cluster_needs, cluster_needs
from .device_limits import class_limits, deployment_limits
from .devices import (
    LEAST_DEVICE_MEMORY,
    class_capacities,
    class_devices,
    deployment_devices,
    is_tiny,
    named_domains,
    replica_devices,
)
from .distribution import deployment_distribution, deployment_spot
from .engines import deployment_engines, replica_engines
from .model_gateways import (
    ServingIndex,
    deployment_served_name,
    endpoints_elsewhere,
    impossible_labels,
    label_sets_of_placement,
    labels_of_replicas,
    model_endpoint,
    model_gateway,
    policy_callers,
    policy_services,
    route_by_hand,
    service_routes,
)
from .reserved_names import certificate_names, endpoint_name, service_name
from .traffic import endpoint_target, service_priorities, service_shadows

COMPOSED_KINDS = frozenset({"ModelCache", "ModelDeployment", "ModelReplica"})
"""Kinds that are composed into objects in a namespace on workload clusters."""

Selector = Mapping[str, str]
Rule = Callable[[Any, "_Fleet"], Iterator[Problem]]

# Names and values of labels are words of these characters.
_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
# As parts of selectors.
_CONSTANTS = re.compile(r"""\b(quantity|semver)\(\s*(["'])([^"'\\]*)\2\s*\)""")
_MEMORY_COMPARISON = re.compile(
    r"""\bmemory\s*\.\s*(?:compareTo|isGreaterThan|isLessThan)\(\s*quantity\(\s*(["'])([^"'\\]*)\1"""
)
_MOST_NAMED = 8
_NEIGHBOURS = 20
_MOST_SHOWN = 100


@dataclass(frozen=True)
class Unread:
    """Document with an unknown resource."""

    kind: str = ""
    """Kind of the resource, "" for any kind."""
    text: str | None = None
    """Text that contains the names of the resource, None for any name."""


class References:
    """Validator of references between resources.

    `resources` are valid by themselves; `invalid` are the identities of invalid resources; `unread` are documents that
    may be resources as well.
    """

    def __init__(self, resources: Sequence[Resource], invalid: Collection[Ref], unread: Sequence[Unread] = ()) -> None:
        self._resources = resources
        self._fleet = _Fleet(resources, invalid, unread)

    def problems(self) -> Iterator[Problem]:
        """Yield all problems between the resources."""
        for resource in self._resources:
            ref = resource.ref
            for rule in (known_annotations, *_RULES.get(ref.kind, ())):
                for problem in rule(resource, self._fleet):
                    yield replace(problem, ref=ref)

    def problems_of_invalid(self, document: Mapping[str, Any], namespace: str) -> Iterator[Problem]:
        """Yield the problems of references and selectors in a canonical document that is itself invalid.

        All errors of a document are thus reported together.
        """
        for path, key, value in _texts(document, ""):
            if key == "cel" and ".selectors[" in path:
                error = self._fleet.selector_error(value) if len(value) <= MAX_EXPRESSION else ""
                if error:
                    yield Problem(f"is not a valid selector of Kubernetes: {error}", path)
            elif key == "className" and path.startswith("spec.nodePools["):
                yield from _class_reference(value, path, self._fleet)
            elif path.endswith("spec.modelCacheRef.name"):
                yield from _cache_name(value, namespace, path, self._fleet)
            elif path == "spec.clusterName" and document.get("kind") == "InferenceGateway":
                yield from _cluster_name(value, self._fleet)


def _texts(value: Any, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield (path, key, text) of every string in a document."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            inner = field_path(path, key)
            if isinstance(below, str):
                yield inner, str(key), below
            else:
                yield from _texts(below, inner)
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _texts(below, f"{path}[{index}]")


def _dangling(kind: str, message: str, path: str, value: str, hint: str, fleet: _Fleet) -> Problem:
    """Return the problem of a reference to a missing resource.

    If resources of that kind exist, the problem is an error, most likely a misspelling. Otherwise, it is a warning,
    because the resource might exist elsewhere (on the control cluster, in another folder).
    """
    severity: Severity = "error" if fleet.has(kind) else "warning"
    return Problem(message, path, value, hint, severity)


class _Fleet:
    """Index of the resources. It keeps every rule linear."""

    def __init__(self, resources: Sequence[Resource], invalid: Collection[Ref], unread: Sequence[Unread]) -> None:
        self._by_kind: dict[str, dict[Ref, Any]] = defaultdict(dict)
        for resource in resources:
            self._by_kind[resource.ref.kind][resource.ref] = resource
        self._invalid = frozenset(invalid)
        self._invalid_kinds = {ref.kind for ref in invalid}
        self._invalid_places = {(ref.kind, ref.namespace) for ref in invalid}
        self._invalid_names = {(ref.namespace, ref.name) for ref in invalid}
        self._unread_kinds = {unread_document.kind for unread_document in unread}
        self._unread_with_any_name = {
            unread_document.kind for unread_document in unread if unread_document.text is None
        }
        self._unread_words: dict[str, set[str]] = defaultdict(set)
        for unread_document in unread:
            self._unread_words[unread_document.kind].update(_WORD.findall(unread_document.text or ""))
        self._selected: dict[frozenset[tuple[str, str]], bool] = {}
        self._compiled: dict[str, str] = {}

    def find(self, kind: str, namespace: str, name: str) -> Any:
        return self._by_kind[kind].get(Ref(kind, namespace, name))

    def has(self, kind: str) -> bool:
        """Return True if a resource of the kind exists, valid or not."""
        return bool(self._by_kind[kind]) or kind in self._invalid_kinds

    def exists(self, kind: str, namespace: str, name: str) -> bool:
        """Return True if such a resource exists or might exist.

        A resource might exist if it is invalid, even as another kind, or if a document cannot be read.
        """
        return (
            Ref(kind, namespace, name) in self._by_kind[kind]
            or (namespace, name) in self._invalid_names
            or self._may_be_unread(kind, name)
        )

    def _may_be_unread(self, kind: str, name: str) -> bool:
        """Return True when a document that cannot be read may be a resource of a kind, with a name (or a label)."""
        return any(of in self._unread_with_any_name or name in self._unread_words[of] for of in ("", kind))

    def unknown(self, kind: str) -> bool:
        """Return True if the fleet has, or might have, resources of this kind with unknown content."""
        return kind in self._invalid_kinds or not self._unread_kinds.isdisjoint(("", kind))

    def complete(self, kind: str) -> bool:
        """Return True if resources of this kind exist and all are valid."""
        return bool(self._by_kind[kind]) and not self.unknown(kind)

    def of_kind(self, kind: str) -> Iterable[Any]:
        return self._by_kind[kind].values()

    @cached_property
    def first_priced_class(self) -> Any:
        """Return the first InferenceClass with prices, by name; None without one."""
        priced = (inference_class for inference_class in self.of_kind("InferenceClass") if inference_class.spec.pricing)
        return min(priced, key=lambda inference_class: inference_class.name, default=None)

    def names(self, kind: str, namespace: str) -> Sequence[str]:
        """Return the existing names, sorted."""
        return self._names.get((kind, namespace), ())

    @cached_property
    def _names(self) -> Mapping[tuple[str, str], list[str]]:
        names: dict[tuple[str, str], list[str]] = defaultdict(list)
        for ref in sorted({*self._invalid, *(ref for resources in self._by_kind.values() for ref in resources)}):
            names[(ref.kind, ref.namespace)].append(ref.name)
        return names

    def sharing(self, namespace: str) -> Sequence[str]:
        """Return the namespaces that map to the same namespace on workload clusters, including this one, sorted."""
        return self._sharing[workload_namespace(namespace)]

    @cached_property
    def _sharing(self) -> Mapping[str, list[str]]:
        refs = (*self._invalid, *(ref for kind in COMPOSED_KINDS for ref in self._by_kind[kind]))
        namespaces: dict[str, list[str]] = defaultdict(list)
        for namespace in sorted({ref.namespace for ref in refs if ref.kind in COMPOSED_KINDS}):
            namespaces[workload_namespace(namespace)].append(namespace)
        return namespaces

    def selector_error(self, expression: str) -> str:
        """Return the error of a CEL selector, "" when it compiles."""
        if expression not in self._compiled:
            try:
                compile_selector(expression)
            except SelectorError as error:
                self._compiled[expression] = str(error)
            else:
                self._compiled[expression] = ""
        return self._compiled[expression]

    def selects_a_cluster(self, selector: Selector) -> bool:
        pairs = frozenset(selector.items())
        if pairs not in self._selected:
            sets = [self._clusters_by_label.get(pair, frozenset()) for pair in pairs]
            self._selected[pairs] = bool(frozenset.intersection(*sets)) if sets else True
        return self._selected[pairs]

    @cached_property
    def serving(self) -> ServingIndex:
        """Index of the services of all Model gateways."""
        read = ("InferenceGateway", "ModelService", "InferenceCluster", "CallerPolicy", "ModelEndpoint")
        return ServingIndex(*(self.of_kind(kind) for kind in read))

    @cached_property
    def _clusters_by_label(self) -> Mapping[tuple[str, str], frozenset[str]]:
        clusters: dict[tuple[str, str], set[str]] = defaultdict(set)
        for cluster in self.of_kind("InferenceCluster"):
            for pair in all_labels(cluster).items():
                clusters[pair].add(cluster.name)
        return {pair: frozenset(names) for pair, names in clusters.items()}

    @cached_property
    def cluster_labels(self) -> str:
        """Labels of clusters as text."""
        values: dict[str, list[str]] = defaultdict(list)
        for key, value in sorted(self._clusters_by_label):
            values[key].append(value)
        labels = [f"{key}: {some(label_values)}" for key, label_values in list(values.items())[:_MOST_NAMED]]
        return "Labels of clusters are " + "; ".join(labels)

    @cached_property
    def domains(self) -> frozenset[str]:
        """Drivers of all devices of all classes, and the domains of their attributes and capacities."""
        domains = set()
        for inference_class in self.of_kind("InferenceClass"):
            for device in inference_class.spec.devices:
                domains.add(device.driver)
                for key in (*(device.attributes or {}), *(device.capacity or {})):
                    if "/" in key:
                        domains.add(key.partition("/")[0])
        return frozenset(domains)

    @cached_property
    def device_values(self) -> Mapping[tuple[str, str], frozenset[str]]:
        """Names of the attributes and of the capacities of all devices of all classes, by domain."""
        names_by_domain: dict[tuple[str, str], set[str]] = defaultdict(set)
        for inference_class in self.of_kind("InferenceClass"):
            for device in inference_class.spec.devices:
                for kind in ("attributes", "capacity"):
                    for key in getattr(device, kind) or {}:
                        domain, __, name = key.rpartition("/")
                        names_by_domain[kind, domain or device.driver].add(name)
        return {kind_and_domain: frozenset(names) for kind_and_domain, names in names_by_domain.items()}

    @cached_property
    def _endpoints(self) -> Mapping[tuple[str, str, str], list[Mapping[str, str]]]:
        """Label sets of all endpoints that a service can select, by namespace and by each label.

        Labels that are not known before scheduling are left out: see `_placement_is_possible`.
        """
        label_sets: dict[tuple[str, str, str], list[Mapping[str, str]]] = defaultdict(list)
        for resource, labels in self._label_sets():
            for key, value in labels.items():
                label_sets[(resource.namespace or "", key, value)].append(labels)
        return label_sets

    def _label_sets(self) -> Iterator[tuple[Any, Mapping[str, str]]]:
        for endpoint in self.of_kind("ModelEndpoint"):
            yield endpoint, endpoint.labels
        placement_sets = label_sets_of_placement(self.of_kind("InferenceCluster"))
        for replica in self.of_kind("ModelReplica"):
            yield from ((replica, {**placement_labels, **replica.labels}) for placement_labels in placement_sets)
        for deployment in self.of_kind("ModelDeployment"):
            yield from (
                (deployment, {**placement_labels, **labels_of_replicas(deployment)})
                for placement_labels in placement_sets
            )

    def selects_an_endpoint(self, namespace: str, selector: Selector) -> bool:
        """Return True if an endpoint matches: in the manifests, or composed for a deployment later."""
        fixed = {key: value for key, value in selector.items() if key not in (CLUSTER_LABEL, REPLICA_INDEX_LABEL)}
        if not self._placement_is_possible(selector):
            fixed = dict(selector)
        if not fixed:
            return any(resource.namespace == namespace for resource, _labels in self._label_sets())
        # The deployment label is the most selective one.
        lookup_key = DEPLOYMENT_LABEL if DEPLOYMENT_LABEL in fixed else min(fixed)
        candidates = self._endpoints.get((namespace, lookup_key, fixed[lookup_key]), ())
        return any(fixed.items() <= labels.items() for labels in candidates)

    def may_select_an_endpoint(self, namespace: str, selector: Selector) -> bool:
        """Return True if an endpoint with unknown labels might match, because its document has errors."""
        deployment = selector.get(DEPLOYMENT_LABEL)
        for kind in ("ModelEndpoint", "ModelReplica", "ModelDeployment"):
            if kind == "ModelDeployment" and deployment is not None:
                invalid = Ref(kind, namespace, deployment) not in self._by_kind[kind] and (
                    (namespace, deployment) in self._invalid_names
                )
            else:
                invalid = (kind, namespace) in self._invalid_places
            values = [value for key, value in selector.items() if key not in (CLUSTER_LABEL, REPLICA_INDEX_LABEL)]
            unread = not self._unread_kinds.isdisjoint(("", kind))
            if invalid or (unread and all(self._may_be_unread(kind, value) for value in values)):
                return True
        return False

    def _placement_is_possible(self, selector: Selector) -> bool:
        """Return True if replicas might get these labels. Their values are unknown before scheduling."""
        cluster, index = selector.get(CLUSTER_LABEL), selector.get(REPLICA_INDEX_LABEL)
        clusters = self._by_kind["InferenceCluster"]
        cluster_ok = cluster is None or not clusters or self.exists("InferenceCluster", "", cluster)
        return cluster_ok and (index is None or (index.isascii() and index.isdigit()))


def _nearest(name: str, names: Sequence[str], kind: str) -> str:
    """Return the hint for a name that is not in the sorted sequence `names`."""
    if not names:
        return f"No {kind} exists: add it to the manifests{_catalogue(name, kind)}"
    # Comparing is slow, so only names that are close in the alphabet are compared.
    position = bisect.bisect(names, name)
    close = nearest(name, names[max(0, position - _NEIGHBOURS) : position + _NEIGHBOURS])
    exist = f"Existing: {some(names, _MOST_NAMED)}"
    return f"Did you mean {close}? {exist}" if close else f"{exist}{_catalogue(name, kind)}"


def _catalogue(name: str, kind: str) -> str:
    """Return the folder of the collection's classes for a name that is named like one of them."""
    cloud = registry.BY_NAME.get(name.partition("-")[0])
    if kind != "InferenceClass" or cloud is None:
        return ""
    return f". Classes of {cloud.source} come with the collection, in playbooks/files/classes/{cloud.name}"


def _match_labels(selector: Any) -> Selector:
    return (selector.match_labels or {}) if selector else {}


def _pairs(selector: Selector) -> str:
    text = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


def _workload_namespace(resource: Any, fleet: _Fleet) -> Iterator[Problem]:
    """Yield namespaces with the same name on workload clusters: long names are cut, and their hash has 20 bits only."""
    sharing = fleet.sharing(resource.ref.namespace)
    if len(sharing) > 1:
        yield Problem(
            f"namespaces {', '.join(sharing)} would share one namespace on workload clusters, "
            f"{workload_namespace(sharing[0])}, and could access each other's objects",
            "metadata.namespace",
            short(resource.ref.namespace),
            "Rename one of them",
        )


# --- InferenceGateway and InferenceCluster ---


def _gateway_name(gateway: Any, _fleet: object) -> Iterator[Problem]:
    if gateway.mode == "Path" and gateway.name != CONTROL_CLUSTER_GATEWAY:
        hint = f"Of those in mode Path, only the one named {CONTROL_CLUSTER_GATEWAY} is used"
        yield warning("is not the gateway of the fleet", "metadata.name", hint, short(gateway.name))


def _gateway_cluster(gateway: Any, fleet: _Fleet) -> Iterator[Problem]:
    if gateway.spec.cluster_name is not None:
        yield from _cluster_name(gateway.spec.cluster_name, fleet)


def _cluster_name(name: str, fleet: _Fleet) -> Iterator[Problem]:
    if not fleet.exists("InferenceCluster", "", name):
        hint = _nearest(name, fleet.names("InferenceCluster", ""), "InferenceCluster")
        message = "names an InferenceCluster that does not exist"
        yield _dangling("InferenceCluster", message, "spec.clusterName", short(name), hint, fleet)


def _cluster_source(cluster: Any, _fleet: object) -> Iterator[Problem]:
    source = cluster.spec.cluster.source
    if source in registry.unsupported_sources():
        hint = f"Sources that are built: {', '.join(registry.BY_SOURCE)}; or create it yourself and use Existing"
        yield warning("is accepted, but no cluster is built from it", "spec.cluster.source", hint, short(source))


def _pool_classes(cluster: Any, fleet: _Fleet) -> Iterator[Problem]:
    source = cluster.spec.cluster.source
    for index, pool in enumerate(cluster.spec.node_pools or ()):
        path = f"spec.nodePools[{index}]"
        inference_class = fleet.find("InferenceClass", "", pool.class_name)
        if inference_class is not None:
            yield from _provisioning(pool, inference_class, source, path)
        else:
            yield from _class_reference(pool.class_name, f"{path}.className", fleet, source)
        home = _home(pool.fabric.type) if pool.fabric is not None else None
        if home is not None and source not in (home.source, "Existing"):
            fabric = pool.fabric.type
            hint = f"{fabric} exists on {home.vendor} only: sources {home.source} and Existing"
            yield warning(f"does not exist on {source}", f"{path}.fabric.type", hint, fabric)
    yield from _fabric_zones(cluster)


def _home(fabric: str) -> Cloud | None:
    """Return the only cloud that has a fabric of this type; None where there may be several."""
    return next(
        (cloud for cloud in registry.CLOUDS for cloud_fabric in cloud.fabrics if cloud_fabric.type == fabric), None
    )


def _fabric_zones(cluster: Any) -> Iterator[Problem]:
    """Yield node pools with a fabric that would span zones."""
    pool_and_zone: dict[tuple[str, str], tuple[str, str]] = {}
    for index, pool in enumerate(cluster.spec.node_pools or ()):
        path = f"spec.nodePools[{index}]"
        fabric, zones = fabric_of(pool), sorted(set(pool.zones or ()))
        if fabric is None or not zones or cluster.spec.cluster.source not in registry.BY_SOURCE:
            continue
        if len(zones) > 1:
            message = f"are several, but a fabric ({fabric[0]}) cannot span zones"
            hint = f"Set one: zones: [{zones[0]}], and add a pool for each other zone"
            yield warning(message, f"{path}.zones", hint, ", ".join(zones))
            continue
        first_pool, zone = pool_and_zone.setdefault(fabric, (pool.name, zones[0])) if fabric[1] else ("", zones[0])
        if zone != zones[0]:
            message = f"is also the fabric of pool {first_pool}, which is in {zone}; this pool is in {zones[0]}"
            hint = "Pools can share a fabric within one zone only: name a fabric for each zone"
            yield warning(message, f"{path}.fabric", hint, short(fabric[1]))


def _class_reference(name: str, path: str, fleet: _Fleet, source: str = "Existing") -> Iterator[Problem]:
    if not fleet.exists("InferenceClass", "", name):
        classes = fleet.of_kind("InferenceClass")
        usable = sorted(
            inference_class.name
            for inference_class in classes
            if source == "Existing" or _block(inference_class, source) is not None
        )
        hint = _nearest(name, usable or fleet.names("InferenceClass", ""), "InferenceClass")
        message = "names an InferenceClass that does not exist"
        yield _dangling("InferenceClass", message, path, short(name), hint, fleet)


def _class_currency(inference_class: Any, fleet: _Fleet) -> Iterator[Problem]:
    pricing = inference_class.spec.pricing
    reference = fleet.first_priced_class
    if pricing and reference and pricing.currency != reference.spec.pricing.currency:
        message = f"differs from InferenceClass {reference.name}, whose prices are in {reference.spec.pricing.currency}"
        hint = "Prices of a fleet are compared and added, so all are in one currency"
        yield Problem(message, "spec.pricing.currency", pricing.currency, hint)


def _provisioning(pool: Any, inference_class: Any, source: str, path: str) -> Iterator[Problem]:
    if source == "Existing":
        return
    provisioning = inference_class.spec.provisioning
    if _block(inference_class, source) is None:
        block = f"spec.provisioning.{source.lower()}"
        message = f"names a class that cannot be provisioned on {source}: it has no {block}"
        hint = f"Add that block to the class, or choose a class for {source}"
        yield Problem(message, f"{path}.className", short(pool.class_name), hint)
    elif provisioning.provider != source:
        message = (
            f"names a class whose provisioning.provider is {provisioning.provider}; its block for {source} is used"
        )
        yield warning(message, f"{path}.className", value=short(pool.class_name))


def _block(inference_class: Any, source: str) -> Any:
    """Return the block that provisions nodes of a class on a cloud; None without a block."""
    return getattr(inference_class.spec.provisioning, source.lower(), None)


# --- ModelCache, ModelDeployment, ModelReplica ---


def _cache_clusters(cache: Any, fleet: _Fleet) -> Iterator[Problem]:
    yield from _no_cluster(_match_labels(cache.spec.cluster_selector), "spec.clusterSelector.matchLabels", fleet)


def _no_cluster(selector: Selector, path: str, fleet: _Fleet) -> Iterator[Problem]:
    if selector and fleet.complete("InferenceCluster") and not fleet.selects_a_cluster(selector):
        yield warning("matches no cluster", path, fleet.cluster_labels, _pairs(selector))


def _deployment_cache(deployment: Any, fleet: _Fleet) -> Iterator[Problem]:
    template = deployment.spec.template.spec
    yield from _cache_reference(deployment, template.model_cache_ref, "spec.template.spec.modelCacheRef.name", fleet)
    if template.model_cache_ref is None:
        for index, engine in enumerate(template.engines):
            if any(member.role == "Worker" for member in engine.members):
                message = f"engine {engine.name} spans several nodes, but the deployment has no modelCacheRef"
                hint = "Without a cache every pod downloads the model itself: add a ModelCache and refer to it"
                yield warning(message, f"spec.template.spec.engines[{index}]", hint)


def _cache_reference(resource: Any, reference: Any, path: str, fleet: _Fleet) -> Iterator[Problem]:
    if reference is not None:
        yield from _cache_name(reference.name, resource.namespace, path, fleet)


def _cache_name(name: str, namespace: str, path: str, fleet: _Fleet) -> Iterator[Problem]:
    if fleet.exists("ModelCache", namespace, name):
        return
    message = f"names a ModelCache that does not exist in namespace {namespace}"
    hint = _nearest(name, fleet.names("ModelCache", namespace), "ModelCache")
    yield _dangling("ModelCache", message, path, short(name), hint, fleet)


def _deployment_clusters(deployment: Any, fleet: _Fleet) -> Iterator[Problem]:
    template = deployment.spec.template.spec
    deployment_labels, path = _match_labels(template.cluster_selector), "spec.template.spec.clusterSelector.matchLabels"
    reference = template.model_cache_ref
    cache = fleet.find("ModelCache", deployment.namespace, reference.name) if reference else None
    cached = _match_labels(cache.spec.cluster_selector) if cache else {}
    for key in sorted(deployment_labels.keys() & cached.keys()):
        if deployment_labels[key] != cached[key]:
            message = f"differs from ModelCache {reference.name}, whose value {cached[key]!r} takes precedence"
            hint = "Set the same value in both, or the key in only one of them"
            yield warning(message, f'{path}["{key}"]', hint, short(deployment_labels[key]))
    if deployment_labels:
        yield from _no_cluster({**deployment_labels, **cached}, path, fleet)


def _deployment_selectors(deployment: Any, fleet: _Fleet) -> Iterator[Problem]:
    for engine_index, engine in enumerate(deployment.spec.template.spec.engines):
        for member_index, member in enumerate(engine.members):
            devices = member.node_selector.devices if member.node_selector else ()
            path = f"spec.template.spec.engines[{engine_index}].members[{member_index}].nodeSelector.devices"
            yield from _selectors(devices, path, fleet)


def _replica_selectors(replica: Any, fleet: _Fleet) -> Iterator[Problem]:
    for engine_index, engine in enumerate(replica.spec.engines):
        for member_index, member in enumerate(engine.members):
            path = f"spec.engines[{engine_index}].members[{member_index}].deviceRequests"
            yield from _selectors(member.device_requests or (), path, fleet)


def _selectors(requests: Iterable[Any], base: str, fleet: _Fleet) -> Iterator[Problem]:
    for request_index, request in enumerate(requests):
        for index, selector in enumerate(request.selectors or ()):
            if selector.cel is None:
                continue
            path = f"{base}[{request_index}].selectors[{index}].cel"
            error = fleet.selector_error(selector.cel)
            if error:
                yield Problem(f"is not a valid selector of Kubernetes: {error}", path)
            else:
                yield from _unknown_domains(selector.cel, path, fleet)
                yield from _unknown_values(selector.cel, path, fleet)
                yield from _impossible_values(selector.cel, path)


def _impossible_values(expression: str, path: str) -> Iterator[Problem]:
    """Yield warnings of constants that Kubernetes accepts, and that are an error for each device."""
    for function, __, text in _CONSTANTS.findall(expression):
        try:
            Quantity.parse(text) if function == "quantity" else Semver.parse(text)
        except (QuantityError, SemverError) as error:
            yield warning(f"matches no device for which {function} is asked: {error}", path)
    for __, amount in _MEMORY_COMPARISON.findall(expression):
        if is_tiny(amount, LEAST_DEVICE_MEMORY):
            suggestion = meant_device_memory(amount)
            hint = f"Did you mean {suggestion}?" if suggestion else "Add the unit, such as Gi"
            yield warning("compares the memory of a device with less than 1 GiB", path, hint, short(amount))


def _unknown_domains(expression: str, path: str, fleet: _Fleet) -> Iterator[Problem]:
    if not fleet.complete("InferenceClass"):
        return
    for domain in sorted(named_domains(expression) - fleet.domains - {FABRIC_DRIVER}):
        hint = f"Domains of the classes are {some(sorted(fleet.domains))}"
        yield warning("names a domain that no InferenceClass has", path, hint, short(domain))


def _unknown_values(expression: str, path: str, fleet: _Fleet) -> Iterator[Problem]:
    """Yield warnings of attributes and capacities that no device of their domain has. Without a device in the domain,
    the domain has a warning."""
    if not fleet.complete("InferenceClass"):
        return
    for kind, domain, name in sorted(required_values(compile_selector(expression))):
        device_names = fleet.device_values.get((kind, domain), frozenset())
        if domain in fleet.domains and domain != FABRIC_DRIVER and name not in device_names:
            noun = "an attribute" if kind == "attributes" else "a capacity"
            hint = f"InferenceClasses have {some(sorted(device_names)) or 'none'} in domain {domain}"
            yield warning(f"names {noun} that no InferenceClass has", path, hint, short(name))


def _replica_references(replica: Any, fleet: _Fleet) -> Iterator[Problem]:
    yield from (replace(problem, severity="warning") for problem in _cluster_name(replica.spec.cluster_name, fleet))
    yield from _cache_reference(replica, replica.spec.model_cache_ref, "spec.modelCacheRef.name", fleet)


# --- ModelService ---


def _service_endpoints(service: Any, fleet: _Fleet) -> Iterator[Problem]:
    namespace = service.namespace
    for index, entry in enumerate(service.spec.endpoints):
        selector = entry.selector.match_labels
        path = f"spec.endpoints[{index}].selector.matchLabels"
        impossible = [replace(problem, severity="warning") for problem in impossible_labels(selector, path)]
        yield from impossible
        if not (
            impossible
            or fleet.selects_an_endpoint(namespace, selector)
            or fleet.may_select_an_endpoint(namespace, selector)
        ):
            name = selector.get(DEPLOYMENT_LABEL)
            hint = "Select the endpoints of a deployment by its name, or hand-written ones by their labels"
            if name is not None and fleet.find("ModelDeployment", namespace, name) is None:
                hint = _nearest(name, fleet.names("ModelDeployment", namespace), f"ModelDeployment in {namespace}")
            hint = endpoints_elsewhere(service, selector, fleet) or hint
            yield warning(f"matches no endpoint in namespace {namespace}", path, hint, _pairs(selector))


_RULES: Mapping[str, Sequence[Rule]] = {
    "InferenceClass": (class_devices, class_capacities, class_limits, _class_currency),
    "InferenceGateway": (
        _gateway_name,
        _gateway_cluster,
        certificate_names,
        model_gateway,
        known_gateways.gateway_status,
    ),
    "InferenceCluster": (_cluster_source, _pool_classes, cluster_needs, known_gateways.cluster_status),
    **dict.fromkeys(registry.KINDS, (cloud_cluster_needs,)),
    "ModelCache": (_workload_namespace, _cache_clusters),
    "ModelDeployment": (
        _workload_namespace,
        deployment_priority,
        _deployment_cache,
        _deployment_clusters,
        deployment_distribution,
        deployment_spot,
        _deployment_selectors,
        deployment_engines,
        deployment_devices,
        deployment_limits,
        deployment_served_name,
    ),
    "ModelReplica": (
        _workload_namespace,
        _replica_references,
        _replica_selectors,
        replica_engines,
        replica_devices,
    ),
    "ModelService": (service_name, _service_endpoints, service_priorities, service_shadows, service_routes),
    "ModelEndpoint": (endpoint_name, endpoint_target, model_endpoint),
    "ModelRoute": (route_by_hand,),
    "CallerPolicy": (policy_services, policy_callers),
}
