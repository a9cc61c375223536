# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Endpoint picker of a replica: the pod that chooses the serving pod for each request.

There is one pod, as the authors of the picker recommend: a picker infers the content of the engines' caches from the
requests that it handled itself. A standby with leader election would never be ready, so its Deployment would never be
available, and a leader releases its lease only after its last stream, which leaves up to half a minute without a
picker. A rollout therefore starts the new pod before it stops the old one.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from .. import api
from ..api.model_replica import ModelReplicaSpec
from ..api.serving import Picker
from ..manifest_text import to_yaml
from . import constants, overrides
from .options import Options
from .owner import Owner
from .picker_config import picker_config
from .termination import serve_on

_CONFIG_KEY = "epp-config.yaml"
_CONFIG_DIRECTORY = "/config"
_CHECKSUM_ANNOTATION = "modelplane.ai/epp-config-checksum"
_VERBS = ("get", "watch", "list")
_WATCHED = (
    ("", "pods"),
    (constants.POOL_GROUP, "inferencepools"),
    ("inference.networking.x-k8s.io", "inferenceobjectives"),
)
_RESOURCES = {"requests": {"cpu": "200m", "memory": "512Mi"}, "limits": {"memory": "4Gi"}}
_LOST_NODE_SECONDS = 10
"""Time after which a picker on an unreachable node is replaced: the default of Kubernetes is five minutes."""


def picker_objects(owner: Owner, spec: ModelReplicaSpec, options: Options, pause: int) -> tuple[dict[str, Any], ...]:
    """Return the objects of the endpoint picker of a ModelReplica with this spec.

    A terminating picker keeps serving for `pause` seconds. A configuration in `serving.picker.config` replaces the
    composed one entirely.
    """
    settings = spec.serving.picker if spec.serving else None
    config = settings.config if settings else None
    text = to_yaml(picker_config(owner, spec) if config is None else config)
    return (
        _service_account(owner),
        _role(owner),
        _role_binding(owner),
        _config_map(owner, text),
        _deployment(owner, text, settings, options, pause),
        _service(owner),
    )


def _selector(owner: Owner) -> dict[str, str]:
    return {constants.APP_LABEL: owner.picker_name}


def _service_account(owner: Owner) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": owner.metadata(owner.picker_name)}


def _role(owner: Owner) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": owner.metadata(owner.picker_name),
        "rules": [
            {"apiGroups": [group], "resources": [resource], "verbs": list(_VERBS)} for group, resource in _WATCHED
        ],
    }


def _role_binding(owner: Owner) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": owner.metadata(owner.picker_name),
        "subjects": [
            {"kind": "ServiceAccount", "name": owner.picker_name, "namespace": owner.workload_namespace},
        ],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": owner.picker_name},
    }


def _config_map(owner: Owner, config: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owner.metadata(owner.picker_name),
        "data": {_CONFIG_KEY: config},
    }


def _deployment(owner: Owner, config: str, settings: Picker | None, options: Options, pause: int) -> dict[str, Any]:
    deployment: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": owner.metadata(owner.picker_name),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": _selector(owner)},
            "template": {
                "metadata": {
                    "labels": {**owner.identity_labels(), constants.PICKER_LABEL: owner.prefix, **_selector(owner)},
                    # The picker reads its configuration only when it starts.
                    "annotations": {_CHECKSUM_ANNOTATION: sha256(config.encode()).hexdigest()},
                },
                "spec": {
                    "serviceAccountName": owner.picker_name,
                    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                    "tolerations": [_lost_node("not-ready"), _lost_node("unreachable")],
                    "volumes": [
                        {"name": "config", "configMap": {"name": owner.picker_name}},
                        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
                    ],
                    "containers": [_container(owner, settings, options)],
                },
            },
        },
    }
    # Requests pass through the picker until their last token. A picker that gets SIGTERM cuts them after 27 seconds.
    serve_on(deployment["spec"]["template"]["spec"], pause)
    return deployment


def _lost_node(taint: str) -> dict[str, Any]:
    """Return the toleration of an unreachable node. It is short, because no other picker exists in the meantime."""
    return {
        "key": f"node.kubernetes.io/{taint}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": _LOST_NODE_SECONDS,
    }


def _container(owner: Owner, settings: Picker | None, options: Options) -> dict[str, Any]:
    args = (
        f"--pool-name={owner.pool_name}",
        f"--pool-namespace={owner.workload_namespace}",
        f"--pool-group={constants.POOL_GROUP}",
        f"--config-file={_CONFIG_DIRECTORY}/{_CONFIG_KEY}",
        f"--grpc-port={constants.PICKER_PORT}",
        # The default prints spans of all requests.
        "--tracing=false",
        # Authentication needs the right to create TokenReviews, which the picker does not get.
        "--metrics-endpoint-auth=false",
    )
    return {
        "name": "epp",
        "image": overrides.image(settings, options.picker_image),
        "args": overrides.args(settings, args),
        "ports": [
            {"name": "grpc", "containerPort": constants.PICKER_PORT},
            {"name": "grpc-health", "containerPort": constants.PICKER_HEALTH_PORT},
            {"name": "metrics", "containerPort": constants.PICKER_METRICS_PORT},
        ],
        "resources": _resources(settings),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": _CONFIG_DIRECTORY, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
        # Short, as there is no other picker in the meantime.
        "readinessProbe": _probe(initial_delay=1, period=2),
        "livenessProbe": _probe(initial_delay=30, period=10),
    }


def _resources(settings: Picker | None) -> dict[str, Any]:
    """Return the composed resources, with written resources replacing both request and limit: one limits the other."""
    given_amounts = api.wire(settings.resources) if settings and settings.resources else {}
    user_amounts = {field: amounts for field, amounts in given_amounts.items() if amounts}
    overridden = {resource for amounts in user_amounts.values() for resource in amounts}
    merged = {}
    for field, amounts in _RESOURCES.items():
        composed = {resource: amount for resource, amount in amounts.items() if resource not in overridden}
        merged[field] = {**composed, **user_amounts.get(field, {})}
    return {field: amounts for field, amounts in merged.items() if amounts}


def _probe(initial_delay: int, period: int) -> dict[str, Any]:
    """Return a gRPC health probe (KEP-2727). Periods are in seconds. The picker is healthy once it has read its
    InferencePool."""
    return {
        "grpc": {"port": constants.PICKER_HEALTH_PORT},
        "initialDelaySeconds": initial_delay,
        "periodSeconds": period,
        "timeoutSeconds": 5,
    }


def _service(owner: Owner) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(owner.picker_name),
        "spec": {
            "selector": _selector(owner),
            "ports": [
                {
                    "name": "grpc-ext-proc",
                    "port": constants.PICKER_PORT,
                    "targetPort": constants.PICKER_PORT,
                    "appProtocol": "http2",
                }
            ],
        },
    }
