# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Graceful termination of pods: they keep serving while routes drop them and streams finish."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.availability import disruption_budget
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.member import Member, serving_member
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.sharing import on_one_node
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload import (
    member_template,
    pod_labels,
    serving_template,
)

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"

STOP_SECONDS = 30
"""Rest of the grace period after SIGTERM: the default grace period of Kubernetes."""
_PROGRESS_SECONDS = 600
"""Default of a Deployment's progressDeadlineSeconds."""
_GANG_PAUSE_SECONDS = 30
"""Default limit on the time that a leader keeps serving. LeaderWorkerSet also deletes it after a restart of any
container in its group, and its workers at once: without them it finishes no stream, but still holds its devices."""


def serve_on(spec: dict[str, Any], seconds: int) -> None:
    """Let all containers of a pod (its spec, changed in place) keep serving for that long after its deletion.

    Endpoints drop a pod as soon as it is deleted; requests in flight continue until SIGTERM cuts them.
    """
    _end(spec, seconds, seconds + STOP_SECONDS)


def stop_gracefully(workload: dict[str, Any], parts: Sequence[Member], stream_grace: int) -> None:
    """Set the termination of the pods of an engine's workload (changed in place) from their members.

    The default is to keep serving for `stream_grace` seconds, or shortly in a gang. Sidecars run as long as the engine.
    """
    for member in parts:
        template = member_template(workload, member.role)
        annotations = template["metadata"].get("annotations") or {}
        # An autoscaler that drains a node would make the weights load again on another one.
        template["metadata"]["annotations"] = {SAFE_TO_EVICT: "false", **annotations}
        _end_of(member, template["spec"], stream_grace)
    if workload["kind"] == "Deployment":
        grace = workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        # Devices for a new pod become free when the old pod has terminated.
        workload["spec"]["progressDeadlineSeconds"] = _PROGRESS_SECONDS + grace


def stream_pause(workloads: Iterable[Mapping[str, Any]], stream_grace: int) -> int:
    """Return the time that a component in the path of these workloads' streams keeps serving: that of the longest
    workload, and at least `stream_grace` seconds."""
    periods: list[int] = [serving_template(each)["spec"]["terminationGracePeriodSeconds"] for each in workloads]
    return max(stream_grace, *(period - STOP_SECONDS for period in periods))


def engine_budget(workload: Mapping[str, Any], parts: Sequence[Member], copies: int) -> tuple[dict[str, Any], ...]:
    """Return the PodDisruptionBudget of an engine with several copies: one copy at a time is evicted.

    Copies that share a planned node have none. Each would wait for the node of the others, and a drain for each.
    """
    if copies < 2 or any(map(on_one_node, parts)):
        return ()
    metadata = serving_member(parts).owner.metadata(workload["metadata"]["name"])
    return (disruption_budget(metadata, pod_labels(workload)),)


def _end_of(member: Member, spec: dict[str, Any], stream_grace: int) -> None:
    period = member.placed.template.spec.termination_grace_period_seconds
    written = member.container.lifecycle
    own_pause = written.pre_stop.sleep.seconds if written and written.pre_stop and written.pre_stop.sleep else 0
    if not member.serves:
        # Only the leader, which is deleted first, has streams. Kubernetes refuses a pause longer than the period.
        if period or own_pause:
            spec["terminationGracePeriodSeconds"] = period or own_pause + STOP_SECONDS
    elif period:
        _end(spec, max(period - STOP_SECONDS, period // 2), period)
    else:
        longest = _GANG_PAUSE_SECONDS if member.role == constants.LEADER else stream_grace
        serve_on(spec, own_pause or min(stream_grace, longest))
    engine = spec["containers"][0]
    lifecycle = {**engine.get("lifecycle", {}), **(api.wire(written) if written else {})}
    if lifecycle:
        engine["lifecycle"] = lifecycle


def _end(spec: dict[str, Any], pause: int, period: int) -> None:
    spec["terminationGracePeriodSeconds"] = period
    if pause:
        for container in spec["containers"]:
            container["lifecycle"] = {"preStop": {"sleep": {"seconds": pause}}}
