# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Entries of a plan for the managed node groups of an EKSCluster, one for each pool; resources.py creates the
bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import pools
from . import launch_templates, machines

CAPACITY_BLOCK = "CAPACITY_BLOCK"
_AMI_VARIANTS = {pools.SYSTEM: "STANDARD", pools.GPU: "NVIDIA"}
_AMI_ARCHITECTURES = {"amd64": "x86_64", "arm64": "ARM_64"}


def node_group(
    namespace: str, name: str, pool: Mapping[str, Any], zones: Sequence[str], *, plain: bool = False
) -> dict[str, Any]:
    """Return the node group of a pool (wire form, with defaults) of an EKSCluster.

    `zones`: the zones of the cluster. `plain`: the group exists without a launch template. `disk_size` is None if AWS
    or the launch template sets the size.

    EKS rejects a desired size outside the bounds, and a maximum size of 0. A pool without nodes therefore has a maximum
    size of 1, and no replica is scheduled on it.
    """
    fixed = launch_templates.needs_template(pool)
    architecture = machines.architecture(pool["instanceType"])
    has_template = fixed or not plain
    key, value = pools.GPU_TAINT
    min_nodes = pool["minNodeCount"]
    max_nodes = max(pool["maxNodeCount"], 1)
    return {
        "name": pool["name"],
        "role": pool["role"],
        "ami_type": f"AL2023_{_AMI_ARCHITECTURES[architecture]}_{_AMI_VARIANTS[pool['role']]}",
        "instance_types": [] if fixed else [pool["instanceType"]],
        "disk_size": None if has_template else pool["diskSizeGb"],
        "launch_template": launch_templates.template_name(namespace, name, pool) if has_template else "",
        "capacity_type": CAPACITY_BLOCK
        if launch_templates.reservation(pool)
        else pool.get("capacityType", "ON_DEMAND"),
        "zones": list(pool.get("zones") or zones),
        "min_size": min_nodes,
        "max_size": max_nodes,
        "desired_size": min(max(pool["nodeCount"], min_nodes), max_nodes),
        "labels": pools.labels(pool),
        "taints": [{"key": key, "value": value, "effect": "NO_SCHEDULE"}] if pool["role"] == pools.GPU else [],
        "capacity_reservation": launch_templates.reservation(pool),
        "instance_type": pool["instanceType"],
    }
