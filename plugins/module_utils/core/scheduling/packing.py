# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Packing of pods onto the nodes of a pool, or the proof that no packing exists.

The nodes of a pool are identical, so a state is the number of nodes for each combination of free devices. The first fit
places the largest pods first, each on the node with the least free devices. If it fails, lower bounds prove that no
packing exists, or a search decides.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from .matching import Vector
from .search_budget import Work

# A group is the pods of one copy. Each pod is a tuple of alternatives. The sort order of groups is the order of
# packing: groups that are hard to place (many pods, large pods, few alternatives) come first. Equal groups are stored
# once with their number, because a pool of a thousand nodes has thousands of pods with few shapes.
Pod = tuple[Vector, ...]
Group = tuple[tuple[int, int, int], tuple[Pod, ...]]
Load = tuple[tuple[Group, int], ...]
Free = dict[Vector, int]

# The search recurses once per pod.
MAX_SEARCHED_PODS = 300

# Nodes have devices of two or three kinds. With more kinds, the sets are too many to compare all of them.
_MOST_KINDS = 4

# Nodes have up to sixteen devices of a kind, and each function concerns about one fraction of a node.
_MOST_FUNCTIONS = 64


@dataclass(frozen=True)
class Packing:
    """Free devices of nodes with a packed load. None without a packing. `proven`: False if a packing might exist."""

    free: Free | None
    proven: bool = True


def pack(node: Vector, nodes: int, load: Load, work: Work | None) -> Packing:
    """Pack a load onto a number of nodes with these devices. Without `work`, only the first fit is tried."""
    free = {node: nodes} if nodes > 0 else {}
    first_fit = _first_fit(free, load)
    if first_fit is not None:
        return Packing(first_fit)
    if work is None:
        return Packing(None, proven=False)
    if _exceeds(node, nodes, load):
        return Packing(None)
    with work.limited():
        search = _Search(free, load, work)
        return Packing(search.run(), proven=not search.cut)


def _options_for(free: Free, pod: Pod) -> list[tuple[Vector, Vector]]:
    """Return (node, node after the pod) for every kind of node that fits a pod: first alternative first, tightest node
    first."""
    options: list[tuple[Vector, Vector]] = []
    for alternative in pod:
        fitting = [
            node
            for node, nodes in free.items()
            if nodes and all(have >= need for have, need in zip(node, alternative, strict=True))
        ]
        fitting.sort(key=lambda node: (sum(node), node))
        options.extend(
            (node, tuple(have - need for have, need in zip(node, alternative, strict=True))) for node in fitting
        )
    return options


def _first_fit(free: Free, load: Load) -> Free | None:
    free = dict(free)
    for (__, pods), count in load:
        remaining = count
        while remaining:
            placed = _fill_tightest(free, pods[0], remaining) if len(pods) == 1 else _spread(free, pods)
            if not placed:
                return None
            remaining -= placed
    return free


def _fill_tightest(free: Free, pod: Pod, count: int) -> int:
    """Place equal pods on the tightest kind of node that fits a pod. Return the number of placed pods.

    A node with a new pod is tighter than before and also receives the next pod, so the function fills each node at
    once. This is correct for alternatives: an alternative that fitted no node before fits no fuller node.
    """
    choice = next(iter(_options_for(free, pod)), None)
    if choice is None:
        return 0
    node, remaining = choice
    used = tuple(have - unused for have, unused in zip(node, remaining, strict=True))
    pods_per_node = min(have // need for have, need in zip(node, used, strict=True) if need)
    nodes = min(free[node], count // pods_per_node)
    if nodes == 0:
        nodes, pods_per_node = 1, count
    free[node] -= nodes
    full = tuple(have - pods_per_node * need for have, need in zip(node, used, strict=True))
    free[full] = free.get(full, 0) + nodes
    return nodes * pods_per_node


def _spread(free: Free, pods: tuple[Pod, ...]) -> int:
    """Place the pods of one copy on separate nodes. Return 1, or 0 if they do not fit."""
    used_nodes: list[Vector] = []
    for pod in pods:
        choice = next(iter(_options_for(free, pod)), None)
        if choice is None:
            return 0
        node, remaining = choice
        free[node] -= 1
        used_nodes.append(remaining)
    for remaining in used_nodes:
        free[remaining] = free.get(remaining, 0) + 1
    return 1


def _exceeds(node: Vector, nodes: int, load: Load) -> bool:
    """Return True if lower bounds prove that a load exceeds the devices of one kind or of several kinds together."""
    if any(len(pods) > nodes for (__, pods), __count in load):
        return True
    pods = Counter[Pod]()
    for (__, group), count in load:
        for pod in group:
            pods[pod] += count
    if not all(_on_one_node(node, pod) for pod in pods):
        return True
    return any(
        _exceeds_kinds(_sum(node, kinds), nodes, [(least_of(pod, kinds), count) for pod, count in pods.items()])
        for kinds in _sets_of_kinds(node)
    )


def _sets_of_kinds(node: Vector) -> list[tuple[int, ...]]:
    """Return the sets of kinds of devices to compare with the needs: each kind, all kinds, and if they are few, all
    other sets.

    A pod with alternatives might need none of one kind and none of another kind, but always one of both kinds."""
    kinds = [index for index, have in enumerate(node) if have]
    if len(kinds) <= _MOST_KINDS:
        return [kind for size in range(1, len(kinds) + 1) for kind in itertools.combinations(kinds, size)]
    return [*((kind,) for kind in kinds), tuple(kinds)]


def _sum(vector: Vector, kinds: tuple[int, ...]) -> int:
    return sum(vector[kind] for kind in kinds)


def least_of(pod: Pod, kinds: tuple[int, ...]) -> int:
    """Return the minimum number of devices of these kinds that a pod uses with any alternative."""
    return min(_sum(vector, kinds) for vector in pod)


def _on_one_node(node: Vector, pod: Pod) -> bool:
    return any(all(have >= need for have, need in zip(node, vector, strict=True)) for vector in pod)


def _exceeds_kinds(have: int, nodes: int, needs: list[tuple[int, int]]) -> bool:
    """Return True if the nodes, each with `have` devices, are too few for pods with needs (devices, pods).

    For all pods on a node, the sum of their needs in a dual feasible function is at most one node. The functions are
    u(k) of Fekete and Schepers, "New classes of fast lower bounds for bin packing problems" (2001), times k * have, so
    that all numbers are integers. k = 0 represents the needs themselves.
    """
    if sum(need * pods for need, pods in needs) > have * nodes:
        return True
    return any(
        sum(pods * (k * need if (k + 1) * need % have == 0 else (k + 1) * need // have * have) for need, pods in needs)
        > k * have * nodes
        for k in range(1, min(have, _MOST_FUNCTIONS + 1))
    )


class _Search:
    """Depth-first search over every choice of alternative and node."""

    def __init__(self, free: Free, load: Load, work: Work) -> None:
        self.cut = False
        self._free = dict(free)
        self._work = work
        groups = [group for (__, group), count in load for _again in range(count)]
        self._pods = [(number, pod) for number, group in enumerate(groups) for pod in group]
        self._needs = [(kinds, list(self._least_needs(kinds))) for kinds in _sets_of_kinds(next(iter(free)))]
        self._seen: set[tuple[int, frozenset[tuple[Vector, int]], tuple[Vector, ...]]] = set()

    def run(self) -> Free | None:
        """Return the free devices of nodes, None without a packing."""
        if len(self._pods) > MAX_SEARCHED_PODS:
            self.cut = True
            return None
        return self._free if self._place(0, ()) else None

    def _least_needs(self, kinds: tuple[int, ...]) -> Iterator[int]:
        """Return the minimum number of devices of these kinds that the pods from each position on need."""
        sums = [0]
        for __, pod in reversed(self._pods):
            sums.append(sums[-1] + least_of(pod, kinds))
        return reversed(sums)

    def _place(self, position: int, used_nodes: tuple[Vector, ...]) -> bool:
        """Place the pods from a position on. `used_nodes`: nodes of other pods of the same copy."""
        pods, free = self._pods, self._free
        begun = position and (position == len(pods) or pods[position][0] != pods[position - 1][0])
        copy_nodes = () if begun else used_nodes
        if begun:
            self._give_back(used_nodes)
        if position == len(pods):
            return True
        if not self._is_hopeless(position, copy_nodes):
            for node, remaining in _options_for(free, pods[position][1]):
                if not self._work.spend():
                    self.cut = True
                    break
                free[node] -= 1
                if self._place(position + 1, (*copy_nodes, remaining)):
                    return True
                free[node] += 1
                if self.cut:
                    break
        if begun:
            self._take(used_nodes)
        return False

    def _is_hopeless(self, position: int, used_nodes: tuple[Vector, ...]) -> bool:
        """Return True for a state that was seen before, or with fewer free devices than its pods need."""
        state = (position, frozenset(item for item in self._free.items() if item[1]), tuple(sorted(used_nodes)))
        if state in self._seen:
            return True
        self._seen.add(state)
        node_counts = [*state[1], *((node, 1) for node in used_nodes)]
        return any(
            needs[position] > sum(_sum(node, kinds) * nodes for node, nodes in node_counts)
            for kinds, needs in self._needs
        )

    def _give_back(self, used_nodes: tuple[Vector, ...]) -> None:
        for node in used_nodes:
            self._free[node] = self._free.get(node, 0) + 1

    def _take(self, used_nodes: tuple[Vector, ...]) -> None:
        for node in used_nodes:
            self._free[node] -= 1
