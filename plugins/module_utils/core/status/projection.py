# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Projection of observed objects to the fields that runs read and that do not change without an event.

This keeps observations of a large fleet small, and two observations of an unchanged fleet equal. Pod templates of
objects that are not resources of this collection are removed, because they might contain passwords.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .. import api
from ..compose.constants import CA_KEY
from ..wire import LAST_APPLIED, Object, entries, fields, identity, text
from .workloads import EVENT_CONDITION, stall_verdict

Trimmed = dict[str, Any]

_METADATA = ("name", "namespace", "generation", "labels", "annotations", "creationTimestamp", "deletionTimestamp")
_OWN_METADATA = (*_METADATA, "uid", "finalizers")
_TIMES = frozenset({"lastTransitionTime", "lastUpdateTime", "lastProbeTime", "lastHeartbeatTime"})
_EVENTS = frozenset(
    {
        "FailedAttachVolume",
        "FailedBinding",
        "FailedCreatePodSandBox",
        "FailedMapVolume",
        "FailedMount",
        "FailedPrepareDynamicResources",
        "NetworkNotReady",
        "ProvisioningFailed",
        "Unhealthy",
    }
)
"""Reasons of events for failures to start that do not appear in the status of the object."""


def trim(value: Object) -> Trimmed:
    """Return an object without unused fields. Resources of this collection keep their spec and status unchanged."""
    group, kind, __, __ = identity(value)
    is_own = group in (api.GROUP_MODELS, api.GROUP_INFRASTRUCTURE)
    trimmed: Trimmed = {"apiVersion": value.get("apiVersion"), "kind": kind}
    trimmed["metadata"] = _metadata(fields(value, "metadata"), _OWN_METADATA if is_own else _METADATA)
    spec = dict(fields(value, "spec")) if is_own else _SPECS.get(kind, _nothing)(fields(value, "spec"))
    status = dict(fields(value, "status")) if is_own else _STATUSES.get(kind, _status)(fields(value, "status"))
    certificates = text(value, "data", CA_KEY) if kind == "ConfigMap" else ""
    return {
        **trimmed,
        **({"data": {CA_KEY: certificates}} if certificates else {}),
        **({"spec": spec} if spec else {}),
        **({"status": status} if status else {}),
    }


def with_events(value: Object, events: Iterable[Object]) -> Trimmed:
    """Return a trimmed object with the latest of its relevant Warning events as a condition."""
    relevant = [event for event in events if event.get("type") == "Warning" and text(event, "reason") in _EVENTS]
    if not relevant:
        return dict(value)
    latest = max(relevant, key=lambda event: (_when(event), text(event, "metadata", "name")))
    condition = {
        "type": EVENT_CONDITION,
        "status": "True",
        "reason": text(latest, "reason"),
        "message": text(latest, "message"),
    }
    status = fields(value, "status")
    return {**value, "status": {**status, "conditions": [*entries(status, "conditions"), condition]}}


def _when(event: Object) -> str:
    """Return the time of an event. RFC 3339 times in UTC can be sorted as text."""
    times = (text(event, "series", "lastObservedTime"), text(event, "lastTimestamp"), text(event, "eventTime"))
    return next((time for time in times if time), text(event, "metadata", "creationTimestamp"))


def _metadata(metadata: Object, names: Iterable[str]) -> Trimmed:
    # Finalizers are relevant only during a deletion.
    finalizers = ("finalizers",) if metadata.get("deletionTimestamp") and "finalizers" not in names else ()
    values = {key: metadata[key] for key in (*names, *finalizers) if metadata.get(key)}
    if "annotations" in values:
        annotations = {key: value for key, value in fields(metadata, "annotations").items() if key != LAST_APPLIED}
        values["annotations"] = annotations
    return {key: value for key, value in values.items() if value}


def _nothing(_spec: Object) -> Trimmed:
    return {}


def _picked(*names: str) -> Callable[[Object], Trimmed]:
    return lambda value: {name: value[name] for name in names if name in value}


def _workload(spec: Object) -> Trimmed:
    return {**_picked("replicas")(spec), **_claims(spec)}


def _gateway(spec: Object) -> Trimmed:
    trimmed = _picked("gatewayClassName")(spec)
    listeners = [_picked("protocol", "port", "hostname")(entry) for entry in entries(spec, "listeners")]
    return {**trimmed, "listeners": listeners} if listeners else trimmed


def _route(spec: Object) -> Trimmed:
    """Return the TLS termination of a Route, without its keys and certificates."""
    match spec:
        case {"tls": {"termination": termination}}:
            return {"tls": {"termination": termination}}
    return {}


def _claims(value: Object) -> Trimmed:
    """Return the parts of a spec that name PersistentVolumeClaims of pods, wherever its pod templates are."""
    trimmed: Trimmed = {
        key: inner_claims
        for key, inner in value.items()
        if isinstance(inner, Mapping) and (inner_claims := _claims(inner))
    }
    claims = [entry for entry in entries(value, "volumes") if fields(entry, "persistentVolumeClaim")]
    return {**trimmed, "volumes": claims} if claims else trimmed


def _status(status: Object) -> Trimmed:
    """Return a status without the times of conditions, at any depth."""
    return {key: _timeless(value) for key, value in status.items() if key not in ("startTime", "completionTime")}


def _timeless(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _timeless(inner) for key, inner in value.items() if key not in _TIMES}
    if isinstance(value, (list, tuple)):
        return [_timeless(inner) for inner in value]
    return value


def _pod_status(status: Object) -> Trimmed:
    trimmed = _picked("phase", "reason", "message")(status)
    if conditions := [_timeless(entry) for entry in entries(status, "conditions")]:
        trimmed["conditions"] = conditions
    for kind in ("initContainerStatuses", "containerStatuses"):
        if containers := [_container(entry) for entry in entries(status, kind)]:
            trimmed[kind] = containers
    return trimmed


def _container(status: Object) -> Trimmed:
    """Return a container status without times and counts, because they change without an event. A stall keeps both."""
    trimmed = _picked("name", "ready", *(("restartCount",) if stall_verdict(fields(status, "lastState")) else ()))(
        status
    )
    for kind in ("state", "lastState"):
        state = {}
        if "waiting" in fields(status, kind):
            state["waiting"] = _waiting(fields(status, kind, "waiting"))
        if "terminated" in fields(status, kind):
            state_fields = (
                "reason",
                "exitCode",
                *(("message", "finishedAt") if stall_verdict(fields(status, kind)) else ()),
            )
            state["terminated"] = _picked(*state_fields)(fields(status, kind, "terminated"))
        if state:
            trimmed[kind] = state
    return trimmed


def _waiting(state: Object) -> Trimmed:
    # The kubelet's message contains the back-off time.
    return (
        _picked("reason")(state) if state.get("reason") == "CrashLoopBackOff" else _picked("reason", "message")(state)
    )


def _only_conditions(status: Object) -> Trimmed:
    conditions = [_timeless(entry) for entry in entries(status, "conditions")]
    return {"conditions": conditions} if conditions else {}


_SPECS: Mapping[str, Callable[[Object], Trimmed]] = {
    "CustomResourceDefinition": _picked("group"),
    "Deployment": _workload,
    "Gateway": _gateway,
    "GatewayClass": _picked("controllerName"),
    "Job": _claims,
    "LeaderWorkerSet": _workload,
    "PersistentVolumeClaim": _picked("accessModes", "resources", "storageClassName", "volumeMode", "volumeName"),
    "Pod": lambda spec: {**_picked("nodeName")(spec), **_claims(spec)},
    "Route": _route,
}
_STATUSES: Mapping[str, Callable[[Object], Trimmed]] = {
    "CustomResourceDefinition": _only_conditions,
    "Pod": _pod_status,
}
