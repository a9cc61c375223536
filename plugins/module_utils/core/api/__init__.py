# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Resources of the fleet: pydantic models of all kinds, and conversion between documents and models.

`parse` reads a document in the current format. The conversion of older formats runs before it. `wire` returns the
document of a model. `crd.py` generates the CustomResourceDefinitions from the same models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..problem import Problem
from .base import GROUP_INFRASTRUCTURE, GROUP_MODELS, VERSION, Model
from .caller_policy import CallerPolicy
from .cloud import CloudCluster
from .eks_cluster import EKSCluster
from .gke_cluster import GKECluster
from .inference_class import InferenceClass
from .inference_cluster import InferenceCluster
from .inference_gateway import InferenceGateway
from .model_cache import ModelCache
from .model_deployment import ModelDeployment
from .model_endpoint import ModelEndpoint
from .model_replica import ModelReplica
from .model_route import ModelRoute
from .model_service import ModelService
from .parsing import InvalidResource, construct, read, read_part, read_with, wire
from .resource import Resource
from .serving_stack import ServingStack

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
    """Return the resource of a document. Raise InvalidResource with all problems of the document.

    warn: receives a problem for each entry that the resource omits.
    """
    return read(document, KINDS, warn)


def parse_with(
    document: Mapping[str, Any], parts: Mapping[tuple[str, ...], Model | Sequence[Model]]
) -> Resource | None:
    """Return the resource of a document with models from other valid resources. None if the document has a problem.

    parts: the models, by field path.
    """
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
