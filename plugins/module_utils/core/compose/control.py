# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Metadata of objects on the control cluster."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants


def control_labels(resource: api.Resource, owner_label: str) -> dict[str, str]:
    """Return the labels of an object that is composed for a resource; `owner_label` holds the resource's name."""
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    if resource.namespace:
        labels[names.NAMESPACE_LABEL] = names.label_value(resource.namespace)
    labels[owner_label] = names.label_value(resource.name)
    return labels


def system_namespace(more: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """Return the Namespace of the fleet's own objects, with `more` labels."""
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY, **more}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": constants.SYSTEM_NAMESPACE, "labels": labels},
    }


def control_metadata(
    resource: api.Resource, owner_label: str, name: str, namespace: str | None = None
) -> dict[str, Any]:
    """Return the metadata of an object, by default in the namespace of the resource that it is composed for."""
    return {
        "name": name,
        "namespace": resource.namespace if namespace is None else namespace,
        "labels": control_labels(resource, owner_label),
    }
