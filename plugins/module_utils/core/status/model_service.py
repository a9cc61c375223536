# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of a ModelService: its endpoints, its routes on the gateway, and its address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .. import api
from ..api.model_service import ModelServiceStatus, ServiceEndpoint
from ..compose.endpoint import url_host
from ..text import cut, listed
from ..wire import Object, Objects, entries, number, stated, text
from .conditions import Condition, Status, earlier, hold, ready, unknown

_RESOLVED = "EndpointsResolved"
_ROUTING = "RoutingReady"


class MatchedEndpoint(Protocol):
    """Endpoint that a service matches."""

    @property
    def endpoint(self) -> api.ModelEndpoint: ...
    @property
    def entry(self) -> int: ...
    @property
    def usable(self) -> bool: ...


class Resolution(Protocol):
    """Resolved endpoints of a service. `tier`: priority in use, None without a usable endpoint."""

    @property
    def members(self) -> Sequence[MatchedEndpoint]: ...
    @property
    def tier(self) -> int | None: ...


def _is_accepted(route: Object | None) -> bool:
    """Return True when a gateway accepted the current generation of an HTTPRoute (Gateway API, RouteParentStatus)."""
    generation = number(route, "metadata", "generation")
    return any(
        stated(entries(parent, "conditions"), "Accepted", generation) == "True"
        for parent in entries(route, "status", "parents")
    )


def model_service(
    service: api.ModelService,
    resolution: Resolution,
    routes: Sequence[Object],
    gateway: str,
    control: Objects | None,
    *,
    models: Sequence[Condition] | None = None,
    has_path: bool = True,
    refused: str = "",
    previous: Mapping[str, Any] | None = None,
) -> Status[ModelServiceStatus]:
    """Return the status of a ModelService.

    `routes`: its composed objects. Only objects of kind HTTPRoute are used. `gateway`: address of the control gateway,
    or "". `control`: observed objects of the control cluster, None without an observation. `models`: RoutingReady
    conditions of its ModelRoutes, None in a fleet without Model gateways. `has_path`: if False, only `models` affect
    the status. `refused`: reason for gateways that select the service and are not composed.
    """
    previous_status = earlier(service.status, previous)
    desired = [value for value in routes if value["kind"] == "HTTPRoute"]
    if models is None or has_path:
        routing = _routing(resolution, desired, gateway, control, previous_status)
    else:
        routing = _by_models(models, refused)
    if routing.held or routing.status == "Unknown":
        overall = hold("Ready", previous_status, unknown("Ready", routing.message))
    else:
        done = routing.status == "True"
        overall = ready(done, previous_status, "" if done else routing.message)
    address = f"http://{url_host(gateway)}/{service.namespace}/{service.name}" if gateway and desired else None
    fields = api.construct(ModelServiceStatus, address=address)
    if models is not None:
        ready_ones = sum(condition.status == "True" for condition in models)
        counts = {"total": len(models), "ready": ready_ones}
        fields = ModelServiceStatus.model_validate({"address": address, "model": service.model_name, "routes": counts})
    return Status((_resolved(service, resolution), routing, overall), fields)


def _resolved(service: api.ModelService, resolution: Resolution) -> Condition:
    members = resolution.members
    selectors = service.spec.endpoints
    if not members:
        return Condition(_RESOLVED, "False", "NoEndpoints", "No ModelEndpoints matched the configured selectors")
    message = f"Matched {_endpoints(len(members))}"
    waiting = [member.endpoint.name for member in members if not member.usable]
    if waiting:
        message += f"; {len(waiting)} waiting for Backend: {listed(waiting)}"
    empty = set(range(len(selectors))) - {member.entry for member in members}
    if empty:
        message += f"; nothing matches {listed(_entry(selectors[index], index) for index in empty)}"
    best = min(entry.priority for entry in selectors)
    if resolution.tier is not None and resolution.tier > best:
        message += f"; requests go to priority {resolution.tier}, as nothing better is usable"
    return Condition(_RESOLVED, "True", "Resolved", message)


def _endpoints(count: int) -> str:
    return f"{count} endpoint" if count == 1 else f"{count} endpoints"


def _entry(entry: ServiceEndpoint, index: int) -> str:
    return f"entry {entry.name}" if entry.name else f"spec.endpoints[{index}]"


def _routing(
    resolution: Resolution,
    routes: Sequence[Object],
    gateway: str,
    control: Objects | None,
    previous_status: Mapping[str, Any],
) -> Condition:
    usable = any(member.usable for member in resolution.members)
    if not routes and not gateway:
        message = "Waiting for the InferenceGateway default to have an address"
        return Condition(_ROUTING, "False", "WaitingForGateway", message)
    if not usable:
        none = (
            f"none of {_endpoints(len(resolution.members))} is usable" if resolution.members else "it has no endpoint"
        )
        answer = "requests are answered with 503" if routes else "its route is withheld until one is"
        return Condition(_ROUTING, "False", "Configuring", f"{none}; {answer}")
    if control is None:
        return hold(_ROUTING, previous_status, unknown(_ROUTING, "the control cluster has not been observed"))
    waiting = [text(route, "metadata", "name") for route in routes if not _is_accepted(control.like(route))]
    if waiting or not routes:
        address = "" if gateway else "; the gateway has no address yet"
        message = f"Waiting for the gateway to accept HTTPRoute {listed(waiting)}{address}"
        return Condition(_ROUTING, "False", "Configuring", message if routes else "its route is not composed yet")
    return Condition(_ROUTING, "True", "RouteConfigured", _unresolved(routes, control))


def _by_models(models: Sequence[Condition], refused: str) -> Condition:
    """Return the condition of a service that only Model gateways serve."""
    if not models:
        message = f"No InferenceGateway serves it: {refused or 'none selects its labels'}"
        return Condition(_ROUTING, "False", "WaitingForGateway", message)
    missing = [condition for condition in models if condition.status != "True"]
    if not missing:
        return Condition(_ROUTING, "True", "RouteConfigured")
    message = "; ".join(sorted({condition.message for condition in missing}))
    if all(condition.status == "Unknown" for condition in missing):
        return unknown(_ROUTING, message)
    return Condition(_ROUTING, "False", "Configuring", message)


def _unresolved(routes: Sequence[Object], control: Objects) -> str:
    """Return the gateway's message about unresolved backends. Requests to these backends fail, and others succeed."""
    messages = set()
    for route in routes:
        observed = control.like(route)
        for parent in entries(observed, "status", "parents"):
            conditions = entries(parent, "conditions")
            if stated(conditions, "ResolvedRefs", number(observed, "metadata", "generation")) == "False":
                messages |= {text(entry, "message") for entry in conditions if entry.get("type") == "ResolvedRefs"}
    return f"Some backends are not resolved: {cut('; '.join(sorted(messages)))}" if messages else ""
