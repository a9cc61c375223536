# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whether workloads on a cluster are available, and what keeps their pods from starting."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ansible_collections.modelplane.fleet.plugins.module_utils.core.observed import (
    Object,
    entries,
    fields,
    is_true,
    number,
    stated,
    text,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import cut, listed

_AVAILABLE_COUNT = {"Deployment": "availableReplicas", "LeaderWorkerSet": "readyReplicas"}
WORKLOADS = frozenset(_AVAILABLE_COUNT)
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
    """Whether the status of an object is about what the object asks for now, as far as it tells."""
    generation = number(seen, "metadata", "generation")
    return number(seen, "status", "observedGeneration", default=generation) >= generation


def _complaints(seen: Object) -> list[str]:
    """What the controller of a workload says: pods that it may not make, progress that it no longer expects."""
    conditions = entries(seen, "status", "conditions")
    return sorted(
        cut(text(entry, "message"))
        for entry in conditions
        if (entry.get("type"), entry.get("status")) in (("ReplicaFailure", "True"), ("Progressing", "False"))
        and text(entry, "message")
    )


def pod_failures(pods: Iterable[Object], limit: int = 3) -> str:
    """What keeps pods from running, alike failures as one, the most frequent first; empty when nothing is known."""
    found: dict[str, list[str]] = {}
    for pod in pods:
        if "deletionTimestamp" in fields(pod, "metadata"):
            continue
        for failure in sorted(_failures(pod)):
            found.setdefault(failure, []).append(text(pod, "metadata", "name"))
    ordered = sorted(found.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    parts = [f"pod {listed(names, 1)}: {failure}" for failure, names in ordered[:limit]]
    more = len(ordered) - limit
    return "; ".join([*parts, f"{more} other failures"] if more > 0 else parts)


def _failures(pod: Object) -> set[str]:
    found = set()
    for entry in entries(pod, "status", "conditions"):
        if entry.get("type") == "PodScheduled" and entry.get("reason") == "Unschedulable":
            found.add(f"Unschedulable: {cut(text(entry, 'message'))}")
    if stated(entries(pod, "status", "conditions"), "Ready") == "True":
        return found
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in entries(pod, "status", kind):
            failure = _container_failure(container)
            if failure:
                found.add(f"container {text(container, 'name')}: {failure}")
    return found


def _container_failure(container: Object) -> str:
    waiting = fields(container, "state", "waiting")
    reason = text(waiting, "reason")
    ended = fields(container, "state", "terminated") or fields(container, "lastState", "terminated")
    if text(ended, "reason") == "OOMKilled":
        return "OOMKilled: it needs more memory than it may have"
    if reason not in _STUCK:
        return ""
    if reason == "CrashLoopBackOff":
        # The text of the kubelet counts seconds, and would change at every look.
        return f"CrashLoopBackOff: exit code {number(ended, 'exitCode')}" if ended else reason
    message = text(waiting, "message")
    return f"{reason}: {cut(message)}" if message else reason
