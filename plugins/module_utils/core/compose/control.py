# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The metadata of objects on the control cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants


def namespace_of(resource: Mapping[str, Any]) -> str:
    """The namespace of a namespaced resource in its wire form."""
    return resource["metadata"].get("namespace") or "default"


def control_labels(resource: Mapping[str, Any], owner_label: str) -> dict[str, str]:
    """The labels of an object that is composed for a resource; `owner_label` holds the resource's name."""
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    if resource["metadata"].get("namespace"):
        labels[names.NAMESPACE_LABEL] = names.label_value(resource["metadata"]["namespace"])
    labels[owner_label] = names.label_value(resource["metadata"]["name"])
    return labels


def system_namespace() -> dict[str, Any]:
    """The Namespace of the fleet's own objects, which whatever lands there brings along."""
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": constants.SYSTEM_NAMESPACE, "labels": labels},
    }


def control_metadata(
    resource: Mapping[str, Any], owner_label: str, name: str, namespace: str | None = None
) -> dict[str, Any]:
    """The metadata of an object in the namespace of the resource it is composed for, or in another one."""
    return {
        "name": name,
        "namespace": namespace_of(resource) if namespace is None else namespace,
        "labels": control_labels(resource, owner_label),
    }
