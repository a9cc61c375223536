# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of a ModelDeployment: numbers of scheduled and serving replicas, and the reasons for missing replicas."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from typing import Any, Literal

from .. import api, names
from ..api.model_deployment import ModelDeploymentStatus, ReplicaCounts
from ..scheduling.model import Pending, Placement
from ..text import count, cut, listed, parse_time
from ..wire import entries
from .conditions import Condition, Status, earlier, hold, known, ready, unknown
from .model_replica import ReplicaState

_SCHEDULED = "ReplicasScheduled"
_READY = "ReplicasReady"
_CACHE = "ModelCacheResolved"
_REASONS_SHOWN = 3

_ROLLED_OUT = "RolloutComplete"
_STALLED = "EngineStalled"
_SAME_CAUSE_TIME = timedelta(minutes=10)
_SAME_CAUSE = "engines hung within 10 minutes of each other: check their logs for a request that causes the hangs"


@dataclass(frozen=True)
class RolloutState:
    """Incomplete rollout of a deployment.

    updated: number of replicas with the current revision.
    old: number of replicas with an old revision.
    stopped: replica that stopped the rollout, with the reason. Empty if none did.
    outdated: reason why replacements are unschedulable. Empty if they are schedulable.
    """

    updated: int
    old: int
    stopped: str = ""
    outdated: str = ""


CacheState = Literal["none", "resolved", "unresolved", "missing"]
_NOT_OBSERVED = ReplicaState(None, None, "it has not been observed")


def model_deployment(
    deployment: api.ModelDeployment,
    placements: Sequence[Placement],
    pending: Pending | None,
    replica_states: Mapping[tuple[str, int], ReplicaState],
    cache: CacheState = "none",
    invalid: str = "",
    *,
    leaving: Collection[tuple[str, int]] = (),
    rollout: RolloutState | None = None,
    unready_endpoints: Sequence[str] = (),
    previous: Mapping[str, Any] | None = None,
) -> Status[ModelDeploymentStatus]:
    """Return the status of a ModelDeployment.

    placements, pending: part of the schedule for this deployment.
    leaving: replicas that are removed when their replacements serve. They count as existing replicas.
    replica_states: states by (cluster, index). An unknown state is the last known state (see `remember`).
    invalid: error of an invalid specification. Running replicas still count, because they are not removed.
    rollout: incomplete rollout, None if the rollout is complete.
    unready_endpoints: names of ModelEndpoints that are not Ready.
    """
    previous_status = earlier(deployment.status, previous)
    placed = [(placement.cluster, placement.index) for placement in placements]
    states = {key: replica_states.get(key, _NOT_OBSERVED) for key in (*placed, *leaving)}
    if not invalid and pending is not None and pending.reason == "InvalidNodeSelector":
        invalid = pending.message
    desired = deployment.spec.replicas
    conditions: list[Condition] = []
    if desired == 0 and not states and not invalid:
        message = "Scaled to zero"
        conditions += [Condition(kind, "True", "ScaledToZero", message) for kind in (_SCHEDULED, _READY)]
        conditions.append(ready(True, previous_status, message))
    else:
        scheduled = _scheduled(deployment, desired, {key: states[key] for key in placed}, pending, invalid)
        if leaving:
            scheduled = replace(scheduled, message=f"{scheduled.message}; {_leaving_message(len(leaving))}")
        serving = _replicas_ready(states)
        missing = scheduled.message if len(placed) < desired else ""
        conditions += [
            scheduled,
            serving,
            _overall(scheduled, serving, missing, states, unready_endpoints, previous_status),
        ]
    if rollout is not None or any(seen.get("type") == _ROLLED_OUT for seen in entries(previous_status, "conditions")):
        conditions.append(_rolled_out(rollout))
    stalled = _engine_stalled(states, previous_status)
    if stalled is not None:
        conditions.append(stalled)
    if cache != "none":
        conditions.append(_cache_resolved(deployment, cache))
    ready_replicas = sum(state.ready is True for state in states.values())
    fields = api.construct(
        ModelDeploymentStatus,
        replicas=api.construct(
            ReplicaCounts,
            total=len(states),
            ready=ready_replicas,
            updated=rollout.updated if rollout else None,
            leaving=len(leaving) or None,
        ),
        selector=f"{names.DEPLOYMENT_LABEL}={names.label_value(deployment.name)}",
    )
    return Status(tuple(conditions), fields)


def _scheduled(
    deployment: api.ModelDeployment,
    desired: int,
    states: Mapping[tuple[str, int], ReplicaState],
    pending: Pending | None,
    invalid: str,
) -> Condition:
    placed = len(states)
    if invalid:
        stay = f"; running replicas stay unchanged ({placed} of {desired})" if placed else ""
        return Condition(_SCHEDULED, "False", "InvalidNodeSelector", f"{invalid}{stay}")
    why = _reasons(pending)
    if not placed and pending is not None and pending.reason == "NoClusters":
        return Condition(_SCHEDULED, "False", "NoClusters", f"No InferenceClusters found{_selector(deployment)}")
    if not placed:
        message = pending.message if pending else f"0 of {desired} replicas scheduled"
        return Condition(_SCHEDULED, "False", "InsufficientCapacity", f"{message}; {why}" if why else message)
    message = f"Scheduled {placed} of {desired} replicas"
    if placed < desired and pending is not None:
        message += f"; {why or pending.message}"
    if not any(state.accepted for state in states.values()):
        clusters = listed(cluster for cluster, __ in states)
        return Condition(_SCHEDULED, "False", "Scheduling", f"{message}; none is on its cluster yet ({clusters})")
    return Condition(_SCHEDULED, "True", "ReplicasCreated", message)


def _rolled_out(rollout: RolloutState | None) -> Condition:
    if rollout is None:
        return Condition(_ROLLED_OUT, "True", "AllReplicasUpdated", "All replicas have the current revision")
    message = f"{count(rollout.updated, 'replica')} updated, {count(rollout.old, 'old replica')} remaining"
    if rollout.stopped:
        return Condition(_ROLLED_OUT, "False", "RolloutStopped", f"{message}; stopped by replica {rollout.stopped}")
    if rollout.outdated:
        return Condition(_ROLLED_OUT, "False", "ReplicasOutdated", f"{message}: {rollout.outdated}")
    return Condition(_ROLLED_OUT, "False", "RollingOut", message)


def engine_stalls(states: Iterable[tuple[str, ReplicaState]]) -> str:
    """Return the restarts of engines that hung as text, the latest first. Return "" if no engine hung.

    states: replica states, each with the name of its cluster.
    """
    stalls = [(stall.time, f"{stall.pod} on {cluster}", stall) for cluster, state in states for stall in state.stalls]
    stall_texts = [f"pod {pod}: {stall}" for __, pod, stall in sorted(stalls, reverse=True)[:_REASONS_SHOWN]]
    omitted_count = len(stalls) - len(stall_texts)
    return "; ".join(
        [
            *stall_texts,
            *([f"{omitted_count} more"] if omitted_count > 0 else []),
            *([_SAME_CAUSE] if _have_same_cause(time for time, *__ in stalls) else []),
        ]
    )


def _have_same_cause(times: Iterable[str]) -> bool:
    """Return True if two engines hung within a short time."""
    moments = sorted(filter(None, map(parse_time, times)))
    return any(later - moment <= _SAME_CAUSE_TIME for moment, later in pairwise(moments))


def _engine_stalled(
    states: Mapping[tuple[str, int], ReplicaState], previous_status: Mapping[str, Any]
) -> Condition | None:
    """Return the condition EngineStalled, None if no engine ever hung."""
    if message := engine_stalls((cluster, state) for (cluster, __), state in states.items()):
        return Condition(_STALLED, "True", "EngineRestarted", message)
    if known(previous_status, _STALLED) is None:
        return None
    recovered = Condition(_STALLED, "False", "NoStalls", "No running pod was restarted because its engine hung")
    return (
        hold(_STALLED, previous_status, recovered) if any(state.remembered for state in states.values()) else recovered
    )


def _leaving_message(number: int) -> str:
    return f"{count(number, 'leaving replica')} {'stays' if number == 1 else 'stay'} until others serve"


def _reasons(pending: Pending | None) -> str:
    """Return the first reasons of the scheduler, and the number of omitted reasons."""
    refusals = pending.refusals if pending else ()
    refusal_texts = [cut(str(refusal)) for refusal in refusals[:_REASONS_SHOWN]]
    omitted_count = len(refusals) - len(refusal_texts)
    return "; ".join([*refusal_texts, f"{omitted_count} more reasons"] if omitted_count > 0 else refusal_texts)


def _selector(deployment: api.ModelDeployment) -> str:
    selector = deployment.spec.template.spec.cluster_selector
    labels = (selector.match_labels if selector else None) or {}
    return f" with the labels {', '.join(f'{key}={labels[key]}' for key in sorted(labels))}" if labels else ""


def _replicas_ready(states: Mapping[tuple[str, int], ReplicaState]) -> Condition:
    if not states:
        return Condition(_READY, "False", "NoReplicasScheduled", "No replica is scheduled")
    done = sum(state.ready is True for state in states.values())
    message = f"{done} of {len(states)} ready"
    waiting = [
        f"replica {index} on {cluster}: {cut(state.message)}" if state.message else f"replica {index} on {cluster}"
        for (cluster, index), state in sorted(states.items())
        # The message of a remembered state is the reason for an unknown current state.
        if not state.ready or (state.message and not state.remembered)
    ]
    omitted_count = len(waiting) - _REASONS_SHOWN
    message = "; ".join([message, *waiting[:_REASONS_SHOWN], *([f"{omitted_count} more"] if omitted_count > 0 else [])])
    if done == len(states):
        return Condition(_READY, "True", "AllReplicasReady", message)
    if any(state.ready is False for state in states.values()):
        return Condition(_READY, "False", "ModelStarting", message)
    return unknown(_READY, message)


def _overall(
    scheduled: Condition,
    serving: Condition,
    missing: str,
    states: Mapping[tuple[str, int], ReplicaState],
    unready_endpoints: Sequence[str],
    previous_status: Mapping[str, Any],
) -> Condition:
    """Return Ready: at least one replica exists, and all existing replicas serve. `missing`: message about unscheduled
    replicas."""
    if scheduled.reason == "InvalidNodeSelector" or not states:
        return ready(False, previous_status, scheduled.message)
    if serving.status != "True":
        return ready({"False": False}.get(serving.status), previous_status, serving.message)
    if unready_endpoints:
        return ready(False, previous_status, f"Waiting for ModelEndpoint {listed(unready_endpoints)}")
    return ready(True, previous_status, missing)


def _cache_resolved(deployment: api.ModelDeployment, cache: CacheState) -> Condition:
    reference = deployment.spec.template.spec.model_cache_ref
    name = reference.name if reference else ""
    if cache == "resolved":
        return Condition(_CACHE, "True", "ModelCacheResolved", f"ModelCache {name} is resolved")
    if cache == "unresolved":
        return Condition(_CACHE, "False", "ModelCacheUnresolved", f"Waiting for ModelCache {name}")
    message = f"ModelCache {name} not found; holding replica placement"
    return Condition(_CACHE, "False", "ModelCacheNotFound", message)
