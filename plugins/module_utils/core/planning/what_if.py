# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Answers to questions about a fleet: who moves, who finds no place, what services and deployments lose.

What is planned counts as running. What is asked happens to it all at once, and what can be placed again is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.fleet import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.loss import (
    Displaced,
    Loss,
    loss_of,
    without,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.question import (
    WHAT_IF,
    Question,
    QuestionError,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.scenario import (
    Scenario,
    planned,
    running_replica,
    usable_endpoints,
    with_resources,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Options,
    Pending,
    Replica,
    Schedule,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import nearest_name


@dataclass(frozen=True)
class Added:
    """The resources of the fleet with those that a question adds, and those of them whose manifests have errors."""

    resources: Sequence[api.Resource]
    held: Iterable[Ref] = ()


@dataclass(frozen=True)
class Move:
    """Move of a replica: it runs no longer (`gone`, with the reason), another one is placed (`new`), or one
    takes the place of the other."""

    namespace: str
    deployment: str
    gone: Replica | None
    new: Replica | None
    reason: str = ""


@dataclass(frozen=True)
class Count:
    """Replicas of a deployment, or endpoints of a service that are usable: `before`, `at_once` (when it has happened,
    and nothing is placed again), and `after`."""

    namespace: str
    name: str
    before: int
    at_once: int
    after: int

    @property
    def changes(self) -> bool:
        """Return whether any of the numbers differs."""
        return not self.before == self.at_once == self.after


@dataclass(frozen=True)
class Answer:
    """The answer to a question.

    `pending`: deployments that have more replicas without a place than before. `deployments` and `services` are those
    whose numbers change.
    """

    question: Question
    lost: Loss
    moves: tuple[Move, ...]
    pending: tuple[Pending, ...]
    deployments: tuple[Count, ...]
    services: tuple[Count, ...]


def answer(plan: Plan, question: Question, options: Options, added: Added | None = None) -> Answer:
    """Answer a question about a fleet as it is planned. Raises QuestionError and PlanError."""
    before = planned(plan, options)
    asked = before if added is None else with_resources(before, added.resources, added.held)
    asked = _scaled(asked, question.scale or {})
    lost = loss_of(asked, question.lose or ())
    at_once, displaced = without(asked, lost)
    decided = at_once.schedule()
    after = at_once.after(decided)
    missing = {(each.namespace, each.deployment): each.count for each in plan.schedule.pending}
    return Answer(
        question,
        lost,
        _moves(displaced, at_once, decided),
        tuple(each for each in decided.pending if each.count > missing.get((each.namespace, each.deployment), 0)),
        _counts(*(each.replicas() for each in (before, at_once, after))),
        _counts(*(_endpoints(each) for each in (before, at_once, after))),
    )


def _scaled(scenario: Scenario, replicas: Mapping[str, int]) -> Scenario:
    known = {f"{each.namespace}/{each.name}": each for each in scenario.deployments}
    unknown = [
        f"{WHAT_IF}.scale: the fleet has no ModelDeployment {name}. {nearest_name(name, known)}"
        for name in sorted(set(replicas) - set(known))
    ]
    if unknown:
        raise QuestionError(unknown)
    deployments = [replace(each, replicas=replicas.get(name, each.replicas)) for name, each in known.items()]
    return replace(scenario, deployments=tuple(deployments))


def _endpoints(scenario: Scenario) -> dict[Key, int]:
    return {key: len(found) for key, found in usable_endpoints(scenario, scenario.resources.values()).items()}


def _counts(before: Mapping[Key, int], at_once: Mapping[Key, int], after: Mapping[Key, int]) -> tuple[Count, ...]:
    counts = (
        Count(*key, before.get(key, 0), at_once.get(key, 0), after.get(key, 0))
        for key in sorted({*before, *at_once, *after})
    )
    return tuple(each for each in counts if each.changes)


def _moves(displaced: Sequence[Displaced], scenario: Scenario, decided: Schedule) -> tuple[Move, ...]:
    """Pair, for each deployment, what runs no longer with what is placed."""
    gone: dict[Key, list[tuple[Replica, str]]] = {}
    new: dict[Key, list[Replica]] = {}
    for replica, reason in [
        *((each.replica, each.reason) for each in displaced),
        *((each.replica, each.reason) for each in decided.dropped),
    ]:
        gone.setdefault((replica.namespace, replica.deployment), []).append((replica, reason))
    for placement in decided.placements:
        if placement.state == "new":
            placed = running_replica(placement, scenario.resource(placement).name)
            new.setdefault((placement.namespace, placement.deployment), []).append(placed)
    moves = []
    for key in sorted({*gone, *new}):
        left = sorted(gone.get(key, ()), key=lambda entry: (entry[0].cluster, entry[0].index))
        for old, placed in zip_longest(left, new.get(key, ())):
            moves.append(Move(*key, old[0] if old else None, placed, old[1] if old else ""))
    return tuple(moves)
