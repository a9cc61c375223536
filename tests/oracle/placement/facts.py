# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""An answer of the scheduler for a fleet, and what the solver knows about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Deployment,
    Engine,
    Placement,
    Replica,
    Schedule,
)
from ansible_collections.modelplane.fleet.tests.oracle.placement import rules
from ansible_collections.modelplane.fleet.tests.oracle.placement.rules import Composition, Layout, PoolKey
from ansible_collections.modelplane.fleet.tests.oracle.placement.solver import (
    Nodes,
    Place,
    Question,
    UndecidedError,
    fits,
    merged,
)
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import Fleet
from ortools.sat.python import cp_model

Key = tuple[str, str]
"""Namespace and name of a deployment."""
Identity = tuple[str, str, str, int]
T = TypeVar("T")
Load = Mapping[PoolKey, Counter[Composition]]
"""Copies by what they have on a pool."""


def identity(one: Placement | Replica) -> Identity:
    return one.namespace, one.deployment, one.cluster, one.index


def where(one: Placement | Replica) -> str:
    return f"{one.deployment} {one.index} on {one.cluster}"


class Facts:
    """A fleet, the scheduler's answer, and questions about both.

    `leaving` are removed replicas that still have their devices. `closed` are the pools that are overcommitted by what
    ran before and stays: nothing new may go there.
    """

    def __init__(self, fleet: Fleet, decided: Schedule, leaving: Iterable[Replica] = ()) -> None:
        self.fleet, self.decided = fleet, decided
        self.figures: Counter[str] = Counter()
        self.clusters = {cluster.name: cluster for cluster in fleet.clusters}
        self.nodes = {
            (cluster.name, pool.name): Nodes(pool.nodes, tuple(device.count for device in pool.devices))
            for cluster in fleet.clusters
            for pool in cluster.pools
        }
        self.deployments = {deployment.key: deployment for deployment in fleet.deployments}
        self.ordered = sorted(fleet.deployments, key=lambda one: (-one.priority, one.created, one.namespace, one.name))
        self.kept = [one for one in decided.placements if one.state != "new"]
        self.new = [one for one in decided.placements if one.state == "new"]
        self.placed = Counter((one.namespace, one.deployment) for one in self.new)
        kept = Counter((one.namespace, one.deployment) for one in self.kept)
        self.missing = {key: max(0, one.replicas - kept[key]) for key, one in self.deployments.items()}
        others = [one for one in fleet.running if (one.namespace, one.deployment) not in self.deployments]
        self.existing: list[Replica | Placement] = [*others, *self.kept, *leaving]
        self.closed = {pool for pool, load in self.load(self.existing).items() if not self.fits(pool, load)}

    @property
    def everything(self) -> list[Replica | Placement]:
        return [*self.existing, *self.new]

    def load(self, replicas: Iterable[Replica | Placement]) -> dict[PoolKey, Counter[Composition]]:
        """Return what pools are charged for replicas."""
        return merged(
            charged
            for one in replicas
            if one.cluster in self.clusters
            for charged in rules.placed_charges(one.engines, self.clusters[one.cluster])
        )

    def fits(self, pool: PoolKey, load: Counter[Composition]) -> bool:
        return fits(self.nodes[pool], load, self.fleet.options.accounting)

    def takes_one_more(
        self,
        deployment: Deployment,
        cluster: str = "",
        engines: Sequence[Engine] = (),
        pools: Sequence[str] = (),
        beside: Iterable[Replica | Placement] | None = None,
    ) -> bool | None:
        """Return whether one more replica can be placed while everything else stays on its pools; None if not known.

        With arguments: on that cluster, of these engines only, on no other pools, beside these replicas only."""
        load = self.load(self.everything if beside is None else beside)
        closed = {pool for pool in self.closed if not self.fits(pool, load.get(pool, Counter()))}
        places = self._places(deployment, load, cluster, engines, pools, closed)
        if not places:
            return False
        question = self.question()
        question.model.add(_number(question, places, 1) >= 1)
        return self._answer(question, load, question.possible)

    def best(self, members: Sequence[Deployment], fixed: Sequence[Replica | Placement]) -> dict[Key, int]:
        """Return the best numbers of new replicas, of each deployment given those of the earlier ones.

        Where the answer has the best ones of the earlier ones, it shows itself what is possible."""
        best: dict[Key, int] = {}
        load = self.load(fixed)
        places = {one.key: self._places(one, load) for one in members}
        for position, deployment in enumerate(members):
            key, earlier = deployment.key, [one.key for one in members[:position]]
            actual, missing = self.placed[key], self.missing[key]
            as_placed = all(best[one] == self.placed[one] for one in earlier)
            best[key] = actual
            if not places[key] or (as_placed and actual == missing):
                continue
            question = self.question()
            for one in earlier:
                if best[one]:
                    question.model.add(_number(question, places[one], best[one]) == best[one])
            number = _number(question, places[key], missing)
            if as_placed:
                question.model.add(number > actual)
            question.model.maximize(number)
            found = self._answer(question, load, question.most)
            best[key] = actual if found is None else found
        return best

    def question(self) -> Question:
        return Question(self.nodes, self.fleet.options.accounting)

    def _places(
        self,
        deployment: Deployment,
        load: Load,
        on_cluster: str = "",
        engines: Sequence[Engine] = (),
        on_pools: Sequence[str] = (),
        closed_pools: Collection[PoolKey] | None = None,
    ) -> list[Place]:
        """Return what a new replica may be on, by cluster, without what is too full by mere numbers."""
        engines = engines or deployment.engines
        found: list[Place] = []
        for cluster in self.fleet.clusters:
            if rules.ineligible(deployment, cluster) or on_cluster not in ("", cluster.name):
                continue
            all_closed = self.closed if closed_pools is None else closed_pools
            closed = {name for on, name in all_closed if on == cluster.name}
            place = [
                (
                    engine.copies,
                    [
                        layout
                        for layout in rules.layouts_of(engine, cluster)
                        if not layout.pools & closed
                        and (not on_pools or layout.pools <= set(on_pools))
                        and self._has_room(layout, engine.copies, load)
                    ],
                )
                for engine in engines
            ]
            if all(layouts for _, layouts in place):
                found.append(place)
        return found

    def _has_room(self, layout: Layout, copies: int, load: Load) -> bool:
        """Return whether pools have devices enough for an engine beside what is charged, on whatever nodes."""
        for pool, pods in layout.charged:
            nodes = self.nodes[pool]
            if sum(count for _, count in pods) > nodes.count:
                return False
            both = Counter(load.get(pool, {}))
            both[pods] += copies
            least = [0 for _ in nodes.devices]
            for (charges, count), times in ((one, times) for pods_there, times in both.items() for one in pods_there):
                for kind in range(len(least)):
                    least[kind] += times * count * min(vector[kind] for vector in charges)
            if any(need > have * nodes.count for need, have in zip(least, nodes.devices, strict=True)):
                return False
        return True

    def _answer(self, question: Question, load: Load, ask: Callable[[], T]) -> T | None:
        """Charge what is there to the pools in question, then ask."""
        for pool in question.pools:
            question.charge(pool, load.get(pool, Counter()))
        question.fill()
        return self.ask(ask)

    def ask(self, ask: Callable[[], T]) -> T | None:
        """Ask a question; None, and counted, when the answer is not known."""
        self.figures["questions"] += 1
        try:
            return ask()
        except UndecidedError:
            self.figures["undecided"] += 1
            return None


def _number(question: Question, places: Sequence[Place], most: int) -> cp_model.LinearExpr:
    """The number of new replicas on any of several clusters."""
    return cp_model.LinearExpr.sum([question.replicas(place, most) for place in places])
