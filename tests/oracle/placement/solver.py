# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Questions about pods on nodes, answered by OR-tools' CP-SAT: an answer is exact, or says that it is not known.

Copies of an engine with the same pods on a pool are alike, so they are counted, not named: R copies can be separated
such that no two pods of one are on a node exactly when no node has more than R of all their pods. (A bipartite graph of
nodes and kinds of pods, with an edge for each pod, has an edge colouring with R colours that is balanced at every
vertex: de Werra 1971.)
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Accounting
from ansible_collections.modelplane.fleet.tests.oracle.placement.rules import (
    Charges,
    Composition,
    Layout,
    PoolKey,
    Vector,
)
from ortools.sat.python import cp_model

Load = Mapping[Composition, int]
"""Copies by what one copy has on the pool."""
Place = Sequence[tuple[int, Sequence[Layout]]]
"""Of each engine of a replica its copies, and its layouts on one cluster."""
WORK = 30.0
"""Limit of what one question may cost, in CP-SAT's deterministic measure of time: the same on every machine."""


class UndecidedError(Exception):
    """A question that could not be answered with the work it may cost."""


@dataclass(frozen=True)
class Nodes:
    """The nodes of a pool: how many, and the devices of each."""

    count: int
    devices: Vector


@dataclass
class _Copies:
    """Number of copies of a composition: a constant, and terms with an upper bound."""

    fixed: int = 0
    most: int = 0
    terms: list[cp_model.LinearExprT] = field(default_factory=list)


class Question:
    """A question about what is charged to pools, and what else may be."""

    def __init__(self, pools: Mapping[PoolKey, Nodes], accounting: Accounting) -> None:
        self.model = cp_model.CpModel()
        self._pools = pools
        self._accounting = accounting
        self._copies: dict[PoolKey, dict[Composition, _Copies]] = defaultdict(lambda: defaultdict(_Copies))
        self.used: dict[PoolKey, list[list[cp_model.LinearExpr]]] = {}
        """Devices taken, by pool, node and kind; once the nodes are in the model."""

    @property
    def pools(self) -> tuple[PoolKey, ...]:
        """The pools that something is charged to, or may be."""
        return tuple(self._copies)

    def charge(self, pool: PoolKey, load: Load) -> None:
        there = self._copies[pool]
        for pods, copies in load.items():
            there[pods].fixed += copies
            there[pods].most += copies

    def replicas(self, place: Place, most: int) -> cp_model.IntVar:
        """Add up to `most` replicas on one cluster, each engine of each by any of its layouts, and return it."""
        number = self.model.new_int_var(0, most, "")
        for per_replica, layouts in place:
            chosen = [self.model.new_int_var(0, most, "") for _ in layouts]
            self.model.add(cp_model.LinearExpr.sum(chosen) == number)
            for layout, times in zip(layouts, chosen, strict=True):
                for pool, pods in layout.charged:
                    copies_there = self._copies[pool][pods]
                    copies_there.most += most * per_replica
                    copies_there.terms.append(times * per_replica)
        return number

    def fill(self, *, interchangeable: bool = True) -> None:
        """Put the nodes into the model. That they are in order of what they hold, as far as they are interchangeable,
        loses no answer and saves trying all permutations."""
        for pool, load in self._copies.items():
            nodes = self._pools[pool]
            if self._accounting == "Nodes":
                self._count_nodes(nodes, load)
                continue
            used = self.used[pool] = self._fill(nodes, load)
            if interchangeable:
                weighed = [cp_model.LinearExpr.sum(one) for one in used]
                for more, less in itertools.pairwise(weighed):
                    self.model.add(more >= less)

    def _count_nodes(self, nodes: Nodes, load: Mapping[Composition, _Copies]) -> None:
        taken: list[cp_model.LinearExprT] = []
        for pods, copies in load.items():
            size = sum(count for _, count in pods)
            fits = all(_takes(nodes.devices, vector) for charges, _ in pods for vector in charges[:1])
            if not fits and copies.fixed:
                self.model.add_bool_or([])
            taken.append(size * copies.fixed)
            taken += [size * term for term in copies.terms]
        self.model.add(cp_model.LinearExpr.sum(taken) <= nodes.count)

    def _fill(self, nodes: Nodes, load: Mapping[Composition, _Copies]) -> list[list[cp_model.LinearExpr]]:
        taken: list[list[list[cp_model.LinearExprT]]] = [[[] for _ in nodes.devices] for _ in range(nodes.count)]
        for pods, copies in load.items():
            total = cp_model.LinearExpr.sum([copies.fixed, *copies.terms])
            on_node: list[list[cp_model.LinearExprT]] = [[] for _ in range(nodes.count)]
            for charges, count in pods:
                spread = self._spread(nodes, charges, copies.most, on_node, taken)
                self.model.add(cp_model.LinearExpr.sum(spread) == count * total)
            if sum(count for _, count in pods) > 1:
                for there in on_node:
                    self.model.add(cp_model.LinearExpr.sum(there) <= total)
        used = [[cp_model.LinearExpr.sum(kind) for kind in node] for node in taken]
        for node in used:
            for have, need in zip(nodes.devices, node, strict=True):
                self.model.add(need <= have)
        return used

    def _spread(
        self,
        nodes: Nodes,
        charges: Charges,
        most: int,
        on_node: list[list[cp_model.LinearExprT]],
        taken: list[list[list[cp_model.LinearExprT]]],
    ) -> list[cp_model.IntVar]:
        """Variables of equal pods: how many on each node take each vector."""
        found = []
        for vector in charges:
            room = min(have // need for have, need in zip(nodes.devices, vector, strict=True) if need)
            for node in range(nodes.count if room else 0):
                pods = self.model.new_int_var(0, min(most, room), "")
                found.append(pods)
                on_node[node].append(pods)
                for kind, need in enumerate(vector):
                    if need:
                        taken[node][kind].append(need * pods)
        return found

    def most(self) -> int | None:
        """The largest value of what the model maximizes; None when nothing satisfies the question."""
        solver = self._solve()
        return None if solver is None else round(solver.objective_value)

    def possible(self) -> bool:
        return self._solve() is not None

    def _solve(self) -> cp_model.CpSolver | None:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        solver.parameters.max_deterministic_time = WORK
        status = solver.solve(self.model)
        if status == cp_model.OPTIMAL:
            return solver
        if status == cp_model.INFEASIBLE:
            return None
        raise UndecidedError(solver.status_name(status))


def fits(nodes: Nodes, load: Load, accounting: Accounting) -> bool:
    """Return whether all that is charged to a pool can be on its nodes."""
    if accounting == "Devices" and _first_fit(nodes, load):
        return True
    question = Question({("", ""): nodes}, accounting)
    question.charge(("", ""), load)
    question.fill()
    return question.possible()


def _first_fit(nodes: Nodes, load: Load) -> bool:
    """Return whether a simple attempt finds a packing, which proves that there is one."""
    free = [list(nodes.devices) for _ in range(nodes.count)]
    for pods, copies in sorted(load.items(), key=_weight, reverse=True):
        for _ in range(copies):
            taken: set[int] = set()
            for charges, count in pods:
                for _ in range(count):
                    node = _first_node(free, charges, taken)
                    if node is None:
                        return False
                    taken.add(node)
    return True


def _first_node(free: list[list[int]], charges: Charges, without: set[int]) -> int | None:
    for vector in charges:
        for node, have in enumerate(free):
            if node not in without and _takes(have, vector):
                free[node] = [count - need for count, need in zip(have, vector, strict=True)]
                return node
    return None


def _weight(item: tuple[Composition, int]) -> tuple[int, int]:
    pods, _ = item
    return sum(count for _, count in pods), max((sum(charges[0]) for charges, _ in pods), default=0)


def _takes(have: Sequence[int], vector: Vector) -> bool:
    return all(need <= count for need, count in zip(vector, have, strict=True))


def merged(loads: Iterable[tuple[PoolKey, Composition, int]]) -> dict[PoolKey, Counter[Composition]]:
    found: dict[PoolKey, Counter[Composition]] = defaultdict(Counter)
    for pool, pods, copies in loads:
        found[pool][pods] += copies
    return found
