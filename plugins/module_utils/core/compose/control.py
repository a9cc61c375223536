# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Metadata of objects on the control cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from .. import api, names
from ..wire import Object, identity, label
from . import constants

_KEPT_BY_TOOLS = {
    "argocd.argoproj.io/compare-options": "IgnoreExtraneous",
    "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}


def control_labels(resource: api.Resource, owner_label: str) -> dict[str, str]:
    """Return the labels of an object that is composed for a resource; `owner_label` holds the resource's name."""
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    if resource.namespace:
        labels[names.NAMESPACE_LABEL] = names.label_value(resource.namespace)
    labels[owner_label] = names.label_value(resource.name)
    return labels


def system_namespace(extra_labels: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """Return the Namespace of the fleet's own objects, with `extra_labels` labels."""
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY, **extra_labels}
    return kept_namespace(constants.SYSTEM_NAMESPACE, labels)


def kept_namespace(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return a Namespace that GitOps tools never delete, because it might contain objects of users."""
    metadata: dict[str, Any] = {"name": name, "annotations": dict(_KEPT_BY_TOOLS)}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {**metadata, **({"labels": dict(labels)} if labels else {})},
    }


def unowned_namespace(name: str) -> dict[str, Any]:
    """Return a Namespace that users own. GitOps tools create it. Runs that apply objects ignore it, because it has no
    label of the fleet."""
    return kept_namespace(name, {})


def is_unowned_namespace(value: Object) -> bool:
    """Return True if an object is a Namespace without a label of the fleet."""
    return identity(value)[1] == "Namespace" and not label(value, names.MANAGED_BY_LABEL)


def missing_namespaces(objects: Iterable[Object]) -> list[dict[str, Any]]:
    """Return the Namespaces of objects that are not among the objects, sorted by name."""
    existing, used = set[str](), set[str]()
    for value in objects:
        __, kind, namespace, name = identity(value)
        if kind == "Namespace":
            existing.add(name)
        elif namespace:
            used.add(namespace)
    return [unowned_namespace(name) for name in sorted(used - existing)]


def control_metadata(
    resource: api.Resource, owner_label: str, name: str, namespace: str | None = None
) -> dict[str, Any]:
    """Return the metadata of an object, by default in the namespace of the resource that it is composed for."""
    return {
        "name": name,
        "namespace": resource.namespace if namespace is None else namespace,
        "labels": control_labels(resource, owner_label),
    }
