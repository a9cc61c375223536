# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Interface between a run of the fleet and a cloud: sizes of node pools.

Clouds implement it whose autoscalers do not start the first node of a pool with devices to claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.pool_size import PoolSize


@dataclass(frozen=True)
class CloudConnection:
    """Login at a cluster by its name in a cloud. `cloud`: its name in the registries. `options`: those of a connection
    that have a value."""

    cloud: str
    options: Mapping[str, str] = field(default_factory=dict)


class PoolSizes(Protocol):
    """Sizes of the node pools of clusters, which `options` (of a login) name. The methods raise a CloudError."""

    def read(self, options: Mapping[str, str], pool: str, fleet: str) -> PoolSize | None:
        """Return the size of a pool; None when there is no such pool. `fleet`: the fleet that has to own it."""

    def resize(self, options: Mapping[str, str], pool: str, nodes: int) -> None:
        """Set the desired number of nodes of a pool, and return once the cloud has begun."""
