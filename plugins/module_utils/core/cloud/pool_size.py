# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Size of a node pool in its cloud, and the size that it is to have for the replicas that are placed on it.

The autoscalers of some clouds (Cloud.starts_first_node) learn from the nodes of a pool what devices they have: while
it is empty, they start none for a pod that claims devices. There the fleet starts the nodes that its replicas need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PoolSize:
    """Size of a node pool as its cloud has it.

    desired: current target number of nodes, from min_nodes to max_nodes.
    owned: this fleet created the pool.
    trouble: the reason that the cloud gives for nodes that do not start, with a fix. Empty if there is none.
    """

    desired: int
    min_nodes: int
    max_nodes: int
    owned: bool = True
    trouble: str = ""


@dataclass(frozen=True)
class NodesNeeded:
    """Nodes that the replicas need of a node pool whose autoscaler does not start a first node.

    `cloud`: its name in the registry. `login_options`: options of the login that reaches its cluster in the cloud.
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
        """Return the size that the pool is to have.

        It grows for replicas that wait, and shrinks when nothing is placed there, to its minimum. Else its size is the
        autoscaler's, which packs pods in its own way: a size that is raised again and again would fight with it.
        """
        if not self.nodes:
            return min(size.min_nodes, size.desired)
        return max(size.desired, min(self.nodes, size.max_nodes)) if self.waiting else size.desired
