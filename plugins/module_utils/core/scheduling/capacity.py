# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""How much of every pool is taken, and whether more fits.

Whether a demand fits depends on what is charged to the pool, never on the order in which it was charged: a second run
that starts from the replicas of the first one gets the same answers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.matching import Vector
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Options, Pool


@dataclass(frozen=True)
class PodSet:
    """Pods of one member, per copy of its engine. `vectors`: what each may take from its node, in order of choice."""

    pods: int
    vectors: tuple[Vector, ...]


@dataclass(frozen=True)
class Demand:
    """What one engine takes from one pool: `copies` times all of `pod_sets`. Members that claim nothing are left out.

    The pods of one copy go on different nodes; copies may share nodes.
    """

    copies: int
    pod_sets: tuple[PodSet, ...]

    @property
    def nodes(self) -> int:
        """Whole nodes, when every claiming pod is charged one."""
        return self.copies * sum(pod_set.pods for pod_set in self.pod_sets)


# A group is the pods of one copy: each pod as its alternatives. Its place in a sorted list decides the order of
# packing: what is hardest to place (many pods, large, few alternatives) goes first.
Pod = tuple[Vector, ...]
Group = tuple[tuple[int, int, int], tuple[Pod, ...]]
Free = dict[Vector, int]


def _groups(demand: Demand) -> list[Group]:
    pods = sorted(
        (pod_set.vectors for pod_set in demand.pod_sets for _ in range(pod_set.pods)),
        key=lambda alternatives: (-max(map(sum, alternatives)), len(alternatives), alternatives),
    )
    if not pods:
        return []
    largest = max(sum(vector) for alternatives in pods for vector in alternatives)
    rank = (-largest, -len(pods), sum(map(len, pods)))
    return [(rank, tuple(pods))] * demand.copies


class NodeLedger:
    """Charges a whole node for every claiming pod."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.used = 0
        self.version = 0

    @property
    def signature(self) -> tuple[int, int]:
        return (self.pool.nodes, self.used)

    def fits(self, demand: Demand) -> bool:
        return self.used + demand.nodes <= self.pool.nodes

    def add(self, demand: Demand) -> None:
        self.used += demand.nodes
        self.version += 1

    def remove(self, demand: Demand) -> None:
        self.used -= demand.nodes
        self.version += 1

    def shortage(self, demand: Demand) -> str:
        """Why a demand does not fit, with numbers."""
        free = max(0, self.pool.nodes - self.used)
        return f"{free} of {_count(self.pool.nodes, 'node')} free, engine needs {demand.nodes}"


class DeviceLedger:
    """A pool as a bag of nodes, each with so many free devices; pods share nodes.

    Kubernetes decides which node a pod gets, so the ledger asks whether *some* packing of all pods exists: largest
    first onto the node with the least room left, and, within `pack_steps`, other choices when that fails.
    """

    def __init__(self, pool: Pool, options: Options, memo: dict[object, Free | None]) -> None:
        self.pool = pool
        self.version = 0
        self._options = options
        self._memo = memo
        self._groups: list[Group] = []
        self._node: Vector = tuple(device.count if device.claim == "DRA" else 0 for device in pool.devices)
        # Free devices after first-fit of all groups in their order, as long as that order was kept; else not known.
        self._first_fit: Free | None = self._empty()

    @property
    def signature(self) -> tuple[object, ...]:
        return (self._node, self.pool.nodes, tuple(self._groups))

    def fits(self, demand: Demand) -> bool:
        return self._free() is not None and self._packed(_groups(demand)) is not None

    def add(self, demand: Demand) -> None:
        for group in _groups(demand):
            if self._groups and group < self._groups[-1]:
                self._first_fit = None
                insort(self._groups, group)
            else:
                self._groups.append(group)
                self._first_fit = self._first_fit and _first_fit(self._first_fit, [group])
        self.version += 1

    def remove(self, demand: Demand) -> None:
        for group in _groups(demand):
            self._groups.remove(group)
        self._first_fit = None if self._groups else self._empty()
        self.version += 1

    def shortage(self, demand: Demand) -> str:
        """Why a demand does not fit, with numbers."""
        free = self._free()
        if free is None:
            return f"more is charged to its {_count(self.pool.nodes, 'node')} than they have"
        groups = _groups(demand)
        needs = [max(pod, key=sum) for _, pods in groups for pod in pods]
        parts = []
        for position, device in enumerate(self.pool.devices):
            wanted = [vector[position] for vector in needs if vector[position]]
            if wanted:
                total = sum(vector[position] * nodes for vector, nodes in free.items())
                best = max((vector[position] for vector, nodes in free.items() if nodes), default=0)
                parts.append(
                    f"{total} of {device.count * self.pool.nodes} {device.name} free, at most {best} on one node, "
                    f"engine needs {_pods(wanted, device.name)}"
                )
        text = "; ".join(parts)
        if groups and len(groups[0][1]) > 1:
            text += f", each pod of a copy on its own node (of {self.pool.nodes})"
        return text

    def _empty(self) -> Free:
        return {self._node: self.pool.nodes} if self.pool.nodes > 0 else {}

    def _free(self) -> Free | None:
        """Free devices with all charged pods packed; None when they cannot be."""
        return self._first_fit if self._first_fit is not None else self._pack(self._groups)

    def _packed(self, groups: list[Group]) -> Free | None:
        """Free devices after the groups are charged as well, or None when they do not fit."""
        if not groups:
            return self._free()
        if self._beyond_total(groups):
            return None
        in_order = not self._groups or groups[0] >= self._groups[-1]
        if in_order and self._first_fit is not None:
            packed = _first_fit(self._first_fit, groups)
            if packed is not None:
                return packed
        together = list(self._groups)
        for group in groups:
            together.insert(bisect_right(together, group), group)
        return self._pack(together)

    def _pack(self, groups: Sequence[Group]) -> Free | None:
        key = (self._node, self.pool.nodes, tuple(groups))
        if key not in self._memo:
            packed = _first_fit(self._empty(), groups)
            if packed is None and self._options.search == "Exact":
                packed = _search(self._empty(), groups, self._options.pack_steps)
            self._memo[key] = packed
        return self._memo[key]

    def _beyond_total(self, groups: Iterable[Group]) -> bool:
        """A quick no: fewer devices of all kinds together than the smallest need."""
        free = sum(sum(vector) * nodes for vector, nodes in (self._free() or {}).items())
        return sum(min(map(sum, pod)) for _, pods in groups for pod in pods) > free


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


def _first_fit(free: Free, groups: Sequence[Group]) -> Free | None:
    free = dict(free)
    for _, pods in groups:
        held: list[Vector] = []
        for pod in pods:
            choice = next(iter(_options_for(free, pod)), None)
            if choice is None:
                return None
            node, after = choice
            free[node] -= 1
            held.append(after)
        for after in held:
            free[after] = free.get(after, 0) + 1
    return free


def _search(free: Free, groups: Sequence[Group], steps: int) -> Free | None:
    """Depth-first over every choice of alternative and node, at most `steps` of them.

    The recursion is as deep as there are pods, so pools with more pods than that are left to the first fit.
    """
    pods = [(number, pod) for number, (_, group) in enumerate(groups) for pod in group]
    if len(pods) > 100:
        return None
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


def _pods(wanted: Sequence[int], device: str) -> str:
    """`2 pods with 8 gpu each` and the like."""
    parts = [
        f"{_count(pods, 'pod')} with {count} {device}{' each' if pods > 1 else ''}"
        for count, pods in sorted(Counter(wanted).items(), reverse=True)
    ]
    return " and ".join(parts)
