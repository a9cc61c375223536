# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Compose and status, from documents as people write them to documents as they are applied.

The functions have the names of those that they call, which take and return models of our own kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils._pydantic import ValidationError
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, compose
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.pod_template import Container
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.resource import Status
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.rules import partial
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import (
    backend,
    cache,
    cluster,
    gateway,
    label_index,
    service,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers.command_line import CommandLine
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status import caller_policy as of_policy
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status import inference_class as of_class
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status import inference_cluster as of_cluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status import inference_gateway as of_gateway
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status import infrastructure as of_infrastructure
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status import model_cache as of_cache
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status import model_deployment as of_deployment
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status import model_endpoint as of_endpoint
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status import model_replica as of_replica
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status import model_route as of_route
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status import model_service as of_service
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.devices import Promise

Document = Mapping[str, Any]


def parsed(document: Document, kind: type[api.Resource]) -> Any:
    """Return a document, which need not say its kind, as a model, without what is not valid in it.

    Rules between fields are not checked: what is composed has to be right even where they come to be broken.
    """
    metadata = {**({"namespace": "default"} if kind.NAMESPACED else {}), **document.get("metadata", {})}
    content = {"apiVersion": kind.group_version(), "kind": kind.KIND, **document, "metadata": metadata}
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        return partial(kind, content, frozenset(tuple(found["loc"]) for found in error.errors()))


def applied(resource: api.Resource) -> dict[str, Any]:
    """Return the object that is applied for a composed resource."""
    return api.wire(resource, set_only=True)


def _classes(classes: Mapping[str, Document]) -> dict[str, Any]:
    return {name: parsed(document, api.InferenceClass) for name, document in classes.items()}


def replica_objects(replica: Document, *options: Any) -> tuple[dict[str, Any], ...]:
    return compose.replica_objects(parsed(replica, api.ModelReplica), *options)


def model_replica(deployment: Document, *placement: Any) -> dict[str, Any]:
    return applied(compose.model_replica(parsed(deployment, api.ModelDeployment), *placement))


def model_endpoint(replica: Document, url: str) -> dict[str, Any]:
    return applied(compose.model_endpoint(parsed(replica, api.ModelReplica), url))


def endpoint_objects(endpoint: Document, *options: Any) -> tuple[Any, ...]:
    return backend.endpoint_objects(parsed(endpoint, api.ModelEndpoint), *options)


def endpoint_problem(endpoint: Document) -> str:
    return backend.endpoint_problem(parsed(endpoint, api.ModelEndpoint))


def backend_reference(endpoint: Document) -> tuple[str, int]:
    return backend.backend_reference(parsed(endpoint, api.ModelEndpoint))


def backend_host(endpoint: Document) -> str:
    return backend.backend_host(parsed(endpoint, api.ModelEndpoint))


def artifact(document: Document) -> str:
    return cache.artifact(parsed(document, api.ModelCache))


def volume_id(document: Document) -> str:
    return cache.volume_id(parsed(document, api.ModelCache))


def token_copy(document: Document) -> cache.SecretCopy | None:
    return cache.token_copy(parsed(document, api.ModelCache))


def cache_objects(document: Document, storage_class: str, **options: Any) -> tuple[Any, ...]:
    return cache.cache_objects(parsed(document, api.ModelCache), storage_class, **options)


def storage_class(document: Document) -> str:
    return cluster.storage_class(parsed(document, api.InferenceCluster))


def published_pools(document: Document, classes: Mapping[str, Document], nodes: Any) -> list[dict[str, Any]]:
    return [
        api.wire(pool)
        for pool in cluster.published_pools(parsed(document, api.InferenceCluster), _classes(classes), nodes)
    ]


def cluster_objects(document: Document, classes: Mapping[str, Document]) -> tuple[Any, ...]:
    return cluster.cluster_objects(parsed(document, api.InferenceCluster), _classes(classes))


def gateway_objects(document: Document) -> tuple[Any, ...]:
    resource = parsed(document, api.InferenceGateway)
    return gateway.backend_of(resource).objects(resource)


def gateway_releases(document: Document) -> tuple[gateway.HelmRelease, ...]:
    resource = parsed(document, api.InferenceGateway)
    return gateway.backend_of(resource).releases(resource)


def endpoint_index(endpoints: Iterable[Document]) -> label_index.LabelIndex[api.ModelEndpoint]:
    return label_index.LabelIndex[api.ModelEndpoint](parsed(each, api.ModelEndpoint) for each in endpoints)


def resolve(
    document: Document, index: label_index.LabelIndex[api.ModelEndpoint], usable: Callable[[Any], bool]
) -> service.Resolution:
    return service.resolve(parsed(document, api.ModelService), index, usable)


def service_objects(document: Document, *args: Any) -> tuple[Any, ...]:
    return service.service_objects(parsed(document, api.ModelService), *args)


def command_line(container: Document) -> CommandLine:
    return CommandLine.of(Container.model_validate({"name": "engine", "image": "engine", **container}))


@dataclass(frozen=True)
class Shown:
    """A status, with its fields in their written form."""

    status: Any

    @property
    def conditions(self) -> Any:
        return self.status.conditions

    @property
    def fields(self) -> dict[str, Any]:
        return api.wire(self.status.fields)

    def condition(self, kind: str) -> Any:
        return self.status.condition(kind)

    def wire(self, *args: Any) -> dict[str, Any]:
        return self.status.wire(*args)


def inference_class(document: Document, **options: Any) -> Shown:
    return Shown(of_class.inference_class(parsed(document, api.InferenceClass), **options))


def inference_cluster(document: Document, *args: Any, pools: Sequence[Document] | None = None, **options: Any) -> Shown:
    models = None if pools is None else [api.inference_cluster.GPUPool.model_validate(pool) for pool in pools]
    return Shown(of_cluster.inference_cluster(parsed(document, api.InferenceCluster), *args, pools=models, **options))


def inference_gateway(document: Document, *args: Any, **options: Any) -> Shown:
    return Shown(of_gateway.inference_gateway(parsed(document, api.InferenceGateway), *args, **options))


def removed_gateway(previous: Document | None) -> Shown:
    return Shown(of_gateway.removed_gateway(previous))


def cache_phase(document: Document, *args: Any) -> of_cache.CachePhase:
    return of_cache.cache_phase(parsed(document, api.ModelCache), *args)


def model_cache(document: Document, *args: Any, **options: Any) -> Shown:
    return Shown(of_cache.model_cache(parsed(document, api.ModelCache), *args, **options))


def model_deployment(document: Document, *args: Any, **options: Any) -> Shown:
    return Shown(of_deployment.model_deployment(parsed(document, api.ModelDeployment), *args, **options))


def endpoint_status(document: Document, *args: Any, **options: Any) -> Shown:
    return Shown(of_endpoint.model_endpoint(parsed(document, api.ModelEndpoint), *args, **options))


def replica_state(document: Document, *args: Any) -> of_replica.ReplicaState:
    return of_replica.replica_state(parsed(document, api.ModelReplica), *args)


def replica_status(document: Document, *args: Any, **options: Any) -> Shown:
    return Shown(of_replica.model_replica(parsed(document, api.ModelReplica), *args, **options))


def infrastructure(*args: Any, **options: Any) -> Shown:
    return Shown(of_infrastructure.infrastructure(args[0], api.construct(Status), **options))


def promise(pool: str, inference_class: Document) -> Promise:
    return Promise.of(pool, parsed(inference_class, api.InferenceClass))


def model_route(document: Document, *args: Any, **options: Any) -> Shown:
    return Shown(of_route.model_route(parsed(document, api.ModelRoute), *args, **options))


def caller_policy(document: Document, *args: Any) -> Shown:
    return Shown(of_policy.caller_policy(parsed(document, api.CallerPolicy), *args))


def model_service(document: Document, *args: Any, **options: Any) -> Shown:
    return Shown(of_service.model_service(parsed(document, api.ModelService), *args, **options))
