# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects that earlier runs built of a resource, found by the labels of the objects in a build folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, text
from ansible_collections.modelplane.fleet.plugins.module_utils.core.yaml_documents import Source, documents

OWNER_LABELS = {
    "ModelService": names.SERVICE_LABEL,
    "ModelEndpoint": names.ENDPOINT_LABEL,
    "ModelCache": names.CACHE_LABEL,
    "InferenceGateway": names.GATEWAY_LABEL,
    "InferenceCluster": names.CLUSTER_LABEL,
}


class EarlierObjects:
    """The objects of a build folder by the resource that they were composed of. Files are parsed when asked for."""

    def __init__(self, folder: str, files: Mapping[str, str]) -> None:
        self._folder = folder
        self._files = files

    @cached_property
    def _by_namespace(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for name in sorted(self._files):
            parts = name.split("/")
            if parts[0] in ("control", "clusters"):
                namespace = parts[-2] if parts[-3:-2] == ["namespaces"] else ""
                found.setdefault(namespace, []).append(name)
        return found

    def __call__(self, ref: Ref) -> Sequence[tuple[str, Object]]:
        """Each object with its workload cluster, or "" for the control cluster."""
        label = OWNER_LABELS.get(ref.kind)
        if label is None:
            return ()
        value = names.label_value(ref.name)
        return [
            (name.split("/")[1] if name.startswith("clusters/") else "", found)
            for name in self._candidates(ref)
            if label in self._files[name] and value in self._files[name]
            for found in self._objects(name)
            if text(found, "metadata", "labels", label) == value
        ]

    def _candidates(self, ref: Ref) -> Iterator[str]:
        if ref.kind == "ModelCache":
            yield from self._by_namespace.get(names.workload_namespace(ref.namespace), ())
            return
        namespaces = {"", constants.SYSTEM_NAMESPACE} if not ref.namespace else {ref.namespace}
        if ref.kind == "InferenceGateway":
            namespaces = set(self._by_namespace)
        for namespace in sorted(namespaces):
            yield from (name for name in self._by_namespace.get(namespace, ()) if name.startswith("control/"))
        # Objects of gateways in mode Model on their clusters.
        if ref.kind == "InferenceGateway":
            yield from (name for name in sorted(self._files) if name.startswith("clusters/"))
        elif ref.kind == "ModelService":
            routed = self._by_namespace.get(names.workload_namespace(ref.namespace), ())
            yield from (name for name in routed if name.startswith("clusters/"))

    def _objects(self, name: str) -> Iterator[Object]:
        for document in documents(Source(os.path.join(self._folder, name), self._files[name].encode())):
            if not document.problems and text(document.value, "kind") and text(document.value, "metadata", "name"):
                yield document.value
