# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rollouts of a fleet: inputs of the rollout planner, and inputs of the scheduler for each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from .. import api, names
from ..api.model_deployment import Rollout as Settings
from ..change.rollout import (
    Bounds,
    Health,
    Placing,
    ReplicaView,
    Updating,
    failed_replica,
    plan_placing,
    plan_updates,
    replace_in_place,
    replaceable_replicas,
)
from ..compose import replica_objects
from ..compose.backend import endpoint_objects, endpoint_problem
from ..compose.constants import SPEC_HASH_ANNOTATION
from ..compose.gateway import backend_of
from ..compose.owner import Owner
from ..compose.workload_cluster import WORKLOADS
from ..observation import ObservedCluster
from ..scheduling.model import Deployment, Dropped, Pending, Replica, Schedule
from ..status.conditions import READY
from ..status.model_deployment import RolloutState
from ..status.model_endpoint import model_endpoint
from ..status.model_replica import DECLARED, ReplicaState, remember, replica_state
from ..text import count, parse_time
from ..wire import Object, Objects, entries, fields, number, text
from .context import Context
from .fleet import Key

Revision = tuple[str, ...]
"""Digests of the workloads of a replica. Pods restart if a digest changes."""

_FROZEN: Revision = ("",)
"""Revision of frozen replicas in a forecast. It equals no other revision."""

MAX_TRIES = 8
"""Maximum number of replacements in place that a plan tries. Each try takes the time of a plan."""


@dataclass(frozen=True)
class Rollout:
    """Step of a rollout of one deployment.

    placing, updating: the two halves of the step.
    placed: number of new replicas in this step.
    """

    key: Key
    bounds: Bounds
    views: tuple[ReplicaView, ...]
    placing: Placing
    updating: Updating = field(default_factory=Updating)
    placed: int = 0

    @property
    def stopped_by(self) -> ReplicaView | None:
        """Return the replica that stops the rollout; None if the rollout continues."""
        return failed_replica(self.views)

    @property
    def current(self) -> int:
        """Return the number of existing replicas with the current revision."""
        return sum(view.is_current for view in self.views)

    @property
    def old(self) -> int:
        """Return the number of existing replicas with an old revision."""
        return len(self.views) - self.current

    @property
    def is_step(self) -> bool:
        """Return True if the step changes any replica."""
        return bool(self.placed or self.updating.updated or self.placing.removed)

    @property
    def restarted(self) -> frozenset[str]:
        """Return the serving replicas that this step restarts or removes before their replacements serve."""
        serving = {view.name for view in self.views if view.serves}
        return frozenset(serving & (self.updating.updated | self.placing.replaced))


class Replicas:
    """Existing ModelReplicas with their observed state. Each ModelReplica is composed once."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._states: dict[int, ReplicaState] = {}
        self._revisions: dict[int, Revision] = {}
        self._workloads: dict[int, list[Object]] = {}
        self._composed_replicas: list[api.ModelReplica] = []

    def state(self, replica: api.ModelReplica) -> ReplicaState:
        """Return the observed or the last known state of a ModelReplica."""
        is_assumed = (
            self._context.staged == "forecast" and (replica.namespace, replica.name) not in self._context.failed
        )
        if is_assumed or self._context.declared(replica.spec.cluster_name):
            return DECLARED
        return self._states[self._composed(replica)]

    def revision(self, replica: api.ModelReplica) -> Revision:
        """Return the desired revision of a ModelReplica."""
        return self._revisions[self._composed(replica)]

    def live_revision(self, replica: api.ModelReplica) -> Revision | None:
        """Return the live revision of a ModelReplica; None if it is unknown. On a GitOps cluster, return the revision
        of the last build."""
        context, cluster = self._context, replica.spec.cluster_name
        if context.staged == "forecast":
            return _FROZEN if (replica.namespace, replica.name) in context.frozen else None
        observed = context.observed_cluster(cluster)
        if context.declared(cluster):
            objects = Objects(context.kept(replica.ref, cluster, WORKLOADS))
        elif observed is None or observed.unreachable:
            return None
        else:
            objects = observed.objects
        live = [objects.like(value) for value in self._workloads[self._composed(replica)]]
        if context.declared(cluster) and any(live):
            # A replica with a missing file differs from its desired state.
            return _revision(value or {} for value in live)
        return None if None in live else _revision(value for value in live if value is not None)

    def _composed(self, replica: api.ModelReplica) -> int:
        """Compose a ModelReplica, or an equal existing ModelReplica, and return its identity."""
        existing = self._context.fleet.replicas.get((replica.namespace, replica.name))
        if existing is not None and existing == replica:
            replica = existing
        if id(replica) not in self._states:
            self._compose(replica)
        return id(replica)

    def _compose(self, replica: api.ModelReplica) -> None:
        # Entries are keyed by identity, so the models must not be freed.
        self._composed_replicas.append(replica)
        objects = replica_objects(replica, self._context.composing)
        workloads = _workloads(objects)
        self._revisions[id(replica)] = _revision(workloads)
        # Only the identity is stored, because the objects of a large fleet would use gigabytes of memory.
        self._workloads[id(replica)] = [
            {
                "apiVersion": workload["apiVersion"],
                "kind": workload["kind"],
                "metadata": {key: workload["metadata"][key] for key in ("namespace", "name")},
            }
            for workload in workloads
        ]
        observed = self._context.observed_cluster(replica.spec.cluster_name)
        state = replica_state(replica, objects, observed)
        if is_rolled_out(objects, observed) is False:
            state = replace(state, complete=False)
        self._states[id(replica)] = remember(state, self._context.statuses.get(replica.ref))


def _workloads(objects: Iterable[Object]) -> list[Object]:
    return [workload for workload in objects if workload["kind"] in WORKLOADS]


def _revision(workloads: Iterable[Object]) -> Revision:
    return tuple(text(workload, "metadata", "annotations", SPEC_HASH_ANNOTATION) for workload in workloads)


def with_health(context: Context, replicas: Replicas, existing: Iterable[Replica]) -> list[Replica]:
    """Return existing replicas as inputs of the scheduler, with `serves` and `stranded` set."""
    inputs = []
    for replica in existing:
        resource = context.fleet.replicas.get((replica.namespace, replica.name))
        serves = context.observed is None or resource is None or replicas.state(resource).serving is not False
        why = stranded(context, resource) if resource is not None else ""
        inputs.append(replace(replica, serves=serves, stranded=why) if why or not serves else replica)
    return inputs


def stranded(context: Context, replica: api.ModelReplica) -> str:
    """Return the reason why a replica could not start again on its nodes, empty if it could."""
    observed = context.observed_cluster(replica.spec.cluster_name)
    if observed is None or not observed.stranded:
        return ""
    owner = Owner.of(replica)
    return observed.stranded.get((owner.workload_namespace, names.label_value(owner.replica)), "")


def bounds_of(deployment: api.ModelDeployment, clusters: int) -> Bounds:
    """Return the rollout bounds of a deployment."""
    settings, desired = deployment.spec.rollout or Settings(), deployment.spec.replicas
    return Bounds(desired, settings.surge(desired), settings.unavailable(desired), clusters)


def begin(
    context: Context, replicas: Replicas, decided: Schedule, desired: Sequence[api.ModelReplica]
) -> dict[Key, Rollout]:
    """Return the first half of the next step of each rollout, by deployment.

    decided: schedule with a placement of each replica that can stay on its cluster.
    desired: ModelReplica of each placement.
    """
    views: dict[Key, list[ReplicaView]] = {}
    for placement, current in zip(decided.placements, desired, strict=True):
        if placement.state == "kept":
            existing = context.fleet.replicas[placement.namespace, placement.replica]
            view = _view(context, replicas, existing, current)
            if not view.is_current and stranded(context, existing):
                view = replace(view, fits=False)
            views.setdefault((placement.namespace, placement.deployment), []).append(view)
    unscheduled = {(entry.namespace, entry.deployment): entry.count for entry in decided.pending}
    for entry in decided.dropped:
        key, owner = (entry.replica.namespace, entry.replica.name), (entry.replica.namespace, entry.replica.deployment)
        if not entry.outdated or key not in context.fleet.replicas:
            continue
        if context.advances(entry.replica.cluster):
            # Without staging, a replacement is created in the same run.
            if unscheduled.get(owner, 0) < 1:
                continue
            unscheduled[owner] -= 1
        view = replace(_view(context, replicas, context.fleet.replicas[key], None), fits=False)
        views.setdefault(owner, []).append(view)
    rollouts = {}
    for owner, owned_views in sorted(views.items()):
        deployment = context.fleet.deployments.get(owner)
        if deployment is not None and deployment.spec.replicas and not all(view.is_current for view in owned_views):
            bounds = bounds_of(deployment, context.rollout)
            ordered = tuple(sorted(owned_views, key=lambda view: view.name))
            rollouts[owner] = Rollout(owner, bounds, ordered, plan_placing(bounds, ordered))
    return rollouts


def _view(
    context: Context, replicas: Replicas, existing: api.ModelReplica, current: api.ModelReplica | None
) -> ReplicaView:
    """Return a replica as input of the planner. `current`: its desired ModelReplica, None if it no longer fits."""
    is_current = current is not None and (
        context.advances(existing.spec.cluster_name) or _has_revision(replicas, existing, current)
    )
    subject = current if is_current and current is not None and current != existing else existing
    health, reason = _health(context, existing, replicas.state(subject), is_current=is_current)
    return ReplicaView(existing.name, existing.spec.cluster_name, is_current, health, reason=reason)


def _has_revision(replicas: Replicas, existing: api.ModelReplica, current: api.ModelReplica) -> bool:
    """Return True if the pods of a replica have the current revision, so that no pod restarts."""
    live = replicas.live_revision(existing)
    if live is None:
        return current == existing or replicas.revision(current) == replicas.revision(existing)
    return replicas.revision(existing if current == existing else current) == live


def _health(
    context: Context, replica: api.ModelReplica, state: ReplicaState, *, is_current: bool
) -> tuple[Health, str]:
    """Return the health of a replica, and the reason why it does not serve."""
    if state.declared:
        return ("unknown", "no run observes it") if context.staged == "hold" else ("serving", "")
    if state.remembered or state.serving is None:
        observed = context.observed_cluster(replica.spec.cluster_name)
        return "unknown", observed.unreachable if observed else "it was not observed"
    if state.serving and not (is_current and not state.complete):
        waiting = _without_endpoint(context, replica) if is_current else ""
        return ("starting", waiting) if waiting else ("serving", "")
    return ("failed" if state.failed else "starting"), state.message


def _without_endpoint(context: Context, replica: api.ModelReplica) -> str:
    """Return the reason why a ready replica receives no requests; "" if it does, or if the reason is unknown.

    The endpoint must be ready if an endpoint of another replica of the deployment is ready."""
    siblings = [
        endpoint
        for (namespace, name), endpoint in context.fleet.endpoints.items()
        if namespace == replica.namespace
        and name != replica.name
        and endpoint.labels.get(names.DEPLOYMENT_LABEL) == replica.labels.get(names.DEPLOYMENT_LABEL)
    ]
    if not siblings:
        return ""
    endpoint = context.fleet.endpoints.get((replica.namespace, replica.name))
    if endpoint is None:
        return "its ModelEndpoint does not exist yet"
    if not _is_ready(context, endpoint) and any(_is_ready(context, sibling) for sibling in siblings):
        return "the gateway has not accepted its ModelEndpoint yet"
    return ""


def _is_ready(context: Context, endpoint: api.ModelEndpoint) -> bool:
    """Return True if the gateway sends requests to an endpoint."""
    if context.observed is None or not context.fleet.serves_paths:
        return True
    backend = backend_of(context.fleet.path_gateway)
    objects = endpoint_objects(endpoint, context.composing, backend)
    ready = model_endpoint(endpoint, objects, context.observed.seen, endpoint_problem(endpoint)).condition(READY)
    return ready is not None and ready.status == "True"


def scheduler_inputs(
    rollouts: Mapping[Key, Rollout], deployments: Sequence[Deployment], existing: Sequence[Replica]
) -> tuple[list[Deployment], list[Replica]]:
    """Return the inputs of the scheduler for a step of these rollouts."""
    removed, unfit, old = set[Key](), set[Key](), set[Key]()
    for (namespace, __), rollout in rollouts.items():
        staying = rollout.placing.staying
        removed |= {(namespace, name) for name in rollout.placing.removed}
        unfit |= {(namespace, view.name) for view in staying if not view.fits}
        old |= {(namespace, view.name) for view in staying if not view.is_current}
    desired = [
        replace(
            deployment,
            replicas=_target(rollouts[deployment.key]),
            surge=_surge(rollouts[deployment.key].placing),
        )
        if deployment.key in rollouts
        else deployment
        for deployment in deployments
    ]
    return desired, [
        replace(replica, stays=key in unfit, leaves=key in removed, old=key in old)
        if replica.deployment and (key := (replica.namespace, replica.name)) in removed | old
        else replica
        for replica in existing
    ]


def _target(rollout: Rollout) -> int:
    """Return the number of replicas after a step, without replicas that no longer fit. If more replicas with the
    current revision exist than desired, the scheduler removes the surplus."""
    staying = rollout.placing.staying
    surplus = max(0, sum(view.is_current for view in staying) - rollout.bounds.desired)
    return sum(view.fits for view in staying) - surplus + rollout.placing.new


def _surge(placing: Placing) -> int:
    """Return the number of new replicas that replace no replica of another place."""
    unfit = sum(not view.fits for view in placing.staying)
    return max(0, placing.new - placing.missing - len(placing.replaced) - unfit)


def with_removals(rollouts: Mapping[Key, Rollout], decided: Schedule, initial: Schedule) -> Schedule:
    """Return the schedule of a step with the replicas that rollouts remove.

    Pending replicas are counted against the desired number.

    `initial`: the schedule without rollouts. It contains the reasons for removals.
    """
    reasons = {(entry.replica.namespace, entry.replica.name): entry for entry in initial.dropped}
    existing = {(entry.namespace, entry.replica): entry for entry in initial.placements if entry.replica}
    dropped = list(decided.dropped)
    for (namespace, deployment), rollout in rollouts.items():
        for name, reason in rollout.placing.removed.items():
            key = (namespace, name)
            if key in reasons:
                dropped.append(replace(reasons[key], reason=f"{reasons[key].reason}; {reason}"))
            elif key in existing:
                placement = existing[key]
                replica = Replica(name, namespace, deployment, placement.cluster, placement.index, placement.engines)
                dropped.append(Dropped(replica, reason))
    dropped.sort(key=lambda entry: (entry.replica.namespace, entry.replica.name))
    pending = [result for entry in decided.pending for result in _pending(entry, rollouts, decided)]
    return replace(decided, dropped=tuple(dropped), pending=tuple(pending))


def _pending(entry: Pending, rollouts: Mapping[Key, Rollout], decided: Schedule) -> Iterator[Pending]:
    """Yield the pending replicas of a deployment, without surge replicas."""
    key = (entry.namespace, entry.deployment)
    if key not in rollouts:
        yield entry
        return
    desired = rollouts[key].bounds.desired
    scheduled = sum((placement.namespace, placement.deployment) == key for placement in decided.placements)
    if scheduled < desired:
        __, separator, details = entry.message.partition(" replicas scheduled")
        message = f"{scheduled} of {desired}{separator}{details}" if separator else entry.message
        yield replace(entry, count=desired - scheduled, message=message)


def count_placed(rollout: Rollout, decided: Schedule) -> int:
    """Return the number of new replicas of a deployment in a schedule."""
    return sum(
        placement.state == "new" and (placement.namespace, placement.deployment) == rollout.key
        for placement in decided.placements
    )


Decide = Callable[[Mapping[Key, Rollout]], Schedule]
MayStop = Callable[[Key, Collection[Key]], bool]
"""Predicate of a serving replica that can stop in the same step as other replicas."""


def with_replacements(
    rollouts: Mapping[Key, Rollout], initial: Schedule, decide: Decide, may_stop: MayStop
) -> tuple[dict[Key, Rollout], Schedule]:
    """Return the steps with replacements in place, and the schedule of all steps.

    A replica that no longer fits is replaced in place only if a new replica can then be scheduled. The deployments take
    turns, so that no deployment uses up all tries."""
    steps, decided, tries = dict(rollouts), decide(rollouts), 0
    # Skip deployments whose replacements are unschedulable even without any old replica.
    turns = {key: _candidates(steps[key], decided) for key in sorted(rollouts) if count_placed(rollouts[key], initial)}
    while any(turns.values()) and tries < max(MAX_TRIES, len(turns)):
        for key in [key for key, candidates in turns.items() if candidates]:
            name = turns[key].pop(0)
            replaced = {
                (deployment[0], replica) for deployment, step in steps.items() for replica in step.placing.replaced
            }
            if not may_stop((key[0], name), replaced):
                continue
            tries += 1
            attempt = {**steps, key: replace(steps[key], placing=replace_in_place(steps[key].placing, name))}
            schedule = decide(attempt)
            is_better = count_placed(attempt[key], schedule) > count_placed(steps[key], decided)
            if is_better and _has_equal_counts(decided, schedule, key):
                steps, decided = attempt, schedule
                turns[key] = _candidates(steps[key], decided)
    return steps, decided


def _candidates(rollout: Rollout, decided: Schedule) -> list[str]:
    return list(replaceable_replicas(rollout.placing, rollout.bounds, count_placed(rollout, decided)))


def _has_equal_counts(decided: Schedule, attempt: Schedule, changed: Key) -> bool:
    """Return True if two schedules have the same number of replicas of all deployments except `changed`."""
    counts = [
        Counter(
            (placement.namespace, placement.deployment)
            for placement in schedule.placements
            if (placement.namespace, placement.deployment) != changed
        )
        for schedule in (decided, attempt)
    ]
    return counts[0] == counts[1]


def finish(rollouts: Mapping[Key, Rollout], decided: Schedule) -> dict[Key, Rollout]:
    """Return both halves of each step."""
    steps = {}
    for key, rollout in rollouts.items():
        placed = count_placed(rollout, decided)
        updating = plan_updates(rollout.bounds, rollout.placing.staying, placed)
        steps[key] = replace(rollout, updating=updating, placed=placed)
    return steps


def outdated_replicas(context: Context, rollouts: Mapping[Key, Rollout]) -> tuple[api.ModelReplica, ...]:
    """Return the ModelReplicas that no longer match their deployment and remain until their replacements serve."""
    return tuple(
        context.fleet.replicas[namespace, view.name]
        for (namespace, __), rollout in rollouts.items()
        for view in rollout.placing.staying
        if not view.fits
    )


def withdrawn_replicas(context: Context, rollouts: Mapping[Key, Rollout]) -> frozenset[Key]:
    """Return the replicas with endpoints to remove from the routes before a restart in place.

    Other replicas must serve during the restart. A replica with several copies of each engine serves while it restarts,
    so its endpoint remains.
    """
    withdrawn: set[Key] = set()
    for (namespace, __), rollout in rollouts.items():
        if sum(view.serves for view in rollout.views) > len(rollout.restarted):
            keys = ((namespace, name) for name in rollout.restarted)
            withdrawn.update(
                key for key in keys if min(engine.copies for engine in context.fleet.replicas[key].spec.engines) < 2
            )
    return frozenset(withdrawn)


def frozen_replicas(
    context: Context, replicas: Replicas, composed: Iterable[api.ModelReplica], rollouts: Mapping[Key, Rollout]
) -> tuple[api.ModelReplica, ...]:
    """Return the replicas that would restart before their turn in a rollout, because a fleet setting or the version of
    the collection changes their objects."""
    updated = {(namespace, name) for (namespace, __), step in rollouts.items() for name in step.updating.updated}
    frozen = []
    for replica in composed:
        key = (replica.namespace, replica.name)
        if key in updated or key not in context.fleet.replicas or context.advances(replica.spec.cluster_name):
            continue
        live = replicas.live_revision(replica)
        if live is not None and live != replicas.revision(replica):
            frozen.append(replica)
    return tuple(frozen)


def warnings(context: Context, rollouts: Iterable[Rollout]) -> Iterator[str]:
    """Yield warnings about restarts of all serving replicas, and about replicas that no longer fit."""
    for rollout in rollouts:
        deployment = "/".join(rollout.key)
        serving = sum(view.serves for view in rollout.views)
        restarted = rollout.restarted
        is_observed = not all(context.declared(view.cluster) for view in rollout.views)
        if restarted and len(restarted) >= serving and is_observed:
            cause = "no devices are free for a surge replica" if rollout.bounds.surge else "maxSurge is 0"
            has_copies = restarted.isdisjoint(rollout.placing.replaced) and all(
                min(engine.copies for engine in context.fleet.replicas[rollout.key[0], name].spec.engines) > 1
                for name in restarted
            )
            effect = "Other engine copies serve" if has_copies else "The model does not serve"
            yield (
                f"{deployment}: the edit restarts {_only(len(restarted))} in place because {cause}. "
                f"{effect} during the restart{_last_start(context, rollout)}"
            )
        unfit = [view for view in rollout.placing.staying if not view.fits]
        if unfit and not rollout.placed:
            is_starting = any(view.is_current and view.is_down for view in rollout.views)
            cause = "their replacements are unschedulable" if rollout.bounds.surge else "maxSurge is 0"
            reason = "until their replacements serve" if is_starting else f"because {cause}"
            yield (
                f"{deployment}: {len(unfit)} of {rollout.bounds.desired} replicas no longer match the deployment and "
                f"keep serving {reason}"
            )


def stopped(rollout: Rollout) -> str:
    """Return the reason why a rollout stopped, with a fix; "" if the rollout continues."""
    broken = rollout.stopped_by
    if broken is None:
        return ""
    reason = f": {broken.reason}" if broken.reason else ""
    old = sum(not view.is_current for view in rollout.placing.staying)
    return (
        f"{'/'.join(rollout.key)}: the rollout stopped with {rollout.current} of {rollout.bounds.desired} replicas "
        f"updated because ModelReplica {broken.name} on cluster {broken.cluster} failed{reason}. Correct the "
        f"deployment or revert the edit. {count(old, 'replica')} {'keeps' if old == 1 else 'keep'} the old revision"
    )


def rollout_state(rollout: Rollout) -> RolloutState:
    """Return the state of a rollout for the status of its deployment."""
    broken = rollout.stopped_by
    stopped = f"{broken.name} on {broken.cluster}" + (f": {broken.reason}" if broken.reason else "") if broken else ""
    is_unschedulable = not rollout.is_step and not all(view.fits for view in rollout.placing.staying)
    outdated = "; ".join(sorted(set(rollout.updating.waiting.values()))) if is_unschedulable else ""
    return RolloutState(rollout.current, rollout.old, stopped, outdated)


def _only(count: int) -> str:
    return "the only replica" if count == 1 else f"all {count} serving replicas"


def _last_start(context: Context, rollout: Rollout) -> str:
    """Return the duration of the last start of the restarted replicas, for a message."""
    durations = []
    for name in rollout.restarted:
        replica = context.fleet.replicas[rollout.key[0], name]
        observed = context.observed_cluster(replica.spec.cluster_name)
        seen = context.statuses.get(replica.ref)
        state = next((state for state in entries(seen, "conditions") if state.get("type") == "Ready"), {})
        if observed is None or state.get("status") != "True":
            continue
        owner = Owner.of(replica)
        label = names.label_value(owner.replica)
        pods = observed.objects.labelled("Pod", owner.workload_namespace, names.REPLICA_LABEL, label)
        created = parse_time(max((text(pod, "metadata", "creationTimestamp") for pod in pods), default=""))
        ready = parse_time(text(state, "lastTransitionTime"))
        if created and ready and ready > created:
            durations.append(ready - created)
    return f" (the last start took {_duration(max(durations))})" if durations else ""


def _duration(duration: timedelta) -> str:
    minutes, seconds = divmod(int(duration.total_seconds()), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def serves(desired: Iterable[Object], cluster: ObservedCluster | None) -> bool | None:
    """Return True if all pods of these workloads are ready and have the applied revision; None if this is unknown.

    The applied revision can be older than the desired revision.
    """
    return _all(_serves, desired, cluster)


def is_rolled_out(desired: Iterable[Object], cluster: ObservedCluster | None) -> bool | None:
    """Return True when all pods of these workloads are ready and of the desired revision; None when that is not
    known."""
    return _all(lambda value, actual: _applied(value, actual) and _serves(value, actual), desired, cluster)


def _all(
    predicate: Callable[[Object, Object | None], bool], desired: Iterable[Object], cluster: ObservedCluster | None
) -> bool | None:
    if cluster is None or cluster.unreachable:
        return None
    return all(predicate(workload, cluster.objects.like(workload)) for workload in _workloads(desired))


def _applied(desired: Object, actual: Object | None) -> bool:
    desired_digest, actual_digest = _revision([desired, actual or {}])
    return desired_digest == actual_digest


def _serves(desired: Object, actual: Object | None) -> bool:
    generation = number(actual, "metadata", "generation")
    if not fields(actual, "status") or number(actual, "status", "observedGeneration", default=generation) < generation:
        return False
    count = number(desired, "spec", "replicas", default=1)
    return all(number(actual, "status", field) >= count for field in ("updatedReplicas", "readyReplicas"))
