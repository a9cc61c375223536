# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names and tags of a cluster's objects in AWS.

All names follow from the EKSCluster's, so that a run finds what an earlier one made. The tags say whose an object is:
what does not have both is never changed or deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names

CLUSTER_TAG = names.CLUSTER_LABEL
MANAGED_BY_TAG = f"{names.RESERVED_PREFIX}managed-by"

_PARTITIONS = (
    ("cn-", "aws-cn"),
    ("us-gov-", "aws-us-gov"),
    ("us-isob-", "aws-iso-b"),
    ("us-isof-", "aws-iso-f"),
    ("us-iso-", "aws-iso"),
    ("eu-isoe-", "aws-iso-e"),
    ("eusc-", "aws-eusc"),
)
"""Beginnings of regions, and the partition in their ARNs (AWS General Reference, "Amazon Resource Names")."""


@dataclass(frozen=True)
class Naming:
    """The names of the objects of the EKSCluster `namespace`/`name`."""

    namespace: str
    name: str

    @property
    def cluster(self) -> str:
        """The EKS cluster; the autoscaler finds its groups by it, so that it is fixed before there is one."""
        return names.child_name(self.namespace, self.name, "eks")

    @property
    def kubeconfig(self) -> str:
        """The Secret with the kubeconfig, on the control cluster."""
        return names.child_name(self.name, "kubeconfig")

    @property
    def tags(self) -> dict[str, str]:
        return {CLUSTER_TAG: f"{self.namespace}.{self.name}", MANAGED_BY_TAG: names.MANAGED_BY}

    def subnet(self, tier: str, zone: str) -> str:
        return names.child_name(self.name, f"subnet-{zone}" if tier == "public" else f"{tier}-subnet-{zone}")

    def role(self, role: str) -> str:
        """An IAM role or policy, whose names are those of the whole account."""
        return names.child_name(self.namespace, self.name, role)

    def launch_template(self, pool: str) -> str:
        return names.child_name(self.name, f"lt-{pool}")

    def security_group(self, key: str) -> str:
        return f"{self.name}-{key}"

    def part(self, part: str) -> str:
        """What else has a name, in its tag `Name`."""
        return names.child_name(self.name, part)


def partition(region: str) -> str:
    """The partition of AWS that a region is in."""
    return next((found for beginning, found in _PARTITIONS if region.startswith(beginning)), "aws")
