# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""An EKSCluster for planning: with all defaults, and with the pool of its controllers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...api.eks_cluster import EKSNetworking
from ...api.eks_settings import EKSClusterSettings
from .. import reading
from .launch_templates import template_name

KIND = "EKSCluster"


@dataclass(frozen=True)
class EksCluster(reading.Cluster):
    """Fields of an EKSCluster.

    `own_cidrs`: True if the manifest has the ranges. `zones`: the zones in the manifest.
    """

    vpc_cidr: str
    subnet_cidrs: tuple[str, ...]
    own_cidrs: bool
    zones: tuple[str, ...]
    settings: EKSClusterSettings

    @property
    def ranges(self) -> tuple[str, ...]:
        return (self.vpc_cidr,)

    def pool_zones(self) -> set[str]:
        """Return the zones of the pools."""
        return {zone for pool in self.pools for zone in pool.get("zones") or ()}

    def template_names(self) -> set[str]:
        """Return the names of the launch templates."""
        return {template_name(self.namespace, self.name, pool) for pool in self.pools}


def read(cluster: Mapping[str, Any]) -> EksCluster:
    """Return the fields of an EKSCluster (wire form). Raises InvalidResource."""
    resource: Any = reading.parsed(KIND, cluster)
    networking = resource.spec.networking or EKSNetworking()
    return EksCluster(
        **reading.common(KIND, resource, cluster),
        vpc_cidr=networking.vpc_cidr,
        subnet_cidrs=_ranges(networking),
        own_cidrs="subnet_cidrs" in networking.model_fields_set,
        zones=tuple(networking.zones or ()),
        settings=resource.spec,
    )


def _ranges(networking: EKSNetworking) -> tuple[str, ...]:
    """Return the ranges. Default ranges are limited to one for each zone in the manifest."""
    cidrs = tuple(networking.subnet_cidrs)
    return cidrs if "subnet_cidrs" in networking.model_fields_set else cidrs[: len(networking.zones or cidrs)]
