# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Placement of replicas: keep replicas that can stay, then place the missing replicas.

`schedule` is a pure function of its arguments. It uses no clock and no random numbers, sorts its input, and uses names
to decide ties. One pass decides all deployments of the fleet: first the kept replicas of each deployment, then the new
replicas, by priority.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ..devices.selector import SelectorError, compile_selector
from .binding import bind
from .distribution import meets
from .eligibility import Explainer
from .filling import Filler
from .fitting import FleetCapacity
from .model import Cluster, Deployment, Engine, Excluded, Options, Pending, Placement, Refusal, Replica, Schedule
from .pinning import pin
from .retaining import State, grow_members, retain
from .search_budget import Owner
from .selector_budget import Evaluations, OverBudgetError, Shares, share_out


def schedule(
    deployments: Iterable[Deployment],
    clusters: Iterable[Cluster],
    replicas: Iterable[Replica],
    options: Options | None = None,
) -> Schedule:
    """Place all replicas of all deployments.

    The order of deployments, clusters, and replicas does not affect the result. If the replicas are the placements of
    an earlier result, the result is the same.

    The plan leaves a deployment unchanged if its selectors exceed their share of the budget, or if the planner fails
    for it. All other deployments are decided.

    replicas: all existing replicas. Replicas of deployments outside `deployments` only use capacity.
    """
    return _schedule(deployments, clusters, replicas, options or Options(), is_bound=False)


def bound_schedule(
    deployments: Iterable[Deployment],
    clusters: Iterable[Cluster],
    replicas: Iterable[Replica],
    options: Options | None = None,
) -> Schedule:
    """Return the result of `schedule` with claims and planned nodes that allow kube-scheduler to bind all pods.

    The reasons of pending replicas account for these claims, so that the next run has the same reasons.
    """
    return _schedule(deployments, clusters, replicas, options or Options(), is_bound=True)


def _schedule(
    deployments: Iterable[Deployment],
    clusters: Iterable[Cluster],
    replicas: Iterable[Replica],
    options: Options,
    *,
    is_bound: bool,
) -> Schedule:
    desired, existing = list(map(_checked, deployments)), list(replicas)
    fleet = {cluster.name: cluster for cluster in sorted(clusters, key=lambda cluster: cluster.name)}
    excluded: dict[Owner, Excluded] = {}
    shares: Shares | None = None
    while True:
        evaluations = Evaluations(options.selector_budget, shares)
        capacity = FleetCapacity(fleet, options, evaluations)
        try:
            decision = _Decision(desired, fleet, existing, capacity, excluded)
            decided = decision.schedule()
            if is_bound:
                decided = bind(decided, fleet.values(), existing, options, evaluations)
                decision.charge_bound(decided.placements)
            return decision.explained(decided)
        except OverBudgetError:
            shares = share_out(desired, fleet.values(), existing, options.selector_budget)
            for owner, message in shares.exceeded.items():
                excluded[owner] = Excluded(*owner, "SelectorBudgetExceeded", message)
        except _DEFECTS as error:
            defective = capacity.work.owner
            if defective is None or defective in excluded:
                raise
            excluded[defective] = Excluded(*defective, "PlanningFailed", _defect(error))


_DEFECTS = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that only a planner defect raises. The plan leaves the current deployment unchanged."""


def _defect(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
    return (
        f"the planner failed with {type(error).__name__} in {where}: {error}. This is a defect of modelplane.fleet: "
        "report it with this message, the manifests of the fleet and the plan.json of the last run"
    )


class _Decision:
    """Decisions on all deployments, and the remaining capacity."""

    def __init__(
        self,
        deployments: Iterable[Deployment],
        fleet: Mapping[str, Cluster],
        replicas: Iterable[Replica],
        capacity: FleetCapacity,
        excluded: Mapping[Owner, Excluded],
    ) -> None:
        self._fleet = fleet
        self._capacity = capacity
        self._excluded = excluded
        shapes: dict[tuple[Engine, ...], tuple[Engine, ...]] = {}
        states = {
            deployment.key: State(
                replace(deployment, invalid=excluded[deployment.key].message)
                if deployment.key in excluded
                else deployment,
                shapes.setdefault(deployment.engines, deployment.engines),
            )
            for deployment in sorted(deployments, key=lambda deployment: deployment.order)
        }
        for replica in sorted(replicas, key=lambda replica: (replica.namespace, replica.name)):
            state = states.get((replica.namespace, replica.deployment)) if replica.deployment else None
            if state:
                (state.leaving if replica.leaves else state.existing).append(replica)
            elif not replica.stranded:
                capacity.charge(replica.cluster, replica.engines)
        for step in (partial(retain, fleet=fleet, capacity=capacity), partial(grow_members, capacity=capacity)):
            for state in states.values():
                capacity.work.owner = state.deployment.key
                step(state)
        self._filler = Filler(fleet, capacity)
        self._filler.fill(tuple(states.values()))
        capacity.work.owner = None
        self._states = {key: states[key] for key in sorted(states)}

    def schedule(self) -> Schedule:
        """Return the decisions without reasons."""
        states = self._states.values()
        return Schedule(
            tuple(placement for state in states for placement in state.placements(self._fleet)),
            (),
            tuple(dropped for state in states for dropped in state.dropped),
            claimless=tuple(refusal for state in states for refusal in state.claimless),
        )

    def charge_bound(self, placements: Iterable[Placement]) -> None:
        """Charge new and edited replicas with their claims. The next run does the same."""
        if all(state.missing <= 0 for state in self._states.values()):
            return
        fits = {(key, name): list(fits) for key, state in self._states.items() for name, fits in state.new.items()}
        kept_entries = {
            (key, entry.placement.cluster, entry.placement.index): entry
            for key, state in self._states.items()
            for entry in state.kept
        }
        capacity = self._capacity
        for placement in placements:
            key, name = (placement.namespace, placement.deployment), placement.cluster
            fit = fits[key, name].pop(0) if placement.state == "new" else None
            entry = None if fit else kept_entries[key, name, placement.index]
            if entry and (
                placement.state == "held" or entry.replica.stranded or _claims(placement) == _claims(entry.placement)
            ):
                continue
            layouts = pin(self._states[key].engines, placement.engines, self._fleet[name], capacity)
            if isinstance(layouts, str):
                continue
            if fit:
                capacity.discharge_fit(name, fit)
            for layout in entry.layouts if entry else ():
                capacity.discharge_layout(name, layout)
            for layout in layouts:
                capacity.charge_layout(name, layout)

    def explained(self, decided: Schedule) -> Schedule:
        """Return a schedule with the reasons of pending replicas and the overcommitted pools."""
        explainer = Explainer(self._capacity)
        pending = []
        for key, state in self._states.items():
            self._capacity.work.owner = key
            if state.missing > 0:
                pending.append(_pending(state, self._fleet, explainer, self._filler, self._excluded.get(key)))
        self._capacity.work.owner = None
        return replace(
            decided,
            pending=tuple(pending),
            excluded=tuple(self._excluded[key] for key in sorted(self._excluded.keys() & self._states.keys())),
            overcommitted=tuple(
                Refusal(reason, pool, (cluster,)) for cluster, pool, reason in self._capacity.overcommitted()
            ),
        )


def _claims(placement: Placement) -> list[tuple[Mapping[str, Any], ...]]:
    return [member.device_requests for engine in placement.engines for member in engine.members]


def _checked(deployment: Deployment) -> Deployment:
    """Return the deployment, marked as invalid if one of its selectors does not compile."""
    if deployment.invalid:
        return deployment
    for engine in deployment.engines:
        for member in engine.members:
            for request in member.requests:
                for text in request.selectors:
                    try:
                        compile_selector(text)
                    except SelectorError as error:
                        return replace(
                            deployment,
                            invalid=f"Invalid nodeSelector CEL expression: engine {engine.name}, "
                            f"device {request.name}: {error}",
                        )
    return deployment


def _pending(
    state: State, fleet: Mapping[str, Cluster], explainer: Explainer, filler: Filler, excluded: Excluded | None
) -> Pending:
    deployment = state.deployment
    counts = f"{deployment.replicas - state.missing} of {deployment.replicas} replicas scheduled"
    refusals: tuple[Refusal, ...] = ()
    if excluded:
        reason, message = str(excluded.reason), excluded.message
    elif deployment.invalid:
        reason, message = "InvalidNodeSelector", deployment.invalid
    elif deployment.hold:
        reason, message = "ModelCacheNotFound", deployment.hold
    else:
        refused = filler.refusals(state)
        refusals = explainer.refusals(
            state.deployment, state.engines, fleet.values(), refused, undecided=state.undecided
        )
        candidates = sum(meets(cluster, deployment.cluster_selector) for cluster in fleet.values())
        reason = "InsufficientCapacity" if candidates else "NoClusters"
        clusters = "1 cluster" if candidates == 1 else f"{candidates} clusters"
        message = f"{counts} (checked {clusters})"
    return Pending(deployment.namespace, deployment.name, state.missing, reason, message, refusals)
