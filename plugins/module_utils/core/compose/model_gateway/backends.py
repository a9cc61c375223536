# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Backends of a Model gateway: address, API schema and credential of an endpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ... import api, names
from ...api.model_endpoint import ANTHROPIC, AUTHORIZATION, X_API_KEY, APIKey
from ...wire import Object
from .. import constants, private_headers
from ..backend import model_mode_obstacle
from ..endpoint import path_prefix
from ..endpoint_url import parse_url
from . import parts
from .mtls import PORT, ClusterGateway

AI_API = f"{constants.AI_GROUP}/v1beta1"
CLIENT_CERTIFICATE = f"{constants.MODEL_GATEWAY}-client"
"""Client certificate of the gateway, in each namespace with backends."""
SECRET_KEY = "apiKey"
"""Key in the Secret of a credential: the AI gateway reads no other."""

_CREDENTIALS = tuple(name for name in private_headers.CREDENTIALS if name not in private_headers.KEYS)
"""Headers that no endpoint outside the fleet gets. A gateway with authentication removes API keys before
(see `unasked_keys`)."""
_MOST_REMOVED = 16
"""Headers that a backend can remove (CustomResourceDefinition of the AI gateway)."""

Key = tuple[str, str]
ClusterGateways = Mapping[Key, ClusterGateway]
"""Cluster gateways by namespace and name of the endpoints of replicas."""


@dataclass(frozen=True)
class Target:
    """Destination of the requests for an endpoint.

    server: name in the backend's certificate, "" for plain HTTP.
    model: the backend's name of the model, "" for the name in the request.
    cluster: cluster of the fleet, "" for other endpoints.
    headers: headers that are set on requests.
    """

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
    """Overflow route: requests for the first priority pass through the cluster gateway of the gateway's own cluster.

    Budgets are counted there. The gateway handles rejected requests as failed endpoints, and retries the next priority.

    budgets: policy names and budget names.
    is_ready: True if requests use the route. Otherwise, only the objects behind the cluster gateway are composed.
    names_callers: True if backends outside the fleet get client names, to count tokens by client name.
    counts_tokens: True if backends outside the fleet get the service name, to count tokens by service name.
    """

    cluster_gateway: ClusterGateway
    budgets: frozenset[tuple[str, str]]
    is_ready: bool
    names_callers: bool
    counts_tokens: bool

    @property
    def withheld(self) -> list[str]:
        """Headers of the overflow route that backends outside the fleet do not get."""
        return [constants.ENDPOINT_HEADER, *(() if self.counts_tokens else [constants.SERVICE_HEADER])]


def key_of(endpoint: api.ModelEndpoint) -> Key:
    """Return namespace and name of an endpoint."""
    return endpoint.namespace, endpoint.name


def target_problem(endpoint: api.ModelEndpoint, cluster_gateways: ClusterGateways) -> str:
    """Return the reason why Model gateways cannot use an endpoint, "" if they can."""
    cluster_gateway = cluster_gateways.get(key_of(endpoint))
    if cluster_gateway:
        return cluster_gateway.problem
    obstacle = model_mode_obstacle(endpoint)
    return obstacle.reason if obstacle else ""


def served_model(resource: api.ModelEndpoint | api.ModelReplica) -> str:
    """Return the served model name of a replica for Model gateways."""
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
    # For the AI gateway, an empty prefix is its default and a slash is no prefix.
    return Target(url.host, url.port, server, spec.prefix or "/", spec.schema_name, spec.model or "", key=key)


def detour_name(backend: str) -> str:
    """Return the name of the overflow backend for a backend."""
    return names.joined_name("overflow", backend)


def detour(target: Target, cluster_gateway: ClusterGateway, service: str, name: str) -> Target:
    """Return the target of an overflow route: the cluster gateway of the gateway's own cluster.

    Requests have the schema and model name of the endpoint before they reach the cluster gateway.

    service: name of the model.
    name: name of the endpoint's backend.
    """
    return replace(
        target,
        host=cluster_gateway.hostname,
        port=PORT,
        server=cluster_gateway.hostname,
        # The API prefixes of the AI gateway.
        prefix="/anthropic/v1" if target.schema == ANTHROPIC else "/v1",
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


def unasked_keys(target: Target) -> list[str]:
    """Return the API key headers of clients that a gateway without authentication must remove.

    The key of the endpoint replaces the header that it uses."""
    key_header = (X_API_KEY if target.schema == ANTHROPIC else AUTHORIZATION).lower() if target.key else ""
    return sorted(private_headers.KEYS - {key_header})


def backend_objects(
    metadata: Mapping[str, Any], target: Target, *, names_callers: bool = False, withheld: Sequence[str] = ()
) -> Iterable[Object]:
    """Yield the objects of a backend. All objects have this metadata.

    Backends of the fleet always get client names, other backends only with `names_callers`. `withheld` headers are
    removed.
    """
    name = parts.name_of(metadata)
    address = {"fqdn": {"hostname": target.host, "port": target.port}}
    secure = {"tls": _tls(target)} if target.server else {}
    yield parts.envoy_object("Backend", metadata, {"endpoints": [address], **secure})
    service: dict[str, Any] = {
        "schema": {"name": target.schema, "prefix": target.prefix},
        "backendRef": parts.named("Backend", name, constants.ENVOY_GROUP),
    }
    # Token budgets cannot use removed headers, which are also missing at the end of the request.
    caller = [] if names_callers else [constants.CALLER_HEADER]
    private = [*_CREDENTIALS, *private_headers.HOPS]
    if len(private) + len(caller) + len(withheld) > _MOST_REMOVED:
        # The gateway itself also removes credentials.
        private = [*private_headers.HOPS]
    foreign = [] if target.cluster else [*caller, *private]
    removed = [*foreign, *withheld]
    mutation = {
        **({"set": [{"name": header, "value": value} for header, value in target.headers]} if target.headers else {}),
        **({"remove": removed} if removed else {}),
    }
    if mutation:
        service["headerMutation"] = mutation
    yield _ai_object("AIServiceBackend", metadata, service)
    if target.key:
        yield _ai_object("BackendSecurityPolicy", metadata, _key_policy(target, name))


def _tls(target: Target) -> dict[str, Any]:
    if not target.cluster:
        return {"wellKnownCACertificates": "System", "sni": target.server}
    return {
        "caCertificateRefs": [parts.named("ConfigMap", cluster_ca_name(target.cluster))],
        "sni": target.server,
        "clientCertificateRef": parts.named("Secret", CLIENT_CERTIFICATE),
    }


def _key_policy(target: Target, name: str) -> dict[str, Any]:
    secret = {"secretRef": {"name": credential_name(name)}}
    is_anthropic = target.schema == ANTHROPIC
    kind, field = ("AnthropicAPIKey", "anthropicAPIKey") if is_anthropic else ("APIKey", "apiKey")
    return {
        "type": kind,
        field: secret,
        "targetRefs": [parts.named("AIServiceBackend", name, constants.AI_GROUP)],
    }


def _ai_object(kind: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Object:
    return {"apiVersion": AI_API, "kind": kind, "metadata": dict(metadata), "spec": dict(spec)}
