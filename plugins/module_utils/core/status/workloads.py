# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Availability of workloads on a cluster, and failures of their pods."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..compose.engine_scripts import VERDICT
from ..text import count, cut, listed
from ..wire import Object, entries, fields, is_being_deleted, is_true, number, stated, text

_AVAILABLE_COUNT = {"Deployment": "availableReplicas", "LeaderWorkerSet": "readyReplicas"}
_ERRORS = (("ReplicaFailure", "True"), ("Progressing", "False"))
"""Error conditions of workloads: type and status."""
_STUCK = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)

EVENT_CONDITION = "modelplane.ai/Event"
"""Condition that observers add to an object for a failure that is reported by events only."""
NODE_LOST = "NodeLost"
"""Reason of that condition for a pod with a deletion that waits for a lost node."""

_PREEMPTION = re.compile(
    r"(?:\s*(?:still not schedulable|no new claims to deallocate|deallocation of one ResourceClaim completed))?"
    r"[,.]?\s*preemption:"
)
_NO_NODE = re.compile(r"0/(\d+) nodes are available: (\d+) node\(s\) didn't match Pod's node affinity/selector\.?$")
_HINTS = tuple(
    (re.compile(pattern), hint)
    for pattern, hint in (
        (
            "cannot allocate all claims",
            "no node has enough free devices of the kind that its ResourceClaim requests; compare the ResourceSlices "
            "of the nodes with their InferenceClass, and check which ResourceClaims hold devices",
        ),
        (r"device class (\S+) does not exist", r"install the DRA driver that provides DeviceClass \1"),
        (
            "ResourceClaim not created yet",
            "the ResourceClaimTemplate is missing, or kube-controller-manager does not create claims from it",
        ),
        (
            r"Insufficient (\S+?)(?=[,.]?(?:\s|$))",
            r"less \1 is free than it requests; lower the request or use larger nodes",
        ),
        (
            r"persistentvolumeclaim|PersistentVolumeClaim",
            "its volume is not bound; check the events of the PersistentVolumeClaim",
        ),
        (
            r"didn't match pod affinity rules",
            "the plan has it share a node with pods that are not there, or whose node has no room for it; delete its "
            "ModelReplica to have it placed again",
        ),
        (r"untolerated taint", "tolerate the taint in the member's template, or remove it from the nodes"),
    )
)
"""Patterns of the scheduler's messages (reasons of its plugins, kube-scheduler 1.34 to 1.36), and hints for them."""


@dataclass(frozen=True)
class Availability:
    """Availability of a workload.

    available: all desired copies of the current revision are available.
    answers: at least one copy of any revision is available.
    message: reason why the workload is not available.
    is_stalled: the controller reports no progress.
    """

    exists: bool
    available: bool
    answers: bool
    message: str = ""
    is_stalled: bool = False


def availability(desired: Object, observed: Object | None) -> Availability:
    """Return the availability of a Deployment or LeaderWorkerSet.

    The Available condition is not sufficient: a Deployment of one pod with maxUnavailable 1 is Available without any
    pod (API reference, DeploymentStatus). One copy must therefore be available. LeaderWorkerSets do not have
    observedGeneration (API v1), so their status is assumed to be current.
    """
    name = f"{desired['kind']} {desired['metadata']['name']}"
    if observed is None:
        return Availability(False, False, False, f"{name} does not exist yet")
    copies = number(desired, "spec", "replicas", default=1)
    up = max(number(observed, "status", _AVAILABLE_COUNT[desired["kind"]]), 0)
    answers = up > 0 or copies == 0
    if is_true(observed, "Available") and answers:
        return Availability(True, True, True)
    message = f"{name}: {up} of {copies} available"
    if not _is_current(observed):
        message = f"{name}: its controller has not processed the latest change yet"
    message = "; ".join([message, *_controller_messages(observed)])
    return Availability(True, False, answers, message, _is_stalled(observed))


def any_availability(desired: Object, observed: Object | None) -> Availability:
    """Return the availability of a Deployment with redundant pods. One available pod is sufficient.

    The Available condition of a Deployment with two pods requires both, and would disable the backends whenever a node
    is drained.
    """
    strict = availability(desired, observed)
    if strict.exists and (is_true(observed, "Available") or (strict.answers and _is_current(observed))):
        return Availability(True, True, True)
    return strict


def _is_current(observed: Object | None) -> bool:
    """Return True unless the status of an object is about an older generation."""
    generation = number(observed, "metadata", "generation")
    return number(observed, "status", "observedGeneration", default=generation) >= generation


def _is_stalled(observed: Object) -> bool:
    """Return True if the progress deadline of a Deployment has passed, or its pods cannot be created."""
    conditions = entries(observed, "status", "conditions")
    return any((condition.get("type"), condition.get("status")) in _ERRORS for condition in conditions)


def _controller_messages(observed: Object) -> list[str]:
    """Return the errors that the controller of a workload reports: pods that it cannot create, missing progress."""
    conditions = entries(observed, "status", "conditions")
    if observed.get("kind") == "LeaderWorkerSet" and not conditions:
        return ["the LeaderWorkerSet controller has not processed it: is it running?"]
    return sorted(
        cut(text(entry, "message"))
        for entry in conditions
        if (entry.get("type"), entry.get("status")) in _ERRORS and text(entry, "message")
    )


def unsettled(observed: Object) -> bool:
    """Return True if a pod of a Deployment, LeaderWorkerSet, or Job, of any revision, might not be ready."""
    if observed.get("kind") == "Job":
        return not is_true(observed, "Complete")
    copies = number(observed, "spec", "replicas", default=1)
    status = fields(observed, "status")
    counts = [number(status, name) for name in ("replicas", "readyReplicas", "updatedReplicas")]
    return not _is_current(observed) or any(count != copies for count in counts)


@dataclass(frozen=True)
class PodFailure:
    """Failure that keeps a pod from running. `reason` is one CamelCase word, `container` is "" for the whole pod."""

    reason: str
    message: str
    container: str = ""

    def __str__(self) -> str:
        return f"container {self.container}: {self.message}" if self.container else self.message


_STOPPED = frozenset({0, 128 + 9, 128 + 15})
"""Exit codes of a container that the kubelet stops: its own code for SIGTERM, or 128 plus the number of the signal."""


@dataclass(frozen=True)
class EngineStall:
    """Last restart of a container by its stall probe.

    restarts: number of all restarts of the container.
    time: when the container terminated (RFC 3339).
    verdict: reason of the stall probe.
    """

    pod: str
    restarts: int
    time: str
    verdict: str

    def __str__(self) -> str:
        return f"{count(self.restarts, 'restart')}, last at {self.time}: {self.verdict}"


def engine_stalls(pods: Iterable[Object]) -> list[EngineStall]:
    """Return the last restarts of containers by the stall probe, sorted by time."""
    stalls = (
        EngineStall(
            text(pod, "metadata", "name"),
            number(container, "restartCount"),
            text(container, "lastState", "terminated", "finishedAt"),
            verdict,
        )
        for pod in pods
        if not is_being_deleted(pod)
        for container in entries(pod, "status", "containerStatuses")
        if (verdict := stall_verdict(fields(container, "lastState")))
    )
    return sorted(stalls, key=lambda stall: (stall.time, stall.pod))


def stall_verdict(state: Object) -> str:
    """Return the reason of the stall probe for the end of a container, "" if the container ended otherwise."""
    termination = fields(state, "terminated")
    message = text(termination, "message")
    # The probe writes its reason before the kubelet stops the container, which can end by itself in between.
    is_stopped = number(termination, "exitCode") in _STOPPED and text(termination, "reason") != "OOMKilled"
    return cut(message.removeprefix(VERDICT)) if is_stopped and message.startswith(VERDICT) else ""


def is_permanent(failure: PodFailure) -> bool:
    """Return True if a failure persists without a further change. An unscheduled pod might still be scheduled."""
    return failure.reason in _STUCK or failure.reason in ("EngineStalled", "Error", "OOMKilled")


def failing_pods(pods: Iterable[Object]) -> list[tuple[PodFailure, list[str]]]:
    """Return the failures of pods, each with the names of the pods that have it, the most frequent first."""
    pods_by_failure: dict[PodFailure, list[str]] = {}
    for pod in pods:
        for failure in failures(pod):
            pods_by_failure.setdefault(failure, []).append(text(pod, "metadata", "name"))
    return sorted(pods_by_failure.items(), key=lambda entry: (-len(entry[1]), str(entry[0])))


def pod_failures(pods: Iterable[Object], limit: int = 3) -> str:
    """Return the failures of pods as text, grouped, the most frequent failure first, or "" without known failures."""
    return failures_text(failing_pods(pods), limit)


def failures_text(failing: Sequence[tuple[PodFailure, Sequence[str]]], limit: int = 3) -> str:
    """Return failures of pods, as `failing_pods` returns them, as text."""
    failure_texts = [f"pod {listed(names, 1)}: {failure}" for failure, names in failing[:limit]]
    omitted_count = len(failing) - limit
    return "; ".join([*failure_texts, f"{omitted_count} other failures"] if omitted_count > 0 else failure_texts)


def failures(pod: Object) -> list[PodFailure]:
    """Return the sorted failures that keep a pod from running, or an empty list.

    The only failure of a pod that is being deleted is a lost node."""
    if is_being_deleted(pod):
        return [failure for failure in event_failures(pod) if failure.reason == NODE_LOST]
    unique_failures: set[PodFailure] = set()
    for entry in entries(pod, "status", "conditions"):
        if entry.get("type") == "PodScheduled" and entry.get("status") != "True":
            unique_failures |= _unscheduled(entry)
    if stated(entries(pod, "status", "conditions"), "Ready") == "True":
        return sorted(unique_failures, key=str)
    status = fields(pod, "status")
    if status.get("phase") == "Failed" and text(status, "reason"):
        # Reasons that the kubelet sets: Evicted, NodeShutdown, UnexpectedAdmissionError and the like.
        unique_failures.add(_stated(text(status, "reason"), cut(text(status, "message"))))
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in entries(status, kind):
            failure = _container_failure(container)
            if failure:
                unique_failures.add(replace(failure, container=text(container, "name")))
    return sorted(unique_failures, key=str) or event_failures(pod)


def _stated(reason: str, message: str) -> PodFailure:
    """Return the failure of a reported reason and message. The message can be empty."""
    return PodFailure(reason, f"{reason}: {message}" if message else reason)


def event_failures(value: Object | None) -> list[PodFailure]:
    """Return the failures that observers found among the events of an object (EVENT_CONDITION)."""
    return [
        _stated(text(entry, "reason"), cut(text(entry, "message")))
        for entry in entries(value, "status", "conditions")
        if entry.get("type") == EVENT_CONDITION
    ]


def _unscheduled(entry: Object) -> set[PodFailure]:
    """Return the reason why a pod is not scheduled (its condition PodScheduled), with a hint."""
    reason = text(entry, "reason")
    if reason == "SchedulingGated":
        return {_stated("SchedulingGated", "its scheduling gates have to be removed")}
    if reason not in ("Unschedulable", "SchedulerError"):
        return set()
    # The part about preemption adds nothing to the reasons.
    message = cut(_PREEMPTION.split(text(entry, "message"), maxsplit=1)[0]).rstrip(". ")
    return {_stated(reason, ": ".join(sentence for sentence in (message, _hint(message)) if sentence))}


def _hint(message: str) -> str:
    """Return a hint for a message of the scheduler, or "" without one."""
    no_node = _NO_NODE.search(message)
    if no_node and no_node[1] == no_node[2]:
        return "no node has the labels that it selects; nodes of a pool need the label modelplane.ai/pool"
    for pattern, hint in _HINTS:
        if matched := pattern.search(message):
            return matched.expand(hint)
    return ""


def _container_failure(container: Object) -> PodFailure | None:
    waiting = fields(container, "state", "waiting")
    reason = text(waiting, "reason")
    termination = _ended(container)
    exit_code = number(termination, "exitCode")
    if text(termination, "reason") == "OOMKilled":
        return _stated("OOMKilled", "it needs more memory than its limit")
    if container.get("ready") is not True and (verdict := stall_verdict({"terminated": termination})):
        return PodFailure("EngineStalled", f"the engine stopped responding and was restarted: {verdict}")
    if reason not in _STUCK:
        if exit_code and container.get("ready") is not True:
            # Between two crashes a container runs, or waits for its next start.
            return PodFailure("Error", f"it terminated with exit code {exit_code}: check its logs")
        return None
    if reason == "CrashLoopBackOff":
        # The kubelet's message contains a back-off time, and would differ in every observation.
        return _stated(reason, f"exit code {exit_code}" if termination else "")
    return _stated(reason, cut(text(waiting, "message")))


def _ended(container: Object) -> Object:
    """Return the current or previous termination of a container, or {} if unknown."""
    ends = (fields(container, kind, "terminated") for kind in ("state", "lastState"))
    return next((termination for termination in ends if "exitCode" in termination or text(termination, "reason")), {})
