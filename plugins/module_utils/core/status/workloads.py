# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whether workloads on a cluster are available, and what keeps their pods from starting."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import cut, listed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import (
    Object,
    entries,
    fields,
    is_true,
    number,
    stated,
    text,
)

_AVAILABLE_COUNT = {"Deployment": "availableReplicas", "LeaderWorkerSet": "readyReplicas"}
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
"""A condition that no API server writes: an observer puts among those of an object what events alone tell of it."""

_PREEMPTION = re.compile(
    r"(?:\s*(?:still not schedulable|no new claims to deallocate|deallocation of one ResourceClaim completed))?"
    r"[,.]?\s*preemption:"
)
_NO_NODE = re.compile(r"0/(\d+) nodes are available: (\d+) node\(s\) didn't match Pod's node affinity/selector\.?$")
_ADVICE = tuple(
    (re.compile(pattern), advice)
    for pattern, advice in (
        (
            "cannot allocate all claims",
            "no node has enough free devices of the kind that its ResourceClaim asks for; compare the ResourceSlices "
            "of the nodes with their InferenceClass, and see which ResourceClaims hold devices",
        ),
        (r"device class (\S+) does not exist", r"is the DRA driver that brings DeviceClass \1 installed?"),
        (
            "ResourceClaim not created yet",
            "the ResourceClaimTemplate is missing, or kube-controller-manager does not make claims of it",
        ),
        (
            r"Insufficient (\S+?)(?=[,.]?(?:\s|$))",
            r"less \1 is free than it requests; lower the request or take larger nodes",
        ),
        (
            r"persistentvolumeclaim|PersistentVolumeClaim",
            "its volume is not bound; see the events of the PersistentVolumeClaim",
        ),
        (r"untolerated taint", "tolerate the taint in the member's template, or remove it from the nodes"),
    )
)
"""What the scheduler says (reasons of its plugins, kube-scheduler 1.34 to 1.36), and what to do about it."""


@dataclass(frozen=True)
class Availability:
    """Of a workload: is it there, is it available as it is wanted now, and does any copy answer, of whatever revision.
    `message` says what is missing."""

    there: bool
    available: bool
    answers: bool
    message: str = ""


def availability(wanted: Object, seen: Object | None) -> Availability:
    """What was seen of a Deployment or LeaderWorkerSet.

    The Available condition alone is not enough: a Deployment of one pod that may be unavailable during a rollout
    (maxUnavailable 1) is Available without any pod (API reference, DeploymentStatus). So one copy has to be there.
    LeaderWorkerSets do not tell which generation their status is about (API v1); theirs is taken to be the current one.
    """
    name = f"{wanted['kind']} {wanted['metadata']['name']}"
    if seen is None:
        return Availability(False, False, False, f"{name} is not there yet")
    copies = number(wanted, "spec", "replicas", default=1)
    up = max(number(seen, "status", _AVAILABLE_COUNT[wanted["kind"]]), 0)
    answers = up > 0 or copies == 0
    if is_true(seen, "Available") and answers:
        return Availability(True, True, True)
    message = f"{name}: {up} of {copies} available"
    if not _is_current(seen):
        message = f"{name}: its latest change has not been looked at yet"
    return Availability(True, False, answers, "; ".join([message, *_complaints(seen)]))


def any_availability(wanted: Object, seen: Object | None) -> Availability:
    """What was seen of a Deployment whose pods stand in for each other: it is available as long as one of them is.

    The Available condition of two pods wants both, and would take what is behind them out of service whenever a node
    is drained.
    """
    found = availability(wanted, seen)
    if found.there and (is_true(seen, "Available") or (found.answers and _is_current(seen))):
        return Availability(True, True, True)
    return found


def _is_current(seen: Object | None) -> bool:
    """Whether the status of an object is about its latest generation, as far as it tells."""
    generation = number(seen, "metadata", "generation")
    return number(seen, "status", "observedGeneration", default=generation) >= generation


def _complaints(seen: Object) -> list[str]:
    """What the controller of a workload says: pods that it may not make, progress that it no longer expects."""
    conditions = entries(seen, "status", "conditions")
    if seen.get("kind") == "LeaderWorkerSet" and not conditions:
        return ["the LeaderWorkerSet controller has not looked at it: is it running?"]
    return sorted(
        cut(text(entry, "message"))
        for entry in conditions
        if (entry.get("type"), entry.get("status")) in (("ReplicaFailure", "True"), ("Progressing", "False"))
        and text(entry, "message")
    )


def unsettled(seen: Object) -> bool:
    """Whether some pod of a Deployment, LeaderWorkerSet or Job, of whatever revision, may be other than ready."""
    if seen.get("kind") == "Job":
        return not is_true(seen, "Complete")
    copies = number(seen, "spec", "replicas", default=1)
    status = fields(seen, "status")
    counts = [number(status, name) for name in ("replicas", "readyReplicas", "updatedReplicas")]
    return not _is_current(seen) or any(count != copies for count in counts)


def pod_failures(pods: Iterable[Object], limit: int = 3) -> str:
    """What keeps pods from running, alike failures as one, the most frequent first; empty when nothing is known."""
    found: dict[str, list[str]] = {}
    for pod in pods:
        if "deletionTimestamp" in fields(pod, "metadata"):
            continue
        for failure in failures(pod):
            found.setdefault(failure, []).append(text(pod, "metadata", "name"))
    ordered = sorted(found.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    parts = [f"pod {listed(names, 1)}: {failure}" for failure, names in ordered[:limit]]
    more = len(ordered) - limit
    return "; ".join([*parts, f"{more} other failures"] if more > 0 else parts)


def failures(pod: Object) -> list[str]:
    """What keeps a pod from running, sorted; empty when it runs, or nobody knows."""
    found = set()
    for entry in entries(pod, "status", "conditions"):
        if entry.get("type") == "PodScheduled" and entry.get("status") != "True":
            found |= _unscheduled(entry)
    if stated(entries(pod, "status", "conditions"), "Ready") == "True":
        return sorted(found)
    status = fields(pod, "status")
    if status.get("phase") == "Failed" and text(status, "reason"):
        # The node's own verdict: Evicted, NodeShutdown, UnexpectedAdmissionError and the like.
        message = cut(text(status, "message"))
        found.add(f"{text(status, 'reason')}: {message}" if message else text(status, "reason"))
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in entries(status, kind):
            failure = _container_failure(container)
            if failure:
                found.add(f"container {text(container, 'name')}: {failure}")
    return sorted(found) or told_by_events(pod)


def told_by_events(value: Object | None) -> list[str]:
    """What an observer found among the events of an object (EVENT_CONDITION)."""
    return [
        f"{text(entry, 'reason')}: {cut(text(entry, 'message'))}"
        for entry in entries(value, "status", "conditions")
        if entry.get("type") == EVENT_CONDITION
    ]


def _unscheduled(entry: Object) -> set[str]:
    """Why no node was chosen for a pod (its condition PodScheduled), and what to do about it."""
    reason = text(entry, "reason")
    if reason == "SchedulingGated":
        return {"SchedulingGated: somebody has to remove its scheduling gates"}
    if reason not in ("Unschedulable", "SchedulerError"):
        return set()
    # What the scheduler tried by preemption says nothing that its reasons do not.
    said = cut(_PREEMPTION.split(text(entry, "message"), maxsplit=1)[0]).rstrip(". ")
    advice = _advice(said)
    return {": ".join(part for part in (reason, said, advice) if part)}


def _advice(said: str) -> str:
    """What to do about what the scheduler says; empty where that is clear by itself, or not known."""
    nowhere = _NO_NODE.search(said)
    if nowhere and nowhere[1] == nowhere[2]:
        return "no node has the labels that it selects; nodes of a pool need the label modelplane.ai/pool"
    for pattern, advice in _ADVICE:
        if found := pattern.search(said):
            return found.expand(advice)
    return ""


def _container_failure(container: Object) -> str:
    waiting = fields(container, "state", "waiting")
    reason = text(waiting, "reason")
    ended = fields(container, "state", "terminated") or fields(container, "lastState", "terminated")
    if text(ended, "reason") == "OOMKilled":
        return "OOMKilled: it needs more memory than it may have"
    if reason not in _STUCK:
        if number(ended, "exitCode") and container.get("ready") is not True:
            # Between two crashes a container runs, or waits for its next start.
            return f"it ended with exit code {number(ended, 'exitCode')}: see its logs"
        return ""
    if reason == "CrashLoopBackOff":
        # The text of the kubelet counts seconds, and would change at every look.
        return f"CrashLoopBackOff: exit code {number(ended, 'exitCode')}" if ended else reason
    message = text(waiting, "message")
    return f"{reason}: {cut(message)}" if message else reason
