# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Hints for errors of Google's APIs and of operations, and for conditions of a cluster or a node pool.

Codes are those of google.rpc.Code, of google.rpc.ErrorInfo (`reason`), of errors of Compute Engine, and of the
conditions of GKE (StatusCondition.Code).
"""

from __future__ import annotations

import re

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import rights
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.hints import (
    Codes,
    Texts,
    among,
    of_code,
    of_text,
    of_words,
)

_QUOTA = "ask for a higher quota in the Google Cloud console (IAM & Admin, Quotas & System Limits)"
_STOCKOUT = (
    "Google has no such machine free in this zone: add zones to the pool, take another machine type, or reserve "
    "capacity (a matching reservation of the project is used by itself); running again goes on from here"
)
_QUOTA_USED = (
    f"A quota of the project is used up: the message names it and where; {_QUOTA}, or lower minNodeCount and nodeCount "
    "of the pool; GPUs need the quota of their kind in the region and GPUS_ALL_REGIONS"
)
_SERVICE = (
    "Enable the API that the message names (gcloud services enable NAME --project PROJECT; needed are "
    f"{', '.join(api.partition('.')[0] for api in rights.APIS)}), wait a minute or two, and run again"
)
_RIGHTS = (
    "Give the identity that runs this the right named in the message. Needed are the roles "
    f"{', '.join(role.removeprefix('roles/') for role in sorted({*rights.MAKING, *rights.REMOVING}))}, and "
    "iam.serviceAccountUser on the service account of the nodes; check also whether the project is the right one"
)
_SCOPE = (
    "The machine or pod that this runs on has too narrow access scopes: set them to cloud-platform (gcloud compute "
    "instances set-service-account --scopes cloud-platform; on GKE by Workload Identity Federation), or set "
    "credentials_file"
)
_KEY_POLICY = (
    "An organization policy forbids keys of service accounts (iam.disableServiceAccountKeyCreation): have it lifted "
    "for this project, as the fleet logs in to the cluster with such a key"
)
_POLICY = (
    "An organization policy forbids this: the message names the constraint; have it lifted for this project, or choose "
    "what it allows"
)
_LOGIN = (
    "Log in again: give a service-account key that exists and is not disabled, a workload identity federation file "
    "whose token is fresh, or run `gcloud auth application-default login`"
)
_RATE = "Google limits the rate of calls: run again later, or provision fewer clusters at once (forks)"
_AGAIN = "The error is on the side of Google: run again, and check https://status.cloud.google.com if it stays"
_BUSY = "Another operation on the cluster is under way: run again when it is over"
_CHANGED = "It was changed by another client at the same time: run again"
_IN_USE = (
    "Something still uses this, such as a forwarding rule, a firewall rule, a Filestore instance or its peering: "
    "remove what is not the collection's, then run again"
)
_EXISTS = "Something of this name that is not the collection's exists already: rename or remove it"
_BILLING = "Link the project to a billing account that is active, then run again"
_VERSION = (
    "Take a version of Kubernetes that the REGULAR channel offers in the region: `gcloud container get-server-config "
    "--region REGION` lists them"
)
_MACHINE = (
    "Take a machine type and accelerators that the zone offers: `gcloud compute machine-types list --zones ZONE` and "
    "`gcloud compute accelerator-types list` list them"
)
_NODE_ACCOUNT = (
    "Nodes run as the project's Compute Engine default service account: it has to exist and be enabled, and needs the "
    "role roles/container.defaultNodeServiceAccount"
)
_ADDRESSES = (
    "The range of addresses is too small: give the GKECluster a larger spec.networking.nodeCidr or podCidr (podCidr "
    "needs a new cluster), or lower maxNodeCount of its pools"
)
_INVALID = "Google does not take a value: correct the field that the message is about in the manifest"
_ZONE = "Take a zone of the region that the message or `gcloud compute zones list` names"

_BY_CODE: Codes = (
    (("GCE_STOCKOUT", "ZONE_RESOURCE_POOL_EXHAUSTED*", "STOCKOUT", "REGION_RESOURCE_POOL_EXHAUSTED*"), _STOCKOUT),
    (("GCE_QUOTA_EXCEEDED", "QUOTA_EXCEEDED", "QUOTA_FOR_*", "quotaExceeded", "LIMIT_EXCEEDED"), _QUOTA_USED),
    (("SERVICE_DISABLED", "accessNotConfigured", "API_DISABLED", "SERVICE_NOT_ACTIVATED"), _SERVICE),
    (("BILLING_DISABLED", "BILLING_NOT_ENABLED", "billingNotEnabled", "UREQ_PROJECT_BILLING_NOT_FOUND"), _BILLING),
    (("IAM_PERMISSION_DENIED", "insufficientPermissions"), _RIGHTS),
    (("ACCESS_TOKEN_SCOPE_INSUFFICIENT",), _SCOPE),
    (("ACCESS_TOKEN_EXPIRED", "CREDENTIALS_MISSING", "ACCESS_TOKEN_TYPE_UNSUPPORTED", "ACCOUNT_STATE_INVALID"), _LOGIN),
    (("RATE_LIMIT_EXCEEDED", "rateLimitExceeded", "userRateLimitExceeded", "RESOURCE_OPERATION_RATE_EXCEEDED"), _RATE),
    (("ORG_POLICY_VIOLATION", "CONDITION_NOT_MET_ORG_POLICY", "CONSTRAINT_VIOLATION"), _POLICY),
    (
        ("GKE_SERVICE_ACCOUNT_DELETED",),
        "Google's own service account of GKE lost its rights in the project: give "
        "service-NUMBER@container-engine-robot.iam.gserviceaccount.com the role roles/container.serviceAgent",
    ),
    (("NODE_SERVICE_ACCOUNT_MISSING_PERMISSIONS",), _NODE_ACCOUNT),
    (
        ("CLOUD_KMS_KEY_ERROR", "CLOUD_KMS_KEY_DESTROYED"),
        "Check the key that encrypts the cluster in Cloud KMS: it has to exist and be enabled, and GKE may use it",
    ),
    (
        ("CA_EXPIRING",),
        "Rotate the credentials of the cluster (`gcloud container clusters update --start-credential-rotation`)",
    ),
    (("IP_SPACE_EXHAUSTED*", "IN_USE_ADDRESSES", "SUBNETWORK_IP_EXHAUSTED"), _ADDRESSES),
    (("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", "resourceInUseByAnotherResource", "RESOURCE_IN_USE"), _IN_USE),
    (("RESOURCE_NOT_READY", "resourceNotReady", "CLUSTER_ALREADY_HAS_OPERATION"), _BUSY),
    (("ALREADY_EXISTS", "RESOURCE_ALREADY_EXISTS", "alreadyExists"), _EXISTS),
    (("ABORTED", "conditionNotMet", "CONDITION_NOT_MET"), _CHANGED),
    (("UNAUTHENTICATED", "authError"), _LOGIN),
    (("DEADLINE_EXCEEDED", "DATA_LOSS", "internalError", "backendError"), _AGAIN),
    (("INTERNAL_ERROR", "TIMEOUT", "VM_MIN_COUNT_NOT_REACHED"), _AGAIN),
)

# Texts of codes that say little by themselves. The first that is found counts.
_BY_TEXT: Texts = (
    (
        r"zone_resource_pool_exhausted|gce_stockout|does not have enough resources available|stockout|out of stock",
        _STOCKOUT,
    ),
    (r"(has not been used in project|is not enabled|it is disabled|api has not been enabled)", _SERVICE),
    (r"disableserviceaccountkeycreation|key creation is not allowed", _KEY_POLICY),
    (r"constraint.*(violat|constraints/)|organi[sz]ation policy|org policy", _POLICY),
    (r"billing", _BILLING),
    (r"(quota|limit) .*exceeded|exceeded .*quota|insufficient .*quota|quota_exceeded|gpus_all_regions", _QUOTA_USED),
    (
        r"incompatible operation|operation .* (currently|already) |is currently (being )?(updat|upgrad|creat|repair)",
        _BUSY,
    ),
    (r"(ip space|ip addresses?|cidr|ip range).*(exhaust|not enough|insufficient|no free|too small)", _ADDRESSES),
    (
        r"(master|node|cluster|kubernetes) version .*(unsupported|not supported|invalid|not found)|no valid versions",
        _VERSION,
    ),
    (r"version .*(is unsupported|is not (valid|supported|available))", _VERSION),
    (
        r"(machine ?type|accelerator).*(not (exist|found|available|supported|compatible)|does not exist|invalid)",
        _MACHINE,
    ),
    (r"(zone|location).*(does not exist|not found|invalid|not available|not within)", _ZONE),
    (r"service account .*(does not exist|not found|disabled)", _NODE_ACCOUNT),
    (r"being used by|in use by|is already being used", _IN_USE),
    (r"(permission|required .* permission|not authori[sz]ed|denied|forbidden)", _RIGHTS),
    (r"(invalid_grant|invalid jwt|token.*expired|expired.*token|reauth)", _LOGIN),
    (
        r"(cannot|can't|can not|unable to) (be )?(chang|modif|updat)|immutable",
        "This cannot be changed in place: docs/gke.md says what needs a new pool or a new cluster",
    ),
)

# Codes that say that something did not work, and the message why.
_VAGUE = (
    "",
    "ERROR",
    "FAILED_PRECONDITION",
    "forbidden",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "invalid",
    "badRequest",
    "NOT_FOUND",
    "notFound",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "SET_BY_OPERATOR",
    # Also of operations that lack machines, whose message has the code of Compute Engine.
    "UNAVAILABLE",
    "UNKNOWN",
)
_VAGUE_HINTS = {
    "FAILED_PRECONDITION": _BUSY,
    "INTERNAL": _AGAIN,
    "UNAVAILABLE": _AGAIN,
    "UNKNOWN": _AGAIN,
    "INVALID_ARGUMENT": _INVALID,
    "OUT_OF_RANGE": _INVALID,
    "PERMISSION_DENIED": _RIGHTS,
    "RESOURCE_EXHAUSTED": _QUOTA_USED,
    "badRequest": _INVALID,
    "forbidden": _RIGHTS,
    "invalid": _INVALID,
}


def hint_for(code: str, message: str) -> str:
    """Return what to do about the error: a sentence without a full stop, or nothing for a code that is not known.

    `code` is the reason or the status of an answer, the code of an operation, or that of a condition; `message` is the
    text that came with it. Where a code merely says that something went wrong, the message decides: it often names the
    code of Compute Engine, which is beneath GKE.
    """
    if among(code, _VAGUE):
        return _of_message(message) or _VAGUE_HINTS.get(code, "")
    return of_code(_BY_CODE, code) or _of_message(message)


def _of_message(message: str) -> str:
    """Return the hint for the first code that the message names, else on what it says."""
    words = re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", message)
    return of_words(_BY_CODE, _VAGUE, words) or of_text(_BY_TEXT, message)
