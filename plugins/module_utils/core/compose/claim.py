# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ResourceClaimTemplates: the devices that each pod of a member claims (resource.k8s.io/v1, KEP-4381)."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.member import Member


def claim_template(member: Member) -> dict[str, Any]:
    """The ResourceClaimTemplate of a member with device requests: one request each, in order, CEL as written, and the
    constraints on them."""
    devices: dict[str, Any] = {"requests": [_request(each) for each in member.device_requests]}
    if member.device_constraints:
        devices["constraints"] = [deepcopy(dict(each)) for each in member.device_constraints]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": member.owner.metadata(member.claim_name),
        "spec": {"spec": {"devices": devices}},
    }


def _request(request: Mapping[str, Any]) -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": request["deviceClassName"], "count": request.get("count") or 1}
    expressions = [selector["cel"] for selector in request.get("selectors") or () if selector.get("cel")]
    if expressions:
        exactly["selectors"] = [{"cel": {"expression": expression}} for expression in expressions]
    return {"name": request["name"], "exactly": exactly}
