# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rollout planner: replicas of a deployment that change in the next step, and replicas that wait, with reasons.

A rollout replaces old replicas with replicas of the current revision. Each step depends only on the observed state, so
the next run continues an aborted rollout. The order of preference:

1. Replace old replicas that do not serve. No request is lost.
2. Create surge replicas, at most `surge` above the desired number. An old replica is removed when the desired number of
   replicas serves without it.
3. Restart in place if no devices are free for a surge replica. At most `unavailable` replicas do not serve at a time.
4. Stop if a replica of the current revision fails. Old replicas are left unchanged, even if they restart.

The rules match the rolling update of a Kubernetes Deployment
(https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#rolling-update-deployment), with one difference:
surge replicas are preferred to restarts in place, because a replica of a model takes minutes to start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Health = Literal["serving", "starting", "failed", "unknown"]
"""Health of a replica. `failed`: the replica does not start without another edit. `unknown`: its cluster is unreachable
or not observed."""


@dataclass(frozen=True)
class Bounds:
    """Bounds of a rollout.

    desired: desired number of replicas.
    surge: maximum number of replicas above `desired`.
    unavailable: maximum number of replicas that do not serve.
    clusters: maximum number of clusters with restarts in place at the same time.
    """

    desired: int
    surge: int = 1
    unavailable: int = 1
    clusters: int = 1

    def least(self, replicas: int) -> int:
        """Return the minimum number of serving replicas, given the number of existing replicas.

        `unavailable` applies to the desired number. If fewer replicas exist, it is reduced in proportion. The last
        serving replica stops only if a single replica is desired, or if all replicas may stop."""
        if replicas >= self.desired:
            return max(0, self.desired - self.unavailable)
        allowed = max(min(1, self.unavailable), self.unavailable * replicas // self.desired)
        return max(int(1 < self.desired > self.unavailable), replicas - allowed)


@dataclass(frozen=True)
class ReplicaView:
    """Existing replica, as input of the planner.

    name: name of the ModelReplica.
    is_current: the replica has the current revision.
    fits: the replica can change in place. Otherwise it no longer matches its deployment and must be scheduled again.
    reason: reason why the replica does not serve, for messages.
    """

    name: str
    cluster: str
    is_current: bool
    health: Health
    fits: bool = True
    reason: str = ""

    @property
    def serves(self) -> bool:
        """Return True if the replica serves requests."""
        return self.health == "serving"

    @property
    def is_down(self) -> bool:
        """Return True if the replica certainly does not serve, so that its removal loses no requests."""
        return self.health in ("starting", "failed")


@dataclass(frozen=True)
class Placing:
    """First half of a step, as input of the scheduler.

    staying: existing replicas that are not removed.
    removed: removed old replicas, with the reason.
    new: number of new replicas to schedule.
    missing: number of new replicas that are not surge replicas.
    replaced: removed replicas that serve until a new replica uses their devices.
    """

    staying: tuple[ReplicaView, ...]
    removed: Mapping[str, str] = field(default_factory=dict)
    new: int = 0
    missing: int = 0
    replaced: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Updating:
    """Second half of a step.

    updated: replicas that restart in place.
    waiting: replicas that wait, with the reason.
    """

    updated: frozenset[str] = frozenset()
    waiting: Mapping[str, str] = field(default_factory=dict)


_OUTDATED = "it no longer matches its deployment, and"


def failed_replica(views: Sequence[ReplicaView]) -> ReplicaView | None:
    """Return the first failed replica of the current revision, None without a failure. It stops the rollout."""
    return next((view for view in views if view.is_current and view.health == "failed"), None)


def plan_placing(bounds: Bounds, views: Sequence[ReplicaView]) -> Placing:
    """Return the first half of a step: replicas to remove, and the number of replicas to create."""
    removed = _removed_replicas(bounds, views)
    staying = tuple(view for view in views if view.name not in removed)
    missing = max(0, bounds.desired - len(staying))
    # Old replicas that do not serve are updated in place, so that they require no new replica.
    in_place = {view.name for view in _replaceable_at_once(bounds, staying, 0) if view.fits}
    current = sum(view.is_current or view.name in in_place for view in staying)
    surge = 0 if failed_replica(views) else max(0, bounds.surge - max(0, len(staying) - bounds.desired))
    new = min(max(0, bounds.desired - current), missing + surge)
    return Placing(staying, removed, new, min(new, missing))


def _removed_replicas(bounds: Bounds, views: Sequence[ReplicaView]) -> dict[str, str]:
    """Return the old replicas that are no longer required, with the reason."""
    removed: dict[str, str] = {}
    serving = [view for view in views if view.serves]
    current = sum(view.is_current for view in serving)
    # Old replicas on unreachable clusters count as unavailable, so that the rollout continues on other clusters. These
    # replicas might not serve, so each removed replica requires a serving replica with the current revision.
    unknown = sum(view.health == "unknown" and not view.is_current for view in views)
    spare = len(serving) - bounds.desired + min(unknown, bounds.unavailable, current)
    counts = Counter(view.cluster for view in views)
    is_stopped = failed_replica(views) is not None
    # In a stopped rollout, only serving replicas with the current revision replace old replicas.
    surplus = sum(view.serves or not (view.is_current and is_stopped) for view in views) - bounds.desired
    down = {view.name for view in _replaceable_at_once(bounds, views, 0)}
    order = sorted(
        (view for view in views if not view.is_current),
        key=lambda view: (view.serves, view.fits, -counts[view.cluster], view.cluster, view.name),
    )
    for view in order:
        is_replaceable = view.name in down or (is_stopped and view.is_down)
        is_first = view.name in down and not view.fits and (view.health == "failed" or not bounds.surge)
        if is_replaceable and (surplus > 0 or is_first):
            removed[view.name] = "it has an old revision and does not serve"
        elif view.serves and surplus > 0 and spare > 0:
            removed[view.name] = "a replica with the current revision serves instead"
            spare -= 1
        else:
            continue
        surplus -= 1
    return removed


def _replaceable_at_once(bounds: Bounds, views: Sequence[ReplicaView], placed: int) -> list[ReplicaView]:
    """Return the old replicas that do not serve and that the next step replaces.

    The step replaces all failed replicas because they never serve again. Starting replicas might serve soon, and the
    new revision might fail. While other replicas might serve, the step therefore limits the replaced starting replicas
    as in a Kubernetes Deployment: at most `unavailable` replicas do not serve. A stopped rollout replaces no replica.

    placed: number of new replicas in this step.
    """
    if failed_replica(views):
        return []
    old = [view for view in views if not view.is_current]
    failed = [view for view in old if view.health == "failed"]
    starting = sorted((view for view in old if view.health == "starting"), key=lambda view: (view.cluster, view.name))
    if not all(view.is_down for view in views):
        replacements = sum(view.is_current and not view.serves for view in views) + placed
        limit = len(views) + placed - bounds.least(len(views) + placed) - replacements
        starting = starting[: max(0, limit)]
    return [*failed, *starting]


def replaceable_replicas(placing: Placing, bounds: Bounds, placed: int) -> tuple[str, ...]:
    """Return the old replicas with devices for a new replica, if only `placed` of the new replicas are scheduled.

    Only replicas that no longer match their deployment are replaced, starting with replicas that do not serve. All
    other replicas restart in place."""
    if placed >= placing.missing + int(bool(placing.new)) or failed_replica(placing.staying):
        return ()
    unfit = sorted((view for view in placing.staying if not view.fits), key=lambda view: (view.serves, view.name))
    down = {view.name for view in _replaceable_at_once(bounds, placing.staying, placed)}
    may_stop = _budget(placing.staying, bounds, placed) > 0
    return tuple(view.name for view in unfit if view.name in down or (view.serves and may_stop))


def replace_in_place(placing: Placing, name: str) -> Placing:
    """Return the first half of a step that removes an old replica before its replacement serves."""
    removed = {**placing.removed, name: "it is replaced in place because no devices are free elsewhere"}
    staying = tuple(view for view in placing.staying if view.name != name)
    return replace(placing, staying=staying, removed=removed, replaced=placing.replaced | {name})


def plan_updates(bounds: Bounds, staying: Sequence[ReplicaView], placed: int) -> Updating:
    """Return the second half of a step. `placed`: number of new replicas in this step."""
    old = [view for view in staying if view.fits and not view.is_current]
    updated = {view.name for view in _replaceable_at_once(bounds, staying, placed) if view.fits}
    waiting: dict[str, str] = {}
    broken = failed_replica(staying)
    is_surging = len(staying) + placed > bounds.desired
    budget = 0 if broken or is_surging else _budget(staying, bounds, placed)
    busy = {view.cluster for view in staying if view.is_down}
    for view in sorted(old, key=lambda view: (view.cluster not in busy, view.cluster, view.name)):
        if view.name in updated:
            continue
        if view.health == "unknown":
            waiting[view.name] = _unknown(view)
        elif view.serves and budget > 0 and (view.cluster in busy or len(busy) < bounds.clusters):
            updated.add(view.name)
            busy.add(view.cluster)
            budget -= 1
        else:
            waiting[view.name] = _reason(staying, is_surging, bounds)
    is_surging = placed > 0 or is_surging
    for view in staying:
        if not view.fits:
            cause = (
                "its replacement is unschedulable" if bounds.surge else "maxSurge is 0, so that no replacement starts"
            )
            outdated = _unknown(view) if view.health == "unknown" else f"{_OUTDATED} {cause}"
            is_waiting = view.health != "unknown" and (broken or is_surging)
            waiting[view.name] = _reason(staying, is_surging, bounds) if is_waiting else outdated
    return Updating(frozenset(updated), waiting)


def _unknown(view: ReplicaView) -> str:
    return f"the state of cluster {view.cluster} is unknown{f': {view.reason}' if view.reason else ''}"


def _budget(views: Sequence[ReplicaView], bounds: Bounds, placed: int) -> int:
    """Return the number of serving replicas that may stop."""
    return sum(view.serves for view in views) - bounds.least(len(views) + placed)


def _reason(staying: Sequence[ReplicaView], is_surging: bool, bounds: Bounds) -> str:
    broken = failed_replica(staying)
    if broken:
        reason = f": {broken.reason}" if broken.reason else ""
        return f"the rollout stopped because replica {broken.name} on cluster {broken.cluster} failed{reason}"
    unknown = [view for view in staying if view.health == "unknown"]
    if is_surging and not any(view.is_current and view.health == "unknown" for view in staying):
        return "it keeps serving until a replica with the current revision serves"
    if unknown:
        return f"it keeps serving because replica {unknown[0].name} on cluster {unknown[0].cluster} might not serve"
    if bounds.unavailable < 1:
        return "no devices are free for a surge replica, and maxUnavailable is 0"
    if any(view.is_current and view.is_down for view in staying):
        return "it waits until the previously updated replicas serve"
    return "it waits until other replicas serve"
