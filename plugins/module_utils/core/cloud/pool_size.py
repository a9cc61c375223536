# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Size of a node pool in its cloud, and its desired size for the replicas that are placed on it.

The autoscalers of some clouds (Cloud.starts_first_node) only know the devices of a pool from its nodes. While the pool
is empty, they start no node for a pod that claims devices. In these clouds, the fleet starts the nodes that its
replicas need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PoolSize:
    """Size of a node pool in its cloud.

    desired: current target number of nodes, from min_nodes to max_nodes.
    owned: this fleet created the pool.
    trouble: the reason that the cloud reports for nodes that do not start, with a fix. Empty without such a reason.
    """

    desired: int
    min_nodes: int
    max_nodes: int
    owned: bool = True
    trouble: str = ""


@dataclass(frozen=True)
class NodesNeeded:
    """Nodes that replicas need in a node pool with an autoscaler that does not start a first node.

    `cloud`: its name in the registry. `login_options`: options of the credentials for its cluster in the cloud.
    `nodes`: number of nodes that the placed replicas need, plus the nodes that accept no pods. 0 without a placed
    replica. `waiting`: at least one replica does not serve.
    """

    cluster: str
    pool: str
    cloud: str
    login_options: Mapping[str, str]
    nodes: int = 0
    waiting: bool = False

    def desired(self, size: PoolSize) -> int:
        """Return the desired size of the pool.

        The pool grows for waiting replicas, and shrinks to its minimum if no replica is placed there. In all other
        cases the autoscaler sets its size. It packs pods differently, and would conflict with repeated increases.
        """
        if not self.nodes:
            return min(size.min_nodes, size.desired)
        return max(size.desired, min(self.nodes, size.max_nodes)) if self.waiting else size.desired
