# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Write order and deletion order of the rule table."""

from __future__ import annotations

import random
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.rules import (
    RULES,
    deleted_after,
    is_recreated,
    ordered,
    ordered_deletions,
    written_after,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine import graph


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
    ("PodDisruptionBudget", "Deployment"),
    ("NetworkPolicy", "LeaderWorkerSet"),
]


@pytest.mark.parametrize(("first", "then"), FIRST_AND_THEN)
def test_what_is_needed_comes_first(first: str, then: str) -> None:
    assert ordered([thing(then), thing(first)])[0]["kind"] == first
    assert ordered_deletions([thing(first), thing(then)])[0]["kind"] == then


@pytest.mark.parametrize("order", [written_after(), deleted_after()], ids=["written", "deleted"])
def test_the_table_has_an_order(order: graph.Needs) -> None:
    assert graph.problem(order) == ""
    assert order.keys() == RULES.keys()


def test_a_policy_of_a_route_comes_before_it_and_goes_after_what_it_leads_to() -> None:
    target = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "x"}
    policy = {**thing("SecurityPolicy"), "spec": {"targetRefs": [target]}}
    objects = [thing("HTTPRoute"), policy, thing("Service"), thing("Backend"), thing("Namespace")]
    kinds = ["Namespace", "Service", "Backend", "SecurityPolicy", "HTTPRoute"]
    assert [each["kind"] for each in ordered(objects)] == kinds
    kinds = ["HTTPRoute", "Backend", "Service", "SecurityPolicy", "Namespace"]
    assert [each["kind"] for each in ordered_deletions(objects)] == kinds


@pytest.mark.parametrize(
    ("kind", "recreated"), [("ConfigMap", True), ("Job", True), ("Deployment", False), ("AIGatewayRoute", False)]
)
def test_only_some_kinds_are_recreated(kind: str, recreated: bool) -> None:
    assert is_recreated(Key("", kind, "", "x")) is recreated


def test_a_route_behind_the_cluster_gateway_comes_before_those_that_lead_there() -> None:
    behind = {**thing("AIGatewayRoute", "z"), "spec": {"parentRefs": [{"name": "cluster-gateway"}]}}
    objects = [thing("AIGatewayRoute"), thing("HTTPRoute"), behind, thing("BackendTrafficPolicy")]
    assert ordered(objects)[:2] == [thing("BackendTrafficPolicy"), behind]


def test_the_order_does_not_depend_on_how_objects_are_given() -> None:
    objects = [thing(kind, name) for kind, _ in FIRST_AND_THEN for name in "ab"]
    shuffled = random.Random(1).sample(objects, len(objects))
    assert ordered(shuffled) == ordered(objects)
