# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Registry of the code for the APIs of clouds, by the names of clouds in modules, plans and connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..aws import login as aws_login
from ..aws import provider as aws
from ..aws.pool_sizes import NodeGroups
from ..google import login as google_login
from ..google import provider as google
from .clusters import Logins, PoolSizes
from .provider import Backend

BACKENDS: Mapping[str, Backend] = {
    "eks": aws.BACKEND,
    "gke": google.BACKEND,
}
"""Clouds that the engine supports."""
LOGINS: Mapping[str, Logins] = {
    "eks": aws_login.LOGINS,
    "gke": google_login.LOGINS,
}
"""Clouds with connections to clusters by name."""

POOL_SIZES: Mapping[str, PoolSizes] = {
    "eks": NodeGroups(),
}
"""Clouds with autoscalers that do not start the first node of a pool with devices."""


def arguments() -> dict[str, Any]:
    """Return the arguments of modules with credentials for any of the clouds. None is required, except by the
    credentials."""
    options: dict[str, Any] = {"provider": {"type": "str", "choices": list(BACKENDS), "required": True}}
    for backend in BACKENDS.values():
        options |= backend.arguments
    return options
