# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Ledgers of the used and free capacity of pools.

The result of a check depends on the charges of the pool, never on the order of the charges. Therefore, a second run
that starts from the replicas of the first run has the same results.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

from ..devices.device import Device
from .matching import Vector
from .model import Pool
from .packing import Free, Group, Load, Packing, least_of, pack
from .search_budget import Work


@dataclass(frozen=True)
class PodSet:
    """Pods of one member in a copy of its engine. `vectors`: alternative devices of a pod, in order of preference."""

    pods: int
    vectors: tuple[Vector, ...]


@dataclass(frozen=True)
class Demand:
    """Demand of one engine on one pool: `copies` times all of `pod_sets`. Members without claims are excluded.

    The pods of one copy use different nodes. Copies can share nodes.
    """

    copies: int
    pod_sets: tuple[PodSet, ...]

    @property
    def nodes(self) -> int:
        """Return the number of nodes if each pod with a claim is charged a whole node."""
        return self.copies * sum(pod_set.pods for pod_set in self.pod_sets)

    @cached_property
    def group(self) -> Group:
        """Return the pods of one copy, the hardest to place first, after the sort key of the group."""
        pods = sorted(
            (pod_set.vectors for pod_set in self.pod_sets for __ in range(pod_set.pods)),
            key=lambda alternatives: (-max(map(sum, alternatives)), len(alternatives), alternatives),
        )
        largest = max((sum(vector) for alternatives in pods for vector in alternatives), default=0)
        return (-largest, -len(pods), sum(map(len, pods))), tuple(pods)

    def least(self, kinds: tuple[int, ...]) -> int:
        """Return the minimum number of devices of these kinds for any choice of alternatives."""
        count = self._known_least.get(kinds)
        if count is None:
            count = self._known_least[kinds] = self.copies * sum(least_of(pod, kinds) for pod in self.group[1])
        return count

    @cached_property
    def _known_least(self) -> dict[tuple[int, ...], int]:
        return {}


class DeviceLedger:
    """A pool as a collection of nodes with free devices. Pods share nodes.

    Kubernetes selects the node of each pod. Therefore, a demand fits if any packing of all pods exists.
    """

    def __init__(self, pool: Pool, work: Work, memo: dict[object, Packing], *, greedy: bool = False) -> None:
        """Charge the unavailable devices. With `greedy`, a demand fits only if first fit finds a packing."""
        self.pool = pool
        self._work = work
        self._memo = memo
        self._greedy = greedy
        self._node: Vector = pool.claimable
        self._counts: dict[Group, int] = {}
        self._order: list[Group] = []
        self._known: Packing | None = None
        self._kinds = tuple(range(len(self._node)))
        # Maximum number of free devices of some kinds, by these kinds.
        self._left = {self._kinds: sum(self._node) * pool.nodes}
        # Pods of one copy are on different nodes, so each set of unavailable devices is on a separate node.
        node_counts = Counter(vector for vector in pool.unavailable if any(vector))
        self._unavailable = Demand(1, tuple(PodSet(nodes, (vector,)) for vector, nodes in sorted(node_counts.items())))
        self.add(self._unavailable)

    def copy(self) -> DeviceLedger:
        """Return a ledger with the same charges."""
        twin = DeviceLedger(self.pool, self._work, self._memo, greedy=self._greedy)
        twin._counts, twin._order = dict(self._counts), list(self._order)
        twin._known, twin._left = self._known, dict(self._left)
        return twin

    @property
    def state(self) -> object:
        """Return the charges. Ledgers of similar pools with equal states accept the same demands."""
        return self._load

    def left(self, kinds: tuple[int, ...] = ()) -> int:
        """Return the maximum number of free devices of these kinds, or of all kinds, for any choice of alternatives."""
        kinds = kinds or self._kinds
        if kinds not in self._left:
            charged = sum(count * least_of(pod, kinds) for group, count in self._counts.items() for pod in group[1])
            self._left[kinds] = sum(self._node[kind] for kind in kinds) * self.pool.nodes - charged
        return max(0, self._left[kinds])

    def fits(self, demand: Demand) -> bool:
        free = self._packed().free
        if free is None or not demand.pod_sets:
            return free is not None
        if demand.least(self._kinds) > self.left():
            return False
        return self._pack(self._with(demand.group, demand.copies), greedy=self._greedy).free is not None

    def add(self, demand: Demand) -> None:
        group = demand.group
        if not group[1]:
            return
        if group not in self._counts:
            insort(self._order, group)
        self._counts[group] = self._counts.get(group, 0) + demand.copies
        for kinds in self._left:
            self._left[kinds] -= demand.least(kinds)
        self._known = None

    def remove(self, demand: Demand) -> None:
        group = demand.group
        if not group[1]:
            return
        self._counts[group] -= demand.copies
        for kinds in self._left:
            self._left[kinds] += demand.least(kinds)
        if not self._counts[group]:
            del self._counts[group]
            self._order.remove(group)
        self._known = None

    @property
    def occupied(self) -> int:
        """Return the number of nodes that the packed charges use, or all nodes if the charges do not fit."""
        free = self._packed().free
        if free is None:
            return self.pool.open_nodes
        unused = 0
        for vector, count in self.pool.partly_unavailable.items():
            available = tuple(have - less for have, less in zip(self._node, vector, strict=True))
            unused += min(count, free.get(available, 0))
        return self.pool.open_nodes - self.free_nodes - unused

    @property
    def free_nodes(self) -> int:
        """Return the number of nodes with only free devices if the charges are packed, 0 if they do not fit."""
        return (self._packed().free or {}).get(self._node, 0)

    @property
    def overcommitted(self) -> str:
        """Return the reason why the charged replicas do not fit on the pool, with numbers. Empty if they fit, or if the
        search is undecided."""
        packed = self._packed()
        if packed.free is None and self._greedy:
            packed = self._pack(self._load, greedy=False)
        if packed.free is not None or not packed.proven or self.pool.arriving:
            return ""
        device_counts = []
        for position, device in enumerate(self.pool.devices):
            charged = sum(
                count * sum(max(pod, key=sum)[position] for pod in pods) for (__, pods), count in self._counts.items()
            )
            claimed = charged - sum(vector[position] for vector in self.pool.unavailable)
            if claimed:
                device_counts.append(f"{claimed} {device.name} claimed, {self._available(position)} available")
        nodes = _count(self.pool.nodes, "node")
        return f"its replicas do not fit on its {nodes}: {', '.join(device_counts)}{_shortfall(self.pool)}"

    def shortage(self, demand: Demand) -> str:
        """Return the reason why a demand does not fit, with numbers."""
        if not self.pool.open_nodes and self.pool.shortfall:
            return self.pool.shortfall
        packed = self._packed()
        if packed.free is None:
            return (
                self.overcommitted or "no packing of its replicas onto its nodes was found, so nothing new goes there"
            )
        __, pods = demand.group
        if not self._greedy and pods and not self._pack(self._with(demand.group, demand.copies), greedy=False).proven:
            return "whether it has room for the engine is not decided"
        needs = [max(pod, key=sum) for pod in pods] * demand.copies
        device_shortages = []
        for position, device in enumerate(self.pool.devices):
            desired = [vector[position] for vector in needs if vector[position]]
            if desired:
                best, total = self._free_of(position, packed.free)
                node_limit = "" if best is None else f"at most {best} on one node, "
                device_shortages.append(
                    f"{total} of {self._available(position)} {device.name} free, {node_limit}"
                    f"engine needs {_pods(desired, device.name)}"
                )
        text = "; ".join(device_shortages)
        if len(pods) > 1:
            text += f", each pod of a copy on its own node (of {self.pool.nodes})"
        return text + _shortfall(self.pool)

    def _available(self, position: int) -> int:
        """Return the number of devices of a kind on all nodes, without the unavailable devices."""
        unavailable = sum(vector[position] for vector in self.pool.unavailable)
        return self._node[position] * self.pool.nodes - unavailable

    def _free_of(self, position: int, free: Free) -> tuple[int | None, int]:
        """Return the maximum number of devices of a kind for one more pod in any packing, and the free devices of all
        nodes in this packing. The maximum is None if undecided."""
        best = max((vector[position] for vector, nodes in free.items() if nodes), default=0)
        total = _total(free, position)
        while best < self._node[position]:
            pod_vector: Vector = tuple(best + 1 if kind == position else 0 for kind in range(len(self._node)))
            demand = Demand(1, (PodSet(1, (pod_vector,)),))
            packed = self._pack(self._with(demand.group, 1), greedy=False)
            if packed.free is None:
                return best if packed.proven else None, total
            best += 1
            total = _total(packed.free, position) + best
        return best, total

    def _packed(self) -> Packing:
        """Return the packing of all charged pods."""
        if self._known is None:
            self._known = self._pack(self._load, greedy=self._greedy)
        return self._known

    @property
    def _load(self) -> Load:
        return tuple((group, self._counts[group]) for group in self._order)

    def _with(self, group: Group, copies: int) -> Load:
        position = bisect_left(self._order, group)
        load = [(charged_group, self._counts[charged_group]) for charged_group in self._order]
        if group in self._counts:
            load[position] = (group, self._counts[group] + copies)
        else:
            load.insert(position, (group, copies))
        return tuple(load)

    def _pack(self, load: Load, *, greedy: bool) -> Packing:
        key = (greedy, self._node, self.pool.nodes, load)
        packing = self._memo.get(key)
        if packing is None:
            packing = self._memo[key] = pack(self._node, self.pool.nodes, load, None if greedy else self._work)
        if not (packing.proven or greedy):
            self._work.undecided += 1
        return packing


class NodeLedger:
    """Ledger that charges a whole node for each pod with a claim. A node with some unavailable devices serves only pods
    that need no more than its other devices."""

    def __init__(self, pool: Pool, work: Work, memo: dict[object, Packing], *, greedy: bool = False) -> None:
        self.pool = pool
        self.used = pool.closed_nodes
        self._packed: DeviceLedger | None = None
        if pool.partly_unavailable:
            self._packed = DeviceLedger(_with_slots(pool), work, memo, greedy=greedy)

    def copy(self) -> NodeLedger:
        """Return a ledger with the same charges."""
        twin = copy(self)
        twin._packed = self._packed.copy() if self._packed else None
        return twin

    @property
    def state(self) -> object:
        """Return the charges. Ledgers of similar pools with equal states accept the same demands."""
        return self.used, self._packed.state if self._packed else None

    def left(self, _kinds: tuple[int, ...] = ()) -> int:
        """Return the number of free nodes."""
        return max(0, self.pool.nodes - self.used)

    def fits(self, demand: Demand) -> bool:
        if self.used + demand.nodes > self.pool.nodes:
            return False
        return self._packed is None or self._packed.fits(_slotted(demand))

    def add(self, demand: Demand) -> None:
        self.used += demand.nodes
        if self._packed:
            self._packed.add(_slotted(demand))

    def remove(self, demand: Demand) -> None:
        self.used -= demand.nodes
        if self._packed:
            self._packed.remove(_slotted(demand))

    @property
    def occupied(self) -> int:
        """Return the number of charged nodes, capped at the pool's total node count."""
        return min(self.used - self.pool.closed_nodes, self.pool.nodes)

    @property
    def free_nodes(self) -> int:
        """Return the number of free nodes, excluding nodes with unavailable devices."""
        return max(0, self.left() - sum(self.pool.partly_unavailable.values()))

    @property
    def overcommitted(self) -> str:
        """Return the reason why the charges exceed the pool, with numbers. Empty if the charges fit."""
        if self.pool.arriving:
            return ""
        if self.used > self.pool.nodes:
            used = self.used - self.pool.closed_nodes
            return f"its replicas need {_count(used, 'node')}, and it has {self.pool.open_nodes}{_shortfall(self.pool)}"
        if self._packed and self._packed.overcommitted:
            return f"its replicas need more devices than its nodes have{_shortfall(self.pool)}"
        return ""

    def shortage(self, demand: Demand) -> str:
        """Return the reason why a demand does not fit, with numbers."""
        if not self.pool.open_nodes and self.pool.shortfall:
            return self.pool.shortfall
        free = self._free(demand)
        return (
            f"{free} of {_count(self.pool.open_nodes, 'node')} free, engine needs {demand.nodes}{_shortfall(self.pool)}"
        )

    def _free(self, demand: Demand) -> int:
        """Return the maximum number of pods of a demand that fit. Pods with the most devices come first."""
        free = self.left()
        if self._packed is None:
            return free
        pods = _slotted(demand).group[1] * demand.copies
        return next(
            (
                number
                for number in range(min(free, len(pods)))
                if not self._packed.fits(_each_alone(pods[: number + 1]))
            ),
            free,
        )


SLOT = Device("node", "", count=1)
"""Device that each pod uses if it is charged a whole node."""


def _with_slots(pool: Pool) -> Pool:
    """Return a pool with a slot for one pod on each node. Nodes with unavailable devices also have a slot."""
    return replace(pool, devices=(*pool.devices, SLOT), unavailable=tuple((*vector, 0) for vector in pool.unavailable))


def _slotted(demand: Demand) -> Demand:
    """Return a demand with one slot for each pod."""
    return Demand(
        demand.copies,
        tuple(PodSet(pod_set.pods, tuple((*vector, 1) for vector in pod_set.vectors)) for pod_set in demand.pod_sets),
    )


def _each_alone(pods: Sequence[tuple[Vector, ...]]) -> Demand:
    return Demand(1, tuple(PodSet(1, alternatives) for alternatives in pods))


Ledger = NodeLedger | DeviceLedger  # pylint: disable=unsupported-binary-operation


def _shortfall(pool: Pool) -> str:
    return f"; {pool.shortfall}" if pool.shortfall else ""


def _total(free: Free, position: int) -> int:
    return sum(vector[position] * nodes for vector, nodes in free.items())


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _pods(desired: Sequence[int], device: str) -> str:
    """Return the needs of pods, such as `2 pods with 8 gpu each`."""
    pod_counts = [
        f"{_count(pods, 'pod')} with {count} {device}{' each' if pods > 1 else ''}"
        for count, pods in sorted(Counter(desired).items(), reverse=True)
    ]
    return " and ".join(pod_counts)
