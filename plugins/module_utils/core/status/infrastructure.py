# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The status of what the fleet makes for a cluster: EKSCluster, GKECluster, ServingStack. They have Ready alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Component
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import (
    Status,
    cut,
    earlier,
    hold,
    ready,
    unknown,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object


def infrastructure(
    resource: Object,
    component: Component | None,
    fields: Mapping[str, Any] | None = None,
    *,
    previous: Mapping[str, Any] | None = None,
) -> Status:
    """The status of such a resource (wire form). `component` is what was seen of it, None when nobody could tell;
    `fields` is the rest of its status: secrets, cache, gateway."""
    before = earlier(resource, previous)
    if component is None:
        return Status((hold("Ready", before, unknown("Ready", "it has not been observed")),), fields or {})
    return Status((ready(component.ready, before, cut(component.message)),), fields or {})
