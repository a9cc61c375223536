# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Addons of EKS."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

import yaml

from .account import ACCOUNT, OPERATIONS, Account, Staged, now, pages
from .eks import VERSIONS, Cluster, Update, find, find_active, invalid
from .wire import Asked, AwsError

# Name -> its versions, oldest first. The versions are made up; their form is that of EKS.
CATALOGUE: dict[str, tuple[str, ...]] = {
    "vpc-cni": ("v1.20.4-eksbuild.1", "v1.21.1-eksbuild.1"),
    "kube-proxy": ("v1.35.3-eksbuild.2", "v1.36.1-eksbuild.2"),
    "coredns": ("v1.12.4-eksbuild.1", "v1.13.1-eksbuild.1"),
    "eks-pod-identity-agent": ("v1.3.8-eksbuild.1", "v1.3.10-eksbuild.1"),
    "aws-efs-csi-driver": ("v2.1.13-eksbuild.1", "v2.2.0-eksbuild.1"),
    "aws-ebs-csi-driver": ("v1.50.0-eksbuild.1", "v1.52.0-eksbuild.1"),
    "eks-node-monitoring-agent": ("v1.4.0-eksbuild.1", "v1.4.1-eksbuild.1"),
}
# Those with a Deployment: without a node for it EKS calls them DEGRADED. A DaemonSet without nodes is healthy.
_NEEDS_NODE = frozenset({"coredns", "aws-efs-csi-driver", "aws-ebs-csi-driver"})


@dataclass
class Addon(Staged):
    cluster: Cluster
    name: str
    version: str
    role_arn: str | None
    configuration: str | None
    tags: dict[str, str]
    status: str = "CREATING"
    issues: list[dict[str, Any]] = field(default_factory=list)
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: Any = field(default_factory=now)
    modified: Any = field(default_factory=now)
    updates: dict[str, Update] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        return f"arn:aws:eks:{self.cluster.region.name}:{ACCOUNT}:addon/{self.cluster.name}/{self.name}/{self.id}"

    def assess(self) -> None:
        """Its health, by the nodes of the cluster."""
        if self.status not in ("ACTIVE", "DEGRADED"):
            return
        starved = self.name in _NEEDS_NODE and not any(each.takes_any_pod for each in self.cluster.node_groups.values())
        self.issues = (
            [
                {
                    "code": "InsufficientNumberOfReplicas",
                    "message": "The add-on is unhealthy because it doesn't have the desired number of replicas.",
                    "resourceIds": [],
                }
            ]
            if starved
            else []
        )
        self.status = "DEGRADED" if starved else "ACTIVE"

    def describe(self) -> dict[str, Any]:
        described = {
            "addonName": self.name,
            "clusterName": self.cluster.name,
            "status": self.status,
            "addonVersion": self.version,
            "health": {"issues": self.issues},
            "addonArn": self.arn,
            "createdAt": self.created,
            "modifiedAt": self.modified,
            "tags": self.tags,
            "owner": "aws",
            "publisher": "eks",
        }
        if self.role_arn:
            described["serviceAccountRoleArn"] = self.role_arn
        if self.configuration:
            described["configurationValues"] = self.configuration
        return described


def _find(account: Account, asked: Asked) -> Addon:
    cluster = find(account, asked)
    name = asked.parameters["addonName"]
    if name not in cluster.addons:
        raise AwsError(
            "ResourceNotFoundException",
            f"No addon: {name} found in cluster: {cluster.name}",
            clusterName=cluster.name,
            addonName=name,
        )
    return cluster.addons[name]


def _check(account: Account, name: str, given: dict[str, Any]) -> None:
    if name not in CATALOGUE:
        raise invalid(f"Addon {name} specified is not supported", addonName=name)
    version = given.get("addonVersion")
    if version is not None and version not in CATALOGUE[name]:
        raise invalid(f"Addon version specified is not supported: {version}", addonName=name)
    role = given.get("serviceAccountRoleArn")
    if role and account.role(role) is None:
        raise invalid(f"Role {role} does not exist", addonName=name)
    configuration = given.get("configurationValues")
    if configuration:
        try:
            read = yaml.safe_load(configuration)
        except yaml.YAMLError as error:
            raise invalid(f"ConfigurationValue is not in valid JSON or YAML format: {error}", addonName=name) from error
        if not isinstance(read, dict):
            raise invalid("ConfigurationValue provided in request is not supported: it is no object", addonName=name)


@OPERATIONS.answers("eks", "CreateAddon")
def create_addon(account: Account, asked: Asked) -> dict[str, Any]:
    given = asked.parameters
    name = given["addonName"]
    known = find(account, asked).addons.get(name)
    if known is not None:
        raise AwsError(
            "ResourceInUseException", "Addon already exists.", clusterName=known.cluster.name, addonName=name
        )
    cluster = find_active(account, asked)
    _check(account, name, given)
    addon = Addon(
        cluster=cluster,
        name=name,
        version=given.get("addonVersion", CATALOGUE[name][-1]),
        role_arn=given.get("serviceAccountRoleArn"),
        configuration=given.get("configurationValues"),
        tags=dict(given.get("tags", {})),
    )
    cluster.addons[name] = addon

    def finish() -> None:
        ending = account.ending("addon", name)
        addon.status = ending.status if ending else "ACTIVE"
        addon.issues = [dict(issue) for issue in ending.issues] if ending else []

    addon.begin(account.looks("addon"), finish)
    return {"addon": addon.describe()}


@OPERATIONS.answers("eks", "DescribeAddon")
def describe_addon(account: Account, asked: Asked) -> dict[str, Any]:
    _find(account, asked).look()
    addon = _find(account, asked)
    if not addon.issues or addon.issues[0]["code"] == "InsufficientNumberOfReplicas":
        addon.assess()
    return {"addon": addon.describe()}


@OPERATIONS.answers("eks", "ListAddons")
def list_addons(account: Account, asked: Asked) -> dict[str, Any]:
    return pages(asked, "addons", sorted(find(account, asked).addons))


@OPERATIONS.answers("eks", "UpdateAddon")
def update_addon(account: Account, asked: Asked) -> dict[str, Any]:
    addon = _find(account, asked)
    given = asked.parameters
    if addon.status in ("CREATING", "UPDATING", "DELETING"):
        raise AwsError(
            "ResourceInUseException",
            f"Addon {addon.name} cannot be updated as it is currently in {addon.status} state",
            clusterName=addon.cluster.name,
            addonName=addon.name,
        )
    _check(account, addon.name, given)
    members = {"addonVersion": "AddonVersion", "serviceAccountRoleArn": "ServiceAccountRoleArn"}
    members |= {"configurationValues": "ConfigurationValues", "resolveConflicts": "ResolveConflicts"}
    update = Update("AddonUpdate", {says: given[name] for name, says in members.items() if name in given})
    addon.updates[update.id] = update
    addon.status = "UPDATING"

    def done() -> None:
        if update.status != "InProgress":
            return
        ending = account.ending("update", addon.name)
        issues = [dict(issue) for issue in ending.issues] if ending else []
        update.end(issues if ending else None)
        addon.issues = issues
        addon.status = (ending.status if ending.status != "Failed" else "UPDATE_FAILED") if ending else "ACTIVE"
        addon.modified = now()
        if not ending:
            addon.version = given.get("addonVersion", addon.version)
            addon.role_arn = given.get("serviceAccountRoleArn", addon.role_arn)
            addon.configuration = given.get("configurationValues", addon.configuration)

    addon.begin(account.looks("update"), done)
    update.begin(account.looks("update"), done)
    return {"update": update.describe()}


@OPERATIONS.answers("eks", "DeleteAddon")
def delete_addon(account: Account, asked: Asked) -> dict[str, Any]:
    addon = _find(account, asked)
    if addon.status in ("CREATING", "UPDATING", "DELETING"):
        raise AwsError(
            "ResourceInUseException",
            f"Addon {addon.name} cannot be deleted as it is currently in {addon.status} state",
            clusterName=addon.cluster.name,
            addonName=addon.name,
        )
    addon.status = "DELETING"

    def finish() -> None:
        ending = account.ending("addon", addon.name)
        if ending:
            addon.status, addon.issues = ending.status, [dict(issue) for issue in ending.issues]
        else:
            del addon.cluster.addons[addon.name]

    addon.begin(account.looks("addon"), finish)
    return {"addon": addon.describe()}


@OPERATIONS.answers("eks", "DescribeAddonVersions")
def describe_addon_versions(_account: Account, asked: Asked) -> dict[str, Any]:
    given = asked.parameters
    wanted, version = given.get("addonName"), given.get("kubernetesVersion")
    found = [
        {
            "addonName": name,
            "type": "networking",
            "owner": "aws",
            "publisher": "eks",
            "addonVersions": [
                {
                    "addonVersion": release,
                    "architecture": ["amd64", "arm64"],
                    "compatibilities": [
                        {"clusterVersion": each, "platformVersions": ["*"], "defaultVersion": release == releases[-1]}
                        for each in VERSIONS
                        if version in (None, each)
                    ],
                    "requiresConfiguration": False,
                    "requiresIamPermissions": name in ("vpc-cni", "aws-efs-csi-driver", "aws-ebs-csi-driver"),
                }
                for release in reversed(releases)
            ],
        }
        for name, releases in CATALOGUE.items()
        if wanted in (None, name)
    ]
    if wanted and not found:
        raise invalid(f"Addon {wanted} specified is not supported")
    return pages(asked, "addons", found)


@OPERATIONS.answers("eks", "DescribeAddonConfiguration")
def describe_addon_configuration(_account: Account, asked: Asked) -> dict[str, Any]:
    name, version = asked.parameters["addonName"], asked.parameters["addonVersion"]
    if version not in CATALOGUE.get(name, ()):
        raise AwsError("ResourceNotFoundException", f"Addon {name} has no version {version}")
    schema = {"$schema": "http://json-schema.org/draft-06/schema#", "type": "object"}
    return {"addonName": name, "addonVersion": version, "configurationSchema": json.dumps(schema)}
