# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""OpenShift Routes that expose the gateway of an inference cluster."""

from __future__ import annotations

from collections.abc import Iterator

from ..compose import constants
from ..compose.openshift import ROUTE
from ..text import cut
from ..wire import Object, entries, fields, text


def is_routed(gateway: Object | None) -> bool:
    """Return True if a Route exposes a Gateway. The Gateway then has only addresses of a Service in the cluster."""
    match gateway:
        case {"metadata": {"annotations": {constants.EXPOSURE_ANNOTATION: kind}}}:
            return bool(kind == ROUTE[1])
    return False


def admitted_host(route: Object | None) -> str:
    """Return the host of a Route that a router admitted, or "" if no router admitted the Route."""
    return next((host for host, status, __ in _admissions(route) if host and status == "True"), "")


def route_url(route: Object | None) -> str:
    """Return the URL of an admitted Route, or "" for plain HTTP on port 80."""
    host = admitted_host(route)
    return f"https://{host}" if host and fields(route, "spec", "tls") else ""


def why_not_admitted(route: Object | None) -> str:
    """Return the reason why no router admitted a Route."""
    for __, status, why in _admissions(route):
        if status == "False":
            return f"a router refuses it ({why})" if why else "a router refuses it"
    return "no router has admitted it yet"


def _admissions(route: Object | None) -> Iterator[tuple[str, str, str]]:
    """Yield the host, the status of the condition Admitted and its reason for each router of a Route."""
    for seen in entries(route, "status", "ingress"):
        for observed in entries(seen, "conditions"):
            if text(observed, "type") == "Admitted":
                explanation = filter(None, (text(observed, "reason"), text(observed, "message")))
                yield text(seen, "host"), text(observed, "status"), cut(": ".join(explanation))
