# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""An EKSCluster as all that is made for it in AWS, before anything there has an ID."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import pools
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import (
    identity,
    launch_templates,
    names,
    network,
    node_groups,
    reading,
    regions,
    validation,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.names import kubeconfig_secret
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.validation import InvalidClusterError

ADDONS = ("vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent", "aws-efs-csi-driver")
STORAGE_CLASS = "modelplane-rwx-efs"
FLEET = "default"


@dataclass(frozen=True)
class Options:
    """`tags`: more of them for everything in AWS. `zones`: those of the region that a control plane can be in, empty
    when they are not known. `subnet_zones`: the zones that subnets of the cluster have already, by range. `addons`: by
    name, `version` and `configuration` of an addon; one of another name is added."""

    tags: Mapping[str, str] = field(default_factory=dict)
    zones: Sequence[str] = ()
    subnet_zones: Mapping[str, str] = field(default_factory=dict)
    addons: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def problems(cluster: Mapping[str, Any], others: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """What is wrong with an EKSCluster (wire form), by itself and beside others, a line each."""
    return [str(problem) for problem in validation.problems(cluster, validation.neighbours(others))]


def plan(cluster: Mapping[str, Any], fleet: str = FLEET, options: Options | None = None) -> dict[str, Any]:
    """What an EKSCluster (wire form) becomes. Raises InvalidClusterError with all that is wrong with it."""
    chosen = options or Options()
    faulty = validation.problems(cluster)
    if faulty:
        raise InvalidClusterError(faulty)
    read = reading.read(cluster)
    cidrs, zones = validation.placed(read, chosen.zones, chosen.subnet_zones)
    faulty = [
        *validation.of_options(chosen.tags, chosen.addons),
        *validation.of_zones(read, cidrs, zones, chosen.zones),
    ]
    if faulty:
        raise InvalidClusterError(faulty)
    name, namespace, region = read.name, read.namespace, read.region
    aws_name = names.cluster_name(namespace, name)
    efa = any(launch_templates.has_efa(pool) for pool in read.pools)
    subnets = network.subnets(name, zones, cidrs)
    ordered = sorted(read.pools, key=lambda pool: pool["role"] != pools.SYSTEM)
    return {
        "object": {"namespace": namespace, "name": name},
        "name": aws_name,
        "region": region,
        "partition": regions.partition(region),
        "version": read.version,
        "zones": zones,
        "tags": {**chosen.tags, **names.tags(aws_name, fleet)},
        "vpc": {"name": aws_name, "cidr": read.vpc_cidr},
        "subnets": subnets,
        "internet_gateway": {"name": aws_name},
        "nat_gateway": {"name": aws_name, "subnet": subnets[0]["name"]},
        "route_tables": [{"name": f"{aws_name}-{tier}", "tier": tier} for tier in (network.PUBLIC, network.PRIVATE)],
        "security_groups": network.security_groups(name, read.vpc_cidr, efa=efa),
        "roles": identity.roles(namespace, name, region),
        "policies": identity.policies(namespace, name),
        "cluster": {
            "name": aws_name,
            "version": read.version,
            "authentication_mode": "API_AND_CONFIG_MAP",
            "bootstrap_admin": True,
            "private_access": True,
            "public_access": True,
        },
        "launch_templates": [
            launch_templates.launch_template(name, pool) for pool in ordered if launch_templates.needs_template(pool)
        ],
        "node_groups": [node_groups.node_group(name, pool, zones) for pool in ordered],
        "addons": _addons(chosen.addons),
        "pod_identities": [dict(entry) for entry in identity.POD_IDENTITIES],
        "file_system": {
            "name": aws_name,
            "creation_token": aws_name,
            "encrypted": True,
            "throughput_mode": "elastic",
        },
        "storage_class": _storage_class(),
        "secret": {"namespace": namespace, "name": kubeconfig_secret(name), "key": "kubeconfig"},
        "efa": efa,
    }


def _addons(chosen: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    every = [*ADDONS, *sorted(set(chosen) - set(ADDONS))]
    return [
        {
            "name": name,
            "version": str((chosen.get(name) or {}).get("version") or ""),
            "configuration": deepcopy(dict((chosen.get(name) or {}).get("configuration") or {})),
        }
        for name in every
    ]


def _storage_class() -> dict[str, Any]:
    """Of volumes on EFS, one access point for each. The ID of the file system is missing."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS},
        "provisioner": "efs.csi.aws.com",
        "parameters": {"provisioningMode": "efs-ap", "directoryPerms": "700"},
        "volumeBindingMode": "Immediate",
    }
