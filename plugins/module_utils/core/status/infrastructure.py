# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of cloud clusters and ServingStacks that the fleet creates for a cluster. Ready is their only condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ..api import resource
from ..observation import Component
from ..text import cut
from .conditions import Status, earlier, hold, ready, unknown

Own = TypeVar("Own", bound=resource.Status)


def infrastructure(
    component: Component | None, fields: Own, *, previous: Mapping[str, Any] | None = None
) -> Status[Own]:
    """Return the status of such a resource.

    `component`: observed state, None without an observation. `fields`: the other fields of the status."""
    previous_status = earlier(None, previous)
    if component is None:
        return Status((hold("Ready", previous_status, unknown("Ready", "it has not been observed")),), fields)
    return Status((ready(component.ready, previous_status, cut(component.message)),), fields)
