# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ResourceClaimTemplates: devices that each pod of a member claims (resource.k8s.io/v1, KEP-4381)."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_replica import ResolvedDeviceRequest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.member import Member


def claim_template(member: Member) -> dict[str, Any]:
    """Return the ResourceClaimTemplate of a member: its device requests in order, with unchanged CEL, and their
    constraints."""
    devices: dict[str, Any] = {"requests": [_request(each) for each in member.device_requests]}
    if member.device_constraints:
        devices["constraints"] = [api.wire(constraint) for constraint in member.device_constraints]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": member.owner.metadata(member.claim_name),
        "spec": {"spec": {"devices": devices}},
    }


def _request(request: ResolvedDeviceRequest) -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": request.device_class_name, "count": request.count}
    expressions = [selector.cel for selector in request.selectors or () if selector.cel]
    if expressions:
        exactly["selectors"] = [{"cel": {"expression": expression}} for expression in expressions]
    return {"name": request.name, "exactly": exactly}
