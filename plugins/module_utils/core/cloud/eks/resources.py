# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects of a planned EKS cluster for the cloud engine: each with its body and its dependencies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .. import pools
from ..bodies import resource
from ..engine.kinds import Resource
from . import identity, launch_templates, names, network

Plan = Mapping[str, Any]

ANYWHERE = "0.0.0.0/0"
ADDONS = ("vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent", "aws-efs-csi-driver")
FIRST_ADDONS = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
"""Addons that provide the network and the identity of nodes. The other addons require nodes."""
MODE = "API_AND_CONFIG_MAP"


def resources(
    plan: Plan, addons: Mapping[str, Mapping[str, Any]], public_access_cidrs: Sequence[str]
) -> list[Resource]:
    """Return the objects of a plan, each after its dependencies. `addons`: version and configuration by name."""
    return [
        *_network(plan),
        *_rights(plan),
        _cluster(plan, public_access_cidrs),
        *_files(plan),
        *(_launch_template(plan, node_entry) for node_entry in plan["launch_templates"]),
        *(_addon(plan, name, addons.get(name) or {}) for name in FIRST_ADDONS),
        *(_node_group(plan, node_entry) for node_entry in plan["node_groups"]),
        *_pod_identities(plan),
        *(
            _addon(plan, name, addons.get(name) or {})
            for name in dict.fromkeys((*ADDONS, *sorted(addons)))
            if name not in FIRST_ADDONS
        ),
    ]


def _ref(key: str, path: str) -> dict[str, str]:
    return {"ref": key, "field": path}


def _tags(plan: Plan, name: str = "", **extra_tags: str) -> dict[str, str]:
    return {**plan["tags"], **extra_tags, **({"Name": name} if name else {})}


# The network


def _subnet_key(tier: str, zone: str) -> str:
    return f"subnet-{tier}-{zone}"


def _subnets(plan: Plan, tier: str) -> list[dict[str, str]]:
    tier_subnets = [subnet for subnet in plan["subnets"] if subnet["tier"] == tier]
    return [_ref(_subnet_key(tier, subnet["zone"]), "SubnetId") for subnet in tier_subnets]


def _network(plan: Plan) -> Iterator[Resource]:
    """Yield the network: public subnets with a route to the internet, private subnets with a route to a NAT gateway."""
    name, region = plan["name"], plan["region"]
    vpc, tags = _ref("vpc", "VpcId"), _tags(plan, name)
    body = {"CidrBlock": plan["vpc"]["cidr"], "EnableDnsSupport": True, "EnableDnsHostnames": True, "Tags": tags}
    yield resource("vpc", "vpc", name, region, body)
    for subnet in plan["subnets"]:
        body = {
            "VpcId": vpc,
            "CidrBlock": subnet["cidr"],
            "AvailabilityZone": subnet["zone"],
            "MapPublicIpOnLaunch": subnet["map_public"],
            "Tags": {**_tags(plan, subnet["name"]), **subnet["tags"]},
        }
        yield resource(_subnet_key(subnet["tier"], subnet["zone"]), "subnet", subnet["name"], region, body)
    yield resource("internet-gateway", "internet-gateway", name, region, {"VpcId": vpc, "Tags": tags})
    yield resource("elastic-ip", "elastic-ip", name, region, {"Tags": tags}, ("internet-gateway",))
    body = {
        "SubnetId": _subnets(plan, network.PUBLIC)[0],
        "AllocationId": _ref("elastic-ip", "AllocationId"),
        "Tags": tags,
    }
    yield resource("nat-gateway", "nat-gateway", name, region, body, ("internet-gateway",))
    route_targets = {
        network.PUBLIC: _ref("internet-gateway", "InternetGatewayId"),
        network.PRIVATE: _ref("nat-gateway", "NatGatewayId"),
    }
    for tier, route_target in route_targets.items():
        table = f"{name}-{tier}"
        body = {
            "VpcId": vpc,
            "Routes": {ANYWHERE: route_target},
            "SubnetIds": _subnets(plan, tier),
            "Tags": _tags(plan, table),
        }
        yield resource(f"route-table-{tier}", "route-table", table, region, body)
    for group in network.security_groups(plan["object"]["name"], plan["vpc"]["cidr"], efa=plan["efa"]):
        body = {
            "VpcId": vpc,
            "Description": group["description"],
            "Ingress": group["ingress"],
            "Egress": group["egress"],
            "Tags": _tags(plan, group["name"]),
        }
        yield resource(f"security-group-{group['key']}", "security-group", group["name"], region, body)


# Permissions


def _rights(plan: Plan) -> Iterator[Resource]:
    namespace, name, region = plan["object"]["namespace"], plan["object"]["name"], plan["region"]
    # IAM has no regions, so a tag of its objects has the region of their cluster.
    tags = {**plan["tags"], names.REGION_TAG: region}
    for policy in identity.policies(namespace, name):
        body = {"Document": policy["document"], "Tags": tags}
        yield resource(f"policy-{policy['key']}", "policy", policy["name"], "iam", body)
    for role in identity.roles(namespace, name, region):
        policy_references = [_ref(f"policy-{role['policy']}", "Arn")] if role["policy"] else []
        body = {
            "AssumeRolePolicyDocument": role["trust"],
            "PolicyArns": [*role["managed_policies"], *policy_references],
            "Tags": tags,
        }
        yield resource(_role_key(role["key"]), "role", role["name"], "iam", body)


def _role_key(key: str) -> str:
    return f"role-{key.replace('_', '-')}"


def _role(key: str) -> dict[str, str]:
    return _ref(_role_key(key), "Arn")


# The cluster


def _inside(plan: Plan) -> str:
    return f"clusters/{plan['name']}"


def _cluster(plan: Plan, public_access_cidrs: Sequence[str]) -> Resource:
    """Return the cluster. Its creator is its administrator."""
    access: dict[str, Any] = {"endpointPrivateAccess": True, "endpointPublicAccess": True}
    if public_access_cidrs:
        access["publicAccessCidrs"] = list(public_access_cidrs)
    subnets = [*_subnets(plan, network.PUBLIC), *_subnets(plan, network.PRIVATE)]
    body = {
        "version": plan["version"],
        "roleArn": _role("cluster"),
        "vpc": _ref("vpc", "VpcId"),
        "resourcesVpcConfig": {**access, "subnetIds": subnets},
        "accessConfig": {"authenticationMode": MODE},
        "tags": _tags(plan),
        **plan["settings"],
    }
    initial = {"accessConfig": {"bootstrapClusterCreatorAdminPermissions": True}}
    return resource("cluster", "cluster", plan["name"], plan["region"], body, initial=initial)


def _launch_template(plan: Plan, template: Mapping[str, Any]) -> Resource:
    """Return a launch template.

    Its interfaces have the security groups of EFA and of the cluster. A node without the cluster group cannot reach the
    API server.
    """
    groups = []
    if template["network_cards"]:
        groups = [
            _ref("security-group-efa", "GroupId"),
            _ref("cluster", "resourcesVpcConfig.clusterSecurityGroupId"),
        ]
    body = {"Data": launch_templates.complete_data(template, groups), "Tags": _tags(plan, template["name"])}
    return resource(
        _template_key(template["pool"]), "launch-template", template["name"], plan["region"], body, ("cluster",)
    )


def _template_key(pool: str) -> str:
    return f"launch-template-{pool}"


def _node_group(plan: Plan, group: Mapping[str, Any]) -> Resource:
    """Return a node group. It has an internet route before its nodes start, and mount targets until they are
    deleted."""
    body: dict[str, Any] = {
        "nodeRole": _role("node"),
        "subnets": [_ref(_subnet_key(network.PRIVATE, zone), "SubnetId") for zone in group["zones"]],
        "amiType": group["ami_type"],
        "capacityType": group["capacity_type"],
        "scalingConfig": {"minSize": group["min_size"], "maxSize": group["max_size"]},
        "labels": group["labels"],
        "taints": group["taints"],
        "hasLaunchTemplate": bool(group["launch_template"]),
        "machineInTemplate": not group["instance_types"],
        # Nodes have the version of the cluster, because AWS may have updated the cluster.
        "version": _ref("cluster", "version"),
        "tags": _tags(plan),
    }
    if group["role"] == pools.GPU:
        # The default strategy starts a new node before it stops the old one, which requires a spare GPU instance.
        body["updateConfig"] = {"maxUnavailable": 1, "updateStrategy": "MINIMAL"}
    if group["instance_types"]:
        body["instanceTypes"] = group["instance_types"]
    if group["disk_size"]:
        body["diskSize"] = group["disk_size"]
    if group["launch_template"]:
        key = _template_key(group["name"])
        body["launchTemplate"] = {
            "id": _ref(key, "LaunchTemplateId"),
            "version": _ref(key, "LatestVersionNumber"),
        }
    needs = [
        *(f"addon-{name}" for name in FIRST_ADDONS),
        "route-table-private",
        *(f"mount-target-{zone}" for zone in plan["zones"]),
    ]
    initial = {"scalingConfig": {"desiredSize": group["desired_size"]}}
    return resource(f"node-group-{group['name']}", "node-group", group["name"], _inside(plan), body, needs, initial)


def _addon(plan: Plan, name: str, chosen: Mapping[str, Any]) -> Resource:
    """Return an addon. Without a version, it has a version for the Kubernetes version of the cluster."""
    version = str(chosen.get("version") or "")
    body: dict[str, Any] = {
        "configurationValues": json.dumps(dict(chosen.get("configuration") or {}), sort_keys=True),
        "tags": _tags(plan),
        **({"addonVersion": version} if version else {"kubernetesVersion": _ref("cluster", "version")}),
    }
    needs = ["cluster"]
    if name not in FIRST_ADDONS:
        needs += [f"node-group-{group['name']}" for group in plan["node_groups"] if group["role"] == pools.SYSTEM]
    return resource(f"addon-{name}", "addon", name, _inside(plan), body, needs)


def _pod_identities(plan: Plan) -> Iterator[Resource]:
    for pod_identity in identity.POD_IDENTITIES:
        account = pod_identity["service_account"]
        body = {
            "namespace": pod_identity["namespace"],
            "serviceAccount": account,
            "roleArn": _role(pod_identity["role"]),
            "tags": _tags(plan),
        }
        name = f"{pod_identity['namespace']}/{account}"
        yield resource(f"pod-identity-{account}", "pod-identity", name, _inside(plan), body, ("cluster",))


# Files


def _files(plan: Plan) -> Iterator[Resource]:
    name, region = plan["name"], plan["region"]
    policy = identity.file_system_policy()
    body = {"Encrypted": True, "ThroughputMode": "elastic", "Policy": policy, "Tags": _tags(plan, name)}
    yield resource("file-system", "file-system", name, region, body)
    for zone in plan["zones"]:
        body = {
            "FileSystemId": _ref("file-system", "FileSystemId"),
            "SubnetId": _ref(_subnet_key(network.PRIVATE, zone), "SubnetId"),
            "SecurityGroups": [_ref("security-group-efs", "GroupId")],
        }
        yield resource(f"mount-target-{zone}", "mount-target", f"{name} in {zone}", region, body)
