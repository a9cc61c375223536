# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""How an edit of a deployment reaches its replicas: cluster by cluster, so that a bad edit stops where it started."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import replica_objects
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observed import Object, ObservedCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.situation import Situation
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Placement

_WORKLOADS = ("Deployment", "LeaderWorkerSet")


def waiting(situation: Situation, edits: Iterable[tuple[Placement, Object, Object]]) -> frozenset[tuple[str, str]]:
    """The replicas (namespace, name) of kept placements that stay as they are until other clusters have their edit.

    `edits` are all kept placements with the ModelReplica that is there and the one that is wanted; only those of one
    deployment hold each other up. A replica that does not serve is changed at once: there is nothing to lose, and the
    edit may be what mends it. Of those that serve, `situation.rollout` clusters at a time are changed, and a cluster
    that has its edit and is not through with it counts. On one that does not answer everything stays as it is: nothing
    could be brought there either. Nobody observing, nobody waits.
    """
    if situation.observed is None:
        return frozenset()
    by_deployment: dict[tuple[str, str], list[tuple[Placement, Object, Object]]] = {}
    for entry in edits:
        by_deployment.setdefault((entry[0].namespace, entry[0].deployment), []).append(entry)
    found: set[tuple[str, str]] = set()
    for entries in by_deployment.values():
        found |= _waiting(situation, entries)
    return frozenset(found)


def _waiting(situation: Situation, entries: Sequence[tuple[Placement, Object, Object]]) -> set[tuple[str, str]]:
    busy: set[str] = set()
    eager: dict[str, list[Placement]] = {}
    later: set[tuple[str, str]] = set()
    for placement, there, wanted in entries:
        seen = situation.seen(placement.cluster)
        served = settled(replica_objects(there, situation.composing), seen)
        if there == wanted:
            busy |= {placement.cluster} if served is False else set()
        elif seen is not None and seen.unreachable:
            later.add((placement.namespace, placement.replica))
        elif served is False:
            busy.add(placement.cluster)
        else:
            eager.setdefault(placement.cluster, []).append(placement)
    for cluster in sorted(eager):
        if cluster in busy or len(busy) < situation.rollout:
            busy.add(cluster)
        else:
            later |= {(placement.namespace, placement.replica) for placement in eager[cluster]}
    return later


def settled(wanted: Iterable[Object], seen: ObservedCluster | None) -> bool | None:
    """Whether all pods of these workloads are of the current revision and ready; None when nobody can tell."""
    if seen is None or seen.unreachable:
        return None
    return all(_settled(value, seen.objects.like(value)) for value in wanted if value["kind"] in _WORKLOADS)


def _settled(wanted: Object, there: Object | None) -> bool:
    status: Any = (there or {}).get("status")
    metadata: Any = (there or {}).get("metadata")
    if not isinstance(status, dict) or not isinstance(metadata, dict):
        return False
    if _number(status, "observedGeneration", _number(metadata, "generation")) < _number(metadata, "generation"):
        return False
    count = wanted["spec"].get("replicas", 1)
    return all(_number(status, field) >= count for field in ("updatedReplicas", "readyReplicas"))


def _number(value: Any, field: str, default: int = 0) -> int:
    found = value.get(field, default)
    return found if isinstance(found, int) else default
