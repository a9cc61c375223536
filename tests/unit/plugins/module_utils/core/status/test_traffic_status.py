# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of endpoints and services from what the control cluster shows."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.gateway import backend_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Objects
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status import sightings as seen
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status.sightings import (
    conditions,
    showing,
)
from ansible_collections.modelplane.fleet.tests.written import endpoint_index, model_service, resolve, service_objects
from ansible_collections.modelplane.fleet.tests.written import endpoint_status as model_endpoint

NOW, LATER = "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"
CREDENTIAL = {"apiKey": {"secretRef": {"name": "key"}}}
PLAIN = seen.endpoint()
TLS = seen.endpoint("https://api.example.com/v1")
KEYED = seen.endpoint("https://api.example.com/v1", credential=CREDENTIAL)


def shown(wire: dict[str, Any], without: str = "", up: int = 2, accepted: str = "True") -> Objects:
    """Return what is composed for an endpoint as the control cluster returns it, without one kind."""
    found = []
    for part in seen.endpoint_parts(wire):
        if part["kind"] == without:
            continue
        if part["kind"] == "Deployment":
            found.append(seen.available(part, up))
        else:
            found.append(showing(part, ancestors=[{"conditions": conditions(Accepted=accepted)}]))
    return Objects(found)


# the endpoint, what is seen, the reason of RoutingReady, a part of the message
ENDPOINTS: dict[str, tuple[dict[str, Any], Objects, str, str]] = {
    "plain": (PLAIN, shown(PLAIN), "BackendConfigured", ""),
    "no service": (PLAIN, shown(PLAIN, "Service"), "WaitingForBackend", "Service together-endpoint-"),
    "no slice": (PLAIN, shown(PLAIN, "EndpointSlice"), "WaitingForBackend", "EndpointSlice together-endpoint-"),
    "nothing": (PLAIN, Objects(), "WaitingForBackend", "does not exist yet; Service together-endpoint-"),
    "tls": (TLS, shown(TLS), "BackendConfigured", ""),
    "tls without policy": (TLS, shown(TLS, "BackendTLSPolicy"), "WaitingForBackend", "BackendTLSPolicy"),
    "tls refused": (TLS, shown(TLS, accepted="False"), "WaitingForBackend", "was rejected by the gateway: Accepted is"),
    "egress": (KEYED, shown(KEYED), "BackendConfigured", ""),
    "egress, one of two pods": (KEYED, shown(KEYED, up=1), "BackendConfigured", ""),
    "egress, no pod": (KEYED, shown(KEYED, up=0), "WaitingForBackend", "-egress-"),
    "egress, what only goes with it": (KEYED, shown(KEYED, "PodDisruptionBudget"), "BackendConfigured", ""),
}


@pytest.mark.parametrize("name", ENDPOINTS)
def test_endpoint(name: str) -> None:
    wire, control, reason, message = ENDPOINTS[name]
    status = model_endpoint(wire, seen.endpoint_parts(wire), control)
    routing = status.condition("RoutingReady")
    assert routing is not None
    assert routing.reason == reason
    assert message in routing.message
    names = [value["metadata"]["name"] for value in seen.endpoint_parts(wire) if value["kind"] == "Service"]
    assert status.fields == ({"routing": {"backendName": names[0]}} if reason == "BackendConfigured" else {})


def test_why_an_egress_proxy_does_not_start_is_reported() -> None:
    state = {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "key" not found'}}
    labels = {"modelplane.ai/endpoint": "together"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml-team", "labels": labels},
        "status": {"containerStatuses": [{"name": "envoy", "state": state}]},
    }
    control = Objects([*shown(KEYED, up=0), pod])
    routing = model_endpoint(KEYED, seen.endpoint_parts(KEYED), control).condition("RoutingReady")
    assert routing is not None
    assert routing.message.endswith('pod p: container envoy: CreateContainerConfigError: secret "key" not found')


def test_an_endpoint_that_no_one_observes_keeps_its_backend() -> None:
    parts = seen.endpoint_parts(PLAIN)
    before = model_endpoint(PLAIN, parts, shown(PLAIN)).wire(None, 1, NOW)
    assert model_endpoint(PLAIN, parts, None, previous=before).wire(before, 2, LATER) == before
    assert model_endpoint({**PLAIN, "status": before}, parts, None).wire(before, 2, LATER) == before
    assert model_endpoint(PLAIN, parts, None).fields == {}


EAST, WEST = (
    {"metadata": {"name": name, "namespace": "ml-team", "labels": {"modelplane.ai/deployment": "qwen3-8b"}}}
    for name in ("east", "west")
)
OUTSIDE = {"metadata": {"name": "together", "namespace": "ml-team", "labels": {"provider": "together"}}}
for each in (EAST, WEST, OUTSIDE):
    each["spec"] = {"url": "http://203.0.113.10/v1"}


def service(
    *usable: str, gateway: str = "198.51.100.7", existed: bool = False, endpoints: Any = (EAST, WEST, OUTSIDE)
) -> Any:
    """The status of the service with the routes that are composed for it, all of which the gateway took."""
    resolution = resolve(seen.SERVICE, endpoint_index(endpoints), lambda each: each.name in usable)
    objects = service_objects(seen.SERVICE, resolution, backend_of(None), existed)
    verdict = [{"conditions": conditions(Accepted="True")}]
    control = Objects(showing(value, parents=verdict) for value in objects)
    return model_service(seen.SERVICE, resolution, objects, gateway, control)


# usable endpoints, status of RoutingReady, message of EndpointsResolved
SERVICES: dict[str, tuple[Any, str, str]] = {
    "all": (service("east", "west", "together"), "True", "Matched 3 endpoints"),
    "some": (service("east", "together"), "True", "Matched 3 endpoints; 1 waiting for Backend: west"),
    "failover": (
        service("together"),
        "True",
        "Matched 3 endpoints; 2 waiting for Backend: east, west; "
        "requests go to priority 1, as nothing better is usable",
    ),
    "one entry matches nothing": (
        service("east", endpoints=[EAST]),
        "True",
        "Matched 1 endpoint; nothing matches entry outside",
    ),
    "an entry without name": (
        service("together", endpoints=[OUTSIDE]),
        "True",
        "Matched 1 endpoint; nothing matches spec.endpoints[0]; requests go to priority 1, as nothing better is usable",
    ),
    "H11: none, new": (service(), "False", "Matched 3 endpoints; 3 waiting for Backend: east, together, west"),
    "H11: none any more": (
        service(existed=True),
        "False",
        "Matched 3 endpoints; 3 waiting for Backend: east, together, west",
    ),
}


@pytest.mark.parametrize("name", SERVICES)
def test_service(name: str) -> None:
    status, routing, message = SERVICES[name]
    reported = {condition.type: condition for condition in status.conditions}
    assert reported["EndpointsResolved"].message == message
    assert reported["RoutingReady"].status == reported["Ready"].status == routing


def test_h11_a_new_service_has_no_address_before_its_route() -> None:
    assert service().fields == {}
    assert service(existed=True).fields == {"address": "http://198.51.100.7/ml-team/assistant"}
    assert service("east").fields == {"address": "http://198.51.100.7/ml-team/assistant"}
    assert service("east", gateway="").fields == {}
    assert service("east", gateway="2001:db8::1").fields == {"address": "http://[2001:db8::1]/ml-team/assistant"}


def test_all_routes_of_a_service_have_to_be_taken() -> None:
    routes = [seen.route("a"), seen.route("b"), seen.route("c", accepted="False")]
    status = model_service(seen.SERVICE, seen.resolution(True), routes, "192.0.2.1", Objects(routes))
    routing = status.condition("RoutingReady")
    assert routing is not None
    assert (routing.reason, routing.message) == ("Configuring", "Waiting for the gateway to accept HTTPRoute c")
    status = model_service(seen.SERVICE, seen.resolution(True), routes[:2], "", Objects(routes[:1]))
    routing = status.condition("RoutingReady")
    assert routing is not None
    assert routing.message.endswith("accept HTTPRoute b; the gateway has no address yet")


def test_a_verdict_on_an_older_route_does_not_count() -> None:
    route = seen.route()
    route["metadata"]["generation"] = 4
    status = model_service(seen.SERVICE, seen.resolution(True), [route], "192.0.2.1", Objects([route]))
    assert seen.reported(status)["RoutingReady"] == ("False", "Configuring")


def test_backends_that_the_gateway_does_not_find_are_reported() -> None:
    route = seen.route(resolved="False")
    status = model_service(seen.SERVICE, seen.resolution(True), [route], "192.0.2.1", Objects([route]))
    routing = status.condition("RoutingReady")
    assert routing is not None
    assert (routing.status, routing.message) == ("True", "Some backends are not resolved: ResolvedRefs is False")


def test_a_service_that_no_one_observes_keeps_its_routing() -> None:
    route = seen.route()
    before = model_service(seen.SERVICE, seen.resolution(True), [route], "192.0.2.1", Objects([route])).wire(
        None, 1, NOW
    )
    unseen = model_service(seen.SERVICE, seen.resolution(True), [route], "192.0.2.1", None, previous=before)
    assert unseen.wire(before, 1, LATER) == before


def test_a_password_in_a_url_is_not_reported() -> None:
    status = model_endpoint(seen.endpoint("https://me:hunter2@a.example"), [], Objects(), "it has a password")
    assert "hunter2" not in str(status)
