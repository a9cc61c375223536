# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whether an object does what it is there for: ready, on the way, or failed for good, and why.

The rules are those of the API reference of each kind, and where `kubectl rollout status` has a rule, that one.
Kinds that have nothing to become (a ConfigMap, a Role, a claim template) are ready by being there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import cut
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import (
    Object,
    condition,
    entries,
    fields,
    is_true,
    number,
    stated,
    text,
)

State = Literal["ready", "progressing", "failed"]


@dataclass(frozen=True)
class Readiness:
    """The state of an object, and what it waits for or why it failed (empty when it is ready)."""

    state: State
    message: str = ""

    @property
    def ready(self) -> bool:
        return self.state == "ready"

    @property
    def settled(self) -> bool:
        """Whether waiting longer changes nothing."""
        return self.state != "progressing"


READY = Readiness("ready")


def readiness(live: Object | None) -> Readiness:
    """The readiness of a live object; None is one that is not there."""
    if live is None:
        return _progressing("it is not there")
    if "deletionTimestamp" in fields(live, "metadata"):
        return _progressing(f"it is being deleted{_held_by(live)}")
    rule = _RULES.get(text(live, "kind"))
    return rule(live) if rule else READY


def waited_for(kind: str) -> bool:
    """Whether objects of a kind become ready some time after they were applied."""
    return kind in _RULES


def _held_by(live: Object) -> str:
    finalizers = fields(live, "metadata").get("finalizers")
    return f" (finalizers: {', '.join(map(str, finalizers))})" if isinstance(finalizers, list) and finalizers else ""


def _progressing(message: str) -> Readiness:
    return Readiness("progressing", message)


def _failed(message: str) -> Readiness:
    return Readiness("failed", message)


def _said(live: Object, kind: str) -> str:
    """What a condition says, in one line."""
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
        return _failed(f"its names are taken: {_said(live, 'NamesAccepted')}")
    if is_true(live, "Established"):
        return READY
    return _progressing(_said(live, "Established") or "it is not established yet")


def _deployment(live: Object) -> Readiness:
    if _outdated(live):
        return _progressing("its latest change has not been looked at yet")
    wanted = number(live, "spec", "replicas", default=1)
    updated = number(live, "status", "updatedReplicas")
    available = number(live, "status", "availableReplicas")
    existing = number(live, "status", "replicas")
    if updated >= wanted and available >= wanted and existing <= updated:
        return READY
    message = f"{available} of {wanted} pods available"
    if updated < wanted or existing > updated:
        message += f", {updated} of them in the new form" if updated else ", none in the new form"
    if stated(entries(live, "status", "conditions"), "ReplicaFailure") == "True":
        message += f"; {_said(live, 'ReplicaFailure')}"
    for entry in entries(live, "status", "conditions"):
        if entry.get("type") == "Progressing" and entry.get("reason") == "ProgressDeadlineExceeded":
            return _failed(f"{message}; {cut(text(entry, 'message'))}")
    return _progressing(message)


def _stateful_set(live: Object) -> Readiness:
    if _outdated(live):
        return _progressing("its latest change has not been looked at yet")
    wanted = number(live, "spec", "replicas", default=1)
    ready = number(live, "status", "readyReplicas")
    revision = text(live, "status", "updateRevision")
    rolling = text(live, "spec", "updateStrategy", "type") != "OnDelete" and not fields(
        live, "spec", "updateStrategy", "rollingUpdate"
    ).get("partition")
    behind = rolling and revision != text(live, "status", "currentRevision")
    updated = number(live, "status", "updatedReplicas")
    if ready >= wanted and (not behind or updated >= wanted):
        return READY
    message = f"{ready} of {wanted} pods ready"
    return _progressing(f"{message}, {updated} of them in the new form" if behind else message)


def _daemon_set(live: Object) -> Readiness:
    if _outdated(live):
        return _progressing("its latest change has not been looked at yet")
    wanted = number(live, "status", "desiredNumberScheduled")
    updated = number(live, "status", "updatedNumberScheduled")
    available = number(live, "status", "numberAvailable")
    on_delete = text(live, "spec", "updateStrategy", "type") == "OnDelete"
    if "observedGeneration" in fields(live, "status") and available >= wanted and (on_delete or updated >= wanted):
        return READY
    return _progressing(f"{available} of {wanted} pods available, {updated} of them in the new form")


def _leader_worker_set(live: Object) -> Readiness:
    wanted = number(live, "spec", "replicas", default=1)
    ready = number(live, "status", "readyReplicas")
    updated = number(live, "status", "updatedReplicas")
    rolling = stated(entries(live, "status", "conditions"), "UpdateInProgress") == "True"
    if ready >= wanted and updated >= wanted and not rolling and (is_true(live, "Available") or not wanted):
        return READY
    message = f"{ready} of {wanted} groups ready"
    return _progressing(f"{message}, {updated} of them in the new form" if updated < wanted else message)


def _job(live: Object) -> Readiness:
    conditions = entries(live, "status", "conditions")
    if stated(conditions, "Complete") == "True":
        return READY
    for kind in ("Failed", "FailureTarget"):
        if stated(conditions, kind) == "True":
            return _failed(f"it failed: {_said(live, kind)}")
    if stated(conditions, "Suspended") == "True":
        return _progressing("it is suspended")
    active, failed = number(live, "status", "active"), number(live, "status", "failed")
    tried = f", {failed} failed before" if failed else ""
    return _progressing(f"{active} running{tried}")


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
            return _progressing(_said(live, kind) or f"{kind} is False")
    return _progressing("no controller has taken it yet")


def _gateway_class(live: Object) -> Readiness:
    if is_true(live, "Accepted"):
        return READY
    return _progressing(_said(live, "Accepted") or "no controller has taken it yet")


def _parents(live: Object, *, reported: bool) -> Readiness:
    """An object that gateways report on, one entry of `status.parents` each. `reported`: each parent that is named has
    to have answered; else silence is consent, as not every gateway writes to an InferencePool."""
    generation = number(live, "metadata", "generation")
    parents = [entries(parent, "conditions") for parent in entries(live, "status", "parents")]
    for kind in ("Accepted", "ResolvedRefs"):
        for conditions in parents:
            if stated(conditions, kind, generation) == "False":
                said = _said({"status": {"conditions": conditions}}, kind)
                return _progressing(f"a gateway does not take it: {said}" if said else f"{kind} is False")
    accepted = sum(stated(conditions, "Accepted", generation) == "True" for conditions in parents)
    missing = reported and accepted < max(len(entries(live, "spec", "parentRefs")), 1)
    return _progressing("its gateway has not taken it yet") if missing else READY


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
    "InferencePool": lambda live: _parents(live, reported=False),
}
