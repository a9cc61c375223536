# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ResourceClaimTemplates: the devices that each pod of a member claims (resource.k8s.io/v1, KEP-4381)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.owner import Owner
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import child_name


def claim_name(owner: Owner, engine: str, role: str) -> str:
    """The name of the ResourceClaimTemplate of an engine's member."""
    return child_name(owner.prefix, engine, role.lower(), "devices")


def claim_template(owner: Owner, engine: str, member: Mapping[str, Any]) -> dict[str, Any]:
    """The ResourceClaimTemplate of a member with deviceRequests: one request each, in order, CEL as written."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": owner.metadata(claim_name(owner, engine, member.get("role", constants.STANDALONE))),
        "spec": {"spec": {"devices": {"requests": [_request(each) for each in member["deviceRequests"]]}}},
    }


def _request(request: Mapping[str, Any]) -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": request["deviceClassName"], "count": request.get("count", 1)}
    expressions = [selector["cel"] for selector in request.get("selectors") or () if selector.get("cel")]
    if expressions:
        exactly["selectors"] = [{"cel": {"expression": expression}} for expression in expressions]
    return {"name": request["name"], "exactly": exactly}
