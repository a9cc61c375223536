# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The endpoint picker of a replica: the pods that tell the gateway which serving pod takes a request."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants, overrides
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.availability import (
    disruption_budget,
    spread_over_nodes,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.options import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.owner import Owner
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.picker_config import picker_config
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml

_CONFIG_KEY = "epp-config.yaml"
_CONFIG_DIRECTORY = "/config"
_CHECKSUM_ANNOTATION = "modelplane.ai/epp-config-checksum"
_VERBS = ("get", "watch", "list")
_WATCHED = (
    ("", "pods"),
    (constants.POOL_GROUP, "inferencepools"),
    ("inference.networking.x-k8s.io", "inferenceobjectives"),
)


def picker_objects(owner: Owner, spec: Mapping[str, Any], options: Options) -> tuple[dict[str, Any], ...]:
    """The objects of the endpoint picker of a ModelReplica with this spec.

    A configuration in `serving.picker.config` replaces the composed one as a whole, unchanged.
    """
    written = (spec.get("serving") or {}).get("picker") or {}
    config = written.get("config")
    text = to_yaml(picker_config(owner, spec) if config is None else config)
    return (
        _service_account(owner),
        _role(owner),
        _role_binding(owner),
        _config_map(owner, text),
        _deployment(owner, text, written, options),
        disruption_budget(owner.metadata(owner.picker_name), _selector(owner)),
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


def _deployment(owner: Owner, config: str, written: Mapping[str, Any], options: Options) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": owner.metadata(owner.picker_name),
        "spec": {
            "replicas": options.picker_replicas,
            "selector": {"matchLabels": _selector(owner)},
            "template": {
                "metadata": {
                    "labels": {**owner.identity_labels(), **_selector(owner)},
                    # The picker reads its configuration only when it starts.
                    "annotations": {_CHECKSUM_ANNOTATION: sha256(config.encode()).hexdigest()},
                },
                "spec": {
                    "serviceAccountName": owner.picker_name,
                    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                    "topologySpreadConstraints": [spread_over_nodes(_selector(owner))],
                    "volumes": [
                        {"name": "config", "configMap": {"name": owner.picker_name}},
                        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
                    ],
                    "containers": [_container(owner, written, options)],
                },
            },
        },
    }


def _container(owner: Owner, written: Mapping[str, Any], options: Options) -> dict[str, Any]:
    args = (
        f"--pool-name={owner.pool_name}",
        f"--pool-namespace={owner.workload_namespace}",
        f"--pool-group={constants.POOL_GROUP}",
        f"--config-file={_CONFIG_DIRECTORY}/{_CONFIG_KEY}",
        f"--grpc-port={constants.PICKER_PORT}",
    )
    return {
        "name": "epp",
        "image": overrides.image(written, options.picker_image),
        "args": overrides.args(written, args),
        "ports": [
            {"name": "grpc", "containerPort": constants.PICKER_PORT},
            {"name": "grpc-health", "containerPort": constants.PICKER_HEALTH_PORT},
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": _CONFIG_DIRECTORY, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
        "readinessProbe": _probe(initial_delay=5),
        "livenessProbe": _probe(initial_delay=30),
    }


def _probe(initial_delay: int) -> dict[str, Any]:
    """A gRPC health probe (KEP-2727). Periods are in seconds. The picker answers once it has seen its InferencePool."""
    return {
        "grpc": {"port": constants.PICKER_HEALTH_PORT},
        "initialDelaySeconds": initial_delay,
        "periodSeconds": 10,
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
