# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Cloud clusters of a fleet, from the resources of the fleet.

A cluster is created for an InferenceCluster with a cloud as its source, or for a user-written resource of the kind of a
cloud. A user-written cluster has its own network settings, and serves the fleet as an InferenceCluster with source
Existing and the Secret of its kubeconfig. If both have the same name, they are one cluster.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

from .. import api
from ..api.resource import DEFAULT_NAMESPACE
from ..compose.cluster import InvalidPool, cluster_objects
from ..compose.constants import SYSTEM_NAMESPACE
from ..names import CLUSTER_LABEL, label_value
from ..problem import Problem, Ref
from ..wire import Object, entries, text
from . import registry
from .names import kubeconfig_secret
from .reading import is_composed
from .validation import OF_CLASS

_METADATA = ("name", "namespace", "labels")


def clusters(
    live: Iterable[Object], written: Iterable[Object], locate: Callable[[Problem], Problem] = lambda problem: problem
) -> dict[str, dict[str, Any]]:
    """Return each cluster by its name. The keys of an entry are:

    - `source`: the source of the InferenceCluster, or the source of its cloud
    - `provider`: the name of the cloud, empty if the cluster is not created in a cloud
    - `object`: the object of the kind of its cloud in wire form, empty without such an object
    - `cloud_name`: the name in its cloud
    - `project`: the project in a cloud with projects, if it is set
    - `replicas`: the number of scheduled replicas
    - `problems`: a line for each problem

    `live` are resources of the control cluster in wire form. `written` are resources of manifests, and override live
    resources. `locate` adds the position in a manifest to a problem. The composed cluster of an InferenceCluster only
    counts if the InferenceCluster no longer exists: such a cluster is not created again, and can be removed.
    """
    clusters_by_name = _clusters((*live, *written))
    for entry in clusters_by_name.values():
        entry["problems"] = [str(locate(problem)) for problem in entry["problems"]]
    return clusters_by_name


def problems(resources: Iterable[Object]) -> list[Problem]:
    """Return the problems of clusters that clouds would reject, among resources (wire form) with a valid schema.
    Clusters with a missing class are omitted."""
    all_resources = list(resources)
    classes = {text(value, "metadata", "name") for value in all_resources if text(value, "kind") == "InferenceClass"}
    checkable = [
        value
        for value in all_resources
        if text(value, "kind") in ("InferenceClass", *registry.CLUSTER_KINDS)
        and not is_composed(value)
        and classes.issuperset(
            text(pool, "className") for pool in entries(value, "spec", "nodePools") if "className" in pool
        )
    ]
    return [problem for entry in _clusters(checkable).values() for problem in entry["problems"]]


def _clusters(resources: Iterable[Object]) -> dict[str, dict[str, Any]]:
    """Return each cluster as in `clusters`, but with problems that have no position in a file yet."""
    resources_by_kind = _by_kind(resources)
    sources = resources_by_kind.get("InferenceCluster", {})
    classes = {name: value for (__, name), value in resources_by_kind.get("InferenceClass", {}).items()}
    direct = _direct(resources_by_kind, {name for __, name in sources})
    clusters_by_name = {}
    for __, name in sorted(sources):
        clusters_by_name[name] = _of_inference_cluster(sources["", name], classes, direct.pop(name, []))
    for name, objects in sorted(direct.items()):
        clusters_by_name[name] = _of_objects(objects)
    replicas = Counter(
        text(replica, "metadata", "labels", CLUSTER_LABEL)
        for replica in resources_by_kind.get("ModelReplica", {}).values()
    )
    neighbours_by_cloud = {
        cloud.name: cloud.validation.neighbours(
            entry["object"]
            for entry in clusters_by_name.values()
            if entry["object"] and entry["provider"] == cloud.name
        )
        for cloud in registry.CLOUDS
    }
    for name, entry in clusters_by_name.items():
        cloud = registry.BY_NAME.get(entry["provider"])
        if cloud and entry["object"]:
            entry["problems"] += cloud.validation.problems(entry["object"], neighbours_by_cloud[cloud.name])
        namespace = text(entry["object"], "metadata", "namespace") or SYSTEM_NAMESPACE
        entry["cloud_name"] = cloud.cluster_name(namespace, name) if cloud else ""
        entry["project"] = text(entry["object"], "spec", "project")
        entry["replicas"] = replicas[label_value(name)]
    return dict(sorted(clusters_by_name.items()))


def networks(found: Mapping[str, Mapping[str, Any]]) -> dict[str, list[dict[str, str]]]:
    """Return the address ranges of the result of `clusters`, by cloud: name, region and cidr."""
    ranges: dict[str, list[dict[str, str]]] = {cloud.name: [] for cloud in registry.CLOUDS}
    for name, entry in found.items():
        cloud = registry.BY_NAME.get(entry["provider"])
        if cloud and entry["object"]:
            region = text(entry["object"], "spec", "region")
            with contextlib.suppress(api.InvalidResource):
                cluster_ranges = cloud.validation.read(entry["object"]).ranges
                ranges[cloud.name] += [{"name": name, "region": region, "cidr": cidr} for cidr in cluster_ranges]
    return ranges


def _by_kind(resources: Iterable[Object]) -> dict[str, dict[tuple[str, str], Object]]:
    """Return resources by kind, and by namespace and name; later resources override earlier ones."""
    resources_by_kind: dict[str, dict[tuple[str, str], Object]] = {}
    for value in resources:
        kind = text(value, "kind")
        model = api.KINDS.get(kind)
        if model is None or text(value, "apiVersion") != model.group_version():
            continue
        ref = _ref(value)
        resources_by_kind.setdefault(kind, {})[ref.namespace, ref.name] = value
    return resources_by_kind


def _direct(known: Mapping[str, Mapping[tuple[str, str], Object]], sources: set[str]) -> dict[str, list[Object]]:
    """Return clusters of the kinds of clouds by name, clusters in the namespace of the fleet first.

    Composed clusters of existing InferenceClusters are omitted.
    """
    objects_by_name: dict[str, list[Object]] = {}
    for kind in registry.KINDS:
        for (__, name), value in sorted(known.get(kind, {}).items()):
            if not (is_composed(value) and name in sources):
                objects_by_name.setdefault(name, []).append(value)
    for objects in objects_by_name.values():
        objects.sort(key=lambda value: _ref(value).namespace != SYSTEM_NAMESPACE)
    return objects_by_name


def _of_inference_cluster(cluster: Object, classes: Mapping[str, Object], beside: Sequence[Object]) -> dict[str, Any]:
    source = text(cluster, "spec", "cluster", "source")
    ref = Ref("InferenceCluster", "", text(cluster, "metadata", "name"))
    cloud = registry.BY_SOURCE.get(source)
    if cloud is None:
        return _joined(cluster, source, ref, beside)
    composed, problems = _composed(cluster, cloud.kind, classes, ref)
    for value in beside:
        problems.append(
            Problem(
                f"becomes {cloud.kind} {SYSTEM_NAMESPACE}/{ref.name}, and {_ref(value)} is written beside it",
                "spec.cluster.source",
                hint="Remove one of the two: without the InferenceCluster, or with its source Existing and "
                f"secretRef.name {kubeconfig_secret(ref.name)}, the cluster is made as it is written there",
                ref=ref,
            )
        )
    return {"source": source, "provider": cloud.name, "object": composed, "problems": problems}


def _joined(cluster: Object, source: str, ref: Ref, beside: Sequence[Object]) -> dict[str, Any]:
    """Return the entry of an InferenceCluster without a cloud as its source.

    A cluster of the kind of a cloud with the same name provides its object.
    """
    if not beside:
        return {"source": source, "provider": "", "object": {}, "problems": []}
    entry = {**_of_objects(beside), "source": source}
    secret = kubeconfig_secret(ref.name)
    where = _ref(beside[0]).namespace
    logs_in = text(cluster, "spec", "cluster", "existing", "secretRef", "name")
    if source != "Existing" or logs_in != secret or where != SYSTEM_NAMESPACE:
        entry["problems"].append(
            Problem(
                f"is another cluster than {_ref(beside[0])}, which is written beside it under its name",
                "spec.cluster",
                hint=f"Rename one of the two; to make them one, write source: Existing with secretRef.name {secret}, "
                f"and put the {text(beside[0], 'kind')} into the namespace {SYSTEM_NAMESPACE}",
                ref=ref,
            )
        )
    return entry


def _of_objects(objects: Sequence[Object]) -> dict[str, Any]:
    cluster_object = objects[0]
    cloud = registry.BY_KIND[text(cluster_object, "kind")]
    problems = [
        Problem(
            f"{_ref(duplicate)} has the same name, which has to be that of one cluster in the fleet",
            "metadata.name",
            hint="Rename one of the two",
            ref=_ref(cluster_object),
        )
        for duplicate in objects[1:]
    ]
    if is_composed(cluster_object):
        problems.append(
            Problem(
                "was made for an InferenceCluster that no longer exists",
                hint="Write that InferenceCluster again to keep the cluster, or remove the cluster with "
                "modelplane.fleet.teardown",
                ref=_ref(cluster_object),
            )
        )
    return {
        "source": cloud.source,
        "provider": cloud.name,
        "object": _cleaned(cluster_object),
        "problems": problems,
    }


def _composed(cluster: Object, kind: str, classes: Mapping[str, Object], ref: Ref) -> tuple[Object, list[Problem]]:
    """Return the composed cloud cluster of an InferenceCluster, or the problems of its pools."""
    plain = {key: value for key, value in cluster.items() if key != "status"}
    try:
        # A resource on a control cluster may be older than its validation rules.
        resource = cast(api.InferenceCluster, api.parse(plain))
    except api.InvalidResource as error:
        return {}, list(error.problems)
    known_classes = _classes(classes, {pool.class_name for pool in resource.spec.node_pools or ()})
    try:
        composed_objects = [value for value in cluster_objects(resource, known_classes) if value["kind"] == kind]
        return composed_objects[0], []
    except InvalidPool as error:
        problems = list(_of_pools(resource, known_classes, ref))
        return {}, problems or [Problem(str(error), "spec.nodePools", ref=ref)]


def _classes(classes: Mapping[str, Object], names: set[str]) -> dict[str, api.InferenceClass]:
    """Return the valid InferenceClasses with these names."""
    valid_classes = {}
    for name in sorted(names & set(classes)):
        with contextlib.suppress(api.InvalidResource):
            parsed = api.parse(classes[name])
            if isinstance(parsed, api.InferenceClass):
                valid_classes[name] = parsed
    return valid_classes


def _of_pools(cluster: api.InferenceCluster, classes: Mapping[str, api.InferenceClass], ref: Ref) -> Iterable[Problem]:
    """Return the problems of each pool, validated separately."""
    for index, pool in enumerate(cluster.spec.node_pools or ()):
        spec = cluster.spec.model_copy(update={"node_pools": [pool]})
        try:
            cluster_objects(cluster.model_copy(update={"spec": spec}), classes)
        except InvalidPool as error:
            path = f"spec.nodePools[{index}]"
            # The pool of controllers is the first pool of a composed cluster.
            pool_problems = [problem for problem in error.problems if problem.path.startswith("spec.nodePools[1].")]
            for problem in pool_problems:
                field = problem.path.removeprefix("spec.nodePools[1].")
                hint = problem.hint or ("Name the zones of its nodes" if field == "zones" else "")
                problem_path = f"{path}.{'className' if field in OF_CLASS else field}"
                yield replace(problem, path=problem_path, hint=hint, ref=ref)
            if not pool_problems:
                yield Problem(str(error), path, ref=ref)


def _cleaned(value: Object) -> Object:
    """Return the object with only the fields that a user can write."""
    metadata = {key: deepcopy(value["metadata"][key]) for key in _METADATA if value["metadata"].get(key)}
    return {
        "apiVersion": value["apiVersion"],
        "kind": value["kind"],
        "metadata": {**metadata, "namespace": _ref(value).namespace},
        "spec": deepcopy(value["spec"]),
    }


def _ref(value: Object) -> Ref:
    kind = text(value, "kind")
    namespace = text(value, "metadata", "namespace") or DEFAULT_NAMESPACE
    return Ref(kind, namespace if api.KINDS[kind].NAMESPACED else "", text(value, "metadata", "name"))
