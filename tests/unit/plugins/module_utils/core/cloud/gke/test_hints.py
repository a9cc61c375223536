# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Hints about errors of Google."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.hints import hint_for

STOCKOUT = "no such machine free in this zone"
QUOTA = "A quota of the project is used up"
SERVICE = "Enable the API in the message"
RIGHTS = "Grant the identity of this run the permission"
LOGIN = "Log in again"
BUSY = "Another operation on the cluster is under way"
HINTS = {
    "a condition: stockout": ("GCE_STOCKOUT", "", STOCKOUT),
    "an operation: stockout of GKE": (
        "UNAVAILABLE",
        "Google Compute Engine does not have enough resources available to fulfill the request: us-central1-a. "
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        STOCKOUT,
    ),
    "a condition: quota": ("GCE_QUOTA_EXCEEDED", "", QUOTA),
    "an operation: stockout": (
        "RESOURCE_EXHAUSTED",
        "Google Compute Engine: The zone 'projects/p/zones/us-central1-a' does not have enough resources available to "
        "fulfill the request. (resource type:compute).",
        STOCKOUT,
    ),
    "a code in the message": (
        "INTERNAL",
        "[ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS]: Instance 'gke-x' creation failed",
        STOCKOUT,
    ),
    "an operation: quota": (
        "RESOURCE_EXHAUSTED",
        "Insufficient quota to satisfy the request: Not all instances running in IGM after 35 s. Quota "
        "'GPUS_ALL_REGIONS' exceeded. Limit: 0.0 globally.",
        QUOTA,
    ),
    "compute: quota": ("QUOTA_EXCEEDED", "Quota 'NETWORKS' exceeded. Limit: 5.0 globally.", QUOTA),
    "403 with a quota": ("PERMISSION_DENIED", "Insufficient regional quota to satisfy request: resource CPUS", QUOTA),
    "an API": (
        "SERVICE_DISABLED",
        "Kubernetes Engine API has not been used in project 7 before or it is disabled.",
        SERVICE,
    ),
    "an API of compute": ("accessNotConfigured", "", SERVICE),
    "an API in the text": (
        "PERMISSION_DENIED",
        "Cloud Filestore API has not been used in project 7 before or it is disabled.",
        SERVICE,
    ),
    "rights": ("PERMISSION_DENIED", 'Required "container.clusters.create" permission(s) for "projects/p".', RIGHTS),
    "rights by the reason": ("IAM_PERMISSION_DENIED", "", RIGHTS),
    "rights of compute": ("forbidden", "Required 'compute.networks.create' permission", RIGHTS),
    "a token": ("ACCESS_TOKEN_EXPIRED", "", LOGIN),
    "no credentials": ("UNAUTHENTICATED", "Request had invalid authentication credentials.", LOGIN),
    "keys": (
        "FAILED_PRECONDITION",
        "Key creation is not allowed on this service account (constraints/iam.disableServiceAccountKeyCreation)",
        "An organization policy forbids keys of service accounts",
    ),
    "a policy": (
        "FAILED_PRECONDITION",
        "Constraint constraints/compute.vmExternalIpAccess violated for project",
        "An organization policy forbids this",
    ),
    "busy": (
        "FAILED_PRECONDITION",
        "Cluster is running incompatible operation operation-1700000000000-abc.",
        BUSY,
    ),
    "busy without a word": ("FAILED_PRECONDITION", "", BUSY),
    "in use": (
        "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE",
        "The network resource is already being used by 'projects/p/global/firewalls/k8s-fw-1'",
        "Something still uses this",
    ),
    "in use by its reason": ("resourceInUseByAnotherResource", "", "Something still uses this"),
    "exists": ("ALREADY_EXISTS", "Already exists: projects/p/clusters/c.", "already exists and was not created"),
    "an etag": ("ABORTED", "There were concurrent policy changes.", "changed by another client"),
    "a fingerprint": ("conditionNotMet", "Invalid fingerprint.", "changed by another client"),
    "billing": ("BILLING_DISABLED", "", "billing account"),
    "a version": ("INVALID_ARGUMENT", 'Master version "1.31" is unsupported.', "REGULAR channel"),
    "a machine type": (
        "INVALID_ARGUMENT",
        "Machine type with name 'g2-standard-7' does not exist in zone 'us-central1-a'",
        "Use a machine type and accelerators",
    ),
    "an accelerator": (
        "INVALID_ARGUMENT",
        'Accelerator type "nvidia-x" does not exist in zone us-central1-a.',
        "Use a machine type and accelerators",
    ),
    "a value": ("INVALID_ARGUMENT", "Invalid value for field 'x'", "Google rejects a value"),
    "addresses": ("IP_SPACE_EXHAUSTED", "", "The address range is too small"),
    "addresses in the text": (
        "FAILED_PRECONDITION",
        "The IP space of subnetwork 'x' is exhausted.",
        "The address range is too small",
    ),
    "the account of nodes": (
        "INVALID_ARGUMENT",
        'Service account "7-compute@developer.gserviceaccount.com" does not exist.',
        "Compute Engine default service account",
    ),
    "too fast": ("rateLimitExceeded", "", "limits the rate of calls"),
    "an internal error": ("INTERNAL", "Internal error.", "on the side of Google"),
    "not there": ("UNAVAILABLE", "", "on the side of Google"),
    "unknown": ("SOMETHING_NEW", "A sentence that is in no table.", ""),
    "nothing": ("", "", ""),
    "not found": ("NOT_FOUND", "The resource 'x' was not found", ""),
}


@pytest.mark.parametrize(("code", "message", "reported"), HINTS.values(), ids=HINTS)
def test_hints(code: str, message: str, reported: str) -> None:
    found = hint_for(code, message)
    assert reported in found
    assert bool(found) is bool(reported)
    assert not found.endswith(".")
    assert found[:1].upper() == found[:1]
