# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Routes of OpenShift that expose the gateway of a workload cluster."""

from __future__ import annotations

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.openshift import ROUTE
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import cut
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, entries, fields, stated, text

_ADMITTED = "Admitted"


def is_routed(gateway: Object | None) -> bool:
    """Return whether a Route exposes a Gateway. Its own addresses are those of a Service inside the cluster then."""
    return text(gateway, "metadata", "annotations", constants.EXPOSURE_ANNOTATION) == ROUTE[1]


def admitted_host(route: Object | None) -> str:
    """Return the host at which a router admitted a Route; "" where none has."""
    for ingress in entries(route, "status", "ingress"):
        if stated(entries(ingress, "conditions"), _ADMITTED) == "True" and text(ingress, "host"):
            return text(ingress, "host")
    return ""


def route_url(route: Object | None) -> str:
    """Return the URL of an admitted Route; "" where that is plain HTTP on port 80."""
    host = admitted_host(route)
    return f"https://{host}" if host and fields(route, "spec", "tls") else ""


def why_not_admitted(route: Object | None) -> str:
    """Return why no router has admitted a Route."""
    for ingress in entries(route, "status", "ingress"):
        for entry in entries(ingress, "conditions"):
            if entry.get("type") == _ADMITTED and entry.get("status") == "False":
                said = ": ".join(filter(None, (text(entry, "reason"), cut(text(entry, "message")))))
                return f"a router refuses it ({said})" if said else "a router refuses it"
    return "no router has admitted it yet"
