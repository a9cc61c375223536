# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The ModelEndpoint of a replica: where a replica is reached through the gateway of its workload cluster."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv6Address
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.owner import Owner


def model_endpoint(replica: Mapping[str, Any], gateway_address: str) -> dict[str, Any]:
    """The ModelEndpoint of a ModelReplica (wire form) behind a gateway: an IPv4 or IPv6 address, or a host name.

    It has the replica's name and labels.
    """
    metadata = replica["metadata"]
    namespace = metadata.get("namespace") or "default"
    path = path_prefix(namespace, metadata["name"])
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelEndpoint",
        "metadata": {
            "name": metadata["name"],
            "namespace": namespace,
            "labels": {**(metadata.get("labels") or {}), **Owner.of(replica).labels()},
        },
        "spec": {"url": f"http://{url_host(gateway_address)}{path}v1", "rewritePath": path},
    }


def path_prefix(namespace: str, replica: str) -> str:
    """The path under which the gateway of a workload cluster serves a replica."""
    return f"/{namespace}/{replica}/"


def url_host(address: str) -> str:
    """The address as the host of a URL: IPv6 in brackets (RFC 3986, section 3.2.2)."""
    bare = address.removeprefix("[").removesuffix("]")
    try:
        IPv6Address(bare)
    except ValueError:
        return address
    return f"[{bare}]"
