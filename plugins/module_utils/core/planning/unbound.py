# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Other places for replicas with an unschedulable pod.

Nodes might be missing or cordoned, free devices might be fragmented across nodes, or pods that the fleet does not own
use the devices. Only a replica that does not serve is placed elsewhere, and no other replica moves for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .. import api, names
from ..compose import constants, replica_objects
from ..compose.owner import Owner
from ..observation import NOT_READY, ObservedCluster
from ..scheduling import adapters
from ..scheduling.model import Cluster, Dropped, Refusal, Replica, Schedule, pools_of
from ..status import conditions
from ..status.model_replica import replica_state
from ..status.workloads import failures
from ..wire import Object, fields, text
from .context import Context
from .fleet import Key

MAX_TRIES = 8
"""Maximum number of replicas that a plan tries to place elsewhere. Each attempt costs as much as the plan."""

_READY = "ModelReady"

_UNSCHEDULABLE = "Unschedulable"
"""Reason of the condition PodScheduled of a pod that no node takes (Kubernetes, "Pod Lifecycle")."""

Decide = Callable[[Sequence[Cluster], Sequence[Replica]], Schedule]
Pools = frozenset[tuple[str, str]]
"""Pools by cluster and name."""


@dataclass(frozen=True)
class Mended:
    """Schedule with other placements for replicas that have a pod without a node."""

    schedule: Schedule
    avoided: Mapping[Key, Pools] = field(default_factory=dict)
    """Node pools to avoid for these replicas, by deployment."""
    left: tuple[Refusal, ...] = ()
    """Replicas without another placement."""


def mend(
    context: Context, decided: Schedule, capacity: Sequence[Cluster], replicas: Sequence[Replica], decide: Decide
) -> Mended:
    """Return a schedule that moves each replica with an unschedulable pod, if other planned placements leave capacity.

    Its node pools and the pools of its earlier failed placements count as full. Other replicas keep their placement.
    """
    moves: list[Dropped] = []
    avoided_pools: dict[Key, Pools] = {}
    refusals: list[Refusal] = []
    hopeless: set[tuple[str, str, Pools]] = set()
    tries = 0
    for replica, pod in _unbound(context, decided, capacity):
        pools = pools_of(replica.engines)
        excluded_pools = frozenset((replica.cluster, pool) for pool in pools) | _avoided(
            context.fleet.replicas[_key(replica)]
        )
        alike = (replica.namespace, replica.deployment, excluded_pools)
        if alike in hopeless:
            refusals.append(_refusal(replica, pod, "no other pool has room for it"))
            continue
        if tries >= MAX_TRIES:
            refusals.append(_refusal(replica, pod, f"a run tries to find another place for {MAX_TRIES} replicas"))
            continue
        tries += 1
        open_capacity = _closed(capacity, excluded_pools)
        candidates = [replace(entry, leaves=True) if _key(entry) == _key(replica) else entry for entry in replicas]
        attempt = decide(open_capacity, candidates)
        if not _keeps(decided, attempt, replica):
            refusals.append(_refusal(replica, pod, "no other pool has room for it"))
            hopeless.add(alike)
            continue
        capacity, replicas = open_capacity, candidates
        overcommitted = [
            entry
            for entry in decided.overcommitted
            if not any((cluster, entry.pool) in excluded_pools for cluster in entry.clusters)
        ]
        decided = replace(attempt, overcommitted=tuple(overcommitted), pending=decided.pending)
        location = f"pool {', '.join(sorted(pools))} of cluster {replica.cluster}"
        moves.append(Dropped(replica, f"pod {pod} found no node on {location}, so it gets another place"))
        owner = (replica.namespace, replica.deployment)
        avoided_pools[owner] = avoided_pools.get(owner, frozenset()) | excluded_pools
    dropped = sorted((*decided.dropped, *moves), key=lambda entry: _key(entry.replica))
    return Mended(replace(decided, dropped=tuple(dropped)) if moves else decided, avoided_pools, tuple(refusals))


def _refusal(replica: Replica, pod: str, why: str) -> Refusal:
    reason = (
        f"pod {pod} of ModelReplica {replica.namespace}/{replica.name} is unschedulable, and {why}. kubectl describe "
        "pod shows the reason. Add a node to the pool, or make its nodes available"
    )
    return Refusal(reason, min(pools_of(replica.engines)), (replica.cluster,))


def _key(replica: Replica) -> Key:
    return replica.namespace, replica.name


def marked(
    context: Context, replica: api.ModelReplica, existing: api.ModelReplica | None, avoided: Pools
) -> api.ModelReplica:
    """Return a ModelReplica with an annotation that lists the pools without a node for it, until it serves."""
    pools = avoided or (_avoided(existing) if existing else frozenset())
    if not pools or (existing is not None and not avoided and _serves(context, existing)):
        return replica
    annotation = " ".join("/".join(pool) for pool in sorted(pools))
    annotations = {**replica.annotations, names.NO_NODE_ANNOTATION: annotation}
    return replica.model_copy(update={"metadata": replica.metadata.model_copy(update={"annotations": annotations})})


def unmarked(replica: api.ModelReplica) -> api.ModelReplica:
    """Return a ModelReplica without the annotation that `marked` adds."""
    annotations = {key: value for key, value in replica.annotations.items() if key != names.NO_NODE_ANNOTATION}
    metadata = replica.metadata.model_copy(update={"annotations": annotations})
    return replica.model_copy(update={"metadata": metadata})


def _avoided(replica: api.ModelReplica) -> Pools:
    pairs = (entry.partition("/") for entry in replica.annotations.get(names.NO_NODE_ANNOTATION, "").split())
    return frozenset((cluster, pool) for cluster, __, pool in pairs)


def _unbound(context: Context, decided: Schedule, capacity: Sequence[Cluster]) -> list[tuple[Replica, str]]:
    """Return the unchanged replicas with an unschedulable pod, each with the name of the pod.

    Include a replica only if its pod was also unschedulable in an earlier reconcile pass or run, and no pod on the
    cluster is terminating. Otherwise, the pod might be scheduled soon. While its pools might grow, a replica has until
    its progress deadline.
    """
    growing = {(cluster.name, pool.name) for cluster in capacity for pool in cluster.pools if pool.arriving}
    changing = {entry.replica.cluster for entry in decided.dropped}
    unchanged = [
        placement for placement in decided.placements if placement.state == "kept" and placement.cluster not in changing
    ]
    unbound = []
    for placement in unchanged:
        observed = context.observed_cluster(placement.cluster)
        existing = context.fleet.replicas[placement.namespace, placement.replica]
        if observed is None or observed.unreachable or not _was_unbound(context, existing):
            continue
        replica = adapters.replica(existing)
        pods = _pods(existing, observed)
        pod = next((text(pod, "metadata", "name") for pod in pods if _is_unschedulable(pod)), "")
        if not pod or _leaves(observed):
            continue
        state = replica_state(existing, replica_objects(existing, context.composing), observed)
        grows = any((placement.cluster, pool) in growing for pool in pools_of(replica.engines))
        if state.serving is False and (state.failed or not grows):
            unbound.append((replica, pod))
    return unbound


def _was_unbound(context: Context, existing: api.ModelReplica) -> bool:
    """Return True if a replica had an unschedulable pod in an earlier pass or run, according to its status."""
    status = context.statuses.get(existing.ref)
    return _UNSCHEDULABLE in conditions.hold(_READY, status, conditions.unknown(_READY, "")).message


def _serves(context: Context, replica: api.ModelReplica) -> bool:
    observed = context.observed_cluster(replica.spec.cluster_name)
    return observed is None or bool(
        replica_state(replica, replica_objects(replica, context.composing), observed).serving
    )


def _pods(replica: api.ModelReplica, observed: ObservedCluster) -> list[Object]:
    owner = Owner.of(replica)
    label = names.label_value(owner.replica)
    return list(observed.objects.labelled("Pod", owner.workload_namespace, names.REPLICA_LABEL, label))


def _is_unschedulable(pod: Object) -> bool:
    """Return True if an engine pod is unschedulable. Endpoint picker pods can run on nodes of any pool."""
    is_picker = constants.PICKER_LABEL in fields(pod, "metadata", "labels")
    return not is_picker and any(failure.reason == _UNSCHEDULABLE for failure in failures(pod))


def _leaves(observed: ObservedCluster) -> bool:
    """Return True if a pod is terminating and will free its devices. On a node that is not Ready, no pod terminates."""
    lost = {node.name for nodes in (observed.unavailable or {}).values() for node in nodes if node.reason == NOT_READY}
    return any(
        fields(pod, "metadata").get("deletionTimestamp") and text(pod, "spec", "nodeName") not in lost
        for pod in observed.objects.of_kind("Pod")
    )


def _closed(clusters: Sequence[Cluster], closed_pools: Pools) -> list[Cluster]:
    """Return the clusters without free capacity on these pools."""
    return [
        replace(
            cluster,
            pools=tuple(
                pool.with_nodes(0) if (cluster.name, pool.name) in closed_pools else pool for pool in cluster.pools
            ),
        )
        for cluster in clusters
    ]


def _keeps(decided: Schedule, attempt: Schedule, replica: Replica) -> bool:
    """Return True if all deployments keep their number of replicas, and all other replicas keep their clusters."""
    counts, new_counts = (
        Counter((placement.namespace, placement.deployment) for placement in schedule.placements)
        for schedule in (decided, attempt)
    )
    locations, new_locations = (
        {
            (placement.namespace, placement.replica, placement.cluster)
            for placement in schedule.placements
            if placement.replica and (placement.namespace, placement.replica) != _key(replica)
        }
        for schedule in (decided, attempt)
    )
    return counts == new_counts and locations <= new_locations
