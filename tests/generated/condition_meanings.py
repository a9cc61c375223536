# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Meanings of all conditions and reasons in statuses, for the field reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import (
    DECLARED,
    NOT_OBSERVED,
    READY,
    Truth,
)


@dataclass(frozen=True)
class Reason:
    """Meaning of a reason, with the status of its condition."""

    status: Truth
    name: str
    meaning: str


@dataclass(frozen=True)
class Meaning:
    """Meaning of a condition type, and its reasons."""

    type: str
    true: str
    reasons: tuple[Reason, ...]


_NOT_OBSERVED = Reason(
    "Unknown", NOT_OBSERVED, "The cluster of the object is unreachable or unobserved, and there is no earlier status."
)
_DECLARED = Reason(
    "True", DECLARED, "The cluster is file-based and unobserved. Its objects are assumed to have their declared state."
)


def _ready(true: str, *more: Reason) -> Meaning:
    """Return the meaning of Ready. `more`: additional reasons of the kind."""
    return Meaning(
        READY,
        true,
        (
            Reason("True", "Available", "All requirements are met."),
            Reason("False", "Creating", "The object has not been ready yet. The message contains the reason."),
            Reason("False", "Unavailable", "The object was ready before. The message contains the reason."),
            *more,
        ),
    )


_INFERENCE_CLASS = (
    Meaning("Accepted", "The manifest is valid.", (Reason("True", "Available", "The manifest is valid."),)),
    Meaning(READY, "Accepted is True.", (Reason("True", "Available", "Node pools can reference the class."),)),
)

_INFERENCE_CLUSTER = (
    Meaning(
        "ClusterReady",
        "The Kubernetes cluster exists.",
        (
            Reason("True", "ClusterRunning", "The cluster exists, or the cloud created it."),
            _DECLARED,
            Reason("False", "WaitingForClasses", "Node pools reference InferenceClasses that do not exist."),
            Reason(
                "False", "InvalidNodePool", "The InferenceClass of a node pool has no settings for the cloud provider."
            ),
            Reason("False", "Provisioning", "The cloud creates or updates the cluster."),
            _NOT_OBSERVED,
        ),
    ),
    Meaning(
        "BackendReady",
        "The serving stack runs on the cluster.",
        (
            Reason("True", "BackendHealthy", "All components of the serving stack are ready."),
            _DECLARED,
            Reason("False", "Installing", "Components are missing or not ready yet."),
            Reason("False", "WaitingForCluster", "ClusterReady is not True, and components are not ready."),
            Reason("True", "WaitingForCluster", "ClusterReady is not True, but all components are ready."),
            _NOT_OBSERVED,
        ),
    ),
    _ready(
        "Replicas can be scheduled: ClusterReady and BackendReady are True, and the cluster gateway has an address.",
        _DECLARED,
        Reason(
            "Unknown",
            NOT_OBSERVED,
            "The cluster is unreachable or unobserved. Its replicas remain, and it receives no new replicas.",
        ),
    ),
)

_INFERENCE_GATEWAY = (
    Meaning(
        "ControllerReady",
        "The gateway controller runs.",
        (
            Reason("True", "ControllerHealthy", "All components of the gateway are ready."),
            Reason("False", "Installing", "Components are missing, removed, or not ready yet."),
            _NOT_OBSERVED,
        ),
    ),
    _ready(
        "ControllerReady is True, and the controller has accepted the Gateway.",
        Reason(
            "False",
            "PolicyConflict",
            "A policy of a Model gateway is not accepted, or a policy that the fleet does not manage is attached to "
            "it. API keys, access control or budgets might have no effect. The message lists the policies.",
        ),
        _NOT_OBSERVED,
    ),
)

_SCALED_TO_ZERO = Reason("True", "ScaledToZero", "`spec.replicas` is 0, and all replicas are removed.")
_MODEL_DEPLOYMENT = (
    Meaning(
        "ReplicasScheduled",
        "At least one replica exists on its cluster.",
        (
            Reason("True", "ReplicasCreated", "Replicas exist. The message contains the reason for missing replicas."),
            _SCALED_TO_ZERO,
            Reason("False", "Scheduling", "Replicas are scheduled, but none exists on its cluster yet."),
            Reason(
                "False",
                "InsufficientCapacity",
                "No cluster has free capacity for a replica. The message contains the reason.",
            ),
            Reason("False", "NoClusters", "No InferenceCluster matches `clusterSelector`."),
            Reason("False", "InvalidNodeSelector", "A device selector is invalid. Running replicas are unchanged."),
        ),
    ),
    Meaning(
        "ReplicasReady",
        "All scheduled replicas serve.",
        (
            Reason("True", "AllReplicasReady", "All scheduled replicas are ready."),
            _SCALED_TO_ZERO,
            Reason("False", "ModelStarting", "Replicas are starting or fail. The message contains the pod errors."),
            Reason("False", "NoReplicasScheduled", "No replica is scheduled."),
            _NOT_OBSERVED,
        ),
    ),
    Meaning(
        "RolloutComplete",
        "All replicas have the current revision. The condition is set by the first edit that replaces replicas.",
        (
            Reason("True", "AllReplicasUpdated", "No replica has an old revision."),
            Reason("False", "RollingOut", "Replicas with an old revision are being replaced."),
            Reason(
                "False",
                "RolloutStopped",
                "A replica with the current revision failed. Old replicas are unchanged.",
            ),
            Reason(
                "False",
                "ReplicasOutdated",
                "Replicas no longer match the deployment, and their replacements are unschedulable.",
            ),
        ),
    ),
    Meaning(
        "EngineStalled",
        "The stall probe restarted an engine that hung. The first restart sets the condition.",
        (
            Reason(
                "True",
                "EngineRestarted",
                "The message contains the pods, the number of restarts, and the time and reason of the last restart.",
            ),
            Reason("False", "NoStalls", "The restarted pods no longer exist, or restarted again for another reason."),
        ),
    ),
    Meaning(
        "ModelCacheResolved",
        "The ModelCache of `modelCacheRef` is usable. The condition is not set without `modelCacheRef`.",
        (
            Reason("True", "ModelCacheResolved", "The ModelCache exists and is valid."),
            Reason("False", "ModelCacheUnresolved", "The manifest of the ModelCache is invalid."),
            Reason(
                "False", "ModelCacheNotFound", "The ModelCache does not exist. No replica is scheduled until it exists."
            ),
        ),
    ),
    _ready("At least one replica is scheduled, and all serve with ready ModelEndpoints.", _NOT_OBSERVED),
)

_MODEL_REPLICA = (
    Meaning(
        "ModelAccepted",
        "All engines exist on the cluster.",
        (
            Reason("True", "Accepted", "The workloads of all engines exist on the cluster."),
            _DECLARED,
            Reason("False", "Deploying", "The workload of an engine does not exist yet."),
            Reason("False", "WaitingForCluster", "The InferenceCluster does not exist."),
            _NOT_OBSERVED,
        ),
    ),
    Meaning(
        "ModelReady",
        "The replica serves.",
        (
            Reason("True", "Serving", "All engines and the endpoint picker are available."),
            _DECLARED,
            Reason("False", "ModelStarting", "Engines are starting or fail. The message contains the pod errors."),
            Reason("False", "WaitingForModel", "ModelAccepted is not True."),
            _NOT_OBSERVED,
        ),
    ),
    _ready("ModelAccepted and ModelReady are True.", _DECLARED, _NOT_OBSERVED),
)

_MODEL_ENDPOINT = (
    Meaning(
        "RoutingReady",
        "The gateway can route requests to the backend.",
        (
            Reason("True", "BackendConfigured", "The objects that route to the backend exist and are accepted."),
            Reason(
                "False",
                "WaitingForBackend",
                "An object or a Secret is missing, or the gateway rejects an object or cannot use the endpoint.",
            ),
            Reason("False", "InvalidURL", "`spec.url` or `spec.origin` is not usable."),
            _NOT_OBSERVED,
        ),
    ),
    _ready("RoutingReady is True.", _NOT_OBSERVED),
)

_MODEL_SERVICE = (
    Meaning(
        "EndpointsResolved",
        "The selectors match ModelEndpoints.",
        (
            Reason("True", "Resolved", "ModelEndpoints match. The message lists endpoints that are not usable yet."),
            Reason("False", "NoEndpoints", "No ModelEndpoint matches."),
        ),
    ),
    Meaning(
        "RoutingReady",
        "The gateway routes requests to an endpoint.",
        (
            Reason("True", "RouteConfigured", "The gateway has accepted all routes of the service."),
            Reason("False", "Configuring", "No endpoint is usable, or the gateway has not accepted a route yet."),
            Reason(
                "False",
                "WaitingForGateway",
                "The InferenceGateway has no address yet, or no InferenceGateway serves the service.",
            ),
            _NOT_OBSERVED,
        ),
    ),
    _ready("RoutingReady is True.", _NOT_OBSERVED),
)

_MODEL_ROUTE = (
    Meaning(
        "RoutingReady",
        "The gateway routes requests for the model to an endpoint.",
        (
            Reason(
                "True",
                "RouteAccepted",
                "The gateway has accepted the route. The message lists endpoints that receive no requests.",
            ),
            Reason("False", "NoReadyEndpoints", "No endpoint is usable. The message contains the reason."),
            Reason(
                "False",
                "PolicyConflict",
                "A policy of the route or its gateway is not accepted, or a SecurityPolicy that the fleet does not "
                "manage is attached to it. The message lists the policies.",
            ),
            Reason("False", "WaitingForRoute", "The gateway has not accepted the route yet."),
            Reason("False", "WaitingForGateway", "The gateway has accepted the route, but has no address yet."),
            _NOT_OBSERVED,
        ),
    ),
    _ready("RoutingReady is True.", _NOT_OBSERVED),
)

_CALLER_POLICY = (
    Meaning(
        "UsageKnown",
        "The usage of all budgets is known.",
        (
            Reason("True", "NoBudgets", "The policy has no budgets."),
            Reason("True", "Counted", "All gateways with routes to the selected services report the usage."),
            Reason(
                "False",
                "NotCounted",
                "A gateway does not have a budget yet, or does not report its usage. The message contains the reason.",
            ),
            Reason("False", "NoRoute", "No gateway with authentication routes requests to a selected service."),
            _NOT_OBSERVED,
        ),
    ),
)

_NO_CLUSTERS = Reason("False", "NoClusters", "No InferenceCluster with storage for caches matches `clusterSelector`.")
_MODEL_CACHE = (
    Meaning(
        "ClustersMatched",
        "A cluster with storage for caches matches `clusterSelector`.",
        (Reason("True", "Matched", "Clusters match. The message lists the clusters."), _NO_CLUSTERS),
    ),
    Meaning(
        "ArtifactReady",
        "All matching clusters have the weights.",
        (
            Reason("True", "Staged", "All matching clusters have the weights."),
            _NO_CLUSTERS,
            Reason("False", "AuthSecretMissing", "The Secret of `authSecret`, or its key, does not exist."),
            Reason("False", "Failed", "A download failed. Delete its Job to retry the download."),
            Reason("False", "Partial", "Some clusters have the weights."),
            Reason("False", "Hydrating", "No cluster has the weights yet."),
            _NOT_OBSERVED,
        ),
    ),
    _ready("ArtifactReady is True.", _NOT_OBSERVED),
)

MEANINGS: Mapping[str, tuple[Meaning, ...]] = MappingProxyType(
    {
        "CallerPolicy": _CALLER_POLICY,
        "InferenceClass": _INFERENCE_CLASS,
        "InferenceCluster": _INFERENCE_CLUSTER,
        "InferenceGateway": _INFERENCE_GATEWAY,
        "ModelDeployment": _MODEL_DEPLOYMENT,
        "ModelReplica": _MODEL_REPLICA,
        "ModelEndpoint": _MODEL_ENDPOINT,
        "ModelService": _MODEL_SERVICE,
        "ModelRoute": _MODEL_ROUTE,
        "ModelCache": _MODEL_CACHE,
        **{
            name: (_ready("The object has the state that its InferenceCluster requires.", _NOT_OBSERVED),)
            for name, kind in api.KINDS.items()
            if kind.GROUP == api.GROUP_INFRASTRUCTURE
        },
    }
)
"""Conditions of each kind, in the order in which they become True."""
