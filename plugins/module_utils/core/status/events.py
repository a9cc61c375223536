# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Events of the fleet's resources: conditions that changed, and replicas that were placed, moved or removed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.resource import DEFAULT_NAMESPACE
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import OWNED, READY
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import cut
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, entries, fields, text

# The longest message that API servers accept (Kubernetes, pkg/apis/core/validation/events.go).
_MOST_CHARACTERS = 1024
# Reasons of conditions that are not True while all goes as it should.
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
    """Event of an object; `reason` is one CamelCase word."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def condition_events(before: Object | None, after: Object) -> list[Event]:
    """Return an event for each condition of a resource that changed between two versions of it.

    Ready has none, as it follows from the others. A condition that was not there before and is as it should be has
    none either."""
    earlier = {text(entry, "type"): entry for entry in entries(before, "status", "conditions")}
    found = []
    for entry in entries(after, "status", "conditions"):
        kind, status, reason, message = (text(entry, key) for key in ("type", "status", "reason", "message"))
        was = earlier.get(kind, {})
        same = (text(was, "status"), text(was, "reason")) == (status, reason)
        if kind not in OWNED or kind == READY or not reason or (same and text(was, "message") == message):
            continue
        if status == "True" and (same or not was):
            continue
        is_normal = status == "True" or (reason in _IN_PROGRESS and not _is_failure(message))
        found.append(Event("Normal" if is_normal else "Warning", reason, message or f"{kind} is {status}"))
    return found


def _is_failure(message: str) -> bool:
    """Return True for a message about a pod that fails (`core/status/workloads.py`)."""
    return "pod " in message and ": " in message.partition("pod ")[2]


def replica_events(created: Iterable[Object], removed: Iterable[Object]) -> dict[tuple[str, str], list[Event]]:
    """Return the events of ModelDeployments (namespace, name) for the ModelReplicas that a run created and removed."""
    old: dict[tuple[str, str], list[Object]] = {}
    for replica in removed:
        old.setdefault(_deployment(replica), []).append(replica)
    found: dict[tuple[str, str], list[Event]] = {}
    for replica in created:
        key = _deployment(replica)
        moved = old.get(key) or []
        if moved:
            origin = moved.pop(0)
            event = Event("Normal", "ReplicaMoved", f"Replica {_placed(replica)}; it was {_placed(origin)}")
        else:
            event = Event("Normal", "ReplicaPlaced", f"Replica {_placed(replica)}")
        found.setdefault(key, []).append(event)
    for key, replicas in old.items():
        found.setdefault(key, []).extend(
            Event("Normal", "ReplicaRemoved", f"Replica {_placed(replica)} was removed") for replica in replicas
        )
    return {key: events for key, events in found.items() if key[1]}


def _deployment(replica: Object) -> tuple[str, str]:
    metadata = fields(replica, "metadata")
    return text(metadata, "namespace"), text(metadata, "labels", names.DEPLOYMENT_LABEL)


def _placed(replica: Object) -> str:
    pools = dict.fromkeys(_pools(replica))
    where = f"{'pool' if len(pools) == 1 else 'pools'} {', '.join(pools)} of " if pools else ""
    return f"{text(replica, 'metadata', 'name')} on {where}cluster {text(replica, 'spec', 'clusterName')}"


def _pools(replica: Object) -> Iterator[str]:
    for engine in entries(replica, "spec", "engines"):
        for member in entries(engine, "members"):
            if name := text(member, "nodePoolName"):
                yield name


def event_object(event: Event, regarding: Object, now: str, instance: str) -> dict[str, Any]:
    """Return the Event (core/v1) of an object, as of `now` (RFC 3339). `instance` is the fleet that reports it.

    Events of cluster-scoped objects are in the namespace `default`, as those of Kubernetes are."""
    metadata: Mapping[str, Any] = fields(regarding, "metadata")
    involved = {"apiVersion": text(regarding, "apiVersion"), "kind": text(regarding, "kind")}
    involved |= {key: text(metadata, key) for key in ("namespace", "name", "uid") if text(metadata, key)}
    message = cut(event.message, _MOST_CHARACTERS)
    unique = hashlib.sha256("\n".join([*involved.values(), event.reason, message, now]).encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{text(metadata, 'name')}.{unique}",
            "namespace": text(metadata, "namespace") or DEFAULT_NAMESPACE,
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
