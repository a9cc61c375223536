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
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from .. import api, names
from ..api.model_replica import ResolvedDeviceRequest
from ..devices.guard import guarded
from .member import Member

_DIGEST_DIGITS = 10


def claim_templates(member: Member) -> list[dict[str, Any]]:
    """Return the ResourceClaimTemplates of a member: its device requests in order, and the constraints on them."""
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": member.owner.metadata(name),
            "spec": _spec(member, requests),
        }
        for name, requests in zip(claim_names(member), member.claims, strict=True)
    ]


def claim_names(member: Member) -> list[str]:
    """Return the names of the ResourceClaimTemplates of a member's pods, in the order of its claims."""
    claims = zip(member.pod_claim_names, member.claims, strict=True)
    return [_name(member, name, requests) for name, requests in claims]


def _name(member: Member, claim: str, requests: Sequence[ResolvedDeviceRequest]) -> str:
    segments = [member.owner.prefix, member.engine, member.role.lower(), claim]
    if member.owner.digests_claims:
        canonical_spec = json.dumps(_spec(member, requests), sort_keys=True)
        segments.append(sha256(canonical_spec.encode()).hexdigest()[:_DIGEST_DIGITS])
    return names.child_name(*segments)


def with_claim_names(replica: api.ModelReplica, existing: api.ModelReplica | None) -> api.ModelReplica:
    """Return a ModelReplica with digests in the names of its claims.

    A replica of an earlier version with unchanged claims keeps its claim names.

    `existing`: the replica of the last run, None for a new replica.
    """
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


def _spec(member: Member, requests: Sequence[ResolvedDeviceRequest]) -> dict[str, Any]:
    devices: dict[str, Any] = {"requests": [_request(request) for request in requests]}
    included = {request.name for request in requests}
    constraints = [
        constraint
        for constraint in member.device_constraints
        if not constraint.requests or included.intersection(constraint.requests)
    ]
    if constraints:
        devices["constraints"] = [api.wire(constraint) for constraint in constraints]
    return {"spec": {"devices": devices}}


def _request(request: ResolvedDeviceRequest) -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": request.device_class_name, "count": request.count}
    expressions = [selector.cel for selector in request.selectors or () if selector.cel]
    if request.guarded:
        expressions = [guarded(expression) for expression in expressions]
    if expressions:
        exactly["selectors"] = [{"cel": {"expression": expression}} for expression in expressions]
    return {"name": request.name, "exactly": exactly}
