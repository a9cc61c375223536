# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Planned nodes of a pool, and the assignment of pods to them.

A planned node is a number, not a node of the cluster. A pod can use any node. Afterwards pods of the same number can
use this node, and other pods cannot. Numbers form trees. The pods of a first number have enough separate nodes,
regardless of other pods. Therefore, each pod finds a node in any order, as long as the sum of these nodes does not
exceed the nodes of the pool. Pods of a further number run next to other pods. They wait for these pods, and no two
numbers below one number share a node. Therefore, each pod finds a node of the number above that no other pod has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from .matching import Vector
from .model import NodeSharing, PlannedNodes
from .search_budget import Work
from .stranding import Pods, may_strand

MAX_PLANNED = 300
"""The search recurses once for the pods of each member."""
MAX_DEPTH = 4
"""Maximum length of a path of numbers. Each number requires a separate label."""
MAX_MODES = 64
"""Maximum number of choices for the pods without a number."""
MAX_OPTIONS = 4
"""Maximum number of options of an engine. See `_options`."""

ANYWHERE = PlannedNodes((), "Any")
APART = PlannedNodes((), "Apart")


def plan_pool(
    node: Vector, nodes: int, load: Sequence[Pods], used_numbers: Collection[int], work: Work
) -> list[PlannedNodes | None] | None:
    """Return the planned nodes of each of these pods, in order. None if the search finds no planned nodes.

    Pods that are not open keep their planned nodes. Pods that use whole nodes need no planned nodes, unless they are
    slow. Pods without a common kind of device do not compete. If the search finds nothing for all pods together, only
    the pods of the kind that might strand a pod, or that is slow, have planned nodes.

    used_numbers: numbers of planned nodes that must not be used.
    """
    all_planned = _steer(node, nodes, load, used_numbers, work)
    if all_planned is not None:
        return all_planned
    groups = list(_competing(load))
    critical = [group for group in groups if may_strand(node, nodes, [load[position] for position in group])]
    critical = critical or [group for group in groups if any(load[position].slow for position in group)]
    if len(groups) < 2 or len(critical) != 1:
        return None
    group = critical[0]
    if any(
        not pods.is_open and pods.planned != ANYWHERE for position, pods in enumerate(load) if position not in group
    ):
        return None
    group_load = [load[position] for position in group]
    used = tuple(have if any(pods.most[kind] for pods in group_load) else 0 for kind, have in enumerate(node))
    group_planned = _steer(used, nodes, group_load, used_numbers, work)
    if group_planned is None:
        return None
    by_position = dict(zip(group, group_planned, strict=True))
    return [by_position.get(position, ANYWHERE) for position in range(len(load))]


def _competing(load: Sequence[Pods]) -> Iterator[list[int]]:
    """Yield the positions of pods with common kinds of device, directly or through other pods."""
    remaining = list(range(len(load)))
    while remaining:
        group = [remaining.pop(0)]
        for position in group:
            neighbors = [candidate for candidate in remaining if _compete(load[position], load[candidate])]
            group += neighbors
            remaining = [candidate for candidate in remaining if candidate not in neighbors]
        yield sorted(group)


def _mates(pods: Pods, other_pods: Pods) -> bool:
    return pods.engine == other_pods.engine


def _compete(pods: Pods, other_pods: Pods) -> bool:
    return _mates(pods, other_pods) or any(map(min, pods.most, other_pods.most))


def _steer(
    node: Vector, nodes: int, load: Sequence[Pods], used_numbers: Collection[int], work: Work
) -> list[PlannedNodes | None] | None:
    """Return planned nodes with numbers for all pods, or for as many pods as leave capacity for other pods on any node.

    The maximum devices of the other pods on one node are reserved on every node. Therefore, each of these pods fits on
    every node without a pod of its copy, and pods with numbers never need the reserved devices.
    """
    for modes in _modes(node, nodes, load, work):
        free = _less(node, _sum(node, (_reserve(load, positions, modes) for positions in _engines(load))))
        numbered = [position for position, mode in enumerate(modes) if mode is None]
        reserved_nodes = max((_in_copy(load, positions, modes) for positions in _engines(load)), default=0)
        if min(free, default=0) < 0 or not work.spend():
            continue
        with work.limited():
            pods = [_beside_workers(load, position, modes) for position in numbered]
            rooms = [
                _Room(_less(node, unavailable.most), _less(free, unavailable.most))
                for unavailable in load
                if unavailable.unavailable
            ]
            planned = _Planner(free, nodes, pods, used_numbers, work, reserved_nodes, rooms).run()
        if planned is not None:
            by_position = dict(zip(numbered, planned, strict=True))
            return [by_position[position] if mode is None else mode for position, mode in enumerate(modes)]
    return None


def _engines(load: Sequence[Pods]) -> list[list[int]]:
    """Return the positions of the pods of each engine."""
    engines: dict[object, list[int]] = {}
    for position, pods in enumerate(load):
        engines.setdefault(pods.engine, []).append(position)
    return list(engines.values())


Mode = dict[int, PlannedNodes | None]  # pylint: disable=unsupported-binary-operation
"""Planned nodes of the pods of an engine, by position. None for pods with numbers."""
Modes = tuple[PlannedNodes | None, ...]  # pylint: disable=unsupported-binary-operation
"""Planned nodes of all pods. None for pods with numbers."""


def _modes(node: Vector, nodes: int, load: Sequence[Pods], work: Work) -> list[Modes]:
    """Return modes for the pods, first the modes with the fewest unused reserved devices. Empty without remaining
    steps."""
    engines = _engines(load)
    options = _limited([list(_options(node, nodes, load, positions)) for positions in engines])
    if not work.spend(prod(map(len, options)) * len(engines)):
        return []
    candidates: list[tuple[int, int, Modes]] = []
    for choice in product(*options):
        by_position = {position: mode for chosen in choice for position, mode in chosen.items()}
        modes = tuple(by_position[position] for position in range(len(load)))
        unused = sum(_unused(nodes, load, positions, modes) for positions in engines)
        candidates.append((unused, sum(mode is not None for mode in modes), modes))
    return [modes for __, __, modes in sorted(candidates, key=lambda entry: entry[:2])]


def _limited(options: Sequence[list[Mode]]) -> list[list[Mode]]:
    """Return the first options of each engine, about the same number for each, within the limit on choices."""
    limit = next(
        limit
        for limit in range(MAX_OPTIONS, 0, -1)
        if prod(min(len(engine_modes), limit) for engine_modes in options) <= MAX_MODES
    )
    limited = [engine_modes[:limit] for engine_modes in options]
    choices = prod(map(len, limited))
    for index, engine_modes in enumerate(options):
        if len(engine_modes) > limit and choices // limit * (limit + 1) <= MAX_MODES:
            choices = choices // limit * (limit + 1)
            limited[index] = engine_modes[: limit + 1]
    return limited


def _options(node: Vector, nodes: int, load: Sequence[Pods], positions: Sequence[int]) -> Iterator[Mode]:
    """Yield modes of the pods of an engine: numbers, workers or all pods on any node, each pod on another node."""
    fixed_modes = {
        position: _kept_mode(node, load[position])
        for position in positions
        if not load[position].is_open or load[position].at_most
    }
    free = [position for position in positions if position not in fixed_modes]
    numbers = {**fixed_modes, **dict.fromkeys(free)}
    yield numbers
    if not free or sum(load[position].count for position in positions) < 2:
        return
    if any(load[position].leads for position in free) and len(free) > 1:
        yield {**numbers, **{position: ANYWHERE for position in free if not load[position].leads}}
    yield {**fixed_modes, **dict.fromkeys(free, ANYWHERE)}
    if (
        not fixed_modes
        and load[positions[0]].copies > 1
        and sum(load[position].count for position in positions) <= nodes
    ):
        yield dict.fromkeys(free, APART)


def _kept_mode(node: Vector, pods: Pods) -> PlannedNodes | None:
    """Return the mode of running pods, or of pods that are spread over pools. Pods of whole nodes share no node."""
    if pods.is_open:
        return None if pods.vectors == (node,) else ANYWHERE
    return pods.planned if pods.planned in (ANYWHERE, APART) else None


def _reserve(load: Sequence[Pods], positions: Sequence[int], modes: Modes) -> Vector | None:
    """Return the maximum devices on a node for the pods of an engine without a number, None without such pods."""
    anywhere = [load[position] for position in positions if modes[position] is not None]
    if not anywhere:
        return None
    maximum = tuple(map(max, zip(*(pods.most for pods in anywhere), strict=True)))
    return maximum if all(modes[position] == APART for position in positions) else _times(maximum, anywhere[0].copies)


def _unused(nodes: int, load: Sequence[Pods], positions: Sequence[int], modes: Modes) -> int:
    """Return the number of devices that are reserved but not used."""
    reserved = _reserve(load, positions, modes)
    used = sum(
        sum(load[position].most) * load[position].copies * load[position].pods
        for position in positions
        if modes[position] is not None
    )
    return nodes * sum(reserved) - used if reserved else 0


def _in_copy(load: Sequence[Pods], positions: Sequence[int], modes: Modes) -> int:
    """Return the number of different nodes that the pods of an engine without fixed nodes need."""
    anywhere = [position for position in positions if modes[position] is not None]
    if any(modes[position] == APART for position in anywhere):
        return sum(load[position].count for position in positions)
    return sum(load[position].pods for position in positions) if anywhere else 0


def _beside_workers(load: Sequence[Pods], position: int, modes: Modes) -> Pods:
    """Return pods with a number as they count in addition to reserved devices. A leader shares no node with workers of
    its copy."""
    pods = load[position]
    if not pods.leads or not pods.is_open:
        return pods
    workers = [
        candidate for candidate, mode in zip(load, modes, strict=True) if mode == ANYWHERE and _mates(candidate, pods)
    ]
    if not workers:
        return pods
    return replace(pods, vectors=(tuple(max(0, need) for need in _less(pods.most, workers[0].most)),))


@dataclass
class _Group:
    """Pods of one number on `nodes` nodes, with the devices that are `free` on each of them.

    engines: engines of these pods and of the pods of the numbers above.
    """

    numbers: tuple[int, ...]
    sharing: str
    nodes: int
    free: Vector
    engines: tuple[object, ...]
    below: list[_Group] = field(default_factory=list)

    @property
    def left(self) -> int:
        """Return the number of nodes without pods of a number below."""
        return self.nodes - sum(group.nodes for group in self.below)


@dataclass(frozen=True)
class _Room:
    """Available devices of a node with unavailable devices.

    available: all available devices.
    free: available devices that are not reserved.
    """

    available: Vector
    free: Vector


class _Planner:
    """Depth-first search. Members with the most pods come first because other pods can share their nodes. Members with
    more devices come next."""

    def __init__(
        self,
        node: Vector,
        nodes: int,
        load: Sequence[Pods],
        used_numbers: Collection[int],
        work: Work,
        reserved_nodes: int,
        rooms: Sequence[_Room] = (),
    ) -> None:
        """Start a search on `nodes` nodes.

        reserved_nodes: number of nodes that pods without a fixed node might occupy, in addition to the nodes planned
            here.
        rooms: available devices of nodes with unavailable devices."""
        self._node = node
        self._left = nodes
        self._load = load
        self._work = work
        self._reserved_nodes = reserved_nodes
        self._open = nodes
        self._planned: list[PlannedNodes | None] = [pods.planned for pods in load]
        self._groups: dict[int, _Group] = {}
        self._numbers = set(used_numbers)
        self._rooms = rooms

    def run(self) -> list[PlannedNodes | None] | None:
        """Return the planned nodes, None if the search finds none."""
        fixed_pods = [pods for pods in self._load if not pods.is_open]
        for pods in sorted(fixed_pods, key=lambda pods: len(pods.planned.numbers) if pods.planned else 0):
            self._keep(pods)
        # Pods without numbers might all be on one node.
        unnumbered = [pods for pods in fixed_pods if not (pods.unavailable or (pods.planned and pods.planned.numbers))]
        self._open -= sum(pods.count for pods in fixed_pods if pods.unavailable)
        if not _fits(self._node, _sum(self._node, (_times(pods.most, pods.count) for pods in unnumbered))):
            self._open -= sum(pods.count for pods in unnumbered)
        order = [position for position, pods in enumerate(self._load) if pods.is_open]
        if len(order) > MAX_PLANNED:
            return None
        order.sort(key=lambda position: (-self._load[position].count, -sum(self._load[position].most), position))
        for position in order:
            self._planned[position] = None
        if self._left < 0 or self._open < self._reserved_nodes:
            return None
        return self._planned if self._place(order) else None

    def _keep(self, pods: Pods) -> None:
        """Count pods that keep their planned nodes. Pods without numbers might have separate nodes, because no pod with
        a number shares their nodes."""
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
                # If this is not the last number, its pods no longer exist. Their nodes are still in use.
                free = above.free if above else self._node
                group = self._add(_Group(planned.numbers[:depth], planned.sharing, nodes, free, ()), above)
        if group is not None:
            count = pods.count if planned.sharing == "Together" else 1
            needs = tuple(need * count for need in pods.most)
            if not _fits(group.free, needs):
                self._open -= group.nodes
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

    def _is_bindable(self) -> bool:
        """Return True if each node with unavailable devices fits all pods of a number if it fits one of them. Numbers
        without open pods already have nodes."""
        members: dict[int, list[int]] = {}
        for position, planned in enumerate(self._planned):
            if planned is not None and planned.numbers:
                members.setdefault(planned.numbers[0], []).append(position)
        return all(
            _fits(room.free, self._on_one_node(group))
            or not any(_fits(room.available, vector) for position in group for vector in self._load[position].vectors)
            for group in members.values()
            if any(self._load[position].is_open for position in group)
            for room in self._rooms
        )

    def _on_one_node(self, group: Iterable[int]) -> Vector:
        """Return the maximum number of devices that pods of a number use on one node."""
        needs = []
        for position in group:
            pods, planned = self._load[position], self._planned[position]
            sharing = planned.sharing if planned else ""
            if sharing == "Alone":
                return self._node
            needs.append(_times(pods.most, pods.count if sharing == "Together" else 1))
        return _sum(self._node, needs)

    def _place(self, order: Sequence[int]) -> bool:
        if not order:
            return not self._rooms or self._is_bindable()
        position, remaining = order[0], order[1:]
        pods = self._load[position]
        if not self._reserved_nodes and not pods.slow and all(vector == self._node for vector in pods.vectors):
            self._left -= pods.count
            if self._left >= 0 and self._place(remaining):
                return True
            self._left += pods.count
            return False
        for planned in self._choices(pods):
            self._planned[position] = planned
            if self._place(remaining):
                return True
            self._planned[position] = None
        return False

    def _choices(self, pods: Pods) -> Iterator[PlannedNodes]:
        """Yield each choice while it is applied. The next iteration undoes the choice."""
        together = _times(pods.most, pods.count) if pods.pods == 1 else None
        if together is not None:
            yield from self._join(pods, together)
        yield from self._beside(pods)
        if together is not None and _fits(self._node, together):
            yield from self._first(pods, "Together", _less(self._node, together))
        if pods.count > 1 and _fits(self._node, pods.most):
            yield from self._first(pods, "OnePerNode", _less(self._node, pods.most))
            if not self._reserved_nodes:
                yield from self._first(pods, "Alone", _times(self._node, 0))

    def _join(self, pods: Pods, needs: Vector) -> Iterator[PlannedNodes]:
        seen_vectors = set()
        for group in self._tightest():
            apart = group.sharing != "Together" or len(group.numbers) > 1 or pods.engine in group.engines
            if apart or group.free in seen_vectors or not _fits(group.free, needs) or not self._work.spend():
                continue
            seen_vectors.add(group.free)
            previous = group.free, group.engines
            group.free, group.engines = _less(group.free, needs), (*group.engines, pods.engine)
            yield PlannedNodes(group.numbers, "Together")
            group.free, group.engines = previous

    def _beside(self, pods: Pods) -> Iterator[PlannedNodes]:
        for above in self._tightest():
            apart = above.sharing != "OnePerNode" or len(above.numbers) == MAX_DEPTH or not self._go_beside(pods, above)
            if apart or above.left < pods.count or not _fits(above.free, pods.most) or not self._work.spend():
                continue
            path = (*above.numbers, self._number())
            engines = (*above.engines, pods.engine)
            group = self._add(_Group(path, "OnePerNode", pods.count, _less(above.free, pods.most), engines), above)
            yield PlannedNodes(path, "OnePerNode")
            self._remove(group, above)

    def _go_beside(self, pods: Pods, above: _Group) -> bool:
        """Return True if none of these pods can miss a node because pods of its copy have the nodes of a number.

        With two copies of two pods on two nodes, each pod uses the node that the other pod of its copy does not use.
        """
        if pods.engine not in above.engines:
            return True
        copy_pods = [candidate for candidate in self._load if _mates(candidate, pods)]
        crosswise = pods.copies == len(copy_pods) == above.nodes == 2 and all(
            candidate.pods == 1 for candidate in copy_pods
        )
        return crosswise and above.engines.count(pods.engine) == 1

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
    """Return the number of nodes that pods with this kind of sharing use."""
    if use == "Together":
        return 1
    if use == "OnePerNode":
        return pods.count
    pods_per_node = min((have // need for have, need in zip(node, pods.most, strict=True) if need), default=0)
    return pods.pods * -(-pods.copies // max(1, pods_per_node))


def _fits(free: Vector, needs: Vector) -> bool:
    return all(have >= need for have, need in zip(free, needs, strict=True))


def _less(free: Vector, needs: Vector) -> Vector:
    return tuple(have - need for have, need in zip(free, needs, strict=True))


def _sum(node: Vector, vectors: Iterable[Vector | None]) -> Vector:
    """Return the sum of vectors, with as many kinds as `node`."""
    return tuple(map(sum, zip(_times(node, 0), *(vector for vector in vectors if vector), strict=True)))


def _times(vector: Vector, count: int) -> Vector:
    return tuple(need * count for need in vector)
