# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Fields of clusters of all clouds: their identity, and their pools with the pool of the controllers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import api
from ..names import CLUSTER_LABEL, MANAGED_BY, MANAGED_BY_LABEL
from ..problem import Problem
from ..text import short_value
from . import pools


@dataclass(frozen=True)
class Cluster(ABC):
    """A cluster in a cloud.

    `pools` are in wire form with defaults, and include the pool of the controllers. The diskSizeGb of this pool is None
    if the pool was added. `order`: the names of the pools in the order of the manifest.
    """

    kind: str
    namespace: str
    name: str
    region: str
    version: str
    composed: bool
    """True for the composed cluster of an InferenceCluster. The user writes the InferenceCluster."""
    pools: tuple[dict[str, Any], ...]
    order: tuple[str, ...]

    @property
    @abstractmethod
    def ranges(self) -> tuple[str, ...]:
        """Address ranges of its network."""

    def path(self, pool: Mapping[str, Any]) -> str:
        """Return the path of a pool in the manifest."""
        return f"spec.nodePools[{self.order.index(pool['name']) if pool['name'] in self.order else 0}]"


def common(kind: str, resource: Any, cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a Cluster. `resource` is the model of `cluster` (wire form)."""
    pool_entries = api.wire(resource)["spec"]["nodePools"]
    composed = is_composed(cluster)
    return {
        "kind": kind,
        "namespace": resource.namespace,
        "name": resource.name,
        "region": resource.spec.region,
        "version": resource.spec.kubernetes_version,
        "composed": composed,
        "pools": pools_of(kind, composed, pool_entries),
        "order": order_of(composed, pool_entries),
    }


def parsed(kind: str, cluster: Mapping[str, Any]) -> Any:
    """Return a cluster (wire form) of a kind as a model. Its status is ignored. Raises InvalidResource."""
    resource = api.parse({key: value for key, value in cluster.items() if key != "status"})
    if kind != resource.KIND:
        raise api.InvalidResource((Problem(f"must be {kind}", "kind", short_value(resource.KIND)),))
    return resource


def is_composed(cluster: Mapping[str, Any]) -> bool:
    """Return True if a cluster in a cloud was composed from an InferenceCluster; only such a cluster has both
    labels."""
    labels = (cluster.get("metadata") or {}).get("labels") or {}
    return labels.get(MANAGED_BY_LABEL) == MANAGED_BY and CLUSTER_LABEL in labels


def pools_of(kind: str, composed: bool, written: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return the pools of a cluster (wire form, with defaults) with the pool of its controllers."""
    added = pools.with_system_pool(kind, [pool for pool in written if pool["role"] != pools.SYSTEM])[0]
    # An earlier release may have composed a different maximum size.
    machine = {field: value for field, value in added.items() if field != "maxNodeCount"}
    if not any(pool["role"] == pools.SYSTEM for pool in written):
        return ({**added, "diskSizeGb": None}, *written)
    return tuple(
        # Defaults of the API server are not part of the composed pool.
        {**pool, "diskSizeGb": None} if composed and machine.items() <= pool.items() else pool
        for pool in written
    )


def order_of(composed: bool, written: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the names of the pools in the manifest. The manifest of a composed cluster does not have a pool of
    controllers."""
    return tuple(pool["name"] for pool in written if not (composed and pool["role"] == pools.SYSTEM))
