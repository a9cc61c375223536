# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of a ModelRoute: a service on a Model gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import api
from ..api.model_route import ModelRouteStatus
from ..text import by_reason, joined
from ..wire import Object, Objects, condition, identity
from .conditions import Condition, Status, declared_message, earlier, hold, ready, unknown

_ROUTING = "RoutingReady"


def model_route(
    route: api.ModelRoute,
    cluster: str,
    desired: Sequence[Object],
    observed: Objects | None,
    *,
    endpoints: Mapping[str, str],
    address: str = "",
    conflict: str = "",
    is_declared: bool = False,
    previous: Mapping[str, Any] | None = None,
) -> Status[ModelRouteStatus]:
    """Return the status of a ModelRoute.

    `desired`: its composed objects on the gateway's cluster. `observed`: observed objects there, None if the cluster
    did not respond. `endpoints`: matching endpoints of the service, with the reason for no requests. `address`: address
    of the gateway. `conflict`: reason for possibly ineffective policies. `is_declared`: the cluster is unobserved, and
    its declared state is assumed.
    """
    previous_status = earlier(route.status, previous)
    routing = _routing(
        route, cluster, desired, observed, endpoints, previous_status, is_declared, bool(address), conflict
    )
    if routing.held or routing.status == "Unknown":
        overall = hold("Ready", previous_status, unknown("Ready", routing.message))
    else:
        done = routing.status == "True"
        overall = ready(done, previous_status, "" if done else routing.message)
    usable = sum(not reason for reason in endpoints.values())
    fields = ModelRouteStatus.model_validate(
        {
            "model": f"{route.namespace}/{route.spec.service_name}",
            "address": address or None,
            "endpoints": {"total": len(endpoints), "ready": usable},
        }
    )
    return Status((routing, overall), fields)


def _routing(
    route: api.ModelRoute,
    cluster: str,
    desired: Sequence[Object],
    observed: Objects | None,
    endpoints: Mapping[str, str],
    previous_status: Mapping[str, Any],
    is_declared: bool,
    has_address: bool,
    conflict: str,
) -> Condition:
    composed = next((value for value in desired if identity(value)[1] == "AIGatewayRoute"), None)
    reasons = "; ".join(by_reason({name: reason for name, reason in endpoints.items() if reason}))
    if composed is None:
        none = "No ModelEndpoint matches the service"
        message = f"None of its endpoints can be used: {reasons}" if endpoints else none
        return Condition(_ROUTING, "False", "NoReadyEndpoints", message)
    unused = f"No requests go to {reasons}" if reasons else ""
    if is_declared:
        return Condition(_ROUTING, "True", "RouteAccepted", joined(declared_message(cluster), unused))
    if observed is None:
        return hold(_ROUTING, previous_status, unknown(_ROUTING, f"cluster {cluster} has not been observed"))
    if conflict:
        return Condition(_ROUTING, "False", "PolicyConflict", conflict)
    seen = observed.like(composed)
    if seen is None or condition(seen, "Accepted") != "True":
        gateway = route.spec.gateway_name
        message = f"Waiting for InferenceGateway {gateway} to accept AIGatewayRoute {identity(composed)[3]}"
        return Condition(_ROUTING, "False", "WaitingForRoute", message)
    if not has_address:
        message = f"Waiting for InferenceGateway {route.spec.gateway_name} to have an address"
        return Condition(_ROUTING, "False", "WaitingForGateway", message)
    return Condition(_ROUTING, "True", "RouteAccepted", unused)
