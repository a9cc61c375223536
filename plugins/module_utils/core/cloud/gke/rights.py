# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Permissions and enabled APIs that are required to create and remove a cluster in a project."""

from __future__ import annotations

from collections.abc import Collection, Mapping

APIS = tuple(
    f"{name}.googleapis.com" for name in ("cloudresourcemanager", "compute", "container", "file", "iam", "serviceusage")
)
"""The required APIs. A plan itself enables some of them."""

KEYS = "roles/iam.serviceAccountKeyAdmin"
"""Only required if the cluster gets a key of its service account."""


def _table(permissions: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {role: tuple(names.split()) for role, names in permissions.items()}


MAKING = _table(
    {
        "roles/compute.networkAdmin": "compute.globalOperations.list compute.networks.create compute.networks.get "
        "compute.networks.updatePolicy compute.networks.use compute.regionOperations.list compute.routers.create "
        "compute.routers.get compute.routers.update compute.subnetworks.create compute.subnetworks.get "
        "compute.subnetworks.setPrivateIpGoogleAccess compute.subnetworks.update compute.subnetworks.use",
        "roles/container.admin": "container.clusters.create container.clusters.get container.clusters.update "
        "container.operations.get",
        "roles/iam.serviceAccountAdmin": "iam.serviceAccounts.create iam.serviceAccounts.get "
        "iam.serviceAccounts.update",
        KEYS: "iam.serviceAccountKeys.create iam.serviceAccountKeys.delete iam.serviceAccountKeys.list",
        "roles/resourcemanager.projectIamAdmin": "resourcemanager.projects.getIamPolicy "
        "resourcemanager.projects.setIamPolicy",
        "roles/serviceusage.serviceUsageAdmin": "serviceusage.services.enable serviceusage.services.get",
    }
)
"""Permissions that create a cluster, by predefined role."""
REMOVING = _table(
    {
        "roles/compute.loadBalancerAdmin": "compute.instanceGroups.delete",
        "roles/compute.networkAdmin": "compute.backendServices.delete compute.forwardingRules.delete "
        "compute.networkEndpointGroups.delete compute.networks.delete compute.routers.delete "
        "compute.subnetworks.delete compute.targetPools.delete",
        "roles/compute.securityAdmin": "compute.firewalls.delete compute.firewalls.list",
        "roles/compute.storageAdmin": "compute.disks.delete compute.disks.list",
        "roles/container.admin": "container.clusters.delete",
        "roles/file.editor": "file.instances.delete file.instances.list",
        "roles/iam.serviceAccountAdmin": "iam.serviceAccounts.delete",
    }
)
"""Permissions that remove a cluster and its orphans, in addition to those in MAKING."""
ACTING = "iam.serviceAccounts.actAs"
"""Required on the service account of nodes, or in the project if the account is created with the cluster."""
ENABLING = "serviceusage.services.enable"
"""Only required if the run enables an API."""
EVERY = tuple(
    sorted(
        {permission for roles in (MAKING, REMOVING) for permissions in roles.values() for permission in permissions}
        | {ACTING}
    )
)
"""All permissions; Resource Manager tests at most 100 permissions in one call."""


def default_account(number: str) -> str:
    """Return the address of Compute Engine's default service account of the project with this number."""
    return f"{number}-compute@developer.gserviceaccount.com"


def lacking(roles: dict[str, tuple[str, ...]], held: Collection[str]) -> dict[str, list[str]]:
    """Return the missing permissions by role, without roles that have no missing permissions."""
    missing = {role: [name for name in permissions if name not in held] for role, permissions in roles.items()}
    return {role: permissions for role, permissions in missing.items() if permissions}
