# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects that earlier runs composed of a resource, found by the labels of the objects in a build directory."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from ..core import api, names
from ..core.compose import constants
from ..core.problem import Ref
from ..core.wire import Object, text
from ..core.yaml_documents import Source, documents

OWNER_LABELS = {
    "ModelService": names.SERVICE_LABEL,
    "ModelEndpoint": names.ENDPOINT_LABEL,
    "ModelCache": names.CACHE_LABEL,
    "InferenceGateway": names.GATEWAY_LABEL,
    "InferenceCluster": names.CLUSTER_LABEL,
}
_ANY = ""
"""Value of a label that is unknown before a file is parsed."""


def model_routes(values: Iterable[Object]) -> list[api.ModelRoute]:
    """Return the ModelRoutes among objects, without their status. Invalid ModelRoutes are skipped."""
    routes = []
    for value in values:
        if text(value, "kind") == api.ModelRoute.KIND:
            with contextlib.suppress(api.InvalidResource):
                route = api.parse({key: content for key, content in value.items() if key != "status"})
                routes += [route] if isinstance(route, api.ModelRoute) else []
    return routes


class EarlierObjects:
    """Objects of a build directory by their resource. Files are parsed on first use."""

    def __init__(self, folder: str, files: Mapping[str, str]) -> None:
        self._folder = folder
        self._files = files
        self._by_owner: dict[tuple[str, str], Mapping[str, Sequence[str]]] = {}

    @cached_property
    def _by_namespace(self) -> Mapping[str, Sequence[str]]:
        files_by_namespace: dict[str, list[str]] = {}
        for name in sorted(self._files):
            segments = name.split("/")
            if segments[0] in ("control", "clusters"):
                namespace = segments[-2] if segments[-3:-2] == ["namespaces"] else ""
                files_by_namespace.setdefault(namespace, []).append(name)
        return files_by_namespace

    def __call__(self, ref: Ref) -> Sequence[tuple[str, Object]]:
        """Return each object with its inference cluster, or "" for the control cluster."""
        label = names.REPLICA_LABEL if ref.kind == "ModelReplica" else OWNER_LABELS.get(ref.kind)
        if label is None:
            return ()
        value = names.label_value(ref.name)
        return [
            (name.split("/")[1] if name.startswith("clusters/") else "", built_object)
            for tree, namespaces in self._places(ref)
            for name in sorted({name for namespace in namespaces for name in self._naming(label, value, namespace)})
            if name.startswith(tree)
            for built_object in self._objects(name)
            if text(built_object, "metadata", "labels", label) == value
        ]

    def _places(self, ref: Ref) -> Iterator[tuple[str, Iterable[str]]]:
        """Yield the trees with objects of a resource, each with the namespaces of these objects."""
        if ref.kind in ("ModelCache", "ModelReplica"):
            tree = "" if ref.kind == "ModelCache" else "clusters/"
            yield tree, [names.workload_namespace(ref.namespace)]
            return
        namespaces = {"", constants.SYSTEM_NAMESPACE} if not ref.namespace else {ref.namespace}
        yield "control/", self._by_namespace if ref.kind == "InferenceGateway" else namespaces
        # Model gateways have objects on their clusters.
        if ref.kind == "InferenceGateway":
            yield "clusters/", self._by_namespace
        elif ref.kind == "ModelService":
            yield "clusters/", [names.workload_namespace(ref.namespace)]

    def _naming(self, label: str, value: str, namespace: str) -> Iterable[str]:
        """Return the files of a namespace that might contain this value of a label.

        All files are searched once, because many values might be requested."""
        files_by_owner = self._by_owner.get((label, namespace))
        if files_by_owner is None:
            files_by_owner = self._by_owner[label, namespace] = self._indexed(label, namespace)
        return (*files_by_owner.get(value, ()), *files_by_owner.get(_ANY, ()))

    def _indexed(self, label: str, namespace: str) -> Mapping[str, Sequence[str]]:
        pattern = re.compile(rf"{re.escape(label)}[\"']?: *[\"']?([\w.-]+)", re.ASCII)
        files_by_owner: dict[str, list[str]] = {}
        for name in self._by_namespace.get(namespace, ()):
            content = self._files[name]
            values = pattern.findall(content)
            # Files that were edited by hand may be written in other ways: they are parsed for each value.
            for value in set(values) if len(values) == content.count(label) else [_ANY]:
                files_by_owner.setdefault(value, []).append(name)
        return files_by_owner

    def _objects(self, name: str) -> Iterator[Object]:
        for document in documents(Source(os.path.join(self._folder, name), self._files[name].encode())):
            if not document.problems and text(document.value, "kind") and text(document.value, "metadata", "name"):
                yield document.value
