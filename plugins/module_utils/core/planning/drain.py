# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Drain of clusters with a NoExecute taint: a replica is removed once another one serves in its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.context import Context
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.fleet import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Schedule
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_replica import ReplicaState


def evicted(context: Context, decided: Schedule) -> list[api.ModelReplica]:
    """Return the ModelReplicas that a taint evicts from their cluster, sorted by name.

    None when the fleet is not observed, as it would not be known when to remove them.
    """
    if context.observed is None:
        return []
    keys = sorted((entry.replica.namespace, entry.replica.name) for entry in decided.dropped if entry.evicted)
    return [context.fleet.replicas[key] for key in keys if key in context.fleet.replicas]


def leaving(
    context: Context, decided: Schedule, candidates: Iterable[api.ModelReplica], states: Mapping[Key, ReplicaState]
) -> tuple[api.ModelReplica, ...]:
    """Return the evicted replicas that stay until others serve: one for each replica that does not serve yet.

    `states` are those of all placed replicas and of the candidates. A candidate that does not serve is removed at once.
    """
    missing = Counter({key: deployment.spec.replicas for key, deployment in context.fleet.deployments.items()})
    for placement in decided.placements:
        state = states.get((placement.namespace, placement.replica))
        missing[placement.namespace, placement.deployment] -= bool(state and state.serving)
    stay = []
    owners = {(entry.replica.namespace, entry.replica.name): entry.replica for entry in decided.dropped}
    for replica in candidates:
        key = (replica.namespace, replica.name)
        owner = (key[0], owners[key].deployment)
        state = states.get(key)
        if missing[owner] > 0 and (state is None or state.serving is not False):
            missing[owner] -= 1
            stay.append(replica)
    return tuple(stay)
