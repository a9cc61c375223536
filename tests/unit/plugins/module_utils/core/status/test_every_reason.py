# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Every condition of every kind with every reason that it may have, and what causes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Component, ObservedBudget
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Pending,
    Placement,
    Refusal,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.caller_policy import GatewayBudgets
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import Status
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_cache import CachePhase
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_replica import DECLARED, ReplicaState
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.workloads import EngineStall
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Objects
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status import sightings as seen
from ansible_collections.modelplane.fleet.tests.written import (
    caller_policy,
    inference_class,
    inference_cluster,
    inference_gateway,
    infrastructure,
    model_cache,
    model_deployment,
    model_route,
    model_service,
)
from ansible_collections.modelplane.fleet.tests.written import endpoint_status as model_endpoint
from ansible_collections.modelplane.fleet.tests.written import replica_status as model_replica

NOW = "2026-01-01T00:00:00Z"
UP = Component(True)
STALLED = ReplicaState(True, True, stalls=(EngineStall("chat-a", 2, "2026-01-01T10:00:00Z", "no response"),))
SERVES, STARTS, ABSENT, UNSEEN = (
    ReplicaState(True, True),
    ReplicaState(True, False, "Deployment a: 0 of 1 available"),
    ReplicaState(False, False, "Deployment a does not exist yet"),
    ReplicaState(None, None, "cluster east did not answer"),
)
REFUSAL = Refusal("has 0 free gpu, needs 1", "gpu-l4", ("east",))


ROUTE = {
    "apiVersion": "modelplane.ai/v1alpha1",
    "kind": "ModelRoute",
    "metadata": {"name": "chat-eu", "namespace": "ml-team"},
    "spec": {
        "gatewayName": "eu",
        "serviceName": "chat",
        "endpoints": [{"name": "ours", "selector": {"matchLabels": {"a": "b"}}}],
    },
}

CALLERS = {"callers": [{"name": "*"}]}
POLICY = {
    "apiVersion": "modelplane.ai/v1alpha1",
    "kind": "CallerPolicy",
    "metadata": {"name": "acme", "namespace": "ml-team"},
    "spec": {**CALLERS, "budgets": [{"name": "daily", "unit": "Tokens", "limit": 20, "per": "Day"}]},
}


def policy(*gateways: GatewayBudgets) -> Status:
    return caller_policy(POLICY, gateways)


def counted(problem: str = "") -> GatewayBudgets:
    used = {} if problem else {"alice": 7}
    return GatewayBudgets("eu", {"daily": ObservedBudget("ml-team", "acme", "daily", used, problem=problem)})


def placed(*clusters: str) -> list[Placement]:
    return [Placement("ml-team", "qwen3-8b", name, 0, (), "kept") for name in clusters]


def pending(reason: str, message: str = "0 of 2 replicas scheduled (checked 1 cluster)") -> Pending:
    return Pending("ml-team", "qwen3-8b", 2, reason, message, (REFUSAL,) if reason == "InsufficientCapacity" else ())


def endpoint(shown: bool) -> Status:
    wire = seen.endpoint()
    parts = seen.endpoint_parts(wire)
    return model_endpoint(wire, parts, Objects(parts if shown else parts[:1]))


def service(*usable: bool, accepted: str = "True", routes: bool = True, gateway: str = "198.51.100.7") -> Status:
    route = seen.route(accepted=accepted)
    composed = [route] if routes else []
    return model_service(seen.SERVICE, seen.resolution(*usable), composed, gateway, Objects([route]))


def route(accepted: str = "True", *, composed: bool = True, is_seen: bool = True, address: str = "192.0.2.1") -> Status:
    desired = [
        {"apiVersion": "aigateway.envoyproxy.io/v1beta1", "kind": "AIGatewayRoute", "metadata": {"name": "chat"}}
    ]
    shown = {**desired[0], "status": {"conditions": [{"type": "Accepted", "status": accepted}]}}
    endpoints = {"east": "", "saas": ""} if composed else {"east": "cluster east has no hostname yet"}
    observed = Objects([shown]) if is_seen else None
    return model_route(ROUTE, "hub", desired if composed else [], observed, endpoints=endpoints, address=address)


def cache(*phases: str, token_missing: bool = False) -> Status:
    each = {f"c{index}": CachePhase(phase, message=f"it is {phase}") for index, phase in enumerate(phases)}
    return model_cache(seen.CACHE, list(each), each, token_missing)


def deployment(*states: ReplicaState, replicas: int = 2, pend: Pending | None = None, **more: Any) -> Status:
    names = [f"c{index}" for index in range(len(states))]
    by_place = {(name, 0): state for name, state in zip(names, states, strict=True)}
    wire = seen.deployment(replicas, cache="qwen" if more.get("cache") else "")
    return model_deployment(wire, placed(*names), pend, by_place, **more)


def cluster(source: dict[str, object] = seen.EKS, ready: bool = True, stack: bool = True, **more: object) -> Status:
    found = seen.cluster(provisioned=Component(ready, "ACTIVE" if ready else "CREATING"), stack=Component(stack))
    return inference_cluster(source, pools=[], observed=found, gateway_address="192.0.2.1", **more)


INVALID_CEL = "Invalid nodeSelector CEL expression: engine main, device gpu: undeclared reference to 'devise'"

Row = tuple[str, str, str, str, str, Callable[[], Status]]
# Kind, type, status, reason, a part of the message, what causes it.
ROWS: list[Row] = [
    ("InferenceClass", "Accepted", "True", "Available", "", lambda: inference_class(seen.CLASS)),
    ("InferenceClass", "Ready", "True", "Available", "", lambda: inference_class(seen.CLASS)),
    ("InferenceCluster", "ClusterReady", "True", "ClusterRunning", "", cluster),
    ("InferenceCluster", "ClusterReady", "True", "ClusterRunning", "exists", lambda: cluster(seen.EXISTING, False)),
    ("InferenceCluster", "ClusterReady", "False", "Provisioning", "CREATING", lambda: cluster(ready=False)),
    (
        "InferenceCluster",
        "ClusterReady",
        "False",
        "WaitingForClasses",
        "Waiting for InferenceClasses: a, b",
        lambda: cluster(missing_classes=["b", "a"], invalid_pool="both"),
    ),
    (
        "InferenceCluster",
        "ClusterReady",
        "False",
        "InvalidNodePool",
        "InferenceClass l4 has no EKS provisioning block",
        lambda: cluster(invalid_pool="InferenceClass l4 has no EKS provisioning block"),
    ),
    (
        "InferenceCluster",
        "ClusterReady",
        "Unknown",
        "NotObserved",
        "east has not been observed",
        lambda: inference_cluster(seen.EKS),
    ),
    ("InferenceCluster", "BackendReady", "True", "BackendHealthy", "", cluster),
    ("InferenceCluster", "BackendReady", "False", "Installing", "serving stack", lambda: cluster(stack=False)),
    ("InferenceCluster", "BackendReady", "False", "WaitingForCluster", "", lambda: cluster(ready=False, stack=False)),
    ("InferenceCluster", "BackendReady", "True", "WaitingForCluster", "", lambda: cluster(ready=False)),
    (
        "InferenceCluster",
        "BackendReady",
        "Unknown",
        "NotObserved",
        "refused",
        lambda: inference_cluster(seen.EKS, observed=seen.silent()),
    ),
    *(
        (
            "InferenceCluster",
            kind,
            "True",
            "Declared",
            "Cluster east is not observed, as its objects are files: it is assumed to be as declared",
            lambda: inference_cluster(seen.EKS, is_declared=True),
        )
        for kind in ("ClusterReady", "BackendReady", "Ready")
    ),
    (
        "InferenceCluster",
        "Ready",
        "False",
        "Creating",
        "The status in its manifest is not Ready",
        lambda: inference_cluster(
            {**seen.EKS, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}, is_declared=True
        ),
    ),
    ("InferenceCluster", "Ready", "True", "Available", "", cluster),
    ("InferenceCluster", "Ready", "False", "Creating", "CREATING", lambda: cluster(ready=False)),
    (
        "InferenceCluster",
        "Ready",
        "False",
        "Creating",
        "Waiting for an address of Gateway modelplane-system/inference-gateway",
        lambda: inference_cluster(seen.EKS, observed=seen.ready_cluster()),
    ),
    (
        "InferenceCluster",
        "Ready",
        "False",
        "Unavailable",
        "CREATING",
        lambda: cluster(ready=False, previous={"conditions": [{"type": "Ready", "status": "True"}]}),
    ),
    (
        "InferenceCluster",
        "Ready",
        "Unknown",
        "NotObserved",
        "did not answer: connection refused",
        lambda: inference_cluster(seen.EXISTING, observed=seen.silent()),
    ),
    (
        "InferenceGateway",
        "ControllerReady",
        "True",
        "ControllerHealthy",
        "",
        lambda: inference_gateway(seen.GATEWAY, Objects(seen.control_gateway()), UP),
    ),
    (
        "InferenceGateway",
        "ControllerReady",
        "False",
        "Installing",
        "helm: pending",
        lambda: inference_gateway(seen.GATEWAY, Objects(), Component(False, "helm: pending")),
    ),
    (
        "InferenceGateway",
        "ControllerReady",
        "Unknown",
        "NotObserved",
        "",
        lambda: inference_gateway(seen.GATEWAY, None, UP),
    ),
    (
        "InferenceGateway",
        "Ready",
        "True",
        "Available",
        "",
        lambda: inference_gateway(seen.GATEWAY, Objects(seen.control_gateway()), UP),
    ),
    (
        "InferenceGateway",
        "Ready",
        "False",
        "Creating",
        "Gateway modelplane-system/modelplane does not exist yet",
        lambda: inference_gateway(seen.GATEWAY, Objects(), UP),
    ),
    (
        "InferenceGateway",
        "Ready",
        "False",
        "Creating",
        "GatewayClass traefik is not accepted yet; Gateway modelplane-system/modelplane is not accepted yet",
        lambda: inference_gateway(seen.GATEWAY, Objects(seen.control_gateway("False")), UP),
    ),
    ("InferenceGateway", "Ready", "Unknown", "NotObserved", "", lambda: inference_gateway(seen.GATEWAY, None, UP)),
    (
        "ModelDeployment",
        "ReplicasScheduled",
        "True",
        "ReplicasCreated",
        "Scheduled 2 of 2 replicas",
        lambda: deployment(SERVES, STARTS),
    ),
    (
        "ModelDeployment",
        "ReplicasScheduled",
        "True",
        "ReplicasCreated",
        "Scheduled 1 of 2 replicas; pool gpu-l4 on east: has 0 free gpu, needs 1",
        lambda: deployment(STARTS, pend=pending("InsufficientCapacity")),
    ),
    (
        "ModelDeployment",
        "ReplicasScheduled",
        "False",
        "Scheduling",
        "Scheduled 2 of 2 replicas; none is on its cluster yet (c0, c1)",
        lambda: deployment(ABSENT, UNSEEN),
    ),
    (
        "ModelDeployment",
        "ReplicasScheduled",
        "False",
        "InsufficientCapacity",
        "0 of 2 replicas scheduled (checked 1 cluster); pool gpu-l4 on east: has 0 free gpu, needs 1",
        lambda: deployment(pend=pending("InsufficientCapacity")),
    ),
    (
        "ModelDeployment",
        "ReplicasScheduled",
        "False",
        "NoClusters",
        "No InferenceClusters found with the labels region=mars",
        lambda: model_deployment(seen.deployment(selector={"region": "mars"}), [], pending("NoClusters"), {}),
    ),
    (
        "ModelDeployment",
        "ReplicasScheduled",
        "False",
        "InvalidNodeSelector",
        INVALID_CEL,
        lambda: deployment(invalid=INVALID_CEL),
    ),
    ("ModelDeployment", "ReplicasScheduled", "True", "ScaledToZero", "zero", lambda: deployment(replicas=0)),
    (
        "ModelDeployment",
        "EngineStalled",
        "True",
        "EngineRestarted",
        "pod chat-a on c1: 2 restarts, last at 2026-01-01T10:00:00Z: no response",
        lambda: deployment(SERVES, STALLED),
    ),
    (
        "ModelDeployment",
        "EngineStalled",
        "False",
        "NoStalls",
        "",
        lambda: deployment(SERVES, previous=deployment(STALLED).wire(None, 1, NOW)),
    ),
    (
        "ModelDeployment",
        "ReplicasReady",
        "True",
        "AllReplicasReady",
        "2 of 2 ready",
        lambda: deployment(SERVES, SERVES),
    ),
    (
        "ModelDeployment",
        "ReplicasReady",
        "False",
        "ModelStarting",
        "1 of 2 ready; replica 0 on c1: Deployment a: 0 of 1 available",
        lambda: deployment(SERVES, STARTS),
    ),
    (
        "ModelDeployment",
        "ReplicasReady",
        "False",
        "NoReplicasScheduled",
        "",
        lambda: deployment(pend=pending("InsufficientCapacity")),
    ),
    ("ModelDeployment", "ReplicasReady", "Unknown", "NotObserved", "1 of 2", lambda: deployment(SERVES, UNSEEN)),
    ("ModelDeployment", "ReplicasReady", "True", "ScaledToZero", "zero", lambda: deployment(replicas=0)),
    (
        "ModelDeployment",
        "ModelCacheResolved",
        "True",
        "ModelCacheResolved",
        "",
        lambda: deployment(SERVES, cache="resolved"),
    ),
    (
        "ModelDeployment",
        "ModelCacheResolved",
        "False",
        "ModelCacheUnresolved",
        "Waiting for ModelCache qwen",
        lambda: deployment(SERVES, cache="unresolved"),
    ),
    (
        "ModelDeployment",
        "ModelCacheResolved",
        "False",
        "ModelCacheNotFound",
        "ModelCache qwen not found; holding replica placement",
        lambda: deployment(SERVES, cache="missing"),
    ),
    ("ModelDeployment", "Ready", "True", "Available", "", lambda: deployment(SERVES, SERVES)),
    ("ModelDeployment", "Ready", "True", "Available", "zero", lambda: deployment(replicas=0)),
    ("ModelDeployment", "Ready", "False", "Creating", "1 of 2 ready", lambda: deployment(SERVES, STARTS)),
    ("ModelDeployment", "Ready", "Unknown", "NotObserved", "0 of 1 ready", lambda: deployment(UNSEEN)),
    ("ModelReplica", "ModelAccepted", "True", "Accepted", "east", lambda: model_replica(seen.replica(), STARTS, None)),
    (
        "ModelReplica",
        "ModelAccepted",
        "False",
        "Deploying",
        "Waiting for cluster east: Deployment a does not exist yet",
        lambda: model_replica(seen.replica(), ABSENT, None),
    ),
    (
        "ModelReplica",
        "ModelAccepted",
        "False",
        "WaitingForCluster",
        "InferenceCluster east does not exist",
        lambda: model_replica(seen.replica(), UNSEEN, None, waiting="InferenceCluster east does not exist"),
    ),
    (
        "ModelReplica",
        "ModelAccepted",
        "Unknown",
        "NotObserved",
        "did not answer",
        lambda: model_replica(seen.replica(), UNSEEN, None),
    ),
    ("ModelReplica", "ModelReady", "True", "Serving", "", lambda: model_replica(seen.replica(), SERVES, None)),
    (
        "ModelReplica",
        "ModelReady",
        "False",
        "ModelStarting",
        "0 of 1 available",
        lambda: model_replica(seen.replica(), STARTS, None),
    ),
    (
        "ModelReplica",
        "ModelReady",
        "False",
        "WaitingForModel",
        "does not exist yet",
        lambda: model_replica(seen.replica(), ABSENT, None),
    ),
    ("ModelReplica", "ModelReady", "Unknown", "NotObserved", "", lambda: model_replica(seen.replica(), UNSEEN, {})),
    *(
        ("ModelReplica", kind, "True", "Declared", "files", lambda: model_replica(seen.replica(), DECLARED, None))
        for kind in ("ModelAccepted", "ModelReady", "Ready")
    ),
    ("ModelReplica", "Ready", "True", "Available", "", lambda: model_replica(seen.replica(), SERVES, None)),
    ("ModelReplica", "Ready", "False", "Creating", "0 of 1", lambda: model_replica(seen.replica(), STARTS, None)),
    ("ModelReplica", "Ready", "Unknown", "NotObserved", "", lambda: model_replica(seen.replica(), UNSEEN, None)),
    ("ModelEndpoint", "RoutingReady", "True", "BackendConfigured", "", lambda: endpoint(True)),
    ("ModelEndpoint", "RoutingReady", "False", "WaitingForBackend", "EndpointSlice", lambda: endpoint(False)),
    (
        "ModelEndpoint",
        "RoutingReady",
        "False",
        "WaitingForBackend",
        "Secret ml-team/key is not there",
        lambda: model_endpoint(seen.endpoint(), [], None, waiting="Secret ml-team/key is not there"),
    ),
    (
        "ModelEndpoint",
        "RoutingReady",
        "False",
        "InvalidURL",
        "Invalid spec.url: gopher://x: it is no http url",
        lambda: model_endpoint(seen.endpoint("gopher://x"), [], Objects(), "it is no http url"),
    ),
    ("ModelEndpoint", "RoutingReady", "Unknown", "NotObserved", "", lambda: model_endpoint(seen.endpoint(), [], None)),
    ("ModelEndpoint", "Ready", "True", "Available", "", lambda: endpoint(True)),
    ("ModelEndpoint", "Ready", "False", "Creating", "does not exist yet", lambda: endpoint(False)),
    ("ModelEndpoint", "Ready", "Unknown", "NotObserved", "", lambda: model_endpoint(seen.endpoint(), [], None)),
    ("ModelService", "EndpointsResolved", "True", "Resolved", "Matched 2 endpoints", lambda: service(True, True)),
    (
        "ModelService",
        "EndpointsResolved",
        "True",
        "Resolved",
        "Matched 2 endpoints; 1 waiting for Backend: endpoint-1",
        lambda: service(True, False),
    ),
    (
        "ModelService",
        "EndpointsResolved",
        "False",
        "NoEndpoints",
        "No ModelEndpoints matched the configured selectors",
        service,
    ),
    ("ModelService", "RoutingReady", "True", "RouteConfigured", "", lambda: service(True)),
    ("ModelService", "RoutingReady", "False", "Configuring", "accept", lambda: service(True, accepted="False")),
    ("ModelService", "RoutingReady", "False", "Configuring", "answered with 503", lambda: service(False)),
    (
        "ModelService",
        "RoutingReady",
        "False",
        "Configuring",
        "none of 1 endpoint is usable; its route is withheld until one is",
        lambda: service(False, routes=False),
    ),
    (
        "ModelService",
        "RoutingReady",
        "False",
        "WaitingForGateway",
        "InferenceGateway default",
        lambda: service(False, routes=False, gateway=""),
    ),
    (
        "ModelService",
        "RoutingReady",
        "Unknown",
        "NotObserved",
        "",
        lambda: model_service(seen.SERVICE, seen.resolution(True), [seen.route()], "a.example", None),
    ),
    ("ModelService", "Ready", "True", "Available", "", lambda: service(True)),
    ("ModelService", "Ready", "False", "Creating", "accept", lambda: service(True, accepted="False")),
    (
        "ModelService",
        "Ready",
        "Unknown",
        "NotObserved",
        "",
        lambda: model_service(seen.SERVICE, seen.resolution(True), [seen.route()], "a.example", None),
    ),
    ("ModelRoute", "RoutingReady", "True", "RouteAccepted", "", route),
    ("ModelRoute", "RoutingReady", "False", "NoReadyEndpoints", "no hostname yet", lambda: route(composed=False)),
    ("ModelRoute", "RoutingReady", "False", "WaitingForRoute", "to accept AIGatewayRoute chat", lambda: route("False")),
    ("ModelRoute", "RoutingReady", "False", "WaitingForGateway", "to have an address", lambda: route(address="")),
    ("ModelRoute", "RoutingReady", "Unknown", "NotObserved", "cluster hub", lambda: route(is_seen=False)),
    ("ModelRoute", "Ready", "True", "Available", "", route),
    ("ModelRoute", "Ready", "False", "Creating", "to accept", lambda: route("False")),
    ("ModelRoute", "Ready", "Unknown", "NotObserved", "cluster hub", lambda: route(is_seen=False)),
    ("CallerPolicy", "UsageKnown", "True", "Counted", "", lambda: policy(counted())),
    ("CallerPolicy", "UsageKnown", "True", "NoBudgets", "", lambda: caller_policy({**POLICY, "spec": CALLERS}, [])),
    (
        "CallerPolicy",
        "UsageKnown",
        "False",
        "NotCounted",
        "InferenceGateway eu, budget daily: it does not answer",
        lambda: policy(counted("it does not answer")),
    ),
    (
        "CallerPolicy",
        "UsageKnown",
        "False",
        "NotCounted",
        "InferenceGateway us, budget daily: its cluster does not have it yet",
        lambda: policy(counted(), GatewayBudgets("us")),
    ),
    ("CallerPolicy", "UsageKnown", "False", "NoRoute", "No gateway with keys", policy),
    (
        "CallerPolicy",
        "UsageKnown",
        "Unknown",
        "NotObserved",
        "InferenceGateway us: cluster b has not been observed",
        lambda: policy(counted(), GatewayBudgets("us", unread="cluster b has not been observed")),
    ),
    ("ModelCache", "ClustersMatched", "True", "Matched", "Matched 2 clusters: c0, c1", lambda: cache("Ready", "Ready")),
    ("ModelCache", "ClustersMatched", "False", "NoClusters", "No InferenceCluster with storage", cache),
    ("ModelCache", "ArtifactReady", "False", "NoClusters", "No InferenceCluster with storage", cache),
    (
        "ModelCache",
        "ArtifactReady",
        "False",
        "AuthSecretMissing",
        "authSecret ml-team/hf-token is missing or has no key 'HF_TOKEN'",
        lambda: cache("Failed", "Ready", token_missing=True),
    ),
    ("ModelCache", "ArtifactReady", "False", "Failed", "c0: it is Failed", lambda: cache("Failed", "Ready")),
    ("ModelCache", "ArtifactReady", "True", "Staged", "", lambda: cache("Ready", "Ready", token_missing=True)),
    ("ModelCache", "ArtifactReady", "False", "Partial", "1 of 2 clusters", lambda: cache("Ready", "Pending")),
    ("ModelCache", "ArtifactReady", "False", "Hydrating", "c0: it is Pending", lambda: cache("Pending", "Hydrating")),
    ("ModelCache", "ArtifactReady", "Unknown", "NotObserved", "", lambda: model_cache(seen.CACHE, ["a"], {}, False)),
    ("ModelCache", "Ready", "True", "Available", "", lambda: cache("Ready")),
    ("ModelCache", "Ready", "False", "Creating", "c1: it is Pending", lambda: cache("Ready", "Pending")),
    ("ModelCache", "Ready", "Unknown", "NotObserved", "", lambda: cache("")),
    ("ServingStack", "Ready", "True", "Available", "", lambda: infrastructure(UP)),
    ("ServingStack", "Ready", "False", "Creating", "lws", lambda: infrastructure(Component(message="lws"))),
    ("ServingStack", "Ready", "Unknown", "NotObserved", "", lambda: infrastructure(None)),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row[:4]))
def test_row(row: Row) -> None:
    _, kind, status, reason, message, make = row
    found = make().condition(kind)
    assert found is not None
    assert (found.status, found.reason) == (status, reason)
    assert message in found.message


RESOURCES = {
    "CallerPolicy": POLICY,
    "InferenceClass": seen.CLASS,
    "InferenceCluster": seen.EKS,
    "InferenceGateway": seen.GATEWAY,
    "ModelDeployment": seen.deployment(),
    "ModelReplica": seen.replica(),
    "ModelEndpoint": seen.endpoint(),
    "ModelRoute": ROUTE,
    "ModelService": seen.SERVICE,
    "ModelCache": seen.CACHE,
    "ServingStack": {
        "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
        "kind": "ServingStack",
        "metadata": {"name": "east-serving-stack", "namespace": "modelplane-system"},
        "spec": {"secrets": [{"type": "Kubeconfig", "name": "east", "key": "kubeconfig"}]},
    },
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row[:4]))
def test_a_resource_with_that_status_is_valid(row: Row) -> None:
    status = row[-1]().wire(None, 1, NOW)
    resource = api.parse({**RESOURCES[row[0]], "status": status})
    assert api.wire(resource)["status"] == status


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row[:4]))
def test_a_second_observation_changes_nothing(row: Row) -> None:
    once = row[-1]().wire(None, 1, NOW)
    assert row[-1]().wire(once, 1, "2027-01-01T00:00:00Z") == once


def test_every_condition_has_a_transition_time_and_ready_is_always_reported() -> None:
    """But for policies, which are part of what serves, and serve nothing themselves."""
    for row in ROWS:
        status = row[-1]().wire(None, 1, NOW)
        assert row[0] == "CallerPolicy" or "Ready" in {entry["type"] for entry in status["conditions"]}
        assert {entry["lastTransitionTime"] for entry in status["conditions"]} == {NOW}
