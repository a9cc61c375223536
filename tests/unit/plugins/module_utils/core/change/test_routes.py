# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Policies that guard routes, and what routes refer to."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.routes import (
    is_accepted,
    is_behind,
    references,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.route_policies import guards

GROUP = "gateway.networking.k8s.io"
ROUTE = {
    "kind": "AIGatewayRoute",
    "metadata": {"name": "chat", "namespace": "mp-team"},
    "spec": {"parentRefs": [{"name": "edge", "namespace": "system", "sectionName": "https"}]},
}


@pytest.mark.parametrize(
    ("namespace", "target", "guarded"),
    [
        ("mp-team", {"kind": "HTTPRoute", "name": "chat"}, True),
        ("mp-team", {"kind": "HTTPRoute", "name": "other"}, False),
        ("other", {"kind": "HTTPRoute", "name": "chat"}, False),
        ("system", {"kind": "Gateway", "name": "edge"}, True),
        ("system", {"kind": "Gateway", "name": "edge", "sectionName": "https"}, True),
        ("system", {"kind": "Gateway", "name": "edge", "sectionName": "http"}, False),
        ("mp-team", {"kind": "Gateway", "name": "edge"}, False),
        ("system", {"kind": "Gateway", "name": "edge", "group": "other.example"}, False),
        ("mp-team", {"kind": "AIServiceBackend", "name": "chat"}, False),
    ],
)
def test_policies_guard_the_routes_that_they_are_attached_to(
    namespace: str, target: dict[str, Any], guarded: bool
) -> None:
    target = {"group": GROUP, **target}
    for spec in ({"targetRefs": [target]}, {"targetRef": target}):
        assert guards({"metadata": {"namespace": namespace}, "spec": spec}, ROUTE) is guarded
    assert not guards(None, ROUTE)


def test_references_are_backends_and_filters_of_its_own_namespace() -> None:
    rule = {
        "filters": [{"type": "ExtensionRef", "extensionRef": {"kind": "HTTPRouteFilter", "name": "rewrite"}}],
        "backendRefs": [
            {"name": "web"},
            {"kind": "Backend", "name": "north", "namespace": "mp-team"},
            {"kind": "Backend", "name": "elsewhere", "namespace": "other"},
            {"name": "south", "filters": [{"extensionRef": {"kind": "HTTPRouteFilter", "name": "key"}}]},
        ],
    }
    route = {"metadata": {"namespace": "mp-team"}, "spec": {"rules": [rule, {}]}}
    assert references(route) == {
        ("HTTPRouteFilter", "rewrite"),
        ("Service", "web"),
        ("Backend", "north"),
        ("Service", "south"),
        ("HTTPRouteFilter", "key"),
    }


def reported(*generations: int, name: str = "edge") -> dict[str, Any]:
    conditions = [{"type": "Accepted", **({"observedGeneration": each} if each else {})} for each in generations]
    return {"parentRef": {"name": name, "namespace": "system"}, "conditions": conditions}


@pytest.mark.parametrize(
    ("parents", "behind"),
    [
        ([], False),
        ([reported(0)], False),
        ([reported(2)], False),
        ([reported(1)], True),
        ([reported(2), reported(1, name="other")], True),
        # That of a controller which is there no more.
        ([reported(1), reported(2)], False),
        # Of a Gateway that it left.
        ([reported(2), reported(1, name="left")], False),
    ],
)
def test_a_route_is_behind_while_a_gateway_that_knows_it_has_not_processed_it(parents: list[Any], behind: bool) -> None:
    to = [{"name": name, "namespace": "system"} for name in ("edge", "other")]
    route = {"metadata": {"namespace": "team", "generation": 2}, "spec": {"parentRefs": to}}
    assert is_behind({**route, "status": {"parents": parents}}) is behind


def stated(kind: str = "Accepted", status: str = "True", generation: int = 2) -> dict[str, Any]:
    return {"type": kind, "status": status, "observedGeneration": generation}


@pytest.mark.parametrize(
    ("conditions", "accepted"),
    [
        ([stated(), stated("ResolvedRefs")], True),
        ([], False),
        ([stated()], False),
        # Before its filters are there.
        ([stated(), stated("ResolvedRefs", "False")], False),
        ([stated(status="False"), stated("ResolvedRefs")], False),
        ([stated(generation=1), stated("ResolvedRefs", generation=1)], False),
    ],
)
def test_a_route_is_accepted_once_all_of_its_gateways_say_so_of_what_it_is_now(
    conditions: list[Any], accepted: bool
) -> None:
    to = [{"name": name, "namespace": "system"} for name in ("edge", "other")]
    route = {"metadata": {"namespace": "team", "generation": 2}, "spec": {"parentRefs": to}}
    one, other = ({"parentRef": parent, "conditions": conditions} for parent in to)
    assert is_accepted({**route, "status": {"parents": [one, other]}}) is accepted
    assert not is_accepted({**route, "status": {"parents": [one]}})
    assert not is_accepted(route)
