# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Graceful termination of pods: they keep serving while routes drop them and streams finish."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import api
from ..api.model_replica import PlacedEngine
from ..api.pod_template import Container
from ..servers.command_line import CommandLine
from ..servers.flags import served_names
from ..servers.table import SERVERS
from . import constants, images
from .availability import disruption_budget
from .engine_scripts import drain_command
from .member import Member, serving_member
from .probes import has_request_metrics, startup_seconds
from .sharing import on_one_node
from .workload import member_template, pod_labels, serving_template

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"

STOP_SECONDS = 30
"""Rest of the grace period after SIGTERM: the default grace period of Kubernetes."""
_EXIT_SECONDS = 10
"""Part of STOP_SECONDS for the exit of an engine, which then no longer waits for requests."""
_ENDPOINT_SECONDS = 15
"""Time until no proxy sends new requests to a terminating pod."""
_IDLE_SECONDS = 5
_PROGRESS_SECONDS = 600
"""Default of a Deployment's progressDeadlineSeconds."""
_GANG_PAUSE_SECONDS = 30
"""Default limit on the time that a leader keeps serving. LeaderWorkerSet also deletes it after a restart of any
container in its group, and its workers at once: without them it finishes no stream, but still holds its devices."""
_PREFILL = "Prefill"
_SHUTDOWN_TIMEOUT = "--shutdown-timeout"
# https://github.com/vllm-project/vllm/pull/36666, merged after v0.17 and before the branch of v0.19. An earlier vLLM
# does not start with the flag, so that tags without a version, and release candidates, do not get it.
_SHUTDOWN_TIMEOUT_SINCE = (0, 19)
_VLLM_IMAGE = "vllm-openai"
_RELEASE = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]{1,4})?(-.*)?", re.ASCII)


def serve_on(spec: dict[str, Any], seconds: int) -> None:
    """Make all containers of a pod (its spec, changed in place) keep serving for that time after its deletion.

    Endpoints drop a pod as soon as it is deleted. Requests in flight continue until SIGTERM ends them.
    """
    spec["terminationGracePeriodSeconds"] = seconds + STOP_SECONDS
    if seconds:
        for container in spec["containers"]:
            container["lifecycle"] = {"preStop": {"sleep": {"seconds": seconds}}}


def stop_gracefully(
    workload: dict[str, Any], members: Sequence[Member], engine: PlacedEngine, stream_grace: int
) -> None:
    """Set the termination of the pods of an engine's workload (changed in place) from their members.

    A pod keeps serving until it has no requests, for at most `stream_grace` seconds, or for a shorter time in a
    gang. Sidecars run as long as the engine.
    """
    for member in members:
        template = member_template(workload, member.role)
        annotations = template["metadata"].get("annotations") or {}
        # An autoscaler that drains a node would make the weights load again on another one.
        template["metadata"]["annotations"] = {SAFE_TO_EVICT: "false", **annotations}
        _end_of(member, template["spec"], engine, stream_grace)
    if workload["kind"] == "Deployment":
        grace = workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        # Devices for a new pod become free when the old pod has terminated. A new engine may take long to start.
        startup = startup_seconds(serving_member(members), engine)
        workload["spec"]["progressDeadlineSeconds"] = _PROGRESS_SECONDS + grace + startup


def stream_pause(workloads: Iterable[Mapping[str, Any]], stream_grace: int) -> int:
    """Return the time that a component in the path of these workloads' streams keeps serving: that of the longest
    workload, and at least `stream_grace` seconds."""
    periods: list[int] = [serving_template(workload)["spec"]["terminationGracePeriodSeconds"] for workload in workloads]
    return max(stream_grace, *(period - STOP_SECONDS for period in periods))


def engine_budget(workload: Mapping[str, Any], members: Sequence[Member], copies: int) -> tuple[dict[str, Any], ...]:
    """Return the PodDisruptionBudget of an engine with several copies: one copy at a time is evicted.

    Copies that share a planned node have none. Each would wait for the node of the others, and a drain for each.
    """
    if copies < 2 or any(map(on_one_node, members)):
        return ()
    metadata = serving_member(members).owner.metadata(workload["metadata"]["name"])
    return (disruption_budget(metadata, pod_labels(workload)),)


def _end_of(member: Member, spec: dict[str, Any], engine: PlacedEngine, stream_grace: int) -> None:
    period = member.placed.template.spec.termination_grace_period_seconds
    user_lifecycle = member.container.lifecycle
    own_pause = (
        user_lifecycle.pre_stop.sleep.seconds
        if user_lifecycle and user_lifecycle.pre_stop and user_lifecycle.pre_stop.sleep
        else 0
    )
    container = spec["containers"][0]
    lifecycle = api.wire(user_lifecycle) if user_lifecycle else {}
    if not member.serves:
        # Only the leader, which is deleted first, has streams. Kubernetes refuses a pause longer than the period.
        if period or own_pause:
            spec["terminationGracePeriodSeconds"] = period or own_pause + STOP_SECONDS
    else:
        longest = _GANG_PAUSE_SECONDS if member.role == constants.LEADER else stream_grace
        pause = max(period - STOP_SECONDS, period // 2) if period else own_pause or min(stream_grace, longest)
        spec["terminationGracePeriodSeconds"] = period or pause + STOP_SECONDS
        if pause:
            hook = _drain_hook(member, container["ports"][0]["containerPort"], engine, pause)
            lifecycle = {"preStop": hook, **lifecycle}
        remaining = spec["terminationGracePeriodSeconds"] - (own_pause or pause) - _EXIT_SECONDS
        if remaining > 0 and _lacks_shutdown_timeout(member):
            container["args"] = [*container.get("args", ()), f"{_SHUTDOWN_TIMEOUT}={remaining}"]
    if lifecycle:
        container["lifecycle"] = lifecycle


def _drain_hook(member: Member, port: int, engine: PlacedEngine, pause: int) -> dict[str, Any]:
    if not has_request_metrics(member.container):
        # An image of another server may have no shell. A command that cannot run would end the pod at once.
        return {"sleep": {"seconds": pause}}
    command = drain_command(
        port,
        transfers=engine.phase == _PREFILL,
        minimum=min(_ENDPOINT_SECONDS, pause),
        idle=_IDLE_SECONDS,
        maximum=pause,
    )
    return {"exec": {"command": command}}


def _lacks_shutdown_timeout(member: Member) -> bool:
    """Return True if an engine aborts streams on SIGTERM, and the flag makes it wait for them.

    Only a Standalone engine can wait: the workers of a gang stop at the same time.
    """
    container = member.container
    line = CommandLine.of(container)
    names = served_names(line)
    return (
        member.role == constants.STANDALONE
        and line.server is SERVERS["vllm"]
        and _has_shutdown_timeout(container)
        and not line.has((_SHUTDOWN_TIMEOUT,))
        and names is not None
        and names.can_be_added
    )


def _has_shutdown_timeout(container: Container) -> bool:
    """Return True if the image of a container is known to be a vLLM with the flag."""
    image = images.reference(container.image)
    release = _RELEASE.fullmatch(image.tag) if image else None
    if image is None or release is None or not image.repository.rpartition("/")[2].startswith(_VLLM_IMAGE):
        return False
    return (int(release[1]), int(release[2])) >= _SHUTDOWN_TIMEOUT_SINCE
