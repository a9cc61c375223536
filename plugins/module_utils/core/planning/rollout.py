# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rollouts of a fleet: replicas as the rollout planner sees them, and its answers as inputs of the scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_deployment import Rollout as Settings
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.rollout import (
    Bounds,
    Health,
    Placing,
    ReplicaView,
    Updating,
    failed,
    give_place,
    givers,
    place,
    update,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import replica_objects
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.backend import (
    endpoint_objects,
    endpoint_problem,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import SPEC_HASH_ANNOTATION
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.gateway import backend_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.owner import Owner
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_cluster import WORKLOADS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import ObservedCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.context import Context
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.fleet import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Deployment,
    Dropped,
    Pending,
    Replica,
    Schedule,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import READY
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_deployment import RolloutState
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_endpoint import model_endpoint
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_replica import (
    DECLARED,
    ReplicaState,
    remember,
    replica_state,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, entries, fields, number, text

Revision = tuple[str, ...]
"""Digests of the workloads of a replica: pods restart when one of them changes."""

_FROZEN: Revision = ("",)
"""Revision of pods that were composed in another way, in a forecast: no revision is equal to it."""

MAX_TRIES = 8
"""Replacements in place that a plan tries, at most: each costs as much as the plan."""


@dataclass(frozen=True)
class Rollout:
    """Step of a rollout of one deployment.

    placing, updating: the two halves of the step.
    placed: new replicas of this step.
    """

    key: Key
    bounds: Bounds
    views: tuple[ReplicaView, ...]
    placing: Placing
    updating: Updating = field(default_factory=Updating)
    placed: int = 0

    @property
    def stopped_by(self) -> ReplicaView | None:
        """Return the replica that stops the rollout; None while it goes on."""
        return failed(self.views)

    @property
    def current(self) -> int:
        """Return the number of replicas of the current revision that exist."""
        return sum(view.is_current for view in self.views)

    @property
    def old(self) -> int:
        """Return the number of replicas of old revisions that exist."""
        return len(self.views) - self.current

    @property
    def is_step(self) -> bool:
        """Return whether something changes in this step."""
        return bool(self.placed or self.updating.updated or self.placing.removed)

    @property
    def restarted(self) -> frozenset[str]:
        """Return the replicas that serve and that this step restarts or removes before another one serves instead."""
        serving = {view.name for view in self.views if view.serves}
        return frozenset(serving & (self.updating.updated | self.placing.given))


class Replicas:
    """Existing ModelReplicas as they are on their clusters; each is composed once."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._states: dict[int, ReplicaState] = {}
        self._revisions: dict[int, Revision] = {}
        self._workloads: dict[int, list[Object]] = {}
        self._known: list[api.ModelReplica] = []

    def state(self, replica: api.ModelReplica) -> ReplicaState:
        """Return the observed state of a ModelReplica, or the last known one."""
        if self._context.staged == "forecast" or self._context.declared(replica.spec.cluster_name):
            return DECLARED
        return self._states[self._composed(replica)]

    def revision(self, replica: api.ModelReplica) -> Revision:
        """Return the revision of a ModelReplica as it is composed now."""
        return self._revisions[self._composed(replica)]

    def live_revision(self, replica: api.ModelReplica) -> Revision | None:
        """Return the revision of a ModelReplica on its cluster; None when it is not known."""
        if self._context.staged == "forecast":
            return _FROZEN if (replica.namespace, replica.name) in self._context.frozen else None
        observed = self._context.observed_cluster(replica.spec.cluster_name)
        if observed is None or observed.unreachable:
            return None
        live = [observed.objects.like(value) for value in self._workloads[self._composed(replica)]]
        return None if None in live else _revision(value for value in live if value is not None)

    def _composed(self, replica: api.ModelReplica) -> int:
        """Return the identity of a ModelReplica that is composed: the existing one if they are equal."""
        existing = self._context.fleet.replicas.get((replica.namespace, replica.name))
        if existing is not None and existing == replica:
            replica = existing
        if id(replica) not in self._states:
            self._compose(replica)
        return id(replica)

    def _compose(self, replica: api.ModelReplica) -> None:
        # Models are compared by identity, so they must not be freed meanwhile.
        self._known.append(replica)
        objects = replica_objects(replica, self._context.composing)
        workloads = _workloads(objects)
        self._revisions[id(replica)] = _revision(workloads)
        # What identifies them: the objects of a large fleet take gigabytes.
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
    """Return existing replicas as the scheduler uses them, with those marked that do not serve."""
    found = []
    for replica in existing:
        resource = context.fleet.replicas.get((replica.namespace, replica.name))
        serves = context.observed is None or resource is None or replicas.state(resource).serving is not False
        found.append(replica if serves else replace(replica, serves=False))
    return found


def bounds_of(deployment: api.ModelDeployment, clusters: int) -> Bounds:
    """Return the bounds of the rollouts of a deployment."""
    settings, desired = deployment.spec.rollout or Settings(), deployment.spec.replicas
    return Bounds(desired, settings.surge(desired), settings.unavailable(desired), clusters)


def begin(
    context: Context, replicas: Replicas, decided: Schedule, desired: Sequence[api.ModelReplica]
) -> dict[Key, Rollout]:
    """Return the first half of a step of each rollout, by deployment.

    `decided` has each replica that can stay at its place, `desired` the ModelReplica of each of its placements.
    """
    views: dict[Key, list[ReplicaView]] = {}
    for placement, current in zip(decided.placements, desired, strict=True):
        if placement.state == "kept":
            existing = context.fleet.replicas[placement.namespace, placement.replica]
            view = _view(context, replicas, existing, current)
            views.setdefault((placement.namespace, placement.deployment), []).append(view)
    unscheduled = {(entry.namespace, entry.deployment): entry.count for entry in decided.pending}
    for entry in decided.dropped:
        key, owner = (entry.replica.namespace, entry.replica.name), (entry.replica.namespace, entry.replica.deployment)
        if not entry.outdated or key not in context.fleet.replicas:
            continue
        if context.advances(entry.replica.cluster):
            # Its replacement takes its place at once, if there is one.
            if unscheduled.get(owner, 0) < 1:
                continue
            unscheduled[owner] -= 1
        view = replace(_view(context, replicas, context.fleet.replicas[key], None), fits=False)
        views.setdefault(owner, []).append(view)
    rollouts = {}
    for owner, found in sorted(views.items()):
        deployment = context.fleet.deployments.get(owner)
        if deployment is not None and deployment.spec.replicas and not all(view.is_current for view in found):
            bounds = bounds_of(deployment, context.rollout)
            ordered = tuple(sorted(found, key=lambda view: view.name))
            rollouts[owner] = Rollout(owner, bounds, ordered, place(bounds, ordered))
    return rollouts


def _view(
    context: Context, replicas: Replicas, existing: api.ModelReplica, current: api.ModelReplica | None
) -> ReplicaView:
    """Return a replica as the planner sees it. `current`: as its deployment asks for it; None where it cannot be."""
    is_current = current is not None and (
        context.advances(existing.spec.cluster_name) or _has_revision(replicas, existing, current)
    )
    subject = current if is_current and current is not None and current != existing else existing
    health, reason = _health(context, existing, replicas.state(subject), is_current=is_current)
    return ReplicaView(existing.name, existing.spec.cluster_name, is_current, health, reason=reason)


def _has_revision(replicas: Replicas, existing: api.ModelReplica, current: api.ModelReplica) -> bool:
    """Return whether the pods of a replica have the current revision, so that nothing restarts."""
    live = replicas.live_revision(existing)
    if live is None:
        return current == existing or replicas.revision(current) == replicas.revision(existing)
    return replicas.revision(existing if current == existing else current) == live


def _health(
    context: Context, replica: api.ModelReplica, state: ReplicaState, *, is_current: bool
) -> tuple[Health, str]:
    """Return the health of a replica, and why it does not serve."""
    if state.declared:
        return ("unknown", "no run observes its cluster") if context.staged == "hold" else ("serving", "")
    if state.remembered or state.serving is None:
        return "unknown", state.message
    if state.serving and not (is_current and not state.complete):
        waiting = _without_endpoint(context, replica) if is_current else ""
        return ("starting", waiting) if waiting else ("serving", "")
    return ("failed" if state.failed else "starting"), state.message


def _without_endpoint(context: Context, replica: api.ModelReplica) -> str:
    """Return why requests do not reach a replica that answers; "" if they do, as far as is known.

    Its endpoint must be as ready as the endpoints of other replicas are."""
    siblings = [
        each
        for (namespace, name), each in context.fleet.endpoints.items()
        if namespace == replica.namespace
        and name != replica.name
        and each.labels.get(names.DEPLOYMENT_LABEL) == replica.labels.get(names.DEPLOYMENT_LABEL)
    ]
    if not siblings:
        return ""
    endpoint = context.fleet.endpoints.get((replica.namespace, replica.name))
    if endpoint is None:
        return "its ModelEndpoint does not exist yet"
    if not _is_ready(context, endpoint) and any(_is_ready(context, each) for each in siblings):
        return "the gateway has not accepted its ModelEndpoint yet"
    return ""


def _is_ready(context: Context, endpoint: api.ModelEndpoint) -> bool:
    """Return whether the gateway sends requests to an endpoint."""
    if context.observed is None or not context.fleet.serves_paths:
        return True
    backend = backend_of(context.fleet.path_gateway)
    objects = endpoint_objects(endpoint, context.composing, backend)
    ready = model_endpoint(endpoint, objects, context.observed.seen, endpoint_problem(endpoint)).condition(READY)
    return ready is not None and ready.status == "True"


def staged(
    rollouts: Mapping[Key, Rollout], deployments: Sequence[Deployment], existing: Sequence[Replica]
) -> tuple[list[Deployment], list[Replica]]:
    """Return the inputs of the scheduler for a step of these rollouts."""
    roles: dict[Key, str] = {}
    for (namespace, __), rollout in rollouts.items():
        roles |= {(namespace, name): "removed" for name in rollout.placing.removed}
        roles |= {(namespace, view.name): "stays" for view in rollout.placing.staying if not view.fits}
    desired = [
        replace(each, replicas=_target(rollouts[each.key])) if each.key in rollouts else each for each in deployments
    ]
    marked = []
    for replica in existing:
        role = roles.get((replica.namespace, replica.name), "") if replica.deployment else ""
        marked.append(replace(replica, stays=role == "stays", leaves=role == "removed") if role else replica)
    return desired, marked


def _target(rollout: Rollout) -> int:
    return sum(view.fits for view in rollout.placing.staying) + rollout.placing.new


def carried_out(rollouts: Mapping[Key, Rollout], decided: Schedule, first: Schedule) -> Schedule:
    """Return the schedule of a step with what rollouts remove, and with the replicas that lack a place as users count
    them. `first`: the schedule without rollouts, which has the reasons."""
    reasons = {(entry.replica.namespace, entry.replica.name): entry for entry in first.dropped}
    existing = {(each.namespace, each.replica): each for each in first.placements if each.replica}
    dropped = list(decided.dropped)
    for (namespace, deployment), rollout in rollouts.items():
        for name, reason in rollout.placing.removed.items():
            key = (namespace, name)
            if key in reasons:
                dropped.append(replace(reasons[key], reason=f"{reasons[key].reason}; {reason}"))
            elif key in existing:
                at = existing[key]
                replica = Replica(name, namespace, deployment, at.cluster, at.index, at.engines)
                dropped.append(Dropped(replica, reason))
    dropped.sort(key=lambda entry: (entry.replica.namespace, entry.replica.name))
    pending = [each for entry in decided.pending for each in _pending(entry, rollouts, decided)]
    return replace(decided, dropped=tuple(dropped), pending=tuple(pending))


def _pending(entry: Pending, rollouts: Mapping[Key, Rollout], decided: Schedule) -> Iterator[Pending]:
    """Yield what is pending of a deployment: surge replicas without a place are not."""
    key = (entry.namespace, entry.deployment)
    if key not in rollouts:
        yield entry
        return
    desired = rollouts[key].bounds.desired
    placed = sum((each.namespace, each.deployment) == key for each in decided.placements)
    if placed < desired:
        __, of, rest = entry.message.partition(" replicas scheduled")
        message = f"{placed} of {desired}{of}{rest}" if of else entry.message
        yield replace(entry, count=desired - placed, message=message)


def placed(rollout: Rollout, decided: Schedule) -> int:
    """Return how many new replicas of a deployment a schedule has."""
    return sum(each.state == "new" and (each.namespace, each.deployment) == rollout.key for each in decided.placements)


Decide = Callable[[Mapping[Key, Rollout]], Schedule]


def with_places(
    rollouts: Mapping[Key, Rollout], first: Schedule, decide: Decide
) -> tuple[dict[Key, Rollout], Schedule]:
    """Return the steps with their replacements in place, and the schedule of all steps.

    A replica that does not fit where it is gives its place only if that makes room for a new one."""
    steps, decided, tries = dict(rollouts), decide(rollouts), 0
    for key in sorted(rollouts):
        if not placed(rollouts[key], first):
            # Even without all old replicas there is no place.
            continue
        names_left = list(givers(steps[key].placing, steps[key].bounds, placed(steps[key], decided)))
        while names_left and tries < MAX_TRIES:
            tries += 1
            tried = {**steps, key: replace(steps[key], placing=give_place(steps[key].placing, names_left.pop(0)))}
            schedule = decide(tried)
            if placed(tried[key], schedule) > placed(steps[key], decided) and _keeps(decided, schedule, key):
                steps, decided = tried, schedule
                names_left = list(givers(steps[key].placing, steps[key].bounds, placed(steps[key], decided)))
    return steps, decided


def _keeps(before: Schedule, after: Schedule, changed: Key) -> bool:
    """Return whether all other deployments have as many replicas as before."""
    counts = [
        Counter(
            (each.namespace, each.deployment)
            for each in schedule.placements
            if (each.namespace, each.deployment) != changed
        )
        for schedule in (before, after)
    ]
    return counts[0] == counts[1]


def finish(rollouts: Mapping[Key, Rollout], decided: Schedule) -> dict[Key, Rollout]:
    """Return both halves of each step."""
    steps = {}
    for key, rollout in rollouts.items():
        number_placed = placed(rollout, decided)
        updating = update(rollout.bounds, rollout.placing.staying, number_placed)
        steps[key] = replace(rollout, updating=updating, placed=number_placed)
    return steps


def outdated(context: Context, rollouts: Mapping[Key, Rollout]) -> tuple[api.ModelReplica, ...]:
    """Return the ModelReplicas that no longer match their deployment, and stay until others serve."""
    return tuple(
        context.fleet.replicas[namespace, view.name]
        for (namespace, __), rollout in rollouts.items()
        for view in rollout.placing.staying
        if not view.fits
    )


def withdrawn(context: Context, rollouts: Mapping[Key, Rollout]) -> frozenset[Key]:
    """Return the replicas whose endpoints leave the routes before they restart in place.

    Others must serve meanwhile. A replica with several copies of each engine goes on serving while it restarts."""
    found: set[Key] = set()
    for (namespace, __), rollout in rollouts.items():
        if sum(view.serves for view in rollout.views) > len(rollout.restarted):
            keys = ((namespace, name) for name in rollout.restarted)
            found.update(
                key for key in keys if min(each.copies for each in context.fleet.replicas[key].spec.engines) < 2
            )
    return frozenset(found)


def frozen(
    context: Context, replicas: Replicas, composed: Iterable[api.ModelReplica], rollouts: Mapping[Key, Rollout]
) -> tuple[api.ModelReplica, ...]:
    """Return the replicas that would restart, although no rollout has come to them, because their objects are composed
    in another way than before: an image of the fleet changed, for example, or the collection was upgraded."""
    updated = {(namespace, name) for (namespace, __), step in rollouts.items() for name in step.updating.updated}
    found = []
    for replica in composed:
        key = (replica.namespace, replica.name)
        if key in updated or key not in context.fleet.replicas:
            continue
        live = replicas.live_revision(replica)
        if live is not None and live != replicas.revision(replica):
            found.append(replica)
    return tuple(found)


def warnings(context: Context, rollouts: Iterable[Rollout]) -> Iterator[str]:
    """Yield what users should know of rollouts before they run, or while they go on."""
    for rollout in rollouts:
        deployment = "/".join(rollout.key)
        serving = sum(view.serves for view in rollout.views)
        down = rollout.restarted
        if down and len(down) >= serving and not all(context.declared(view.cluster) for view in rollout.views):
            yield (
                f"{deployment}: the edit restarts {_only(len(down))} in place, because no cluster has free devices for "
                f"a surge replica. The model does not serve until it has started again{_last_start(context, rollout)}"
            )
        stuck = [view for view in rollout.placing.staying if not view.fits]
        if stuck and not rollout.placed:
            is_coming = any(view.is_current and view.is_broken for view in rollout.views)
            why = "until their replacements serve" if is_coming else "because no place fits their replacements"
            yield (
                f"{deployment}: {len(stuck)} of {rollout.bounds.desired} replicas no longer match the deployment and "
                f"keep serving, {why}"
            )


def stopped(rollout: Rollout) -> str:
    """Return why a rollout does not go on, and what to do; "" while it goes on."""
    broken = rollout.stopped_by
    if broken is None:
        return ""
    why = f": {broken.reason}" if broken.reason else ""
    return (
        f"{'/'.join(rollout.key)}: the rollout stopped with {rollout.current} of {rollout.bounds.desired} replicas "
        f"updated, because ModelReplica {broken.name} on cluster {broken.cluster} does not start{why}. Correct the "
        f"deployment or revert the edit; {rollout.old} replicas keep the old revision"
    )


def rollout_state(rollout: Rollout) -> RolloutState:
    """Return a rollout as the status of its deployment shows it."""
    broken = rollout.stopped_by
    stopped = f"{broken.name} on {broken.cluster}" + (f": {broken.reason}" if broken.reason else "") if broken else ""
    stuck = not rollout.is_step and not all(view.fits for view in rollout.placing.staying)
    outdated = "; ".join(sorted(set(rollout.updating.waiting.values()))) if stuck else ""
    return RolloutState(rollout.current, rollout.old, stopped, outdated)


def _only(count: int) -> str:
    return "its only replica" if count == 1 else f"all {count} replicas that serve"


def _last_start(context: Context, rollout: Rollout) -> str:
    """Return how long the replicas that restart took to start last time, for a message."""
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
        begun = _time(max((text(pod, "metadata", "creationTimestamp") for pod in pods), default=""))
        ended = _time(text(state, "lastTransitionTime"))
        if begun and ended and ended > begun:
            durations.append(ended - begun)
    return f" (the last start took {_duration(max(durations))})" if durations else ""


def _time(written: str) -> datetime | None:
    try:
        return datetime.fromisoformat(written) if written else None
    except ValueError:
        return None


def _duration(taken: timedelta) -> str:
    minutes, seconds = divmod(int(taken.total_seconds()), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def serves(desired: Iterable[Object], cluster: ObservedCluster | None) -> bool | None:
    """Return True when all pods of these workloads are ready and of the applied revision, which may be older than the
    desired one; None when that is not known."""
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
    one, other = _revision([desired, actual or {}])
    return one == other


def _serves(desired: Object, actual: Object | None) -> bool:
    generation = number(actual, "metadata", "generation")
    if not fields(actual, "status") or number(actual, "status", "observedGeneration", default=generation) < generation:
        return False
    count = number(desired, "spec", "replicas", default=1)
    return all(number(actual, "status", field) >= count for field in ("updatedReplicas", "readyReplicas"))
