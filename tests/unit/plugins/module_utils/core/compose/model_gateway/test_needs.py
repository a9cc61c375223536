# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of the needs of gateways in mode Model in the serving stack of clusters."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.needs import stack_needs
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.overflow import (
    cluster_gateway_answers,
)
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    Document,
    build,
    cluster,
    fleet,
    gateway,
    policy,
    read,
    service,
)

HOST = ["gateway", "certificates", "budgets"]
FLEET = {"hub": HOST, "east": ["certificates"], "west": ["certificates"]}
Kind = TypeVar("Kind", bound=api.Resource)


def needs(documents: list[Document], *with_replicas: str) -> dict[str, list[str]]:
    resources = read(documents)

    def of(kind: type[Kind]) -> list[Kind]:
        return [each for each in resources if isinstance(each, kind)]

    clusters = {each.name: each for each in of(api.InferenceCluster)}
    kinds = (of(api.InferenceGateway), of(api.ModelService), of(api.CallerPolicy))
    return stack_needs(clusters, *kinds, with_replicas=with_replicas)


def budget(when_unavailable: str = "Refuse", name: str = "a") -> Document:
    return {"name": name, "unit": "Tokens", "limit": 10, "per": "Hour", "whenUnavailable": when_unavailable}


def counted(documents: list[Document]) -> list[str]:
    """Return the policies that count requests for services."""
    policies = build(documents).of("BackendTrafficPolicy")
    return [
        value["metadata"]["name"]
        for value in policies
        if "rateLimit" in value["spec"] and value["metadata"]["namespace"] != "modelplane-system"
    ]


def test_a_fleet_without_such_a_gateway_needs_nothing() -> None:
    path = {"apiVersion": "modelplane.ai/v1alpha1", "kind": "InferenceGateway", "metadata": {"name": "default"}}
    path["spec"] = {"backend": "Traefik", "traefik": {"version": "40.2.0"}}
    assert needs(fleet(service(), policy(budgets=[budget()]), eu=path)) == {}
    moon = [each for each in read(fleet()) if isinstance(each, api.InferenceGateway)]
    assert stack_needs({}, moon, (), (), ()) == {}


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ([], FLEET),
        ([service()], FLEET),
        # A second gateway of a cluster is not composed.
        ([gateway("fr")], FLEET),
        ([gateway("us", "east")], {**FLEET, "east": HOST}),
        # Neither nodes nor engines.
        ([cluster("idle")], FLEET),
    ],
)
def test_clusters_with_a_gateway_and_those_it_can_reach(documents: list[Document], expected: Any) -> None:
    assert needs(fleet(*documents)) == expected
    traffic = build(fleet(*documents))
    hosts = {name for name, found in expected.items() if "gateway" in found}
    composed = {
        name: {value["metadata"]["name"] for value in traffic.of("Bundle", name)}
        for name in traffic.objects
        if traffic.of("Bundle", name)
    }
    # What is composed asks for nothing else.
    assert set(composed) == set(expected)
    assert {name for name, bundles in composed.items() if "inference-gateway-ca" in bundles} == hosts


def test_a_cluster_with_engines_but_without_pools_is_reached_too() -> None:
    assert needs(fleet(cluster("idle")), "idle")["idle"] == ["certificates"]


@pytest.mark.parametrize(
    ("budgets", "more"),
    [
        ([], []),
        ([budget()], ["strict-budgets"]),
        ([budget("Allow")], []),
        ([budget("Allow"), budget("Refuse", "b")], ["strict-budgets"]),
    ],
)
def test_budgets_are_counted_where_the_gateway_is(budgets: list[Document], more: list[str]) -> None:
    documents = fleet(service(), policy(**({"budgets": budgets} if budgets else {})))
    assert needs(documents) == {**FLEET, "hub": [*HOST, *more]}
    assert bool(counted(documents)) is bool(budgets)


@pytest.mark.parametrize(
    "documents",
    [
        # No service, none that the policy selects, none that the gateway serves.
        fleet(policy(budgets=[budget()])),
        fleet(service(), policy(budgets=[budget()], services={"matchLabels": {"tier": "paid"}})),
        fleet(service(), policy(budgets=[budget()]), eu=gateway(serviceSelector={"matchLabels": {"tier": "paid"}})),
        fleet(service(namespace="other"), policy(budgets=[budget()])),
    ],
)
def test_budgets_that_no_request_comes_under_need_nothing(documents: list[Document]) -> None:
    assert needs(documents) == FLEET
    assert not counted(documents)


def test_a_gateway_that_knows_no_callers_counts_nothing() -> None:
    documents = fleet(service(), policy(budgets=[budget()]), eu={**gateway(), "spec": {"clusterName": "hub"}})
    assert needs(documents) == {**FLEET, "hub": ["gateway", "certificates"]}
    assert not [value for value in build(documents).of("BackendTrafficPolicy") if "rateLimit" in value["spec"]]


@pytest.mark.parametrize("budgets", [[], [budget()], [{**budget(), "whenSpent": "Overflow"}]])
def test_each_gateway_has_a_limit_whatever_budgets_there_are(budgets: list[Document]) -> None:
    documents = fleet(service(), policy(**({"budgets": budgets} if budgets else {})))
    composed = build(documents)
    [resource] = [each for each in read(documents) if isinstance(each, api.InferenceGateway)]
    of_gateway = [*composed.of("HTTPRoute"), *composed.of("BackendTrafficPolicy")]
    for name, objects in (("inference-gateway", of_gateway), ("cluster-gateway", cluster_gateway_answers(resource))):
        route, limited = (each for each in objects if each["metadata"]["name"] == f"{name}-rate-limited")
        assert route["spec"]["parentRefs"][0]["name"] == name
        assert [target["name"] for target in limited["spec"]["targetRefs"]] == [f"{name}-rate-limited"]
        assert limited["spec"]["rateLimit"]["global"]["rules"]
