# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelEndpoint of a replica: its URL through the gateway of its inference cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address
from typing import Any

from .. import api
from ..api.meta import ObjectMeta
from ..api.model_endpoint import ModelEndpointSpec
from .owner import Owner

_HTTP_PORT = 80
_HTTPS_PORT = 443


def endpoint_labels(replica: api.ModelReplica, cluster: api.InferenceCluster | None) -> dict[str, str]:
    """Return the labels of a replica's ModelEndpoint. Replica labels override cluster labels."""
    cluster_labels = cluster.placement_labels if cluster else {}
    return {**cluster_labels, **replica.labels, **Owner.of(replica).labels()}


def model_endpoint(
    replica: api.ModelReplica, gateway_url: str, cluster: api.InferenceCluster | None = None
) -> api.ModelEndpoint:
    """Return the ModelEndpoint of a ModelReplica behind a gateway, with the replica's name.

    `gateway_url` has no path and does not end with a slash.
    """
    path = path_prefix(replica.namespace, replica.name)
    labels = endpoint_labels(replica, cluster)
    return api.construct(
        api.ModelEndpoint,
        api_version=api.ModelEndpoint.group_version(),
        kind=api.ModelEndpoint.KIND,
        metadata=api.construct(ObjectMeta, name=replica.name, namespace=replica.namespace, labels=labels),
        spec=api.construct(ModelEndpointSpec, url=f"{gateway_url}{path}v1", rewrite_path=path),
    )


def http_url(address: str) -> str:
    """Return the URL of a gateway that serves plain HTTP on port 80 of an address: IPv4, IPv6 or a host name."""
    return f"http://{url_host(address)}"


def gateway_url(listeners: Iterable[Mapping[str, Any]], address: str) -> str:
    """Return the URL that endpoints use for a gateway with these listeners (Gateway API); "" if no listener is usable.

    Plain HTTP is preferred to HTTPS. A gateway without listeners is assumed to serve HTTP. Endpoints are addressed by
    IP address, so HTTP listeners with a host name are ignored. Certificates are verified by name, so an HTTPS listener
    needs a host name that resolves to the gateway.
    """
    listeners = list(listeners)
    plain = [
        listener.get("port")
        for listener in listeners
        if listener.get("protocol") == "HTTP" and not listener.get("hostname")
    ]
    if not listeners or _HTTP_PORT in plain:
        return http_url(address)
    if plain:
        return f"{http_url(address)}:{plain[0]}"
    for listener in listeners:
        name = str(listener.get("hostname") or "")
        if listener.get("protocol") == "HTTPS" and name and not name.startswith("*"):
            return (
                f"https://{name}" if listener.get("port") == _HTTPS_PORT else f"https://{name}:{listener.get('port')}"
            )
    return ""


def path_prefix(namespace: str, replica: str) -> str:
    """Return the path prefix of a replica on the gateway of an inference cluster."""
    return f"/{namespace}/{replica}/"


def url_host(address: str) -> str:
    """Return the address as the host of a URL: IPv6 in brackets (RFC 3986, section 3.2.2)."""
    bare = address.removeprefix("[").removesuffix("]")
    try:
        IPv6Address(bare)
    except ValueError:
        return address
    return f"[{bare}]"
