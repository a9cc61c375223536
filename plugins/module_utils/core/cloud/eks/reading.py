# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""An EKSCluster as it is planned: with all defaults, and with the pool of its controllers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.eks_cluster import EKSNetworking
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import pools
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.launch_templates import needs_template
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.names import launch_template_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cluster import with_system_pool
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import (
    CLUSTER_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
)

KIND = "EKSCluster"


@dataclass(frozen=True)
class Read:
    """What an EKSCluster says. `pools` are in wire form with defaults, also the one of the controllers. The diskSizeGb
    of that one is None when it was not written but added. `own_cidrs`: whether the user wrote the ranges.
    `order`: the names of the pools as the user wrote them."""

    namespace: str
    name: str
    region: str
    version: str
    vpc_cidr: str
    subnet_cidrs: tuple[str, ...]
    own_cidrs: bool
    composed: bool
    """Whether this is what an InferenceCluster became, which the user writes."""
    pools: tuple[dict[str, Any], ...]
    order: tuple[str, ...]

    def path(self, pool: Mapping[str, Any]) -> str:
        """Where the user wrote a pool: its place among those of the manifest."""
        return f"spec.nodePools[{self.order.index(pool['name']) if pool['name'] in self.order else 0}]"

    def template_names(self) -> set[str]:
        """The names of the launch templates."""
        return {launch_template_name(self.name, pool["name"]) for pool in self.pools if needs_template(pool)}


def is_composed(cluster: Mapping[str, Any]) -> bool:
    """Whether an EKSCluster or GKECluster is what an InferenceCluster became; nobody else sets both labels."""
    labels = (cluster.get("metadata") or {}).get("labels") or {}
    return labels.get(MANAGED_BY_LABEL) == MANAGED_BY and CLUSTER_LABEL in labels


def read(cluster: Mapping[str, Any]) -> Read:
    """What an EKSCluster (wire form) says. Raises InvalidResource."""
    resource: Any = api.parse({key: value for key, value in cluster.items() if key != "status"})
    written = api.wire(resource)["spec"]
    composed = is_composed(cluster)
    networking = resource.spec.networking or EKSNetworking()
    return Read(
        namespace=resource.namespace,
        name=resource.name,
        region=resource.spec.region,
        version=resource.spec.kubernetes_version,
        vpc_cidr=networking.vpc_cidr,
        subnet_cidrs=tuple(networking.subnet_cidrs),
        own_cidrs="subnet_cidrs" in networking.model_fields_set,
        composed=composed,
        pools=_pools(composed, written["nodePools"]),
        order=tuple(pool["name"] for pool in written["nodePools"] if not (composed and pool["role"] == pools.SYSTEM)),
    )


def _pools(composed: bool, written: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    added = with_system_pool(KIND, [pool for pool in written if pool["role"] != pools.SYSTEM])[0]
    if not any(pool["role"] == pools.SYSTEM for pool in written):
        return ({**added, "diskSizeGb": None}, *written)
    return tuple(
        # What the API server fills in says nothing of what was composed.
        {**pool, "diskSizeGb": None} if composed and added.items() <= pool.items() else pool
        for pool in written
    )
