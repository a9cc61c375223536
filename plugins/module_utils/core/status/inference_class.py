# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of an InferenceClass. A valid class is accepted, because no object is created for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import api
from ..api.inference_class import InferenceClassStatus
from .conditions import Condition, Status, earlier, ready


def inference_class(
    resource: api.InferenceClass, *, previous: Mapping[str, Any] | None = None
) -> Status[InferenceClassStatus]:
    """Return the status of a valid InferenceClass."""
    previous_status = earlier(resource.status, previous)
    return Status(
        (Condition("Accepted", "True", "Available"), ready(True, previous_status)), api.construct(InferenceClassStatus)
    )
