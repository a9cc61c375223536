# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Ledger of capacity: how much of every pool is taken, and whether more fits.

Whether a demand fits depends on what is charged to the pool, never on the order in which it was charged: a second run
that starts from the replicas of the first one gets the same answers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.matching import Vector
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Options, Pool

# The search recurses once per pod; pools with more pods are left to the first fit.
MAX_SEARCHED_PODS = 100


# A group is the pods of one copy: each pod as its alternatives. Its place in a sorted list decides the order of
# packing: what is hardest to place (many pods, large, few alternatives) goes first. Equal groups stand together with
# their number, as a pool of a thousand nodes holds thousands of pods of few shapes.
Pod = tuple[Vector, ...]
Group = tuple[tuple[int, int, int], tuple[Pod, ...]]
Load = tuple[tuple[Group, int], ...]
Free = dict[Vector, int]


@dataclass(frozen=True)
class PodSet:
    """Pods of one member, per copy of its engine. `vectors`: what each may take from its node, in order of choice."""

    pods: int
    vectors: tuple[Vector, ...]


@dataclass(frozen=True)
class Demand:
    """Demand of one engine on one pool: `copies` times all of `pod_sets`. Members that claim nothing are left out.

    The pods of one copy go on different nodes; copies may share nodes.
    """

    copies: int
    pod_sets: tuple[PodSet, ...]

    @property
    def nodes(self) -> int:
        """Whole nodes, when every claiming pod is charged one."""
        return self.copies * sum(pod_set.pods for pod_set in self.pod_sets)

    @cached_property
    def group(self) -> Group:
        """The pods of one copy, the hardest to place first."""
        pods = sorted(
            (pod_set.vectors for pod_set in self.pod_sets for __ in range(pod_set.pods)),
            key=lambda alternatives: (-max(map(sum, alternatives)), len(alternatives), alternatives),
        )
        largest = max((sum(vector) for alternatives in pods for vector in alternatives), default=0)
        return (-largest, -len(pods), sum(map(len, pods))), tuple(pods)

    @cached_property
    def fewest(self) -> int:
        """Devices that it takes with the smallest alternative of each pod."""
        return self.copies * sum(min(map(sum, pod)) for pod in self.group[1])


class NodeLedger:
    """Charges a whole node for every claiming pod."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.used = 0
        self.changes = 0

    def fits(self, demand: Demand) -> bool:
        return self.used + demand.nodes <= self.pool.nodes

    def add(self, demand: Demand) -> None:
        self.used += demand.nodes
        self.changes += 1

    def remove(self, demand: Demand) -> None:
        self.used -= demand.nodes
        self.changes += 1

    @property
    def occupied(self) -> int:
        """Return how many nodes what is charged takes, at most all of the pool."""
        return min(self.used, self.pool.nodes)

    @property
    def overcommitted(self) -> str:
        """Return why what is charged already cannot all be there, with numbers; empty when it can."""
        if self.used <= self.pool.nodes:
            return ""
        return f"its replicas need {_count(self.used, 'node')}, and it has {self.pool.nodes}"

    def shortage(self, demand: Demand) -> str:
        """Return why a demand does not fit, with numbers."""
        free = max(0, self.pool.nodes - self.used)
        return f"{free} of {_count(self.pool.nodes, 'node')} free, engine needs {demand.nodes}"


class DeviceLedger:
    """A pool as a bag of nodes, each with so many free devices; pods share nodes.

    Kubernetes decides which node a pod gets, so the ledger asks whether *some* packing of all pods exists: largest
    first onto the node with the least room left, and, within `pack_steps`, other choices when that fails.
    """

    def __init__(self, pool: Pool, options: Options, memo: dict[object, Free | None]) -> None:
        self.pool = pool
        # How often something was added or removed: what was found out stays true as long as this does not grow.
        self.changes = 0
        self._options = options
        self._memo = memo
        self._node: Vector = tuple(device.count if device.claim == "DRA" else 0 for device in pool.devices)
        self._counts: dict[Group, int] = {}
        self._order: list[Group] = []
        self._known: Free | None = None
        self._known_devices = 0
        self._is_known = False

    def fits(self, demand: Demand) -> bool:
        free = self._free()
        if free is None or not demand.pod_sets:
            return free is not None
        if demand.fewest > self._known_devices:
            return False
        return self._pack(self._with(demand.group, demand.copies)) is not None

    def add(self, demand: Demand) -> None:
        group = demand.group
        if not group[1]:
            return
        if group not in self._counts:
            insort(self._order, group)
        self._counts[group] = self._counts.get(group, 0) + demand.copies
        self._is_known = False
        self.changes += 1

    def remove(self, demand: Demand) -> None:
        group = demand.group
        if not group[1]:
            return
        self._counts[group] -= demand.copies
        if not self._counts[group]:
            del self._counts[group]
            self._order.remove(group)
        self._is_known = False
        self.changes += 1

    @property
    def occupied(self) -> int:
        """Return how many nodes what is charged takes when it is packed; all of the pool when it does not fit."""
        free = self._free()
        return self.pool.nodes - (free.get(self._node, 0) if free is not None else 0)

    @property
    def overcommitted(self) -> str:
        """Return why what is charged already cannot all be there, with numbers; empty when it can."""
        if self._free() is not None:
            return ""
        parts = []
        for position, device in enumerate(self.pool.devices):
            charged = sum(
                count * sum(max(pod, key=sum)[position] for pod in pods) for (__, pods), count in self._counts.items()
            )
            if charged:
                parts.append(f"{charged} {device.name} charged, {device.count * self.pool.nodes} there")
        return f"its replicas do not fit on its {_count(self.pool.nodes, 'node')}: {', '.join(parts)}"

    def shortage(self, demand: Demand) -> str:
        """Return why a demand does not fit, with numbers."""
        free = self._free()
        if free is None:
            return self.overcommitted
        __, pods = demand.group
        needs = [max(pod, key=sum) for pod in pods] * demand.copies
        parts = []
        for position, device in enumerate(self.pool.devices):
            desired = [vector[position] for vector in needs if vector[position]]
            if desired:
                total = sum(vector[position] * nodes for vector, nodes in free.items())
                best = max((vector[position] for vector, nodes in free.items() if nodes), default=0)
                parts.append(
                    f"{total} of {device.count * self.pool.nodes} {device.name} free, at most {best} on one node, "
                    f"engine needs {_pods(desired, device.name)}"
                )
        text = "; ".join(parts)
        if len(pods) > 1:
            text += f", each pod of a copy on its own node (of {self.pool.nodes})"
        return text

    def _free(self) -> Free | None:
        """Free devices with all charged pods packed; None when they cannot be."""
        if not self._is_known:
            self._known = self._pack(tuple((group, self._counts[group]) for group in self._order))
            self._known_devices = sum(sum(vector) * nodes for vector, nodes in (self._known or {}).items())
            self._is_known = True
        return self._known

    def _with(self, group: Group, copies: int) -> Load:
        position = bisect_left(self._order, group)
        load = [(known, self._counts[known]) for known in self._order]
        if group in self._counts:
            load[position] = (group, self._counts[group] + copies)
        else:
            load.insert(position, (group, copies))
        return tuple(load)

    def _pack(self, load: Load) -> Free | None:
        key = (self._node, self.pool.nodes, load)
        if key not in self._memo:
            free = {self._node: self.pool.nodes} if self.pool.nodes > 0 else {}
            packed = _first_fit(free, load)
            if packed is None and self._options.search == "Exact":
                packed = _search(free, load, self._options.pack_steps)
            self._memo[key] = packed
        return self._memo[key]


def _options_for(free: Free, pod: Pod) -> list[tuple[Vector, Vector]]:
    """(node, node after the pod) for every kind of node that can take it: first alternative, tightest node first."""
    found: list[tuple[Vector, Vector]] = []
    for alternative in pod:
        fitting = [
            node
            for node, nodes in free.items()
            if nodes and all(have >= need for have, need in zip(node, alternative, strict=True))
        ]
        fitting.sort(key=lambda node: (sum(node), node))
        found.extend(
            (node, tuple(have - need for have, need in zip(node, alternative, strict=True))) for node in fitting
        )
    return found


def _first_fit(free: Free, load: Load) -> Free | None:
    free = dict(free)
    for (__, pods), count in load:
        left = count
        while left:
            placed = _fill_tightest(free, pods[0], left) if len(pods) == 1 else _spread(free, pods)
            if not placed:
                return None
            left -= placed
    return free


def _fill_tightest(free: Free, pod: Pod, count: int) -> int:
    """Place equal pods on the tightest kind of node that takes one; how many, 0 when none does.

    A node that took a pod is tighter than before and gets the next one too, so as many as fit go onto each at once.
    That holds for any alternative: what no node could take before, no fuller node can take now.
    """
    choice = next(iter(_options_for(free, pod)), None)
    if choice is None:
        return 0
    node, after = choice
    taken = tuple(have - left for have, left in zip(node, after, strict=True))
    each = min(have // need for have, need in zip(node, taken, strict=True) if need)
    nodes = min(free[node], count // each)
    if nodes == 0:
        nodes, each = 1, count
    free[node] -= nodes
    full = tuple(have - each * need for have, need in zip(node, taken, strict=True))
    free[full] = free.get(full, 0) + nodes
    return nodes * each


def _spread(free: Free, pods: tuple[Pod, ...]) -> int:
    """Place the pods of one copy on nodes of their own: 1, or 0 when they do not fit."""
    held: list[Vector] = []
    for pod in pods:
        choice = next(iter(_options_for(free, pod)), None)
        if choice is None:
            return 0
        node, after = choice
        free[node] -= 1
        held.append(after)
    for after in held:
        free[after] = free.get(after, 0) + 1
    return 1


def _search(start: Free, load: Load, steps: int) -> Free | None:
    """Depth-first over every choice of alternative and node, at most `steps` of them."""
    if sum(count * len(group) for (__, group), count in load) > MAX_SEARCHED_PODS:
        return None
    groups = [group for (__, group), count in load for _again in range(count)]
    pods = [(number, pod) for number, group in enumerate(groups) for pod in group]
    free = dict(start)
    seen: set[tuple[int, frozenset[tuple[Vector, int]], tuple[Vector, ...]]] = set()
    left = steps

    def place(position: int, held: tuple[Vector, ...]) -> bool:
        nonlocal left
        if position and (position == len(pods) or pods[position][0] != pods[position - 1][0]):
            for after in held:
                free[after] = free.get(after, 0) + 1
            if place_next(position, ()):
                return True
            for after in held:
                free[after] -= 1
            return False
        return place_next(position, held)

    def place_next(position: int, held: tuple[Vector, ...]) -> bool:
        nonlocal left
        if position == len(pods):
            return True
        state = (position, frozenset(item for item in free.items() if item[1]), tuple(sorted(held)))
        if state in seen or left <= 0:
            return False
        seen.add(state)
        for node, after in _options_for(free, pods[position][1]):
            left -= 1
            free[node] -= 1
            if place(position + 1, (*held, after)):
                return True
            free[node] += 1
        return False

    return free if place_next(0, ()) else None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _pods(desired: Sequence[int], device: str) -> str:
    """`2 pods with 8 gpu each` and the like."""
    parts = [
        f"{_count(pods, 'pod')} with {count} {device}{' each' if pods > 1 else ''}"
        for count, pods in sorted(Counter(desired).items(), reverse=True)
    ]
    return " and ".join(parts)
