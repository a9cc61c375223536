# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Answers to queries about a fleet: moved and unschedulable replicas, and losses of services and deployments.

Planned replicas count as running. All events of a query happen at the same time, and then displaced replicas are placed
again if possible. Prices do not move running replicas. They only affect the placement of new replicas in the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import zip_longest

from .. import api
from ..pricing import AssumedPrices, Catalogue, PricingError, money
from ..problem import Ref
from ..scheduling.cost import spent_by_deployment
from ..scheduling.model import Options, Pending, Replica, Schedule
from ..text import entry_path
from . import Plan
from .fleet import Key
from .loss import Displaced, Loss, loss_of, pools_of, without
from .question import WHAT_IF, Question, QuestionError
from .reach import Reach, reaches, serving_gateways
from .scenario import Scenario, before_plan, planned, usable_endpoints, with_prices, with_resources

_NOT_YET = "does not run yet, and these prices decide on its place"


@dataclass(frozen=True)
class Added:
    """Resources of the fleet, including the resources that a query adds."""

    resources: Sequence[api.Resource]
    held: Iterable[Ref] = ()
    """Resources with manifest errors."""


@dataclass(frozen=True)
class Move:
    """Move of a replica.

    `gone`: the replica that no longer runs, with the reason.
    `new`: the replica that is placed. With both fields, the new replica replaces the other.
    """

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
        """Return True if any of the numbers differs."""
        return not self.before == self.at_once == self.after


@dataclass(frozen=True)
class CeilingExceeded:
    """Deployment that exceeds its cost ceiling after the query, but not before."""

    namespace: str
    name: str
    cost: Fraction
    ceiling: Fraction
    currency: str

    def __str__(self) -> str:
        return (
            f"{self.namespace}/{self.name} costs {money(self.cost, self.currency)} per hour, more than the "
            f"{money(self.ceiling, self.currency)} of its spec.cost.ceilingPerHour: what runs stays, and no more "
            "of its replicas are placed"
        )


@dataclass(frozen=True)
class LessReach:
    """Service that loses Model gateways."""

    namespace: str
    name: str
    lost: tuple[str, ...]
    """Names of the lost gateways."""
    left: Reach
    """Remaining gateways."""


@dataclass(frozen=True)
class LostGateways:
    """Lost Model gateways with their clusters, and the services that lose them."""

    clusters: Mapping[str, str]
    services: tuple[LessReach, ...]

    @property
    def cut_off(self) -> list[LessReach]:
        """Return the services that no gateway serves then."""
        return [service for service in self.services if service.left.is_cut_off]


@dataclass(frozen=True)
class Answer:
    """Answer to a query.

    `pending`: deployments with more unschedulable replicas than before.
    `deployments`, `services`: deployments and services with changed numbers.
    `gateways`: the lost gateways, None in a fleet without Model gateways.
    `before`, `after`: the planned fleet and the resulting fleet, to compare their costs.
    """

    question: Question
    lost: Loss
    moves: tuple[Move, ...]
    pending: tuple[Pending, ...]
    deployments: tuple[Count, ...]
    services: tuple[Count, ...]
    over: tuple[CeilingExceeded, ...]
    gateways: LostGateways | None
    before: Scenario = field(compare=False, repr=False)
    after: Scenario = field(compare=False, repr=False)


def answer(
    plan: Plan, question: Question, options: Options, added: Added | None = None, catalogue: Catalogue | None = None
) -> Answer:
    """Answer a query about the planned fleet. Raises QuestionError and PlanError.

    `added`: the resources of the fleet and of the query.
    `catalogue`: the prices of the query.
    """
    planned_scenario = planned(plan, options)
    queried_scenario = (
        planned_scenario if added is None else with_resources(planned_scenario, added.resources, added.held)
    )
    lost = loss_of(queried_scenario, question)
    is_priced = bool(question.price or question.prices)
    queried_scenario = _priced(queried_scenario, question, catalogue) if is_priced else queried_scenario
    queried_scenario = _scaled(queried_scenario, question.scale or {})
    at_once, displaced = without(queried_scenario, lost)
    start = without(before_plan(queried_scenario, plan), lost)[0] if is_priced else at_once
    decided = start.schedule()
    final_scenario = start.after(decided)
    over = _over(planned_scenario)
    missing = {(deployment.namespace, deployment.deployment): deployment.count for deployment in plan.schedule.pending}
    return Answer(
        question,
        lost,
        _moves(queried_scenario, final_scenario, _reasons(displaced, decided)),
        tuple(
            deployment
            for deployment in decided.pending
            if deployment.count > missing.get((deployment.namespace, deployment.deployment), 0)
        ),
        _counts(*(scenario.replicas() for scenario in (planned_scenario, at_once, final_scenario))),
        _counts(*(_endpoints(scenario) for scenario in (planned_scenario, at_once, final_scenario))),
        tuple(ceiling for key, ceiling in _over(final_scenario).items() if key not in over),
        _lost_gateways(queried_scenario, lost) if queried_scenario.context.fleet.has_model_gateways else None,
        planned_scenario,
        final_scenario,
    )


def _priced(scenario: Scenario, question: Question, catalogue: Catalogue | None) -> Scenario:
    """Return a scenario with the prices of a question. Raises QuestionError."""
    class_prices, fleet_currency = question.price or {}, scenario.context.prices.currency
    currencies = {catalogue.currency: "prices"} if catalogue and question.prices else {}
    for name, price in sorted(class_prices.items()):
        currencies.setdefault(price.currency or fleet_currency, f"{entry_path('price', name)}.currency")
    currency = fleet_currency or next(filter(None, currencies), "")
    problems = [
        f"{WHAT_IF}.{path}: prices in {unit} cannot be compared with those of the fleet, which are in {currency}. "
        "Convert them"
        for unit, path in currencies.items()
        if unit and unit != currency
    ]
    if not currency and not problems:
        problems.append(f"{WHAT_IF}.price: the fleet knows no prices, and so no currency. Give it: currency: USD")
    if problems:
        raise QuestionError(problems)
    try:
        prices = scenario.context.catalogue if catalogue is None else catalogue
        return with_prices(scenario, prices, AssumedPrices(class_prices, currency) if class_prices else None)
    except PricingError as error:
        raise QuestionError([str(error)]) from error


def _over(scenario: Scenario) -> dict[Key, CeilingExceeded]:
    """Return the deployments that exceed their cost ceiling."""
    limits = {
        deployment.key: deployment.cost
        for deployment in scenario.deployments
        if deployment.cost and deployment.cost.ceiling is not None
    }
    costs = spent_by_deployment(limits, scenario.running, scenario.clusters)
    exceeded = {}
    for key, limit in sorted(limits.items()):
        cost, ceiling = costs[key].cost, Fraction(limit.ceiling or 0)
        if cost > ceiling and not limit.invalid:
            exceeded[key] = CeilingExceeded(*key, cost, ceiling, limit.currency)
    return exceeded


def _scaled(scenario: Scenario, replicas: Mapping[str, int]) -> Scenario:
    deployments = (
        replace(deployment, replicas=replicas.get(f"{deployment.namespace}/{deployment.name}", deployment.replicas))
        for deployment in scenario.deployments
    )
    return replace(scenario, deployments=tuple(deployments))


def _endpoints(scenario: Scenario) -> dict[Key, int]:
    return {key: len(endpoints) for key, endpoints in usable_endpoints(scenario, scenario.resources.values()).items()}


def _counts(before: Mapping[Key, int], at_once: Mapping[Key, int], after: Mapping[Key, int]) -> tuple[Count, ...]:
    counts = (
        Count(*key, before.get(key, 0), at_once.get(key, 0), after.get(key, 0))
        for key in sorted({*before, *at_once, *after})
    )
    return tuple(entry for entry in counts if entry.changes)


def _lost_gateways(scenario: Scenario, lost: Loss) -> LostGateways:
    """Return the gateways that are lost with clusters.

    The loss of a node pool affects no gateway, because the nodes of gateways are unknown.
    """
    reach_by_service = reaches(scenario.context, {cluster.name for cluster in scenario.clusters})
    serving = serving_gateways(scenario.context, lost.clusters)
    clusters = {gateway.name: cluster for cluster, gateway in serving.items()}
    losing = []
    for key, reach in reach_by_service.items():
        lost_gateways = reach.on(lost.clusters)
        clusters.update(lost_gateways)
        if lost_gateways:
            losing.append(LessReach(*key, tuple(lost_gateways), reach.without(lost.clusters)))
    return LostGateways(dict(sorted(clusters.items())), tuple(losing))


def _reasons(displaced: Iterable[Displaced], decided: Schedule) -> dict[Key, str]:
    """Return the reason for the end of each replica, by namespace and name."""
    stopped = [(entry.replica, entry.reason) for entry in decided.dropped]
    stopped += [(entry.replica, entry.reason) for entry in displaced]
    return {(replica.namespace, replica.name): reason for replica, reason in stopped}


def _moves(before: Scenario, after: Scenario, reasons: Mapping[Key, str]) -> tuple[Move, ...]:
    """Return the moves of each deployment, as pairs of a stopped replica and a placed replica."""
    ran, runs = ({_place(replica) for replica in scenario.running} for scenario in (before, after))
    stopped: dict[Key, list[Replica]] = {}
    new: dict[Key, list[Replica]] = {}
    for replicas_by_deployment, scenario, other_places in ((stopped, before, runs), (new, after, ran)):
        for replica in scenario.running:
            if _place(replica) not in other_places:
                replicas_by_deployment.setdefault((replica.namespace, replica.deployment), []).append(replica)
    moves = []
    for key in sorted({*stopped, *new}):
        stopped_replicas = sorted(stopped.get(key, ()), key=lambda replica: (replica.cluster, replica.index))
        for old, placed in zip_longest(stopped_replicas, new.get(key, ())):
            reason = reasons.get((old.namespace, old.name), _NOT_YET) if old else ""
            moves.append(Move(*key, old, placed, reason))
    return tuple(moves)


def _place(replica: Replica) -> tuple[str, str, str, tuple[str, ...]]:
    return replica.namespace, replica.name, replica.cluster, tuple(pools_of(replica))
