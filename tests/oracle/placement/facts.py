# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""An answer of the scheduler for a fleet, and what the solver knows about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Deployment,
    Engine,
    Placement,
    Replica,
    Schedule,
)
from ansible_collections.modelplane.fleet.tests.oracle.placement import rules
from ansible_collections.modelplane.fleet.tests.oracle.placement.rules import Composition, PoolKey
from ansible_collections.modelplane.fleet.tests.oracle.placement.solver import (
    Nodes,
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


def identity(one: Placement | Replica) -> Identity:
    return one.namespace, one.deployment, one.cluster, one.index


def where(one: Placement | Replica) -> str:
    return f"{one.deployment} {one.index} on {one.cluster}"


class Facts:
    """A fleet, the scheduler's answer, and questions about both.

    `closed` are the pools that are overcommitted by what ran before and stays: nothing new may go there.
    """

    def __init__(self, fleet: Fleet, decided: Schedule) -> None:
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
        self.existing: list[Replica | Placement] = [*others, *self.kept]
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
        self, deployment: Deployment, clusters: Sequence[str] = (), engines: Sequence[Engine] = ()
    ) -> bool | None:
        """Return whether one more replica (on some clusters only, of some engines only) can be placed while everything
        else stays on its pools; None where that is not known."""
        question = self.question()
        number = self._any_cluster(question, deployment, 1, clusters, engines)
        question.model.add(number >= 1)
        return self.answer(question, self.everything, question.possible, unknown=None)

    def best(self, members: Sequence[Deployment], fixed: Sequence[Replica | Placement]) -> dict[Key, int]:
        """The best numbers of new replicas, of each deployment given those of the earlier ones.

        Where the answer has the best ones of the earlier ones, it shows itself what is possible."""
        best: dict[Key, int] = {}
        for position, deployment in enumerate(members):
            actual, missing = self.placed[deployment.key], self.missing[deployment.key]
            as_placed = all(best[one.key] == self.placed[one.key] for one in members[:position])
            if as_placed and actual == missing:
                best[deployment.key] = actual
                continue
            question = self.question()
            for one in members[:position]:
                if best[one.key]:
                    question.model.add(self._any_cluster(question, one, best[one.key]) == best[one.key])
            number = self._any_cluster(question, deployment, missing)
            if as_placed:
                question.model.add(number > actual)
            question.model.maximize(number)
            found = self.answer(question, fixed, question.most, unknown=None)
            best[deployment.key] = actual if found is None else found
        return best

    def question(self) -> Question:
        return Question(self.nodes, self.fleet.options.accounting)

    def _any_cluster(
        self,
        question: Question,
        deployment: Deployment,
        most: int,
        clusters: Sequence[str] = (),
        engines: Sequence[Engine] = (),
    ) -> cp_model.LinearExprT:
        """The number of new replicas of a deployment, on all clusters that may take one."""
        engines = engines or deployment.engines
        numbers = []
        for cluster in self.fleet.clusters:
            if rules.ineligible(deployment, cluster) or (clusters and cluster.name not in clusters):
                continue
            closed = {name for on, name in self.closed if on == cluster.name}
            layouts = [
                [layout for layout in rules.layouts_of(engine, cluster) if not layout.pools & closed]
                for engine in engines
            ]
            if all(layouts):
                numbers.append(question.replicas(layouts, [engine.copies for engine in engines], most))
        return cp_model.LinearExpr.sum([0, *numbers])

    def answer(self, question: Question, fixed: Iterable[Replica | Placement], ask: Callable[[], T], unknown: T) -> T:
        """Charge what is fixed to the pools in question, then ask."""
        load = self.load(fixed)
        for pool in question.pools:
            question.charge(pool, load.get(pool, Counter()))
        question.fill()
        return self.ask(ask, unknown)

    def ask(self, ask: Callable[[], T], unknown: T) -> T:
        """Ask a question; answers that are not known are counted."""
        self.figures["questions"] += 1
        try:
            return ask()
        except UndecidedError:
            self.figures["undecided"] += 1
            return unknown
