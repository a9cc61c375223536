# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Sizes of node pools with a minimum of zero nodes, if no autoscaler starts their first node.

They grow for the replicas that are placed there, and shrink to their minimum without replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from ..cloud.clusters import CloudConnection
from ..cloud.errors import CloudError
from ..cloud.registry import POOL_SIZES
from ..core import api
from ..core.cloud.pool_size import NodesNeeded, PoolSize
from ..core.planning import Plan
from ..core.planning.nodes_needed import nodes_needed
from ..core.wire import text
from ..kubernetes.client import Client
from ..kubernetes.errors import ApiError
from ..kubernetes.fanout import fan_out
from ..kubernetes.observe_fleet import FleetSnapshot
from ..kubernetes.pool_pods import is_ours, pods_on_pool

Connect = Callable[[Client | None], Client]  # pylint: disable=unsupported-binary-operation
T = TypeVar("T")
R = TypeVar("R")
_MISSING = "is not there in its cloud. Run provision to create it"
_FOREIGN = "was not created by this fleet, and stays as it is. Start nodes there yourself"


@dataclass(frozen=True)
class Settings:
    """Settings of a run."""

    cloud_connections: Mapping[str, CloudConnection] = field(default_factory=dict)
    """Connections to managed clusters by name, for clusters that are reached by their names in a cloud."""
    fleet: str = "default"
    """Fleet that owns the pools."""
    connect: Mapping[str, Connect] = field(default_factory=dict)
    """Connections to clusters."""


@dataclass(frozen=True)
class Resize:
    """Change of the size of a pool: its desired number of nodes before and after."""

    cluster: str
    pool: str
    before: int
    after: int


@dataclass
class Sizes:
    """Record of a run so far."""

    resized: list[Resize] = field(default_factory=list)
    """Changes of the run. In check mode, the changes that a run would make."""
    failed: dict[str, str] = field(default_factory=dict)
    """Reasons for unchanged pool sizes despite waiting replicas, by cluster."""
    notes: list[str] = field(default_factory=list)
    """Notes for users, one line each."""


@dataclass(frozen=True)
class _Pool:
    """Pool with its demand, its size in the cloud, and the cloud options of its cluster."""

    demand: NodesNeeded
    size: PoolSize
    options: Mapping[str, str]

    @property
    def after(self) -> int:
        return self.demand.desired(self.size)

    @property
    def resize(self) -> Resize:
        return Resize(self.demand.cluster, self.demand.pool, self.size.desired, self.after)


class Resizer:
    """Sizes of pools in one run. Each size is read once, and again before a change.

    If a cloud rejects a change, the cluster is skipped for the rest of the run."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._read: dict[tuple[str, str], PoolSize | None] = {}
        self._refused: dict[str, str] = {}
        self.sizes = Sizes()

    def changes(self, plan: Plan, written: Iterable[api.Resource], seen: FleetSnapshot) -> list[Resize]:
        """Return the changes of reached clusters that a plan needs, without sending them."""
        return [pool.resize for pool in self._due(plan, written, seen)]

    def send(self, plan: Plan, written: Iterable[api.Resource], seen: FleetSnapshot) -> None:
        """Make the changes that a plan needs."""
        due: dict[str, list[_Pool]] = {}
        for pool in self._due(plan, written, seen):
            due.setdefault(pool.demand.cluster, []).append(pool)
        self._on_each(self._send, due, lambda pool: pool.demand)
        # Clusters are worked on at once.
        self.sizes.resized.sort(key=lambda each: (each.cluster, each.pool))

    def _due(self, plan: Plan, written: Iterable[api.Resource], seen: FleetSnapshot) -> list[_Pool]:
        demands: dict[str, list[NodesNeeded]] = {}
        for demand in nodes_needed(plan, written):
            cluster_snapshot = seen.clusters.get(demand.cluster)
            # Replicas that serve have their nodes already, and nothing can be applied to an unreachable cluster.
            if (
                cluster_snapshot is not None
                and not cluster_snapshot.unreachable
                and (demand.waiting or not demand.nodes)
            ):
                demands.setdefault(demand.cluster, []).append(demand)
        pools_of_clusters = self._on_each(lambda each: self._of_cluster(each, seen), demands, lambda demand: demand)
        return [pool for pools in pools_of_clusters for pool in pools]

    def _on_each(
        self, work: Callable[[list[T]], R], parts: Mapping[str, list[T]], demand: Callable[[T], NodesNeeded]
    ) -> list[R]:
        """Return the results of the work on the pools of each cluster, except clusters of clouds that rejected a
        change."""

        def guarded(cluster_part: list[T]) -> R | CloudError:
            try:
                return work(cluster_part)
            except CloudError as error:
                return error

        tasks = {
            name: partial(guarded, cluster_part) for name, cluster_part in parts.items() if name not in self._refused
        }
        for name in parts.keys() - tasks.keys():
            self._fail(name, self._refused[name], map(demand, parts[name]))
        done = []
        for name, outcome in fan_out(tasks).items():
            if isinstance(outcome, (ApiError, CloudError)):
                self._fail(name, str(outcome), map(demand, parts[name]))
            else:
                done.append(outcome)
        return done

    def _of_cluster(self, demands: Sequence[NodesNeeded], seen: FleetSnapshot) -> list[_Pool]:
        """Return the pools of a cluster with new sizes. Raise CloudError."""
        pools = []
        for demand in demands:
            total = nodes.total if (nodes := seen.clusters[demand.cluster].nodes.get(demand.pool)) else 0
            options = self._options(demand)
            if options is None:
                if demand.waiting and not total:
                    self._note(demand, _out_of_reach(demand))
                continue
            size = self._size(demand, options)
            if size is None or not size.owned:
                if demand.waiting and not total:
                    self._note(demand, _FOREIGN if size else _MISSING)
                continue
            if demand.waiting and size.trouble:
                self._note(demand, f"nodes do not start: {size.trouble}")
            if demand.waiting and demand.nodes > size.max_nodes:
                bound = f"may have {size.max_nodes} nodes in its cloud, and its replicas need {demand.nodes}"
                self._note(demand, f"{bound}. Run provision to set its bounds")
            pool = _Pool(demand, size, options)
            if pool.after > size.desired or (pool.after < size.desired and (not total or self._is_empty(demand))):
                pools.append(pool)
        return pools

    def _options(self, demand: NodesNeeded) -> Mapping[str, str] | None:
        """Return the cloud options of a cluster that the fleet creates.

        The result is None for other clusters, and for clusters with another connection."""
        connection = self._settings.cloud_connections.get(demand.cluster)
        if connection is None or connection.cloud != demand.cloud:
            return None
        if any(connection.options.get(key, value) != value for key, value in demand.login_options.items()):
            return None
        return {**demand.login_options, **connection.options}

    def _size(self, demand: NodesNeeded, options: Mapping[str, str]) -> PoolSize | None:
        key = (demand.cluster, demand.pool)
        if key not in self._read:
            self._read[key] = POOL_SIZES[demand.cloud].read(options, demand.pool, self._settings.fleet)
        return self._read[key]

    def _is_empty(self, demand: NodesNeeded) -> bool:
        """Return True if a pool has no pods except DaemonSet and static pods. Return False if they cannot be read."""
        connect = self._settings.connect.get(demand.cluster)
        if connect is None:
            return False
        try:
            with connect(None) as client:
                pods = pods_on_pool(client, demand.pool)
        except ApiError:
            return False
        foreign_pods = sorted(f"{text(pod, 'metadata', 'namespace')}/{text(pod, 'metadata', 'name')}" for pod in pods)
        if pods and not any(map(is_ours, pods)):
            self._note(demand, f"keeps its nodes, as others run pods there, such as {foreign_pods[0]}")
        return not pods

    def _send(self, pools: Sequence[_Pool]) -> None:
        """Change the pools of a cluster. An error of one pool does not affect others. Raise the last CloudError."""
        refused = None
        for pool in pools:
            try:
                self._change(pool)
            except CloudError as error:
                refused = error
        if refused is not None:
            raise refused

    def _change(self, pool: _Pool) -> None:
        """Read a pool again and change it. Another run or the autoscaler might have changed the pool."""
        demand = pool.demand
        self._read.pop((demand.cluster, demand.pool), None)
        size = self._size(demand, pool.options)
        if size is None or not size.owned:
            return
        current_pool = replace(pool, size=size)
        if current_pool.after != size.desired:
            POOL_SIZES[demand.cloud].resize(pool.options, demand.pool, current_pool.after)
            self._read[demand.cluster, demand.pool] = replace(size, desired=current_pool.after)
            self.sizes.resized.append(current_pool.resize)

    def _fail(self, cluster: str, message: str, demands: Iterable[NodesNeeded]) -> None:
        """Record a failure. If no replica waits for a node, the only effect is the cost of empty nodes."""
        self._refused[cluster] = message
        if any(demand.waiting for demand in demands):
            self.sizes.failed[cluster] = message
        else:
            self.sizes.notes.append(f"cluster {cluster}: its empty pools stay as they are: {message}")

    def _note(self, demand: NodesNeeded, message: str) -> None:
        self.sizes.notes.append(f"cluster {demand.cluster}, pool {demand.pool}: {message}")


def _out_of_reach(demand: NodesNeeded) -> str:
    return (
        f"has no node, its replicas need {demand.nodes}, and its autoscaler starts no first one for devices that are "
        "claimed. The fleet does on clusters that it manages (fleet_provision) and reaches by their names in the cloud "
        f"(fleet_connection.{demand.cloud}). Do that, start nodes yourself, or set minNodeCount to 1"
    )
