# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Hints for errors of Google's APIs and of operations, and for conditions of a cluster or a node pool.

Codes are from google.rpc.Code, google.rpc.ErrorInfo (`reason`), errors of Compute Engine, and conditions of GKE
(StatusCondition.Code).
"""

from __future__ import annotations

import re

from ..hints import Hints
from . import rights

_STOCKOUT = (
    "Google has no such machine free in this zone: add zones to the pool, use another machine type, or reserve "
    "capacity (GKE uses a matching reservation of the project automatically); then run again"
)
_QUOTA = (
    "A quota of the project is used up: the message has its name and region; request a higher quota in the Google "
    "Cloud console (IAM & Admin, Quotas & System Limits), or lower minNodeCount and nodeCount of the pool; GPUs "
    "require the quota of their type in the region and GPUS_ALL_REGIONS"
)
_SERVICE = (
    "Enable the API in the message (gcloud services enable NAME --project PROJECT; required are "
    f"{', '.join(api.partition('.')[0] for api in rights.APIS)}), wait a minute or two, and run again"
)
_PERMISSIONS = (
    "Grant the identity of this run the permission in the message. Required are the roles "
    f"{', '.join(role.removeprefix('roles/') for role in sorted({*rights.MAKING, *rights.REMOVING}))}, and "
    "iam.serviceAccountUser on the service account of the nodes; also check the project"
)
_POLICY = (
    "An organization policy forbids this: the message has the constraint; ask for an exception for this project, or "
    "use an allowed value"
)
_LOGIN = (
    "Log in again: provide a service account key that exists and is enabled, a workload identity federation file with "
    "a valid token, or run `gcloud auth application-default login`"
)
_RETRY = "The error is on the side of Google: run again, and check https://status.cloud.google.com if it persists"
_BUSY = "Another operation on the cluster is under way: run again when it is complete"
_IN_USE = (
    "Something still uses this, such as a forwarding rule, a firewall rule, a Filestore instance or its peering: "
    "remove what the collection did not create, then run again"
)
_BILLING = "Link the project to an active billing account, then run again"
_VERSION = (
    "Use a Kubernetes version of the REGULAR channel in the region (`gcloud container get-server-config --region "
    "REGION`)"
)
_NODE_ACCOUNT = (
    "Nodes run as the project's Compute Engine default service account: it must exist and be enabled, and requires the "
    "role roles/container.defaultNodeServiceAccount"
)
_ADDRESSES = (
    "The address range is too small: give the GKECluster a larger spec.networking.nodeCidr or podCidr (podCidr "
    "requires a new cluster), or lower maxNodeCount of its pools"
)
_INVALID = "Google rejects a value: correct the field in the message in the manifest"
_CODES = {
    "GCE_STOCKOUT *_RESOURCE_POOL_EXHAUSTED* STOCKOUT": _STOCKOUT,
    "GCE_QUOTA_EXCEEDED QUOTA_EXCEEDED QUOTA_FOR_* quotaExceeded LIMIT_EXCEEDED": _QUOTA,
    "SERVICE_DISABLED accessNotConfigured API_DISABLED SERVICE_NOT_ACTIVATED": _SERVICE,
    "BILLING_DISABLED BILLING_NOT_ENABLED billingNotEnabled UREQ_PROJECT_BILLING_NOT_FOUND": _BILLING,
    "IAM_PERMISSION_DENIED insufficientPermissions": _PERMISSIONS,
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": "The access scopes of this machine or pod are too narrow: set them to "
    "cloud-platform (gcloud compute instances set-service-account --scopes cloud-platform; on GKE use Workload "
    "Identity Federation), or set credentials_file",
    "ACCESS_TOKEN_EXPIRED CREDENTIALS_MISSING ACCESS_TOKEN_TYPE_UNSUPPORTED ACCOUNT_STATE_INVALID UNAUTHENTICATED "
    "authError": _LOGIN,
    "RATE_LIMIT_EXCEEDED rateLimitExceeded userRateLimitExceeded RESOURCE_OPERATION_RATE_EXCEEDED": "Google limits the "
    "rate of calls: run again later, or provision fewer clusters at once (forks)",
    "ORG_POLICY_VIOLATION CONDITION_NOT_MET_ORG_POLICY CONSTRAINT_VIOLATION": _POLICY,
    "GKE_SERVICE_ACCOUNT_DELETED": "GKE's own service account lost its permissions in the project: grant "
    "service-NUMBER@container-engine-robot.iam.gserviceaccount.com the role roles/container.serviceAgent",
    "NODE_SERVICE_ACCOUNT_MISSING_PERMISSIONS": _NODE_ACCOUNT,
    "CLOUD_KMS_KEY_ERROR CLOUD_KMS_KEY_DESTROYED": "Check the key that encrypts the cluster in Cloud KMS: it must "
    "exist and be enabled, and GKE must be allowed to use it",
    "CA_EXPIRING": "Rotate the credentials of the cluster (`gcloud container clusters update "
    "--start-credential-rotation`)",
    "IP_SPACE_EXHAUSTED* IN_USE_ADDRESSES SUBNETWORK_IP_EXHAUSTED": _ADDRESSES,
    "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE resourceInUseByAnotherResource RESOURCE_IN_USE": _IN_USE,
    "RESOURCE_NOT_READY resourceNotReady CLUSTER_ALREADY_HAS_OPERATION": _BUSY,
    "ALREADY_EXISTS RESOURCE_ALREADY_EXISTS alreadyExists": "A resource with this name already exists and was not "
    "created by this collection: rename or remove it",
    "ABORTED conditionNotMet CONDITION_NOT_MET": "It was changed by another client at the same time: run again",
    "DEADLINE_EXCEEDED DATA_LOSS internalError backendError INTERNAL_ERROR TIMEOUT VM_MIN_COUNT_NOT_REACHED": _RETRY,
}
_TEXTS = {
    r"zone_resource_pool_exhausted|gce_stockout|does not have enough resources available|stockout|out of "
    r"stock": _STOCKOUT,
    r"has not been used in project|is not enabled|it is disabled|api has not been enabled": _SERVICE,
    r"disableserviceaccountkeycreation|key creation is not allowed": "An organization policy forbids keys of service "
    "accounts (iam.disableServiceAccountKeyCreation): ask for an exception for this project, because the fleet "
    "connects to the cluster with such a key",
    r"constraint.*(violat|constraints/)|organi[sz]ation policy|org policy": _POLICY,
    r"billing": _BILLING,
    r"(quota|limit) .*exceeded|exceeded .*quota|insufficient .*quota|quota_exceeded|gpus_all_regions": _QUOTA,
    r"incompatible operation|operation .* (currently|already) |is currently (being )?"
    r"(updat|upgrad|creat|repair)": _BUSY,
    r"(ip space|ip addresses?|cidr|ip range).*(exhaust|not enough|insufficient|no free|too small)": _ADDRESSES,
    r"(master|node|cluster|kubernetes) version .*(unsupported|not supported|invalid|not found)|no valid "
    r"versions|version .*(is unsupported|is not (valid|supported|available))": _VERSION,
    r"(machine ?type|accelerator).*(not (exist|found|available|supported|compatible)|does not exist|invalid)": "Use a "
    "machine type and accelerators that the zone offers (`gcloud compute machine-types list --zones ZONE` and `gcloud "
    "compute accelerator-types list`)",
    r"(zone|location).*(does not exist|not found|invalid|not available|not within)": "Use a zone of the region that "
    "the message or `gcloud compute zones list` lists",
    r"service account .*(does not exist|not found|disabled)": _NODE_ACCOUNT,
    r"being used by|in use by|is already being used": _IN_USE,
    r"permission|not authori[sz]ed|denied|forbidden": _PERMISSIONS,
    r"invalid_grant|invalid jwt|token.*expired|expired.*token|reauth": _LOGIN,
    r"(cannot|can't|can not|unable to) (be )?(chang|modif|updat)|immutable": "This field is immutable: "
    "docs/kinds/GKECluster.md lists the changes that require a new pool or a new cluster",
}
_VAGUE = {
    "FAILED_PRECONDITION": _BUSY,
    # UNAVAILABLE is also the code of operations without available machines. Their message has the code of Compute
    # Engine.
    "INTERNAL UNAVAILABLE UNKNOWN": _RETRY,
    "INVALID_ARGUMENT OUT_OF_RANGE badRequest invalid": _INVALID,
    "PERMISSION_DENIED forbidden": _PERMISSIONS,
    "RESOURCE_EXHAUSTED": _QUOTA,
    "ERROR NOT_FOUND notFound SET_BY_OPERATOR": "",
}
HINTS = Hints(_CODES, _TEXTS, _VAGUE, re.compile(r"\b[A-Z]+(?:_[A-Z]+)+\b"))


def hint_for(code: str, message: str) -> str:
    """Return the hint for the code and the message of an error or a condition; "" for an unknown error.

    A hint is a sentence without a full stop."""
    hint = HINTS.of_vague(code, message)
    return (HINTS.of_code(code) or HINTS.of_message(message)) if hint is None else hint
