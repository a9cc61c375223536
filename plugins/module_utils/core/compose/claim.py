# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ResourceClaimTemplates: devices that each pod of a member claims (resource.k8s.io/v1, KEP-4381)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_replica import ResolvedDeviceRequest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.member import Member
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.guard import guarded


def claim_templates(member: Member) -> list[dict[str, Any]]:
    """Return the ResourceClaimTemplates of a member: its device requests in order, and the constraints on them."""
    return [_template(member, *claim) for claim in zip(member.claim_names, member.claims, strict=True)]


def _template(member: Member, name: str, requests: Sequence[ResolvedDeviceRequest]) -> dict[str, Any]:
    devices: dict[str, Any] = {"requests": [_request(each) for each in requests]}
    names = {request.name for request in requests}
    constraints = [each for each in member.device_constraints if not each.requests or names.intersection(each.requests)]
    if constraints:
        devices["constraints"] = [api.wire(constraint) for constraint in constraints]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": member.owner.metadata(name),
        "spec": {"spec": {"devices": devices}},
    }


def _request(request: ResolvedDeviceRequest) -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": request.device_class_name, "count": request.count}
    expressions = [selector.cel for selector in request.selectors or () if selector.cel]
    if request.guarded:
        expressions = [guarded(expression) for expression in expressions]
    if expressions:
        exactly["selectors"] = [{"cel": {"expression": expression}} for expression in expressions]
    return {"name": request.name, "exactly": exactly}
