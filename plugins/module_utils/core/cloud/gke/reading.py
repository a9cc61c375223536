# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A GKECluster for planning: with all defaults, and with the pool of its controllers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...api.gke_cluster import GKENetworking
from ...api.gke_settings import GKEClusterSettings
from .. import reading

KIND = "GKECluster"


@dataclass(frozen=True)
class GkeCluster(reading.Cluster):
    """A GKECluster with all defaults. `project` is empty if the manifest does not set it."""

    project: str
    node_cidr: str
    pod_cidr: str
    service_cidr: str
    settings: GKEClusterSettings

    @property
    def ranges(self) -> tuple[str, ...]:
        return (self.node_cidr, self.pod_cidr, self.service_cidr)


def read(cluster: Mapping[str, Any]) -> GkeCluster:
    """Return the fields of a GKECluster (wire form). Raises InvalidResource."""
    resource: Any = reading.parsed(KIND, cluster)
    networking = resource.spec.networking or GKENetworking()
    return GkeCluster(
        **reading.common(KIND, resource, cluster),
        project=resource.spec.project or "",
        node_cidr=networking.node_cidr,
        pod_cidr=networking.pod_cidr,
        service_cidr=networking.service_cidr,
        settings=resource.spec,
    )
