# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Readiness of every kind that is composed or depended on."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.readiness import readiness, waited_for


def live(kind: str, spec: dict[str, Any], status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": "x", "generation": 2, **metadata},
        "spec": spec,
        "status": status,
    }


def says(kind: str, status: str, reason: str = "", message: str = "", **more: Any) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, **more}


def deployment(desired: int = 2, *conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    counts = {"replicas": desired, "updatedReplicas": desired, "availableReplicas": desired, "observedGeneration": 2}
    return live("Deployment", {"replicas": desired}, {**counts, **status, "conditions": list(conditions)})


def gang(desired: int = 2, *conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    counts = {"replicas": desired, "readyReplicas": desired, "updatedReplicas": desired}
    return live("LeaderWorkerSet", {"replicas": desired}, {**counts, **status, "conditions": list(conditions)})


def parents(kind: str, *of_parents: list[dict[str, Any]], refs: int = 1) -> dict[str, Any]:
    spec = {"parentRefs": [{"name": f"gateway-{n}"} for n in range(refs)]}
    return live(kind, spec, {"parents": [{"conditions": conditions} for conditions in of_parents]})


AVAILABLE = says("Available", "True")
LATE = says("Progressing", "False", "ProgressDeadlineExceeded", "ReplicaSet x has timed out")
QUOTA = says("ReplicaFailure", "True", "FailedCreate", "exceeded quota")
ACCEPTED = says("Accepted", "True", observedGeneration=2)
RESOLVED = says("ResolvedRefs", "True", observedGeneration=2)

CASES: dict[str, tuple[dict[str, Any] | None, str, str]] = {
    "not there": (None, "progressing", "does not exist"),
    "being deleted": (
        live("ConfigMap", {}, {}, deletionTimestamp="now", finalizers=["a/b"]),
        "progressing",
        "being deleted (finalizers: a/b)",
    ),
    "config map": (live("ConfigMap", {}, {}), "ready", ""),
    "namespace": (live("Namespace", {}, {"phase": "Active"}), "ready", ""),
    "namespace that goes": (live("Namespace", {}, {"phase": "Terminating"}), "progressing", "Terminating"),
    "definition": (live("CustomResourceDefinition", {}, {"conditions": [says("Established", "True")]}), "ready", ""),
    "new definition": (live("CustomResourceDefinition", {}, {}), "progressing", "not established"),
    "definition with names of others": (
        live(
            "CustomResourceDefinition",
            {},
            {"conditions": [says("NamesAccepted", "False", "ListKindConflict", "taken")]},
        ),
        "failed",
        "names are taken: ListKindConflict",
    ),
    "deployment": (deployment(2, AVAILABLE), "ready", ""),
    "deployment of none": (deployment(0), "ready", ""),
    "deployment without replicas means one": (
        live("Deployment", {}, {"observedGeneration": 2}),
        "progressing",
        "0 of 1 pods available",
    ),
    "deployment not processed": (deployment(observedGeneration=1), "progressing", "not processed"),
    "deployment starting": (deployment(availableReplicas=1), "progressing", "1 of 2 pods available"),
    "deployment rolling": (deployment(updatedReplicas=1), "progressing", "1 of them updated"),
    "deployment with old pods left": (deployment(replicas=3), "progressing", "2 of 2 pods available"),
    "deployment out of time": (deployment(2, LATE, availableReplicas=0), "failed", "ReplicaSet x has timed out"),
    "deployment that may make no pods": (
        deployment(2, QUOTA, availableReplicas=0),
        "progressing",
        "FailedCreate: exceeded quota",
    ),
    "stateful set": (
        live("StatefulSet", {"replicas": 1}, {"readyReplicas": 1, "observedGeneration": 2}),
        "ready",
        "",
    ),
    "stateful set rolling": (
        live(
            "StatefulSet",
            {"replicas": 2},
            {"readyReplicas": 2, "updatedReplicas": 1, "currentRevision": "a", "updateRevision": "b"},
        ),
        "progressing",
        "1 of them updated",
    ),
    "stateful set that waits for its pods to be deleted": (
        live(
            "StatefulSet",
            {"replicas": 1, "updateStrategy": {"type": "OnDelete"}},
            {"readyReplicas": 1, "currentRevision": "a", "updateRevision": "b"},
        ),
        "ready",
        "",
    ),
    "daemon set": (
        live(
            "DaemonSet",
            {},
            {
                "observedGeneration": 2,
                "desiredNumberScheduled": 3,
                "updatedNumberScheduled": 3,
                "numberAvailable": 3,
            },
        ),
        "ready",
        "",
    ),
    "daemon set without nodes": (live("DaemonSet", {}, {"observedGeneration": 2}), "ready", ""),
    "new daemon set": (live("DaemonSet", {}, {}), "progressing", "0 of 0"),
    "daemon set starting": (
        live("DaemonSet", {}, {"observedGeneration": 2, "desiredNumberScheduled": 3, "numberAvailable": 2}),
        "progressing",
        "2 of 3 pods available",
    ),
    "gang": (gang(2, AVAILABLE), "ready", ""),
    "gang of none": (gang(0), "ready", ""),
    "gang without a word": (gang(2), "progressing", "2 of 2 groups ready"),
    "gang starting": (gang(2, says("Available", "False"), readyReplicas=1), "progressing", "1 of 2 groups ready"),
    "gang rolling": (
        gang(2, AVAILABLE, says("UpdateInProgress", "True"), updatedReplicas=1),
        "progressing",
        "1 of them updated",
    ),
    "job": (live("Job", {}, {"conditions": [says("Complete", "True")]}), "ready", ""),
    "job at work": (live("Job", {}, {"active": 1, "failed": 2}), "progressing", "1 running, 2 failed before"),
    "job suspended": (live("Job", {}, {"conditions": [says("Suspended", "True")]}), "progressing", "suspended"),
    "job failed": (
        live("Job", {}, {"conditions": [says("Failed", "True", "BackoffLimitExceeded", "too often")]}),
        "failed",
        "BackoffLimitExceeded: too often",
    ),
    "claim": (live("PersistentVolumeClaim", {}, {"phase": "Bound"}), "ready", ""),
    "claim that waits": (
        live("PersistentVolumeClaim", {"storageClassName": "nfs"}, {"phase": "Pending"}),
        "progressing",
        "StorageClass nfs",
    ),
    "claim without its volume": (live("PersistentVolumeClaim", {}, {"phase": "Lost"}), "failed", "lost"),
    "service": (live("Service", {"type": "ClusterIP"}, {}), "ready", ""),
    "service without an address": (live("Service", {"type": "LoadBalancer"}, {}), "progressing", "no address"),
    "service with an address": (
        live("Service", {"type": "LoadBalancer"}, {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}),
        "ready",
        "",
    ),
    "gateway": (live("Gateway", {}, {"conditions": [says("Programmed", "True", observedGeneration=2)]}), "ready", ""),
    "gateway of an older generation": (
        live("Gateway", {}, {"conditions": [says("Programmed", "True", observedGeneration=1)]}),
        "progressing",
        "no controller",
    ),
    "gateway without an address": (
        live("Gateway", {}, {"conditions": [says("Programmed", "False", "AddressNotAssigned", "none")]}),
        "progressing",
        "AddressNotAssigned: none",
    ),
    "gateway without a controller": (live("Gateway", {}, {}), "progressing", "no controller"),
    "gateway class": (live("GatewayClass", {}, {"conditions": [ACCEPTED]}), "ready", ""),
    "route": (parents("HTTPRoute", [ACCEPTED, RESOLVED]), "ready", ""),
    "route that is not accepted": (parents("HTTPRoute"), "progressing", "its gateway has not accepted it yet"),
    "route that one of two gateways took": (parents("HTTPRoute", [ACCEPTED], refs=2), "progressing", "not accepted"),
    "route refused": (
        parents("HTTPRoute", [says("Accepted", "False", "NotAllowedByListeners", "no", observedGeneration=2)]),
        "progressing",
        "NotAllowedByListeners: no",
    ),
    "route refused when it was another": (
        parents("HTTPRoute", [says("Accepted", "False", "NotAllowedByListeners", "no", observedGeneration=1)]),
        "progressing",
        "not accepted it yet",
    ),
    "route to what is not there": (
        parents("HTTPRoute", [ACCEPTED, says("ResolvedRefs", "False", "BackendNotFound", "x", observedGeneration=2)]),
        "progressing",
        "BackendNotFound: x",
    ),
    "certificate": (live("Certificate", {}, {"conditions": [says("Ready", "True")]}), "ready", ""),
    "certificate that is not issued": (live("Certificate", {}, {}), "progressing", "not issued yet"),
    "certificate without its issuer": (
        live("Certificate", {}, {"conditions": [says("Ready", "False", "DoesNotExist", "no Secret")]}),
        "progressing",
        "DoesNotExist: no Secret",
    ),
    "bundle": (live("Bundle", {}, {"conditions": [says("Synced", "True", observedGeneration=2)]}), "ready", ""),
    "bundle that is not copied": (live("Bundle", {}, {}), "progressing", "not copied yet"),
    "route of models": (live("AIGatewayRoute", {}, {"conditions": [says("Accepted", "True")]}), "ready", ""),
    "route of models that no controller took": (live("AIGatewayRoute", {}, {}), "progressing", "has not accepted it"),
    "route of models refused": (
        live("AIGatewayRoute", {}, {"conditions": [says("NotAccepted", "True", "NotAccepted", "no backend")]}),
        "progressing",
        "NotAccepted: no backend",
    ),
    "pool without a status": (live("InferencePool", {}, {}), "ready", ""),
    "pool refused": (
        parents("InferencePool", [says("Accepted", "False", "NotSupported", "x", observedGeneration=2)]),
        "progressing",
        "NotSupported: x",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_readiness(name: str) -> None:
    value, state, message = CASES[name]
    found = readiness(value)
    assert (found.state, message in found.message) == (state, True), found
    assert found.ready == (state == "ready")
    assert found.settled == (state != "progressing")
    assert bool(found.message) == (state != "ready")


NONSENSE: list[Any] = [
    None,
    "text",
    5,
    [],
    ["x"],
    {"conditions": "x"},
    {"conditions": [None, {"type": 5}]},
    {"parents": 3},
]


@pytest.mark.parametrize("kind", sorted({value["kind"] for value, _, _ in CASES.values() if value}))
def test_no_status_whatever_it_is_breaks_the_observation(kind: str) -> None:
    for status in NONSENSE:
        value = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "spec": status, "status": status}
        assert readiness(value).state in ("ready", "progressing", "failed")


def test_what_has_nothing_to_become_is_not_waited_for() -> None:
    assert not waited_for("ConfigMap")
    assert waited_for("Deployment")
