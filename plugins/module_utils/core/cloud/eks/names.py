# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names of the objects of an EKSCluster, from its namespace and name.

Names that are fixed in the reference implementation are identical.
"""

from __future__ import annotations

from ...names import MANAGED_BY, child_name

CLUSTER_TAG = "modelplane.ai/cluster"
MANAGED_BY_TAG = "modelplane.ai/managed-by"
FLEET_TAG = "modelplane.ai/fleet"
REGION_TAG = "modelplane.ai/region"

ROLES = {"cluster": "cluster", "node": "node", "efs_csi": "efs-csi", "autoscaler": "cluster-autoscaler"}
"""Keys of the IAM roles, and the part that each key adds to the name of its role."""


def cluster_name(namespace: str, name: str) -> str:
    """Return the name of a cluster in AWS. The autoscaler finds its groups by this name."""
    return child_name(namespace, name, "eks")


def role_name(namespace: str, name: str, key: str) -> str:
    """Return the name of an IAM role, or of its policy."""
    return child_name(namespace, name, ROLES[key])


def subnet_name(name: str, tier: str, zone: str) -> str:
    """Return the name of the subnet of a tier in a zone."""
    return child_name(name, f"{'private-' if tier == 'private' else ''}subnet-{zone}")


def launch_template_name(name: str, pool: str) -> str:
    """Return the name of a pool's launch template."""
    return child_name(name, f"lt-{pool}")


def node_template_name(namespace: str, name: str, pool: str) -> str:
    """Return the name of the launch template of a pool without EFA and Capacity Block.

    The reference implementation does not have this launch template. The name contains the namespace, so it is as unique
    as the cluster.
    """
    return child_name(namespace, name, f"lt-{pool}")


def tags(cluster: str, fleet: str) -> dict[str, str]:
    """Return the owner tags of all AWS objects of the EKS cluster with this name."""
    return {CLUSTER_TAG: cluster, MANAGED_BY_TAG: MANAGED_BY, FLEET_TAG: fleet}
