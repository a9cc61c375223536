# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Plan of an EKSCluster: all its AWS objects, before any object has an ID."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...api.eks_settings import EKSClusterSettings
from .. import pools
from ..names import kubeconfig_secret
from ..validation import require
from . import launch_templates, names, network, node_groups, resources, validation

STORAGE_CLASS = "modelplane-rwx-efs"
FLEET = "default"


@dataclass(frozen=True)
class Options:
    """Options of a plan.

    `tags`: additional tags for all AWS objects. `zones`: the zones of the region that support a control plane, empty if
    they are unknown. `subnet_zones`: the zones of existing subnets of the cluster, by range. `groups_without_template`:
    node groups that exist without a launch template, and that keep this state. `addons`: `version` and `configuration`
    of an addon, by name; an unknown name adds an addon. `public_access_cidrs`: the ranges that can reach the public
    endpoint of the API server; if empty, the ranges are left unchanged.
    """

    tags: Mapping[str, str] = field(default_factory=dict)
    zones: Sequence[str] = ()
    subnet_zones: Mapping[str, str] = field(default_factory=dict)
    groups_without_template: Collection[str] = ()
    addons: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    public_access_cidrs: Sequence[str] = ()


def plan(manifest: Mapping[str, Any], fleet: str = FLEET, options: Options | None = None) -> dict[str, Any]:
    """Return the plan of an EKSCluster (wire form). Raises InvalidClusterError with all problems of the cluster."""
    chosen = options or Options()
    cluster = validation.VALIDATION.valid(manifest)
    cidrs, zones = validation.ranges_and_zones(cluster, chosen.zones, chosen.subnet_zones)
    options_and_zones = validation.of_options(chosen.tags, chosen.addons)
    require([*options_and_zones, *validation.of_zones(cluster, cidrs, zones, chosen.zones)])
    aws_name = names.cluster_name(cluster.namespace, cluster.name)
    ordered = sorted(cluster.pools, key=lambda pool: pool["role"] != pools.SYSTEM)
    plain = {pool["name"] for pool in ordered if pool["name"] in chosen.groups_without_template}
    efa = any(launch_templates.has_efa(pool) for pool in cluster.pools)
    described = {
        "object": {"namespace": cluster.namespace, "name": cluster.name},
        "name": aws_name,
        "region": cluster.region,
        "version": cluster.version,
        "zones": zones,
        "tags": {**chosen.tags, **names.tags(aws_name, fleet)},
        "vpc": {"name": aws_name, "cidr": cluster.vpc_cidr},
        "subnets": network.subnets(cluster.name, zones, cidrs),
        "launch_templates": [
            launch_templates.launch_template(cluster.namespace, cluster.name, pool)
            for pool in ordered
            if launch_templates.needs_template(pool) or pool["name"] not in plain
        ],
        "node_groups": [
            node_groups.node_group(cluster.namespace, cluster.name, pool, zones, plain=pool["name"] in plain)
            for pool in ordered
        ],
        "efa": efa,
        "settings": _settings(cluster.settings),
    }
    return {
        **described,
        "resources": resources.resources(described, chosen.addons, chosen.public_access_cidrs),
        "storage_class": _storage_class(),
        "secret": {"namespace": cluster.namespace, "name": kubeconfig_secret(cluster.name), "key": "kubeconfig"},
    }


def _settings(settings: EKSClusterSettings) -> dict[str, Any]:
    """Return the fields of the cluster (kinds.py) that its manifest sets; the other fields are left unchanged."""
    fields: dict[str, Any] = {}
    if settings.logging is not None:
        fields["logs"] = sorted(settings.logging.types)
    if settings.encryption_config is not None:
        fields["encryptionKey"] = settings.encryption_config.key_arn
    return fields


def _storage_class() -> dict[str, Any]:
    """Return the StorageClass of volumes on EFS, with one access point each. It does not contain the ID of the file
    system."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS},
        "provisioner": "efs.csi.aws.com",
        "parameters": {"provisioningMode": "efs-ap", "directoryPerms": "700"},
        "volumeBindingMode": "Immediate",
    }
