# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Policies that guard routes, and what routes refer to."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.routes import (
    guards,
    is_being_taken_over,
    references,
)

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


@pytest.mark.parametrize(
    ("observed", "waited"),
    [([], False), ([{}], False), ([{"observedGeneration": 2}], False), ([{"observedGeneration": 1}], True)],
)
def test_a_route_is_being_taken_over_by_a_controller_that_knows_it(observed: list[Any], waited: bool) -> None:
    route = {"metadata": {"generation": 2}, "status": {"parents": [{"conditions": observed}]}}
    assert is_being_taken_over(route) is waited
