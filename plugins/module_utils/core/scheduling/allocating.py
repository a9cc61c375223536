# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Steps that kube-scheduler needs to reject a node for a pod with claims.

The device allocator compares no counts. It assigns devices one by one, in the order of the requests, and rejects a node
only after all choices failed: each subset of the free devices (Kubernetes 1.36), or each order of each subset (1.34 and
1.35). For example, 24 free devices and a request for 32 result in 2^24 subsets. kube-scheduler stops the search after
10 seconds (DRASchedulerFilterTimeout), and then tries no other node for the pod. Affinity is evaluated before devices,
so that nodes excluded by affinity cost no steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.matching import Vector
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import PlannedNodes
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.stranding import Pods

MAX_STEPS = 1_000_000
"""About one second. Nine free devices take 986,409 steps in all orders."""
FEW_DEVICES = 9
"""No search of a node with at most so many devices takes more than `MAX_STEPS`."""
MAX_STATES = 4_096
"""Combinations of used devices on a node to examine."""


# pylint: disable-next=unsupported-binary-operation
def slow_searches(node: Vector, load: Sequence[Pods], planned: Sequence[PlannedNodes | None]) -> set[int]:
    """Return the positions of open pods that kube-scheduler might need more than `MAX_STEPS` to reject a node for.

    node: devices of a node, by kind.
    load: all pods of a pool, and its unavailable devices.
    planned: planned nodes of these pods.
    """
    return {
        at
        for at, pods in enumerate(load)
        if pods.open and _steps(node, pods) > MAX_STEPS and _is_slow(node, pods, _neighbors(load, planned, at))
    }


# pylint: disable-next=unsupported-binary-operation
def _neighbors(load: Sequence[Pods], planned: Sequence[PlannedNodes | None], at: int) -> list[Pods]:
    """Return the pods that affinity allows on a node for which kube-scheduler searches devices for a pod.

    Pods of its planned node are not among them, because all of these fit on the node together.
    """
    own = planned[at]
    has_number = own is not None and bool(own.numbers)
    neighbors = []
    for other, (pods, sharing) in enumerate(zip(load, planned, strict=True)):
        if sharing is None:
            is_near = pods.unavailable or not has_number
        elif sharing.numbers:
            is_near = other == at and sharing.sharing == "Alone"
        else:
            is_near = True
        if is_near:
            neighbors.append(pods)
    return neighbors


def _is_slow(node: Vector, pods: Pods, neighbors: Sequence[Pods]) -> bool:
    """Return whether neighbors can leave too few devices for a pod, but enough for a long search. True if undecided."""
    used = {(0,) * len(node), *(other.most for other in neighbors if other.unavailable)}
    for other in neighbors:
        # Pods of one copy are on different nodes.
        copies = other.copies - (other.engine == pods.engine)
        if other.unavailable or copies < 1:
            continue
        vectors = None if other.mixes else _used(other)
        if vectors is None:
            return True
        latest = used
        for __ in range(copies):
            sums = {tuple(map(sum, zip(one, vector, strict=True))) for one in latest for vector in vectors}
            latest = {one for one in sums if _covers(node, one)} - used
            used |= latest
            if len(used) > MAX_STATES:
                return True
            if not latest:
                break
    frees = (tuple(have - less for have, less in zip(node, one, strict=True)) for one in used)
    return any(_steps(free, pods) > MAX_STEPS for free in frees if not any(_covers(free, way) for way in pods.vectors))


def _used(pods: Pods) -> set[Vector] | None:
    """Return the devices that a pod might use, None if unknown: fewer than it is charged because of a constraint."""
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
    earlier: list[tuple[int, frozenset[int]]] = []
    for count, kinds in pods.requests:
        have = sum(free[kind] for kind in kinds)
        have -= sum(taken for taken, others in earlier if others <= kinds)
        for position in range(min(count, have)):
            choices *= have - position
            steps += choices
            if steps > MAX_STEPS:
                return steps
        if have < count:
            break
        earlier.append((count, kinds))
    return steps


def _covers(free: Vector, needs: Vector) -> bool:
    return all(have >= need for have, need in zip(free, needs, strict=True))
