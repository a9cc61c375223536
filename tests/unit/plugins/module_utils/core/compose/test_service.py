# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of which endpoints a ModelService leads to, and the routes there."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.backend import backend_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.gateway import backend_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.service import Resolution
from ansible_collections.modelplane.fleet.tests.schemas import KUBERNETES_VERSIONS, check
from ansible_collections.modelplane.fleet.tests.written import endpoint_index, resolve, service_objects
from hypothesis import given, settings
from hypothesis import strategies as st

Object = dict[str, Any]
GATEWAY = backend_of(None)


def endpoint(name: str, namespace: str = "ml-team", url: str = "http://203.0.113.10/x", **fields: Any) -> Object:
    labels = fields.pop("labels", {"app": "a"})
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": {"url": url, **fields}}


def entry(app: str = "a", **fields: Any) -> Object:
    return {**fields, "selector": {"matchLabels": {"app": app}}}


def service(*entries: Object, name: str = "assistant") -> Object:
    return {"metadata": {"name": name, "namespace": "ml-team"}, "spec": {"endpoints": list(entries) or [entry()]}}


def resolved(wire: Object, endpoints: Iterable[Object], down: Iterable[str] = ()) -> Resolution:
    return resolve(wire, endpoint_index(endpoints), lambda each: each.name not in set(down))


def found(resolution: Resolution) -> list[tuple[str, int, int]]:
    return [(member.endpoint.name, member.entry, member.weight) for member in resolution.members]


def objects(wire: Object, endpoints: Iterable[Object], down: Iterable[str] = (), existed: bool = False) -> list[Object]:
    return list(service_objects(wire, resolved(wire, endpoints, down), GATEWAY, existed))


def routes(composed: Iterable[Object]) -> dict[str, Object]:
    """The rules of the routes, by the path they match."""
    rules = [value["spec"]["rules"][0] for value in composed if value["kind"] == "HTTPRoute"]
    return {rule["matches"][0]["path"]["value"]: rule for rule in rules}


def rewrite(reference: Mapping[str, Any]) -> Object:
    return reference["filters"][0]["urlRewrite"] if "filters" in reference else {}


def shares(rules: Mapping[str, Object], path: str = "/ml-team/assistant/") -> Iterator[tuple[str, Fraction]]:
    """The share of requests that every backend gets, following the tree of routes."""
    references = rules[path]["backendRefs"]
    total = sum(reference["weight"] for reference in references)
    for reference in references:
        share = Fraction(reference["weight"], total)
        if "namespace" in reference:
            for name, part in shares(rules, rewrite(reference)["path"]["replacePrefixMatch"]):
                yield name, share * part
        else:
            yield reference["name"], share


ABLE = [endpoint("a-2"), endpoint("a-1"), endpoint("b-1", labels={"app": "b"})]


@pytest.mark.parametrize(
    ("entries", "down", "expected", "tier"),
    [
        ([entry()], "", [("a-1", 0, 1), ("a-2", 0, 1)], 0),
        ([entry(weight=90), entry("b", weight=10)], "", [("a-1", 0, 9), ("a-2", 0, 9), ("b-1", 1, 2)], 0),
        ([entry(weight=90), entry("b", weight=10)], "a-2", [("a-1", 0, 9), ("a-2", 0, 0), ("b-1", 1, 1)], 0),
        ([entry(weight=90), entry("b", weight=10)], "a-1 a-2", [("a-1", 0, 0), ("a-2", 0, 0), ("b-1", 1, 1)], 0),
        ([entry(priority=1), entry("b")], "", [("a-1", 0, 0), ("a-2", 0, 0), ("b-1", 1, 1)], 0),
        ([entry(priority=1), entry("b")], "b-1", [("a-1", 0, 1), ("a-2", 0, 1), ("b-1", 1, 0)], 1),
        ([entry("none"), entry("b", priority=63)], "", [("b-1", 1, 1)], 63),
        ([entry(), entry()], "", [("a-1", 0, 1), ("a-2", 0, 1)], 0),
        ([entry()], "a-1 a-2", [("a-1", 0, 0), ("a-2", 0, 0)], None),
        ([entry("none")], "", [], None),
        ([{"selector": {"matchLabels": {}}}], "", [("a-1", 0, 1), ("a-2", 0, 1), ("b-1", 0, 1)], 0),
    ],
    ids=[
        "one entry",
        "canary",
        "one less",
        "an entry without usable endpoints leaves its share",
        "a lower tier waits",
        "a lower tier takes over",
        "a tier that nothing matches is no tier",
        "the first entry that matches",
        "nothing usable",
        "nothing matched",
        "no labels match all",
    ],
)
def test_resolve(entries: list[Object], down: str, expected: list[Any], tier: int | None) -> None:
    resolution = resolved(service(*entries), ABLE, down.split())
    assert (found(resolution), resolution.tier) == (expected, tier)


def test_h2_endpoints_of_other_namespaces_are_not_selected() -> None:
    resolution = resolved(service(), [endpoint("mine"), endpoint("theirs", "other-team")])
    assert found(resolution) == [("mine", 0, 1)]


def test_h9_the_order_of_endpoints_does_not_matter() -> None:
    """Three endpoints share 80 of 100: the one that gets the unit less is always the same."""
    endpoints = [endpoint("c"), endpoint("a"), endpoint("b"), endpoint("d", labels={"app": "b"})]
    wire = service(entry(weight=80), entry("b", weight=20))
    expected = [("a", 0, 27), ("b", 0, 27), ("c", 0, 26), ("d", 1, 20)]
    assert found(resolved(wire, endpoints)) == found(resolved(wire, endpoints[::-1])) == expected


def test_an_origin_gets_requests_at_the_path_of_its_api() -> None:
    """Clients write the version of the API behind the prefix of the service, so it is no part of what replaces that."""
    written = endpoint("together", api={"prefix": "/openai/v1"}, origin="https://api.together.xyz", url=None)
    del written["spec"]["url"]
    (route,) = objects(service(), [written])
    (backend,) = route["spec"]["rules"][0]["backendRefs"]
    (rewrite,) = (each["urlRewrite"] for each in backend["filters"])
    assert rewrite["hostname"] == "api.together.xyz"
    assert rewrite["path"]["replacePrefixMatch"] == "/openai/"


def test_the_worked_example() -> None:
    """90 x 2 replicas and 10 x 1 provider; Host is rewritten for the provider, which the reference leaves out."""
    endpoints = [
        endpoint("east", rewritePath="/ml-team/east/"),
        endpoint("west", url="http://203.0.113.20", rewritePath="/ml-team/west/"),
        endpoint("together", url="https://api.together.xyz/", rewritePath="/", labels={"app": "b"}),
    ]
    (route,) = objects(service(entry(weight=90), entry("b", weight=10)), endpoints)
    assert route["metadata"]["namespace"] == "ml-team"
    assert route["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "modelplane.fleet",
        "modelplane.ai/namespace": "ml-team",
        "modelplane.ai/service": "assistant",
    }

    def reference(name: str, port: int, weight: int, **rewritten: Any) -> Object:
        return {
            "name": name,
            "port": port,
            "weight": weight,
            "filters": [{"type": "URLRewrite", "urlRewrite": rewritten}],
        }

    def path(value: str) -> Object:
        return {"type": "ReplacePrefixMatch", "replacePrefixMatch": value}

    assert route["spec"] == {
        "parentRefs": [{"name": "modelplane", "namespace": "modelplane-system"}],
        "rules": [
            {
                "matches": [{"path": {"type": "PathPrefix", "value": "/ml-team/assistant/"}}],
                "backendRefs": [
                    reference("east-endpoint-6c287", 80, 9, path=path("/ml-team/east/")),
                    reference("west-endpoint-422be", 80, 9, path=path("/ml-team/west/")),
                    reference("together-endpoint-9bedc", 443, 2, path=path("/"), hostname="api.together.xyz"),
                ],
                "timeouts": {"request": "0s"},
            }
        ],
    }


def test_nothing_is_rewritten_without_rewrite_path() -> None:
    (rule,) = routes(objects(service(), [endpoint("a")])).values()
    assert "filters" not in rule["backendRefs"][0]


def test_an_endpoint_with_a_credential_is_reached_through_its_egress_proxy() -> None:
    credential = {"apiKey": {"secretRef": {"name": "together"}}}
    keyed = endpoint("keyed", url="https://api.together.xyz", rewritePath="/v1/", credential=credential)
    (rule,) = routes(objects(service(), [keyed])).values()
    (reference,) = rule["backendRefs"]
    assert reference["name"].startswith("keyed-egress-")
    assert reference["port"] == 80
    assert "hostname" not in rewrite(reference)


def test_h11_a_new_service_is_withheld_until_an_endpoint_is_usable() -> None:
    assert objects(service(), [endpoint("a")], ["a"]) == []
    assert objects(service(), []) == []
    assert len(objects(service(), [endpoint("a")])) == 1


def test_d16_a_service_that_was_there_gets_a_backend_without_endpoints() -> None:
    composed = objects(service(), [endpoint("a")], ["a"], existed=True)
    assert [value["kind"] for value in composed] == ["Service", "EndpointSlice", "HTTPRoute"]
    backend, slices, route = composed
    assert "selector" not in backend["spec"]
    assert slices["endpoints"] == []
    (reference,) = route["spec"]["rules"][0]["backendRefs"]
    assert (reference["name"], reference["port"]) == (backend["metadata"]["name"], backend["spec"]["ports"][0]["port"])
    working = objects(service(), [endpoint("a")])[0]
    assert route["metadata"] == working["metadata"], "it takes the place of the route, and gives it back"


@pytest.mark.parametrize("count", [1, 16, 17, 40, 250, 1000])
def test_wide_services_become_exact_trees(count: int) -> None:
    endpoints = [endpoint(f"e-{i}", rewritePath=f"/e-{i}/") for i in range(count)]
    heavy = endpoint("heavy", labels={"app": "b"})
    wire = service(entry(weight=3), entry("b", weight=1))
    composed = objects(wire, [*endpoints, heavy])
    rules = routes(composed)
    assert all(1 <= len(rule["backendRefs"]) <= 16 for rule in rules.values())
    assert (count + 1 > 16) == (len(rules) > 1) == (composed[0]["kind"] == "ReferenceGrant")
    members = resolved(wire, [*endpoints, heavy]).members
    total = sum(member.weight for member in members)
    desired = {backend_name(member.endpoint.name): Fraction(member.weight, total) for member in members}
    assert dict(shares(rules)) == desired
    assert desired[backend_name("heavy")] == Fraction(1, 4)
    names = [value["metadata"]["name"] for value in composed]
    assert len(set(names)) == len(names)


def test_below_a_part_a_path_that_is_not_rewritten_is_restored() -> None:
    rules = routes(objects(service(), [endpoint(f"e-{i}") for i in range(40)]))
    del rules["/ml-team/assistant/"]
    targets = {rewrite(each)["path"]["replacePrefixMatch"] for rule in rules.values() for each in rule["backendRefs"]}
    assert targets == {"/ml-team/assistant/"}


def test_routes_of_parts_may_lead_to_the_gateways_own_service() -> None:
    composed = objects(service(), [endpoint(f"e-{i}") for i in range(40)])
    grant = composed[0]
    (reference, *_) = next(iter(routes(composed).values()))["backendRefs"]
    assert (reference["namespace"], reference["name"], reference["port"]) == ("traefik-system", "traefik", 80)
    assert grant["metadata"]["namespace"] == "traefik-system"
    assert grant["spec"] == {
        "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "ml-team"}],
        "to": [{"group": "", "kind": "Service", "name": "traefik"}],
    }


def by_name(composed: Iterable[Object]) -> dict[str, Object]:
    return {value["metadata"]["name"]: value for value in composed}


def test_one_endpoint_more_changes_few_objects() -> None:
    changed = []
    for count in range(300, 312):
        endpoints = [endpoint(f"e-{i}") for i in range(count + 1)]
        before, after = by_name(objects(service(), endpoints[:-1])), by_name(objects(service(), endpoints))
        changed.append(sum(before.get(name) != after.get(name) for name in before.keys() | after.keys()))
    assert sorted(changed)[len(changed) // 2] <= 3
    assert max(changed) <= 40


@settings(max_examples=30)
@given(st.permutations([f"e-{i}" for i in range(24)]))
def test_the_same_endpoints_in_any_order_give_the_same_objects(names: list[str]) -> None:
    expected = objects(service(), [endpoint(f"e-{i}") for i in range(24)])
    assert objects(service(), [endpoint(name) for name in names]) == expected


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize("name", ["assistant", "a" * 63, "1st.model", "a" * 56 + ".b"])
def test_objects_are_valid(name: str, version: str) -> None:
    wire = service(name=name)
    hosts = [endpoint("h", url="https://api.together.xyz", rewritePath="/")]
    wide = [endpoint(f"e-{i}") for i in range(40)]
    for composed in (objects(wire, hosts), objects(wire, wide), objects(wire, [], existed=True)):
        assert composed
        for value in composed:
            check(value, version)


def test_a_thousand_services_over_two_thousand_endpoints_are_fast() -> None:
    """A wide margin over about half a second, as other programs run beside the tests."""
    endpoints = [endpoint(f"e-{i}", labels={"app": f"app-{i % 1000}", "tier": "x"}) for i in range(2000)]
    start = time.process_time()
    index = endpoint_index(endpoints)
    for i in range(1000):
        selector = {"matchLabels": {"tier": "x", "app": f"app-{i}"}}
        wire = service({"selector": selector}, name=f"s-{i}")
        resolution = resolve(wire, index, lambda _: True)
        assert len(service_objects(wire, resolution, GATEWAY, True)[0]["spec"]["rules"][0]["backendRefs"]) == 2
    assert time.process_time() - start < 5
