# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of a ModelReplica: its workloads on their cluster, and their readiness to serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import api, names
from ..api.model_replica import ModelReplicaStatus
from ..compose.owner import Owner
from ..compose.workload_cluster import WORKLOADS
from ..observation import ObservedCluster
from ..text import cut, joined
from ..wire import Object, entries, number, stated, text
from .conditions import Condition, Status, declared, hold, known, ready, unknown
from .workloads import (
    EngineStall,
    PodFailure,
    any_availability,
    availability,
    engine_stalls,
    failing_pods,
    failures_text,
    is_permanent,
)

_ACCEPTED = "ModelAccepted"
_READY = "ModelReady"


@dataclass(frozen=True)
class ReplicaState:
    """Observed state of a replica. Fields are None if its cluster is unobserved or unreachable."""

    accepted: bool | None
    """All its engine workloads exist on the cluster."""
    ready: bool | None
    """The workloads and the endpoint picker are available as desired."""
    message: str = ""
    """Missing parts, or failing pods of a ready replica."""
    serving: bool | None = None
    """The replica responds to requests. Stays True during a rollout, while `ready` is False."""
    remembered: bool = False
    """The state is the last known state, not the current state."""
    declared: bool = False
    """The cluster is unobserved, and its declared state is assumed."""
    failure: PodFailure | None = None
    """Most frequent failure of its pods."""
    pod: str = ""
    """Pod with this failure."""
    since: str = ""
    """Creation time of its first workload (RFC 3339)."""
    complete: bool = True
    """All pods have the desired revision and are ready."""
    failed: bool = False
    """A pod cannot start, or a workload makes no progress, without a further change."""
    stalls: tuple[EngineStall, ...] = ()
    """Last stall probe restarts of its engines."""


DECLARED = ReplicaState(True, True, serving=True, declared=True)
"""State of a replica on a file-based cluster. Its desired state is assumed."""


def replica_state(
    replica: api.ModelReplica, desired: Sequence[Object], observed: ObservedCluster | None
) -> ReplicaState:
    """Return the state of a ModelReplica that is composed into `desired` on its cluster."""
    cluster = replica.spec.cluster_name
    if observed is None:
        return ReplicaState(None, None, f"cluster {cluster} has not been observed")
    if observed.unreachable:
        return ReplicaState(None, None, f"cluster {cluster} did not answer: {cut(observed.unreachable)}")
    owner = Owner.of(replica)
    workloads = [value for value in desired if value["kind"] in WORKLOADS]
    engines = [
        availability(value, observed.objects.like(value))
        for value in workloads
        if value["metadata"]["name"] != owner.picker_name
    ]
    pickers = [
        any_availability(value, observed.objects.like(value))
        for value in workloads
        if value["metadata"]["name"] == owner.picker_name
    ]
    refused = [finding for value in desired if value["kind"] == "HTTPRoute" if (finding := _rejection(observed, value))]
    accepted = bool(engines) and all(engine.exists for engine in engines)
    components = [*engines, *pickers]
    serving = accepted and not refused and all(component.answers for component in components)
    is_ready = serving and all(component.available for component in components)
    missing = (
        [] if is_ready else sorted(component.message for component in components if component.message) + sorted(refused)
    )
    replica_label = (names.REPLICA_LABEL, names.label_value(owner.replica))
    pods = list(observed.objects.labelled("Pod", owner.workload_namespace, *replica_label)) if accepted else []
    failing = failing_pods(pods)
    created = (text(observed.objects.like(value), "metadata", "creationTimestamp") for value in workloads)
    return ReplicaState(
        accepted,
        is_ready,
        "; ".join(filter(None, [*missing, failures_text(failing)])),
        serving,
        failure=failing[0][0] if failing else None,
        pod=failing[0][1][0] if failing else "",
        since=min(filter(None, created), default=""),
        failed=any(is_permanent(failure) for failure, __ in failing)
        or any(component.is_stalled for component in components),
        stalls=tuple(engine_stalls(pods)),
    )


def _rejection(observed: ObservedCluster, desired: Object) -> str:
    """Return the message about a route that the gateway of the cluster rejects, or "" otherwise."""
    route = observed.objects.like(desired)
    generation = number(route, "metadata", "generation")
    parents = [entries(parent, "conditions") for parent in entries(route, "status", "parents")]
    verdicts = {stated(conditions, "Accepted", generation) for conditions in parents}
    if "False" not in verdicts or "True" in verdicts:
        return ""
    messages = {
        text(entry, "message") for conditions in parents for entry in conditions if entry.get("type") == "Accepted"
    }
    return f"HTTPRoute {desired['metadata']['name']} was rejected by its gateway: {cut('; '.join(sorted(messages)))}"


def remember(state: ReplicaState, previous: Mapping[str, Any] | None) -> ReplicaState:
    """Return the state with unknown fields from the ModelReplica's previous status.

    A temporarily unreachable cluster therefore changes nothing. A replica that was not ready might have been serving,
    so `serving` stays unknown.
    """
    if state.accepted is not None:
        return state
    was = known(previous, "Ready")
    return replace(state, accepted=known(previous, _ACCEPTED), ready=was, serving=was or None, remembered=True)


def model_replica(
    replica: api.ModelReplica, state: ReplicaState, previous: Mapping[str, Any] | None, *, waiting: str = ""
) -> Status[ModelReplicaStatus]:
    """Return the status of a ModelReplica. `previous`: its previous status.

    `waiting`: the reason for objects that cannot be applied to the cluster yet. The cluster does not exist, or has no
    connection.
    """
    conditions = _conditions(replica.spec.cluster_name, state, previous, waiting)
    return Status(conditions, api.construct(ModelReplicaStatus))


def _conditions(
    cluster: str, state: ReplicaState, previous: Mapping[str, Any] | None, waiting: str
) -> tuple[Condition, ...]:
    if waiting:
        accepted = Condition(_ACCEPTED, "False", "WaitingForCluster", waiting)
        return accepted, Condition(_READY, "False", "WaitingForModel", waiting), ready(False, previous, waiting)
    if state.declared:
        return tuple(declared(kind, cluster) for kind in (_ACCEPTED, _READY, "Ready"))
    if state.accepted is None or state.remembered:
        return tuple(hold(kind, previous, unknown(kind, state.message)) for kind in (_ACCEPTED, _READY, "Ready"))
    if not state.accepted:
        message = f"Waiting for cluster {cluster}: {state.message}"
        accepted = Condition(_ACCEPTED, "False", "Deploying", message)
        return accepted, Condition(_READY, "False", "WaitingForModel", message), ready(False, previous, message)
    accepted = Condition(_ACCEPTED, "True", "Accepted", f"All engines are on cluster {cluster}")
    if state.ready:
        serves = Condition(_READY, "True", "Serving", joined(f"Serving on cluster {cluster}", state.message))
        return accepted, serves, ready(True, previous)
    starting = Condition(_READY, "False", "ModelStarting", state.message)
    return accepted, starting, ready(False, previous, state.message)
