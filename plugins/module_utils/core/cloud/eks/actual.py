# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects of AWS, converted to the form that the table of kinds compares: one function for each kind with a conversion.

Tags are a mapping in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..engine.ownership import labels
from . import compare

Described = Mapping[str, Any]
_TARGETS = ("GatewayId", "NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "InstanceId")


def tagged(found: Described) -> dict[str, Any]:
    """Return an object with its tags as a mapping."""
    return {**found, "Tags": labels(found.get("Tags"))}


def internet_gateway(found: Described) -> dict[str, Any]:
    """Return an internet gateway with its attached VPC as `VpcId`."""
    vpcs = [str(attachment.get("VpcId", "")) for attachment in found.get("Attachments") or ()]
    return {**tagged(found), "VpcId": "".join(vpcs[:1])}


def route_table(found: Described) -> dict[str, Any]:
    """Return a route table.

    `Routes`: targets by range, without blackhole routes. `Blackholes`: the ranges of blackhole routes. `SubnetIds`: the
    associated subnets.
    """
    routes = {
        entry["DestinationCidrBlock"]: entry for entry in found.get("Routes") or () if entry.get("DestinationCidrBlock")
    }
    return {
        **tagged(found),
        "Routes": {cidr: _target(entry) for cidr, entry in routes.items() if entry.get("State") != "blackhole"},
        "Blackholes": [cidr for cidr, entry in routes.items() if entry.get("State") == "blackhole"],
        "SubnetIds": [entry["SubnetId"] for entry in found.get("Associations") or () if entry.get("SubnetId")],
    }


def _target(route: Described) -> str:
    return next((str(route[key]) for key in _TARGETS if route.get(key)), "")


def security_group(found: Described) -> dict[str, Any]:
    """Return a security group with its rules as lines (`Ingress`, `Egress`)."""
    return {
        **tagged(found),
        "Ingress": compare.rules(found.get("IpPermissions") or (), found["GroupId"]),
        "Egress": compare.rules(found.get("IpPermissionsEgress") or (), found["GroupId"]),
    }


def role(found: Described, attached: Iterable[Described]) -> dict[str, Any]:
    """Return a role with its attached managed policies (`PolicyArns`)."""
    return {**tagged(found), "PolicyArns": sorted(managed_policy["PolicyArn"] for managed_policy in attached)}


def policy(found: Described, versions: Sequence[Described], document: Any) -> dict[str, Any]:
    """Return a policy with the document of its default version, and the IDs of its other versions, oldest first."""
    other_versions = sorted(
        (version for version in versions if not version["IsDefaultVersion"]),
        key=lambda version: _number(version["VersionId"]),
    )
    return {
        **tagged(found),
        # Calls identify a policy by its ARN.
        "PolicyArn": found["Arn"],
        "Document": compare.policy_document(document),
        "OtherVersions": [version["VersionId"] for version in other_versions],
    }


def _number(version: str) -> int:
    return int("".join(filter(str.isdecimal, version)) or 0)


def launch_template(found: Described, latest: Described) -> dict[str, Any]:
    """Return a launch template with its latest version. EKS refers to versions by number, so the number is compared."""
    version = {
        "data": latest["LaunchTemplateData"],
        "description": latest.get("VersionDescription", ""),
        "default": found["DefaultVersionNumber"] == found["LatestVersionNumber"],
    }
    return {**tagged(found), "Latest": version}


def cluster(found: Described) -> dict[str, Any]:
    """Return a cluster with its enabled control plane logs (`logs`), and the key that encrypts Secrets."""
    logs = [
        kind
        for setting in (found.get("logging") or {}).get("clusterLogging") or ()
        if setting.get("enabled")
        for kind in setting["types"]
    ]
    keys = [setting["provider"]["keyArn"] for setting in found.get("encryptionConfig") or () if setting.get("provider")]
    return {**found, "logs": sorted(logs), "encryptionKey": "".join(keys[:1])}


def node_group(found: Described) -> dict[str, Any]:
    """Return a node group.

    `hasLaunchTemplate`: True if it has a launch template. `machineInTemplate`: True if the launch template defines the
    instance type instead of the group. EKS changes neither.
    """
    has_template = bool(found.get("launchTemplate"))
    is_machine_in_template = has_template and not found.get("instanceTypes")
    return {
        "capacityType": "ON_DEMAND",
        **found,
        "hasLaunchTemplate": has_template,
        "machineInTemplate": is_machine_in_template,
    }


def file_system(found: Described, policy: str) -> dict[str, Any]:
    """Return a file system with its policy as data; the policy is empty if the file system does not have one."""
    return {**tagged(found), "Policy": compare.policy_document(policy) if policy else {}}


def addon(found: Described, offered: Iterable[Described]) -> dict[str, Any]:
    """Return an addon with the Kubernetes versions that its version supports (`kubernetesVersions`).

    `defaults`: the default version of the addon for each Kubernetes version. `offered`: versions as EKS lists them.
    """
    fits: list[str] = []
    defaults: dict[str, str] = {}
    for version in offered:
        for compatibility in version.get("compatibilities") or ():
            if compatibility.get("defaultVersion"):
                defaults[compatibility["clusterVersion"]] = version["addonVersion"]
            if version["addonVersion"] == found.get("addonVersion"):
                fits.append(compatibility["clusterVersion"])
    return {**found, "kubernetesVersions": sorted(fits), "defaults": defaults}
