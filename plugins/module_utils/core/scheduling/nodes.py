# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Planned nodes of a pool: whether pods need them, and which pods share one.

A planned node is a number, not a node of the cluster: whichever node a pod takes first, pods of the same number may be
there and others may not. Numbers form trees. The pods of a first number have as many nodes for themselves as they need,
whatever the others do; so as long as these add up to the nodes of the pool, each finds one, in any order. A further
number is that of pods that go beside others: they wait for these, and no two numbers below one share a node. So, again,
each finds one of the nodes of the number above it that no other has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.matching import Vector
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    NodeSharing,
    PlannedNodes,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.work import Work

MAX_PLANNED = 300
"""The search recurses once for the pods of each member."""
MAX_DEPTH = 4
"""Longest path of numbers: each is a label of its own."""


@dataclass(frozen=True)
class Pods:
    """The pods of a member on a pool: `copies` times `pods`, those of one copy of an `engine` on different nodes.

    `vectors`: what each may take from its node. `planned`: the planned nodes that they have. `open`: they may get
    others.
    """

    engine: object
    copies: int
    pods: int
    vectors: tuple[Vector, ...]
    planned: PlannedNodes | None = None
    open: bool = True

    @property
    def count(self) -> int:
        return self.copies * self.pods

    @cached_property
    def most(self) -> Vector:
        """Return what a pod takes at most of each kind of device."""
        return tuple(map(max, zip(*self.vectors, strict=True)))


def may_strand(node: Vector, nodes: int, load: Sequence[Pods]) -> bool:
    """Return whether pods could be put on the nodes of a pool such that one of them finds none with room.

    False is a proof. A pod with the need v finds no room on a node where, for some kind of device, the other pods have
    more than the node has beside v. Such a node holds a pod that has more alone, or smaller ones that have more
    together: at least the least sum of their sizes that is more. So no more nodes can be blocked for one kind than
    there are such large pods, plus all that the smaller ones take divided by that least sum; for all kinds, no more
    than the sum of these. Pods of the same copy, which go on nodes of their own, block one each. With fewer blocked
    nodes than there are, the pod always finds a node.
    """
    totals = [Counter[int]() for __ in node]
    engines: dict[object, list[Pods]] = {}
    for pods in load:
        engines.setdefault(pods.engine, []).append(pods)
        for kind, size in enumerate(pods.most):
            totals[kind][size] += pods.count
    # Pods of a kind with equal pods beside them find room alike.
    distinct = {
        (pods.vectors, tuple(sorted((other.pods, other.most) for other in engines[pods.engine]))) for pods in load
    }
    return any(
        not any(_always_fits(node, nodes, totals, vector, copy) for vector in vectors) for vectors, copy in distinct
    )


def _always_fits(
    node: Vector, nodes: int, totals: Sequence[Counter[int]], vector: Vector, copy: Sequence[tuple[int, Vector]]
) -> bool:
    """Return whether a pod finds a node with room. `copy`: all pods of its copy, with their needs."""
    blocked = sum(pods for pods, __ in copy) - 1
    for kind, need in enumerate(vector):
        if need:
            others = Counter(totals[kind])
            for pods, most in copy:
                others[most[kind]] -= pods
            blocked += _blocked(node[kind] - need, node[kind], others)
    return blocked < nodes


def _blocked(room: int, most: int, others: Counter[int]) -> int:
    """Return how many nodes pods of these sizes can give more than `room`, at most."""
    large = sum(count for size, count in others.items() if size > room)
    small = {size: count for size, count in others.items() if 0 < size <= room and count}
    sums = {0}
    for __ in range(most):
        sums |= {known + size for known in sums for size in small if known + size <= most}
    least = min((one for one in sums if one > room), default=0)
    return large + (sum(size * count for size, count in small.items()) // least if least else 0)


def plan_pool(
    node: Vector, nodes: int, load: Sequence[Pods], taken: Collection[int], work: Work
) -> list[PlannedNodes | None] | None:
    """Return the planned nodes of each of these pods, in order; None when no way was found to give them any.

    Those that are not open keep what they have. Pods that take whole nodes need none. `taken` are numbers that are not
    to be given. Pods that have no kind of device in common do not compete: where all together cannot be numbered, those
    of one kind are that may strand a pod, and the others go anywhere.
    """
    found = _plan(node, nodes, load, taken, work)
    if found is not None:
        return found
    groups = list(_competing(load))
    critical = [group for group in groups if may_strand(node, nodes, [load[at] for at in group])]
    if len(groups) < 2 or len(critical) != 1:
        return None
    group = critical[0]
    anywhere = PlannedNodes((), "Any")
    if any(not pods.open and pods.planned != anywhere for at, pods in enumerate(load) if at not in group):
        return None
    alone = [load[at] for at in group]
    used = tuple(have if any(pods.most[kind] for pods in alone) else 0 for kind, have in enumerate(node))
    part = _plan(used, nodes, alone, taken, work)
    if part is None:
        return None
    by_position = dict(zip(group, part, strict=True))
    return [by_position.get(at, anywhere) for at in range(len(load))]


def _competing(load: Sequence[Pods]) -> Iterator[list[int]]:
    """Return the positions of pods that have kinds of device in common, directly or by others."""
    left = list(range(len(load)))
    while left:
        group = [left.pop(0)]
        for at in group:
            more = [other for other in left if any(map(min, load[at].most, load[other].most))]
            group += more
            left = [other for other in left if other not in more]
        yield sorted(group)


def _plan(
    node: Vector, nodes: int, load: Sequence[Pods], taken: Collection[int], work: Work
) -> list[PlannedNodes | None] | None:
    with work.question():
        return _Planner(node, nodes, load, taken, work).run()


@dataclass
class _Group:
    """The pods of one number: on `nodes` nodes, each of which has `free` left. `engines` are theirs and those above."""

    numbers: tuple[int, ...]
    sharing: str
    nodes: int
    free: Vector
    engines: tuple[object, ...]
    below: list[_Group] = field(default_factory=list)

    @property
    def left(self) -> int:
        """Nodes that no number below has."""
        return self.nodes - sum(group.nodes for group in self.below)


class _Planner:
    """A depth-first search. Members with most pods come first, as others go beside them, then larger ones."""

    def __init__(self, node: Vector, nodes: int, load: Sequence[Pods], taken: Collection[int], work: Work) -> None:
        self._node = node
        self._left = nodes
        self._load = load
        self._work = work
        self._planned: list[PlannedNodes | None] = [pods.planned for pods in load]
        self._groups: dict[int, _Group] = {}
        self._numbers = set(taken)

    def run(self) -> list[PlannedNodes | None] | None:
        """Return what is planned, or None."""
        kept = [pods for pods in self._load if not pods.open]
        for pods in sorted(kept, key=lambda pods: len(pods.planned.numbers) if pods.planned else 0):
            self._keep(pods)
        order = [at for at, pods in enumerate(self._load) if pods.open]
        if len(order) > MAX_PLANNED:
            return None
        order.sort(key=lambda at: (-self._load[at].count, -sum(self._load[at].most), at))
        for at in order:
            self._planned[at] = None
        return self._planned if self._left >= 0 and self._place(order) else None

    def _keep(self, pods: Pods) -> None:
        """Count pods that keep what they have. Ones without numbers may be on nodes of their own, as no pod with a
        number goes beside them."""
        planned = pods.planned
        if planned is None or not planned.numbers:
            self._left -= pods.count
            return
        self._numbers.update(planned.numbers)
        nodes = nodes_of(self._node, pods, planned.sharing)
        group = None
        for depth, number in enumerate(planned.numbers, start=1):
            above, group = group, self._groups.get(number)
            if group is None:
                # Those above are gone when this is not the last number: their nodes are still taken.
                free = above.free if above else self._node
                group = self._add(_Group(planned.numbers[:depth], planned.sharing, nodes, free, ()), above)
        if group is not None:
            count = pods.count if planned.sharing == "Together" else 1
            needs = tuple(need * count for need in pods.most)
            group.free = tuple(max(0, have - need) for have, need in zip(group.free, needs, strict=True))
            group.engines = (*group.engines, pods.engine)

    def _add(self, group: _Group, above: _Group | None) -> _Group:
        self._groups[group.numbers[-1]] = group
        self._numbers.add(group.numbers[-1])
        if above is None:
            self._left -= group.nodes
        else:
            above.below.append(group)
        return group

    def _remove(self, group: _Group, above: _Group | None) -> None:
        del self._groups[group.numbers[-1]]
        self._numbers.discard(group.numbers[-1])
        if above is None:
            self._left += group.nodes
        else:
            above.below.remove(group)

    def _place(self, order: Sequence[int]) -> bool:
        if not order:
            return True
        at, rest = order[0], order[1:]
        pods = self._load[at]
        if all(vector == self._node for vector in pods.vectors):
            self._left -= pods.count
            if self._left >= 0 and self._place(rest):
                return True
            self._left += pods.count
            return False
        for planned in self._choices(pods):
            self._planned[at] = planned
            if self._place(rest):
                return True
            self._planned[at] = None
        return False

    def _choices(self, pods: Pods) -> Iterator[PlannedNodes]:
        """Make each choice in turn while the caller goes on, and take it back."""
        together = _times(pods.most, pods.count) if pods.pods == 1 else None
        if together is not None:
            yield from self._join(pods, together)
        yield from self._beside(pods)
        if together is not None and _fits(self._node, together):
            yield from self._first(pods, "Together", _less(self._node, together))
        if pods.count > 1:
            yield from self._first(pods, "OnePerNode", _less(self._node, pods.most))
            yield from self._first(pods, "Alone", _times(self._node, 0))

    def _join(self, pods: Pods, needs: Vector) -> Iterator[PlannedNodes]:
        tried = set()
        for group in self._tightest():
            apart = group.sharing != "Together" or len(group.numbers) > 1 or pods.engine in group.engines
            if apart or group.free in tried or not _fits(group.free, needs) or not self._work.spend():
                continue
            tried.add(group.free)
            before = group.free, group.engines
            group.free, group.engines = _less(group.free, needs), (*group.engines, pods.engine)
            yield PlannedNodes(group.numbers, "Together")
            group.free, group.engines = before

    def _beside(self, pods: Pods) -> Iterator[PlannedNodes]:
        for above in self._tightest():
            apart = above.sharing != "OnePerNode" or len(above.numbers) == MAX_DEPTH or pods.engine in above.engines
            if apart or above.left < pods.count or not _fits(above.free, pods.most) or not self._work.spend():
                continue
            path = (*above.numbers, self._number())
            engines = (*above.engines, pods.engine)
            group = self._add(_Group(path, "OnePerNode", pods.count, _less(above.free, pods.most), engines), above)
            yield PlannedNodes(path, "OnePerNode")
            self._remove(group, above)

    def _first(self, pods: Pods, use: NodeSharing, free: Vector) -> Iterator[PlannedNodes]:
        nodes = nodes_of(self._node, pods, use)
        if nodes > self._left or not self._work.spend():
            return
        group = self._add(_Group((self._number(),), use, nodes, free, (pods.engine,)), None)
        yield PlannedNodes(group.numbers, use)
        self._remove(group, None)

    def _tightest(self) -> list[_Group]:
        return sorted(self._groups.values(), key=lambda group: (sum(group.free), group.numbers))

    def _number(self) -> int:
        return next(number for number in range(1, len(self._numbers) + 2) if number not in self._numbers)


def nodes_of(node: Vector, pods: Pods, use: str) -> int:
    """Return how many nodes pods take that are used so."""
    if use == "Together":
        return 1
    if use == "OnePerNode":
        return pods.count
    each = min((have // need for have, need in zip(node, pods.most, strict=True) if need), default=0)
    return pods.pods * -(-pods.copies // max(1, each))


def _fits(free: Vector, needs: Vector) -> bool:
    return all(have >= need for have, need in zip(free, needs, strict=True))


def _less(free: Vector, needs: Vector) -> Vector:
    return tuple(have - need for have, need in zip(free, needs, strict=True))


def _times(vector: Vector, count: int) -> Vector:
    return tuple(need * count for need in vector)
