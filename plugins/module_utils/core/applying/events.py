# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Events of the fleet's resources: conditions that changed, and replicas that were placed, moved or removed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .. import api, names
from ..api.resource import DEFAULT_NAMESPACE
from ..status.conditions import OWNED, READY, Condition
from ..text import cut

# The longest message that API servers accept (Kubernetes, pkg/apis/core/validation/events.go).
_MOST_CHARACTERS = 1024
# Reasons of conditions that are not True during normal progress.
_IN_PROGRESS = frozenset(
    {
        "Configuring",
        "Creating",
        "Deploying",
        "Hydrating",
        "Installing",
        "ModelStarting",
        "NoReplicasScheduled",
        "Partial",
        "Provisioning",
        "Scheduling",
        "WaitingForClasses",
        "WaitingForCluster",
        "WaitingForGateway",
        "WaitingForModel",
    }
)


@dataclass(frozen=True)
class Event:
    """Event of an object. `reason`: one CamelCase word."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True)
class Regarding:
    """Object of an event."""

    api_version: str
    kind: str
    namespace: str
    """Empty for a cluster-scoped object."""
    name: str
    uid: str = ""
    """Empty if unknown."""


def condition_events(before: Mapping[str, Condition], after: Mapping[str, Condition]) -> list[Event]:
    """Return an event for each changed condition (by its type) of a resource.

    Ready has no event, because it depends on the other conditions. A new condition with the expected status has no
    event."""
    events = []
    for kind, condition in after.items():
        was = before.get(kind)
        same = was is not None and (was.status, was.reason) == (condition.status, condition.reason)
        if kind not in OWNED or kind == READY or not condition.reason or condition == was:
            continue
        if condition.status == "True" and (same or was is None):
            continue
        is_progress = condition.reason in _IN_PROGRESS and not _is_failure(condition.message)
        is_normal = condition.status == "True" or is_progress
        message = condition.message or f"{kind} is {condition.status}"
        events.append(Event("Normal" if is_normal else "Warning", condition.reason, message))
    return events


def _is_failure(message: str) -> bool:
    """Return True for a message about a pod that fails (`core/status/workloads.py`)."""
    return "pod " in message and ": " in message.partition("pod ")[2]


def replica_events(
    created: Iterable[api.ModelReplica], removed: Iterable[api.ModelReplica]
) -> dict[tuple[str, str], list[Event]]:
    """Return the events of ModelDeployments (namespace, name) for the ModelReplicas that a run created and removed."""
    old: dict[tuple[str, str], list[api.ModelReplica]] = {}
    for replica in removed:
        old.setdefault(_deployment(replica), []).append(replica)
    events_by_deployment: dict[tuple[str, str], list[Event]] = {}
    for replica in created:
        key = _deployment(replica)
        moved = old.get(key) or []
        if moved:
            origin = moved.pop(0)
            event = Event("Normal", "ReplicaMoved", f"Replica {_placed(replica)}; it was {_placed(origin)}")
        else:
            event = Event("Normal", "ReplicaPlaced", f"Replica {_placed(replica)}")
        events_by_deployment.setdefault(key, []).append(event)
    for key, replicas in old.items():
        events_by_deployment.setdefault(key, []).extend(
            Event("Normal", "ReplicaRemoved", f"Replica {_placed(replica)} was removed") for replica in replicas
        )
    return {key: events for key, events in events_by_deployment.items() if key[1]}


def _deployment(replica: api.ModelReplica) -> tuple[str, str]:
    return replica.namespace, replica.labels.get(names.DEPLOYMENT_LABEL, "")


def _placed(replica: api.ModelReplica) -> str:
    pools = dict.fromkeys(member.node_pool_name for engine in replica.spec.engines for member in engine.members)
    where = f"{'pool' if len(pools) == 1 else 'pools'} {', '.join(pools)} of cluster {replica.spec.cluster_name}"
    return f"{replica.name} on {where}"


def event_object(event: Event, regarding: Regarding, now: str, instance: str) -> dict[str, Any]:
    """Return the Event (core/v1) of an object at the time `now` (RFC 3339). `instance`: the fleet that reports it.

    Events of cluster-scoped objects are in the namespace `default`, as in Kubernetes."""
    involved = {"apiVersion": regarding.api_version, "kind": regarding.kind, "name": regarding.name}
    involved |= {"namespace": regarding.namespace} if regarding.namespace else {}
    involved |= {"uid": regarding.uid} if regarding.uid else {}
    message = cut(event.message, _MOST_CHARACTERS)
    unique = hashlib.sha256("\n".join([*involved.values(), event.reason, message, now]).encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{regarding.name}.{unique}",
            "namespace": regarding.namespace or DEFAULT_NAMESPACE,
            "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
        },
        "involvedObject": involved,
        "type": event.type,
        "reason": event.reason,
        "message": message,
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": names.MANAGED_BY},
        "reportingComponent": names.MANAGED_BY,
        "reportingInstance": instance,
    }
