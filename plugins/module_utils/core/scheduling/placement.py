# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Placement of replicas: keep what can stay, then place what is missing.

`schedule` is a function of its arguments: no clock, no randomness, inputs sorted first, every tie ended by a name.
All deployments of the fleet are decided in one pass: first what each keeps, then what each adds, by priority.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.selector import (
    SelectorError,
    compile_selector,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.distribution import meets
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.eligibility import Explainer
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.filling import Filler
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.fitting import FleetCapacity
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Engine,
    Options,
    Pending,
    Refusal,
    Replica,
    Schedule,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.retaining import (
    State,
    grow_members,
    retain,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.selector_budget import (
    OverBudgetError,
    SelectorBudgetError,
)


def schedule(
    deployments: Iterable[Deployment],
    clusters: Iterable[Cluster],
    replicas: Iterable[Replica],
    options: Options | None = None,
) -> Schedule:
    """Place all replicas of all deployments.

    `replicas` are all that exist, of these deployments and of others; those whose deployment is not among
    `deployments` only take capacity. The same arguments in any order give the same answer, and the answer of a run
    whose replicas are the placements of an earlier one is that earlier answer. Raises SelectorBudgetError.
    """
    desired, existing = tuple(deployments), tuple(replicas)
    fleet = {cluster.name: cluster for cluster in sorted(clusters, key=lambda cluster: cluster.name)}
    capacity = FleetCapacity(fleet, options or Options())
    try:
        return _decide(desired, fleet, existing, capacity)
    except OverBudgetError:
        raise SelectorBudgetError(capacity.evaluations.report(desired, existing)) from None


def _decide(
    deployments: Iterable[Deployment],
    fleet: Mapping[str, Cluster],
    replicas: Iterable[Replica],
    capacity: FleetCapacity,
) -> Schedule:
    shapes: dict[tuple[Engine, ...], tuple[Engine, ...]] = {}
    states = {
        deployment.key: State(_checked(deployment), shapes.setdefault(deployment.engines, deployment.engines))
        for deployment in sorted(deployments, key=lambda deployment: deployment.order)
    }
    for replica in sorted(replicas, key=lambda replica: (replica.namespace, replica.name)):
        state = states.get((replica.namespace, replica.deployment)) if replica.deployment else None
        if state:
            (state.leaving if replica.leaves else state.existing).append(replica)
        else:
            capacity.charge(replica.cluster, replica.engines)
    for state in states.values():
        retain(state, fleet, capacity)
    for state in states.values():
        grow_members(state, capacity)
    filler = Filler(fleet, capacity)
    filler.fill(tuple(states.values()))
    explainer = Explainer(capacity)
    ordered = [states[key] for key in sorted(states)]
    return Schedule(
        tuple(placement for state in ordered for placement in state.placements(fleet)),
        tuple(pending for state in ordered if (pending := _pending(state, fleet, explainer, filler))),
        tuple(dropped for state in ordered for dropped in state.dropped),
        tuple(Refusal(reason, pool, (cluster,)) for cluster, pool, reason in capacity.overcommitted()),
        tuple(refusal for state in ordered for refusal in state.claimless),
    )


def _checked(deployment: Deployment) -> Deployment:
    """The deployment, marked invalid when one of its selectors does not compile."""
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


def _pending(state: State, fleet: Mapping[str, Cluster], explainer: Explainer, filler: Filler) -> Pending | None:
    if state.missing <= 0:
        return None
    deployment = state.deployment
    counts = f"{deployment.replicas - state.missing} of {deployment.replicas} replicas scheduled"
    refusals: tuple[Refusal, ...] = ()
    if deployment.invalid:
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
