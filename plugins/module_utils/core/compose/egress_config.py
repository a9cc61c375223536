# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Envoy configuration of an egress proxy that adds a credential to requests for one endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..api.model_endpoint import EndpointTLS, ModelEndpointSpec
from . import constants, private_headers
from .endpoint_url import Target

CONFIG_DIRECTORY = "/etc/egress/config"
BOOTSTRAP_FILE = "envoy.yaml"
CREDENTIAL_FILE = "credential.yaml"
AUTHORITIES_FILE = "authorities.yaml"
KEY_DIRECTORY = "/etc/egress/key"
KEY_FILE = "key"
CA_DIRECTORY = "/etc/egress/ca"
CA_FILE = "ca.crt"
SYSTEM_ROOTS = "/etc/ssl/certs/ca-certificates.crt"
"""CA bundle in Envoy's images, at Debian's path."""

LISTEN_PORT = 8080
READY_PATH = "/.modelplane-egress-ready"

_TYPE = "type.googleapis.com/envoy"
_CREDENTIAL = "credential"
_AUTHORITIES = "authorities"
_CLUSTER = "endpoint"
_MAX_REQUESTS = 65536
"""Envoy rejects more than 1,024 concurrent requests by default. A token stream is a request that lasts minutes."""


def egress_config(spec: ModelEndpointSpec, target: Target) -> dict[str, dict[str, Any]]:
    """Return the files of the proxy of a ModelEndpoint with a key, by name.

    They do not contain the key: Envoy reads it from the mounted Secret, and again after each change. Without a key,
    Envoy responds with 401.
    """
    bootstrap = {
        # Envoy requires a node before it reads secrets from files.
        "node": {"id": "egress", "cluster": "egress"},
        "static_resources": {"listeners": [_listener(spec, target)], "clusters": [_cluster(target, spec.tls)]},
    }
    key = _secret(_CREDENTIAL, generic_secret={"secret": {"filename": f"{KEY_DIRECTORY}/{KEY_FILE}"}})
    files = {BOOTSTRAP_FILE: bootstrap, CREDENTIAL_FILE: key}
    if target.tls:
        filename = f"{CA_DIRECTORY}/{CA_FILE}" if spec.tls and spec.tls.ca_certificate_ref else SYSTEM_ROOTS
        files[AUTHORITIES_FILE] = _secret(_AUTHORITIES, validation_context={"trusted_ca": {"filename": filename}})
    return files


def _listener(spec: ModelEndpointSpec, target: Target) -> dict[str, Any]:
    router = _filter("envoy.filters.http.router", "router.v3.Router", suppress_envoy_headers=True)
    manager = {
        "@type": f"{_TYPE}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "egress",
        # 0s disables the timeout: streams can pause and last for any time.
        "stream_idle_timeout": "0s",
        "request_timeout": "0s",
        "route_config": {"virtual_hosts": [_virtual_host(spec, target)]},
        "http_filters": [_credential_filter(spec), router],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    return {"name": "requests", "address": _address("0.0.0.0", LISTEN_PORT), "filter_chains": [chain]}


def _address(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}


def _virtual_host(spec: ModelEndpointSpec, target: Target) -> dict[str, Any]:
    """Return the virtual host that routes all requests to the endpoint, without the credentials of clients.

    The header of the credential is not removed, because Envoy removes headers after it adds the credential.
    """
    private = (*private_headers.CREDENTIALS, *private_headers.HOPS)
    removed = [name for name in private if name != spec.key_header.lower()]
    action = {"cluster": _CLUSTER, "timeout": "0s", "idle_timeout": "0s", "host_rewrite_literal": target.authority}
    return {
        "name": _CLUSTER,
        "domains": ["*"],
        # Kubelet probes also pass the credential filter, and get 401 without a usable key.
        "routes": [
            {"match": {"path": READY_PATH}, "direct_response": {"status": 200}},
            {"match": {"prefix": "/"}, "route": action},
        ],
        "request_headers_to_remove": removed,
    }


def _filter(name: str, kind: str, **config: Any) -> dict[str, Any]:
    return {"name": name, "typed_config": {"@type": f"{_TYPE}.extensions.filters.http.{kind}", **config}}


def _credential_filter(spec: ModelEndpointSpec) -> dict[str, Any]:
    generic: dict[str, Any] = {
        "@type": f"{_TYPE}.extensions.http.injected_credentials.generic.v3.Generic",
        "credential": {"name": _CREDENTIAL, "sds_config": _file(CREDENTIAL_FILE)},
        "header": spec.key_header,
    }
    if spec.key_prefix:
        generic["header_value_prefix"] = spec.key_prefix
    return _filter(
        "envoy.filters.http.credential_injector",
        "credential_injector.v3.CredentialInjector",
        overwrite=True,
        allow_request_without_credential=False,
        credential={"name": "envoy.http.injected_credentials.generic", "typed_config": generic},
    )


def _file(name: str) -> dict[str, Any]:
    return {"path_config_source": {"path": f"{CONFIG_DIRECTORY}/{name}"}, "resource_api_version": "V3"}


def _cluster(target: Target, tls: EndpointTLS | None) -> dict[str, Any]:
    cluster: dict[str, Any] = {
        "name": _CLUSTER,
        "type": "LOGICAL_DNS" if target.named else "STATIC",
        "connect_timeout": "10s",
        "upstream_connection_options": {
            "tcp_keepalive": {
                "keepalive_time": constants.KEEPALIVE_SECONDS,
                "keepalive_interval": constants.KEEPALIVE_INTERVAL_SECONDS,
                "keepalive_probes": constants.KEEPALIVE_PROBES,
            }
        },
        "circuit_breakers": {
            "thresholds": [
                {"max_connections": _MAX_REQUESTS, "max_pending_requests": _MAX_REQUESTS, "max_requests": _MAX_REQUESTS}
            ]
        },
        "load_assignment": {
            "cluster_name": _CLUSTER,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(target.host, target.port)}}]}],
        },
    }
    if target.named:
        cluster["dns_lookup_family"] = "ALL"
    if target.tls:
        cluster["transport_socket"] = _transport_socket((tls.server_name if tls else None) or target.host)
    return cluster


def _transport_socket(name: str) -> dict[str, Any]:
    """Return the TLS settings: the name is the SNI, and the certificate must contain it."""
    san = {"san_type": "DNS", "matcher": {"exact": name}}
    context = {
        "@type": f"{_TYPE}.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "sni": name,
        "common_tls_context": {
            # The default maximum of clients is 1.2.
            "tls_params": {"tls_maximum_protocol_version": "TLSv1_3"},
            "combined_validation_context": {
                "default_validation_context": {"match_typed_subject_alt_names": [san]},
                "validation_context_sds_secret_config": {"name": _AUTHORITIES, "sds_config": _file(AUTHORITIES_FILE)},
            },
        },
    }
    return {"name": "envoy.transport_sockets.tls", "typed_config": context}


def _secret(name: str, **content: Any) -> dict[str, Any]:
    resource = {"@type": f"{_TYPE}.extensions.transport_sockets.tls.v3.Secret", "name": name, **content}
    resources: Sequence[Mapping[str, Any]] = [resource]
    return {"resources": resources}
