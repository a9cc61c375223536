# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Meanings of all conditions and reasons that statuses have, for the field reference. Messages have the details."""

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
    """Meaning of a reason, with the status of the condition that has it."""

    status: Truth
    name: str
    meaning: str


@dataclass(frozen=True)
class Meaning:
    """Meaning of a type of condition: what is the case when it is True, and its reasons."""

    type: str
    true: str
    reasons: tuple[Reason, ...]


_NOT_OBSERVED = Reason(
    "Unknown", NOT_OBSERVED, "The cluster that has it did not answer or was not read, and nothing was known before."
)
_DECLARED = Reason(
    "True", DECLARED, "The objects of the cluster are files, so it is not observed: it is assumed to be as declared."
)


def _ready(true: str, *more: Reason) -> Meaning:
    """Return the meaning of Ready; `more` are the reasons that not every kind has."""
    return Meaning(
        READY,
        true,
        (
            Reason("True", "Available", "All that is needed is there."),
            Reason("False", "Creating", "It has not been ready yet; the message says what is missing."),
            Reason("False", "Unavailable", "It was ready before; the message says what is missing now."),
            *more,
        ),
    )


_INFERENCE_CLASS = (
    Meaning("Accepted", "The manifest is valid.", (Reason("True", "Available", "Nothing is created for a class."),)),
    Meaning(READY, "It is Accepted.", (Reason("True", "Available", "Pools may name the class."),)),
)

_INFERENCE_CLUSTER = (
    Meaning(
        "ClusterReady",
        "The Kubernetes cluster exists.",
        (
            Reason("True", "ClusterRunning", "It is an existing cluster, or the cloud has created it."),
            _DECLARED,
            Reason("False", "WaitingForClasses", "Pools name InferenceClasses that do not exist."),
            Reason("False", "InvalidNodePool", "The class of a pool does not say how the cloud builds such nodes."),
            Reason("False", "Provisioning", "The cloud does not have the cluster yet, or is changing it."),
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
        "Replicas can be placed: both others are True, and the gateway has an address.",
        _DECLARED,
        Reason(
            "Unknown",
            NOT_OBSERVED,
            "The cluster did not answer or was not read. Its replicas stay; it gets no new ones.",
        ),
    ),
)

_INFERENCE_GATEWAY = (
    Meaning(
        "ControllerReady",
        "The controller of the gateway runs.",
        (
            Reason("True", "ControllerHealthy", "All components of the gateway are ready."),
            Reason("False", "Installing", "Components are missing or not ready yet, or were removed."),
            _NOT_OBSERVED,
        ),
    ),
    _ready(
        "ControllerReady is True, and the controller has accepted the Gateway.",
        Reason(
            "False",
            "PolicyConflict",
            "A policy of the gateway is not accepted, or one that is not of the fleet is attached to it, so that keys, "
            "rights or budgets may not count (mode Model). The message names them.",
        ),
        _NOT_OBSERVED,
    ),
)

_SCALED_TO_ZERO = Reason("True", "ScaledToZero", "`spec.replicas` is 0, and no replica is left.")
_MODEL_DEPLOYMENT = (
    Meaning(
        "ReplicasScheduled",
        "At least one replica is on its cluster.",
        (
            Reason("True", "ReplicasCreated", "Replicas are on clusters; the message says why others are not."),
            _SCALED_TO_ZERO,
            Reason("False", "Scheduling", "Replicas are placed, but none is on its cluster yet."),
            Reason("False", "InsufficientCapacity", "No cluster has room for one; the message says why."),
            Reason("False", "NoClusters", "No InferenceCluster has the labels of `clusterSelector`."),
            Reason(
                "False", "InvalidNodeSelector", "A selector of devices is invalid. Running replicas stay as they are."
            ),
        ),
    ),
    Meaning(
        "ReplicasReady",
        "All placed replicas serve.",
        (
            Reason("True", "AllReplicasReady", "All placed replicas are ready."),
            _SCALED_TO_ZERO,
            Reason(
                "False", "ModelStarting", "Replicas are starting or fail; the message has the errors of their pods."
            ),
            Reason("False", "NoReplicasScheduled", "No replica is placed."),
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
        "The ModelCache of `modelCacheRef` can be used. Absent without `modelCacheRef`.",
        (
            Reason("True", "ModelCacheResolved", "The ModelCache exists and is valid."),
            Reason("False", "ModelCacheUnresolved", "The manifest of the ModelCache has errors."),
            Reason("False", "ModelCacheNotFound", "There is no such ModelCache; no replica is placed meanwhile."),
        ),
    ),
    _ready("A replica is placed, and all that are serve, with ready ModelEndpoints.", _NOT_OBSERVED),
)

_MODEL_REPLICA = (
    Meaning(
        "ModelAccepted",
        "All engines are on the cluster.",
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
            Reason("False", "ModelStarting", "Engines are starting or fail; the message has the errors of their pods."),
            Reason("False", "WaitingForModel", "ModelAccepted is not True."),
            _NOT_OBSERVED,
        ),
    ),
    _ready("Both others are True.", _DECLARED, _NOT_OBSERVED),
)

_MODEL_ENDPOINT = (
    Meaning(
        "RoutingReady",
        "The gateway can reach the backend.",
        (
            Reason("True", "BackendConfigured", "The objects that lead to the backend exist and are accepted."),
            Reason(
                "False",
                "WaitingForBackend",
                "An object or a Secret is missing, or the gateway rejects an object or cannot use the endpoint.",
            ),
            Reason("False", "InvalidURL", "`spec.url` or `spec.origin` cannot be used."),
            _NOT_OBSERVED,
        ),
    ),
    _ready("RoutingReady is True.", _NOT_OBSERVED),
)

_MODEL_SERVICE = (
    Meaning(
        "EndpointsResolved",
        "Its selectors match ModelEndpoints.",
        (
            Reason("True", "Resolved", "ModelEndpoints match; the message has those that are not usable yet."),
            Reason("False", "NoEndpoints", "No ModelEndpoint matches."),
        ),
    ),
    Meaning(
        "RoutingReady",
        "The gateway routes requests to an endpoint.",
        (
            Reason("True", "RouteConfigured", "The gateway has accepted all routes of the service."),
            Reason("False", "Configuring", "No endpoint can be used, or the gateway has not accepted a route yet."),
            Reason(
                "False", "WaitingForGateway", "The InferenceGateway has no address yet, or none serves the service."
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
                "The gateway has accepted the route; the message names endpoints without requests.",
            ),
            Reason("False", "NoReadyEndpoints", "No endpoint can be used; the message says why."),
            Reason(
                "False",
                "PolicyConflict",
                "A policy of the route or its gateway is not accepted, or a SecurityPolicy that is not of the fleet is "
                "attached to one of them. The message names them.",
            ),
            Reason("False", "WaitingForRoute", "The gateway has not accepted the route yet."),
            Reason("False", "WaitingForGateway", "The gateway has accepted the route, and has no address yet."),
            _NOT_OBSERVED,
        ),
    ),
    _ready("RoutingReady is True.", _NOT_OBSERVED),
)

_CALLER_POLICY = (
    Meaning(
        "UsageKnown",
        "The usage of all its budgets is known.",
        (
            Reason("True", "NoBudgets", "It has none."),
            Reason("True", "Counted", "All gateways that route requests to its services say it."),
            Reason(
                "False",
                "NotCounted",
                "A gateway does not have a budget yet, or does not say how much of it is used; the message says why.",
            ),
            Reason("False", "NoRoute", "No gateway with keys routes requests to a service that it selects."),
            _NOT_OBSERVED,
        ),
    ),
)

_NO_CLUSTERS = Reason("False", "NoClusters", "No InferenceCluster with storage for caches matches `clusterSelector`.")
_MODEL_CACHE = (
    Meaning(
        "ClustersMatched",
        "A cluster with storage for caches matches `clusterSelector`.",
        (Reason("True", "Matched", "The message has the clusters."), _NO_CLUSTERS),
    ),
    Meaning(
        "ArtifactReady",
        "All matching clusters have the weights.",
        (
            Reason("True", "Staged", "The weights are on all of them."),
            _NO_CLUSTERS,
            Reason("False", "AuthSecretMissing", "The Secret of `authSecret`, or the key in it, does not exist."),
            Reason("False", "Failed", "A download failed; it is repeated once its Job is deleted."),
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
            name: (_ready("It is as its InferenceCluster needs it.", _NOT_OBSERVED),)
            for name, kind in api.KINDS.items()
            if kind.GROUP == api.GROUP_INFRASTRUCTURE
        },
    }
)
"""Conditions of each kind, in the order in which they become True."""
