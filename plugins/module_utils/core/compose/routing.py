# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Route of requests to a replica inside its cluster: gateway -> HTTPRoute -> InferencePool -> serving pods."""

from __future__ import annotations

from typing import Any

from . import constants
from .endpoint import path_prefix
from .owner import Owner


def inference_pool(owner: Owner, port: int, *, exported: bool = False) -> dict[str, Any]:
    """Return the InferencePool of a replica: serving pods and their port. The endpoint picker selects from these pods.

    A single pod has a pool too, so that a second copy never changes the kind of the route's backend. While the picker
    is down, the gateway chooses a pod itself (FailOpen). An `exported` pool can receive requests from other clusters.
    """
    annotations = {"annotations": {constants.EXPORT_ANNOTATION: constants.EXPORTED_TO}} if exported else {}
    return {
        "apiVersion": f"{constants.POOL_GROUP}/v1",
        "kind": "InferencePool",
        "metadata": {**owner.metadata(owner.pool_name), **annotations},
        "spec": {
            "selector": {"matchLabels": {constants.SERVING_LABEL: owner.prefix}},
            "targetPorts": [{"number": port}],
            "endpointPickerRef": {
                "name": owner.picker_name,
                "port": {"number": constants.PICKER_PORT},
                "failureMode": "FailOpen",
            },
        },
    }


def http_route(owner: Owner) -> dict[str, Any]:
    """Return the HTTPRoute of a replica on its cluster's gateway. The route matches its path prefix and removes it."""
    prefix = path_prefix(owner.namespace, owner.replica)
    rewrite = {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": owner.metadata(owner.prefix),
        "spec": {
            "parentRefs": [
                {"name": constants.WORKLOAD_GATEWAY, "namespace": constants.WORKLOAD_GATEWAY_NAMESPACE},
            ],
            "rules": [
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": prefix}}],
                    "filters": [{"type": "URLRewrite", "urlRewrite": rewrite}],
                    "backendRefs": [
                        {"group": constants.POOL_GROUP, "kind": "InferencePool", "name": owner.pool_name},
                    ],
                    # Token streams outlast any proxy default; 0s turns the timeout off.
                    "timeouts": {"request": "0s"},
                }
            ],
        },
    }
