# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rollout of an edit of a deployment: cluster by cluster, so that a bad edit stops at the first cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import replica_objects
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import SPEC_HASH_ANNOTATION
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_cluster import WORKLOADS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import ObservedCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.context import Context
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Placement
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, fields, number, text

Edit = tuple[Placement, api.ModelReplica, api.ModelReplica]
"""Kept placement with the existing ModelReplica and the desired one."""


def waiting(context: Context, edits: Iterable[Edit]) -> frozenset[tuple[str, str]]:
    """Return the replicas (namespace, name) of kept placements that wait for the rollout on other clusters.

    `edits` are all kept placements with the existing ModelReplica and the desired one; only edits of one deployment
    wait for each other. A replica that does not serve is changed at once, as the edit may repair it. Serving replicas
    are changed on `context.rollout` clusters at a time; a cluster counts until its rollout is complete, even when its
    edit has not been applied yet, as a run may end before that. On an unreachable cluster nothing changes, as nothing
    could be applied. On a cluster that is not observed replicas are changed at once, as completion would never be
    known.
    """
    if context.observed is None:
        return frozenset()
    by_deployment: dict[tuple[str, str], list[Edit]] = {}
    for entry in edits:
        by_deployment.setdefault((entry[0].namespace, entry[0].deployment), []).append(entry)
    found: set[tuple[str, str]] = set()
    for entries in by_deployment.values():
        found |= _waiting(context, entries)
    return frozenset(found)


def _waiting(context: Context, entries: Sequence[Edit]) -> set[tuple[str, str]]:
    busy: set[str] = set()
    eager: dict[str, list[Placement]] = {}
    later: set[tuple[str, str]] = set()
    for placement, existing, desired in entries:
        if context.declared(placement.cluster):
            continue
        observed = context.observed_cluster(placement.cluster)
        objects = replica_objects(existing, context.composing)
        if existing == desired:
            busy |= {placement.cluster} if is_rolled_out(objects, observed) is False else set()
        elif observed is not None and observed.unreachable:
            later.add((placement.namespace, placement.replica))
        elif serves(objects, observed) is False:
            busy.add(placement.cluster)
        else:
            eager.setdefault(placement.cluster, []).append(placement)
    for cluster in sorted(eager):
        if cluster in busy or len(busy) < context.rollout:
            busy.add(cluster)
        else:
            later |= {(placement.namespace, placement.replica) for placement in eager[cluster]}
    return later


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
    return all(predicate(value, cluster.objects.like(value)) for value in desired if value["kind"] in WORKLOADS)


def _applied(desired: Object, actual: Object | None) -> bool:
    one, other = (text(value, "metadata", "annotations", SPEC_HASH_ANNOTATION) for value in (desired, actual))
    return one == other


def _serves(desired: Object, actual: Object | None) -> bool:
    generation = number(actual, "metadata", "generation")
    if not fields(actual, "status") or number(actual, "status", "observedGeneration", default=generation) < generation:
        return False
    count = number(desired, "spec", "replicas", default=1)
    return all(number(actual, "status", field) >= count for field in ("updatedReplicas", "readyReplicas"))
