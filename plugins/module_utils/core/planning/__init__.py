# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Plan of a fleet: from resources, state of the last run and observations to every object of every cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from .. import api, names
from ..change.outage import Outage, outages
from ..compose import Options as Composing
from ..compose import model_replica
from ..compose.claim import with_claim_names
from ..compose.constants import SYSTEM_NAMESPACE
from ..compose.control import system_namespace
from ..compose.endpoint import http_url
from ..observation import Observed
from ..pricing import Catalogue, PricingError
from ..problem import Ref
from ..scheduling import adapters
from ..scheduling.binding import bind
from ..scheduling.fabric import pair_warnings
from ..scheduling.image_needs import driver_warnings
from ..scheduling.memory import memory_shortages
from ..scheduling.model import Cluster, Deployment, Options, Placement, Refusal, Replica, Schedule
from ..scheduling.placement import bound_schedule
from ..status.model_replica import ReplicaState
from ..status.secret_references import (
    MissingSecret,
    control_references,
    missing_secrets,
    observed_keys,
    replica_references,
)
from ..wire import Object
from . import caches, clusters, drain, mounts, outage, rollout, unbound
from .caches import Staged
from .clusters import Platform, pools_without_nodes, with_observed_nodes
from .context import Context, RolloutStage
from .fleet import Earlier, Key, build_fleet, nothing_earlier, written
from .model_prices import check_budgets
from .model_traffic import ModelTraffic, model_traffic
from .reach import drain_warnings
from .rollout import Rollout
from .traffic import Traffic, composed_endpoints, traffic
from .unbound import Mended
from .volumes import Volumes
from .workloads import Workloads, distinct

_INVALID = "its manifest has errors"


class PlanError(Exception):
    """Contradictory resources. The message has the remediation."""


@dataclass(frozen=True)
class Plan:
    """Desired state of the fleet.

    `control`: the objects of the control cluster.
    `workloads`: the objects of each inference cluster by cluster name, including clusters without objects.
    `replicas`: the ModelReplica of each placement, in the order of `schedule.placements`.
    `edited`: the keys (namespace, name) of kept replicas with a changed specification.
    `waiting`: the keys of kept replicas that keep the old specification until other clusters have the new one.
    `manual`: hand-written ModelReplicas.
    `unplanned`: replicas of deleted deployments.
    `clusters`, `deployments`: the input of the scheduler.
    `states`: the observed states of replicas; empty if the fleet is not observed.
    `unbound`: the reasons for pods without a node.
    """

    context: Context
    schedule: Schedule
    replicas: tuple[api.ModelReplica, ...]
    control: tuple[Object, ...]
    workloads: Workloads
    edited: frozenset[Key]
    waiting: frozenset[Key]
    manual: tuple[api.ModelReplica, ...]
    unplanned: tuple[Replica, ...]
    clusters: tuple[Cluster, ...]
    deployments: tuple[Deployment, ...]
    platforms: Mapping[str, Platform]
    caches: tuple[Staged, ...]
    traffic: Traffic
    models: ModelTraffic = field(default_factory=ModelTraffic)
    states: Mapping[Key, ReplicaState] = field(default_factory=dict)
    leaving: tuple[api.ModelReplica, ...] = ()
    rollouts: tuple[Rollout, ...] = ()
    unbound: tuple[Refusal, ...] = ()
    serving: frozenset[Key] = frozenset()
    frozen: tuple[api.ModelReplica, ...] = ()

    @cached_property
    def outages(self) -> tuple[Outage, ...]:
        """Return the outages that the plan causes although no manifest asks for them."""
        resolutions = {(service.namespace, service.name): service.resolution for service in self.traffic.services}
        if not self.context.fleet.serves_paths:
            resolutions |= {
                (model.route.service.namespace, model.route.service.name): model.route.resolution
                for model in self.models.routes
            }
        changes = outage.Changes(
            self.context,
            self.schedule,
            self.rollouts,
            self.serving,
            frozenset(map(_key, self.composed)),
            resolutions,
        )
        return tuple(outages(changes.deployments(), changes.services()))

    @property
    def composed(self) -> tuple[api.ModelReplica, ...]:
        """Return all ModelReplicas of the fleet: `replicas`, `manual`, and `leaving`."""
        return (*self.replicas, *self.manual, *self.leaving)

    @cached_property
    def running(self) -> tuple[Replica, ...]:
        """Return all replicas of the fleet in the format of the scheduler, in the order of `composed`."""
        return tuple(map(adapters.replica, self.composed))

    @cached_property
    def missing_secrets(self) -> tuple[MissingSecret, ...]:
        """Return the Secrets that resources refer to and that are known to be missing. Complete caches need no
        token."""
        context = self.context
        if context.observed is None:
            return ()
        complete = {
            (staged.namespace, staged.name)
            for staged in self.caches
            if staged.phases and all(phase.phase == "Ready" for phase in staged.phases)
        }
        caches = [cache for key, cache in context.fleet.caches.items() if key not in complete]
        path_gateway = context.fleet.path_gateway
        gateways = [*context.fleet.model_gateways, *([path_gateway] if path_gateway else [])]
        references = [
            *(
                reference
                for value in (*caches, *context.fleet.external.values(), *gateways)
                for reference in control_references(value)
            ),
            *(reference for replica in self.composed for reference in replica_references(replica)),
        ]
        return tuple(missing_secrets(references, observed_keys(context.observed)))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings about missing Secrets, node pools without nodes, overcommitted node pools, deployments
        that are not planned, pods without devices that another node pool would provide, pods that are or might be
        unschedulable, devices with too little memory, pairs without a common fabric, edits that cannot be applied,
        model gateways, rollouts, and drained clusters."""
        return (
            *map(str, self.missing_secrets),
            *pools_without_nodes(self.context),
            *(
                f"{claim}. The replicas are not moved. Add nodes to the pool, or drain the cluster"
                for claim in self.schedule.overcommitted
            ),
            *map(str, self.schedule.excluded),
            *map(str, self.schedule.claimless),
            *map(str, self.schedule.may_strand),
            *map(str, self.unbound),
            *map(str, memory_shortages(self.deployments, self.clusters, self.schedule.placements)),
            *map(str, driver_warnings(self.deployments, self.clusters, self.schedule.placements)),
            *map(str, pair_warnings(self.deployments, self.clusters, self.schedule.placements)),
            *(str(problem) for staged in self.caches for problem in staged.warnings),
            *self.models.warnings,
            *rollout.warnings(self.context, self.rollouts),
            *drain.unplaced(self.context, self.schedule),
            *drain_warnings(self.context),
        )

    @property
    def blocked_clusters(self) -> frozenset[str]:
        """Return the clusters that no reconcile pass waits for. New replicas on them serve once preempted replicas
        left."""
        return drain.blocked(self.schedule, self.leaving, self.states)

    @property
    def unknown_clusters(self) -> tuple[str, ...]:
        """Return the observed clusters that do not belong to the fleet, sorted."""
        observed = self.context.observed
        return tuple(sorted(set(observed.clusters if observed else ()) - {cluster.name for cluster in self.clusters}))


def plan(
    resources: Iterable[api.Resource],
    existing: Iterable[api.Resource] = (),
    invalid: Iterable[Ref] = (),
    options: Options | None = None,
    *,
    composing: Composing | None = None,
    observed: Observed | None = None,
    earlier: Earlier = nothing_earlier,
    statuses: Mapping[Ref, Mapping[str, Any]] | None = None,
    routed: Sequence[api.ModelRoute] = (),
    rollout_width: int = 1,
    staged: RolloutStage = "",
    catalogue: Catalogue | None = None,
) -> Plan:
    """Schedule all replicas and compose the desired state of the fleet. Raises PlanError.

    `existing`: the ModelReplicas and ModelEndpoints of the last run.
    `invalid`: resources with invalid manifests. The objects that earlier runs composed for them are left unchanged.
    `earlier`: a function that returns these objects.
    `observed`: if unset, everything is assumed to match the desired state.
    `statuses`, `routed`: the statuses and the ModelRoutes of the last run.
    `catalogue`: prices of nodes.
    """
    context = Context(
        build_fleet(resources, existing, invalid, earlier),
        observed,
        earlier,
        statuses or {},
        composing or Composing(),
        rollout_width,
        catalogue,
        routed=routed,
        staged=staged,
    )
    return _plan(context, options)


def _plan(context: Context, options: Options | None) -> Plan:
    platforms = clusters.platforms(context)
    volumes = Volumes(context)
    deployments, capacity = _inputs(context, platforms)
    manual = _manual(volumes, capacity)
    running, unplanned = _by_deployment(context, deployments)
    observed_replicas = rollout.Replicas(context)
    existing_replicas = [
        *rollout.with_health(context, observed_replicas, running),
        *map(adapters.replica, manual.values()),
    ]

    def decide(desired: Sequence[Deployment], existing: Sequence[Replica]) -> Mended:
        return _decided(context, desired, capacity, existing, options)

    mended, rollouts, desired = _steps(volumes, observed_replicas, deployments, existing_replicas, decide)
    decided = mended.schedule
    replicas, waiting = _replicas(context, decided, desired, manual, rollouts)
    evicted = drain.evicted(context, decided)
    outdated = rollout.outdated_replicas(context, rollouts)
    states = _states(context, observed_replicas, [*replicas, *manual.values(), *evicted, *outdated])
    leaving = (*drain.leaving(context, decided, evicted, states), *outdated)
    composed = [*replicas, *manual.values(), *leaving]
    cached = caches.stage(volumes, {name: platform.resource for name, platform in platforms.items()}, composed)
    flow = traffic(
        context, _endpoints(context, composed, capacity, states, rollout.withdrawn_replicas(context, rollouts))
    )
    models = model_traffic(context, platforms, composed, flow.endpoints)
    frozen = rollout.frozen_replicas(context, observed_replicas, (*replicas, *leaving), rollouts)
    return Plan(
        context=context,
        schedule=decided,
        replicas=replicas,
        control=_control(context, composed, platforms, flow, models),
        workloads=Workloads(context, [cluster.name for cluster in capacity], composed, cached, models, frozen),
        edited=_edited(context, decided, replicas, rollouts),
        waiting=waiting,
        manual=tuple(manual[key] for key in sorted(manual)),
        leaving=leaving,
        unbound=mended.left,
        unplanned=unplanned,
        clusters=tuple(sorted(capacity, key=lambda cluster: cluster.name)),
        deployments=tuple(deployments),
        platforms=platforms,
        caches=cached,
        traffic=flow,
        models=models,
        states=states,
        rollouts=tuple(rollouts.values()),
        serving=_serving(context, observed_replicas),
        frozen=frozen,
    )


MAX_STEPS = 60
"""Maximum number of steps of a forecast. Each step takes the time of a plan."""


def forecast(decided: Plan, options: Options | None = None) -> list[Plan]:
    """Return the plans that follow a plan, if all changed replicas start successfully. The last plan is the desired
    state of the fleet, unless a failed replica stops a rollout. Raises PlanError."""
    steps: list[Plan] = []
    current = replace(decided, context=replace(decided.context, failed=_failed(decided)))
    while len(steps) < MAX_STEPS and (current.rollouts or current.leaving or _lacks_endpoints(current)):
        fleet = replace(
            current.context.fleet,
            replicas={_key(replica): replica for replica in (*current.replicas, *current.leaving)},
            endpoints={(endpoint.namespace, endpoint.name): endpoint for endpoint in current.traffic.endpoints},
        )
        frozen = frozenset(map(_key, current.frozen))
        successor = _plan(replace(current.context, fleet=fleet, staged="forecast", frozen=frozen), options)
        if steps and _is_same(successor, current):
            break
        steps.append(successor)
        current = successor
    return steps


def _failed(decided: Plan) -> frozenset[Key]:
    """Return the failed replicas that a plan does not change."""
    views = [((step.key[0], view.name), view) for step in decided.rollouts for view in step.views]
    old = {key for key, view in views if not view.is_current}
    failed = {key for key, state in decided.states.items() if state.failed}
    return frozenset((failed & decided.context.fleet.replicas.keys()) - old)


def _is_same(successor: Plan, current: Plan) -> bool:
    """Return True if two successive plans are equal."""
    return (successor.composed, successor.traffic.endpoints, successor.frozen) == (
        current.composed,
        current.traffic.endpoints,
        current.frozen,
    )


def _lacks_endpoints(decided: Plan) -> bool:
    """Return True if any replica does not serve yet and therefore has no endpoint."""
    return any(state.serving is not True for state in decided.states.values())


Decide = Callable[[Sequence[Deployment], Sequence[Replica]], Mended]


def _steps(
    volumes: Volumes,
    replicas: rollout.Replicas,
    deployments: Sequence[Deployment],
    existing: Sequence[Replica],
    decide: Decide,
) -> tuple[Mended, dict[Key, Rollout], tuple[api.ModelReplica, ...]]:
    """Return the placements of all replicas, the steps of rollouts, and the ModelReplica of each placement.

    The first schedule applies all edits at once. If it would restart or remove serving replicas, the fleet is scheduled
    again with the limits of the next step of each rollout."""
    context = volumes.context
    surging = _with_surge(context, deployments, existing)
    all_at_once = decide(surging, existing)
    desired = _desired(volumes, all_at_once)
    rollouts = rollout.begin(context, replicas, all_at_once.schedule, desired)
    if not rollouts and surging == list(deployments):
        return all_at_once, {}, desired
    results: dict[int, Mended] = {}

    def decide_steps(steps: Mapping[Key, Rollout]) -> Schedule:
        result = decide(*rollout.scheduler_inputs(steps, deployments, existing))
        results[id(result.schedule)] = result
        return result.schedule

    endpoints = outage.Endpoints(context, _serving(context, replicas))
    rollouts, schedule = rollout.with_replacements(
        rollouts, all_at_once.schedule, decide_steps, lambda replica, others: not endpoints.last_of(replica, others)
    )
    rollouts = endpoints.stagger(rollout.finish(rollouts, schedule))
    decided = replace(results[id(schedule)], schedule=rollout.with_removals(rollouts, schedule, all_at_once.schedule))
    return decided, rollouts, _desired(volumes, decided)


def _with_surge(context: Context, deployments: Sequence[Deployment], existing: Sequence[Replica]) -> list[Deployment]:
    """Return the deployments with at least the number of existing replicas, because a rollout removes old replicas
    first."""
    counts = Counter((replica.namespace, replica.deployment) for replica in existing if replica.deployment)
    if context.observed is None and not context.staged:
        return list(deployments)
    return [
        replace(deployment, replicas=max(deployment.replicas, counts[deployment.key]))
        if deployment.replicas and not deployment.invalid
        else deployment
        for deployment in deployments
    ]


def _inputs(context: Context, platforms: Mapping[str, Platform]) -> tuple[list[Deployment], list[Cluster]]:
    try:
        check_budgets(context)
        return scheduler_inputs(context, platforms)
    except PricingError as error:
        raise PlanError(str(error)) from error


def _decided(
    context: Context,
    deployments: Sequence[Deployment],
    capacity: Sequence[Cluster],
    existing: Sequence[Replica],
    options: Options | None,
) -> Mended:
    """Return the placements of all replicas, and the nodes that their pods are bound to.

    Replicas with an unschedulable pod have other placements.
    """

    def decide(clusters: Sequence[Cluster], others: Sequence[Replica]) -> Schedule:
        return bound_schedule(deployments, clusters, others, options)

    decided = decide(capacity, existing)
    mended = unbound.mend(context, decided, capacity, existing, decide)
    if mended.schedule is decided:
        return mended
    # The other places were decided without the pools that were avoided.
    return replace(mended, schedule=bind(mended.schedule, capacity, existing, options))


def _desired(volumes: Volumes, mended: Mended) -> tuple[api.ModelReplica, ...]:
    """Return the ModelReplica of each placement."""
    return tuple(_replica(placement, volumes, mended) for placement in mended.schedule.placements)


def _replicas(
    context: Context,
    decided: Schedule,
    desired: Sequence[api.ModelReplica],
    manual: Mapping[Key, api.ModelReplica],
    rollouts: Mapping[Key, Rollout],
) -> tuple[tuple[api.ModelReplica, ...], frozenset[Key]]:
    """Return the ModelReplicas of all placements after this step, and the keys of unchanged replicas that wait for a
    later rollout step."""
    _refuse_equal_names(desired, manual)
    existing_keys = {
        (placement.namespace, placement.replica) for placement in decided.placements if placement.state == "kept"
    }
    waiting = frozenset(
        (namespace, name)
        for (namespace, __), step in rollouts.items()
        for name in step.updating.waiting
        if (namespace, name) in existing_keys
    )
    waiting |= _unreachable_edits(context, desired, existing_keys)
    existing = context.fleet.replicas
    replicas = (existing[_key(replica)] if _key(replica) in waiting else replica for replica in desired)
    return tuple(replicas), waiting


def _unreachable_edits(context: Context, desired: Iterable[api.ModelReplica], edited: Container[Key]) -> frozenset[Key]:
    """Return the edited replicas on unreachable clusters, because no object can be applied there."""
    return frozenset(
        _key(replica)
        for replica in desired
        if _key(replica) in edited
        and _silent(context, replica.spec.cluster_name)
        and context.fleet.replicas[_key(replica)] != replica
    )


def _by_deployment(
    context: Context, deployments: Iterable[Deployment]
) -> tuple[tuple[Replica, ...], tuple[Replica, ...]]:
    """Split existing replicas into replicas of existing deployments and replicas of deleted deployments."""
    deployment_keys = {deployment.key for deployment in deployments}
    replicas = [adapters.replica(replica) for replica in context.fleet.replicas.values()]
    running = tuple(replica for replica in replicas if (replica.namespace, replica.deployment) in deployment_keys)
    return running, tuple(
        replica for replica in replicas if (replica.namespace, replica.deployment) not in deployment_keys
    )


def _edited(
    context: Context, decided: Schedule, replicas: Sequence[api.ModelReplica], rollouts: Mapping[Key, Rollout]
) -> frozenset[Key]:
    """Return the kept replicas with a specification that changed since the last run, or that a rollout restarts."""
    earlier_replicas = context.fleet.replicas
    edited = {
        _key(replica)
        for placement, replica in zip(decided.placements, replicas, strict=True)
        if placement.state == "kept"
        and (existing := earlier_replicas[(placement.namespace, placement.replica)]) != replica
        and unbound.unmarked(existing) != unbound.unmarked(replica)
    }
    return frozenset(edited | {(key[0], name) for key, step in rollouts.items() for name in step.updating.updated})


def _key(replica: api.ModelReplica) -> Key:
    return replica.namespace, replica.name


def _refuse_equal_names(replicas: Iterable[api.ModelReplica], manual: Mapping[Key, api.ModelReplica]) -> None:
    for replica in replicas:
        if _key(replica) in manual:
            raise PlanError(
                f"the hand-written ModelReplica {replica.namespace}/{replica.name} has the name of a replica "
                f"of deployment {replica.labels[names.DEPLOYMENT_LABEL]}: rename it"
            )


def scheduler_inputs(context: Context, platforms: Mapping[str, Platform]) -> tuple[list[Deployment], list[Cluster]]:
    """Return the deployments and clusters in the format of the scheduler, including resources with manifest errors."""
    fleet = context.fleet
    deployments = [
        adapters.deployment(resource, fleet.caches, context.prices.currency) for resource in fleet.deployments.values()
    ]
    catalogue = adapters.DeviceCatalogue()
    capacity = [
        replace(
            with_observed_nodes(
                context,
                adapters.cluster(
                    platform.resource,
                    fleet.classes,
                    catalogue,
                    assumed_gateway=context.declared_gateway if context.declared(name) else None,
                    prices=context.prices,
                ),
            ),
            silent=_silent(context, name),
        )
        for name, platform in platforms.items()
    ]
    for ref in fleet.held:
        if ref.kind == "ModelDeployment":
            deployments.append(Deployment(ref.namespace, ref.name, replicas=0, invalid=_INVALID))
        elif ref.kind == "InferenceCluster":
            capacity.append(Cluster(ref.name, unknown=_INVALID))
    return deployments, capacity


def _silent(context: Context, cluster: str) -> bool:
    observed = context.observed_cluster(cluster)
    return observed is not None and bool(observed.unreachable)


def _manual(volumes: Volumes, capacity: Iterable[Cluster]) -> dict[Key, api.ModelReplica]:
    """Return the hand-written ModelReplicas on existing clusters."""
    cluster_names = {cluster.name for cluster in capacity}
    return {
        key: _mounting(key, replica, volumes)
        for key, replica in volumes.context.fleet.manual.items()
        if replica.spec.cluster_name in cluster_names
    }


def _mounting(key: Key, replica: api.ModelReplica, volumes: Volumes) -> api.ModelReplica:
    """Return a hand-written ModelReplica with the volume to mount, unless it names one or its manifest has errors."""
    reference = replica.spec.model_cache_ref
    if Ref("ModelReplica", *key) in volumes.context.fleet.held:
        return replica
    existing = volumes.context.fleet.manual_before.get(key)
    is_same_cluster = existing is not None and existing.spec.cluster_name == replica.spec.cluster_name
    replica = with_claim_names(replica, existing if is_same_cluster else None)
    if reference and reference.volume:
        return replica
    return mounts.remount(volumes, replica, existing if is_same_cluster else None)


def _replica(placement: Placement, volumes: Volumes, mended: Mended) -> api.ModelReplica:
    fleet = volumes.context.fleet
    existing = fleet.replicas.get((placement.namespace, placement.replica))
    if placement.state == "held" and existing:
        return existing
    deployment = fleet.deployments[(placement.namespace, placement.deployment)]
    served = volumes.context.served_name(deployment)
    desired = model_replica(deployment, placement.cluster, placement.index, placement.engines, served)
    avoided = mended.avoided.get((placement.namespace, placement.deployment)) if placement.state == "new" else None
    desired = with_claim_names(desired, existing)
    desired = unbound.marked(volumes.context, desired, existing, avoided or frozenset())
    return mounts.remount(volumes, desired, existing, keeps_pods=placement.state == "kept")


def _states(
    context: Context, replicas: rollout.Replicas, composed: Iterable[api.ModelReplica]
) -> dict[Key, ReplicaState]:
    return {} if context.observed is None else {_key(replica): replicas.state(replica) for replica in composed}


def _serving(context: Context, replicas: rollout.Replicas) -> frozenset[Key]:
    """Return the serving replicas. Replicas on unobserved clusters count as serving."""
    if context.observed is None:
        return frozenset()
    return frozenset(
        key
        for key, replica in context.fleet.replicas.items()
        if replicas.state(replica).serving and not _silent(context, replica.spec.cluster_name)
    )


def _endpoints(
    context: Context,
    composed: Iterable[api.ModelReplica],
    capacity: Iterable[Cluster],
    states: Mapping[Key, ReplicaState],
    withdrawn: Container[Key],
) -> tuple[api.ModelEndpoint, ...]:
    urls = {
        cluster.name: cluster.gateway_address and (cluster.gateway_url or http_url(cluster.gateway_address))
        for cluster in capacity
        if cluster.unknown != _INVALID and (cluster.gateway_address or context.answered(cluster.name))
    }
    serving = {key: state.serving if key not in withdrawn else False for key, state in states.items()}
    return composed_endpoints(context, composed, urls, serving)


def _control(
    context: Context,
    composed: Iterable[api.ModelReplica],
    platforms: Mapping[str, Platform],
    flow: Traffic,
    models: ModelTraffic,
) -> tuple[Object, ...]:
    built = [value for platform in platforms.values() for value in platform.objects] + clusters.held_objects(context)
    objects: list[Object] = [
        *map(written, composed),
        *map(written, flow.endpoints),
        *flow.objects,
        *models.control,
        *built,
    ]
    if any(value["metadata"].get("namespace") == SYSTEM_NAMESPACE for value in objects):
        objects.append(system_namespace())
    return distinct(objects)
