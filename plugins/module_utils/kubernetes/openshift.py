# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""OpenShift kinds, read by the OpenShift dynamic client. A cluster is OpenShift if it serves their API group."""

from __future__ import annotations

from typing import Any

from .._openshift import OPENSHIFT_PACKAGE, dynamic_client, resource
from ..core.compose import constants
from ..core.compose.openshift import CONSTRAINTS, ROUTE
from ..core.wire import Object, text
from .client import Client
from .errors import ConnectionInvalid, NotFound


def is_openshift(client: Client) -> bool:
    """Return True if a cluster is OpenShift, by its API groups."""
    return client.serves(*CONSTRAINTS)


def constraint_names(client: Client) -> frozenset[str]:
    """Return the names of the SecurityContextConstraints. Raise NotServed."""
    constraints = _resource(client, *CONSTRAINTS, "list SecurityContextConstraints").get().to_dict()
    return frozenset(text(value, "metadata", "name") for value in constraints.get("items") or ())


def gateway_route(client: Client) -> Object | None:
    """Return the Route that exposes the gateway of an inference cluster, or None without one."""
    name, namespace = constants.WORKLOAD_GATEWAY, constants.ENVOY_NAMESPACE
    if not client.serves(*ROUTE):
        return None
    try:
        resource_instance = _resource(client, *ROUTE, f"read Route {namespace}/{name}").get(
            name=name, namespace=namespace
        )
    except NotFound:
        return None
    route: Object = resource_instance.to_dict()
    return route


def _resource(client: Client, api_version: str, kind: str, action: str) -> Any:
    served = client.resource(api_version, kind)
    try:
        dynamic = dynamic_client(lambda path, query: client.fetch(path, query, action))
    except ImportError as error:
        raise ConnectionInvalid(
            f"the Python package {OPENSHIFT_PACKAGE} cannot be imported ({error})",
            cluster=client.name,
            action=action,
            hint="Install the packages of requirements.txt, as this cluster is OpenShift",
        ) from error
    return resource(dynamic, api_version, kind, served.plural, namespaced=served.namespaced)
