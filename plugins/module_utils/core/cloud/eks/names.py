# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names of what an EKSCluster becomes. They follow from its namespace and name; those of the reference implementation
where it has fixed ones."""

from __future__ import annotations

from ...names import MANAGED_BY, child_name

CLUSTER_TAG = "modelplane.ai/cluster"
MANAGED_BY_TAG = "modelplane.ai/managed-by"
FLEET_TAG = "modelplane.ai/fleet"
REGION_TAG = "modelplane.ai/region"

ROLES = {"cluster": "cluster", "node": "node", "efs_csi": "efs-csi", "autoscaler": "cluster-autoscaler"}
"""Keys of the IAM roles, and their part of the names."""


def cluster_name(namespace: str, name: str) -> str:
    """The name in AWS, by which also the autoscaler finds its groups."""
    return child_name(namespace, name, "eks")


def role_name(namespace: str, name: str, key: str) -> str:
    """The name of an IAM role, or of the policy that goes with it."""
    return child_name(namespace, name, ROLES[key])


def subnet_name(name: str, tier: str, zone: str) -> str:
    """The name of the subnet of a tier in a zone."""
    return child_name(name, f"{'private-' if tier == 'private' else ''}subnet-{zone}")


def launch_template_name(name: str, pool: str) -> str:
    """The name of a pool's launch template."""
    return child_name(name, f"lt-{pool}")


def node_template_name(namespace: str, name: str, pool: str) -> str:
    """The name of the launch template of a pool without EFA and Capacity Block, which the reference implementation does
    not have. It has the namespace, so that it is as unique as the cluster."""
    return child_name(namespace, name, f"lt-{pool}")


def tags(cluster: str, fleet: str) -> dict[str, str]:
    """Return the owner tags of everything in AWS that is created for the EKS cluster of that name there."""
    return {CLUSTER_TAG: cluster, MANAGED_BY_TAG: MANAGED_BY, FLEET_TAG: fleet}
