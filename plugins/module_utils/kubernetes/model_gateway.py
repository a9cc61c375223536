# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Gateway in mode Model that a cluster has, as its objects say."""

from __future__ import annotations

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import text
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client

_KINDS = (
    (f"{constants.GATEWAY_GROUP}/v1", "Gateway"),
    (f"{constants.ENVOY_GROUP}/v1alpha1", "EnvoyProxy"),
)
"""Kinds whose objects have the same name for such a gateway and for a workload gateway."""


def has_model_gateway(client: Client) -> bool:
    """Return whether the names of a workload gateway's objects are taken by those of a gateway in mode Model."""
    found = (
        client.get(api_version, kind, constants.MODEL_GATEWAY, constants.SYSTEM_NAMESPACE)
        for api_version, kind in _KINDS
    )
    return any(text(value, "metadata", "labels", names.GATEWAY_LABEL) for value in found if value)
