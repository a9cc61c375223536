# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Backends of a gateway in mode Model: how it reaches an endpoint, what that speaks, and the key that it asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_endpoint import (
    ANTHROPIC,
    AUTHORIZATION,
    X_API_KEY,
    APIKey,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants, private_headers
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.backend import model_mode_obstacle
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.endpoint import path_prefix
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.endpoint_url import parse_url
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway import parts
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.mtls import (
    PORT,
    ClusterGateway,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object

AI_API = f"{constants.AI_GROUP}/v1beta1"
CLIENT_CERTIFICATE = f"{constants.MODEL_GATEWAY}-client"
"""Certificate by which backends prove to clusters that requests are the gateway's, in each namespace with backends."""
SECRET_KEY = "apiKey"
"""Key in the Secret of a credential: the AI gateway reads no other."""

_CREDENTIALS = tuple(name for name in private_headers.CREDENTIALS if name not in private_headers.KEYS)
"""Headers that no endpoint outside of the fleet gets. Keys of callers are gone before, where the gateway asks for them
(see `unasked_keys`)."""
_MOST_REMOVED = 16
"""Headers that a backend can remove (CustomResourceDefinition of the AI gateway)."""

Key = tuple[str, str]
ClusterGateways = Mapping[Key, ClusterGateway]
"""Cluster gateways by the namespace and name of the endpoints behind them: those of the fleet's replicas."""


@dataclass(frozen=True)
class Target:
    """Destination of the requests for an endpoint.

    `cluster`: of the fleet, "" for other endpoints. `server`: the name in the backend's certificate, "" for plain HTTP.
    `model`: the name that the backend has for it, "" passes on that of the request. `headers` are set on requests."""

    host: str
    port: int
    server: str
    prefix: str
    schema: Literal["OpenAI", "Anthropic"] = "OpenAI"
    model: str = ""
    cluster: str = ""
    key: APIKey | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Overflow:
    """Detour of a service's requests for its first priority, by the cluster gateway of the gateway's own cluster.
    Budgets are counted behind it, whose refusals the gateway takes for those of an endpoint: it goes to the next
    priority.

    `budgets` are those, by the names of their policies and their own. `is_ready`: requests take it; until then only the
    objects behind the cluster gateway are composed. Foreign backends behind it get the names of callers
    (`names_callers`) and of the service (`counts_tokens`), where tokens are counted by them."""

    cluster_gateway: ClusterGateway
    budgets: frozenset[tuple[str, str]]
    is_ready: bool
    names_callers: bool
    counts_tokens: bool

    @property
    def withheld(self) -> list[str]:
        """Headers of the detour that foreign backends do not get."""
        return [constants.ENDPOINT_HEADER, *(() if self.counts_tokens else [constants.SERVICE_HEADER])]


def key_of(endpoint: api.ModelEndpoint) -> Key:
    """Return namespace and name of an endpoint."""
    return endpoint.namespace, endpoint.name


def target_problem(endpoint: api.ModelEndpoint, cluster_gateways: ClusterGateways) -> str:
    """Return the reason why gateways in mode Model cannot send requests to an endpoint, "" when there is none."""
    cluster_gateway = cluster_gateways.get(key_of(endpoint))
    if cluster_gateway:
        return cluster_gateway.problem
    obstacle = model_mode_obstacle(endpoint)
    return obstacle.reason if obstacle else ""


def served_model(resource: api.ModelEndpoint | api.ModelReplica) -> str:
    """Return the name under which the engines of a replica serve their model to gateways in mode Model."""
    return f"{resource.namespace}/{resource.labels.get(names.DEPLOYMENT_LABEL, resource.name)}"


def target(endpoint: api.ModelEndpoint, cluster_gateways: ClusterGateways) -> Target:
    """Return the target of an endpoint without a problem."""
    cluster_gateway = cluster_gateways.get(key_of(endpoint))
    spec = endpoint.spec
    if cluster_gateway:
        prefix = f"{path_prefix(endpoint.namespace, endpoint.name)}v1"
        model = served_model(endpoint)
        return Target(
            cluster_gateway.hostname,
            PORT,
            cluster_gateway.hostname,
            prefix,
            model=model,
            cluster=cluster_gateway.cluster,
        )
    url = parse_url(spec.backend_url)
    server = ((spec.tls and spec.tls.server_name) or url.host) if url.tls else ""
    key = spec.credential.api_key if spec.credential else None
    # The AI gateway takes an empty prefix for its default, and joins paths such that a slash is one.
    return Target(url.host, url.port, server, spec.prefix or "/", spec.schema_name, spec.model or "", key=key)


def detour_name(backend: str) -> str:
    """Return the name of the backend that leads to this one by the cluster gateway of the gateway's own cluster."""
    return names.joined_name("overflow", backend)


def detour(found: Target, cluster_gateway: ClusterGateway, service: str, name: str) -> Target:
    """Return the target that leads to that of an endpoint by the cluster gateway of the gateway's own cluster.

    What the endpoint speaks and what it calls its model are settled before the cluster gateway, as without it.
    `service` is the name of the model, `name` that of the endpoint's backend."""
    return replace(
        found,
        host=cluster_gateway.hostname,
        port=PORT,
        server=cluster_gateway.hostname,
        # The API prefixes of the AI gateway.
        prefix="/anthropic/v1" if found.schema == ANTHROPIC else "/v1",
        cluster=cluster_gateway.cluster,
        key=None,
        headers=((constants.SERVICE_HEADER, service), (constants.ENDPOINT_HEADER, name)),
    )


def cluster_ca_name(cluster: str) -> str:
    """Return the name of the ConfigMap with the CA certificate of a cluster."""
    return names.child_name("cluster-ca", cluster)


def credential_name(backend: str) -> str:
    """Return the name of the Secret with the key of a backend."""
    return names.joined_name("credential", backend)


def unasked_keys(found: Target) -> list[str]:
    """Return the headers with keys that callers may send to a gateway that asks for none, without that of the key of an
    endpoint, which takes the place of theirs."""
    own = (X_API_KEY if found.schema == ANTHROPIC else AUTHORIZATION).lower() if found.key else ""
    return sorted(private_headers.KEYS - {own})


def backend_objects(
    metadata: Mapping[str, Any], found: Target, *, names_callers: bool = False, withheld: Sequence[str] = ()
) -> Iterable[Object]:
    """Yield the objects of a backend, which all have this metadata.

    Those of the fleet get the name of who calls, others with `names_callers` only. None gets headers that are
    `withheld`."""
    name = parts.name_of(metadata)
    address = {"fqdn": {"hostname": found.host, "port": found.port}}
    secure = {"tls": _tls(found)} if found.server else {}
    yield parts.envoy_object("Backend", metadata, {"endpoints": [address], **secure})
    service: dict[str, Any] = {
        "schema": {"name": found.schema, "prefix": found.prefix},
        "backendRef": parts.named("Backend", name, constants.ENVOY_GROUP),
    }
    # A removed header is missing when the request ends, too, for token budgets for example.
    caller = [] if names_callers else [constants.CALLER_HEADER]
    private = [*_CREDENTIALS, *private_headers.HOPS]
    if len(private) + len(caller) + len(withheld) > _MOST_REMOVED:
        # The gateway itself has removed credentials before.
        private = [*private_headers.HOPS]
    foreign = [] if found.cluster else [*caller, *private]
    removed = [*foreign, *withheld]
    mutation = {
        **({"set": [{"name": header, "value": value} for header, value in found.headers]} if found.headers else {}),
        **({"remove": removed} if removed else {}),
    }
    if mutation:
        service["headerMutation"] = mutation
    yield _ai_object("AIServiceBackend", metadata, service)
    if found.key:
        yield _ai_object("BackendSecurityPolicy", metadata, _key_policy(found, name))


def _tls(found: Target) -> dict[str, Any]:
    if not found.cluster:
        return {"wellKnownCACertificates": "System", "sni": found.server}
    return {
        "caCertificateRefs": [parts.named("ConfigMap", cluster_ca_name(found.cluster))],
        "sni": found.server,
        "clientCertificateRef": parts.named("Secret", CLIENT_CERTIFICATE),
    }


def _key_policy(found: Target, name: str) -> dict[str, Any]:
    secret = {"secretRef": {"name": credential_name(name)}}
    is_anthropic = found.schema == ANTHROPIC
    kind, field = ("AnthropicAPIKey", "anthropicAPIKey") if is_anthropic else ("APIKey", "apiKey")
    return {
        "type": kind,
        field: secret,
        "targetRefs": [parts.named("AIServiceBackend", name, constants.AI_GROUP)],
    }


def _ai_object(kind: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Object:
    return {"apiVersion": AI_API, "kind": kind, "metadata": dict(metadata), "spec": dict(spec)}
