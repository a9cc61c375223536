# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The status of an InferenceClass: one that is valid is accepted, nothing has to be made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import (
    Condition,
    Status,
    earlier,
    ready,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object


def inference_class(resource: Object, *, previous: Mapping[str, Any] | None = None) -> Status:
    """The status of a valid InferenceClass (wire form)."""
    return Status((Condition("Accepted", "True", "Available"), ready(True, earlier(resource, previous))))
