# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Parts that the objects of gateways on Envoy have in common: references, listeners, and certificates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ... import names
from ...wire import Object
from .. import constants

ENVOY_API = f"{constants.ENVOY_GROUP}/v1alpha1"
GATEWAY_API = f"{constants.GATEWAY_GROUP}/v1"
CERTIFICATE_API = "cert-manager.io/v1"
TRUST_API = "trust.cert-manager.io/v1alpha1"
HTTP = "http"
HTTPS = "https"
"""Names of the listeners of Gateways."""
PROCESSOR = f"{constants.MODEL_GATEWAY}-processor"
"""GatewayConfig with the resources of the AI gateway's processor next to each proxy. The serving stack applies it."""
MERGED = "StrategicMerge"
"""Merge type of every policy on a route. Without it, the route loses the settings of the gateway's policies: API keys
with a SecurityPolicy, failover with a BackendTrafficPolicy."""

_LIFE = {"duration": "2160h", "renewBefore": "720h"}
_CA_LIFE = {"duration": "87600h", "renewBefore": "8760h"}
_KEY = {"algorithm": "ECDSA", "size": 256}
_OURS = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
"""Labels of Secrets that certificates are issued into: they are pruned with them."""


def name_of(metadata: Mapping[str, Any]) -> str:
    """Return the name in the metadata of an object."""
    return str(metadata["name"])


def named(kind: str, name: str, group: str = "") -> dict[str, str]:
    """Return a reference to an object for other objects in its namespace."""
    return {"group": group, "kind": kind, "name": name}


def gateway_target(name: str, listener: str = "") -> list[dict[str, str]]:
    """Return the targetRefs of a policy for a Gateway or a listener."""
    section = {"sectionName": listener} if listener else {}
    return [{**named("Gateway", name, constants.GATEWAY_GROUP), **section}]


def route_targets(routes: Iterable[str]) -> list[dict[str, str]]:
    """Return the targetRefs of a policy for AIGatewayRoutes. The AI gateway creates an HTTPRoute for each
    AIGatewayRoute."""
    return [named("HTTPRoute", name, constants.GATEWAY_GROUP) for name in routes]


def route_selectors(labels: Iterable[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return the targetSelectors of a policy for AIGatewayRoutes. The AI gateway creates an HTTPRoute with the same
    labels for each AIGatewayRoute."""
    kind = {"group": constants.GATEWAY_GROUP, "kind": "HTTPRoute"}
    return [{**kind, "matchLabels": dict(selector)} for selector in labels]


def envoy_object(kind: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Object:
    """Return an object of Envoy Gateway's own kinds."""
    return {"apiVersion": ENVOY_API, "kind": kind, "metadata": dict(metadata), "spec": dict(spec)}


def proxy_name(gateway: str) -> str:
    """Return the name of the EnvoyProxy of a Gateway. The serving stack applies the EnvoyProxy (`proxies.py`)."""
    return f"{gateway}-proxy"


def gateway(metadata: Mapping[str, Any], *listeners: Mapping[str, Any]) -> Object:
    """Return a Gateway for routes of the fleet's namespaces."""
    selector = {"matchExpressions": [{"key": "modelplane.ai/namespace", "operator": "Exists"}]}
    allowed = {"namespaces": {"from": "Selector", "selector": selector}}
    proxy = proxy_name(name_of(metadata))
    return {
        "apiVersion": GATEWAY_API,
        "kind": "Gateway",
        "metadata": {**metadata, "annotations": {"aigateway.envoyproxy.io/gateway-config": PROCESSOR}},
        "spec": {
            "gatewayClassName": constants.MODEL_GATEWAY_CLASS,
            "infrastructure": {"parametersRef": named("EnvoyProxy", proxy, constants.ENVOY_GROUP)},
            "listeners": [{**listener, "allowedRoutes": allowed} for listener in listeners],
        },
    }


def token_listener(listener: str) -> str:
    """Return the name of the listener for clients with tokens if another listener serves clients with API keys."""
    return f"{listener}-jwt"


def https_listener(*secrets: str) -> dict[str, Any]:
    """Return the listener for HTTPS, where TLS ends, with the certificates in these Secrets."""
    return {
        "name": HTTPS,
        "protocol": "HTTPS",
        "port": 443,
        "tls": {"mode": "Terminate", "certificateRefs": [named("Secret", name) for name in secrets]},
    }


def buffers() -> dict[str, Any]:
    """Return the limits of a ClientTrafficPolicy that let whole requests and answers into the proxy's buffers, and the
    probes of silent connections."""
    return {
        "tcpKeepalive": constants.TCP_KEEPALIVE,
        "connection": {"bufferLimit": "50Mi"},
        "http2": {"initialStreamWindowSize": "16Mi", "initialConnectionWindowSize": "24Mi"},
    }


def self_signed(metadata: Mapping[str, Any]) -> Object:
    """Return the Issuer of a CA."""
    return {
        "apiVersion": CERTIFICATE_API,
        "kind": "Issuer",
        "metadata": dict(metadata),
        "spec": {"selfSigned": {}},
    }


def authority(metadata: Mapping[str, Any], common_name: str, issuer: str) -> Object:
    """Return the Certificate of a CA, signed by an Issuer of its namespace. The Secret has its name."""
    return _certificate(
        metadata,
        {
            "isCA": True,
            "commonName": common_name[:64],
            **_CA_LIFE,
            # Certificates that it signed before stay valid when it is renewed.
            "privateKey": {**_KEY, "rotationPolicy": "Never"},
            "issuerRef": _issuer("Issuer", issuer),
        },
    )


def certificate(metadata: Mapping[str, Any], issuer_kind: str, issuer: str, **spec: Any) -> Object:
    """Return a Certificate that lives for 90 days and gets a new key each time. The Secret has its name."""
    return _certificate(
        metadata,
        {
            **spec,
            **_LIFE,
            "privateKey": {**_KEY, "rotationPolicy": "Always"},
            "issuerRef": _issuer(issuer_kind, issuer),
        },
    )


def issuer(kind: str, metadata: Mapping[str, Any], secret: str) -> Object:
    """Return an Issuer or ClusterIssuer that signs with the CA in a Secret."""
    return {
        "apiVersion": CERTIFICATE_API,
        "kind": kind,
        "metadata": dict(metadata),
        "spec": {"ca": {"secretName": secret}},
    }


def bundle(metadata: Mapping[str, Any]) -> Object:
    """Return the Bundle that copies the certificate of a CA, without its key, into a ConfigMap of the same name."""
    return {
        "apiVersion": TRUST_API,
        "kind": "Bundle",
        "metadata": dict(metadata),
        "spec": {
            "sources": [{"secret": {"name": name_of(metadata), "key": constants.CA_KEY}}],
            "target": {
                "configMap": {"key": constants.CA_KEY},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": constants.SYSTEM_NAMESPACE}},
            },
        },
    }


def config_map(metadata: Mapping[str, Any], certificates: str) -> Object:
    """Return the ConfigMap of certificates of CAs (PEM)."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": dict(metadata),
        "data": {constants.CA_KEY: certificates},
    }


def _certificate(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Object:
    return {
        "apiVersion": CERTIFICATE_API,
        "kind": "Certificate",
        "metadata": dict(metadata),
        "spec": {"secretName": name_of(metadata), "secretTemplate": {"labels": dict(_OURS)}, **spec},
    }


def _issuer(kind: str, name: str) -> dict[str, str]:
    return {"group": "cert-manager.io", "kind": kind, "name": name}
