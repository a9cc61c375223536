# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Resources and state of a fleet from the observation of its control cluster.

A control cluster contains three types of `modelplane.ai` objects, and labels distinguish them. Objects that users
created have no label of the fleet. *Published* objects are copies of manifests, so that `kubectl get` shows the whole
fleet. The manifest has priority over its copy. All other managed objects are *composed*. Their ModelReplicas and
ModelEndpoints are the state that a run starts from.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from ..core import api, names
from ..core.api.inference_gateway import CONTROL_CLUSTER_GATEWAY, mode_of
from ..core.load import Loaded, Source
from ..core.observation import Observed
from ..core.planning.fleet import Earlier, nothing_earlier
from ..core.problem import Problem, Ref
from ..core.wire import LAST_APPLIED, Object, fields, has_all_of, identity, text
from .directory import StoreError
from .previous_objects import OWNER_LABELS, model_routes

_METADATA = ("name", "namespace", "labels", "annotations", "creationTimestamp", "generation")
_STATE_METADATA = ("name", "namespace", "labels", "annotations")
_GATEWAY = "InferenceGateway"
_POLICY = "CallerPolicy"
_ENDPOINT = "ModelEndpoint"
_ROUTED = ("ModelService", _ENDPOINT, "InferenceCluster")
_OF_COPIES = (names.MANAGED_BY_LABEL, names.PUBLISHED_LABEL)
_STATE = ("ModelReplica", _ENDPOINT)
_OWNERS = frozenset(OWNER_LABELS.values())


class ControlCluster:
    """State of the fleet in an observation of a control cluster."""

    def __init__(self, observed: Observed, built: Earlier = nothing_earlier) -> None:
        """Create the state of an observation.

        `built`: lookup of a resource in the build directory of the last run, if it still exists."""
        self._observed = observed
        self._built = built
        self._resources = [value for value in observed.control if _is_resource(value)]

    def sources(self) -> list[Source]:
        """Return the resources that users created on the control cluster, as manifests."""
        return [_source(value) for value in self._resources if not _is_managed(value)]

    def copies(self) -> list[str]:
        """Return the resources that are copies of manifests: "<kind> <namespace>/<name>"."""
        return [str(_ref(value)) for value in self._resources if _is_published(value)]

    def applied(self, ref: Ref) -> Object | None:
        """Return a resource of the control cluster, copied or created there, or None if it does not exist."""
        return self._observed.control.find(ref.kind, ref.namespace, ref.name)

    def lacks(self, ref: Ref, built: Callable[[Ref], Object | None]) -> bool:
        """Return True if no run applied a resource.

        Each run leaves copies of all resources on the control cluster, and in the build directory (`built`). A cluster
        without any copy might have become the control cluster of the fleet recently."""
        return self.applied(ref) is None and built(ref) is None and any(map(_is_published, self._resources))

    def published(self, loaded: Loaded, built: Callable[[Ref], Object | None]) -> list[Object]:
        """Return the manifest copies for the control cluster (see `published_copies`).

        `built`: function that returns the copy in the build directory."""
        return published_copies(loaded, [_as_written(value, built(_ref(value))) for value in self._resources])

    def replicas(self, ref: Ref) -> int | None:
        """Return the number of replicas in the copy of a ModelDeployment on the control cluster.

        `kubectl scale` and autoscalers set this number with the scale subresource."""
        live_copy = self.applied(ref)
        number = fields(live_copy, "spec").get("replicas")
        return number if live_copy is not None and _is_published(live_copy) and isinstance(number, int) else None

    def existing(self) -> list[api.Resource]:
        """Return the ModelReplicas and ModelEndpoints that earlier runs composed. Raise StoreError."""
        return [
            _state(value)
            for value in self._resources
            if value["kind"] in _STATE and _is_managed(value) and not _is_published(value)
        ]

    def statuses(self) -> dict[Ref, Mapping[str, Any]]:
        """Return the status of every resource, including composed resources."""
        return {_ref(value): value["status"] for value in self._resources if fields(value, "status")}

    def earlier(self, ref: Ref) -> Sequence[tuple[str, Object]]:
        """Return the objects that earlier runs composed of a resource, each with its inference cluster or "".

        See `EarlierObjects`. The API server returns live objects, and the build directory contains their desired form.
        For a cluster that was not observed or did not respond, only the build directory is used. No objects are applied
        there either.
        """
        built = list(self._built(ref))
        label = OWNER_LABELS.get(ref.kind)
        if label is None:
            return built
        observed = self._observed.clusters
        observed_names = {
            name for name, cluster in observed.items() if not cluster.unreachable and not cluster.declared
        }
        built_objects = {(cluster_name, *identity(value)): value for cluster_name, value in built}
        key = (label, names.label_value(ref.name), names.label_value(ref.namespace))
        composed = [
            (cluster_name, _cleaned(value, _STATE_METADATA)) for cluster_name, value in self._composed.get(key, ())
        ]
        earlier_objects = [
            (cluster_name, file if file and cluster_name else _as_written(value, file))
            for cluster_name, value in composed
            for file in [built_objects.get((cluster_name, *identity(value)))]
        ]
        return [
            *earlier_objects,
            *(
                (cluster_name, value)
                for cluster_name, value in built
                if cluster_name and cluster_name not in observed_names
            ),
        ]

    def objects(self) -> dict[str, int]:
        """Return the number of copied and composed objects by inference cluster, "" for the control cluster."""
        object_keys = {("", *identity(value)) for value in self._resources if _is_published(value)}
        object_keys |= {(cluster, *identity(value)) for values in self._composed.values() for cluster, value in values}
        return dict(Counter(cluster for cluster, *__ in object_keys))

    def routed(self) -> list[api.ModelRoute]:
        """Return the ModelRoutes that earlier runs composed."""
        return model_routes(filter(_is_managed, self._resources))

    @cached_property
    def _composed(self) -> Mapping[tuple[str, str, str], Sequence[tuple[str, Object]]]:
        """Return the composed objects by the label of their owner's kind, its name, and its namespace.

        All objects are read once, because a fleet can have many owners."""
        objects_by_owner: dict[tuple[str, str, str], list[tuple[str, Object]]] = {}
        clusters = sorted(self._observed.clusters.items())
        for cluster, objects in [
            ("", self._observed.control),
            *((name, observed_cluster.objects) for name, observed_cluster in clusters),
        ]:
            for value in objects:
                if _is_managed(value) and not _is_published(value):
                    labels = fields(value, "metadata", "labels")
                    for label in _OWNERS & labels.keys():
                        key = (label, text(labels, label), text(labels, names.NAMESPACE_LABEL))
                        objects_by_owner.setdefault(key, []).append((cluster, value))
        return objects_by_owner


def as_scaled(resource: api.Resource, replicas: Callable[[Ref], int | None]) -> api.Resource:
    """Return a ModelDeployment without `replicas` in its manifest with its known number of replicas.

    `replicas`: lookup of the number. Other resources are returned unchanged."""
    if not isinstance(resource, api.ModelDeployment) or "replicas" in resource.spec.model_fields_set:
        return resource
    number = replicas(resource.ref)
    if number is None:
        return resource
    wire = api.wire(resource, set_only=True)
    return api.parse({**wire, "spec": {**wire["spec"], "replicas": number}})


def published_copies(loaded: Loaded, known: Sequence[Object]) -> list[Object]:
    """Return the copies of manifests for a control cluster.

    The copies contain only the fields of the manifests, so that other managers can set other fields (`kubectl scale`,
    an autoscaler). The copy of an invalid manifest is kept. `known`: the resources on the control cluster."""
    made_there = {_ref(value) for value in known if not _is_managed(value)}
    invalid_copies = [
        _cleaned(value, _STATE_METADATA) for value in known if _is_published(value) and _ref(value) in loaded.invalid
    ]
    return invalid_copies + [
        published_copy(resource)
        for resource in (*loaded.resources, *loaded.unresolved)
        if resource.ref not in made_there and resource.labels.get(names.MANAGED_BY_LABEL) != names.MANAGED_BY
    ]


def left_copies(refs: Iterable[Ref], applied: Callable[[Ref], Object | None]) -> list[Object]:
    """Return the existing copies of resources that left the manifests. They are kept because of their status."""
    live_copies = (live_copy for ref in refs if (live_copy := applied(ref)) and _is_published(live_copy))
    return [_cleaned(live_copy, _STATE_METADATA) for live_copy in live_copies]


def published_copy(resource: api.Resource) -> Object:
    """Return the copy of a manifest for the control cluster."""
    wire = api.wire(resource, set_only=True)
    wire.pop("status", None)
    metadata = {key: wire["metadata"][key] for key in _STATE_METADATA if wire["metadata"].get(key)}
    labels = {**(metadata.get("labels") or {}), names.MANAGED_BY_LABEL: names.MANAGED_BY}
    return {**wire, "metadata": {**metadata, "labels": {**labels, names.PUBLISHED_LABEL: "true"}}}


def held_resources(
    valid: Iterable[api.Resource],
    invalid: Iterable[Ref],
    applied: Callable[[Ref], Object | None],
    statuses: Mapping[Ref, Mapping[str, Any]],
) -> tuple[list[api.Resource], bool]:
    """Return the frozen resources of Model gateways in their last applied state, if known, and True if such gateways
    exist.

    Frozen resources have invalid manifests. They affect more than their own objects: names of engines, gateways of
    clusters, and callers and limits of services."""
    refs = sorted(invalid)
    applied_resources = [
        held_resource
        for ref in refs
        if ref.kind in (_GATEWAY, _POLICY) and (held_resource := _held(ref, applied, statuses))
    ]
    gateways = (candidate for candidate in (*valid, *applied_resources) if isinstance(candidate, api.InferenceGateway))
    has_models = any(gateway.mode == "Model" for gateway in gateways)
    if has_models:
        applied_resources += [
            held_resource for ref in refs if ref.kind in _ROUTED and (held_resource := _held(ref, applied, statuses))
        ]
    return applied_resources, has_models


def _held(
    ref: Ref, applied: Callable[[Ref], Object | None], statuses: Mapping[Ref, Mapping[str, Any]]
) -> api.Resource | None:
    live_copy = applied(ref)
    if live_copy is None:
        return None
    cleaned = _cleaned(live_copy, _METADATA)
    # Labels of a copy are not in its manifest. One of them identifies the endpoint of a replica.
    labels = {key: value for key, value in fields(cleaned, "metadata", "labels").items() if key not in _OF_COPIES}
    status = {"status": statuses[ref]} if ref in statuses else {}
    with contextlib.suppress(api.InvalidResource):
        return api.parse({**cleaned, "metadata": {**cleaned["metadata"], "labels": labels}, **status})
    return None


def forgotten(
    invalid: Iterable[Ref], earlier: Earlier, lacks: Callable[[Ref], bool], *, has_models: bool, is_first: bool
) -> Iterator[Problem]:
    """Yield the problems of invalid resources without a known applied state, if other resources depend on them.

    `held_resources` does not contain these resources. Without an InferenceGateway on an inference cluster, engines
    would lose the served names that the gateway requires, and would continue to serve under other names. With
    `is_first`, the run creates all engines. They would be created without these names and replaced later. They might
    also belong to a fleet that lost its state. If the fleet has Model gateways, the services of a missing CallerPolicy
    would accept everyone with a key. That includes clients with new keys, because other policies might rely on the
    missing policy. Without a service, an endpoint, or a cluster, routes and certificates of other resources would be
    removed. `lacks` returns True if an endpoint was never applied. No resource depends on such an endpoint."""
    for ref in sorted(invalid):
        if ref.kind == _GATEWAY and any(cluster for cluster, __ in earlier(ref)):
            message = "has errors, and cannot be held: without a control cluster, how it was before is not known"
            yield Problem(message, hint="Correct its manifest: engines and clusters depend on what it says", ref=ref)
        elif ref.kind == _GATEWAY and ref.name != CONTROL_CLUSTER_GATEWAY and is_first:
            message = (
                "has errors, and cannot be held: how it was before is not known, as there are no replicas of earlier "
                "runs, and engines would be made without the names that it asks for"
            )
            yield Problem(message, hint="Correct its manifest, or remove it from the manifests", ref=ref)
        elif ref.kind == _POLICY and has_models:
            message = (
                "has errors, and cannot be held: how it was before is not known, as no copy of it was found on a "
                "control cluster, and without it its services would be open to every caller with a key"
            )
            hint = "Correct its manifest. To open its services, remove it from the manifests"
            yield Problem(message, hint=hint, ref=ref)
        elif has_models and ref.kind in _ROUTED and (not lacks(ref) if ref.kind == _ENDPOINT else any(earlier(ref))):
            message = (
                "has errors, and cannot be held beside gateways in mode Model: how it was before is not known, as no "
                "copy of it was found on a control cluster, and routes that need it would go"
            )
            yield Problem(message, hint="Correct its manifest, or remove it from the manifests", ref=ref)


def built_gateway(ref: Ref, earlier: Earlier) -> Object | None:
    """Return a Model gateway with only the cluster of its composed Gateway, or None without a single such cluster."""
    if ref.kind != _GATEWAY:
        return None
    cluster_names = {cluster for cluster, value in earlier(ref) if cluster and identity(value)[1] == "Gateway"}
    return {"spec": {"clusterName": cluster_names.pop()}} if len(cluster_names) == 1 else None


def declared_gateway(
    manifests: Sequence[api.Resource], live: Sequence[Mapping[str, Any]]
) -> tuple[api.InferenceGateway | None, bool]:
    """Return the InferenceGateway of the control cluster, and True if users created it there. Raise InvalidResource.

    A copy of a manifest in `live` does not count as a gateway that users created."""
    made_there = next((value for value in live if is_path_gateway(value) and not _is_managed(value)), None)
    gateways = (value for value in manifests if isinstance(value, api.InferenceGateway))
    own_gateway = next((value for value in gateways if value.is_of_control_cluster), None)
    if own_gateway is not None or made_there is None:
        return own_gateway, made_there is not None
    parsed = api.parse(_cleaned(made_there, _METADATA))
    return (parsed if isinstance(parsed, api.InferenceGateway) else None), True


def is_path_gateway(value: Mapping[str, Any]) -> bool:
    """Return True if an object is an InferenceGateway of the control cluster itself."""
    mode = mode_of(text(value, "spec", "mode"), text(value, "spec", "clusterName"))
    return identity(value)[1:] == (_GATEWAY, "", CONTROL_CLUSTER_GATEWAY) and mode == "Path"


def _state(value: Object) -> api.Resource:
    try:
        return api.parse(_cleaned(value, _STATE_METADATA))
    except api.InvalidResource as error:
        raise StoreError(f"{_ref(value)} on the control cluster is not what was applied there:\n{error}") from error


def _is_resource(value: Object) -> bool:
    group = str(value["apiVersion"]).partition("/")[0]
    return value["kind"] in api.KINDS and group in (api.GROUP_MODELS, api.GROUP_INFRASTRUCTURE)


def _is_managed(value: Object) -> bool:
    return text(value, "metadata", "labels", names.MANAGED_BY_LABEL) == names.MANAGED_BY


def _is_published(value: Object) -> bool:
    return _is_managed(value) and names.PUBLISHED_LABEL in fields(value, "metadata", "labels")


def _ref(value: Object) -> Ref:
    return Ref(value["kind"], text(value, "metadata", "namespace"), text(value, "metadata", "name"))


def _source(value: Object) -> Source:
    return Source(f"control cluster: {_ref(value)}", json.dumps(_cleaned(value, _METADATA)).encode())


def _as_written(value: Object, built: Object | None) -> Object:
    """Return the object in the build directory if the object on the control cluster only adds to it."""
    return built if built is not None and has_all_of(value, built) else value


def _cleaned(value: Object, kept: Sequence[str]) -> Object:
    """Return an object without the fields that the API server adds."""
    metadata = {key: value["metadata"][key] for key in kept if value["metadata"].get(key)}
    if LAST_APPLIED in fields(metadata, "annotations"):
        annotations = {key: text for key, text in metadata["annotations"].items() if key != LAST_APPLIED}
        metadata = {key: value for key, value in metadata.items() if key != "annotations"}
        metadata |= {"annotations": annotations} if annotations else {}
    return {**{key: content for key, content in value.items() if key != "status"}, "metadata": metadata}
