# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Egress proxies that add a credential to requests for an endpoint outside the fleet.

Gateway API has no field for a credential in a Secret, and composed objects never contain values of Secrets. An endpoint
with a credential therefore gets a proxy on the control cluster that mounts the Secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from .. import api, names
from ..api.model_endpoint import APIKey
from ..manifest_text import to_yaml
from ..wire import Object
from . import constants, egress_config
from .availability import disruption_budget, spread_over_nodes
from .control import control_labels, control_metadata
from .endpoint_url import Target
from .hosts import inner_host
from .network import admit, network_policy, outside_rules, pods_of
from .options import Options

EGRESS_PORT = 80
"""Port of the Service. Requests from the gateway to the proxy are plain HTTP inside the cluster."""

_REPLICAS = 2
_PORT_NAME = "http"
_CHECKSUM_ANNOTATION = "modelplane.ai/egress-config-checksum"
_USER = 65532
"""User "nonroot" of Envoy's distroless images."""
_STREAM_GRACE_SECONDS = 300
"""Time that a terminating pod keeps serving, so that token streams finish. Envoy itself stops at once on SIGTERM."""


def egress_name(name: str) -> str:
    """Return the name of the objects of the egress proxy of the ModelEndpoint of this name."""
    return names.child_name(names.object_prefix(name), "egress")


def egress_objects(
    endpoint: api.ModelEndpoint, key: APIKey, target: Target, options: Options, gateway_namespace: str
) -> tuple[Object, ...]:
    """Return the objects of the egress proxy of a ModelEndpoint. Only pods in the gateway's namespace may use it."""
    name = egress_name(endpoint.name)
    metadata = control_metadata(endpoint, names.ENDPOINT_LABEL, name)
    selector = {constants.APP_LABEL: name}
    config = egress_config.egress_config(endpoint.spec, target)
    files = {file: to_yaml(content) for file, content in config.items()}
    return (
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files},
        _deployment(endpoint, key, metadata, selector, files, options),
        disruption_budget(metadata, selector),
        # Every client of the proxy uses the credential.
        network_policy(
            metadata,
            {"matchLabels": selector},
            admit([pods_of(gateway_namespace)], _PORT_NAME),
            _destinations(target),
        ),
        _service(metadata, selector),
    )


def _deployment(
    endpoint: api.ModelEndpoint,
    key: APIKey,
    metadata: Mapping[str, Any],
    selector: Mapping[str, str],
    files: Mapping[str, str],
    options: Options,
) -> Object:
    labels = control_labels(endpoint, names.ENDPOINT_LABEL)
    # Pods have no managed-by label: their controller manages them.
    del labels[names.MANAGED_BY_LABEL]
    checksum = sha256("".join(f"{name}\n{text}\n" for name, text in sorted(files.items())).encode()).hexdigest()
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": dict(metadata),
        "spec": {
            "replicas": _REPLICAS,
            "selector": {"matchLabels": dict(selector)},
            "template": {
                "metadata": {
                    "labels": {**labels, **selector},
                    # Envoy reads its bootstrap only when it starts.
                    "annotations": {_CHECKSUM_ANNOTATION: checksum},
                },
                "spec": _pod_spec(key, _authority(endpoint), metadata["name"], selector, options),
            },
        },
    }


def _pod_spec(key: APIKey, authority: str, name: str, selector: Mapping[str, str], options: Options) -> dict[str, Any]:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": _STREAM_GRACE_SECONDS + 30,
        "topologySpreadConstraints": [spread_over_nodes(selector)],
        "volumes": _volumes(key, authority, name),
        "containers": [_container(authority, options)],
    }


def _authority(endpoint: api.ModelEndpoint) -> str:
    """Return the name of the ConfigMap with the CA certificates for the backend; "" for the system's."""
    tls = endpoint.spec.tls
    return tls.ca_certificate_ref.name if tls and tls.ca_certificate_ref else ""


def _volumes(key: APIKey, authority: str, name: str) -> list[dict[str, Any]]:
    items = [{"key": key.secret_ref.key, "path": egress_config.KEY_FILE}]
    volumes: list[dict[str, Any]] = [
        {"name": "config", "configMap": {"name": name}},
        # Mode 0440: for the proxy's group only. A mounted folder follows changes of the Secret; a subPath would not.
        {"name": "key", "secret": {"secretName": key.secret_ref.name, "items": items, "defaultMode": 0o440}},
    ]
    if authority:
        certificates = [{"key": "ca.crt", "path": egress_config.CA_FILE}]
        volumes.append({"name": "ca", "configMap": {"name": authority, "items": certificates}})
    return volumes


def _container(authority: str, options: Options) -> dict[str, Any]:
    mounts = [("config", egress_config.CONFIG_DIRECTORY), ("key", egress_config.KEY_DIRECTORY)]
    if authority:
        mounts.append(("ca", egress_config.CA_DIRECTORY))
    ready = {"path": egress_config.READY_PATH, "port": _PORT_NAME}
    return {
        "name": "envoy",
        "image": options.egress_image,
        "args": [
            # Envoy accepts the value of a flag only as a separate argument.
            "--config-path",
            f"{egress_config.CONFIG_DIRECTORY}/{egress_config.BOOTSTRAP_FILE}",
            "--log-level",
            "warning",
            # Worker threads; the default is one per core of the node.
            "--concurrency",
            "2",
            "--disable-hot-restart",
        ],
        "ports": [{"name": _PORT_NAME, "containerPort": egress_config.LISTEN_PORT}],
        "readinessProbe": {"httpGet": ready, "periodSeconds": 5, "timeoutSeconds": 3},
        "livenessProbe": {
            "tcpSocket": {"port": _PORT_NAME},
            "initialDelaySeconds": 30,
            "periodSeconds": 10,
            "timeoutSeconds": 3,
        },
        "lifecycle": {"preStop": {"sleep": {"seconds": _STREAM_GRACE_SECONDS}}},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": name, "mountPath": path, "readOnly": True} for name, path in mounts],
    }


def _destinations(target: Target) -> list[dict[str, Any]] | None:
    """Return the egress rules of the proxy. They always exclude metadata services, regardless of name resolution.

    The result is None for an allowed endpoint inside the cluster or cloud, because its addresses are unknown.
    """
    if inner_host(target.host):
        return None
    return outside_rules()


def _service(metadata: Mapping[str, Any], selector: Mapping[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": dict(metadata),
        "spec": {
            "selector": dict(selector),
            "ports": [{"name": _PORT_NAME, "port": EGRESS_PORT, "targetPort": _PORT_NAME, "protocol": "TCP"}],
        },
    }
