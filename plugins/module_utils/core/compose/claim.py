# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ResourceClaimTemplates: devices that each pod of a member claims (resource.k8s.io/v1, KEP-4381).

The API server rejects changes of their spec, so their names contain a digest of it: an edit creates another object, and
a rollout of the pods that reference it. Tools that apply a folder delete the previous object afterwards. Replicas of
earlier versions have names without a digest. They keep these names until their claims are edited, because another name
in the pod template would restart their pods.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_replica import ResolvedDeviceRequest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.member import Member

_DIGEST_DIGITS = 10


def claim_template(member: Member) -> dict[str, Any]:
    """Return the ResourceClaimTemplate of a member: its device requests in order, with unchanged CEL, and their
    constraints."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": member.owner.metadata(claim_name(member)),
        "spec": _spec(member),
    }


def claim_name(member: Member) -> str:
    """Return the name of the ResourceClaimTemplate of a member's pods."""
    parts = [member.owner.prefix, member.engine, member.role.lower(), "devices"]
    if member.owner.digests_claims:
        parts.append(sha256(json.dumps(_spec(member), sort_keys=True).encode()).hexdigest()[:_DIGEST_DIGITS])
    return names.child_name(*parts)


def with_claim_names(replica: api.ModelReplica, existing: api.ModelReplica | None) -> api.ModelReplica:
    """Return a ModelReplica with digests in the names of its claims, unless it is a replica of an earlier version whose
    claims are unchanged. `existing`: the replica of the last run, None for a new replica."""
    if existing is not None and existing.spec.claim_names is None and _claims(existing) == _claims(replica):
        return replica
    return replica.model_copy(update={"spec": replica.spec.model_copy(update={"claim_names": "Digest"})})


def _claims(replica: api.ModelReplica) -> dict[tuple[str, str], Any]:
    """Return the device requests and constraints of a ModelReplica, by engine and role."""
    return {
        (engine.name, member.role): (member.device_requests or [], member.device_constraints or [])
        for engine in replica.spec.engines
        for member in engine.members
    }


def _spec(member: Member) -> dict[str, Any]:
    devices: dict[str, Any] = {"requests": [_request(each) for each in member.device_requests]}
    if member.device_constraints:
        devices["constraints"] = [api.wire(constraint) for constraint in member.device_constraints]
    return {"spec": {"devices": devices}}


def _request(request: ResolvedDeviceRequest) -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": request.device_class_name, "count": request.count}
    expressions = [selector.cel for selector in request.selectors or () if selector.cel]
    if expressions:
        exactly["selectors"] = [{"cel": {"expression": expression}} for expression in expressions]
    return {"name": request.name, "exactly": exactly}
