# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Fields of clusters of all clouds: their identity, and their pools with that of the controllers."""

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
    """`pools` are in wire form with defaults, also the one of the controllers. The diskSizeGb of that one is None when
    it was not written but added. `order`: the names of the pools as the user wrote them."""

    kind: str
    namespace: str
    name: str
    region: str
    version: str
    composed: bool
    """True for what an InferenceCluster became, which the user writes."""
    pools: tuple[dict[str, Any], ...]
    order: tuple[str, ...]

    @property
    @abstractmethod
    def ranges(self) -> tuple[str, ...]:
        """Ranges of addresses of its network."""

    def path(self, pool: Mapping[str, Any]) -> str:
        """Return the path of a pool in the manifest."""
        return f"spec.nodePools[{self.order.index(pool['name']) if pool['name'] in self.order else 0}]"


def common(kind: str, resource: Any, cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a Cluster. `resource` is the model of `cluster` (wire form)."""
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
    """A cluster (wire form) of that kind as a model; what its status says is not asked. Raises InvalidResource."""
    resource = api.parse({key: value for key, value in cluster.items() if key != "status"})
    if kind != resource.KIND:
        raise api.InvalidResource((Problem(f"must be {kind}", "kind", short_value(resource.KIND)),))
    return resource


def is_composed(cluster: Mapping[str, Any]) -> bool:
    """Return whether a cluster in a cloud is what an InferenceCluster became; only that has both labels."""
    labels = (cluster.get("metadata") or {}).get("labels") or {}
    return labels.get(MANAGED_BY_LABEL) == MANAGED_BY and CLUSTER_LABEL in labels


def pools_of(kind: str, composed: bool, written: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The pools of a cluster (wire form, with defaults) with that of its controllers."""
    added = pools.with_system_pool(kind, [pool for pool in written if pool["role"] != pools.SYSTEM])[0]
    # An earlier release may have composed another largest size.
    machine = {field: value for field, value in added.items() if field != "maxNodeCount"}
    if not any(pool["role"] == pools.SYSTEM for pool in written):
        return ({**added, "diskSizeGb": None}, *written)
    return tuple(
        # What the API server fills in says nothing of what was composed.
        {**pool, "diskSizeGb": None} if composed and machine.items() <= pool.items() else pool
        for pool in written
    )


def order_of(composed: bool, written: list[dict[str, Any]]) -> tuple[str, ...]:
    """The names of the pools as the user wrote them, who does not write that of the controllers of what is composed."""
    return tuple(pool["name"] for pool in written if not (composed and pool["role"] == pools.SYSTEM))
