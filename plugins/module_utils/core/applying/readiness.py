# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Readiness of an object: ready, progressing, or failed, with the reason.

The rules are those of `kubectl rollout status`. For other kinds, they are those of the API reference, including
cert-manager (Certificate), trust-manager (Bundle), and the AI gateway (AIGatewayRoute). Kinds without a status
(ConfigMap, Role, ResourceClaimTemplate) are ready as soon as they exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ..status.route import admitted_host, why_not_admitted
from ..text import cut
from ..wire import Object, condition, entries, fields, is_true, number, stated, text

State = Literal["ready", "progressing", "failed"]


@dataclass(frozen=True)
class Readiness:
    """State of an object, with the awaited event or the error ("" if the object is ready)."""

    state: State
    message: str = ""

    @property
    def ready(self) -> bool:
        return self.state == "ready"

    @property
    def settled(self) -> bool:
        """Return True if the state is final."""
        return self.state != "progressing"


READY = Readiness("ready")


def readiness(live: Object | None) -> Readiness:
    """Return the readiness of a live object. None: the object does not exist."""
    if live is None:
        return _progressing("it does not exist")
    if "deletionTimestamp" in fields(live, "metadata"):
        return _progressing(f"it is being deleted{_held_by(live)}")
    rule = _RULES.get(text(live, "kind"))
    return rule(live) if rule else READY


def usual(values: Iterable[Object]) -> str:
    """Return the usual time until all objects are ready, as text, or "" if unknown.

    The sources of these figures are in docs/monitoring.md.
    """
    durations = {_usual(value) for value in values}
    return next((duration for duration in _USUAL if duration in durations), "")


_ENGINE = "2 to 20 min, by the size of the model"
_ADDRESS = "1 to 5 min"
_PODS = "up to 2 min"
_USUAL = (_ENGINE, _ADDRESS, _PODS)
"""The longest first."""


def _usual(value: Object) -> str:
    kind = text(value, "kind")
    if kind == "LeaderWorkerSet" or fields(value, "spec", "template", "spec").get("resourceClaims"):
        return _ENGINE
    if kind == "Gateway" or (kind == "Service" and text(value, "spec", "type") == "LoadBalancer"):
        return _ADDRESS
    return _PODS if kind in ("Deployment", "StatefulSet", "DaemonSet") else ""


def waited_for(kind: str) -> bool:
    """Return True if objects of a kind become ready some time after they were applied."""
    return kind in _RULES


def _held_by(live: Object) -> str:
    finalizers = fields(live, "metadata").get("finalizers")
    return f" (finalizers: {', '.join(map(str, finalizers))})" if isinstance(finalizers, list) and finalizers else ""


def _progressing(message: str) -> Readiness:
    return Readiness("progressing", message)


def _failed(message: str) -> Readiness:
    return Readiness("failed", message)


def _reason(live: Object, kind: str) -> str:
    """Return reason and message of a condition, in one line."""
    for entry in entries(live, "status", "conditions"):
        if entry.get("type") == kind:
            return ": ".join(filter(None, (text(entry, "reason"), cut(text(entry, "message")))))
    return ""


def _outdated(live: Object) -> bool:
    generation = number(live, "metadata", "generation")
    return number(live, "status", "observedGeneration", default=generation) < generation


def _namespace(live: Object) -> Readiness:
    phase = text(live, "status", "phase")
    return READY if phase in ("Active", "") else _progressing(f"it is {phase}")


def _definition(live: Object) -> Readiness:
    if condition(live, "NamesAccepted") == "False":
        return _failed(f"its names are taken: {_reason(live, 'NamesAccepted')}")
    if is_true(live, "Established"):
        return READY
    return _progressing(_reason(live, "Established") or "it is not established yet")


def _deployment(live: Object) -> Readiness:
    if _outdated(live):
        return _progressing("its controller has not processed the latest change yet")
    desired = number(live, "spec", "replicas", default=1)
    updated = number(live, "status", "updatedReplicas")
    available = number(live, "status", "availableReplicas")
    existing = number(live, "status", "replicas")
    if updated >= desired and available >= desired and existing <= updated:
        return READY
    message = f"{available} of {desired} pods available"
    if updated < desired or existing > updated:
        message += f", {updated} of them updated" if updated else ", none updated"
    if stated(entries(live, "status", "conditions"), "ReplicaFailure") == "True":
        message += f"; {_reason(live, 'ReplicaFailure')}"
    for entry in entries(live, "status", "conditions"):
        if entry.get("type") == "Progressing" and entry.get("reason") == "ProgressDeadlineExceeded":
            return _failed(f"{message}; {cut(text(entry, 'message'))}")
    return _progressing(message)


def _stateful_set(live: Object) -> Readiness:
    if _outdated(live):
        return _progressing("its controller has not processed the latest change yet")
    desired = number(live, "spec", "replicas", default=1)
    ready = number(live, "status", "readyReplicas")
    revision = text(live, "status", "updateRevision")
    rolling = text(live, "spec", "updateStrategy", "type") != "OnDelete" and not fields(
        live, "spec", "updateStrategy", "rollingUpdate"
    ).get("partition")
    is_rolling_out = rolling and revision != text(live, "status", "currentRevision")
    updated = number(live, "status", "updatedReplicas")
    if ready >= desired and (not is_rolling_out or updated >= desired):
        return READY
    message = f"{ready} of {desired} pods ready"
    return _progressing(f"{message}, {updated} of them updated" if is_rolling_out else message)


def _daemon_set(live: Object) -> Readiness:
    if _outdated(live):
        return _progressing("its controller has not processed the latest change yet")
    desired = number(live, "status", "desiredNumberScheduled")
    updated = number(live, "status", "updatedNumberScheduled")
    available = number(live, "status", "numberAvailable")
    on_delete = text(live, "spec", "updateStrategy", "type") == "OnDelete"
    if "observedGeneration" in fields(live, "status") and available >= desired and (on_delete or updated >= desired):
        return READY
    return _progressing(f"{available} of {desired} pods available, {updated} of them updated")


def _leader_worker_set(live: Object) -> Readiness:
    desired = number(live, "spec", "replicas", default=1)
    ready = number(live, "status", "readyReplicas")
    updated = number(live, "status", "updatedReplicas")
    rolling = stated(entries(live, "status", "conditions"), "UpdateInProgress") == "True"
    if ready >= desired and updated >= desired and not rolling and (is_true(live, "Available") or not desired):
        return READY
    message = f"{ready} of {desired} groups ready"
    return _progressing(f"{message}, {updated} of them updated" if updated < desired else message)


def _job(live: Object) -> Readiness:
    conditions = entries(live, "status", "conditions")
    if stated(conditions, "Complete") == "True":
        return READY
    for kind in ("Failed", "FailureTarget"):
        if stated(conditions, kind) == "True":
            return _failed(f"it failed: {_reason(live, kind)}")
    if stated(conditions, "Suspended") == "True":
        return _progressing("it is suspended")
    active, failed = number(live, "status", "active"), number(live, "status", "failed")
    suffix = f", {failed} failed before" if failed else ""
    return _progressing(f"{active} running{suffix}")


def _volume_claim(live: Object) -> Readiness:
    phase = text(live, "status", "phase")
    if phase == "Bound":
        return READY
    if phase == "Lost":
        return _failed("its volume is lost")
    storage = text(live, "spec", "storageClassName")
    return _progressing(f"it is not bound to a volume yet{f' (StorageClass {storage})' if storage else ''}")


def _service(live: Object) -> Readiness:
    if text(live, "spec", "type") != "LoadBalancer" or entries(live, "status", "loadBalancer", "ingress"):
        return READY
    return _progressing("its load balancer has no address yet")


def _gateway(live: Object) -> Readiness:
    if is_true(live, "Programmed"):
        return READY
    for kind in ("Accepted", "Programmed"):
        if condition(live, kind) == "False":
            return _progressing(_reason(live, kind) or f"{kind} is False")
    return _progressing("no controller has accepted it yet")


def _route(live: Object) -> Readiness:
    return READY if admitted_host(live) else _progressing(why_not_admitted(live))


def _gateway_class(live: Object) -> Readiness:
    if is_true(live, "Accepted"):
        return READY
    return _progressing(_reason(live, "Accepted") or "no controller has accepted it yet")


def _certificate(live: Object) -> Readiness:
    return READY if is_true(live, "Ready") else _progressing(_reason(live, "Ready") or "it is not issued yet")


def _bundle(live: Object) -> Readiness:
    return READY if is_true(live, "Synced") else _progressing(_reason(live, "Synced") or "it is not copied yet")


def _ai_route(live: Object) -> Readiness:
    if is_true(live, "Accepted"):
        return READY
    return _progressing(_reason(live, "NotAccepted") or "the AI gateway has not accepted it yet")


def _parents(live: Object, *, reported: bool) -> Readiness:
    """Return the readiness of an object with an entry of `status.parents` for each gateway.

    `reported`: each referenced parent must have reported. Otherwise, a missing entry counts as accepted, because not
    every gateway reports on an InferencePool."""
    generation = number(live, "metadata", "generation")
    parents = [entries(parent, "conditions") for parent in entries(live, "status", "parents")]
    for kind in ("Accepted", "ResolvedRefs"):
        for conditions in parents:
            if stated(conditions, kind, generation) == "False":
                reason = _reason({"status": {"conditions": conditions}}, kind)
                return _progressing(f"a gateway rejects it: {reason}" if reason else f"{kind} is False")
    accepted = sum(stated(conditions, "Accepted", generation) == "True" for conditions in parents)
    missing = reported and accepted < max(len(entries(live, "spec", "parentRefs")), 1)
    return _progressing("its gateway has not accepted it yet") if missing else READY


_RULES: Mapping[str, Callable[[Object], Readiness]] = {
    "Namespace": _namespace,
    "CustomResourceDefinition": _definition,
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
    "DaemonSet": _daemon_set,
    "LeaderWorkerSet": _leader_worker_set,
    "Job": _job,
    "PersistentVolumeClaim": _volume_claim,
    "Service": _service,
    "Gateway": _gateway,
    "GatewayClass": _gateway_class,
    "HTTPRoute": lambda live: _parents(live, reported=True),
    "AIGatewayRoute": _ai_route,
    "Certificate": _certificate,
    "Bundle": _bundle,
    "Route": _route,
    "InferencePool": lambda live: _parents(live, reported=False),
}
