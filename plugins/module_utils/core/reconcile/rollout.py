# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""How an edit of a deployment reaches its replicas: cluster by cluster, so that a bad edit stops where it started."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import replica_objects
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import SPEC_HASH_ANNOTATION
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_cluster import WORKLOADS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import ObservedCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.context import Situation
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Placement
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, fields, number, text


def waiting(situation: Situation, edits: Iterable[tuple[Placement, Object, Object]]) -> frozenset[tuple[str, str]]:
    """The replicas (namespace, name) of kept placements that stay as they are until other clusters have their edit.

    `edits` are all kept placements with the ModelReplica that is there and the one that is wanted; only those of one
    deployment hold each other up. A replica that does not serve is changed at once: there is nothing to lose, and the
    edit may be what mends it. Of those that serve, `situation.rollout` clusters at a time are changed, and a cluster
    that is not through with its edit counts, or has not even got it: a run may end before it comes there. On one that
    does not answer everything stays as it is: nothing could be brought there either. On one that nobody looks at it is
    changed at once: nobody could tell when it is through.
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
        if situation.declared(placement.cluster):
            continue
        seen = situation.seen(placement.cluster)
        objects = replica_objects(there, situation.composing)
        if there == wanted:
            busy |= {placement.cluster} if through(objects, seen) is False else set()
        elif seen is not None and seen.unreachable:
            later.add((placement.namespace, placement.replica))
        elif serves(objects, seen) is False:
            busy.add(placement.cluster)
        else:
            eager.setdefault(placement.cluster, []).append(placement)
    for cluster in sorted(eager):
        if cluster in busy or len(busy) < situation.rollout:
            busy.add(cluster)
        else:
            later |= {(placement.namespace, placement.replica) for placement in eager[cluster]}
    return later


def serves(wanted: Iterable[Object], seen: ObservedCluster | None) -> bool | None:
    """Whether all pods of these workloads are ready and of the revision that the cluster has, which may be an older one
    than the wanted; None when nobody can tell."""
    return _all(_serves, wanted, seen)


def through(wanted: Iterable[Object], seen: ObservedCluster | None) -> bool | None:
    """Whether all pods of these workloads are ready and of the wanted revision; None when nobody can tell."""
    return _all(lambda value, there: _applied(value, there) and _serves(value, there), wanted, seen)


def _all(
    holds: Callable[[Object, Object | None], bool], wanted: Iterable[Object], seen: ObservedCluster | None
) -> bool | None:
    if seen is None or seen.unreachable:
        return None
    return all(holds(value, seen.objects.like(value)) for value in wanted if value["kind"] in WORKLOADS)


def _applied(wanted: Object, there: Object | None) -> bool:
    one, other = (text(value, "metadata", "annotations", SPEC_HASH_ANNOTATION) for value in (wanted, there))
    return one == other


def _serves(wanted: Object, there: Object | None) -> bool:
    generation = number(there, "metadata", "generation")
    if not fields(there, "status") or number(there, "status", "observedGeneration", default=generation) < generation:
        return False
    count = number(wanted, "spec", "replicas", default=1)
    return all(number(there, "status", field) >= count for field in ("updatedReplicas", "readyReplicas"))
