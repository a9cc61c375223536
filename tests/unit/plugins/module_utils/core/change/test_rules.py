# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""In which order objects are applied."""

from __future__ import annotations

import random
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.rules import ordered


def thing(kind: str, name: str = "x") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}


FIRST_AND_THEN = [
    ("Namespace", "CustomResourceDefinition"),
    ("CustomResourceDefinition", "ModelReplica"),
    ("GatewayClass", "Gateway"),
    ("Namespace", "ConfigMap"),
    ("ServiceAccount", "RoleBinding"),
    ("Role", "RoleBinding"),
    ("ConfigMap", "Deployment"),
    ("Secret", "Job"),
    ("PersistentVolumeClaim", "Job"),
    ("ResourceClaimTemplate", "LeaderWorkerSet"),
    ("Service", "HTTPRoute"),
    ("EndpointSlice", "HTTPRoute"),
    ("Deployment", "InferencePool"),
    ("InferencePool", "HTTPRoute"),
    ("Gateway", "HTTPRoute"),
    ("ModelReplica", "ModelEndpoint"),
    ("Middleware", "HTTPRoute"),
]


@pytest.mark.parametrize(("first", "then"), FIRST_AND_THEN)
def test_what_is_needed_comes_first(first: str, then: str) -> None:
    assert ordered([thing(then), thing(first)])[0]["kind"] == first


def test_a_route_behind_the_cluster_gateway_comes_before_those_that_lead_there() -> None:
    behind = {**thing("AIGatewayRoute", "z"), "spec": {"parentRefs": [{"name": "cluster-gateway"}]}}
    objects = [thing("AIGatewayRoute"), thing("HTTPRoute"), behind, thing("BackendTrafficPolicy")]
    assert ordered(objects)[:2] == [thing("BackendTrafficPolicy"), behind]


def test_the_order_does_not_depend_on_how_objects_are_given() -> None:
    objects = [thing(kind, name) for kind, _ in FIRST_AND_THEN for name in "ab"]
    shuffled = random.Random(1).sample(objects, len(objects))
    assert ordered(shuffled) == ordered(objects)
