# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Model gateway: the objects on its cluster that all services share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ... import api, names
from ...api.inference_gateway import CallerTokens
from ...wire import Object
from .. import constants, private_headers
from ..control import control_labels, system_namespace
from . import parts

NAME = constants.MODEL_GATEWAY
CALLERS_POLICY = f"{NAME}-callers"
"""SecurityPolicy that authenticates clients."""
TOKENS_POLICY = f"{NAME}-callers-jwt"
"""SecurityPolicy of the token listener of a gateway that also accepts API keys."""
TOKEN_PROVIDER = "modelplane"
"""Name of the token provider. Envoy stores claims under this name."""
CALLERS_SECRET = f"{NAME}-callers"
"""Secret with the API keys from all Secrets that the gateway selects."""
HEALTH = f"{NAME}-healthz"
"""HTTPRoute of the health check."""
RATE_LIMITED = f"{NAME}-rate-limited"
"""HTTPRoute with a rate limit that counts no request."""

ATTEMPTS = 2
"""Attempts for each priority: a single failure must not send a request to the next priority, which may cost money."""
DEFAULT_PRIORITIES = 2
"""Priorities that the retries of the gateway's own policy reach."""

RETRIED = (429, 502, 503, 504, 529)
"""Status codes that are retried by default: overloaded and unreachable endpoints, but neither failed requests (500) nor
slow clients (408)."""
_NOT_OF_CALLERS = (
    constants.CALLER_HEADER,
    constants.SERVICE_HEADER,
    constants.ENDPOINT_HEADER,
    constants.MODEL_HEADER,
    *constants.KNOWN_AGAIN_HEADERS,
)
"""Headers that gateways write. They are removed from requests of clients."""


def retries(priorities: int) -> int:
    """Return the number of retries that a request needs to reach all priorities."""
    return ATTEMPTS * priorities - 1


def listener_name(gateway: api.InferenceGateway) -> str:
    """Return the listener that serves models. With TLS, clients must not send keys over port 80."""
    return parts.HTTPS if gateway.spec.tls else parts.HTTP


def listener_names(gateway: api.InferenceGateway) -> list[str]:
    """Return the listeners that serve models. Clients with tokens use a separate listener if there are API keys."""
    name = listener_name(gateway)
    auth = gateway.spec.auth
    return [name, parts.token_listener(name)] if auth and auth.hostname else [name]


def accepts_tokens(gateway: api.InferenceGateway) -> bool:
    """Return True if clients of a gateway can send tokens."""
    return bool(gateway.spec.auth and gateway.spec.auth.jwt)


def parent(section: str) -> dict[str, str]:
    """Return the parentRef of routes in the gateway's own namespace."""
    return {**parts.named("Gateway", NAME, constants.GATEWAY_GROUP), "sectionName": section}


def gateway_metadata(
    gateway: api.InferenceGateway, name: str, namespace: str | None = None, cluster: str = ""
) -> dict[str, Any]:
    """Return the metadata of an object of a gateway.

    namespace: "" for cluster-scoped objects. Defaults to the system namespace.
    cluster: inference cluster for the label, if any.
    """
    namespace = constants.SYSTEM_NAMESPACE if namespace is None else namespace
    labels = control_labels(gateway, names.GATEWAY_LABEL)
    if cluster:
        labels[names.CLUSTER_LABEL] = names.label_value(cluster)
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": labels}


def composed_gateways(gateways: Iterable[api.InferenceGateway]) -> dict[str, api.InferenceGateway]:
    """Return the Model gateways by cluster: the first by name for each cluster."""
    gateway_by_cluster: dict[str, api.InferenceGateway] = {}
    for gateway in sorted(gateways, key=lambda gateway: gateway.name):
        if gateway.mode == "Model":
            gateway_by_cluster.setdefault(gateway.spec.cluster_name or "", gateway)
    return gateway_by_cluster


def gateway_objects(gateway: api.InferenceGateway) -> tuple[Object, ...]:
    """Return the objects of a Model gateway, without the objects of its services."""
    return (
        gateway_namespace(),
        _gateway(gateway),
        *_callers(gateway),
        _failover(gateway),
        _client_traffic(gateway),
        *_health(gateway),
        *rate_limited(gateway, RATE_LIMITED, parent(parts.HTTP), HEALTH),
        *([_redirect(gateway)] if gateway.spec.tls else ()),
        *_client_authority(gateway),
    )


def certificate_secrets(gateway: api.InferenceGateway) -> list[str]:
    """Return the names of the certificate Secrets on the control cluster and on the gateway's cluster."""
    return [reference.name for reference in gateway.spec.tls.certificate_refs] if gateway.spec.tls else []


def gateway_namespace() -> Object:
    """Return the Namespace of the gateway, with the label that its listeners require for routes."""
    return system_namespace({names.NAMESPACE_LABEL: constants.SYSTEM_NAMESPACE})


def _gateway(gateway: api.InferenceGateway) -> Object:
    plain = {"name": parts.HTTP, "protocol": "HTTP", "port": 80}
    secrets = certificate_secrets(gateway)
    secure = [parts.https_listener(*secrets)] if secrets else []
    listeners = [plain, *secure]
    hostname = gateway.spec.auth.hostname if gateway.spec.auth else ""
    if hostname:
        listeners.append({**listeners[-1], "name": listener_names(gateway)[1], "hostname": hostname})
    return parts.gateway(gateway_metadata(gateway, NAME), *listeners)


def _callers(gateway: api.InferenceGateway) -> Iterable[Object]:
    """Yield the policies that authenticate clients, and write their names into headers.

    Envoy cannot accept API keys and tokens on one listener, so clients with tokens have a separate listener. Without
    its own policy, the policy of the whole Gateway would apply to that listener and reject tokens."""
    auth = gateway.spec.auth
    if auth and auth.api_key:
        target = {"targetRefs": parts.gateway_target(NAME)}
        keys = {
            "credentialRefs": [parts.named("Secret", CALLERS_SECRET)],
            # OpenAI clients send the first header, Anthropic clients the second.
            "extractFrom": [{"headers": ["Authorization", "x-api-key"]}],
            "forwardClientIDHeader": constants.CALLER_HEADER,
            "sanitize": True,
        }
        metadata = gateway_metadata(gateway, CALLERS_POLICY)
        yield parts.envoy_object("SecurityPolicy", metadata, {**target, "apiKeyAuth": keys})
    if auth and auth.jwt:
        name, listener = (TOKENS_POLICY, listener_names(gateway)[1]) if auth.api_key else (CALLERS_POLICY, "")
        target = {"targetRefs": parts.gateway_target(NAME, listener)}
        rule = {"name": "has-subject", "action": "Allow", "cel": f"'{constants.SUBJECT_HEADER}' in request.headers"}
        yield parts.envoy_object(
            "SecurityPolicy",
            gateway_metadata(gateway, name),
            {
                **target,
                "jwt": {"providers": [_token_provider(auth.jwt)]},
                # The policy of a route replaces this rule with rules for its clients.
                "authorization": {"defaultAction": "Deny", "rules": [rule]},
            },
        )


def _token_provider(tokens: CallerTokens) -> dict[str, Any]:
    keys = tokens.jwks
    source = {"remoteJWKS": {"uri": keys.uri}} if keys.uri else {"localJWKS": {"type": "Inline", "inline": keys.inline}}
    return {
        "name": TOKEN_PROVIDER,
        "issuer": tokens.issuer,
        "audiences": list(tokens.audiences),
        **source,
        "claimToHeaders": [{"claim": tokens.caller_claim, "header": constants.SUBJECT_HEADER}],
        "extractFrom": {
            "headers": [{"name": "Authorization", "valuePrefix": "Bearer "}, {"name": "x-api-key"}],
        },
    }


def _failover(gateway: api.InferenceGateway) -> Object:
    failover = gateway.spec.failover
    statuses = RETRIED if failover is None else failover.status_codes
    return parts.envoy_object(
        "BackendTrafficPolicy",
        gateway_metadata(gateway, f"{NAME}-failover"),
        {
            "targetRefs": parts.gateway_target(NAME),
            "tcpKeepalive": constants.TCP_KEEPALIVE,
            "dns": constants.DNS,
            "retry": {
                "numAttemptsPerPriority": ATTEMPTS,
                "numRetries": retries(DEFAULT_PRIORITIES),
                "retryOn": {
                    # The last trigger enables the status codes.
                    "triggers": ["connect-failure", "refused-stream", "reset", "retriable-status-codes"],
                    "httpStatusCodes": sorted(set(statuses)),
                },
            },
            "healthCheck": {
                "passive": {
                    "baseEjectionTime": "30s",
                    "consecutive5XxErrors": 5,
                    "interval": "5s",
                    "maxEjectionPercent": 100,
                },
                # Otherwise Envoy sends requests to ejected endpoints.
                "panicThreshold": 0,
            },
        },
    )


def _client_traffic(gateway: api.InferenceGateway) -> Object:
    metadata = gateway_metadata(gateway, f"{NAME}-client-traffic")
    # An API key replaces this client name. No key has this name.
    headers_to_set = {constants.CALLER_HEADER: constants.TOKEN_CALLER} if accepts_tokens(gateway) else {}
    # The processor decodes only gzip and br, and responds with 500 to other encodings. A client might decode none.
    headers_to_set["accept-encoding"] = "identity"
    early = {
        "set": [{"name": name, "value": value} for name, value in headers_to_set.items()],
        "remove": [name for name in _NOT_OF_CALLERS if name not in headers_to_set],
        # A backend can remove at most 16 headers, so the gateway removes headers that no backend needs.
        "removeOnMatch": [
            {"type": "Exact", "value": constants.SUBJECT_HEADER},
            *({"type": "Exact", "value": name} for name in private_headers.CLIENT_HEADERS),
            *({"type": "Prefix", "value": prefix} for prefix in private_headers.CLIENT_PREFIXES),
        ],
    }
    headers = {"earlyRequestHeaders": early}
    spec = {"targetRefs": parts.gateway_target(NAME), "headers": headers, **parts.buffers()}
    return parts.envoy_object("ClientTrafficPolicy", metadata, spec)


def _health(gateway: api.InferenceGateway) -> Iterable[Object]:
    """Yield the objects that respond to /healthz. Load balancers send no API key."""
    metadata = gateway_metadata(gateway, HEALTH)
    body = {"type": "Inline", "inline": '{"status":"ok"}'}
    response = {"statusCode": 200, "contentType": "application/json", "body": body}
    yield parts.envoy_object("HTTPRouteFilter", metadata, {"directResponse": response})
    reference = parts.named("HTTPRouteFilter", HEALTH, constants.ENVOY_GROUP)
    yield _http_route(
        metadata,
        {"type": "Exact", "value": "/healthz"},
        {"type": "ExtensionRef", "extensionRef": reference},
        parent(parts.HTTP),
    )
    # This policy replaces the gateway's policy. The routes serve only the response above, and have no copy of the keys.
    yield parts.envoy_object(
        "SecurityPolicy",
        gateway_metadata(gateway, f"{HEALTH}-open"),
        {
            "targetRefs": parts.route_targets([HEALTH, *([RATE_LIMITED] if gateway.spec.auth else ())]),
            "authorization": {"defaultAction": "Allow"},
        },
    )


def rate_limited(
    gateway: api.InferenceGateway, name: str, parent_ref: Mapping[str, str], answer: str
) -> Iterable[Object]:
    """Yield a route with a rate limit, to prevent failed requests at the first and the last budget of a Gateway.

    Proxies have the rate limit service in their configuration only while a route has a limit. They get a new service
    after the first limit and lose it before the last one, and respond with 500 in between. No request has the header
    that the limit of this route counts.

    `answer`: the HTTPRouteFilter that responds for the route.
    """
    if gateway.spec.auth is None:
        return
    metadata = gateway_metadata(gateway, name)
    action = {"type": "ExtensionRef", "extensionRef": parts.named("HTTPRouteFilter", answer, constants.ENVOY_GROUP)}
    yield _http_route(metadata, {"type": "Exact", "value": "/healthz/rate-limited"}, action, parent_ref)
    header = {"type": "Exact", "name": constants.CALLER_HEADER, "value": "/"}
    rule = {"clientSelectors": [{"headers": [header]}], "limit": {"requests": 1, "unit": "Hour"}}
    yield parts.envoy_object(
        "BackendTrafficPolicy",
        metadata,
        {
            "targetRefs": parts.route_targets([name]),
            "mergeType": parts.MERGED,
            "rateLimit": {"type": "Global", "global": {"rules": [rule]}},
        },
    )


def _redirect(gateway: api.InferenceGateway) -> Object:
    return _http_route(
        gateway_metadata(gateway, f"{NAME}-redirect"),
        {"type": "PathPrefix", "value": "/"},
        {"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 301}},
        parent(parts.HTTP),
    )


def _http_route(
    metadata: dict[str, Any], path: dict[str, str], action: dict[str, Any], parent_ref: Mapping[str, str]
) -> Object:
    return {
        "apiVersion": parts.GATEWAY_API,
        "kind": "HTTPRoute",
        "metadata": metadata,
        "spec": {"parentRefs": [dict(parent_ref)], "rules": [{"matches": [{"path": path}], "filters": [action]}]},
    }


def _client_authority(gateway: api.InferenceGateway) -> Iterable[Object]:
    """Yield the CA that issues the gateway's client certificates, and a copy of the CA certificate."""
    signer = f"{NAME}-selfsigned"
    yield parts.self_signed(gateway_metadata(gateway, signer))
    name = constants.MODEL_GATEWAY_CA
    yield parts.authority(gateway_metadata(gateway, name), f"{NAME}-{gateway.name}", signer)
    yield parts.issuer("ClusterIssuer", gateway_metadata(gateway, name, ""), name)
    yield parts.bundle(gateway_metadata(gateway, name, ""))
