# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""An EKSCluster -> everything that it is in AWS, as plain data, and what AWS would refuse of it.

What AWS gives a name to only when it is made, such as ids of subnets, is filled in by who makes it: the plan says by
name what refers to what.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import identity, network, nodes, software
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.naming import Naming, partition
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem, Ref

EFA = "efa"
EFS = "efs"
NFS_PORT = 2049

_VERSION = re.compile(r"1\.(\d{1,3})")
_VERSION_PATH = "spec.kubernetesVersion"
_DEFAULT_VERSION = "1.36"
_LEAST_MINOR = 34
"""With which pods can claim devices (KEP-4381: dynamic resource allocation is generally available in 1.34)."""


def plan(cluster: Mapping[str, Any], zones: Sequence[str] = ()) -> dict[str, Any]:
    """The plan of a valid EKSCluster (wire form) that has no `problems`; `zones` are those of its subnets, if they are
    not the first ones of the region."""
    spec = cluster["spec"]
    metadata = cluster["metadata"]
    naming = Naming(metadata["namespace"], metadata["name"])
    region = spec["region"]
    groups = nodes.node_groups(spec, naming)
    has_efa = any(nodes.has_efa(pool) for pool in nodes.pools(spec))
    return {
        "name": naming.name,
        "namespace": naming.namespace,
        "region": region,
        "partition": partition(region),
        "credentials": dict(spec.get("credentials") or {}),
        "tags": naming.tags,
        "network": network.network(spec, naming, zones),
        "policies": identity.policies(naming),
        "roles": identity.roles(region, naming),
        "cluster": _cluster(spec, naming),
        "security_groups": list(_security_groups(spec, naming, has_efa)),
        "launch_templates": nodes.launch_templates(spec, naming),
        "node_groups": groups,
        "addons": software.addons(),
        "pod_identities": identity.pod_identities(),
        "file_system": {"creation_token": naming.cluster, "name": naming.part(EFS)},
        "storage_class": software.STORAGE_CLASS,
        "efa": has_efa,
        "kubeconfig_secret": {"namespace": naming.namespace, "name": naming.kubeconfig, "key": "kubeconfig"},
        "preflight": _preflight(spec, naming, zones),
    }


def problems(cluster: Mapping[str, Any], zones: Sequence[str] = ()) -> Iterator[Problem]:
    """What AWS would refuse of a valid EKSCluster (wire form), or what will not work there."""
    spec, metadata = cluster["spec"], cluster["metadata"]
    ref = Ref("EKSCluster", metadata.get("namespace", ""), metadata["name"])
    for problem in _problems(spec, metadata, zones):
        yield replace(problem, ref=ref)


def _problems(spec: Mapping[str, Any], metadata: Mapping[str, Any], zones: Sequence[str]) -> Iterator[Problem]:
    for field in ("name", "namespace"):
        if "." in metadata.get(field, ""):
            yield Problem(
                "becomes part of the name of the EKS cluster, which may have no dot",
                f"metadata.{field}",
                metadata[field],
                "Write - in place of each dot",
            )
    version = str(spec.get("kubernetesVersion") or _DEFAULT_VERSION)
    found = _VERSION.fullmatch(version)
    if not found:
        yield Problem("is no version of EKS", _VERSION_PATH, version, "Write major and minor, such as 1.36, in quotes")
    elif int(found[1]) < _LEAST_MINOR:
        yield Problem(
            f"pods claim devices with Kubernetes 1.{_LEAST_MINOR} and newer",
            _VERSION_PATH,
            version,
            "Choose a newer one",
        )
    yield from network.problems(spec, zones)
    yield from nodes.problems(spec, zones)


def _cluster(spec: Mapping[str, Any], naming: Naming) -> dict[str, Any]:
    """Arguments of `eks_cluster` without ids."""
    return {
        "name": naming.cluster,
        "version": str(spec.get("kubernetesVersion") or _DEFAULT_VERSION),
        "authentication_mode": "API_AND_CONFIG_MAP",
        "bootstrap_admin": True,
        "endpoint_private_access": True,
        "endpoint_public_access": True,
    }


def _security_groups(spec: Mapping[str, Any], naming: Naming, has_efa: bool) -> Iterator[dict[str, Any]]:
    """`key`, `name`, `description`, and rules as `amazon.aws.ec2_security_group` takes them: `ingress` and `egress`,
    which are all that is allowed."""
    if has_efa:
        name = naming.security_group(EFA)
        among_nodes = [{"proto": "all", "group_name": [name]}]
        yield {
            "key": EFA,
            "name": name,
            "description": "EFA OS-bypass traffic between gang nodes",
            "ingress": among_nodes,
            "egress": among_nodes,
        }
    yield {
        "key": EFS,
        "name": naming.security_group(EFS),
        "description": "NFS access to the ModelCache EFS mount targets",
        "ingress": [{"proto": "tcp", "ports": [NFS_PORT], "cidr_ip": [network.vpc_cidr(spec)]}],
        "egress": [],
    }


def _preflight(spec: Mapping[str, Any], naming: Naming, zones: Sequence[str]) -> dict[str, Any]:
    """What has to be there before anything is made: the entry of the cluster in `clusters` of `eks_preflight`."""
    subnet_zones = network.zones(spec, zones)
    types: dict[str, list[str]] = {zone: [] for zone in subnet_zones}
    for pool in nodes.pools(spec):
        for zone in pool.get("zones") or subnet_zones:
            types[zone] = sorted({*types.get(zone, ()), pool["instanceType"]})
    return {
        "name": naming.name,
        "region": spec["region"],
        "version": str(spec.get("kubernetesVersion") or _DEFAULT_VERSION),
        "vpc_cidr": network.vpc_cidr(spec),
        "zones": subnet_zones,
        "instance_types": types,
        "efa": {
            pool["instanceType"]: nodes.network_cards(pool["instanceType"])
            for pool in nodes.pools(spec)
            if nodes.has_efa(pool)
        },
        "capacity_reservations": [
            {
                "id": nodes.reservation(pool),
                "instance_type": pool["instanceType"],
                "zones": list(pool.get("zones") or subnet_zones),
                "count": int(pool.get("nodeCount", 1)),
            }
            for pool in nodes.pools(spec)
            if nodes.reservation(pool)
        ],
    }
