# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The resources of the fleet: their kinds as models, from documents and back.

`parse` reads a document in the canonical written form (older ones are converted before), `wire` writes one. The
CustomResourceDefinitions are made from the same models by `crd.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.base import (
    GROUP_INFRASTRUCTURE,
    GROUP_MODELS,
    VERSION,
    Model,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.caller_policy import CallerPolicy
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.cloud import CloudCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.eks_cluster import EKSCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.gke_cluster import GKECluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.inference_class import InferenceClass
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.inference_cluster import InferenceCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.inference_gateway import InferenceGateway
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_cache import ModelCache
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_deployment import ModelDeployment
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_endpoint import ModelEndpoint
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_replica import ModelReplica
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_route import ModelRoute
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_service import ModelService
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.parsing import (
    InvalidResource,
    construct,
    read,
    read_part,
    read_with,
    wire,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.resource import Resource
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.serving_stack import ServingStack
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem

KINDS: Mapping[str, type[Resource]] = MappingProxyType(
    {
        kind.KIND: kind
        for kind in (
            InferenceGateway,
            InferenceClass,
            InferenceCluster,
            ModelDeployment,
            ModelReplica,
            ModelService,
            ModelEndpoint,
            ModelRoute,
            CallerPolicy,
            ModelCache,
            ServingStack,
            EKSCluster,
            GKECluster,
        )
    }
)


def parse(document: Mapping[str, Any], warn: Callable[[Problem], None] | None = None) -> Resource:
    """The resource that a document describes; `warn` gets what is left out of it. Raises InvalidResource with all
    problems of the document."""
    return read(document, KINDS, warn)


def parse_with(
    document: Mapping[str, Any], parts: Mapping[tuple[str, ...], Model | Sequence[Model]]
) -> Resource | None:
    """The resource of a document to which parts of other valid ones are added, by their places; None where there is
    anything to say about the rest of it."""
    return read_with(document, KINDS, parts)


__all__ = [
    "GROUP_INFRASTRUCTURE",
    "GROUP_MODELS",
    "KINDS",
    "VERSION",
    "CallerPolicy",
    "CloudCluster",
    "EKSCluster",
    "GKECluster",
    "InferenceClass",
    "InferenceCluster",
    "InferenceGateway",
    "InvalidResource",
    "Model",
    "ModelCache",
    "ModelDeployment",
    "ModelEndpoint",
    "ModelReplica",
    "ModelRoute",
    "ModelService",
    "Resource",
    "ServingStack",
    "construct",
    "parse",
    "parse_with",
    "read_part",
    "wire",
]
