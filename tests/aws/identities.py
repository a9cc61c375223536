# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""EKS: addons, pod identity associations and access entries."""

from __future__ import annotations

import json
import uuid
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.tests.cloud.authority import now
from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal

from .eks import Cluster, Resource, at_rest, check_role, cluster_of, invalid, kept, operation, page
from .wire import Call
from .world import ACCOUNT, Json, World

# Addons that EKS offers, each with its newest versions, the default one first.
ADDONS = {
    "vpc-cni": ("networking", ["v1.21.1-eksbuild.1", "v1.20.4-eksbuild.2"]),
    "kube-proxy": ("networking", ["v{0}.0-eksbuild.2", "v{0}.0-eksbuild.1"]),
    "coredns": ("networking", ["v1.13.1-eksbuild.1", "v1.12.4-eksbuild.1"]),
    "eks-pod-identity-agent": ("security", ["v1.3.10-eksbuild.2", "v1.3.9-eksbuild.3"]),
    "aws-efs-csi-driver": ("storage", ["v2.1.15-eksbuild.1", "v2.1.13-eksbuild.1"]),
    "aws-ebs-csi-driver": ("storage", ["v1.54.0-eksbuild.1", "v1.53.0-eksbuild.1"]),
    "metrics-server": ("observability", ["v0.8.0-eksbuild.6", "v0.8.0-eksbuild.5"]),
}
# Those with pods that only run on nodes without taints.
_NEED_NODES = ("coredns", "aws-efs-csi-driver", "aws-ebs-csi-driver", "metrics-server")


def _arn(call: Call, kind: str, name: str) -> str:
    return f"arn:{call.partition}:eks:{call.region}:{ACCOUNT}:{kind}/{name}"


class Addon(Resource):
    kind = "addon"

    def __init__(self, cluster: Cluster, call: Call, version: str) -> None:
        asked = call.parameters
        super().__init__(cluster.world, asked["addonName"], asked.get("tags"))
        self.cluster, self.version = cluster, version
        self.arn = _arn(call, "addon", f"{cluster.name}/{self.name}/{uuid.uuid4()}")
        self.configuration = asked.get("configurationValues")
        self.role = asked.get("serviceAccountRoleArn")

    def wire(self) -> Json:
        status, issues = self.status, self.issues
        if status == "ACTIVE" and self.lacks_nodes:
            status = "DEGRADED"
            message = "The add-on is unhealthy because it doesn't have the desired number of replicas."
            issues = [{"code": "InsufficientNumberOfReplicas", "message": message, "resourceIds": []}]
        return {
            "addonName": self.name,
            "clusterName": self.cluster.name,
            "status": status,
            "addonVersion": self.version,
            "health": {"issues": issues},
            "addonArn": self.arn,
            "createdAt": self.created,
            "modifiedAt": self.modified,
            "tags": self.tags,
            **({"serviceAccountRoleArn": self.role} if self.role else {}),
            **({"configurationValues": self.configuration} if self.configuration else {}),
        }

    @property
    def lacks_nodes(self) -> bool:
        if self.name not in _NEED_NODES or not self.world.settings.addons_need_nodes:
            return False
        return not any(group.takes_any_pod for group in self.cluster.node_groups.values())


def _offered(name: str, cluster_version: str) -> list[str]:
    if name not in ADDONS:
        raise invalid(f"Addon {name} specified is not supported")
    return [version.format(cluster_version) for version in ADDONS[name][1]]


def _addon_version(asked: Json, cluster: Cluster, default: str = "") -> str:
    offered = _offered(asked["addonName"], cluster.version)
    desired = asked.get("addonVersion") or default or offered[0]
    if desired not in (*offered, default):
        raise invalid(f"Addon version {desired} specified is not supported for Kubernetes {cluster.version}")
    return str(desired)


def _check_configuration(text: str | None) -> None:
    if text is None:
        return
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = None
    if not isinstance(value, dict) and text.strip() not in ("", "{}"):
        raise invalid(
            "ConfigurationValue provided in request is not supported: it is neither JSON nor YAML of an object"
        )


@operation
def create_addon(world: World, call: Call) -> Json:
    cluster, asked = cluster_of(world, call, active=True), call.parameters
    if asked["addonName"] in cluster.addons:
        raise Refusal("ResourceInUseException", "Addon already exists.", 409)
    version = _addon_version(asked, cluster)
    _check_configuration(asked.get("configurationValues"))
    addon = Addon(cluster, call, version)
    cluster.addons[addon.name] = addon
    addon.create(lambda: None)
    return {"addon": addon.wire()}


def _addon(world: World, call: Call) -> Any:
    return kept(cluster_of(world, call).addons, call.parameters["addonName"], "addon")


@operation
def describe_addon(world: World, call: Call) -> Json:
    _addon(world, call).observe()
    return {"addon": _addon(world, call).wire()}


@operation
def list_addons(world: World, call: Call) -> Json:
    return page(call, "addons", sorted(cluster_of(world, call).addons))


@operation
def update_addon(world: World, call: Call) -> Json:
    addon, asked = _addon(world, call), call.parameters
    at_rest(addon, "Addon")
    version = _addon_version(asked, addon.cluster, addon.version)
    _check_configuration(asked.get("configurationValues"))

    def done() -> None:
        addon.version, addon.role = version, asked.get("serviceAccountRoleArn", addon.role)
        addon.configuration = asked.get("configurationValues", addon.configuration)

    message = {"AddonVersion": version}
    if "resolveConflicts" in asked:
        message["ResolveConflicts"] = asked["resolveConflicts"]
    if "configurationValues" in asked:
        message["ConfigurationValues"] = asked["configurationValues"]
    return {"update": addon.begin("AddonUpdate", message, done).wire()}


@operation
def delete_addon(world: World, call: Call) -> Json:
    addon = _addon(world, call)
    at_rest(addon, "Addon")
    addon.delete(lambda: addon.cluster.addons.pop(addon.name))
    return {"addon": addon.wire()}


@operation
def describe_addon_versions(world: World, call: Call) -> Json:
    asked = call.parameters
    versions = [asked["kubernetesVersion"]] if asked.get("kubernetesVersion") else world.settings.versions
    names = [asked["addonName"]] if asked.get("addonName") else sorted(ADDONS)
    message = []
    for name in names:
        _offered(name, versions[0])
        numbers = dict.fromkeys(number for version in reversed(versions) for number in _offered(name, version))
        message.append(
            {
                "addonName": name,
                "type": ADDONS[name][0],
                "owner": "aws",
                "publisher": "eks",
                "addonVersions": [
                    {
                        "addonVersion": number,
                        "architecture": ["amd64", "arm64"],
                        "compatibilities": [
                            {
                                "clusterVersion": version,
                                "platformVersions": ["*"],
                                "defaultVersion": number == _offered(name, version)[0],
                            }
                            for version in versions
                            if number in _offered(name, version)
                        ],
                    }
                    for number in numbers
                ],
            }
        )
    return page(call, "addons", message)


@operation
def describe_addon_configuration(_world: World, call: Call) -> Json:
    asked = call.parameters
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
    return {
        "addonName": asked["addonName"],
        "addonVersion": asked["addonVersion"],
        "configurationSchema": json.dumps(schema),
    }


@operation
def create_pod_identity_association(world: World, call: Call) -> Json:
    cluster, asked = cluster_of(world, call, active=True), call.parameters
    for have in cluster.associations.values():
        if (have["namespace"], have["serviceAccount"]) == (asked["namespace"], asked["serviceAccount"]):
            raise Refusal("ResourceInUseException", f"Association already exists: {have['associationId']}", 409)
    check_role(world, call, asked["roleArn"], "pods.eks.amazonaws.com")
    identifier = f"a-{world.token(16)}"
    association = {
        "clusterName": cluster.name,
        "namespace": asked["namespace"],
        "serviceAccount": asked["serviceAccount"],
        "roleArn": asked["roleArn"],
        "associationArn": _arn(call, "podidentityassociation", f"{cluster.name}/{identifier}"),
        "associationId": identifier,
        "tags": dict(asked.get("tags", {})),
        "createdAt": now(),
        "modifiedAt": now(),
    }
    cluster.associations[identifier] = association
    return {"association": association}


def _association(world: World, call: Call) -> Json:
    found: Json = kept(cluster_of(world, call).associations, call.parameters["associationId"], "association")
    return found


@operation
def describe_pod_identity_association(world: World, call: Call) -> Json:
    return {"association": _association(world, call)}


@operation
def list_pod_identity_associations(world: World, call: Call) -> Json:
    asked = call.parameters
    message = [
        {name: have[name] for name in ("clusterName", "namespace", "serviceAccount", "associationArn", "associationId")}
        for have in cluster_of(world, call).associations.values()
        if asked.get("namespace") in (None, have["namespace"])
        and asked.get("serviceAccount") in (None, have["serviceAccount"])
    ]
    return page(call, "associations", message)


@operation
def update_pod_identity_association(world: World, call: Call) -> Json:
    association, asked = _association(world, call), call.parameters
    if "roleArn" in asked:
        check_role(world, call, asked["roleArn"], "pods.eks.amazonaws.com")
        association["roleArn"] = asked["roleArn"]
    association["modifiedAt"] = now()
    return {"association": association}


@operation
def delete_pod_identity_association(world: World, call: Call) -> Json:
    association = _association(world, call)
    del cluster_of(world, call).associations[association["associationId"]]
    return {"association": association}


def _entries(world: World, call: Call) -> dict[str, Json]:
    cluster = cluster_of(world, call)
    if cluster.mode == "CONFIG_MAP":
        raise Refusal(
            "InvalidRequestException",
            "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP]",
        )
    return cluster.entries


@operation
def create_access_entry(world: World, call: Call) -> Json:
    entries, asked = _entries(world, call), call.parameters
    principal = asked["principalArn"]
    if principal in entries:
        raise Refusal(
            "ResourceInUseException", "The specified access entry resource is already in use on this cluster.", 409
        )
    cluster = cluster_of(world, call)
    entries[principal] = {
        "clusterName": cluster.name,
        "principalArn": principal,
        "kubernetesGroups": asked.get("kubernetesGroups", []),
        "accessEntryArn": _arn(call, "access-entry", f"{cluster.name}/{uuid.uuid4()}"),
        "createdAt": now(),
        "modifiedAt": now(),
        "tags": dict(asked.get("tags", {})),
        "username": asked.get("username", principal),
        "type": asked.get("type", "STANDARD"),
        "policies": {},
    }
    return {"accessEntry": _entry_wire(entries[principal])}


def _entry_wire(entry: Json) -> Json:
    return {name: value for name, value in entry.items() if name != "policies"}


def _entry(world: World, call: Call) -> Json:
    found: Json = kept(_entries(world, call), call.parameters["principalArn"], "access entry")
    return found


@operation
def describe_access_entry(world: World, call: Call) -> Json:
    return {"accessEntry": _entry_wire(_entry(world, call))}


@operation
def list_access_entries(world: World, call: Call) -> Json:
    desired = call.parameters.get("associatedPolicyArn")
    return page(
        call,
        "accessEntries",
        sorted(arn for arn, entry in _entries(world, call).items() if desired is None or desired in entry["policies"]),
    )


@operation
def update_access_entry(world: World, call: Call) -> Json:
    entry = _entry(world, call)
    entry.update({name: call.parameters[name] for name in ("kubernetesGroups", "username") if name in call.parameters})
    entry["modifiedAt"] = now()
    return {"accessEntry": _entry_wire(entry)}


@operation
def delete_access_entry(world: World, call: Call) -> Json:
    del _entries(world, call)[_entry(world, call)["principalArn"]]
    return {}


@operation
def associate_access_policy(world: World, call: Call) -> Json:
    entry, asked = _entry(world, call), call.parameters
    entry["policies"][asked["policyArn"]] = policy = {
        "policyArn": asked["policyArn"],
        "accessScope": asked["accessScope"],
        "associatedAt": now(),
        "modifiedAt": now(),
    }
    return {
        "clusterName": entry["clusterName"],
        "principalArn": entry["principalArn"],
        "associatedAccessPolicy": policy,
    }


@operation
def disassociate_access_policy(world: World, call: Call) -> Json:
    _entry(world, call)["policies"].pop(call.parameters["policyArn"], None)
    return {}


@operation
def list_associated_access_policies(world: World, call: Call) -> Json:
    entry = _entry(world, call)
    message = page(call, "associatedAccessPolicies", list(entry["policies"].values()))
    return {"clusterName": entry["clusterName"], "principalArn": entry["principalArn"], **message}
