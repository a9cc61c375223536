# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Drain of replicas that have to leave their place: each is removed once another one serves instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from .. import api
from ..names import PREEMPTED_ANNOTATION
from ..scheduling import adapters
from ..scheduling.model import Replica, Schedule
from ..status.model_replica import ReplicaState
from ..text import count, listed, some
from .context import Context
from .fleet import Key


def evicted(context: Context, decided: Schedule) -> list[api.ModelReplica]:
    """Return the ModelReplicas that must leave but may remain for a while, sorted by name.

    The result is None if the fleet is not observed, because it would be unknown when to remove them.
    """
    if context.observed is None:
        return []
    keys = sorted(
        (entry.replica.namespace, entry.replica.name)
        for entry in decided.dropped
        if entry.evicted or entry.preempted_by
    )
    return [context.fleet.replicas[key] for key in keys if key in context.fleet.replicas]


def leaving(
    context: Context, decided: Schedule, candidates: Iterable[api.ModelReplica], states: Mapping[Key, ReplicaState]
) -> tuple[api.ModelReplica, ...]:
    """Return the candidates that stay until other replicas serve: one candidate for each replica that does not
    serve yet.

    Another replica waits for a preempted candidate's devices, so the candidate stays only for a placed replica. A
    candidate that returns while other replicas are pending also stays only for a placed replica, because pending
    replicas might never serve.

    `states` contains the states of all placed replicas and candidates. A candidate that does not serve is removed at
    once.
    """
    missing = Counter({key: deployment.spec.replicas for key, deployment in context.fleet.deployments.items()})
    coming: Counter[Key] = Counter()
    for placement in decided.placements:
        state = states.get((placement.namespace, placement.replica))
        owner = (placement.namespace, placement.deployment)
        missing[owner] -= bool(state and state.serving)
        coming[owner] += not (state and state.serving)
    stay = []
    entries = {(entry.replica.namespace, entry.replica.name): entry for entry in decided.dropped}
    for replica in candidates:
        key = (replica.namespace, replica.name)
        entry = entries[key]
        owner = (key[0], entry.replica.deployment)
        state = states.get(key)
        unserved = min(missing[owner], coming[owner]) if entry.preempted_by else missing[owner]
        if unserved > 0 and (state is None or state.serving is not False):
            missing[owner] -= 1
            coming[owner] -= 1
            stay.append(_marked(replica, entry.preempted_by))
    return tuple(stay)


def blocked(
    decided: Schedule, staying: Iterable[api.ModelReplica], states: Mapping[Key, ReplicaState]
) -> frozenset[str]:
    """Return the clusters where preempted replicas still keep new replicas from serving. The preempted replicas stay
    there until other replicas serve on other clusters."""
    marked = [adapters.replica(replica) for replica in staying if PREEMPTED_ANNOTATION in replica.annotations]
    preempted = [replica for replica in marked if replica.preempted_by != f"{replica.namespace}/{replica.deployment}"]
    owners = {(replica.namespace, replica.deployment) for replica in preempted}
    awaited = set()
    for placement in decided.placements:
        state = states.get((placement.namespace, placement.replica))
        if (placement.namespace, placement.deployment) in owners and not (state and state.serving):
            awaited.add(placement.cluster)
    return frozenset(replica.cluster for replica in preempted) - awaited


def unplaced(context: Context, decided: Schedule) -> Iterator[str]:
    """Yield a warning for each deployment that has more evicted replicas than new placements, in an unobserved fleet.

    In such a fleet, no evicted replica remains until its replacement serves, because no run observes the replacement.
    """
    if context.observed is not None:
        return
    new = Counter(
        (placement.namespace, placement.deployment) for placement in decided.placements if placement.state == "new"
    )
    leavers: dict[Key, list[Replica]] = {}
    for entry in decided.dropped:
        if entry.evicted:
            leavers.setdefault((entry.replica.namespace, entry.replica.deployment), []).append(entry.replica)
    for pending in decided.pending:
        owner = (pending.namespace, pending.deployment)
        leaving_replicas = leavers.get(owner, [])
        placed = max(new[owner], len(leaving_replicas) - pending.count)
        if placed < len(leaving_replicas):
            clusters = listed(replica.cluster for replica in leaving_replicas)
            summary = (
                f"{placed} of {count(len(leaving_replicas), 'replica')} leaving {clusters} found a place elsewhere"
            )
            yield (
                f"{'/'.join(owner)}: {summary} ({some(replica.name for replica in leaving_replicas)}). None of them "
                "stays, as no cluster is read that would say when others serve. Add capacity elsewhere or lower "
                f"spec.replicas; a run without the drain, or the taint, gives {clusters} replicas again"
            )


def _marked(replica: api.ModelReplica, preempted_by: str) -> api.ModelReplica:
    """Return a ModelReplica annotated with the deployment that preempted it, for later runs.

    If no deployment preempted it, the ModelReplica is returned unchanged.
    """
    if not preempted_by:
        return replica
    annotations = {**replica.annotations, PREEMPTED_ANNOTATION: preempted_by}
    return replica.model_copy(update={"metadata": replica.metadata.model_copy(update={"annotations": annotations})})
