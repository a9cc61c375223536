# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Who may do what: Pod Identity associations (pods in AWS) and access entries (principals of AWS in the cluster)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .account import ACCOUNT, OPERATIONS, Account, hexadecimal, now, pages
from .eks import Cluster, find, find_active, invalid
from .wire import Asked, AwsError

_POLICIES = "arn:aws:eks::aws:cluster-access-policy/"
ADMIN_POLICY = f"{_POLICIES}AmazonEKSClusterAdminPolicy"
KNOWN_POLICIES = frozenset(
    f"{_POLICIES}{name}"
    for name in (
        "AmazonEKSAdminPolicy",
        "AmazonEKSAdminViewPolicy",
        "AmazonEKSClusterAdminPolicy",
        "AmazonEKSEditPolicy",
        "AmazonEKSViewPolicy",
    )
)


@dataclass
class PodIdentity:
    cluster: Cluster
    namespace: str
    account_name: str
    role_arn: str
    tags: dict[str, str]
    id: str = field(default_factory=lambda: f"a-{hexadecimal(17)}")
    created: Any = field(default_factory=now)
    modified: Any = field(default_factory=now)

    @property
    def arn(self) -> str:
        region = self.cluster.region.name
        return f"arn:aws:eks:{region}:{ACCOUNT}:podidentityassociation/{self.cluster.name}/{self.id}"

    def summary(self) -> dict[str, Any]:
        return {
            "clusterName": self.cluster.name,
            "namespace": self.namespace,
            "serviceAccount": self.account_name,
            "associationArn": self.arn,
            "associationId": self.id,
        }

    def describe(self) -> dict[str, Any]:
        return {
            **self.summary(),
            "roleArn": self.role_arn,
            "tags": self.tags,
            "createdAt": self.created,
            "modifiedAt": self.modified,
            "disableSessionTags": False,
        }


def _check_role(account: Account, arn: str) -> None:
    if account.role(arn) is None:
        raise invalid(f"Role provided in the request does not exist. Reason: {arn} is not found")
    if not account.usable(arn, "pods.eks.amazonaws.com", "sts:AssumeRole", "sts:TagSession"):
        raise invalid(
            "Trust policy of role provided in the request is invalid: pods.eks.amazonaws.com needs sts:AssumeRole and "
            "sts:TagSession"
        )


@OPERATIONS.answers("eks", "CreatePodIdentityAssociation")
def create_association(account: Account, asked: Asked) -> dict[str, Any]:
    given = asked.parameters
    cluster = find(account, asked)
    place = (given["namespace"], given["serviceAccount"])
    known = next((each for each in cluster.identities.values() if (each.namespace, each.account_name) == place), None)
    if known is not None:
        raise AwsError("ResourceInUseException", f"Association already exists: {known.id}", clusterName=cluster.name)
    find_active(account, asked)
    _check_role(account, given["roleArn"])
    made = PodIdentity(cluster, *place, given["roleArn"], dict(given.get("tags", {})))
    cluster.identities[made.id] = made
    return {"association": made.describe()}


def _association(account: Account, asked: Asked) -> PodIdentity:
    cluster = find(account, asked)
    wanted = asked.parameters["associationId"]
    if wanted not in cluster.identities:
        raise AwsError(
            "ResourceNotFoundException",
            f"Association not found: {wanted} in cluster {cluster.name}",
            clusterName=cluster.name,
        )
    return cluster.identities[wanted]


@OPERATIONS.answers("eks", "ListPodIdentityAssociations")
def list_associations(account: Account, asked: Asked) -> dict[str, Any]:
    given = asked.parameters
    found = [
        each.summary()
        for each in find(account, asked).identities.values()
        if given.get("namespace") in (None, each.namespace) and given.get("serviceAccount") in (None, each.account_name)
    ]
    return pages(asked, "associations", found)


@OPERATIONS.answers("eks", "DescribePodIdentityAssociation")
def describe_association(account: Account, asked: Asked) -> dict[str, Any]:
    return {"association": _association(account, asked).describe()}


@OPERATIONS.answers("eks", "UpdatePodIdentityAssociation")
def update_association(account: Account, asked: Asked) -> dict[str, Any]:
    association = _association(account, asked)
    role = asked.parameters.get("roleArn", association.role_arn)
    _check_role(account, role)
    association.role_arn, association.modified = role, now()
    return {"association": association.describe()}


@OPERATIONS.answers("eks", "DeletePodIdentityAssociation")
def delete_association(account: Account, asked: Asked) -> dict[str, Any]:
    association = _association(account, asked)
    del association.cluster.identities[association.id]
    return {"association": association.describe()}


@dataclass
class AccessEntry:
    cluster: str
    region: str
    principal: str
    kind: str
    username: str
    groups: list[str]
    tags: dict[str, str]
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    id: str = field(default_factory=lambda: hexadecimal(20))
    created: Any = field(default_factory=now)
    modified: Any = field(default_factory=now)

    @property
    def arn(self) -> str:
        kind, _, name = self.principal.split(":")[-1].partition("/")
        return f"arn:aws:eks:{self.region}:{ACCOUNT}:access-entry/{self.cluster}/{kind}/{ACCOUNT}/{name}/{self.id}"

    def describe(self) -> dict[str, Any]:
        return {
            "clusterName": self.cluster,
            "principalArn": self.principal,
            "kubernetesGroups": self.groups,
            "accessEntryArn": self.arn,
            "createdAt": self.created,
            "modifiedAt": self.modified,
            "tags": self.tags,
            "username": self.username,
            "type": self.kind,
        }


def _with_entries(account: Account, asked: Asked) -> Cluster:
    cluster = find(account, asked)
    if cluster.mode == "CONFIG_MAP":
        raise AwsError(
            "InvalidRequestException",
            "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] for this operation.",
        )
    return cluster


def _entry(account: Account, asked: Asked) -> AccessEntry:
    cluster = _with_entries(account, asked)
    principal = asked.parameters["principalArn"]
    if principal not in cluster.entries:
        raise AwsError("ResourceNotFoundException", f"The specified principalArn could not be found: {principal}")
    return cluster.entries[principal]


@OPERATIONS.answers("eks", "CreateAccessEntry")
def create_access_entry(account: Account, asked: Asked) -> dict[str, Any]:
    given = asked.parameters
    cluster = _with_entries(account, asked)
    principal = given["principalArn"]
    known = cluster.entries.get(principal)
    if known is not None:
        raise AwsError(
            "ResourceInUseException", "The specified access entry resource is already in use on this cluster."
        )
    if ":role/" in principal and account.role(principal) is None:
        raise invalid(f"The specified principalArn is invalid: {principal} does not exist")
    entry = AccessEntry(
        cluster.name,
        cluster.region.name,
        principal,
        given.get("type", "STANDARD"),
        given.get("username", principal),
        list(given.get("kubernetesGroups", [])),
        dict(given.get("tags", {})),
    )
    cluster.entries[principal] = entry
    return {"accessEntry": entry.describe()}


@OPERATIONS.answers("eks", "DescribeAccessEntry")
def describe_access_entry(account: Account, asked: Asked) -> dict[str, Any]:
    return {"accessEntry": _entry(account, asked).describe()}


@OPERATIONS.answers("eks", "ListAccessEntries")
def list_access_entries(account: Account, asked: Asked) -> dict[str, Any]:
    policy = asked.parameters.get("associatedPolicyArn")
    entries = _with_entries(account, asked).entries
    return pages(
        asked, "accessEntries", sorted(name for name, each in entries.items() if policy in (None, *each.policies))
    )


@OPERATIONS.answers("eks", "UpdateAccessEntry")
def update_access_entry(account: Account, asked: Asked) -> dict[str, Any]:
    entry = _entry(account, asked)
    entry.groups = list(asked.parameters.get("kubernetesGroups", entry.groups))
    entry.username = asked.parameters.get("username", entry.username)
    entry.modified = now()
    return {"accessEntry": entry.describe()}


@OPERATIONS.answers("eks", "DeleteAccessEntry")
def delete_access_entry(account: Account, asked: Asked) -> dict[str, Any]:
    entry = _entry(account, asked)
    del find(account, asked).entries[entry.principal]
    return {}


@OPERATIONS.answers("eks", "AssociateAccessPolicy")
def associate_access_policy(account: Account, asked: Asked) -> dict[str, Any]:
    entry = _entry(account, asked)
    policy, scope = asked.parameters["policyArn"], asked.parameters["accessScope"]
    if policy not in KNOWN_POLICIES:
        raise invalid(f"The policyArn parameter format is not valid: {policy}")
    if entry.kind != "STANDARD":
        raise AwsError("InvalidRequestException", f"Policies cannot be associated with an entry of type {entry.kind}")
    if (scope.get("type") == "namespace") != bool(scope.get("namespaces")):
        raise invalid("namespaces belong to, and are needed for, the scope namespace")
    entry.policies[policy] = scope
    return {
        "clusterName": entry.cluster,
        "principalArn": entry.principal,
        "associatedAccessPolicy": _policy(entry, policy),
    }


def _policy(entry: AccessEntry, policy: str) -> dict[str, Any]:
    return {
        "policyArn": policy,
        "accessScope": entry.policies[policy],
        "associatedAt": entry.created,
        "modifiedAt": entry.modified,
    }


@OPERATIONS.answers("eks", "DisassociateAccessPolicy")
def disassociate_access_policy(account: Account, asked: Asked) -> dict[str, Any]:
    entry = _entry(account, asked)
    if entry.policies.pop(asked.parameters["policyArn"], None) is None:
        raise AwsError("ResourceNotFoundException", "No association found for the policy")
    return {}


@OPERATIONS.answers("eks", "ListAssociatedAccessPolicies")
def list_associated_access_policies(account: Account, asked: Asked) -> dict[str, Any]:
    entry = _entry(account, asked)
    page = pages(asked, "associatedAccessPolicies", [_policy(entry, policy) for policy in sorted(entry.policies)])
    return {"clusterName": entry.cluster, "principalArn": entry.principal, **page}
