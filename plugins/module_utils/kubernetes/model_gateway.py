# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Model gateway of a cluster, according to its objects."""

from __future__ import annotations

from ..core import names
from ..core.compose import constants
from ..core.wire import text
from .client import Client

_API = f"{constants.GATEWAY_GROUP}/v1"


def has_model_gateway(client: Client) -> bool:
    """Return True if a Model gateway uses the name of the ingress gateway."""
    gateway = client.get(_API, "Gateway", constants.MODEL_GATEWAY, constants.SYSTEM_NAMESPACE)
    return bool(gateway and text(gateway, "metadata", "labels", names.GATEWAY_LABEL))
