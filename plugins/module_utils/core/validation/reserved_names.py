# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names of manifests that are reserved for objects of the fleet."""

from __future__ import annotations

from collections.abc import Iterator

from .. import names
from ..api import InferenceGateway, ModelEndpoint, ModelService
from ..compose import constants
from ..compose.model_gateway.backends import CLIENT_CERTIFICATE
from ..compose.model_gateway.gateway import CALLERS_SECRET
from ..problem import Problem
from .model_gateways import Fleet

_SECRETS = frozenset(
    {
        CALLERS_SECRET,
        CLIENT_CERTIFICATE,
        constants.MODEL_GATEWAY_CA,
        constants.CLUSTER_GATEWAY,
        constants.CLUSTER_GATEWAY_CA,
    }
)
"""Secrets of a gateway on its cluster. Its certificates are copied to the same namespace."""


def endpoint_name(endpoint: ModelEndpoint, fleet: Fleet) -> Iterator[Problem]:
    """Yield the name of an endpoint that would replace the endpoint of a replica."""
    if endpoint.labels.get(names.MANAGED_BY_LABEL) != names.MANAGED_BY:
        yield from _of_replica(endpoint, fleet, "whose ModelEndpoint it would replace")


def service_name(service: ModelService, fleet: Fleet) -> Iterator[Problem]:
    """Yield the name of a service with a route that would have the name of a replica's route on a gateway's cluster."""
    if fleet.serving.gateways_of(service):
        yield from _of_replica(service, fleet, "whose HTTPRoute it would replace on the cluster of a gateway")


def _of_replica(resource: ModelEndpoint | ModelService, fleet: Fleet, why: str) -> Iterator[Problem]:
    stem = names.replica_stem(resource.name)
    for deployment in fleet.of_kind("ModelDeployment") if stem else ():
        like = names.replica_name(deployment.namespace, deployment.name, "", 0)
        if deployment.namespace == resource.namespace and names.replica_stem(like) == stem:
            message = f"is a name of replicas of ModelDeployment {deployment.name}, {why}"
            yield Problem(message, "metadata.name", resource.name, "Choose another name")


def certificate_names(gateway: InferenceGateway, _fleet: object) -> Iterator[Problem]:
    """Yield certificates of a gateway with copies that would replace Secrets of the fleet."""
    for index, certificate in enumerate(gateway.spec.tls.certificate_refs if gateway.spec.tls else ()):
        if certificate.name in _SECRETS:
            path = f"spec.tls.certificateRefs[{index}].name"
            message = "is the name of a Secret of the fleet on the gateway's cluster, which its copy would replace"
            yield Problem(message, path, certificate.name, "Give the Secret of the certificate another name")
