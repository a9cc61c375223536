# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rollout steps: changes of replicas in order, and reasons why replicas wait."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from ..._pydantic import Field
from .. import api
from ..planning import Plan
from ..planning.outage import deployment_labels, selects
from ..planning.rollout import Rollout
from ..text import count
from .text_table import wrapped

Action = Literal["create", "restart", "remove"]
_MOST_STEPS = 8


class ReplicaStep(api.Model):
    """Change of one replica in a step."""

    action: Action = Field(description="`create`, `restart` in place, or `remove`.")
    replica: str = Field(description="Name of the ModelReplica.")
    cluster: str = Field(description="Cluster of the replica.")


class RolloutSteps(api.Model):
    """Remaining steps of a rollout. Each step starts when the replicas of the previous step serve."""

    namespace: str = Field(description="Namespace of the ModelDeployment.")
    deployment: str = Field(description="Name of the ModelDeployment.")
    desired: int = Field(description="Desired number of replicas.")
    updated: int = Field(description="Number of replicas with the current revision.")
    old: int = Field(description="Number of replicas with an old revision.")
    services: list[str] = Field(description="ModelServices that route requests to the deployment.")
    stopped: str = Field(description="Replica that stopped the rollout, with the reason. Empty if none did.")
    steps: list[list[ReplicaStep]] = Field(description="Changes of each step.")
    waiting: str = Field(description="Reason why old replicas remain after all steps. Empty if none remain.")


def rollout_steps(decided: Plan, forecast: Sequence[Plan]) -> list[RolloutSteps]:
    """Return the steps of each rollout of a plan. `forecast`: later plans."""
    return [_steps(rollout, decided, forecast) for rollout in decided.rollouts]


def _steps(rollout: Rollout, decided: Plan, forecast: Sequence[Plan]) -> RolloutSteps:
    namespace, name = rollout.key
    steps, latest = [], rollout
    for plan in (decided, *forecast):
        current = next((candidate for candidate in plan.rollouts if candidate.key == rollout.key), None)
        if current is None:
            break
        latest = current
        if changes := list(_changes(current, plan)):
            steps.append(changes)
    broken = rollout.stopped_by
    reasons = sorted(set(latest.updating.waiting.values())) if not latest.is_step else []
    deployment = decided.context.fleet.deployments[rollout.key]
    services = [
        service.name
        for service in decided.context.fleet.services.values()
        if service.namespace == namespace and selects(service, deployment_labels(deployment))
    ]
    return api.construct(
        RolloutSteps,
        namespace=namespace,
        deployment=name,
        desired=rollout.bounds.desired,
        updated=rollout.current,
        old=rollout.old,
        services=sorted(services),
        stopped=f"{broken.name} on {broken.cluster}: {broken.reason}".removesuffix(": ") if broken else "",
        steps=steps,
        waiting="; ".join(reasons),
    )


def _changes(rollout: Rollout, plan: Plan) -> Iterator[ReplicaStep]:
    clusters = {view.name: view.cluster for view in rollout.views}
    for name in sorted(rollout.placing.removed):
        yield _change("remove", name, clusters[name])
    for placement, replica in zip(plan.schedule.placements, plan.replicas, strict=True):
        if placement.state == "new" and (placement.namespace, placement.deployment) == rollout.key:
            yield _change("create", replica.name, placement.cluster)
    for name in sorted(rollout.updating.updated):
        yield _change("restart", name, clusters[name])


def _change(action: Action, replica: str, cluster: str) -> ReplicaStep:
    return api.construct(ReplicaStep, action=action, replica=replica, cluster=cluster)


def table(rollouts: Iterable[RolloutSteps], width: int) -> list[str]:
    """Return rollouts as lines of text: a summary of each rollout, then its steps."""
    lines: list[str] = []
    for rollout in rollouts:
        lines += ["", *textwrap.wrap(_summary(rollout), width, subsequent_indent="  ", break_on_hyphens=False)]
        for number, step in enumerate(rollout.steps[:_MOST_STEPS], 1):
            lines += wrapped([f"{number}. {_step(step)}"], width)
        if len(rollout.steps) > _MOST_STEPS:
            lines.append(f"    and {count(len(rollout.steps) - _MOST_STEPS, 'more step')}")
        if rollout.waiting:
            reason = rollout.waiting if rollout.old == 1 else f"for each replica, {rollout.waiting}"
            lines += wrapped([f"{count(rollout.old, 'old replica')} left unchanged: {reason}"], width)
    return ["ROLLOUTS", *lines[1:]] if lines else []


def _summary(rollout: RolloutSteps) -> str:
    actions = Counter(change.action for step in rollout.steps for change in step)
    totals = [f"{number} {action}" for action, number in sorted(actions.items())]
    services = f"; services: {', '.join(rollout.services)}" if rollout.services else ""
    state = f"{rollout.updated} of {rollout.desired} updated"
    steps = f"{count(len(rollout.steps), 'step')}: {', '.join(totals)}" if rollout.steps else "no step is possible"
    stopped = f"; stopped by {rollout.stopped}" if rollout.stopped else ""
    return f"{rollout.namespace}/{rollout.deployment}: {state}; {steps}{services}{stopped}"


def _step(step: Sequence[ReplicaStep]) -> str:
    return ", ".join(f"{change.action} {change.replica} on {change.cluster}" for change in step)
