# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Pods of a pool, and the proof that each pod finds a node with free capacity in any order of the pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from .matching import Vector
from .model import PlannedNodes


@dataclass(frozen=True)
class Pods:
    """Pods of a member on a pool: `copies` times `pods`. Pods of one copy of an `engine` are on different nodes.

    vectors: devices that each pod may use on its node.
    planned: planned nodes of the pods.
    is_open: the planned nodes of the pods can change.
    at_most: for a member that is spread over pools, the maximum number of pods of a copy on this pool. It replaces
        `pods`, the share of the pool. 0 for other members.
    leads: workers that can run on any node wait for the pod.
    mixes: devices of several kinds may serve one request.
    unavailable: the object represents unavailable devices of `pods` nodes instead of pods.
    requests: number of devices and accepted kinds of each request of a pod, in order. Empty if not needed.
    slow: kube-scheduler might search long for devices on a node without enough free devices (`allocating.py`).
    """

    engine: object
    copies: int
    pods: int
    vectors: tuple[Vector, ...]
    planned: PlannedNodes | None = None
    is_open: bool = True
    at_most: int = 0
    leads: bool = False
    mixes: bool = False
    unavailable: bool = False
    requests: tuple[tuple[int, frozenset[int]], ...] = ()
    slow: bool = False

    @property
    def count(self) -> int:
        return self.copies * max(self.pods, self.at_most)

    @cached_property
    def most(self) -> Vector:
        """Return the maximum number of devices of each kind that a pod uses."""
        return tuple(map(max, zip(*self.vectors, strict=True)))


def may_strand(node: Vector, nodes: int, load: Sequence[Pods]) -> bool:
    """Return True if an order of the pods might exist that leaves one of them without a node.

    False is a proof. Other pods block a node for a pod with the need v if they have too many devices of some kind: more
    than the node has in addition to v. Such a node has either a large pod that alone exceeds this number, or smaller
    pods that exceed it together. The smaller pods then have at least the smallest sum of their sizes that exceeds it.

    Therefore, the maximum number of blocked nodes for one kind is the number of large pods plus a quotient: all devices
    of the smaller pods, divided by this smallest sum. The maximum is 0 if one pod of every other copy leaves enough
    capacity on the same node. The maximum for all kinds is the sum of these maximums. Each pod of the same copy is on a
    separate node and blocks this node. If fewer nodes are blocked than exist, the pod always finds a node.
    """
    pool = _Pool(node, load)
    # Equal pods with equal pods in their copy have the same result.
    distinct = {
        (pods.vectors, pods.leads, pods.mixes, pool.copy_of(pods)): pods for pods in load if not pods.unavailable
    }
    return any(not any(pool.blocked(pods, proof) < nodes for proof in _ways(pods)) for pods in distinct.values())


Needs = dict[int, int]
"""Devices that a pod needs, by kind."""


def _ways(pods: Pods) -> list[tuple[Needs, Needs]]:
    """Return ways to prove that a node has free capacity: the needs of all kinds, and needs of alternative kinds."""
    proofs: list[tuple[Needs, Needs]] = [
        ({kind: need for kind, need in enumerate(vector) if need}, {}) for vector in pods.vectors
    ]
    if len(pods.vectors) > 1:
        same = {kind: needs[0] for kind, needs in enumerate(zip(*pods.vectors, strict=True)) if len({*needs}) == 1}
        different_kinds = [
            [kind for kind, need in enumerate(vector) if need and kind not in same] for vector in pods.vectors
        ]
        if all(len(kinds) == 1 for kinds in different_kinds):
            alternatives = {
                kinds[0]: vector[kinds[0]] for kinds, vector in zip(different_kinds, pods.vectors, strict=True)
            }
            proofs.append(({kind: need for kind, need in same.items() if need}, alternatives))
    return proofs


class _Pool:
    """Devices that pods on the nodes of a pool can use instead of each other."""

    def __init__(self, node: Vector, load: Sequence[Pods]) -> None:
        self._node = node
        self._engines: dict[object, list[Pods]] = {}
        for pods in load:
            self._engines.setdefault(pods.engine, []).append(pods)

    def copy_of(self, pods: Pods) -> tuple[object, ...]:
        """Return a key of the pods of a copy. Equal copies have equal keys."""
        engine_pods = self._engines[pods.engine]
        return tuple(
            sorted((copy_pods.copies, copy_pods.pods, copy_pods.at_most, copy_pods.most) for copy_pods in engine_pods)
        )

    def blocked(self, pods: Pods, proof: tuple[Needs, Needs]) -> int:
        """Return the maximum number of nodes without free capacity for a pod."""
        every, alternatives = proof
        engine_pods = self._engines[pods.engine]
        same_copy = sum(copy_pods.pods for copy_pods in engine_pods if not (pods.leads and copy_pods.at_most)) - 1
        kinds = sum(self._without_room(pods, {kind: need}) for kind, need in every.items())
        return same_copy + kinds + (self._without_room(pods, alternatives) if alternatives else 0)

    def _without_room(self, pods: Pods, needs: Needs) -> int:
        """Return the maximum number of nodes without free capacity for a pod in any of these kinds, due to other
        pods."""
        size_counts, on_one = self._others(pods, needs)
        if len(needs) == 1 or pods.mixes:
            # The pod can use devices of any of these kinds, so only their sum matters.
            have = sum(self._node[kind] for kind in needs)
            room = have - max(needs.values())
            return 0 if on_one <= room else _exceeding(room, have, size_counts, self._sizes(needs))
        least_sums = [
            _least_above(self._node[kind] - need, self._node[kind], self._sizes((kind,)))
            for kind, need in needs.items()
        ]
        if 0 in least_sums or on_one < sum(least_sums):
            return 0
        return sum(size * count for size, count in size_counts.items()) // sum(least_sums)

    def _others(self, pods: Pods, kinds: Collection[int]) -> tuple[Counter[int], int]:
        """Return the number of pods of other copies by their devices of these kinds, and the maximum devices of these
        pods on one node."""
        sizes = Counter[int]()
        on_one = 0
        for engine, engine_pods in self._engines.items():
            copies = engine_pods[0].copies - (engine == pods.engine)
            largest_sizes = [
                max(sum(vector[kind] for kind in kinds) for vector in copy_pods.vectors) for copy_pods in engine_pods
            ]
            on_one += copies * max(largest_sizes)
            for copy_pods, size in zip(engine_pods, largest_sizes, strict=True):
                sizes[size] += copies * max(copy_pods.pods, copy_pods.at_most)
        return sizes, on_one

    def _sizes(self, kinds: Collection[int]) -> set[int]:
        """Return the numbers of devices of these kinds together that pods can use."""
        sizes: set[int] = set()
        for pods in (pods for engine_pods in self._engines.values() for pods in engine_pods):
            of_pod = {sum(vector[kind] for kind in kinds) for vector in pods.vectors}
            # A pod that mixes kinds can use some devices of these kinds and some of other kinds.
            sizes |= set(range(max(of_pod) + 1)) if pods.mixes and len(of_pod) > 1 else of_pod
        return sizes - {0}


def _exceeding(room: int, have: int, size_counts: Counter[int], sizes: Collection[int]) -> int:
    """Return the maximum number of nodes with pods that use more than `room`. `sizes`: all possible sizes of pods."""
    large = sum(count for size, count in size_counts.items() if size > room)
    least_sum = _least_above(room, have, [size for size in sizes if size <= room])
    return large + (
        sum(size * count for size, count in size_counts.items() if size <= room) // least_sum if least_sum else 0
    )


def _least_above(room: int, have: int, sizes: Collection[int]) -> int:
    """Return the smallest sum of sizes that exceeds `room` and fits a node. 0 without such a sum."""
    sums = {0}
    for __ in range(have):
        sums |= {total + size for total in sums for size in sizes if size and total + size <= have}
    return min((candidate for candidate in sums if candidate > room), default=0)
