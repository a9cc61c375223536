# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""How a cluster with a NoExecute taint is emptied: a replica goes when another one answers in its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.context import Situation
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.fleet import Key, Object
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Schedule
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_replica import ReplicaState


def evicted(situation: Situation, decided: Schedule) -> list[Object]:
    """The ModelReplicas (wire form) that a taint drives from their cluster, sorted by name; none when nobody observes,
    as nobody could tell when they may go."""
    if situation.observed is None:
        return []
    keys = sorted((entry.replica.namespace, entry.replica.name) for entry in decided.dropped if entry.evicted)
    return [situation.fleet.replicas[key] for key in keys if key in situation.fleet.replicas]


def leaving(
    situation: Situation, decided: Schedule, candidates: Iterable[Object], states: Mapping[Key, ReplicaState]
) -> tuple[Object, ...]:
    """Those of the evicted replicas that stay until others serve: as many as there are that do not serve yet.

    `states` are those of all placed replicas and of the candidates. A candidate that does not serve goes at once.
    """
    missing = Counter({key: deployment.spec.replicas for key, deployment in situation.fleet.deployments.items()})
    for placement in decided.placements:
        state = states.get((placement.namespace, placement.replica))
        missing[placement.namespace, placement.deployment] -= bool(state and state.serving)
    stay = []
    owners = {(entry.replica.namespace, entry.replica.name): entry.replica for entry in decided.dropped}
    for wire in candidates:
        key = (wire["metadata"]["namespace"], wire["metadata"]["name"])
        owner = (key[0], owners[key].deployment)
        state = states.get(key)
        if missing[owner] > 0 and (state is None or state.serving is not False):
            missing[owner] -= 1
            stay.append(wire)
    return tuple(stay)
