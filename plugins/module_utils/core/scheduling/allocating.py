# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Steps that kube-scheduler needs to reject a node for a pod with claims.

The device allocator does not compare counts. It assigns devices in the order of the requests, and rejects a node
only after all choices failed: each subset of the free devices (Kubernetes 1.36), or each order of each subset (1.34 and
1.35). For example, 24 free devices and a request for 32 result in 2^24 subsets. kube-scheduler stops the search after
10 seconds (DRASchedulerFilterTimeout), and then tries no other node for the pod. Affinity is evaluated before devices,
so nodes that affinity excludes need no steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import sub

from .matching import Vector
from .model import PlannedNodes
from .stranding import Pods

MAX_STEPS = 1_000_000
"""About one second. Nine free devices take 986,409 steps in all orders."""
FEW_DEVICES = 9
"""Maximum number of devices on a node that guarantees searches of at most `MAX_STEPS`."""
MAX_STATES = 4_096
"""Combinations of used devices on a node to examine."""


# pylint: disable-next=unsupported-binary-operation
def slow_searches(node: Vector, load: Sequence[Pods], planned: Sequence[PlannedNodes | None]) -> set[int]:
    """Return the positions of open pods with searches that might take over `MAX_STEPS` before a node is rejected.

    node: devices of a node, by kind.
    load: all pods of the node pool, and its unavailable devices.
    planned: planned nodes of these pods.
    """
    return {
        position
        for position, pods in enumerate(load)
        if pods.is_open and _steps(node, pods) > MAX_STEPS and _is_slow(node, pods, _neighbors(load, planned, position))
    }


# pylint: disable-next=unsupported-binary-operation
def _neighbors(load: Sequence[Pods], planned: Sequence[PlannedNodes | None], position: int) -> list[Pods]:
    """Return the pods that affinity allows on the same node as the pod at a position, while kube-scheduler searches
    devices for this pod.

    Pods of the same planned node are excluded, because all of them fit on the node together.
    """
    own_nodes = planned[position]
    has_number = own_nodes is not None and bool(own_nodes.numbers)
    neighbors = []
    for index, (pods, planned_nodes) in enumerate(zip(load, planned, strict=True)):
        if planned_nodes is None:
            is_near = pods.unavailable or not has_number
        elif planned_nodes.numbers:
            is_near = index == position and planned_nodes.sharing == "Alone"
        else:
            is_near = True
        if is_near:
            neighbors.append(pods)
    return neighbors


def _is_slow(node: Vector, pods: Pods, neighbors: Sequence[Pods]) -> bool:
    """Return True if neighbors can leave too few devices for a pod, but enough for a long search, or if undecided."""
    used = {(0,) * len(node), *(neighbor.most for neighbor in neighbors if neighbor.unavailable)}
    for neighbor in neighbors:
        # Pods of one copy are on different nodes.
        copies = neighbor.copies - (neighbor.engine == pods.engine)
        if neighbor.unavailable or copies < 1:
            continue
        vectors = None if neighbor.mixes else _used_devices(neighbor)
        if vectors is None:
            return True
        latest = used
        for __ in range(copies):
            sums = {tuple(map(sum, zip(total, vector, strict=True))) for total in latest for vector in vectors}
            latest = {total for total in sums if _covers(node, total)} - used
            used |= latest
            if len(used) > MAX_STATES:
                return True
            if not latest:
                break
    free_devices = (tuple(map(sub, node, total)) for total in used)
    return any(
        _steps(free, pods) > MAX_STEPS
        for free in free_devices
        if not any(_covers(free, vector) for vector in pods.vectors)
    )


def _used_devices(pods: Pods) -> set[Vector] | None:
    """Return the devices that a pod might use, None if unknown. A pod can use fewer devices than it is charged because
    of a constraint."""
    count = sum(count for count, __ in pods.requests)
    if not count or all(sum(vector) == count for vector in pods.vectors):
        return set(pods.vectors)
    if any(len(kinds) != 1 for __, kinds in pods.requests):
        return None
    requested = Counter[int]()
    for count, kinds in pods.requests:
        requested.update(dict.fromkeys(kinds, count))
    return {*pods.vectors, tuple(requested[kind] for kind in range(len(pods.most)))}


def _steps(free: Vector, pods: Pods) -> int:
    """Return the steps of a search without a result on a node with these free devices."""
    steps, choices = 0, 1
    earlier_requests: list[tuple[int, frozenset[int]]] = []
    for count, kinds in pods.requests:
        available = sum(free[kind] for kind in kinds)
        available -= sum(earlier_count for earlier_count, earlier_kinds in earlier_requests if earlier_kinds <= kinds)
        for position in range(min(count, available)):
            choices *= available - position
            steps += choices
            if steps > MAX_STEPS:
                return steps
        if available < count:
            break
        earlier_requests.append((count, kinds))
    return steps


def _covers(free: Vector, needs: Vector) -> bool:
    return all(have >= need for have, need in zip(free, needs, strict=True))
