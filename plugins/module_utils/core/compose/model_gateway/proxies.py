# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""EnvoyProxies, EnvoyPatchPolicies and the NetworkPolicy of Model gateways.

An EnvoyProxy configures the containers in the namespace of Envoy Gateway, an EnvoyPatchPolicy can change any Envoy
setting, and the NetworkPolicy is in the namespace of Envoy Gateway. The fleet therefore has no permission to write
them. The serving stack applies them with administrator permissions (`workload_gateway.py`). They are the same for all
fleets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ...wire import Object
from .. import constants
from ..network import outside_rules
from . import parts
from .refusals import MISSING_ENDPOINT, Refusal, local_replies

_DRAIN = "300s"
"""Time that a terminating pod lets requests finish."""
_TYPES = "type.googleapis.com/envoy.config"
_MANAGERS = "$..filters[?(@.name=='envoy.filters.network.http_connection_manager')].typed_config"
_METADATA = "%DYNAMIC_METADATA(io.envoy.ai_gateway:{})%"
_USAGE = {
    "caller": _METADATA.format("caller"),
    "subject": _METADATA.format("subject"),
    "service": "%REQ(X-AI-EG-MODEL)%",
    "endpoint": _METADATA.format("ai_service_backend_name"),
    "served_model": _METADATA.format("model_name_override"),
    "response_model": _METADATA.format("response_model"),
    "input_tokens": _METADATA.format("llm_input_token"),
    "output_tokens": _METADATA.format("llm_output_token"),
    "total_tokens": _METADATA.format("llm_total_token"),
    "status": "%RESPONSE_CODE%",
    "duration_ms": "%DURATION%",
    "start_time": "%START_TIME%",
}
"""Fields of a usage record, without prompts and responses. The client name is read from metadata because its header is
removed before requests reach providers."""

_RESOLVER = {
    "name": "envoy.network.dns_resolver.cares",
    "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
        "query_timeout_seconds": 1,
        "query_tries": 7,
    },
}
"""DNS resolver for backends. Each attempt takes up to twice as long as the previous one. The first attempt takes one
second, or 0.25 seconds if the name server was fast before, so all attempts take at least 16 seconds.

Envoy's default of four attempts takes less than four seconds. When a configuration change replaces a backend, Envoy
resolves its name again, and uses the new backend without addresses if all attempts fail."""


def host_objects(endpoint_hosts: Iterable[str] = ()) -> tuple[Object, ...]:
    """Return the objects of a cluster that can run a Model gateway. `endpoint_hosts`: internal hosts that endpoints can
    use. Raises ValueError for an invalid host.

    A patch for a missing listener or Gateway has no effect."""
    gateway, cluster_gateway = constants.MODEL_GATEWAY, constants.CLUSTER_GATEWAY
    # Without TLS, both listeners are in the same Envoy configuration.
    listeners, tokens = (parts.HTTP, parts.HTTPS), parts.token_listener(parts.HTTPS)
    return (
        _proxy(gateway, telemetry=_telemetry()),
        cluster_gateway_proxy(),
        _processor(),
        *(_patches(gateway, name, _refuses(gateway, name), _hides_addresses(gateway, name)) for name in listeners),
        _patches(gateway, tokens, _hides_addresses(gateway, tokens)),
        _patches(cluster_gateway, parts.HTTPS, _refuses(cluster_gateway, parts.HTTPS, MISSING_ENDPOINT)),
        _egress_policy(endpoint_hosts),
    )


def _egress_policy(endpoint_hosts: Iterable[str]) -> Object:
    """Return the NetworkPolicy of the proxies that send requests to providers: the proxies of the gateway and of the
    cluster gateway.

    They also connect to pods of their cluster: Envoy Gateway, rate limits, replicas and telemetry collectors."""
    key = "gateway.envoyproxy.io/owning-gateway-name"
    gateways = {"key": key, "operator": "In", "values": [constants.CLUSTER_GATEWAY, constants.MODEL_GATEWAY]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": f"{constants.MODEL_GATEWAY}-egress", "namespace": constants.ENVOY_NAMESPACE},
        "spec": {
            "podSelector": {
                "matchLabels": {"gateway.envoyproxy.io/owning-gateway-namespace": constants.SYSTEM_NAMESPACE},
                "matchExpressions": [gateways],
            },
            "policyTypes": ["Egress"],
            "egress": outside_rules(pods=True, allowed=endpoint_hosts),
        },
    }


def cluster_gateway_proxy() -> Object:
    """Return the EnvoyProxy of the cluster gateway."""
    return _proxy(constants.CLUSTER_GATEWAY)


def _processor() -> Object:
    """Return the GatewayConfig of the AI gateway's processor.

    The processor uses about six times the size of a request: six requests of 40 MB raised its memory from 55 to 1,443
    MiB. The limit suffices for a dozen concurrent requests of the maximum size, 50 MiB. It protects the node."""
    memory = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "4Gi"}}
    return {
        "apiVersion": f"{constants.AI_GROUP}/v1beta1",
        "kind": "GatewayConfig",
        "metadata": _metadata(parts.PROCESSOR),
        "spec": {"extProc": {"kubernetes": {"resources": memory}}},
    }


def _proxy(gateway: str, **spec: Any) -> Object:
    """Return the EnvoyProxy of a Gateway; `spec` has more of its fields.

    It is merged over the EnvoyProxy of the GatewayClass, which has the settings from the variables of the cluster:
    image registry, annotations and source ranges of load balancers."""
    pods = {
        "gateway.envoyproxy.io/owning-gateway-name": gateway,
        "gateway.envoyproxy.io/owning-gateway-namespace": constants.SYSTEM_NAMESPACE,
    }
    # Resolves names with a dot as absolute names first: names of backends are complete.
    lookup = {"spec": {"template": {"spec": {"dnsConfig": {"options": [{"name": "ndots", "value": "1"}]}}}}}
    deployment = {
        "replicas": 2,
        "patch": {"type": "StrategicMerge", "value": lookup},
        "pod": {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": key,
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": pods},
                }
                for key in (constants.HOSTNAME_LABEL, "topology.kubernetes.io/zone")
            ]
        },
    }
    return parts.envoy_object(
        "EnvoyProxy",
        _metadata(parts.proxy_name(gateway)),
        {
            "provider": {
                "type": "Kubernetes",
                "kubernetes": {
                    # The EnvoyProxy of the class might have another type, for a Route of OpenShift.
                    "envoyService": {"type": "LoadBalancer", "name": gateway, "externalTrafficPolicy": "Cluster"},
                    "envoyDeployment": deployment,
                    "envoyPDB": {"maxUnavailable": 1},
                },
            },
            "shutdown": {"drainTimeout": _DRAIN},
            "bootstrap": {"type": "Merge", "value": json.dumps({"typed_dns_resolver_config": _RESOLVER})},
            "mergeType": parts.MERGED,
            **spec,
        },
    )


def _telemetry() -> dict[str, Any]:
    return {
        "accessLog": {
            "settings": [
                {
                    "format": {"type": "JSON", "json": dict(_USAGE)},
                    "sinks": [{"type": "File", "file": {"path": "/dev/stdout"}}],
                }
            ]
        }
    }


def _patches(gateway: str, listener: str, *patches: Mapping[str, Any]) -> Object:
    """Return the EnvoyPatchPolicy of a listener."""
    return parts.envoy_object(
        "EnvoyPatchPolicy",
        _metadata(f"{gateway}-{listener}"),
        {
            "targetRef": parts.named("Gateway", gateway, constants.GATEWAY_GROUP),
            "type": "JSONPatch",
            "jsonPatches": list(patches),
        },
    )


def _refuses(gateway: str, listener: str, *precedence: Refusal) -> dict[str, Any]:
    """Return the patch for responses of a listener in the format of clients. `precedence`: refusals with precedence."""
    # The path of connection managers depends on TLS.
    operation = {"op": "add", "jsonPath": _MANAGERS, "path": "/local_reply_config", "value": local_replies(*precedence)}
    return _patch(gateway, listener, "listener.v3.Listener", operation)


def _hides_addresses(gateway: str, listener: str) -> dict[str, Any]:
    """Return the patch that hides client addresses. The AI gateway cannot remove headers that Envoy adds."""
    operation = {"op": "add", "path": "/request_headers_to_remove", "value": ["x-envoy-external-address"]}
    return _patch(gateway, listener, "route.v3.RouteConfiguration", operation)


def _patch(gateway: str, listener: str, kind: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    name = f"{constants.SYSTEM_NAMESPACE}/{gateway}/{listener}"
    return {"type": f"{_TYPES}.{kind}", "name": name, "operation": dict(operation)}


def _metadata(name: str) -> dict[str, str]:
    return {"name": name, "namespace": constants.SYSTEM_NAMESPACE}
