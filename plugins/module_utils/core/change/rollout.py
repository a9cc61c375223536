# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rollout planner: which replicas of a deployment change in the next step, which wait, and why.

A rollout replaces old replicas by replicas of the current revision. Each step follows from the observed state only, so
a run that is killed, or a later run, continues where the fleet is. The order of preference:

1. Old replicas that do not serve are replaced first: no request is lost.
2. Surge replicas: at most `surge` more than desired. An old replica leaves once all desired replicas serve without it.
3. In place, only without free devices for a surge replica: at most `unavailable` replicas do not serve at a time.
4. A replica of the current revision that fails stops the rollout. Old replicas that serve stay as they are.

The rules are those of a Deployment of Kubernetes (https://kubernetes.io/docs/concepts/workloads/controllers/deployment/
#rolling-update-deployment), except that surge replicas come before in-place changes instead of together with them: a
replica of a model takes minutes to start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Health = Literal["serving", "starting", "failed", "unknown"]
"""Of a replica: `failed` does not start without a further edit, `unknown` is on a cluster that does not answer."""


@dataclass(frozen=True)
class Bounds:
    """Bounds of a rollout.

    desired: replicas that the manifest asks for.
    surge: replicas above `desired` during the rollout.
    unavailable: replicas that might not serve during the rollout.
    clusters: clusters on which replicas change in place at a time.
    """

    desired: int
    surge: int = 1
    unavailable: int = 1
    clusters: int = 1

    def least(self, replicas: int) -> int:
        """Return how many of so many replicas have to serve.

        `unavailable` is of the desired replicas: of fewer, which lack free devices, fewer may stop. The last one only
        stops if a single replica is desired, or if all may stop."""
        if replicas >= self.desired:
            return max(0, self.desired - self.unavailable)
        allowed = max(min(1, self.unavailable), self.unavailable * replicas // self.desired)
        return max(int(1 < self.desired > self.unavailable), replicas - allowed)


@dataclass(frozen=True)
class ReplicaView:
    """A replica that exists, as the planner sees it.

    name: name of its ModelReplica.
    is_current: it has the current revision.
    fits: it can change in place. A replica that no longer matches its deployment there needs another place.
    reason: why it does not serve, for people.
    """

    name: str
    cluster: str
    is_current: bool
    health: Health
    fits: bool = True
    reason: str = ""

    @property
    def serves(self) -> bool:
        """Return whether requests are answered."""
        return self.health == "serving"

    @property
    def is_broken(self) -> bool:
        """Return whether it is known not to serve, so that nothing is lost with it."""
        return self.health in ("starting", "failed")


@dataclass(frozen=True)
class Placing:
    """First half of a step, before places for new replicas are searched.

    staying: replicas that exist and stay.
    removed: old replicas that leave, each with the reason.
    new: replicas of the current revision to find places for.
    missing: those of `new` that are not surge replicas.
    given: those of `removed` that serve until a new replica takes their devices.
    """

    staying: tuple[ReplicaView, ...]
    removed: Mapping[str, str] = field(default_factory=dict)
    new: int = 0
    missing: int = 0
    given: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Updating:
    """Second half of a step: replicas that change in place, and those that wait, each with the reason."""

    updated: frozenset[str] = frozenset()
    waiting: Mapping[str, str] = field(default_factory=dict)


_NO_PLACE = "it no longer matches its deployment, and no place fits its replacement"


def failed(views: Sequence[ReplicaView]) -> ReplicaView | None:
    """Return the first replica of the current revision that fails and so stops the rollout; None without one."""
    return next((view for view in views if view.is_current and view.health == "failed"), None)


def place(bounds: Bounds, views: Sequence[ReplicaView]) -> Placing:
    """Return the replicas that leave now, and how many new ones are needed."""
    removed = _removed(bounds, views)
    staying = tuple(view for view in views if view.name not in removed)
    missing = max(0, bounds.desired - len(staying))
    # An old replica that does not serve becomes a current one in place.
    current = sum(view.is_current or (view.fits and view.is_broken) for view in staying)
    room = 0 if failed(views) else max(0, bounds.surge - max(0, len(staying) - bounds.desired))
    new = min(max(0, bounds.desired - current), missing + room)
    return Placing(staying, removed, new, min(new, missing))


def _removed(bounds: Bounds, views: Sequence[ReplicaView]) -> dict[str, str]:
    """Return the old replicas that are not needed any more."""
    removed: dict[str, str] = {}
    # A replica on a cluster that does not answer might serve: it counts as one that is not available.
    unknown = sum(view.health == "unknown" for view in views)
    spare = sum(view.serves for view in views) - bounds.desired + min(unknown, bounds.unavailable)
    counts = Counter(view.cluster for view in views)
    surplus = len(views) - bounds.desired
    order = sorted(
        (view for view in views if not view.is_current),
        key=lambda view: (view.serves, view.fits, -counts[view.cluster], view.cluster, view.name),
    )
    for view in order:
        if view.is_broken and (surplus > 0 or not view.fits):
            removed[view.name] = "it has an old revision and does not serve"
        elif view.serves and surplus > 0 and spare > 0:
            removed[view.name] = "a replica of the current revision serves instead"
            spare -= 1
        else:
            continue
        surplus -= 1
    return removed


def givers(placing: Placing, bounds: Bounds, placed: int) -> tuple[str, ...]:
    """Return the old replicas of which one might give its place to a new replica, when only `placed` of the new
    replicas have found a place.

    Only replicas that do not fit where they are can give their place: all others change in place."""
    if placed >= placing.missing + int(bool(placing.new)) or failed(placing.staying):
        return ()
    if _budget(placing.staying, bounds, placed) < 1:
        return ()
    return tuple(sorted(view.name for view in placing.staying if not view.fits and view.serves))


def give_place(placing: Placing, name: str) -> Placing:
    """Return the first half of a step in which an old replica leaves before a new one serves."""
    removed = {**placing.removed, name: "it is replaced in place: no other place has free devices"}
    staying = tuple(view for view in placing.staying if view.name != name)
    return replace(placing, staying=staying, removed=removed, given=placing.given | {name})


def update(bounds: Bounds, staying: Sequence[ReplicaView], placed: int) -> Updating:
    """Return the old replicas that change in place now; `placed`: new replicas of this step."""
    old = [view for view in staying if view.fits and not view.is_current]
    updated = {view.name for view in old if view.is_broken}
    waiting: dict[str, str] = {}
    broken = failed(staying)
    is_surging = len(staying) + placed > bounds.desired
    budget = 0 if broken or is_surging else _budget(staying, bounds, placed)
    busy = {view.cluster for view in staying if view.is_broken}
    for view in sorted(old, key=lambda view: (view.cluster not in busy, view.cluster, view.name)):
        if view.name in updated:
            continue
        if view.health == "unknown":
            waiting[view.name] = f"cluster {view.cluster} does not answer"
        elif budget > 0 and (view.cluster in busy or len(busy) < bounds.clusters):
            updated.add(view.name)
            busy.add(view.cluster)
            budget -= 1
        else:
            waiting[view.name] = _reason(broken, is_surging, bounds)
    coming = placed > 0 or is_surging
    for view in staying:
        if not view.fits:
            waiting[view.name] = _reason(broken, coming, bounds) if broken or coming else _NO_PLACE
    return Updating(frozenset(updated), waiting)


def _budget(views: Sequence[ReplicaView], bounds: Bounds, placed: int) -> int:
    """Return how many replicas that serve may stop serving now."""
    return sum(view.serves for view in views) - bounds.least(len(views) + placed)


def _reason(broken: ReplicaView | None, is_surging: bool, bounds: Bounds) -> str:
    if broken:
        why = f": {broken.reason}" if broken.reason else ""
        return f"the rollout stopped, because replica {broken.name} on {broken.cluster} does not start{why}"
    if is_surging:
        return "it stays until a replica of the current revision serves instead"
    if bounds.unavailable < 1:
        return "no place has free devices for a surge replica, and maxUnavailable is 0"
    return "it changes once the replicas that changed before it serve"
